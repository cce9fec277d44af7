"""The contract `dry-run`: an email server that only shows what it would send, until DRY_RUN is false.

Clients were written from one document, which fixes the names, limits, texts, checks of arguments, the pacing, and the
log on standard error. Comments name the section of the document that the code follows; the texts are in
`dry_run.toml`.
"""

from __future__ import annotations

import html
import json
import os
import re
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.audit import redact_text as redacted
from postroom.core.errors import Invalid, Limited, PostroomError, Unavailable
from postroom.core.mail_view import cut
from postroom.core.message import Summary
from postroom.core.outgoing_html import reduce_html
from postroom.core.records import Entry
from postroom.core.text import one_line, words
from postroom.desk.calls import PaceDelay
from postroom.desk.proposals import Proposal, Written
from postroom.desk.recorder import Call
from postroom.tools import documents, table
from postroom.tools.documents import Outcome, names, outcome, refused

if TYPE_CHECKING:
    from pydantic import Field

    from postroom.tools.models import Body, CutBody, CutSubject, Email, GivenQuery, MessageId

DOCUMENT: Final = documents.load("dry_run")
ALL_BODIES: Final = 100_000  # characters of all bodies of one search
ONE_BODY: Final = 20_000
MAX_SUBJECT, MAX_BODY = 500, 50_000  # characters; section 11B cuts longer ones
ADDRESS_LIMIT, LOCAL_PART_LIMIT = 254, 64  # section 11A: an address and its local part are shorter
UNEXPECTED: Final = (Invalid.code, Unavailable.code)  # the codes of section 9C's default
MAX_PEOPLE: Final = 200  # far more than the desk's limits allow
# An opening or closing tag, a comment or a processing instruction; not <ann@example.com> or <https://…>.
_TAG_NAME: Final = "[A-Za-z][A-Za-z0-9-]*(?::[A-Za-z][A-Za-z0-9-]*)?"
_TAG: Final = re.compile(rf"<{_TAG_NAME}(?:[\s/][^<>]*)?>|</[A-Za-z]|<[!?]")


class FoundEmail(table.Result):
    message_id: str
    thread_id: str
    sender: str
    to: str
    subject: str
    date: str
    snippet: str
    body: str = ""


class FoundEmails(table.Result):
    emails: tuple[FoundEmail, ...]
    notes: tuple[str, ...] = ()


# Section 4
def send_email(
    context: table.ToolContext,
    *,
    to: Annotated[Email, "Recipient email address"],
    subject: Annotated[CutSubject, "Email subject line"],
    body: Annotated[CutBody, "Email body (plain text)"],
    cc: Annotated[str, "CC recipients (comma-separated)"] = "",
    bcc: Annotated[str, "BCC recipients (comma-separated)"] = "",
    html_body: Annotated[Body, "Optional HTML version"] = "",
    reply_to: Annotated[Email, "Reply-To header"] = "",
) -> table.Waiting:
    """Send an email via Gmail. Requires DRY_RUN=false or returns a dry-run preview."""
    warnings: list[str] = []
    written = check_letter(to, subject, body, cc, bcc, html_body, reply_to, warnings)
    if not context.desk.rules.live:
        return _preview(context, written, warnings, always=("CC", "BCC"))
    return (yield from _send(context, written, "Email", warnings))


def draft_email(
    context: table.ToolContext,
    *,
    to: Annotated[Email, "Recipient email address"],
    subject: Annotated[CutSubject, "Email subject line"],
    body: Annotated[CutBody, "Email body (plain text)"],
    cc: Annotated[str, "CC recipients (comma-separated)"] = "",
    bcc: Annotated[str, "BCC recipients (comma-separated)"] = "",
    html_body: Annotated[Body, "Optional HTML version"] = "",
) -> table.Reply:
    """Create a draft in Gmail (doesn't send). Useful for HITL review."""
    warnings: list[str] = []
    written = check_letter(to, subject, body, cc, bcc, html_body, "", warnings)
    if not context.desk.rules.live:
        return _preview(context, written, warnings)
    letter = context.desk.composer.letter(written)
    draft = context.services.mailbox.draft(context.call, letter)
    assert draft is not None
    text = DOCUMENT.text("drafted", id=draft.id, to=_addresses(letter.to), subject=letter.subject)
    return outcome(_warned(context, text, warnings), draft_id=draft.id)


def search_emails(
    context: table.ToolContext,
    *,
    query: Annotated[
        GivenQuery, "Gmail search query (e.g., 'from:john subject:invoice after:2026/01/01')"
    ],
    max_results: Annotated[int, Field(ge=1, le=50)] = 10,
    include_body: Annotated[bool, "Include full email body in results"] = False,
) -> table.Waiting:
    """Search emails using Gmail query syntax. Read-only — always safe."""
    yield from _wait_for_turn(context)
    mailbox, call, account = context.services.mailbox, context.call, context.account
    bodies: Mapping[str, str] = {}
    if include_body:
        page, whole = mailbox.search_whole(call, account, query, limit=max_results)
        room = min(ONE_BODY, ALL_BODIES // max(1, len(whole)))
        bodies = {id: documents.body(message.mail.text, room) for id, message in whole.items()}
    else:
        page = mailbox.search(call, account, query, limit=max_results, cursor="")
    emails = tuple(_found(item, bodies.get(item.id, "")) for item in page.items)
    rows = [DOCUMENT.text("found", count=len(emails), query=one_line(query))]
    for number, email in enumerate(emails, 1):
        # Indented, so that no line of a mail looks like another row of this list.
        lines = ["Body:", *(f"  {line}" for line in email.body.split("\n"))] if email.body else []
        body = "".join(f"\n   {line}" for line in lines)
        rows.append(DOCUMENT.text("found_email", number=number, email=email, body=body))
    text = "\n\n".join(rows) if emails else DOCUMENT.text("nothing_found")
    return table.Reply(text, FoundEmails(emails=emails, notes=page.notes[:5]))


def _found(summary: Summary, body: str) -> FoundEmail:
    return FoundEmail(
        message_id=summary.id,
        thread_id=summary.thread,
        sender=names(summary.sender),
        to=names(*summary.to),
        subject=cut(summary.subject, MAX_SUBJECT),
        date=f"{documents.moment(summary.date):%Y-%m-%d}",
        snippet=documents.snippet(summary, 200),
        body=body,
    )


def reply_to_thread(
    context: table.ToolContext,
    *,
    thread_id: Annotated[MessageId, "Gmail thread ID to reply to"],
    body: CutBody,
    reply_all: Annotated[bool, "Reply to all recipients"] = False,
    html_body: Body = "",
) -> table.Waiting:
    """Reply to an existing email thread. Maintains conversation threading."""
    warnings: list[str] = []
    text = validate_body(body, warnings)
    page = validate_html(html_body, text, warnings)
    message_id, envelope = context.services.mailbox.answer(
        context.account, id="", thread=thread_id, everyone=reply_all
    )
    written = Written(
        envelope.to, envelope.subject, text, envelope.cc, html=page, answers=message_id
    )
    if not context.desk.rules.live:
        return _preview(context, written, warnings, thread=documents.shown_id(thread_id))
    return (yield from _send(context, written, "Reply", warnings))


def _send(
    context: table.ToolContext, written: Written, what: str, warnings: Sequence[str]
) -> table.Waiting:
    """Propose a letter, send it if it is approved, and return the document's text; `what` is "Email" or "Reply"."""

    def log_pace(wait: float) -> float:  # section 10: log a send that waits because of the pace
        if isinstance(wait, PaceDelay):
            _log_wait(context, wait)
        return wait

    letter = context.desk.composer.letter(written)
    posting = context.desk.calls.posting(context.call, letter, Proposal(refuse_if_sent=True))
    entry = yield from table.waiting_for(posting, log_pace)
    letter, state = entry.letter, entry.state  # read again: the person may have edited the letter
    if not isinstance(state, life.Sent):
        return refused(_warned(context, _unsent(context, entry), warnings), entry)
    text = DOCUMENT.text(
        "sent", what=what, state=state, to=_addresses(letter.to), subject=letter.subject
    )
    text += DOCUMENT.text("refused", people=", ".join(state.refused)) if state.refused else ""
    text = _warned(context, text, warnings)
    return outcome(text, message_id=state.message, thread_id=state.thread)


def _unsent(context: table.ToolContext, entry: Entry) -> str:
    state, head = entry.state, DOCUMENT.head(context.call.action_type)
    text, why = "unsent", ""
    if isinstance(state, life.Approved) and state.code in (Limited.code, "pace"):
        left = documents.minutes(context.desk.due_in(entry) or 0.0)
        text, why = "held", DOCUMENT.text("limited", why=one_line(state.held), minutes=left)
    elif held := DOCUMENT.held.get(getattr(state, "code", "")):
        text, why = "held", held
    elif isinstance(state, life.Unknown) or getattr(state, "code", "") in UNEXPECTED:
        text = "unexpected"
    return DOCUMENT.text(text, head=head, why=why, detail=documents.unsent(entry))


def _warned(context: table.ToolContext, text: str, warnings: Sequence[str]) -> str:
    """Return an answer with the warnings below it; log each warning."""
    for warning in warnings:
        log("warn", context.call.action_type, dry_run=not context.desk.rules.live, warning=warning)
    return "\n\n".join([text, *(f"Warning: {warning}." for warning in warnings)])


# Section 6
def _preview(
    context: table.ToolContext,
    written: Written,
    warnings: Sequence[str],
    *,
    thread: str = "none",
    always: Sequence[str] = (),
) -> table.Reply:
    """Rehearse a letter and return its preview: To, Subject, Body, the lines in `always`, and all that have a value."""
    letter = documents.rehearse(context, written)
    details = {
        "Thread ID": thread,
        "To": _addresses(letter.to),
        "Subject": letter.subject,
        "Body": f"({len(written.text)} chars)",
        "CC": _addresses(letter.cc),
        "BCC": _addresses(letter.bcc),
        "HTML": f"({len(letter.html)} chars)" if letter.html else "none",
        "Reply-To": _addresses(letter.reply_to),
    }
    always = ("To", "Subject", "Body", *always)
    shown = (name for name, value in details.items() if name in always or value != "none")
    rows = "".join(f"\n  {name}: {details[name]}" for name in shown)
    text = DOCUMENT.text(context.call.action_type, rows=rows)
    return outcome(_warned(context, text, warnings))


def _addresses(addresses: tuple[Address, ...]) -> str:
    return ", ".join(address.spec for address in addresses) or "none"


# Section 10
def _wait_for_turn(context: table.ToolContext) -> Iterator[float]:
    seconds = context.services.mailbox.turn()
    if seconds:
        _log_wait(context, seconds)
        try:
            yield seconds
        except GeneratorExit:
            context.desk.recorder.write(context.call, result="rate_limited", synced=False)
            raise


def _log_wait(context: table.ToolContext, seconds: float) -> None:
    live = context.desk.rules.live
    log("warn", "rate_limit_wait", dry_run=not live, wait_ms=round(seconds * 1000))


# Section 8
def log(level: str, action: str, *, dry_run: bool, **details: object) -> None:
    """Write one line of JSON to standard error; skip it if nobody reads there, so that no call fails or waits."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    entry = {"timestamp": now, "level": level, "action": action, "dry_run": dry_run, **details}
    with suppress(OSError, ValueError, AttributeError):  # standard error may be closed
        out = sys.stderr.fileno()
        # A pipe that is ready for writing takes `PIPE_BUF` bytes without blocking.
        if select.select([], [out], [], 0)[1]:
            os.write(out, f"{json.dumps(entry)}\n".encode()[: select.PIPE_BUF])


def log_call(call: Call, reply: table.Reply, error: PostroomError | None, is_live: bool) -> None:  # noqa: FBT001
    took = call.trace.took() if call.trace else 0.0
    details: dict[str, object] = {"duration_ms": round(took * 1000)}
    if error:
        details |= {"code": error.code, "error": redacted(error.message)}
    level = "error" if error else "warn" if reply.refused else "info"
    log(level, call.action_type, dry_run=not is_live, **details)


# Sections 11 and 13: arguments are checked; texts that are too long are cut with a warning
class BadAddress(Invalid):
    """An address that section 11A refuses; `field` is the name of the argument."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


def check_letter(
    to: str,
    subject: str,
    body: str,
    cc: str,
    bcc: str,
    html_body: str,
    reply_to: str,
    warnings: list[str],
) -> Written:
    """Check the arguments of `draft_email` or `send_email`, in this order, and return them as a letter.

    Raises `BadAddress` for an invalid address, and `Invalid` for an empty subject or body. Adds a warning for each
    change: a subject or body that is cut, HTML in `body` that is escaped, an `html_body` that is left out.
    """
    written = Written(
        to=(validate_email_address(to, "to"),),
        cc=validate_recipient_list(cc, "cc"),
        bcc=validate_recipient_list(bcc, "bcc"),
        reply_to=(validate_email_address(reply_to, "reply_to"),) if reply_to else (),
        subject=validate_subject(subject, warnings),
        text=validate_body(body, warnings),
    )
    return written._replace(html=validate_html(html_body, written.text, warnings))


def validate_email_address(text: str, field: str) -> Address:
    """Return one address, which has no display name; raise `BadAddress` for anything else."""
    try:
        address = Address.parse(text)
    except Invalid as why:
        raise BadAddress(field, why.message) from None
    # `Address` has already refused IP addresses and host names without a dot.
    is_too_long = len(address.spec) >= ADDRESS_LIMIT or len(address.local) >= LOCAL_PART_LIMIT
    if "<" in text or is_too_long:
        raise BadAddress(field, f"Invalid email address format: {cut(text, 100)}")
    return address


def validate_recipient_list(csv: str, field: str) -> tuple[Address, ...]:
    items = [item.strip() for item in csv.split(",", MAX_PEOPLE)] if csv.strip() else []
    if len(items) > MAX_PEOPLE:
        raise Invalid(f"{field} names more than {MAX_PEOPLE} addresses")
    addresses = [validate_email_address(item, field) for item in items]
    return tuple({address.key: address for address in addresses}.values())


def validate_subject(subject: str, warnings: list[str]) -> str:
    """Return the subject trimmed, without null bytes, and cut with a warning if it is too long."""
    plain = subject.replace("\0", "").strip()
    if not plain:
        raise Invalid("subject is empty")
    if len(plain) <= MAX_SUBJECT:
        return plain
    warnings.append(f"subject truncated to {MAX_SUBJECT} characters")
    return f"{plain[: MAX_SUBJECT - 3]}..."


def validate_body(body: str, warnings: list[str]) -> str:
    """Return the body without null bytes; escape HTML in it (section 13) and cut a long one, each with a warning."""
    plain = body.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    is_escaped = bool(_TAG.search(plain))
    if is_escaped:
        plain = html.escape(plain, quote=False)
        warnings.append("HTML in body was escaped; use html_body for HTML")
    if len(plain) > MAX_BODY:
        plain = plain[:MAX_BODY]
        if is_escaped:  # an escape that was cut in two is dropped
            plain = re.sub("&[a-z]{0,3}$", "", plain)
        warnings.append(f"body truncated to {MAX_BODY} characters")
    if not plain.strip():
        raise Invalid("body is empty")
    return plain


def validate_html(page: str, body: str, warnings: list[str]) -> str:
    """Return the HTML in its safe subset; if it has other words than the body, add a warning and return nothing."""
    if not page.strip():
        return ""
    try:
        reduced, text, plain = reduce_html(page)
    except Invalid as why:
        warnings.append(f"html_body was left out. {why.message_with_remedy.rstrip('.')}")
        return ""
    # `plain` has the addresses of links and `text` has not: the body may be either.
    if words(body) in (words(plain), words(text)):
        return reduced
    warnings.append("html_body was left out: its words are not those of body")
    return ""


CONTRACT: Final = table.Contract(
    name="dry_run",
    tools=(
        table.Tool(send_email, "Send an email", Outcome, table.SENDS),
        table.Tool(draft_email, "Draft an email", Outcome, table.CHANGES),
        table.Tool(search_emails, "Search emails", FoundEmails, table.READS),
        table.Tool(reply_to_thread, "Reply to a thread", Outcome, table.SENDS),
    ),
    server={
        "name": "email-mcp",
        "title": "Postroom",
        "description": "Gmail integration for the AI Employee. Send, draft, search, and reply to emails.",
        "version": "0.2.0",
    },
    accounts=False,
    whole=True,
    refuse=DOCUMENT.refuse,
    on_call_finished=log_call,
)
