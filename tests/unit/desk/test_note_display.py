"""What the desk asks of the vault: nothing at all where there is none, and one look at the folders for each call."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from postroom.core.errors import Unavailable
from postroom.core.life import Approved
from postroom.core.policy import Rules
from postroom.core.records import Entry
from postroom.desk.desk import Desk
from postroom.desk.proposals import Proposal
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.vault import Files, Vault
from tests.desks import APPROVED, DESK, HOME, SEND, Office, state
from tests.providers import Courier

SLIP = "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n"


@pytest.fixture
def bare(office: Office) -> Desk:
    """The desk of the office, without its vault."""
    return Desk(
        id=DESK,
        state=office.state,
        ledger=office.desk.ledger,
        vault=None,
        mailboxes=office.desk.mailboxes,
        account="default",
        rules=Rules(live=True, source="test"),
        effects=office.desk.effects,
    )


def test_a_desk_without_a_vault_proposes_approves_and_dispatches(
    office: Office, bare: Desk
) -> None:
    entry = bare.calls.post(SEND, office.letter())
    assert entry.kind == "pending"
    assert bare.note_text(entry) is None
    assert bare.calls.status(SEND, entry.id).kind == "pending"
    bare.approve(entry.id, by="ada", digest=entry.digest)
    assert bare.dispatch(entry.id).kind == "approved"  # the undo window
    office.clock.go(10)
    assert bare.dispatch(entry.id).kind == "sent"
    assert bare.reconcile(adopt=True) == []
    assert (bare.display.slips(), bare.paused(), bare.problems) == ([], "", [])
    assert office.sent() == ["Hello"]
    assert list(office.vault.iterdir()) == []


def test_a_desk_without_a_vault_rejects_recalls_and_edits(office: Office, bare: Desk) -> None:
    first, second = (bare.calls.post(SEND, office.letter()) for _ in range(2))
    assert bare.decide(first.id, "reject", by="ada", reason="no").kind == "rejected"
    bare.approve(second.id, by="ada", digest=second.digest)
    assert bare.decide(second.id, "undo").kind == "pending"
    edited = bare.edit(second.id, office.letter(id=second.id, text="Shorter.\n"))
    assert edited.letter.text == "Shorter.\n"


def test_a_letter_whose_contract_wants_a_record_is_held_without_a_vault(
    office: Office, bare: Desk
) -> None:
    entry = bare.calls.post(SEND, office.letter(), Proposal(pre_send_record="null"))
    bare.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    assert bare.dispatch(entry.id).kind == "approved"
    assert "no vault" in state(office, entry.id, Approved).held
    assert office.sent() == []


def test_what_needs_the_vault_says_that_there_is_none(bare: Desk) -> None:
    with pytest.raises(Unavailable, match="no vault"):
        _ = bare.vault
    with pytest.raises(Unavailable, match="no vault"):
        _ = bare.log


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
    entry = counted.desk.calls.post(SEND, counted.letter(), slips=True)
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
    return office.desk.calls.post(SEND, office.letter(), slips=True)


def test_a_slip_taken_back_before_sending_is_noticed(office: Office) -> None:
    entry = slip_call(office)
    assert entry.kind == "pending"
    assert office.sent() == []


def test_a_slip_edited_before_sending_lets_nothing_out(office: Office, courier: Courier) -> None:
    slip = office.write(f"{APPROVED}/slip.md", SLIP)
    office.at("locked", lambda: slip.write_text(SLIP.replace("ann@", "bob@")))
    entry = office.desk.calls.post(SEND, office.letter(), slips=True)
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
    entry = office.desk.calls.post(SEND, office.letter(), slips=True)
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
