"""What an agent could take from a mail: addresses, links, hosts, codes and numbers, as tokens that can be compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, islice
from typing import Final
from urllib.parse import unquote

from postroom.core.letter import Letter
from postroom.core.text import without_invisible
from postroom.review.links import Edited, all_text, ascii_host, edit, links, unescaped
from postroom.review.tables import pattern, sections, words

MAX_COVERS: Final = 5
RANDOM: Final = "A long random-looking string"  # a key, or the number of a parcel


def _password(found: re.Match[str]) -> bool:
    value = found[2].rstrip(".,;:!?)")
    blank = value[:1] in "<[{($*•…" or "://" in value or set(value) <= set("x.-_")
    # A word of letters is one only where nothing follows: "password: swordfish", not "password: ask me".
    alone = not found[1] and found.string[found.end() : found.end() + 1] in ("", "\n")
    return len(value) > 3 and not blank and (alone or any(char.isdigit() for char in value))


def _luhn(found: re.Match[str]) -> bool:
    digits = [*map(int, filter(str.isdecimal, found[0]))]
    doubled = sum(2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[::-2]) + doubled) % 10 == 0 and len(set(digits)) > 1


def _iban_end(found: re.Match[str]) -> int:
    """Return where the number ends: what was found may go on with the words after it."""
    length = {entry[:2]: int(entry[2:]) for entry in words("iban_lengths")}.get(found[0][:2], 0)
    ends = [at for at, char in enumerate(found[0], found.start() + 1) if char.isalnum()]
    return ends[:length][-1] if length else found.start()


def _mod_97(found: re.Match[str]) -> bool:
    number = re.sub(r"[ \xa0-]", "", found.string[found.start() : _iban_end(found)])
    turned = "".join(str(int(char, 36)) for char in number[4:] + number[:4])
    return len(number) >= 15 and int(turned) % 97 == 1


def _random(found: re.Match[str]) -> bool:
    word = found[0][:200]
    mixed = not word.islower() and not word.isupper() and re.search("[0-9]", word)
    varied = len(set(word)) > 15 and len(pattern("change").findall(word)) * 4 >= len(word)
    return bool(mixed) and varied


@cache  # compiling them takes long, and most commands need none
def _rules(name: str) -> list[tuple[str, re.Pattern[str], Callable[[re.Match[str]], bool]]]:
    """Return the patterns of `secrets.txt` below a heading: what each finds, and the check that a match must pass."""
    checks = {"A password": _password, "A payment card": _luhn, "An IBAN": _mod_97, RANDOM: _random}
    table = sections("secrets.txt")
    rows = (row.replace("<<digits>>", table["digits"][0]).split("  ", 1) for row in table[name])
    compiled = ((what, re.compile(rule.lstrip(), re.DOTALL)) for what, rule in rows)
    return [(what, rule, checks.get(what, bool)) for what, rule in compiled]


def lower_in_place(text: str) -> str:
    """Return the text in lower case, each character at its place."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower()[:1] for c in text)


def _hits(text: str) -> list[tuple[str, Iterator[re.Match[str]]]]:
    """Return for each rule what it finds, and where."""
    return [
        (what, filter(check, rule.finditer(source)))
        for source, name in ((text, "exact"), (lower_in_place(text), "folded"))
        for what, rule, check in _rules(name)
    ]


def secret_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the names of the secrets in a text that holds nothing invisible, each with its start and end."""
    for what, hits in _hits(text):
        for found in hits:
            end = _iban_end(found) if what == "An IBAN" else found.end()
            yield what, found.start(), end


def secrets(text: str) -> set[str]:
    return {what for what, found in _hits(without_invisible(text)) if next(found, None)}


def masked(text: str, *, unsure: bool = True) -> str:
    """Return a short text with its secrets covered, those too that only may be one."""
    # One that was grown together with another is seen when that is gone.
    for _ in range(MAX_COVERS):
        sure = (hits for what, hits in _hits(text) if unsure or what != RANDOM)
        hidden = {at for one in chain.from_iterable(sure) for at in range(*one.span())}
        if not hidden:
            break
        covered = "".join("\0" if at in hidden else char for at, char in enumerate(text))
        text = re.sub("\0+", "[secret]", covered)
    return text


MAX_TOKENS: Final = 2_000
MAX_READ: Final = (
    200_000  # characters of a letter in which places are looked for: a page shows as many
)
MAX_ADDRESSES: Final = 60  # of its text that are compared with what mails showed
_SIGNS: Final = str.maketrans("＠﹫。．｡․﹒", "@@.....")
LONGEST_CODE: Final = 12
# Digits, spaces and hyphens that are printed instead of those of a keyboard.
_PRINTED: Final = str.maketrans(
    "０１２３４５６７８９\xa0\u2002\u2003\u2007\u2009\u200a\u202f\u3000\u2010\u2011\u2012\u2013\u2014\u2212",
    "0123456789        ------",
)


def address_key(address: str) -> str:
    """Return an address as `Address.key` has it, whatever case or script it is written in."""
    local, at, host = address.rpartition("@")
    return f"{local.casefold()}@{ascii_host(host)}" if at else address.casefold()


def address_tokens(key: str) -> tuple[str, ...]:
    """Return the tokens by which a mail may have shown an address: whole, or without a tag and what has signs in it."""
    local, _, host = key.rpartition("@")
    tail = re.split(r"[^\w.%+-]", local)[-1]
    return key, f"{tail}@{host}", f"{tail.partition('+')[0]}@{host}"


def codes(text: str, *, anywhere: bool) -> Iterator[str]:
    """Return `code:` and `number:` tokens; a code counts near a word that says so, or anywhere."""
    return (token for token, _, _ in code_spans(text, anywhere=anywhere))


def code_spans(text: str, *, anywhere: bool) -> Iterator[tuple[str, int, int]]:
    """Yield the same tokens, each with its start and end, as often as they stand there."""
    low = lower_in_place(text).translate(_PRINTED)
    near = islice(pattern("code_word").finditer(low), MAX_TOKENS)
    windows = [(0, len(low))] if anywhere else [(w.start() - 40, w.end() + 60) for w in near]
    for start, end in windows:
        # A code that begins within the window is read to its end.
        for code in pattern("code").finditer(low, max(0, start), end + LONGEST_CODE + 1):
            if code.start() < end:
                yield "code:" + code[1].replace(" ", "").replace("-", ""), *code.span(1)
    for number in pattern("number").finditer(low) if re.search(r"\d\d", low) else ():
        yield "number:" + re.sub("[ ./-]", "", number[0]), *number.span()


def _addresses(text: str) -> Iterator[str]:
    """Yield the addresses in a text: as they stand, and with what stands for a sign undone."""
    for one in dict.fromkeys((text, unquote(unescaped(_undone(text).text)))):
        yield from (key for key, _, _ in _as_written(one))


def address_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the addresses of a text that holds nothing invisible, each with its start and end, without marks before them."""
    undone = _undone(text)
    twice = _as_written(undone.text) if undone.text != text else ()
    found = chain(_as_written(text), ((key, *undone.span(*span)) for key, *span in twice))
    for key, start, end in found:
        bare = key.lstrip("_.-")
        if bare[:1] != "@":
            yield bare, start + len(key) - len(bare), end


def _undone(text: str) -> Edited:
    rule = pattern("spelled_sign")
    return edit(text.translate(_SIGNS), rule, lambda found: "@" if found[1] else ".")


def _as_written(text: str) -> Iterator[tuple[str, int, int]]:
    for found in pattern("address").finditer(text) if "@" in text else ():
        yield address_key(unicodedata.normalize("NFKC", found[0])), *found.span()


def tokens(text: str, html: str = "", *, most: int = MAX_TOKENS) -> frozenset[str]:
    """Return what could have been taken from a text: addresses, links, `host:`, `code:`, `number:`."""
    page = all_text(html)
    body = f"{without_invisible(text)}\n{page}"
    people = (key for one in _addresses(body) for key in (one, one.lstrip("_.-")))
    linked = links(text, html, page)
    leads = (part for a in linked for part in (a.target, a.host and f"host:{a.host}"))
    taken: set[str] = {""}
    # Each kind has its share: a mail full of addresses must not push its links out.
    for share, kind in enumerate((people, leads, codes(body, anywhere=False)), 1):
        while len(taken) < most * share // 3 and (token := next(kind, None)) is not None:
            taken.add(token)
    return frozenset(taken - {""})


def letter_tokens(letter: Letter) -> frozenset[str]:
    """Return all of a letter that could have been taken from a mail: addresses, links, codes."""
    text = without_invisible(f"{letter.subject}\n{letter.text}")
    linked = links(text, letter.html)
    keys = [address.key for address in (*letter.envelope, *letter.reply_to)]
    named = (key for key, _, _ in address_spans(without_invisible(letter.text[:MAX_READ])))
    others = dict.fromkeys(key for key in named if key not in keys)
    people = (t for key in (*keys, *islice(others, MAX_ADDRESSES)) for t in address_tokens(key))
    leads = (token for link in linked for token in (link.target, f"host:{link.host}"))
    return frozenset((*people, *leads, *codes(text, anywhere=True)))
