"""Agents for tests: the MCP SDK's client, connected in memory, over stdio or over HTTP; and raw stdio (`Wire`)."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolResult,
    TextContent,
    TextResourceContents,
    Tool,
    jsonrpc_message_adapter,
)

from postroom.cli.server import ConfiguredDesk, load_listing
from postroom.config.loading import load
from postroom.desk.desk import Desk
from postroom.tools.calls import Calls
from postroom.tools.contracts.all import CONTRACT
from postroom.tools.listing import SERVERS
from postroom.tools.stdio import LineBuffer, Output
from postroom.tools.table import Contract
from postroom.tools.wire import Server
from tests.conftest import Person
from tests.forked import fork
from tests.narrow import narrow, present

SAMPLE = Path(__file__).parents[1] / "src" / "postroom" / "sample" / "mail.mbox"
ERAS = (
    "auto",
    "legacy",
)  # protocol version 2026-07-28, and those before it, which begin with a handshake


@dataclass
class ToolAnswer:
    """A tool's answer: `raw` as the SDK returns it, and its parts."""

    raw: CallToolResult

    @property
    def text(self) -> str:
        (block,) = self.raw.content
        return narrow(block, TextContent).text

    @property
    def values(self) -> dict[str, Any]:
        return present(self.raw.structured_content)

    @property
    def refused(self) -> str:
        """The code of the error, or an empty text if the call succeeded."""
        return narrow(self.values["error"]["code"], str) if self.raw.is_error else ""

    @property
    def size(self) -> int:
        """The bytes of the answer as JSON."""
        return len(self.raw.model_dump_json(by_alias=True, exclude_none=True).encode())


class Visitor:
    """A connected agent, whose calls block until the answer is there."""

    def __init__(self, client: Client, portal: BlockingPortal) -> None:
        self.client = client
        self.portal = portal

    def call(self, tool: str, /, **arguments: Any) -> ToolAnswer:
        """Call a tool and return its answer, be it a success or an error."""
        return ToolAnswer(self.portal.call(self.client.call_tool, tool, arguments))

    def done(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must succeed, and return its values."""
        answer = self.call(tool, **arguments)
        assert not answer.refused, answer.text
        return answer.values

    def first(self, query: str) -> str:
        """Return the id of the first mail that a search finds."""
        found = self.done("search_email", query=query, limit=1)["mails"][0]["id"]
        return narrow(found, str)

    def tools(self) -> dict[str, Tool]:
        """Return the server's tools by name."""
        found = self.portal.call(self.client.list_tools)
        return {tool.name: tool for tool in found.tools}

    def read(self, uri: str) -> str:
        """Return the text of a resource."""
        (content,) = self.portal.call(self.client.read_resource, uri).contents
        assert isinstance(content, TextResourceContents)
        return content.text


@contextmanager
def visiting(person: Person, *arguments: str, agent: str = "claude", era: str = "auto", **options: Any) -> Iterator[Visitor]:  # fmt: skip
    """Start `postroom mcp` as a process, and yield an agent that is connected over stdio.

    `arguments` are those of `postroom mcp`, `options` those of the SDK's `Client`.
    """
    named = ["--agent", agent] if agent else []
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "postroom", "mcp", *arguments, *named],
        env=person.environment,
        cwd=person.folder,
    )
    with connected(Client(stdio_client(server, errlog=sys.stderr), mode=era, **options)) as found:
        yield found


class InProcessDesk(ConfiguredDesk):
    """Opens the desk of a person's settings, for a server in the test's own process."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._opening = threading.Lock()
        super().__init__(lambda: load(person.environment, person.folder, person.folder))

    def desk(self) -> Desk:
        """Return the desk, with the person's environment and folder instead of this process's."""
        with self._opening:
            first, found = self._opened is None, super().desk()
            if first:
                folder, variables = str(self._person.folder), dict(self._person.environment)
                found.effects = replace(found.effects, cwd=folder, environ=variables)
            return found


def contract_of(server: str = "all", contract: str = "postroom") -> Contract:
    """Return the contract that `postroom mcp SERVER --contract CONTRACT` serves."""
    found = import_module(f"postroom.tools.contracts.{SERVERS[server][contract]}").CONTRACT
    assert isinstance(found, Contract)
    return found


@contextmanager
def visiting_inside(person: Person, *, agent: str = "claude", era: str = "auto", contract: Contract = CONTRACT, **options: Any) -> Iterator[Visitor]:  # fmt: skip
    """Yield an agent that is connected to a server in this process: all of `visiting` but stdin and stdout."""
    provider = InProcessDesk(person)
    listing = load_listing(contract.name, provider)
    calls = Calls(contract, listing["arguments"], provider.desk, provider.close)
    with connected(Client(in_process(listing, calls, agent), mode=era, **options)) as found:
        yield found


@asynccontextmanager
async def in_process(listing: dict[str, Any], calls: Calls, agent: str) -> AsyncIterator[Any]:
    """Yield the streams of an SDK client that is connected to our server for stdio, in this process."""
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](100)
    incoming, outgoing = os.pipe()
    server = Server(listing, lambda: calls, Output(outgoing), agent)

    async def send() -> None:
        async for message in from_client:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            server.receive(line.encode())

    async def receive() -> None:
        lines = LineBuffer()
        while True:
            await anyio.wait_readable(incoming)
            for line in lines.feed(os.read(incoming, 1 << 16)):
                message = jsonrpc_message_adapter.validate_json(present(line), by_name=False)
                await to_client.send(SessionMessage(message))

    async with anyio.create_task_group() as group, to_client, from_server, to_server, from_client:
        group.start_soon(send)
        group.start_soon(receive)
        try:
            yield from_server, to_server
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.finish, 30)
                await anyio.to_thread.run_sync(server.close)
            os.close(incoming)
            os.close(outgoing)


@contextmanager
def visiting_over_http(person: Person, address: str, token: str, *, era: str = "auto", **options: Any) -> Iterator[Visitor]:  # fmt: skip
    """Yield an agent that is connected to a running server over HTTP (see `http_server`)."""
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    transport = streamable_http_client(address, http_client=http)
    with connected(Client(transport, mode=era, **options), http) as found:
        yield found


@contextmanager
def connected(client: Client, *others: AbstractAsyncContextManager[Any]) -> Iterator[Visitor]:
    """Connect a client and yield its agent; `others` are async context managers to keep open meanwhile."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        for other in others:
            stack.enter_context(portal.wrap_async_context_manager(other))
        yield Visitor(stack.enter_context(portal.wrap_async_context_manager(client)), portal)


@contextmanager
def http_server(person: Person, *arguments: str) -> Iterator[str]:
    """Start a server over HTTP as a process, and yield its address."""
    process = fork(["mcp", "--http", "0", *arguments], person.environment, person.folder)
    try:
        found = re.search(r"http://\S+", wait_for_line(process.stderr, "Serving"))
        assert found
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM  # uvicorn ends by the signal it was sent
    finally:
        process.close()


def wait_for_line(stream: IO[bytes] | None, word: str) -> str:
    """Return the next line that contains this word; fail after half a minute."""
    assert stream
    deadline = time.monotonic() + 30
    while True:
        ready, _, _ = select.select([stream], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no line with {word!r} within half a minute"
        line = stream.readline().decode()
        assert line, f"it ended without a line with {word!r}"
        if word in line:
            return line


class Wire:
    """A server process and the bytes of its stdin and stdout, without an MCP client."""

    def __init__(self, person: Person, *arguments: str, **environment: str) -> None:
        self.process = fork(
            ["mcp", "--agent", "claude", *arguments],
            person.environment | environment,
            person.folder,
        )
        self._rest = b""
        self._id = 0

    def send(self, raw: bytes) -> None:
        self.process.stdin.write(raw)

    def ask(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._id += 1
        body = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.send(json.dumps(body).encode() + b"\n")
        return self._id

    def call(self, tool: str, **arguments: Any) -> int:
        """Send a call of a tool and return its id."""
        return self.ask("tools/call", name=tool, arguments=arguments)

    def line(self) -> dict[str, Any]:
        """Return the server's next message; fail if the next line is none."""
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
        assert isinstance(message, dict)
        assert message["jsonrpc"] == "2.0"
        return message

    def answer(self, id: int) -> dict[str, Any]:
        """Return the answer to this request, and drop the messages before it."""
        while True:
            message = self.line()
            if message.get("id") == id:
                return message

    def greet(self) -> Wire:
        """Perform the handshake of the protocol, and return this wire."""
        self.answer(self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "wire", "version": "1"}))  # fmt: skip
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return self

    def end(self) -> tuple[int, str]:
        """Close its stdin, wait for its end, and return its exit code and stderr."""
        self.process.stdin.close()
        return self.wait_for_exit()

    def wait_for_exit(self) -> tuple[int, str]:
        """Wait for its end, and return its exit code and stderr."""
        err = self.process.stderr.read().decode()
        return self.process.wait(), err

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.close()
