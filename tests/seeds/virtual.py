"""A server in this process that runs on the clock of the test's desk: a call that waits takes no real time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Iterator
from contextlib import contextmanager

from anyio.from_thread import start_blocking_portal
from mcp.client import Client

from postroom.desk.desk import Desk
from postroom.tools.calls import Calls
from postroom.tools.listing import load
from postroom.tools.serve import Service
from postroom.tools.table import Contract
from tests.agents import Visitor
from tests.desks import Clock


class VirtualSelector(selectors.DefaultSelector):
    """A selector that sets the clock forward instead of waiting for a timer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, let the timeout pass on the clock, and return at once."""
        if timeout is None:  # no timer is set: wait for a thread or the test
            return super().select()
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.go(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers run on the clock of a test's desk."""

    def __init__(self, clock: Clock) -> None:
        self._desk_clock = clock
        super().__init__(VirtualSelector(clock))

    def time(self) -> float:
        """Return the time of the clock, in seconds."""
        return self._desk_clock.steady


@contextmanager
def serving(desk: Desk, clock: Clock, contract: Contract) -> Iterator[Visitor]:
    """Yield an agent that is connected to a server in this process; where a call waits, the clock moves forward."""
    listing = load(contract.name)
    # The test closes the desk.
    calls = Calls(contract, listing["arguments"], lambda: desk, lambda: None)
    service = Service(listing, calls, agent="claude")
    options = {"loop_factory": lambda: VirtualLoop(clock)}
    try:
        with (
            start_blocking_portal("asyncio", options) as portal,
            portal.wrap_async_context_manager(Client(service.server, mode="auto")) as client,
        ):
            yield Visitor(client, portal)
    finally:
        service.close()
