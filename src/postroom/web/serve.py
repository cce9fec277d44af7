"""Serves the page: the listening server with its limits, and the background threads."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from postroom.core.errors import Denied
from postroom.core.records import Check
from postroom.core.values import dataclass
from postroom.services.services import Services
from postroom.web.app import build_app
from postroom.web.live import AutoDispatcher, ChangeFeed
from postroom.web.request import AppContext
from postroom.web.sessions import Sessions
from postroom.web.templates import render

MAX_CONNECTIONS: Final = 250  # at once; a browser has six
HEADER_SECONDS: Final = 5.0  # for the headers of a request
SHUTDOWN_SECONDS: Final = 2  # for requests that are running when the server ends


class LimitedConnection(H11Protocol):
    """A connection that closes if no request arrives in time, and makes room when there are too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; above the limit, close the oldest one that has no request."""
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._update_timer()
        connections = [
            one
            for one in self.connections
            if isinstance(one, LimitedConnection) and not one.transport.is_closing()
        ]
        if len(connections) > MAX_CONNECTIONS:
            idle = (one for one in connections if one is not self and not one.has_request)
            min(idle, key=lambda one: one.opened_at, default=self).transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on; bytes that trickle in do not extend the time for the headers."""
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that ended."""
        super().connection_lost(exc)
        if self._timer:
            self._timer.cancel()

    def _update_timer(self) -> None:
        """Run the timer that closes the connection, except while a request is being answered."""
        is_busy = self._cycle is not None and not self._cycle.response_complete
        if is_busy and self._timer:
            self._timer.cancel()
            self._timer = None
        elif not is_busy and not self._timer:
            self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    @property
    def has_request(self) -> bool:
        """Whether a whole request arrived and is not answered yet."""
        cycle = self._cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        return self.cycle  # None before the first request, although it is not typed so


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Where the page listens, and how browsers reach it."""

    listener: socket.socket
    host: str = "127.0.0.1"
    origin: str = ""  # the address of the person's own proxy
    is_remote: bool = False  # whether other machines reach it
    idle_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskServer:
    """A server of the page that is ready to run."""

    sessions: Sessions
    run: Callable[[], None]  # blocks until `close`
    close: Callable[[], None]


@contextmanager
def desk_server(
    services: Services,
    options: ListenOptions,
    *,
    zone: tzinfo,
    health: Callable[[], Sequence[Check]],
    mail_health: Callable[[], Sequence[Check]],
) -> Iterator[DeskServer]:
    """Yield a server of the page; its background threads run until the block ends.

    Raises `Denied` where a passphrase is required and none is set.
    """
    desk, is_exposed = services.desk, bool(options.origin) or options.is_remote
    if (is_exposed or desk.rules.trust == "desk") and not desk.reader.settings.passphrase:
        subject = "A desk that other machines can reach" if is_exposed else "Trust level desk"
        raise Denied(
            f"{subject} needs your passphrase, and none is set",
            remedy="Set one with `postroom init --passphrase`.",
        )
    listener = options.listener
    sessions = Sessions(
        desk,
        listener.getsockname()[1],
        origin=options.origin,
        host=options.host,
        always_locked=is_exposed,
        idle_seconds=options.idle_seconds,
    )
    feed = ChangeFeed(desk)
    dispatcher = AutoDispatcher(desk, feed)
    context = AppContext(
        services=services,
        sessions=sessions,
        feed=feed,
        dispatcher=dispatcher,
        zone=zone,
        health=health,
        mail_health=mail_health,
    )
    config = uvicorn.Config(
        build_app(context),
        http=LimitedConnection,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=65_536,
    )
    server = uvicorn.Server(config)
    threads = [threading.Thread(target=work, daemon=True) for work in (feed.watch, dispatcher.run)]
    for thread in threads:
        thread.start()

    def close() -> None:
        feed.close()  # first, so that the server does not wait for open streams
        dispatcher.wake()
        server.should_exit = True

    try:
        yield DeskServer(sessions=sessions, run=lambda: server.run(sockets=[listener]), close=close)
    finally:
        close()
        listener.close()
        for thread in threads:
            thread.join()


@contextmanager
def run_in_thread(server: DeskServer) -> Iterator[Callable[[], bool]]:
    """Run a server in a thread until the block ends; yield a function that says whether it still runs."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        server.close()
        thread.join()


@contextmanager
def redirect_file(folder: Path, address: str) -> Iterator[str]:
    """Yield the address of a private file that leads a browser to a sign-in address.

    On a browser's command line, the sign-in address itself would be visible to other users in the list of processes.
    """
    handle, name = tempfile.mkstemp(prefix="desk-", suffix=".html", dir=folder)  # mode 0600
    with os.fdopen(handle, "w") as stream:
        stream.write(render("redirect.html", address=address))
    file = Path(name)
    try:
        yield file.absolute().as_uri()
    finally:
        file.unlink(missing_ok=True)
