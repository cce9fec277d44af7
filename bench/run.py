"""The orchestrator by rules alone: from new mail to triaged notes, against what the files alone cost."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

from bench import mails, start
from bench.command import POSTROOM, output, seconds
from bench.report import Bound, Measure, Times, folder, progress, say
from postroom.vault import folders

FEW, MANY, QUICK_MANY = 1_000, 10_000, 3_000
ROUNDS, QUICK_ROUNDS = 3, 2
FLAT = Bound(1.3, "×")
ONCE = (POSTROOM, "run", "--once", "--json")

# Every tenth mail is of the same kind: whence it comes, what marks it, and what a rule makes of it.
LIST, MACHINE = "List-Id: <{host}>", "Auto-Submitted: auto-generated"
KINDS = (
    *(("lists.example.org", LIST, "done"),) * 3,
    *(("machines.example.org", MACHINE, "done"),) * 3,
    *(("questions.example.org", "", "needs_info"),) * 2,
    ("invoices.example.org", "", "delegated"),
    ("friends.example.org", "", "drafted"),
)
HANDBOOK = """# Handbook

## Rules

- list: archive
- automatic: archive
- from questions.example.org: needs_info
- from invoices.example.org: delegate Please see to this invoice.
- from friends.example.org: draft_reply Thank you, I have it and shall answer this week.
"""
SETTINGS = f"""address = "{mails.ME}"
dry_run = false
[limits]
open_letters = 10000
proposals_per_hour = 100000
[notify]
desktop = false
"""


def run(*, quick: bool = False) -> list[Measure]:
    """Measure the start, then few mails by turns with the files alone, then many."""
    # All of it goes at the end: some file systems are slower for a while after files were deleted.
    with folder() as place:
        return _measured(place, quick=quick)


class Round(NamedTuple):
    """What one run took: by the clock on the wall, of the processor, and the bytes of its notes."""

    lasted: float
    busy: float
    sizes: Sequence[int]


def _measured(place: Path, *, quick: bool) -> list[Measure]:
    many, rounds = (QUICK_MANY, QUICK_ROUNDS) if quick else (MANY, ROUNDS)
    measures = _start(place / "start")
    ones: list[Round] = []
    fews: list[Round] = []
    bares: list[float] = []
    large, grown = Round(0, 0, ()), 0.0
    for number in range(1, rounds + 1):
        if number == rounds:  # between the others, which see the same machine before and after
            progress(f"run: {many:,} mails")
            large = _triaged(place / "many", many)
            grown = _bare(place / "bare", large.sizes) / many
        progress(f"run: {FEW:,} mails, {number} of {rounds}")
        ones.append(_triaged(place / f"one {number}", 1))
        fews.append(_triaged(place / f"few {number}", FEW))
        bares.append(_bare(place / f"bare {number}", fews[-1].sizes))
    # What it takes to start two servers is paid once, however many mails there are.
    one = Times([found.lasted for found in ones]).best
    few = Times([found.lasted for found in fews])
    each, later, floor = (few.best - one) / FEW, (large.lasted - one) / many, min(bares) / FEW
    size = sum(fews[0].sizes) // FEW
    say()
    say(f"run: new mails of {_mean(FEW):,} bytes through `postroom run --once`, best of {rounds};")
    say("60 % archived by rule, 20 % left to the person, 10 % delegated, 10 % answered by a draft;")
    say(f"bare: each note ({size:,} bytes) written once: beside, fsync, rename, fsync the folder.")
    say(f"Both servers and one mail, {one:.2f} s, are taken off.")
    say(f"{'':14}{'whole':>9}{'mails/s':>9}{'a mail':>11}{'bare':>11}{'ratio':>9}")
    for count, whole, own, files in (
        (FEW, few.best, each, floor),
        (many, large.lasted, later, grown),
    ):
        say(
            f"{f'{count:,} mails':14}{whole:7.1f} s{1 / own:9,.0f}{_ms(own)}{_ms(files)}"
            f"{own / files:7.1f} ×"
        )
    # One long run has its share of whatever else the machine does: so has the median, not the best.
    usual = (few.median - one) / FEW
    ratio = later / usual
    start_busy = min(found.busy for found in ones)
    busy = (Times([found.busy for found in fews]).median - start_busy) / FEW
    later_busy = (large.busy - start_busy) / many
    grows = later_busy / busy
    verdict = FLAT.verdict(grows)
    say(f"a mail of {many:,} against one of {FEW:,}, by the clock, the median: {ratio:.2f} ×")
    say(f"and of the processor:{_ms(busy)},{_ms(later_busy)}: {grows:.2f} × {FLAT!s:>9} {verdict}")
    return [
        *measures,
        Measure("run", f"a mail of {FEW:,}", each, "s", "its note alone", floor),
        Measure("run", f"a mail of {many:,}", later, "s", f"of {FEW:,}", usual),
        # Judged by the processor: the clock also counts what else the machine does meanwhile.
        Measure(
            "run",
            f"processor, of {many:,}",
            later_busy,
            "s",
            f"of {FEW:,}",
            busy,
            str(FLAT),
            verdict,
        ),
    ]


def _ms(lasted: float) -> str:
    return f"{lasted * 1e3:8.2f} ms"


# The command


def _office(home: Path) -> None:
    """Make a vault with rules, and begin to watch an empty mailbox."""
    (home / "vault").mkdir(parents=True)
    (home / "config" / "postroom").mkdir(parents=True)
    (home / "config" / "postroom" / "postroom.toml").write_text(SETTINGS)
    (home / "vault" / folders.HANDBOOK).write_text(HANDBOOK)
    output(home, *ONCE)


def _start(home: Path) -> list[Measure]:
    _office(home)
    say(f"run: {start.RUNS} runs each by turns, nothing to do;")
    return start.turns("run", home, {"run --once": ONCE}, bounded="")


def _triaged(home: Path, count: int) -> Round:
    """Return what so many new mails take, the servers' part with it."""
    _office(home)
    with (home / "new.mbox").open("wb") as file:
        for number in range(count):
            file.write(b"From bench@example.org Thu Jan  1 00:00:00 2015\n")
            file.write(_mail(number).replace(b"\nFrom ", b"\n>From ") + b"\n")
    output(home, POSTROOM, "import", str(home / "new.mbox"))
    os.sync()  # what was imported is not on the account of what is measured
    before = _busy()
    lasted = seconds(home, ONCE)
    busy = _busy() - before
    _check(home, count)
    notes = (home / "vault" / where for where in (folders.NEEDS_ACTION, folders.DONE))
    sizes = [file.stat().st_size for where in notes for file in where.glob("*.md")]
    return Round(lasted, busy, sizes)


def _busy() -> float:
    """Return the processor's seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _check(home: Path, count: int) -> None:
    """Stop where not every mail has come to what its rule says."""
    wanted: dict[str, int] = {}
    for number in range(count):
        state = KINDS[number % len(KINDS)][2]
        wanted[state] = wanted.get(state, 0) + 1
    told = home / "vault" / "Logs" / "orchestrator_state.json"
    found = json.loads(told.read_text())["mails"]
    if found != wanted:
        raise SystemExit(f"the mails are {found}, not {wanted}: the time would mean nothing")


def _mail(number: int) -> bytes:
    """Return a plain mail of its own conversation, made from its number alone."""
    host, mark, _ = KINDS[number % len(KINDS)]
    made = mails.mail(number, MANY)
    local = made.sender.rpartition("<")[2].partition("@")[0]
    date = mails.LAST_DATE + 60 * number
    head = [
        f"Received: from {host} by mx.example.org with ESMTPS id {number:x}",
        f"\tfor <{mails.ME}>; {formatdate(date)}",
        f"Message-ID: <{number}.run@{host}>",
        f"Date: {formatdate(date)}",
        f"From: {local} <{local}@{host}>",
        f"To: {mails.ME}",
        f"Subject: {made.subject.removeprefix('Re: ')} {number}",
        *([mark.format(host=host)] if mark else []),
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: 8bit",
    ]
    body = made.text + "\n\n" + mails.mail(number + MANY, 2 * MANY).text
    return "\n".join([*head, "", body, ""]).encode()


def _mean(count: int) -> int:
    return sum(len(_mail(number)) for number in range(count)) // count


# The files alone


def _bare(home: Path, sizes: Sequence[int]) -> float:
    """Return how long it takes to write so many notes, each on the disk before the next."""
    home.mkdir()
    os.sync()
    began = time.perf_counter()
    for number, size in enumerate(sizes):
        beside = home / ".beside"
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(handle, b"n" * size)
        os.fsync(handle)
        os.close(handle)
        beside.rename(home / f"{number}.md")
        handle = os.open(home, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return time.perf_counter() - began
