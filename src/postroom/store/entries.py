"""A letter as the ledger keeps it: its entry, its place in the vault, and the rows that they are."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from postroom.core import life
from postroom.core.address import Address
from postroom.core.card import Card
from postroom.core.errors import Corrupt, Invalid
from postroom.core.letter import FIELDS, Enclosure, Letter
from postroom.core.stamp import Stamp
from postroom.store.database import Row


@dataclass(frozen=True, slots=True)
class Entry:
    """A letter in the ledger; `digest` is what it had when it was frozen."""

    letter: Letter
    agent: str
    state: life.State
    created: Stamp
    card: Card
    digest: str
    content_key: str
    home: str
    form: str = "note"  # or "draft": a note whose whole body is the letter's text
    replaces: str = ""
    origins: tuple[str, ...] = field(default=())
    version: int = 1

    @property
    def id(self) -> str:
        """The letter's id."""
        return self.letter.id

    @property
    def kind(self) -> str:
        """The name of its state."""
        return life.name(self.state)


class Line(NamedTuple):
    """A letter as a list shows it."""

    id: str
    agent: str
    recipients: str
    subject: str
    level: int
    warning: str
    created: Stamp
    state: life.State


class ShownMail(NamedTuple):
    """A mail whose text was shown to an agent, or written into a note or a file."""

    account: str
    id: str
    sender: str  # the address in From
    subject: str
    date: float
    sent: bool  # it lies in Sent


class Move(NamedTuple):
    """A change of labels that an agent made, which can be undone."""

    number: int
    at: float
    agent: str
    account: str
    message: str
    added: frozenset[str]
    removed: frozenset[str]


class Standing(NamedTuple):
    """How a letter stands."""

    state: life.State
    version: int


class Request(NamedTuple):
    """A request that waits for a person: who wrote it, and id and digest of each letter that it lists.

    `agent` is None where a person wrote it, and empty where it is not known which agent did.
    """

    agent: str | None
    letters: list[tuple[str, str]]


class ToolNote(NamedTuple):
    """A file that a tool wrote; `agent` is empty where it is not known for which agent."""

    agent: str
    path: str = ""  # where it was when it was written
    inode_only: bool = False  # nothing else matches, and file systems reuse inodes


def stem(path: str) -> str:
    """Return a note's name without folder and `.md`, the same for every spelling of it."""
    name = unicodedata.normalize("NFC", path.rpartition("/")[2]).casefold()
    return name.removesuffix(".md")


class Proof(NamedTuple):
    """What a provider gave to settle a letter by: for which version, and how many sends by it had no answer."""

    text: str
    digest: str
    unanswered: int


class Place(NamedTuple):
    """Where a letter's note stood when it was last written or seen, and what it was."""

    path: str
    hash: str
    notice: str
    pages: str  # what our sections of it were, as JSON: title and hash
    version: int  # of the letter that it shows
    size: int
    mtime: int
    inode: int


NOWHERE = Place("", "", "", "{}", 0, 0, 0, 0)  # a note that is still to be written


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


def move(row: Row) -> Move:
    """Return a move from its row."""
    number, at, agent, account, message, *changes = row
    added, removed = (frozenset(json.loads(labels)) for labels in changes)
    return Move(number, at, agent, account, message, added, removed)


def line(row: Row) -> Line:
    """Return a row as a list shows it."""
    id, agent, whom, subject, card, created, kind, detail = row
    with parsed(id):
        lines, at, state = json.loads(card), stamp(created), life.load(kind, detail)
        # The highest line is the first; facts are no warnings.
        level, _, warning = lines[0] if lines and lines[0][0] in (1, 2) else (0, "", "")
        return Line(id, agent, whom, subject, level, warning, at, state)


def standing(row: Row) -> Standing:
    """Return how a letter stands."""
    id, kind, detail, version = row
    with parsed(id):
        return Standing(life.load(kind, detail), version)


def recipients(letter: Letter) -> str:
    """Return the whole envelope as a list shows it."""
    return ", ".join(address.spec for address in letter.envelope)


def stamp(text: str) -> Stamp:
    """Return a moment from JSON."""
    return Stamp(*json.loads(text))


def text_key(text: str) -> str:
    """Return what letters with the same words share."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest() if text.strip() else ""
