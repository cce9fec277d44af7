"""Serving over HTTP: on this machine, to who has a token, under the name that the token carries."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import click
import uvicorn

from postroom.core.errors import Invalid, Unavailable
from postroom.tools.serve import GRACE, Service

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


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
    if not port.isdigit() or int(port) > 65_535:
        raise Invalid(
            "--http needs a port, as in 8765 or 127.0.0.1:8765", remedy="0 takes a free one."
        )
    if host in {"0.0.0.0", "::", "*"}:  # noqa: S104 - refused
        raise Invalid(
            "--http on all addresses would let any name through that leads here",
            remedy="Name the one address that clients use, and put TLS in front of it.",
        )
    return Place(host, int(port))


class Doorkeeper:
    """Lets in who has a token, and says whose it is."""

    def __init__(self, app: App, tokens: Callable[[], Mapping[str, str]]) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:  # noqa: ANN401
        """Serve one request."""
        if scope["type"] == "http":
            agent = self._whose(dict(scope["headers"]).get(b"authorization", b""))
            if agent is None:
                await _refuse(send)
                return
            scope = {**scope, "postroom.agent": agent}
        await self._app(scope, receive, send)

    def _whose(self, header: bytes) -> str | None:
        kind, _, given = header.partition(b" ")
        if kind.lower() != b"bearer":
            return None
        # All of them are compared, and each in constant time.
        found = [
            agent
            for token, agent in self._tokens().items()
            if hmac.compare_digest(token.encode(), given.strip())
        ]
        return found[0] if found else None


async def _refuse(send: Any) -> None:  # noqa: ANN401
    body = b'{"error": "A bearer token is needed: the one that `postroom init` has made."}'
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
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
        listener.listen(128)  # before we say that we serve
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
