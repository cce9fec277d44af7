"""What an engine offers to the ledger: sessions that run SQL, and claims. Every engine passes `tests/contract/store`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from postroom.core.stamp import Stamp

Clock = Callable[[], Stamp]
Row = tuple[Any, ...]  # the engine's values; whoever asks names their types
# Holds the exclusive claim on a letter if nobody else does; the value says whether. It ends with the process.
HoldClaim = Callable[[str], AbstractContextManager[bool]]


class Session(Protocol):
    """A database that runs SQL with `?` for values; one thread at a time has it."""

    def rows(
        self, sql: str, values: Sequence[object] = (), *, patience: float | None = None
    ) -> list[Row]:
        """Return all rows; a query that takes longer than `patience` seconds raises `Invalid`."""

    def row(self, sql: str, values: Sequence[object] = ()) -> Row | None:
        """Return the first row, if there is one."""

    def run(self, sql: str, values: Sequence[object]) -> int:
        """Change rows inside of `write`, and return how many."""

    def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        """Do the same for each of these rows of values."""

    def write(self, *, synced: bool = True, early: bool = False) -> AbstractContextManager[object]:
        """Hold the write lock: all that is done inside is kept, or none of it."""

    def commit(self) -> None:
        """Keep what was written so far, inside of `write(early=True)`."""

    def snapshot(self) -> AbstractContextManager[object]:
        """Read several things as of one moment."""

    def check(self) -> str:
        """Return the engine's own finding on its files, `ok` where nothing is wrong."""

    def close(self) -> None:
        """Close the database."""
