"""Serving over HTTP: on this machine, to who has a token, under the name that the token carries."""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import click
import uvicorn

from postroom.core.errors import Invalid, Unavailable
from postroom.tools.serve import GRACE, Door, Service

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_SESSIONS: Final = 20_000


class Place(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        """The host as it stands in an address."""
        return f"[{self.host}]" if ":" in self.host else self.host


def place(text: str) -> Place:
    """Return what `[HOST:]PORT` means; without a host, this machine alone."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise Invalid(
            "--http needs a port, as in 8765 or 127.0.0.1:8765", remedy="0 takes a free one."
        )
    return Place(host, int(port))


class Doorkeeper:
    """Lets in who has a token, says whose it is, and keeps each to the sessions that it began."""

    def __init__(self, app: App, tokens: Callable[[], Mapping[str, str]]) -> None:
        self._app = app
        self._tokens = tokens
        self._sessions: dict[bytes, str] = {}

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:  # noqa: ANN401
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, known = dict(scope["headers"]), self._tokens()
        token = _token(headers.get(b"authorization", b""), known)
        if token is None:
            await _refuse(send, 401, "A bearer token is needed: `postroom init` has made one.")
            return
        named = [value for name, value in scope["headers"] if name == b"mcp-session-id"]
        # None that we do not know, and not two, of which others would read the other one.
        if len(named) > 1 or any(self._sessions.get(session) != token for session in named):
            await _refuse(send, 404, "There is no such session.")
            return
        taken = frozenset(agent.casefold() for agent in known.values() if agent)
        door = Door(known[token], taken)

        async def noted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._note(dict(message.get("headers", ())).get(b"mcp-session-id", b""), token)
            await send(message)

        await self._app({**scope, "postroom.door": door}, receive, noted)

    def _note(self, session: bytes, token: str) -> None:
        if session and session not in self._sessions:
            if len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = token


def _token(header: bytes, known: Mapping[str, str]) -> str | None:
    """Return the token that was given, if it is one of ours."""
    kind, _, given = header.partition(b" ")
    if kind.lower() != b"bearer":
        return None
    # All of them are compared, and each in constant time.
    found = [token for token in known if hmac.compare_digest(token.encode(), given.strip())]
    return found[0] if found else None


async def _refuse(send: Any, status: int, why: str) -> None:  # noqa: ANN401
    body = json.dumps({"error": why}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run_http(service: Service, where: Place, tokens: Callable[[], Mapping[str, str]]) -> None:
    """Serve until a signal comes."""
    listener = _listening(where)
    port = listener.getsockname()[1]
    hosts = [f"{host}:{port}" for host in (*LOOPBACK, where.shown)]
    app = Doorkeeper(service.app(hosts), tokens)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE),
    )
    if not _is_loopback(where.host):
        click.echo("The token travels in the clear: put TLS in front of this.", err=True)
    click.echo(f"Serving http://{where.shown}:{port}/mcp", err=True)
    uvicorn.Server(config).run(sockets=[listener])
    service.close()


def _listening(where: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((where.host, where.port))
        if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:
            raise Invalid(
                "--http on all addresses would let anybody in who finds this machine",
                remedy="Name the one address that clients use, and put TLS in front of it.",
            )
        listener.listen(128)  # before we say that we serve
    except Invalid:
        listener.close()
        raise
    except OSError as why:
        listener.close()
        raise Unavailable(
            f"{where.shown}:{where.port} cannot be listened on: {why.strerror}",
            remedy="Name another port; 0 takes a free one.",
        ) from why
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
