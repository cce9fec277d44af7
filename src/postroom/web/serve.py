"""Serves the page: its addresses, the listening server with its limits, and the background threads."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from postroom.core import life
from postroom.core.errors import Denied, PostroomError
from postroom.web.handlers import Handlers
from postroom.web.request import SIGN_OUT, Handler, RequestGuard, error_page, signed_in
from postroom.web.sign_in import SignInPages
from postroom.web.templates import STATIC, STATIC_TYPES, render

MAX_SLOW: Final = 4  # slow pages at once: a conversation, a long log
MAX_CONNECTIONS: Final = 250  # at once; a browser has six
HEADER_SECONDS: Final = 5.0  # for the headers of a request
SHUTDOWN_SECONDS: Final = 2  # for requests that are running when the server ends


def build_app(desk: Handlers) -> RequestGuard:
    entrance = SignInPages(desk.sessions, desk.dispatcher.feed)
    gets: dict[str, Handler] = {
        "/": desk.queue,
        "/letter/{id}": desk.letter,
        "/letter/{id}/edit": desk.edit,
        "/letter/{id}/source": desk.plain,
        "/letter/{id}/text": desk.plain,
        "/letter/{id}/file/{at:int}": desk.file,
        "/letter/{id}/image/{at:int}": desk.image,
        "/letter/{id}/print": desk.print,
        "/history": desk.history,
        "/agents": desk.agents,
        "/health": desk.health,
    }
    slow_gets = {
        "/letter/{id}/source/{at:int}": desk.source,
        "/letter/{id}/thread": desk.thread,
        "/history/chain": desk.chain,
        "/health/mail": desk.mail_health,
    }
    posts: dict[str, Handler] = {
        "/letter/{id}/approve": desk.approve,
        **{f"/letter/{{id}}/{event}": desk.decide for event in life.DECISIONS},
        "/letter/{id}/edit": desk.edit,
        "/letter/{id}/preview": desk.preview,
        "/letter/{id}/change": desk.change,
        "/unlock": entrance.unlock,
        SIGN_OUT: entrance.sign_out,
    }
    sessions, limiter = desk.sessions, anyio.CapacityLimiter(MAX_SLOW)
    routes = [
        *(Route(path, signed_in(sessions, act)) for path, act in gets.items()),
        *(Route(path, signed_in(sessions, act), methods=["POST"]) for path, act in posts.items()),
        *(Route(path, signed_in(sessions, act, limiter)) for path, act in slow_gets.items()),
        Route("/in/{ticket}", entrance.form),
        Route("/in", entrance.submit, methods=["POST"]),
        Route("/events", entrance.events),
        Route("/static/{name}", _static),
    ]
    errors = dict.fromkeys((404, 405, 500, PostroomError), error_page)
    return RequestGuard(Starlette(routes=routes, exception_handlers=errors), sessions)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC_TYPES:
        return Response(status_code=404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(STATIC[name], media_type=STATIC_TYPES[name], headers=headers)


class LimitedConnection(H11Protocol):
    """A connection that closes if no request arrives in time, and makes room when there are too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._update_timer()
        ours = (one for one in self.connections if isinstance(one, LimitedConnection))
        connections = [one for one in ours if not one.transport.is_closing()]
        if len(connections) > MAX_CONNECTIONS:
            idle = (one for one in connections if one is not self and not one.has_request)
            min(idle, key=lambda one: one.opened_at, default=self).transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on; bytes that trickle in do not extend the time for the headers."""
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
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


@contextmanager
def serve_desk(handlers: Handlers, listener: socket.socket) -> Iterator[Callable[[], bool]]:
    """Serve the page in threads until the block ends; yield a function that says whether it is still served.

    Raises `Denied` where a passphrase is required and none is set. The listener is closed.
    """
    sessions, dispatcher = handlers.sessions, handlers.dispatcher
    if sessions.needs_passphrase and not sessions.desk.reader.settings.passphrase:
        what = "A desk that other machines can reach" if sessions.is_exposed else "Trust level desk"
        raise Denied(
            f"{what} needs your passphrase, and none is set",
            remedy="Set one with `postroom init --passphrase`.",
        )
    config = uvicorn.Config(
        build_app(handlers),
        http=LimitedConnection,
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=65_536,
    )
    server = uvicorn.Server(config)
    work = (dispatcher.feed.watch, dispatcher.run, lambda: server.run(sockets=[listener]))
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield threads[-1].is_alive
    finally:
        dispatcher.feed.close()  # first, so that the server does not wait for open streams
        dispatcher.wake_up.set()
        server.should_exit = True
        for thread in threads:
            thread.join()
        listener.close()


@contextmanager
def redirect_file(folder: Path, address: str) -> Iterator[str]:
    """Yield the address of a private file that leads a browser to a sign-in address, which other users must not see."""
    with NamedTemporaryFile("w", prefix="desk-", suffix=".html", dir=folder) as file:  # mode 0600
        file.write(render("redirect.html", address=address))
        file.flush()
        yield Path(file.name).absolute().as_uri()
