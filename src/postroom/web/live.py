"""Two who work while nobody clicks: one tells open pages that something changed, one sends what is approved and due."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio.to_thread

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.desk.desk import Desk

LOOK: Final = 0.2  # seconds between two looks at the ledger while a page is open
ROUND: Final = (
    1.0  # seconds between two looks at the folders while a page is open or a letter is to leave
)
IDLE: Final = 5.0  # and otherwise
ALIVE: Final = 15.0  # seconds after which a page is told that there is nothing to tell
MOST: Final = 100  # pages that are told
MOST_SAID: Final = 20  # sentences that wait to be shown


class Live:
    """Tells open pages that the queue has changed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pages: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._turn = threading.Lock()
        self._opened = threading.Event()
        self.closing = threading.Event()

    @property
    def watched(self) -> bool:
        """Whether a page is open."""
        return bool(self._pages)

    def tell(self) -> None:
        """Wake every open page."""
        with self._turn:
            for event, loop in self._pages.items():
                with suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Let all pages go, and those who work."""
        self.closing.set()
        self._opened.set()
        self.tell()

    def watch(self) -> None:
        """Look for what other processes changed, until it is closed."""
        before: object = None
        while not self.closing.is_set():
            self._opened.clear()
            if not (self.watched or self.closing.is_set()):
                self._opened.wait()
            try:
                found = self._desk.ledger.pulse()
            except Exception:  # noqa: BLE001 - the next look, or the next page, says what is amiss
                found = None
            if found != before:
                before = found
                self.tell()
            self.closing.wait(LOOK)

    async def stream(self, admits: Callable[[], bool]) -> AsyncIterator[str]:
        """Yield an event for each change, for one page, as long as it is let in."""
        event = asyncio.Event()
        event.set()  # something may have changed between the page and its stream
        with self._turn:
            if len(self._pages) >= MOST:
                return
            self._pages[event] = asyncio.get_running_loop()
        self._opened.set()
        try:
            yield "retry: 1000\n\n"
            while not self.closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), ALIVE)
                if not await anyio.to_thread.run_sync(admits):
                    return
                changed = event.is_set()
                event.clear()  # before it is told: what changes meanwhile is told as well
                yield "event: change\ndata: \n\n" if changed else ": nothing\n\n"
        finally:
            with self._turn:
                self._pages.pop(event, None)


class Clerk:
    """Looks at the folders and sends what is approved and due."""

    def __init__(self, desk: Desk, live: Live) -> None:
        self._desk = desk
        self._live = live
        self._woken = threading.Event()
        self._turn = threading.Lock()
        self._said: list[str] = []
        self._heard: set[str] = set()
        self.trouble = ""  # what keeps it from its work

    def hear(self, sentences: Sequence[str]) -> None:
        """Keep what a person should know until a page has shown it; what stands is said once."""
        with self._turn:
            news = [one for one in dict.fromkeys(sentences) if one not in self._heard]
            self._heard |= set(news)
            self._said = [*self._said, *news][-MOST_SAID:]

    def told(self, *, keep: bool) -> list[str]:
        """Return what a person should know, and do not say it again unless it is to be kept."""
        with self._turn:
            said = list(self._said)
            if not keep:
                self._said.clear()
            return said

    def wake(self) -> None:
        """Let it look at once."""
        self._woken.set()

    def work(self) -> None:
        """Go round until the page is closed."""
        while not self._live.closing.is_set():
            self._woken.clear()
            pause = self.round()
            if not self._live.closing.is_set():
                self._woken.wait(pause)

    def round(self) -> float:
        """Do what there is to do; return after how many seconds there may be more."""
        try:
            found = self._desk.reconcile(adopt=True)
            self._desk.send_approved()
            while self._desk.trouble:
                found.append(self._desk.trouble.pop(0))
            self.trouble = ""
        except PostroomError as why:
            self.trouble = why.message_with_remedy
        except Exception as why:  # noqa: BLE001 - whatever broke, the next round goes on, and this is said
            self.trouble = f"{type(why).__name__} ({why})"
        else:
            self.hear(found)
            with self._turn:
                self._heard &= {*found, *self._said}  # what is over may be said when it comes back
        return self._pause()

    def _pause(self) -> float:
        try:
            waits = [
                self._desk.dispatcher.due_in(line.state)
                for line in self._desk.ledger.lines("approved")
                if isinstance(line.state, life.Approved)
            ]
        except Exception:  # noqa: BLE001 - the next round says what is amiss
            return IDLE
        usual = ROUND if waits or self._live.watched else IDLE
        return max(0.05, min([usual, *(wait for wait in waits if wait > 0)]))
