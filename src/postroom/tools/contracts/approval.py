"""The contract `approval`: an email server whose sends wait for a file in `Approved/`.

Names, schemas, texts and the order of checks are those of two documents that clients were written
from, a data model and its tool contracts. The rules are the desk's, as everywhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Denied, NotFound
from postroom.core.letter import MAX_SUBJECT
from postroom.core.mail_view import cut
from postroom.core.message import Summary
from postroom.core.records import Entry
from postroom.core.redaction import address as redacted
from postroom.core.text import one_line
from postroom.desk.compose import Written
from postroom.desk.desk import Desk
from postroom.desk.proposals import Proposal
from postroom.tools import documents, table
from postroom.tools.documents import Outcome, minutes, outcome, refused

if TYPE_CHECKING:
    from postroom.tools import models

DOCUMENT: Final = documents.load("approval")
ONCE: Final = Proposal(refuse_if_sent=True)
MAX_SNIPPET: Final = 200


class EmailResult(table.Result):
    message_id: str
    thread_id: str
    from_address: str
    to_address: str
    subject: str
    snippet: str
    date: str


class EmailResults(table.Result):
    """Mails, newest first."""

    emails: tuple[EmailResult, ...]
    notes: tuple[str, ...] = ()


class Unapproved(Denied):
    """There is no approval for it; the message is the document's."""


class InvalidThread(NotFound):
    """There is no such thread; the message is the document's."""


def search_email(context: table.ToolContext, args: models.SearchEmailRequest) -> table.Reply:
    """Search emails with Gmail's query language. Read-only: allowed in every mode."""
    page = context.services.mailbox.search(
        context.call, context.account, args.query, limit=args.max_results, cursor=""
    )
    query, emails = one_line(args.query), tuple(map(_email, page.items))
    rows = [DOCUMENT.text("found", count=len(emails), query=query)]
    for number, (email, item) in enumerate(zip(emails, page.items, strict=True), 1):
        rows.append(
            DOCUMENT.text(
                "found_email", number=number, email=email, day=documents.moment(item.date)
            )
        )
    text = "\n\n".join(rows) if emails else DOCUMENT.text("nothing_found", query=query)
    return table.Reply(text, EmailResults(emails=emails, notes=page.notes[:5]))


def _email(summary: Summary) -> EmailResult:
    from email.utils import format_datetime  # 5 ms, and only a search needs it

    return EmailResult(
        message_id=summary.id,
        thread_id=summary.thread,
        from_address=cut(summary.sender.address, 254),
        to_address=cut(", ".join(party.address for party in summary.to[:5]), 500),
        subject=cut(summary.subject, MAX_SUBJECT),
        snippet=documents.snippet(summary, MAX_SNIPPET),
        date=format_datetime(documents.moment(summary.date)),
    )


def draft_email(context: table.ToolContext, args: models.DraftEmailRequest) -> table.Reply:
    """Keep an email as a draft; it is not sent."""
    desk, written = context.desk, _written(context, args)
    if not desk.rules.live:
        return _rehearsed(context, written, "Draft logged but not created")
    draft = context.services.mailbox.draft(context.call, desk.composer.letter(written))
    assert draft is not None
    return outcome(DOCUMENT.text("drafted", id=draft.id), draft_id=draft.id)


def send_email(context: table.ToolContext, args: models.SendEmailRequest) -> table.Waiting:
    """Send an email. Needs a person's approval in vault/Approved/; rate limited."""
    desk, written = context.desk, _written(context, args)
    if not desk.rules.live:
        return _rehearsed(context, written, "Send logged but not executed")
    letter = desk.composer.letter(written)
    entry = yield from desk.calls.posting(context.call, letter, ONCE, slips=True)
    to = f"sending to {redacted(written.to[0].spec)}"
    unapproved = DOCUMENT.text("unapproved", what=to, type="email_send")
    return _outcome(desk, entry, "Email", unapproved, "send_email")


def reply_email(context: table.ToolContext, args: models.ReplyEmailRequest) -> table.Waiting:
    """Reply in a thread. Needs a person's approval in vault/Approved/; rate limited."""
    desk, thread = context.desk, documents.shown_id(args.thread_id)
    if not desk.rules.live:
        desk.calls.rehearse(context.call, None, thread=thread)
        return outcome(DOCUMENT.text("rehearsed_reply", thread=thread, length=len(args.body)))
    unapproved = DOCUMENT.text(
        "unapproved", what=f"replying to thread {thread}", type="email_reply"
    )
    try:
        message_id, envelope = context.services.mailbox.answer(
            context.account, id=args.message_id, thread=args.thread_id, everyone=False
        )
    except NotFound:
        # The documents check the approval first, then the budget, then the thread.
        if not desk.calls.is_reply_approved(context.call, args.thread_id):
            raise Unapproved(unapproved) from None
        desk.calls.refuse_over_budget()
        raise InvalidThread(DOCUMENT.text("no_thread", thread=thread)) from None
    written = Written(envelope.to, envelope.subject, args.body, envelope.cc, answers=message_id)
    letter = desk.composer.letter(written)
    entry = yield from desk.calls.posting(context.call, letter, ONCE, slips=True)
    return _outcome(desk, entry, "Reply", unapproved, "reply_email")


def _written(context: table.ToolContext, args: models.DraftEmailRequest) -> Written:
    to = Address.parse(args.to)
    return Written((to,), args.subject, args.body, account=context.account)


def _rehearsed(context: table.ToolContext, written: Written, what: str) -> table.Reply:
    letter = documents.rehearse(context, written)
    to = redacted(letter.to[0].spec)
    return outcome(DOCUMENT.text("rehearsed", what=what, to=to, subject=letter.subject))


def _outcome(desk: Desk, entry: Entry, what: str, unapproved: str, tool: str) -> table.Reply:
    match entry.state:
        case life.Sent(message=message, thread=thread) as state:
            text = DOCUMENT.text("sent", what=what, state=state)
            return outcome(text, message_id=message, thread_id=thread)
        case life.Pending():
            text = unapproved
        case life.Approved(code="rate_limited" | "pace" | "quota", held=held):
            left = minutes(desk.due_in(entry) or 0.0)
            text = DOCUMENT.text("limited", sentence=one_line(held).rstrip("."), minutes=left)
        case _:
            head, advice = DOCUMENT.head(tool), documents.unsent(entry)
            text = DOCUMENT.text("unsent", head=head, advice=advice)
    return refused(text, entry)


SENDS: Final = table.Hints(open_world=True)  # not idempotent: a further approval is another letter
_row: Final = partial(table.Tool, contract="approval", whole=True)
CONTRACT: Final = table.Contract(
    name="approval",
    instructions=DOCUMENT.instructions,
    tools=(
        _row(search_email, "Search emails", EmailResults, table.READS),
        _row(draft_email, "Draft an email", Outcome, table.Hints()),
        _row(send_email, "Send an email", Outcome, SENDS),
        _row(reply_email, "Reply to an email", Outcome, SENDS),
    ),
    accounts=False,
    refuse=DOCUMENT.refuse,
)
