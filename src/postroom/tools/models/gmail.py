"""The arguments of the contract `gmail`, with the document's names."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from postroom.core.letter import MAX_SUBJECT
from postroom.tools.documents import MAX_ID
from postroom.tools.models import Arguments, at_most

MAX_BODY: Final = 1_000_000

Id = Annotated[str, Field(min_length=1), at_most(MAX_ID)]


class SendEmailInput(Arguments):
    to: str = Field(description="recipient email address")
    subject: Annotated[str, at_most(MAX_SUBJECT)] = Field(description="email subject line")
    body: Annotated[str, at_most(MAX_BODY)] = Field(description="plain-text or HTML body")
    reply_to_message_id: Id | None = Field(
        None, description="thread reply; uses In-Reply-To header"
    )


class ListEmailsInput(Arguments):
    query: Annotated[str, at_most(2_000)] = Field(
        "is:unread", description="Gmail search query (same syntax as Gmail UI)"
    )
    max_results: int = Field(10, ge=1, le=100)


class GetEmailInput(Arguments):
    message_id: Id = Field(description="Gmail message ID (from list_emails)")


class MoveEmailInput(Arguments):
    message_id: Id = Field(description="Gmail message ID")
    destination_label: Id = Field(
        description='Gmail label name, e.g. "INBOX", "DONE", custom label'
    )


class AddLabelInput(Arguments):
    message_id: Id = Field(description="Gmail message ID")
    label_name: Id = Field(description='Label to apply, e.g. "AI_PROCESSED"')
