"""The words around a hit: one line, at most 160 characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from postroom.core.text import line, words
from postroom.vault.note import Note

SIZE: Final = 160
LOOKED: Final = 200_000  # characters of a note in which the words are looked for


def snippet(note: Note, wanted: Sequence[str]) -> str:
    """Return the first place of the note that has one of these words, the body's before a field's."""
    for text in (note.body[:LOOKED], note.source[: note.head]):
        found = _around(text, wanted)
        if found:
            return found
    return _cut(line(note.body[: SIZE * 2].strip()), 0)


def _around(text: str, wanted: Sequence[str]) -> str:
    if text.isascii():
        # Folding changes no length here, so that the place itself is known.
        for word in wanted:
            found = re.search(rf"(?<![0-9a-z]){re.escape(word)}", text, re.IGNORECASE)
            if found:
                start = text.rfind("\n", 0, found.start()) + 1
                end = text.find("\n", found.start())
                row = text[start : end if end >= 0 else len(text)]
                return _cut(line(row), len(line(row[: found.start() - start])))
        return ""
    for row in text.splitlines():
        tokens = words(row)
        hits = [n for n, token in enumerate(tokens) if token.startswith(tuple(wanted))]
        if hits:
            plain = line(row)
            return _cut(plain, len(plain) * hits[0] // len(tokens))
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
