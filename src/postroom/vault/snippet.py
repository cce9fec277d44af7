"""The words around a hit: one line, at most 160 characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from postroom.core.text import one_line, words
from postroom.vault.note import Note

SIZE: Final = 160
LONGEST: Final = 20  # words of a phrase that are looked for
LOOKED: Final = 200_000  # characters of a note in which the words are looked for


def snippet(note: Note, wanted: Sequence[Sequence[str]]) -> str:
    """Return the first place of the note that has one of these, the body's before a field's."""
    for text in (note.body[:LOOKED], note.source[: note.head]):
        for term in wanted:
            found = _around(text, term[:LONGEST])
            if found:
                return found
    return _cut(one_line(note.body[: SIZE * 2].strip()), 0)


def _around(text: str, term: Sequence[str]) -> str:
    if text.isascii():
        # Folding changes no length here, so that the place itself is known.
        pattern = "[^0-9a-z]+".join(map(re.escape, term))
        found = re.search(rf"(?<![0-9a-z]){pattern}", text, re.IGNORECASE)
        if not found:
            return ""
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.start())
        row = text[start : end if end >= 0 else len(text)]
        return _cut(one_line(row), len(one_line(row[: found.start() - start])))
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
    before, after = "…" if start else "", "…"
    kept = text[start : start + SIZE - len(before) - 1]
    if start + len(kept) >= len(text):
        after = ""
    return f"{before}{kept}{after}"
