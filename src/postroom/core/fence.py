"""The mark around what strangers wrote: nobody could know it when they wrote, and nothing of theirs holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_OTHERS: Final = bytes(set(range(256)) - set(b"0123456789abcdef"))


def mark(*contents: str, draw: Callable[[], str]) -> str:
    """Return a mark that none of these texts holds."""
    while True:
        drawn = draw()
        # In any case, and with anything between: a model reads past both.
        if not any(drawn.encode() in _digits(content) for content in contents):
            return drawn


def _digits(text: str) -> bytes:
    return text.encode("ascii", "ignore").lower().translate(None, _OTHERS)
