"""Rows of the ledger as values, and values as columns."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.card import Card
from postroom.core.errors import Corrupt, Invalid
from postroom.core.letter import FIELDS, Enclosure, Letter
from postroom.core.records import Entry, LetterState, LetterSummary
from postroom.core.stamp import Stamp
from postroom.store.protocol import Clock, Row, Session

OPEN: Final = ", ".join(f"'{state}'" for state in life.OPEN)
_PLAIN: Final = ("agent", "digest", "content_key", "home", "form", "replaces", "version", "pre_send")  # fmt: skip
_PARSED: Final = ("frozen", "state", "detail", "created", "card", "origins", "fields")
# The columns of `entries`: a letter, once for each of its attachments.
ENTRY: Final = ", ".join(
    ["letter.id", *(f"letter.{name}" for name in (*_PARSED, *_PLAIN))]
    + ["EXISTS (SELECT 1 FROM revision WHERE revision.letter = letter.id)"]
    + [f"enclosure.{name}" for name in ("name", "type", "content")]
)
ENTRIES: Final = f"SELECT {ENTRY} FROM letter LEFT JOIN enclosure ON enclosure.letter = letter.id"
SUMMARY: Final = "id, agent, recipients, subject, card, created, state, detail, fields"


class Noun:
    """What all nouns have: the session that runs their SQL, and the clock."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock


@contextmanager
def parsing(id: str) -> Iterator[None]:
    """Turn a value that does not parse into `Corrupt`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, Invalid) as why:
        raise Corrupt(
            f"The ledger's entry of the letter {id} does not parse",
            remedy="Put a backup of the state folder in its place.",
        ) from why


def entries(rows: Iterable[Row]) -> list[Entry]:
    """Return the letters of rows of `ENTRIES`, in which those of one letter follow each other."""
    return [_entry(list(group)) for _, group in groupby(rows, key=lambda row: row[0])]


def _entry(rows: list[Row]) -> Entry:
    id, frozen, kind, detail, created, card, origins, fields, *others, is_edited = rows[0][:-3]
    files = [Enclosure(*row[-3:]) for row in rows if row[-3] is not None]
    with parsing(id):
        return Entry(
            letter=thaw(frozen, tuple(files)),
            state=life.load(kind, detail),
            created=stamp(created),
            card=Card.from_json(json.loads(card)),
            origins=tuple(json.loads(origins)),
            fields=json.loads(fields),
            is_edited=bool(is_edited),
            **dict(zip(_PLAIN, others, strict=True)),
        )


def freeze(letter: Letter) -> str:
    """Return a letter as JSON, without its attachments."""
    values = {name: getattr(letter, name) for name in FIELDS if name != "attachments"}
    return json.dumps(values, default=lambda a: [a.local, a.domain, a.name], ensure_ascii=False)


def thaw(text: str, attachments: tuple[Enclosure, ...]) -> Letter:
    """Return the letter that `freeze` wrote."""
    values: dict[str, Any] = json.loads(text)
    for part in ("to", "cc", "bcc", "reply_to"):
        values[part] = tuple(Address(*address) for address in values[part])
    values["sender"] = Address(*values["sender"])
    values["references"] = tuple(values["references"])
    return Letter(**values, attachments=attachments)


def text_columns(letter: Letter, agent: str) -> dict[str, str]:
    """Return the columns that follow from a letter's text and recipients."""
    recipients = ", ".join(address.spec for address in letter.envelope)
    found_by = (agent, letter.id, recipients, letter.subject, letter.text)
    return {
        "frozen": freeze(letter),
        "text_key": text_key(letter.text),
        "recipients": recipients,
        "subject": letter.subject,
        "search_text": "\n".join(found_by).casefold(),
    }


def text_key(text: str) -> str:
    """Return the value that letters with the same words share."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest() if text.strip() else ""


def summary(row: Row) -> LetterSummary:
    """Return a row of `SUMMARY` as a value."""
    id, agent, recipients, subject, card, created, kind, detail, fields = row
    with parsing(id):
        lines, at, state = json.loads(card), stamp(created), life.load(kind, detail)
        # The highest line is the first; facts are no warnings.
        level, _, warning = lines[0] if lines and lines[0][0] in (1, 2) else (0, "", "")
        more = json.loads(fields)
        return LetterSummary(id, agent, recipients, subject, level, warning, at, state, more)


def letter_state(row: Row) -> LetterState:
    """Return the state of a letter."""
    id, kind, detail, version = row
    with parsing(id):
        return LetterState(life.load(kind, detail), version)


def decided_at(state: life.State) -> float | None:
    """Return when a state was decided: by a verdict, or by its outcome."""
    match state:
        case life.Approved(verdict=verdict):
            return verdict.at.wall
        case life.Rejected(at=at) | life.Sent(at=at):
            return at.wall
    return None


def stamp(text: str) -> Stamp:
    """Return a moment from JSON."""
    return Stamp(*json.loads(text))


def note_stem(path: str) -> str:
    """Return a note's name without folder and `.md`, the same for every spelling of it."""
    name = unicodedata.normalize("NFC", path.rpartition("/")[2]).casefold()
    return name.removesuffix(".md")


def marks(values: Iterable[object]) -> str:
    """Return a placeholder for each value."""
    return ", ".join("?" for _ in values)
