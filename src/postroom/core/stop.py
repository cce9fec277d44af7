"""An event by which a signal ends work."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue


class StopEvent(threading.Event):
    """Says that work is to stop; a signal handler may set it.

    `threading.Event` takes a lock: a handler that interrupts the main thread in `wait` and calls `set` there would
    wait for that lock forever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._wake_ups: SimpleQueue[None] = SimpleQueue()  # `put` may interrupt `get`

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wake_ups.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            try:
                self._wake_ups.get(timeout=timeout)
            except Empty:
                return self._is_set
            self._wake_ups.put(None)  # for the next thread that waits
        return True
