"""The life of a letter, line by line of its table: the ledger's state, where the note stands, what was said."""

import hashlib
import os
import shutil
import sqlite3
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import AuthRequired, Conflict, Denied, Limited, NotFound
from postroom.core.policy import DAY
from postroom.desk.outbox import Call, Proposal
from postroom.vault.note import Note
from postroom.vault.vault import Vault
from tests.desks import ANN, SEND, Dead
from tests.providers import BARRED, BUSY, LOST

HOUR = 3600.0
THREE_DAYS = 72 * HOUR
HOME, APPROVED, REJECTED, DONE, FAILED = (
    "Pending_Approval",
    "Approved",
    "Rejected",
    "Done",
    "Failed",
)


def state(office, id):
    return office.desk.ledger.entry(id).state


DRAFT = """---
to: ann@example.com
subject: From my own hand
priority: urgent
---

Dear Ann,
this I wrote myself.
"""


# new


def test_a_call_makes_a_letter_that_waits_at_home_and_the_person_is_notified(office):
    entry = office.propose()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    assert [told.id for told in office.told] == [entry.id]
    assert office.sent() == []


def test_a_repeated_call_notifies_nobody_again(office):
    letter = office.letter()
    first = office.propose(letter)
    assert office.propose(letter.with_id("bbbbbbbbbb")).id == first.id
    assert len(office.told) == 1


def test_a_rehearsal_is_entered_without_a_note_and_tells_nobody(office):
    office.reopen(live=False)
    entry = office.propose()
    assert entry.kind == "rehearsal"
    assert office.notes(entry.id) == []
    assert office.told == []
    assert office.look() == ""
    assert office.notes(entry.id) == []


def test_a_rehearsal_is_replaced_by_the_next_of_the_same_content(office):
    office.reopen(live=False)
    first = office.letter()
    office.propose(first)
    second = office.propose(first.with_id("bbbbbbbbbb"))
    assert second.id == "bbbbbbbbbb"
    with pytest.raises(NotFound):
        office.desk.ledger.entry(first.id)
    assert [line.id for line in office.desk.ledger.lines("rehearsal")] == ["bbbbbbbbbb"]


def test_a_rehearsal_can_never_be_sent_not_even_when_the_mode_is_live_again(office):
    office.reopen(live=False)
    entry = office.propose()
    office.reopen(live=True)
    with pytest.raises(Conflict, match="rehearsal"):
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.desk.dispatch(entry.id).kind == "rehearsal"
    assert office.sent() == []


def test_where_no_approval_is_required_a_letter_leaves_within_the_call_without_an_undo_window(
    office,
):
    office.reopen(required=False)
    before = office.clock()
    entry = office.propose()
    assert entry.kind == "sent"
    assert office.clock() == before
    assert office.sent() == ["Hello"]
    assert office.where(entry.id) == DONE
    assert [life.name(one) for one in office.desk.ledger.history(entry.id)] == [
        "approved",
        "sending",
        "sent",
    ]


@pytest.mark.parametrize("step", ["locked", "checked", "claimed", "published", "answered"])
def test_where_no_approval_is_required_there_is_a_note_only_at_the_outcome(office, step):
    office.reopen(required=False)
    letter, seen = office.letter(), []
    office.at(step, lambda: seen.append(office.notes(letter.id)))
    office.propose(letter)
    assert seen == [[]]
    assert office.where(letter.id) == DONE


def test_a_slip_that_fits_lets_a_letter_leave_within_the_call_and_goes_to_done_with_it(office):
    slip = office.write(
        "Approved/ann.md",
        "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n",
    )
    before = office.clock()
    entry = office.desk.post(SEND, office.letter(), Proposal(), slips=True)
    assert entry.kind == "sent"
    assert entry.state.verdict.via == "slip"
    assert office.clock() == before
    assert office.where(entry.id) == DONE
    assert not slip.exists()
    assert Note.parse((office.vault / DONE / "ann.md").read_bytes()).text("status") == "done"


def test_a_draft_that_a_person_wrote_into_approved_is_approved_and_gets_its_letter(office):
    draft = office.write("Approved/own.md", DRAFT)
    office.look()
    note = Note.parse(draft.read_bytes())
    id = note.text("letter")
    assert office.state_of(id) == "approved"
    assert note.text("priority") == "urgent"
    assert note.body == "\nDear Ann,\nthis I wrote myself.\n"
    assert office.desk.ledger.entry(id).letter.text == "Dear Ann,\nthis I wrote myself.\n"
    assert office.told == []


def test_a_draft_that_a_person_wrote_into_approved_waits_out_the_undo_window(office):
    draft = office.write("Approved/own.md", DRAFT)
    office.look()
    id = Note.parse(draft.read_bytes()).text("letter")
    office.clock.go(9.9)
    assert office.desk.send_approved() == []
    office.clock.go(0.2)
    assert [entry.id for entry in office.desk.send_approved()] == [id]
    assert office.sent() == ["From my own hand"]
    assert office.where(id) == DONE
    assert office.field(id, "status") == "done"
    assert office.look() == ""


class Dying(Vault):
    """A vault whose process ends before it first writes over a note."""

    alive = False

    def replace(self, *what):
        if not Dying.alive:
            Dying.alive = True
            raise Dead
        return super().replace(*what)


def test_a_draft_whose_desk_died_over_it_gets_its_letter_at_the_next_look(office):
    Dying.alive, office.vaults = False, Dying
    office.reopen()
    draft = office.write("Approved/own.md", DRAFT)
    with pytest.raises(Dead):
        office.look()
    office.reopen()
    office.look()
    id = Note.parse(draft.read_bytes()).text("letter")
    assert [line.id for line in office.desk.ledger.lines()] == [id]
    assert office.state_of(id) == "approved"
    office.move(id, REJECTED)
    office.look()
    assert office.state_of(id) == "rejected"


def test_a_draft_that_comes_back_after_it_was_sent_is_not_sent_again(office):
    office.write("Approved/own.md", DRAFT)
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    office.write("Approved/own.md", DRAFT)
    assert "counts for nothing again" in office.look()
    office.clock.go(THREE_DAYS)
    office.look()
    office.desk.send_approved()
    assert office.sent() == ["From my own hand"]


# pending


def in_the_terminal(office, entry):
    office.desk.approve(entry.id, by="ada", digest=entry.digest)


def by_moving_the_note(office, entry):
    office.move(entry.id, APPROVED)
    assert "not approved" not in office.look()


@pytest.mark.parametrize("approve", [in_the_terminal, by_moving_the_note])
def test_an_approval_lets_the_letter_out_once_the_undo_window_has_passed_and_not_before(
    office, approve
):
    entry = office.propose()
    approve(office, entry)
    assert office.state_of(entry.id) == "approved"
    assert office.where(entry.id) == APPROVED
    assert office.field(entry.id, "status") == "approved"
    assert office.field(entry.id, "approved_at") == "2026-11-15T00:00:00Z"
    office.clock.go(9.9)
    assert office.desk.dispatch(entry.id).kind == "approved"
    assert office.desk.send_approved() == []
    assert office.sent() == []
    office.clock.go(0.2)
    assert office.desk.dispatch(entry.id).kind == "sent"
    assert office.sent() == ["Hello"]


def test_a_verdict_says_whose_word_it_was_and_where_it_was_given(office):
    first, second = office.propose(), office.propose()
    in_the_terminal(office, first)
    by_moving_the_note(office, second)
    told = [state(office, entry.id).verdict for entry in (first, second)]
    assert [(one.by, one.via) for one in told] == [("ada", "terminal"), ("person", "folder")]
    assert [one.digest for one in told] == [first.digest, second.digest]


def test_a_letter_that_is_not_what_the_person_saw_is_not_approved(office):
    entry = office.propose()
    with pytest.raises(Conflict, match="not what you saw"):
        office.desk.approve(entry.id, by="ada", digest="sha256:" + "0" * 64)
    assert office.state_of(entry.id) == "pending"


def test_the_first_eight_digits_of_the_digest_are_enough(office):
    entry = office.propose()
    digest = entry.digest.removeprefix("sha256:")[:8]
    assert office.desk.approve(entry.id, by="ada", digest=digest).kind == "approved"


def test_a_note_moved_with_another_text_is_frozen_anew_with_card_and_difference_and_comes_home(
    office,
):
    entry = office.propose()
    office.edit(entry.id, "Good day", "See https://elsewhere.example/x, good day")
    office.move(entry.id, APPROVED)
    said = office.look()
    assert f"The letter {entry.id} was not approved" in said
    anew = office.desk.ledger.entry(entry.id)
    assert anew.kind == "pending"
    assert anew.digest == anew.letter.digest != entry.digest
    assert anew.letter.text == "See https://elsewhere.example/x, good day, for the 1th time.\n"
    assert office.where(entry.id) == HOME
    assert office.field(entry.id, "digest") == anew.digest
    assert "+See https://elsewhere.example/x" in office.page(entry.id, "Difference")
    assert "elsewhere.example" in office.page(entry.id, "Risk assessment")
    assert "move the note to Approved/ again" in office.page(entry.id, "Notice")


def test_the_second_move_of_an_edited_note_approves_the_new_text(office, courier):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    office.move(entry.id, APPROVED)
    office.look()
    assert office.look() == ""
    assert office.state_of(entry.id) == "pending"
    office.move(entry.id, APPROVED)
    office.look()
    assert office.state_of(entry.id) == "approved"
    office.clock.go(10)
    office.desk.send_approved()
    assert [one.letter.text for one in courier.accepted] == ["Good evening, for the 1th time.\n"]


def test_what_the_agent_wrote_is_kept_beside_an_edit(office):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    office.move(entry.id, APPROVED)
    office.look()
    assert office.desk.ledger.former(entry.id) == entry.letter


def test_a_note_edited_in_place_changes_nothing_yet(office):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    assert office.look() == ""
    assert office.desk.ledger.entry(entry.id) == entry
    assert "Good evening" in office.page(entry.id, "Letter")
    assert office.where(entry.id) == HOME


def test_approve_refuses_a_note_edited_in_place_shows_the_difference_and_names_the_way(office):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    with pytest.raises(Conflict) as refused:
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert "-Good day" in refused.value.message
    assert "+Good evening" in refused.value.message
    assert f"postroom edit {entry.id} --from-note" in refused.value.remedy
    assert office.state_of(entry.id) == "pending"


def test_the_text_of_a_note_edited_in_place_can_be_taken_and_approved(office, courier):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    text = office.desk.note_text(entry)
    edited = office.desk.edit(entry.id, replace(entry.letter, text=text), from_note=True)
    assert office.desk.edited(edited) == ""
    office.desk.approve(entry.id, by="ada", digest=edited.digest)
    office.clock.go(10)
    assert office.desk.dispatch(entry.id).kind == "sent"
    assert [one.letter.text for one in courier.accepted] == ["Good evening, for the 1th time.\n"]


def test_an_edit_in_the_terminal_does_not_throw_away_what_was_typed_into_the_note(office):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    with pytest.raises(Conflict, match="was edited"):
        office.desk.edit(entry.id, replace(entry.letter, text="Good night.\n"))
    kept = [path.read_text(encoding="utf-8") for path in office.vault.rglob("*.md")]
    former = office.desk.ledger.former(entry.id)
    assert "Good evening" in "".join([*kept, former.text if former else ""])


def test_what_is_typed_into_the_note_while_its_text_is_taken_is_not_lost(office):
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    text = office.desk.note_text(entry)
    office.edit(entry.id, "1th time.", "1th time. And one more word.")
    with suppress(Conflict):  # refused is as good
        office.desk.edit(entry.id, replace(entry.letter, text=text), from_note=True)
    assert "And one more word." in office.note(entry.id).read_text(encoding="utf-8")


def test_a_rejection_in_the_terminal_gives_the_reason_and_the_note_goes_to_rejected(office):
    entry = office.propose()
    office.desk.reject(entry.id, by="ada", reason="Not to Ann")
    assert state(office, entry.id).reason == "Not to Ann"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "status") == "rejected"
    assert "Not to Ann" in office.head(entry.id)
    assert office.desk.status(SEND, entry.id).state.reason == "Not to Ann"


def test_a_note_moved_to_rejected_rejects_and_its_reason_reaches_the_agent(office):
    entry = office.propose()
    office.edit(entry.id, 'status: "pending"', 'status: "pending"\nreason: Too cold a tone')
    office.move(entry.id, REJECTED)
    office.look()
    assert office.desk.status(SEND, entry.id).state.reason == "Too cold a tone"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "reason") == "Too cold a tone"
    assert office.sent() == []


def test_another_version_is_a_rejection_with_a_wish_and_the_next_letter_names_what_it_replaces(
    office,
):
    entry = office.propose()
    office.desk.reject(entry.id, by="ada", reason="Warmer, please", revise=True)
    told = office.desk.status(SEND, entry.id).state
    assert (told.revise, told.reason) == (True, "Warmer, please")
    assert "another version: Warmer, please" in life.told(entry.id, told)
    assert office.where(entry.id) == REJECTED
    second = office.propose(office.letter(text="Dear, dear Ann.\n"), replaces=entry.id)
    assert (second.kind, second.replaces) == ("pending", entry.id)


def test_a_letter_withdrawn_by_its_agent_goes_to_rejected(office):
    entry = office.propose()
    office.desk.withdraw(SEND, entry.id)
    assert office.state_of(entry.id) == "withdrawn"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "status") == "withdrawn"


def test_only_its_own_agent_sees_or_withdraws_a_letter(office):
    entry = office.propose()
    other = Call("withdraw_letter", "mallory")
    with pytest.raises(NotFound):
        office.desk.withdraw(other, entry.id)
    with pytest.raises(NotFound):
        office.desk.status(other, entry.id)
    assert office.state_of(entry.id) == "pending"


def test_a_letter_without_a_verdict_for_72_hours_expires_and_not_before(office):
    entry = office.propose()
    office.clock.go(THREE_DAYS - 1)
    office.look()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(1)
    office.look()
    assert office.state_of(entry.id) == "expired"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "status") == "expired"


def test_a_letter_past_its_72_hours_cannot_be_approved_even_before_anybody_looked(office):
    entry = office.propose()
    office.clock.go(THREE_DAYS)
    with pytest.raises(Conflict, match="expired"):
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.state_of(entry.id) == "expired"


def test_a_deleted_note_is_restored_at_home_and_said(office):
    entry = office.propose()
    office.note(entry.id).unlink()
    assert f"The note of the letter {entry.id} was gone" in office.look()
    assert office.where(entry.id) == HOME
    assert office.state_of(entry.id) == "pending"
    assert office.look() == ""


@pytest.mark.parametrize("folder", ["Archive", DONE, FAILED, "Plans", "Needs_Action"])
def test_a_note_moved_elsewhere_is_restored_at_home_and_said(office, folder):
    entry = office.propose()
    office.move(entry.id, folder)
    assert entry.id in office.look()
    assert HOME in [note.parent.name for note in office.notes(entry.id)]
    assert office.state_of(entry.id) == "pending"


def test_a_note_renamed_at_home_is_still_the_letters_note(office):
    entry = office.propose()
    note = office.note(entry.id)
    note.rename(note.with_name("My own name.md"))
    assert office.look() == ""
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.note(entry.id) == office.vault / APPROVED / "My own name.md"


def test_a_renamed_note_in_approved_is_a_move_like_any_other(office):
    entry = office.propose()
    note = office.note(entry.id)
    (office.vault / APPROVED).mkdir()
    note.rename(office.vault / APPROVED / "yes.md")
    office.look()
    assert office.state_of(entry.id) == "approved"


def test_a_copy_in_approved_while_the_original_is_at_home_is_no_verdict_and_is_said(office):
    entry = office.propose()
    note = office.note(entry.id)
    (office.vault / APPROVED).mkdir()
    shutil.copy(note, office.vault / APPROVED / "copy.md")
    assert "Approved/copy.md is a copy" in office.look()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(HOUR)
    assert office.desk.send_approved() == []
    assert office.sent() == []


def test_a_copy_in_rejected_while_the_original_is_at_home_is_no_verdict_and_is_said(office):
    entry = office.propose()
    (office.vault / REJECTED).mkdir()
    shutil.copy(office.note(entry.id), office.vault / REJECTED / "copy.md")
    assert "Rejected/copy.md is a copy" in office.look()
    assert office.state_of(entry.id) == "pending"


def test_of_a_note_moved_to_approved_and_to_rejected_the_no_counts(office):
    entry = office.propose()
    note = office.note(entry.id)
    (office.vault / REJECTED).mkdir()
    shutil.copy(note, office.vault / REJECTED / "no.md")
    office.vault.joinpath(APPROVED).mkdir()
    note.rename(office.vault / APPROVED / "yes.md")
    office.look()
    assert office.state_of(entry.id) == "rejected"


def test_approving_in_rehearsal_is_refused_with_the_remedy(office):
    entry = office.propose()
    office.reopen(live=False)
    with pytest.raises(Denied, match="rehearses") as refused:
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert "dry_run = false" in refused.value.remedy
    assert office.state_of(entry.id) == "pending"


def test_a_note_moved_in_rehearsal_comes_home_with_the_remedy(office):
    entry = office.propose()
    office.reopen(live=False)
    office.move(entry.id, APPROVED)
    assert "rehearses" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    assert "dry_run = false" in office.page(entry.id, "Notice")


# approved


def undone(office, entry):
    office.desk.recall(entry.id)


def moved_home(office, entry):
    office.move(entry.id, HOME)
    assert f"The letter {entry.id} was recalled" in office.look()


def deleted(office, entry):
    office.note(entry.id).unlink()
    assert f"The letter {entry.id} was recalled" in office.look()


def edited(office, entry):
    office.edit(entry.id, "Good day", "Good evening")
    assert f"The letter {entry.id} was recalled" in office.look()
    assert "Good evening" in office.page(entry.id, "Letter")


def moved_away(office, entry):
    office.move(entry.id, "Archive").unlink()
    assert f"The letter {entry.id} was recalled" in office.look()


@pytest.mark.parametrize("recall", [undone, moved_home, deleted, edited, moved_away])
def test_an_approval_taken_back_makes_the_letter_wait_at_home(office, recall):
    entry = office.approved()
    recall(office, entry)
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    office.clock.go(HOUR)
    assert office.desk.send_approved() == []
    assert office.sent() == []
    assert office.look() == ""


def test_a_recalled_letter_has_72_fresh_hours(office):
    entry = office.propose()
    office.clock.go(THREE_DAYS - HOUR)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.desk.recall(entry.id)
    office.clock.go(2 * HOUR)
    office.look()
    assert office.state_of(entry.id) == "pending"


@pytest.mark.parametrize(
    "broken", [b"---\n[broken\n---\n", b"\xff\xfe\x00", b"---\nletter: x\n", b""]
)
def test_a_note_that_is_broken_after_the_approval_takes_it_back(office, broken):
    entry = office.approved()
    office.note(entry.id).write_bytes(broken)
    office.look()
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert office.sent() == []
    assert office.state_of(entry.id) == "pending"


def test_an_approved_letters_note_may_be_renamed_and_given_keys(office):
    entry = office.approved()
    office.edit(entry.id, 'status: "approved"', 'status: "approved"\ntags: [mine]')
    note = office.note(entry.id)
    note.rename(note.with_name("renamed.md"))
    assert office.look() == ""
    assert office.state_of(entry.id) == "approved"
    office.desk.send_approved()
    assert office.note(entry.id) == office.vault / DONE / "renamed.md"
    assert office.field(entry.id, "tags") == "mine"


def test_an_approved_letters_note_moved_to_rejected_rejects_it(office):
    entry = office.approved()
    office.move(entry.id, REJECTED)
    office.look()
    assert office.state_of(entry.id) == "rejected"
    assert office.where(entry.id) == REJECTED
    assert office.desk.send_approved() == []


def test_an_approved_letter_can_be_rejected_in_the_terminal(office):
    entry = office.approved()
    office.desk.reject(entry.id, by="ada", reason="On second thought")
    assert office.where(entry.id) == REJECTED


def test_an_approved_letter_can_be_withdrawn(office):
    entry = office.approved()
    assert office.desk.withdraw(SEND, entry.id).kind == "withdrawn"
    assert office.where(entry.id) == REJECTED
    assert office.desk.send_approved() == []


def test_a_claimed_letter_is_sending_and_its_note_stays_in_approved(office):
    entry, seen = office.approved(), []
    office.step = lambda name: seen.append(
        (name, office.state_of(entry.id), office.where(entry.id))
    )
    office.desk.send_approved()
    assert seen == [
        ("locked", "approved", APPROVED),
        ("checked", "approved", APPROVED),
        ("claimed", "sending", APPROVED),
        ("published", "sending", APPROVED),
        ("answered", "sending", APPROVED),
        ("recorded", "sent", APPROVED),
    ]
    assert office.where(entry.id) == DONE


def test_the_claim_is_on_disk_and_in_the_log_before_a_byte_leaves(office, courier):
    entry = office.approved()
    found = []

    def watch(name):
        if name == "published":
            with sqlite3.connect(f"file:{office.state}/ledger.sqlite?mode=ro", uri=True) as other:
                found.extend(other.execute("SELECT state FROM letter WHERE id = ?", [entry.id]))
            other.close()
            log = "".join(p.read_text() for p in (office.vault / "Logs/actions").iterdir())
            found.append("claim_letter" in log)
            found.append(courier.tried)

    office.step = watch
    office.desk.send_approved()
    assert found == [("sending",), True, 0]
    assert courier.tried == 1


def test_the_ledger_keeps_the_hash_of_the_very_bytes_that_left(office, courier):
    entry = office.approved()
    office.desk.send_approved()
    claimed = office.desk.ledger.history(entry.id)[-2]
    assert claimed.wire == hashlib.sha256(courier.accepted[0].wire).hexdigest()


@pytest.mark.parametrize("name", ["PAUSED", "PAUSED.md"])
def test_while_paused_an_approved_letter_is_held_with_the_reason(office, name):
    entry = office.approved()
    (office.vault / name).touch()
    office.desk.send_approved()
    assert "paused" in state(office, entry.id).held
    assert office.where(entry.id) == APPROVED
    assert "paused" in office.head(entry.id)
    (office.vault / name).unlink()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


def test_in_rehearsal_an_approved_letter_is_held_with_the_reason(office):
    entry = office.approved()
    office.reopen(live=False)
    office.desk.send_approved()
    assert "rehearses" in state(office, entry.id).held
    assert office.where(entry.id) == APPROVED
    assert "rehearses" in office.head(entry.id)
    office.reopen(live=True)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


@pytest.mark.parametrize(
    ("rules", "wait"), [({"sends": 1}, "1 hour"), ({"paced": 1}, "60 seconds")]
)
def test_without_budget_or_pace_an_approved_letter_is_held_with_reason_and_next_try(
    office, rules, wait
):
    office.reopen(**rules)
    first, second = office.approved(), office.approved()
    office.desk.send_approved()
    assert [office.state_of(e.id) for e in (first, second)] == ["sent", "approved"]
    held = state(office, second.id)
    assert "Rate limit exceeded (1 emails/" in held.held
    told = office.head(second.id)
    assert "Rate limit exceeded" in told
    assert "may leave from 2026-11-15T" in told
    office.clock.go(held.wait)
    office.desk.send_approved()
    assert office.state_of(second.id) == "sent"


def test_a_recipient_denied_since_the_approval_fails_the_letter(office):
    entry = office.approved()
    office.reopen(deny=("example.com",))
    office.desk.send_approved()
    assert "no mail" in state(office, entry.id).reason
    assert office.where(entry.id) == FAILED
    assert "no mail" in office.head(entry.id)
    assert office.sent() == []


@pytest.mark.parametrize(
    "forges",
    [
        lambda wire: wire.replace(b"Good day", b"Bad day!"),
        lambda wire: wire.replace(b"To: Ann <ann@example.com>", b"To: Eve <eve@example.com>"),
        lambda wire: wire.replace(b"Subject: Hello", b"Subject: Hallo"),
        lambda wire: b"Bcc: eve@example.com\r\n" + wire,
        lambda wire: b"Cc: eve@example.com\r\n" + wire,
        lambda wire: b"X-Else: yes\r\n" + wire,
        lambda wire: wire.replace(b"X-Postroom-Letter: ", b"X-Postroom-Letter: z"),
    ],
)
def test_bytes_that_are_not_the_approved_letter_fail_it_and_none_leaves(office, courier, forges):
    courier.forges = forges
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "failed"
    assert office.where(entry.id) == FAILED
    assert courier.tried == 0


def test_a_letter_changed_in_the_ledger_after_the_verdict_fails(office, courier):
    entry = office.approved()
    with sqlite3.connect(office.state / "ledger.sqlite") as other:
        other.execute("UPDATE letter SET frozen = replace(frozen, 'Good day', 'Bad day')")
    other.close()
    office.desk.send_approved()
    assert "digest" in state(office, entry.id).reason
    assert office.where(entry.id) == FAILED
    assert courier.tried == 0


# sending


def test_an_accepted_letter_is_sent_and_its_note_done(office):
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == DONE
    assert office.field(entry.id, "status") == "done"
    assert office.look() == ""
    assert office.where(entry.id) == DONE


def test_recipients_that_were_refused_are_listed_and_not_tried_again(office, courier):
    bob = Address.parse("bob@example.com")
    courier.turns_down(bob)
    entry = office.approved(to=(ANN, bob))
    office.desk.send_approved()
    assert state(office, entry.id).refused == ("bob@example.com",)
    assert "not to bob@example.com" in office.head(entry.id)
    assert office.where(entry.id) == DONE
    office.clock.go(DAY)
    office.desk.send_approved()
    assert courier.tried == 1


@pytest.mark.parametrize(
    ("why", "wait"),
    [
        (BUSY, 30),
        (Limited("slow down", seconds=600), 600),
        (Limited("slow down", seconds=1), 30),
        (AuthRequired("sign in again"), 30),
    ],
)
def test_a_refusal_for_now_leaves_the_letter_approved_with_reason_and_next_try(
    office, courier, why, wait
):
    courier.refuses(why)
    entry = office.approved()
    office.desk.send_approved()
    held = state(office, entry.id)
    assert (held.held, held.wait) == (why.message, wait)
    assert office.where(entry.id) == APPROVED
    assert why.message in office.head(entry.id)
    office.clock.go(wait - 1)
    assert office.desk.send_approved() == []
    office.clock.go(1)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert courier.tried == 2


def test_each_further_refusal_waits_longer(office, courier):
    courier.refuses(times=9)
    entry, waits = office.approved(), []
    for _ in range(9):
        office.desk.send_approved()
        waits.append(state(office, entry.id).wait)
        office.clock.go(waits[-1])
    assert waits == [30, 60, 120, 300, 900, 1800, 3600, 3600, 3600]


def test_a_letter_refused_for_24_hours_fails(office, courier):
    courier.refuses(times=1000)
    entry, start = office.approved(), office.clock.wall
    while office.state_of(entry.id) == "approved":
        office.desk.send_approved()
        office.clock.go(600)
        assert office.clock.wall - start < 2 * DAY
    assert office.clock.wall - start >= DAY
    assert "24 hours" in state(office, entry.id).reason
    assert BUSY.message in state(office, entry.id).reason
    assert office.where(entry.id) == FAILED


def test_where_the_log_cannot_be_written_no_byte_leaves_and_it_is_tried_again(office, courier):
    entry = office.approved()
    logs = office.vault / "Logs"
    office.at("claimed", lambda: (logs.rename(office.folder / "away"), logs.touch()))
    office.desk.dispatcher.dispatch(entry.id)
    assert office.state_of(entry.id) == "approved"
    assert courier.tried == 0
    logs.unlink()
    (office.folder / "away").rename(logs)
    office.clock.go(30)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


def test_a_final_refusal_fails_the_letter(office, courier):
    courier.refuses(BARRED)
    entry = office.approved()
    office.desk.send_approved()
    assert state(office, entry.id).reason == BARRED.message
    assert office.where(entry.id) == FAILED
    assert office.field(entry.id, "status") == "failed"
    office.clock.go(DAY)
    office.desk.send_approved()
    assert courier.tried == 1


STRANGE = (LOST, OSError("broken pipe"), ValueError("what?"))


@pytest.mark.parametrize("why", STRANGE)
def test_an_uncertain_letter_that_the_provider_has_is_sent(office, courier, why):
    courier.loses(why, after=True)
    entry = office.approved()
    office.desk.send_approved()
    assert state(office, entry.id).how == "proved by the provider"
    assert office.where(entry.id) == DONE
    assert len(courier.accepted) == 1


@pytest.mark.parametrize("why", STRANGE)
def test_an_uncertain_letter_that_the_provider_proves_unsent_goes_back_to_approved(
    office, courier, why
):
    courier.loses(why, after=False)
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "approved"
    assert office.where(entry.id) == APPROVED
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 1


@pytest.mark.parametrize("why", STRANGE)
@pytest.mark.parametrize("after", [True, False])
def test_an_uncertain_letter_of_which_nothing_is_proved_is_unknown_and_stays_in_approved(
    office, courier, why, after
):
    courier.settles = False
    courier.loses(why, after=after)
    entry = office.approved()
    office.desk.send_approved()
    assert "keeps no record" in state(office, entry.id).why
    assert office.where(entry.id) == APPROVED
    assert office.field(entry.id, "status") == "unknown"
    assert f"postroom resolve {entry.id} --sent" in office.head(entry.id)


def test_a_letter_whose_fate_is_unknown_is_never_sent_again(office, courier):
    courier.settles = False
    courier.loses(after=False)
    office.approved()
    office.desk.send_approved()
    for _ in range(5):
        office.clock.go(DAY)
        office.look()
        office.desk.send_approved()
        office.reopen()
    assert courier.tried == 1


def test_only_that_it_was_sent_can_be_news_of_an_unknown_letter(office, courier):
    courier.settles = False
    lost, gone = office.approved(), office.approved()
    courier.loses(after=False)
    courier.loses(after=True)
    office.desk.send_approved()
    courier.settles = True
    office.clock.go(60)
    office.desk.send_approved()
    assert [office.state_of(e.id) for e in (lost, gone)] == ["unknown", "sent"]
    assert office.where(gone.id) == DONE


@pytest.mark.parametrize("step", ["claimed", "published"])
def test_a_claim_whose_owner_died_before_sending_goes_back_to_approved_by_the_providers_proof(
    office, courier, step
):
    entry = office.approved()
    office.killed_at(step)
    assert office.state_of(entry.id) == "sending"
    office.desk.send_approved()
    assert office.state_of(entry.id) == "approved"
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 1


def test_a_claim_whose_owner_died_after_sending_is_sent_by_the_providers_proof(office, courier):
    entry = office.approved()
    office.killed_at("answered")
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == DONE
    assert len(courier.accepted) == 1


@pytest.mark.parametrize("step", ["claimed", "published", "answered"])
def test_a_claim_whose_owner_died_is_unknown_where_nothing_is_proved(office, courier, step):
    courier.settles = False
    entry = office.approved()
    office.killed_at(step)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "unknown"
    assert "its sender died" in state(office, entry.id).why
    assert office.where(entry.id) == APPROVED


def test_a_crash_before_the_claim_changes_nothing(office, courier):
    for step in ("locked", "checked"):
        entry = office.approved()
        office.killed_at(step)
        assert office.state_of(entry.id) == "approved"
        office.desk.send_approved()
        assert office.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 2


def test_a_crash_after_the_record_leaves_only_the_note_behind(office, courier):
    entry = office.approved()
    office.killed_at("recorded")
    assert office.state_of(entry.id) == "sent"
    office.look()
    assert office.where(entry.id) == DONE
    assert office.field(entry.id, "status") == "done"
    assert len(courier.accepted) == 1


def test_what_is_done_to_the_note_of_a_letter_being_sent_is_ignored_until_the_outcome(office):
    for touch in (
        lambda id: office.move(id, HOME),
        lambda id: office.move(id, REJECTED),
        lambda id: office.edit(id, "Good day", "Good evening"),
    ):
        entry, said = office.approved(), []
        office.at(
            "published",
            lambda id=entry.id, touch=touch, said=said: (
                touch(id),
                said.append(office.look()),
                said.append(office.state_of(id)),
            ),
        )
        office.desk.send_approved()
        assert said == ["", "sending"]
        office.look()
        assert office.state_of(entry.id) == "sent"
        assert office.where(entry.id) == DONE


def test_a_sent_letters_note_deleted_while_it_was_sent_stays_gone(office):
    entry = office.approved()
    office.at("published", lambda: office.note(entry.id).unlink())
    office.desk.send_approved()
    office.look()
    assert office.state_of(entry.id) == "sent"
    assert office.notes(entry.id) == []


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize(
    ("folder", "kind"), [(HOME, "pending"), (REJECTED, "rejected"), ("", "pending")]
)
def test_what_was_done_to_the_note_while_it_was_sent_counts_after_a_refusal(
    office, courier, folder, kind, looked
):
    courier.refuses()
    entry = office.approved()

    def touch():
        if folder:
            office.move(entry.id, folder)
        else:
            office.note(entry.id).unlink()
        if looked:
            office.look()

    office.at("published", touch)
    office.desk.send_approved()
    office.look()
    assert office.state_of(entry.id) == kind
    assert office.where(entry.id) == (folder or HOME)
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert len(courier.accepted) == 0


def test_a_no_given_while_it_was_sent_is_still_found_long_after_the_first_look(office):
    entry = office.approved()
    office.killed_at("published")
    office.move(entry.id, REJECTED)
    office.clock.jump(365 * DAY)
    assert office.look() == ""
    office.desk.dispatcher.dispatch(entry.id)
    assert office.state_of(entry.id) == "approved"
    office.look()
    assert office.state_of(entry.id) == "rejected"
    assert office.where(entry.id) == REJECTED


def test_a_move_made_while_a_letter_is_held_counts(office):
    for folder, kind in ((HOME, "pending"), (REJECTED, "rejected")):
        entry = office.approved()
        (office.vault / "PAUSED").touch()
        office.at("locked", lambda id=entry.id, folder=folder: office.move(id, folder))
        office.desk.send_approved()
        office.look()
        assert office.state_of(entry.id) == kind
        (office.vault / "PAUSED").unlink()
        office.desk.send_approved()
    assert office.sent() == []


# unknown


@pytest.fixture
def lost(office, courier):
    """A letter that may or may not have been sent."""
    courier.settles = False
    courier.loses(after=False)
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "unknown"
    return entry


def test_an_unknown_letter_resolved_as_sent_is_sent_and_done(office, lost):
    office.desk.resolve(lost.id, by="ada", sent=True)
    assert state(office, lost.id).how == "resolved by ada"
    assert office.where(lost.id) == DONE
    assert office.field(lost.id, "status") == "done"


def test_an_unknown_letter_resolved_as_not_sent_waits_at_home_for_a_new_verdict(
    office, courier, lost
):
    office.desk.resolve(lost.id, by="ada", sent=False)
    assert office.state_of(lost.id) == "pending"
    assert office.where(lost.id) == HOME
    office.clock.go(HOUR)
    office.look()
    office.desk.send_approved()
    assert courier.tried == 1
    office.desk.approve(lost.id, by="ada", digest=lost.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert office.state_of(lost.id) == "sent"


@pytest.mark.parametrize("folder", [HOME, REJECTED, DONE, FAILED, "Drafts", "Archive", ""])
def test_an_unknown_letters_note_that_was_moved_is_put_back_and_said(office, lost, folder):
    if folder:
        office.move(lost.id, folder)
    else:
        office.note(lost.id).unlink()
    said = office.look()
    assert office.state_of(lost.id) == "unknown"
    assert APPROVED in [note.parent.name for note in office.notes(lost.id)]
    assert lost.id in said
    assert office.look() == ""


def test_an_unknown_letters_note_that_was_renamed_is_still_its_note_beside_a_copy(office, lost):
    note = office.note(lost.id)
    renamed = note.rename(note.with_name("renamed.md"))
    shutil.copy(renamed, office.vault / HOME / "copy.md")
    assert "copy" in office.look()
    office.desk.resolve(lost.id, by="ada", sent=True)
    assert not renamed.exists()
    done = Note.parse((office.vault / DONE / "renamed.md").read_bytes())
    assert done.text("status") == "done"


@pytest.mark.parametrize("act", ["approve", "reject", "withdraw", "recall"])
def test_an_unknown_letter_takes_no_other_verdict(office, lost, act):
    acts = {
        "approve": lambda: office.desk.approve(lost.id, by="ada", digest=lost.digest),
        "reject": lambda: office.desk.reject(lost.id, by="ada", reason=""),
        "withdraw": lambda: office.desk.withdraw(SEND, lost.id),
        "recall": lambda: office.desk.recall(lost.id),
    }
    with pytest.raises(Conflict, match="may or may not have been sent"):
        acts[act]()
    assert office.state_of(lost.id) == "unknown"


def test_only_an_unknown_letter_is_resolved(office):
    entry = office.propose()
    with pytest.raises(Conflict, match="waits for a person"):
        office.desk.resolve(entry.id, by="ada", sent=True)


def test_a_letter_resolved_in_the_moment_in_which_the_provider_is_asked_is_no_error(office, lost):
    office.clock.go(60)
    office.at("locked", lambda: office.desk.resolve(lost.id, by="ada", sent=True))
    assert office.desk.dispatch(lost.id).kind == "sent"
    assert office.where(lost.id) == DONE


# closed


def test_a_sent_letters_note_moved_to_approved_is_put_back_and_said(office, courier):
    entry = office.approved()
    office.desk.send_approved()
    office.move(entry.id, APPROVED)
    assert "sent already" in office.look()
    assert office.where(entry.id) == DONE
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert len(courier.accepted) == 1


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "expired", "failed"])
def test_a_copy_in_approved_does_not_open_a_closed_letter_whose_note_stands_where_it_belongs(
    office, courier, kind
):
    entry = closed(office, courier, kind)
    (office.vault / APPROVED).mkdir(exist_ok=True)
    shutil.copy(office.note(entry.id), office.vault / APPROVED / "copy.md")
    assert entry.id in office.look()
    assert office.state_of(entry.id) == kind


def test_a_copy_of_a_sent_letters_note_in_approved_sends_nothing(office, courier):
    entry = office.approved()
    office.desk.send_approved()
    shutil.copy(office.note(entry.id), office.vault / APPROVED / "again.md")
    assert entry.id in office.look()
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert len(courier.accepted) == 1
    assert not (office.vault / APPROVED / "again.md").exists()


def closed(office, courier, kind):
    """Return a letter that was closed without being sent."""
    if kind == "failed":
        courier.refuses(BARRED)
        entry = office.approved()
        office.desk.send_approved()
        return entry
    entry = office.propose()
    if kind == "rejected":
        office.desk.reject(entry.id, by="ada", reason="No")
    elif kind == "withdrawn":
        office.desk.withdraw(SEND, entry.id)
    else:
        office.clock.go(THREE_DAYS)
        office.look()
    assert office.state_of(entry.id) == kind
    return entry


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "expired", "failed"])
def test_a_closed_letters_note_moved_to_approved_opens_it_again_with_72_fresh_hours(
    office, courier, kind
):
    entry = closed(office, courier, kind)
    office.move(entry.id, APPROVED)
    assert "waits again" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    office.clock.go(THREE_DAYS - 1)
    assert office.look() == ""
    assert office.state_of(entry.id) == "pending"
    office.move(entry.id, APPROVED)
    office.look()
    assert office.state_of(entry.id) == "approved"
    office.clock.go(10)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "expired", "failed"])
def test_a_closed_letters_note_moved_home_goes_back(office, courier, kind):
    entry = closed(office, courier, kind)
    right = office.where(entry.id)
    office.move(entry.id, HOME)
    assert entry.id in office.look()
    assert office.state_of(entry.id) == kind
    assert office.where(entry.id) == right


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "expired", "failed", "sent"])
def test_a_closed_letters_deleted_note_stays_gone(office, courier, kind):
    if kind == "sent":
        entry = office.approved()
        office.desk.send_approved()
    else:
        entry = closed(office, courier, kind)
    office.note(entry.id).unlink()
    assert office.look() == ""
    office.propose()
    office.reopen()
    assert office.look() == ""
    assert office.notes(entry.id) == []


# approve beside another dispatcher


def test_whoever_loses_the_claim_sees_that_the_letter_is_being_sent_and_sends_nothing(
    office, courier
):
    entry, seen = office.approved(), []
    other = office.beside()
    office.at("published", lambda: seen.append(other.desk.dispatch(entry.id).kind))
    office.desk.send_approved()
    assert seen == ["sending"]
    assert other.desk.dispatch(entry.id).kind == "sent"
    assert len(courier.accepted) == 1
    other.close()


@pytest.mark.parametrize("step", ["locked", "checked"])
@pytest.mark.parametrize("act", ["undo", "reject", "withdraw", "move", "deny"])
def test_a_letter_taken_back_before_the_claim_is_not_sent_and_no_error(office, courier, step, act):
    entry = office.approved()
    other = office.beside()
    if act == "deny":
        office.reopen(deny=("ann@example.com",))
    acts = {
        "undo": lambda: other.desk.recall(entry.id),
        "deny": lambda: other.desk.recall(entry.id),
        "reject": lambda: other.desk.reject(entry.id, by="ada", reason=""),
        "withdraw": lambda: other.desk.withdraw(SEND, entry.id),
        "move": lambda: (other.move(entry.id, HOME), other.desk.reconcile()),
    }
    office.at(step, acts[act])
    office.desk.send_approved()
    kinds = {"reject": "rejected", "withdraw": "withdrawn"}
    if not (act == "deny" and step == "checked"):
        assert office.state_of(entry.id) == kinds.get(act, "pending")
    assert courier.tried == 0
    other.close()


@pytest.mark.parametrize("step", ["claimed", "published", "answered"])
@pytest.mark.parametrize("act", ["undo", "reject", "withdraw"])
def test_a_letter_cannot_be_taken_back_after_the_claim(office, courier, step, act):
    entry, told = office.approved(), []
    acts = {
        "undo": lambda: office.desk.recall(entry.id),
        "reject": lambda: office.desk.reject(entry.id, by="ada", reason=""),
        "withdraw": lambda: office.desk.withdraw(SEND, entry.id),
    }

    def late():
        with pytest.raises(Conflict, match="is being sent") as refused:
            acts[act]()
        told.append(refused.value.message)

    office.at(step, late)
    office.desk.send_approved()
    assert len(told) == 1
    assert office.state_of(entry.id) == "sent"


def test_of_two_who_approve_at_once_one_is_told_what_the_other_did(office):
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    with pytest.raises(Conflict, match=r"approved at .* by ada"):
        office.desk.approve(entry.id, by="bea", digest=entry.digest)


def test_a_repeated_call_for_an_approved_letter_waits_out_the_undo_window_and_answers_sent(office):
    letter = office.letter()
    office.propose(letter)
    office.move(letter.id, APPROVED)
    start = office.clock.wall
    answer = office.propose(letter.with_id("bbbbbbbbbb"))
    assert (answer.id, answer.kind) == (letter.id, "sent")
    assert office.clock.wall - start == 10
    assert office.where(letter.id) == DONE
    assert office.sent() == ["Hello"]


def test_a_repeated_call_for_a_letter_whose_sender_died_answers_with_what_became_of_it(
    office, courier
):
    entry = office.approved()
    office.killed_at("answered")
    answer = office.propose(entry.letter.with_id("bbbbbbbbbb"))
    assert (answer.id, answer.kind) == (entry.id, "sent")
    assert len(courier.accepted) == 1


# who looks at folders


def test_a_call_for_status_sees_what_was_done_to_the_note(office):
    entry = office.propose()
    office.move(entry.id, REJECTED)
    assert office.desk.status(SEND, entry.id).kind == "rejected"


def test_a_withdrawal_sees_what_was_done_to_the_note(office):
    entry = office.propose()
    office.move(entry.id, REJECTED)
    with pytest.raises(Conflict, match="was rejected"):
        office.desk.withdraw(SEND, entry.id)


def test_notes_that_nobody_touched_are_not_read_again(office, tmp_path):
    entries = [office.propose() for _ in range(3)]
    office.clock.jump(10 * 365 * DAY)  # long after every file was written
    office.look()
    for entry in entries:
        note = office.note(entry.id)
        seen = note.stat()
        note.write_bytes(b"?" * seen.st_size)
        os.utime(note, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert office.look() == ""


def test_a_call_takes_nothing_from_plans(office):
    plan = office.write(
        "Plans/p.md", "---\ntype: email_send\nstatus: pending\nto: ann@example.com\n---\n"
    )
    office.propose()
    office.look()
    assert plan.exists()


# restored ledgers


@pytest.fixture
def backup(office):
    """Return how to keep a copy of the ledger, and how to put it back."""
    kept = office.folder / "backup.sqlite"

    def keep():
        office.close()
        shutil.copy(office.state / "ledger.sqlite", kept)
        office.open()

    def put_back():
        office.close()
        for file in office.state.glob("ledger.sqlite*"):
            file.unlink()
        shutil.copy(kept, office.state / "ledger.sqlite")
        office.open()

    return keep, put_back


def test_after_a_restored_backup_a_letter_sent_since_is_sent_and_not_sent_again(
    office, courier, backup
):
    keep, put_back = backup
    entry = office.approved()
    keep()
    office.desk.send_approved()
    put_back()
    said = office.look()
    assert "ahead of the ledger" in said
    assert office.state_of(entry.id) == "sent"
    office.desk.send_approved()
    assert len(courier.accepted) == 1


@pytest.mark.parametrize(
    ("since", "kind"),
    [
        (lambda o, e: o.desk.reject(e.id, by="ada", reason="no"), "rejected"),
        (lambda o, e: o.desk.withdraw(SEND, e.id), "withdrawn"),
        (lambda o, e: (o.clock.go(THREE_DAYS), o.desk.reconcile()), "expired"),
    ],
)
def test_after_a_restored_backup_letters_take_the_state_that_the_log_gives(
    office, backup, since, kind
):
    keep, put_back = backup
    entry = office.propose()
    keep()
    since(office, entry)
    put_back()
    office.look()
    assert office.state_of(entry.id) == kind


def test_after_a_restored_backup_a_letter_recalled_since_waits_as_the_log_says(office, backup):
    keep, put_back = backup
    entry = office.approved()
    keep()
    office.desk.recall(entry.id)
    put_back()
    office.look()
    assert office.state_of(entry.id) == "pending"


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "failed"])
def test_after_a_restored_backup_a_closed_letter_that_was_opened_and_sent_since_is_sent(
    office, courier, backup, kind
):
    keep, put_back = backup
    entry = closed(office, courier, kind)
    keep()
    office.move(entry.id, APPROVED)
    office.look()
    office.move(entry.id, APPROVED)
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    put_back()
    office.look()
    assert office.state_of(entry.id) == "sent"


def test_after_a_restored_backup_an_unknown_letter_resolved_since_is_what_the_log_says(
    office, lost, backup
):
    keep, put_back = backup
    keep()
    office.desk.resolve(lost.id, by="ada", sent=True)
    put_back()
    office.look()
    assert office.state_of(lost.id) == "sent"


def test_after_a_restored_backup_all_other_open_letters_are_unknown(office, courier, backup):
    keep, put_back = backup
    waiting, approved = office.propose(), office.approved()
    office.dies_at("claimed")
    claimed = office.approved()
    with pytest.raises(Dead):
        office.desk.dispatch(claimed.id)
    office.reopen()
    keep()
    office.propose()
    put_back()
    said = office.look()
    assert "3 letters may or may not have been sent" in said
    for entry in (waiting, approved, claimed):
        assert office.state_of(entry.id) == "unknown"
        assert office.where(entry.id) == APPROVED
        assert "backup" in state(office, entry.id).why
    office.desk.send_approved()
    assert courier.tried == 0


def test_after_a_restored_backup_the_log_still_verifies_and_is_said_once(office, backup):
    keep, put_back = backup
    office.propose()
    keep()
    office.propose()
    put_back()
    office.look()
    assert "ahead of the ledger" not in office.look()
    assert office.desk.log.verify() == []


def test_after_a_restored_backup_what_was_spent_since_stays_spent(office, backup):
    keep, put_back = backup
    office.reopen(sends=1)
    office.propose()
    keep()
    office.approved()
    office.desk.send_approved()
    put_back()
    office.look()
    later = office.approved()
    office.desk.send_approved()
    assert "Rate limit exceeded" in state(office, later.id).held


# notes in the way


def in_place_of(note, kind, tmp_path):
    note.unlink()
    if kind == "link":
        note.symlink_to(tmp_path / "elsewhere.md")
    elif kind == "folder":
        note.mkdir()
    else:
        with note.open("wb") as stream:
            stream.truncate(30_000_001)


@pytest.mark.parametrize("kind", ["link", "folder", "huge"])
def test_one_thing_in_the_place_of_a_note_does_not_stop_the_desk(office, tmp_path, kind):
    blocked, other = office.propose(), office.propose()
    in_place_of(office.note(blocked.id), kind, tmp_path)
    office.move(other.id, APPROVED)
    office.look()
    assert office.state_of(blocked.id) == "pending"
    assert office.state_of(other.id) == "approved"
    office.desk.approve(blocked.id, by="ada", digest=blocked.digest)
    office.clock.go(10)
    office.desk.send_approved()
    office.look()
    assert office.state_of(blocked.id) == office.state_of(other.id) == "sent"


def test_a_note_with_the_longest_name_does_not_stop_the_desk(office):
    entry = office.approved()
    name = "n" * 252 + ".md"
    office.note(entry.id).rename(office.vault / APPROVED / name)
    office.write(f"{DONE}/{name}", "Another note of the same name.\n")
    office.look()
    office.desk.send_approved()
    assert office.look() == ""
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == DONE


def test_a_letter_of_another_desk_counts_for_nothing_and_is_said(office):
    entry = office.propose()
    office.edit(entry.id, 'desk: "abcdefgh22334455"', 'desk: "zzzzzzzz22334455"')
    office.move(entry.id, APPROVED)
    assert "belongs to another desk" in office.look()
    assert office.state_of(entry.id) == "pending"


def test_a_note_that_names_a_letter_nobody_knows_is_said_and_counts_for_nothing(office):
    office.write("Approved/x.md", "---\nletter: zzzzzzzzzz\nto: ann@example.com\n---\nHello\n")
    assert "zzzzzzzzzz, which this desk does not know" in office.look()
    assert office.desk.send_approved() == []


def test_a_note_in_approved_that_is_nothing_is_said(office):
    office.write("Approved/shopping.md", "Milk, bread\n")
    assert "Approved/shopping.md counts for nothing" in office.look()


def test_a_provider_that_cannot_be_reached_holds_the_letter(office, courier):
    entry = office.approved()
    courier.away = True
    office.desk.send_approved()
    assert state(office, entry.id).held == "no network"
    assert courier.tried == 0


@pytest.mark.parametrize("start", [APPROVED, REJECTED])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_note_moved_home_in_the_moment_of_a_look_is_not_written_a_second_time(
    office, start, renamed
):
    moves = []

    class Slow(Vault):
        def list(self, folder):
            if folder == start and moves:
                moves.pop()()
            return super().list(folder)

    office.vaults = Slow
    office.reopen()
    entry = office.approved() if start == APPROVED else office.propose()
    note = office.move(entry.id, start)
    moves.append(lambda: note.rename(office.vault / HOME / ("mine.md" if renamed else note.name)))
    office.look()
    assert moves == []
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME


@contextmanager
def dying_before_the_note(office):
    """Let the process end when it comes to write a note, its decision being in the ledger."""

    class Mortal(Vault):
        def replace(self, *_what):
            raise Dead

        def move(self, *_what):
            raise Dead

    office.vaults = Mortal
    office.reopen()
    with pytest.raises(Dead):
        yield
    office.vaults = Vault
    office.reopen()


def test_a_note_left_behind_by_an_edit_shows_the_new_letter_after_the_next_look(office):
    entry = office.propose()
    with dying_before_the_note(office):
        office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    office.clock.jump(365 * DAY)
    office.look()
    edited = office.desk.ledger.entry(entry.id)
    assert edited.letter.text == "Other words.\n"
    assert office.field(entry.id, "digest") == edited.digest
    assert "Other words." in office.page(entry.id, "Letter")
    assert office.desk.edited(edited) == ""


def test_a_note_left_behind_by_a_lost_answer_says_unknown_after_the_next_look(office, courier):
    courier.settles = False
    courier.loses(after=True)
    entry = office.approved()
    with dying_before_the_note(office):
        office.desk.send_approved()
    office.clock.jump(365 * DAY)
    office.look()
    assert office.state_of(entry.id) == "unknown"
    assert office.where(entry.id) == APPROVED
    assert office.field(entry.id, "status") == "unknown"
    assert "postroom resolve" in office.head(entry.id)


def test_a_note_left_behind_by_a_refusal_gives_the_reason_after_the_next_look(office, courier):
    courier.refuses(BUSY)
    entry = office.approved()
    with dying_before_the_note(office):
        office.desk.send_approved()
    office.clock.jump(365 * DAY)
    office.look()
    assert BUSY.message in office.head(entry.id)


@pytest.mark.parametrize(
    ("act", "kind", "where"),
    [
        (lambda o, e: o.desk.recall(e.id), "pending", HOME),
        (lambda o, e: o.desk.reject(e.id, by="ada", reason=""), "rejected", REJECTED),
        (lambda o, e: o.desk.withdraw(SEND, e.id), "withdrawn", REJECTED),
        (lambda o, e: o.desk.send_approved(), "sent", DONE),
    ],
)
def test_a_note_left_behind_by_any_decision_is_brought_to_its_place_at_the_next_look(
    office, act, kind, where
):
    entry = office.approved()
    with dying_before_the_note(office):
        act(office, entry)
    office.clock.jump(365 * DAY)
    office.look()
    assert office.state_of(entry.id) == kind
    assert office.where(entry.id) == where


# the log


@pytest.mark.parametrize("kind", ["status", "withdraw"])
def test_a_call_that_is_refused_leaves_its_one_line_too(office, kind):
    before = office.desk.ledger.head()
    call = Call(kind, "claude")
    with pytest.raises(NotFound):
        getattr(office.desk, kind)(call, "zzzzzzzzzz")
    assert office.desk.ledger.head() == before + 1


def test_each_call_leaves_exactly_one_line(office):
    letter = office.letter()
    lines = []

    def count(act):
        before = office.desk.ledger.head()
        act()
        new = office.desk.ledger.actions(before)
        lines.append(sum('"actor":"email_mcp"' in line for _, line in new))

    count(lambda: office.propose(letter))
    count(lambda: office.propose(letter.with_id("bbbbbbbbbb")))
    count(lambda: office.desk.status(SEND, letter.id))
    office.move(letter.id, APPROVED)
    count(lambda: office.propose(letter.with_id("bbbbbbbbbb")))
    count(lambda: office.propose(letter.with_id("bbbbbbbbbb")))
    later = office.propose()
    count(lambda: office.desk.withdraw(SEND, later.id))
    assert lines == [1] * 6


@pytest.mark.parametrize("days", [1, 2, 3, 4, 30, 365])
def test_a_clock_that_is_set_back_leaves_a_log_that_verifies(office, days):
    office.propose()
    office.clock.jump(-days * DAY)
    office.propose()
    assert office.desk.log.verify() == []
    office.clock.jump(2 * days * DAY)
    office.propose()
    assert office.desk.log.verify() == []
    assert office.look() == ""
