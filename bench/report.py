"""What a bench says: measures with their baseline and bound, as lines of 80 columns and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

OK, OVER, MISSING = "ok", "over", "not measured"


@dataclass(frozen=True, slots=True)
class Bound:
    """What a number may be at most, or must be at least."""

    limit: float
    unit: str
    at_least: bool = False

    def verdict(self, value: float) -> str:
        """Return `ok` or `over`."""
        return OK if (value >= self.limit if self.at_least else value <= self.limit) else OVER

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a run, its ratio to the baseline of the same run, and how it stands to its bound."""

    bench: str
    name: str
    value: float
    unit: str
    against: str
    baseline: float
    bound: str = ""
    verdict: str = ""

    @property
    def ratio(self) -> float:
        """Return how many times the baseline it is."""
        return self.value / self.baseline if self.baseline else float("nan")


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds that the runs of one thing took."""

    runs: Sequence[float]

    @property
    def best(self) -> float:
        """Return the shortest."""
        return min(self.runs)

    @property
    def median(self) -> float:
        """Return the one in the middle."""
        return median(self.runs)


def say(line: str = "") -> None:
    """Write a line of the result."""
    print(line, flush=True)


def progress(line: str) -> None:
    """Write a line for whoever waits, beside the result."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def machine() -> str:
    """Return what the numbers were taken on."""
    load = f"load {os.getloadavg()[0]:.1f}"
    return (
        f"{os.cpu_count()} cores, {load}, Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version}"
    )


def write_json(file: Path, measures: Iterable[Measure]) -> None:
    """Write all measures of a run."""
    found = [{**asdict(measure), "ratio": measure.ratio} for measure in measures]
    file.write_text(json.dumps({"machine": machine(), "measures": found}, indent=2) + "\n")


@contextmanager
def folder() -> Iterator[Path]:
    """Lend a folder under $TMPDIR that is gone afterwards."""
    with TemporaryDirectory(prefix="postroom-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)
