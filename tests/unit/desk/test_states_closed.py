"""Closed letters, line by line of the table of states; and ledgers put back from a backup."""

import shutil
from collections.abc import Callable

import pytest

from postroom.core import life
from postroom.core.life import Approved, Unknown
from postroom.core.records import Entry
from tests.desks import (
    APPROVED,
    DONE,
    HOME,
    HOUR,
    SEND,
    THREE_DAYS,
    Dead,
    Office,
    state,
)
from tests.posting import post
from tests.providers import BARRED, Courier

# closed


def test_a_sent_letters_note_moved_to_approved_is_put_back_and_said(
    office: Office, courier: Courier
) -> None:
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
    office: Office, courier: Courier, kind: str
) -> None:
    entry = closed(office, courier, kind)
    (office.vault / APPROVED).mkdir(exist_ok=True)
    shutil.copy(office.note(entry.id), office.vault / APPROVED / "copy.md")
    assert entry.id in office.look()
    assert office.state_of(entry.id) == kind


def test_a_copy_of_a_sent_letters_note_in_approved_sends_nothing(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.desk.send_approved()
    shutil.copy(office.note(entry.id), office.vault / APPROVED / "again.md")
    assert entry.id in office.look()
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert len(courier.accepted) == 1
    assert not (office.vault / APPROVED / "again.md").exists()


def closed(office: Office, courier: Courier, kind: str) -> Entry:
    """Return a letter that was closed without being sent."""
    if kind == "failed":
        courier.refuses(BARRED)
        entry = office.approved()
        office.desk.send_approved()
        return entry
    entry = office.propose()
    if kind == "rejected":
        office.desk.decide(entry.id, "reject", by="ada", reason="No")
    elif kind == "withdrawn":
        office.desk.calls.withdraw(SEND, entry.id)
    else:
        office.clock.go(THREE_DAYS)
        office.look()
    assert office.state_of(entry.id) == kind
    return entry


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "expired", "failed"])
def test_a_closed_letters_note_moved_to_approved_opens_it_again_with_72_fresh_hours(
    office: Office, courier: Courier, kind: str
) -> None:
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
def test_a_closed_letters_note_moved_home_goes_back(
    office: Office, courier: Courier, kind: str
) -> None:
    entry = closed(office, courier, kind)
    right = office.where(entry.id)
    office.move(entry.id, HOME)
    assert entry.id in office.look()
    assert office.state_of(entry.id) == kind
    assert office.where(entry.id) == right


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "expired", "failed", "sent"])
def test_a_closed_letters_deleted_note_stays_gone(
    office: Office, courier: Courier, kind: str
) -> None:
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


# restored ledgers

Backup = tuple[Callable[[], None], Callable[[], None]]


@pytest.fixture
def backup(office: Office) -> Backup:
    """Return how to keep a copy of the ledger, and how to put it back."""
    kept = office.folder / "backup.sqlite"

    def keep() -> None:
        office.close()
        shutil.copy(office.state / "ledger.sqlite", kept)
        office.open()

    def put_back() -> None:
        office.close()
        for file in office.state.glob("ledger.sqlite*"):
            file.unlink()
        shutil.copy(kept, office.state / "ledger.sqlite")
        office.open()

    return keep, put_back


def test_after_a_restored_backup_a_letter_sent_since_is_sent_and_not_sent_again(
    office: Office, courier: Courier, backup: Backup
) -> None:
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
        (lambda o, e: o.desk.decide(e.id, "reject", by="ada", reason="no"), "rejected"),
        (lambda o, e: o.desk.calls.withdraw(SEND, e.id), "withdrawn"),
        (lambda o, e: (o.clock.go(THREE_DAYS), o.desk.reconcile()), "expired"),
    ],
)
def test_after_a_restored_backup_letters_take_the_state_that_the_log_gives(
    office: Office,
    backup: Backup,
    since: Callable[[Office, Entry], object],
    kind: str,
) -> None:
    keep, put_back = backup
    entry = office.propose()
    keep()
    since(office, entry)
    put_back()
    office.look()
    assert office.state_of(entry.id) == kind


def test_after_a_restored_backup_a_letter_recalled_since_waits_as_the_log_says(
    office: Office, backup: Backup
) -> None:
    keep, put_back = backup
    entry = office.approved()
    keep()
    office.desk.decide(entry.id, "undo")
    put_back()
    office.look()
    assert office.state_of(entry.id) == "pending"


@pytest.mark.parametrize("kind", ["rejected", "withdrawn", "failed"])
def test_after_a_restored_backup_a_closed_letter_that_was_opened_and_sent_since_is_sent(
    office: Office,
    courier: Courier,
    backup: Backup,
    kind: str,
) -> None:
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
    office: Office, lost: Entry, backup: Backup
) -> None:
    keep, put_back = backup
    keep()
    office.desk.decide(lost.id, "resolve", by="ada", sent=True)
    put_back()
    office.look()
    assert office.state_of(lost.id) == "sent"


def test_after_a_restored_backup_all_other_open_letters_are_unknown(
    office: Office, courier: Courier, backup: Backup
) -> None:
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
        assert "backup" in state(office, entry.id, Unknown).why
    office.desk.send_approved()
    assert courier.tried == 0


def test_after_a_restored_backup_the_log_still_verifies_and_is_said_once(
    office: Office, backup: Backup
) -> None:
    keep, put_back = backup
    office.propose()
    keep()
    office.propose()
    put_back()
    office.look()
    assert "ahead of the ledger" not in office.look()
    assert office.desk.log.verify() == []


def test_after_a_restored_backup_what_was_spent_since_stays_spent(
    office: Office, backup: Backup
) -> None:
    keep, put_back = backup
    office.reopen(sends_per_hour=1)
    office.propose()
    keep()
    office.approved()
    office.desk.send_approved()
    put_back()
    office.look()
    later = office.approved()
    office.desk.send_approved()
    assert "Rate limit exceeded" in state(office, later.id, Approved).held


def test_what_was_sent_while_a_call_waited_is_sent_after_a_restored_backup(
    office: Office, courier: Courier, backup: Backup
) -> None:
    keep, put_back = backup
    letter = office.letter()
    entry = post(office.desk, SEND, letter)
    office.desk.verdicts.approve(entry, by="ada", via=life.Channel.TERMINAL, digest=entry.digest)
    keep()
    waiting = office.desk.calls.posting(SEND, letter)  # again, while the undo window is open
    assert next(waiting) > 0
    office.clock.go(60)
    office.desk.send_approved()
    waiting.close()  # the client gave up
    office.desk.flush_log()
    put_back()
    office.look()
    assert office.state_of(entry.id) == "sent"
    office.desk.send_approved()
    assert len(courier.accepted) == 1
