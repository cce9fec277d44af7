"""The models of the tools' arguments: what a tool takes, described and bounded.

No server imports them. `python -m postroom.tools.listing` writes what they say into `contracts/NAME.json`,
from which servers list their tools and check each call. A function of a contract names its model in the
annotation of its second parameter. The contracts that follow a document have its names, texts and bounds.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from postroom.agents.mail import MAX_BYTES
from postroom.core.letter import MAX_SUBJECT
from postroom.core.outgoing_html import MAX_HTML
from postroom.tools.contracts import dry_run_input
from postroom.tools.contracts.vault import SHOWN
from postroom.tools.documents import MAX_ID

MAX_BODY: Final = 1_000_000
MAX_WAIT: Final = 60  # seconds


class Arguments(BaseModel):
    """What a tool is called with: of these types and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def at_most(size: int) -> AfterValidator:
    """Return a bound on a text that is enforced, and not listed."""
    return AfterValidator(partial(check_size, size))


def matching(pattern: str, message: str) -> AfterValidator:
    """Return a regular expression that a whole text must match, which is enforced and not listed."""
    return AfterValidator(partial(check_pattern, pattern, message))


def check_size(size: int, text: str) -> str:
    """Return the text, or raise if it has more characters than this."""
    if len(text) > size:
        raise ValueError(f"has more than {size:,} characters")
    return text


def check_pattern(pattern: str, message: str, text: str) -> str:
    """Return the text, or raise this message if the pattern does not match all of it."""
    if not re.fullmatch(pattern, text):
        raise ValueError(message)
    return text


Body = Annotated[str, at_most(MAX_BODY)]
Subject = Annotated[str, at_most(MAX_SUBJECT)]
Query = Annotated[str, at_most(2_000)]
ShortText = Annotated[str, at_most(1_000)]


# `postroom`

Id = Annotated[str, Field(min_length=1, max_length=200)]
Page = Annotated[
    str,
    at_most(MAX_HTML),
    Field(
        description="instead of body: p br div b i u s a[href] ul ol li table …; no style, image or comment"
    ),
]
People = Annotated[list[Annotated[str, Field(max_length=1_000)]], Field(max_length=100)]
Files = Annotated[
    list[Annotated[str, Field(max_length=1_000)]],
    Field(max_length=20, description="Outgoing/FILE in the vault, or mail:ID/PART"),
]
Key = Annotated[str, Field(max_length=200)]
Repeat = Annotated[
    str, Field(max_length=200, description="a new key makes a new letter of the same words")
]
Former = Annotated[str, Field(max_length=200, description="your letter that this one replaces")]


class SearchMail(Arguments):
    query: Annotated[str, Field(max_length=2_000)] = ""
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    cursor: Key = ""


class ReadMail(Arguments):
    id: Id
    offset: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    max_chars: Annotated[int, Field(ge=200, le=20_000)] = 8_000
    quotes: bool = False


class ReadThread(Arguments):
    id: Id
    cursor: Key = ""
    max_chars: Annotated[int, Field(ge=200, le=20_000)] = 12_000
    quotes: bool = False


class SaveAttachment(Arguments):
    id: Id
    part: Annotated[str, Field(min_length=1, max_length=200, description="as get_email lists it")]


class WriteLetter(Arguments):
    to: People
    subject: Annotated[str, Field(max_length=998)] = ""
    body: Body = ""
    cc: People = Field(default_factory=list)
    bcc: People = Field(default_factory=list)
    html: Page = ""
    attachments: Files = Field(default_factory=list)


class KeepDraft(WriteLetter):
    draft_id: Key = ""


class SendLetter(WriteLetter):
    idempotency_key: Repeat = ""
    replaces: Former = ""


class ReplyToMail(Arguments):
    id: Key = ""
    thread: Key = ""
    body: Body = ""
    reply_all: bool = False
    cc: People = Field(default_factory=list)
    bcc: People = Field(default_factory=list)
    html: Page = ""
    attachments: Files = Field(default_factory=list)
    as_draft: bool = False
    idempotency_key: Repeat = ""
    replaces: Former = ""


class MoveMail(Arguments):
    id: Id
    destination: Id


class LabelMail(Arguments):
    id: Id
    label: Id


class AskStatus(Arguments):
    id: Key = ""
    wait: Annotated[int, Field(ge=0, le=20)] = 0


class WithdrawLetter(Arguments):
    id: Id


# `approval`: the schemas of its documents, word for word


def _as_documented(schema: dict[str, Any]) -> None:
    del schema["additionalProperties"]  # refused all the same


class DocumentedRequest(Arguments):
    """What a tool is called with; its schema is the document's, word for word."""

    model_config = ConfigDict(json_schema_extra=_as_documented)


GmailId = Annotated[str, matching("[!-~]+", "is no id"), at_most(MAX_ID)]


class SearchEmailRequest(DocumentedRequest):
    query: Query = Field(
        description="Gmail search query (e.g., 'from:user@example.com subject:invoice after:2026/01/01')"
    )
    max_results: int = Field(5, ge=1, le=50, description="Maximum number of results to return")


class DraftEmailRequest(DocumentedRequest):
    to: str = Field(description="Recipient email address")
    subject: Subject = Field(description="Email subject line")
    body: Body = Field(description="Plain text email body")


class SendEmailRequest(DraftEmailRequest):
    """A letter to be sent."""


class ReplyEmailRequest(DocumentedRequest):
    thread_id: GmailId = Field(description="Gmail thread ID to reply to")
    message_id: GmailId = Field(
        description="Gmail message ID to reply to (for correct threading headers)"
    )
    body: Body = Field(description="Plain text reply body")


# `dry-run`: the section of its document is named at each; what is longer than a listed bound is cut

CutSubject = Annotated[
    str,
    StringConstraints(min_length=1),
    Field(json_schema_extra={"maxLength": dry_run_input.MAX_SUBJECT}),
]
CutBody = Annotated[
    str,
    StringConstraints(min_length=1),
    Field(json_schema_extra={"maxLength": dry_run_input.MAX_BODY}),
]
HtmlBody = Annotated[str, at_most(1_000_000)]


class DraftEmail(Arguments):  # section 4b
    to: str = Field(json_schema_extra={"format": "email"}, description="Recipient email address")
    subject: CutSubject = Field(description="Email subject line")
    body: CutBody = Field(description="Email body (plain text)")
    cc: str = Field(default_factory=str, description="CC recipients (comma-separated)")
    bcc: str = Field(default_factory=str, description="BCC recipients (comma-separated)")
    html_body: HtmlBody = Field(default_factory=str, description="Optional HTML version")


class SendEmail(DraftEmail):  # section 4a
    reply_to: str = Field(
        json_schema_extra={"format": "email"}, default_factory=str, description="Reply-To header"
    )


class SearchEmails(Arguments):  # section 4c
    query: Query = Field(
        min_length=1,
        description="Gmail search query (e.g., 'from:john subject:invoice after:2026/01/01')",
    )
    max_results: int = Field(10, ge=1, le=50)
    include_body: bool = Field(False, description="Include full email body in results")  # noqa: FBT003


class ReplyToThread(Arguments):  # section 4d
    thread_id: Annotated[str, at_most(MAX_ID)] = Field(
        min_length=1, description="Gmail thread ID to reply to"
    )
    body: CutBody
    reply_all: bool = Field(False, description="Reply to all recipients")  # noqa: FBT003
    html_body: HtmlBody = Field(default_factory=str)


# `gmail`

MessageId = Annotated[str, Field(min_length=1), at_most(MAX_ID)]


class SendEmailInput(Arguments):
    to: str = Field(description="recipient email address")
    subject: Subject = Field(description="email subject line")
    body: Body = Field(description="plain-text or HTML body")
    reply_to_message_id: MessageId | None = Field(
        None, description="thread reply; uses In-Reply-To header"
    )


class ListEmailsInput(Arguments):
    query: Query = Field("is:unread", description="Gmail search query (same syntax as Gmail UI)")
    max_results: int = Field(10, ge=1, le=100)


class GetEmailInput(Arguments):
    message_id: MessageId = Field(description="Gmail message ID (from list_emails)")


class MoveEmailInput(Arguments):
    message_id: MessageId = Field(description="Gmail message ID")
    destination_label: MessageId = Field(
        description='Gmail label name, e.g. "INBOX", "DONE", custom label'
    )


class AddLabelInput(Arguments):
    message_id: MessageId = Field(description="Gmail message ID")
    label_name: MessageId = Field(description='Label to apply, e.g. "AI_PROCESSED"')


# `vault`

Etag = Annotated[str, at_most(100), Field(description="etag of what you read")]


class ReadNoteInput(Arguments):
    path: ShortText = Field(description='vault-relative path, e.g. "Needs_Action/email-001.md"')
    offset: int = Field(0, ge=0)
    raw: Annotated[bool, Field(description="the whole text, unparsed")] = False
    max_chars: int = Field(SHOWN, ge=200, le=200_000)


class WriteNoteInput(Arguments):
    path: ShortText = Field(description="vault-relative path (created if not exists)")
    frontmatter: dict[str, Any] = Field(description="YAML key-value pairs")
    body: Body = Field(description="markdown body content")
    if_match: Etag = ""


class EditNoteInput(Arguments):
    path: ShortText
    append: Body = ""
    prepend: Body = ""
    find: Annotated[Body, Field(description="text that stands there once; replace it")] = ""
    replace: Body = ""  # which must be given with `find`, though it be empty
    heading: Annotated[ShortText, Field(description="only in its part, with subheadings")] = ""
    set: dict[str, Any] = Field(default_factory=dict, description="frontmatter")
    remove: list[str] = Field(default_factory=list, max_length=100, description="frontmatter keys")
    if_match: Etag = ""


class ListNotesInput(Arguments):
    directory: ShortText = Field(description='vault-relative directory, e.g. "Needs_Action"')
    filter: Query | None = Field(
        None, description='frontmatter filter, e.g. "status:pending AND tags:work"'
    )
    cursor: Query = ""


class MoveNoteInput(Arguments):
    source: ShortText = Field(description="vault-relative source path")
    destination: ShortText = Field(description="vault-relative destination path")


class SearchNotesInput(Arguments):
    query: ShortText = Field(description="text to search for in note body or frontmatter values")
    cursor: Query = ""


# Messages between agents, in the server `all`

AgentMailId = Annotated[str, at_most(64)]


class SendMessage(Arguments):
    recipient: Annotated[str, at_most(256), Field(description="from list_agents")] = ""
    message: str = Field(description="at most 64 KB")
    reply_to: Annotated[AgentMailId, Field(description="id; then recipient may be left out")] = ""


class ReceiveMessage(Arguments):
    wait_seconds: int = Field(0, ge=0, le=MAX_WAIT)
    peek: Annotated[bool, Field(description="leave it unread")] = False


class SetStatus(Arguments):
    status: Literal["ready", "work", "offline"]


class ListAgents(Arguments):
    """Nothing."""


class SearchMessages(Arguments):
    query: Annotated[ShortText, Field(description="words")] = ""
    agent: Annotated[str, at_most(256)] = ""
    thread: AgentMailId = ""
    id: Annotated[AgentMailId, Field(description="this one, whole")] = ""
    offset: int = Field(0, ge=0)


# `agents`: the names of the program's data model


def required(*names: str) -> ConfigDict:
    """Return what makes a schema ask for what is missed only later, in the program's own words."""
    return ConfigDict(json_schema_extra={"required": list(names)})


class SendParams(Arguments):
    model_config = required("recipient", "message")
    recipient: str = Field("", description="The tmux window name of the recipient agent")
    message: str = Field(
        "",
        description="The message content to send (max 64KB)",
        json_schema_extra={"maxLength": MAX_BYTES},
    )


class ReceiveParams(Arguments):
    """Nothing."""


class StatusParams(Arguments):
    model_config = required("status")
    status: str = Field(
        "",
        description="The availability status to set",
        json_schema_extra={"enum": ["ready", "work", "offline"]},
    )
