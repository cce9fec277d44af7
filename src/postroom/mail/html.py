"""HTML as a reader sees it, in plain text."""

from __future__ import annotations

import re
from typing import NamedTuple


class Rendered(NamedTuple):
    """The readable text of a page, and how many characters of it were hidden from the eye."""

    text: str
    hidden: int


def text(source: str) -> Rendered:
    """Return a page as readable text."""
    return Rendered(re.sub(r"<[^<>]*>", "", source), 0)
