"""Moments that survive a clock that jumps: wall time for people, a steady clock for waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

DAY: Final = 86_400  # seconds


class Stamp(NamedTuple):
    """A moment: seconds since 1970, and seconds on the steady clock of one boot of the machine."""

    wall: float
    boot: str = ""
    steady: float = 0.0

    @property
    def iso(self) -> str:
        return _iso(int(self.wall))


@lru_cache(maxsize=64)
def _iso(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC).isoformat()[:19]}Z"


def elapsed(since: Stamp, now: Stamp) -> float:
    """Return the seconds from one moment to another; within one boot no change of the clock counts.

    Across a boot the wall clock is all there is: set back, no time has passed. Where a boot cannot
    be told, the shorter of the two counts.
    """
    wall, steady = max(0.0, now.wall - since.wall), now.steady - since.steady
    if since.boot != now.boot or (not now.boot and steady < 0):
        return wall
    return max(0.0, steady) if now.boot else min(wall, steady)
