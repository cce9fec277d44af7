"""What the store keeps, as plain values: letters, their notes, proofs, and mail that came in."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core import life
from postroom.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroom.core.card import Card
    from postroom.core.handbook import Judgement, MailFacts
    from postroom.core.letter import Letter
    from postroom.core.stamp import Stamp


DAY: Final = 86_400  # seconds
_NO_FIELDS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """A letter in the ledger; `digest` is the one it had when it was frozen."""

    letter: Letter
    agent: str
    state: life.State
    created: Stamp
    card: Card
    digest: str
    content_key: str
    home: str  # the folder of its note while it waits
    form: str = "note"  # or "draft": a note whose whole body is the letter's text
    replaces: str = ""
    origins: tuple[str, ...] = field(default=())
    version: int = 1
    is_edited: bool = False  # it is no longer as its agent wrote it
    pre_send: str = ""  # what a record that is written before it is sent names as answered, as JSON
    fields: Mapping[str, str] = field(default_factory=dict)  # further frontmatter of its draft

    @property
    def id(self) -> str:
        """The letter's id."""
        return self.letter.id

    @property
    def kind(self) -> str:
        """The name of its state."""
        return life.name(self.state)


class LetterSummary(NamedTuple):
    """A letter as a list shows it."""

    id: str
    agent: str
    recipients: str
    subject: str
    level: int
    warning: str
    created: Stamp
    state: life.State
    fields: Mapping[str, str] = _NO_FIELDS  # further frontmatter of its draft


class LetterState(NamedTuple):
    """The state of a letter, and the version that has it."""

    state: life.State
    version: int


class AgentActivity(NamedTuple):
    """How many letters an agent has in each state, and when it wrote the last one."""

    agent: str
    states: dict[str, int]
    last: float


class NoteLocation(NamedTuple):
    """Where a letter's note was when it was last written or seen, and what it was."""

    path: str
    hash: str
    notice: str
    pages: str  # the sections that Postroom wrote into it, as JSON: title and hash
    version: int  # of the letter that it shows
    size: int
    mtime: int
    inode: int


NOWHERE: Final = NoteLocation("", "", "", "{}", 0, 0, 0, 0)  # a note that is still to be written


class NoteStatus(NamedTuple):
    """Where a note is, what was about to be written and where, and the version of its letter, if it has one."""

    location: NoteLocation
    planned_path: str = ""
    planned_hash: str = ""
    letter_version: int | None = None


class ToolNote(NamedTuple):
    """A file that a tool wrote; `agent` is empty where it is not known for which agent."""

    agent: str
    path: str = ""  # where it was when it was written
    inode_only: bool = False  # nothing else matches, and file systems reuse inodes


class ApprovalRequest(NamedTuple):
    """A request that waits for a person: its author, and id and digest of each letter that it lists.

    `agent` is None where a person wrote it, and empty where it is not known which agent did.
    """

    agent: str | None
    letters: list[tuple[str, str]]


class ProviderProof(NamedTuple):
    """What a provider gave to settle a letter by: for which digest, and how many sends by it had no answer."""

    text: str
    digest: str
    unanswered: int


class ShownMail(NamedTuple):
    """A mail whose text was shown to an agent, or written into a note or a file."""

    account: str
    id: str
    sender: str  # the address in From
    subject: str
    date: float
    sent: bool  # it lies in Sent


class LabelChange(NamedTuple):
    """A change of labels that an agent made, which can be undone."""

    number: int
    at: float
    agent: str
    account: str
    message: str
    added: frozenset[str]
    removed: frozenset[str]


class MailboxCursor(NamedTuple):
    """How far a mailbox was followed: the provider's cursor, and how old mail was when it began."""

    cursor: str
    floor: int = 0


class InboxState(StrEnum):
    """How far a mail that came in has got."""

    BEFORE = "before"  # it was in the mailbox when watching began
    FOUND = "found"  # its note is still to be written
    ASIDE = "aside"  # it is not (yet) a mail of the inbox
    PENDING = "pending"  # it is to be triaged
    DECIDED = "decided"  # its answer is to be drafted
    DRAFTED = "drafted"  # its answer waits for the person
    NEEDS_INFO = "needs_info"  # it is left to the person
    DELEGATED = "delegated"  # it is for somebody else
    DONE = "done"
    FAILED = "failed"  # its note does not parse any more
    GONE = "gone"  # its note was deleted or taken away


class DecidedBy(StrEnum):
    """Who decided about a mail, as its note shows it; a rule is `line 5 of Handbook.md`."""

    PERSON = "a person"  # the answer that waits, if any, is still to be withdrawn
    PERSON_WITHDRAWN = "a person; the answer that waited was withdrawn"
    PERSON_ONLY = "a person, whatever becomes of its letter"
    MODEL = "the model"
    NO_RULE = "no rule"


class InboxItem(NamedTuple):
    """A mail that came in, and what is to be done about it."""

    account: str
    message: str
    thread: str = ""
    state: InboxState = InboxState.FOUND
    facts: MailFacts | None = None  # None until its note is written
    judgement: Judgement | None = None  # None until it was decided about
    by: str = ""  # `DecidedBy`, or the line of a rule
    letter: str = ""
    wish: str = ""
    held: str = ""
    tries: int = 0
    turn: int = 0  # how many times it was judged
    seen: float = 0
    changed: float = 0
    version: int = 0

    @property
    def key(self) -> str:
        """The key of its note."""
        return f"mail {self.account} {self.message}"


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """What the ledger keeps once for the whole desk."""

    desk_id: str = ""
    ledger_id: str = ""  # the vault names it as the one that may send
    machine: str = ""
    state_inode: str = ""  # tells the state folder from a copy of it
    room: str = ""  # the folder in the vault that has Postroom's, after a slash
    passphrase: str = ""  # its salted hash
    trust: str = ""  # pinned by the passphrase: `folder` or `desk`
    approval_required: bool = False  # pinned by the passphrase
    page_address: str = ""  # where the page was last served
    seal_key: str = ""  # of the HMAC of audit lines
    notes_trust: str = ""  # the trust level that the notes give instructions for
    rejected_changed: int = 0  # when the folder of rejected notes was last read, by its mtime
    restored: str = ""  # why this ledger may be older than the log
    tool_notes_since: float = 0.0  # before it, tools may have written what has no record
    last_finished: str = ""  # the last thing that one of several finished, and logged


class Check(NamedTuple):
    """One part that was looked at: `ok`, `note` or `fail`, what was found, and what to do."""

    part: str
    verdict: str
    found: str
    remedy: str = ""
