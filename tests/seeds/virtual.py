"""A server in this process over a desk whose time and provider are the test's own: a call that waits takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anyio.from_thread import start_blocking_portal
from mcp.client import Client

from postroom.desk.desk import Desk
from postroom.tools.serve import Service
from postroom.tools.table import Contract
from tests.agents import Visitor
from tests.desks import Clock


class VirtualSelector(selectors.DefaultSelector):
    """A selector that does not wait for timers: where nothing else is ready, it sets the clock forward."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; with a timeout, at once."""
        if timeout is None:  # no timer: a thread or the test has the next word
            return super().select()
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.go(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop by the clock of a test's desk."""

    def __init__(self, clock: Clock) -> None:
        self._desk_clock = clock
        super().__init__(VirtualSelector(clock))

    def time(self) -> float:
        """Return the seconds by which timers go."""
        return self._desk_clock.steady


@dataclass
class OpenDesk:
    """What a server asks of `postroom mcp`: here a desk that the test has opened, and closes."""

    opened: Desk
    accounts: tuple[str, ...] = ("default",)
    default_account: str = "default"
    room: str = ""

    def desk(self) -> Desk:
        """Return the desk."""
        return self.opened

    def close(self) -> None:
        """Leave it open: the test closes it."""


@contextmanager
def serving(desk: Desk, clock: Clock, contract: Contract) -> Iterator[Visitor]:
    """Lend an agent of a server that shows this contract of the desk; while a call waits, the clock moves on."""
    service = Service(contract, OpenDesk(desk), agent="claude")
    options = {"loop_factory": lambda: VirtualLoop(clock)}
    try:
        with (
            start_blocking_portal("asyncio", options) as portal,
            portal.wrap_async_context_manager(Client(service.server, mode="auto")) as client,
        ):
            yield Visitor(client, portal)
    finally:
        service.close()
