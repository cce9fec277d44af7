"""Decide what to do about notes: facts from the ledger and the folders in, a list of actions out.

Everything here is pure: no file, no database, no clock. `apply` gathers the facts and performs the actions in order.
`docs/states.md` is the specification, and tests/unit/desk/test_plan.py has a case for each of its rows.

A note that stands where it was put, as it was put, means nothing. A note that was moved is a verdict if it is the only
one of its letter and shows what was frozen. Everything else is undone and reported; no text of a person is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from postroom.core import life
from postroom.core.policy import SLIP_SECONDS, Rules
from postroom.core.text import one_line
from postroom.core.values import dataclass
from postroom.desk.note_actions import (
    Approve,
    ApproveListed,
    Decide,
    FileSlip,
    Freeze,
    FreezeText,
    MoveFile,
    NoteAction,
    PresentRequest,
    Remember,
    Report,
    SeeSlip,
    Sync,
)
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
# The display fields that say which letter a person approves, most telling first.
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


# Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRecord:
    """What the ledger has of a letter and its note."""

    id: str
    state: life.State
    home: str = PENDING
    text: str = ""  # of the frozen letter
    location: str = ""  # where the note was last put or seen
    is_at_location: bool = False  # a file stands there now
    unfinished_write: str = ""  # the path of a write that took place, but was not recorded
    is_slip_gone: bool = False  # approved by a slip that was taken away

    @property
    def folder(self) -> str:
        """The folder in which the note belongs."""
        return FOLDERS.get(life.name(self.state), self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFile:
    """A file in a workflow folder."""

    path: str

    @property
    def folder(self) -> str:
        """The folder that the file stands in."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterNote(NoteFile):
    """A file that names a letter."""

    letter: str
    is_changed: bool = False  # new at this path, or not as it was last written or seen
    is_broken: bool = False  # it cannot be parsed any more
    text: str | None = None  # the letter's text as a changed note has it; None if it cannot be read
    wrong_fields: tuple[str, ...] = ()  # display fields that are not the letter's
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
    is_persons_request: bool = False  # the desk put it before the person, who wrote it
    listed: ListedLetter | None = None  # if the desk wrote the list, and it has exactly one letter


@dataclass(frozen=True, slots=True, kw_only=True)
class UnownedNote(NoteFile):
    """A file that names no letter: a draft, a slip, a request, a mail, or something else."""

    by_tool: bool = False  # a tool wrote it, or may have
    by_inode: bool = False  # nothing but the inode says that a tool did
    agent: str = ""  # whose letter a tool's draft becomes, or whose request it is
    missing: tuple[str, ...] = ()  # what it lacks to be a draft: to, subject, text
    is_proposed: bool = False  # status: pending_approval
    is_mail: bool = False  # it holds a mail that came in
    slip: SlipFacts | None = None  # it is a slip, or in Plans/ or by a tool a request


# Planning


def plan(
    records: Sequence[LetterRecord], files: Iterable[LetterNote | UnownedNote], rules: Rules
) -> list[NoteAction]:
    """Return what to do about notes: first about those without a letter, then letter by letter."""
    actions: list[NoteAction] = []
    notes: dict[str, list[LetterNote]] = {record.id: [] for record in records}
    for file in files:
        if isinstance(file, UnownedNote):
            actions += _plan_unowned(file, rules)
        elif file.letter in notes:
            notes[file.letter].append(file)
        else:
            name = one_line(file.letter)[:20]
            unknown = f"{file.path} names the letter {name}, which this desk does not know."
            actions.append(Report(unknown))
    for record in records:
        actions += _plan_letter(record, notes[record.id], rules)
    return actions


def is_untouched(
    state: life.State, location: str, files: Sequence[LetterNote], *, is_current: bool
) -> bool:
    """Whether an open letter's one note stands unchanged where it belongs: the usual case."""
    if not is_current or len(files) != 1:
        return False
    if isinstance(state, life.Approved) and state.verdict.slip:
        return False  # its slip may have been taken away
    (file,) = files
    right = HOMES if isinstance(state, life.Pending) else (APPROVED,)
    is_as_seen = not (file.is_changed or file.is_broken)
    return is_as_seen and file.path == location and file.folder in right


def _plan_letter(record: LetterRecord, files: list[LetterNote], rules: Rules) -> list[NoteAction]:
    # Tools may write to Drafts/, and name any letter there.
    trusted = (record.location, record.unfinished_write)
    is_draft = record.home == DRAFTS
    files = [file for file in files if is_draft or file.folder != DRAFTS or file.path in trusted]
    if record.unfinished_write and all(file.path in trusted for file in files):
        return [Sync(record.id)]
    match record.state:
        case life.Pending():
            return _plan_pending(record, files, rules)
        case life.Approved():
            return _plan_approved(record, files)
        case life.Sending():
            return []  # whatever was done to its note waits for the outcome
        case life.Unknown():
            gone = f"The note of the letter {record.id} was gone: it is back in {APPROVED}/."
            reports: list[NoteAction] = [Report(gone)] if record.location and not files else []
            return reports + _plan_fixed(record, files, "Its fate is unknown")
    return _plan_closed(record, files)


def _plan_pending(record: LetterRecord, files: list[LetterNote], rules: Rules) -> list[NoteAction]:
    at_home = [file for file in files if file.folder in HOMES]
    rejected = [file for file in files if file.folder == REJECTED]
    if at_home:
        copies: list[NoteAction] = [
            Report(
                f"{file.path} is a copy: the letter {record.id} still waits in"
                f" {at_home[0].folder}/, so nothing was decided. Move the note itself."
            )
            for file in files
            if file.folder not in HOMES
        ]
        return copies + _plan_in_place(record, at_home)
    if any(file.path == record.location for file in files):
        # Not moved since we put it or saw it there, before the letter waited again: no verdict, but an interrupted
        # move of ours.
        return [Sync(record.id)]
    if rejected:
        return _plan_rejection(record, rejected[0])
    if files:
        if len({file.text for file in files}) > 1:
            several = "Several notes of it are in Approved/, and they differ."
            return put_back(record.id, files[0].path, several)
        return _plan_verdict(record, files[0], rules)
    gone = f"The note of the letter {record.id} was gone: it is back in {record.home}/."
    reports: list[NoteAction] = [Report(gone)] if record.location else []
    return [*reports, Sync(record.id, restore=True)]


def _plan_verdict(record: LetterRecord, file: LetterNote, rules: Rules) -> list[NoteAction]:
    """A note moved to Approved/ approves what was frozen, and nothing else."""
    wrong = next((name for name in IDENTIFYING if name in file.wrong_fields), "")
    if file.text is None:
        unreadable = "It was moved to Approved/, but the letter's text cannot be found in it."
        return put_back(record.id, file.path, unreadable)
    if wrong:
        notice = FIELD_CHANGED.format(field=wrong, id=record.id)
        return put_back(record.id, file.path, notice)
    if file.text != record.text and rules.trust == "folder":
        # Remembered first: after a crash before the note is home again, the same move would approve the new text.
        return [
            Remember(record.id, file.path),
            FreezeText(record.id, file.path, file.text),
        ]
    return [Approve(record.id, file.path)]


def put_back(letter: str, path: str, notice: str) -> list[NoteAction]:
    """Return the actions that undo a move which did not approve its letter."""
    return [
        Report(f"The letter {letter} was not approved. {notice}"),
        Remember(letter, path),
        Sync(letter, notice),
    ]


def _plan_rejection(record: LetterRecord, file: LetterNote) -> list[NoteAction]:
    return [
        Decide(record.id, "reject", file.reason),
        Remember(record.id, file.path),
        Sync(record.id, ""),
    ]


def _plan_in_place(record: LetterRecord, files: Sequence[LetterNote]) -> list[NoteAction]:
    """A note stands in a right folder: remember it there, and undo changes of display fields."""
    file = next((file for file in files if file.path == record.location), files[0])
    actions: list[NoteAction] = []
    if file.is_changed:
        wrong = file.wrong_fields
        if wrong and record.location:
            sentence = (
                f"{file.path}: your change of {', '.join(wrong)} was put back, since the frontmatter"
                f" only shows the letter. Change recipients with `postroom edit {record.id}`."
            )
            actions.append(Report(sentence))
        actions.append(Remember(record.id, file.path))
    return [*actions, Sync(record.id)]


def _plan_approved(record: LetterRecord, files: list[LetterNote]) -> list[NoteAction]:
    approved = [file for file in files if file.folder == APPROVED]
    rejected = [file for file in files if file.folder == REJECTED]
    if record.is_slip_gone:
        return _plan_recall(record, next(iter(approved or files), None), "its slip was taken away")
    if any(file.path == record.location and file not in approved for file in files):
        return [Sync(record.id)]  # an interrupted move of ours
    if approved:
        file = next((file for file in approved if file.path == record.location), approved[0])
        if file.is_broken or (file.is_changed and file.text != record.text):
            return _plan_recall(record, file, "its note was edited after the approval")
        return _plan_in_place(record, approved)
    if not files and not record.location:
        return [Sync(record.id)]  # an interrupted first write, or no note before the outcome
    if rejected:
        return _plan_rejection(record, rejected[0])
    return _plan_recall(record, files[0] if files else None, "its note left Approved/")


def _plan_recall(record: LetterRecord, file: LetterNote | None, why: str) -> list[NoteAction]:
    sentence = f"The letter {record.id} was recalled: {why}."
    remember = [Remember(record.id, file.path)] if file else []
    restore = file is None
    return [
        Decide(record.id, "undo"),
        Report(sentence),
        *remember,
        Sync(record.id, sentence, restore),
    ]


def _plan_closed(record: LetterRecord, files: list[LetterNote]) -> list[NoteAction]:
    is_sent = isinstance(record.state, life.Sent)
    moved = [file for file in files if file.folder == APPROVED and file.path != record.location]
    if moved and not is_sent and not record.is_at_location:
        sentence = f"The letter {record.id} waits again: its note was moved to Approved/."
        return [
            Remember(record.id, moved[0].path),  # first: only another move approves it
            Decide(record.id, "reopen"),
            Report(sentence),
            Sync(record.id, f"{sentence} Move it there once more to approve it."),
        ]
    if files or not record.location:
        return _plan_fixed(record, files, "It was sent already" if is_sent else "It is closed")
    return []


def _plan_fixed(record: LetterRecord, files: list[LetterNote], why: str) -> list[NoteAction]:
    """Bring the note of a letter that no move changes to its one place."""
    right = record.folder
    standing = [file for file in files if file.folder == right]
    is_in_place = record.is_at_location and record.location.startswith(f"{right}/")
    is_in_place = is_in_place or bool(standing)
    actions: list[NoteAction] = []
    for file in files:
        if file.folder == right:
            continue
        if file.path == record.location:
            actions.append(Sync(record.id))
        elif is_in_place:
            copy = f"{file.path} is a copy of the letter {record.id}"
            if right == APPROVED:
                actions.append(Report(f"{copy}, and is ignored."))
            else:
                actions.append(Report(f"{copy}, and went to {right}/."))
                actions.append(MoveFile(file.path, right))
        else:
            actions.append(
                Report(f"{why}: the note of the letter {record.id} is back in {right}/.")
            )
            actions.append(Remember(record.id, file.path))
            actions.append(Sync(record.id))
        is_in_place = True
    if not files:
        actions.append(Sync(record.id, restore=True))
    elif standing and all(file.path != record.location or file in standing for file in files):
        actions += _plan_in_place(record, standing)
    return actions


# Notes without a letter


def _plan_unowned(file: UnownedNote, rules: Rules) -> list[NoteAction]:
    if file.folder == PLANS:
        is_tools = file.by_tool and not file.by_inode
        return [PresentRequest(file.path, file.agent if is_tools else None, file.by_tool)]
    if file.is_mail:
        return [Report(f"{file.path} is a mail, and no letter: nothing of it is sent.")]
    if file.folder == APPROVED:
        return _plan_unowned_approved(file, rules)
    if file.folder != DRAFTS or not file.is_proposed:
        return []
    if "to" in file.missing:
        return [Report(f"{file.path} is no letter: it has no `to`.")]
    form = "note" if file.by_tool else "draft"
    return [Freeze(file.path, file.agent, form=form)] if rules.live else []


def _plan_unowned_approved(file: UnownedNote, rules: Rules) -> list[NoteAction]:
    path, slip = file.path, file.slip
    if slip is None and file.missing:
        lacks = " and no ".join(f"`{name}`" for name in file.missing)
        nothing = f"{path} is ignored: it is neither a letter (it has no {lacks}) nor a slip."
        return [Report(nothing)]
    if rules.trust != "folder":
        home = PENDING if slip else DRAFTS
        refused = f"{path} went back to {home}/: at trust level desk, only the terminal approves."
        return [MoveFile(path, home), Report(refused)]
    if slip and file.by_inode:
        # Perhaps another file that got the inode of one that a tool wrote: it stays the person's, but is moved twice.
        again = (
            f"{path} went back to {PENDING}/: a tool may have written it. Move it to {APPROVED}/"
            " again to approve what it names."
        )
        return [MoveFile(path, PENDING, forget_inode=True), Report(again)]
    if slip and slip.spent_on:
        return _plan_spent_slip(path, slip)
    if slip:
        return _plan_request(file, slip) if file.by_tool else _plan_persons_slip(path, slip)
    if not rules.live:
        return [Report(f"{path} is not sent: Postroom rehearses ({rules.source}).")]
    if file.by_tool:
        return [Freeze(path, file.agent, PENDING, "note", notice=BY_TOOL)]
    return [Freeze(path, approved=True)]


def _plan_persons_slip(path: str, slip: SlipFacts) -> list[NoteAction]:
    is_to_mark = slip.status != "approved" and slip.is_persons_request
    actions: list[NoteAction] = []
    if slip.status != "approved" and not is_to_mark:
        actions.append(Report(f"{path} approves nothing: a slip needs `status: approved`."))
    if slip.age is None or is_to_mark:
        actions.append(SeeSlip(path, slip.hash, is_to_mark))
    elif slip.age >= SLIP_SECONDS:
        actions.append(Report(f"{path} has lapsed: it was first seen more than 72 hours ago."))
    return actions


def _plan_spent_slip(path: str, slip: SlipFacts) -> list[NoteAction]:
    """File a slip whose letter was sent; a copy of one that was filed is void."""
    letter = slip.spent_on
    if not slip.is_letter_sent:
        return []
    if not slip.is_filed:
        spent = f"{path} was spent on the letter {letter} and went to {DONE}/."
        return [Report(spent), FileSlip(path, slip.hash, DONE, "done")]
    why = f"a copy of the slip that let the letter {letter} out; a new one needs a `created` of its own"
    void = f"{path} is void, and went to {REJECTED}/: {why}."
    return [Report(void), FileSlip(path, slip.hash, REJECTED, "void", why)]


def _plan_request(file: UnownedNote, slip: SlipFacts) -> list[NoteAction]:
    """An agent's request approves the one letter that it lists; otherwise it goes back with a new list."""
    listed = slip.listed
    if listed and listed.is_approved_by_it:
        return []  # it waits for the outcome
    if listed is None:
        why = "a tool wrote it, or may have, and it does not list exactly one letter"
    elif listed.was_recalled:
        why = f"the approval of the letter {listed.id} was taken back"
    elif listed.is_red:
        why = f"the letter {listed.id} is red, and needs a verdict of its own"
    else:
        return [ApproveListed(file.path, listed.id, listed.digest, slip.hash, file.agent)]
    return [PresentRequest(file.path, file.agent, why=why)]


def plan_requests(requests: Sequence[UnownedNote], waiting: int, rules: Rules) -> list[NoteAction]:
    """Adopt the requests in Plans/ for which there is room among those that wait."""
    room = max(0, rules.open_letters - waiting)
    actions: list[NoteAction] = []
    if len(requests) > room:
        count = max(waiting, rules.open_letters)
        actions.append(Report(f"{count} requests wait already; the others stay in {PLANS}/."))
    return actions + plan((), requests[:room], rules)


def plan_slip(path: str, hash: str, letters: Sequence[str]) -> list[NoteAction]:
    """Approve the waiting letter that a slip fits, if it fits no other."""
    if len(letters) == 1:
        return [Decide(letters[0], "approve by slip", hash)]
    several = Report(f"{path} fits {len(letters)} letters, and so approves none.")
    return [several] if letters else []
