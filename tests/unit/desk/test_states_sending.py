"""Letters that are being sent, or may have been, line by line of the table of states."""

import shutil
from collections.abc import Callable
from functools import partial

import pytest

from postroom.core.address import Address
from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Limited,
    PostroomError,
)
from postroom.core.life import Approved, Failed, Sent, Unknown
from postroom.core.records import Entry
from postroom.core.stamp import DAY
from postroom.vault.note import Note
from tests.desks import ANN, APPROVED, DONE, FAILED, HOME, HOUR, REJECTED, SEND, Office, state
from tests.providers import BARRED, BUSY, LOST, Courier

# sending


def test_an_accepted_letter_is_sent_and_its_note_done(office: Office) -> None:
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == DONE
    assert office.field(entry.id, "status") == "done"
    assert office.look() == ""
    assert office.where(entry.id) == DONE


def test_recipients_that_were_refused_are_listed_and_not_tried_again(
    office: Office, courier: Courier
) -> None:
    bob = Address.parse("bob@example.com")
    courier.turns_down(bob)
    entry = office.approved(to=(ANN, bob))
    office.desk.send_approved()
    assert state(office, entry.id, Sent).refused == ("bob@example.com",)
    assert "not to bob@example.com" in office.head(entry.id)
    assert office.where(entry.id) == DONE
    office.clock.go(DAY)
    office.desk.send_approved()
    assert courier.tried == 1


@pytest.mark.parametrize(
    ("why", "wait"),
    [
        (BUSY, 1),
        (Limited("slow down", seconds=600), 600),
        (Limited("slow down", seconds=0.5), 1),
        (AuthRequired("no token", remedy="Sign in again."), 30),
    ],
)
def test_a_refusal_for_now_leaves_the_letter_approved_with_reason_and_next_try(
    office: Office, courier: Courier, why: PostroomError, wait: int
) -> None:
    courier.refuses(why)
    entry = office.approved()
    office.desk.send_approved()
    held = state(office, entry.id, Approved)
    told = f"{why.message}. {why.remedy}" if why.code == "auth_required" else why.message
    assert (held.held, held.wait) == (told, wait)
    assert office.where(entry.id) == APPROVED
    assert why.message in office.head(entry.id)
    office.clock.go(wait - 1)
    assert office.desk.send_approved() == []
    office.clock.go(1)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert courier.tried == 2


def test_each_further_refusal_waits_longer(office: Office, courier: Courier) -> None:
    courier.refuses(times=9)
    entry, waits = office.approved(), []
    for _ in range(9):
        office.desk.send_approved()
        waits.append(state(office, entry.id, Approved).wait)
        office.clock.go(waits[-1])
    assert waits == [1, 4, 30, 60, 120, 300, 900, 1800, 3600]


def test_a_letter_refused_for_24_hours_fails(office: Office, courier: Courier) -> None:
    courier.refuses(times=1000)
    entry, start = office.approved(), office.clock.wall
    while office.state_of(entry.id) == "approved":
        office.desk.send_approved()
        office.clock.go(600)
        assert office.clock.wall - start < 2 * DAY
    assert office.clock.wall - start >= DAY
    failed = state(office, entry.id, Failed)
    assert "24 hours" in failed.reason
    assert BUSY.message in failed.reason
    assert office.where(entry.id) == FAILED


def test_where_the_log_cannot_be_written_no_byte_leaves_and_it_is_tried_again(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    logs = office.vault / "Logs"

    def replace_logs() -> None:
        logs.rename(office.folder / "away")
        logs.touch()

    office.at("claimed", replace_logs)
    office.desk.dispatcher.dispatch(entry.id)
    assert office.state_of(entry.id) == "approved"
    assert courier.tried == 0
    logs.unlink()
    (office.folder / "away").rename(logs)
    office.clock.go(30)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


def test_a_final_refusal_fails_the_letter(office: Office, courier: Courier) -> None:
    courier.refuses(BARRED)
    entry = office.approved()
    office.desk.send_approved()
    assert state(office, entry.id, Failed).reason == BARRED.message
    assert office.where(entry.id) == FAILED
    assert office.field(entry.id, "status") == "failed"
    office.clock.go(DAY)
    office.desk.send_approved()
    assert courier.tried == 1


STRANGE = (LOST, OSError("broken pipe"), ValueError("what?"))


@pytest.mark.parametrize("why", STRANGE)
def test_an_uncertain_letter_that_the_provider_has_is_sent(
    office: Office, courier: Courier, why: Exception
) -> None:
    courier.loses(why, after=True)
    entry = office.approved()
    office.desk.send_approved()
    assert state(office, entry.id, Sent).how == "proved by the provider"
    assert office.where(entry.id) == DONE
    assert len(courier.accepted) == 1


@pytest.mark.parametrize("why", STRANGE)
def test_an_uncertain_letter_that_the_provider_proves_unsent_goes_back_to_approved(
    office: Office, courier: Courier, why: Exception
) -> None:
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
    office: Office, courier: Courier, why: Exception, after: bool
) -> None:
    courier.settles = False
    courier.loses(why, after=after)
    entry = office.approved()
    office.desk.send_approved()
    assert "keeps no record" in state(office, entry.id, Unknown).why
    assert office.where(entry.id) == APPROVED
    assert office.field(entry.id, "status") == "unknown"
    assert f"postroom resolve {entry.id} --sent" in office.head(entry.id)


def test_a_letter_whose_fate_is_unknown_is_never_sent_again(
    office: Office, courier: Courier
) -> None:
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


def test_only_that_it_was_sent_can_be_news_of_an_unknown_letter(
    office: Office, courier: Courier
) -> None:
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
    office: Office, courier: Courier, step: str
) -> None:
    entry = office.approved()
    office.killed_at(step)
    assert office.state_of(entry.id) == "sending"
    office.desk.send_approved()
    assert office.state_of(entry.id) == "approved"
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 1


def test_a_claim_whose_owner_died_after_sending_is_sent_by_the_providers_proof(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.killed_at("answered")
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == DONE
    assert len(courier.accepted) == 1


@pytest.mark.parametrize("step", ["claimed", "published", "answered"])
def test_a_claim_whose_owner_died_is_unknown_where_nothing_is_proved(
    office: Office, courier: Courier, step: str
) -> None:
    courier.settles = False
    entry = office.approved()
    office.killed_at(step)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "unknown"
    assert "its sender died" in state(office, entry.id, Unknown).why
    assert office.where(entry.id) == APPROVED


def test_a_crash_before_the_claim_changes_nothing(office: Office, courier: Courier) -> None:
    for step in ("locked", "checked"):
        entry = office.approved()
        office.killed_at(step)
        assert office.state_of(entry.id) == "approved"
        office.desk.send_approved()
        assert office.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 2


def test_a_crash_after_the_record_leaves_only_the_note_behind(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.killed_at("recorded")
    assert office.state_of(entry.id) == "sent"
    office.look()
    assert office.where(entry.id) == DONE
    assert office.field(entry.id, "status") == "done"
    assert len(courier.accepted) == 1


def test_what_is_done_to_the_note_of_a_letter_being_sent_is_ignored_until_the_outcome(
    office: Office,
) -> None:
    said: list[str] = []

    def act(touch: Callable[[str], object], id: str) -> None:
        touch(id)
        said[:] = [office.look(), office.state_of(id)]

    touches: tuple[Callable[[str], object], ...] = (
        lambda id: office.move(id, HOME),
        lambda id: office.move(id, REJECTED),
        lambda id: office.edit(id, "Good day", "Good evening"),
    )
    for touch in touches:
        entry = office.approved()
        said.clear()
        office.at("published", partial(act, touch, entry.id))
        office.desk.send_approved()
        assert said == ["", "sending"]
        office.look()
        assert office.state_of(entry.id) == "sent"
        assert office.where(entry.id) == DONE


def test_a_sent_letters_note_deleted_while_it_was_sent_stays_gone(office: Office) -> None:
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
    office: Office, courier: Courier, folder: str, kind: str, looked: bool
) -> None:
    courier.refuses()
    entry = office.approved()

    def touch() -> None:
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


def test_a_no_given_while_it_was_sent_is_still_found_long_after_the_first_look(
    office: Office,
) -> None:
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


def test_a_move_made_while_a_letter_is_held_counts(office: Office) -> None:
    for folder, kind in ((HOME, "pending"), (REJECTED, "rejected")):
        entry = office.approved()
        (office.vault / "PAUSED").touch()
        office.at("locked", partial(office.move, entry.id, folder))
        office.desk.send_approved()
        office.look()
        assert office.state_of(entry.id) == kind
        (office.vault / "PAUSED").unlink()
        office.desk.send_approved()
    assert office.sent() == []


# unknown


def test_an_unknown_letter_resolved_as_sent_is_sent_and_done(office: Office, lost: Entry) -> None:
    office.desk.decide(lost.id, "resolve", by="ada", sent=True)
    assert state(office, lost.id, Sent).how == "resolved by ada"
    assert office.where(lost.id) == DONE
    assert office.field(lost.id, "status") == "done"


def test_an_unknown_letter_resolved_as_not_sent_waits_at_home_for_a_new_verdict(
    office: Office, courier: Courier, lost: Entry
) -> None:
    office.desk.decide(lost.id, "resolve", by="ada", sent=False)
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
def test_an_unknown_letters_note_that_was_moved_is_put_back_and_said(
    office: Office, lost: Entry, folder: str
) -> None:
    if folder:
        office.move(lost.id, folder)
    else:
        office.note(lost.id).unlink()
    said = office.look()
    assert office.state_of(lost.id) == "unknown"
    assert APPROVED in [note.parent.name for note in office.notes(lost.id)]
    assert lost.id in said
    assert office.look() == ""


def test_an_unknown_letters_note_that_was_renamed_is_still_its_note_beside_a_copy(
    office: Office, lost: Entry
) -> None:
    note = office.note(lost.id)
    renamed = note.rename(note.with_name("renamed.md"))
    shutil.copy(renamed, office.vault / HOME / "copy.md")
    assert "copy" in office.look()
    office.desk.decide(lost.id, "resolve", by="ada", sent=True)
    assert not renamed.exists()
    done = Note.parse((office.vault / DONE / "renamed.md").read_bytes())
    assert done.text("status") == "done"


@pytest.mark.parametrize("act", ["approve", "reject", "withdraw", "recall"])
def test_an_unknown_letter_takes_no_other_verdict(office: Office, lost: Entry, act: str) -> None:
    acts = {
        "approve": lambda: office.desk.approve(lost.id, by="ada", digest=lost.digest),
        "reject": lambda: office.desk.decide(lost.id, "reject", by="ada", reason=""),
        "withdraw": lambda: office.desk.calls.withdraw(SEND, lost.id),
        "recall": lambda: office.desk.decide(lost.id, "undo"),
    }
    with pytest.raises(Conflict, match="may or may not have been sent"):
        acts[act]()
    assert office.state_of(lost.id) == "unknown"


def test_only_an_unknown_letter_is_resolved(office: Office) -> None:
    entry = office.propose()
    with pytest.raises(Conflict, match="waits for a person"):
        office.desk.decide(entry.id, "resolve", by="ada", sent=True)


def test_a_letter_resolved_in_the_moment_in_which_the_provider_is_asked_is_no_error(
    office: Office, lost: Entry
) -> None:
    office.clock.go(60)
    office.at("locked", lambda: office.desk.decide(lost.id, "resolve", by="ada", sent=True))
    assert office.desk.dispatch(lost.id).kind == "sent"
    assert office.where(lost.id) == DONE
