"""The same tools and the same desk with Gmail behind them: over stdio, and in the terminal."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom.core.letter import Enclosure
from postroom.core.message import INBOX, UNREAD
from postroom.mail import mime
from tests.agents import visiting, visiting_inside
from tests.conftest import Outcome, Person
from tests.gmail.boxes import SENDING, letter
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail
from tests.mails import mail
from tests.narrow import narrow

ACT = r"POST /gmail/v1/users/me/(drafts|messages)/send$"
CALLS: dict[str, dict[str, Any]] = {
    "search_email": {"query": "tea"},
    "get_email": {"id": "18e51234"},
    "get_thread": {"id": "18e51234"},
    "get_attachment": {"id": "18e51234", "part": "2"},
    "draft_email": {"to": ["ann@example.com"], "subject": "Tea", "body": "Yes."},
    "send_email": {"to": ["ann@example.com"], "subject": "Tea", "body": "Yes."},
    "reply_email": {"id": "18e51234", "body": "Yes."},
    "move_email": {"id": "18e51234", "destination": "Done"},
    "add_label": {"id": "18e51234", "label": "Done"},
}


@pytest.fixture
def token(person: Person, service: Gmail) -> Path:
    return at_gmail(person, service)


def go_live(person: Person, **settings: Any) -> None:
    person.live(undo_seconds=0, **settings)
    person.run("status")


def approve(person: Person, id: str) -> Outcome:
    digest = person.show(id)["digest"].removeprefix("sha256:")
    return person.run("approve", id, "--yes", digest[:8])


def test_without_a_token_every_tool_says_which_command_to_run(
    person: Person, service: Gmail
) -> None:
    at_gmail(person, service, signed_in=False)
    go_live(person)
    person.environment["BROWSER"] = f"touch {person.folder}/opened %s"
    with visiting(person) as agent:  # which has that variable
        for tool, arguments in CALLS.items():
            said = agent.call(tool, **arguments)
            assert said.refused == "auth_required", (tool, said.text)
            assert "postroom auth gmail" in said.text
    assert not (person.folder / "opened").exists()


def test_the_servers_know_nothing_of_browsers(person: Person, service: Gmail, token: Path) -> None:
    code = (
        "import sys; from postroom.cli.server import ConfiguredDesk; from postroom import wiring;"
        "box = wiring.mailbox(wiring.settings()); box.search('x'); box.close();"
        "print([name for name in ('webbrowser', 'requests', 'google_auth_oauthlib', 'google.auth')"
        " if name in sys.modules])"
    )
    assert person.run_program([sys.executable, "-c", code]).out == "[]\n"


def test_a_held_letter_a_threaded_reply_a_draft_and_a_label(
    person: Person, service: Gmail, token: Path
) -> None:
    id = service.receive(mail(subject="Plan", message_id="<plan@example.com>"))
    go_live(person)
    with visiting(person) as agent:
        held = agent.done("reply_email", id=id, body="Agreed.")
        assert approve(person, held["letter"]).code == 0
        (left,) = service.sent
        assert b"In-Reply-To: <plan@example.com>" in left.raw
        assert left.thread == id  # a thread bears the id of its first mail
        draft = agent.done("draft_email", to=["ann@example.com"], subject="Later", body="Not yet.")
        assert draft["draft"] in service.mailbox.drafts
        assert agent.done("add_label", id=id, label="Work/Clients")["added"] == ["Work/Clients"]
        assert agent.done("search_email", query="label:work-clients")["mails"][0]["id"] == id
        agent.done("move_email", id=id, destination="Done")
        assert not agent.done("search_email", query="in:inbox subject:plan")["mails"]
    moves = person.run("undo-moves", "--json").json["moves"]
    assert person.run("undo-moves", *(str(move["number"]) for move in moves)).code == 0
    assert person.run("search", "in:inbox subject:plan", "--json").json["messages"][0]["id"] == id


def test_what_only_gmail_understands_is_said_in_the_answer(
    person: Person, service: Gmail, token: Path
) -> None:
    with visiting_inside(person) as agent:
        assert "as it stands" in agent.call("search_email", query="tea AROUND 3 biscuits").text


def test_two_processes_that_find_one_token_spent_renew_it_once(
    person: Person, service: Gmail
) -> None:
    at_gmail(person, service, expires_in=-60)
    waits = service.fail("POST /token", delay=0.5)  # carried out, late: the other waits for it
    first, second = (person.start("search", "x") for _ in range(2))
    assert [process.wait(timeout=60) for process in (first, second)] == [0, 0]
    for process in (first, second):
        process.communicate()
    assert waits.seen == 1
    assert service.refreshes == 1


# Outcomes of a send


def proposed(person: Person, **changes: Any) -> str:
    values = {"to": ["ann@example.com"], "subject": "Tea", "body": "Yes."} | changes
    with visiting_inside(person) as agent:
        return narrow(agent.done("send_email", **values)["letter"], str)


def test_while_gmail_cannot_be_asked_a_letter_is_unknown_and_then_settled_by_itself(
    person: Person, service: Gmail, token: Path
) -> None:
    go_live(person)
    id = proposed(person)
    service.fail(ACT, lost="before")
    where = r"GET /gmail/v1/users/me/(drafts|history)"
    away = service.fail(where, status=403, reason="forbidden", times=99)
    assert approve(person, id).code == 9
    assert person.show(id)["state"] == "unknown"
    away.times = 0
    later(person)
    assert person.run("send-approved").code == 0
    assert person.run("send-approved").code == 0
    assert person.show(id)["state"] == "sent"
    assert len(service.sent) == 1
    assert not service.mailbox.drafts


def later(person: Person) -> None:
    """Let the minute pass after which a provider is asked again."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(person.folder / "state" / "ledger.sqlite")) as ledger:
        (detail,) = ledger.execute("SELECT detail FROM letter").fetchone()
        values = json.loads(detail)
        wall, boot, steady = values["asked"]
        values["asked"] = [wall - 120, boot, steady - 120]
        ledger.execute("UPDATE letter SET detail = ?", [json.dumps(values)])
        ledger.commit()


def test_a_letter_that_gmail_refuses_for_good_fails_and_leaves_no_draft(
    person: Person, service: Gmail, token: Path
) -> None:
    go_live(person)
    id = proposed(person)
    service.fail(ACT, status=400, message="Invalid To header")
    assert approve(person, id).code == 4
    shown = person.show(id)
    assert shown["state"] == "failed"
    assert "Invalid To header" in json.dumps(shown)
    person.run("send-approved")
    assert not service.mailbox.drafts


def test_a_letter_that_is_rejected_after_a_first_try_leaves_no_draft(
    person: Person, service: Gmail, token: Path
) -> None:
    go_live(person)
    id = proposed(person)
    service.fail(ACT, status=429, headers={"Retry-After": "60"})
    approve(person, id)
    assert person.show(id)["state"] == "approved"
    assert len(service.mailbox.drafts) == 1
    assert person.run("reject", id, "--reason", "no").code == 0
    person.run("send-approved")
    assert not service.mailbox.drafts
    assert not service.sent


def test_a_token_that_was_revoked_holds_the_letter_until_somebody_signs_in(
    person: Person, service: Gmail, token: Path
) -> None:
    go_live(person)
    id = proposed(person)
    service.revoke()
    approve(person, id)
    assert person.show(id)["state"] == "approved"
    assert "token" in json.dumps(person.show(id))
    assert not service.sent


# Large files


def test_a_file_of_25_megabytes_goes_to_the_disk_and_never_through_memory_whole(
    person: Person, service: Gmail, token: Path
) -> None:
    content = os.urandom(1_000_000) * 25
    one = letter(
        text="See file.\n",
        attachments=(Enclosure("film.bin", "application/octet-stream", content[:24_000_000]),),
    )
    small = service.receive(mail())
    large = service.receive(mime.build(one, date=SENDING, bcc=False), frozenset({INBOX, UNREAD}))
    shown = person.run("read", large, "--json").json
    assert shown["text"].strip() == "See file."
    assert [(file["name"], file["size"]) for file in shown["attachments"]] == [
        ("film.bin", 24_000_000)
    ]
    with visiting_inside(person) as agent:
        saved = agent.done("get_attachment", id=large, part="2")
    path = person.vault / saved["path"] if not saved["path"].startswith("/") else saved["path"]
    assert (
        hashlib.sha256(Path(path).read_bytes()).digest()
        == hashlib.sha256(content[:24_000_000]).digest()
    )
    needed = peak(person, "read", large, "--part", "2") - peak(person, "read", small)
    assert needed < 16_000  # kilobytes: far less than the file


def peak(person: Person, *arguments: str) -> int:
    """Return the most memory, in kilobytes, that a command has held."""
    code = (
        "import resource, subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'postroom', *sys.argv[1:]],"
        " stdout=subprocess.DEVNULL, check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = person.run_program([sys.executable, "-c", code, *arguments])
    assert done.code == 0, done.err
    return int(done.out)


def test_doctor_and_status_know_where_the_mail_is(
    person: Person, service: Gmail, token: Path
) -> None:
    service.receive(mail())
    person.run("init")
    checks = {c["part"]: c for c in person.run("doctor", "--json").json["checks"]}
    assert checks["account"]["verdict"] == "ok"
    assert "gmail, you@example.org" in checks["account"]["found"]
    assert "delivery" not in checks
    assert "default (gmail)" in person.run("status").out
    token.unlink()
    checks = {c["part"]: c for c in person.run("doctor", "--json").json["checks"]}
    assert checks["account"]["verdict"] == "fail"
    assert "postroom auth gmail" in checks["account"]["remedy"]


def test_mail_is_not_imported_into_gmail(person: Person, service: Gmail, token: Path) -> None:
    file = person.folder / "one.eml"
    file.write_bytes(mail())
    done = person.run("import", str(file))
    assert done.code == 2
    assert "gmail" in done.err


@pytest.mark.parametrize("endpoint", ["http://example.org", "ftp://127.0.0.1", "https://gmail.googleapis.com.example.org"])  # fmt: skip
def test_an_endpoint_that_is_neither_googles_nor_on_this_machine_is_refused(
    person: Person, endpoint: str
) -> None:
    person.environment |= {"POSTROOM_PROVIDER": "gmail", "GMAIL_API_ENDPOINT": endpoint}
    done = person.run("search", "x")
    assert done.code == 2
    assert "GMAIL_API_ENDPOINT" in done.err
