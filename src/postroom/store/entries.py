"""The rows of the ledger as values, and values as rows."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Corrupt, Invalid
from postroom.core.letter import FIELDS, Enclosure, Letter
from postroom.core.records import LabelChange, LetterState, LetterSummary
from postroom.core.stamp import Stamp
from postroom.store.database import Row


def stem(path: str) -> str:
    """Return a note's name without folder and `.md`, the same for every spelling of it."""
    name = unicodedata.normalize("NFC", path.rpartition("/")[2]).casefold()
    return name.removesuffix(".md")


@contextmanager
def parsed(id: str) -> Iterator[None]:
    """Say in our words that the ledger holds what nobody wrote."""
    try:
        yield
    except (ValueError, KeyError, TypeError, Invalid) as why:
        raise Corrupt(
            f"The ledger's entry of the letter {id} does not parse",
            remedy="Put a backup of the state folder in its place.",
        ) from why


def frozen(letter: Letter) -> str:
    """Return a letter as JSON, but for its attachments."""
    values = {name: getattr(letter, name) for name in FIELDS if name != "attachments"}
    return json.dumps(values, default=lambda a: [a.local, a.domain, a.name], ensure_ascii=False)


def thawed(text: str, attachments: tuple[Enclosure, ...]) -> Letter:
    """Return the letter that `frozen` wrote."""
    values: dict[str, Any] = json.loads(text)
    for part in ("to", "cc", "bcc", "reply_to"):
        values[part] = tuple(Address(*address) for address in values[part])
    values["sender"] = Address(*values["sender"])
    values["references"] = tuple(values["references"])
    return Letter(**values, attachments=attachments)


def move(row: Row) -> LabelChange:
    """Return a move from its row."""
    number, at, agent, account, message, *changes = row
    added, removed = (frozenset(json.loads(labels)) for labels in changes)
    return LabelChange(number, at, agent, account, message, added, removed)


def line(row: Row) -> LetterSummary:
    """Return a row as a list shows it."""
    id, agent, whom, subject, card, created, kind, detail = row
    with parsed(id):
        lines, at, state = json.loads(card), stamp(created), life.load(kind, detail)
        # The highest line is the first; facts are no warnings.
        level, _, warning = lines[0] if lines and lines[0][0] in (1, 2) else (0, "", "")
        return LetterSummary(id, agent, whom, subject, level, warning, at, state)


def standing(row: Row) -> LetterState:
    """Return how a letter stands."""
    id, kind, detail, version = row
    with parsed(id):
        return LetterState(life.load(kind, detail), version)


def recipients(letter: Letter) -> str:
    """Return the whole envelope as a list shows it."""
    return ", ".join(address.spec for address in letter.envelope)


def stamp(text: str) -> Stamp:
    """Return a moment from JSON."""
    return Stamp(*json.loads(text))


def text_key(text: str) -> str:
    """Return what letters with the same words share."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest() if text.strip() else ""
