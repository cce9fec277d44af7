"""`python -m bench [NAME…]`: run the benches, print their ratios, exit with 1 where a bound is broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench import (
    agents,
    desk,
    gmail,
    intake,
    page,
    peers,
    run,
    safety,
    search,
    server,
    start,
    vault,
)
from bench.report import OK, Measure, machine, say, write_json

NAMES = (
    "start",
    "server",
    "gmail",
    "desk",
    "page",
    "vault",
    "agents",
    "run",
    "search",
    "import",
    "peers",
    "safety",
)
USUAL = NAMES[:-2]  # other servers are started when they are asked for


def main() -> int:
    """Run what is asked for and return the exit status."""
    asked = _arguments()
    benches: dict[str, Callable[[], list[Measure]]] = {
        "start": lambda: start.run(install=asked.install),
        "server": server.run,
        "gmail": gmail.run,
        "peers": lambda: peers.run(install=asked.install),
        "safety": lambda: safety.run(install=asked.install),
        "desk": lambda: desk.run(quick=asked.quick),
        "page": page.run,
        "vault": lambda: vault.run(quick=asked.quick, install=asked.install),
        "agents": lambda: agents.run(quick=asked.quick),
        "run": lambda: run.run(quick=asked.quick),
        "search": lambda: search.run(_sizes(asked.mails, quick=asked.quick)),
        "import": lambda: intake.run(
            asked.mails or (intake.QUICK if asked.quick else intake.USUAL), install=asked.install
        ),
    }
    say(machine())
    measures: list[Measure] = []
    for name in NAMES:
        if name in (asked.names or USUAL):
            say()
            measures += benches[name]()
    if asked.json:
        write_json(asked.json, measures)
    broken = [measure for measure in measures if measure.bound and measure.verdict != OK]
    say()
    for measure in broken:
        say(f"{measure.verdict}: {measure.bench}, {measure.name}, bound {measure.bound}")
    bounds = sum(1 for measure in measures if measure.bound)
    say(f"{bounds - len(broken)} of {bounds} bounds hold")
    return 1 if broken else 0


def _sizes(count: int | None, *, quick: bool) -> tuple[int, ...]:
    if count is None:
        return (search.USUAL,) if quick else (search.USUAL, search.LARGE)
    return (search.USUAL, count) if count > search.USUAL else (count,)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--mails", type=int, metavar="N", help="mails in `search` and `import`")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="no search in a million mails, a tenth of the import and of the desk's letters,"
        " a vault of 10,000 notes alone, fewer messages between agents, 3,000 mails in `run`",
    )
    parser.add_argument(
        "--install",
        action="store_true",
        help=f"{intake.INSTALL}, {vault.PACKAGE}, or the servers of others, if missing",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measures there too")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no bench {unknown[0]}; there are {', '.join(NAMES)}")
    if asked.mails is not None and asked.mails < 1000:
        parser.error("--mails must be 1000 or more, for the rare word to occur")
    return asked


if __name__ == "__main__":
    sys.exit(main())
