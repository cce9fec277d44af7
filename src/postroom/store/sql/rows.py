"""What the nouns of the ledger share: statements that differ in names alone, and letters as rows."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, TypeVar

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Corrupt, Invalid
from postroom.core.letter import FIELDS, Enclosure, Letter
from postroom.core.records import (
    NO_NOTE,
    Card,
    Entry,
    LetterState,
    LetterSummary,
    NoteLocation,
    NoteStatus,
)
from postroom.core.stamp import Stamp
from postroom.core.text import one_line
from postroom.store.protocol import Clock, Row, Session

T = TypeVar("T")
REMEMBERED: Final = 100_000  # characters; larger letters are not kept in memory
OPEN: Final = ", ".join(f"'{state}'" for state in life.OPEN)
_PLAIN: Final = ("agent", "digest", "content_key", "home", "form", "replaces", "version", "pre_send")  # fmt: skip
_PARSED: Final = ("frozen", "state", "detail", "created", "card", "origins", "fields")
_NOTE: Final = (*NoteLocation._fields, "planned_path", "planned_hash")
_ENCLOSURE: Final = ("name", "type", "content")
# Where the columns of the attachment and of the note begin, counted from the end of a row.
_AT_ENCLOSURE: Final = -len(_ENCLOSURE)
_AT_NOTE: Final = _AT_ENCLOSURE - len(_NOTE)
# The columns of `entries`: a letter and its note, once for each of the letter's attachments.
ENTRY: Final = ", ".join(
    [f"letter.{name}" for name in ("id", *_PARSED, *_PLAIN)]
    + ["EXISTS (SELECT 1 FROM revision WHERE revision.letter = letter.id)", "letter.reported"]
    + [f"note.{name}" for name in _NOTE]
    + [f"enclosure.{name}" for name in _ENCLOSURE]
)
ENTRIES: Final = (
    f"SELECT {ENTRY} FROM letter LEFT JOIN note ON note.letter = letter.id"
    " LEFT JOIN enclosure ON enclosure.letter = letter.id"
)
# The columns of `summary`. All of them stand before the texts, which a list must not walk over.
SUMMARY: Final = (
    "id, agent, recipients, subject, level, card, created, state, detail, fields,"
    " account, recipient_name, opening, version"
)
MAX_OPENING: Final = 160


class Noun:
    """What all nouns have: the session that runs their SQL, and the clock."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock

    def _one(self, make: Callable[..., T], sql: str, *values: object) -> T | None:
        row = self._session.row(sql, values)
        return make(*row) if row else None

    def _all(self, make: Callable[..., T], sql: str, *values: object) -> list[T]:
        return [make(*row) for row in self._session.rows(sql, values)]

    def _find(self, make: Callable[..., T], columns: str, table: str, **where: object) -> T | None:
        """Return `make(*columns)` for the row that has these values; None if there is no such row."""
        row = self._row(columns, table, **where)
        return make(*row) if row else None

    def _row(self, columns: str, table: str, **where: object) -> Row | None:
        """Return these columns of the row that has these values, if there is one."""
        sql = f"SELECT {columns} FROM {table}{_where(where)}"
        return self._session.row(sql, list(where.values()))

    def _has(self, table: str, **where: object) -> bool:
        return self._row("1", table, **where) is not None

    def _insert(self, table: str, columns: Mapping[str, object], conflict: str = "") -> None:
        """Add a row; `conflict` is the SQL clause `ON CONFLICT …` for a row with the same key."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(columns)}) {conflict}"
        self._session.run(sql, list(columns.values()))

    def _upsert(
        self, table: str, keys: Mapping[str, object], columns: Mapping[str, object]
    ) -> None:
        """Add a row, or change the one that has these keys."""
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
        conflict = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
        self._insert(table, {**keys, **columns}, conflict)

    def _update(self, table: str, columns: Mapping[str, object], **where: object) -> int:
        changes = ", ".join(f"{name} = ?" for name in columns)
        values = [*columns.values(), *where.values()]
        return self._session.run(f"UPDATE {table} SET {changes}{_where(where)}", values)

    def _save_desk(self, columns: Mapping[str, object]) -> None:
        if not self._update("desk", columns):  # somebody emptied the table
            self._insert("desk", columns)

    def _delete(self, table: str, **where: object) -> int:
        return self._session.run(f"DELETE FROM {table}{_where(where)}", list(where.values()))


def _where(columns: Iterable[str]) -> str:
    condition = " AND ".join(f"{name} = ?" for name in columns)
    return f" WHERE {condition}" if condition else ""


def marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


def stamp(text: str) -> Stamp:
    return Stamp(*json.loads(text))


@contextmanager
def _parsing(id: str) -> Iterator[None]:
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
    *values, is_edited, is_reported = rows[0][:_AT_NOTE]
    id, frozen, kind, detail, created, card, origins, fields, *others = values
    enclosures = [row[_AT_ENCLOSURE:] for row in rows]
    files = [Enclosure(*columns) for columns in enclosures if columns[0] is not None]
    with _parsing(id):
        return Entry(
            letter=thaw(frozen, tuple(files)),
            state=life.load(kind, detail),
            created=stamp(created),
            card=_card(card),
            origins=tuple(json.loads(origins)),
            fields=json.loads(fields),
            is_edited=bool(is_edited),
            is_reported=bool(is_reported),
            note=note_status(*rows[0][_AT_NOTE:_AT_ENCLOSURE]),
            **dict(zip(_PLAIN, others, strict=True)),
        )


def thaw(frozen: str, attachments: tuple[Enclosure, ...]) -> Letter:
    is_small = len(frozen) <= REMEMBERED and not attachments
    return _thaw_cached(frozen) if is_small else _thaw(frozen, attachments)


def _thaw(frozen: str, attachments: tuple[Enclosure, ...] = ()) -> Letter:
    values: dict[str, Any] = json.loads(frozen)
    for part in ("to", "cc", "bcc", "reply_to"):
        values[part] = tuple(Address(*address) for address in values[part])
    values["sender"] = Address(*values["sender"])
    values["references"] = tuple(values["references"])
    return Letter(**values, attachments=attachments)


@lru_cache(maxsize=16)
def _card(text: str) -> Card:
    return Card.from_json(json.loads(text))


_thaw_cached = lru_cache(maxsize=16)(_thaw)  # a letter is read at each step of its way


def text_columns(letter: Letter, agent: str) -> dict[str, str]:
    values = {name: getattr(letter, name) for name in FIELDS if name != "attachments"}
    recipients = ", ".join(address.spec for address in letter.envelope)
    names = [address.name for address in letter.envelope]
    found_by = (agent, letter.id, recipients, *names, letter.subject, letter.text)
    return {
        "frozen": _json(values),
        "text_key": text_key(letter.text),
        "account": letter.account,
        "recipients": recipients,
        "recipient_name": names[0],
        "recipient_search": f"{recipients}\n{names[0]}".casefold(),
        "subject": letter.subject,
        # The beginning alone is cleaned: a text may have 5 MB.
        "opening": one_line(letter.text.lstrip()[:1000])[:MAX_OPENING],
        "search_text": "\n".join(found_by).casefold(),
    }


def card_columns(card: Card) -> dict[str, object]:
    return {"card": json.dumps(card.to_json()), "level": int(card.level)}


_json = json.JSONEncoder(default=lambda a: [a.local, a.domain, a.name], ensure_ascii=False).encode


def text_key(text: str) -> str:
    """Return the value that letters with the same words share."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest() if text.strip() else ""


@lru_cache(maxsize=256)  # the page shows the same ones again and again
def summary(row: Row) -> LetterSummary:
    id, agent, recipients, subject, level, card, created, kind, detail, fields, *others = row
    with _parsing(id):
        at, state, more = stamp(created), life.load(kind, detail), json.loads(fields)
        # The highest line is the first; facts are not warnings.
        (_, reason, warning, *_), *_ = json.loads(card) if level else [(0, "", "")]
        return LetterSummary(
            id, agent, recipients, subject, level, warning, at, state, more, reason, *others
        )


def note_status(*row: Any) -> NoteStatus:  # noqa: ANN401 - the columns of a row
    """Return what the ledger has of a note; a rehearsal has none, and so none of its columns."""
    if row[0] is None:
        return NO_NOTE
    *location, planned_path, planned_hash = row
    return NoteStatus(NoteLocation(*location), planned_path, planned_hash)


def letter_state(id: str, kind: str, detail: str, version: int) -> LetterState:
    with _parsing(id):
        return LetterState(life.load(kind, detail), version)


def decided_at(state: life.State) -> float | None:
    match state:
        case life.Approved(verdict=verdict):
            return verdict.at.wall
        case life.Rejected(at=at) | life.Sent(at=at):
            return at.wall
    return None


def note_stem(path: str) -> str:
    """Return a note's name without folder and `.md`, the same for every spelling of it."""
    name = unicodedata.normalize("NFC", path.rpartition("/")[2]).casefold()
    return name.removesuffix(".md")
