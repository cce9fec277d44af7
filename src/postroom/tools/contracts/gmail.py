"""The contract `gmail`: a Gmail server whose answers are JSON, for clients written from document 003.

The models have the document's names. The document knows no letter that waits for a person or is only rehearsed: both
are answered as one of its errors, with the letter's id and status, or a preview, in `details`.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Conflict, PostroomError
from postroom.core.letter import MAX_SUBJECT
from postroom.core.mail_view import cut
from postroom.core.records import Entry, LabelChange
from postroom.core.stamp import Stamp
from postroom.desk.desk import PREVIEW, Desk
from postroom.desk.proposals import Proposal, Written
from postroom.tools import documents, table
from postroom.tools.documents import mcp_error, names

if TYPE_CHECKING:
    from pydantic import Field

    from postroom.tools.models import Body, MessageId, Query, Subject

DOCUMENT: Final = documents.load("gmail")
MAX_BODY: Final = 50_000  # characters of a mail's text in an answer
MAX_SNIPPET: Final = 100
MAX_NAMES: Final = 50  # attachments that are named
# A closing tag, <br> or a document type makes a body HTML; a plain text may have a <b> of its own.
_HTML: Final = re.compile(
    r"</(?:html|body|div|p|span|table|ul|ol|li|a|b|i|u|strong|em|h[1-6]|blockquote|pre|font)\s*>"
    r"|<br\s*/?>|<!DOCTYPE\s+html",
    re.IGNORECASE,
)


class EmailSummary(table.Result):
    id: str
    subject: str
    sender: str
    date: str
    snippet: str


class EmailSummaries(table.Result):
    """Mails, newest first; as text, the list alone."""

    result: tuple[EmailSummary, ...]


class EmailFull(table.Result):
    id: str
    subject: str
    sender: str
    to: str
    date: str
    body: str
    has_attachments: bool
    attachment_names: tuple[str, ...]


class SendEmailResult(table.Result):
    message_id: str
    thread_id: str
    sent_at: str


class MoveEmailResult(table.Result):
    moved: bool


class AddLabelResult(table.Result):
    labeled: bool


def list_emails(
    context: table.ToolContext,
    *,
    query: Annotated[Query, "Gmail search query (same syntax as Gmail UI)"] = "is:unread",
    max_results: Annotated[int, Field(ge=1, le=100)] = 10,
) -> table.Reply:
    """List emails that match a Gmail search query, newest first."""
    page = context.services.mailbox.search(
        context.call, context.account, query, limit=max_results, cursor=""
    )
    emails = tuple(
        EmailSummary(
            id=item.id,
            subject=cut(item.subject, MAX_SUBJECT),
            sender=names(item.sender),
            date=Stamp(item.date).iso,
            snippet=documents.snippet(item, MAX_SNIPPET),
        )
        for item in page.items
    )
    text = json.dumps(list(map(table.dump, emails)), ensure_ascii=False)
    return table.Reply(text, EmailSummaries(result=emails))


def get_email(
    context: table.ToolContext,
    *,
    message_id: Annotated[MessageId, "Gmail message ID (from list_emails)"],
) -> table.Result:
    """Read one email."""
    message = context.services.mailbox.message(context.call, context.account, message_id)
    mail = message.mail
    return EmailFull(
        id=message.id,
        subject=cut(mail.subject, MAX_SUBJECT),
        sender=names(mail.sender) if mail.sender else "",
        to=names(*mail.to),
        date=Stamp(message.date).iso,
        body=documents.body(mail.text, MAX_BODY),
        has_attachments=bool(mail.attachments),
        attachment_names=tuple(cut(file.name, 200) for file in mail.attachments[:MAX_NAMES]),
    )


def send_email(
    context: table.ToolContext,
    *,
    to: Annotated[str, "recipient email address"],
    subject: Annotated[Subject, "email subject line"],
    body: Annotated[Body, "plain-text or HTML body"],
    reply_to_message_id: Annotated[
        MessageId | None, "thread reply; uses In-Reply-To header"
    ] = None,
) -> table.Waiting:
    """Send an email, or a reply in the thread of reply_to_message_id, once a person has approved it."""
    desk = context.desk
    written = Written(
        to=(Address.parse(to),),
        subject=subject,
        text=body,
        html=body if _HTML.search(body) else "",
        answers=reply_to_message_id or "",
    )
    if not desk.rules.live:
        letter = documents.rehearse(context, written)
        preview = {
            "to": letter.to[0].spec,
            "subject": letter.subject,
            "body_preview": body[:PREVIEW],
            "reply_to_message_id": reply_to_message_id,
        }
        message = DOCUMENT.text("rehearsed", source=desk.rules.source)
        return mcp_error("permission_denied", message, preview=preview)
    # If the person has written and approved a draft with the same content, this call sends that draft.
    proposal = Proposal(
        refuse_if_sent=True,
        match_persons_letter=True,
        pre_send_record=json.dumps(reply_to_message_id),
    )
    letter = desk.composer.letter(written)
    entry = yield from desk.calls.posting(context.call, letter, proposal, slips=True)
    return _send_result(desk, entry)


def _send_result(desk: Desk, entry: Entry) -> table.Answer:
    error = partial(mcp_error, message=documents.unsent(entry), letter=entry.id, status=entry.kind)
    match entry.state:
        case life.Sent(message=message, thread=thread, at=at):
            return SendEmailResult(message_id=message, thread_id=thread, sent_at=at.iso)
        case life.Approved(code=code) if code in life.LIMITED:
            return error("rate_limited", retry_after_seconds=round(desk.due_in(entry) or 0.0, 1))
        case life.Approved(code="auth_required"):
            return error("auth_required")
        # An approved letter without a code is held by no error: it waits for its undo window, or sending is paused.
        case life.Pending() | life.Rejected() | life.Approved(code=""):
            return error("permission_denied")
    # Held by an error of the provider, being sent, unknown, failed, withdrawn or expired.
    return error("send_failed")


def move_email(
    context: table.ToolContext,
    *,
    message_id: Annotated[MessageId, "Gmail message ID"],
    destination_label: Annotated[MessageId, 'Gmail label name, e.g. "INBOX", "DONE", custom label'],
) -> table.Answer:
    """Move an email under a label and out of the inbox; INBOX puts it back."""
    change = context.services.mailbox.move(
        context.call, context.account, message_id, destination_label
    )
    return _filing_result(context.desk, change, MoveEmailResult(moved=True))


def add_label(
    context: table.ToolContext,
    *,
    message_id: Annotated[MessageId, "Gmail message ID"],
    label_name: Annotated[MessageId, 'Label to apply, e.g. "AI_PROCESSED"'],
) -> table.Answer:
    """Put a label on an email; it is made where there is none of that name."""
    change = context.services.mailbox.label(context.call, context.account, message_id, label_name)
    return _filing_result(context.desk, change, AddLabelResult(labeled=True))


def _filing_result(desk: Desk, change: LabelChange, result: table.Result) -> table.Answer:
    if desk.rules.live:
        return result
    added, removed = sorted(change.added), sorted(change.removed)
    preview = {"message_id": change.message, "add": added, "remove": removed}
    message = DOCUMENT.text("unchanged", source=desk.rules.source)
    return mcp_error("permission_denied", message, preview=preview)


def refuse(tool: str, error: PostroomError) -> table.Reply:
    if isinstance(error, Conflict):  # the letter was sent already, or another call changed it first
        return mcp_error("permission_denied", table.Problem.of(error, tool).advice)
    is_send = tool == "send_email" and error.code != PostroomError.code
    return documents.mcp_refusal(tool, error, "send_failed" if is_send else "internal_error")


CONTRACT: Final = table.Contract(
    name="gmail",
    tools=(
        table.Tool(send_email, "Send an email", SendEmailResult, table.SENDS),
        table.Tool(list_emails, "List emails", EmailSummaries, table.READS),
        table.Tool(get_email, "Read an email", EmailFull, table.READS),
        table.Tool(move_email, "Move an email", MoveEmailResult, table.SETS),
        table.Tool(add_label, "Label an email", AddLabelResult, table.SETS),
    ),
    accounts=False,
    whole=True,
    refuse=refuse,
)
