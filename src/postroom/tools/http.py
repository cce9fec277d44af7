"""Serving over HTTP: on this machine, to who has a token, under the name that the token carries."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import click
import uvicorn

from postroom.tools.serve import TOKEN_HOLDER, Service, TokenHolder
from postroom.tools.stdio import GRACE

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_SESSIONS: Final = 20_000


class BearerAuth:
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
        holder = TokenHolder(known[token], taken)

        async def noted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._note(dict(message.get("headers", ())).get(b"mcp-session-id", b""), token)
            await send(message)

        await self._app({**scope, TOKEN_HOLDER: holder}, receive, noted)

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


def run_http(
    service: Service, listener: socket.socket, host: str, tokens: Callable[[], Mapping[str, str]]
) -> None:
    """Serve at this host, where somebody listens already, until a signal comes."""
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in (*LOOPBACK, host)]
    app = BearerAuth(service.app(hosts), tokens)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE),
    )
    click.echo(f"Serving http://{host}:{port}/mcp", err=True)
    uvicorn.Server(config).run(sockets=[listener])
    service.close()
