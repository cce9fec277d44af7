"""The contract `postroom`: mail for agents, and letters that wait for a person."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

from postroom.core import life
from postroom.core.address import MAX_LIST, Address
from postroom.core.errors import Invalid, PostroomError
from postroom.core.letter import Letter
from postroom.core.mail_view import cut
from postroom.core.policy import Rules
from postroom.core.records import LabelChange
from postroom.desk.proposals import Proposal, Written
from postroom.tools import answers, table
from postroom.tools.fence import LETTER

if TYPE_CHECKING:
    from pydantic import Field

    from postroom.tools.models import (
        AnsweredMail,
        AnsweredThread,
        Body,
        Files,
        Former,
        Id,
        Key,
        ListedSubject,
        MailId,
        Page,
        PageSize,
        People,
        Repeat,
        ThreadId,
    )

OPEN: Final = ("pending", "approved", "sending")
MAX_PEOPLE: Final = 200
NO_ITEMS: Final = list[str]()
_LETTER_ID: Final = re.compile(r"[a-z2-7]{10}")


def search_email(
    context: table.ToolContext,
    *,
    query: Annotated[str, Field(max_length=2_000)] = "",
    limit: PageSize = 20,
    cursor: Key = "",
) -> table.Reply:
    """Find mails, newest first.

    query: Gmail's search language: from: to: subject: label: in: is:unread has:attachment after:
    newer_than:7d OR -. All mail when empty.
    """
    page = context.services.mailbox.search(
        context.call, context.account, query, limit=limit, cursor=cursor
    )
    return answers.search_reply(page)


def get_email(
    context: table.ToolContext,
    *,
    id: MailId,
    offset: Annotated[int, Field(ge=0, le=10_000_000)] = 0,
    max_chars: Annotated[int, Field(ge=200, le=20_000)] = 8_000,
    quotes: bool = False,
) -> table.Reply:
    """Read one mail.

    Long text comes in windows: go on with offset=next_offset. Quoted history only with quotes.
    """
    message = context.services.mailbox.message(context.call, context.account, id)
    return answers.mail_reply(message, offset=offset, max_chars=max_chars, quotes=quotes)


def get_thread(
    context: table.ToolContext,
    *,
    id: ThreadId,
    cursor: Key = "",
    max_chars: Annotated[int, Field(ge=200, le=20_000)] = 12_000,
    quotes: bool = False,
) -> table.Reply:
    """Read a conversation by its id or that of any mail in it; cursor leads to older mails."""
    thread = context.services.mailbox.thread(context.call, context.account, id)
    return answers.thread_reply(thread, cursor=cursor, max_chars=max_chars, quotes=quotes)


def get_attachment(
    context: table.ToolContext, *, id: MailId, part: Annotated[Id, "as get_email lists it"]
) -> table.Reply:
    """Save a file of a mail in the vault and return its path. What could run is saved as .download."""
    saved = context.services.mailbox.attachment(context.call, context.account, id, part)
    path, name, kind = str(saved.path), cut(saved.name, 200), cut(saved.type, 80)
    text = f"{path}\nFrom a file named {name} ({kind})"
    result = answers.FileResult(path=path, name=name, type=kind, size=saved.size)
    return answers.fenced_reply(result, f"Saved, {saved.size} bytes.", text)


def draft_email(
    context: table.ToolContext,
    *,
    to: People,
    subject: ListedSubject = "",
    body: Body = "",
    cc: People = NO_ITEMS,
    bcc: People = NO_ITEMS,
    html: Page = "",
    attachments: Files = NO_ITEMS,
    draft_id: Key = "",
) -> table.Reply:
    """Keep a letter as a draft in the mailbox; nothing is sent.

    draft_id revises a draft that you made, if nobody has changed it since.
    """
    written = Written(_addresses(to), subject, body, _addresses(cc), _addresses(bcc), html)
    letter, _ = _letter(context, written, attachments)
    return _draft_reply(context, letter, draft_id)


def send_email(
    context: table.ToolContext,
    *,
    to: People,
    subject: ListedSubject = "",
    body: Body = "",
    cc: People = NO_ITEMS,
    bcc: People = NO_ITEMS,
    html: Page = "",
    attachments: Files = NO_ITEMS,
    idempotency_key: Repeat = "",
    replaces: Former = "",
) -> table.Waiting:
    """Ask for a letter to be sent.

    It waits until a person has approved exactly this letter; calling again changes nothing.
    """
    written = Written(_addresses(to), subject, body, _addresses(cc), _addresses(bcc), html)
    letter, origins = _letter(context, written, attachments)
    proposal = Proposal(key=idempotency_key, origins=origins, replaces=replaces)
    return (yield from _post(context, letter, proposal))


def reply_email(
    context: table.ToolContext,
    *,
    id: AnsweredMail = "",
    thread: AnsweredThread = "",
    body: Body = "",
    reply_all: bool = False,
    cc: People = NO_ITEMS,
    bcc: People = NO_ITEMS,
    html: Page = "",
    attachments: Files = NO_ITEMS,
    as_draft: bool = False,
    idempotency_key: Repeat = "",
    replaces: Former = "",
) -> table.Waiting:
    """Answer a mail (id) or the newest mail of a conversation (thread).

    The recipients come from it: Reply-To or sender, with reply_all everybody. Waits for a person
    like send_email; as_draft keeps it as a draft instead.
    """
    if bool(id) == bool(thread):
        raise Invalid("A reply needs `id` or `thread`, one of them", remedy="Give one.")
    _check_body(body, html)
    if not (body or html or attachments):
        raise Invalid("The reply is empty", remedy="Give `body` or `html`.")
    message_id, envelope = context.services.mailbox.answer(
        context.account, id=id, thread=thread, everyone=reply_all
    )
    everybody = (*envelope.cc, *_addresses(cc))
    written = Written(
        envelope.to, envelope.subject, body, everybody, _addresses(bcc), html, message_id
    )
    letter, origins = _letter(context, written, attachments)
    try:
        if as_draft:
            return _draft_reply(context, letter, "")
        proposal = Proposal(key=idempotency_key, origins=origins, replaces=replaces)
        return (yield from _post(context, letter, proposal))
    except PostroomError as refused:
        # Addresses from the mail are a stranger's words, which an error message must not repeat.
        for address in (*envelope.to, *envelope.cc):
            refused.message = refused.message.replace(address.spec, "an address of that mail")
        raise


def move_email(context: table.ToolContext, *, id: MailId, destination: Id) -> table.Reply:
    """Put a mail under a label and take it out of the inbox; INBOX puts it back.

    Trash, Spam, Sent and Drafts are not destinations.
    """
    mailbox = context.services.mailbox
    change = mailbox.move(context.call, context.account, id, destination)
    return _filing_reply(change, context.desk.rules)


def add_label(context: table.ToolContext, *, id: MailId, label: Id) -> table.Reply:
    """Put a label on a mail; made if there is none of that name."""
    mailbox = context.services.mailbox
    change = mailbox.label(context.call, context.account, id, label)
    return _filing_reply(change, context.desk.rules)


def letter_status(
    context: table.ToolContext, *, id: Key = "", wait: Annotated[int, Field(ge=0, le=20)] = 0
) -> table.Waiting:
    """Say what became of a letter of yours; wait up to 20 seconds for news.

    Without id: all of yours that are open.
    """
    if not id:
        return _open_letters(context)
    # This writes the line of the call, before the wait, which the client may cancel.
    entry = context.desk.calls.status(context.call, id)
    first = entry.kind
    for _ in range(wait if first in OPEN else 0):
        yield 1.0
        entry = context.desk.calls.peek(context.call, id)
        if entry.kind != first:
            break
    newer = context.desk.calls.replaced_by(entry)
    reply = answers.letter_reply(entry, context.desk.rules, newer)
    return table.Reply(reply.text, answers.StatusResult(**vars(reply.result)))


def withdraw_letter(context: table.ToolContext, *, id: Id) -> table.Reply:
    """Take back a letter of yours that has not left, or delete a draft that you made."""
    rules = context.desk.rules
    if _LETTER_ID.fullmatch(id):
        return answers.letter_reply(context.desk.calls.withdraw(context.call, id), rules)
    if context.services.mailbox.discard(context.call, context.account, id):
        return answers.draft_reply("deleted", f"The draft {id} is deleted.", id)
    text = f"{answers.rehearsal(rules)}: nothing is deleted."
    return answers.draft_reply("rehearsal", text, id)


def _addresses(texts: list[str]) -> tuple[Address, ...]:
    if sum(map(len, texts)) > MAX_LIST:
        raise Invalid("The list of addresses is too long", remedy="Write to fewer people.")
    addresses = tuple(chain.from_iterable(map(Address.parse_list, texts)))
    if len(addresses) > MAX_PEOPLE:  # far more than any limit lets through
        raise Invalid(f"More than {MAX_PEOPLE} addresses", remedy="Write to fewer people.")
    return addresses


def _letter(
    context: table.ToolContext, written: Written, attachments: list[str]
) -> tuple[Letter, tuple[str, ...]]:
    _check_body(written.text, written.html)
    files, origins = context.services.mailbox.enclosures(context.account, attachments)
    written = written._replace(account=context.account, attachments=files)
    return context.desk.composer.letter(written), origins


def _check_body(body: str, html: str) -> None:
    if body and html:
        raise Invalid(
            "A letter has `body` or `html`, not both",
            remedy="Give one: the plain text is made from the HTML.",
        )


def _post(context: table.ToolContext, letter: Letter, proposal: Proposal) -> table.Waiting:
    """Propose a letter and return its status; one that is approved already is sent first, after its undo window."""
    entry = yield from context.desk.calls.posting(context.call, letter, proposal)
    return answers.letter_reply(entry, context.desk.rules)


def _draft_reply(context: table.ToolContext, letter: Letter, revises: str) -> table.Reply:
    draft = context.services.mailbox.draft(context.call, letter, revises)
    if draft is None:
        head = f"{answers.rehearsal(context.desk.rules)}: no draft was made of:"
        text = f"{head}\n{answers.fenced_letter(answers.preview(letter))}"
        return answers.draft_reply("rehearsal", text, revises)
    text = f"Kept as the draft {draft.id}. Nothing is sent."
    return answers.draft_reply("draft", text, draft.id)


def _filing_reply(change: LabelChange, rules: Rules) -> table.Reply:
    id, is_done = change.message, bool(change.number)
    added, removed = tuple(sorted(change.added)), tuple(sorted(change.removed))
    labels = ", ".join([*(f"+{label}" for label in added), *(f"-{label}" for label in removed)])
    if not labels:
        text = f"Mail {id} has that already: nothing to do."
    elif is_done:
        text = f"Mail {id}: {labels}."
    else:
        text = f"{answers.rehearsal(rules)}: mail {id} would get {labels}."
    result = answers.FilingResult(id=id, done=is_done, message=text, added=added, removed=removed)
    return table.Reply(text, result)


def _open_letters(context: table.ToolContext) -> table.Reply:
    rows = tuple(
        answers.OpenLetter(
            letter=letter.id,
            status=life.name(letter.state),
            to=cut(letter.recipients, 100),
            subject=cut(letter.subject, 100),
        )
        for letter in context.desk.calls.letters(context.call)[-20:]
    )
    text = "\n".join(f"{row.letter} {row.status}: {row.to} | {row.subject}" for row in rows)
    rules = context.desk.rules
    head = f"Letters open: {len(rows)}. Mode {rules.mode}, trust level {rules.trust}."
    result = answers.StatusResult(status="open", sent=False, message=head, open=rows)
    return answers.fenced_reply(result, head, text, notice=LETTER)


def read_message(context: table.ToolContext, id: str) -> str:
    message = context.services.mailbox.message(context.call, context.account, id)
    return answers.mail_reply(message, offset=0, max_chars=20_000, quotes=False).text


def read_letter(context: table.ToolContext, id: str) -> str:
    entry = context.desk.calls.status(context.call, id)
    words = f"{answers.preview(entry.letter)}\n\n{entry.letter.text[:20_000]}"
    return f"{answers.letter_text(entry, context.desk.rules)}\n{answers.fenced_letter(words)}"


TOOLS: Final = (
    table.Tool(search_email, "Search mail", answers.SearchResult, table.READS),
    table.Tool(get_email, "Read a mail", answers.MailResult, table.READS),
    table.Tool(get_thread, "Read a conversation", answers.ThreadResult, table.READS),
    table.Tool(get_attachment, "Save an attachment", answers.FileResult, table.SETS),
    table.Tool(draft_email, "Draft a mail", answers.LetterResult, table.CHANGES),
    table.Tool(send_email, "Ask to send a mail", answers.LetterResult, table.ASKS),
    table.Tool(reply_email, "Ask to send a reply", answers.LetterResult, table.ASKS),
    table.Tool(move_email, "File a mail", answers.FilingResult, table.SETS),
    table.Tool(add_label, "Label a mail", answers.FilingResult, table.SETS),
    table.Tool(letter_status, "Ask after a letter", answers.StatusResult, table.READS),
    table.Tool(withdraw_letter, "Withdraw a letter", answers.LetterResult, table.REMOVES),
)
CONTRACT: Final = table.Contract(
    name="postroom",
    tools=TOOLS,
    resources=(
        table.Resource("message", "A mail", "One mail, by its id.", "get_email", read_message),
        table.Resource(
            "letter",
            "A letter of yours",
            "A letter and what became of it.",
            "letter_status",
            read_letter,
        ),
    ),
)
