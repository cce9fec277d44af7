"""A ledger and a vault of an older version are opened by this one, and nothing of them is lost."""

import pytest

from tests.desks import Office, old_desk

CLOSED = {
    "faaaaaaaaa": "rejected",
    "gaaaaaaaaa": "withdrawn",
    "haaaaaaaaa": "sent",
    "iaaaaaaaaa": "sent",
    "jaaaaaaaaa": "failed",
}
UNKNOWN = {"kaaaaaaaaa": "unknown", "laaaaaaaaa": "unknown"}
PLAIN = {
    "5bhprii4ly": "pending",
    "baaaaaaaaa": "pending",
    "caaaaaaaaa": "pending",
    "maaaaaaaaa": "pending",
    "naaaaaaaaa": "approved",
}
WITH_HTML = ("daaaaaaaaa", "eaaaaaaaaa", "oaaaaaaaaa")


@pytest.fixture
def office(tmp_path) -> Office:
    office = old_desk(tmp_path)
    yield office
    office.close()


def test_every_letter_of_an_older_ledger_keeps_its_state(office):
    before = {"Projects/Garden.md", "Projects/Tools.md", "Drafts/Lunch with Ann.md"}
    texts = {path: (office.vault / path).read_bytes() for path in before}
    office.look()
    for id, kind in {**CLOSED, **UNKNOWN, **PLAIN}.items():
        assert office.state_of(id) == kind, id
        assert len(office.notes(id)) == 1, id
    for id in WITH_HTML:
        assert office.state_of(id) in ("pending", "approved"), id
        assert len(office.notes(id)) == 1, id
    assert {path: (office.vault / path).read_bytes() for path in before} == texts
    assert office.desk.log.verify() == []


def test_the_plain_approved_letter_of_an_older_ledger_is_sent_once(office):
    office.desk.send_approved()
    assert office.state_of("naaaaaaaaa") == "sent"
    office.desk.send_approved()
    assert office.sent().count("approved, plain") == 1


def test_what_was_sent_or_may_have_been_is_not_sent_again(office):
    was = office.sent()
    office.desk.send_approved()
    for subject in ("sent", "sent, with HTML", "unknown", "unknown, with HTML", "failed"):
        assert office.sent().count(subject) == was.count(subject), subject
