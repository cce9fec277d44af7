"""Standard output as the server writes it: what an answer hands over is handed over with its last byte."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from postroom.agents.files import write_out
from postroom.core.errors import Unavailable
from postroom.tools.table import refusal

if TYPE_CHECKING:
    from postroom.agents.mailbox import Taken

AT_ONCE: Final = 4_096  # bytes that a pipe which takes any takes without waiting
UNANSWERED: Final = 60.0  # seconds after which an answer that was not written never will be
INTERNAL_ERROR: Final = -32603
_ANSWER: Final = re.compile(r'\{"jsonrpc":"2\.0","id":("(?:[^"\\]|\\.)*"|-?\d+),"(result|error)"')


class Wire:
    """Standard output: what an answer hands over is confirmed at the moment that it was written.

    A process that is killed before that has handed over nothing, and one after that nothing twice.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.writing = False  # and somebody may be slow to read
        self._ready = select.poll()
        self._ready.register(handle, select.POLLOUT)
        self._expected: dict[str | int, tuple[Taken, float]] = {}

    def expect(self, id: str | int, handover: Taken) -> None:
        """Confirm this when the answer of that id is written."""
        before = self._expected.pop(id, None)
        if before:  # a client that uses one number twice
            before[0].release()
        self._expected[id] = (handover, time.monotonic())

    def expire(self) -> None:
        """Let go of what belongs to calls that were given up so late that nobody noticed."""
        late = time.monotonic() - UNANSWERED
        for id, (handover, since) in list(self._expected.items()):
            if since < late:
                self._expected.pop(id, None)
                handover.release()

    async def write(self, text: str) -> None:
        """Write one message; in a thread where that could keep others waiting."""
        data, handover = text.encode(), self._handover(text)
        if len(data) <= AT_ONCE and self._ready.poll(0):
            if handover is None:
                write_out(self._handle, data)
                return
            if handover.hand_at_once(self._handle, data):
                return
        self.writing = True
        try:
            await anyio.to_thread.run_sync(self._write, data, handover)
        finally:
            self.writing = False

    async def flush(self) -> None:
        """Nothing is held back."""

    def _handover(self, text: str) -> Taken | None:
        """Return what this message hands over, if it is an answer that does."""
        answer = _ANSWER.match(text) if self._expected else None
        found = self._expected.pop(json.loads(answer[1]), None) if answer else None
        if found and answer and answer[2] != "result":
            found[0].release()
            return None
        return found[0] if found else None

    def _write(self, data: bytes, handover: Taken | None) -> None:
        if handover is None:
            write_out(self._handle, data)
            return
        try:
            handover.hand(self._handle, data)
        except Unavailable as held:  # nothing of it is written yet
            answer = _ANSWER.match(data[:200].decode("utf-8", "replace"))
            said = refusal("", held).text
            about = {"code": INTERNAL_ERROR, "message": said}
            id = json.loads(answer[1]) if answer else None
            error = {"jsonrpc": "2.0", "id": id, "error": about}
            write_out(self._handle, json.dumps(error).encode() + b"\n")
        finally:
            handover.release()

    def release(self) -> None:
        """Let go of what was never written."""
        while self._expected:
            self._expected.popitem()[1][0].release()


@contextmanager
def standard_output() -> Iterator[Wire]:
    """Lend standard output, and lead its number elsewhere: what others print is no message."""
    sys.stdout.flush()
    handle = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
    try:
        yield Wire(handle)
    finally:
        os.dup2(handle, 1)
