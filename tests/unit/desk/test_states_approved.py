"""Approved letters, line by line of the table of states; who else may be at them."""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.core.errors import Conflict, Unavailable
from postroom.core.life import Approved, Failed, Sending
from postroom.core.policy import BACK_OFF
from postroom.core.records import Entry
from postroom.core.stamp import DAY
from postroom.vault.vault import Files, Vault
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
from tests.narrow import narrow
from tests.providers import Courier

# approved


def undone(office: Office, entry: Entry) -> None:
    office.desk.decide(entry.id, "undo")


def moved_home(office: Office, entry: Entry) -> None:
    office.move(entry.id, HOME)
    assert f"The letter {entry.id} was recalled" in office.look()


def deleted(office: Office, entry: Entry) -> None:
    office.note(entry.id).unlink()
    assert f"The letter {entry.id} was recalled" in office.look()


def edited(office: Office, entry: Entry) -> None:
    office.edit(entry.id, "Good day", "Good evening")
    assert f"The letter {entry.id} was recalled" in office.look()
    assert "Good evening" in office.page(entry.id, "Letter")


def moved_away(office: Office, entry: Entry) -> None:
    office.move(entry.id, "Archive").unlink()
    assert f"The letter {entry.id} was recalled" in office.look()


@pytest.mark.parametrize("recall", [undone, moved_home, deleted, edited, moved_away])
def test_an_approval_taken_back_makes_the_letter_wait_at_home(
    office: Office, recall: Callable[[Office, Entry], None]
) -> None:
    entry = office.approved()
    recall(office, entry)
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    office.clock.go(HOUR)
    assert office.desk.send_approved() == []
    assert office.sent() == []
    assert office.look() == ""


def test_a_recalled_letter_has_72_fresh_hours(office: Office) -> None:
    entry = office.propose()
    office.clock.go(THREE_DAYS - HOUR)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.desk.decide(entry.id, "undo")
    office.clock.go(2 * HOUR)
    office.look()
    assert office.state_of(entry.id) == "pending"


@pytest.mark.parametrize(
    "broken", [b"---\n[broken\n---\n", b"\xff\xfe\x00", b"---\nletter: x\n", b""]
)
def test_a_note_that_is_broken_after_the_approval_takes_it_back(
    office: Office, broken: bytes
) -> None:
    entry = office.approved()
    office.note(entry.id).write_bytes(broken)
    office.look()
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert office.sent() == []
    assert office.state_of(entry.id) == "pending"


def test_an_approved_letters_note_may_be_renamed_and_given_keys(office: Office) -> None:
    entry = office.approved()
    office.edit(entry.id, 'status: "approved"', 'status: "approved"\ntags: [mine]')
    note = office.note(entry.id)
    note.rename(note.with_name("renamed.md"))
    assert office.look() == ""
    assert office.state_of(entry.id) == "approved"
    office.desk.send_approved()
    assert office.note(entry.id) == office.vault / DONE / "renamed.md"
    assert office.field(entry.id, "tags") == "mine"


def test_an_approved_letters_note_moved_to_rejected_rejects_it(office: Office) -> None:
    entry = office.approved()
    office.move(entry.id, REJECTED)
    office.look()
    assert office.state_of(entry.id) == "rejected"
    assert office.where(entry.id) == REJECTED
    assert office.desk.send_approved() == []


def test_an_approved_letter_can_be_rejected_in_the_terminal(office: Office) -> None:
    entry = office.approved()
    office.desk.decide(entry.id, "reject", by="ada", reason="On second thought")
    assert office.where(entry.id) == REJECTED


def test_an_approved_letter_can_be_withdrawn(office: Office) -> None:
    entry = office.approved()
    assert office.desk.calls.withdraw(SEND, entry.id).kind == "withdrawn"
    assert office.where(entry.id) == REJECTED
    assert office.desk.send_approved() == []


def test_a_claimed_letter_is_sending_and_its_note_stays_in_approved(office: Office) -> None:
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


def test_the_claim_is_on_disk_and_in_the_log_before_a_byte_leaves(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    found: list[object] = []

    def watch(name: str) -> None:
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


def test_the_ledger_keeps_the_hash_of_the_very_bytes_that_left(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.desk.send_approved()
    claimed = narrow(office.desk.ledger.letters.past_states(entry.id)[-2], Sending)
    assert claimed.wire == hashlib.sha256(courier.accepted[0].wire).hexdigest()


@pytest.mark.parametrize("name", ["PAUSED", "PAUSED.md"])
def test_while_paused_an_approved_letter_is_held_with_the_reason(office: Office, name: str) -> None:
    entry = office.approved()
    (office.vault / name).touch()
    office.desk.send_approved()
    assert "paused" in state(office, entry.id, Approved).held
    assert office.where(entry.id) == APPROVED
    assert "paused" in office.head(entry.id)
    (office.vault / name).unlink()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


def test_in_rehearsal_an_approved_letter_is_held_with_the_reason(office: Office) -> None:
    entry = office.approved()
    office.reopen(live=False)
    office.desk.send_approved()
    assert "rehearses" in state(office, entry.id, Approved).held
    assert office.where(entry.id) == APPROVED
    assert "rehearses" in office.head(entry.id)
    office.reopen(live=True)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


@pytest.mark.parametrize(
    ("rules", "wait"), [({"sends_per_hour": 1}, "1 hour"), ({"sends_per_pace": 1}, "60 seconds")]
)
def test_without_budget_or_pace_an_approved_letter_is_held_with_reason_and_next_try(
    office: Office, rules: dict[str, int], wait: str
) -> None:
    office.reopen(**rules)
    first, second = office.approved(), office.approved()
    office.desk.send_approved()
    assert [office.state_of(e.id) for e in (first, second)] == ["sent", "approved"]
    held = state(office, second.id, Approved)
    assert "Rate limit exceeded (1 emails/" in held.held
    told = office.head(second.id)
    assert "Rate limit exceeded" in told
    assert "may leave from 2026-11-15 " in told
    office.clock.go(held.wait)
    office.desk.send_approved()
    assert office.state_of(second.id) == "sent"


def test_a_recipient_denied_since_the_approval_fails_the_letter(office: Office) -> None:
    entry = office.approved()
    office.reopen(deny=("example.com",))
    office.desk.send_approved()
    assert "no mail" in state(office, entry.id, Failed).reason
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
def test_bytes_that_are_not_the_approved_letter_fail_it_and_none_leaves(
    office: Office, courier: Courier, forges: Callable[[bytes], bytes]
) -> None:
    courier.forges = forges
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "failed"
    assert office.where(entry.id) == FAILED
    assert courier.tried == 0


def test_a_letter_changed_in_the_ledger_after_the_verdict_fails(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    with sqlite3.connect(office.state / "ledger.sqlite") as other:
        other.execute("UPDATE letter SET frozen = replace(frozen, 'Good day', 'Bad day')")
    other.close()
    office.desk.send_approved()
    assert "digest" in state(office, entry.id, Failed).reason
    assert office.where(entry.id) == FAILED
    assert courier.tried == 0


# approve beside another dispatcher


def test_whoever_loses_the_claim_sees_that_the_letter_is_being_sent_and_sends_nothing(
    office: Office, courier: Courier
) -> None:
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
def test_a_letter_taken_back_before_the_claim_is_not_sent_and_no_error(
    office: Office, courier: Courier, step: str, act: str
) -> None:
    entry = office.approved()
    other = office.beside()
    if act == "deny":
        office.reopen(deny=("ann@example.com",))
    acts = {
        "undo": lambda: other.desk.decide(entry.id, "undo"),
        "deny": lambda: other.desk.decide(entry.id, "undo"),
        "reject": lambda: other.desk.decide(entry.id, "reject", by="ada", reason=""),
        "withdraw": lambda: other.desk.calls.withdraw(SEND, entry.id),
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
def test_a_letter_cannot_be_taken_back_after_the_claim(
    office: Office, courier: Courier, step: str, act: str
) -> None:
    entry, told = office.approved(), []
    acts = {
        "undo": lambda: office.desk.decide(entry.id, "undo"),
        "reject": lambda: office.desk.decide(entry.id, "reject", by="ada", reason=""),
        "withdraw": lambda: office.desk.calls.withdraw(SEND, entry.id),
    }

    def late() -> None:
        with pytest.raises(Conflict, match="is being sent") as refused:
            acts[act]()
        told.append(refused.value.message)

    office.at(step, late)
    office.desk.send_approved()
    assert len(told) == 1
    assert office.state_of(entry.id) == "sent"


def test_of_two_who_approve_at_once_one_is_told_what_the_other_did(office: Office) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    with pytest.raises(Conflict, match=r"approved at .* by ada"):
        office.desk.approve(entry.id, by="bea", digest=entry.digest)


def test_a_repeated_call_for_an_approved_letter_waits_out_the_undo_window_and_answers_sent(
    office: Office,
) -> None:
    letter = office.letter()
    office.propose(letter)
    office.move(letter.id, APPROVED)
    start = office.clock.wall
    answer = office.propose(replace(letter, id="bbbbbbbbbb"))
    assert (answer.id, answer.kind) == (letter.id, "sent")
    assert office.clock.wall - start == 10
    assert office.where(letter.id) == DONE
    assert office.sent() == ["Hello"]


def test_a_repeated_call_for_a_letter_whose_sender_died_answers_with_what_became_of_it(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.killed_at("answered")
    answer = office.propose(replace(entry.letter, id="bbbbbbbbbb"))
    assert (answer.id, answer.kind) == (entry.id, "sent")
    assert len(courier.accepted) == 1


# who looks at folders


def test_a_call_for_status_sees_what_was_done_to_the_note(office: Office) -> None:
    entry = office.propose()
    office.move(entry.id, REJECTED)
    assert office.desk.calls.status(SEND, entry.id).kind == "rejected"


def test_a_withdrawal_sees_what_was_done_to_the_note(office: Office) -> None:
    entry = office.propose()
    office.move(entry.id, REJECTED)
    with pytest.raises(Conflict, match="was rejected"):
        office.desk.calls.withdraw(SEND, entry.id)


def test_notes_that_nobody_touched_are_not_read_again(office: Office, tmp_path: Path) -> None:
    entries = [office.propose() for _ in range(3)]
    office.clock.jump(10 * 365 * DAY)  # long after every file was written
    office.look()
    for entry in entries:
        note = office.note(entry.id)
        seen = note.stat()
        note.write_bytes(b"?" * seen.st_size)
        os.utime(note, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert office.look() == ""


def test_a_call_takes_nothing_from_plans(office: Office) -> None:
    plan = office.write(
        "Plans/p.md", "---\ntype: email_send\nstatus: pending\nto: ann@example.com\n---\n"
    )
    office.propose()
    office.look()
    assert plan.exists()


class Gone(Vault):
    """A vault on a disk that was taken away."""

    def list(self, folder: str) -> Files:
        raise Unavailable("The disk is gone")


def test_a_letter_whose_touched_note_cannot_be_looked_at_is_held_and_tried_again(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.note(entry.id).touch()
    office.vaults = Gone
    office.reopen()
    office.desk.send_approved()
    held = state(office, entry.id, Approved)
    assert (held.held, held.code) == ("The disk is gone", Unavailable.code)
    assert courier.tried == 0
    office.vaults = Vault
    office.reopen()
    office.clock.go(BACK_OFF[0])
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
