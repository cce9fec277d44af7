"""What the desk asks of the vault: one look at the folders for each call."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from postroom.core.errors import Unavailable
from postroom.core.records import Entry
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.vault import Files, Vault
from tests.desks import APPROVED, HOME, SEND, Office
from tests.posting import post
from tests.providers import Courier

SLIP = "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n"


class CountingVault(Vault):
    """A vault that counts how often each folder is listed."""

    listed: ClassVar[Counter[str]] = Counter()

    def list(self, folder: str) -> Files:
        CountingVault.listed[folder] += 1
        return super().list(folder)


@pytest.fixture
def counted(office: Office) -> Office:
    office.vaults = CountingVault
    office.reopen()
    CountingVault.listed.clear()
    return office


def listings(act: object) -> int:
    """Return how often the folder that was listed most was listed, and count anew."""
    del act
    most = max(CountingVault.listed.values(), default=0)
    CountingVault.listed.clear()
    return most


def test_the_folders_are_listed_once_for_a_call_and_not_at_all_by_the_person(
    counted: Office,
) -> None:
    entry = counted.propose()
    assert listings(entry) == 1
    counted.desk.approve(entry.id, by="ada", digest=entry.digest)
    counted.clock.go(10)
    assert listings(counted.desk.dispatch(entry.id)) == 0
    assert counted.state_of(entry.id) == "sent"


def test_a_call_that_a_slip_lets_out_lists_the_folders_once(counted: Office) -> None:
    counted.write("Approved/slip.md", SLIP)
    entry = post(counted.desk, SEND, counted.letter(), slips=True)
    assert (entry.kind, listings(entry)) == ("sent", 1)
    assert (counted.vault / "Done" / "slip.md").exists()


def test_a_note_taken_back_before_sending_is_noticed_without_a_reconcile_in_between(
    counted: Office,
) -> None:
    entry = counted.approved()
    CountingVault.listed.clear()
    counted.move(entry.id, HOME)
    assert listings(counted.desk.dispatch(entry.id)) == 1
    assert counted.state_of(entry.id) == "pending"


def slip_call(office: Office) -> Entry:
    """Have a letter approved by a slip that a person takes back just before it is sent."""
    slip = office.write(f"{APPROVED}/slip.md", SLIP)
    office.at("locked", slip.unlink)
    return post(office.desk, SEND, office.letter(), slips=True)


def test_a_slip_taken_back_before_sending_is_noticed(office: Office) -> None:
    entry = slip_call(office)
    assert entry.kind == "pending"
    assert office.sent() == []


def test_a_slip_edited_before_sending_lets_nothing_out(office: Office, courier: Courier) -> None:
    slip = office.write(f"{APPROVED}/slip.md", SLIP)
    office.at("locked", lambda: slip.write_text(SLIP.replace("ann@", "bob@")))
    entry = post(office.desk, SEND, office.letter(), slips=True)
    assert (entry.kind, office.sent()) == ("pending", [])
    assert courier.tried == 0


def test_a_slip_edited_before_sending_is_noticed_though_size_time_and_inode_are_the_same(
    office: Office, courier: Courier
) -> None:
    slip = office.write(f"{APPROVED}/slip.md", SLIP)

    def edit() -> None:
        was = slip.stat()
        slip.write_text(SLIP.replace("ann@", "bob@"))
        os.utime(slip, ns=(was.st_atime_ns, was.st_mtime_ns))
        assert (slip.stat().st_ino, slip.stat().st_size) == (was.st_ino, was.st_size)

    office.at("locked", edit)
    entry = post(office.desk, SEND, office.letter(), slips=True)
    assert (entry.kind, office.sent()) == ("pending", [])
    assert courier.tried == 0


class BusyLedger(SqliteLedger):
    """A ledger that another process keeps busy at every other change that need not be synced."""

    is_busy: ClassVar[bool] = False

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        if not synced and self.path.with_suffix(".busy").exists():
            BusyLedger.is_busy = not BusyLedger.is_busy
            if BusyLedger.is_busy:
                raise Unavailable("The ledger is in use by another process")
        with super().write(synced=synced, early=early) as tx:
            yield tx


def test_a_busy_ledger_takes_no_approval_back_for_a_note_that_stands_where_it_stood(
    office: Office,
) -> None:
    entry = office.approved()
    office.ledgers = BusyLedger
    desk = office.reopen()
    path = office.vault / desk.ledger.notes.location(entry.id).path
    os.utime(path, (1, 1))  # a sync client set its time, and changed nothing
    busy = desk.ledger.path.with_suffix(".busy")
    busy.touch()
    with pytest.raises(Unavailable, match="in use"):
        desk.reconcile()
    assert office.state_of(entry.id) == "approved"
    busy.unlink()
    desk.reconcile()
    assert office.state_of(entry.id) == "approved"
