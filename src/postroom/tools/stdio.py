"""Serves one client on standard input and output. The main thread reads; `wire.Server` does the rest."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from postroom.tools.streams import LineBuffer, Output, take_streams
from postroom.tools.wire import Server

if TYPE_CHECKING:
    from postroom.tools.calls import Calls

END_OF_INPUT: Final = 120.0  # seconds that calls have to end when the client has closed its end
GRACE: Final = 5.0  # seconds that they have when a signal has come, or nobody listens
LAST: Final = 3.0  # seconds to write log lines and close the desk after that


def serve(listing: dict[str, Any], make_calls: Callable[[], Calls], *, agent: str = "") -> NoReturn:
    """Serve one client until it is gone or a signal comes; then exit."""
    incoming, outgoing = take_streams()
    wakeup, waker = os.pipe()
    os.set_blocking(waker, False)

    def wake() -> None:
        with suppress(BlockingIOError):
            os.write(waker, b"\0")

    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)  # writes the number of the signal
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    server = Server(listing, make_calls, Output(outgoing, wake), agent)
    seconds = read_lines(server, incoming, outgoing, wakeup)
    _end(server, outgoing, wakeup, wake, seconds)


def read_lines(server: Server, incoming: int, outgoing: int, wakeup: int) -> float:
    """Give lines to the server until standard input ends, a signal comes or nobody listens any more.

    Returns how many seconds calls then have to end.
    """
    watch, lines, is_reading = _watch(wakeup, outgoing), LineBuffer(), False
    is_over = False
    while not is_over:
        if is_reading == server.is_congested:
            is_reading = not is_reading
            if is_reading:
                watch.register(incoming, select.POLLIN)
                server.resume()
            else:
                watch.unregister(incoming)
        events = dict(watch.poll())
        # What the client has sent before it was gone is still done.
        is_over = outgoing in events or (wakeup in events and _is_signalled(wakeup))
        if incoming in events:
            try:
                data = os.read(incoming, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            for line in lines.feed(data) if data else lines.end():
                server.receive(line)
            if not data and not is_over:
                return END_OF_INPUT
    return GRACE


def _watch(wakeup: int, outgoing: int) -> select.poll:
    watch = select.poll()
    watch.register(wakeup, select.POLLIN)
    watch.register(outgoing, 0)  # reports an error when its reader is gone
    return watch


def _is_signalled(wakeup: int) -> bool:
    return bool(os.read(wakeup, 64).strip(b"\0"))


def _end(
    server: Server, outgoing: int, wakeup: int, wake: Callable[[], None], seconds: float
) -> NoReturn:
    """Let calls end within so many seconds, close the desk, and exit.

    It is shorter if a signal comes, or nobody listens any more.
    """
    is_finished = threading.Event()

    def finish() -> None:
        server.finish(seconds)
        is_finished.set()
        wake()

    threading.Thread(target=finish, daemon=True).start()
    watch = _watch(wakeup, outgoing)
    while not is_finished.is_set():
        events = dict(watch.poll())
        if outgoing in events or _is_signalled(wakeup):
            is_finished.wait(GRACE)
            break
    # Not for long, where another process holds the ledger: what a crash leaves, recovery takes up.
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(LAST)
    with suppress(OSError, ValueError, AttributeError):  # there may be no standard error
        sys.stderr.flush()
    os._exit(0)  # without waiting for a thread that writes to a client that does not read
