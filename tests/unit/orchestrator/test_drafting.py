"""What changes about a mail when its letter was sent, rejected or reopened."""

import pytest

from postroom.core import life
from postroom.core.handbook import Judgement
from postroom.core.records import InboxItem, InboxState
from postroom.orchestrator.triage import plan_for_letter
from tests.rounds import Rounds


@pytest.fixture
def item(rounds: Rounds) -> InboxItem:
    """A mail whose answer waits for the person."""
    id = rounds.deliver("Tea")
    rounds.round()
    return rounds.item(id)


def test_a_letter_that_waits_changes_nothing_about_a_drafted_mail(
    rounds: Rounds, item: InboxItem
) -> None:
    entry = rounds.desk.ledger.letters.get(item.letter)
    assert plan_for_letter(item, entry, has_model=True) == {}


def test_a_letter_that_waits_again_brings_its_mail_back(rounds: Rounds, item: InboxItem) -> None:
    entry = rounds.desk.ledger.letters.get(item.letter)
    left = item._replace(state=InboxState.NEEDS_INFO)
    assert plan_for_letter(left, entry, has_model=True) == {"state": InboxState.DRAFTED}


def test_another_version_is_asked_of_a_model_and_else_left_to_the_person(
    rounds: Rounds, item: InboxItem
) -> None:
    entry = rounds.desk.decide(item.letter, "revise", by="ada", reason="Shorter")
    assert plan_for_letter(item, entry, has_model=True) == {
        "state": InboxState.PENDING, "wish": "Shorter", "tries": 0,
    }  # fmt: skip
    changes = plan_for_letter(item, entry, has_model=False)
    assert changes["state"] == InboxState.NEEDS_INFO
    assert isinstance(changes["judgement"], Judgement)
    assert "Shorter" in changes["judgement"].why


def test_a_rejected_letter_leaves_its_mail_to_the_person(rounds: Rounds, item: InboxItem) -> None:
    entry = rounds.desk.decide(item.letter, "reject", by="ada", reason="I am away")
    assert isinstance(entry.state, life.Rejected)
    assert plan_for_letter(item, entry, has_model=True)["state"] == InboxState.NEEDS_INFO
