"""Drafts that are letters: the whole body is the text, and all other keys are the person's."""

from dataclasses import replace
from pathlib import Path

import pytest

from postroom.core.address import Address
from postroom.desk.proposals import Proposal
from postroom.mail.mailbox import Arrival
from postroom.vault.note import Note
from tests.desks import DESK, SEND, START, Office, survives
from tests.mails import mail
from tests.posting import post
from tests.providers import Courier

# Drafts


def draft(
    office: Office, head: str = "", body: str = "Hello Ann,\n\nyours\n", where: str = "Drafts/d.md"
) -> Path:
    head = head or "to: ann@example.com\nsubject: Lunch\nstatus: pending_approval\n"
    return office.write(where, f"---\n{head}---\n{body}")


def letter_of(path: Path) -> str:
    return Note.parse(path.read_bytes()).text("letter")


@pytest.mark.parametrize(
    ("path", "agent", "letters"),
    [
        ("Drafts/d.md", "claude", "claude"),
        ("Drafts/d.md", "", "vault"),  # a tool wrote it, nobody knows for whom
        ("Drafts/d.md", "person", "vault"),
        ("Drafts/other.md", "claude", "vault"),  # only the inode is that of the agent's file
    ],
)
def test_a_tools_draft_is_its_agents_letter_only_where_that_is_certain(
    office: Office, path: str, agent: str, letters: str
) -> None:
    written = draft(office)
    with office.desk.ledger.write() as tx:
        tx.tool_notes.add(path, written.stat().st_ino, "", agent)
    office.look()
    assert [line.agent for line in office.desk.ledger.lists.summaries()] == [letters]


def test_a_draft_with_a_recipient_that_asks_for_approval_is_frozen_as_it_appears(
    office: Office,
) -> None:
    path = draft(office)
    office.look()
    entry = office.desk.ledger.letters.get(letter_of(path))
    assert (entry.kind, entry.home, entry.form) == ("pending", "Drafts", "draft")
    assert (entry.letter.subject, entry.letter.text) == ("Lunch", "Hello Ann,\n\nyours\n")
    assert entry.letter.envelope == (Address("ann", "example.com"),)
    note = Note.parse(path.read_bytes())
    assert note.body == "Hello Ann,\n\nyours\n"
    assert note.text("status") == "pending_approval"
    assert note.text("digest") == entry.digest
    assert note.text("desk") == DESK
    assert note.text("expires") == "2026-11-18T00:00:00"
    assert office.look() == ""


@pytest.mark.parametrize(
    "head",
    [
        "subject: Lunch\nstatus: pending_approval\n",
        "to: ann@example.com\nsubject: Lunch\n",
        "to: ann@example.com\nsubject: Lunch\nstatus: draft\n",
    ],
)
def test_a_draft_without_recipient_or_request_is_left_alone(office: Office, head: str) -> None:
    path = draft(office, head)
    before = path.read_bytes()
    office.look()
    assert path.read_bytes() == before
    assert office.desk.ledger.lists.summaries() == []


def test_a_draft_that_cannot_be_a_letter_is_said_and_left_alone(office: Office) -> None:
    path = draft(office, "to: nobody\nsubject: Lunch\nstatus: pending_approval\n")
    before = path.read_bytes()
    assert "Drafts/d.md was not taken as a letter" in office.look()
    assert path.read_bytes() == before


def test_a_draft_is_listed_moved_and_sent_like_any_letter(office: Office, courier: Courier) -> None:
    path = draft(office)
    office.look()
    id = letter_of(path)
    assert [line.id for line in office.desk.ledger.lists.summaries("pending")] == [id]
    office.move(id, "Approved")
    office.look()
    assert office.state_of(id) == "approved"
    office.desk.decide(id, "undo")
    assert office.where(id) == "Drafts"
    office.move(id, "Approved")
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert office.where(id) == "Done"
    assert office.field(id, "status") == "done"
    assert courier.accepted[0].letter.text == "Hello Ann,\n\nyours\n"


def test_a_draft_rejected_goes_to_rejected_and_one_deleted_comes_back(office: Office) -> None:
    path = draft(office)
    office.look()
    id = letter_of(path)
    path.unlink()
    assert "Drafts/" in office.look()
    assert office.where(id) == "Drafts"
    assert Note.parse(office.note(id).read_bytes()).body.strip() == "Hello Ann,\n\nyours"
    office.desk.decide(id, "reject", by="ada", reason="")
    assert office.where(id) == "Rejected"


def test_a_draft_edited_and_moved_is_frozen_anew_and_comes_back_to_drafts(
    office: Office, courier: Courier
) -> None:
    path = draft(office)
    office.look()
    id = letter_of(path)
    office.edit(id, "Hello Ann", "Hello dear Ann")
    office.move(id, "Approved")
    assert "frozen anew" in office.look()
    assert office.where(id) == "Drafts"
    assert office.desk.ledger.letters.get(id).letter.text == "Hello dear Ann,\n\nyours\n"
    office.move(id, "Approved")
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert courier.accepted[0].letter.text == "Hello dear Ann,\n\nyours\n"


def test_everybody_named_in_a_draft_is_in_its_envelope(office: Office) -> None:
    head = (
        "to:\n  - Ann <ann@example.com>\n  - bob@example.net\ncc: cat@example.net\n"
        "bcc: [dan@example.net]\nsubject: Lunch\nstatus: pending_approval\n"
    )
    path = draft(office, head)
    office.look()
    letter = office.desk.ledger.letters.get(letter_of(path)).letter
    assert [a.spec for a in letter.to] == ["ann@example.com", "bob@example.net"]
    assert [a.spec for a in letter.cc] == ["cat@example.net"]
    assert [a.spec for a in letter.bcc] == ["dan@example.net"]


def test_a_draft_that_answers_a_mail_is_threaded(office: Office) -> None:
    office.box.add_mails(
        [Arrival(mail(message_id="<q@example.com>"), frozenset({"INBOX"}), int(START))]
    )
    (found,) = office.box.search("in:inbox").items
    head = (
        f"to: ann@example.com\nsubject: 'Re: Hello'\nstatus: pending_approval\n"
        f"reply_to_message_id: {found.id}\n"
    )
    path = draft(office, head)
    office.look()
    letter = office.desk.ledger.letters.get(letter_of(path)).letter
    assert letter.in_reply_to == "<q@example.com>"
    assert letter.thread == office.box.message(found.id).thread


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("to: ann@example.com", "to: eve@example.com"),
        ("subject: Lunch", "subject: Supper"),
        ("status: ", "cc: eve@example.com\nstatus: "),
        ("status: ", "bcc: eve@example.com\nstatus: "),
    ],
)
def test_a_frozen_drafts_display_fields_are_put_back_and_said(
    office: Office, old: str, new: str
) -> None:
    path = draft(office)
    office.look()
    id = letter_of(path)
    office.edit(id, old, new)
    said = office.look()
    assert new.partition(":")[0] in said
    assert "eve@example.com" not in office.note(id).read_text(encoding="utf-8")
    assert "Supper" not in office.note(id).read_text(encoding="utf-8")


def test_a_frozen_drafts_own_keys_survive_every_transition(
    office: Office, courier: Courier
) -> None:
    path = draft(
        office,
        "to: Ann <ann@example.com>  # my friend\nsubject: Lunch\n"
        "priority: urgent\nstatus: pending_approval\n",
    )
    office.look()
    entry = office.desk.ledger.letters.get(letter_of(path))
    survives(
        office, courier, entry, "priority: urgent\n", "to: Ann <ann@example.com>  # my friend\n"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_drafts_newlines_survive_and_are_no_edit(office: Office, newline: str) -> None:
    text = "---\nto: ann@example.com\nsubject: Lunch\nstatus: pending_approval\n---\nHello\n\nAnn\n"
    path = office.write("Drafts/d.md", text.replace("\n", newline))
    office.look()
    id = letter_of(path)
    office.move(id, "Approved")
    office.look()
    assert office.state_of(id) == "approved"
    raw = office.note(id).read_bytes()
    assert raw.count(b"\r\n") == (raw.count(b"\n") if newline == "\r\n" else 0)


def test_a_draft_with_the_same_words_is_not_taken_twice(office: Office) -> None:
    path = draft(office)
    office.look()
    id = letter_of(path)
    copy = draft(office, where="Drafts/copy.md")
    assert "is ignored: its letter is known" in office.look()
    assert letter_of(copy) == ""
    assert [line.id for line in office.desk.ledger.lists.summaries()] == [id]


def test_an_edit_in_the_terminal_of_a_draft_is_written_into_its_note(office: Office) -> None:
    path = draft(office)
    office.look()
    entry = office.desk.ledger.letters.get(letter_of(path))
    edited = office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    assert office.desk.display.text(edited) == "Other words.\n"
    assert office.desk.note_difference(edited) == ""


def test_a_letter_proposed_from_a_draft_keeps_its_home(office: Office) -> None:
    entry = post(office.desk, SEND, office.letter(), Proposal(home="Drafts", form="note"))
    assert office.where(entry.id) == "Drafts"
    office.move(entry.id, "Approved")
    office.look()
    office.desk.decide(entry.id, "undo")
    assert office.where(entry.id) == "Drafts"
