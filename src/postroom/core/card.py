"""The risk card as a value: lines of a level, where recipients and links came from, and the facts behind both."""

from __future__ import annotations

import enum
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.errors import Invalid
from postroom.core.text import one_line
from postroom.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroom.core.address import Address

MAX_LINE: Final = 300
MAX_SUBJECT: Final = 60  # characters of a mail's subject in a line
MAX_SENDER: Final = 80  # of its sender; the end is shown, since it has the domain
_QUOTES: Final = str.maketrans("“”", "''")  # a subject must not end where it does not


def day(second: float) -> str:
    """Return a day as people write it, in UTC: `9 Nov 2026`."""
    return f"{datetime.fromtimestamp(second, UTC):%d %b %Y}".lstrip("0")


class Level(enum.IntEnum):
    """How loud a line is: quiet, worth a look, red."""

    PLAIN = 0
    LOOK = 1
    STOP = 2


@dataclass(frozen=True, slots=True)
class CardLine:
    """One plain sentence of a card, safe to print."""

    level: Level
    kind: str
    text: str

    def __post_init__(self) -> None:
        text = one_line(self.text[: 4 * MAX_LINE])
        text = text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}…"
        while (settled := one_line(text)) != text:  # one hidden character out can bare another
            text = settled
        object.__setattr__(self, "text", text)


class ItemSource(NamedTuple):
    """A recipient or link of a letter, and the mails that showed it, if any did."""

    kind: str  # one of `SOURCES`
    what: str
    where: str


SOURCES: Final = ("recipient", "answers to", "link", "picture")


@dataclass(frozen=True, slots=True)
class Card:
    """What code found in a letter, the highest level first."""

    lines: tuple[CardLine, ...] = ()
    sources: tuple[ItemSource, ...] = ()

    @property
    def level(self) -> Level:
        """The highest level of its lines."""
        return max((one.level for one in self.lines), default=Level.PLAIN)

    @property
    def warnings(self) -> tuple[CardLine, ...]:
        """The lines that a person must look at."""
        return tuple(one for one in self.lines if one.level > Level.PLAIN)

    @property
    def facts(self) -> tuple[CardLine, ...]:
        """The lines that only describe the letter: its domains, links and files."""
        return tuple(one for one in self.lines if one.level == Level.PLAIN)

    def adding(self, line: CardLine) -> Card:
        """Return the card with one more line, before others of its level."""
        lines = sorted((line, *self.lines), key=lambda one: -one.level)
        return Card(tuple(lines), self.sources)

    def to_json(self) -> list[list[int | str]]:
        """Return its lines as `[level, kind, text]`, then its sources as `[kind, what, where]`."""
        lines: list[list[int | str]] = [[int(a.level), a.kind, a.text] for a in self.lines]
        return lines + [list(one) for one in self.sources]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[object]]) -> Card:
        """Return the card that `to_json` wrote, or raise `Invalid`."""
        lines, sources = [], []
        for row in rows:
            match row:
                case [0 | 1 | 2 as level, str() as kind, str() as text]:
                    lines.append(CardLine(Level(level), kind, text))
                case [str() as kind, str() as what, str() as where] if kind in SOURCES:
                    sources.append(ItemSource(kind, what, where))
                case _:
                    raise Invalid("This is no risk card")
        return cls(tuple(lines), tuple(sources))


@dataclass(frozen=True, slots=True)
class Exposure:
    """A mail that showed a token to an agent, a note or a file.

    `parts` are the places in it where the token stands: `from`, `to` (To and Cc), `reply_to`,
    `name`, `subject`, `body`, `html`, `file`; an empty one is unknown and counts as `body`.
    """

    sender: str  # the address in From
    subject: str
    date: float
    sent: bool  # it lies in Sent
    parts: frozenset[str]

    def __str__(self) -> str:
        """Return sender, subject and day. Names in From are left out: anyone can choose one."""
        subject = one_line(self.subject.translate(_QUOTES))[:MAX_SUBJECT] or "(no subject)"
        sender = self.sender if len(self.sender) <= MAX_SENDER else f"…{self.sender[-MAX_SENDER:]}"
        file, when = "a file in " if self.parts == {"file"} else "", f", {day(self.date)}"
        return f"{file}{sender or 'nobody'}'s mail “{subject}”{when if self.date else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """What the desk knows around a letter: who is known, what an agent read, what was written before."""

    own: tuple[Address, ...] = ()
    written_to: frozenset[str] = frozenset()
    contacts: frozenset[str] = frozenset()  # addresses written to; of some only `@domain`
    wrote: Mapping[str, float] = field(default_factory=dict)  # when a recipient last wrote
    thread: frozenset[str] | None = None  # everybody in the conversation that is answered
    answered: frozenset[str] = frozenset()  # From, To and Cc of the mail that is answered
    seen: Mapping[str, Sequence[Exposure]] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    automatic: bool = False
