"""A ledger and a vault of an older version are opened by this one, and nothing of them is lost."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.core import life
from postroom.core.outgoing_html import reduce_html
from postroom.core.records import CardLine, Level
from postroom.store.sql.rows import text_columns
from tests.cases import for_each
from tests.desks import SEND, Office, old_desk
from tests.fences import fenced
from tests.narrow import present

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
def office(tmp_path: Path) -> Iterator[Office]:
    office = old_desk(tmp_path)
    yield office
    office.close()


def test_every_letter_of_an_older_ledger_keeps_its_state(office: Office) -> None:
    before = {"Projects/Garden.md", "Projects/Tools.md", "Drafts/Lunch with Ann.md"}
    texts = {path: (office.vault / path).read_bytes() for path in before}
    office.look()
    for id, kind in {**CLOSED, **UNKNOWN, **PLAIN}.items():
        assert office.state_of(id) == kind, id
        assert len(office.notes(id)) == 1, id
    for id in WITH_HTML:
        assert office.state_of(id) == "pending", id
        assert len(office.notes(id)) == 1, id
    assert {path: (office.vault / path).read_bytes() for path in before} == texts
    assert office.desk.log.verify() == []


def test_the_plain_approved_letter_of_an_older_ledger_is_sent_once(office: Office) -> None:
    office.desk.send_approved()
    assert office.state_of("naaaaaaaaa") == "sent"
    office.desk.send_approved()
    assert office.sent().count("approved, plain") == 1


def test_a_draft_of_an_older_ledger_is_recorded_before_it_is_sent(office: Office) -> None:
    draft = office.desk.ledger.letters.get("5bhprii4ly")
    office.desk.approve(draft.id, by="ada", digest=draft.digest)
    office.clock.go(60)
    office.desk.send_approved()
    assert office.state_of(draft.id) == office.state_of("naaaaaaaaa") == "sent"
    (file,) = (office.vault / "Logs").glob("gmail_mcp_*.jsonl")
    record = json.loads(file.read_text())  # of the draft alone, and not of the agent's letter
    assert (record["subject"], record["reply_to_message_id"]) == (draft.letter.subject, None)


def test_lists_show_of_an_older_letter_what_they_show_of_a_new_one(office: Office) -> None:
    lists, letters = office.desk.ledger.lists, office.desk.ledger.letters
    found = lists.summaries(*life.STATES)
    assert {one.id for one in found} >= {*CLOSED, *UNKNOWN, *PLAIN, *WITH_HTML}
    for one in found:
        entry = letters.get(one.id)
        expected = text_columns(entry.letter, entry.agent)
        shown = (one.account, one.recipient_name, one.opening)
        assert shown == tuple(expected[name] for name in ("account", "recipient_name", "opening"))
        warning = next(iter(entry.card.warnings), CardLine(Level.PLAIN, "", ""))
        assert (one.level, one.reason, one.warning) == (
            entry.card.level,
            warning.kind,
            warning.text,
        )
        assert one.version == entry.version
    assert {one.level for one in found} == {0, 1, 2}
    assert lists.facets("sent").accounts == ("default",)


def test_an_older_approval_counts_where_a_person_gave_it(tmp_path: Path) -> None:
    automatic = "UPDATE history SET detail = json_set(detail, '$.verdict[1]', 'required = false') WHERE letter = 'haaaaaaaaa'"
    counts = []
    for name, change in (("a", ""), ("b", automatic)):
        with closing(old_desk(tmp_path / name, change)) as office:
            counts.append(sum(one.approved for one in office.desk.ledger.lists.agents(0)))
    assert counts[0] - counts[1] == 1


@for_each(
    "change, answered",
    [
        ("UPDATE letter SET frozen = json_set(frozen, '$.in_reply_to', '<1@x.example>')", "<1@x.example>"),
        ("INSERT INTO meta VALUES ('fields 5bhprii4ly', '{\"reply_to_message_id\": \"m1\"}')", "m1"),
    ],
)  # fmt: skip
def test_the_record_of_an_older_draft_names_the_mail_that_it_answers(
    tmp_path: Path, change: str, answered: str
) -> None:
    with closing(old_desk(tmp_path, change)) as office:
        assert json.loads(office.desk.ledger.letters.get("5bhprii4ly").pre_send) == answered
        assert office.desk.ledger.letters.get("naaaaaaaaa").pre_send == ""


def test_what_was_sent_or_may_have_been_is_not_sent_again(office: Office) -> None:
    was = office.sent()
    office.desk.send_approved()
    for subject in ("sent", "sent, with HTML", "unknown", "unknown, with HTML", "failed"):
        assert office.sent().count(subject) == was.count(subject), subject


# HTML of the older version

REDUCED = {
    "daaaaaaaaa": (
        '<p>Hello <b>Ann</b>, read <a href="https://example.com/x">this</a>.</p>',
        "Hello Ann, read this (https://example.com/x).\n",
    ),
    "eaaaaaaaaa": ("", "Hello Ann.\n"),
    "oaaaaaaaaa": ("<div>Hello Bob.</div>", "Hello Bob.\n"),
}


def refrozen(office: Office, id: str) -> None:
    """Check that a letter was frozen anew, and that the person is told."""
    entry = office.desk.ledger.letters.get(id)
    assert (entry.letter.html, entry.letter.text) == REDUCED[id]
    assert entry.digest == entry.letter.digest
    assert entry.content_key == entry.letter.content_key
    assert (entry.kind, entry.version) == ("pending", office.desk.ledger.notes.location(id).version)
    (line,) = [line for line in entry.card.lines if line.kind == "refrozen"]
    assert "read it again before you approve it" in line.text
    assert ("<style> is not allowed" in line.text) == (id == "eaaaaaaaaa")
    assert "read it again" in office.head(id)
    assert office.note(id).parent.name == "Pending_Approval"
    assert present(fenced(office.page(id, "Letter"))).strip() == entry.letter.text.strip()


def test_html_letters_that_wait_or_are_approved_are_frozen_anew_and_wait_for_another_verdict(
    office: Office,
) -> None:
    before = {id: office.desk.ledger.letters.get(id).digest for id in WITH_HTML}
    said = office.look()
    for id in WITH_HTML:
        refrozen(office, id)
        assert office.desk.ledger.letters.get(id).digest != before[id]
        assert id in said
        assert "read it again" in office.page(id, "")
    versions = {id: office.desk.ledger.letters.get(id).version for id in WITH_HTML}
    assert "read it again" not in office.look()
    assert {id: office.desk.ledger.letters.get(id).version for id in WITH_HTML} == versions
    office.clock.go(60)
    office.desk.send_approved()
    assert {office.state_of(id) for id in WITH_HTML} == {"pending"}
    for id in WITH_HTML:
        office.desk.approve(id, by="ada", digest=office.desk.ledger.letters.get(id).digest)
    office.clock.go(60)
    office.desk.send_approved()
    assert {office.state_of(id) for id in WITH_HTML} == {"sent"}
    assert office.desk.log.verify() == []


def test_letters_that_may_have_been_sent_keep_their_bytes_until_they_wait_again(
    office: Office,
) -> None:
    was = {id: office.desk.ledger.letters.get(id) for id in ("iaaaaaaaaa", "laaaaaaaaa")}
    office.look()
    for id, entry in was.items():
        now = office.desk.ledger.letters.get(id)
        assert (now.letter, now.digest, now.state) == (entry.letter, entry.digest, entry.state)
    assert "recipients may see other words" in was["laaaaaaaaa"].letter.about_html
    office.desk.decide("laaaaaaaaa", "resolve", by="ada", sent=False)
    office.look()
    entry = office.desk.ledger.letters.get("laaaaaaaaa")
    assert (entry.kind, entry.letter.html) == ("pending", "<div>Lost</div>")


def test_a_call_is_recognised_after_its_letter_was_frozen_anew(office: Office) -> None:
    """What was sent, or may have been, is not asked for twice because its HTML is written anew."""
    office.look()
    for id in ("daaaaaaaaa", "oaaaaaaaaa", "laaaaaaaaa", "iaaaaaaaaa"):
        entry = office.desk.ledger.letters.get(id)
        html, text, _ = reduce_html(entry.letter.html)
        letter = replace(entry.letter, id="zzzzzzzzzz", html=html, text=text)
        assert office.propose(letter, SEND._replace(agent=entry.agent)).id == id


def test_an_interruption_leaves_either_the_old_letter_or_the_new_one_with_its_notice(
    office: Office,
) -> None:
    for id in WITH_HTML:
        office.desk.verdicts.refreeze(id)  # and no note is written
    office.reopen()
    office.look()
    for id in WITH_HTML:
        refrozen(office, id)


def test_a_note_moved_before_the_upgrade_approves_nothing(office: Office) -> None:
    for id in ("daaaaaaaaa", "eaaaaaaaaa"):
        office.move(id, "Approved")
    office.look()
    for id in ("daaaaaaaaa", "eaaaaaaaaa"):
        refrozen(office, id)


def test_html_that_was_not_built_here_never_leaves(office: Office) -> None:
    office.clock.go(60)
    office.desk.dispatcher.dispatch("oaaaaaaaaa")  # before anybody looked at the folders
    assert office.state_of("oaaaaaaaaa") == "pending"
    office.look()
    refrozen(office, "oaaaaaaaaa")
    assert "approved, with HTML" not in office.sent()
