"""A desk whose disk, clock, ledger, vault or provider fails: nothing leaves twice, nothing is lost."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from postroom.core.errors import Corrupt, Unavailable
from postroom.core.letter import Enclosure, Letter
from postroom.core.life import Failed
from postroom.core.records import Entry
from postroom.desk.dispatch import ASK_AGAIN
from postroom.mail.local.mailbox import LocalMailbox
from postroom.mail.mailbox import Accepted, NotSent, SendOutcome, Unproven
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.vault import Vault
from tests.desks import SEND, Dead, Office, state
from tests.narrow import narrow
from tests.posting import post

DAY = 86_400.0
LIMITS = dict.fromkeys(
    (
        "sends_per_hour",
        "sends_per_pace",
        "recipients_per_hour",
        "open_letters",
        "proposals_per_hour",
    ),
    1000,
)


class Outside:
    """A provider outside the state folder: it takes whatever it is given, however often."""

    def __init__(self) -> None:
        self.accepted: list[Letter] = []  # each time that one was taken
        self.tells = False  # whether it can be asked
        # What happens between its taking a letter and its answer.
        self.meanwhile: Callable[[], object] = lambda: None
        self.forge: Callable[[bytes], bytes] = lambda wire: wire

    def __call__(self, box: LocalMailbox) -> Line:
        return Line(self, box)

    def ids(self) -> list[str]:
        return [letter.id for letter in self.accepted]


class Line:
    """A connection to that provider; mail is read in the embedded mailbox."""

    def __init__(self, provider: Outside, box: LocalMailbox) -> None:
        self._provider = provider
        self._box = box

    def __getattr__(self, name: str) -> Any:  # the rest of `Mailbox`
        return getattr(self._box, name)

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        return self._provider.forge(self._box.wire(letter, date=date))

    def send(self, letter: Letter, wire: bytes, proof: str) -> Accepted:
        self._provider.accepted.append(letter)
        self._provider.meanwhile()
        return Accepted("m", "t")

    def find_outcome(self, letter: Letter, proof: str) -> SendOutcome:
        if not self._provider.tells:
            return Unproven("it tells nothing")
        taken = letter.id in self._provider.ids()
        return Accepted("m", "t") if taken else NotSent("it was never handed over")


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def office(tmp_path: Path, outside: Outside) -> Iterator[Office]:
    with closing(Office(tmp_path, **LIMITS)) as office:
        office.wrap = outside
        office.reopen(**LIMITS)
        yield office


def passes(office: Office, times: int = 3) -> str:
    """Let a dispatcher run several times, and time pass."""
    said = []
    for _ in range(times):
        said += office.desk.reconcile()
        office.desk.send_approved()
        office.clock.go(ASK_AGAIN + 1)
    return " ".join(said + office.desk.reconcile())


# The disk


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow, as on a full disk; root is stopped too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_on_a_full_disk_no_letter_is_taken_in_and_none_is_half_taken_in(office: Office) -> None:
    office.propose()
    with full_disk(), pytest.raises(Unavailable) as said:
        office.propose()
    assert "ledger.sqlite" in said.value.message
    assert len(office.desk.ledger.lists.summaries()) == 1
    office.propose()
    assert len(office.desk.ledger.lists.summaries()) == 2
    assert office.desk.log.verify() == []


def test_on_a_full_disk_nothing_is_approved_or_sent_and_later_all_is_sent_once(
    office: Office, outside: Outside
) -> None:
    waiting, approved = office.propose(), office.approved()
    with full_disk():
        with pytest.raises(Unavailable):
            office.desk.approve(waiting.id, by="ada", digest=waiting.digest)
        with pytest.raises(Unavailable):
            office.desk.send_approved()
        assert outside.accepted == []
    assert office.state_of(waiting.id) == "pending"
    passes(office)
    assert outside.ids() == [approved.id]
    assert office.where(approved.id) == "Done"
    assert office.desk.log.verify() == []


@pytest.mark.parametrize(("tells", "then"), [(True, "sent"), (False, "unknown")])
def test_a_disk_that_fills_up_before_the_outcome_is_on_it_does_not_send_twice(
    office: Office, outside: Outside, tells: bool, then: str
) -> None:
    outside.tells = tells
    entry, other = office.approved(), office.approved()
    disk = full_disk()
    outside.meanwhile = disk.__enter__
    try:
        with pytest.raises(Unavailable):
            office.desk.send_approved()
    finally:
        disk.__exit__(None, None, None)
        outside.meanwhile = lambda: None
    assert office.state_of(entry.id) == "sending"
    passes(office)
    assert outside.ids() == [entry.id, other.id]
    assert (office.state_of(entry.id), office.state_of(other.id)) == (then, "sent")
    assert office.desk.log.verify() == []


@pytest.mark.parametrize(("tells", "then"), [(True, "sent"), (False, "unknown")])
def test_a_disk_that_fills_up_after_the_claim_lets_nothing_leave(
    office: Office, outside: Outside, tells: bool, then: str
) -> None:
    outside.tells = tells
    entry = office.approved()
    disk = full_disk()
    office.at("claimed", disk.__enter__)
    try:
        with pytest.raises(Unavailable):
            office.desk.send_approved()
    finally:
        disk.__exit__(None, None, None)
    assert outside.accepted == []
    passes(office)
    assert office.state_of(entry.id) == then
    assert outside.ids() == [entry.id] * tells


def test_a_log_that_cannot_be_written_lets_nothing_leave_until_it_can(
    office: Office, outside: Outside
) -> None:
    entry = office.approved()
    (file,) = (office.vault / "Logs/actions").iterdir()
    kept = file.rename(office.vault / "kept")
    file.mkdir()
    office.desk.dispatcher.dispatch_all()
    assert outside.accepted == []
    assert office.state_of(entry.id) == "approved"
    file.rmdir()
    kept.rename(file)
    passes(office)
    assert outside.ids() == [entry.id]
    assert office.desk.log.verify() == []


def test_a_state_folder_without_a_place_for_claims_lets_nothing_leave(
    office: Office, outside: Outside
) -> None:
    entry = office.approved()
    (office.state / "claims").write_text("in the way")
    with pytest.raises(Unavailable):
        office.desk.send_approved()
    assert (outside.accepted, office.state_of(entry.id)) == ([], "approved")
    (office.state / "claims").unlink()
    passes(office)
    assert outside.ids() == [entry.id]


def test_a_claim_that_cannot_be_locked_lets_nothing_leave_and_is_said_in_our_words(
    office: Office, outside: Outside
) -> None:
    entry = office.approved()
    (office.state / "claims" / entry.id).mkdir(parents=True, mode=0o700)
    with pytest.raises(Unavailable):
        office.desk.send_approved()
    assert (outside.accepted, office.state_of(entry.id)) == ([], "approved")


def test_a_desk_whose_lock_cannot_be_opened_says_so_in_our_words(
    office: Office, outside: Outside
) -> None:
    entry = office.approved()
    lock = office.state / "desk.lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(Unavailable):
        office.desk.reconcile()
    # The claim cannot be published, so nothing was handed over, and that is certain.
    office.desk.dispatcher.dispatch(entry.id)
    assert (outside.accepted, office.state_of(entry.id)) == ([], "approved")


def test_a_ledger_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "state/ledger.sqlite").mkdir(parents=True)
    (tmp_path / "state").chmod(0o700)
    with pytest.raises(Unavailable) as said:
        Office(tmp_path)
    assert "ledger.sqlite" in said.value.message


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_ledger_of_a_newer_version_is_left_alone(office: Office, journal: str) -> None:
    office.propose()
    office.close()
    path = office.state / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        assert connection.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    before = path.read_bytes()
    with pytest.raises(Corrupt) as said:
        SqliteLedger(path, clock=office.clock, draw=os.urandom)
    assert "newer Postroom (version 99" in said.value.message
    assert path.read_bytes() == before


# A power cut


class Disk(SqliteLedger):
    """A ledger of which a power cut leaves what SQLite has synced: what `synchronous = FULL` committed.

    In WAL mode a commit with `synchronous = NORMAL`, or one that changes nothing, is not synced.
    """

    on_disk: dict[str, bytes]

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        before = _files_of(self.path)
        with super().write(synced=synced, early=early) as tx:
            yield tx
        if synced and _files_of(self.path) != before:
            self.on_disk = _files_of(self.path)


def _files_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (path, path.with_name(f"{path.name}-wal"))}


def power_cut(office: Office) -> None:
    """Leave of the ledger what is on the disk; what was appended to the log was synced."""
    on_disk = narrow(office.desk.ledger, Disk).on_disk
    office.close()
    for file in office.state.glob("ledger.sqlite*"):
        file.unlink()
    for name, content in on_disk.items():
        (office.state / name).write_bytes(content)
    office.open()


def test_after_a_power_cut_the_log_is_not_ahead_of_the_ledger(office: Office) -> None:
    office.ledgers = Disk
    office.reopen(**LIMITS)
    waiting, approved = office.propose(), office.approved()
    office.desk.calls.letters(SEND)  # a call that only reads: its line is not synced by itself
    office.desk.flush_log()
    shown = len(list(office.desk.log.records()))
    power_cut(office)
    assert office.look() == ""
    assert office.desk.ledger.actions.head() == shown
    assert (office.state_of(waiting.id), office.state_of(approved.id)) == ("pending", "approved")
    assert office.desk.log.verify() == []


def test_lines_of_another_process_are_on_the_disk_before_the_log_shows_them(office: Office) -> None:
    office.ledgers = Disk
    office.reopen(**LIMITS)
    waiting = office.propose()
    with closing(office.beside()) as other:
        other.desk.calls.letters(SEND)
    office.desk.flush_log()
    power_cut(office)
    assert office.look() == ""
    assert office.state_of(waiting.id) == "pending"


class LateDisk(Disk):
    """One whose syncs can be put off: they are listed instead."""

    put_off: list[int] | None = None

    def sync(self, seq: int) -> None:
        if self.put_off is None:
            super().sync(seq)
        else:
            self.put_off.append(seq)


def test_lines_that_are_on_the_disk_already_cost_no_second_sync(office: Office) -> None:
    office.ledgers = LateDisk
    office.reopen(**LIMITS)
    entry = office.propose()
    ledger = narrow(office.desk.ledger, LateDisk)
    asked: list[int] = []
    ledger.put_off = asked
    office.desk.decide(entry.id, "reject", by="ada", reason="No.")
    before = ledger.on_disk
    ledger.put_off = None
    ledger.sync(asked[0])
    assert ledger.on_disk is before


# Backups


class Backup:
    """A copy of the state folder, made while nobody writes to it."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.copy = office.folder / "backup"
        office.close()
        shutil.copytree(office.state, self.copy)
        office.open()

    def restore(self) -> None:
        """Put it in the place of what is there, and start anew."""
        self.office.close()
        shutil.rmtree(self.office.state)
        shutil.copytree(self.copy, self.office.state)
        self.office.open()


def test_after_a_restored_backup_nothing_leaves_again_and_the_log_is_believed(
    office: Office, outside: Outside
) -> None:
    leaves = [office.approved().id for _ in range(20)]
    stays = [office.approved() for _ in range(3)]
    undone = office.approved()
    rejected, withdrawn, waiting = (office.propose() for _ in range(3))
    backup = Backup(office)
    for id in leaves:
        office.desk.dispatch(id)
    office.desk.decide(undone.id, "undo")
    office.desk.decide(rejected.id, "reject", by="ada", reason="No.")
    office.desk.calls.withdraw(SEND, withdrawn.id)
    late = office.propose()
    assert sorted(outside.ids()) == sorted(leaves)

    backup.restore()
    assert "ahead of the ledger" in passes(office)
    passes(office)
    assert sorted(outside.ids()) == sorted(leaves)
    assert {office.state_of(id) for id in leaves} == {"sent"}
    assert {office.where(id) for id in leaves} == {"Done"}
    assert {office.state_of(entry.id) for entry in (*stays, waiting)} == {"unknown"}
    assert {office.where(entry.id) for entry in (*stays, waiting)} == {"Approved"}
    assert office.state_of(undone.id) == "pending"
    assert office.state_of(rejected.id) == "rejected"
    assert office.state_of(withdrawn.id) == "withdrawn"
    assert {line.id for line in office.desk.ledger.lists.summaries("unknown")} == {
        entry.id for entry in (*stays, waiting)
    }
    assert office.desk.log.verify() == []
    # A letter that this ledger never knew: its note is said to be unknown, and moves nothing.
    office.move(late.id, "Approved")
    assert late.id in passes(office)
    assert len(outside.accepted) == 20


def test_after_a_restored_backup_the_budget_is_still_spent(
    tmp_path: Path, outside: Outside
) -> None:
    with closing(Office(tmp_path, sends_per_hour=3)) as office:
        office.wrap = outside
        office.reopen(sends_per_hour=3)
        entries = [office.approved() for _ in range(3)]
        backup = Backup(office)
        office.desk.send_approved()
        assert len(outside.accepted) == 3
        backup.restore()
        office.desk.reconcile()
        assert {office.state_of(entry.id) for entry in entries} == {"sent"}
        fourth = office.approved()
        office.desk.send_approved()
        assert office.state_of(fourth.id) == "approved"
        assert len(outside.accepted) == 3
        office.clock.go(3600)
        office.desk.send_approved()
        assert len(outside.accepted) == 4


def close_rejected(office: Office, entry: Entry) -> None:
    office.desk.decide(entry.id, "reject", by="ada", reason="Not yet.")


def close_expired(office: Office, entry: Entry) -> None:
    office.clock.go(72 * 3600)
    office.desk.reconcile()


def close_unknown(office: Office, entry: Entry) -> None:
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.dies_at("published")
    with pytest.raises(Dead):
        office.desk.send_approved()
    office.reopen(**LIMITS)
    office.desk.send_approved()


@pytest.mark.parametrize("close", [close_rejected, close_expired, close_unknown])
def test_a_letter_that_a_restored_ledger_has_closed_is_sent_if_the_log_says_so(
    office: Office, outside: Outside, close: Callable[[Office, Entry], None]
) -> None:
    entry = office.propose()
    close(office, entry)
    backup = Backup(office)
    if office.state_of(entry.id) == "unknown":
        office.desk.decide(entry.id, "resolve", by="ada", sent=False)
    else:
        office.move(entry.id, "Approved")
        office.desk.reconcile()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert outside.ids() == [entry.id]
    backup.restore()
    passes(office)
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == "Done"
    assert outside.ids() == [entry.id]


@pytest.mark.parametrize(
    ("step", "then", "times"),
    [
        ("claimed", "sent", 1),  # nothing was handed over before the claim is in the log
        ("published", "unknown", 0),
        ("taken", "unknown", 1),
        ("answered", "unknown", 1),
        ("recorded", "unknown", 1),
    ],
)
def test_a_ledger_put_back_between_claim_and_outcome_sends_nothing_that_may_have_left(
    office: Office, outside: Outside, step: str, then: str, times: int
) -> None:
    entry = office.approved()
    backup = Backup(office)

    def die() -> None:
        raise Dead

    if step == "taken":
        outside.meanwhile = die
    else:
        office.dies_at(step)
    with pytest.raises(Dead):
        office.desk.send_approved()
    outside.meanwhile = lambda: None
    backup.restore()
    passes(office)
    assert outside.ids() == [entry.id] * times
    assert office.state_of(entry.id) == then
    assert office.desk.log.verify() == []


# The clock

JUMPS = [DAY, -DAY, 400 * DAY]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_refills_no_budget(
    tmp_path: Path, outside: Outside, seconds: float
) -> None:
    with closing(Office(tmp_path, sends_per_hour=2)) as office:
        office.wrap = outside
        office.reopen(sends_per_hour=2)
        for _ in range(3):
            office.approved()
        office.desk.send_approved()
        office.clock.jump(seconds)
        for _ in range(3):
            office.desk.reconcile()
            office.desk.send_approved()
            office.clock.go(1000)
        assert len(outside.accepted) == 2
        office.clock.go(600)
        office.desk.send_approved()
        assert len(outside.accepted) == 3
        assert office.desk.log.verify() == []


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_neither_shortens_nor_lengthens_the_undo_window(
    office: Office, outside: Outside, seconds: float
) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(9)
    office.clock.jump(seconds)
    office.desk.send_approved()
    assert outside.accepted == []
    office.clock.go(1)
    office.desk.send_approved()
    assert outside.ids() == [entry.id]


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_lets_no_letter_expire_sooner_or_later(
    office: Office, seconds: float
) -> None:
    entry = office.propose()
    office.clock.go(71 * 3600)
    office.clock.jump(seconds)
    office.desk.reconcile()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(3600)
    office.desk.reconcile()
    assert office.state_of(entry.id) == "expired"


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_clock_that_jumps_does_not_end_the_patience_with_a_provider(
    office: Office, outside: Outside, seconds: float
) -> None:
    entry = office.approved()

    def refuse() -> None:
        outside.accepted.pop()
        raise Unavailable("busy")

    outside.meanwhile = refuse
    office.desk.send_approved()
    office.clock.jump(seconds)
    office.clock.go(3600)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "approved"
    outside.meanwhile = lambda: None
    office.clock.go(3600)
    office.desk.send_approved()
    assert outside.ids() == [entry.id]


# Sync clients

CONFLICTS = ["{} (conflict 2026-11-15)", "{}.sync-conflict-20261115-101112-ABCDEFG", "{} 2"]


def conflicted(office: Office, note: Path, folder: str, name: str) -> Path:
    """Let a sync client put a copy of a note into a folder, under the name that it gives."""
    target = office.vault / folder / (name.format(note.stem) + ".md")
    target.parent.mkdir(exist_ok=True)
    shutil.copy(note, target)
    return target


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_conflict_copy_in_approved_is_no_verdict_while_the_note_waits(
    office: Office, outside: Outside, name: str
) -> None:
    entry = office.propose()
    copy = conflicted(office, office.note(entry.id), "Approved", name)
    assert copy.name in passes(office)
    assert (office.state_of(entry.id), outside.accepted) == ("pending", [])


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_conflict_copy_at_home_neither_decides_nor_is_lost(
    office: Office, outside: Outside, name: str
) -> None:
    entry = office.propose()
    copy = conflicted(office, office.note(entry.id), "Pending_Approval", name)
    passes(office)
    assert (office.state_of(entry.id), outside.accepted) == ("pending", [])
    assert copy.exists()


@pytest.mark.parametrize("name", CONFLICTS)
@pytest.mark.parametrize("folder", ["Approved", "Pending_Approval", "Rejected"])
def test_conflict_copies_of_an_approved_letter_send_nothing_more_and_take_nothing_back(
    office: Office, outside: Outside, name: str, folder: str
) -> None:
    entry = office.approved()
    conflicted(office, office.note(entry.id), folder, name)
    passes(office)
    assert outside.ids() == [entry.id]
    assert office.state_of(entry.id) == "sent"


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict_copies_of_a_sent_letter_go_to_done_and_send_nothing(
    office: Office, outside: Outside, name: str
) -> None:
    entry = office.approved()
    office.desk.send_approved()
    note = office.note(entry.id)
    for folder in ("Approved", "Pending_Approval", "Rejected"):
        conflicted(office, note, folder, name)
        passes(office)
        assert {copy.parent.name for copy in office.notes(entry.id)} == {"Done"}
    office.clock.go(25 * 3600)
    passes(office)
    assert outside.ids() == [entry.id]


@pytest.mark.parametrize("name", CONFLICTS)
def test_two_machines_that_moved_one_note_and_one_of_them_edited_it_have_approved_nothing(
    office: Office, outside: Outside, name: str
) -> None:
    entry = office.propose()
    moved = office.move(entry.id, "Approved")
    copy = conflicted(office, moved, "Approved", name)
    text = copy.read_text("utf-8")
    assert "Good day" in text
    copy.write_text(text.replace("Good day", "Good night"), "utf-8")
    passes(office)
    assert outside.accepted == []
    assert office.state_of(entry.id) == "pending"


def test_a_note_of_another_machines_desk_counts_for_nothing(
    office: Office, outside: Outside
) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    foreign = note.read_text("utf-8").replace("abcdefgh22334455", "zzzzzzzz22334455")
    note.unlink()
    office.desk.reconcile()
    (office.vault / "Approved").mkdir(exist_ok=True)
    (office.vault / "Approved/foreign.md").write_text(foreign, "utf-8")
    assert "another desk" in passes(office)
    assert (office.state_of(entry.id), outside.accepted) == ("pending", [])


SLIP = "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\nGo ahead.\n"


def test_a_slip_that_a_sync_client_brings_back_is_void(office: Office, outside: Outside) -> None:
    slip = office.vault / "Approved" / "slip.md"
    slip.parent.mkdir(exist_ok=True)
    slip.write_text(SLIP)
    first = post(office.desk, SEND, office.letter(), slips=True)
    assert outside.ids() == [first.id]
    office.desk.reconcile()
    assert not slip.exists()
    for name in ("slip.md", "slip (conflict 2026-11-15).md", "slip.sync-conflict-1.md"):
        (slip.parent / name).write_text(SLIP.replace("\n", "\r\n"))
    second = post(office.desk, SEND, office.letter(), slips=True)
    office.desk.reconcile(adopt=True)
    office.clock.go(25 * 3600)
    passes(office)
    office.desk.reconcile(adopt=True)
    passes(office)
    assert office.state_of(second.id) == "pending"
    assert outside.ids() == [first.id]
    assert list(slip.parent.glob("*slip*")) == []


DRAFT = "---\nto: ann@example.com\nsubject: Lunch\nstatus: approved\n---\nShall we say noon?\n"


@pytest.mark.parametrize("hours", [0, 25, 80])
@pytest.mark.parametrize("name", ["lunch.md", "lunch (conflict 2026-11-15).md"])
def test_an_approved_draft_that_a_sync_client_brings_back_is_void(
    office: Office, outside: Outside, hours: int, name: str
) -> None:
    draft = office.vault / "Approved" / "lunch.md"
    draft.parent.mkdir(exist_ok=True)
    draft.write_text(DRAFT)
    office.desk.reconcile()
    office.clock.go(10)
    passes(office)
    assert len(outside.accepted) == 1
    office.clock.go(hours * 3600)
    (draft.parent / name).write_text(DRAFT)
    said = passes(office)
    assert "is ignored" in said
    assert len(outside.accepted) == 1
    assert [line.state for line in office.desk.ledger.lists.summaries()] == []


# Interrupted moves of our own


class Cut(Vault):
    """A vault whose process dies in the middle of a move: the note has two names."""

    cut = False

    def __init__(self, root: Path) -> None:
        def link(
            source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool
        ) -> None:
            os.link(
                source,
                target,
                src_dir_fd=src_dir_fd,
                dst_dir_fd=dst_dir_fd,
                follow_symlinks=follow_symlinks,
            )
            if Cut.cut:
                raise Dead

        super().__init__(root, link=link)


@contextmanager
def cut(office: Office) -> Iterator[None]:
    """Let the next link be the last that the process does; then start anew."""
    office.vaults = Cut
    office.reopen(**LIMITS)
    Cut.cut = True
    try:
        with pytest.raises(Dead):
            yield
    finally:
        Cut.cut = False
        office.vaults = Vault
        office.reopen(**LIMITS)


def test_a_move_to_approved_that_was_cut_off_leaves_one_note(office: Office) -> None:
    entry = office.propose()
    with cut(office):
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.desk.reconcile()
    assert office.where(entry.id) == "Approved"


def test_a_move_to_done_that_was_cut_off_leaves_one_note(office: Office, outside: Outside) -> None:
    entry = office.approved()
    with cut(office):
        office.desk.send_approved()
    passes(office)
    assert outside.ids() == [entry.id]
    assert office.where(entry.id) == "Done"


def test_a_move_to_rejected_that_was_cut_off_leaves_one_note(office: Office) -> None:
    entry = office.approved()
    with cut(office):
        office.desk.decide(entry.id, "reject", by="ada", reason="No.")
    office.desk.reconcile()
    assert office.where(entry.id) == "Rejected"


def test_a_move_home_that_was_cut_off_leaves_one_note_and_is_no_new_approval(
    office: Office, outside: Outside
) -> None:
    entry = office.approved()
    with cut(office):
        office.desk.decide(entry.id, "undo")
    office.desk.reconcile()
    for note in office.notes(entry.id):
        if note.parent.name == "Pending_Approval":
            note.unlink()  # as somebody does who wants none of it
    passes(office)
    assert (office.state_of(entry.id), outside.accepted) == ("pending", [])
    assert office.where(entry.id) == "Pending_Approval"


def test_a_note_in_done_that_was_written_as_the_process_died_is_not_written_twice(
    office: Office, outside: Outside
) -> None:
    office.reopen(**LIMITS, required=False)
    letter = office.letter()
    office.vaults = Cut
    office.reopen(**LIMITS, required=False)
    Cut.cut = True
    try:
        with pytest.raises(Dead):
            office.propose(letter)
    finally:
        Cut.cut = False
    office.vaults = Vault
    office.reopen(**LIMITS, required=False)
    passes(office)
    assert outside.ids() == [letter.id]
    assert office.where(letter.id) == "Done"


# Two processes


def test_a_person_who_resolves_while_the_provider_is_asked_holds_up_no_other_letter(
    office: Office, outside: Outside
) -> None:
    outside.meanwhile = lambda: (_ for _ in ()).throw(ConnectionResetError())
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "unknown"
    outside.meanwhile = lambda: None
    office.clock.go(ASK_AGAIN)
    other = office.approved()
    with closing(office.beside()) as person:
        office.at("locked", lambda: person.desk.decide(entry.id, "resolve", by="ada", sent=True))
        office.desk.send_approved()
    assert (office.state_of(entry.id), office.state_of(other.id)) == ("sent", "sent")
    assert outside.ids() == [entry.id, other.id]


def test_a_person_who_recalls_what_was_tampered_with_holds_up_no_other_letter(
    office: Office, outside: Outside
) -> None:
    entry, other = office.approved(), office.approved()
    tamper(office, "UPDATE letter SET frozen = replace(frozen, 'Good', 'Bad') WHERE id = ?", entry)
    with closing(office.beside()) as person:
        office.at("locked", lambda: person.desk.decide(entry.id, "undo"))
        office.desk.send_approved()
    assert (office.state_of(entry.id), office.state_of(other.id)) == ("pending", "sent")
    assert outside.ids() == [other.id]


def test_a_process_that_is_late_with_its_note_does_not_put_a_sent_letter_back(
    office: Office, outside: Outside
) -> None:
    def refuse() -> None:
        outside.accepted.pop()
        raise Unavailable("busy")

    entry = office.approved()
    outside.meanwhile = refuse
    changed = office.desk.dispatcher.dispatch_all()  # the first half of `send_approved`
    outside.meanwhile = lambda: None
    office.clock.go(60)
    with closing(office.beside()) as other:
        other.desk.send_approved()
    assert office.where(entry.id) == "Done"
    office.desk.sync_notes_and_log(*changed)  # and the second
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == "Done"


# Letters that were changed after the approval


def tamper(office: Office, sql: str, entry: Entry) -> None:
    with closing(sqlite3.connect(office.state / "ledger.sqlite")) as connection:
        assert connection.execute(sql, [entry.id]).rowcount == 1
        connection.commit()


def frozen(change: str) -> str:
    return f"UPDATE letter SET frozen = {change} WHERE id = ?"


CHANGES = {
    "a byte of the text": frozen("replace(frozen, 'Good day', 'Good dax')"),
    "a recipient added": frozen(
        "json_insert(frozen, '$.to[#]', json_array('eve', 'example.net', ''))"
    ),
    "a recipient changed": frozen("json_set(frozen, '$.to[0][0]', 'anne')"),
    "a name changed": frozen("json_set(frozen, '$.to[0][2]', 'Anne')"),
    "a hidden recipient": frozen(
        "json_insert(frozen, '$.bcc[#]', json_array('eve', 'example.net', ''))"
    ),
    "another reply address": frozen(
        "json_insert(frozen, '$.reply_to[#]', json_array('eve', 'example.net', ''))"
    ),
    "the subject": frozen("json_set(frozen, '$.subject', 'Hello!')"),
    "what it answers": frozen("json_set(frozen, '$.in_reply_to', '<1@example.net>')"),
    "its references": frozen("json_insert(frozen, '$.references[#]', '<1@example.net>')"),
    "its thread": frozen("json_set(frozen, '$.thread', '7')"),
    "the sender": frozen("json_set(frozen, '$.sender[0]', 'boss')"),
    "an HTML part": frozen("json_set(frozen, '$.html', '<p>Hello</p>')"),
    "a byte of a file": "UPDATE enclosure SET content = x'00ff' WHERE letter = ?",
    "the name of a file": "UPDATE enclosure SET name = 'b.bin' WHERE letter = ?",
    "a file more": "INSERT INTO enclosure SELECT letter, 1, 'b.bin', type, content FROM enclosure WHERE letter = ?",
    "the digest": "UPDATE letter SET digest = 'sha256:00' WHERE id = ?",
    "letter and digest": "UPDATE letter SET digest = 'sha256:00', subject = 'x' WHERE id = ?",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_letter_that_was_changed_after_its_approval_is_refused(
    office: Office, outside: Outside, change: str
) -> None:
    entry = office.approved(attachments=(Enclosure("a.bin", "application/octet-stream", b"\0"),))
    other = office.approved()
    tamper(office, CHANGES[change], entry)
    office.desk.send_approved()
    office.desk.reconcile()
    assert outside.ids() == [other.id]
    assert office.state_of(entry.id) == "failed"
    assert "digest" in state(office, entry.id, Failed).reason
    assert office.where(entry.id) == "Failed"
    assert office.desk.log.verify() == []


@pytest.mark.parametrize(
    "damage",
    [
        frozen("substr(frozen, 1, 40)"),
        frozen("json_set(frozen, '$.subject', 'a' || char(10) || 'Bcc: eve@example.net')"),
        frozen("json_remove(frozen, '$.to')"),
        frozen("json_set(frozen, '$.to', json_array())"),
        "UPDATE letter SET detail = '{' WHERE id = ?",
    ],
)
def test_a_letter_that_no_longer_parses_is_not_sent_and_that_is_said_in_our_words(
    office: Office, outside: Outside, damage: str
) -> None:
    entry = office.approved()
    tamper(office, damage, entry)
    with pytest.raises(Corrupt):
        office.desk.send_approved()
    assert outside.accepted == []


def flipped(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def forge(wire: bytes) -> bytes:
        assert wire.count(old) >= 1, wire
        return wire.replace(old, new, 1)

    return forge


FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "a hidden recipient": lambda wire: b"Bcc: eve@example.net\r\n" + wire,
    "a second To": lambda wire: b"To: eve@example.net\r\n" + wire,
    "another To": flipped(b"ann@example.com", b"anm@example.com"),
    "another Cc": lambda wire: b"Cc: eve@example.net\r\n" + wire,
    "another sender": flipped(b"you@example.org", b"yox@example.org"),
    "another reply address": lambda wire: b"Reply-To: eve@example.net\r\n" + wire,
    "another subject": flipped(b"Subject: Hello", b"Subject: Hallo"),
    "another Message-ID": flipped(b"Message-ID: <", b"Message-ID: <x"),
    "another letter's id": flipped(b"X-Postroom-Letter: ", b"X-Postroom-Letter: x"),
    "what it answers": lambda wire: b"In-Reply-To: <1@example.net>\r\n" + wire,
    "references": lambda wire: b"References: <1@example.net>\r\n" + wire,
    "a strange header": lambda wire: b"X-Track: 1\r\n" + wire,
    "a byte of the text": flipped(b"Good day", b"Good dax"),
    "more text": lambda wire: wire + b"PS: one more thing\r\n",
    "a byte of the file": flipped(b"AAECAwQF", b"AAECAwQG"),
    "no text": flipped(b"Good day", b""),
    "another charset": flipped(b"charset=utf-8", b"charset=utf-7"),
    "another type": flipped(b"text/plain", b"text/html"),
    "another type of file": flipped(b"application/octet-stream;", b"text/x-shellscript;"),
    "another name of the file": flipped(b'filename="a.bin"', b'filename="a.exe"'),
    "text before the parts": flipped(b"\r\n\r\n--", b"\r\n\r\nread me first\r\n--"),
    "nothing": lambda _wire: b"",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_bytes_that_say_something_else_than_the_letter_do_not_leave(
    office: Office, outside: Outside, forgery: str
) -> None:
    file = Enclosure("a.bin", "application/octet-stream", bytes(range(64)))
    entry = office.approved(attachments=(file,))
    outside.forge = FORGERIES[forgery]
    office.desk.send_approved()
    assert outside.accepted == []
    assert office.state_of(entry.id) == "failed"
    assert office.where(entry.id) == "Failed"
    assert "bytes to be sent" in state(office, entry.id, Failed).reason
