"""The protocols that every provider keeps, split by what a caller may do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from postroom.core.address import Address
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import INBOX, Message, Summary, Thread, system_label

MAX_PAGE = 100


class Page(NamedTuple):
    """Summaries, newest first; `cursor` continues after them and is empty at the end."""

    items: tuple[Summary, ...]
    cursor: str = ""
    notes: tuple[str, ...] = ()


class Arrival(NamedTuple):
    """A mail to be kept, with the labels it comes with; `date` serves where it gives none itself."""

    raw: bytes
    labels: frozenset[str]
    date: int


class Kept(NamedTuple):
    """How many mails were new, and how many were there already."""

    added: int
    known: int


class Relabelled(NamedTuple):
    """What a change of labels did, so that it can be undone."""

    id: str
    added: frozenset[str]
    removed: frozenset[str]


class Draft(NamedTuple):
    """A draft in the mailbox; `version` changes with every change, whoever makes it."""

    id: str
    version: str
    message: Message


class Changes(NamedTuple):
    """What happened since a cursor: ids in the order in which it happened, each once."""

    cursor: str
    added: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider has the letter; `refused` are recipients that it turned down."""

    message: str
    thread: str
    refused: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class NotSent:
    """The provider proves that it does not have the letter."""

    proof: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing proves it either way."""

    why: str


Settled = Sent | NotSent | Unknown


class Reader(Protocol):
    """Reading mail."""

    def own(self) -> tuple[Address, ...]:
        """Return the account's own addresses, the main one first."""
        ...

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> Page:
        """Return the newest mails that match, at most `limit`."""
        ...

    def message(self, id: str) -> Message:
        """Return one mail, or raise `NotFound`."""
        ...

    def thread(self, id: str) -> Thread:
        """Return a conversation by its id or that of one of its mails, or raise `NotFound`."""
        ...

    def raw(self, id: str) -> bytes:
        """Return the bytes of a mail."""
        ...

    def attachment(self, id: str, part: str) -> Enclosure:
        """Return one attachment with its content, or raise `NotFound`."""
        ...


class Organiser(Protocol):
    """Sorting mail."""

    def labels(self) -> tuple[str, ...]:
        """Return the names of all labels, the system's first."""
        ...

    def relabel(
        self, id: str, *, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
    ) -> Relabelled:
        """Add and remove labels; one that does not exist is made when it is first added."""
        ...


class Keeper(Protocol):
    """Taking mail in."""

    def keep(self, arrivals: Sequence[Arrival]) -> Kept:
        """Keep these mails, all or none; one that is there already stays as it is."""
        ...


class DraftBox(Protocol):
    """Keeping drafts."""

    def drafts(self) -> tuple[Draft, ...]:
        """Return all drafts, newest first."""
        ...

    def draft(self, id: str) -> Draft:
        """Return one draft, or raise `NotFound`."""
        ...

    def create_draft(self, letter: Letter, *, date: datetime) -> Draft:
        """Store the letter as a draft."""
        ...

    def revise_draft(self, id: str, letter: Letter, *, version: str, date: datetime) -> Draft:
        """Replace a draft that is still at this version, or raise `Conflict`."""
        ...

    def discard_draft(self, id: str, *, version: str) -> None:
        """Delete a draft that is still at this version, or raise `Conflict`."""
        ...


class History(Protocol):
    """Following a mailbox."""

    def changes(self, since: str = "") -> Changes:
        """Return what happened since the cursor; without one, only the cursor of now.

        A cursor that the provider no longer knows raises `NotFound`: start again from a search.
        """
        ...


class Sender(Protocol):
    """Sending letters. Nothing here asks whether a letter may be sent: the desk has."""

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the very bytes that `send` will hand over."""
        ...

    def send(self, letter: Letter, wire: bytes) -> Sent:
        """Send once. `Unavailable`: nothing happened; `Uncertain`: it may have; others are final."""
        ...

    def settle(self, letter: Letter) -> Settled:
        """Say what became of a letter whose sending was interrupted."""
        ...


class Mailbox(Reader, Organiser, DraftBox, History, Sender, Protocol):
    """An account of a provider."""

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def move(mailbox: Organiser, id: str, destination: str) -> Relabelled:
    """File a mail under a label and take it out of the inbox; moving to the inbox only adds it there."""
    inbox = system_label(destination) == INBOX
    return mailbox.relabel(
        id, add=frozenset({destination}), remove=frozenset() if inbox else frozenset({INBOX})
    )
