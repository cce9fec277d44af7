"""The protocol that every provider keeps, and the values that it speaks in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import (
    DRAFT,
    INBOX,
    SENT,
    Message,
    Summary,
    Thread,
    system_label,
)
from postroom.core.text import one_line

MAX_PAGE = 100
MAX_LABEL = 225  # characters
SNIPPET = 200  # characters


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


class Attached(NamedTuple):
    """A file of a mail, its bytes piece by piece: it may be too large to be held twice."""

    name: str
    type: str
    pieces: Iterator[bytes]

    def whole(self) -> Enclosure:
        """Return the file with all of its bytes."""
        return Enclosure(self.name, self.type, b"".join(self.pieces))


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
    """Nothing proves it either way; where the proof is `spent`, nothing ever will by it."""

    why: str
    spent: bool = False


Settled = Sent | NotSent | Unknown


class Keeper(Protocol):
    """Where mail is taken in."""

    def keep(self, arrivals: Sequence[Arrival]) -> Kept:
        """Keep these mails, all or none; one that is there already stays as it is."""
        ...

    def keep_all(self, chunks: Iterable[Sequence[Arrival]]) -> Iterator[Kept]:
        """Keep very many mails, some thousand in a transaction, and yield what each transaction did."""
        ...


class Mailbox(Protocol):
    """An account of a provider."""

    def close(self) -> None:
        """Let go of files and connections."""
        ...

    # Reading

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

    def attachment(self, id: str, part: str) -> Attached:
        """Return one attachment, or raise `NotFound`."""
        ...

    # Sorting

    def labels(self) -> tuple[str, ...]:
        """Return the names of all labels, the system's first."""
        ...

    def relabel(
        self, id: str, *, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
    ) -> Relabelled:
        """Add and remove labels; one that does not exist is made when it is first added."""
        ...

    # Drafts

    def drafts(self) -> Mapping[str, str]:
        """Return the ids of all drafts, newest first, each with that of its mail, which is its version."""
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

    # Following

    def changes(self, since: str = "") -> Changes:
        """Return what happened since the cursor; without one, only the cursor of now.

        A cursor that the provider no longer knows raises `NotFound`: start again from a search.
        """
        ...

    # Sending; nothing here asks whether a letter may be sent: the desk has

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the very bytes that `send` will hand over."""
        ...

    def prepare(self, letter: Letter, wire: bytes) -> str:
        """Make ready for `send` what can later prove what became of it; nothing leaves.

        What is returned is kept before `send` is called: without it, `send` never was. It serves
        every try, and counts once. After `Uncertain`, something may be left that `sweep` removes.
        """
        ...

    def release(self, proof: str) -> bool:
        """Take back what `prepare` made: nothing leaves by it any more. False if it seems to be gone."""
        ...

    def send(self, letter: Letter, wire: bytes, proof: str) -> Sent:
        """Send once. `Uncertain`: it may have happened; other errors are refusals of this request.

        A refusal with a `status` was answered by the provider; without one, nothing left.
        """
        ...

    def settle(self, letter: Letter, proof: str) -> Settled:
        """Say what became of a letter, by what `prepare` returned; nothing is changed."""
        ...

    def sweep(self, letter: Letter, proof: str = "") -> bool:
        """Remove what `prepare` left of this letter beside `proof`; return whether more may turn up."""
        ...


def move(mailbox: Mailbox, id: str, destination: str) -> Relabelled:
    """File a mail under a label and take it out of the inbox; moving to the inbox only adds it there."""
    inbox = system_label(destination) == INBOX
    return mailbox.relabel(
        id, add=frozenset({destination}), remove=frozenset() if inbox else frozenset({INBOX})
    )


def check_page(limit: int) -> None:
    """Refuse a page of no size that is served."""
    if not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"{limit} is no page size", remedy=f"Ask for 1 to {MAX_PAGE}.")


def missing(what: str, id: str) -> NotFound:
    """Return the error for a message, thread, draft or page that is not there."""
    return NotFound(f"{what} ID {one_line(id[:40])} not found", remedy="Search for it again.")


def no_cursor() -> Invalid:
    """Return the error for a page that continues no other."""
    return Invalid("That is no cursor", remedy="Give the one that the last answer ended with.")


def changed_draft(id: str) -> Conflict:
    """Return the error for a draft that is not at the version that was read."""
    return Conflict(f"The draft {id} was changed since", remedy="Read it again, then decide.")


def label_name(name: str) -> str:
    """Return the name under which a new label is made, or refuse it."""
    shown = one_line(name)
    if len(shown) > MAX_LABEL or not all(part.strip() for part in shown.split("/")):
        raise Invalid(
            f"{shown[:80]!r} is no label's name", remedy="Give one such as Work or Work/Clients."
        )
    return shown


def check_relabel(before: frozenset[str], *, add: frozenset[str], remove: frozenset[str]) -> None:
    """Refuse to change the labels that say what a mail is."""
    for fixed in (SENT, DRAFT):
        if fixed in add - before or fixed in remove & before:
            raise Invalid(
                f"The label {fixed} cannot be changed", remedy="It says what the mail is."
            )
