"""The arguments of the contract `agents`, with the names of the program's data model."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from postroom.agents.mail import MAX_BYTES
from postroom.tools.models import Arguments


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
