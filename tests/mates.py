"""Agents that share a repository, each with a server of its own and a name from its environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from postroom.agents.record import AgentMessage, read_message
from tests.agents import Visitor, contract_of, visiting_inside
from tests.conftest import Person


def member(folder: Path, name: str = "", **environment: str) -> Person:
    """Return somebody in this repository, under this name."""
    (folder / ".git").mkdir(exist_ok=True)
    person = Person(folder)
    person.environment |= ({"AGENTMAIL_NAME": name} if name else {}) | environment
    return person


@contextmanager
def mates(folder: Path, *names: str, server: str = "agents") -> Iterator[list[Visitor]]:
    """Lend the agents of a server for each name, in this process, who know of each other."""
    listing = "list-recipients" if server == "agents" else "list_agents"
    contract = contract_of(server)
    with ExitStack() as stack:
        found = [
            stack.enter_context(visiting_inside(member(folder, name), agent="", contract=contract))
            for name in names
        ]
        for one in found:
            one.done(listing)
        yield found


def messages(folder: Path, name: str) -> list[AgentMessage]:
    """Return what is in a mailbox."""
    file = folder / ".agentmail" / "mailboxes" / f"{name}.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [message for message in map(read_message, lines) if message]


def logged(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the log, once all servers have ended or somebody has looked."""
    Person(folder).run("pending")
    files = sorted((folder / "vault" / "Logs" / "actions").glob("*.json"))
    return [json.loads(row) for file in files for row in file.read_text().splitlines()]
