"""The two background threads of the page: one tells open pages about changes, one sends what is approved and due."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio.to_thread

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.desk.desk import Desk

POLL_SECONDS: Final = 0.2  # between two looks at the ledger while a page is open
UNREAD_SECONDS: Final = 1.0  # until it is noticed that a page was opened
BUSY_SECONDS: Final = 1.0  # between two rounds while a page is open or a letter is to be sent
IDLE_SECONDS: Final = 5.0  # between two rounds otherwise
KEEP_ALIVE: Final = 15.0  # seconds after which a stream without events sends a comment
STALE_SECONDS: Final = 2.0  # since a look at the folders, until a page looks again
MAX_STREAMS: Final = 100  # pages that are told about changes
MAX_NOTICES: Final = 20  # sentences that wait to be shown


class ChangeFeed:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._streams: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self.closing = threading.Event()

    @property
    def has_readers(self) -> bool:
        return bool(self._streams)

    def notify(self) -> None:
        with self._lock:
            for event, loop in self._streams.items():
                with suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        self.closing.set()
        self.notify()

    def watch(self) -> None:
        """Poll the ledger for changes by other processes while a page is open, until `close`."""
        previous: object = None
        while not self.closing.wait(POLL_SECONDS if self.has_readers else UNREAD_SECONDS):
            current: object = None
            with suppress(Exception):  # the next page that is loaded shows the error
                current = self._desk.reader.lists.change_token() if self.has_readers else previous
            if current != previous:
                previous = current
                self.notify()

    async def stream(self, is_allowed: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield server-sent events for one page, one for each change, while it is allowed to see them."""
        event = asyncio.Event()
        event.set()  # something may have changed between the page and its stream
        with self._lock:
            if len(self._streams) >= MAX_STREAMS:
                return
            self._streams[event] = asyncio.get_running_loop()
        try:
            yield "retry: 1000\n\n"
            while not self.closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), KEEP_ALIVE)
                if not await anyio.to_thread.run_sync(is_allowed):
                    return
                has_changed = event.is_set()
                event.clear()  # before the event is sent, so that a change meanwhile sends another
                yield "event: change\ndata: \n\n" if has_changed else ": nothing\n\n"
        finally:
            with self._lock:
                self._streams.pop(event, None)


class AutoDispatcher:
    """Reconciles the folders and sends what is approved and due, in a thread."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.feed = ChangeFeed(desk)
        self.wake_up = threading.Event()  # set to start the next round at once
        self._lock = threading.Lock()
        self._notices: list[str] = []  # that no page has shown yet
        self._known: set[str] = set()  # that were reported and still hold
        self.problem = ""  # why the last round failed
        # When the folders were last looked at, on the steady clock.
        self._reconciled = float("-inf")

    def add_notices(self, sentences: Sequence[str]) -> None:
        """Keep these sentences until a page has shown them; one that still holds is not repeated."""
        with self._lock:
            new = [one for one in dict.fromkeys(sentences) if one not in self._known]
            self._known |= set(new)
            self._notices = [*self._notices, *new][-MAX_NOTICES:]

    def take_notices(self, *, keep: bool) -> list[str]:
        """Return the sentences that no page has shown yet; unless `keep`, they count as shown."""
        with self._lock:
            notices = self._notices
            self._notices = notices if keep else []
            return list(notices)

    def run(self) -> None:
        while not self.feed.closing.is_set():
            self.wake_up.wait(self.run_once())
            self.wake_up.clear()

    def reconcile_if_stale(self) -> None:
        """Look at the folders for a page that is opened, unless that was just done: it takes a while with many letters."""
        if time.monotonic() - self._reconciled > STALE_SECONDS:
            self.add_notices(self._desk.reconcile())
            self._reconciled = time.monotonic()

    def run_once(self) -> float:
        """Do one round; return the seconds until the next one."""
        try:
            notices = self._desk.reconcile(adopt=True)
            self._reconciled = time.monotonic()
            self._desk.send_approved()
            while self._desk.problems:
                notices.append(self._desk.problems.pop(0))
            self.problem = ""
        except PostroomError as error:
            self.problem = error.message_with_remedy
        except Exception as error:  # noqa: BLE001 - the next round tries again, and pages show this
            self.problem = f"{type(error).__name__} ({error})"
        else:
            self.add_notices(notices)
            with self._lock:  # what no longer holds may be reported when it returns
                self._known &= {*notices, *self._notices}
        return self._pause()

    def _pause(self) -> float:
        try:
            waits = [
                self._desk.dispatcher.due_in(letter.state)
                for letter in self._desk.reader.lists.summaries("approved")
                if isinstance(letter.state, life.Approved)
            ]
        except Exception:  # noqa: BLE001 - the next round reports it
            return IDLE_SECONDS
        usual = BUSY_SECONDS if waits or self.feed.has_readers else IDLE_SECONDS
        return max(0.05, min([usual, *(wait for wait in waits if wait > 0)]))
