"""New letters, line by line of the table of states; and the one line that each call leaves."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from postroom.core import life
from postroom.core.errors import Conflict, NotFound, Unavailable
from postroom.core.stamp import DAY
from postroom.desk.proposals import Proposal
from postroom.desk.recorder import Call, Trace
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.note import Note
from postroom.vault.vault import File, Files, Ready, Vault
from tests.desks import APPROVED, DONE, DRAFT, HOME, REJECTED, SEND, THREE_DAYS, Dead, Office
from tests.narrow import narrow, present
from tests.posting import post

# new


def test_a_call_makes_a_letter_that_waits_at_home_and_the_person_is_notified(
    office: Office,
) -> None:
    entry = office.propose()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == HOME
    assert [told.id for told in office.told] == [entry.id]
    assert office.sent() == []


def test_a_repeated_call_notifies_nobody_again(office: Office) -> None:
    letter = office.letter()
    first = office.propose(letter)
    assert office.propose(replace(letter, id="bbbbbbbbbb")).id == first.id
    assert len(office.told) == 1


def test_a_rehearsal_is_entered_without_a_note_and_tells_nobody(office: Office) -> None:
    office.reopen(live=False)
    entry = office.propose()
    assert entry.kind == "rehearsal"
    assert office.notes(entry.id) == []
    assert office.told == []
    assert office.look() == ""
    assert office.notes(entry.id) == []


def test_a_draft_that_a_person_approved_while_it_rehearses_stays_and_is_said(
    office: Office,
) -> None:
    office.reopen(live=False)
    draft = office.write(
        "Approved/own.md", "---\nto: ann@example.com\nsubject: Tea\n---\n\nCome!\n"
    )
    assert "Approved/own.md is not sent: Postroom rehearses (test)." in office.look()
    assert draft.exists()
    assert office.desk.ledger.lists.summaries() == []


def test_a_rehearsal_is_replaced_by_the_next_of_the_same_content(office: Office) -> None:
    office.reopen(live=False)
    first = office.letter()
    office.propose(first)
    second = office.propose(replace(first, id="bbbbbbbbbb"))
    assert second.id == "bbbbbbbbbb"
    with pytest.raises(NotFound):
        office.desk.ledger.letters.get(first.id)
    assert [line.id for line in office.desk.ledger.lists.summaries("rehearsal")] == ["bbbbbbbbbb"]


def test_a_rehearsal_can_never_be_sent_not_even_when_the_mode_is_live_again(office: Office) -> None:
    office.reopen(live=False)
    entry = office.propose()
    office.reopen(live=True)
    with pytest.raises(Conflict, match="rehearsal"):
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.desk.dispatch(entry.id).kind == "rehearsal"
    assert office.sent() == []


def test_where_no_approval_is_required_a_letter_leaves_within_the_call_without_an_undo_window(
    office: Office,
) -> None:
    office.reopen(required=False)
    before = office.clock()
    entry = office.propose()
    assert entry.kind == "sent"
    assert office.clock() == before
    assert office.sent() == ["Hello"]
    assert office.where(entry.id) == DONE
    assert [life.name(one) for one in office.desk.ledger.letters.past_states(entry.id)] == [
        "approved",
        "sending",
        "sent",
    ]


@pytest.mark.parametrize("step", ["locked", "checked", "claimed", "published", "answered"])
def test_where_no_approval_is_required_there_is_a_note_only_at_the_outcome(
    office: Office, step: str
) -> None:
    office.reopen(required=False)
    letter, seen = office.letter(), []
    office.at(step, lambda: seen.append(office.notes(letter.id)))
    office.propose(letter)
    assert seen == [[]]
    assert office.where(letter.id) == DONE


def test_a_slip_that_fits_lets_a_letter_leave_within_the_call_and_goes_to_done_with_it(
    office: Office,
) -> None:
    slip = office.write(
        "Approved/ann.md",
        "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n",
    )
    before = office.clock()
    entry = post(office.desk, SEND, office.letter(), Proposal(), slips=True)
    assert entry.kind == "sent"
    assert present(narrow(entry.state, life.Sent).verdict).via == "slip"
    assert office.clock() == before
    assert office.where(entry.id) == DONE
    assert not slip.exists()
    assert Note.parse((office.vault / DONE / "ann.md").read_bytes()).text("status") == "done"


def test_a_draft_that_a_person_wrote_into_approved_is_approved_and_gets_its_letter(
    office: Office,
) -> None:
    draft = office.write("Approved/own.md", DRAFT)
    office.look()
    note = Note.parse(draft.read_bytes())
    id = note.text("letter")
    assert office.state_of(id) == "approved"
    assert note.text("priority") == "urgent"
    assert note.body == "\nDear Ann,\nthis I wrote myself.\n"
    assert office.desk.ledger.letters.get(id).letter.text == "Dear Ann,\nthis I wrote myself.\n"
    assert office.told == []


def test_a_draft_that_a_person_wrote_into_approved_waits_out_the_undo_window(
    office: Office,
) -> None:
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

    def replace(
        self, path: str, data: bytes, was: File, ready: Ready = lambda _inode: None
    ) -> File:
        if not Dying.alive:
            Dying.alive = True
            raise Dead
        return super().replace(path, data, was, ready)


def test_a_draft_whose_desk_died_over_it_gets_its_letter_at_the_next_look(office: Office) -> None:
    Dying.alive, office.vaults = False, Dying
    office.reopen()
    draft = office.write("Approved/own.md", DRAFT)
    with pytest.raises(Dead):
        office.look()
    office.reopen()
    office.look()
    id = Note.parse(draft.read_bytes()).text("letter")
    assert [line.id for line in office.desk.ledger.lists.summaries()] == [id]
    assert office.state_of(id) == "approved"
    office.move(id, REJECTED)
    office.look()
    assert office.state_of(id) == "rejected"


def test_a_draft_that_comes_back_after_it_was_sent_is_not_sent_again(office: Office) -> None:
    office.write("Approved/own.md", DRAFT)
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    office.write("Approved/own.md", DRAFT)
    assert "is ignored: its letter is known" in office.look()
    office.clock.go(THREE_DAYS)
    office.look()
    office.desk.send_approved()
    assert office.sent() == ["From my own hand"]


# the log


class Gone(Vault):
    """A vault on a disk that was taken away."""

    def list(self, folder: str) -> Files:
        raise Unavailable("The disk is gone")


@pytest.mark.parametrize("act", ["propose", "status", "withdraw"])
def test_a_call_that_the_vault_fails_leaves_its_line_all_the_same(office: Office, act: str) -> None:
    entry = office.propose()
    office.vaults = Gone
    office.reopen()
    before = office.desk.ledger.actions.head()
    with pytest.raises(Unavailable):
        if act == "propose":
            office.propose()
        else:
            getattr(office.desk.calls, act)(SEND, entry.id)
    ((_, line),) = office.desk.ledger.actions.after(before)
    assert json.loads(line)["result"] == "error"


@pytest.mark.parametrize("kind", ["status", "withdraw"])
def test_a_call_that_is_refused_leaves_its_one_line_too(office: Office, kind: str) -> None:
    before = office.desk.ledger.actions.head()
    call = Call(kind, "claude")
    with pytest.raises(NotFound):
        getattr(office.desk.calls, kind)(call, "zzzzzzzzzz")
    assert office.desk.ledger.actions.head() == before + 1


def test_each_call_leaves_exactly_one_line(office: Office) -> None:
    letter = office.letter()
    lines = []

    def count(act: Callable[[], object]) -> None:
        before = office.desk.ledger.actions.head()
        act()
        new = office.desk.ledger.actions.after(before)
        lines.append(sum('"actor":"email_mcp"' in line for _, line in new))

    count(lambda: office.propose(letter))
    count(lambda: office.propose(replace(letter, id="bbbbbbbbbb")))
    count(lambda: office.desk.calls.status(SEND, letter.id))
    office.move(letter.id, APPROVED)
    count(lambda: office.propose(replace(letter, id="bbbbbbbbbb")))
    count(lambda: office.propose(replace(letter, id="bbbbbbbbbb")))
    later = office.propose()
    count(lambda: office.desk.calls.withdraw(SEND, later.id))
    assert lines == [1] * 6


class Full(SqliteLedger):
    """A ledger whose disk is full when an early line is to be kept."""

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        with super().write(synced=synced, early=early) as tx:
            yield cast(Transaction, Unkept(tx)) if early else tx


class Unkept:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def commit(self) -> None:
        raise Unavailable("The disk is full")


def test_a_call_whose_line_cannot_be_kept_leaves_the_line_of_its_refusal(office: Office) -> None:
    office.ledgers = Full
    office.reopen()
    call = Call("send_message", "claude", trace=Trace(lambda: 0.0))
    before = office.desk.ledger.actions.head()
    with pytest.raises(Unavailable) as full, office.desk.recorder.transaction(call) as keep:
        keep(to="codex")
    office.desk.recorder.write(call, error=full.value)
    ((_, line),) = office.desk.ledger.actions.after(before)
    assert json.loads(line)["error"] == "The disk is full"


def test_what_goes_wrong_after_a_call_left_its_line_adds_no_second_one(office: Office) -> None:
    call = SEND._replace(trace=Trace(lambda: 0.0))
    before = office.desk.ledger.actions.head()
    entry = office.propose(call=call)
    late = Unavailable("The answer could not be given")
    office.desk.recorder.write(call, error=late)
    ((_, line),) = office.desk.ledger.actions.after(before)
    assert (json.loads(line)["letter"], json.loads(line)["state"]) == (entry.id, "pending")
    assert late.logged


def test_what_a_restored_ledger_believes_of_a_letter_stands_in_the_log(office: Office) -> None:
    leaves, stays = office.approved(), office.approved()
    office.close()
    shutil.copytree(office.state, office.folder / "backup")
    office.open()
    office.desk.dispatch(leaves.id)
    office.close()
    shutil.rmtree(office.state)
    shutil.copytree(office.folder / "backup", office.state)
    office.open()
    office.look()
    lines = [json.loads(line) for _, line in office.desk.ledger.actions.after()]
    restored = [line for line in lines if line["action_type"] == "restore_ledger"]
    believed = {line["letter"]: line["state"] for line in restored}
    assert believed == {leaves.id: "sent", stays.id: "unknown"}


@pytest.mark.parametrize("days", [1, 2, 3, 4, 30, 365])
def test_a_clock_that_is_set_back_leaves_a_log_that_verifies(office: Office, days: int) -> None:
    office.propose()
    office.clock.jump(-days * DAY)
    office.propose()
    assert office.desk.log.verify() == []
    office.clock.jump(2 * days * DAY)
    office.propose()
    assert office.desk.log.verify() == []
    assert office.look() == ""


@pytest.mark.parametrize("agent", ["", "person", "orchestrator"])
def test_a_tools_draft_with_the_type_of_a_slip_is_never_the_letter_of_one_of_ours(
    office: Office, agent: str
) -> None:
    path = office.write(
        "Drafts/Lunch.md", f"---\ntype: email_send\nstatus: pending_approval\n{DRAFT[4:]}"
    )
    with office.desk.ledger.write() as tx:
        tx.tool_notes.add("Drafts/Lunch.md", path.stat().st_ino, "", agent)
    office.look()
    (line,) = office.desk.ledger.lists.summaries("pending")
    assert line.agent == "vault"
