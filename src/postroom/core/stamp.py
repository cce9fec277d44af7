"""Moments that survive a clock that jumps: wall time for people, a steady clock for waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class Stamp(NamedTuple):
    """A moment: seconds since 1970, and seconds on the steady clock of one boot of the machine."""

    wall: float
    boot: str = ""
    steady: float = 0.0

    @property
    def iso(self) -> str:
        """The moment in UTC, as ISO 8601 to the second."""
        return datetime.fromtimestamp(self.wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def elapsed(since: Stamp, now: Stamp) -> float:
    """Return the seconds from one moment to another; within one boot no change of the clock counts.

    Across a boot the wall clock is all there is: set back, no time has passed.
    """
    if since.boot and since.boot == now.boot:
        return max(0.0, now.steady - since.steady)
    return max(0.0, now.wall - since.wall)
