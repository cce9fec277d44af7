"""The arguments of the contract `dry-run`; the section of its document is named at each."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from postroom.tools.contracts.dry_run_input import MAX_BODY, MAX_SUBJECT
from postroom.tools.documents import MAX_ID
from postroom.tools.models import Arguments, at_most

MAX_HTML: Final = 1_000_000


def _told(about: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401 - pydantic's own
    return Field(json_schema_extra=about, **more)


Subject = Annotated[str, StringConstraints(min_length=1), _told({"maxLength": MAX_SUBJECT})]
Body = Annotated[str, StringConstraints(min_length=1), _told({"maxLength": MAX_BODY})]
Html = Annotated[str, at_most(MAX_HTML)]


class DraftEmail(Arguments):
    """Section 4B."""

    to: str = _told({"format": "email"}, description="Recipient email address")
    subject: Subject = Field(description="Email subject line")
    body: Body = Field(description="Email body (plain text)")
    cc: str = Field(default_factory=str, description="CC recipients (comma-separated)")
    bcc: str = Field(default_factory=str, description="BCC recipients (comma-separated)")
    html_body: Html = Field(default_factory=str, description="Optional HTML version")


class SendEmail(DraftEmail):
    """Section 4A."""

    reply_to: str = _told({"format": "email"}, default_factory=str, description="Reply-To header")


class SearchEmails(Arguments):
    """Section 4C."""

    query: Annotated[str, at_most(2_000)] = Field(
        min_length=1,
        description="Gmail search query (e.g., 'from:john subject:invoice after:2026/01/01')",
    )
    max_results: int = Field(10, ge=1, le=50)
    include_body: bool = Field(False, description="Include full email body in results")  # noqa: FBT003


class ReplyToThread(Arguments):
    """Section 4D."""

    thread_id: Annotated[str, at_most(MAX_ID)] = Field(
        min_length=1, description="Gmail thread ID to reply to"
    )
    body: Body
    reply_all: bool = Field(False, description="Reply to all recipients")  # noqa: FBT003
    html_body: Html = Field(default_factory=str)
