"""A letter as a note: what it shows, and how it is written."""

import re
from dataclasses import replace

import pytest

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import Enclosure
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.vault.note import Note
from tests.desks import (
    ANN,
    BOB,
    CAT,
    DESK,
    SEND,
    START,
    THREE_DAYS,
    Office,
    journey,
    parsed,
    titles,
)
from tests.fences import fenced
from tests.narrow import present
from tests.providers import BARRED, BUSY, Courier

# What it shows


def test_a_note_carries_the_frontmatter_of_document_000_and_the_letters_own(office: Office) -> None:
    entry = office.propose(office.letter(to=(ANN, BOB), subject="Lunch: today?"))
    assert dict(parsed(office, entry.id).fields) == {
        "type": "email_send",
        "status": "pending",
        "action_type": "send_email",
        "to": "ann@example.com, bob@example.net",
        "subject": "Lunch: today?",
        "created": "2026-11-15T00:00:00",
        "letter": entry.id,
        "digest": entry.digest,
        "letter_version": "1",
        "desk": DESK,
        "agent": "claude",
        "expires": "2026-11-18T00:00:00",
        "risk": "worth a look",
    }


def test_a_reply_says_that_it_is_one(office: Office) -> None:
    entry = office.propose(office.letter(in_reply_to="<a@example.com>", subject="Re: Hello"))
    assert office.field(entry.id, "type") == "email_reply"
    assert office.field(entry.id, "action_type") == "reply_email"


def test_approved_at_is_there_from_the_verdict_on_and_goes_with_it(office: Office) -> None:
    entry = office.propose()
    assert "approved_at" not in parsed(office, entry.id).fields
    office.clock.go(60)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.field(entry.id, "approved_at") == "2026-11-15T00:01:00"
    office.desk.decide(entry.id, "undo")
    assert "approved_at" not in parsed(office, entry.id).fields
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert office.field(entry.id, "approved_at") == "2026-11-15T00:01:00"


def test_expires_is_there_while_the_letter_waits_and_is_reckoned_anew(office: Office) -> None:
    entry = office.propose()
    office.clock.go(3600)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert "expires" not in parsed(office, entry.id).fields
    office.desk.decide(entry.id, "undo")
    assert office.field(entry.id, "expires") == "2026-11-18T01:00:00"


def test_every_recipient_is_shown_in_full_the_hidden_ones_too(office: Office) -> None:
    hidden = tuple(Address.parse(f"person{n}@example.net") for n in range(12))
    letter = office.letter(to=(ANN,), cc=(BOB,), bcc=hidden, reply_to=(CAT,))
    entry = office.propose(letter)
    assert "- From: `You <you@example.org>`\n" in office.page(entry.id, "Record")
    assert entry.digest in office.page(entry.id, "Record")
    shown = office.page(entry.id, "")
    assert "- To: `Ann <ann@example.com>`\n" in shown
    assert '- Cc: `"Bob, the other" <bob@example.net>`\n' in shown
    assert "- Reply-To: `cat@example.net`\n" in shown
    assert re.findall(r"- Bcc: `(.*)`", shown) == [str(address) for address in hidden]


def test_the_letters_text_is_the_one_fence_under_letter(office: Office) -> None:
    text = "Dear Ann,\n\n## Not a heading\n\n- yours\n"
    entry = office.propose(office.letter(text=text))
    page = office.page(entry.id, "Letter")
    assert page == "## Letter\n```text\nDear Ann,\n\n## Not a heading\n\n- yours\n```\n\n"
    assert fenced(page) == text.rstrip("\n")


def test_a_note_has_document_000s_risk_assessment_and_rollback_plan(office: Office) -> None:
    entry = office.propose()
    assert titles(office, entry.id) == ["Letter", "What to do"]
    assert "Level: **worth a look**" in office.page(entry.id, "Risk assessment")
    plan = office.page(entry.id, "Rollback plan")
    assert "10 seconds" in plan
    assert f"postroom undo {entry.id}" in plan


def test_attachments_are_shown_with_type_size_hash_and_origin(office: Office) -> None:
    file = Enclosure("report.pdf", "application/pdf", b"%PDF-" + b"x" * 1995)
    entry = office.propose(office.letter(attachments=(file,)), origins=("mail",))
    shown = office.page(entry.id, "Attachments")
    assert "- [`report.pdf`](" in shown
    assert "2,000 bytes" in shown
    assert "from the mail" in shown


EVERY = ("pending", "approved", "held", "unknown", "sent", "rejected", "withdrawn", "expired", "failed")  # fmt: skip


def brought(office: Office, courier: Courier, kind: str, letter: None = None) -> Entry:
    """Bring a letter into a state, its note with it."""
    entry = office.propose(letter)
    courier.settles = False
    if kind in ("approved", "held", "unknown", "sent", "failed"):
        proof = None if office.rules.trust == "folder" else "correct horse"
        office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=proof)
    if kind == "held":
        courier.refuses(BUSY)
    elif kind == "unknown":
        courier.loses(after=False)
    elif kind == "failed":
        courier.refuses(BARRED)
    if kind in ("held", "unknown", "sent", "failed"):
        office.clock.go(10)
        office.desk.send_approved()
    elif kind == "rejected":
        office.desk.decide(entry.id, "reject", by="ada", reason="no")
    elif kind == "withdrawn":
        office.desk.calls.withdraw(SEND, entry.id)
    elif kind == "expired":
        office.clock.go(THREE_DAYS)
        office.look()
    assert office.state_of(entry.id) == {"held": "approved"}.get(kind, kind)
    return entry


@pytest.mark.parametrize("kind", EVERY)
def test_every_note_names_the_trust_level_and_the_mode(
    office: Office, courier: Courier, kind: str
) -> None:
    entry = brought(office, courier, kind)
    said = office.head(entry.id)
    assert "Trust level: folder (moving this note is the verdict)" in said
    assert "Mode: `live (test = false)`" in said


@pytest.mark.parametrize("kind", ["pending", "sent"])
def test_a_note_at_level_desk_says_that_moving_it_is_no_verdict(
    office: Office, courier: Courier, kind: str
) -> None:
    office.set_passphrase("correct horse")
    office.reopen(trust="desk")
    entry = brought(office, courier, kind)
    said = office.head(entry.id)
    assert "Trust level: desk (a passphrase is the verdict)" in said
    if kind == "pending":
        assert "A moved note is no verdict here" in said
        assert "Move this note" not in said


def test_a_note_of_a_draft_names_the_trust_level_and_the_mode_too(office: Office) -> None:
    draft = office.write(
        "Drafts/d.md",
        "---\nto: ann@example.com\nsubject: Hi\nstatus: pending_approval\n---\nHello Ann\n",
    )
    office.look()
    head = draft.read_text(encoding="utf-8").partition("\n---\n")[0]
    assert "folder" in head
    assert "live" in head


@pytest.mark.parametrize("kind", EVERY)
def test_every_note_says_what_can_be_done_or_what_became_of_it(
    office: Office, courier: Courier, kind: str
) -> None:
    entry = brought(office, courier, kind)
    said = office.head(entry.id)
    expected = {
        "pending": f"postroom approve {entry.id}",
        "approved": f"postroom undo {entry.id}",
        "held": "the server is busy",
        "unknown": f"postroom resolve {entry.id} --not-sent",
        "sent": "Sent at 2026-11-15 00:00:10 UTC",
        "rejected": "Rejected by ada at 2026-11-15 00:00:00 UTC: no",
        "withdrawn": "Withdrawn by its agent",
        "expired": "Expired without a verdict",
        "failed": "wants none of this",
    }
    assert expected[kind] in said


# HTML


HTML = '<p>Good day, <b>Ann</b>. Pay <a href="https://eve.example/x">Eve</a>.</p>'


def test_a_note_says_that_there_is_an_html_part_and_shows_all_its_words(office: Office) -> None:
    entry = office.propose(office.letter(html=HTML))
    assert "HTML part" in office.page(entry.id, "Record")
    shown = present(fenced(office.page(entry.id, "Letter"))).strip()
    assert shown == "Good day, Ann. Pay Eve (https://eve.example/x)."
    assert "HTML part" not in office.page(office.propose().id, "Record")


def test_a_letter_whose_html_was_not_built_here_is_refused(office: Office) -> None:
    for html, text in (
        ("<p>Hi</p>", "Hello\n"),
        ("<p class=x>Hi</p>", "Hi\n"),
        ("<title>Hi</title>", "Hi\n"),
        ("<p>Hi</p>", ""),
    ):
        letter = replace(office.letter(), html=html, text=text)
        for act in (office.propose, lambda one: office.services.mailbox.draft(SEND, one)):
            with pytest.raises(Invalid, match="made by Postroom alone"):
                act(letter)


@pytest.mark.parametrize("where", ["note", "terminal"])
def test_an_edit_of_the_text_drops_the_html(office: Office, courier: Courier, where: str) -> None:
    entry = office.propose(office.letter(html=HTML))
    if where == "note":
        office.edit(
            entry.id, present(fenced(office.page(entry.id, "Letter"))).strip(), "Good night, Ann."
        )
        office.move(entry.id, "Approved")
        office.look()
    else:
        office.desk.edit(entry.id, replace(entry.letter, text="Good night, Ann.\n"))
    anew = office.desk.ledger.letters.get(entry.id)
    assert (anew.letter.text, anew.letter.html) == ("Good night, Ann.\n", "")
    assert "HTML part" not in office.page(entry.id, "Record")
    office.desk.approve(entry.id, by="ada", digest=anew.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert b"Eve" not in courier.accepted[0].wire


def test_an_edit_of_a_recipient_alone_keeps_the_html(office: Office) -> None:
    entry = office.propose(office.letter(html=HTML))
    edited = office.desk.edit(entry.id, replace(entry.letter, to=(BOB,)))
    assert edited.letter.html == HTML
    assert office.field(entry.id, "to") == "bob@example.net"


def test_an_edit_to_html_that_was_not_built_here_is_refused(office: Office) -> None:
    entry = office.propose(office.letter(html=HTML))
    with pytest.raises(Invalid, match="made by Postroom alone"):
        office.desk.edit(entry.id, replace(entry.letter, html="<p>Pay Mallory.</p>"))
    assert office.desk.ledger.letters.get(entry.id).letter == entry.letter


# Writing


def test_nothing_half_written_is_left_beside_a_note(office: Office, courier: Courier) -> None:
    for _ in journey(office, courier, office.propose()):
        left = [p.name for p in office.vault.rglob("*") if p.is_file() and p.suffix == ".tmp"]
        assert left == []


def test_a_persons_file_of_the_same_name_is_never_written_over(office: Office) -> None:
    entry = office.approved()
    name = office.note(entry.id).name
    mine = office.write(f"Done/{name}", "mine\n")
    office.desk.send_approved()
    assert mine.read_text() == "mine\n"
    assert office.note(entry.id).name == name.replace(".md", " 2.md")


def test_a_note_says_moments_in_utc(office: Office) -> None:
    assert Stamp(START).iso == "2026-11-15T00:00:00Z"


def test_waiting_notes_say_what_counts_after_the_trust_level_has_changed(office: Office) -> None:
    entry = office.propose()
    assert "Move this note" in office.head(entry.id)
    office.set_passphrase("correct horse")
    office.reopen(trust="desk")
    office.look()
    assert "A moved note is no verdict here" in office.head(entry.id)
    assert "Trust level: desk" in office.head(entry.id)


def test_the_note_of_a_sent_letter_says_when_and_offers_nothing_to_do(office: Office) -> None:
    entry = office.approved()
    office.desk.send_approved()
    assert office.field(entry.id, "sent_at") == "2026-11-15T00:00:10"
    assert "What to do" not in titles(office, entry.id)
    assert "postroom undo" not in office.note(entry.id).read_text(encoding="utf-8")


def test_the_note_of_a_rejected_letter_says_how_to_have_it_after_all(office: Office) -> None:
    entry = office.propose()
    office.desk.decide(entry.id, "reject", by="ada", reason="no")
    assert "Nothing was sent" in office.page(entry.id, "Rollback plan")
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert "Move this note" in office.head(entry.id)


def test_a_draft_shows_its_risk_card_in_its_frontmatter(office: Office) -> None:
    draft = office.write(
        "Drafts/d.md",
        "---\nto: ann@example.com\nsubject: Hi\nstatus: pending_approval\n---\nHello Ann\n",
    )
    office.look()
    found = Note.parse(draft.read_bytes()).text("risk_assessment")
    assert "You have never written to ann@example.com" in found
