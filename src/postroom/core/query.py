"""Search: Gmail's query language as a tree that every provider compiles and `matches` defines.

    query  = clause*              each must hold; an upper-case AND may stand between two
    clause = term ("OR" term)*    OR binds tighter than the space: `a b OR c` is a AND (b OR c)
    term   = "-"* [operator ":"] (word | "phrase" | group)
    group  = "(" query ")" | "{" term ("OR"? term)* "}"     in braces, one term is enough

Nothing is guessed: what is not understood is `Invalid`, with its place. All that `parse` accepts,
`show` writes in a form that `parse` reads back to the same tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from postroom.core.errors import Invalid
from postroom.core.message import CATEGORIES, SYSTEM_LABELS, label_key, system_label
from postroom.core.text import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from postroom.core.message import Mail, Message, Party

MAX_QUERY: Final = 16_384  # characters
MAX_DEPTH: Final = 40  # brackets within brackets
MAX_TERMS: Final = 400
MAX_AGE: Final = 99_999  # units of newer_than: and older_than:
MAX_SIZE: Final = 10**15 - 1  # bytes


class UnknownOperator(Invalid):
    """The query uses what Postroom does not know, though the provider itself may."""


# --- The tree ---------------------------------------------------------------------------------


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
class Me:
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


Leaf: TypeAlias = Text | Me | Labelled | Anywhere | Has | Since | Until | Age | Size | MessageId
Query: TypeAlias = Everything | Leaf | And | Or | Not


def _joined(kind: type[And | Or], parts: Iterable[Query]) -> Query:
    flat: list[Query] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _negated(part: Query) -> Query:
    return part.part if isinstance(part, Not) else Not(part)


# --- What the operators mean ------------------------------------------------------------------


class _Term(NamedTuple):
    """A value and the operator before it, if any; `at` is where the value begins."""

    operator: str
    value: str
    at: int
    quoted: bool

    def wrong(self, why: str, remedy: str) -> Invalid:
        return _wrong(_brief(self.value), self.at, why, remedy)


def _wrong(what: str, at: int, why: str, remedy: str) -> Invalid:
    return Invalid(f"{what} at character {at + 1} {why}", remedy=remedy)


def _unknown(what: str, at: int, remedy: str) -> UnknownOperator:
    return UnknownOperator(f"Search does not know {what} at character {at + 1}", remedy=remedy)


def _brief(text: str) -> str:
    return f'"{text}"' if len(text) <= 40 else f'"{text[:39]}…"'


def _read_text(term: _Term) -> Query:
    where = Field(term.operator)
    if where in _PEOPLE and not term.quoted and term.value.lower() == "me":
        return Me(where)
    if words(term.value):
        return Text(where, term.value)
    raise term.wrong("has no letter or digit to search for", "Search for words.")


def _read_label(term: _Term) -> Query:
    if term.value.strip():
        return Labelled(label_key(system_label(term.value) or term.value))
    raise term.wrong("is no label", "Name one, as in label:work.")


def _read_place(term: _Term) -> Query:
    key = label_key(term.value)
    if key in _NO_LABELS:
        known = "in:inbox, in:sent, in:drafts, in:spam, in:trash and in:anywhere"
        remedy = f"It knows {known}, and label:{key} for a label of that name."
        raise _unknown(f"in:{key}", term.at, remedy)
    return Anywhere() if key == "anywhere" else _read_label(term)


def _one_of(values: dict[str, Query]) -> Callable[[_Term], Query]:
    def read(term: _Term) -> Query:
        if found := values.get(term.value.lower()):
            return found
        known = ", ".join(f"{term.operator}:{value}" for value in values)
        raise _unknown(f"{term.operator}:{_brief(term.value)}", term.at, f"It knows {known}.")

    return read


def _read_date(term: _Term) -> Query:
    node = Since if term.operator in ("after", "newer") else Until
    why = "is no date"
    try:
        if _SECONDS.fullmatch(term.value):
            return node(int(term.value))
        if found := _YEAR_FIRST.fullmatch(term.value):
            return node(date(int(found[1]), int(found[3]), int(found[4])))
        if found := _YEAR_LAST.fullmatch(term.value):
            return node(date(int(found[3]), int(found[1]), int(found[2])))
    except ValueError:
        why = "is no day of the calendar"
    forms = "2024/01/31, 2024-01-31, 01/31/2024 or seconds since 1970 in 9 to 11 digits"
    raise term.wrong(why, f"Write {term.operator}: and {forms}.")


def _read_age(term: _Term) -> Query:
    if found := _AGE.fullmatch(term.value):
        return Age(term.operator == "newer_than", int(found[1]), Unit(found[2].lower()))
    forms = f"a number up to {MAX_AGE} and h, d, m or y, as in {term.operator}:2d"
    raise term.wrong("is no age", f"Write {forms}.")


def _read_size(term: _Term) -> Query:
    found = _SIZE.fullmatch(term.value)
    if found and (count := int(found[1]) * _SCALES[(found[2] or "").upper()]) <= MAX_SIZE:
        return Size(term.operator != "smaller", count)
    forms = f"bytes, or K, M or G, as in {term.operator}:10M, up to {MAX_SIZE:,} bytes"
    raise term.wrong("is no size", f"Write {forms}.")


def _read_message_id(term: _Term) -> Query:
    if value := term.value.strip("<> \t\r\n"):
        return MessageId(value)
    raise term.wrong("is no Message-ID", "Write it as in rfc822msgid:abc@mail.example.org.")


_CATEGORY: Final = label_key("CATEGORY_")
_PEOPLE: Final = frozenset({Field.FROM, Field.TO, Field.CC, Field.BCC, Field.DELIVEREDTO})
_NO_LABELS: Final = frozenset({"archive", "chats", "scheduled", "snoozed"})  # places in Gmail
_YEAR_FIRST: Final = re.compile(r"([0-9]{4})([/-])([0-9]{1,2})\2([0-9]{1,2})")
_YEAR_LAST: Final = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})")
# Fewer digits are rather a year or 20240131, and more of them milliseconds.
_SECONDS: Final = re.compile(r"[0-9]{9,11}")
_AGE: Final = re.compile(r"([1-9][0-9]{0,4})([hdmyHDMY])")
_SIZE: Final = re.compile(r"([0-9]{1,15})(?:([KMGkmg])?[Bb]?)")
_SCALES: Final = {"G": 2**30, "M": 2**20, "K": 2**10, "": 1}

_OPERATORS: Final[dict[str, Callable[[_Term], Query]]] = {
    **{where.value: _read_text for where in Field},
    "label": _read_label,
    "in": _read_place,
    "is": _one_of(
        {
            "unread": Labelled("unread"),
            "read": Not(Labelled("unread")),
            "starred": Labelled("starred"),
            "important": Labelled("important"),
        }
    ),
    "has": _one_of(
        {
            "attachment": Has(Kind.ATTACHMENT),
            "userlabels": Has(Kind.USERLABELS),
            "nouserlabels": Not(Has(Kind.USERLABELS)),
        }
    ),
    "category": _one_of({name: Labelled(_CATEGORY + name) for name in CATEGORIES}),
    **dict.fromkeys(("after", "newer", "before", "older"), _read_date),
    **dict.fromkeys(("newer_than", "older_than"), _read_age),
    **dict.fromkeys(("larger", "size", "smaller"), _read_size),
    "rfc822msgid": _read_message_id,
}


# --- From text to tree ------------------------------------------------------------------------

_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_BLANKS: Final = re.compile(r"\s*")
_MINUSES: Final = re.compile(r"-*")
_WORD: Final = re.compile(r'[^\s(){}"]*')
_KEYWORD: Final = re.compile(r'(?:OR|AND|NOT|AROUND)(?![^\s(){}"])')
# Letters and a colon, but not the beginning of http://. Of all names, one has digits.
_OPERATOR: Final = re.compile(r"([^\W\d]+|rfc822msgid):(?!//)", re.IGNORECASE)
_CLOSING: Final = {"(": ")", "{": "}"}
_INSTEAD: Final = {
    "NOT": "Exclude with a minus, as in -draft",
    "AROUND": "Search for both words, or for a phrase",
}


@dataclass(slots=True)
class _Group:
    """A bracket that is still open, or the query itself."""

    opener: str = ""
    at: int = 0
    operator: str = ""
    negated: bool = False
    clauses: list[list[Query]] = field(default_factory=list)
    joint: str = ""  # the OR or AND that waits for its right side
    joint_at: int = 0


class _Reader:
    """Reads a query once from left to right; open brackets are a list, so depth costs no stack."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.groups = [_Group()]
        self.terms = 0

    def read(self) -> Query:
        while char := self._next():
            if char in ")}":
                self._close(char)
            elif keyword := _KEYWORD.match(self.text, self.at):
                self._join(keyword[0])
            else:
                self._term()
        if (group := self.groups[-1]).opener:
            remedy = f'Add "{_CLOSING[group.opener]}".'
            raise _wrong(f'"{group.opener}"', group.at, "is never closed", remedy)
        return _meaning(group) if group.clauses else Everything()

    def _next(self) -> str:
        """Move over blanks and return the character after them, or "" at the end."""
        self._take(_BLANKS)
        return self.text[self.at : self.at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""

    def _term(self) -> None:
        start = self.at
        minuses = len(self._take(_MINUSES))
        follows = self.text[self.at : self.at + 1]
        astray = not follows.strip() or follows in ")}" or _KEYWORD.match(self.text, self.at)
        if minuses and astray:
            remedy = 'Put it right before a term, as in -draft, or in quotes, as in "a - b".'
            raise _wrong('"-"', start, "has nothing to negate", remedy)
        operator = self.groups[-1].operator
        if named := _OPERATOR.match(self.text, self.at):
            operator = self._operator(named)
        elif follows == "+":
            remedy = "Leave it out, for words are found as they are written; or quote the term."
            raise _unknown('the operator "+"', self.at, remedy)
        self._value(operator, negated=minuses % 2 == 1)

    def _operator(self, named: re.Match[str]) -> str:
        """Move to the value of this operator, over blanks as Gmail does, and return its name."""
        name, start = named[1].lower(), named.start()
        if name not in _OPERATORS:
            known = ", ".join(f"{each}:" for each in sorted(_OPERATORS) if each)
            literal = _brief(self._take(_WORD))
            remedy = f"Put it in quotes to search for the text: {literal}. Known are {known}."
            raise _unknown(f"the operator {_brief(named[0])}", start, remedy)
        if within := self.groups[-1].operator:
            remedy = f'Close those brackets first, or write "{name}:" in quotes for the text.'
            raise _wrong(f"{name}:", start, f"stands in the brackets of {within}:", remedy)
        self.at = named.end()
        char = self._next()
        apart = self.at > named.end()
        if char == "-":
            remedy = f"Write -{name}:value to exclude it, or the value in quotes."
            raise _wrong('"-"', self.at, f"stands between {name}: and its value", remedy)
        other = _KEYWORD.match(self.text, self.at) or _OPERATOR.match(self.text, self.at)
        if char in (")", "}", "") or (apart and other):
            raise _wrong(f"{name}:", start, "has no value", f"Write one, as in {name}:value.")
        return name

    def _value(self, operator: str, *, negated: bool) -> None:
        start, char = self.at, self.text[self.at]
        if char in _CLOSING:
            if len(self.groups) > MAX_DEPTH:
                why = f"opens more than {MAX_DEPTH} levels of brackets"
                raise _wrong(f'"{char}"', start, why, "Use fewer brackets.")
            self.groups.append(_Group(char, start, operator, negated))
            self.at += 1
            return
        self.terms += 1
        if self.terms > MAX_TERMS:
            why = f"is one more than the {MAX_TERMS} that a query may have"
            raise _wrong("The term", start, why, "Split the query into several.")
        if char == '"':
            end = self.text.find('"', start + 1)
            if end < 0:
                raise _wrong("The quote", start, "is never closed", "Add the second one.")
            self.at = end + 1
            term = _Term(operator, self.text[start + 1 : end], start, quoted=True)
        else:
            term = _Term(operator, self._take(_WORD), start, quoted=False)
        self._add(_OPERATORS[operator](term), negated=negated)

    def _add(self, query: Query, *, negated: bool) -> None:
        group = self.groups[-1]
        query = _negated(query) if negated else query
        if group.clauses and (group.joint == "OR" or group.opener == "{"):
            group.clauses[-1].append(query)
        else:
            group.clauses.append([query])
        group.joint = ""

    def _join(self, word: str) -> None:
        group, start = self.groups[-1], self.at
        if word in _INSTEAD:
            remedy = f'{_INSTEAD[word]}; or write "{word}" in quotes for the word itself.'
            raise _unknown(f"the operator {word}", start, remedy)
        if group.joint or not group.clauses:
            raise _wrong(word, start, "has no term on its left", _both_sides(word))
        if word == "AND" and group.opener == "{":
            raise _wrong(word, start, "stands in braces, which mean OR", "Use ( ) for AND.")
        group.joint, group.joint_at = word, start
        self.at += len(word)

    def _close(self, char: str) -> None:
        group = self.groups[-1]
        if _CLOSING.get(group.opener) != char:
            why = "closes nothing"
            if group.opener:
                why = f'cannot close "{group.opener}" at character {group.at + 1}'
            raise _wrong(f'"{char}"', self.at, why, "Pair the brackets, or put them in quotes.")
        if not group.clauses:
            raise _wrong("The group", group.at, "is empty", "Put a term in it, or leave it out.")
        self.groups.pop()
        self.at += 1
        self._add(_meaning(group), negated=group.negated)


def _meaning(group: _Group) -> Query:
    if group.joint:
        remedy = _both_sides(group.joint)
        raise _wrong(group.joint, group.joint_at, "has no term on its right", remedy)
    return _joined(And, [_joined(Or, clause) for clause in group.clauses])


def _both_sides(word: str) -> str:
    return f'Put a term on both sides of it; for the word itself write "{word}" in quotes.'


def parse(text: str) -> Query:
    """Return the tree of a query, or raise `Invalid` with the place and the remedy."""
    if len(text) > MAX_QUERY:
        length = f"{len(text):,} characters; {MAX_QUERY:,} is the most"
        raise Invalid(f"The query has {length}", remedy="Shorten it.")
    if bad := _FORBIDDEN.search(text):
        what = f"The control character or half character U+{ord(bad[0]):04X}"
        raise _wrong(what, bad.start(), "cannot be searched for", "Take it out.")
    query = _Reader(text).read()
    # `subject:(a b)` is longer written out: what cannot be shown and read again is refused.
    if len(show(query)) > MAX_QUERY:
        raise Invalid(f"The query has over {MAX_QUERY:,} characters in full", remedy="Shorten it.")
    return query


# --- From tree to text ------------------------------------------------------------------------

_BARE: Final = re.compile(r"[\w@.][\w@.+/&-]*")
_SHOWN_LABELS: Final = {
    **dict.fromkeys(("inbox", "sent", "draft", "spam", "trash"), "in"),
    **dict.fromkeys(("unread", "starred", "important"), "is"),
}


def show(query: Query) -> str:
    """Return the query as one would type it; `parse` reads it back to the same tree."""
    match query:
        case Everything():
            return ""
        case And(parts):
            return " ".join(show(part) for part in parts)
        case Or(parts):
            # An Or within an And goes without brackets, so that showing never nests deeper.
            shown = (f"({show(part)})" if isinstance(part, And) else show(part) for part in parts)
            return " OR ".join(shown)
        case Not(And() | Or() as part):
            return f"-({show(part)})"
        case Not(part):
            return f"-{show(part)}"
    return _show_leaf(query)


def _show_leaf(leaf: Leaf) -> str:
    match leaf:
        case Text(where, text):
            literally_me = where in _PEOPLE and text.lower() == "me"
            shown = f'"{text}"' if literally_me else _quoted(text)
            return f"{where.value}:{shown}" if where.value else shown
        case Me(where):
            return f"{where.value}:me"
        case Labelled(key):
            if (name := key.removeprefix(_CATEGORY)) != key and name in CATEGORIES:
                return f"category:{name}"
            return f"{_SHOWN_LABELS.get(key, 'label')}:{_quoted(key)}"
        case Anywhere():
            return "in:anywhere"
        case Has(what):
            return f"has:{what.value}"
        case Since(when):
            return f"after:{_show_date(when)}"
        case Until(when):
            return f"before:{_show_date(when)}"
        case Age(newer, count, unit):
            return f"{'newer' if newer else 'older'}_than:{count}{unit.value}"
        case Size(larger, count):
            fits = (each for each in _SCALES.items() if count and count % each[1] == 0)
            suffix, scale = next(fits, ("", 1))
            return f"{'larger' if larger else 'smaller'}:{count // scale}{suffix}"
        case MessageId(value):
            return f"rfc822msgid:{_quoted(value)}"


def _quoted(text: str) -> str:
    return text if _BARE.fullmatch(text) and not _KEYWORD.fullmatch(text) else f'"{text}"'


def _show_date(when: date | int) -> str:
    return when.isoformat() if isinstance(when, date) else f"{when:09d}"


# --- What a query finds -----------------------------------------------------------------------

_SPAM_AND_TRASH: Final = (Labelled("spam"), Labelled("trash"))
_ANY: Final = (Field.SUBJECT, Field.FROM, Field.TO, Field.CC, Field.BCC, Field.FILENAME)
_SECONDS_IN: Final = {Unit.HOUR: 3600, Unit.DAY: 86_400}
_DAWN: Final = -62_135_596_800  # the year 1, before which the calendar has no days


@dataclass(frozen=True, slots=True)
class View:
    """Whose mailbox is searched, when, and where midnight falls."""

    now: int
    me: tuple[str, ...]
    zone: tzinfo


def bounds(node: Since | Until | Age, view: View) -> tuple[int | None, int | None]:
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


def _ago(age: Age, view: View) -> int:
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


def _people(parties: tuple[Party, ...]) -> list[str]:
    return _all_words(text for party in parties for text in (party.name, party.address))


def _all_words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in words(text)]


def restricted(query: Query) -> Query:
    """Return the query as a mailbox answers it: no spam, no trash, unless it speaks of them."""
    if any(leaf == Anywhere() or leaf in _SPAM_AND_TRASH for leaf in _leaves(query)):
        return query
    own = () if isinstance(query, Everything) else (query,)
    return _joined(And, (*own, *map(Not, _SPAM_AND_TRASH)))


def _leaves(query: Query) -> Iterator[Query]:
    waiting = [query]
    while waiting:
        match waiting.pop():
            case And(parts) | Or(parts):
                waiting.extend(parts)
            case Not(part):
                waiting.append(part)
            case leaf:
                yield leaf


def matches(query: Query, message: Message, view: View) -> bool:
    """Whether a mailbox that is asked this query answers with this message."""
    return _Judge(message, view).holds(restricted(query))


class _Judge:
    """One message in question: each field a text of words between spaces, a phrase a part of it."""

    def __init__(self, message: Message, view: View) -> None:
        self.message = message
        self.view = view
        self.fields = {where: _spaced(found) for where, found in terms(message.mail).items()}
        self.anything = [*(self.fields[where] for where in _ANY), _spaced(body_terms(message.mail))]
        self.labels = {label_key(label) for label in message.labels}
        self.has = {
            Kind.ATTACHMENT: bool(message.mail.attachments),
            Kind.USERLABELS: bool(message.labels - SYSTEM_LABELS),
        }

    def holds(self, query: Query) -> bool:
        match query:
            case And(parts):
                return all(self.holds(part) for part in parts)
            case Or(parts):
                return any(self.holds(part) for part in parts)
            case Not(part):
                return not self.holds(part)
            case Everything() | Anywhere():
                return True
            case Text(where, text):
                return self._says(where, text)
            case Me(where):
                return any(self._says(where, address) for address in self.view.me)
            case Labelled(key):
                return key in self.labels
            case Has(what):
                return self.has[what]
            case MessageId(value):
                return self.message.mail.message_id.strip("<>") == value
            case Size(larger, count):
                return self.message.size > count if larger else self.message.size < count
            case Since() | Until() | Age():
                return self._dated(*bounds(query, self.view))

    def _dated(self, since: int | None, until: int | None) -> bool:
        date = self.message.date
        return (since is None or since <= date) and (until is None or date < until)

    def _says(self, where: Field, text: str) -> bool:
        phrase = words(text)
        fields = self.anything if where is Field.ANY else [self.fields[where]]
        return bool(phrase) and any(_spaced(phrase) in each for each in fields)


def _spaced(found: list[str]) -> str:
    return f" {' '.join(found)} "
