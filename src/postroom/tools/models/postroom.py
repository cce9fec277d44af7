"""The arguments of the contract `postroom`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from postroom.core.outgoing_html import MAX_HTML
from postroom.tools.models import Arguments, at_most

MAX_BODY: Final = 1_000_000

Id = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, at_most(MAX_BODY)]
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
    body: Text = ""
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
    body: Text = ""
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
