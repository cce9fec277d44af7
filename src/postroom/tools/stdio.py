"""Serves one client on standard input and output: lines in, messages out.

The main thread reads, `wire.Server` does the work, and `Output` writes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from postroom.store.files import write_all
from postroom.tools import protocol
from postroom.tools.protocol import MAX_LINE
from postroom.tools.wire import Server

if TYPE_CHECKING:
    from postroom.tools.calls import Calls
    from postroom.tools.table import AnswerDelivery

MAX_UNREAD: Final = 32_000_000  # bytes of answers that the client has not read
PIPE_BYTES: Final = 65_536
END_OF_INPUT: Final = 120.0  # seconds that calls have to end when the client has closed its end
GRACE: Final = 5.0  # seconds that they have when a signal has come, or nobody listens
LAST: Final = 3.0  # seconds to write log lines and close the desk after that

log = logging.getLogger("postroom")


def serve(listing: dict[str, Any], make_calls: Callable[[], Calls], *, agent: str = "") -> NoReturn:
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
        if wakeup in events and is_reading:
            server.resume()  # the output may have been full, and drained since, while this thread waited
        # What the client has sent before it was gone is still done.
        is_over = outgoing in events or (wakeup in events and _is_signalled(wakeup))
        if incoming in events:
            try:
                data = os.read(incoming, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            for line in lines.feed(data or b"\n"):  # which may end the last line
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
    return bool(os.read(wakeup, 64).strip(b"\0"))  # else it was woken by `wake`


def _end(
    server: Server, outgoing: int, wakeup: int, wake: Callable[[], None], seconds: float
) -> NoReturn:
    """Let calls end within so many seconds, or fewer if a signal comes or nobody listens any more; close and exit."""
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


class Output:
    """Writes messages to a descriptor, in the order in which they are sent, by a thread of its own."""

    def __init__(self, handle: int, wake_reader: Callable[[], None] = lambda: None) -> None:
        self.unwritten = 0  # bytes
        self.wake_reader = wake_reader  # called when more may be read from the client
        self._handle = handle
        self._queue: deque[tuple[bytes, protocol.Id, AnswerDelivery | None]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        threading.Thread(target=self._write_queue, daemon=True).start()

    def send(self, message: dict[str, Any], delivery: AnswerDelivery | None = None) -> None:
        """Write a message; `delivery` is confirmed with its last byte, or released if it is not written."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8", "replace") + b"\n"
        with self._changed:
            if not self._is_closed:
                self.unwritten += len(data)
                self._queue.append((data, message.get("id", ""), delivery))
                self._changed.notify_all()
            elif delivery is not None:
                delivery.release()

    def _write_queue(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closed)
                if self._is_closed:
                    return
                data, id, delivery = self._queue.popleft()
            try:
                if delivery is None:
                    write_all(self._handle, data)
                else:
                    self._deliver(data, id, delivery)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the thread that reads from the client notices that it is gone
            except OSError as why:
                log.error("Answers cannot be written: %s", why.strerror)  # noqa: TRY400
            except Exception as bug:  # noqa: BLE001 - the next message is written all the same
                log.error("%s at an answer", type(bug).__name__)  # noqa: TRY400
            with self._changed:
                was_full, self.unwritten = self.is_full, self.unwritten - len(data)
                self._changed.notify_all()
            if was_full:
                self.wake_reader()

    def _deliver(self, data: bytes, id: protocol.Id, delivery: AnswerDelivery) -> None:
        from postroom.core.errors import Unavailable
        from postroom.tools.calls import protocol_error

        try:
            delivery.deliver(self._handle, data)
        except Unavailable as locked:  # nothing of it is written yet
            error = protocol_error(locked, has_envelope=False).body
            answer = json.dumps({"jsonrpc": "2.0", "id": id, "error": error})
            write_all(self._handle, answer.encode() + b"\n")
        finally:
            delivery.release()

    @property
    def is_behind(self) -> bool:
        """Whether more waits than a pipe holds: the client then does without progress."""
        return self.unwritten > PIPE_BYTES

    @property
    def is_full(self) -> bool:
        return self.unwritten > MAX_UNREAD

    def flush(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.unwritten, seconds)

    def close(self) -> None:
        """Write nothing more, and release what was not delivered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            for _, _, delivery in self._queue:
                if delivery is not None:
                    delivery.release()


class LineBuffer:
    """Splits what is read into lines; one that is too long comes out as `None`."""

    def __init__(self, max_bytes: int = MAX_LINE) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole, self._rest = self._rest + line, bytearray()
            if not self._is_skipping:
                yield bytes(whole) if len(whole) <= self._max_bytes else None
            self._is_skipping = False
        if not self._is_skipping:
            self._rest += rest
            if len(self._rest) > self._max_bytes:
                self._rest, self._is_skipping = bytearray(), True
                yield None


def take_streams() -> tuple[int, int]:
    """Return descriptors of standard input and output that nobody else has.

    What other code prints goes to standard error, and what a child reads is empty: only messages pass.
    """
    sys.stdout.flush()
    incoming = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    outgoing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        os.dup2(null, 1)
    if null > 2:
        os.close(null)
    return incoming, outgoing
