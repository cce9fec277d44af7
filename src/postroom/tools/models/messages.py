"""The arguments of the tools for letters between agents."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from postroom.tools.models import Arguments, at_most

MAX_WAIT: Final = 60

Id = Annotated[str, at_most(64)]


class SendMessage(Arguments):
    recipient: Annotated[str, at_most(256), Field(description="from list_agents")] = ""
    message: str = Field(description="at most 64 KB")
    reply_to: Annotated[Id, Field(description="id; then recipient may be left out")] = ""


class ReceiveMessage(Arguments):
    wait_seconds: int = Field(0, ge=0, le=MAX_WAIT)
    peek: Annotated[bool, Field(description="leave it unread")] = False


class SetStatus(Arguments):
    status: Literal["ready", "work", "offline"]


class ListAgents(Arguments):
    """Nothing."""


class SearchMessages(Arguments):
    query: Annotated[str, at_most(1_000), Field(description="words")] = ""
    agent: Annotated[str, at_most(256)] = ""
    thread: Id = ""
    id: Annotated[Id, Field(description="this one, whole")] = ""
    offset: int = Field(0, ge=0)
