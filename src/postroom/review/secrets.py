"""Secrets in a text: keys, passwords, one-time codes, cards and account numbers."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from postroom.core.text import without_invisible
from postroom.review.tables import sections, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_COVERS: Final = 5
RANDOM: Final = "A long random-looking string"  # a key, or the number of a parcel
_CHANGE: Final = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[0-9]|[a-z][A-Z0-9])|[0-9](?=[A-Za-z])")


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


def _mod_97(found: re.Match[str]) -> bool:
    number = re.sub(r"[ \xa0-]", "", found[0])[: _iban_lengths().get(found[0][:2], 0)]
    turned = "".join(str(int(char, 36)) for char in number[4:] + number[:4])
    return len(number) >= 15 and int(turned) % 97 == 1


def _random(found: re.Match[str]) -> bool:
    word = found[0][:200]
    mixed = not word.islower() and not word.isupper() and re.search("[0-9]", word)
    return bool(mixed) and len(set(word)) > 15 and len(_CHANGE.findall(word)) * 4 >= len(word)


@cache  # compiling them takes long, and most commands need none
def _rules(name: str) -> list[tuple[str, re.Pattern[str], Callable[[re.Match[str]], bool]]]:
    """Return the patterns of `secrets.txt` below a heading: what each finds, and the check that a match must pass."""
    checks = {"A password": _password, "A payment card": _luhn, "An IBAN": _mod_97, RANDOM: _random}
    table = sections("secrets.txt")
    rows = (re.split(r"\s{2,}", row, maxsplit=1) for row in table[name])
    return [
        (
            what,
            re.compile(rule.replace("<<digits>>", table["digits"][0]), re.DOTALL),
            checks.get(what, bool),
        )
        for what, rule in rows
    ]


@cache
def _iban_lengths() -> dict[str, int]:
    return {entry[:2]: int(entry[2:]) for entry in words("iban_lengths")}


def lower_in_place(text: str) -> str:
    """Return the text in lower case, each character at its place."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower()[:1] for c in text)


def _spans(text: str) -> Iterator[Iterator[tuple[str, int, int]]]:
    low = lower_in_place(text)
    for source, name in ((text, "exact"), (low, "folded")):
        for what, rule, check in _rules(name):
            hits = filter(check, rule.finditer(source))
            yield ((what, found.start(), found.end()) for found in hits)


def secrets(text: str) -> set[str]:
    """Return what kinds of secrets a text seems to hold."""
    return {what for spans in _spans(without_invisible(text)) for what, _, _ in islice(spans, 1)}


def masked(text: str, *, unsure: bool = True) -> str:
    """Return a short text with its secrets covered, those too that only may be one."""
    # One that was grown together with another is seen when that is gone.
    for _ in range(MAX_COVERS):
        spans = chain.from_iterable(_spans(text))
        sure = ((start, end) for what, start, end in spans if unsure or what != RANDOM)
        hidden = {at for start, end in sure for at in range(start, end)}
        if not hidden:
            break
        covered = "".join("\0" if at in hidden else char for at, char in enumerate(text))
        text = re.sub("\0+", "[secret]", covered)
    return text
