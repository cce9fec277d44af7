"""How long a command takes from the shell and back, against an interpreter that does nothing; and how soon servers answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import mails, ready
from bench.command import POSTROOM, mailbox, output, seconds
from bench.report import Bound, Measure, Times, folder, progress, say

MAILS = 1_000
RUNS = 20
BOUND = Bound(12, "×")


def run(*, install: bool = False) -> list[Measure]:
    """Measure `postroom search`, `read` and `--help` by turns with `python -c pass`, then the servers."""
    with folder() as home:
        progress(f"start: {MAILS:,} mails")
        mailbox(home, MAILS)
        search = (POSTROOM, "search", mails.COMMON)
        newest = json.loads(output(home, *search, "--json"))["messages"][0]["id"]
        commands = {
            "postroom search": search,
            "postroom read": (POSTROOM, "read", newest),
            "postroom --help": (POSTROOM, "--help"),
        }
        say(f"start: {RUNS} runs each by turns, a mailbox of {MAILS:,} mails;")
        measures = turns("start", home, commands, bounded="postroom search")
        return measures + ready.run(home, install=install)


def turns(
    bench: str, home: Path, commands: Mapping[str, Sequence[str]], *, bounded: str
) -> list[Measure]:
    """Measure commands in that home by turns with `python -c pass`; the bound is for one of them."""
    nothing = (sys.executable, "-c", "pass")
    for command in (nothing, *commands.values()):
        seconds(home, command)  # once for the byte code and the disk
    runs: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        runs.append(seconds(home, nothing))
        for name, command in commands.items():
            taken[name].append(seconds(home, command))
    bare = Times(runs)
    say(f"python -c pass: median {bare.median * 1e3:.1f} ms, best {bare.best * 1e3:.1f} ms")
    say(f"{'':16}{'median':>11}{'ratio':>9}{'best':>12}{'ratio':>9}{'bound':>10}")
    measures = []
    for name, times in ((name, Times(found)) for name, found in taken.items()):
        # The best run is judged: a process that does the same each time is only ever held up.
        ratio = times.best / bare.best
        bound = str(BOUND) if name == bounded else ""
        verdict = BOUND.verdict(ratio) if bound else ""
        measures.append(
            Measure(bench, name, times.best, "s", "python -c pass", bare.best, bound, verdict)
        )
        say(
            f"{name:16}{times.median * 1e3:8.1f} ms{times.median / bare.median:7.1f} ×"
            f"{times.best * 1e3:9.1f} ms{ratio:7.1f} ×{bound:>10} {verdict}".rstrip()
        )
    return measures
