"""The arguments of the contract `approval`, with the schemas of its documents, word for word."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from postroom.core.letter import MAX_SUBJECT
from postroom.tools.documents import MAX_ID
from postroom.tools.models import Arguments, at_most, matching

MAX_BODY: Final = 1_000_000


def _as_documented(schema: dict[str, Any]) -> None:
    del schema["additionalProperties"]  # refused all the same


class Request(Arguments):
    """What a tool is called with; its schema is the document's, word for word."""

    model_config = ConfigDict(json_schema_extra=_as_documented)


Body = Annotated[str, at_most(MAX_BODY)]
Id = Annotated[str, matching("[!-~]+", "is no id"), at_most(MAX_ID)]


class SearchEmailRequest(Request):
    query: Annotated[str, at_most(2_000)] = Field(
        description="Gmail search query (e.g., 'from:user@example.com subject:invoice after:2026/01/01')"
    )
    max_results: int = Field(5, ge=1, le=50, description="Maximum number of results to return")


class DraftEmailRequest(Request):
    to: str = Field(description="Recipient email address")
    subject: Annotated[str, at_most(MAX_SUBJECT)] = Field(description="Email subject line")
    body: Body = Field(description="Plain text email body")


class SendEmailRequest(DraftEmailRequest):
    """A letter to be sent."""


class ReplyEmailRequest(Request):
    thread_id: Id = Field(description="Gmail thread ID to reply to")
    message_id: Id = Field(
        description="Gmail message ID to reply to (for correct threading headers)"
    )
    body: Body = Field(description="Plain text reply body")
