"""The orchestrator by rules alone: from new mail to triaged notes, against what the files alone cost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import Path

from bench import mails, start
from bench.command import POSTROOM, output, seconds
from bench.report import Bound, Measure, Times, folder, progress, say
from postroom.vault import folders

FEW, MANY, QUICK_MANY = 1_000, 10_000, 3_000
ROUNDS, QUICK_ROUNDS = 3, 1
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


def _measured(place: Path, *, quick: bool) -> list[Measure]:
    many, rounds = (QUICK_MANY, QUICK_ROUNDS) if quick else (MANY, ROUNDS)
    measures = _start(place / "start")
    ones, fews, bares = [], [], []
    sizes: Sequence[int] = ()
    for number in range(1, rounds + 1):
        progress(f"run: {FEW:,} mails, {number} of {rounds}")
        ones.append(_triaged(place / f"one {number}", 1)[0])
        lasted, sizes = _triaged(place / f"few {number}", FEW)
        fews.append(lasted)
        bares.append(_bare(place / f"bare {number}", sizes))
    progress(f"run: {many:,} mails")
    large, more = _triaged(place / "many", many)
    # What it takes to start two servers is paid once, however many mails there are.
    one, few, bare = (Times(found).best for found in (ones, fews, bares))
    each, later, floor = (few - one) / FEW, (large - one) / many, bare / FEW
    grown = _bare(place / "bare", more) / many
    say()
    say(f"run: new mails of {_mean(FEW):,} bytes through `postroom run --once`, best of {rounds};")
    say("60 % archived by rule, 20 % left to the person, 10 % delegated, 10 % answered by a draft;")
    say(f"bare: each note ({sum(sizes) // FEW:,} bytes) written once: beside, fsync, rename, fsync")
    say(f"the folder. Both servers and one mail, {one:.2f} s, are taken off.")
    say(f"{'':18}{'whole':>9}{'mails/s':>9}{'a mail':>12}{'bare':>11}{'ratio':>9}")
    for count, whole, own, files in ((FEW, few, each, floor), (many, large, later, grown)):
        say(
            f"{f'{count:,} mails':18}{whole:7.1f} s{1 / own:9,.0f}{_ms(own)}{_ms(files)}"
            f"{own / files:7.1f} ×"
        )
    ratio = later / each
    verdict = FLAT.verdict(ratio)
    say(f"a mail of {many:,} against one of {FEW:,}: {ratio:.2f} × {FLAT!s:>9} {verdict}")
    return [
        *measures,
        Measure("run", f"a mail of {FEW:,}", each, "s", "its note alone", floor),
        Measure("run", f"a mail of {many:,}", later, "s", f"of {FEW:,}", each, str(FLAT), verdict),
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


def _triaged(home: Path, count: int) -> tuple[float, Sequence[int]]:
    """Return how long so many new mails take, and the bytes of the notes that are there then."""
    _office(home)
    with (home / "new.mbox").open("wb") as file:
        for number in range(count):
            file.write(b"From bench@example.org Thu Jan  1 00:00:00 2015\n")
            file.write(_mail(number).replace(b"\nFrom ", b"\n>From ") + b"\n")
    output(home, POSTROOM, "import", str(home / "new.mbox"))
    os.sync()  # what was imported is not on the account of what is measured
    lasted = seconds(home, ONCE)
    _check(home, count)
    notes = (home / "vault" / where for where in (folders.NEEDS_ACTION, folders.DONE))
    return lasted, [file.stat().st_size for where in notes for file in where.glob("*.md")]


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
