"""The actions that `plan` returns and `apply` performs."""

from __future__ import annotations

from typing import Literal

from postroom.core.values import dataclass
from postroom.vault.folders import DRAFTS


class NoteAction:
    """Something to be done about a note."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Report(NoteAction):
    """Tell the person."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Remember(NoteAction):
    """Record that a letter's note stands here now."""

    letter: str
    path: str


@dataclass(frozen=True, slots=True)
class Sync(NoteAction):
    """Write the note as the ledger has the letter, where it belongs.

    Without `notice` it keeps the one that it has. A note that is gone is written again only with `restore`.
    """

    letter: str
    notice: str | None = None
    restore: bool = False


@dataclass(frozen=True, slots=True)
class Approve(NoteAction):
    """Approve a letter whose note was moved; if that is refused, put the note back with the reason."""

    letter: str
    path: str


@dataclass(frozen=True, slots=True)
class FreezeText(NoteAction):
    """Freeze a waiting letter again with the text of its note, and put the note back."""

    letter: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Decide(NoteAction):
    """Reject a letter, take its approval back, put it before the person again, or approve it by a slip."""

    letter: str
    event: Literal["reject", "undo", "reopen", "approve by slip"]
    argument: str = ""  # the reason, or the slip's hash


@dataclass(frozen=True, slots=True)
class FileAction(NoteAction):
    """Something to be done about a note without a letter."""

    path: str


@dataclass(frozen=True, slots=True)
class MoveFile(FileAction):
    """Move a file that belongs elsewhere, unchanged; `forget_inode` if it counts as a person's from then on."""

    folder: str
    forget_inode: bool = False


@dataclass(frozen=True, slots=True)
class Freeze(FileAction):
    """Make a letter of a draft; `approved` if a person wrote it and put it into Approved/."""

    agent: str = ""
    home: str = DRAFTS
    form: str = "draft"
    approved: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True)
class SeeSlip(FileAction):
    """Record when a slip was first seen; `mark` a request that a person moved with `status: approved`."""

    hash: str
    mark: bool = False


@dataclass(frozen=True, slots=True)
class FileSlip(FileAction):
    """Put a spent slip away, with a status that says what became of it."""

    hash: str
    folder: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApproveListed(FileAction):
    """Approve the one letter that a request lists; if that is refused, present the request again."""

    letter: str
    digest: str
    hash: str
    agent: str


@dataclass(frozen=True, slots=True)
class PresentRequest(FileAction):
    """Move a request to Pending_Approval/, with a text that says what approving it does.

    `agent` is None if a person wrote it. `why` is the reason for which it went back; without one it is new.
    """

    agent: str | None
    doubtful: bool = False
    why: str = ""
