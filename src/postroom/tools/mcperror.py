"""Errors as document clients of the Gmail and the vault server know them: JSON with one of few codes."""

from __future__ import annotations

from typing import Any, Final, Literal

from postroom.core.errors import Limited, PostroomError
from postroom.core.text import one_line
from postroom.tools import plain
from postroom.tools.table import Reply, Result, in_json

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
# The list is closed: what a call got wrong is `parse_error`, as HTTP's 422 stands for both.
CODES: Final[dict[str, MCPErrorCode]] = {
    "invalid_input": "parse_error",
    "not_found": "not_found",
    "permission_denied": "permission_denied",
    "rate_limited": "rate_limited",
    "auth_required": "auth_required",
    "parse_error": "parse_error",
}


class MCPError(Result):
    """What went wrong."""

    error: VaultErrorCode
    message: str
    details: dict[str, Any] | None


def mcp_error(code: VaultErrorCode, message: str, **details: object) -> Reply:
    """Return an error as a tool's answer."""
    wrong = MCPError(error=code, message=message, details=details or None)
    return in_json(wrong)._replace(refused=True)


def refusal(tool: str, error: PostroomError, default: MCPErrorCode) -> Reply:
    """Return one of our errors as one of the document's; those that it has no code for by default."""
    details: dict[str, object] = {"remedy": one_line(error.remedy)} if error.remedy else {}
    if isinstance(error, Limited):
        details["retry_after_seconds"] = round(error.seconds, 1)
    return mcp_error(CODES.get(error.code, default), plain.wrong(error, tool), **details)
