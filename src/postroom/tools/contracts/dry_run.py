"""The contract `dry-run`: an email server that shows what it would send until DRY_RUN is false.

Names, bounds, texts, the validation of what is given, the pacing and the log on standard error are
those of one document that clients were written from. Its section is named where a line follows it;
its texts are in `dry_run.toml`.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Limited
from postroom.core.mail_view import cut
from postroom.core.message import Summary
from postroom.core.records import Entry
from postroom.core.redaction import text as redacted
from postroom.core.text import one_line
from postroom.desk.calls import PaceDelay
from postroom.desk.compose import Written
from postroom.desk.proposals import Proposal
from postroom.tools import documents, table
from postroom.tools.contracts.dry_run_input import (
    MAX_SUBJECT,
    check_letter,
    validate_texts,
)
from postroom.tools.documents import Outcome, names, outcome, refused

if TYPE_CHECKING:
    from postroom.tools import models

DOCUMENT: Final = documents.load("dry_run")
ALL_BODIES: Final = 100_000  # characters of all bodies of one search
ONE_BODY: Final = 20_000


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
    """Mails, newest first."""

    emails: tuple[FoundEmail, ...]
    notes: tuple[str, ...] = ()


# Section 4


def send_email(context: table.ToolContext, args: models.SendEmail) -> table.Waiting:
    """Send an email via Gmail. Requires DRY_RUN=false or returns a dry-run preview."""
    written, warnings = check_letter(args)
    if not context.desk.rules.live:
        details = _rehearse(context, written, "CC", "BCC")
        return _previewed(context, details, warnings)
    return (yield from _send(context, written, "Email", warnings))


def draft_email(context: table.ToolContext, args: models.DraftEmail) -> table.Reply:
    """Create a draft in Gmail (doesn't send). Useful for HITL review."""
    written, warnings = check_letter(args)
    if not context.desk.rules.live:
        return _previewed(context, _rehearse(context, written), warnings)
    letter = context.desk.composer.letter(written)
    draft = context.services.mailbox.draft(context.call, letter)
    assert draft is not None
    text = DOCUMENT.text("drafted", id=draft.id, to=_addresses(letter.to), subject=letter.subject)
    return outcome(_warned(context, text, warnings), draft_id=draft.id)


def search_emails(context: table.ToolContext, args: models.SearchEmails) -> table.Waiting:
    """Search emails using Gmail query syntax. Read-only — always safe."""
    yield from _turn(context)
    mailbox, query, most = context.services.mailbox, args.query, args.max_results
    bodies: Mapping[str, str] = {}
    if args.include_body:
        page, whole = mailbox.search_whole(context.call, context.account, query, limit=most)
        room = min(ONE_BODY, ALL_BODIES // max(1, len(whole)))
        bodies = {id: documents.body(message.mail.text, room) for id, message in whole.items()}
    else:
        page = mailbox.search(context.call, context.account, query, limit=most, cursor="")
    emails = tuple(_found(item, bodies.get(item.id, "")) for item in page.items)
    rows = [DOCUMENT.text("found", count=len(emails), query=one_line(query))]
    for number, email in enumerate(emails, 1):
        # Indented, so that no line of a mail passes for an entry of ours.
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


def reply_to_thread(context: table.ToolContext, args: models.ReplyToThread) -> table.Waiting:
    """Reply to an existing email thread. Maintains conversation threading."""
    text, page, warnings = validate_texts(args.body, args.html_body)
    message_id, envelope = context.services.mailbox.answer(
        context.account, id="", thread=args.thread_id, everyone=args.reply_all
    )
    written = Written(
        envelope.to, envelope.subject, text, envelope.cc, html=page, answers=message_id
    )
    if not context.desk.rules.live:
        details = _rehearse(context, written)
        details = {"Thread ID": documents.shown_id(args.thread_id), **details}
        return _previewed(context, details, warnings)
    return (yield from _send(context, written, "Reply", warnings))


def _send(
    context: table.ToolContext, written: Written, what: str, warnings: tuple[str, ...]
) -> table.Waiting:
    def logged(wait: float) -> float:  # section 10: a send that waits for its turn
        if isinstance(wait, PaceDelay):
            _log_wait(context, wait)
        return wait

    letter = context.desk.composer.letter(written)
    posting = context.desk.calls.posting(context.call, letter, Proposal(refuse_if_sent=True))
    entry = yield from table.waiting_for(posting, logged)
    letter, state = entry.letter, entry.state  # as the person may have changed it
    if not isinstance(state, life.Sent):
        return refused(_warned(context, _unsent(context, entry), warnings), entry)
    text = DOCUMENT.text(
        "sent", what=what, state=state, to=_addresses(letter.to), subject=letter.subject
    )
    text += DOCUMENT.text("refused", people=", ".join(state.refused)) if state.refused else ""
    ids = {"message_id": state.message, "thread_id": state.thread}
    return outcome(_warned(context, text, warnings), **ids)


def _unsent(context: table.ToolContext, entry: Entry) -> str:
    """Return why a letter was not sent, and what becomes of it."""
    state, head = entry.state, DOCUMENT.head(context.call.action_type)
    why = ""
    if isinstance(state, life.Approved) and state.code in (Limited.code, "pace"):
        left = documents.minutes(context.desk.due_in(entry) or 0.0)
        why = DOCUMENT.text("limited", why=one_line(state.held), minutes=left)
    elif isinstance(state, life.Approved):
        why = DOCUMENT.held.get(state.code, "")
    return DOCUMENT.text(
        "held" if why else "unsent", head=head, why=why, detail=documents.unsent(entry)
    )


def _warned(context: table.ToolContext, text: str, warnings: tuple[str, ...]) -> str:
    """Return an answer, and below it what was changed before; log that too."""
    for warning in warnings:
        log("warn", context.call.action_type, dry_run=not context.desk.rules.live, warning=warning)
    return "\n\n".join([text, *(f"Warning: {warning}." for warning in warnings)])


# Section 6


def _previewed(
    context: table.ToolContext, details: Mapping[str, str], warnings: tuple[str, ...]
) -> table.Reply:
    rows = "".join(f"\n  {name}: {value}" for name, value in details.items())
    text = DOCUMENT.text(context.call.action_type, rows=rows)
    return outcome(_warned(context, text, warnings))


def _rehearse(context: table.ToolContext, written: Written, *always: str) -> dict[str, str]:
    """Rehearse a letter; return what its preview shows: some lines always, and what else it has."""
    letter = documents.rehearse(context, written)
    details = {
        "To": _addresses(letter.to),
        "Subject": letter.subject,
        "Body": f"({len(written.text)} chars)",
        "CC": _addresses(letter.cc),
        "BCC": _addresses(letter.bcc),
        "HTML": f"({len(letter.html)} chars)" if letter.html else "none",
        "Reply-To": _addresses(letter.reply_to),
    }
    always = ("To", "Subject", "Body", *always)
    return {name: value for name, value in details.items() if name in always or value != "none"}


def _addresses(addresses: tuple[Address, ...]) -> str:
    return ", ".join(address.spec for address in addresses) or "none"


# Section 10


def _turn(context: table.ToolContext) -> Iterator[float]:
    """Wait if more searches come than a minute has room for."""
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
    """Write one line of JSON on standard error, if somebody reads it: no call fails or waits for it."""
    entry: dict[str, object] = {
        "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "level": level,
        "action": action,
        "dry_run": dry_run,
    }
    with suppress(OSError, ValueError, AttributeError):  # there may be none
        out = sys.stderr.fileno()
        # A pipe that is ready takes this much at once.
        if select.select([], [out], [], 0)[1]:
            os.write(out, f"{json.dumps(entry | details)}\n".encode()[: select.PIPE_BUF])


def log_call(call: table.CallFinished) -> None:
    """Log a call that was answered."""
    details: dict[str, object] = {"duration_ms": round(call.seconds * 1000)}
    if call.error:
        details |= {"code": call.error.code, "error": redacted(call.error.message)}
    level = "error" if call.error else "warn" if call.refused else "info"
    log(level, call.tool, dry_run=not call.live, **details)


SENDS: Final = table.Hints(open_world=True)
_row: Final = partial(table.Tool, contract="dry_run", whole=True)
CONTRACT: Final = table.Contract(
    name="dry_run",
    instructions=DOCUMENT.instructions,
    tools=(
        _row(send_email, "Send an email", Outcome, SENDS),
        _row(draft_email, "Draft an email", Outcome, table.Hints()),
        _row(search_emails, "Search emails", FoundEmails, table.READS),
        _row(reply_to_thread, "Reply to a thread", Outcome, SENDS),
    ),
    about=table.About(
        "email-mcp",
        "0.2.0",
        "Postroom",
        "Gmail integration for the AI Employee. Send, draft, search, and reply to emails.",
    ),
    accounts=False,
    refuse=DOCUMENT.refuse,
    on_call_finished=log_call,
)
