"""What a search asks for: a tree that every provider compiles, and the words that it compares."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from postroom.core.text import words
from postroom.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroom.core.message import Mail, Party


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


class Kind(Enum):
    """What `has:` asks for."""

    ATTACHMENT = "attachment"
    USERLABELS = "userlabels"


class Unit(Enum):
    """What an age is counted in."""

    HOUR = "h"
    DAY = "d"
    MONTH = "m"
    YEAR = "y"


@dataclass(frozen=True, slots=True)
class Everything:
    """The empty query; it stands alone, never inside another."""


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
class Anywhere:
    """All mail, spam and trash included."""


@dataclass(frozen=True, slots=True)
class Has:
    """The mail has at least one attachment, or one label of one's own."""

    what: Kind


@dataclass(frozen=True, slots=True)
class Since:
    """At or after the beginning of a day, or a second since 1970."""

    when: date | int


@dataclass(frozen=True, slots=True)
class Until:
    """Before the beginning of a day, or a second since 1970."""

    when: date | int


@dataclass(frozen=True, slots=True)
class Age:
    """At most so old (`newer`), or older."""

    newer: bool
    count: int
    unit: Unit


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


Leaf: TypeAlias = (
    Text | OwnAddress | Labelled | Anywhere | Has | Since | Until | Age | Size | MessageId
)
Query: TypeAlias = Everything | Leaf | And | Or | Not


def joined(kind: type[And | Or], parts: Iterable[Query]) -> Query:
    """Return the parts as one query: flat, and without a node around a single one."""
    flat: list[Query] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def opposite(part: Query) -> Query:
    """Return the negation; that of a negation is its part."""
    return part.part if isinstance(part, Not) else Not(part)


_SPAM_AND_TRASH: Final = (Labelled("spam"), Labelled("trash"))
_SECONDS_IN: Final = {Unit.HOUR: 3600, Unit.DAY: 86_400}
_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
_DAWN: Final = -62_135_596_800  # the year 1, before which the calendar has no days


@dataclass(frozen=True, slots=True)
class QueryContext:
    """Whose mailbox is searched, when, and where midnight falls."""

    now: int
    me: tuple[str, ...]
    zone: tzinfo


def bounds(node: Since | Until | Age, view: QueryContext) -> tuple[int | None, int | None]:
    """Return the seconds since 1970 from which, and before which, a mail's date must lie."""
    if isinstance(node, Age):
        then, from_then = _ago(node, view), node.newer
    else:
        then, from_then = _instant(node.when, view.zone), isinstance(node, Since)
    return (then, None) if from_then else (None, then)


def _instant(when: date | int, zone: tzinfo) -> int:
    if isinstance(when, int):
        return when
    return int(datetime.combine(when, time(), zone).timestamp())


def _ago(age: Age, view: QueryContext) -> int:
    if age.unit in _SECONDS_IN:
        return view.now - age.count * _SECONDS_IN[age.unit]
    here = datetime.fromtimestamp(view.now, view.zone)
    months = age.count * (12 if age.unit is Unit.YEAR else 1)
    year, month = divmod(here.year * 12 + here.month - 1 - months, 12)
    if year < 1:
        return _DAWN
    last = date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1) - timedelta(days=1)
    then = here.replace(year=year, month=month + 1, day=min(here.day, last.day), fold=0)
    return int(then.timestamp())


def terms(mail: Mail) -> dict[Field, list[str]]:
    """Return the words that each field is searched by, in order; `body_terms` has the text's."""
    return {
        Field.FROM: _people((mail.sender,) if mail.sender else ()),
        Field.TO: _people(mail.to),
        Field.CC: _people(mail.cc),
        Field.BCC: _people(mail.bcc),
        Field.SUBJECT: words(mail.subject),
        Field.FILENAME: _all_words(attachment.name for attachment in mail.attachments),
        Field.LIST: words(mail.list_id),
        Field.DELIVEREDTO: _all_words(mail.delivered_to),
    }


def body_terms(mail: Mail) -> list[str]:
    """Return the words of the mail's text, in order."""
    return words(mail.text)


def addresses(mail: Mail) -> dict[Field, set[str]]:
    """Return the whole addresses in each field of people, as `whole_address` has them."""
    sender = (mail.sender,) if mail.sender else ()
    named = {Field.FROM: sender, Field.TO: mail.to, Field.CC: mail.cc, Field.BCC: mail.bcc}
    found = {where: {party.address for party in parties} for where, parties in named.items()}
    found[Field.DELIVEREDTO] = set(mail.delivered_to)
    return {where: set(filter(None, map(whole_address, each))) for where, each in found.items()}


def whole_address(text: str) -> str:
    """Return the address that a text is, in the form in which addresses are compared, or nothing."""
    return text.casefold() if _ADDRESS.fullmatch(text) else ""


def _people(parties: tuple[Party, ...]) -> list[str]:
    return _all_words(text for party in parties for text in (party.name, party.address))


def _all_words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in words(text)]


def restricted(query: Query) -> Query:
    """Return the query as a mailbox answers it: no spam and no trash, but where it asks for them."""
    wanted = set(_wanted(query))
    if Anywhere() in wanted:
        return query
    parts = query.parts if isinstance(query, And) else (query,)
    left_out = [Not(label) for label in _SPAM_AND_TRASH if label not in wanted]
    own = () if isinstance(query, Everything) else parts
    return joined(And, (*own, *(part for part in left_out if part not in own)))


def _wanted(query: Query) -> Iterator[Query]:
    """Yield the leaves that a mail may match by; those under a NOT only take mails away."""
    match query:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _wanted(part)
        case Not():
            return
        case leaf:
            yield leaf


def leaves(query: Query) -> Iterator[Query]:
    """Yield what a query asks for, without its joints."""
    waiting = [query]
    while waiting:
        match waiting.pop():
            case And(parts) | Or(parts):
                waiting.extend(parts)
            case Not(part):
                waiting.append(part)
            case leaf:
                yield leaf
