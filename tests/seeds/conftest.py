"""Servers for the tests of the seed documents.

`shared_site` is one server for each document and mode, which many tests use, each with recipients of its own.
The `start_…_site` fixtures start a server for one test.
"""

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

from postroom.config.loading import load
from postroom.desk.desk import Effects
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
    """A person, and an agent that is connected to their server in this process."""

    person: Person
    agent: Visitor

    def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        """Call a tool and return the answer as the SDK has it."""
        return self.agent.call(tool, **arguments).raw

    def text(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must succeed, and return its whole text."""
        return answer_text(self.call(tool, **arguments), refused=False)

    def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that must refuse, and return its whole text."""
        return answer_text(self.call(tool, **arguments), refused=True)

    def slip(self, name: str, *, folder: str = "Approved", **fields: str) -> Path:
        """Write an approval as a person would, by hand."""
        head = "".join(f"{key}: {value}\n" for key, value in fields.items())
        note = self.person.vault / folder / f"{name}.md"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"---\n{head}---\n\nRisk: low.\nRollback: none.\n")
        return note

    def actions(self) -> list[dict[str, Any]]:
        """Return the entries of the vault's log, oldest first, once all that the ledger has are there."""
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
        """Return the entries of the log that tool calls have made."""
        return [line for line in self.actions() if line["actor"] == "email_mcp"]

    def raw(self, id: str) -> str:
        """Return a mail's source."""
        return self.person.run("read", id, "--raw").out


@dataclass
class TimedSite(Site):
    """A site on a virtual clock, which moves while a call waits, or when the test sets it forward."""

    clock: Clock


@dataclass
class GmailSite(TimedSite):
    """A timed site whose mailbox is Gmail's double; `pauses` are the seconds that it would have waited."""

    service: Gmail
    pauses: list[float]


def answer_text(answer: CallToolResult, *, refused: bool) -> str:
    """Return the text of an answer, which must be an error if `refused`, and a success otherwise."""
    block = narrow(answer.content[0], TextContent)
    assert len(answer.content) == 1
    assert answer.is_error is refused, block.text
    return block.text


def write_settings(
    person: Person, mode: str, approvals: dict[str, Any], limits: dict[str, Any]
) -> None:
    """Write the person's settings; every mode but `live` is rehearsal."""
    file = person.folder / ".config" / "postroom" / "postroom.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ["dry_run = false"] if mode == "live" else []
    for name, table in (("approvals", approvals), ("limits", limits)):
        rows += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    file.write_text("\n".join([*rows, ""]))


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's folder with the sample mail, and a mail with several recipients; imported once."""
    person = Person(tmp_path_factory.mktemp("imported"))
    assert person.run("import", str(SAMPLE)).code == 0
    arrive(person, "round", sender="Ann Lee <ann@example.com>", to="you@example.org, Bob <bob@example.net>", subject="Round table", headers="Cc: Cat <cat@example.net>\n")  # fmt: skip
    return person.folder


@contextmanager
def site(folder: Path, imported: Path, contract: str, mode: str = "rehearsal", approvals: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **environment: str) -> Iterator[Site]:  # fmt: skip
    """Start a server in this folder, for a person with the sample mail, and yield it."""
    person = Person(folder)
    if not (folder / "state").exists():
        shutil.copytree(imported / "state", folder / "state")
    (person.vault / "Approved").mkdir(parents=True, exist_ok=True)
    person.environment |= environment
    write_settings(
        person, mode, {"undo_seconds": 0, **(approvals or {})}, WIDE if limits is None else limits
    )
    server = contract_of("vault") if contract == "vault" else contract_of("email", contract)
    with visiting_inside(person, contract=server) as agent:
        yield Site(person, agent)


@pytest.fixture(scope="session")
def shared_site(
    tmp_path_factory: pytest.TempPathFactory, imported: Path
) -> Iterator[Callable[..., Site]]:
    """A function that returns the server of a contract in a mode, which all tests of a worker share."""
    with ExitStack() as stack:
        started: dict[tuple[object, ...], Site] = {}

        def get(contract: str, mode: str = "rehearsal", **approvals: Any) -> Site:
            key = (contract, mode, *sorted(approvals.items()))
            if key not in started:
                folder = tmp_path_factory.mktemp(f"{contract}-{mode}")
                opened = site(folder, imported, contract, mode, approvals)
                started[key] = stack.enter_context(opened)
            return started[key]

        yield get


@pytest.fixture
def start_site(tmp_path: Path, imported: Path) -> Iterator[Callable[..., Site]]:
    """A function that starts a server for this test alone."""
    with ExitStack() as stack:

        def start(contract: str, mode: str = "live", **options: Any) -> Site:
            return stack.enter_context(site(tmp_path, imported, contract, mode, **options))

        yield start


@pytest.fixture
def start_gmail_site(
    start_site: Callable[..., Site], service: Gmail, person: Person
) -> Callable[..., Site]:
    """A function that starts a server whose mailbox is Gmail's double on a local port."""

    def start(contract: str, mode: str = "live", *, signed_in: bool = True, token: dict[str, Any] | None = None, environment: dict[str, str] | None = None, **options: Any) -> Site:  # fmt: skip
        at_gmail(person, service, signed_in=signed_in, **token or {})
        found = {key: value for key, value in person.environment.items() if key.startswith(("POSTROOM_P", "GMAIL"))}  # fmt: skip
        return start_site(contract, mode, **options, **found | (environment or {}))

    return start


@pytest.fixture
def start_timed_site(person: Person) -> Iterator[Callable[..., TimedSite]]:
    """A function that starts a server on a virtual clock; a second one can share the first one's `clock`."""
    with ExitStack() as stack:

        def start(contract: str, mode: str = "live", *, approvals: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, clock: Clock | None = None) -> TimedSite:  # fmt: skip
            (person.vault / "Approved").mkdir(parents=True, exist_ok=True)
            write_settings(person, mode, {"undo_seconds": 0, **(approvals or {})}, limits or {})
            config = load(person.environment, person.folder, person.folder)
            state = state_folder(config, make=True)
            assert state is not None
            now = clock or Clock()
            tools = Effects(clock=now, draw=os.urandom, sleep=now.go)
            desk = open_desk(config, state, stack, effects=tools)
            served = serving(desk, now, contract_of("email", contract))
            return TimedSite(person, stack.enter_context(served), now)

        yield start


@pytest.fixture
def start_office_site(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., TimedSite]]:
    """A function that starts a server over the desk of an `Office`; `wrap` returns the mailbox that it sends through."""
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
def start_timed_gmail_site(
    start_office_site: Callable[..., TimedSite], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., GmailSite]]:
    """A function that starts a server on a virtual clock, with Gmail's double in this process as its mailbox."""
    with ExitStack() as stack:

        def start(contract: str, *, by_draft: bool = True, **rules: Any) -> GmailSite:
            service, pauses = Gmail(now=lambda: NOW), list[float]()
            token = token_file(tmp_path_factory.mktemp("token"), service.token())
            box = box_on(service, token, pauses, by_draft=by_draft)
            stack.callback(box.close)
            found = start_office_site(contract, lambda _local: box, **rules)
            return GmailSite(found.person, found.agent, found.clock, service, pauses)

        yield start
