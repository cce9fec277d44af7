"""The difference between two versions of a letter, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from os.path import commonprefix
from typing import NamedTuple

from postroom.core.letter import Letter

MAX_WORDS = 2_500  # of both texts; comparing takes time that grows with the square
MAX_PIECE = 20_000  # characters of one insertion or deletion that are shown
CONTEXT = 300  # characters that are shown before and after a change
_WORD = re.compile(r"\w+|[^\S\n]+|\n|.")


class Piece(NamedTuple):
    """A part of a difference: `same`, `ins`, `del`, or `skip` for unchanged text that is left out."""

    kind: str
    text: str


class FieldChange(NamedTuple):
    """A field of a letter that differs."""

    name: str
    pieces: list[Piece]


def letter_changes(before: Letter, after: Letter) -> list[FieldChange]:
    """Return every field that differs, in the order in which a letter shows them."""
    changes = []
    for name in ("to", "cc", "bcc"):
        old, new = ([str(one) for one in getattr(letter, name)] for letter in (before, after))
        if set(old) != set(new):
            changes.append(FieldChange(name.capitalize(), _address_pieces(old, new)))
    if before.subject != after.subject:
        changes.append(FieldChange("Subject", text_changes(before.subject, after.subject)))
    if before.text != after.text:
        changes.append(FieldChange("Text", text_changes(before.text, after.text)))
    if before.html and not after.html:
        dropped = Piece("del", "The HTML part is dropped: it no longer matches the text.")
        changes.append(FieldChange("HTML", [dropped]))
    return changes


def _address_pieces(old: list[str], new: list[str]) -> list[Piece]:
    removed = [("del", one) for one in dict.fromkeys(old) if one not in new]
    added = [("ins", one) for one in dict.fromkeys(new) if one not in old]
    same = [("same", one) for one in dict.fromkeys(new) if one in old]
    pieces = list[Piece]()
    for kind, address in (*removed, *added, *same):
        pieces += [Piece(kind, address), Piece("same", " ")]
    return pieces


def text_changes(old: str, new: str) -> list[Piece]:
    """Return what both texts have in common, and what was deleted and inserted."""
    start, end = _common_ends(old, new)
    old_end, new_end = len(old) - end, len(new) - end
    middle = _middle_pieces(old[start:old_end], new[start:new_end])
    return [*_unchanged(old[:start]), *middle, *_unchanged(old[old_end:])]


def _common_ends(old: str, new: str) -> tuple[int, int]:
    """Return how many characters both have in common at the start, and at the end, in whole words."""
    start = len(commonprefix((old, new)))  # noqa: RUF071 - of characters, as intended
    while start and _inside_word(old, start):
        start -= 1
    most = min(len(old), len(new)) - start
    end = min(len(commonprefix((old[::-1], new[::-1]))), most)  # noqa: RUF071
    while end and _inside_word(old, len(old) - end):
        end -= 1
    return start, end


def _inside_word(text: str, at: int) -> bool:
    return text[at - 1 : at + 1].isalnum() and 0 < at < len(text)


def _middle_pieces(old: str, new: str) -> Iterator[Piece]:
    """Yield the difference by words, by lines where there are too many words, or as a whole."""
    for split in (_WORD.findall, lambda text: text.splitlines(keepends=True)):
        old_parts, new_parts = split(old), split(new)
        if len(old_parts) + len(new_parts) <= MAX_WORDS:
            break
    else:
        old_parts, new_parts = [old], [new]
    for is_same, deleted, inserted in _phrases(old_parts, new_parts):
        if is_same:
            yield from _unchanged(deleted)
            continue
        if deleted:
            yield Piece("del", _limited(deleted))
        if inserted:
            yield Piece("ins", _limited(inserted))


def _phrases(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a run is the same, with its old and new text; neighbouring changed words are one run."""
    # Difflib's heuristic for frequent words stays on: without it, they make comparing slow.
    runs = SequenceMatcher(None, old, new).get_opcodes()
    deleted, inserted = "", ""
    for at, (tag, a, b, c, d) in enumerate(runs):
        text = "".join(old[a:b])
        is_gap = 0 < at < len(runs) - 1 and text.isspace() and "\n" not in text
        if tag != "equal" or is_gap:
            deleted, inserted = deleted + text, inserted + "".join(new[c:d])
            continue
        if deleted or inserted:
            yield False, deleted, inserted
        yield True, text, text
        deleted, inserted = "", ""
    if deleted or inserted:
        yield False, deleted, inserted


def _limited(text: str) -> str:
    if len(text) <= MAX_PIECE:
        return text
    return f"{text[:MAX_PIECE]} [… {len(text) - MAX_PIECE:,} more characters …]"


def _unchanged(text: str) -> Iterable[Piece]:
    """Yield unchanged text; of a long one, only what is next to a change."""
    if len(text) <= 3 * CONTEXT:
        return [Piece("same", text)] if text else []
    skipped = f"{len(text) - 2 * CONTEXT:,}"
    return [
        Piece("same", text[:CONTEXT]),
        Piece("skip", f" [… {skipped} unchanged characters …] "),
        Piece("same", text[-CONTEXT:]),
    ]
