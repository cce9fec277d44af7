"""Decides what to do about notes: takes facts from the ledger and the folders, and returns a list of actions.

Everything here is pure: no file, no database, no clock. `apply` gathers the facts and performs the actions in order.
`docs/states.md` is the specification, and tests/unit/desk/test_plan.py has a case for each of its rows.

A note that is unchanged in its place needs no action. A note that was moved is a verdict if it is the only note of its
letter and shows the letter as it was frozen. Any other change is undone and reported; no text of a person is discarded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from postroom.core import life
from postroom.core.policy import SLIP_SECONDS, Rules
from postroom.core.records import ToolNote
from postroom.core.text import OURS, reads_as
from postroom.core.values import dataclass
from postroom.vault.folders import APPROVED, DONE, DRAFTS, FAILED, PENDING, PLANS, REJECTED

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
HOMES: Final = (PENDING, DRAFTS)
VAULT_AGENT: Final = "vault"  # counts as the agent of drafts whose author is not known
# The fields of a note that identify the letter which a person approves; a report names the first that is wrong.
IDENTIFYING: Final = ("letter_version", "digest", "to", "cc", "bcc", "subject")
REFROZEN: Final = (
    "You changed the text, so it was frozen anew. Look at the difference and the risk assessment,"
    " then move the note to Approved/ again to approve it."
)
FIELD_CHANGED: Final = (
    "Its {field} is not the letter's: the frontmatter only shows the letter, and was put back. Move"
    " the note again to approve the letter as it is, or change it with `postroom edit {id}`."
)
BY_TOOL: Final = (
    "A tool wrote this note, or may have, so moving it did not approve it. This is the letter as it"
    " will be sent; move the note to Approved/ again to approve it."
)


def folder(state: life.State, home: str) -> str:
    """Return the folder of a letter's note; `home` is the folder for a letter that waits for a verdict."""
    return FOLDERS.get(life.name(state), home)


# Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRecord:
    """What the ledger has of a letter and its note."""

    id: str
    state: life.State
    home: str = PENDING
    text: str = ""  # of the frozen letter
    location: str = ""  # where the note was last put or seen
    is_at_location: bool = False  # whether there is a file at `location` now
    unfinished_write: str = ""  # the path of a write that was done, but not recorded
    is_slip_gone: bool = False  # whether the slip that approved the letter was taken away
    notice: str = ""  # what the note says to the person


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFile:
    """A file in a workflow folder."""

    path: str

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterNote(NoteFile):
    """A file that names a letter."""

    is_changed: bool = False  # it is new at this path, or changed since it was last written or seen
    is_broken: bool = False  # it cannot be parsed
    text: str | None = None  # the letter's text as a changed note has it; None if it cannot be read
    wrong_fields: tuple[str, ...] = ()  # names of Postroom's fields that differ from the letter
    reason: str = ""  # what a person wrote for the agent


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLetter:
    """The one letter that an agent's request lists for approval."""

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
    is_persons_request: bool = False  # a person wrote it, and the desk presented it
    listed: ListedLetter | None = None  # the only letter in a list that the desk wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class UnownedNote(NoteFile):
    """A file that names no letter: a draft, a slip, a request, a mail, or something else."""

    by: ToolNote | None = None  # the record of the tool that wrote it, or may have
    missing: tuple[str, ...] = ()  # the parts that a draft needs and it lacks: to, subject, text
    is_proposed: bool = False  # it has `status: pending_approval`
    is_mail: bool = False  # it shows an incoming mail
    slip: SlipFacts | None = None  # of a slip, or of a request: in Plans/, or by a tool


# Actions


@dataclass(frozen=True, slots=True)
class Report:
    sentence: str


@dataclass(frozen=True, slots=True)
class Update:
    """Carry out a verdict about a letter, if `event` names one; then write its note in its folder."""

    letter: str
    event: str = ""  # of `life.EVENTS`
    path: str = ""  # where the person left the note, recorded as its location
    report: str = ""  # what to tell the person once the letter has changed
    notice: str | None = None  # what the note says to the person; None leaves that as it is
    restore: bool = False  # whether a missing note is written again
    text: str = ""  # the reason of a rejection, or the new text of an edit
    slip: str = ""  # the hash of the slip that approves the letter


@dataclass(frozen=True, slots=True)
class FileAction:
    """An action about a note without a letter."""

    path: str


@dataclass(frozen=True, slots=True)
class MoveFile(FileAction):
    """Move a file to another folder, report that, and set fields of its frontmatter."""

    folder: str
    report: str
    fields: Mapping[str, str] = field(default_factory=dict)
    spent_slip: str = ""  # the hash, if the file is a slip that was spent
    forget_inode: bool = False  # whether the file counts as a person's from then on


@dataclass(frozen=True, slots=True)
class Freeze(FileAction):
    """Propose a draft as a letter; `approved` if a person wrote the draft and put it into Approved/."""

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
class ApproveListed(FileAction):
    """Approve the one letter that a request lists; if that is refused, present the request again."""

    letter: str
    digest: str
    hash: str
    agent: str


@dataclass(frozen=True, slots=True)
class PresentRequest(FileAction):
    """Put a request before the person, with a text that says what approving it does; `why` it goes back, if it does."""

    agent: str | None  # None if a person wrote it
    doubtful: bool = False
    why: str = ""


Action = Report | Update | FileAction


# The notes of a letter


def is_untouched(state: life.State, location: str, files: Sequence[LetterNote]) -> bool:
    """Whether an open letter has exactly one note, which is unchanged and in its place: then there is nothing to do."""
    if isinstance(state, life.Approved) and state.verdict.slip:
        return False  # its slip may have been taken away
    right = HOMES if isinstance(state, life.Pending) else (APPROVED,)
    return files == [LetterNote(path=location)] and files[0].folder in right


def plan_letter(record: LetterRecord, files: Sequence[LetterNote], rules: Rules) -> list[Action]:
    """Return what to do about a letter and the notes that name it."""
    # Tools may write to Drafts/, and a note there may name any letter: only the letter's own note counts.
    trusted = (record.location, record.unfinished_write)
    is_draft = record.home == DRAFTS
    files = [file for file in files if is_draft or file.folder != DRAFTS or file.path in trusted]
    # A crash came between a write and its record, and nobody has touched the note since: only record it.
    if record.unfinished_write and all(file.path in trusted for file in files):
        return [Update(record.id)]
    match record.state:
        case life.Pending():
            return _plan_pending(record, files, rules)
        case life.Approved():
            return [_plan_approved(record, files)]
        case life.Sending():
            return []  # whatever was done to its note waits for the outcome
        case life.Unknown():
            return _plan_fixed(record, files, "Its fate is unknown")
    return _plan_closed(record, files)


def _in(place: str, files: Sequence[LetterNote]) -> list[LetterNote]:
    return [file for file in files if file.folder == place]


def _plan_pending(record: LetterRecord, files: list[LetterNote], rules: Rules) -> list[Action]:
    at_home = [file for file in files if file.folder in HOMES]
    if at_home:
        copies = [
            f"{file.path} is a copy: the letter {record.id} still waits in"
            f" {at_home[0].folder}/, so nothing was decided. Move the note itself."
            for file in files
            if file not in at_home
        ]
        return [_keep_in_place(record, at_home), *_report_copies(record, copies)]
    if not files:
        return [_restore(record)]
    if any(file.path == record.location for file in files):
        # The note is where Postroom last put or saw it, in the folder of the letter's earlier state: a crash came
        # before Postroom moved it back. That is not a verdict.
        return [Update(record.id)]
    if rejected := _in(REJECTED, files):
        return [_reject(record, rejected[0])]
    if len({file.text for file in files}) > 1:
        several = "Several notes of it are in Approved/, and they differ."
        return [put_back(record.id, files[0].path, several)]
    return [_plan_verdict(record, files[0], rules)]


def _report_copies(record: LetterRecord, sentences: Sequence[str]) -> list[Action]:
    """Return the reports that the note does not have yet; the note gets them too, so that each is made once."""
    new = [sentence for sentence in sentences if sentence not in record.notice]
    if not new:
        return []
    notice = " ".join(filter(None, (record.notice, *new)))
    return [*map(Report, new), Update(record.id, notice=notice)]


def _plan_verdict(record: LetterRecord, file: LetterNote, rules: Rules) -> Update:
    """Return the approval for a note moved to Approved/; if it does not show the frozen letter, the move is undone."""
    if file.text is None:
        unreadable = "It was moved to Approved/, but the letter's text cannot be found in it."
        return put_back(record.id, file.path, unreadable)
    if wrong := [name for name in IDENTIFYING if name in file.wrong_fields]:
        return put_back(record.id, file.path, FIELD_CHANGED.format(field=wrong[0], id=record.id))
    if file.text != record.text and rules.trust == "folder":
        return put_back(record.id, file.path, REFROZEN, event="edit", text=file.text)
    approved = f"The letter {record.id} was approved: its note was moved to Approved/."
    return Update(record.id, "approve", file.path, approved, "")


def put_back(letter: str, path: str, notice: str, *, event: str = "", text: str = "") -> Update:
    """Return the action that moves a note out of Approved/ again; `notice` says why, in the note and the report."""
    report = f"The letter {letter} was not approved. {notice}"
    return Update(letter, event, path, report, notice, text=text)


def _reject(record: LetterRecord, file: LetterNote) -> Update:
    return Update(record.id, "reject", file.path, notice="", text=file.reason)


def _restore(record: LetterRecord) -> Update:
    where = folder(record.state, record.home)
    gone = f"The note of the letter {record.id} was gone: it is back in {where}/."
    return Update(record.id, report=gone if record.location else "", restore=True)


def _note_of(record: LetterRecord, files: Sequence[LetterNote]) -> LetterNote:
    """Return the file at the note's last location, or else the first."""
    return next((file for file in files if file.path == record.location), files[0])


def _keep_in_place(record: LetterRecord, files: Sequence[LetterNote]) -> Update:
    """Return the action for a note in a right folder: record its place, and undo changes of Postroom's fields."""
    file = _note_of(record, files)
    if not file.is_changed:
        return Update(record.id)
    undone = (
        f"{file.path}: your change of {', '.join(file.wrong_fields)} was put back, since the frontmatter"
        f" only shows the letter. Change recipients with `postroom edit {record.id}`."
    )
    report = undone if file.wrong_fields and record.location else ""
    return Update(record.id, path=file.path, report=report)


def _plan_approved(record: LetterRecord, files: list[LetterNote]) -> Update:
    approved = _in(APPROVED, files)
    if record.is_slip_gone:
        return _recall(record, approved or files, "its slip was taken away")
    if any(file.path == record.location and file not in approved for file in files):
        return Update(record.id)  # a crash came between the verdict and the move of its note
    if approved:
        file = _note_of(record, approved)
        if file.is_broken or (file.is_changed and file.text != record.text):
            return _recall(record, [file], "its note was edited after the approval")
        return _keep_in_place(record, approved)
    if not files and not record.location:
        return Update(record.id)  # the note was not written yet, or is written with the outcome
    if rejected := _in(REJECTED, files):
        return _reject(record, rejected[0])
    return _recall(record, files, "its note left Approved/")


def _recall(record: LetterRecord, files: Sequence[LetterNote], why: str) -> Update:
    recalled = f"The letter {record.id} was recalled: {why}."
    path = files[0].path if files else ""
    return Update(record.id, "undo", path, recalled, recalled, restore=not files)


def _plan_closed(record: LetterRecord, files: list[LetterNote]) -> list[Action]:
    is_sent = isinstance(record.state, life.Sent)
    moved = [file for file in _in(APPROVED, files) if file.path != record.location]
    if moved and not is_sent and not record.is_at_location:
        waits = f"The letter {record.id} waits again: its note was moved to Approved/."
        again = f"{waits} Move it there once more to approve it."
        return [Update(record.id, "reopen", moved[0].path, waits, again)]
    if files or not record.location:
        return _plan_fixed(record, files, "It was sent already" if is_sent else "It is closed")
    return []


def _plan_fixed(record: LetterRecord, files: list[LetterNote], why: str) -> list[Action]:
    """Return the actions for a letter that cannot be changed by moving its note: bring the note to its one folder."""
    if not files:
        return [_restore(record)]
    right = folder(record.state, record.home)
    standing = _in(right, files)
    elsewhere = [file for file in files if file not in standing]
    is_at_location = record.is_at_location and record.location.startswith(f"{right}/")
    is_in_place = is_at_location or bool(standing)
    actions: list[Action] = []
    ignored: list[str] = []
    for file in elsewhere:
        copy = f"{file.path} is a copy of the letter {record.id}, and"
        if file.path == record.location:
            actions.append(Update(record.id))
        elif not is_in_place:
            back = f"{why}: the note of the letter {record.id} is back in {right}/."
            actions.append(Update(record.id, path=file.path, report=back))
        elif right == APPROVED:
            ignored.append(f"{copy} is ignored.")
        else:
            actions.append(MoveFile(file.path, right, f"{copy} went to {right}/."))
        is_in_place = True
    if standing and all(file.path != record.location for file in elsewhere):
        actions.append(_keep_in_place(record, standing))
    return actions + _report_copies(record, ignored)


# Notes without a letter


def plan_unowned(file: UnownedNote, rules: Rules) -> list[Action]:
    """Return what to do about a note that names no letter."""
    if file.folder == PLANS:
        agent = file.by.agent if file.by and not file.by.inode_only else None
        return [PresentRequest(file.path, agent, doubtful=file.by is not None)]
    if file.is_mail:
        return [Report(f"{file.path} is a mail, not a letter: nothing of it is sent.")]
    if file.folder == APPROVED:
        return _plan_unowned_approved(file, rules)
    if file.folder != DRAFTS or not file.is_proposed:
        return []
    if "to" in file.missing:
        return [Report(f"{file.path} is not a letter: it has no `to`.")]
    form = "note" if file.by else "draft"
    return [Freeze(file.path, _author(file.by), form=form)] if rules.live else []


def _author(by: ToolNote | None) -> str:
    """Return the agent that counts as the author of the letter that a draft becomes."""
    is_known = by and by.agent and not (by.inode_only or reads_as(by.agent, OURS))
    return by.agent if by and is_known else VAULT_AGENT


def _plan_unowned_approved(file: UnownedNote, rules: Rules) -> list[Action]:
    path, slip = file.path, file.slip
    if slip is None and file.missing:
        lacks = " and no ".join(f"`{name}`" for name in file.missing)
        nothing = f"{path} is ignored: it is neither a letter (it has no {lacks}) nor a slip."
        return [Report(nothing)]
    if rules.trust != "folder":
        home = PENDING if slip else DRAFTS
        refused = f"{path} went back to {home}/: at trust level desk, only the terminal approves."
        return [MoveFile(path, home, refused)]
    if slip and file.by and file.by.inode_only:
        # The file may be a person's that got the inode of a tool's former file: so the person must move it twice.
        again = (
            f"{path} went back to {PENDING}/: a tool may have written it. Move it to {APPROVED}/"
            " again to approve what it names."
        )
        return [MoveFile(path, PENDING, again, forget_inode=True)]
    if slip and slip.spent_on:
        return _plan_spent_slip(path, slip)
    if slip:
        return (
            _plan_request(path, file.by.agent, slip) if file.by else _plan_persons_slip(path, slip)
        )
    if not rules.live:
        return [Report(f"{path} is not sent: Postroom rehearses ({rules.source}).")]
    if file.by:
        return [Freeze(path, _author(file.by), PENDING, "note", notice=BY_TOOL)]
    return [Freeze(path, approved=True)]


def _plan_persons_slip(path: str, slip: SlipFacts) -> list[Action]:
    is_to_mark = slip.status != "approved" and slip.is_persons_request
    actions: list[Action] = []
    if slip.status != "approved" and not is_to_mark:
        actions.append(Report(f"{path} approves nothing: a slip needs `status: approved`."))
    if slip.age is None or is_to_mark:
        actions.append(SeeSlip(path, slip.hash, is_to_mark))
    elif slip.age >= SLIP_SECONDS:
        actions.append(Report(f"{path} has lapsed: it was first seen more than 72 hours ago."))
    return actions


def _plan_spent_slip(path: str, slip: SlipFacts) -> list[Action]:
    """Return the action that files a slip whose letter was sent; a copy of a slip that was filed before is void."""
    if not slip.is_letter_sent:
        return []
    target, marks = DONE, {"status": "done"}
    report = f"{path} was spent on the letter {slip.spent_on} and went to {DONE}/."
    if slip.is_filed:
        why = f"a copy of the slip that approved the letter {slip.spent_on}; a new one needs a `created` of its own"
        target, marks = REJECTED, {"status": "void", "reason": why}
        report = f"{path} is void, and went to {REJECTED}/: {why}."
    return [MoveFile(path, target, report, marks, spent_slip=slip.hash)]


def _plan_request(path: str, agent: str, slip: SlipFacts) -> list[Action]:
    """Return the approval of the one letter that an agent's request lists; otherwise the request gets a new list."""
    listed = slip.listed
    if listed is None:
        why = "a tool wrote it, or may have, and it does not list exactly one letter"
    elif listed.is_approved_by_it:
        return []  # the request stays until the letter's outcome
    elif listed.was_recalled:
        why = f"the approval of the letter {listed.id} was taken back"
    elif listed.is_red:
        why = f"the letter {listed.id} is red, and needs a verdict of its own"
    else:
        return [ApproveListed(path, listed.id, listed.digest, slip.hash, agent)]
    return [PresentRequest(path, agent, why=why)]


def plan_slip(path: str, hash: str, letters: Sequence[str]) -> list[Action]:
    """Return the approval of the one waiting letter that a slip fits; a report if it fits several."""
    if len(letters) == 1:
        return [Update(letters[0], "approve", notice="", slip=hash)]
    several = Report(f"{path} fits {len(letters)} letters, and so approves none.")
    return [several] if letters else []
