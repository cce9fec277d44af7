"""Decide what to do about notes: facts from the ledger and the folders in, a list of actions out.

Everything here is pure: no file, no database, no clock. `apply` gathers the facts and performs the actions in order.
`docs/states.md` is the specification, and tests/unit/desk/test_plan.py has a case for each of its rows.

A note that stands where it was put, as it was put, means nothing. A note that was moved is a verdict if it is the only
one of its letter and shows what was frozen. Everything else is undone and reported; no text of a person is discarded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from postroom.core import life
from postroom.core.policy import SLIP_SECONDS, Rules
from postroom.core.text import one_line
from postroom.desk.plan_types import (
    Action,
    Approve,
    ApproveBySlip,
    ApproveListed,
    Author,
    FileSlip,
    ForgetInode,
    Freeze,
    FreezeText,
    Kind,
    LetterNote,
    LetterRecord,
    MarkApproved,
    MoveFile,
    PresentRequest,
    Recall,
    Reject,
    Remember,
    Reopen,
    Report,
    SeeSlip,
    SlipFacts,
    Sync,
    UnownedNote,
)
from postroom.vault.folders import APPROVED, DONE, DRAFTS, PENDING, PLANS, REJECTED

HOMES: Final = (PENDING, DRAFTS)
# The display fields that say which letter a person approves, most telling first.
IDENTIFYING: Final = ("letter_version", "digest", "to", "cc", "bcc", "subject")
REFROZEN: Final = (
    "You changed the text. It was frozen anew; look at the difference and the risk assessment, and"
    " move the note to Approved/ again to approve it."
)
FIELD_CHANGED: Final = (
    "Its {field} is not the letter's, and was put back: the frontmatter only shows. Move the note"
    " again to approve the letter as it is; recipients are changed with `postroom edit {id}`."
)
BY_TOOL: Final = (
    "A tool wrote this note, or may have, so moving it did not approve it. This is the letter as it"
    " will be sent; move the note to Approved/ again to approve it."
)


def plan(
    records: Iterable[LetterRecord],
    files: Iterable[LetterNote | UnownedNote],
    rules: Rules,
) -> list[Action]:
    """Return what to do about notes: first about those without a letter, then letter by letter."""
    actions: list[Action] = []
    notes: dict[str, list[LetterNote]] = {record.id: [] for record in records}
    for file in files:
        if isinstance(file, UnownedNote):
            actions += _plan_unowned(file, rules)
        elif file.letter in notes:
            notes[file.letter].append(file)
        else:
            short = one_line(file.letter)[:20]
            sentence = f"{file.path} names the letter {short}, which this desk does not know."
            actions.append(Report(sentence))
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


def _plan_letter(record: LetterRecord, files: list[LetterNote], rules: Rules) -> list[Action]:
    files = [file for file in files if _may_be_its_note(record, file)]
    known = (record.location, record.intended)
    if record.is_write_unfinished and all(file.path in known for file in files):
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
            reports: list[Action] = [Report(gone)] if record.location and not files else []
            return reports + _plan_fixed(record, files, "Its fate is unknown")
    return _plan_closed(record, files)


def _may_be_its_note(record: LetterRecord, file: LetterNote) -> bool:
    """Whether the file can be the letter's note: tools may write to Drafts/, and name any letter there."""
    began_there = record.is_draft or record.home == DRAFTS
    return file.folder != DRAFTS or file.path == record.location or began_there


def _plan_pending(record: LetterRecord, files: list[LetterNote], rules: Rules) -> list[Action]:
    at_home = [file for file in files if file.folder in HOMES]
    rejected = [file for file in files if file.folder == REJECTED]
    if at_home:
        copies: list[Action] = [
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
    reports: list[Action] = [Report(gone)] if record.location else []
    return [*reports, Sync(record.id, restore=True)]


def _plan_verdict(record: LetterRecord, file: LetterNote, rules: Rules) -> list[Action]:
    """A note moved to Approved/ approves what was frozen, and nothing else."""
    wrong = next((name for name in IDENTIFYING if name in file.wrong_fields), "")
    if file.text is None:
        unreadable = "It was moved to Approved/, but its text cannot be told apart."
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


def put_back(letter: str, path: str, notice: str) -> list[Action]:
    """Return the actions that undo a move which did not approve its letter."""
    return [
        Report(f"The letter {letter} was not approved. {notice}"),
        Remember(letter, path),
        Sync(letter, notice),
    ]


def _plan_rejection(record: LetterRecord, file: LetterNote) -> list[Action]:
    return [
        Reject(record.id, file.reason),
        Remember(record.id, file.path),
        Sync(record.id, ""),
    ]


def _plan_in_place(record: LetterRecord, files: Sequence[LetterNote]) -> list[Action]:
    """A note stands in a right folder: remember it there, and undo changes of display fields."""
    file = next((file for file in files if file.path == record.location), files[0])
    actions: list[Action] = []
    if file.is_changed:
        wrong = file.wrong_fields
        if wrong and record.location:
            sentence = (
                f"{file.path}: {', '.join(wrong)} only show what the letter is, and"
                f" {'was' if len(wrong) == 1 else 'were'} put back. Recipients are changed with"
                f" `postroom edit {record.id}`."
            )
            actions.append(Report(sentence))
        actions.append(Remember(record.id, file.path))
    return [*actions, Sync(record.id)]


def _plan_approved(record: LetterRecord, files: list[LetterNote]) -> list[Action]:
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


def _plan_recall(record: LetterRecord, file: LetterNote | None, why: str) -> list[Action]:
    sentence = f"The letter {record.id} was recalled: {why}."
    remember = [Remember(record.id, file.path)] if file else []
    restore = file is None
    return [Recall(record.id), Report(sentence), *remember, Sync(record.id, sentence, restore)]


def _plan_closed(record: LetterRecord, files: list[LetterNote]) -> list[Action]:
    is_sent = isinstance(record.state, life.Sent)
    moved = [file for file in files if file.folder == APPROVED and file.path != record.location]
    if moved and not is_sent and not record.is_at_location:
        sentence = f"The letter {record.id} waits again: its note was moved to Approved/."
        return [
            Remember(record.id, moved[0].path),  # first: only another move approves it
            Reopen(record.id),
            Report(sentence),
            Sync(record.id, f"{sentence} Move it there once more to approve it."),
        ]
    if files or not record.location:
        return _plan_fixed(record, files, "It was sent already" if is_sent else "It is closed")
    return []


def _plan_fixed(record: LetterRecord, files: list[LetterNote], why: str) -> list[Action]:
    """Bring the note of a letter that no move changes to its one place."""
    right = record.folder
    standing = [file for file in files if file.folder == right]
    is_in_place = record.is_at_location and record.location.startswith(f"{right}/")
    is_in_place = is_in_place or bool(standing)
    actions: list[Action] = []
    for file in files:
        if file.folder == right:
            continue
        if file.path == record.location:
            actions.append(Sync(record.id))
        elif is_in_place:
            copy = f"{file.path} is a copy of the letter {record.id}"
            if right == APPROVED:
                actions.append(Report(f"{copy}, and counts for nothing."))
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


def _plan_unowned(file: UnownedNote, rules: Rules) -> list[Action]:
    by_tool = file.author is not Author.PERSON
    if file.folder == PLANS:
        agent = file.agent if file.author is Author.TOOL else None
        return [PresentRequest(file.path, agent, doubtful=by_tool)]
    if file.kind is Kind.MAIL:
        return [Report(f"{file.path} is a mail, and no letter: nothing of it is sent.")]
    if file.folder == APPROVED:
        return _plan_unowned_approved(file, rules)
    if file.folder == DRAFTS and file.is_proposed:
        if "to" in file.missing:
            return [Report(f"{file.path} is no letter: it has no `to`.")]
        form = "note" if by_tool else "draft"
        return [Freeze(file.path, file.agent, form=form)] if rules.live else []
    return []


def _plan_unowned_approved(file: UnownedNote, rules: Rules) -> list[Action]:
    path, slip = file.path, file.slip
    if slip is None and file.missing:
        lacks = " and no ".join(f"`{name}`" for name in file.missing)
        sentence = f"{path} counts for nothing: it is no letter (it has no {lacks}) and no slip."
        return [Report(sentence)]
    if rules.trust != "folder":
        home = PENDING if slip else DRAFTS
        sentence = f"{path} went back to {home}/: at trust level desk, only the terminal approves."
        return [MoveFile(path, home), Report(sentence)]
    if slip and file.author is Author.MAYBE_TOOL:
        # Perhaps another file that got the inode of one that a tool wrote: the slip stays the person's, but has to
        # be moved again.
        sentence = (
            f"{path} went back to {PENDING}/: a tool may have written it. Move it to {APPROVED}/"
            " again to approve what it names."
        )
        return [MoveFile(path, PENDING), ForgetInode(path), Report(sentence)]
    if slip and slip.spent_on:
        return _plan_spent_slip(path, slip)
    if slip:
        return _plan_slip(path, slip) if file.author is Author.PERSON else _plan_request(file, slip)
    if not rules.live:
        return [Report(f"{path} is not sent: Postroom rehearses ({rules.source}).")]
    if file.author is Author.PERSON:
        return [Freeze(path, approved=True)]
    return [Freeze(path, file.agent, PENDING, "note", notice=BY_TOOL)]


def _plan_slip(path: str, slip: SlipFacts) -> list[Action]:
    actions: list[Action] = []
    if slip.status != "approved" and slip.is_persons_request:
        actions.append(MarkApproved(path))
    elif slip.status != "approved":
        actions.append(Report(f"{path} approves nothing: a slip needs `status: approved`."))
    if slip.age is None:
        actions.append(SeeSlip(slip.hash))
    elif slip.age >= SLIP_SECONDS:
        lapsed = f"{path} has lapsed: it was first seen more than 72 hours ago."
        actions.append(Report(lapsed))
    return actions


def _plan_spent_slip(path: str, slip: SlipFacts) -> list[Action]:
    """File a slip whose letter was sent; a copy of one that was filed is void."""
    if not slip.is_letter_sent:
        return []
    if not slip.is_filed:
        sentence = f"{path} was spent on the letter {slip.spent_on} and went to {DONE}/."
        return [Report(sentence), FileSlip(path, slip.hash, DONE, "done")]
    why = f"a copy of the slip that let the letter {slip.spent_on} out; a new one needs a `created` of its own"
    sentence = f"{path} counts for nothing, and went to {REJECTED}/: {why}."
    return [Report(sentence), FileSlip(path, slip.hash, REJECTED, "void", why)]


def _plan_request(file: UnownedNote, slip: SlipFacts) -> list[Action]:
    """An agent's request approves the one letter that it lists; otherwise it goes back with a new list."""
    if slip.listed is None or len(slip.listed) != 1:
        why = "a tool wrote it, or may have, and it does not list exactly one letter"
        return [PresentRequest(file.path, file.agent, why=why)]
    (listed,) = slip.listed
    if listed.is_approved_by_it:
        return []  # it waits for the outcome
    if listed.was_recalled:
        why = f"the approval of the letter {listed.id} was taken back"
    elif listed.is_red:
        why = f"the letter {listed.id} is red, and needs a verdict of its own"
    else:
        approve = ApproveListed(file.path, listed.id, listed.digest, slip.hash, file.agent)
        return [SeeSlip(slip.hash), approve]
    return [SeeSlip(slip.hash), PresentRequest(file.path, file.agent, why=why)]


def plan_requests(requests: Sequence[UnownedNote], waiting: int, rules: Rules) -> list[Action]:
    """Adopt the requests in Plans/ for which there is room among those that wait."""
    room = max(0, rules.open_letters - waiting)
    actions: list[Action] = []
    if len(requests) > room:
        count = max(waiting, rules.open_letters)
        sentence = f"{count} requests wait already; the others stay in {PLANS}/."
        actions.append(Report(sentence))
    return actions + plan((), requests[:room], rules)


def plan_slips(fitting: Mapping[tuple[str, str], Collection[str]]) -> list[Action]:
    """Approve by each slip (path and hash) the letter that it fits, if it fits no other."""
    actions: list[Action] = []
    for (path, hash), letters in fitting.items():
        if len(letters) == 1:
            actions += [ApproveBySlip(letter, hash) for letter in letters]
        elif letters:
            sentence = f"{path} fits {len(letters)} letters, and so approves none."
            actions.append(Report(sentence))
    return actions
