"""The engines that the ledger's contract suite runs against; a new one is a new entry here."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from postroom.core import life
from postroom.core.address import Address
from postroom.core.letter import Enclosure, Letter
from postroom.core.records import Card, CardLine, Entry, Level
from postroom.core.stamp import Stamp
from postroom.store.ledger import Ledger, SqliteLedger

START = 1_794_700_800.0
Open = Callable[..., Ledger]


def open_sqlite(folder: Path, **how: object) -> Ledger:
    return SqliteLedger(folder / "ledger.sqlite", **how)  # type: ignore[arg-type]


ENGINES: dict[str, Open] = {"sqlite": open_sqlite}


@dataclass
class Bench:
    """A ledger under test, a clock that stands still until it is moved, and letters to enter."""

    open: Callable[[], Ledger]
    now: Stamp = field(default_factory=lambda: Stamp(START, "boot", 100.0))
    drawn: int = 0

    def __post_init__(self) -> None:
        self.ledger = self.open()

    def go(self, seconds: float) -> None:
        wall, boot, steady = self.now
        self.now = Stamp(wall + seconds, boot, steady + seconds)

    def entry(self, agent: str = "claude", *, level: int = 0, **changes: object) -> Entry:
        """Return a letter that is not in the ledger yet; its card has a line of each level up to `level`."""
        self.drawn += 1
        values: dict[str, object] = {
            "id": f"{'abcdefghijklmnopqrstuvwxyz'[self.drawn]}aaaaaaaaa",
            "account": "default",
            "sender": Address.parse("you@example.org"),
            "to": (Address.parse("ann@example.com"),),
            "subject": f"Letter {self.drawn}",
            "text": f"Text {self.drawn}.\n",
        }
        state = changes.pop("state", None) or life.Pending(self.now)
        letter = Letter(**values | changes)  # type: ignore[arg-type]
        lines = [CardLine(Level(n), f"kind{n}", f"Line {n}.") for n in range(level, -1, -1)]
        return Entry(
            letter=letter,
            agent=agent,
            state=state,  # type: ignore[arg-type]
            created=self.now,
            card=Card(tuple(lines)),
            digest=letter.digest,
            content_key=letter.content_key,
            home="Pending_Approval",
        )

    def insert(self, agent: str = "claude", *, level: int = 0, **changes: object) -> Entry:
        """Enter a letter."""
        with self.ledger.write() as tx:
            return tx.letters.insert(self.entry(agent, level=level, **changes))

    def swap(self, entry: Entry, state: life.State) -> Entry:
        """Give a letter its next state."""
        with self.ledger.write() as tx:
            return tx.letters.swap(entry, state)

    def approved(
        self, entry: Entry, slip: str = "", via: life.Channel = life.Channel.TERMINAL
    ) -> Entry:
        """Approve a letter."""
        verdict = life.Verdict("ada", via, self.now, entry.digest, slip)
        return self.swap(entry, life.Approved(verdict, self.now, 0))


@pytest.fixture(params=list(ENGINES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made: list[Bench] = []
    chance = random.Random(7)

    def open_one() -> Ledger:
        def clock() -> Stamp:
            return made[0].now

        return ENGINES[request.param](tmp_path, clock=clock, draw=chance.randbytes)

    bench = Bench(open_one)
    made.append(bench)
    with closing(bench.ledger):
        yield bench


def attachment(name: str, content: bytes) -> Enclosure:
    return Enclosure(name, "application/octet-stream", content)
