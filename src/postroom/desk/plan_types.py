"""Facts about notes, which `plan` reads, and the actions that it returns, which `apply` performs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from postroom.core import life
from postroom.vault.folders import APPROVED, DONE, DRAFTS, FAILED, PENDING, REJECTED

FOLDERS: Final = {
    "approved": APPROVED,
    "sending": APPROVED,
    "unknown": APPROVED,
    "sent": DONE,
    "rejected": REJECTED,
    "withdrawn": REJECTED,
    "expired": REJECTED,
    "failed": FAILED,
}


# Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRecord:
    """What the ledger has of a letter and its note."""

    id: str
    state: life.State
    home: str = PENDING
    text: str = ""  # of the frozen letter
    is_draft: bool = False  # a person's draft: the whole body is the letter's text
    location: str = ""  # where the note was last put or seen
    is_at_location: bool = False  # a file stands there now
    intended: str = ""  # the path of a write that was begun
    is_write_unfinished: bool = False  # that write took place, but was not recorded
    is_slip_gone: bool = False  # approved by a slip that was taken away

    @property
    def folder(self) -> str:
        """The folder in which the note belongs."""
        return FOLDERS.get(life.name(self.state), self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterNote:
    """A file that names a letter."""

    path: str
    letter: str
    is_changed: bool = False  # new at this path, or not as it was last written or seen
    is_broken: bool = False  # it cannot be parsed any more
    text: str | None = None  # the letter's text as a changed note has it; None if it cannot be read
    wrong_fields: tuple[str, ...] = ()  # display fields that are not the letter's
    reason: str = ""  # what a person wrote for the agent

    @property
    def folder(self) -> str:
        """The folder that the file stands in."""
        return self.path.rpartition("/")[0]


class Kind(Enum):
    """What a note without a letter is."""

    DRAFT = "draft"
    SLIP = "slip"  # or, in Plans/ or by a tool, a request
    MAIL = "mail"
    OTHER = "other"


class Author(Enum):
    """Who wrote a note; MAYBE_TOOL if nothing but the inode says that a tool did."""

    PERSON = "person"
    TOOL = "tool"
    MAYBE_TOOL = "maybe tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLetter:
    """A letter that a request of an agent lists for approval."""

    id: str
    digest: str
    is_red: bool = False
    is_approved_by_it: bool = False
    was_recalled: bool = False  # the request approved it before, and the person took that back


@dataclass(frozen=True, slots=True, kw_only=True)
class SlipFacts:
    """What the ledger has of a slip or request."""

    hash: str
    status: str = "approved"
    age: float | None = None  # seconds since it was first seen
    spent_on: str = ""  # the letter
    is_letter_sent: bool = False
    is_filed: bool = False  # another copy of it was filed after its letter was sent
    is_persons_request: bool = False  # the desk put it before the person, who wrote it
    listed: tuple[ListedLetter, ...] | None = None  # of an agent's request that the desk wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class UnownedNote:
    """A file in a workflow folder that names no letter."""

    path: str
    kind: Kind
    author: Author = Author.PERSON
    agent: str = ""  # whose letter a tool's draft becomes, or whose request it is
    missing: tuple[str, ...] = ()  # what it lacks to be a draft: to, subject, text
    is_proposed: bool = False  # status: pending_approval
    slip: SlipFacts | None = None

    @property
    def folder(self) -> str:
        """The folder that the file stands in."""
        return self.path.rpartition("/")[0]


# Actions


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the person."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Record that a letter's note stands here now."""

    letter: str
    path: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Write the note as the ledger has the letter, where it belongs.

    Without `notice` it keeps the one that it has. A note that is gone is written again only with `restore`.
    """

    letter: str
    notice: str | None = None
    restore: bool = False


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve a letter whose note was moved; if that is refused, put the note back with the reason."""

    letter: str
    path: str


@dataclass(frozen=True, slots=True)
class FreezeText:
    """Freeze a waiting letter again with the text of its note, and put the note back."""

    letter: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject a letter."""

    letter: str
    reason: str


@dataclass(frozen=True, slots=True)
class Recall:
    """Take an approval back."""

    letter: str


@dataclass(frozen=True, slots=True)
class Reopen:
    """Put a closed letter that was not sent before the person again."""

    letter: str


@dataclass(frozen=True, slots=True)
class MoveFile:
    """Move a file that belongs elsewhere, unchanged."""

    path: str
    folder: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Make a letter of a draft; `approved` if a person wrote it and put it into Approved/."""

    path: str
    agent: str = ""
    home: str = DRAFTS
    form: str = "draft"
    approved: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True)
class SeeSlip:
    """Record when a slip was first seen."""

    hash: str


@dataclass(frozen=True, slots=True)
class MarkApproved:
    """Give a request that a person wrote and moved `status: approved`."""

    path: str


@dataclass(frozen=True, slots=True)
class FileSlip:
    """Put a spent slip away, with a status that says what became of it."""

    path: str
    hash: str
    folder: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ForgetInode:
    """Stop taking the file with this inode for a tool's."""

    path: str


@dataclass(frozen=True, slots=True)
class ApproveListed:
    """Approve the one letter that a request lists; if that is refused, list anew."""

    path: str
    letter: str
    digest: str
    hash: str
    agent: str


@dataclass(frozen=True, slots=True)
class PresentRequest:
    """Move a request to Pending_Approval/, with a text that says what approving it does.

    `agent` is None if a person wrote it. `why` is the reason for which it went back; without one it is new.
    """

    path: str
    agent: str | None
    doubtful: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class ApproveBySlip:
    """Approve the one waiting letter that a slip fits."""

    letter: str
    hash: str


Action = (
    Report
    | Remember
    | Sync
    | Approve
    | FreezeText
    | Reject
    | Recall
    | Reopen
    | MoveFile
    | Freeze
    | SeeSlip
    | MarkApproved
    | FileSlip
    | ForgetInode
    | ApproveListed
    | PresentRequest
    | ApproveBySlip
)
