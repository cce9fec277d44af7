"""The review's data: word lists, patterns and the table of findings, kept as text files beside the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from pkgutil import get_data
from typing import Final, NamedTuple

from postroom.core.records import CardLine, Level


@cache
def sections(name: str) -> dict[str, list[str]]:
    """Return the lines below each `[heading]` of a data file, without comments and blank lines."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (get_data(__package__, name) or b"").decode().splitlines():
        if heading := re.fullmatch(r"\[([\w/-]+)\]", line):
            lines = found.setdefault(heading[1], [])
        elif line and line[0] != "#":
            lines.append(line)
    return found


@cache
def words(name: str) -> frozenset[str]:
    return frozenset(" ".join(sections("words.txt")[name]).split())


@cache
def pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of `patterns.txt`, compiled at its first use."""
    return re.compile("".join(sections("patterns.txt")[name]))


class Finding(NamedTuple):
    kind: str
    level: Level
    says: str  # the sentence of the card, with names in braces for what it is about
    why: str


ROWS: Final = (get_data(__package__, "levels.txt") or b"").decode()
LEVELS: Final = {"red": Level.STOP, "amber": Level.LOOK, "fact": Level.PLAIN}
FINDINGS: Final = {
    name: Finding(kind, LEVELS[level], *texts)
    for name, kind, level, *texts in (row.strip("| ").split(" | ") for row in ROWS.splitlines())
}


MAX_ABOUT: Final = 20  # items that one line names for the page


def card_line(name: str, about: Iterable[str] = (), /, **fill: object) -> CardLine:
    """Return the line of a card for a finding about some items; `fill` has the words for the braces of its sentence."""
    finding, items = FINDINGS[name], tuple(islice(dict.fromkeys(about), MAX_ABOUT))
    return CardLine(finding.level, finding.kind, finding.says.format(**fill), items)
