"""New mail becomes notes: none is missed, none comes twice, and nothing that it says has an effect."""

import re
from pathlib import Path
from typing import Any, Never

import pytest

from postroom.core.errors import AuthRequired, NotFound, Unavailable
from postroom.core.message import DRAFT, INBOX, SENT, SPAM, TRASH, UNREAD
from postroom.mail.local.mailbox import LocalMailbox
from postroom.mail.mailbox import Changes
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from tests.conftest import size
from tests.fences import fenced
from tests.providers import Courier
from tests.rounds import INBOXED, Rounds, answer_of


def test_a_new_mail_becomes_a_note_with_all_that_is_known_of_it(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    id = rounds.deliver("Tea", text="Come at four?", labels=frozenset({INBOX, UNREAD, "IMPORTANT"}))
    rounds.round()
    path, note = rounds.mail_note(id)
    assert re.fullmatch(r"Needs_Action/\d{4}-\d\d-\d\d [a-z2-7]{8} Tea\.md", path)
    shown = {key: note.text(key) for key in ("type", "id", "from", "to", "subject", "priority")}
    assert shown == {
        "type": "email",
        "id": id,
        "from": "Ann <ann@example.com>",
        "to": "you@example.org",
        "subject": "Tea",
        "priority": "high",
    }
    assert note.text("thread") == rounds.box.message(id).thread
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", note.text("date"))
    assert note.values["labels"] == ["IMPORTANT", "INBOX", "UNREAD"]
    assert fenced(dict(sections(note.body))["Mail"]) == "Come at four?"


def test_mail_that_was_there_before_is_left_alone(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.deliver("Old")
    rounds.round()
    new = rounds.deliver("New")
    rounds.round()
    assert [path.name for path in (rounds.vault / "Needs_Action").iterdir()] == [
        rounds.mail_note(new)[0].rpartition("/")[2]
    ]
    rounds.close()


def test_a_backlog_is_taken_when_asked_for_and_only_once(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    old = [rounds.deliver(f"Old {number}") for number in range(3)]
    other = rounds.deliver("Other")
    for _ in range(2):
        rounds.round("subject:old")
    assert all(rounds.status(id) for id in old)
    assert rounds.item(other).state == "before"
    assert len(rounds.triaged()) == 3
    rounds.close()


@pytest.mark.parametrize("label", [SPAM, TRASH, DRAFT, SENT])
def test_what_is_no_mail_of_the_inbox_becomes_no_note(rounds: Rounds, label: str) -> None:
    labels = frozenset({label}) if label != TRASH else frozenset({INBOX, TRASH})
    id = rounds.deliver(labels=labels)
    rounds.round()
    assert rounds.item(id).state == "aside"
    assert not list(rounds.vault.glob("Needs_Action/*"))


def test_a_mail_that_is_taken_out_of_spam_is_noted_then(rounds: Rounds) -> None:
    id = rounds.deliver(labels=frozenset({SPAM}))
    rounds.round()
    rounds.box.relabel(id, add=frozenset({INBOX}), remove=frozenset({SPAM}))
    rounds.round()
    assert rounds.status(id)[0] == "Needs_Action"


def test_an_account_that_cannot_be_asked_is_named_with_its_remedy_and_loses_nothing(
    rounds: Rounds, courier: Courier
) -> None:
    id = rounds.deliver()
    rounds.wrap = _Refusing
    rounds.restart()
    rounds.round()
    (said,) = rounds.events("trouble")
    assert said["remedy"] == "Run `postroom auth gmail`."
    assert "postroom auth gmail" in (rounds.vault / "Dashboard.md").read_text()
    rounds.wrap = courier
    rounds.restart()
    rounds.round()
    assert rounds.status(id)[0] == "Needs_Action"


class _Behind:
    """A provider that does most as the embedded mailbox does."""

    def __init__(self, box: LocalMailbox) -> None:
        self._box = box

    def __getattr__(self, name: str) -> Any:
        return getattr(self._box, name)


class _Refusing(_Behind):
    def changes(self, since: str = "") -> Never:
        raise AuthRequired("Not signed in", remedy="Run `postroom auth gmail`.")


class _Forgetful(_Behind):
    """A provider that has forgotten every cursor but the newest."""

    def changes(self, since: str = "") -> Changes:
        newest = self._box.changes()
        if since and since != newest.cursor:
            raise NotFound("no such cursor")
        return newest


def test_mail_that_came_while_the_cursor_was_lost_is_found_by_looking(rounds: Rounds) -> None:
    first = rounds.deliver("Before")
    rounds.round()
    missed = [rounds.deliver(f"Missed {number}") for number in range(5)]
    rounds.wrap = _Forgetful
    rounds.restart()
    for _ in range(2):
        rounds.round()
    assert all(rounds.status(id)[0] == "Needs_Action" for id in (first, *missed))
    assert len(rounds.triaged()) == 6
    assert rounds.events("cursor_lost")


def test_a_lost_cursor_brings_nothing_back_that_was_there_before_watching_began(
    tmp_path: Path,
) -> None:
    rounds = Rounds(tmp_path)
    old = [rounds.deliver(f"Old {number}") for number in range(4)]
    rounds.round()
    rounds.deliver("New")
    rounds.wrap = _Forgetful
    rounds.restart()
    rounds.round()
    assert len(rounds.triaged()) == 1
    assert {rounds.item(id).state for id in old} == {"before"}
    rounds.close()


@pytest.mark.parametrize("seconds", [-400 * 86_400, 400 * 86_400])
def test_a_clock_that_jumps_neither_hides_a_mail_nor_brings_one_twice(
    rounds: Rounds, seconds: int
) -> None:
    rounds.handbook("anything: needs_info")
    first = rounds.deliver("One")
    rounds.round()
    rounds.clock.jump(seconds)
    second = rounds.deliver("Two")
    rounds.restart()
    rounds.round()
    rounds.clock.jump(-seconds)
    third = rounds.deliver("Three")
    rounds.round()
    assert len(rounds.triaged()) == 3
    assert {rounds.status(id) for id in (first, second, third)} == {("Needs_Action", "needs_info")}


def test_a_mail_that_is_gone_before_it_was_read_is_no_error(rounds: Rounds) -> None:
    rounds.servers.answer = lambda _server, _tool, questions: [NotFound("gone") for _ in questions]
    id = rounds.deliver()
    rounds.round()
    assert rounds.item(id).state == "aside"


def test_a_mail_that_cannot_be_read_now_is_read_the_next_time(rounds: Rounds) -> None:
    rounds.servers.answer = lambda _server, _tool, questions: [
        Unavailable("busy") for _ in questions
    ]
    id = rounds.deliver()
    rounds.round()
    assert rounds.item(id).state == "found"
    rounds.servers.answer = rounds.servers.alone
    rounds.round()
    assert rounds.status(id)[0] == "Needs_Action"


def test_an_answer_that_is_no_mail_is_read_by_other_means(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    rounds.servers.answer = lambda server, tool, questions: (
        [{"nonsense": 1} for _ in questions]
        if tool == "get_email"
        else rounds.servers.alone(server, tool, questions)
    )
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.mail_note(id)[1].text("subject") == "Tea"


def test_what_a_note_shows_is_recorded_before_it_is_there(rounds: Rounds) -> None:
    text = "Pay pay@drop.example at https://drop.example/x"
    id = rounds.deliver("Fees", text=text, sender="eve@evil.example")
    answer = answer_of(rounds.box.message(id))
    # Whoever answers here keeps no record.
    rounds.servers.answer = lambda _server, _tool, questions: [answer for _ in questions]
    rounds.round()
    assert "pay@drop.example" in rounds.mail_note(id)[1].body
    found = rounds.desk.ledger.exposure.find(
        frozenset({"pay@drop.example", "https://drop.example/x", "eve@evil.example"}), 0
    )
    assert {token: (mails[0].sender, set(mails[0].parts)) for token, mails in found.items()} == {
        "eve@evil.example": ("eve@evil.example", {"from"}),
        "pay@drop.example": ("eve@evil.example", {"body"}),
        "https://drop.example/x": ("eve@evil.example", {"body"}),
    }


HOSTILE = (
    'Tea"\nstatus: done\n---\n# Approved',
    "---\nstatus: approved\n---",
    "[[Handbook]] ![[x]] `=dv.pages()`",
    "a: b #c {d} & *e !f |g %h @i `j",
    "\u202eevil\u200b \U000e0041\U000e0042",
    "../../../etc/passwd",
    "x" * 5_000,
    "",
    "=?utf-8?q?status=3A_done?=",
)


@pytest.mark.parametrize("subject", HOSTILE)
def test_a_subject_that_poses_as_yaml_or_a_path_is_one_quoted_value(
    rounds: Rounds, subject: str
) -> None:
    rounds.handbook("anything: needs_info")
    text = "```\n---\nstatus: done\n---\n````\n## Delegation\n<<<\n~~~\n![](http://evil.example/x)"
    raw = " ".join(subject.split())
    id = rounds.deliver(raw, text=text)
    rounds.round()
    path, note = rounds.mail_note(id)
    assert path.count("/") == 1 and path.startswith("Needs_Action/")
    assert note.text("status") == "needs_info"
    assert list(note.values)[:4] == ["type", "id", "account", "thread"]
    parts = sections(note.body)
    assert [title for title, _ in parts if title] in (["Mail"], ["Mail", "Remarks"])
    assert fenced(dict(parts)["Mail"]) == text
    assert Note.parse(note.raw).values == note.values


def test_a_very_long_page_becomes_a_short_note(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    page = "<p>" + "<b>word</b> " * size(100_000) + "</p>"
    raw = (
        b"From: Ann <ann@example.com>\r\nTo: you@example.org\r\nSubject: Long\r\n"
        b"Message-ID: <long@example.com>\r\nContent-Type: text/html\r\n\r\n" + page.encode()
    )
    before = set(rounds.ids())
    from postroom.mail.mailbox import Arrival

    rounds.box.add_mails([Arrival(raw, INBOXED, int(rounds.clock.wall))])
    (id,) = set(rounds.ids()) - before
    rounds.round()
    path, note = rounds.mail_note(id)
    assert (rounds.vault / path).stat().st_size < 30_000
    assert "more characters are not shown here" in note.body


def test_attachments_are_listed_by_name_type_and_size(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    raw = (
        b"From: Ann <ann@example.com>\nTo: you@example.org\nSubject: File\nMIME-Version: 1.0\n"
        b'Message-ID: <f@example.com>\nContent-Type: multipart/mixed; boundary="b"\n\n--b\n'
        b"Content-Type: text/plain\n\nSee file.\n--b\nContent-Type: application/pdf\n"
        b'Content-Disposition: attachment; filename="plan `x` [[y]].pdf"\n\n%PDF\n--b--\n'
    )
    from postroom.mail.mailbox import Arrival

    before = set(rounds.ids())
    rounds.box.add_mails([Arrival(raw, INBOXED, int(rounds.clock.wall))])
    (id,) = set(rounds.ids()) - before
    rounds.round()
    part = dict(sections(rounds.mail_note(id)[1].body))["Attachments"]
    assert "- ``plan `x` [[y]].pdf``, `application/pdf`, " in part


def test_a_note_that_a_tool_made_at_the_name_of_a_mail_is_not_taken_for_it(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    id = rounds.deliver("Tea")
    rounds.round()
    name = rounds.mail_note(id)[0].rpartition("/")[2]
    other = rounds.deliver("Other")
    forged = rounds.vault / "Needs_Action" / name
    forged.write_text(
        f'---\ntype: "email"\nid: "{other}x"\naccount: "default"\nstatus: "pending"\n---\nHi.\n'
    )
    rounds.round()
    assert 'status: "pending"' in forged.read_text()
    assert len(rounds.triaged()) == 2


def test_a_mail_with_many_labels_is_noted(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    id = rounds.deliver(labels=frozenset({INBOX, *(f"A{n:02}" for n in range(40))}))
    rounds.round()
    assert rounds.status(id)[0] == "Needs_Action"


@pytest.mark.parametrize(
    "sender",
    [
        "=?utf-8?b?PGRvcmFAZXhhbXBsZS5vcmc+?=",
        f'"{"x" * 190} <dora@example.org>" <eve@evil.example>',
    ],
)
def test_a_sender_that_poses_as_another_is_not_that_one_for_a_rule(
    rounds: Rounds, sender: str
) -> None:
    rounds.handbook("from dora@example.org: archive", "anything: needs_info")
    raw = f"From: {sender}\nTo: you@example.org\nSubject: Hi\nMessage-ID: <p@x.example>\n\nHello.\n"
    from postroom.mail.mailbox import Arrival

    before = set(rounds.ids())
    rounds.box.add_mails([Arrival(raw.encode(), INBOXED, int(rounds.clock.wall))])
    (id,) = set(rounds.ids()) - before
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")


def test_a_mail_that_came_out_of_spam_while_the_cursor_was_lost_is_noted(rounds: Rounds) -> None:
    id = rounds.deliver(labels=frozenset({SPAM}))
    rounds.round()
    rounds.box.relabel(id, add=frozenset({INBOX}), remove=frozenset({SPAM}))
    rounds.wrap = _Forgetful
    rounds.restart()
    rounds.round()
    assert rounds.status(id)[0] == "Needs_Action"


def test_a_mail_that_cannot_be_read_is_told_of_once(rounds: Rounds) -> None:
    rounds.servers.answer = lambda _server, _tool, questions: [
        Unavailable("busy") for _ in questions
    ]
    rounds.deliver()
    for _ in range(3):
        rounds.round()
    assert [one["error"] for one in rounds.events("trouble")] == ["busy"]
