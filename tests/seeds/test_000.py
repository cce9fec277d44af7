"""Document 000, data model of the email server with approvals: contract `approval`, clause by clause."""

import uuid
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from mcp_types import TextContent
from pydantic import ValidationError

from postroom.core.address import Address
from postroom.core.policy import RateLimitCounter
from postroom.core.stamp import Stamp
from postroom.desk.note_sync import SeenNote
from postroom.desk.unowned_notes import ApprovalFile, parse_slip
from postroom.tools import models as approval_models
from postroom.tools.contracts import approval
from postroom.tools.contracts import vault as vault_server
from postroom.vault.note import Note
from postroom.vault.vault import File
from tests.agents import visiting_inside
from tests.arrivals import arrive
from tests.narrow import narrow, present
from tests.seeds.conftest import Site, TimedSite
from tests.seeds.test_002 import approve, letter, newest, rejected

SENT = "Email sent successfully."


@pytest.fixture
def live(shared_site: Callable[..., Site]) -> Site:
    return shared_site("approval", "live")


def sends(site: Site, name: str, **changes: str) -> bool:
    """Whether a letter to this name leaves now."""
    answer = site.call("send_email", **letter(name, **changes))
    return narrow(answer.content[0], TextContent).text.startswith(SENT)


# 1. EmailMessage


def test_email_result_has_the_documents_fields(live: Site) -> None:
    """000 §1 EmailMessage, §Pydantic EmailResult"""
    fields = ["message_id", "thread_id", "from_address", "to_address", "subject", "snippet", "date"]
    assert list(approval.EmailResult._fields) == fields
    assert list(approval.EmailMessage._fields) == [*fields, "labels"]
    found = live.call("search_email", query="in:inbox", max_results=50).structured_content["emails"]
    assert len(found) > 20
    for mail in found:
        assert list(mail) == [*fields, "labels"]
        assert all(isinstance(mail[field], str) for field in fields)
        assert "INBOX" in mail["labels"]
        Address.parse(mail["from_address"])
        assert len(mail["snippet"]) <= 200
        assert len(mail["subject"]) <= 998
        parsedate_to_datetime(mail["date"])


def test_ids_are_non_empty_texts_that_name_the_mail(live: Site) -> None:
    """000 §1 Validation Rules, message_id and thread_id"""
    found = live.call("search_email", query="in:anywhere", max_results=50).structured_content["emails"]  # fmt: skip
    assert len({mail["message_id"] for mail in found}) == len(found) > 20
    assert all(mail["message_id"] and mail["thread_id"] for mail in found)
    approve(live, "ida")
    sent = live.call("send_email", **letter("ida")).structured_content
    again = newest(live, "in:sent to:ida@example.com")
    assert (sent["message_id"], sent["thread_id"]) == (again["message_id"], again["thread_id"])
    for empty in ({"thread_id": ""}, {"message_id": ""}):
        said = live.refusal("reply_email", **{"thread_id": "18d5a", "message_id": "18d5b", "body": "Yes."} | empty)  # fmt: skip
        assert said.startswith(f"Error replying to thread: {next(iter(empty))}: ")


def test_subjects_have_at_most_998_characters(live: Site) -> None:
    """000 §1 Validation Rules, subject"""
    assert live.refusal("send_email", **letter("x", subject="s" * 999)) == (
        "Error: subject: has more than 998 characters"
    )
    live.text("draft_email", **letter("max", subject="s" * 998))
    arrive(live.person, "endless", subject=f"Endless {'s' * 2_000}")
    assert 990 < len(newest(live, "subject:endless")["subject"]) <= 998


def test_models_have_the_documents_names_fields_and_bounds() -> None:
    """000 §Pydantic Models"""
    send = {"to": "ann@example.com", "subject": "s" * 998, "body": "Hello."}
    reply = {"thread_id": "18d5a", "message_id": "18d5b", "body": "Hello."}
    documented: dict[str, dict[str, Any]] = {
        "SendEmailRequest": send,
        "DraftEmailRequest": send,
        "ReplyEmailRequest": reply,
        "SearchEmailRequest": {"query": "tea", "max_results": 50},
    }
    for name, given in documented.items():
        model = getattr(approval_models, name)
        assert model.model_validate(given).model_dump() == given
        assert list(model.model_fields) == list(given)
        for field in set(given) - {"max_results"}:
            with pytest.raises(ValidationError):
                model.model_validate({key: given[key] for key in given if key != field})
    for model in (approval_models.SendEmailRequest, approval_models.DraftEmailRequest):
        with pytest.raises(ValidationError):
            model.model_validate(send | {"subject": "s" * 999})
    defaults = approval_models.SearchEmailRequest.model_validate({"query": "tea"}).model_dump()
    assert defaults["max_results"] == 5
    for most in (0, 51):
        with pytest.raises(ValidationError):
            approval_models.SearchEmailRequest.model_validate({"query": "tea", "max_results": most})


# 2. ApprovalFile


def test_an_approval_file_has_the_documents_frontmatter(live: Site) -> None:
    """000 §2 ApprovalFile, fields"""
    id = live.call("send_email", **letter("flo")).structured_content["letter"]
    (file,) = (live.person.vault / "Pending_Approval").glob(f"*{id}*")
    note = Note.parse(file.read_bytes())
    assert (note.text("type"), note.text("status")) == ("email_send", "pending")
    assert (note.text("action_type"), note.text("to")) == ("send_email", "flo@example.com")
    assert note.text("subject") == "Meeting notes"
    datetime.fromisoformat(note.text("created"))
    read = ApprovalFile.of(note)  # the details, which are folded, have both
    assert "Level: **worth a look**" in read.risk_assessment
    assert "postroom undo" in read.rollback_plan
    file.rename(live.person.vault / "Approved" / file.name)
    assert sends(live, "flo")
    done = Note.parse((live.person.vault / "Done" / file.name).read_bytes())
    datetime.fromisoformat(done.text("approved_at"))


def test_an_approval_that_a_person_wrote_is_read_with_the_documents_fields() -> None:
    """000 §2 ApprovalFile, as a person writes it"""
    file = {
        "type": "email_send",
        "status": "approved",
        "action_type": "send_email",
        "to": "ann@example.com",
        "subject": "Meeting notes",
        "created": "2026-11-15T12:00:00Z",
        "approved_at": "2026-11-15T12:05:00Z",
    }
    body = {"risk_assessment": "Low: Ann asked for them.", "rollback_plan": "Write to her again."}
    head = "".join(f'{name}: "{value}"\n' for name, value in file.items())
    text = "\n".join(f"## {name.replace('_', ' ').capitalize()}\n{value}\n" for name, value in body.items())  # fmt: skip
    note = Note.parse(f"---\n{head}---\n{text}".encode())
    slip = present(parse_slip(SeenNote("Approved/ann.md", File("", 0, 0, 0), note=note)))
    assert slip.file._asdict() == file | body
    bare = Note.parse(b"---\ntype: email_reply\n---\nRisk: low.\n")
    assert ApprovalFile.of(bare) == ApprovalFile("email_reply", "", "", "", "", "", "", "", "")


def test_rule_1_the_file_is_in_approved(live: Site) -> None:
    """000 §2 Matching rule 1"""
    for folder in ("Pending_Approval", "Plans", "Done", "Rejected", "Approved/deeper", "Drafts"):
        live.slip("ria", folder=folder, type="email_send", status="approved", to="ria@example.com")
        assert not sends(live, "ria"), folder
    approve(live, "ria")
    assert sends(live, "ria")


def test_rule_2_the_type_matches_the_action(live: Site) -> None:
    """000 §2 Matching rule 2"""
    approve(live, "tia", type="email_reply")
    assert live.refusal("send_email", **letter("tia")) == rejected("t***@example.com")
    approve(live, "tia", type="email_send")
    assert sends(live, "tia")


@pytest.mark.parametrize("status", ["pending", "rejected", "done", "APPROVED!", '""'])
def test_rule_3_the_status_is_approved(live: Site, status: str) -> None:
    """000 §2 Matching rule 3"""
    name = f"sam{len(status)}{status[0].lower() if status[0].isalpha() else 'x'}"
    approve(live, name, status=status)
    assert not sends(live, name)
    approve(live, name)
    assert sends(live, name)


def test_rule_4_the_recipient_matches_whatever_its_case(live: Site) -> None:
    """000 §2 Matching rule 4"""
    approve(live, "una", to="somebody.else@example.com")
    assert not sends(live, "una")
    approve(live, "una", to="UNA@Example.COM")
    assert sends(live, "una")


def test_rule_5_the_newest_of_several_is_used(live: Site) -> None:
    """000 §2 Matching rule 5"""
    import os

    kind = {"type": "email_send", "status": "approved", "to": "pia@example.com"}
    notes = [live.slip(name, **kind, created=name) for name in ("first", "third", "second")]
    for note, age in zip(notes, (300, 100, 200), strict=True):
        when = note.stat().st_mtime - age
        os.utime(note, (when, when))
    assert sends(live, "pia")
    assert [note.exists() for note in notes] == [True, False, True]


def test_the_subject_must_match_where_it_is_given(live: Site) -> None:
    """000 §2 subject (for matching)"""
    approve(live, "ivy", subject="Another matter")
    assert not sends(live, "ivy")
    approve(live, "ivy", subject="Meeting notes")
    assert sends(live, "ivy")


def test_a_reply_is_matched_by_its_recipient_or_its_thread(live: Site) -> None:
    """000 §2 and 002 reply_email, which name to or thread_id"""
    id = arrive(live.person, "quiz", sender="Quin <quin@example.com>", subject="Quiz")
    thread = newest(live, "subject:quiz")["thread_id"]
    asked = {"thread_id": thread, "message_id": id}
    kind = {"type": "email_reply", "status": "approved"}
    live.slip("other", **kind, to="quin@example.com", thread_id='"0"')
    assert live.refusal("reply_email", **asked, body="One.")
    for number, named in enumerate(({"to": "quin@example.com"}, {"thread_id": f'"{thread}"'})):
        live.slip(f"quiz{number}", **kind, **named)
        assert live.text("reply_email", **asked, body=f"{number}.").startswith("Reply sent")


def test_a_request_goes_from_plans_to_done(start_site: Callable[..., Site]) -> None:
    """000 §2 State Transitions"""
    site = start_site("approval")
    vault = site.person.vault
    site.slip("wish", folder="Plans", type="email_send", status="draft", to="ann@example.com")
    assert not sends(site, "ann")
    site.person.run("send-approved")
    waiting = vault / "Pending_Approval" / "wish.md"
    assert waiting.exists()
    assert not sends(site, "ann")
    waiting.rename(vault / "Approved" / "wish.md")
    assert sends(site, "ann")
    assert (vault / "Done" / "wish.md").exists()


def test_a_request_of_an_agent_approves_the_one_letter_that_it_lists(
    start_site: Callable[..., Site],
) -> None:
    """000 §2 State Transitions, a request that an agent wrote"""
    site = start_site("approval")
    vault = site.person.vault
    with visiting_inside(site.person, contract=vault_server.CONTRACT) as notes:
        fields = {"type": "email_send", "status": "pending", "to": "ann@example.com"}
        notes.call("write_note", path="Plans/wish.md", frontmatter=fields, body="Please.")
    assert not sends(site, "ann")
    site.person.run("send-approved")
    waiting = vault / "Pending_Approval" / "wish.md"
    letter_id = site.person.run("pending", "--json").json["letters"][0]["id"]
    assert f"The letter `{letter_id}` to `ann@example.com`" in waiting.read_text()
    assert not sends(site, "ann", body="Another letter, proposed later.")
    waiting.rename(vault / "Approved" / "wish.md")
    assert not sends(site, "ann", body="Another letter, proposed later.")
    assert sends(site, "ann")
    site.person.run("send-approved")
    assert (vault / "Done" / "wish.md").exists()


def test_a_request_that_was_rejected_lets_nothing_out(live: Site) -> None:
    """000 §2 State Transitions, Rejected"""
    live.slip("no", folder="Rejected", type="email_send", status="approved", to="no@example.com")
    assert not sends(live, "no")


# 3. RateLimitCounter


def test_the_counter_has_the_documents_fields_and_names_the_time_left() -> None:
    """000 §3 RateLimitCounter, fields"""
    assert RateLimitCounter._fields == ("send_timestamps", "window_seconds", "max_sends")
    sends = deque(Stamp(at, "boot", at) for at in (0.0, 1_000.0, 2_000.0))
    counter = RateLimitCounter(sends, window_seconds=3_600, max_sends=2)
    assert counter.cooldown(Stamp(2_400.0, "boot", 2_400.0)) == 2_200
    assert counter.cooldown(Stamp(4_600.0, "boot", 4_600.0)) is None


def test_the_budget_has_a_window_and_survives_a_restart(
    start_timed_site: Callable[..., TimedSite],
) -> None:
    """000 §3 RateLimitCounter"""
    limits = {"sends_per_hour": 2, "window_seconds": 1800}
    first = start_timed_site("approval", limits=limits)
    clock = first.clock
    for name in ("ann", "bob"):
        approve(first, name)
        assert sends(first, name)
        clock.go(600)
    full = "Rejected: Rate limit exceeded (2 emails/1800 seconds). Next send available in {} minutes."  # fmt: skip
    approve(first, "cat")
    assert first.refusal("send_email", **letter("cat")) == full.format(10)
    again = start_timed_site("approval", limits=limits, clock=clock)
    assert again.refusal("send_email", **letter("cat")) == full.format(10)
    clock.go(600)  # the first one has left the window, and the second is still in it
    assert sends(again, "cat")
    approve(again, "dan")
    assert again.refusal("send_email", **letter("dan")) == full.format(10)


def test_the_budget_is_ten_an_hour_unless_told(start_site: Callable[..., Site]) -> None:
    """000 §3 max_sends"""
    site = start_site("approval", limits={"sends_per_pace": 100})
    for number in range(10):
        approve(site, f"a{number}")
        assert sends(site, f"a{number}")
    approve(site, "late")
    assert site.refusal("send_email", **letter("late")) == (
        "Rejected: Rate limit exceeded (10 emails/hour). Next send available in 60 minutes."
    )


# 4. AuditLogEntry


def test_every_call_leaves_one_entry_with_the_documents_fields(live: Site) -> None:
    """000 §4 AuditLogEntry, fields"""
    before = len(live.calls())
    live.call("search_email", query="tea")
    approve(live, "liz")
    live.text("send_email", **letter("liz", subject="Long " * 20, body="A secret sentence."))
    live.refusal("send_email", **letter("mia"))
    live.refusal("send_email", **letter("x", to="bad"))
    live.text("draft_email", **letter("nia"))
    found = live.calls()[before:]
    assert [line["action_type"] for line in found] == ["search_email", "send_email", "send_email", "send_email", "draft_email"]  # fmt: skip
    assert [line["result"] for line in found] == ["success", "success", "rejected", "error", "success"]  # fmt: skip
    for line in found:
        assert datetime.fromisoformat(line["timestamp"]).utcoffset() == timedelta(0)
        assert uuid.UUID(line["correlation_id"]).version == 4
        assert line["actor"] == "email_mcp"
        assert isinstance(line["target"], str)
        assert isinstance(line["duration_ms"], int)
    whom = [line["target"] for line in found]
    assert whom == ["", "l***@example.com", "m***@example.com", "", "n***@example.com"]
    assert found[3]["error"] == "Invalid email address format: bad"
    assert len({line["correlation_id"] for line in found}) == 5


def test_results_are_the_documents_five(start_site: Callable[..., Site]) -> None:
    """000 §4 AuditLogEntry, result"""
    site = start_site("approval", limits={"sends_per_hour": 1})
    approve(site, "ann")
    site.text("send_email", **letter("ann"))
    site.refusal("send_email", **letter("bob"))
    approve(site, "bob")
    site.refusal("send_email", **letter("bob"))
    site.refusal("search_email", query="x", max_results=0)
    assert [line["result"] for line in site.calls()] == ["success", "rejected", "rate_limited", "error"]  # fmt: skip


def test_a_rehearsal_is_logged_as_dev_mode(shared_site: Callable[..., Site]) -> None:
    """000 §4 AuditLogEntry, dev_mode"""
    site = shared_site("approval")
    site.text("send_email", **letter("opal"))
    line = site.calls()[-1]
    assert (line["result"], line["target"]) == ("dev_mode", "o***@example.com")


def test_the_log_is_redacted(live: Site) -> None:
    """000 §4 Redaction Rules"""
    live.refusal("send_email", **letter("john.doe", subject="S" * 60, body="A secret sentence."))
    files = [file.read_text() for file in (live.person.vault / "Logs").rglob("*.json")]
    logged = "".join(files)
    assert "secret sentence" not in logged
    assert "john.doe" not in logged
    assert "S" * 50 in logged
    assert "S" * 51 not in logged
