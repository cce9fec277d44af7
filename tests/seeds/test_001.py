"""Document 001, an email server with DRY_RUN: contract `dry-run`, clause by clause."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from email import message_from_bytes, message_from_string, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from postroom.core.address import Address
from postroom.mail.mailbox import Mailbox, SearchPage
from tests.agents import Wire, contract_of, visiting_inside
from tests.arrivals import arrive
from tests.cases import for_each
from tests.conftest import Person
from tests.gmail.boxes import NOW, gmail_box, token_file
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail, keep
from tests.mails import mail
from tests.narrow import narrow, present
from tests.seeds.conftest import GmailSite, Site, TimedSite, answer_text

TO = {"type": "string", "format": "email", "description": "Recipient email address"}
LETTER = {
    "to": TO,
    "subject": {"type": "string", "minLength": 1, "maxLength": 500, "description": "Email subject line"},
    "body": {"type": "string", "minLength": 1, "maxLength": 50000, "description": "Email body (plain text)"},
    "cc": {"type": "string", "description": "CC recipients (comma-separated)"},
    "bcc": {"type": "string", "description": "BCC recipients (comma-separated)"},
    "html_body": {"type": "string", "description": "Optional HTML version"},
}  # fmt: skip
PROPERTIES = {
    "send_email": LETTER | {"reply_to": {"type": "string", "format": "email", "description": "Reply-To header"}},
    "draft_email": LETTER,
    "search_emails": {
        "query": {"type": "string", "minLength": 1, "description": "Gmail search query (e.g., 'from:john subject:invoice after:2026/01/01')"},
        "max_results": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        "include_body": {"type": "boolean", "default": False, "description": "Include full email body in results"},
    },
    "reply_to_thread": {
        "thread_id": {"type": "string", "minLength": 1, "description": "Gmail thread ID to reply to"},
        "body": {"type": "string", "minLength": 1, "maxLength": 50000},
        "reply_all": {"type": "boolean", "default": False, "description": "Reply to all recipients"},
        "html_body": {"type": "string"},
    },
}  # fmt: skip
REQUIRED = {
    "send_email": ["to", "subject", "body"],
    "draft_email": ["to", "subject", "body"],
    "search_emails": ["query"],
    "reply_to_thread": ["thread_id", "body"],
}
NETWORK = "Network error — check internet connection"
TAIL = "Set DRY_RUN=false to send for real."


@pytest.fixture
def dry(shared_site: Callable[..., Site]) -> Site:
    return shared_site("dry-run")


@pytest.fixture
def live(shared_site: Callable[..., Site]) -> Site:
    """001's own arrangement: no approval here, since another layer has approved."""
    return shared_site("dry-run", "live", required=False)


@pytest.fixture
def held(shared_site: Callable[..., Site]) -> Site:
    return shared_site("dry-run", "live")


def letter(name: str = "recipient", **changes: str) -> dict[str, str]:
    return {"to": f"{name}@example.com", "subject": "Test", "body": "x" * 53, **changes}


def found(site: Site, query: str, **more: int) -> list[dict[str, Any]]:
    values = present(site.call("search_emails", query=query, **more).structured_content)
    return narrow(values["emails"], list)


def mime(site: Site, answer: CallToolResult) -> EmailMessage:
    """Return what was sent, as another reader sees it."""
    assert not answer.is_error, answer.content[0]
    raw = site.raw(answer.structured_content["message_id"])
    return message_from_string(raw.replace("\r\n", "\n").strip("\n"), policy=policy.default)


def sends(site: Site, **changes: str) -> EmailMessage:
    return mime(site, site.call("send_email", **letter(**changes)))


def gathered(wire: Wire, asked: list[int]) -> list[dict[str, Any]]:
    """Return the answers to these requests, in their order, whichever comes first."""
    answers: dict[int, dict[str, Any]] = {}
    while len(answers) < len(asked):
        message = wire.line()
        answers |= {message["id"]: message["result"]} if message.get("id") in asked else {}
    return [answers[id] for id in asked]


# 3. The server


def test_the_server_says_who_it_is(dry: Site) -> None:
    """001 §3A"""
    info = present(dry.agent.client.server_info)
    assert (info.name, info.version) == ("email-mcp", "0.2.0")
    assert info.description == (
        "Gmail integration for the AI Employee. Send, draft, search, and reply to emails."
    )


def test_the_four_tools_and_their_input_schemas(dry: Site) -> None:
    """001 §3B, §4 input schemas"""
    tools = dry.agent.tools()
    assert {name: tool.input_schema["properties"] for name, tool in tools.items()} == PROPERTIES
    assert {name: tool.input_schema["required"] for name, tool in tools.items()} == REQUIRED
    assert tools["send_email"].description == (
        "Send an email via Gmail. Requires DRY_RUN=false or returns a dry-run preview."
    )


def test_it_starts_without_a_mailbox_or_a_token(person: Person, service: Gmail) -> None:
    """001 §3, auth is lazy"""
    at_gmail(person, service, signed_in=False)
    wire = Wire(person, "email", "--contract", "dry-run")
    try:
        wire.greet()
        assert len(wire.answer(wire.ask("tools/list"))["result"]["tools"]) == 4
        assert service.requests == []
    finally:
        wire.kill()


# 4A. send_email


def test_send_email_dry_run(dry: Site) -> None:
    """001 §4A DRY_RUN Response"""
    assert dry.text("send_email", **letter()) == (
        "[DRY RUN] Would send email:\n  To: recipient@example.com\n  Subject: Test\n  Body: (53 chars)\n"
        "  CC: none\n  BCC: none\n\nSet DRY_RUN=false to send for real."
    )


def test_send_email_dry_run_shows_everything(dry: Site) -> None:
    """001 §14 full preview"""
    more = {"cc": "a@example.com, b@example.com", "bcc": "c@example.com", "html_body": f"<p>{'x' * 53}</p>", "reply_to": "me@example.com"}  # fmt: skip
    assert dry.text("send_email", **letter(), **more) == (
        "[DRY RUN] Would send email:\n  To: recipient@example.com\n  Subject: Test\n  Body: (53 chars)\n"
        "  CC: a@example.com, b@example.com\n  BCC: c@example.com\n  HTML: (60 chars)\n"
        f"  Reply-To: me@example.com\n\n{TAIL}"
    )


def test_send_email_live(live: Site) -> None:
    """001 §4A Live Response"""
    answer = live.call("send_email", **letter("lia"))
    ids = answer.structured_content
    assert answer_text(answer, refused=False) == (
        f"Email sent successfully.\n  Message ID: {ids['message_id']}\n  To: lia@example.com\n"
        f"  Subject: Test\n  Thread ID: {ids['thread_id']}"
    )
    assert live.person.run("read", ids["message_id"], "--json").json


def test_send_email_error(dry: Site, live: Site) -> None:
    """001 §4A Error Response"""
    for site in (dry, live):
        assert site.refusal("send_email", **letter(to="not-an-email")) == (
            "Failed to send email: Invalid recipient address"
        )


def test_a_live_send_waits_for_approval_and_says_so(held: Site) -> None:
    """001 §1 HITL, unless required = false"""
    answer = held.call("send_email", **letter("hal"))
    id = answer.structured_content["letter"]
    waits = f"Not sent. The letter {id} waits for a person to approve it. Do not send it again before that."
    assert answer_text(answer, refused=True) == f"Failed to send email: {waits}"
    cut = held.refusal("send_email", **letter("hal", subject="s" * 600))
    assert cut.endswith("before that.\n\nWarning: subject truncated to 500 characters.")
    assert held.person.show(id)["state"] == "pending"
    digest = held.person.show(id)["digest"].removeprefix("sha256:")
    assert held.person.run("approve", id, "--yes", digest[:8]).code == 0
    again = held.refusal("send_email", **letter("hal"))
    assert again.startswith(f"Failed to send email: The letter {id} was sent at ")


def test_a_slip_is_no_word_of_001s(held: Site) -> None:
    """001 §1, slips count in other contracts alone"""
    slip = held.slip("sid", type="email_send", status="approved", to="sid@example.com")
    assert held.refusal("send_email", **letter("sid")).startswith("Failed to send email: Not sent.")
    assert slip.exists()
    assert found(held, "in:sent to:sid@example.com") == []


# 4B. draft_email


def test_draft_email_dry_run(dry: Site) -> None:
    """001 §4B DRY_RUN Response"""
    assert dry.text("draft_email", **letter()) == (
        "[DRY RUN] Would create draft:\n  To: recipient@example.com\n  Subject: Test\n  Body: (53 chars)"
    )
    assert found(dry, "in:drafts to:recipient@example.com") == []
    whole = dry.text("draft_email", **letter(bcc="b@example.com", html_body=f"<p>{'x' * 53}</p>"))
    assert whole.endswith("\n  Body: (53 chars)\n  BCC: b@example.com\n  HTML: (60 chars)")


def test_draft_email_live(live: Site) -> None:
    """001 §4B Live Response"""
    answer = live.call("draft_email", **letter("dot", cc="c@example.com", bcc="b@example.com", html_body=f"<p>{'x' * 53}</p>"))  # fmt: skip
    id = answer.structured_content["draft_id"]
    assert answer_text(answer, refused=False) == (
        f"Draft created successfully.\n  Draft ID: {id}\n  To: dot@example.com\n  Subject: Test\n"
        "  View in Gmail: https://mail.google.com/mail/#drafts"
    )
    (kept,) = found(live, "in:drafts to:dot@example.com")
    assert "Bcc: b@example.com" in live.raw(kept["message_id"])


# 4C. search_emails


@pytest.mark.parametrize("mode", ["dry", "live"])
def test_search_emails(mode: str, request: pytest.FixtureRequest) -> None:
    """001 §4C Response, §14 in both modes"""
    site = request.getfixturevalue(mode)
    first, second = found(site, "from:dora in:inbox", max_results=2)
    assert site.text("search_emails", query="from:dora in:inbox", max_results=2) == (
        "Found 2 emails matching 'from:dora in:inbox':\n\n"
        "1. From: Dora Lindqvist <dora@lindqvist.example>\n   Subject: RE: Q3 figures for the VAT return\n"
        f"   Date: 2026-11-10\n   Snippet: {first['snippet']}\n"
        f"   Message ID: {first['message_id']} | Thread ID: {first['thread_id']}\n\n"
        f"2. From: Dora Lindqvist <dora@lindqvist.example>\n   Subject: {second['subject']}\n"
        f"   Date: 2026-10-20\n   Snippet: {second['snippet']}\n"
        f"   Message ID: {second['message_id']} | Thread ID: {second['thread_id']}"
    )


def test_search_emails_returns_ten_unless_told(dry: Site) -> None:
    """001 §4C max_results"""
    assert len(found(dry, "in:anywhere")) == 10
    assert len(found(dry, "in:anywhere", max_results=50)) == 41


def test_search_emails_with_bodies(dry: Site) -> None:
    """001 §4C include_body"""
    said = dry.text("search_emails", query="subject:round", include_body=True)
    (mail,) = found(dry, "subject:round", include_body=True)
    assert mail["body"] == "Come at four."
    assert said == (
        "Found 1 emails matching 'subject:round':\n\n1. From: Ann Lee <ann@example.com>\n"
        "   Subject: Round table\n   Date: 2026-11-14\n   Snippet: Come at four.\n"
        "   Body:\n     Come at four.\n"
        f"   Message ID: {mail['message_id']} | Thread ID: {mail['thread_id']}"
    )
    (without,) = found(dry, "subject:round")
    assert "body" not in without


def test_the_bodies_of_a_search_have_100_000_characters_in_all(
    start_site: Callable[..., Site],
) -> None:
    """001 §4C include_body, of many or long mails"""
    site = start_site("dry-run", "rehearsal")
    for number in range(6):
        arrive(site.person, f"long{number}", subject="Endless", body="x" * 25_000)
    all_six = found(site, "subject:endless", include_body=True)
    shown = "x" * (100_000 // 6) + f"\n[{25_000 - 100_000 // 6} more characters]"
    assert [mail["body"] for mail in all_six] == [shown] * 6
    (one,) = found(site, "subject:endless", include_body=True, max_results=1)
    assert one["body"] == "x" * 20_000 + "\n[5000 more characters]"


# 4D. reply_to_thread


def test_reply_to_thread_dry_run(dry: Site) -> None:
    """001 §4D, §6 dryRunResponse"""
    (mail,) = found(dry, "subject:round")
    assert dry.text("reply_to_thread", thread_id=mail["thread_id"], body="x" * 142) == (
        f"[DRY RUN] Would reply to thread:\n  Thread ID: {mail['thread_id']}\n  To: ann@example.com\n"
        "  Subject: Re: Round table\n  Body: (142 chars)\n\nSet DRY_RUN=false to execute for real."
    )
    everyone = dry.text("reply_to_thread", thread_id=mail["thread_id"], body="x", reply_all=True)
    assert everyone == (
        f"[DRY RUN] Would reply to thread:\n  Thread ID: {mail['thread_id']}\n"
        "  To: ann@example.com\n  Subject: Re: Round table\n  Body: (1 chars)\n"
        "  CC: bob@example.net, cat@example.net\n\nSet DRY_RUN=false to execute for real."
    )


def test_reply_to_thread_live(live: Site) -> None:
    """001 §4D Handler Logic, threading headers"""
    (mail,) = found(live, "subject:round in:inbox")
    answer = live.call("reply_to_thread", thread_id=mail["thread_id"], body="I come.", reply_all=True, html_body="<p>I come.</p>")  # fmt: skip
    sent = mime(live, answer)
    ids = answer.structured_content
    assert answer_text(answer, refused=False) == (
        f"Reply sent successfully.\n  Message ID: {ids['message_id']}\n  To: ann@example.com\n"
        f"  Subject: Re: Round table\n  Thread ID: {mail['thread_id']}"
    )
    assert sent["In-Reply-To"] == sent["References"] == "<round@example.com>"
    assert sent["Subject"] == "Re: Round table"
    assert sent["To"] == "Ann Lee <ann@example.com>"
    assert sent["Cc"] == "Bob <bob@example.net>, Cat <cat@example.net>"


def test_reply_to_thread_that_is_gone(dry: Site, live: Site) -> None:
    """001 §4D, §9C 404, §13 Thread has been deleted"""
    for site in (dry, live):
        assert site.refusal("reply_to_thread", thread_id="18d1234abcd", body="Hi") == (
            "Error: Thread ID not found — it may have been deleted\n"
            "Detail: There is no conversation 18d1234abcd. Search for it again."
        )


# 5. Gmail's tokens


@pytest.fixture
def gmail(start_gmail_site: Callable[..., Site]) -> Callable[..., Site]:
    """A server of 001's own arrangement with Gmail behind it."""

    def start(mode: str = "rehearsal", **options: bool | dict[str, Any]) -> Site:
        return start_gmail_site("dry-run", mode, approvals={"required": False}, **options)

    return start


def test_no_token_names_the_command_that_makes_one(gmail: Callable[..., Site]) -> None:
    """001 §5C 6, §13 No token.json"""
    said = gmail(signed_in=False).refusal("search_emails", query="tea")
    head, detail = said.split("\n")
    assert head == "Error: No token found. Run `postroom auth gmail` first to complete OAuth"
    assert detail.startswith("Detail: You are not signed in to Gmail.")


@for_each("name", ["token", "access_token"])
def test_a_token_of_pythons_or_of_nodes_is_read(
    gmail: Callable[..., Site], service: Gmail, tmp_path: Path, name: str
) -> None:
    """001 §5C 3, the adapter"""
    site = gmail()
    file = tmp_path / "state" / "token.json"
    token = json.loads(file.read_text())
    keep(file, token | {name: token.pop("token")})
    assert site.text("search_emails", query="tea") == "No emails found matching query"
    assert service.refreshes == 0  # one that were not read would be renewed


def test_a_token_whose_renewal_fails_is_set_aside(
    gmail: Callable[..., Any], service: Gmail, tmp_path: Path
) -> None:
    """001 §13 Token expired and refresh fails"""
    site = gmail(token={"expires_in": -10})
    service.fail("token", status=400, reason="invalid_grant")
    said = site.refusal("search_emails", query="tea")
    assert said.startswith("Error: Token expired — run `postroom auth gmail` to refresh\nDetail: ")
    assert not (tmp_path / "state" / "token.json").exists()
    assert list((tmp_path / "state").glob("token.json.revoked*"))


def test_a_dry_run_asks_gmail_for_nothing(gmail: Callable[..., Any], service: Gmail) -> None:
    """001 §4A 1, no API call"""
    site = gmail(signed_in=False)
    assert site.text("send_email", **letter()).startswith("[DRY RUN] Would send email:")
    assert site.text("draft_email", **letter()).startswith("[DRY RUN] Would create draft:")
    assert service.requests == []


# 6. DRY_RUN


@pytest.mark.parametrize(("value", "dry"), [(None, True), ("TRUE", True), ("maybe", True), ("false", False)])  # fmt: skip
def test_dry_run_is_the_default(
    start_site: Callable[..., Site], value: str | None, dry: bool
) -> None:
    """001 §6 isDryRun, §14 DRY_RUN=true by default"""
    environment = {} if value is None else {"DRY_RUN": value}
    site = start_site("dry-run", "rehearsal", **environment)
    said = site.agent.call("send_email", **letter()).text
    assert said.startswith("[DRY RUN]") is dry


# 7. MIME


def test_a_plain_letter_has_the_documents_headers(live: Site) -> None:
    """001 §7 Headers, text/plain"""
    sent = sends(live, name="mim", cc="c@example.com", bcc="b@example.com", reply_to="r@example.com", body="Hello.")  # fmt: skip
    assert sent["From"] == "you@example.org"
    assert (sent["To"], sent["Cc"], sent["Reply-To"]) == ("mim@example.com", "c@example.com", "r@example.com")  # fmt: skip
    assert sent["MIME-Version"] == "1.0"
    assert sent["Content-Type"] == 'text/plain; charset="utf-8"'
    assert sent["Date"].datetime.utcoffset().total_seconds() == 0
    assert re.fullmatch(r"<[a-z2-7]{10}@example\.org>", sent["Message-ID"])
    assert sent.get_content() == "Hello."


def test_an_html_version_makes_two_alternatives(live: Site) -> None:
    """001 §7 multipart/alternative"""
    sent = sends(live, name="alt", body="Hello.", html_body="<p>Hello.</p>")
    assert sent.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in sent.iter_parts()] == ["text/plain", "text/html"]


def test_an_html_version_shows_where_its_links_lead_in_both(live: Site) -> None:
    """001 §7 multipart/alternative, links"""
    page = '<p>Hello, <a href="https://example.com/a">the list</a>.</p>'
    sent = sends(live, name="lin", body="Hello, the list.", html_body=page)
    plain, html = sent.iter_parts()
    assert plain.get_content().strip() == "Hello, the list (https://example.com/a)."
    assert html.get_content().strip() == page


def test_an_html_version_that_says_something_else_is_left_out(live: Site) -> None:
    """001 §7 multipart/alternative, other words"""
    for at, (page, why) in enumerate(
        (
            ("<p>Goodbye.</p>", "its words are not those of body"),
            ("<title>Hello.</title>", "The HTML is refused: <title> is not allowed"),
        )
    ):
        answer = live.call("send_email", **letter(f"out{at}", body="Hello.", html_body=page))
        assert mime(live, answer).get_content_type() == "text/plain"
        warning = answer_text(answer, refused=False).rpartition("\n\n")[2]
        assert warning.startswith("Warning: html_body was left out")
        assert why in warning


def test_unicode_in_subject_and_body(live: Site) -> None:
    """001 §13 Unicode"""
    sent = sends(live, name="uni", subject="Grüße, 世界 🎈", body="Ça va? 你好")
    assert sent["Subject"] == "Grüße, 世界 🎈"
    assert sent.get_content().strip() == "Ça va? 你好"


# 8. Logs


@pytest.fixture
def logged(person: Person) -> Iterator[Callable[..., Any]]:
    """Start a server whose standard error is kept; return what it said there."""
    wires = []

    def run(*calls: tuple[str, dict[str, str]], **environment: Any) -> list[dict[str, Any]]:
        wire = Wire(person, "email", "--contract", "dry-run", **environment)
        wires.append(wire)
        wire.greet()
        for tool, arguments in calls:
            wire.answer(wire.call(tool, **arguments))
        return [json.loads(line) for line in wire.end()[1].splitlines()]

    yield run
    for wire in wires:
        wire.kill()


def test_each_call_is_logged_as_json_on_stderr(logged: Callable[..., Any]) -> None:
    """001 §8"""
    lines = logged(
        ("send_email", letter("john.doe", body="A secret sentence.")),
        ("search_emails", {"query": "tea"}),
        ("send_email", letter(to="john.doe@localhost")),
        ("draft_email", letter(body="x" * 50_001)),
    )
    for line in lines:
        assert list(line)[:4] == ["timestamp", "level", "action", "dry_run"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["timestamp"])
        assert line["dry_run"] is True
    assert [(line["level"], line["action"]) for line in lines] == [
        ("info", "send_email"),
        ("info", "search_emails"),
        ("error", "send_email"),
        ("warn", "draft_email"),
        ("info", "draft_email"),
    ]
    said = json.dumps(lines)
    assert "secret" not in said
    assert "john.doe" not in said


def test_no_call_fails_or_waits_for_its_log(person: Person) -> None:
    """001 §8, a client that reads no log"""
    person.live(undo_seconds=0, required=False)
    wire = Wire(person, "email", "--contract", "dry-run")
    try:
        wire.greet()
        for _ in range(700):  # more than a pipe holds
            assert wire.answer(wire.call("draft_email", to="bad"))["result"]["isError"]
        wire.process.stderr.close()
        answer = wire.answer(wire.call("send_email", **letter(subject="s" * 600)))["result"]
        assert not answer["isError"]
        said = wire.answer(wire.call("search_emails", query="tea"))["result"]
        assert not said["isError"]
    finally:
        wire.process.kill()
        wire.process.stdin.close()
        wire.process.stdout.close()
        wire.process.wait(timeout=30)
    assert closed(person, "send_email", letter("two"))["isError"] is False
    assert [line["result"] for line in lines(person) if line["action_type"] == "send_email"] == ["success"] * 2  # fmt: skip


def closed(person: Person, tool: str, arguments: dict[str, str]) -> dict[str, Any]:
    """Return what a server answers that was started without standard error."""
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}  # fmt: skip
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}  # fmt: skip
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$0" -m postroom mcp email --contract dry-run 2>&-', sys.executable],
        cwd=person.folder, env=person.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process, present(process.stdin) as stdin, present(process.stdout) as stdout:
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        stdin.write(json.dumps(first).encode() + b"\n" + json.dumps(ask).encode() + b"\n")
        stdin.flush()
        answers = [json.loads(stdout.readline()) for _ in range(2)]
        stdin.close()
        assert process.wait(timeout=30) == 0
    return next(answer["result"] for answer in answers if answer["id"] == 2)


def lines(person: Person) -> list[dict[str, Any]]:
    person.run("status")
    files = sorted((person.vault / "Logs" / "actions").glob("*.json"))
    return [json.loads(row) for file in files for row in file.read_text().splitlines()]


def test_nothing_but_the_protocol_is_on_stdout(person: Person) -> None:
    """001 §8 CRITICAL, §14 All logging to stderr"""
    wire = Wire(person, "email", "--contract", "dry-run")
    try:
        wire.greet()
        for _ in range(3):  # each line that is no message fails
            wire.answer(wire.call("send_email", **letter()))
            wire.answer(wire.call("send_email", to=1))
        wire.process.stdin.close()
        assert wire.process.stdout.read() == b""
    finally:
        wire.kill()


# 9. Errors


def test_errors_have_the_documents_words(start_timed_gmail_site: Callable[..., GmailSite]) -> None:
    """001 §9A, §9C"""
    site = start_timed_gmail_site("dry-run", required=False)
    service, late = site.service, {"Retry-After": "3600"}

    def first_line(tool: str, /, **arguments: str) -> str:
        return site.refusal(tool, **arguments).partition("\n")[0].removeprefix("Error: ")

    service.fail("messages", status=401, reason="authError", times=2)  # also with a new token
    auth_failed = first_line("search_emails", query="tea")
    service.fail("messages", status=403, reason="dailyLimitExceeded", headers=late)
    quota_exceeded = first_line("search_emails", query="tea")
    service.fail("messages", status=429, reason="rateLimitExceeded", headers=late)
    rate_limited = first_line("search_emails", query="tea")
    thread_not_found = first_line("reply_to_thread", thread_id="18d1234abcd", body="Hi")
    service.fail("messages", lost="before", times=4)
    network_error = first_line("search_emails", query="tea")
    invalid_recipient = first_line("draft_email", **letter(to="not-an-email"))
    service.fail("POST .*/drafts", status=503)  # nobody knows whether there is a draft now
    unknown = first_line("draft_email", **letter())
    service.expire()
    service.fail("token", status=400, reason="invalid_grant")
    token_expired = first_line("search_emails", query="tea")
    assert auth_failed == "Authentication failed — check credentials.json and token.json"
    assert token_expired == "Token expired — run `postroom auth gmail` to refresh"
    assert invalid_recipient == "Invalid recipient email address"
    assert quota_exceeded == "Gmail API quota exceeded — retry later"
    assert rate_limited == "Rate limited by Gmail API — wait 60 seconds"
    assert thread_not_found == "Thread ID not found — it may have been deleted"
    assert network_error == "Network error — check internet connection"
    assert unknown.startswith("Unexpected error: Gmail failed (503)")


@for_each("status", [400, 500, 502, 503, 504])
def test_what_gmail_fails_with_is_unexpected(
    start_timed_gmail_site: Callable[..., GmailSite], status: int
) -> None:
    """001 §9C default, 400 and 5xx"""
    site = start_timed_gmail_site("dry-run", required=False)
    site.service.fail("messages", status=status, message="No luck", times=4)
    said = site.refusal("search_emails", query="tea")
    assert said.startswith("Error: Unexpected error: Gmail ")
    assert ("No luck" if status == 400 else str(status)) in said
    site.service.fail("POST .*/drafts/send", status=status, message="No luck", times=3)
    said = site.refusal("send_email", **letter("ann"))
    assert said.startswith("Failed to send email: Unexpected error: The letter ")
    assert ("No luck" if status == 400 else str(status)) in said
    assert "Network" not in said


@for_each(
    ("how", "text"),
    [
        (
            {"status": 403, "reason": "rateLimitExceeded"},
            "Gmail API quota exceeded — retry later",
        ),
        (
            {"status": 403, "reason": "userRateLimitExceeded"},
            "Gmail API quota exceeded — retry later",
        ),
        ({"status": 429}, "Rate limited by Gmail API — wait 60 seconds"),
        ({"status": 404}, "Thread ID not found — it may have been deleted"),
        ({"lost": "before"}, "Network error — check internet connection"),
    ],
)
def test_a_send_has_the_words_of_a_search(
    start_timed_gmail_site: Callable[..., GmailSite], how: dict[str, Any], text: str
) -> None:
    """001 §9C, of a send"""
    site = start_timed_gmail_site("dry-run", required=False)
    site.service.fail("messages", times=4, **how)
    search = site.refusal("search_emails", query="tea")
    site.service.fail("POST .*/drafts/send", times=3, **how)
    send = site.refusal("send_email", **letter("ann"))
    assert search.startswith(f"Error: {text}\nDetail: ")
    assert send.startswith(f"Failed to send email: {text}\nDetail: ")
    assert site.service.sent == []


@for_each("by_draft", [True, False])
def test_a_connection_that_is_lost_before_the_answer_is_the_network(
    start_timed_gmail_site: Callable[..., GmailSite], by_draft: bool
) -> None:
    """001 §9C, of a connection that is lost"""
    site = start_timed_gmail_site("dry-run", required=False, by_draft=by_draft)
    site.service.fail("POST .*/(drafts|send)$", lost="before", times=9)
    draft = site.refusal("draft_email", **letter("ann"))
    assert draft.startswith(f"Error: {NETWORK}\nDetail: The connection to Gmail was lost ")
    for _ in range(2):
        send = site.refusal("send_email", **letter("ann"))
        assert send.startswith(f"Failed to send email: {NETWORK}\nDetail: The letter ")
        assert ("may or may not have been sent" in send) is not by_draft
    assert site.service.sent == []


def test_errors_have_the_documents_form(dry: Site) -> None:
    """001 §9B, §14 Structured error responses"""
    assert dry.refusal("draft_email", **letter(to="not-an-email")) == (
        "Error: Invalid recipient email address\n"
        "Detail: to: Invalid email address format: not-an-email"
    )


def test_a_network_that_is_gone_has_the_documents_words(
    start_office_site: Callable[..., TimedSite], tmp_path: Path
) -> None:
    """001 §9C, ENOTFOUND and ETIMEDOUT"""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"  # where soon nobody listens
    token = token_file(tmp_path, Gmail(now=lambda: NOW).token())
    pauses: list[float] = []
    with closing(gmail_box(endpoint, f"{endpoint}/token", token, pauses)) as box:
        site = start_office_site("dry-run", lambda _local: box)
        said = site.refusal("search_emails", query="tea")
    assert said.startswith("Error: Network error — check internet connection\nDetail: ")
    assert len(pauses) == 3


# 10. Pacing


def waits(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines on standard error that say how long a call waits for its turn."""
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    return [line for line in lines if line["action"] == "rate_limit_wait"]


def test_the_eleventh_send_of_a_minute_waits_for_its_turn(
    start_timed_site: Callable[..., TimedSite], capfd: pytest.CaptureFixture[str]
) -> None:
    """001 §10 sendLimiter, Max 10 sends per minute"""
    site = start_timed_site(
        "dry-run", approvals={"required": False}, limits={"sends_per_hour": 100}
    )
    for number in range(10):
        site.text("send_email", **letter(f"a{number}"))
    assert waits(capfd) == []
    assert site.text("send_email", **letter("late")).startswith("Email sent successfully.")
    (line,) = waits(capfd)
    assert line["level"] == "warn"
    assert 0 < line["wait_ms"] <= 60_000
    claims = [line["timestamp"] for line in site.actions() if line["action_type"] == "claim_letter"]
    first, *_, tenth, last = map(datetime.fromisoformat, claims)
    assert (tenth - first).total_seconds() < 60  # by the server's clock
    assert 60 <= (last - first).total_seconds() < 65


def test_the_thirty_first_search_of_a_minute_waits_for_its_turn(
    start_timed_site: Callable[..., TimedSite], capfd: pytest.CaptureFixture[str]
) -> None:
    """001 §10 searchLimiter, Max 30 searches per minute, log rate_limit_wait"""
    site = start_timed_site("dry-run", "rehearsal")
    begun = site.clock.steady
    for _ in range(30):
        site.text("search_emails", query="tea")
    assert waits(capfd) == []
    assert site.clock.steady - begun < 60
    assert site.text("search_emails", query="tea") == "No emails found matching query"
    assert 60 <= site.clock.steady - begun < 65
    (line,) = waits(capfd)
    assert (line["level"], line["dry_run"]) == ("warn", True)
    assert 0 < line["wait_ms"] <= 60_000


def test_a_search_whose_turn_is_far_off_is_refused_with_the_time_left(
    start_timed_site: Callable[..., TimedSite],
) -> None:
    """001 §10 searchLimiter, a wait of more than 90 seconds"""
    site = start_timed_site("dry-run", "rehearsal", limits={"pace_seconds": 600})
    begun = site.clock.steady
    for _ in range(30):
        site.text("search_emails", query="tea")
    assert site.refusal("search_emails", query="tea") == (
        "Error: Rate limit exceeded (30 searches/600 seconds). There is room again in 10 minutes."
    )
    assert site.clock.steady - begun < 90
    site.clock.go(600)
    assert site.text("search_emails", query="tea") == "No emails found matching query"


def test_the_hourly_budget_refuses_where_the_pace_waits(
    start_timed_site: Callable[..., TimedSite],
) -> None:
    """001 §10 against 000 §3"""
    limits = {"sends_per_hour": 1, "sends_per_pace": 1}  # the pace alone would let it wait
    site = start_timed_site("dry-run", approvals={"required": False}, limits=limits)
    site.text("send_email", **letter("ann"))
    begun = site.clock.steady
    answer = site.call("send_email", **letter("bob"))
    said = answer_text(answer, refused=True)
    id = answer.structured_content["letter"]
    assert said == (
        "Failed to send email: Rate limit exceeded (1 emails/hour). Next send available in 60 minutes.\n"
        f"Detail: The letter {id} needs no approval and is held: Rate limit exceeded (1 emails/hour)."
        " Do not write another one: the same call sends it when it may leave."
    )
    assert site.clock.steady - begun < 30
    assert site.calls()[-1]["result"] == "rate_limited"


# 11A. Addresses


@pytest.mark.parametrize(
    "address",
    [
        "ann@localhost",
        "ann@127.0.0.1",
        "ann@[127.0.0.1]",
        "ann@[IPv6:::1]",
        "ann@example",
        f"{'a' * 64}@example.com",
        f"anna@{'a.' * 123}com",
        "Ann <ann@example.com>",
        "ann@example.com, bob@example.com",
        "ann@exa mple.com",
        "ann@@example.com",
        "",
    ],
)
def test_addresses_that_are_refused(dry: Site, address: str) -> None:
    """001 §11A"""
    assert dry.refusal("send_email", **letter(to=address)) == (
        "Failed to send email: Invalid recipient address"
    )


def test_addresses_that_just_fit(dry: Site) -> None:
    """001 §11A, the bounds"""
    for address in (f"{'a' * 63}@example.com", f"ann@{'a.' * 123}com"):
        assert dry.text("send_email", **letter(to=address)).startswith("[DRY RUN]"), len(address)


@pytest.mark.parametrize("field", ["cc", "bcc"])
def test_one_bad_address_refuses_the_whole_send(live: Site, field: str) -> None:
    """001 §11A validateRecipientList, §13 CC/BCC with invalid addresses"""
    said = live.refusal("send_email", **letter("all", **{field: " a@example.com , nobody"}))
    assert said == (
        "Failed to send email: Invalid recipient address\n"
        f"Detail: {field}: Invalid email address format: nobody"
    )
    assert found(live, "in:sent to:all@example.com") == []


def test_a_list_is_split_and_trimmed(dry: Site) -> None:
    """001 §11A Split by comma, trim each"""
    said = dry.text("send_email", **letter(cc=" a@example.com ,b@example.com"))
    assert "\n  CC: a@example.com, b@example.com\n" in said


# 11B. Content


def test_a_long_subject_is_cut(live: Site) -> None:
    """001 §11B validateSubject"""
    answer = live.call("send_email", **letter("cut", subject=f"  \0{'s' * 600}  "))
    assert answer_text(answer, refused=False).endswith(
        "\n\nWarning: subject truncated to 500 characters."
    )
    assert mime(live, answer)["Subject"] == "s" * 497 + "..."


def test_a_long_body_is_cut_with_a_warning(live: Site) -> None:
    """001 §11B validateBody, §13 Very long email body"""
    answer = live.call("send_email", **letter("long", body="ab\0" * 20_000 + "c" * 20_000))
    said = answer_text(answer, refused=False)
    assert said.endswith("\n\nWarning: body truncated to 50000 characters.")
    assert mime(live, answer).get_content().replace("\n", "") == "ab" * 20_000 + "c" * 10_000


def test_what_just_fits_is_not_cut(dry: Site) -> None:
    """001 §11B, the bounds"""
    said = dry.text("send_email", **letter(subject="s" * 500, body="b" * 50_000))
    assert "(50000 chars)" in said
    assert "Warning" not in said


def test_html_in_a_plain_body_is_escaped(live: Site) -> None:
    """001 §13 HTML in body field"""
    answer = live.call("send_email", **letter("esc", body="Hi <b>you</b> & <script>x</script>"))
    assert answer_text(answer, refused=False).endswith(
        "\n\nWarning: HTML in body was escaped; use html_body for HTML."
    )
    sent = mime(live, answer).get_content()
    assert sent == "Hi &lt;b&gt;you&lt;/b&gt; &amp; &lt;script&gt;x&lt;/script&gt;"
    words = "1 < 2 & 3 > 2, <ann@example.com>, <https://example.com/a>"
    assert sends(live, name="cmp", body=words).get_content() == words


def test_what_is_escaped_is_cut_afterwards(live: Site) -> None:
    """001 §13 HTML in body field, §11B"""
    answer = live.call("send_email", **letter("cut2", body="<b>" * 20_000))
    assert answer_text(answer, refused=False).endswith(
        "\n\nWarning: HTML in body was escaped; use html_body for HTML."
        "\n\nWarning: body truncated to 50000 characters."
    )
    sent = mime(live, answer).get_content().replace("\n", "")
    assert sent == ("&lt;b&gt;" * 20_000)[: len(sent)]
    assert 49_990 < len(sent) <= 50_000


# 12 and 13


def test_the_nine_steps_of_the_manual_protocol(
    gmail: Callable[..., Any], service: Gmail, tmp_path: Path, imported: Path
) -> None:
    """001 §12A"""
    service.receive(mail(subject="Lunch on Friday", message_id="<lunch@example.com>"))
    # 1 and 2: the client connects, and lists the tools; 3: a search with a real query.
    dry = gmail()
    assert set(dry.agent.tools()) == set(REQUIRED)
    (lunch,) = found(dry, "from:ann subject:lunch")
    # 4, 5 and 6: draft, send and reply are previews.
    assert dry.text("draft_email", **letter()).startswith("[DRY RUN] Would create draft:")
    assert dry.text("send_email", **letter()).startswith("[DRY RUN] Would send email:")
    assert dry.text("reply_to_thread", thread_id=lunch["thread_id"], body="Yes.").startswith("[DRY RUN] Would reply to thread:")  # fmt: skip
    assert not service.sent
    assert not service.mailbox.drafts
    # 7: DRY_RUN=false, and one real letter to oneself; 8: it arrives.
    live = gmail("live", signed_in=False)
    assert live.text("send_email", **letter(to="you@example.org")).startswith("Email sent")
    assert len(service.sent) == 1
    (arrived,) = found(live, "in:inbox is:unread subject:test")
    assert arrived["to"] == "you@example.org"
    # 9: and back to previews.
    assert dry.text("send_email", **letter()).startswith("[DRY RUN]")
    assert len(service.sent) == 1


def test_an_empty_search_is_friendly(dry: Site) -> None:
    """001 §13 Empty search results"""
    assert dry.text("search_emails", query="zebra crossing") == "No emails found matching query"


def test_a_letter_to_oneself_is_sent(live: Site) -> None:
    """001 §13 Send to self"""
    assert sends(live, to="you@example.org", subject="To me")["To"] == "you@example.org"


def test_calls_at_the_same_time_are_all_answered(person: Person) -> None:
    """001 §13 Concurrent MCP calls"""
    wire = Wire(person, "email", "--contract", "dry-run")
    try:
        wire.greet()
        asked = [wire.call("send_email", **letter(subject=f"No. {n}")) for n in range(20)]
        for number, answer in enumerate(gathered(wire, asked)):
            assert f"Subject: No. {number}\n" in answer["content"][0]["text"]
    finally:
        wire.kill()


def test_a_server_that_was_killed_starts_again(person: Person) -> None:
    """001 §13 MCP server crashes"""
    for _ in range(2):
        wire = Wire(person, "email", "--contract", "dry-run")
        wire.greet()
        assert not wire.answer(wire.call("send_email", **letter()))["result"]["isError"]
        wire.kill()


# 14. Boxes that are not shown above


def test_the_server_has_no_browser(person: Person, service: Gmail) -> None:
    """001 §5, §14 No browser-based OAuth flow"""
    opened = person.folder / "opened"
    token = at_gmail(person, service, signed_in=False)
    for problem in ("missing", "expired", "revoked"):
        if problem != "missing":
            keep(token, service.token(expires_in=-10) | ({"refresh_token": ""} if problem == "expired" else {}))  # fmt: skip
        service.revoke()
        wire = Wire(person, "email", "--contract", "dry-run", BROWSER=f"touch {opened} %s")
        try:
            answer = wire.greet().answer(wire.call("search_emails", query="tea"))["result"]
        finally:
            wire.kill()
        assert "`postroom auth gmail`" in answer["content"][0]["text"], problem
        assert not opened.exists(), problem
    assert {one.path for one in service.requests} <= {"/token"}


def test_it_is_registered_with_claude_code_with_dry_run(person: Person) -> None:
    """001 §14 Registered with DRY_RUN=true"""
    project = person.folder / "project"
    project.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "postroom", "install", "claude-code", "--contract", "dry-run", "--yes"],
        cwd=project, env=person.environment, check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0
    entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["postroom"]
    assert entry["env"]["DRY_RUN"] == "true"
    assert entry["args"][-6:] == ["mcp", "email", "--contract", "dry-run", "--agent", "claude-code"]
    assert Path(entry["command"]).is_file()
    assert os.access(entry["command"], os.X_OK)


def test_credentials_and_token_are_found_where_the_document_has_them(
    gmail: Callable[..., Site], service: Gmail, tmp_path: Path
) -> None:
    """001 §5A, §14 credentials.json and token.json"""
    elsewhere = tmp_path / "elsewhere"
    named = {
        "GMAIL_CREDENTIALS_PATH": str(elsewhere / "client.json"),
        "GMAIL_TOKEN_PATH": str(elsewhere / "mine.json"),
    }
    for number, (client, token, environment) in enumerate(
        (
            (tmp_path / "credentials.json", tmp_path / "token.json", {}),  # the working directory
            (elsewhere / "client.json", elsewhere / "mine.json", named),
        ),
        1,
    ):
        spent = service.token(expires_in=-10)  # it is renewed, and for that the client is needed
        keep(token, {key: spent[key] for key in spent if not key.startswith("client_")})
        keep(client, service.client())
        site = gmail(signed_in=False, environment=environment)
        assert site.text("search_emails", query="tea") == "No emails found matching query"
        assert service.refreshes == number
        token.unlink()
        client.unlink()


def test_one_sign_in_allows_all_that_the_documents_scopes_are_for(
    start_gmail_site: Callable[..., Site], person: Person, service: Gmail
) -> None:
    """001 §5B"""
    token = at_gmail(person, service, signed_in=False)
    keep(token.with_name("credentials.json"), service.client())
    visit = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"
    person.environment["BROWSER"] = f"{sys.executable} -I -S -c {shlex.quote(visit)} %s"
    assert person.run("auth", "gmail").code == 0
    (page,) = (one for one in service.requests if one.path == "/o/oauth2/auth")
    assert page.query["scope"] == ["https://www.googleapis.com/auth/gmail.modify"]
    id = service.receive(mail(subject="Lunch on Friday", message_id="<lunch@example.com>"))
    # The double lets a token do what Google's reference says of its scopes, and nothing else.
    live = start_gmail_site("dry-run", signed_in=False, approvals={"required": False})
    (lunch,) = found(live, "subject:lunch")
    assert live.text("send_email", **letter()).startswith("Email sent")
    assert live.text("reply_to_thread", thread_id=lunch["thread_id"], body="Yes.").startswith("Reply sent")  # fmt: skip
    assert live.text("draft_email", **letter()).startswith("Draft created")
    with visiting_inside(live.person, contract=contract_of("email", "gmail")) as agent:
        said = agent.call("move_email", message_id=id, destination_label="DONE")
    assert json.loads(said.text) == {"moved": True}


def test_what_leaves_through_gmail_is_what_was_built(
    gmail: Callable[..., Any], service: Gmail
) -> None:
    """001 §7 base64UrlEncode"""
    site = gmail("live")
    body = "".join(map(chr, range(0x3E0, 0x480)))  # of which base64 makes + and /
    said = site.text("send_email", **letter("gil", body=body))
    (left,) = service.sent
    assert said.startswith("Email sent successfully.")
    assert message_from_bytes(left.raw, policy=policy.default).get_content().strip() == body


class Broken:
    """A mailbox with a bug: whatever is searched, it fails with what a mail says."""

    def __init__(self, box: Mailbox) -> None:
        self._box = box

    def __getattr__(self, name: str) -> object:
        return getattr(self._box, name)

    def search(self, query: str, **_more: object) -> SearchPage:
        raise RuntimeError(f"the secret sentence of a mail with {query}")

    def own_addresses(self) -> tuple[Address, ...]:
        raise RuntimeError("the secret sentence of a mail")


def test_what_nobody_foresaw_is_an_unexpected_error(
    start_office_site: Callable[..., TimedSite],
) -> None:
    """001 §9C default"""
    site = start_office_site("dry-run", Broken, required=False)
    told_of = r"Unexpected error: Something is wrong inside Postroom \(RuntimeError at Broken\.{}:\d+\)\. Tell the person what this says\."  # fmt: skip
    said = site.refusal("search_emails", query="tea")
    assert re.fullmatch("Error: " + told_of.format("search"), said)
    said = site.refusal("send_email", **letter())
    assert re.fullmatch("Failed to send email: " + told_of.format("own_addresses"), said)
    assert "secret" not in json.dumps(site.actions())
