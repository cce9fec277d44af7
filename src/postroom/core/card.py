"""The risk card as a value: lines of a level, and the facts that it is made of."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from postroom.core.errors import Invalid
from postroom.core.text import line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.core.address import Address

MAX_LINE: Final = 300


class Level(enum.IntEnum):
    """How loud a line is: quiet, worth a look, red."""

    PLAIN = 0
    LOOK = 1
    STOP = 2


@dataclass(frozen=True, slots=True)
class Line:
    """One plain sentence of a card, safe to print."""

    level: Level
    kind: str
    text: str

    def __post_init__(self) -> None:
        text = line(self.text[: 4 * MAX_LINE])
        text = text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}…"
        while (settled := line(text)) != text:  # one hidden character out can bare another
            text = settled
        object.__setattr__(self, "text", text)


@dataclass(frozen=True, slots=True)
class Card:
    """What code found in a letter, the loudest first."""

    lines: tuple[Line, ...] = ()

    @property
    def level(self) -> Level:
        """The loudest of its lines."""
        return max((one.level for one in self.lines), default=Level.PLAIN)

    def to_json(self) -> list[list[int | str]]:
        """Return its lines as `[level, kind, text]`."""
        return [[int(one.level), one.kind, one.text] for one in self.lines]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[object]]) -> Card:
        """Return the card that `to_json` wrote, or raise `Invalid`."""
        lines = []
        for row in rows:
            match row:
                case [0 | 1 | 2 as level, str() as kind, str() as text]:
                    lines.append(Line(Level(level), kind, text))
                case _:
                    raise Invalid("This is no risk card")
        return cls(tuple(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the desk knows around a letter: who is known, what an agent read, what was written before."""

    own: tuple[Address, ...] = ()
    written_to: frozenset[str] = frozenset()
    known_domains: frozenset[str] = frozenset()
    thread: frozenset[str] | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    automatic: bool = False
