"""Listens for browsers on this machine, or where the person says, and keeps those who work at it."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from postroom.core.errors import Denied
from postroom.core.health import Check
from postroom.desk import passphrase
from postroom.services.services import Services
from postroom.web.app import app
from postroom.web.door import Door
from postroom.web.live import Clerk, Live
from postroom.web.markup import html
from postroom.web.request import Setup

MOST_CONNECTIONS: Final = 250  # at once; a browser has six
HEADER_SECONDS: Final = 5.0  # for the headers of a request
GRACE: Final = 2  # seconds for what is under way when it ends


class Patient(H11Protocol):
    """A connection: one that asks for nothing does not last, and gives way to a new one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; if there are too many, close the oldest that waits for its request."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._watch()
        there = [
            one
            for one in self.connections
            if isinstance(one, Patient) and not one.transport.is_closing()
        ]
        if len(there) > MOST_CONNECTIONS:
            idle = (one for one in there if one is not self and not one.has_request)
            min(idle, key=lambda one: one.since, default=self).transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on; the headers of a request must be there in time, however they trickle in."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        if self._deadline:
            self._deadline.cancel()

    def _watch(self) -> None:
        """Close the connection in a while, unless the headers of a request have arrived."""
        busy = self._cycle is not None and not self._cycle.response_complete
        if busy and self._deadline:
            self._deadline.cancel()
            self._deadline = None
        elif not busy and not self._deadline:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    @property
    def has_request(self) -> bool:
        """Whether a whole request is under way."""
        cycle = self._cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        return self.cycle  # which is None before the first request, whatever its type says


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where the page is found."""

    listener: socket.socket
    host: str = "127.0.0.1"
    origin: str = ""  # of the person's own proxy
    remote: bool = False  # whether others than this machine reach it
    idle: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A page that is being served."""

    door: Door
    run: Callable[[], None]  # until it is closed
    close: Callable[[], None]


@contextmanager
def served(
    services: Services,
    where: Where,
    *,
    zone: tzinfo,
    health: Callable[[], Sequence[Check]],
    mail_health: Callable[[], Sequence[Check]],
) -> Iterator[Served]:
    """Listen, and lend the page; what is under way is ended in order."""
    desk, guarded = services.desk, bool(where.origin) or where.remote
    if (guarded or desk.rules.trust == "desk") and not desk.ledger.meta(passphrase.KEY):
        what = "A desk that others can reach" if guarded else "Trust level desk"
        raise Denied(
            f"{what} needs your passphrase, and none is set",
            remedy="Set one with `postroom init --passphrase`.",
        )
    listener = where.listener
    port = listener.getsockname()[1]
    door = Door(desk, port, origin=where.origin, host=where.host, guarded=guarded, idle=where.idle)
    live = Live(desk)
    clerk = Clerk(desk, live)
    setup = Setup(services=services, door=door, live=live, clerk=clerk, zone=zone, health=health, mail_health=mail_health)  # fmt: skip
    config = uvicorn.Config(
        app(setup),
        http=Patient,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=65_536,
    )
    server = uvicorn.Server(config)
    workers = [threading.Thread(target=work, daemon=True) for work in (live.watch, clerk.work)]
    for worker in workers:
        worker.start()

    def close() -> None:
        live.close()  # open pages first, so that nothing is waited for
        clerk.wake()
        server.should_exit = True

    try:
        yield Served(door=door, run=lambda: server.run(sockets=[listener]), close=close)
    finally:
        close()
        listener.close()
        for worker in workers:
            worker.join()


@contextmanager
def beside(page: Served) -> Iterator[Callable[[], bool]]:
    """Serve in a thread of its own, while something else is done; what is lent says whether it still does."""
    thread = threading.Thread(target=page.run, daemon=True)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        page.close()
        thread.join()


@contextmanager
def doorstep(folder: Path, address: str) -> Iterator[str]:
    """Lend the address of a file that leads to an address which works once.

    Given to a browser as it is, it would stand in the list of processes for everybody to see.
    """
    handle, name = tempfile.mkstemp(
        prefix="desk-", suffix=".html", dir=folder
    )  # for its owner alone
    file = Path(name)
    text = html(
        '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}"><title>Postroom</title>'
        '<p><a href="{address}">Open the desk</a></p>\n',
        address=address,
    )
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
    try:
        yield file.absolute().as_uri()
    finally:
        file.unlink(missing_ok=True)
