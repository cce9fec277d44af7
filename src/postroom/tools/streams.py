"""Standard input and output of a server: lines in, messages out."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from postroom.store.files import write_all
from postroom.tools import protocol

if TYPE_CHECKING:
    from postroom.agents.mailbox import Delivery

MAX_LINE: Final = 16_000_000  # bytes of a message
MAX_UNREAD: Final = 32_000_000  # bytes of answers that the client has not read
AT_ONCE: Final = select.PIPE_BUF  # bytes that a pipe takes without waiting, if it takes any

log = logging.getLogger("postroom")


class Output:
    """Writes messages to a descriptor, in the order in which they are sent."""

    def __init__(self, handle: int, wake_reader: Callable[[], None] = lambda: None) -> None:
        self.unwritten = 0  # bytes
        self.wake_reader = wake_reader  # called when more may be read from the client
        self._handle = handle
        # A terminal that says it is ready may still keep a writer waiting.
        self._is_slow = stat.S_ISCHR(os.fstat(handle).st_mode)
        self._ready = select.poll()
        self._ready.register(handle, select.POLLOUT)
        self._queue: deque[tuple[bytes, protocol.Id, Delivery | None]] = deque()
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None
        self._is_closed = False

    def send(self, message: dict[str, Any], delivery: Delivery | None = None) -> None:
        """Write a message; `delivery` is confirmed with its last byte, or released if it is not written."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8", "replace") + b"\n"
        with self._changed:
            if self._is_closed:
                release(delivery)
                return
            if not self.unwritten and self._try_send(data, delivery):
                return
            self.unwritten += len(data)
            self._queue.append((data, message.get("id", ""), delivery))
            if self._writer is None:
                writer = threading.Thread(target=self._write_queue, daemon=True)
                writer.start()
                self._writer = writer
            self._changed.notify_all()

    def _try_send(self, data: bytes, delivery: Delivery | None) -> bool:
        if self._is_slow or len(data) > AT_ONCE or not self._ready.poll(0):
            return False
        try:
            if delivery is not None:
                return delivery.try_deliver_now(self._handle, data)
            write_all(self._handle, data)
        except OSError as why:
            self._lost(why)
            release(delivery)
        return True

    def _lost(self, why: OSError) -> None:
        """Log that nothing can be written, unless the client is gone: the thread that reads from it notices that."""
        if not isinstance(why, BrokenPipeError | ConnectionResetError):
            log.error("Answers cannot be written: %s", why.strerror)

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
            except OSError as why:
                self._lost(why)
            except Exception as bug:  # noqa: BLE001 - the next message is written all the same
                log.error("%s at an answer", type(bug).__name__)  # noqa: TRY400
            with self._changed:
                was_full, self.unwritten = self.is_full, self.unwritten - len(data)
                self._changed.notify_all()
            if was_full:
                self.wake_reader()

    def _deliver(self, data: bytes, id: protocol.Id, delivery: Delivery) -> None:
        from postroom.core.errors import Unavailable
        from postroom.tools.table import refusal

        try:
            delivery.deliver(self._handle, data)
        except Unavailable as locked:  # nothing of it is written yet
            error = {"code": protocol.INTERNAL_ERROR, "message": refusal("", locked).text}
            answer = json.dumps({"jsonrpc": "2.0", "id": id, "error": error})
            write_all(self._handle, answer.encode() + b"\n")
        finally:
            delivery.release()

    @property
    def is_full(self) -> bool:
        """Whether the client should read before it is sent more."""
        return self.unwritten > MAX_UNREAD

    def flush(self, seconds: float) -> None:
        """Wait until everything is written, but not longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: not self.unwritten, seconds)

    def close(self) -> None:
        """Write nothing more, and release what was not delivered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            for _, _, delivery in self._queue:
                release(delivery)


class LineBuffer:
    """Splits what is read into lines; one that is too long comes out as `None`."""

    def __init__(self, max_bytes: int = MAX_LINE) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Take what was read, and yield the lines that are complete."""
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

    def end(self) -> Iterator[bytes]:
        """Yield the last line, if nothing ended it."""
        if self._rest:
            yield bytes(self._rest)


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


def release(delivery: Delivery | None) -> None:
    """Let go of a message that was not delivered: it is there for the next who asks."""
    if delivery is not None:
        delivery.release()
