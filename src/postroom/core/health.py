"""What was found when a part was looked at, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """One part that was looked at: `ok`, `note` or `fail`, what was found, and what to do."""

    part: str
    verdict: str
    found: str
    remedy: str = ""
