"""An agent for tests: the SDK's own client, over stdio or HTTP, in either era of the protocol."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from postroom.cli.mcp import Office
from postroom.config import Config, load
from postroom.tools.contracts.all import CONTRACT
from postroom.tools.serve import Service
from postroom.tools.table import Contract
from tests.conftest import Person

SAMPLE = Path(__file__).parents[1] / "src" / "postroom" / "sample" / "mail.mbox"
ERAS = ("auto", "legacy")  # 2026-07-28, and the handshake before it


@dataclass
class Said:
    """What a tool answered."""

    raw: Any

    @property
    def text(self) -> str:
        (block,) = self.raw.content
        return block.text

    @property
    def values(self) -> dict[str, Any]:
        return self.raw.structured_content

    @property
    def refused(self) -> str:
        """The code of the error, if it is one."""
        return self.values["error"]["code"] if self.raw.is_error else ""

    @property
    def size(self) -> int:
        return len(self.raw.model_dump_json(by_alias=True, exclude_none=True).encode())


class Visitor:
    """An agent that is connected."""

    def __init__(self, client: Client, portal: BlockingPortal) -> None:
        self.client = client
        self.portal = portal

    def call(self, tool: str, /, **arguments: Any) -> Said:
        return Said(self.portal.call(self.client.call_tool, tool, arguments))

    def done(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must succeed, and return its values."""
        said = self.call(tool, **arguments)
        assert not said.refused, said.text
        return said.values

    def first(self, query: str) -> str:
        return self.done("search_email", query=query, limit=1)["mails"][0]["id"]

    def tools(self) -> dict[str, Any]:
        found = self.portal.call(self.client.list_tools)
        return {tool.name: tool for tool in found.tools}

    def read(self, uri: str) -> str:
        (content,) = self.portal.call(self.client.read_resource, uri).contents
        return content.text


@contextmanager
def visiting(person: Person, *arguments: str, agent: str = "claude", era: str = "auto", **options: Any) -> Iterator[Visitor]:  # fmt: skip
    """Start a server for this agent and lend the agent."""
    named = ["--agent", agent] if agent else []
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "postroom", "mcp", *arguments, *named],
        env=person.environment,
        cwd=person.folder,
    )
    with connected(Client(stdio_client(server, errlog=sys.stderr), mode=era, **options)) as found:
        yield found


@contextmanager
def visiting_inside(person: Person, *, agent: str = "claude", era: str = "auto", contract: Contract = CONTRACT, **options: Any) -> Iterator[Visitor]:  # fmt: skip
    """Lend an agent of a server in this very process: the same but for its stdin and stdout."""

    def settings() -> Config:
        return load(person.environment, person.folder, person.folder)

    service = Service(contract, Office(settings), agent=agent)
    try:
        with connected(Client(service.server, mode=era, **options)) as found:
            yield found
    finally:
        service.close()


@contextmanager
def visiting_over_http(person: Person, address: str, token: str, *, era: str = "auto", **options: Any) -> Iterator[Visitor]:  # fmt: skip
    """Connect to a server over HTTP."""
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    transport = streamable_http_client(address, http_client=http)
    with connected(Client(transport, mode=era, **options), http) as found:
        yield found


@contextmanager
def connected(client: Client, *others: Any) -> Iterator[Visitor]:
    """Lend the agent of a client, and keep what else it needs open meanwhile."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        for other in others:
            stack.enter_context(portal.wrap_async_context_manager(other))
        yield Visitor(stack.enter_context(portal.wrap_async_context_manager(client)), portal)


@contextmanager
def http_server(person: Person, *arguments: str) -> Iterator[str]:
    """Run a server over HTTP and lend its address."""
    process = person.start("mcp", "--http", "0", *arguments)
    try:
        yield re.search(r"http://\S+", line_of(process.stderr, "Serving"))[0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def line_of(stream: Any, word: str) -> str:
    """Wait, within reason, for a line with this word."""
    deadline = time.monotonic() + 30
    while True:
        ready, _, _ = select.select([stream], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no line with {word!r} within half a minute"
        line = stream.readline().decode()
        assert line, f"it ended without a line with {word!r}"
        if word in line:
            return line


class Wire:
    """The bytes themselves: a server's stdin and stdout, line by line."""

    def __init__(self, person: Person, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "postroom", "mcp", "--agent", "claude", *arguments],
            cwd=person.folder,
            env=person.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._rest = b""
        self._id = 0

    def send(self, raw: bytes) -> None:
        self.process.stdin.write(raw)

    def ask(self, method: str, **params: Any) -> int:
        """Send a request and return its number."""
        self._id += 1
        body = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.send(json.dumps(body).encode() + b"\n")
        return self._id

    def call(self, tool: str, **arguments: Any) -> int:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def line(self) -> dict[str, Any]:
        """Return the next message; what is none fails the test."""
        deadline = time.monotonic() + 60
        while b"\n" not in self._rest:
            ready, _, _ = select.select(
                [self.process.stdout], [], [], max(0, deadline - time.monotonic())
            )
            assert ready, "the server says nothing"
            piece = os.read(self.process.stdout.fileno(), 1 << 20)
            assert piece, f"the server has ended: {self.process.stderr.read().decode()}"
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(raw)
        assert message["jsonrpc"] == "2.0"
        return message

    def answer(self, id: int) -> dict[str, Any]:
        """Return the answer to this request, past all others."""
        while True:
            message = self.line()
            if message.get("id") == id:
                return message

    def greet(self) -> Wire:
        """Shake hands."""
        self.answer(self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "wire", "version": "1"}))  # fmt: skip
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return self

    def end(self) -> tuple[int, str]:
        """Close its stdin, and return how it ends and what it said beside."""
        self.process.stdin.close()
        return self.ended()

    def ended(self) -> tuple[int, str]:
        err = self.process.stderr.read().decode()
        return self.process.wait(timeout=30), err

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        self.process.wait(timeout=30)
