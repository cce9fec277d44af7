"""Document 003, the Gmail server of a data model: contract `gmail`, clause by clause."""

import dataclasses
import json
import re
from collections.abc import Callable
from datetime import datetime
from email import message_from_string, policy
from pathlib import Path
from typing import Any, cast

import pytest
from mcp_types import CallToolResult

from postroom.core import errors
from postroom.core.address import Address
from postroom.core.message import Message
from postroom.desk.log import AuditLogEntry
from postroom.desk.unowned_notes import ApprovedDraft
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Mailbox
from postroom.tools import documents
from postroom.tools import models as gmail_models
from postroom.tools.contracts import gmail
from postroom.vault.note import Note
from tests.agents import Wire
from tests.arrivals import arrive, attached
from tests.conftest import Person
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail
from tests.narrow import narrow, present
from tests.seeds.conftest import Site, TimedSite, answer_text

PROPERTIES = {
    "send_email": {"to": "string", "subject": "string", "body": "string", "reply_to_message_id": None},
    "list_emails": {"query": "string", "max_results": "integer"},
    "get_email": {"message_id": "string"},
    "move_email": {"message_id": "string", "destination_label": "string"},
    "add_label": {"message_id": "string", "label_name": "string"},
}  # fmt: skip
SENT_AT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def live(shared_site: Callable[..., Site]) -> Site:
    return shared_site("gmail", "live")


@pytest.fixture
def rehearsing(shared_site: Callable[..., Site]) -> Site:
    return shared_site("gmail")


def letter(name: str, **changes: str) -> dict[str, str]:
    return {"to": f"{name}@example.com", "subject": "Hello", "body": "Good day.", **changes}


def both(answer: CallToolResult) -> Any:
    """Return the answer, which is the same as JSON text and as structured content."""
    values = json.loads(answer_text(answer, refused=False))
    assert answer.structured_content == ({"result": values} if isinstance(values, list) else values)
    return values


def wrong(answer: CallToolResult) -> dict[str, Any]:
    """Return the error, which is the same as JSON text and as structured content."""
    error = json.loads(answer_text(answer, refused=True))
    assert list(error) == ["error", "message", "details"]
    assert answer.structured_content == error
    return narrow(error, dict)


def approve(site: Site, name: str, **fields: Any) -> Path:
    kind = {"type": "email_send", "status": "approved", "to": f"{name}@example.com"}
    return site.slip(name, **{**kind, **fields})


def records(site: Site) -> list[Any]:
    files = sorted((site.person.vault / "Logs").glob("gmail_mcp_*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def first(site: Site, query: str = "in:inbox") -> str:
    return str(both(site.call("list_emails", query=query, max_results=1))[0]["id"])


# 1. Input models


def test_the_five_tools_and_their_inputs(live: Site) -> None:
    """003 §1 Input Models"""
    tools = live.agent.tools()
    schemas = {name: tool.input_schema for name, tool in tools.items()}
    assert {n: {p: about.get("type") for p, about in s["properties"].items()} for n, s in schemas.items()} == PROPERTIES  # fmt: skip
    assert schemas["send_email"]["required"] == ["to", "subject", "body"]
    assert schemas["send_email"]["properties"]["reply_to_message_id"]["default"] is None
    query, most = schemas["list_emails"]["properties"].values()
    assert "required" not in schemas["list_emails"]
    assert query["default"] == "is:unread"
    assert (most["default"], most["minimum"], most["maximum"]) == (10, 1, 100)


def test_models_have_the_documents_names_and_fields() -> None:
    """003 §1, §2, §5 models"""
    fields = {
        "SendEmailInput": ["to", "subject", "body", "reply_to_message_id"],
        "ListEmailsInput": ["query", "max_results"],
        "GetEmailInput": ["message_id"],
        "MoveEmailInput": ["message_id", "destination_label"],
        "AddLabelInput": ["message_id", "label_name"],
    }
    assert {name: list(getattr(gmail_models, name).model_fields) for name in fields} == fields
    fields = {
        "EmailSummary": ["id", "subject", "sender", "date", "snippet"],
        "EmailFull": ["id", "subject", "sender", "to", "date", "body", "has_attachments", "attachment_names"],
        "SendEmailResult": ["message_id", "thread_id", "sent_at"],
    }  # fmt: skip
    assert {name: list(getattr(gmail, name)._fields) for name in fields} == fields
    assert list(documents.MCPError._fields) == ["error", "message", "details"]
    kept = [field.name for field in dataclasses.fields(AuditLogEntry)]
    assert kept == ["event", "timestamp", "to", "subject", "body_preview", "reply_to_message_id", "severity"]  # fmt: skip


# 2. Output models


def test_list_emails(live: Site) -> None:
    """003 §2 EmailSummary"""
    (mail,) = both(live.call("list_emails", query="in:inbox subject:round"))
    assert mail == {
        "id": mail["id"],
        "subject": "Round table",
        "sender": "Ann Lee <ann@example.com>",
        "date": "2026-11-14T10:00:00Z",
        "snippet": "Come at four.",
    }
    for found in both(live.call("list_emails", query="in:inbox", max_results=100)):
        assert len(found["snippet"]) <= 100
        datetime.fromisoformat(found["date"])


def test_list_emails_lists_ten_unread_ones_unless_told(rehearsing: Site) -> None:
    """003 §1 ListEmailsInput"""
    unread = both(rehearsing.call("list_emails", query="is:unread", max_results=100))
    assert both(rehearsing.call("list_emails")) == unread[:10]
    assert len(both(rehearsing.call("list_emails", query="", max_results=100))) > 30


def test_get_email(live: Site) -> None:
    """003 §2 EmailFull"""
    id = first(live, "in:inbox subject:round")
    assert both(live.call("get_email", message_id=id)) == {
        "id": id,
        "subject": "Round table",
        "sender": "Ann Lee <ann@example.com>",
        "to": "you@example.org, Bob <bob@example.net>",
        "date": "2026-11-14T10:00:00Z",
        "body": "Come at four.",
        "has_attachments": False,
        "attachment_names": [],
    }


def test_get_email_brings_50_000_characters_of_a_body(live: Site) -> None:
    """003 §2 EmailFull, a long body"""
    for more, tail in ((0, ""), (7, "\n[7 more characters]")):
        id = arrive(live.person, f"long{more}", subject="Endless", body="x" * (50_000 + more))
        body = both(live.call("get_email", message_id=id))["body"]
        assert body == "x" * 50_000 + tail


def test_get_email_names_attachments_and_brings_none(live: Site) -> None:
    """003 §2 EmailFull, attachments"""
    id = attached(live.person, "plan.txt", "SECRET CONTENT", id="plan")
    found = both(live.call("get_email", message_id=id))
    assert (found["has_attachments"], found["attachment_names"]) == (True, ["plan.txt"])
    assert "SECRET" not in json.dumps(found)


def test_send_email(live: Site) -> None:
    """003 §2 SendEmailResult"""
    slip = approve(live, "sue")
    found = both(live.call("send_email", **letter("sue")))
    assert list(found) == ["message_id", "thread_id", "sent_at"]
    assert re.fullmatch(SENT_AT, found["sent_at"])
    assert "Good day." in live.raw(found["message_id"])
    assert not slip.exists()


def test_send_email_in_a_thread(live: Site) -> None:
    """003 §1 reply_to_message_id"""
    id = first(live, "in:inbox subject:round")
    live.slip("tea", type="email_reply", status="approved", to="ann@example.com")
    found = both(live.call("send_email", **letter("ann"), reply_to_message_id=id))
    assert "In-Reply-To: <round@example.com>" in live.raw(found["message_id"])
    thread = live.person.run("read", id, "--json").json["thread"]
    assert found["thread_id"] == thread


def test_what_is_no_html_stays_as_it_is(live: Site) -> None:
    """003 §1 SendEmailInput, a plain-text body"""
    approve(live, "pla")
    found = both(live.call("send_email", **letter("pla", body="if a <b> c then List<a>")))
    sent = message_from_string(live.raw(found["message_id"]), policy=policy.default)
    assert sent.get_content_type() == "text/plain"
    assert sent.get_content().strip() == "if a <b> c then List<a>"


def test_send_email_takes_html(live: Site) -> None:
    """003 §1 SendEmailInput, plain-text or HTML body"""
    approve(live, "htm")
    found = both(live.call("send_email", **letter("htm", body="<p>Good <b>day</b>.</p>")))
    raw = live.raw(found["message_id"]).replace("\r\n", "\n")
    sent = message_from_string(raw, policy=policy.default)
    assert sent.get_content_type() == "multipart/alternative"
    assert present(sent.get_body(("plain",))).get_content().strip() == "Good day."
    assert "<b>day</b>" in present(sent.get_body(("html",))).get_content()


def test_send_email_refuses_html_that_is_not_of_the_subset(live: Site) -> None:
    """003 §1 SendEmailInput, HTML outside the subset"""
    page = "<p>Hi</p><title>pay 9000</title>"
    error = json.loads(
        answer_text(live.call("send_email", **letter("ref", body=page)), refused=True)
    )
    assert error["error"] == "parse_error"
    assert "<title> is not allowed" in error["message"]


def test_move_email_and_add_label(live: Site) -> None:
    """003 §1 MoveEmailInput, AddLabelInput"""
    id = arrive(live.person, "move", subject="To be moved")
    assert both(live.call("move_email", message_id=id, destination_label="DONE")) == {"moved": True}
    assert both(live.call("add_label", message_id=id, label_name="AI_PROCESSED")) == {"labeled": True}  # fmt: skip
    assert both(live.call("list_emails", query="in:inbox subject:moved")) == []
    assert first(live, "label:DONE label:AI_PROCESSED") == id
    assert both(live.call("move_email", message_id=id, destination_label="INBOX")) == {
        "moved": True
    }
    assert first(live, "in:inbox subject:moved") == id


def test_an_approved_draft_is_read_with_the_documents_fields() -> None:
    """003 §6 ApprovedDraft, fields"""
    there = Path("/vault/Approved/reply.md")
    head = "to: ann@example.com\nsubject: 'Re: Tea'\nreply_to_message_id: 18e51234\n"
    draft = ApprovedDraft.of(there, Note.parse(f"---\n{head}---\nGladly.\n".encode()))
    assert draft._asdict() == {
        "filepath": there,
        "to": "ann@example.com",
        "subject": "Re: Tea",
        "body": "Gladly.\n",
        "reply_to_message_id": "18e51234",
    }
    bare = ApprovedDraft.of(there, Note.parse(b"---\nto: ann@example.com\n---\n"))
    assert bare.reply_to_message_id is None


def test_an_approved_draft_is_sent_by_the_call_that_has_its_words(live: Site) -> None:
    """003 ApprovedDraft, Email Processing State Machine"""
    id = first(live, "in:inbox subject:round")
    draft = {
        "to": "ann@example.com",
        "subject": '"Re: Round table"',
        "reply_to_message_id": f'"{id}"',
    }
    note = live.slip("reply", **draft, status="pending_approval")
    words = {
        "to": "ann@example.com",
        "subject": "Re: Round table",
        "body": "Risk: low.\nRollback: none.",
    }
    found = both(live.call("send_email", **words, reply_to_message_id=id))
    assert "Risk: low." in live.raw(found["message_id"])
    assert not note.exists()
    assert (live.person.vault / "Done" / "reply.md").exists()
    assert (
        wrong(live.call("send_email", **words, reply_to_message_id=id))["error"]
        == "permission_denied"
    )
    assert records(live)[-1]["subject"] == "Re: Round table"


# The pre-send record


def test_a_record_is_kept_before_each_send(live: Site) -> None:
    """003 §2 AuditLogEntry"""
    id = first(live, "in:inbox subject:round")
    live.slip("rec", type="email_reply", status="approved", to="rec@example.com")
    both(live.call("send_email", **letter("rec", body="B" * 300), reply_to_message_id=id))
    entry = records(live)[-1]
    assert re.fullmatch(SENT_AT, entry.pop("timestamp"))
    assert entry == {
        "event": "pre_send_audit",
        "to": "rec@example.com",
        "subject": "Hello",
        "body_preview": "B" * 200,
        "reply_to_message_id": id,
        "severity": "INFO",
    }
    *_, file = sorted((live.person.vault / "Logs").glob("gmail_mcp_*.jsonl"))
    assert re.fullmatch(r"gmail_mcp_\d{4}-\d\d-\d\d\.jsonl", file.name)
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_record_is_of_what_leaves_whoever_sends_it(live: Site) -> None:
    """003 §2 AuditLogEntry, approved in the terminal"""
    id = wrong(live.call("send_email", **letter("per")))["details"]["letter"]
    assert all(entry["to"] != "per@example.com" for entry in records(live))
    digest = live.person.show(id)["digest"].removeprefix("sha256:")
    assert live.person.run("approve", id, "--yes", digest[:8]).code == 0
    assert (records(live)[-1]["to"], records(live)[-1]["body_preview"]) == ("per@example.com", "Good day.")  # fmt: skip


def test_the_record_is_on_the_disk_when_gmail_is_called(person: Person, service: Gmail) -> None:
    """003 §2 AuditLogEntry, written before the Gmail API call"""
    import threading

    at_gmail(person, service)
    person.live(undo_seconds=0, required=False)
    hold = threading.Event()
    fault = service.fail("POST .*/drafts", hold=hold)
    wire = Wire(person, "email", "--contract", "gmail")
    try:
        wire.greet()
        wire.call("send_email", **letter("now"))
        assert fault.struck.wait(60)
        (file,) = (person.vault / "Logs").glob("gmail_mcp_*.jsonl")
        assert json.loads(file.read_text())["to"] == "now@example.com"
        assert service.sent == []
    finally:
        wire.kill()
        hold.set()


def test_what_cannot_be_recorded_is_not_sent(start_site: Callable[..., Site]) -> None:
    """003 §2 AuditLogEntry, no record, no send"""
    site = start_site("gmail", approvals={"required": False})
    logs = site.person.vault / "Logs"
    logs.mkdir()
    day = both(site.call("send_email", **letter("ann")))["sent_at"][:10]
    (logs / f"gmail_mcp_{day}.jsonl").unlink()
    (logs / f"gmail_mcp_{day}.jsonl").mkdir()
    assert wrong(site.call("send_email", **letter("bob")))["error"] == "send_failed"
    assert both(site.call("list_emails", query="in:sent to:bob@example.com")) == []


def test_nothing_is_recorded_of_what_does_not_leave(rehearsing: Site, live: Site) -> None:
    """003 §2 AuditLogEntry, only what may leave"""
    before = len(records(live))
    rehearsing.call("send_email", **letter("ann"))
    live.call("send_email", **letter("x", to="bad"))
    live.call("send_email", **letter("held"))
    assert records(rehearsing) == []
    assert len(records(live)) == before


def test_the_action_log_holds_no_body(live: Site) -> None:
    """003 §2 against 000 §4"""
    approve(live, "bod")
    both(live.call("send_email", **letter("bod", body="A secret sentence.")))
    lines = [line for line in live.actions() if line["target"] == "b***@example.com"]
    assert {"claim_letter", "send_email"} <= {line["action_type"] for line in lines}
    assert "secret sentence" not in json.dumps(live.actions())
    assert "secret sentence" in records(live)[-1]["body_preview"]


def test_a_letter_of_another_contract_has_no_record(shared_site: Callable[..., Site]) -> None:
    """003 §2 AuditLogEntry against 000 §4, a letter of another contract"""
    site = shared_site("approval", "live")
    approve(site, "nor")
    site.text("send_email", **letter("nor"))
    assert records(site) == []


def test_the_record_is_kept_whichever_contract_entered_the_letter(
    start_site: Callable[..., Site], tmp_path: Path, imported: Path
) -> None:
    """003 §2 AuditLogEntry, entered by another contract"""
    from tests.seeds.conftest import site

    with site(tmp_path, imported, "approval", "live") as other:
        id = other.call("send_email", **letter("ann")).structured_content["letter"]
        (note,) = (other.person.vault / "Pending_Approval").glob(f"*{id}*")
        note.rename(other.person.vault / "Approved" / note.name)
    both(start_site("gmail").call("send_email", **letter("ann")))
    here = tmp_path / "vault" / "Logs"
    assert [json.loads(file.read_text())["to"] for file in here.glob("gmail_mcp_*.jsonl")] == ["ann@example.com"]  # fmt: skip


# 5. Errors


def test_not_found(live: Site) -> None:
    """003 §5 not_found"""
    for tool, more in (("get_email", {}), ("move_email", {"destination_label": "A"}), ("add_label", {"label_name": "A"})):  # fmt: skip
        error = wrong(live.call(tool, message_id="18d1234", **more))
        assert (error["error"], error["message"]) == ("not_found", "There is no mail 18d1234")
    error = wrong(live.call("send_email", **letter("ann"), reply_to_message_id="18d1234"))
    assert error["error"] == "not_found"


def test_permission_denied_where_a_letter_is_held(live: Site) -> None:
    """003 §5, a held send"""
    error = wrong(live.call("send_email", **letter("hal")))
    id = error["details"]["letter"]
    assert error == {
        "error": "permission_denied",
        "message": f"Not sent. The letter {id} waits for a person to approve it."
        " Do not send it again before that.",
        "details": {"letter": id, "status": "pending"},
    }
    assert live.person.show(id)["state"] == "pending"


def test_permission_denied_with_the_preview_in_a_rehearsal(rehearsing: Site) -> None:
    """003 §5, a rehearsed send"""
    assert wrong(rehearsing.call("send_email", **letter("ann"))) == {
        "error": "permission_denied",
        "message": "Rehearsal (default): not sent. With DRY_RUN=false it waits for a person",
        "details": {
            "preview": {
                "to": "ann@example.com",
                "subject": "Hello",
                "body_preview": "Good day.",
                "reply_to_message_id": None,
            }
        },
    }


def test_moves_and_labels_are_previewed_in_a_rehearsal(rehearsing: Site) -> None:
    """003 §5, moves and labels under DRY_RUN"""
    id = first(rehearsing, "in:inbox subject:round")
    error = wrong(rehearsing.call("move_email", message_id=id, destination_label="DONE"))
    assert error["error"] == "permission_denied"
    assert error["details"]["preview"] == {"message_id": id, "add": ["DONE"], "remove": ["INBOX"]}
    error = wrong(rehearsing.call("add_label", message_id=id, label_name="X"))
    assert error["details"]["preview"] == {"message_id": id, "add": ["X"], "remove": []}
    assert both(rehearsing.call("list_emails", query="label:DONE")) == []


def test_permission_denied_for_places_that_are_the_persons(live: Site) -> None:
    """003 §5 permission_denied"""
    id = first(live, "in:inbox subject:round")
    for label in ("TRASH", "SPAM", "SENT", "DRAFT", "trash", "Spam", "Sent Mail", "Drafts"):
        for tool, argument in (("move_email", "destination_label"), ("add_label", "label_name")):
            error = wrong(live.call(tool, message_id=id, **{argument: label}))
            assert error["error"] == "permission_denied", (tool, label)
    assert first(live, "in:inbox subject:round") == id


def test_rate_limited(start_site: Callable[..., Site]) -> None:
    """003 §5 rate_limited"""
    site = start_site("gmail", approvals={"required": False}, limits={"sends_per_hour": 1})
    both(site.call("send_email", **letter("ann")))
    error = wrong(site.call("send_email", **letter("bob")))
    assert error["error"] == "rate_limited"
    assert 3_590 < error["details"]["retry_after_seconds"] <= 3_600
    assert site.calls()[-1]["result"] == "rate_limited"


def test_auth_required(start_gmail_site: Callable[..., Site]) -> None:
    """003 §5 auth_required"""
    site = start_gmail_site("gmail", signed_in=False)
    error = wrong(site.call("list_emails"))
    assert error["error"] == "auth_required"
    assert "postroom auth gmail" in error["details"]["remedy"]


def test_send_failed(start_gmail_site: Callable[..., Site], service: Gmail) -> None:
    """003 §5 send_failed"""
    site = start_gmail_site("gmail", approvals={"required": False})
    service.fail("POST .*/drafts", status=400, reason="invalidArgument", times=9)
    error = wrong(site.call("send_email", **letter("ann")))
    assert error["error"] == "send_failed"
    assert error["details"]["status"] == "failed"


def test_what_was_sent_is_not_sent_again(live: Site) -> None:
    """003 §5, already sent"""
    approve(live, "two")
    both(live.call("send_email", **letter("two")))
    error = wrong(live.call("send_email", **letter("two")))
    assert error["error"] == "permission_denied"
    assert re.fullmatch(
        rf"The letter \w{{10}} was sent at {SENT_AT}\. It is not sent again\."
        r" Change the letter if another one is meant\.",
        error["message"],
    )
    assert len(both(live.call("list_emails", query="in:sent to:two@example.com"))) == 1


class Failing:
    """A mailbox that cannot show a mail, nor say whose it is, for a reason that can be set."""

    def __init__(self) -> None:
        self.why: Exception | None = None

    def __call__(self, box: LocalMailbox) -> Mailbox:
        self._box = box
        return cast(Mailbox, self)

    def __getattr__(self, name: str) -> object:
        return getattr(self._box, name)

    def message(self, id: str) -> Message:
        raise self.why or AssertionError

    def own_addresses(self) -> tuple[Address, ...]:
        raise self.why or AssertionError


def kinds_of_errors() -> dict[str, Exception]:
    """Return an error of each kind of ours, and one that nobody foresaw."""
    found: dict[str, Exception] = {"a bug": RuntimeError("It is wrong")}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.PostroomError):
            more = {"seconds": 5} if kind is errors.Limited else {}
            found[kind.__name__] = kind("It is wrong", remedy="Mend it.", **more)
    return found


def test_every_error_has_one_of_the_documents_codes(
    start_office_site: Callable[..., TimedSite],
) -> None:
    """003 §5 MCPErrorCode, Error Taxonomy"""
    box = Failing()
    site = start_office_site("gmail", box)
    reading, sending = {}, {}
    for name, box.why in kinds_of_errors().items():
        reading[name] = wrong(site.call("get_email", message_id="18d1234"))["error"]
        sending[name] = wrong(site.call("send_email", **letter("ann")))["error"]
    assert reading == {
        "a bug": "internal_error",
        "PostroomError": "internal_error",
        "Invalid": "parse_error",
        "NotFound": "not_found",
        "Denied": "permission_denied",
        "Limited": "rate_limited",
        "AuthRequired": "auth_required",
        "Conflict": "permission_denied",
        "Unavailable": "internal_error",
        "Uncertain": "internal_error",
        "Corrupt": "parse_error",
    }
    assert sending == reading | {"Unavailable": "send_failed", "Uncertain": "send_failed"}
