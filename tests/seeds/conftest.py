"""One server a document, mode and worker: started once, asked by many tests, each with people of its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from postroom.config import load
from postroom.desk.desk import Tools
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Mailbox
from postroom.tools.table import Contract
from postroom.wiring import state_folder
from postroom.wiring.desk import open_desk
from tests.agents import SAMPLE, Visitor, contract_of, visiting_inside
from tests.arrivals import arrive
from tests.conftest import Person
from tests.desks import Clock, Office
from tests.gmail.boxes import NOW, box_on, token_file
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail
from tests.narrow import narrow
from tests.seeds.virtual import serving

MANY = 100_000
WIDE = {"sends_per_hour": 10_000, "sends_per_pace": 10_000, "recipients_per_hour": MANY, "open_letters": 1_000, "proposals_per_hour": 10_000, "replies_per_thread": 1_000}  # fmt: skip


@dataclass
class Site:
    """A person, and an agent that is connected to their server."""

    person: Person
    agent: Visitor

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool and return the raw answer."""
        return self.agent.call(tool, **arguments).raw

    def text(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must succeed, and return its whole text."""
        return told(self.call(tool, **arguments), refused=False)

    def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must refuse, and return its whole text."""
        return told(self.call(tool, **arguments), refused=True)

    def slip(self, name: str, *, folder: str = "Approved", **fields: str) -> Path:
        """Write an approval as a person would, by hand."""
        head = "".join(f"{key}: {value}\n" for key, value in fields.items())
        note = self.person.vault / folder / f"{name}.md"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"---\n{head}---\n\nRisk: low.\nRollback: none.\n")
        return note

    def actions(self) -> list[dict[str, Any]]:
        """Return the lines of the log, oldest first, once the file shows what the ledger has."""
        ledger, head = self.person.folder / "state" / "ledger.sqlite", 0
        if ledger.exists():
            with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as book:
                (head,) = book.execute("SELECT max(seq) FROM action").fetchone()
        deadline = time.monotonic() + 30
        while len(rows := self._rows()) < (head or 0):
            assert time.monotonic() < deadline, "the log stays behind the ledger"
            select.select([], [], [], 0.02)
        return [json.loads(row) for row in rows]

    def _rows(self) -> list[str]:
        files = sorted((self.person.vault / "Logs" / "actions").glob("*.json"))
        return [row for file in files for row in file.read_text().splitlines()]

    def calls(self) -> list[dict[str, Any]]:
        """Return the lines that tool calls have left."""
        return [line for line in self.actions() if line["actor"] == "email_mcp"]

    def raw(self, id: str) -> str:
        """Return the bytes of a mail, as text."""
        return self.person.run("read", id, "--raw").out


@dataclass
class TimedSite(Site):
    """A site whose time passes only while its calls wait, and when the test says so."""

    clock: Clock


@dataclass
class GmailSite(TimedSite):
    """A site with Gmail's double behind it, in this process; `pauses` are the seconds that it would have paused."""

    service: Gmail
    pauses: list[float]


def told(answer: CallToolResult, *, refused: bool) -> str:
    block = narrow(answer.content[0], TextContent)
    assert len(answer.content) == 1
    assert answer.is_error is refused, block.text
    return block.text


def settle(person: Person, mode: str, approvals: dict[str, Any], limits: dict[str, Any]) -> None:
    """Write the person's settings."""
    file = person.folder / ".config" / "postroom" / "postroom.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ["dry_run = false"] if mode == "live" else []
    for name, table in (("approvals", approvals), ("limits", limits)):
        rows += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    file.write_text("\n".join([*rows, ""]))


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty mails, and one that everybody may answer, imported once."""
    person = Person(tmp_path_factory.mktemp("imported"))
    assert person.run("import", str(SAMPLE)).code == 0
    arrive(person, "round", sender="Ann Lee <ann@example.com>", to="you@example.org, Bob <bob@example.net>", subject="Round table", headers="Cc: Cat <cat@example.net>\n")  # fmt: skip
    return person.folder


@contextmanager
def site(folder: Path, imported: Path, contract: str, mode: str = "rehearsal", approvals: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **environment: str) -> Iterator[Site]:  # fmt: skip
    """Start a server for somebody with the sample mail, and lend it."""
    person = Person(folder)
    if not (folder / "state").exists():
        shutil.copytree(imported / "state", folder / "state")
    (person.vault / "Approved").mkdir(parents=True, exist_ok=True)
    person.environment |= environment
    settle(
        person, mode, {"undo_seconds": 0, **(approvals or {})}, WIDE if limits is None else limits
    )
    server = contract_of("vault") if contract == "vault" else contract_of("email", contract)
    with visiting_inside(person, contract=server) as agent:
        yield Site(person, agent)


@pytest.fixture(scope="session")
def sites(
    tmp_path_factory: pytest.TempPathFactory, imported: Path
) -> Iterator[Callable[..., Site]]:
    """Lend the server of a contract in a mode, started when it is first asked for."""
    with ExitStack() as stack:
        there: dict[tuple[object, ...], Site] = {}

        def lend(contract: str, mode: str = "rehearsal", **approvals: Any) -> Site:
            key = (contract, mode, *sorted(approvals.items()))
            if key not in there:
                folder = tmp_path_factory.mktemp(f"{contract}-{mode}")
                opened = site(folder, imported, contract, mode, approvals)
                there[key] = stack.enter_context(opened)
            return there[key]

        yield lend


@pytest.fixture
def alone(tmp_path: Path, imported: Path) -> Iterator[Callable[..., Site]]:
    """Lend a way to start a server of one's own, for what others would disturb."""
    with ExitStack() as stack:

        def start(contract: str, mode: str = "live", **options: Any) -> Site:
            return stack.enter_context(site(tmp_path, imported, contract, mode, **options))

        yield start


@pytest.fixture
def outside(alone: Callable[..., Site], service: Gmail, person: Person) -> Callable[..., Site]:
    """Lend a way to start a server whose mailbox is a double of Gmail's service."""

    def start(contract: str, mode: str = "live", *, signed_in: bool = True, token: dict[str, Any] | None = None, environment: dict[str, str] | None = None, **options: Any) -> Site:  # fmt: skip
        at_gmail(person, service, signed_in=signed_in, **token or {})
        found = {key: value for key, value in person.environment.items() if key.startswith(("POSTROOM_P", "GMAIL"))}  # fmt: skip
        return alone(contract, mode, **options, **found | (environment or {}))

    return start


@pytest.fixture
def timed(person: Person) -> Iterator[Callable[..., TimedSite]]:
    """Lend a way to start a server whose waits take no time; with the same clock, as another process would."""
    with ExitStack() as stack:

        def start(contract: str, mode: str = "live", *, approvals: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, clock: Clock | None = None) -> TimedSite:  # fmt: skip
            (person.vault / "Approved").mkdir(parents=True, exist_ok=True)
            settle(person, mode, {"undo_seconds": 0, **(approvals or {})}, limits or {})
            config = load(person.environment, person.folder, person.folder)
            state = state_folder(config, make=True)
            assert state is not None
            now = clock or Clock()
            tools = Tools(clock=now, draw=os.urandom, sleep=now.go)
            desk = open_desk(config, state, stack, tools=tools)
            served = serving(desk, now, contract_of("email", contract))
            return TimedSite(person, stack.enter_context(served), now)

        yield start


@pytest.fixture
def in_office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., TimedSite]]:
    """Lend a way to start a server over a desk of `tests.desks`; `wrap` puts a provider behind it."""
    with ExitStack() as stack:

        def start(
            contract: str | Contract, wrap: Callable[[LocalMailbox], Mailbox], **rules: Any
        ) -> TimedSite:
            folder = tmp_path_factory.mktemp("office")
            office = Office(folder)
            stack.callback(office.close)
            office.wrap = wrap
            desk = office.reopen(undo_seconds=0, **rules)
            shown = contract_of("email", contract) if isinstance(contract, str) else contract
            agent = stack.enter_context(serving(desk, office.clock, shown))
            return TimedSite(Person(folder), agent, office.clock)

        yield start


@pytest.fixture
def gmail_inside(
    in_office: Callable[..., TimedSite], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., GmailSite]]:
    """Lend a way to start a server with Gmail's double in this process, whose pauses take no time."""
    with ExitStack() as stack:

        def start(contract: str, **rules: Any) -> GmailSite:
            service, pauses = Gmail(now=lambda: NOW), list[float]()
            token = token_file(tmp_path_factory.mktemp("token"), service.token())
            box = box_on(service, token, pauses)
            stack.callback(box.close)
            found = in_office(contract, lambda _local: box, **rules)
            return GmailSite(found.person, found.agent, found.clock, service, pauses)

        yield start
