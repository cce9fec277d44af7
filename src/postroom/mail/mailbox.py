"""The protocol of a mail provider and the values it exchanges.

A provider implements `Mailbox`. It lives in a package of its own beside `mail/local` and `mail/gmail`, is named once in
`wiring`, and gets an entry in `tests/contract/conftest.py`, whose suite says what each method must do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from postroom.core.address import Address
from postroom.core.errors import AuthRequired, Conflict, Invalid, NotFound, Unavailable, Uncertain
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import DRAFT, INBOX, SENT, Message, Summary, Thread, system_label
from postroom.core.text import one_line
from postroom.core.values import dataclass

MAX_PAGE = 100
MAX_LABEL = 225  # characters
SNIPPET = 200  # characters

_NO_LABELS: frozenset[str] = frozenset()


class Unreachable(Unavailable):
    """There is no connection to the provider."""


class ConnectionLost(Uncertain):
    """The connection to the provider was lost after a request, and before its answer."""


class TokenRenewed(AuthRequired):
    """The provider refused a token, and there is a new one now: the same may be done again at once, and helps once."""


class SearchPage(NamedTuple):
    """Summaries, newest first; `cursor` continues after them and is empty at the end."""

    items: tuple[Summary, ...]
    cursor: str = ""
    notes: tuple[str, ...] = ()


class Arrival(NamedTuple):
    """A mail to import with its labels; `date` is used if the mail itself has no valid one."""

    raw: bytes
    labels: frozenset[str]
    date: int


class ImportCount(NamedTuple):
    """How many mails were new, and how many the mailbox already had."""

    added: int
    known: int


class RelabelResult(NamedTuple):
    """The labels that a mail really gained and lost: enough to undo the change."""

    id: str
    added: frozenset[str]
    removed: frozenset[str]


class AttachmentStream(NamedTuple):
    """An attachment whose bytes arrive in pieces, since it may be large."""

    name: str
    type: str
    pieces: Iterator[bytes]

    @classmethod
    def of(cls, file: Enclosure) -> AttachmentStream:
        return cls(file.name, file.type, iter([file.content]))

    def read_all(self) -> Enclosure:
        return Enclosure(self.name, self.type, b"".join(self.pieces))


class MailboxDraft(NamedTuple):
    """A draft in the mailbox; `version` changes with every change, whoever makes it."""

    id: str
    version: str
    message: Message


class Changes(NamedTuple):
    """Ids of mails that changed since a cursor, in order, each once."""

    cursor: str
    added: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def collect(cls, cursor: str, changes: Iterable[tuple[str, str]]) -> Changes:
        """Return changes from pairs of a kind (`added`, `relabelled` or `removed`) and an id."""
        ids: dict[str, dict[str, None]] = {"added": {}, "relabelled": {}, "removed": {}}
        for kind, id in changes:
            ids[kind][id] = None
        return cls(cursor, *map(tuple, ids.values()))


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider has the letter; it refused the recipients in `refused`."""

    message: str
    thread: str
    refused: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class NotSent:
    """The provider proves that it does not have the letter."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Unproven:
    """Nothing proves whether the letter was sent; if `final`, its proof never will."""

    reason: str
    final: bool = False


SendOutcome = Accepted | NotSent | Unproven


class Mailbox(Protocol):
    """One account at a provider."""

    def own_addresses(self) -> tuple[Address, ...]:
        """Return the account's own addresses, the main one first."""

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> SearchPage:
        """Return the newest matching mails, at most `limit`."""

    def message(self, id: str) -> Message:
        """Return one mail, or raise `NotFound`."""

    def thread(self, id: str) -> Thread:
        """Return a conversation by its id or the id of one of its mails, or raise `NotFound`."""

    def raw(self, id: str) -> bytes:
        """Return the bytes of a mail."""

    def attachment(self, id: str, part: str) -> AttachmentStream:
        """Return one attachment, or raise `NotFound`."""

    def changes(self, since: str = "") -> Changes:
        """Return what changed since the cursor, or raise `NotFound`; without one, only the current cursor."""

    def labels(self) -> tuple[str, ...]:
        """Return the names of all labels, system labels first."""

    def relabel(
        self, id: str, *, add: frozenset[str] = _NO_LABELS, remove: frozenset[str] = _NO_LABELS
    ) -> RelabelResult:
        """Add and remove labels; adding a label that does not exist creates it."""

    def drafts(self) -> Mapping[str, str]:
        """Return the ids of all drafts, newest first, each with its version (the id of its mail)."""

    def draft(self, id: str) -> MailboxDraft:
        """Return one draft, or raise `NotFound`."""

    def create_draft(self, letter: Letter, *, date: datetime) -> MailboxDraft:
        """Store the letter as a draft."""

    def revise_draft(
        self, id: str, letter: Letter, *, version: str, date: datetime
    ) -> MailboxDraft:
        """Replace a draft that is still at this version, or raise `Conflict`."""

    def discard_draft(self, id: str, *, version: str) -> None:
        """Delete a draft that is still at this version, or raise `Conflict`."""

    # Sending one letter at most once; the desk, not the provider, checks whether a letter may be sent

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the exact bytes that `send` will hand over."""

    def prepare(self, letter: Letter, wire: bytes) -> str:
        """Return a proof by which `find_outcome` can later tell whether `send` succeeded; nothing is sent.

        The caller stores the proof first, and uses it for every retry, so that two tries send one mail. After
        `Uncertain`, leftovers may exist, which `sweep` removes.
        """

    def release(self, proof: str) -> bool:
        """Undo `prepare`: nothing can be sent by this proof any more. Return False if it is already gone."""

    def send(self, letter: Letter, wire: bytes, proof: str) -> Accepted:
        """Send once, by one request that is never repeated.

        Raises `Uncertain` if it may have been sent. Every other error means that this request was refused: with a
        `status` by the provider's answer, without one before anything left.
        """

    def find_outcome(self, letter: Letter, proof: str) -> SendOutcome:
        """Return what became of a letter, by the proof from `prepare`; changes nothing."""

    def sweep(self, letter: Letter, proof: str = "") -> bool:
        """Remove leftovers of `prepare` for this letter except `proof`; return whether more may appear later."""

    def close(self) -> None:
        """Close files and connections."""


def move(mailbox: Mailbox, id: str, destination: str) -> RelabelResult:
    """File a mail under a label and take it out of the inbox; moving to the inbox only adds that label."""
    inbox = system_label(destination) == INBOX
    return mailbox.relabel(
        id, add=frozenset({destination}), remove=_NO_LABELS if inbox else frozenset({INBOX})
    )


def check_page_size(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise Invalid(f"A page cannot have {limit} mails", remedy=f"Ask for 1 to {MAX_PAGE}.")


def not_found(what: str, id: str) -> NotFound:
    return NotFound(f"There is no {what} {one_line(id[:40])}", remedy="Search for it again.")


def no_attachment(part: str) -> NotFound:
    why = f"The mail has no attachment at part {part[:20]!r}"
    return NotFound(why, remedy="Read the mail: it lists its attachments.")


def invalid_cursor() -> Invalid:
    return Invalid(
        "This cursor is not valid", remedy="Give the cursor that the last answer ended with."
    )


def draft_changed(id: str) -> Conflict:
    return Conflict(
        f"The draft {id} has changed since you read it", remedy="Read it again, then decide."
    )


def new_label_name(name: str) -> str:
    """Return the name for a new label, or raise `Invalid`."""
    cleaned = one_line(name)
    if len(cleaned) > MAX_LABEL or not all(part.strip() for part in cleaned.split("/")):
        raise Invalid(
            f"{cleaned[:80]!r} cannot be the name of a label",
            remedy="Give one such as Work or Work/Clients.",
        )
    return cleaned


def check_label_change(
    before: frozenset[str], *, add: frozenset[str], remove: frozenset[str]
) -> None:
    """Raise `Invalid` for a change of the labels that a mail's nature decides."""
    if fixed := ((add - before) | (remove & before)) & {SENT, DRAFT}:
        raise Invalid(
            f"The label {min(fixed)} cannot be changed", remedy="It says what the mail is."
        )
