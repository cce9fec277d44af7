"""The event by which a signal ends work."""

import signal
import sys
import threading
import time
from itertools import count
from types import FrameType
from typing import Any

from postroom.core.stop import StopEvent


def set_during_wait(event: threading.Event, at: int) -> None:
    """Wait for an event, and set it at this step of the wait, as a signal handler does."""
    steps = count()

    def interrupt(_frame: FrameType, _kind: str, _arg: Any) -> Any:
        if next(steps) == at:
            event.set()
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        event.wait(0)
    finally:
        sys.settrace(before)


def test_it_may_be_set_between_any_two_steps_of_its_wait() -> None:
    """A signal handler runs in the thread that it interrupts, so `set` must need nothing that `wait` holds."""
    for at in range(100):
        event = StopEvent()
        set_during_wait(event, at)
        if not event.is_set():  # the wait has fewer steps
            break
        assert event.wait(0)
    assert 5 < at < 99


def test_a_signal_ends_a_wait() -> None:
    event = StopEvent()
    before = signal.signal(signal.SIGALRM, lambda *_: event.set())
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        since = time.monotonic()
        assert event.wait(30)
        assert time.monotonic() - since < 20
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_every_thread_that_waits_goes_on() -> None:
    event, ended = StopEvent(), list[bool]()
    threads = [threading.Thread(target=lambda: ended.append(event.wait(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join()
    assert ended == [True] * 4
    assert event.wait()


def test_a_wait_without_a_signal_ends_in_time() -> None:
    event = StopEvent()
    assert not event.wait(0.001)
    assert not event.is_set()
