"""Streamable HTTP in front of `postroom mcp` on stdio, for test suites that speak HTTP alone.

Each message that is JSON goes to the server's stdin with its id, and the answer comes back with it.
A session of the handshake versions has a process of its own. Requests that carry their version themselves share one,
unless two with the same id are under way at once, which one pipe cannot hold. The rest of HTTP is the bridge's own:
session ids, the version's header, status codes. It has no stream that a client opens with GET, and does not notice that
a client has left.
"""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
Id: TypeAlias = str | int

ENVELOPED = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
ENVELOPE = {VERSION_KEY: ENVELOPED, "io.modelcontextprotocol/clientCapabilities": {}}
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
# The HTTP status of an error in the era of 2026-07-28; of all others, and before it, the status is 200.
STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
PATIENCE = 30.0


class StdioServer:
    """A server process, whose answers are given to the requests that they belong to.

    `faults` lists what a server must not do on stdio: a line that is no message, an answer that nobody waits for, an
    end that is not clean.
    """

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self.faults: list[str] = []
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._turn = threading.Lock()
        self._waiting: dict[Id, SimpleQueue[Message]] = {}
        self._tokens: dict[Id, Id] = {}  # progress token → id of its request
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def send(self, message: Message) -> None:
        """Send a message that has no answer."""
        with self._turn:
            self._write(message)

    def ask(self, request: Message) -> Iterator[Message] | None:
        """Send a request; return an iterator over its notifications and, at last, its answer.

        Return nothing if another request with the same id is under way.
        """
        id, messages = request["id"], SimpleQueue[Message]()
        with self._turn:
            if id in self._waiting:
                return None
            self._waiting[id] = messages
            token = _meta(request).get("progressToken")
            if token is not None:
                self._tokens[token] = id
            self._write(request)
        return self._messages(id, messages)

    def _messages(self, id: Id, messages: SimpleQueue[Message]) -> Iterator[Message]:
        while True:
            try:
                message = messages.get(timeout=PATIENCE)
            except Empty:
                message = _error(id, -32603, "The server on stdio does not answer")
            yield message
            if "method" not in message:
                return

    def _write(self, message: Message) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            try:
                message = json.loads(line)
                assert message["jsonrpc"] == "2.0"
            except (ValueError, TypeError, KeyError, AssertionError):
                self.faults.append(f"no message: {line[:200]!r}")
                continue
            self._deliver(message)

    def _deliver(self, message: Message) -> None:
        with self._turn:
            if message.get("method") == "notifications/progress":
                id = self._tokens.get(message["params"]["progressToken"])
                waiting = None if id is None else self._waiting.get(id)
            else:
                id = message.get("id")
                waiting = None if id is None else self._waiting.pop(id, None)
                self._tokens = {token: of for token, of in self._tokens.items() if of != id}
        if waiting is None:
            self.faults.append(f"nobody waits for {json.dumps(message)[:200]}")
        else:
            waiting.put(message)

    def close(self) -> None:
        """Close its stdin and wait for its end."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        if code:
            self.faults.append(f"it ended with {code}")


class Bridge:
    """All server processes of one address."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._start = partial(StdioServer, command, folder, env)
        self._turn = threading.Lock()
        self._sessions: dict[str, StdioServer] = {}
        self._shared: list[StdioServer] = []
        self.faults: list[str] = []

    def begin(self) -> tuple[str, StdioServer]:
        """Start the server of a new session."""
        name, server = uuid.uuid4().hex, self._start()
        with self._turn:
            self._sessions[name] = server
        return name, server

    def session(self, name: str) -> StdioServer | None:
        """Return the server of a session, if there is one."""
        with self._turn:
            return self._sessions.get(name)

    def end(self, name: str) -> bool:
        """End a session; return whether there was one."""
        with self._turn:
            server = self._sessions.pop(name, None)
        if server:
            server.close()
            self.faults += server.faults
        return server is not None

    def ask_shared(self, request: Message) -> Iterator[Message]:
        """Send a request that carries its version to a server that can take it."""
        with self._turn:
            for server in self._shared:
                if (messages := server.ask(request)) is not None:
                    return messages
            server = self._start()
            # The first request decides the era of a connection: later ones may lack what they must carry.
            opening = {"jsonrpc": "2.0", "id": "bridge", "method": "server/discover"}
            opened = server.ask(opening | {"params": {"_meta": ENVELOPE}})
            assert opened is not None
            list(opened)
            self._shared.append(server)
            found = server.ask(request)
        assert found is not None
        return found

    def close(self) -> None:
        """End all servers."""
        for name in list(self._sessions):
            self.end(name)
        for server in self._shared:
            server.close()
            self.faults += server.faults


class _Handler(BaseHTTPRequestHandler):
    """One HTTP connection."""

    protocol_version = "HTTP/1.1"
    bridge: Bridge  # set by `bridged`

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply(405)

    def do_DELETE(self) -> None:
        self._reply(200 if self.bridge.end(self.headers.get("Mcp-Session-Id", "")) else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            message = json.loads(body)
        except ValueError:
            self._reply(400, _error(None, PARSE_ERROR, "Not JSON"))
            return
        if not isinstance(message, dict):
            self._reply(400, _error(None, INVALID_REQUEST, "One message at a time"))
        elif VERSION_KEY in _meta(message) or self._version == ENVELOPED:
            self._enveloped(message)
        else:
            self._handshake(message)

    @property
    def _version(self) -> str | None:
        return self.headers.get("MCP-Protocol-Version")

    def _enveloped(self, message: Message) -> None:
        if "id" not in message:
            self._reply(202)
        elif _meta(message).get(VERSION_KEY, self._version) != self._version:
            text = "The header's version is not the request's"
            self._reply(400, _error(message["id"], HEADER_MISMATCH, text))
        else:
            self._answer(self.bridge.ask_shared(message), STATUS)

    def _handshake(self, message: Message) -> None:
        name = self.headers.get("Mcp-Session-Id", "")
        if message.get("method") == "initialize" and not name:
            name, server = self.bridge.begin()
        elif found := self.bridge.session(name):
            server = found
        else:
            self._reply(404 if name else 400)
            return
        if "id" not in message or "method" not in message:
            server.send(message)
            self._reply(202)
        elif (messages := server.ask(message)) is None:
            text = "A request with this id is under way"
            self._reply(400, _error(message["id"], INVALID_REQUEST, text))
        else:
            self._answer(messages, {}, name)

    def _answer(
        self, messages: Iterator[Message], statuses: Mapping[int, int], session: str = ""
    ) -> None:
        """Answer with JSON; or with events, if there are notifications before the answer."""
        first = next(messages)
        if "method" not in first:
            code = first.get("error", {}).get("code")
            self._reply(statuses.get(code, 200), first, session)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for message in chain((first,), messages):
            self.wfile.write(f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode())
        self.close_connection = True

    def _reply(self, status: int, body: Message | None = None, session: str = "") -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(raw)


def _meta(message: Message) -> dict[str, Any]:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _error(id: Id | None, code: int, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}


@contextmanager
def bridged(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the address at which servers that this command starts are reached over HTTP.

    At the end, fail if one of them did on stdio what a server must not.
    """
    bridge = Bridge(command, folder, env)
    handler = type("Handler", (_Handler,), {"bridge": bridge})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        bridge.close()
    assert not bridge.faults, bridge.faults
