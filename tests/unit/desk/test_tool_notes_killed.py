"""A desk that is killed between two effects: one move is never two verdicts, nor two lines of the log."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from postroom.desk.recorder import Call
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.vault import File, Ready, Vault
from tests.desks import Dead, Office

WRITE = Call("write_note", "claude", "vault")
DRAFT = {"to": "ann@example.com", "subject": "Lunch"}
SLIP = {"type": "email_send", "status": "pending", "to": "ann@example.com"}


class Life:
    """How many effects are left."""

    left = -1

    @classmethod
    def step(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            raise Dead


class MortalVault(Vault):
    """A vault whose process may die before or after a change."""

    def replace(
        self, path: str, data: bytes, was: File, ready: Ready = lambda _inode: None
    ) -> File:
        Life.step()
        made = super().replace(path, data, was, ready)
        Life.step()
        return made

    def move(
        self,
        source: str,
        target: str,
        was: File,
        data: bytes | None = None,
        ready: Ready = lambda _inode: None,
    ) -> File:
        Life.step()
        if Life.left == 1:  # between the two names
            content = self.read(source)[0] if data is None else data
            super().create(target, content, ready=ready)
        Life.step()
        made = super().move(source, target, was, data, ready)
        Life.step()
        return made


class MortalLedger(SqliteLedger):
    """A ledger whose process may die after a transaction."""

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        with super().write(synced=synced, early=early) as tx:
            yield tx
        Life.step()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Callable[[str], Office]]:
    found = []

    def begin(name: str) -> Office:
        Life.left = -1
        office = Office(tmp_path / name)
        office.vaults, office.ledgers = MortalVault, MortalLedger
        office.reopen()
        found.append(office)
        return office

    yield begin
    Life.left = -1
    for office in found:
        office.close()


def looked(office: Office, after: int) -> bool:
    """Look, and be killed after so many effects; return whether there were as many."""
    Life.left = after
    try:
        office.look(adopt=True)
    except Dead:
        Life.left = -1
        office.reopen()
        office.look(adopt=True)
        office.look(adopt=True)
        return True
    ended, Life.left = Life.left > 0, -1
    assert ended
    return False


def moved(office: Office, path: str) -> None:
    """Move a note to Approved/ as a person does."""
    (office.vault / "Approved").mkdir(exist_ok=True)
    (office.vault / path).rename(office.vault / "Approved" / path.rpartition("/")[2])


def test_a_tools_draft_waits_wherever_the_desk_is_killed_and_a_second_move_approves_it(
    mortal: Callable[[str], Office],
) -> None:
    for after in range(1, 60):
        office = mortal(f"draft {after}")
        office.services.notebook.write(WRITE, "Drafts/Lunch.md", DRAFT, "Noon?\n", "")
        moved(office, "Drafts/Lunch.md")
        killed = looked(office, after)
        (line,) = office.desk.ledger.lists.summaries()
        assert (line.agent, office.state_of(line.id)) == ("claude", "pending"), after
        assert office.where(line.id) == "Pending_Approval", after
        assert list((office.vault / "Approved").iterdir()) == [], after
        moved(office, f"Pending_Approval/{office.note(line.id).name}")
        office.look()
        assert office.state_of(line.id) == "approved", after
        if not killed:
            break
    assert after > 5
    assert not killed


def test_a_tools_request_approves_its_letter_once_wherever_the_desk_is_killed(
    mortal: Callable[[str], Office],
) -> None:
    for after in range(1, 60):
        office = mortal(f"request {after}")
        office.services.notebook.write(WRITE, "Plans/Lunch.md", SLIP, "Please.\n", "")
        entry = office.propose()
        moved(office, "Plans/Lunch.md")
        killed = looked(office, after)
        assert office.state_of(entry.id) == "pending", after
        (request, *_) = sorted((office.vault / "Pending_Approval").glob("Lunch*.md"))
        assert entry.id in request.read_text(), after
        moved(office, f"Pending_Approval/{request.name}")
        again = looked(office, after)
        assert office.state_of(entry.id) == "approved", after
        office.desk.decide(entry.id, "undo")
        office.look(adopt=True)
        office.look(adopt=True)
        assert office.state_of(entry.id) == "pending", after
        if not killed and not again:
            break
    assert after > 5
    assert not (killed or again)


class DiesAfterTheLine(SqliteLedger):
    """A ledger whose process dies as soon as a line of this action is kept."""

    action = ""

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        head = self.actions.head()
        with super().write(synced=synced, early=early) as tx:
            yield tx
        if any(f'"action_type":"{self.action}"' in line for _, line in self.actions.after(head)):
            raise Dead


class DiesAfterTheMove(DiesAfterTheLine):
    action = "move_note"


class DiesAfterTheEdit(DiesAfterTheLine):
    action = "edit_letter"


def test_a_move_whose_process_dies_after_its_line_is_told_once(
    mortal: Callable[[str], Office],
) -> None:
    office, call = mortal("move"), Call("move_note", "claude", "vault")
    office.write("Notes/old.md", "Text.\n")
    office.ledgers = DiesAfterTheMove
    office.reopen()
    with closing(office.services.notebook) as notebook, pytest.raises(Dead):
        list(notebook.mover.move(call, "Notes/old.md", "Notes/new.md"))
    office.ledgers = SqliteLedger
    office.reopen()
    with closing(office.services.notebook) as notebook:
        list(notebook.mover.move(call, "Notes/new.md", "Notes/newer.md"))  # it ends what was begun
    lines = [json.loads(line) for _, line in office.desk.ledger.actions.after()]
    moves = [line["target"] for line in lines if line["action_type"] == "move_note"]
    assert moves == ["Notes/old.md", "Notes/new.md"]
    assert [file.name for file in (office.vault / "Notes").iterdir()] == ["newer.md"]


def test_an_edited_note_comes_home_unblamed_though_the_desk_dies_as_it_freezes_it_anew(
    mortal: Callable[[str], Office],
) -> None:
    office = mortal("edit")
    entry = office.propose(office.letter(text="At four.\n"))
    office.edit(entry.id, "At four.", "At five.")
    moved(office, f"Pending_Approval/{office.note(entry.id).name}")
    office.ledgers = DiesAfterTheEdit
    office.reopen()
    with pytest.raises(Dead):
        office.look()
    office.ledgers = SqliteLedger
    office.reopen()
    assert "was put back" not in office.look()
    assert (office.state_of(entry.id), office.where(entry.id)) == ("pending", "Pending_Approval")
    assert office.desk.ledger.letters.get(entry.id).letter.text == "At five.\n"
    moved(office, f"Pending_Approval/{office.note(entry.id).name}")
    office.look()
    assert office.state_of(entry.id) == "approved"
