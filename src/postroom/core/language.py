"""Gmail's search language: from text to tree.

    query  = clause*              each must hold; an upper-case AND may stand between two
    clause = term ("OR" term)*    OR binds tighter than the space: `a b OR c` is a AND (b OR c)
    term   = "-"* [operator ":"] (word | "phrase" | group)
    group  = "(" query ")" | "{" term ("OR"? term)* "}"     in braces, one term is enough

Nothing is guessed: what is not understood is `Invalid`, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from postroom.core import query as nodes
from postroom.core.errors import Invalid, raise_if
from postroom.core.message import CATEGORIES, label_key, system_label
from postroom.core.query import Field, Query
from postroom.core.text import words

MAX_QUERY: Final = 16_384  # characters
MAX_DEPTH: Final = 10  # brackets within brackets; SQLite parses no expression much deeper
MAX_TERMS: Final = 400
MAX_PHRASE: Final = 50  # words in a row
MAX_AGE: Final = 99_999  # units of newer_than: and older_than:
MAX_SIZE: Final = 10**15 - 1  # bytes


class _Term(NamedTuple):
    operator: str  # or "" where there is none
    value: str
    at: int  # where the value begins
    quoted: bool

    def wrong(self, why: str, remedy: str) -> Invalid:
        return Invalid(f"{_brief(self.value)} at character {self.at + 1} {why}", remedy=remedy)


def _check(at: int, *faults: tuple[object, str, str, str]) -> None:
    place = f"at character {at + 1}"
    raise_if(*((is_so, f"{what} {place} {why}", remedy) for is_so, what, why, remedy in faults))


def _unknown(what: str, at: int, remedy: str) -> Invalid:
    return Invalid(f"Search does not know {what} at character {at + 1}", remedy=remedy)


def _brief(text: str) -> str:
    return f'"{text}"' if len(text) <= 40 else f'"{text[:39]}…"'


def _read_text(term: _Term) -> Query:
    where = Field(term.operator)
    if where in nodes.PEOPLE and not term.quoted and term.value.lower() == "me":
        return nodes.OwnAddress(where)
    count, brief = len(words(term.value)), _brief(term.value)
    long = f"is longer than {MAX_PHRASE} words"
    _check(
        term.at,
        (not count, brief, "has no letter or digit to search for", "Search for words."),
        (count > MAX_PHRASE, brief, long, "Search for fewer words in a row."),
    )
    return nodes.Text(where, term.value)


def _read_label(term: _Term) -> Query:
    if term.value.strip():
        return nodes.Labelled(label_key(system_label(term.value) or term.value))
    raise term.wrong("is not a label", "Name one, as in label:work.")


def _read_place(term: _Term) -> Query:
    key = label_key(term.value)
    if key in _NO_LABELS:
        known = "in:inbox, in:sent, in:drafts, in:spam, in:trash and in:anywhere"
        remedy = f"It knows {known}, and label:{key} for a label of that name."
        raise _unknown(f"in:{key}", term.at, remedy)
    return nodes.Fact.ANYWHERE if key == "anywhere" else _read_label(term)


def _read_choice(term: _Term) -> Query:
    choices = _CHOICES[term.operator]
    if found := choices.get(term.value.lower()):
        return found
    known = ", ".join(f"{term.operator}:{value}" for value in choices)
    raise _unknown(f"{term.operator}:{_brief(term.value)}", term.at, f"It knows {known}.")


def _read_date(term: _Term) -> Query:
    newer, why = term.operator in ("after", "newer"), "is not a date"
    if _SECONDS.fullmatch(term.value):
        return nodes.Dated(newer, int(term.value))
    if found := _DAY.fullmatch(_YEAR_LAST.sub(r"\3/\1/\2", term.value)):
        try:
            return nodes.Dated(newer, date(int(found[1]), int(found[3]), int(found[4])))
        except ValueError:
            why = "is not a day of the calendar"
    forms = "2024/01/31, 2024-01-31, 01/31/2024 or seconds since 1970 in 9 to 11 digits"
    raise term.wrong(why, f"Write {term.operator}: and {forms}.")


def _read_age(term: _Term) -> Query:
    if found := _AGE.fullmatch(term.value.lower()):
        return nodes.Age(term.operator == "newer_than", int(found[1]), found[2])
    forms = f"a number up to {MAX_AGE} and h, d, m or y, as in {term.operator}:2d"
    raise term.wrong("is not an age", f"Write {forms}.")


def _read_size(term: _Term) -> Query:
    found = _SIZE.fullmatch(term.value.upper())
    if found and (count := int(found[1]) * 1024 ** " KMG".index(found[2] or " ")) <= MAX_SIZE:
        return nodes.Size(term.operator != "smaller", count)
    forms = f"bytes, or K, M or G, as in {term.operator}:10M, up to {MAX_SIZE:,} bytes"
    raise term.wrong("is not a size", f"Write {forms}.")


def _read_message_id(term: _Term) -> Query:
    if value := term.value.strip("<> \t\r\n"):
        return nodes.MessageId(value)
    raise term.wrong("is not a Message-ID", "Write it as in rfc822msgid:abc@mail.example.org.")


_NO_LABELS: Final = frozenset({"archive", "chats", "scheduled", "snoozed"})  # places in Gmail
_DAY: Final = re.compile(r"([0-9]{4})([/-])([0-9]{1,2})\2([0-9]{1,2})")
_YEAR_LAST: Final = re.compile(r"\A([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})\Z")
# Fewer digits are rather a year or 20240131, and more of them milliseconds.
_SECONDS: Final = re.compile(r"[0-9]{9,11}")
_AGE: Final = re.compile(rf"([1-9][0-9]{{0,4}})([{nodes.UNITS}])")
_SIZE: Final = re.compile(r"([0-9]{1,15})([KMG])?B?")
_CHOICES: Final[dict[str, dict[str, Query]]] = {
    "is": {
        "unread": nodes.Labelled("unread"),
        "read": nodes.Not(nodes.Labelled("unread")),
        "starred": nodes.Labelled("starred"),
        "important": nodes.Labelled("important"),
    },
    "has": {
        "attachment": nodes.Fact.ATTACHMENT,
        "userlabels": nodes.Fact.USERLABELS,
        "nouserlabels": nodes.Not(nodes.Fact.USERLABELS),
    },
    "category": {name: nodes.Labelled(f"category_{name}") for name in CATEGORIES},
}
_OPERATORS: Final[dict[str, Callable[[_Term], Query]]] = {
    **{where.value: _read_text for where in Field},
    "label": _read_label,
    "in": _read_place,
    **dict.fromkeys(_CHOICES, _read_choice),
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
_BOTH_SIDES: Final = 'Put a term on both sides of it; for the word itself write "{}" in quotes.'
_INSTEAD: Final = {
    "NOT": "Exclude with a minus, as in -draft",
    "AROUND": "Search for both words, or for a phrase",
}


class _Group(NamedTuple):
    opener: str = ""  # the bracket that is open; none is the query itself
    at: int = 0
    operator: str = ""  # before the bracket: it holds for all in it
    depth: int = 0


class _QueryParser:
    """Reads a query once from left to right, without going back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.terms = 0

    def group(self, group: _Group) -> Query:
        """Read up to the bracket that closes the group, or the end of the query."""
        clauses: list[list[Query]] = []
        joint, joint_at = "", 0
        while (char := self._next()) and char not in ")}":
            if keyword := _KEYWORD.match(self.text, self.at):
                self._check_keyword(keyword[0], group, is_first=bool(joint or not clauses))
                joint, joint_at = keyword[0], self.at
                self.at = keyword.end()
                continue
            term = self._term(group)
            if clauses and (joint == "OR" or group.opener == "{"):
                clauses[-1].append(term)
            else:
                clauses.append([term])
            joint = ""
        self._check_end(group, char, is_empty=not clauses)
        _check(joint_at, (joint, joint, "has no term on its right", _BOTH_SIDES.format(joint)))
        if not clauses:
            return nodes.Fact.EVERYTHING
        return nodes.joined(nodes.And, [nodes.joined(nodes.Or, each) for each in clauses])

    def _check_keyword(self, word: str, group: _Group, *, is_first: bool) -> None:
        if word in _INSTEAD:
            remedy = f'{_INSTEAD[word]}; or write "{word}" in quotes for the word itself.'
            raise _unknown(f"the operator {word}", self.at, remedy)
        braced = word == "AND" and group.opener == "{"
        _check(
            self.at,
            (is_first, word, "has no term on its left", _BOTH_SIDES.format(word)),
            (braced, word, "stands in braces, which mean OR", "Use ( ) for AND."),
        )

    def _check_end(self, group: _Group, char: str, *, is_empty: bool) -> None:
        pair = "Pair the brackets, or put them in quotes."
        if not group.opener:
            _check(self.at, (char, f'"{char}"', "closes nothing", pair))
            return
        closing, opener = _CLOSING[group.opener], f'"{group.opener}"'
        other = f"cannot close {opener} at character {group.at + 1}"
        _check(group.at, (not char, opener, "is never closed", f'Add "{closing}".'))
        _check(self.at, (char != closing, f'"{char}"', other, pair))
        _check(group.at, (is_empty, "The group", "is empty", "Put a term in it, or leave it out."))

    def _next(self) -> str:
        """Move over blanks and return the character after them, or "" at the end."""
        self._take(_BLANKS)
        return self.text[self.at : self.at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""

    def _term(self, group: _Group) -> Query:
        start = self.at
        minuses = len(self._take(_MINUSES))
        follows = self.text[self.at : self.at + 1]
        astray = not follows.strip() or follows in ")}" or _KEYWORD.match(self.text, self.at)
        remedy = 'Put it right before a term, as in -draft, or in quotes, as in "a - b".'
        _check(start, (minuses and astray, '"-"', "has nothing to negate", remedy))
        operator = group.operator
        if named := _OPERATOR.match(self.text, self.at):
            operator = self._operator(named, operator)
        elif follows == "+":
            remedy = "Leave it out, for words are found as they are written; or quote the term."
            raise _unknown('the operator "+"', self.at, remedy)
        query = self._value(operator, group.depth)
        return nodes.opposite(query) if minuses % 2 else query

    def _operator(self, named: re.Match[str], outer: str) -> str:
        """Move to the value of this operator, over blanks as Gmail does, and return its name."""
        name, start = named[1].lower(), named.start()
        if name not in _OPERATORS:
            from difflib import get_close_matches  # for mistakes only

            known = ", ".join(f"{each}:" for each in sorted(_OPERATORS) if each)
            close = get_close_matches(name, _OPERATORS, 1)
            near = f"Did you mean {close[0]}:? " if close else ""
            literal = _brief(self._take(_WORD))
            remedy = f"{near}Put it in quotes to search for the text: {literal}. Known are {known}."
            raise _unknown(f"the operator {_brief(named[0])}", start, remedy)
        within = f"stands in the brackets of {outer}:"
        remedy = f'Close those brackets first, or write "{name}:" in quotes for the text.'
        _check(start, (outer, f"{name}:", within, remedy))
        self.at = named.end()
        char = self._next()
        between = f"stands between {name}: and its value"
        remedy = f"Write -{name}:value to exclude it, or the value in quotes."
        _check(self.at, (char == "-", '"-"', between, remedy))
        other = _KEYWORD.match(self.text, self.at) or _OPERATOR.match(self.text, self.at)
        lone = char in (")", "}", "") or (self.at > named.end() and other)
        _check(start, (lone, f"{name}:", "has no value", f"Write one, as in {name}:value."))
        return name

    def _value(self, operator: str, depth: int) -> Query:
        start, char = self.at, self.text[self.at]
        if char in _CLOSING:
            deep = f"opens more than {MAX_DEPTH} levels of brackets"
            _check(start, (depth == MAX_DEPTH, f'"{char}"', deep, "Use fewer brackets."))
            self.at += 1
            query = self.group(_Group(char, start, operator, depth + 1))
            self.at += 1
            return query
        self.terms += 1
        many = f"is one more than the {MAX_TERMS} that a query may have"
        _check(start, (self.terms > MAX_TERMS, "The term", many, "Split the query into several."))
        if char == '"':
            end = self.text.find('"', start + 1)
            _check(start, (end < 0, "The quote", "is never closed", "Add the second one."))
            self.at = end + 1
            value = self.text[start + 1 : end]
        else:
            value = self._take(_WORD)
        return _OPERATORS[operator](_Term(operator, value, start, quoted=char == '"'))


@lru_cache(maxsize=64)
def parse(text: str) -> Query:
    """Return the tree of a query, or raise `Invalid` with the place and the remedy."""
    length = f"The query has {len(text):,} characters; {MAX_QUERY:,} is the most"
    raise_if((len(text) > MAX_QUERY, length, "Shorten it."))
    if bad := _FORBIDDEN.search(text):
        what = f"The control character or half character U+{ord(bad[0]):04X}"
        _check(bad.start(), (True, what, "cannot be searched for", "Take it out."))
    return _QueryParser(text).group(_Group())
