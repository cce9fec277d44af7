"""Notes whose write meets another process, a log that cannot be written, or an editor's odd characters."""

from pathlib import Path

import pytest

from postroom.core import life
from tests.desks import SEND, Office

DAY = "Logs/actions"


def break_log(office: Office) -> tuple[Path, Path]:
    """Put a folder where today's log is; return it, and where the log is meanwhile."""
    log = next((office.vault / DAY).iterdir())
    away = log.with_name(f"{log.name}.away")
    log.rename(away)
    log.mkdir()
    return log, away


def mend_log(log: Path, away: Path) -> None:
    log.rmdir()
    away.rename(log)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path, undo_seconds=10)


def approved(office: Office) -> str:
    entry = office.propose()
    office.desk.reconcile()
    office.desk.approve(entry.id, by="you", digest=entry.digest)
    office.clock.go(11)
    return entry.id


def test_a_note_that_moved_while_the_log_could_not_be_written_is_known_where_it_is(
    office: Office,
) -> None:
    id = approved(office)
    broken: list[tuple[Path, Path]] = []
    office.at("recorded", lambda: broken.append(break_log(office)))
    assert office.desk.dispatch(id).kind == "sent"
    office.at("recorded", lambda: None)
    mend_log(*broken[0])
    assert office.where(id) == "Done"
    assert office.desk.ledger.notes.location(id).path.startswith("Done/")
    office.clock.go(5)
    office.move(id, "Approved")
    assert any("was sent already" in line for line in office.desk.reconcile())
    assert office.where(id) == "Done"


def test_a_note_written_by_two_at_once_shows_the_verdict(office: Office) -> None:
    """The page approves a letter whose note the agent's process has not written yet."""
    page = office.beside()
    entry = office.desk.proposals.propose(SEND, office.letter())
    seen = page.desk.ledger.letters.get(entry.id)
    approved = page.desk.verdicts.approve(seen, by="you", via=life.Channel.PAGE, digest=seen.digest)
    office.desk.sync_notes_and_log(entry)
    page.desk.sync_notes_and_log(approved)
    assert office.where(entry.id) == "Approved"
    assert office.field(entry.id, "status") == "approved"
    page.close()


@pytest.mark.parametrize("sign", ["\u2028", "\u00a0", "\x0c"])
def test_a_note_whose_fence_an_odd_space_keeps_open_approves_nothing(
    office: Office, sign: str
) -> None:
    entry = office.propose()
    office.desk.reconcile()
    note = office.note(entry.id)
    text = note.read_text()
    end = text.index("```\n", text.index("```", text.index("## Letter")) + 3)
    note.write_text(f"{text[:end]}```{sign}\n{text[end + 4 :]}")
    office.clock.go(5)
    office.move(entry.id, "Approved")
    assert any("was not approved" in line for line in office.desk.reconcile())
    assert office.state_of(entry.id) == "pending"
