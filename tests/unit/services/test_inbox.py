"""The inbox's records: one transaction for each step, and nothing over a newer version."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.core.handbook import Judgement
from postroom.core.records import InboxItem, InboxState, MailboxCursor
from postroom.services.inbox import CHUNK, InboxService
from tests.desks import Office

CURSOR = MailboxCursor("c1")


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    office.close()


@pytest.fixture
def inbox(office: Office) -> InboxService:
    return office.services.inbox


def only(inbox: InboxService, state: InboxState = InboxState.FOUND) -> InboxItem:
    (item,) = inbox.records.in_states(state)
    return item


def test_mails_that_were_there_before_are_left_alone_until_they_are_asked_for(
    inbox: InboxService,
) -> None:
    inbox.add("work", CURSOR, ["new"], earlier=["old"])
    assert only(inbox).message == "new"
    assert inbox.add_backlog("work", ["old", "new", "unseen"]) == 2
    found = inbox.records.in_states(InboxState.FOUND)
    assert {item.message for item in found} == {"new", "old", "unseen"}


def test_a_mail_that_is_known_is_not_new(inbox: InboxService) -> None:
    assert inbox.add("work", CURSOR, ["a", "b"]) == 2
    assert inbox.add("work", CURSOR, ["b", "c"]) == 1
    assert inbox.records.known_of("work", ["a", "d"]) == {"a"}


def test_a_mail_put_aside_is_looked_at_again_when_its_labels_change(inbox: InboxService) -> None:
    inbox.add("work", CURSOR, ["a"])
    inbox.close_without_note(only(inbox), InboxState.ASIDE)
    assert inbox.add("work", MailboxCursor("c2"), [], ["a"]) == 1
    assert only(inbox).message == "a"
    assert inbox.records.cursor("work") == MailboxCursor("c2")


def test_each_mail_comes_in_one_chunk(inbox: InboxService) -> None:
    ids = [f"{number:03}" for number in range(2 * CHUNK + 1)]
    inbox.add("work", CURSOR, ids)
    chunks = list(inbox.chunks(InboxState.FOUND))
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, 1]
    assert [item.message for chunk in chunks for item in chunk] == ids


def test_a_decision_about_a_mail_that_somebody_changed_is_not_recorded(
    office: Office, inbox: InboxService
) -> None:
    inbox.add("work", CURSOR, ["a", "b"])
    first, second = inbox.records.in_states(InboxState.FOUND)
    assert inbox.change(first, held="somebody was faster")
    before = office.desk.reader.actions.head()
    archive = Judgement("archive", why="An advertisement.")
    results = [
        item._replace(judgement=archive, by="line 5 of Handbook.md") for item in (first, second)
    ]
    assert inbox.save_decisions(results) == [results[1]]
    assert only(inbox, InboxState.DONE).message == "b"
    assert office.desk.reader.actions.head() == before + 1
    assert not inbox.change(first, held="too late")
