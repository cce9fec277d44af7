"""Notes of a desk of version 0.1.0, which did not record what tools wrote: they count as a tool's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.vault.markdown import sections
from postroom.vault.note import Note
from tests.desks import Office, old_desk
from tests.fences import fenced
from tests.narrow import present


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    found = old_desk(tmp_path)
    yield found
    found.close()


def test_slips_and_requests_that_stood_in_approved_are_put_back_with_a_list_of_all_agents(
    office: Office,
) -> None:
    said = office.look(adopt=True)
    for name in ("Slip for Bob.md", "Ask Cat.md"):
        assert f"Approved/{name} went back to Pending_Approval/" in said
        note = Note.parse((office.vault / "Pending_Approval" / name).read_bytes())
        assert note.text("status") == "pending"
        assert "## A request" in note.body
    assert office.desk.display.slips() == []
    assert office.state_of("baaaaaaaaa") == "pending"


def test_a_draft_that_an_agent_wrote_and_was_frozen_is_shown_in_the_fence(office: Office) -> None:
    text = office.desk.ledger.letters.get("5bhprii4ly").letter.text
    office.look()
    note = Note.parse(office.note("5bhprii4ly").read_bytes())
    assert present(fenced(dict(sections(note.body))["Letter"])).strip() == text.strip()
    assert note.text("status") == "pending_approval"
    office.move("5bhprii4ly", "Approved")
    office.look()
    assert office.state_of("5bhprii4ly") == "approved"


def test_a_draft_that_an_agent_wrote_and_nobody_froze_is_that_agents_letter(office: Office) -> None:
    (office.vault / "Drafts/Lunch with Ann.md").rename(office.vault / "Approved/Lunch with Ann.md")
    office.look()
    (line,) = (one for one in office.desk.ledger.lists.summaries() if one.id not in KNOWN)
    assert line.agent == "claude"
    assert office.state_of(line.id) == "pending"
    assert office.where(line.id) == "Pending_Approval"


KNOWN = {"5bhprii4ly", *(f"{letter}aaaaaaaaa" for letter in "bcdefghijklmno")}
