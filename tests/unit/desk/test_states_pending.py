"""Pending letters, line by line of the table of states."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from postroom.core import life
from postroom.core.errors import Conflict, Denied, NotFound
from postroom.core.records import Entry
from postroom.desk.recorder import Call
from tests.desks import (
    APPROVED,
    DONE,
    FAILED,
    HOME,
    HOUR,
    REJECTED,
    SEND,
    THREE_DAYS,
    Office,
    state,
)
from tests.narrow import narrow, present
from tests.providers import Courier

# pending


def in_the_terminal(office: Office, entry: Entry) -> None:
    office.desk.approve(entry.id, by="ada", digest=entry.digest)


def by_moving_the_note(office: Office, entry: Entry) -> None:
    office.move(entry.id, APPROVED)
    assert f"The letter {entry.id} was approved" in office.look()


@pytest.mark.parametrize("approve", [in_the_terminal, by_moving_the_note])
def test_an_approval_lets_the_letter_out_once_the_undo_window_has_passed_and_not_before(
    office: Office, approve: Callable[[Office, Entry], None]
) -> None:
    entry = office.propose()
    approve(office, entry)
    assert office.state_of(entry.id) == "approved"
    assert office.where(entry.id) == APPROVED
    assert office.field(entry.id, "status") == "approved"
    assert office.field(entry.id, "approved_at") == "2026-11-15T00:00:00"
    office.clock.go(9.9)
    assert office.desk.dispatch(entry.id).kind == "approved"
    assert office.desk.send_approved() == []
    assert office.sent() == []
    office.clock.go(0.2)
    assert office.desk.dispatch(entry.id).kind == "sent"
    assert office.sent() == ["Hello"]


def test_a_verdict_says_whose_word_it_was_and_where_it_was_given(office: Office) -> None:
    first, second = office.propose(), office.propose()
    in_the_terminal(office, first)
    by_moving_the_note(office, second)
    told = [state(office, entry.id, life.Approved).verdict for entry in (first, second)]
    assert [(one.by, one.via) for one in told] == [("ada", "terminal"), ("person", "folder")]
    assert [one.digest for one in told] == [first.digest, second.digest]


def test_a_letter_that_is_not_what_the_person_saw_is_not_approved(office: Office) -> None:
    entry = office.propose()
    with pytest.raises(Conflict, match="not what you saw"):
        office.desk.approve(entry.id, by="ada", digest="sha256:" + "0" * 64)
    assert office.state_of(entry.id) == "pending"


def test_the_first_eight_digits_of_the_digest_are_enough(office: Office) -> None:
    entry = office.propose()
    digest = entry.digest.removeprefix("sha256:")[:8]
    assert office.desk.approve(entry.id, by="ada", digest=digest).kind == "approved"


def test_a_note_moved_with_another_text_is_frozen_anew_with_card_and_difference_and_comes_home(
    office: Office,
) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "See https://elsewhere.example/x, good day")
    office.move(entry.id, APPROVED)
    said = office.look()
    assert f"The letter {entry.id} was not approved" in said
    anew = office.desk.ledger.letters.get(entry.id)
    assert anew.kind == "pending"
    assert anew.digest == anew.letter.digest != entry.digest
    assert anew.letter.text == "See https://elsewhere.example/x, good day, for the 1th time.\n"
    assert office.where(entry.id) == HOME
    assert office.field(entry.id, "digest") == anew.digest
    assert "+See https://elsewhere.example/x" in office.page(entry.id, "Difference")
    assert "elsewhere.example" in office.page(entry.id, "Risk assessment")
    assert "move the note to Approved/ again" in office.page(entry.id, "")


def test_the_second_move_of_an_edited_note_approves_the_new_text(
    office: Office, courier: Courier
) -> None:
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


def test_what_the_agent_wrote_is_kept_beside_an_edit(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    office.move(entry.id, APPROVED)
    office.look()
    assert office.desk.ledger.letters.original(entry.id) == entry.letter


def test_a_note_edited_in_place_changes_nothing_yet(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    assert office.look() == ""
    assert office.desk.ledger.letters.get(entry.id) == entry
    assert "Good evening" in office.page(entry.id, "Letter")
    assert office.where(entry.id) == HOME


def test_approve_refuses_a_note_edited_in_place_shows_the_difference_and_names_the_way(
    office: Office,
) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    with pytest.raises(Conflict) as refused:
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert "-Good day" in refused.value.message
    assert "+Good evening" in refused.value.message
    assert f"postroom edit {entry.id} --from-note" in refused.value.remedy
    assert office.state_of(entry.id) == "pending"


def test_the_text_of_a_note_edited_in_place_can_be_taken_and_approved(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    text = present(office.desk.display.text(entry))
    edited = office.desk.edit(entry.id, replace(entry.letter, text=text), from_note=True)
    assert office.desk.note_difference(edited) == ""
    office.desk.approve(entry.id, by="ada", digest=edited.digest)
    office.clock.go(10)
    assert office.desk.dispatch(entry.id).kind == "sent"
    assert [one.letter.text for one in courier.accepted] == ["Good evening, for the 1th time.\n"]


def test_an_edit_in_the_terminal_does_not_throw_away_what_was_typed_into_the_note(
    office: Office,
) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    with pytest.raises(Conflict, match="was edited"):
        office.desk.edit(entry.id, replace(entry.letter, text="Good night.\n"))
    kept = [path.read_text(encoding="utf-8") for path in office.vault.rglob("*.md")]
    former = office.desk.ledger.letters.original(entry.id)
    assert "Good evening" in "".join([*kept, former.text if former else ""])


def test_what_is_typed_into_the_note_while_its_text_is_taken_is_not_lost(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Good evening")
    text = present(office.desk.display.text(entry))
    office.edit(entry.id, "1th time.", "1th time. And one more word.")
    with suppress(Conflict):  # refused is as good
        office.desk.edit(entry.id, replace(entry.letter, text=text), from_note=True)
    assert "And one more word." in office.note(entry.id).read_text(encoding="utf-8")


def test_a_rejection_in_the_terminal_gives_the_reason_and_the_note_goes_to_rejected(
    office: Office,
) -> None:
    entry = office.propose()
    office.desk.decide(entry.id, "reject", by="ada", reason="Not to Ann")
    assert state(office, entry.id, life.Rejected).reason == "Not to Ann"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "status") == "rejected"
    assert "Not to Ann" in office.head(entry.id)
    assert (
        narrow(office.desk.calls.status(SEND, entry.id).state, life.Rejected).reason == "Not to Ann"
    )


def test_a_note_moved_to_rejected_rejects_and_its_reason_reaches_the_agent(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, 'status: "pending"', 'status: "pending"\nreason: Too cold a tone')
    office.move(entry.id, REJECTED)
    office.look()
    assert (
        narrow(office.desk.calls.status(SEND, entry.id).state, life.Rejected).reason
        == "Too cold a tone"
    )
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "reason") == "Too cold a tone"
    assert office.sent() == []


def test_another_version_is_a_rejection_with_a_wish_and_the_next_letter_names_what_it_replaces(
    office: Office,
) -> None:
    entry = office.propose()
    office.desk.decide(entry.id, "revise", by="ada", reason="Warmer, please")
    told = narrow(office.desk.calls.status(SEND, entry.id).state, life.Rejected)
    assert (told.revise, told.reason) == (True, "Warmer, please")
    assert "another version: Warmer, please" in life.describe(told, life.Audience.AGENT)
    assert office.where(entry.id) == REJECTED
    second = office.propose(office.letter(text="Dear, dear Ann.\n"), replaces=entry.id)
    assert (second.kind, second.replaces) == ("pending", entry.id)


def test_a_letter_withdrawn_by_its_agent_goes_to_rejected(office: Office) -> None:
    entry = office.propose()
    office.desk.calls.withdraw(SEND, entry.id)
    assert office.state_of(entry.id) == "withdrawn"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "status") == "withdrawn"


def test_only_its_own_agent_sees_or_withdraws_a_letter(office: Office) -> None:
    entry = office.propose()
    other = Call("withdraw_letter", "mallory")
    with pytest.raises(NotFound):
        office.desk.calls.withdraw(other, entry.id)
    with pytest.raises(NotFound):
        office.desk.calls.status(other, entry.id)
    assert office.state_of(entry.id) == "pending"


def test_a_letter_without_a_verdict_for_72_hours_expires_and_not_before(office: Office) -> None:
    entry = office.propose()
    office.clock.go(THREE_DAYS - 1)
    office.look()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(1)
    office.look()
    assert office.state_of(entry.id) == "expired"
    assert office.where(entry.id) == REJECTED
    assert office.field(entry.id, "status") == "expired"


def test_an_expired_letter_leaves_one_line_in_the_log(office: Office) -> None:
    entry = office.propose()
    office.clock.go(THREE_DAYS)
    before = office.desk.ledger.actions.head()
    office.look()
    office.look()
    ((_, line),) = office.desk.ledger.actions.after(before)
    said = json.loads(line)
    told = (said["action_type"], said["letter"], said["state"], said["result"])
    assert told == ("expire_letter", entry.id, "expired", "success")


def test_a_letter_past_its_72_hours_cannot_be_approved_even_before_anybody_looked(
    office: Office,
) -> None:
    entry = office.propose()
    office.clock.go(THREE_DAYS)
    with pytest.raises(Conflict, match="expired"):
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.state_of(entry.id) == "expired"


def test_a_deleted_note_is_restored_at_home_and_said(office: Office) -> None:
    entry = office.propose()
    office.note(entry.id).unlink()
    assert f"The note of the letter {entry.id} was gone" in office.look()
    assert office.where(entry.id) == HOME
    assert office.state_of(entry.id) == "pending"
    assert office.look() == ""


@pytest.mark.parametrize("folder", ["Archive", DONE, FAILED, "Plans", "Needs_Action"])
def test_a_note_moved_elsewhere_is_restored_at_home_and_said(office: Office, folder: str) -> None:
    entry = office.propose()
    office.move(entry.id, folder)
    assert entry.id in office.look()
    assert HOME in [note.parent.name for note in office.notes(entry.id)]
    assert office.state_of(entry.id) == "pending"


def test_a_note_renamed_at_home_is_still_the_letters_note(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    note.rename(note.with_name("My own name.md"))
    assert office.look() == ""
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.note(entry.id) == office.vault / APPROVED / "My own name.md"


def test_a_renamed_note_in_approved_is_a_move_like_any_other(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    (office.vault / APPROVED).mkdir()
    note.rename(office.vault / APPROVED / "yes.md")
    office.look()
    assert office.state_of(entry.id) == "approved"


def test_a_copy_in_approved_while_the_original_is_at_home_is_no_verdict_and_is_said(
    office: Office,
) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    (office.vault / APPROVED).mkdir()
    shutil.copy(note, office.vault / APPROVED / "copy.md")
    assert "Approved/copy.md is a copy" in office.look()
    assert office.look() == ""  # once
    assert "copy.md is a copy" in note.read_text()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(HOUR)
    assert office.desk.send_approved() == []
    assert office.sent() == []


def test_a_copy_in_rejected_while_the_original_is_at_home_is_no_verdict_and_is_said(
    office: Office,
) -> None:
    entry = office.propose()
    (office.vault / REJECTED).mkdir()
    shutil.copy(office.note(entry.id), office.vault / REJECTED / "copy.md")
    assert "Rejected/copy.md is a copy" in office.look()
    assert office.look() == ""
    assert office.state_of(entry.id) == "pending"


def test_beside_a_copy_at_home_the_note_itself_follows_its_letter(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    copy = note.with_name("0 copy.md")  # listed before it
    shutil.copy(note, copy)
    office.look()
    office.desk.decide(entry.id, "reject", by="ada", reason="no")
    assert copy.exists()
    assert not note.exists()
    assert (office.vault / REJECTED / note.name).exists()


def test_of_a_note_moved_to_approved_and_to_rejected_the_no_counts(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    (office.vault / REJECTED).mkdir()
    shutil.copy(note, office.vault / REJECTED / "no.md")
    office.vault.joinpath(APPROVED).mkdir()
    note.rename(office.vault / APPROVED / "yes.md")
    office.look()
    assert office.state_of(entry.id) == "rejected"


def test_approving_in_rehearsal_is_refused_with_the_remedy(office: Office) -> None:
    entry = office.propose()
    office.reopen(live=False)
    with pytest.raises(Denied, match="rehearses") as refused:
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert refused.value.remedy.startswith("test says so. Set dry_run = false")
    assert office.state_of(entry.id) == "pending"
    office.reopen(live=False, source="default")
    with pytest.raises(Denied) as refused:
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert refused.value.remedy.startswith("Nothing says otherwise. Set dry_run = false")


def test_a_note_moved_in_rehearsal_comes_home_with_the_remedy(office: Office) -> None:
    entry = office.propose()
    office.reopen(live=False)
    office.move(entry.id, APPROVED)
    assert "rehearses" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    assert "dry_run = false" in office.page(entry.id, "")
