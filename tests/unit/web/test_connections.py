"""Who connects and asks for nothing does not keep the person out."""

import asyncio
import socket
import threading
from asyncio import TimerHandle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from contextvars import Context
from typing import TypeVarTuple

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from postroom.web.serve import HEADER_SECONDS, MAX_CONNECTIONS, LimitedConnection

Ts = TypeVarTuple("Ts")
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(_scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


@contextmanager
def listening() -> Iterator[Callable[[], socket.socket]]:
    """Serve, and lend a way to connect."""
    config = uvicorn.Config(hello, http=LimitedConnection, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    with closing(socket.create_server(("127.0.0.1", 0), backlog=1024)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield lambda: socket.create_connection(listener.getsockname(), timeout=30)
        finally:
            server.should_exit = True
            thread.join()


def answer(connection: socket.socket) -> bytes:
    """Return all that is said on a connection, until it is closed or the answer is whole."""
    said = b""
    while not said.endswith(b"hi") and (piece := connection.recv(1000)):
        said += piece
    return said


def test_connections_that_ask_for_nothing_give_way_the_oldest_first() -> None:
    with listening() as connect, ExitStack() as stack:
        silent = [stack.enter_context(connect()) for _ in range(MAX_CONNECTIONS)]
        silent[1].sendall(b"GET / HTTP/1.1\r\nHost:")
        silent[2].sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")
        for number in range(3):
            person = stack.enter_context(connect())
            person.sendall(GET)
            assert answer(person).endswith(b"hi")
            assert answer(silent[number]) == b""
        silent[3].sendall(GET)
        assert answer(silent[3]).endswith(b"hi")


class Time(asyncio.SelectorEventLoop):
    """A loop whose timers are looked at, and fire when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[tuple[float, TimerHandle]] = []

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> TimerHandle:
        handle = TimerHandle(0, callback, args, self, context)
        self.timers.append((delay, handle))
        return handle

    def running(self) -> list[float]:
        return [seconds for seconds, handle in self.timers if not handle.cancelled()]


class Line(asyncio.Transport):
    """A connection that keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


def test_headers_that_trickle_in_have_one_deadline_and_a_request_has_none() -> None:
    config = uvicorn.Config(hello, http=LimitedConnection, log_level="error")
    config.load()
    time, line = Time(), Line()
    with closing(time):
        connection = LimitedConnection(config, ServerState(), {}, time)
        connection.connection_made(line)
        for piece in (GET[:4], GET[4:9], GET[9:-1]):
            connection.data_received(piece)
        assert time.running() == [HEADER_SECONDS]
        connection.data_received(GET[-1:])
        assert time.running() == []
        time.run_until_complete(asyncio.gather(*connection.tasks))
        assert not line.closed
        # The next request on the same connection has a deadline of its own.
        connection.data_received(GET[:4])
        assert HEADER_SECONDS in time.running()
        time.timers[-1][1]._run()
        assert line.closed
