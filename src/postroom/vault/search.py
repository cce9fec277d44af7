"""What people write to find notes, as the index reads it, and the line of a note that shows a hit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from postroom.core.errors import Invalid
from postroom.core.text import one_line, words
from postroom.vault.note import Note

MAX_TERMS: Final = 32
SIZE: Final = 160  # characters of a snippet
LONGEST: Final = 20  # words of a phrase that are looked for
LOOKED: Final = 200_000  # characters of a note in which the words are looked for
TAGS: Final = frozenset({"tag", "tags"})

_TERM: Final = re.compile(r'(-?)(?:(title|tag|heading|field|link):)?("[^"]*"?|[^\s"]+)(\*?)', re.I)
_JOINTS: Final = frozenset({"AND", "OR", "NOT"})
_COLUMNS: Final = {"tag": "tags", "heading": "headings", "field": "fields", "link": "links"}
_CONDITION: Final = re.compile(r'([^:"]++):(.*)', re.S)
_AND: Final = re.compile(r"(?<!\S)AND(?!\S)")
_OTHER: Final = re.compile(r"[*<>=]|.*(?<!\S)(?:OR|NOT)(?!\S)", re.S)  # what a filter is not


def nfc(text: str) -> str:
    """Return a text in Unicode's composed form."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def expression(query: str, *, prefixes: bool = False) -> str:
    """Return the FTS5 expression of what people write: words, "phrases", begin*, -without, a OR b.

    `title:`, `tag:`, `heading:`, `field:` and `link:` look there alone. With `prefixes` each word
    may be the beginning of one.
    """
    required: list[list[str]] = []  # each a list of alternatives
    excluded: list[str] = []
    operator = ""
    for match in list(_TERM.finditer(query))[:MAX_TERMS]:
        minus, field, text, star = match.groups()
        if match[0] in _JOINTS and required:
            operator = match[0]
            continue
        tokens = words(text.rstrip("*"))
        if not tokens:
            continue
        begins = "*" if prefixes or star or text.endswith("*") else ""
        column = f"{_COLUMNS.get(field.lower(), field.lower())} : " if field else ""
        term = f'{column}"{" ".join(tokens)}"{begins}'
        if minus or operator == "NOT":
            excluded.append(term)
        elif operator == "OR":
            required[-1].append(term)
        else:
            required.append([term])
        operator = ""
    if not required:
        raise Invalid(
            "There is nothing to search for in this query",
            remedy='Give words, a "phrase", or the beginning of a word with * after it.',
        )
    joined = " AND ".join(f"({' OR '.join(terms)})" for terms in required)
    return f"({joined}) NOT ({' OR '.join(excluded)})" if excluded else joined


def terms(query: str) -> Sequence[Sequence[str]]:
    """Return the words of each thing that a query asks for."""
    terms = (match for match in _TERM.finditer(query) if not match[1] and match[0] not in _JOINTS)
    return [tokens for term in terms if (tokens := words(term[3]))]


def conditions(text: str) -> list[tuple[str, str]]:
    """Return the fields and values of a filter, `field:value AND field:value`."""
    pairs: list[tuple[str, str]] = []
    parts: list[str] = []
    for piece in _AND.split(text):
        # An AND inside of quotes is a word of the value.
        if parts and parts[-1].count('"') % 2:
            parts[-1] += f"AND{piece}"
        else:
            parts.append(piece)
    for part in parts:
        match = _CONDITION.fullmatch(part)
        name, value = (match[1].strip(), match[2].strip()) if match else ("", "")
        if not name or name[0] == "-" or " " in name or _OTHER.match(value):
            raise Invalid(
                f"{part.strip()!r} is no condition of a filter",
                remedy="Write field:value, several with AND between, a value in quotes where need be:"
                ' status:pending AND tags:work AND title:"A, not B".',
            )
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        plain = value[1:-1] if quoted else value
        pairs.append((nfc(name), nfc(plain.lstrip("#") if name in TAGS else plain)))
    return pairs


def snippet(note: Note, terms: Sequence[Sequence[str]]) -> str:
    """Return the first place of the note that has one of these, the body's before a field's."""
    for text in (note.body[:LOOKED], note.source[: note.head]):
        for term in terms:
            if line := _around(text, term[:LONGEST]):
                return line
    return _cut(one_line(note.body[: SIZE * 2].strip()), 0)


def _around(text: str, term: Sequence[str]) -> str:
    if text.isascii():
        # Folding changes no length here, so that the place itself is known.
        pattern = "[^0-9a-z]+".join(map(re.escape, term))
        match = re.search(rf"(?<![0-9a-z]){pattern}", text, re.IGNORECASE)
        if not match:
            return ""
        start = text.rfind("\n", 0, match.start()) + 1
        row = text[start:].partition("\n")[0]
        return _cut(one_line(row), len(one_line(row[: match.start() - start])))
    *first, last = term
    for row in text.splitlines():
        tokens = words(row)
        for at in range(len(tokens) - len(first)):
            if tokens[at : at + len(first)] == first and tokens[at + len(first)].startswith(last):
                plain = one_line(row)
                return _cut(plain, len(plain) * at // len(tokens))
    return ""


def _cut(text: str, at: int) -> str:
    """Return so much of a line as there is room for, with this place in it."""
    if len(text) <= SIZE:
        return text
    start = max(0, min(at - SIZE // 3, len(text) - SIZE + 1))
    before = "…" if start else ""
    piece = text[start : start + SIZE - len(before) - 1]
    return f"{before}{piece}{'…' if start + len(piece) < len(text) else ''}"
