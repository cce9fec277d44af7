"""The contract `approval`: an email server that sends only what a file in `Approved/` approves.

Clients were written from two documents, which fix names, schemas, texts and the order of checks. The rules about
letters are the desk's, as in every contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.audit import redact_address as redacted
from postroom.core.errors import Denied, NotFound
from postroom.core.letter import MAX_SUBJECT
from postroom.core.mail_view import cut, shown_labels
from postroom.core.message import Summary
from postroom.core.records import Entry
from postroom.core.text import one_line
from postroom.desk.calls import SentDelivery
from postroom.desk.desk import Desk
from postroom.desk.proposals import Proposal, Written
from postroom.tools import documents, table
from postroom.tools.documents import Outcome, minutes, outcome, refused

if TYPE_CHECKING:
    from pydantic import Field

    from postroom.tools.models import Body, GmailId, Query, Subject

DOCUMENT: Final = documents.load("approval")
ONCE: Final = Proposal(refuse_if_sent=True, report_if_sent=True)
MAX_SNIPPET: Final = 200


class EmailResult(table.Result):
    message_id: str
    thread_id: str
    from_address: str
    to_address: str
    subject: str
    snippet: str
    date: str


class EmailMessage(EmailResult):
    labels: tuple[str, ...]


class EmailResults(table.Result):
    emails: tuple[EmailMessage, ...]
    notes: tuple[str, ...] = ()


class Unapproved(Denied):
    """A letter without an approval; the message is the document's."""


class InvalidThread(NotFound):
    """A thread that does not exist; the message is the document's."""


def search_email(
    context: table.ToolContext,
    *,
    query: Annotated[
        Query, "Gmail search query (e.g., 'from:user@example.com subject:invoice after:2026/01/01')"
    ],
    max_results: Annotated[int, Field(ge=1, le=50), "Maximum number of results to return"] = 5,
) -> table.Reply:
    """Search emails with Gmail's query language. Read-only: allowed in every mode."""
    page = context.services.mailbox.search(
        context.call, context.account, query, limit=max_results, cursor=""
    )
    query, emails = one_line(query), tuple(map(_email, page.items))
    rows = [DOCUMENT.text("found", count=len(emails), query=query)]
    for number, (email, item) in enumerate(zip(emails, page.items, strict=True), 1):
        day = documents.moment(item.date)
        rows.append(DOCUMENT.text("found_email", number=number, email=email, day=day))
    text = "\n\n".join(rows) if emails else DOCUMENT.text("nothing_found", query=query)
    return table.Reply(text, EmailResults(emails=emails, notes=page.notes[:5]))


def _email(summary: Summary) -> EmailMessage:
    from email.utils import format_datetime  # takes 5 ms, and only a search needs it

    return EmailMessage(
        message_id=summary.id,
        thread_id=summary.thread,
        from_address=cut(summary.sender.address, 254),
        to_address=cut(", ".join(party.address for party in summary.to[:5]), 500),
        subject=cut(summary.subject, MAX_SUBJECT),
        snippet=documents.snippet(summary, MAX_SNIPPET),
        date=format_datetime(documents.moment(summary.date)),
        labels=shown_labels(summary.labels),
    )


def draft_email(
    context: table.ToolContext,
    *,
    to: Annotated[str, "Recipient email address"],
    subject: Annotated[Subject, "Email subject line"],
    body: Annotated[Body, "Plain text email body"],
) -> table.Reply:
    """Keep an email as a draft; it is not sent."""
    desk, written = context.desk, Written((Address.parse(to),), subject, body)
    if not desk.rules.live:
        return _rehearsed(context, written, "Draft logged but not created")
    draft = context.services.mailbox.draft(context.call, desk.composer.letter(written))
    assert draft is not None
    return outcome(DOCUMENT.text("drafted", id=draft.id), draft_id=draft.id)


def send_email(
    context: table.ToolContext,
    *,
    to: Annotated[str, "Recipient email address"],
    subject: Annotated[Subject, "Email subject line"],
    body: Annotated[Body, "Plain text email body"],
) -> table.Waiting:
    """Send an email. Needs a person's approval in vault/Approved/; rate limited."""
    desk, written = context.desk, Written((Address.parse(to),), subject, body)
    if not desk.rules.live:
        return _rehearsed(context, written, "Send logged but not executed")
    letter = desk.composer.letter(written)
    entry = yield from desk.calls.posting(context.call, letter, ONCE, slips=True)
    what = f"sending to {redacted(written.to[0].spec)}"
    unapproved = DOCUMENT.text("unapproved", what=what, type="email_send")
    return _send_reply(desk, entry, "Email", unapproved, "send_email")


def reply_email(
    context: table.ToolContext,
    *,
    thread_id: Annotated[GmailId, "Gmail thread ID to reply to"],
    message_id: Annotated[GmailId, "Gmail message ID to reply to (for correct threading headers)"],
    body: Annotated[Body, "Plain text reply body"],
) -> table.Waiting:
    """Reply in a thread. Needs a person's approval in vault/Approved/; rate limited."""
    desk, thread = context.desk, documents.shown_id(thread_id)
    if not desk.rules.live:
        desk.calls.rehearse(context.call, None, thread=thread)
        return outcome(DOCUMENT.text("rehearsed_reply", thread=thread, length=len(body)))
    unapproved = DOCUMENT.text(
        "unapproved", what=f"replying to thread {thread}", type="email_reply"
    )
    try:
        answered, envelope = context.services.mailbox.answer(
            context.account, id=message_id, thread=thread_id, everyone=False
        )
    except NotFound:
        # The documents check the approval first, then the budget, and the thread last.
        if not desk.calls.is_reply_approved(context.call, thread_id):
            raise Unapproved(unapproved) from None
        desk.calls.refuse_over_budget()
        raise InvalidThread(DOCUMENT.text("no_thread", thread=thread)) from None
    written = Written(envelope.to, envelope.subject, body, envelope.cc, answers=answered)
    letter = desk.composer.letter(written)
    entry = yield from desk.calls.posting(context.call, letter, ONCE, slips=True)
    return _send_reply(desk, entry, "Reply", unapproved, "reply_email")


def _rehearsed(context: table.ToolContext, written: Written, what: str) -> table.Reply:
    letter = documents.rehearse(context, written)
    to = redacted(letter.to[0].spec)
    return outcome(DOCUMENT.text("rehearsed", what=what, to=to, subject=letter.subject))


def _send_reply(desk: Desk, entry: Entry, what: str, unapproved: str, tool: str) -> table.Reply:
    match entry.state:
        case life.Sent(message=message, thread=thread) as state:
            text = DOCUMENT.text("sent", what=what, state=state)
            answer = outcome(text, message_id=message, thread_id=thread)
            return answer._replace(delivery=SentDelivery(desk.calls, entry.id))
        case life.Pending():
            text = unapproved
        case life.Approved(code=code, held=held) if code in life.LIMITED:
            left = minutes(desk.due_in(entry) or 0.0)
            text = DOCUMENT.text("limited", sentence=one_line(held).rstrip("."), minutes=left)
        case _:
            head, advice = DOCUMENT.head(tool), documents.unsent(entry)
            text = DOCUMENT.text("unsent", head=head, advice=advice)
    return refused(text, entry)


CONTRACT: Final = table.Contract(
    name="approval",
    tools=(
        table.Tool(search_email, "Search emails", EmailResults, table.READS),
        table.Tool(draft_email, "Draft an email", Outcome, table.CHANGES),
        table.Tool(send_email, "Send an email", Outcome, table.SENDS),
        table.Tool(reply_email, "Reply to an email", Outcome, table.SENDS),
    ),
    accounts=False,
    whole=True,
    refuse=DOCUMENT.refuse,
)
