"""The plan for notes, by the rows of docs/states.md: one row, one case."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from postroom.core import life
from postroom.core.policy import SLIP_SECONDS, Rules
from postroom.core.records import ToolNote
from postroom.core.stamp import Stamp
from postroom.desk.plan import (
    BY_TOOL,
    FIELD_CHANGED,
    REFROZEN,
    Action,
    ApproveListed,
    Freeze,
    LetterNote,
    LetterRecord,
    ListedLetter,
    MoveFile,
    PresentRequest,
    Report,
    SeeSlip,
    SlipFacts,
    UnownedNote,
    Update,
    is_untouched,
    plan_letter,
    plan_slip,
    plan_unowned,
)

STATES = Path(__file__).parents[3] / "docs" / "states.md"
NOW = Stamp(1_794_700_800.0)
VERDICT = life.Verdict("ada", life.Channel.TERMINAL, NOW, "sha256:1")
BY_SLIP = life.Verdict("person", life.Channel.SLIP, NOW, "sha256:1", "abcd")
ID, TEXT = "letterabcd", "Good day.\n"
HOME, DRAFT = "Pending_Approval/a.md", "Drafts/a.md"
APPROVED, REJECTED, DONE = "Approved/a.md", "Rejected/a.md", "Done/a.md"
PENDING = life.Pending(NOW)
APPROVAL = life.Approved(VERDICT, NOW, 10)
SENDING = life.Sending(VERDICT, NOW, "", 1, NOW)
UNKNOWN = life.Unknown(NOW, "no answer", NOW)
SENT = life.Sent(NOW, "m1", "t1")
LIVE = Rules(live=True)
DESK_LEVEL = Rules(live=True, trust="desk")


def record(state: life.State, location: str = HOME, **more: object) -> LetterRecord:
    """Return what the ledger has of the letter; its note was last seen at `location`."""
    return LetterRecord(id=ID, state=state, text=TEXT, location=location, **more)  # type: ignore[arg-type]


def note(path: str, text: str | None = TEXT, **more: object) -> LetterNote:
    """Return a note of the letter that is new at this path, or changed."""
    return LetterNote(path=path, is_changed=True, text=text, **more)  # type: ignore[arg-type]


def unchanged(path: str) -> LetterNote:
    """Return the letter's note as it was last seen."""
    return LetterNote(path=path)


def unowned(path: str, agent: str = "", **more: object) -> UnownedNote:
    """Return a note without a letter, by this agent or by a person."""
    by = ToolNote(agent) if agent else None
    return UnownedNote(path=path, by=by, **more)  # type: ignore[arg-type]


def slip(agent: str = "", path: str = APPROVED, **facts: object) -> UnownedNote:
    """Return a slip, or a request that a tool wrote."""
    return unowned(path, agent, slip=SlipFacts(hash="abcd", **facts))  # type: ignore[arg-type]


COPY = (
    f"{APPROVED} is a copy: the letter {ID} still waits in Pending_Approval/, so nothing was decided."
    " Move the note itself."
)


class Case(NamedTuple):
    """A row of the table: what the ledger has, what the folders show, and what is to be done."""

    row: str
    about: str
    record: LetterRecord | None
    files: list[LetterNote | UnownedNote]
    actions: list[Action]
    rules: Rules = LIVE


def recalled(why: str, path: str = "") -> Update:
    """Return the action of a recall; without `path` the note is gone."""
    sentence = f"The letter {ID} was recalled: {why}."
    return Update(ID, "undo", path, sentence, sentence, restore=not path)


def put_back(notice: str, event: str = "", text: str = "") -> Update:
    """Return the action that undoes a move to Approved/."""
    report = f"The letter {ID} was not approved. {notice}"
    return Update(ID, event, APPROVED, report, notice, text=text)


def moved_back(why: str, path: str, folder: str) -> Update:
    """Return the action that puts a note back that means nothing where it stands."""
    report = f"{why}: the note of the letter {ID} is back in {folder}/."
    return Update(ID, path=path, report=report)


def gone(folder: str) -> Update:
    """Return the action that writes a note again, and says so."""
    report = f"The note of the letter {ID} was gone: it is back in {folder}/."
    return Update(ID, report=report, restore=True)


APPROVES = Update(
    ID, "approve", APPROVED, f"The letter {ID} was approved: its note was moved to Approved/.", ""
)
LISTED = ListedLetter(id=ID, digest="sha256:1")
NOT_ONE = "a tool wrote it, or may have, and it does not list exactly one letter"
CASES = [
    Case("new-1", "no note yet", record(PENDING, ""), [], [Update(ID, restore=True)]),
    Case(
        "new-3",
        "no note before the outcome",
        record(life.Approved(BY_SLIP, NOW, 0), ""),
        [],
        [Update(ID)],
    ),
    Case(
        "new-4",
        "a person's draft in Approved/",
        None,
        [unowned(APPROVED)],
        [Freeze(APPROVED, approved=True)],
    ),
    Case(
        "new-4",
        "trust level desk",
        None,
        [unowned(APPROVED)],
        [
            MoveFile(
                APPROVED,
                "Drafts",
                f"{APPROVED} went back to Drafts/: at trust level desk, only the terminal approves.",
            ),
        ],
        DESK_LEVEL,
    ),
    Case(
        "new-4",
        "rehearsal",
        None,
        [unowned(APPROVED)],
        [Report(f"{APPROVED} is not sent: Postroom rehearses (default).")],
        Rules(),
    ),
    Case(
        "new-4",
        "neither letter nor slip",
        None,
        [unowned(APPROVED, missing=("to", "subject"))],
        [
            Report(
                f"{APPROVED} is ignored: it is neither a letter (it has no `to` and no `subject`) nor a slip."
            )
        ],
    ),
    Case(
        "new-4",
        "a mail",
        None,
        [unowned(APPROVED, is_mail=True)],
        [Report(f"{APPROVED} is a mail, not a letter: nothing of it is sent.")],
    ),
    Case(
        "new-5",
        "a tool's draft in Approved/",
        None,
        [unowned(APPROVED, "claude")],
        [Freeze(APPROVED, "claude", "Pending_Approval", "note", notice=BY_TOOL)],
    ),
    Case(
        "new-5",
        "a tool's draft in Drafts/, proposed",
        None,
        [unowned(DRAFT, "claude", is_proposed=True)],
        [Freeze(DRAFT, "claude", form="note")],
    ),
    Case(
        "new-5",
        "a person's draft in Drafts/, proposed",
        None,
        [unowned(DRAFT, is_proposed=True)],
        [Freeze(DRAFT, "vault")],
    ),
    Case(
        "new-5",
        "a draft in Drafts/ that nobody proposed yet",
        None,
        [unowned(DRAFT, "claude")],
        [],
    ),
    Case(
        "new-5",
        "a draft in Drafts/ without recipient",
        None,
        [unowned(DRAFT, is_proposed=True, missing=("to",))],
        [Report(f"{DRAFT} is not a letter: it has no `to`.")],
    ),
    Case(
        "new-6",
        "a tool's slip",
        None,
        [slip("claude")],
        [PresentRequest(APPROVED, "claude", why=NOT_ONE)],
    ),
    Case(
        "new-6",
        "perhaps a tool's slip",
        None,
        [replace(slip("claude"), by=ToolNote("claude", inode_only=True))],
        [
            MoveFile(
                APPROVED,
                "Pending_Approval",
                f"{APPROVED} went back to Pending_Approval/: a tool may have written it. Move it to"
                " Approved/ again to approve what it names.",
                forget_inode=True,
            ),
        ],
    ),
    Case(
        "new-7",
        "another desk's draft, marked as a tool's",
        None,
        [replace(unowned(APPROVED), by=ToolNote(""))],
        [Freeze(APPROVED, "vault", "Pending_Approval", "note", notice=BY_TOOL)],
    ),
    Case("pending-1", "moved", record(PENDING), [note(APPROVED)], [APPROVES]),
    Case(
        "pending-1",
        "approved in the terminal",
        record(APPROVAL),
        [unchanged(HOME)],
        [Update(ID)],
    ),
    Case(
        "pending-1",
        "our own move back was interrupted",
        record(PENDING, APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case(
        "pending-2",
        "other text",
        record(PENDING),
        [note(APPROVED, "Good night.\n")],
        [put_back(REFROZEN, "edit", "Good night.\n")],
    ),
    Case(
        "pending-2",
        "other text at trust level desk: the outbox refuses it",
        record(PENDING),
        [note(APPROVED, "Good night.\n")],
        [APPROVES],
        DESK_LEVEL,
    ),
    Case(
        "pending-2",
        "no text",
        record(PENDING),
        [note(APPROVED, None)],
        [put_back("It was moved to Approved/, but the letter's text cannot be found in it.")],
    ),
    Case(
        "pending-2",
        "other recipients",
        record(PENDING),
        [note(APPROVED, wrong_fields=("risk", "to"))],
        [put_back(FIELD_CHANGED.format(field="to", id=ID))],
    ),
    Case(
        "pending-2",
        "two that differ",
        record(PENDING),
        [note(APPROVED), note("Approved/b.md", "Good night.\n")],
        [put_back("Several notes of it are in Approved/, and they differ.")],
    ),
    Case(
        "pending-3",
        "edited in place",
        record(PENDING),
        [note(HOME, "Good night.\n")],
        [Update(ID, path=HOME)],
    ),
    Case(
        "pending-3",
        "a display field changed in place",
        record(PENDING),
        [note(HOME, wrong_fields=("to",))],
        [
            Update(
                ID,
                path=HOME,
                report=f"{HOME}: your change of to was put back, since the frontmatter only shows the"
                f" letter. Change recipients with `postroom edit {ID}`.",
            ),
        ],
    ),
    Case(
        "pending-4",
        "moved to Rejected/",
        record(PENDING),
        [note(REJECTED, reason="too long")],
        [Update(ID, "reject", REJECTED, notice="", text="too long")],
    ),
    Case(
        "pending-5",
        "another version asked for",
        record(life.Rejected(NOW, "ada", "shorter", revise=True)),
        [unchanged(HOME)],
        [Update(ID)],
    ),
    Case("pending-6", "withdrawn", record(life.Withdrawn(NOW)), [unchanged(HOME)], [Update(ID)]),
    Case("pending-7", "expired", record(life.Expired(NOW)), [unchanged(HOME)], [Update(ID)]),
    Case(
        "pending-8",
        "deleted or moved elsewhere",
        record(PENDING),
        [],
        [gone("Pending_Approval")],
    ),
    Case(
        "pending-8",
        "a stranger in Drafts/ that names the letter is not its note",
        record(PENDING),
        [note(DRAFT)],
        [gone("Pending_Approval")],
    ),
    Case(
        "pending-9",
        "a copy",
        record(PENDING),
        [unchanged(HOME), note(APPROVED)],
        [Update(ID), Report(COPY), Update(ID, notice=COPY)],
    ),
    Case(
        "pending-9",
        "a copy that the note names already",
        record(PENDING, notice=f"Frozen anew. {COPY}"),
        [unchanged(HOME), note(APPROVED)],
        [Update(ID)],
    ),
    Case(
        "pending-9",
        "a copy beside another notice",
        record(PENDING, notice="Frozen anew."),
        [unchanged(HOME), note(APPROVED)],
        [Update(ID), Report(COPY), Update(ID, notice=f"Frozen anew. {COPY}")],
    ),
    Case(
        "approved-1",
        "moved home",
        record(APPROVAL, APPROVED),
        [note(HOME)],
        [recalled("its note left Approved/", HOME)],
    ),
    Case(
        "approved-1",
        "deleted",
        record(APPROVAL, APPROVED),
        [],
        [recalled("its note left Approved/")],
    ),
    Case(
        "approved-1",
        "edited",
        record(APPROVAL, APPROVED),
        [note(APPROVED, "Good night.\n")],
        [recalled("its note was edited after the approval", APPROVED)],
    ),
    Case(
        "approved-1",
        "its slip taken away",
        record(life.Approved(BY_SLIP, NOW, 0), "", is_slip_gone=True),
        [],
        [recalled("its slip was taken away")],
    ),
    Case(
        "approved-2",
        "moved to Rejected/",
        record(APPROVAL, APPROVED),
        [note(REJECTED, reason="no")],
        [Update(ID, "reject", REJECTED, notice="", text="no")],
    ),
    Case(
        "approved-2",
        "withdrawn",
        record(life.Withdrawn(NOW), APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case("approved-3", "claimed", record(SENDING, APPROVED), [unchanged(APPROVED)], []),
    Case(
        "approved-4",
        "held",
        record(life.hold(APPROVAL, NOW, 60, "paused"), APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case(
        "approved-5",
        "failed before it was sent",
        record(life.Failed(NOW, "denied"), APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case("sending-1", "accepted", record(SENT, APPROVED), [unchanged(APPROVED)], [Update(ID)]),
    Case(
        "sending-1",
        "its slip",
        None,
        [slip(spent_on=ID, is_letter_sent=True)],
        [
            MoveFile(
                APPROVED,
                "Done",
                f"{APPROVED} was spent on the letter {ID} and went to Done/.",
                {"status": "done"},
                spent_slip="abcd",
            ),
        ],
    ),
    Case(
        "sending-2",
        "some recipients refused",
        record(life.Sent(NOW, "m1", "t1", ("bob@example.net",)), APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case(
        "sending-3",
        "refused for now",
        record(life.hold(SENDING, NOW, 30, "busy"), APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case(
        "sending-4",
        "refused for good",
        record(life.Failed(NOW, "no such user"), APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case("sending-6", "unknown", record(UNKNOWN, APPROVED), [unchanged(APPROVED)], [Update(ID)]),
    Case(
        "sending-7",
        "touched while it is sent",
        record(SENDING, APPROVED),
        [note(REJECTED, "Good night.\n")],
        [],
    ),
    Case(
        "unknown-1", "resolved: sent", record(SENT, APPROVED), [unchanged(APPROVED)], [Update(ID)]
    ),
    Case(
        "unknown-2",
        "resolved: not sent",
        record(PENDING, APPROVED),
        [unchanged(APPROVED)],
        [Update(ID)],
    ),
    Case(
        "unknown-3",
        "moved",
        record(UNKNOWN, APPROVED),
        [note(REJECTED)],
        [moved_back("Its fate is unknown", REJECTED, "Approved")],
    ),
    Case(
        "unknown-3",
        "deleted",
        record(UNKNOWN, APPROVED),
        [],
        [gone("Approved")],
    ),
    Case(
        "sent-1",
        "moved to Approved/",
        record(SENT, DONE),
        [note(APPROVED)],
        [moved_back("It was sent already", APPROVED, "Done")],
    ),
    Case(
        "sent-1",
        "copied to Approved/",
        record(SENT, DONE, is_at_location=True),
        [note(APPROVED)],
        [
            MoveFile(
                APPROVED, "Done", f"{APPROVED} is a copy of the letter {ID}, and went to Done/."
            ),
        ],
    ),
    Case(
        "unsent-1",
        "rejected, and found sent afterwards",
        record(SENT, REJECTED, is_at_location=True),
        [unchanged(REJECTED)],
        [Update(ID)],
    ),
    Case(
        "unsent-2",
        "moved to Approved/",
        record(life.Rejected(NOW, "ada", "no"), REJECTED),
        [note(APPROVED)],
        [
            Update(
                ID,
                "reopen",
                APPROVED,
                f"The letter {ID} waits again: its note was moved to Approved/.",
                f"The letter {ID} waits again: its note was moved to Approved/. Move it there once"
                " more to approve it.",
            ),
        ],
    ),
    Case("closed-1", "deleted", record(SENT, DONE), [], []),
    Case(
        "closed-1",
        "never written",
        record(SENT, ""),
        [],
        [Update(ID, restore=True)],
    ),
    Case(
        "reconcile-1",
        "a write that a crash interrupted goes on",
        record(PENDING, "", unfinished_write=HOME),
        [note(HOME)],
        [Update(ID)],
    ),
    Case(
        "reconcile-2",
        "a tool's request in Plans/",
        None,
        [slip("claude", "Plans/a.md")],
        [PresentRequest("Plans/a.md", "claude", doubtful=True)],
    ),
    Case("slips-2", "seen for the first time", None, [slip()], [SeeSlip(APPROVED, "abcd")]),
    Case("slips-2", "spent, its letter not sent yet", None, [slip(age=1.0, spent_on=ID)], []),
    Case(
        "slips-2",
        "a copy of one that was filed",
        None,
        [slip(age=1.0, spent_on=ID, is_letter_sent=True, is_filed=True)],
        [
            MoveFile(
                APPROVED,
                "Rejected",
                f"{APPROVED} is void, and went to Rejected/: a copy of the slip that"
                f" approved the letter {ID}; a new one needs a `created` of its own.",
                {
                    "status": "void",
                    "reason": f"a copy of the slip that approved the letter {ID}; a new one needs a"
                    " `created` of its own",
                },
                spent_slip="abcd",
            ),
        ],
    ),
    Case(
        "slips-2",
        "lapsed",
        None,
        [slip(age=SLIP_SECONDS)],
        [Report(f"{APPROVED} has lapsed: it was first seen more than 72 hours ago.")],
    ),
    Case(
        "slips-2",
        "not approved",
        None,
        [slip(status="pending", age=1.0)],
        [Report(f"{APPROVED} approves nothing: a slip needs `status: approved`.")],
    ),
    Case(
        "requests-1",
        "lists one letter",
        None,
        [slip("claude", listed=LISTED)],
        [ApproveListed(APPROVED, ID, "sha256:1", "abcd", "claude")],
    ),
    Case(
        "requests-1",
        "lists two letters",
        None,
        [slip("claude", listed=None)],
        [PresentRequest(APPROVED, "claude", why=NOT_ONE)],
    ),
    Case(
        "requests-1",
        "lists a red letter",
        None,
        [slip("claude", listed=ListedLetter(id=ID, digest="", is_red=True))],
        [
            PresentRequest(
                APPROVED, "claude", why=f"the letter {ID} is red, and needs a verdict of its own"
            ),
        ],
    ),
    Case(
        "requests-1",
        "its approval was taken back",
        None,
        [slip("claude", listed=ListedLetter(id=ID, digest="", was_recalled=True))],
        [
            PresentRequest(
                APPROVED, "claude", why=f"the approval of the letter {ID} was taken back"
            ),
        ],
    ),
    Case(
        "requests-1",
        "it approved the letter, which waits for the outcome",
        None,
        [slip("claude", listed=ListedLetter(id=ID, digest="", is_approved_by_it=True))],
        [],
    ),
    Case(
        "requests-2",
        "a person's request, moved to Approved/",
        None,
        [slip(status="pending", is_persons_request=True)],
        [SeeSlip(APPROVED, "abcd", mark=True)],
    ),
]
# Rows whose event or effect does not involve the note: the outbox, the dispatcher or a surface decides them.
OTHER_ROWS = {
    "new-2": "a rehearsal has no note",
    "sending-5": "the provider is asked",
    "sent-2": "a repeated call",
    "sent-3": "a repeated call",
    "rejected-1": "a repeated call",
    "failed-1": "a repeated call",
    "keys-1": "a repeated call",
    "keys-2": "a repeated call",
    "keys-3": "a repeated call",
    "keys-4": "a repeated call",
    "approve-1": "two dispatchers",
    "approve-2": "the terminal",
    "approve-3": "the terminal",
    "slips-1": "test_a_slip_approves_the_one_letter_that_it_fits",
    "restored-1": "the log",
    "restored-2": "the log",
    "settle-1": "the provider",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.row}: {case.about}")
def test_a_row_of_the_table_gives_these_actions(case: Case) -> None:
    notes = [file for file in case.files if isinstance(file, LetterNote)]
    unowned = [file for file in case.files if isinstance(file, UnownedNote)]
    actions = plan_letter(case.record, notes, case.rules) if case.record else []
    for file in unowned:
        actions += plan_unowned(file, case.rules)
    assert actions == case.actions


def test_every_row_about_notes_has_a_case() -> None:
    rows = set(re.findall(r"^\| ([a-z]+-\d+) \|", STATES.read_text(), re.MULTILINE))
    covered = {case.row for case in CASES}
    assert covered.isdisjoint(OTHER_ROWS)
    assert covered | set(OTHER_ROWS) == rows


@pytest.mark.parametrize(
    ("state", "path"),
    [(PENDING, HOME), (PENDING, DRAFT), (APPROVAL, APPROVED), (UNKNOWN, APPROVED)],
)
def test_a_note_that_stands_unchanged_where_it_belongs_needs_no_plan(
    state: life.State, path: str
) -> None:
    assert is_untouched(state, path, [unchanged(path)])
    assert not is_untouched(state, "Drafts/b.md", [unchanged(path)])
    assert not is_untouched(state, path, [note(path)])
    assert not is_untouched(state, path, [unchanged(path), note(DONE)])
    assert not is_untouched(state, path, [])


def test_a_letter_approved_by_a_slip_is_always_planned() -> None:
    state = life.Approved(BY_SLIP, NOW, 0)
    assert not is_untouched(state, APPROVED, [unchanged(APPROVED)])


def test_a_slip_approves_the_one_letter_that_it_fits() -> None:
    assert plan_slip(APPROVED, "aa", []) == []
    assert plan_slip(APPROVED, "aa", [ID]) == [Update(ID, "approve", notice="", slip="aa")]
    several = f"{APPROVED} fits 2 letters, and so approves none."
    assert plan_slip(APPROVED, "aa", [ID, "other"]) == [Report(several)]
