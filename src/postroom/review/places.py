"""Where a text holds what a card speaks of: addresses, links, numbers, codes, secrets and amounts of money."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from postroom.core.records import CardItem
from postroom.core.text import INVISIBLE, one_line, without_invisible
from postroom.review.links import MAX_ADDRESS, Edited, edit, link_spans, links
from postroom.review.tables import pattern
from postroom.review.tokens import (
    MAX_READ,
    address_spans,
    address_tokens,
    code_spans,
    secret_spans,
)

MAX_FOUND: Final = 10_000  # places of one kind
MAX_SENTENCE: Final = 240
_SENTENCE_END: Final = re.compile(r"\n|(?<=[.!?])\s")


class Place(NamedTuple):
    kind: str  # as in `ITEM_KINDS`: "address", "link", "picture", "number", "code", "secret" or "amount"
    # The key of an address, the target of a link, a `number:` or `code:` token, what a secret is, or an
    # amount as it is written.
    key: str
    start: int
    end: int


def find_places(text: str) -> Iterator[Place]:
    """Yield what stands in the first 200,000 characters of a text; the places of two kinds may overlap.

    Positions count the characters of the text as it is given, the invisible ones too.
    """
    given = text[: MAX_READ + MAX_ADDRESS]  # what begins before the end is read to its own end
    plain = Edited(given, [], []) if given.isascii() else edit(given, INVISIBLE, lambda _: "")
    for kind, key, start, end in _places(plain.text):
        place = Place(kind, key, *plain.span(start, end))
        if place.end <= MAX_READ:
            yield place


def _places(text: str) -> Iterator[Place]:
    linked = bytearray(len(text))
    for link, start, end in islice(link_spans(text), MAX_FOUND):
        yield Place("picture" if link.how == "loads" else "link", link.target, start, end)
        if link.scheme != "mailto":  # a name before the @ of a link is no address
            linked[start:end] = b"\1" * (end - start)
    for key, start, end in islice(address_spans(text), MAX_FOUND):
        if not linked[start]:
            yield Place("address", key, start, end)
    for token, start, end in islice(code_spans(text, anywhere=True), MAX_FOUND):
        yield Place(token.partition(":")[0], token, start, end)
    for what, start, end in islice(secret_spans(text), MAX_FOUND):
        yield Place("secret", what, start, end)
    for found in islice(pattern("amount").finditer(text), MAX_FOUND):
        if not linked[found.start()]:
            yield Place("amount", one_line(found[0]), *found.span())


def sentence_about(text: str, item: CardItem) -> str:
    """Return the sentence of a mail's text in which an item of a letter stands first, on one line; "" if none does.

    A link that the mail does not hold is looked for by its host. An item that is named by what it is, as
    "a number", is not found: put what stands in the letter in its place.
    """
    plain, what = without_invisible(text[: MAX_READ + MAX_ADDRESS]), item.what
    is_link = item.kind in ("link", "picture")
    kinds = _KINDS.get(item.kind, {item.kind})
    named = [place for place in _places(what) if place.kind in kinds]
    people = [place.key for place in named if place.kind == "address"]
    keys = {place.key for place in named}.union(*map(address_tokens, people))
    hosts = {link.host for link in links(what)} - {""} if is_link else ()
    same = (place[2:] for place in _places(plain) if place.kind in kinds and place.key in keys)
    near = ((start, end) for link, start, end in link_spans(plain) if link.host in hosts)
    start, end = next(chain(same, near), (0, 0))
    return _sentence(plain, start, end) if end else ""


# The kinds of places in which an item of another kind stands; the address of a `mailto:` link may stand alone.
_KINDS: Final = {
    "recipient": {"address"},
    "answers to": {"address"},
    "link": {"link", "picture", "address"},
    "picture": {"link", "picture"},
    "secret": set[str](),
}


def _sentence(text: str, start: int, end: int) -> str:
    end = min(end, start + MAX_SENTENCE)
    room = MAX_SENTENCE - (end - start)
    before = _SENTENCE_END.split(text[max(0, start - MAX_SENTENCE) : start])[-1].lstrip()
    after = _SENTENCE_END.split(text[end : end + MAX_SENTENCE], maxsplit=1)[0].rstrip()
    left = max(room // 2, room - len(after))
    before = before[max(0, len(before) - left) :]
    return one_line(f"{before}{text[start:end]}{after[: room - len(before)]}")
