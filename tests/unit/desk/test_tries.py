"""Between two tries of one call, while it waits, the letter is as free as any that is approved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.core.life import Approved
from postroom.core.records import Entry
from postroom.desk.proposals import Proposal
from tests.desks import SEND, Office, state
from tests.posting import post
from tests.providers import BUSY, Courier

Act = Callable[[Office, str], object]


def between(office: Office, act: Callable[[], object]) -> None:
    """Let somebody act once, when a call first waits."""

    def sleep(seconds: float) -> None:
        office.sleep = office.clock.go
        office.clock.go(seconds)
        act()

    office.sleep = sleep


def call(office: Office, entry: Entry) -> Entry:
    """Let the agent make the call again whose letter this is."""
    return post(office.desk, SEND, replace(entry.letter, id="zzzzzzzzzz"))


def reject(office: Office, id: str) -> object:
    return office.desk.decide(id, "reject", by="ada", reason="no")


def undo(office: Office, id: str) -> object:
    return office.desk.decide(id, "undo", by="ada")


def withdraw(office: Office, id: str) -> object:
    return office.desk.calls.withdraw(SEND._replace(action_type="withdraw"), id)


def move_home(office: Office, id: str) -> object:
    return office.move(id, "Pending_Approval")


def move_away(office: Office, id: str) -> object:
    return office.move(id, "Rejected")


def remove(office: Office, id: str) -> None:
    office.note(id).unlink()


def pause(office: Office, _id: str) -> None:
    (office.vault / "PAUSED").touch()


def spend_budget(office: Office, _id: str) -> object:
    other = office.approved(subject="Another")
    return office.desk.dispatch(other.id)


@pytest.mark.parametrize(
    ("act", "outcome", "others"),
    [
        (reject, "rejected", 0),
        (undo, "pending", 0),
        (withdraw, "withdrawn", 0),
        (move_home, "pending", 0),
        (move_away, "rejected", 0),
        (remove, "pending", 0),
        (pause, "approved", 0),
        (spend_budget, "approved", 1),
    ],
)
def test_what_stops_a_letter_stops_it_between_two_tries_of_a_call(
    office: Office, courier: Courier, act: Act, outcome: str, others: int
) -> None:
    office.reopen(undo_seconds=0, sends_per_hour=1)
    entry = office.approved()
    courier.refuses(BUSY)
    between(office, lambda: act(office, entry.id))
    assert call(office, entry).kind == outcome
    assert office.state_of(entry.id) == outcome
    assert courier.tried == 1 + others
    assert [one.letter.id for one in courier.accepted].count(entry.id) == 0


def test_a_slip_that_is_removed_between_two_tries_recalls_its_letter(
    office: Office, courier: Courier
) -> None:
    slip = office.write("Approved/s.md", "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n")  # fmt: skip
    courier.refuses(BUSY)
    between(office, slip.unlink)
    assert post(office.desk, SEND, office.letter(), slips=True).kind == "pending"
    assert (courier.tried, courier.accepted) == (1, [])


def test_a_letter_that_was_edited_between_two_tries_is_sent_as_approved_anew(
    office: Office, courier: Courier
) -> None:
    office.reopen(undo_seconds=0)
    entry = office.approved()

    def edit() -> None:
        undo(office, entry.id)
        office.desk.edit(entry.id, replace(entry.letter, text="At five.\n"))
        new = office.desk.ledger.letters.get(entry.id)
        office.desk.approve(entry.id, by="ada", digest=new.digest)

    courier.refuses(BUSY)
    between(office, edit)
    call(office, entry)
    office.desk.send_approved()
    assert [one.letter.text for one in courier.accepted] == ["At five.\n"]


def test_another_process_that_sends_the_letter_between_two_tries_sends_it_alone(
    office: Office, courier: Courier
) -> None:
    office.reopen(undo_seconds=0)
    entry = office.approved()
    with closing(office.beside()) as other:

        def send() -> None:
            other.clock.go(60)
            (sent,) = other.desk.send_approved()
            assert sent.kind == "sent"

        courier.refuses(BUSY)
        between(office, send)
        assert call(office, entry).kind == "sent"
    assert (courier.tried, len(courier.accepted)) == (2, 1)
    assert office.where(entry.id) == "Done"


def test_the_same_call_in_another_process_between_two_tries_sends_one_letter(
    office: Office, courier: Courier
) -> None:
    office.reopen(undo_seconds=0)
    entry = office.approved()
    with closing(office.beside()) as other:
        courier.refuses(BUSY)
        between(office, lambda: call(other, entry))
        assert call(office, entry).kind == "sent"
    assert len(courier.accepted) == 1


def test_a_call_that_is_given_up_between_two_tries_leaves_its_letter_approved(
    office: Office, courier: Courier
) -> None:
    office.reopen(undo_seconds=0)
    entry = office.approved()
    courier.refuses(BUSY)
    running = office.desk.calls.posting(SEND, entry.letter, Proposal())
    assert next(running) == 1
    running.close()
    assert state(office, entry.id, Approved).tries == 1
    office.clock.go(60)
    office.desk.send_approved()
    office.desk.send_approved()
    assert (office.state_of(entry.id), len(courier.accepted)) == ("sent", 1)
    assert office.desk.log.verify() == []


def test_each_try_of_a_call_takes_one_place_of_the_budget_while_it_lasts(
    office: Office, courier: Courier
) -> None:
    office.reopen(undo_seconds=0, sends_per_hour=1)
    entry = office.approved()
    courier.refuses(BUSY, times=2)
    used: list[int] = []
    between(office, lambda: used.append(office.desk.meter().sent))
    assert call(office, entry).kind == "sent"
    assert (used, office.desk.meter().sent) == ([0], 1)
    assert (courier.tried, len(courier.accepted)) == (3, 1)


def test_a_process_that_dies_between_two_tries_leaves_its_letter_approved(
    office: Office, courier: Courier, tmp_path: Path
) -> None:
    office.reopen(undo_seconds=0)
    entry = office.approved()
    courier.refuses(BUSY)
    running = office.desk.calls.posting(SEND, entry.letter, Proposal())
    next(running)
    with closing(Office(tmp_path, after=60)) as successor:  # the other one does nothing more
        successor.wrap = courier
        successor.reopen(undo_seconds=0)
        successor.clock.go(60)
        successor.desk.send_approved()
        assert successor.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 1
    with pytest.raises(StopIteration) as late:  # it had only stalled
        next(running)
    assert late.value.value.kind == "sent"
    assert len(courier.accepted) == 1
