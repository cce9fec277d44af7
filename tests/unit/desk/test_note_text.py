"""A letter's note as a person reads it in Obsidian: its name, the order of its parts, its properties."""

import os
import re
import time
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest

from postroom.core.text import INVISIBLE
from postroom.desk.note_text import OLD_SECTIONS, is_date_time
from postroom.vault.markdown import parse
from postroom.vault.note import Note
from tests.desks import ANN, BOB, CAT, SEND, YOU, Office, old_desk, parsed, titles
from tests.providers import BARRED, Courier
from tests.rounds import Rounds

# The name


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("Invoice 42", "Invoice 42"),
        ("", "No subject"),
        ("...", "No subject"),
        ("Re: Lunch - today?", "Re Lunch - today"),
        ("R&D: 50% off, #1 [draft] ^x | y", "R&D 50 off, 1 draft x y"),
        ("../../etc/passwd", "etc passwd"),
        (".hidden", "hidden"),
        ("C:\\Windows\\x", "C Windows x"),
        ("NUL.txt", "_NUL.txt"),
        ("](http://evil) ![x](http://evil/x.png)", "(http evil) ! x (http evil x.png)"),
        ("Rechnung für März", "Rechnung für März"),
        (unicodedata.normalize("NFD", "für"), "für"),
        ("a\u1fef\u1fefb", "a b"),  # composed, this is a backtick
        ("請求書 42", "請求書 42"),
        ("word " * 40, "word word word word word word word word word word word word"),
    ],
)
def test_a_note_is_named_by_subject_day_and_id(office: Office, subject: str, name: str) -> None:
    entry = office.propose(office.letter(subject=subject))
    assert office.note(entry.id).name == f"{name} (2026-11-15) {entry.id}.md"


@pytest.mark.parametrize(
    "subject", ["日本語 " * 60, "\U0001f468\u200d\U0001f469 family" * 30, "א" * 500]
)
def test_a_notes_name_is_short_and_shows_every_character_in_it(
    office: Office, subject: str
) -> None:
    name = office.note(office.propose(office.letter(subject=subject)).id).name
    assert len(name.encode()) < 215
    assert not INVISIBLE.search(name)
    assert unicodedata.is_normalized("NFC", name)


def test_a_note_that_a_person_renamed_is_the_letters_all_the_same(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    note.rename(note.with_name("to Ann.md"))
    office.look()
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"
    assert office.note(entry.id) == office.vault / "Approved" / "to Ann.md"


# The order


def body(office: Office, id: str) -> str:
    return parsed(office, id).body


def first_line(office: Office, id: str) -> str:
    return body(office, id).strip().partition("\n")[0]


def test_a_person_reads_the_risk_first_then_recipients_letter_and_what_to_do(
    office: Office,
) -> None:
    letter = office.letter(to=(ANN, YOU), cc=(BOB,), bcc=(CAT,), reply_to=(YOU,), subject="Tea")
    entry = office.propose(letter)
    lines = body(office, entry.id).split("\n")
    wanted = [
        "> [!warning] Worth a look",
        "- To: `Ann <ann@example.com>`",
        "- To: `You <you@example.org>`",
        '- Cc: `"Bob, the other" <bob@example.net>`',
        "- Bcc: `cat@example.net`",
        "- Reply-To: `You <you@example.org>`",
        "- Subject: `Tea`",
        "## Letter",
        "## What to do",
        "> [!note]- Details",
        "> #### Risk assessment",
        "> #### Rollback plan",
        "> #### Record",
    ]
    assert [line for line in lines if line in wanted] == wanted


@pytest.mark.parametrize(
    ("changes", "callout"),
    [
        ({"text": "The password: hunter2secret!\n"}, "> [!danger] Red: read this first"),
        ({}, "> [!warning] Worth a look"),
        ({"to": (YOU,)}, "> [!note] Nothing unusual"),
    ],
)
def test_the_first_line_has_the_risk(office: Office, changes: dict[str, str], callout: str) -> None:
    entry = office.propose(office.letter(**changes))
    assert first_line(office, entry.id) == callout


def test_the_worst_three_reasons_stand_at_the_top_and_the_others_once_in_the_details(
    office: Office,
) -> None:
    text = "The password: hunter2secret!\nAKIAIOSFODNN7EXAMPLE\nDE89 3704 0044 0532 0130 00\n"
    entry = office.propose(office.letter(bcc=(CAT,), text=text))
    top, shown = office.page(entry.id, ""), office.note(entry.id).read_text()
    warnings = [one.text for one in entry.card.warnings]
    assert len(warnings) > 3
    assert re.findall(r"^> - `(.*)`$", top, re.MULTILINE) == warnings[:3]
    assert f"> - and {len(warnings) - 3} more under *Details*" in top
    assert [shown.count(one) for one in warnings] == [1] * len(warnings)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_recipients_stand_in_the_body_once(office: Office, at: int) -> None:
    fields = ("to", "cc", "bcc")
    entry = office.propose(office.letter(**{"to": (YOU,), fields[at]: (CAT,)}))
    shown = [line for line in body(office, entry.id).split("\n") if "cat@example.net" in line]
    assert len([line for line in shown if line.startswith("- ")]) == 1


@pytest.mark.parametrize("way", ["sent", "rejected", "failed", "withdrawn", "unknown"])
def test_the_note_of_a_decided_letter_has_the_outcome_first(
    office: Office, courier: Courier, way: str
) -> None:
    entry = office.propose() if way in ("rejected", "withdrawn") else office.approved()
    courier.settles = False
    if way == "failed":
        courier.refuses(BARRED)
    elif way == "unknown":
        courier.loses(after=False)
    office.desk.send_approved()
    if way == "rejected":
        office.desk.decide(entry.id, "reject", by="ada", reason="> [!danger] no\n\n# no")
    elif way == "withdrawn":
        office.desk.calls.withdraw(SEND, entry.id)
    starts = {
        "sent": "> [!success] `Sent at 2026-11-15 00:00:10 UTC.`",
        "rejected": "> [!failure] `Rejected by ada at 2026-11-15 00:00:00 UTC: > [!danger] no  # no.`",
        "failed": "> [!failure] `Cannot be sent: ",
        "withdrawn": "> [!info] `Withdrawn by its agent",
        "unknown": "> [!danger] Not known: it may or may not have been sent",
    }
    assert first_line(office, entry.id).startswith(starts[way])
    assert "Level: **worth a look**" in office.page(entry.id, "Risk assessment")


# Quoted text


EVIL = (
    "](http://evil) ![x](http://evil/x.png)",
    "> [!danger] ![x](http://evil/x.png)",
    "`` ` ![x](http://evil/x.png) [[Handbook]] <img src=//evil>",
    "%% # heading $= dv.pages()",
)


@pytest.mark.parametrize("subject", EVIL)
def test_a_subject_can_neither_end_a_callout_nor_render_an_image_a_link_or_a_heading(
    office: Office, subject: str
) -> None:
    plain = office.propose(office.letter(to=(YOU,), subject="Tea"))
    entry = office.propose(office.letter(to=(YOU,), subject=subject))
    office.desk.decide(entry.id, "reject", by="ada", reason=f"{subject}\n\n> {subject}")
    office.desk.decide(plain.id, "reject", by="ada", reason="no")
    one, other = parse(body(office, entry.id)), parse(body(office, plain.id))
    assert [each.title for each in one.headings] == [each.title for each in other.headings]
    assert one.links == other.links == []
    quotes = [line for line in body(office, entry.id).split("\n") if line.startswith(">")]
    assert [line for line in quotes if line.startswith("> [!")] == [quotes[0], "> [!note]- Details"]


# The properties


def test_the_note_of_a_reply_names_its_conversation(office: Office) -> None:
    reply = office.letter(in_reply_to="<a@example.com>", thread="18d5a9", subject="Re: Hello")
    entry = office.propose(reply)
    assert office.field(entry.id, "thread_id") == "18d5a9"
    assert "A mail of which only its id is known: `<a@example.com>`" in body(office, entry.id)
    assert "thread_id" not in parsed(office, office.propose().id).fields


@pytest.fixture
def berlin() -> Iterator[None]:
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ["TZ"] = "UTC"
    time.tzset()


def test_properties_show_the_time_on_the_persons_clock(berlin: None, office: Office) -> None:
    entry = office.approved()
    office.desk.send_approved()
    fields = parsed(office, entry.id).fields
    assert fields["created"] == fields["approved_at"] == "2026-11-15T01:00:00"
    assert fields["sent_at"] == "2026-11-15T01:00:10"
    assert first_line(office, entry.id) == "> [!success] `Sent at 2026-11-15 01:00:10 CET.`"


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("2026-11-15T00:00:00", True),
        ("2026-11-15T00:00:00Z", True),  # as older versions wrote it
        ("2026-11-15T00:00", True),
        ("2026-11-15T05:45:00", True),  # on a machine in Kathmandu
        ("2026-11-15T00:00:00+01:00", False),
        ("2026-11-15T00:01:00", False),
        ("2026-11-17T00:00:00", False),
        ("soon", False),
        ("", False),
    ],
)
def test_a_moment_is_known_in_the_forms_that_others_wrote(text: str, is_same: bool) -> None:
    assert is_date_time(text, "2026-11-15T00:00:00") is is_same


def test_a_note_from_a_machine_in_another_zone_is_no_change_of_the_person(office: Office) -> None:
    entry = office.propose()
    created = datetime.fromisoformat(office.field(entry.id, "created"))
    office.edit(entry.id, created.isoformat(), (created + timedelta(hours=9)).isoformat())
    assert office.look() == ""
    assert office.field(entry.id, "created") == created.isoformat()


# The mail that a letter answers


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    rounds = Rounds(tmp_path)
    rounds.handbook("anything: draft_reply Yes.")
    rounds.round()
    yield rounds
    rounds.close()


def test_a_reply_links_to_the_note_of_the_mail_that_it_answers(rounds: Rounds) -> None:
    id = rounds.deliver("Tea ![x](http://evil/x.png)")
    rounds.round()
    mail, _ = rounds.mail_note(id)
    path, note = rounds.letter_note(id)
    name = mail.removeprefix("Needs_Action/").removesuffix(".md")
    answered = "ann@example.com's mail “Tea ![x](http://evil/x.png)”, 15 Nov 2026"
    # By its path while it waits: another note may have the same name.
    (target,) = re.findall(
        rf"## In reply to\n\[`{re.escape(name)}`\]\((.*)\): `{re.escape(answered)}`\n", note.body
    )
    assert ((rounds.vault / path).parent / unquote(target)).samefile(rounds.vault / mail)
    assert note.text("thread_id")
    rounds.carry(path, "Rejected")
    rounds.round()
    assert f"## In reply to\n[[{name}]]: `{answered}`\n" in rounds.letter_note(id)[1].body


def test_a_reply_to_a_mail_without_a_note_says_whose_it_is_and_when_it_came(
    rounds: Rounds,
) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    (rounds.vault / rounds.mail_note(id)[0]).unlink()
    rounds.carry(rounds.letter_note(id)[0], "Rejected")
    rounds.round()
    found = rounds.letter_note(id)[1].body
    assert "## In reply to\n`ann@example.com's mail “Tea”, 15 Nov 2026`\n" in found


# Notes that an earlier version wrote


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Office]:
    old = old_desk(tmp_path)
    yield old
    old.close()


def assert_new(office: Office, id: str) -> None:
    assert first_line(office, id).startswith("> [!")
    assert set(titles(office, id)) <= {"Letter", "Attachments", "What to do", "Rollback plan"}


@pytest.mark.parametrize("id", ["baaaaaaaaa", "caaaaaaaaa"])
def test_an_old_note_that_is_moved_is_the_verdict_and_is_written_anew(old: Office, id: str) -> None:
    name = old.note(id).name
    old.move(id, "Approved")
    assert "was put back" not in old.look()
    assert old.state_of(id) == "approved"
    assert old.note(id) == old.vault / "Approved" / name
    assert_new(old, id)
    old.clock.go(10)
    old.desk.send_approved()
    assert old.note(id) == old.vault / "Done" / name
    assert_new(old, id)


def test_an_old_note_keeps_what_a_person_wrote_into_it(old: Office) -> None:
    id = "baaaaaaaaa"
    old.edit(id, "## Envelope", "## Mine\nAsk **Cat**.\n\n## Envelope")
    old.edit(id, "Level: **", "Ask Bob, too. Level: **")
    old.look()
    old.move(id, "Rejected")
    old.look()
    assert old.state_of(id) == "rejected"
    kept = [title for title in titles(old, id) if title not in ("Letter", "Rollback plan")]
    assert kept == ["Mine", "Risk assessment (as you had it)"]
    assert "Ask **Cat**." in old.page(id, "Mine")
    assert not set(titles(old, id)) & set(OLD_SECTIONS)


def test_an_old_note_with_another_text_is_frozen_anew_and_shows_the_difference(
    old: Office,
) -> None:
    id = "baaaaaaaaa"
    old.edit(id, "Good day", "Good evening")
    old.move(id, "Approved")
    assert "frozen anew" in old.look()
    assert old.state_of(id) == "pending"
    assert titles(old, id) == ["Letter", "Difference", "What to do"]
    assert "Good evening" in old.desk.ledger.letters.get(id).letter.text
    old.move(id, "Approved")
    old.look()
    assert old.state_of(id) == "approved"


def test_an_old_note_that_a_person_touched_is_told_of_no_property_that_older_versions_wrote_otherwise(
    old: Office,
) -> None:
    id = "baaaaaaaaa"
    old.look()
    old.edit(id, "---\ntype:", "---\nmine: yes\ntype:")
    assert "put back" not in old.look()
    assert Note.parse(old.note(id).read_bytes()).text("mine") == "yes"
