"""Every finding of the risk card: its kind, its level, what the card says, and why it has that level.

`docs/risk.md` shows the same rows, and a test compares them. A level is changed here and there, nowhere else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from postroom.core.card import CardLine, Level
from postroom.review.tables import read


class Finding(NamedTuple):
    """One row; `says` is the sentence of the card, with names in braces for what it is about."""

    kind: str
    level: Level
    says: str
    why: str


ROWS: Final = read("levels.txt")
LEVELS: Final = {"red": Level.STOP, "amber": Level.LOOK, "fact": Level.PLAIN}


def _table() -> dict[str, Finding]:
    rows = (row.strip("| ").split(" | ") for row in ROWS.strip().split("\n"))
    return {name: Finding(kind, LEVELS[level], *texts) for name, kind, level, *texts in rows}


FINDINGS: Final = _table()


def card_line(name: str, **about: object) -> CardLine:
    """Return the line of a card for a finding; `about` fills the braces of its sentence."""
    finding = FINDINGS[name]
    return CardLine(finding.level, finding.kind, finding.says.format(**about))
