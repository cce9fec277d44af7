"""What a search asks for: a tree that every provider compiles, and the words that it compares."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, tzinfo
from enum import Enum
from typing import Final, TypeAlias

from postroom.core.message import Mail, Party
from postroom.core.text import words
from postroom.core.values import dataclass


class Field(Enum):
    """Where a text is looked for; the value is the operator that says so."""

    ANY = ""
    FROM = "from"
    TO = "to"
    CC = "cc"
    BCC = "bcc"
    SUBJECT = "subject"
    FILENAME = "filename"
    LIST = "list"
    DELIVEREDTO = "deliveredto"


PEOPLE: Final = frozenset({Field.FROM, Field.TO, Field.CC, Field.BCC, Field.DELIVEREDTO})


class Fact(Enum):
    """What a mail is or is not, as one types it; the empty query stands alone, never inside another."""

    EVERYTHING = ""
    ANYWHERE = "in:anywhere"  # spam and trash included
    ATTACHMENT = "has:attachment"
    USERLABELS = "has:userlabels"


@dataclass(frozen=True, slots=True)
class Text:
    """A word or phrase as it was typed: found where `words(text)` occurs in one piece."""

    field: Field
    text: str


@dataclass(frozen=True, slots=True)
class OwnAddress:
    """Any address of one's own, in a field of people."""

    field: Field


@dataclass(frozen=True, slots=True)
class Labelled:
    """The mail carries the label whose `label_key` this is."""

    key: str


@dataclass(frozen=True, slots=True)
class Dated:
    """At or after the beginning of a day or a second since 1970 (`newer`), or before it."""

    newer: bool
    when: date | int


@dataclass(frozen=True, slots=True)
class Age:
    """At most so many hours, days, months or years old (`newer`), or older."""

    newer: bool
    count: int
    unit: str  # a letter of `UNITS`


UNITS: Final = "hdmy"


@dataclass(frozen=True, slots=True)
class Size:
    """Strictly larger than so many bytes, or strictly smaller."""

    larger: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class MessageId:
    """Exactly this Message-ID, written without its angle brackets."""

    value: str


@dataclass(frozen=True, slots=True)
class And:
    """All of at least two parts, none of them an `And`."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of at least two parts, none of them an `Or`."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """What does not match the part, which is no `Not`."""

    part: Query


Leaf: TypeAlias = Fact | Text | OwnAddress | Labelled | Dated | Age | Size | MessageId
Query: TypeAlias = Leaf | And | Or | Not


def joined(kind: type[And | Or], parts: Iterable[Query]) -> Query:
    """Return the parts as one query: flat, and without a node around a single one."""
    flat: list[Query] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def opposite(part: Query) -> Query:
    return part.part if isinstance(part, Not) else Not(part)


def leaves(query: Query, *, excluded: bool = True) -> Iterator[Query]:
    """Yield what a query asks for, without its joints; what stands under a NOT only with `excluded`."""
    match query:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part, excluded=excluded)
        case Not(part):
            yield from leaves(part) if excluded else ()
        case leaf:
            yield leaf


def restricted(query: Query) -> Query:
    """Return the query as a mailbox answers it: no spam and no trash, but where it asks for them."""
    wanted = list(leaves(query, excluded=False))
    if any(leaf is Fact.ANYWHERE for leaf in wanted):
        return query
    named = {leaf.key for leaf in wanted if isinstance(leaf, Labelled)}
    parts = query.parts if isinstance(query, And) else (query,)
    own = () if query is Fact.EVERYTHING else parts
    left_out = [Not(Labelled(key)) for key in ("spam", "trash") if key not in named]
    return joined(And, (*own, *(part for part in left_out if part not in own)))


@dataclass(frozen=True, slots=True)
class QueryContext:
    """Whose mailbox is searched, when, and where midnight falls."""

    now: int
    me: tuple[str, ...]
    zone: tzinfo


_SECONDS_IN: Final = {"h": 3600, "d": 86_400}
_DAWN: Final = -62_135_596_800  # the year 1, before which the calendar has no days
_EMAIL: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")


def bounds(node: Dated | Age, view: QueryContext) -> tuple[int | None, int | None]:
    """Return the seconds since 1970 from which, and before which, a mail's date must lie."""
    if isinstance(node, Age):
        then = _ago(node, view)
    elif isinstance(node.when, int):
        then = node.when
    else:
        then = int(datetime.combine(node.when, time(), view.zone).timestamp())
    return (then, None) if node.newer else (None, then)


def _ago(age: Age, view: QueryContext) -> int:
    if age.unit in _SECONDS_IN:
        return view.now - age.count * _SECONDS_IN[age.unit]
    here = datetime.fromtimestamp(view.now, view.zone)
    months = age.count * (12 if age.unit == "y" else 1)
    year, month = divmod(here.year * 12 + here.month - 1 - months, 12)
    if year < 1:
        return _DAWN
    day = min(here.day, monthrange(year, month + 1)[1])
    return int(here.replace(year=year, month=month + 1, day=day, fold=0).timestamp())


def terms(mail: Mail) -> dict[Field, list[str]]:
    """Return the words that each field is searched by, in order."""
    texts = {
        **{
            where: [text for party in parties for text in (party.name, party.address)]
            for where, parties in _people(mail).items()
        },
        Field.SUBJECT: [mail.subject],
        Field.FILENAME: [attachment.name for attachment in mail.attachments],
        Field.LIST: [mail.list_id],
        Field.DELIVEREDTO: mail.delivered_to,
    }
    return {where: [word for text in each for word in words(text)] for where, each in texts.items()}


def addresses(mail: Mail) -> dict[Field, set[str]]:
    """Return the whole addresses in each field of people, as `whole_address` has them."""
    people = _people(mail).items()
    found = {where: [party.address for party in parties] for where, parties in people}
    found[Field.DELIVEREDTO] = [*mail.delivered_to]
    return {where: set(filter(None, map(whole_address, each))) for where, each in found.items()}


def _people(mail: Mail) -> dict[Field, tuple[Party, ...]]:
    sender = (mail.sender,) if mail.sender else ()
    return {Field.FROM: sender, Field.TO: mail.to, Field.CC: mail.cc, Field.BCC: mail.bcc}


def whole_address(text: str) -> str:
    """Return the address that a text is, in the form in which addresses are compared, or nothing."""
    return text.casefold() if _EMAIL.fullmatch(text) else ""
