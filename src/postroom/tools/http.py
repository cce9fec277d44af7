"""Serves over HTTP on this machine: to clients with a token, under the name that the token carries."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Mapping
from typing import Final

import click
import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.tools.serve import TOKEN_HOLDER, Service, TokenHolder
from postroom.tools.stdio import GRACE

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_SESSIONS: Final = 20_000
NO_TOKEN: Final = (401, "A bearer token is needed: `postroom init` has made one.")
NO_SESSION: Final = (404, "There is no such session.")


class BearerAuth:
    """Lets clients in by their tokens, says whose each is, and keeps each to the sessions that it began."""

    def __init__(self, app: ASGIApp, tokens: Callable[[], Mapping[str, str]]) -> None:
        self._app = app
        self._tokens = tokens
        self._sessions: dict[str, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, known = Headers(scope=scope), self._tokens()
        token = _token(headers.get("authorization", ""), known)
        sessions = headers.getlist("mcp-session-id")
        # None that we do not know, and not two, of which others would read the other one.
        is_foreign = len(sessions) > 1 or any(self._sessions.get(one) != token for one in sessions)
        if token is None or is_foreign:
            status, error = NO_TOKEN if token is None else NO_SESSION
            refusal = JSONResponse({"error": error}, status, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return

        async def note_session(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(Headers(raw=message.get("headers", [])).get("mcp-session-id", ""), token)
            await send(message)

        reserved = frozenset(agent.casefold() for agent in known.values() if agent)
        holder = TokenHolder(known[token], reserved)
        await self._app({**scope, TOKEN_HOLDER: holder}, receive, note_session)

    def _note(self, session: str, token: str) -> None:
        if session and session not in self._sessions:
            if len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = token


def _token(header: str, known: Mapping[str, str]) -> str | None:
    """Return the token that was given, if it is one of ours."""
    kind, _, given = header.partition(" ")
    # All of them are compared, and each in constant time.
    secret = given.strip().encode()
    found = [token for token in known if hmac.compare_digest(token.encode(), secret)]
    return found[0] if found and kind.lower() == "bearer" else None


def run_http(
    service: Service, listener: socket.socket, host: str, tokens: Callable[[], Mapping[str, str]]
) -> None:
    """Serve at this host, where somebody listens already, until a signal comes."""
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in (*LOOPBACK, host)]
    config = uvicorn.Config(
        BearerAuth(service.app(hosts), tokens),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE),
    )
    click.echo(f"Serving http://{host}:{port}/mcp", err=True)
    uvicorn.Server(config).run(sockets=[listener])
    service.close()
