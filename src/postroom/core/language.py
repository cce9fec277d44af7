"""Gmail's search language: from text to tree.

    query  = clause*              each must hold; an upper-case AND may stand between two
    clause = term ("OR" term)*    OR binds tighter than the space: `a b OR c` is a AND (b OR c)
    term   = "-"* [operator ":"] (word | "phrase" | group)
    group  = "(" query ")" | "{" term ("OR"? term)* "}"     in braces, one term is enough

Nothing is guessed: what is not understood is `Invalid`, with its place.
"""

from __future__ import annotations

import re
from dataclasses import field
from datetime import date
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core import query as nodes
from postroom.core.errors import Invalid
from postroom.core.message import CATEGORIES, label_key, system_label
from postroom.core.query import Field, Query
from postroom.core.text import words
from postroom.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_QUERY: Final = 16_384  # characters
MAX_DEPTH: Final = 10  # brackets within brackets; SQLite parses no expression much deeper
MAX_TERMS: Final = 400
MAX_PHRASE: Final = 50  # words in a row
MAX_AGE: Final = 99_999  # units of newer_than: and older_than:
MAX_SIZE: Final = 10**15 - 1  # bytes


class UnknownOperator(Invalid):
    """The query uses what Postroom does not know, though the provider itself may."""


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
    if where in nodes.PEOPLE and not term.quoted and term.value.lower() == "me":
        return nodes.OwnAddress(where)
    count = len(words(term.value))
    if not count:
        raise term.wrong("has no letter or digit to search for", "Search for words.")
    if count > MAX_PHRASE:
        raise term.wrong(f"is longer than {MAX_PHRASE} words", "Search for fewer words in a row.")
    return nodes.Text(where, term.value)


def _read_label(term: _Term) -> Query:
    if term.value.strip():
        return nodes.Labelled(label_key(system_label(term.value) or term.value))
    raise term.wrong("is no label", "Name one, as in label:work.")


def _read_place(term: _Term) -> Query:
    key = label_key(term.value)
    if key in _NO_LABELS:
        known = "in:inbox, in:sent, in:drafts, in:spam, in:trash and in:anywhere"
        remedy = f"It knows {known}, and label:{key} for a label of that name."
        raise _unknown(f"in:{key}", term.at, remedy)
    return nodes.Anywhere() if key == "anywhere" else _read_label(term)


def _one_of(values: dict[str, Query]) -> Callable[[_Term], Query]:
    def read(term: _Term) -> Query:
        if found := values.get(term.value.lower()):
            return found
        known = ", ".join(f"{term.operator}:{value}" for value in values)
        raise _unknown(f"{term.operator}:{_brief(term.value)}", term.at, f"It knows {known}.")

    return read


def _read_date(term: _Term) -> Query:
    node = nodes.Since if term.operator in ("after", "newer") else nodes.Until
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
        return nodes.Age(term.operator == "newer_than", int(found[1]), nodes.Unit(found[2].lower()))
    forms = f"a number up to {MAX_AGE} and h, d, m or y, as in {term.operator}:2d"
    raise term.wrong("is no age", f"Write {forms}.")


def _read_size(term: _Term) -> Query:
    found = _SIZE.fullmatch(term.value)
    if found and (count := int(found[1]) * _SCALES[(found[2] or "").upper()]) <= MAX_SIZE:
        return nodes.Size(term.operator != "smaller", count)
    forms = f"bytes, or K, M or G, as in {term.operator}:10M, up to {MAX_SIZE:,} bytes"
    raise term.wrong("is no size", f"Write {forms}.")


def _read_message_id(term: _Term) -> Query:
    if value := term.value.strip("<> \t\r\n"):
        return nodes.MessageId(value)
    raise term.wrong("is no Message-ID", "Write it as in rfc822msgid:abc@mail.example.org.")


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
            "unread": nodes.Labelled("unread"),
            "read": nodes.Not(nodes.Labelled("unread")),
            "starred": nodes.Labelled("starred"),
            "important": nodes.Labelled("important"),
        }
    ),
    "has": _one_of(
        {
            "attachment": nodes.Has(nodes.Kind.ATTACHMENT),
            "userlabels": nodes.Has(nodes.Kind.USERLABELS),
            "nouserlabels": nodes.Not(nodes.Has(nodes.Kind.USERLABELS)),
        }
    ),
    "category": _one_of({name: nodes.Labelled(f"category_{name}") for name in CATEGORIES}),
    **dict.fromkeys(("after", "newer", "before", "older"), _read_date),
    **dict.fromkeys(("newer_than", "older_than"), _read_age),
    **dict.fromkeys(("larger", "size", "smaller"), _read_size),
    "rfc822msgid": _read_message_id,
}


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
        return _meaning(group) if group.clauses else nodes.Everything()

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
            from difflib import get_close_matches  # for mistakes only

            known = ", ".join(f"{each}:" for each in sorted(_OPERATORS) if each)
            literal = _brief(self._take(_WORD))
            near = get_close_matches(name, _OPERATORS, n=1)
            hint = f"Did you mean {near[0]}:? " if near else ""
            remedy = f"{hint}Put it in quotes to search for the text: {literal}. Known are {known}."
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
        query = nodes.opposite(query) if negated else query
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
    return nodes.joined(nodes.And, [nodes.joined(nodes.Or, clause) for clause in group.clauses])


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
    return _Reader(text).read()
