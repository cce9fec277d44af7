"""What is in the way of a note, and what a process leaves behind that dies before it is written."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.core.life import Approved, Withdrawn
from postroom.core.policy import BACK_OFF
from postroom.core.records import Entry
from postroom.core.stamp import DAY
from postroom.store.ledger import SqliteLedger
from postroom.store.sql.letters import LetterReader
from postroom.vault.vault import File, Ready, Vault
from tests.desks import APPROVED, CAT, DONE, HOME, REJECTED, SEND, YOU, Dead, Office, state
from tests.posting import post
from tests.providers import BUSY, Courier

# notes in the way


def in_place_of(note: Path, kind: str, tmp_path: Path) -> None:
    note.unlink()
    if kind == "link":
        note.symlink_to(tmp_path / "elsewhere.md")
    elif kind == "folder":
        note.mkdir()
    else:
        with note.open("wb") as stream:
            stream.truncate(30_000_001)


@pytest.mark.parametrize("kind", ["link", "folder", "huge"])
def test_one_thing_in_the_place_of_a_note_does_not_stop_the_desk(
    office: Office, tmp_path: Path, kind: str
) -> None:
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


def test_a_note_with_the_longest_name_does_not_stop_the_desk(office: Office) -> None:
    entry = office.approved()
    name = "n" * 252 + ".md"
    office.note(entry.id).rename(office.vault / APPROVED / name)
    office.write(f"{DONE}/{name}", "Another note of the same name.\n")
    office.look()
    office.desk.send_approved()
    assert office.look() == ""
    assert office.state_of(entry.id) == "sent"
    assert office.where(entry.id) == DONE


def test_what_cannot_be_put_away_is_said_by_its_own_name_and_stops_no_other(
    office: Office,
) -> None:
    office.write(DONE, "A file where a folder belongs.\n")
    slip = "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n"
    office.write(f"{APPROVED}/slip.md", slip)
    entry = office.approved()
    sent = post(office.desk, SEND, office.letter(), slips=True)
    office.desk.send_approved()
    other = office.propose()
    office.move(other.id, APPROVED)
    said = office.desk.reconcile()
    assert any(each.startswith(f"{APPROVED}/slip.md: ") for each in said)
    for id in (entry.id, sent.id):
        assert any(each.startswith(f"The letter {id}: ") for each in said)
    assert office.state_of(other.id) == "approved"


def test_a_letter_of_another_desk_counts_for_nothing_and_is_said(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, 'desk: "abcdefgh22334455"', 'desk: "zzzzzzzz22334455"')
    office.move(entry.id, APPROVED)
    assert "belongs to another desk" in office.look()
    assert office.state_of(entry.id) == "pending"


def test_a_note_that_names_a_letter_nobody_knows_is_said_and_counts_for_nothing(
    office: Office,
) -> None:
    office.write("Approved/x.md", "---\nletter: zzzzzzzzzz\nto: ann@example.com\n---\nHello\n")
    assert "zzzzzzzzzz, which this desk does not know" in office.look()
    assert office.desk.send_approved() == []


def test_a_note_in_approved_that_is_nothing_is_said(office: Office) -> None:
    office.write("Approved/shopping.md", "Milk, bread\n")
    assert "Approved/shopping.md is ignored" in office.look()


def test_a_provider_that_cannot_be_reached_holds_the_letter(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    courier.away = True
    office.desk.send_approved()
    assert state(office, entry.id, Approved).held == "no network"
    courier.away = False
    office.clock.go(BACK_OFF[0] - 1)
    office.desk.send_approved()
    assert courier.tried == 0
    office.clock.go(1)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


def test_a_letter_waits_half_a_minute_at_a_time_while_its_account_sends_as_somebody_else(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    office.own = CAT
    office.reopen()
    office.desk.send_approved()
    held = state(office, entry.id, Approved)
    assert (held.held, held.wait) == ("the account no longer sends as you@example.org", 30)
    assert courier.tried == 0
    office.own = YOU
    office.reopen()
    office.clock.go(held.wait)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


@pytest.mark.parametrize("start", [APPROVED, REJECTED])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_note_moved_home_in_the_moment_of_a_look_is_not_written_a_second_time(
    office: Office, start: str, renamed: bool
) -> None:
    moves: list[Callable[[], object]] = []

    class Slow(Vault):
        def list(self, folder: str) -> list[File]:
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


def test_a_note_that_is_moved_to_and_fro_in_two_looks_at_the_folders_is_found_by_the_third(
    office: Office,
) -> None:
    moves: list[str] = []

    class Slow(Vault):
        def list(self, folder: str) -> list[File]:
            if moves and folder == moves[0]:
                del moves[0]
                office.move(entry.id, HOME if folder == APPROVED else APPROVED)
            return super().list(folder)

    office.vaults = Slow
    office.reopen()
    entry = office.approved()
    moves += [APPROVED, HOME, APPROVED]
    office.look()
    assert moves == []
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME


def test_a_letter_that_its_agent_withdraws_in_the_moment_of_a_look_holds_up_no_other(
    office: Office,
) -> None:
    acts: list[Callable[[], object]] = []

    class SlowLetters(LetterReader):
        def get(self, id: str) -> Entry:
            entry = super().get(id)
            if acts and id == withdrawn.id:
                acts.pop()()
            return entry

    class Slow(SqliteLedger):
        def __init__(self, *where: Any, **how: Any) -> None:
            super().__init__(*where, **how)
            self.letters = SlowLetters(self._session, self.clock)

    office.ledgers = Slow
    office.reopen()
    withdrawn, other = office.propose(), office.propose()
    for entry in (withdrawn, other):
        office.move(entry.id, REJECTED)

    def withdraw() -> None:
        with office.desk.ledger.write() as tx:
            tx.letters.swap(withdrawn, Withdrawn(office.clock()))

    acts.append(withdraw)
    assert office.look() == ""
    assert acts == []
    assert [office.state_of(entry.id) for entry in (withdrawn, other)] == ["withdrawn", "rejected"]
    office.look()
    assert office.where(withdrawn.id) == REJECTED
    assert office.field(withdrawn.id, "status") == "withdrawn"


@contextmanager
def dying_before_the_note(office: Office) -> Iterator[None]:
    """Let the process end when it comes to write a note, its decision being in the ledger."""

    class Mortal(Vault):
        def replace(
            self, path: str, data: bytes, was: File, ready: Ready = lambda _inode: None
        ) -> File:
            raise Dead

        def move(
            self,
            source: str,
            target: str,
            was: File,
            data: bytes | None = None,
            ready: Ready = lambda _inode: None,
        ) -> File:
            raise Dead

    office.vaults = Mortal
    office.reopen()
    with pytest.raises(Dead):
        yield
    office.vaults = Vault
    office.reopen()


def test_a_note_left_behind_by_an_edit_shows_the_new_letter_after_the_next_look(
    office: Office,
) -> None:
    entry = office.propose()
    with dying_before_the_note(office):
        office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    office.clock.jump(365 * DAY)
    office.look()
    edited = office.desk.ledger.letters.get(entry.id)
    assert edited.letter.text == "Other words.\n"
    assert office.field(entry.id, "digest") == edited.digest
    assert "Other words." in office.page(entry.id, "Letter")
    assert office.desk.note_difference(edited) == ""


def test_a_note_left_behind_by_a_lost_answer_says_unknown_after_the_next_look(
    office: Office, courier: Courier
) -> None:
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


def test_a_note_left_behind_by_a_refusal_gives_the_reason_after_the_next_look(
    office: Office, courier: Courier
) -> None:
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
        (lambda o, e: o.desk.decide(e.id, "undo"), "pending", HOME),
        (lambda o, e: o.desk.decide(e.id, "reject", by="ada", reason=""), "rejected", REJECTED),
        (lambda o, e: o.desk.calls.withdraw(SEND, e.id), "withdrawn", REJECTED),
        (lambda o, e: o.desk.send_approved(), "sent", DONE),
    ],
)
def test_a_note_left_behind_by_any_decision_is_brought_to_its_place_at_the_next_look(
    office: Office, act: Callable[[Office, Entry], object], kind: str, where: str
) -> None:
    entry = office.approved()
    with dying_before_the_note(office):
        act(office, entry)
    office.clock.jump(365 * DAY)
    office.look()
    assert office.state_of(entry.id) == kind
    assert office.where(entry.id) == where
