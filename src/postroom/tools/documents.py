"""What the contracts that follow a document share: mail and letters without a fence, and errors from tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, Literal, NamedTuple

from postroom.core import life
from postroom.core.errors import Limited, PostroomError
from postroom.core.letter import Letter
from postroom.core.mail_view import people
from postroom.core.message import Party, Summary
from postroom.core.records import Entry
from postroom.core.text import clean, one_line
from postroom.desk.proposals import Written
from postroom.tools import table
from postroom.tools.listing import FOLDER

MAX_ID: Final = 200


def moment(date: int) -> datetime:
    return datetime.fromtimestamp(date, UTC)


def names(*parties: Party) -> str:
    return ", ".join(people(parties))


def snippet(summary: Summary, size: int) -> str:
    return one_line(summary.snippet)[:size].rstrip()


def body(text: str, size: int) -> str:
    whole = clean(text).text.strip("\n")
    left = len(whole) - size
    return f"{whole[:size]}\n[{left} more characters]" if left > 0 else whole


class Outcome(table.Result):
    """What became of a letter or a draft; `letter` is the id of one that was not sent."""

    message: str
    message_id: str = ""
    thread_id: str = ""
    draft_id: str = ""
    letter: str = ""
    status: str = ""


def outcome(text: str, **ids: str) -> table.Reply:
    return table.Reply(text, Outcome(message=text, **ids))


def refused(text: str, entry: Entry) -> table.Reply:
    return outcome(text, letter=entry.id, status=entry.kind)._replace(refused=True)


def rehearse(context: table.ToolContext, written: Written) -> Letter:
    """Return the letter that would be proposed, and leave the line of the call; nothing is entered."""
    composer = context.desk.composer
    letter = composer.letter(written) if written.answers else composer.preview(written)
    context.desk.calls.rehearse(context.call, letter)
    return letter


def unsent(entry: Entry) -> str:
    """Return what became of a letter that was not sent, if its document has no words for it."""
    return one_line(life.advise_agent(entry.id, entry.state, life.Audience.CONTRACT))[
        : table.MAX_ERROR
    ]


def minutes(seconds: float) -> int:
    return max(1, ceil(seconds / 60))


def shown_id(text: str) -> str:
    return one_line(text)[:MAX_ID]


class ErrorText(NamedTuple):
    """A row of a document's errors: the first row that fits an error has its text.

    A row fits errors of its class, whose attributes have the values of `when`. In the text, {head} begins an error of
    this tool, {message} is what is wrong, {sentence} the same without its full stop, {advice} that and what to do
    next, {minutes} how long to wait, {error} the error itself.
    """

    error: str
    text: str
    tools: Sequence[str] = ()  # of these alone
    when: Mapping[str, object] = {}

    def fits(self, tool: str, error: PostroomError) -> bool:
        return (
            self.error in (kind.__name__ for kind in type(error).__mro__)
            and (not self.tools or tool in self.tools)
            and all(getattr(error, name) == value for name, value in self.when.items())
        )


class DocumentTexts(NamedTuple):
    texts: Mapping[str, str]
    heads: Mapping[str, str] = {}
    errors: Sequence[ErrorText] = ()
    held: Mapping[str, str] = {}

    def text(self, name: str, **values: object) -> str:
        return self.texts[name].format(**values)

    def head(self, tool: str) -> str:
        return self.heads.get(tool) or self.heads["other"]

    def refuse(self, tool: str, error: PostroomError) -> table.Reply:
        problem = table.Problem.of(error, tool)
        row = next(row for row in self.errors if row.fits(tool, error))
        text = row.text.format(
            head=self.head(tool),
            message=problem.message,
            sentence=problem.message.rstrip("."),
            advice=problem.advice,
            error=error,
            minutes=minutes(error.seconds) if isinstance(error, Limited) else 0,
        )
        return table.Reply(
            text, table.Failure(error={"code": error.code, "message": text}), refused=True
        )


def load(name: str) -> DocumentTexts:
    with open(f"{FOLDER}/{name}.toml", "rb") as file:  # noqa: PTH123
        data = tomllib.load(file)
    del data["instructions"]  # which are listed
    errors = [ErrorText(**row) for row in data.pop("errors", ())]
    return DocumentTexts(**data, errors=errors)


# Document 003's errors: JSON with one code of a closed list.
MCPErrorCode = Literal[
    "auth_required",
    "not_found",
    "rate_limited",
    "permission_denied",
    "parse_error",
    "send_failed",
    "mcp_unavailable",
    "internal_error",
]
# The vault has one more: a note that was changed since it was read.
VaultErrorCode = MCPErrorCode | Literal["conflict"]
CODES: Final[Mapping[str, VaultErrorCode]] = {
    "conflict": "conflict",
    "invalid_input": "parse_error",  # as HTTP has 422 for both
    "not_found": "not_found",
    "permission_denied": "permission_denied",
    "rate_limited": "rate_limited",
    "auth_required": "auth_required",
    "parse_error": "parse_error",
}


class MCPError(table.Result):
    error: VaultErrorCode
    message: str
    details: dict[str, Any] | None


def mcp_error(code: VaultErrorCode, message: str, **details: object) -> table.Reply:
    failure = MCPError(error=code, message=message, details=details or None)
    return table.in_json(failure)._replace(refused=True)


def mcp_refusal(
    tool: str, error: PostroomError, default: MCPErrorCode = "internal_error"
) -> table.Reply:
    """Return one of our errors as one of the document's, or by the default if it has no code for it."""
    details = table.error_details(error)
    if error.remedy:
        details["remedy"] = one_line(error.remedy)
    code = CODES.get(error.code, default)
    return mcp_error(code, table.Problem.of(error, tool).message, **details)
