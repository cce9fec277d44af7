"""Signals that end a long command in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Let the first signal end what is under way in order, and a second one at once."""

    def stop(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            raise SystemExit(128 + number)
        stopping.set()

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
