"""The contract `gmail`: a Gmail server whose answers are JSON, for the clients of one data model.

The models have the document's names. What it has no answer for, a letter that waits or is only
rehearsed, is an error of its own list, with what a client needs in `details`.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Conflict, PostroomError
from postroom.core.letter import MAX_SUBJECT
from postroom.core.mail_view import cut
from postroom.core.records import Entry
from postroom.desk.compose import Written
from postroom.desk.desk import PREVIEW, Desk
from postroom.desk.proposals import Proposal
from postroom.services.mailbox import Sorted
from postroom.tools import documents, table
from postroom.tools.documents import mcp_error, names

if TYPE_CHECKING:
    from postroom.tools import models

DOCUMENT: Final = documents.load("gmail")
SHOWN: Final = 50_000  # characters of a mail's text
SNIPPET: Final = 100
MAX_NAMES: Final = 50  # attachments that are named
# An element that ends, or what needs no end: in a plain text, <b> alone is no HTML.
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


def list_emails(context: table.ToolContext, args: models.ListEmailsInput) -> table.Reply:
    """List emails that match a Gmail search query, newest first."""
    page = context.services.mailbox.search(
        context.call, context.account, args.query, limit=args.max_results, cursor=""
    )
    emails = tuple(
        EmailSummary(
            id=item.id,
            subject=cut(item.subject, MAX_SUBJECT),
            sender=names(item.sender),
            date=_iso(item.date),
            snippet=documents.snippet(item, SNIPPET),
        )
        for item in page.items
    )
    text = json.dumps(list(map(table.dump, emails)), ensure_ascii=False)
    return table.Reply(text, EmailSummaries(result=emails))


def get_email(context: table.ToolContext, args: models.GetEmailInput) -> table.Result:
    """Read one email."""
    message = context.services.mailbox.message(context.call, context.account, args.message_id)
    mail = message.mail
    return EmailFull(
        id=message.id,
        subject=cut(mail.subject, MAX_SUBJECT),
        sender=names(mail.sender) if mail.sender else "",
        to=names(*mail.to),
        date=_iso(message.date),
        body=documents.body(mail.text, SHOWN),
        has_attachments=bool(mail.attachments),
        attachment_names=tuple(cut(file.name, 200) for file in mail.attachments[:MAX_NAMES]),
    )


def send_email(context: table.ToolContext, args: models.SendEmailInput) -> table.Waiting:
    """Send an email, or a reply in the thread of reply_to_message_id, once a person has approved it."""
    desk, answers = context.desk, args.reply_to_message_id
    written = Written(
        to=(Address.parse(args.to),),
        subject=args.subject,
        text=args.body,
        html=args.body if _HTML.search(args.body) else "",
        answers=answers or "",
        account=context.account,
    )
    if not desk.rules.live:
        return _rehearsed(context, written, args)
    # A draft that a person wrote and approved is sent by the call that has its words.
    wish = Proposal(
        refuse_if_sent=True, match_persons_letter=True, pre_send_record=json.dumps(answers)
    )
    letter = desk.composer.letter(written)
    entry = yield from desk.calls.posting(context.call, letter, wish, slips=True)
    return _outcome(desk, entry)


def _rehearsed(
    context: table.ToolContext, written: Written, args: models.SendEmailInput
) -> table.Reply:
    letter = documents.rehearse(context, written)
    preview = {
        "to": letter.to[0].spec,
        "subject": letter.subject,
        "body_preview": args.body[:PREVIEW],
        "reply_to_message_id": args.reply_to_message_id,
    }
    message = DOCUMENT.text("rehearsed", source=context.desk.rules.source)
    return mcp_error("permission_denied", message, preview=preview)


def _outcome(desk: Desk, entry: Entry) -> table.Answer:
    refuse = partial(mcp_error, message=documents.unsent(entry), letter=entry.id, status=entry.kind)
    match entry.state:
        case life.Sent(message=message, thread=thread, at=at):
            return SendEmailResult(message_id=message, thread_id=thread, sent_at=at.iso)
        case life.Approved(code="rate_limited" | "pace" | "quota"):
            return refuse("rate_limited", retry_after_seconds=round(desk.due_in(entry) or 0.0, 1))
        case life.Approved(code="auth_required"):
            return refuse("auth_required")
        case life.Pending() | life.Rejected() | life.Approved(code=""):
            return refuse("permission_denied")
    return refuse("send_failed")


def move_email(context: table.ToolContext, args: models.MoveEmailInput) -> table.Answer:
    """Move an email under a label and out of the inbox; INBOX puts it back."""
    change = context.services.mailbox.move(
        context.call, context.account, args.message_id, args.destination_label
    )
    return _filed(context.desk, change, MoveEmailResult(moved=True))


def add_label(context: table.ToolContext, args: models.AddLabelInput) -> table.Answer:
    """Put a label on an email; it is made where there is none of that name."""
    change = context.services.mailbox.label(
        context.call, context.account, args.message_id, args.label_name
    )
    return _filed(context.desk, change, AddLabelResult(labeled=True))


def _filed(desk: Desk, change: Sorted, result: table.Result) -> table.Answer:
    if desk.rules.live:
        return result
    added, removed = sorted(change.added), sorted(change.removed)
    preview = {"message_id": change.message, "add": added, "remove": removed}
    message = DOCUMENT.text("unchanged", source=desk.rules.source)
    return mcp_error("permission_denied", message, preview=preview)


def _iso(date: int) -> str:
    return f"{documents.moment(date):%Y-%m-%dT%H:%M:%SZ}"


def refuse(tool: str, error: PostroomError) -> table.Reply:
    """Return an error as the document's JSON."""
    if isinstance(error, Conflict):  # it was sent already, or somebody else was quicker
        return mcp_error("permission_denied", table.Problem.of(error, tool).advice)
    is_send = tool == "send_email" and error.code != PostroomError.code
    return documents.mcp_refusal(tool, error, "send_failed" if is_send else "internal_error")


SENDS: Final = table.Hints(open_world=True)
SORTS: Final = table.Hints(idempotent=True)
_row: Final = partial(table.Tool, contract="gmail", whole=True)
CONTRACT: Final = table.Contract(
    name="gmail",
    instructions=DOCUMENT.instructions,
    tools=(
        _row(send_email, "Send an email", SendEmailResult, SENDS),
        _row(list_emails, "List emails", EmailSummaries, table.READS),
        _row(get_email, "Read an email", EmailFull, table.READS),
        _row(move_email, "Move an email", MoveEmailResult, SORTS),
        _row(add_label, "Label an email", AddLabelResult, SORTS),
    ),
    accounts=False,
    refuse=refuse,
)
