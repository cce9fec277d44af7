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
    """Where a text is looked for, by the operator that says so."""

    ANY = ""
    FROM = "from"
    TO = "to"
    CC = "cc"
    BCC = "bcc"
    SUBJECT = "subject"
    FILENAME = "filename"
    LIST = "list"
    DELIVEREDTO = "deliveredto"


UNITS: Final = "hdmy"  # hours, days, months, years
PEOPLE: Final = (Field.FROM, Field.TO, Field.CC, Field.BCC, Field.DELIVEREDTO)


class Fact(Enum):
    """What a mail is or is not, as one types it; the empty query stands alone, never inside another."""

    EVERYTHING = ""
    ANYWHERE = "in:anywhere"  # spam and trash included
    ATTACHMENT = "has:attachment"
    USERLABELS = "has:userlabels"


@dataclass(frozen=True, slots=True)
class Text:
    field: Field
    text: str  # as it was typed: found where `words(text)` occurs in one piece


@dataclass(frozen=True, slots=True)
class OwnAddress:
    field: Field  # one of `PEOPLE`


@dataclass(frozen=True, slots=True)
class Labelled:
    key: str  # the label's `label_key`


@dataclass(frozen=True, slots=True)
class Dated:
    newer: bool  # at or after `when`; else before it
    when: date | int  # the beginning of a day, or a second since 1970


@dataclass(frozen=True, slots=True)
class Age:
    newer: bool  # at most as old; else older
    count: int
    unit: str  # a letter of `UNITS`


@dataclass(frozen=True, slots=True)
class Size:
    larger: bool  # strictly; else strictly smaller
    bytes: int


@dataclass(frozen=True, slots=True)
class MessageId:
    value: str  # without its angle brackets


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Query, ...]  # two or more, none of them an `And`


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Query, ...]  # two or more, none of them an `Or`


@dataclass(frozen=True, slots=True)
class Not:
    part: Query  # no `Not`


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
    now: int
    me: tuple[str, ...]  # the addresses of the mailbox
    zone: tzinfo  # says where midnight falls


_SECONDS_IN: Final = {"h": 3600, "d": 86_400}
_DAWN: Final = -62_135_596_800  # the year 1, before which the calendar has no days


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
        Field.SUBJECT: [mail.subject],
        Field.FILENAME: [attachment.name for attachment in mail.attachments],
        Field.LIST: [mail.list_id],
    }
    for where, parties in _people(mail).items():
        texts[where] = [text for party in parties for text in (party.name, party.address)]
    return {where: [word for text in each for word in words(text)] for where, each in texts.items()}


def addresses(mail: Mail) -> dict[Field, set[str]]:
    """Return the whole addresses in each field of people, as `whole_address` has them."""
    return {
        where: {whole for party in parties if (whole := whole_address(party.address))}
        for where, parties in _people(mail).items()
    }


def _people(mail: Mail) -> dict[Field, tuple[Party, ...]]:
    sender = (mail.sender,) if mail.sender else ()
    own = tuple(Party("", address) for address in mail.delivered_to)
    people = (sender, mail.to, mail.cc, mail.bcc, own)
    return dict(zip(PEOPLE, people, strict=True))


def whole_address(text: str) -> str:
    """Return the address that a text is, in the form in which addresses are compared, or nothing."""
    return text.casefold() if re.fullmatch(r"[^\s@]+@[^\s@]+\.[^\s@]+", text) else ""
