"""Document 002, tool contracts of the email server with approvals: contract `approval`, clause by clause."""

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.vault.note import Note
from tests.agents import Wire
from tests.cases import for_each
from tests.conftest import Person
from tests.gmail.boxes import asked
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail, keep
from tests.narrow import narrow, present
from tests.seeds.conftest import GmailSite, Site, answer_text

OBJECT = {"type": "object"}
TO_SUBJECT_BODY = {
    "to": {"type": "string", "description": "Recipient email address"},
    "subject": {"type": "string", "description": "Email subject line"},
    "body": {"type": "string", "description": "Plain text email body"},
}
SCHEMAS = {
    "search_email": OBJECT | {
        "properties": {
            "query": {"type": "string", "description": "Gmail search query (e.g., 'from:user@example.com subject:invoice after:2026/01/01')"},
            "max_results": {"type": "integer", "description": "Maximum number of results to return", "default": 5, "minimum": 1, "maximum": 50},
        },
        "required": ["query"],
    },
    "draft_email": OBJECT | {"properties": TO_SUBJECT_BODY, "required": ["to", "subject", "body"]},
    "send_email": OBJECT | {"properties": TO_SUBJECT_BODY, "required": ["to", "subject", "body"]},
    "reply_email": OBJECT | {
        "properties": {
            "thread_id": {"type": "string", "description": "Gmail thread ID to reply to"},
            "message_id": {"type": "string", "description": "Gmail message ID to reply to (for correct threading headers)"},
            "body": {"type": "string", "description": "Plain text reply body"},
        },
        "required": ["thread_id", "message_id", "body"],
    },
}  # fmt: skip


@pytest.fixture
def dev(shared_site: Callable[..., Site]) -> Site:
    return shared_site("approval")


@pytest.fixture
def live(shared_site: Callable[..., Site]) -> Site:
    return shared_site("approval", "live")


def rejected(to: str) -> str:
    return (
        f"Rejected: No matching approval file found in vault/Approved/ for sending to {to}."
        " Create an approval file with type: email_send and move it to vault/Approved/."
    )


def rejected_reply(thread: str) -> str:
    return (
        f"Rejected: No matching approval file found in vault/Approved/ for replying to thread {thread}."
        " Create an approval file with type: email_reply and move it to vault/Approved/."
    )


def newest(site: Site, query: str) -> dict[str, str]:
    values = present(site.call("search_email", query=query, max_results=1).structured_content)
    (found,) = values["emails"]
    return narrow(found, dict)


def letter(name: str, **changes: str) -> dict[str, str]:
    return {"to": f"{name}@example.com", "subject": "Meeting notes", "body": "Hello.", **changes}


def approve(site: Site, name: str, **fields: str) -> Path:
    kind = {"type": "email_send", "status": "approved", "to": f"{name}@example.com"}
    return site.slip(name, **{**kind, **fields})


def test_the_four_tools_and_their_input_schemas(live: Site) -> None:
    """002, input schemas"""
    assert {name: tool.input_schema for name, tool in live.agent.tools().items()} == SCHEMAS


# search_email


def test_search_email_success(live: Site) -> None:
    """002 search_email, Success"""
    said = live.text("search_email", query="from:dora in:inbox", max_results=2)
    first, second = live.call("search_email", query="from:dora in:inbox", max_results=2).structured_content["emails"]  # fmt: skip
    assert said == (
        'Found 2 emails matching "from:dora in:inbox":\n\n'
        "1. From: dora@lindqvist.example | Subject: RE: Q3 figures for the VAT return | Date: 2026-11-10\n"
        f"   Snippet: {first['snippet']}\n"
        f"   Message ID: {first['message_id']} | Thread ID: {first['thread_id']}\n\n"
        f"2. From: dora@lindqvist.example | Subject: {second['subject']} | Date: 2026-10-20\n"
        f"   Snippet: {second['snippet']}\n"
        f"   Message ID: {second['message_id']} | Thread ID: {second['thread_id']}"
    )


def test_search_email_no_results(live: Site) -> None:
    """002 search_email, No results"""
    assert live.text("search_email", query="zebra crossing") == "No emails found matching: zebra crossing"  # fmt: skip


def test_search_email_error(live: Site) -> None:
    """002 search_email, Error"""
    said = live.refusal("search_email", query="tea", max_results=51)
    assert said == (
        "Error searching emails: max_results: input should be less than or equal to 50."
        " It takes: query, max_results. Nothing was done."
    )


def test_search_email_returns_five_unless_told(dev: Site) -> None:
    """002 search_email, max_results"""
    assert len(dev.call("search_email", query="in:anywhere").structured_content["emails"]) == 5
    for most, count in ((1, 1), (50, 41)):
        found = dev.call("search_email", query="in:anywhere", max_results=most)
        assert len(found.structured_content["emails"]) == count


def test_search_email_is_allowed_in_dev_mode(dev: Site) -> None:
    """002 search_email, Behavior"""
    assert dev.text("search_email", query="from:dora", max_results=1).startswith("Found 1 emails")
    assert dev.calls()[-1]["action_type"] == "search_email"


# draft_email


def test_draft_email_success(live: Site) -> None:
    """002 draft_email, Success"""
    answer = live.call("draft_email", **letter("dan"))
    id = answer.structured_content["draft_id"]
    assert answer_text(answer, refused=False) == (
        f"Draft created successfully. Draft ID: {id}. Review it in your Gmail drafts folder."
    )
    assert live.person.run("search", "in:drafts to:dan@example.com", "--json").json["messages"]
    assert not live.person.run("search", "in:sent to:dan@example.com", "--json").json["messages"]


def test_draft_email_dev_mode(dev: Site) -> None:
    """002 draft_email, DEV_MODE"""
    assert dev.text("draft_email", **letter("john.doe")) == (
        "[DEV_MODE] Draft logged but not created. To: j***@example.com, Subject: Meeting notes"
    )
    assert not dev.person.run("search", "in:drafts to:john.doe@example.com", "--json").json["messages"]  # fmt: skip
    line = dev.calls()[-1]
    assert (line["action_type"], line["result"]) == ("draft_email", "dev_mode")


def test_draft_email_validation_error(live: Site) -> None:
    """002 draft_email, Validation error"""
    said = live.refusal("draft_email", **letter("x", to="not-an-email"))
    assert said == "Error: Invalid email address format: not-an-email"


def test_draft_email_error(start_site: Callable[..., Site]) -> None:
    """002 draft_email, Error"""
    site = start_site("approval", limits={"open_letters": 1})
    site.text("draft_email", **letter("one"))
    assert site.refusal("draft_email", **letter("two")) == (
        "Error creating draft: 1 drafts of this agent are kept already (limits.open_letters)."
        " Revise or delete one of them."
    )


def test_draft_email_is_a_new_draft_each_time(live: Site) -> None:
    """002 idempotency, draft_email"""
    first, second = (live.call("draft_email", **letter("dee")).structured_content["draft_id"] for _ in range(2))  # fmt: skip
    assert first != second


# send_email


def test_send_email_success(live: Site) -> None:
    """002 send_email, Success"""
    slip = approve(live, "sue")
    answer = live.call("send_email", **letter("sue"))
    found = answer.structured_content
    assert answer_text(answer, refused=False) == (
        f"Email sent successfully. Message ID: {found['message_id']} Thread ID: {found['thread_id']}"
    )
    sent = live.raw(found["message_id"])
    assert "To: sue@example.com" in sent
    assert "Hello." in sent
    assert not slip.exists()
    assert (live.person.vault / "Done" / slip.name).exists()


def test_send_email_no_approval(live: Site) -> None:
    """002 send_email, No approval"""
    answer = live.call("send_email", **letter("john.roe"))
    assert answer_text(answer, refused=True) == rejected("j***@example.com")
    # What waits is told as values, since the text is the document's.
    waiting = live.person.show(answer.structured_content["letter"])
    assert (waiting["state"], waiting["to"]) == ("pending", ["john.roe@example.com"])


def test_send_email_rate_limited(start_site: Callable[..., Site]) -> None:
    """002 send_email, Rate limited"""
    site = start_site("approval", limits={"sends_per_hour": 1})
    approve(site, "ann")
    site.text("send_email", **letter("ann"))
    slip = approve(site, "bob")
    said = site.refusal("send_email", **letter("bob"))
    assert said == (
        "Rejected: Rate limit exceeded (1 emails/hour). Next send available in 60 minutes."
    )
    assert slip.exists()
    assert site.calls()[-1]["result"] == "rate_limited"


def test_send_email_dev_mode(dev: Site) -> None:
    """002 send_email, DEV_MODE"""
    approve(dev, "jane")
    assert dev.text("send_email", **letter("jane")) == (
        "[DEV_MODE] Send logged but not executed. To: j***@example.com, Subject: Meeting notes"
    )
    assert dev.person.run("pending", "--all", "--json").json["letters"] == []


def test_send_email_validation_error(live: Site) -> None:
    """002 send_email, Validation error"""
    said = live.refusal("send_email", **letter("x", to="not-an-email"))
    assert said == "Error: Invalid email address format: not-an-email"


def test_send_email_error(start_site: Callable[..., Site]) -> None:
    """002 send_email, Error"""
    site = start_site("approval")
    (site.person.vault / "PAUSED").touch()
    approve(site, "pat")
    answer = site.call("send_email", **letter("pat"))
    id = answer.structured_content["letter"]
    said = answer_text(answer, refused=True)
    at = present(re.search(r"at (\S+) by", said))[1]
    assert said == (
        f"Error sending email: The letter {id} was approved at {at} by person and is held:"
        " all sending is paused by PAUSED."
        " Do not write another one: the same call sends it when it may leave."
    )


def test_send_email_order_of_checks(start_site: Callable[..., Site]) -> None:
    """002 send_email, Behavior 1 to 4"""
    site = start_site("approval", limits={"sends_per_hour": 1})
    approve(site, "ann")
    site.text("send_email", **letter("ann"))
    # The budget is spent: what is invalid or unapproved is told first.
    assert site.refusal("send_email", **letter("x", to="bad")) == "Error: Invalid email address format: bad"  # fmt: skip
    assert site.refusal("send_email", **letter("kim")) == rejected("k***@example.com")
    approve(site, "kim")
    assert site.refusal("send_email", **letter("kim")).startswith("Rejected: Rate limit exceeded")


def test_send_email_validates_before_dev_mode(dev: Site) -> None:
    """002 send_email, Behavior 1 and 2"""
    assert dev.refusal("send_email", **letter("x", to="bad")) == "Error: Invalid email address format: bad"  # fmt: skip


def test_send_email_moves_the_approval_after_success_only(start_site: Callable[..., Site]) -> None:
    """002 send_email, Behavior 6"""
    site = start_site("approval")
    paused = site.person.vault / "PAUSED"
    paused.touch()
    slip = approve(site, "eve")
    site.refusal("send_email", **letter("eve"))
    assert slip.exists()
    paused.unlink()
    site.text("send_email", **letter("eve"))
    assert not slip.exists()
    assert (site.person.vault / "Done" / slip.name).exists()


def test_send_email_spends_its_approval(live: Site) -> None:
    """002 idempotency, send_email"""
    approve(live, "sol")
    live.text("send_email", **letter("sol"))
    again = live.refusal("send_email", **letter("sol"))
    assert re.fullmatch(
        r"Error sending email: The letter \w{10} was sent at \S+Z\. It is not sent again\."
        r" Change the letter if another one is meant\.",
        again,
    )
    assert len(live.person.run("search", "in:sent to:sol@example.com", "--json").json["messages"]) == 1  # fmt: skip
    line = live.calls()[-1]
    assert (line["result"], line["target"]) == ("rejected", "s***@example.com")
    # With another approval the same words are another letter.
    approve(live, "sol", created="2026-11-15T12:00:00Z")
    live.text("send_email", **letter("sol"))
    assert len(live.person.run("search", "in:sent to:sol@example.com", "--json").json["messages"]) == 2  # fmt: skip


def test_send_email_again_after_the_person_moved_our_note(live: Site) -> None:
    """002 send_email, No approval, then approved"""
    id = live.call("send_email", **letter("moe")).structured_content["letter"]
    (note,) = (live.person.vault / "Pending_Approval").glob(f"*{id}*")
    note.rename(live.person.vault / "Approved" / note.name)
    assert live.text("send_email", **letter("moe")).startswith("Email sent successfully.")
    assert (live.person.vault / "Done" / note.name).exists()


def test_send_email_says_what_a_person_answered(live: Site) -> None:
    """002 send_email, rejected by a person"""
    id = live.call("send_email", **letter("rex")).structured_content["letter"]
    live.person.run("reject", id, "--reason", "Not now")
    approve(live, "rex")  # which is about others: to this very letter the person has said no
    assert live.refusal("send_email", **letter("rex")) == (
        f"Error sending email: The letter {id} was rejected: Not now."
    )


def test_a_copy_of_an_approval_counts_for_nothing(live: Site) -> None:
    """002 idempotency, a copy of the approval file"""
    approve(live, "cop")
    live.text("send_email", **letter("cop"))
    copy = approve(live, "cop")
    assert live.refusal("send_email", **letter("cop", body="More.")) == rejected("c***@example.com")
    assert not copy.exists()
    void = (live.person.vault / "Rejected" / copy.name).read_text()
    assert 'status: "void"' in void
    assert "a new one needs a `created` of its own" in void


# reply_email


def test_reply_email_success(live: Site) -> None:
    """002 reply_email, Success"""
    mail = newest(live, "in:inbox subject:round")
    live.slip("reply", type="email_reply", status="approved", thread_id=f'"{mail["thread_id"]}"')
    ids = {"thread_id": mail["thread_id"], "message_id": mail["message_id"]}
    answer = live.call("reply_email", **ids, body="I come.")
    found = answer.structured_content
    assert answer_text(answer, refused=False) == (
        f"Reply sent successfully. Message ID: {found['message_id']} Thread ID: {mail['thread_id']}"
    )
    assert found["thread_id"] == mail["thread_id"]
    sent = live.raw(found["message_id"])
    for header in ("In-Reply-To: <round@example.com>", "References: <round@example.com>", "Subject: Re: Round table", "To: Ann Lee <ann@example.com>"):  # fmt: skip
        assert f"\n{header}\n" in sent.replace("\r\n", "\n")
    assert (live.person.vault / "Done" / "reply.md").exists()


def test_reply_email_no_approval(live: Site) -> None:
    """002 reply_email, No approval"""
    mail = newest(live, "from:ines")
    answer = live.call("reply_email", thread_id=mail["thread_id"], message_id=mail["message_id"], body="Yes.")  # fmt: skip
    assert answer_text(answer, refused=True) == rejected_reply(mail["thread_id"])
    assert live.person.show(answer.structured_content["letter"])["state"] == "pending"


def test_the_note_of_a_held_reply_is_an_approval_file_for_its_thread(live: Site) -> None:
    """002 reply_email, Pre-conditions, matching thread_id"""
    mail = newest(live, "from:ines")
    ids = {"thread_id": mail["thread_id"], "message_id": mail["message_id"]}
    id = live.call("reply_email", **ids, body="At nine.").structured_content["letter"]

    def fields(folder: str) -> tuple[str, ...]:
        (note,) = (live.person.vault / folder).glob(f"*{id}.md")
        read = Note.parse(note.read_bytes())
        return tuple(read.text(name) for name in ("type", "status", "thread_id"))

    assert fields("Pending_Approval") == ("email_reply", "pending", mail["thread_id"])
    (note,) = (live.person.vault / "Pending_Approval").glob(f"*{id}.md")
    note.rename(live.person.vault / "Approved" / note.name)
    answer = live.call("reply_email", **ids, body="At nine.")
    assert answer_text(answer, refused=False).startswith("Reply sent successfully.")
    assert answer.structured_content["thread_id"] == mail["thread_id"]
    assert fields("Done") == ("email_reply", "done", mail["thread_id"])


def test_reply_email_rate_limited(start_site: Callable[..., Site]) -> None:
    """002 reply_email, Rate limited"""
    site = start_site("approval", limits={"sends_per_hour": 1})
    approve(site, "ann")
    site.text("send_email", **letter("ann"))
    mail = newest(site, "in:inbox subject:round")
    site.slip("reply", type="email_reply", status="approved", to="ann@example.com")
    said = site.refusal("reply_email", thread_id=mail["thread_id"], message_id=mail["message_id"], body="Yes.")  # fmt: skip
    assert said == (
        "Rejected: Rate limit exceeded (1 emails/hour). Next send available in 60 minutes."
    )


def test_reply_email_invalid_thread(live: Site) -> None:
    """002 reply_email, Invalid thread"""
    mail = newest(live, "in:inbox subject:round")
    live.slip("gone", type="email_reply", status="approved", thread_id="18d5a999")
    said = live.refusal("reply_email", thread_id="18d5a999", message_id=mail["message_id"], body="Yes.")  # fmt: skip
    assert said == "Error: Thread ID 18d5a999 not found or no longer accessible."


def test_reply_email_dev_mode(dev: Site) -> None:
    """002 reply_email, DEV_MODE"""
    assert dev.text("reply_email", thread_id="18d5a", message_id="18d5b", body="x" * 245) == (
        "[DEV_MODE] Reply logged but not executed. Thread: 18d5a, Body length: 245 chars"
    )


def test_reply_email_error(live: Site) -> None:
    """002 reply_email, Error"""
    thread, other = newest(live, "in:inbox subject:round")["thread_id"], newest(live, "from:ines")["message_id"]  # fmt: skip
    assert live.refusal("reply_email", thread_id=thread, message_id=other, body="Yes.") == (
        f"Error replying to thread: The mail {other} is not in the conversation {thread}."
        " Name a mail of it."
    )


def test_reply_email_order_of_checks(start_site: Callable[..., Site]) -> None:
    """002 reply_email, Behavior 1 to 5"""
    site = start_site("approval", limits={"sends_per_hour": 1})
    approve(site, "ann")
    site.text("send_email", **letter("ann"))
    asked = {"thread_id": "18d5a", "message_id": "18d5b", "body": "Yes."}
    assert site.refusal("reply_email", **asked | {"thread_id": ""}).startswith("Error replying to thread: thread_id: ")  # fmt: skip
    # There is no such thread: that comes after the approval and the budget.
    assert site.refusal("reply_email", **asked) == rejected_reply("18d5a")
    site.slip("reply", type="email_reply", status="approved", thread_id="18d5a")
    assert site.refusal("reply_email", **asked).startswith("Rejected: Rate limit exceeded (1 emails/hour)")  # fmt: skip


def test_reply_email_spends_its_approval(live: Site) -> None:
    """002 idempotency, reply_email"""
    mail = newest(live, "from:dora in:inbox")
    ids = {"thread_id": mail["thread_id"], "message_id": mail["message_id"]}
    live.slip("dora", type="email_reply", status="approved", to="dora@lindqvist.example")
    live.text("reply_email", **ids, body="Thank you.")
    assert live.refusal("reply_email", **ids, body="Thank you.").startswith(
        "Error replying to thread: The letter "
    )
    assert live.refusal("reply_email", **ids, body="Thanks.") == rejected_reply(mail["thread_id"])


# Error taxonomy, with Gmail behind it


def test_auth_expired_is_renewed_without_a_word(
    start_timed_gmail_site: Callable[..., GmailSite],
) -> None:
    """002 error taxonomy, Auth expired"""
    site = start_timed_gmail_site("approval")
    site.text("search_email", query="tea")
    site.service.expire()
    assert asked_of(site, "POST /token") == 0
    assert site.text("search_email", query="tea") == "No emails found matching: tea"
    assert asked_of(site, "POST /token") == 1
    assert site.pauses == []


def test_auth_revoked_says_what_to_run(
    start_gmail_site: Callable[..., Site], service: Gmail, tmp_path: Path
) -> None:
    """002 error taxonomy, Auth revoked"""
    site = start_gmail_site("approval")
    keep(tmp_path / "state" / "token.json", service.token(expires_in=-10) | {"refresh_token": ""})
    said = site.refusal("search_email", query="tea")
    assert said.startswith("Error searching emails: The token in ")
    assert "postroom auth gmail" in said


def asked_of(site: GmailSite, where: str) -> int:
    """Return how many requests of this kind Gmail has had since this was last asked, and forget them."""
    number = asked(site.service, where)
    site.service.requests.clear()
    return number


def test_what_gmail_refuses_is_not_asked_for_again(
    start_timed_gmail_site: Callable[..., GmailSite],
) -> None:
    """002 error taxonomy, Insufficient permissions, Not found"""
    site = start_timed_gmail_site("approval")
    site.service.fail("messages", status=403, reason="forbidden")
    said = site.refusal("search_email", query="tea")
    assert said.startswith("Error searching emails: Gmail forbids this")
    assert asked_of(site, "GET .*/messages") == 1
    site.slip("gone", type="email_reply", status="approved", thread_id='"18d5a"')
    said = site.refusal("reply_email", thread_id="18d5a", message_id="18d5a", body="Yes.")
    assert said == "Error: Thread ID 18d5a not found or no longer accessible."
    assert asked_of(site, "GET .*/threads/18d5a") == 1
    assert site.pauses == []


@for_each("status", [429, 500, 503])
def test_what_gmail_is_too_busy_for_is_asked_for_three_times_more(
    start_timed_gmail_site: Callable[..., GmailSite], status: int
) -> None:
    """002 error taxonomy, Rate limit (Gmail), Transient server error"""
    site = start_timed_gmail_site("approval")
    assert site.text("search_email", query="tea") == "No emails found matching: tea"
    usual = asked_of(site, "GET .*/messages")
    site.service.fail("GET .*/messages", status=status, times=3)
    assert site.text("search_email", query="tea") == "No emails found matching: tea"
    assert asked_of(site, "GET .*/messages") == usual + 3
    first, second, third = site.pauses  # each at least as long as the one before
    assert 0 < first <= second <= third
    assert third > first
    site.pauses.clear()
    site.service.fail("GET .*/messages", status=status, times=4)
    assert site.refusal("search_email", query="tea").startswith("Error searching emails: Gmail")
    assert asked_of(site, "GET .*/messages") == 4
    assert len(site.pauses) == 3


SENDS = "POST .*/send$"


@for_each("by_draft", [True, False])
def test_a_send_with_an_expired_token_renews_it_and_sends(
    start_timed_gmail_site: Callable[..., GmailSite], by_draft: bool
) -> None:
    """002 error taxonomy, Auth expired, a send"""
    site = start_timed_gmail_site("approval", by_draft=by_draft)
    approve(site, "ann")
    site.service.fail(SENDS, status=401)
    begun = site.clock.steady
    assert site.text("send_email", **letter("ann")).startswith("Email sent successfully.")
    assert site.clock.steady - begun < 1
    assert asked(site.service, "POST /token") == 1
    assert (asked_of(site, SENDS), len(site.service.sent)) == (2, 1)


@for_each("by_draft", [True, False])
def test_a_send_whose_new_token_is_refused_too_says_what_to_run(
    start_timed_gmail_site: Callable[..., GmailSite], by_draft: bool
) -> None:
    """002 error taxonomy, Auth revoked, a send"""
    site = start_timed_gmail_site("approval", by_draft=by_draft)
    approve(site, "ann")
    site.service.fail(SENDS, status=401, times=9)
    said = site.refusal("send_email", **letter("ann"))
    assert said.startswith("Error sending email: The letter ")
    assert "Gmail does not accept the token. Run `postroom auth gmail`" in said
    assert (asked_of(site, SENDS), site.service.sent) == (2, [])


@for_each("by_draft", [True, False])
def test_a_letter_that_gmail_is_too_busy_for_is_tried_again_after_growing_pauses(
    start_timed_gmail_site: Callable[..., GmailSite], by_draft: bool
) -> None:
    """002 error taxonomy, Rate limit (Gmail), a send"""
    site = start_timed_gmail_site("approval", by_draft=by_draft)
    slip = approve(site, "ann")
    site.service.fail(SENDS, status=429, times=2)
    begun = site.clock.steady
    assert site.text("send_email", **letter("ann")).startswith("Email sent successfully.")
    assert 4 < site.clock.steady - begun < 6  # it waited for 1 second, and then for 4
    assert (asked_of(site, SENDS), len(site.service.sent)) == (3, 1)
    assert not slip.exists()


def test_a_call_makes_three_tries_at_most_and_says_when_the_next_one_is(
    start_timed_gmail_site: Callable[..., GmailSite],
) -> None:
    """002 error taxonomy, Rate limit (Gmail), max 3"""
    site = start_timed_gmail_site("approval")
    slip = approve(site, "ann")
    site.service.fail(SENDS, status=429, times=3)
    busy = (
        "Rejected: Gmail's quota is used up: Too Many Requests. Next send available in 1 minutes."
    )
    begun = site.clock.steady
    assert site.refusal("send_email", **letter("ann")) == busy
    assert asked_of(site, SENDS) == 3
    # The next one is due in 30 seconds, which is longer than a call waits for it.
    assert site.refusal("send_email", **letter("ann")) == busy
    assert site.clock.steady - begun < 20
    assert asked_of(site, SENDS) == 0
    assert slip.exists()
    site.clock.go(30)
    assert site.text("send_email", **letter("ann")).startswith("Email sent successfully.")
    assert (asked_of(site, SENDS), len(site.service.sent)) == (1, 1)


@for_each("status, where", [(429, "send"), (503, "send"), (429, "drafts"), (503, "drafts")])
def test_a_call_waits_as_long_as_gmail_asks_for_and_20_seconds_at_most(
    start_timed_gmail_site: Callable[..., GmailSite], status: int, where: str
) -> None:
    """002 error taxonomy, Rate limit (Gmail), Retry-After"""
    site = start_timed_gmail_site("approval")
    requests = f"POST .*/{where}$"
    approve(site, "ann")
    site.service.fail(requests, status=status, headers={"Retry-After": "9"})
    begun = site.clock.steady
    assert site.text("send_email", **letter("ann")).startswith("Email sent successfully.")
    assert 9 <= site.clock.steady - begun < 11
    approve(site, "bob")
    site.service.fail(requests, status=status, headers={"Retry-After": "9"}, times=3)
    begun = site.clock.steady
    site.refusal("send_email", **letter("bob"))
    assert 18 <= site.clock.steady - begun <= 20
    site.service.requests.clear()
    site.clock.go(60)
    assert site.text("send_email", **letter("bob")).startswith("Email sent successfully.")
    approve(site, "cat")
    site.service.fail(requests, status=status, headers={"Retry-After": "60"})
    begun = site.clock.steady
    site.refusal("send_email", **letter("cat"))
    assert site.clock.steady - begun < 1
    assert len(site.service.sent) == 2


@for_each("status", [500, 502, 503, 504])
def test_a_letter_whose_draft_gmail_still_has_is_tried_again(
    start_timed_gmail_site: Callable[..., GmailSite], status: int
) -> None:
    """002 error taxonomy, Transient server error, a send"""
    site = start_timed_gmail_site("approval")
    approve(site, "ann")
    site.service.fail(SENDS, status=status, times=2)
    begun = site.clock.steady
    assert site.text("send_email", **letter("ann")).startswith("Email sent successfully.")
    assert 4 < site.clock.steady - begun < 6
    assert (asked_of(site, SENDS), len(site.service.sent)) == (3, 1)
    approve(site, "bob")
    site.service.fail(SENDS, status=status, times=3)
    said = site.refusal("send_email", **letter("bob"))
    assert said.startswith("Error sending email: The letter ")
    assert "its draft is still in Gmail, unsent" in said
    assert (asked_of(site, SENDS), len(site.service.sent)) == (3, 1)
    assert site.text("send_email", **letter("bob")).startswith("Email sent successfully.")
    assert (asked_of(site, SENDS), len(site.service.sent)) == (1, 2)


def test_a_letter_whose_draft_is_gone_is_not_sent_again(
    start_timed_gmail_site: Callable[..., GmailSite],
) -> None:
    """002 error taxonomy, Transient server error, a send that was carried out"""
    site = start_timed_gmail_site("approval")
    approve(site, "ann")
    site.service.fail(SENDS, status=503, done=True)
    said = site.text("send_email", **letter("ann"))
    (sent,) = site.service.sent
    assert said.startswith("Email sent successfully. Message ID: ")
    assert asked_of(site, SENDS) == 1
    assert site.refusal("send_email", **letter("ann")).endswith("Change the letter if another one is meant.")  # fmt: skip
    assert site.service.sent == [sent]


@for_each("status", [500, 502, 503, 504])
def test_sent_as_a_message_a_letter_that_gmail_fails_at_is_unknown(
    start_timed_gmail_site: Callable[..., GmailSite], status: int
) -> None:
    """002 error taxonomy, Transient server error, users.messages.send"""
    site = start_timed_gmail_site("approval", by_draft=False)
    approve(site, "ann")
    site.service.fail(SENDS, status=status)
    for _ in range(3):
        said = site.refusal("send_email", **letter("ann"))
        assert said.startswith("Error sending email: The letter ")
        assert "may or may not have been sent" in said
        site.clock.go(120)
    assert (asked_of(site, SENDS), site.service.sent) == (1, [])


# Idempotency, of a letter that was sent while nobody was told


def test_the_first_call_after_another_process_sent_the_letter_is_a_success(live: Site) -> None:
    """002 idempotency, the outcome that no call was told of"""
    id = live.call("send_email", **letter("fay")).structured_content["letter"]
    digest = live.person.show(id)["digest"].removeprefix("sha256:")
    assert live.person.run("approve", id, "--yes", digest[:8]).code == 0
    sent = newest(live, "in:sent to:fay@example.com")
    assert live.text("send_email", **letter("fay")) == (
        f"Email sent successfully. Message ID: {sent['message_id']} Thread ID: {sent['thread_id']}"
    )
    for _ in range(2):
        said = live.refusal("send_email", **letter("fay"))
        assert said.startswith(f"Error sending email: The letter {id} was sent at ")
    assert len(live.call("search_email", query="in:sent to:fay@example.com").structured_content["emails"]) == 1  # fmt: skip


def test_an_outcome_that_no_call_was_told_of_comes_before_another_slip(live: Site) -> None:
    """002 idempotency, the outcome that no call was told of, and an approval that is still there"""
    id = live.call("send_email", **letter("gus")).structured_content["letter"]
    digest = live.person.show(id)["digest"].removeprefix("sha256:")
    assert live.person.run("approve", id, "--yes", digest[:8]).code == 0
    sent = newest(live, "in:sent to:gus@example.com")
    slip = approve(live, "gus")
    said = live.text("send_email", **letter("gus"))
    assert sent["message_id"] in said
    assert len(live.call("search_email", query="in:sent to:gus@example.com").structured_content["emails"]) == 1  # fmt: skip
    assert slip.exists()
    assert sent["message_id"] not in live.text("send_email", **letter("gus"))


def test_a_call_that_was_cut_off_was_told_of_nothing(person: Person, service: Gmail) -> None:
    """002 idempotency, a call that was cut off"""
    at_gmail(person, service)
    person.live(undo_seconds=0, required=False)
    hold = threading.Event()
    fault = service.fail(SENDS, hold=hold, done=True)
    with Wire(person, "email", "--contract", "approval") as wire:
        wire.greet()
        call = wire.call("send_email", **letter("ann"))
        assert fault.struck.wait(60)
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": call}}
        wire.send(json.dumps({"jsonrpc": "2.0", **cancelled}).encode() + b"\n")
        wire.answer(wire.ask("ping"))
        hold.set()
        (id,) = (one.letter for one in service.sent)
        deadline = time.monotonic() + 60
        while person.show(id)["state"] != "sent":
            assert time.monotonic() < deadline
        results = [wire.answer(wire.call("send_email", **letter("ann")))["result"] for _ in "ab"]
    (sent,) = service.sent
    first, second = (result["content"][0]["text"] for result in results)
    assert first.startswith(f"Email sent successfully. Message ID: {sent.id} Thread ID: ")
    assert second.startswith(f"Error sending email: The letter {id} was sent at ")


def test_dev_mode_asks_gmail_for_nothing(
    start_gmail_site: Callable[..., Site], service: Gmail
) -> None:
    """002 error taxonomy, DEV_MODE active"""
    site = start_gmail_site("approval", "rehearsal")
    site.text("send_email", **letter("ann"))
    site.text("draft_email", **letter("ann"))
    site.text("reply_email", thread_id="18d5a", message_id="18d5b", body="Yes.")
    assert service.requests == []
