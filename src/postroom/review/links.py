"""Links in a text, in every spelling that a program may follow, and the hosts that they name."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from html import unescape
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from postroom.core.text import skeleton, without_invisible
from postroom.review.tables import pattern, words

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

MAX_LINKS: Final = 20_000  # places in a letter where a link stands; a card that met more says so
MAX_ADDRESS: Final = 4_000  # characters of a link
UNREAD: Final = "unread"  # `Link.how` of the one that stands for all beyond these limits


class Link(NamedTuple):
    target: str
    scheme: str
    host: str
    label: str = ""
    how: str = ""  # it stands there: "" (written), "loads" or "disguised"


class Edited(NamedTuple):
    """A text in which parts were replaced, with what tells where its characters stood before."""

    text: str
    steps: list[int]  # positions in the text from which its characters are moved
    moves: list[int]  # and by how much

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the start and end that a part of the text had before."""
        return self._before(start), self._before(end - 1) + 1

    def _before(self, at: int) -> int:
        step = bisect_right(self.steps, at)
        return at + self.moves[step - 1] if step else at


def edit(text: str, rule: re.Pattern[str], put: Callable[[re.Match[str]], str]) -> Edited:
    """Return the text with each match of a rule replaced by what `put` returns for it."""
    steps, moves, parts, last, length = list[int](), list[int](), list[str](), 0, 0
    for found in rule.finditer(text):
        kept, new = text[last : found.start()], put(found)
        parts += kept, new
        last, length = found.end(), length + len(kept) + len(new)
        steps.append(length)
        moves.append(last - length)
    return Edited("".join((*parts, text[last:])), steps, moves)


_RawLink = tuple[str, str, str]  # what is written, its label, and how it stands there
_character: Final = lru_cache(maxsize=1_000)(unescape)


def unescaped(html: str) -> str:
    if "&" not in html:
        return html
    html = pattern("zeros").sub(r"\1", html)
    return pattern("entity").sub(lambda found: _character(found[0]), html)


def all_text(html: str) -> str:
    """Return the words of a page, the hidden ones too."""
    whole_words = pattern("inline_tag").sub("", html)
    return without_invisible(unescaped(pattern("tag").sub(" ", whole_words)))


def ascii_host(host: str) -> str:
    """Return a host as name servers know it."""
    host = unicodedata.normalize("NFKC", unquote(host[:255])).casefold()
    host = host.replace("。", ".").strip(".")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def readable(host: str) -> str:
    """Return a host as its reader sees it, `xn--` decoded."""
    host = host[:255].casefold()
    if "xn--" not in host:
        return host
    labels = host.split(".")
    for at, label in enumerate(labels):
        with suppress(UnicodeError, OverflowError):
            labels[at] = label[4:].encode().decode("punycode") if label[:4] == "xn--" else label
    return ".".join(labels)


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # six bare starts of Python: for cards alone

    return PublicSuffixList()


@lru_cache(maxsize=4_096)
def site(host: str) -> str:
    """Return the registrable domain of a host; an IP address, and what nobody registered, as it is."""
    if not host or pattern("ip_address").fullmatch(host):
        return host
    return _suffixes().privatesuffix(host) or host


def host_in_label(label: str) -> str:
    for found in islice(pattern("bare_host").finditer(label), 20):
        ending = found[1].lower()
        marked = found[0][:4].lower() == "www." or label[: found.start()].endswith(("//", "@"))
        country = len(ending) == 2 and ending not in words("file_endings")
        if marked or country or ending in words("common_endings"):
            return ascii_host(found[0])
    return ""


def links(text: str, html: str = "", page: str = "") -> list[Link]:
    """Return the links of a text and of a page and its words, in every spelling that a program may follow."""
    texts = (raw for one in (text, page) for raw, _, _ in _in_text(without_invisible(one)))
    places = chain(_in_page(html), _unique(texts))
    found = dict.fromkeys(islice(places, MAX_LINKS))
    more = [Link("", "", "", "", UNREAD)] if next(places, None) else []
    return [*dict.fromkeys(link for raw in found if (link := _link(*raw))), *more]


def link_spans(text: str) -> Iterator[tuple[Link, int, int]]:
    """Yield the links of a text that holds nothing invisible, each with its start and end, as often as they stand there."""
    for raw, start, end in _in_text(text):
        if link := _link(*raw):
            # A reference has its target elsewhere, and is taken as a whole.
            whole = text[start] in "![" and text[end - 1] == "]"
            yield link, start, end if whole else start + len(_trimmed(text[start:end]))


def _unique(links: Iterable[_RawLink]) -> Iterator[_RawLink]:
    known = set[_RawLink]()
    for raw in links:
        if raw not in known:
            known.add(raw)
            yield raw


def _written(text: str) -> Iterator[re.Match[str]]:
    low = text.casefold()
    if not any(sign in low for sign in words("link_signs")):
        return iter(())  # as in most texts: looking for one takes long
    return pattern("written").finditer(text)


def _in_text(text: str) -> Iterator[tuple[_RawLink, int, int]]:
    written = set[str]()
    for found in _written(text):
        written.add(found[0])
        yield (found[0], "", ""), *found.span()
    if any(bracket in text for bracket in "[({"):
        plain = edit(text, pattern("fenced_sign"), lambda found: found[2] or ".")
        for found in _written(plain.text) if plain.steps else ():
            if found[0] not in written:
                yield (found[0], "", "disguised"), *plain.span(*found.span())
    for found in pattern("markdown").finditer(text) if "](" in text else ():
        yield (found[3], found[2] or "", "loads" if found[1] else ""), *found.span(3)
    if "]:" in text:
        definitions = {found[1].casefold(): found for found in pattern("definition").finditer(text)}
        for label, found in definitions.items():
            yield (found[2], label, ""), *found.span(2)
        for found in pattern("reference").finditer(text) if definitions else ():
            if target := definitions.get((found[3] or found[2]).casefold()):
                yield (target[2], found[2], "loads" if found[1] else ""), *found.span()


def _in_page(html: str) -> Iterator[_RawLink]:
    # The distances bound the time for a hostile page.
    for found in pattern("href").finditer(html):
        start = html.find(">", found.end(), found.end() + 20_000) + 1  # 0: the tag has no end
        end = pattern("end_of_link").search(html, start, start + 2_000)
        label = all_text(html[start : end.start() if end else start + 300]) if start else ""
        yield found[1] or found[2] or found[3] or "", label, ""


def _trimmed(raw: str) -> str:
    """Return what is written without the marks after a link: of brackets, one that closes another stays."""
    bare = raw.rstrip(".,;:!?'\"*_~)]}>")
    return raw[: len(bare) + 1] if "(" in bare and raw[len(bare) :].startswith(")") else bare


def _link(raw: str, label: str, how: str) -> Link | None:
    length, raw = len(raw), "".join(unescaped(raw).split())
    raw = _trimmed(raw)
    named = pattern("scheme").match(raw)
    scheme = named[1].lower() if named else ""
    rest = raw[named.end() :] if named else raw
    if raw.startswith(("\\\\", "//")):
        scheme = "file" if raw[0] == "\\" else "https"
    elif not named:
        name = pattern("bare_host").match(raw)
        placed = name and (raw[:4].lower() == "www." or raw[name.end() :][:1] in ("/", ":", "?"))
        if how == "loads" or not name or not placed or name[1].lower() in words("file_endings"):
            return Link("", "", "", label, UNREAD) if length >= MAX_ADDRESS else None
        scheme = "http"
    if re.fullmatch(r"h(?:xx|\*\*|tt)ps?", scheme) and scheme not in words("web_schemes"):
        scheme, how = "http" + scheme[4:], how or "disguised"
    if scheme == "mailto":
        address = unquote(re.split(r"[?,;]", rest, maxsplit=1)[0])
        return Link(f"mailto:{address}", scheme, ascii_host(address.rpartition("@")[2]), label, how)
    if scheme not in words("web_schemes") and not rest.startswith(("//", "\\\\")):
        return Link(f"{scheme}:{rest}", scheme, "", label, how)
    rest = rest.lstrip("/\\")
    authority = re.split(r"[/\\?#]", rest, maxsplit=1)[0]
    place = authority.rpartition("@")[2]
    host = ascii_host(place[: place.find("]") + 1] if place[:1] == "[" else place.partition(":")[0])
    target = f"{scheme}://{authority.lower()}{rest[len(authority) :]}"
    return Link(target, scheme, host, label, how) if host else None


def host_skeleton(text: str) -> str:
    """Return what a host is taken for at a glance, the same for all that look alike."""
    return skeleton(readable(text))


def scripts(word: str) -> set[str]:
    """Return those scripts of a word whose letters look alike."""
    letters = "a" if word.isascii() else filter(str.isalpha, word[:255])
    found = {unicodedata.name(char, "").partition(" ")[0] for char in letters}
    return found & words("confusable_scripts")


def is_spoofed(host: str) -> bool:
    """Whether a label mixes scripts, or reads as ASCII in another script under an ASCII ending."""
    labels = readable(host).split(".")
    foreign = [label for label in labels if scripts(label) - {"LATIN"}]
    return any(
        len(scripts(label)) > 1 or (labels[-1].isascii() and host_skeleton(label).isascii())
        for label in foreign
    )


def _one_edit(one: str, other: str) -> bool:
    """Whether at most one character is left out, added, changed, or swapped with the next."""
    if abs(len(one) - len(other)) > 1:
        return False
    pairs = enumerate(zip(one, other, strict=False))
    at = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    one, other = one[at:], other[at:]
    swapped = one[:2] == other[:2][::-1] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]


class Known:
    """Domains and addresses that a person knows, and what can be taken for one of them."""

    def __init__(self, domains: Iterable[str], addresses: Iterable[str] = ()) -> None:
        self.sites = {site(domain.casefold()) for domain in domains if "." in domain}
        self._looks = list(map(_look, sorted(self.sites)))
        people = [known for known in sorted(addresses) if known[:1] != "@"]
        self._people = [(known, *_mailbox(known)) for known in people]

    def imitated(self, address: str) -> str:
        """Return the known address that another one is taken for: it differs by how it is spelled."""
        name, look, domain = _mailbox(address)
        is_public, found = domain in words("public_mail") and len(look) > 5, ""
        for known, its_name, its_look, its_domain in self._people:
            if its_domain == domain:
                if its_name == name:
                    return ""
                if look == its_look or (is_public and _one_edit(look, its_look)):
                    found = known
            elif is_public and look == its_look and its_domain in words("public_mail"):
                found = known
        return found

    def lookalike_of(self, host: str) -> tuple[str, bool]:
        """Return the known domain that a host is taken for, and whether more than its ending is alike."""
        own_site = site(host.casefold())
        if own_site in self.sites or own_site in words("public_mail"):
            return "", False
        near, (pieces, flat), ending = host_skeleton(own_site), _joined(host_skeleton(host)), ""
        for known, look, inner, whole in self._looks:
            if host.casefold().endswith(f".{known}"):
                return "", False
            edited = _one_edit(own_site, known) or _one_edit(near, look)
            if inner in pieces or whole == flat or edited:
                return known, True
            if near.partition(".")[0] == look.partition(".")[0]:
                ending = ending or known
        return ending, False


@lru_cache(maxsize=4_096)
def _look(site: str) -> tuple[str, str, str, str]:
    """Return a site with what it is taken for at a glance, in three forms."""
    look = host_skeleton(site)
    return site, look, *_joined(look)


@lru_cache(maxsize=16_384)
def _mailbox(address: str) -> tuple[str, str, str]:
    local, _, domain = address.rpartition("@")
    name = local.partition("+")[0]
    return name, host_skeleton(name).translate(_SEPARATORS), domain


def _joined(look: str) -> tuple[str, str]:
    return f".{look.replace('-', '.')}.", look.replace("-", "").replace(".", "")


_SEPARATORS: Final = str.maketrans("", "", ".-_")
