"""How long a list of the newest 20 takes inside the process, against bare FTS5 and a plain table of the same mails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from bench import bare, mails
from bench.report import Bound, Measure, Times, folder, progress, say
from postroom.core.address import Address
from postroom.mail.local import LocalMailbox

USUAL, LARGE = 100_000, 1_000_000
RUNS = 50
NEWEST = 20
BATCH = 2_000
PROGRESS_EVERY = 50_000
BOUND = Bound(7, "×")
DATE_BOUND = Bound(14, "×")  # bare, a range of row ids needs no list of a word


class Case(NamedTuple):
    """A query, and the condition of bare FTS5 that gives the same mails."""

    name: str
    query: str
    condition: str
    values: tuple[object, ...]
    bound: Bound = BOUND


class Answer(NamedTuple):
    """How long one case took in a mailbox of one size."""

    postroom: Times
    bare: Times
    bound: Bound


def cases(count: int) -> list[Case]:
    """Return what is asked of a mailbox of so many mails."""
    name, address = next(
        found
        for found in mails.senders()[100:]
        if found[0].isascii() and len(found[0].split()) == 2
    )
    topic = mails.vocabulary()[100]
    since, until = datetime(2019, 3, 1, tzinfo=UTC), datetime(2019, 4, 1, tzinfo=UTC)
    whole = mails.LAST_DATE - mails.FIRST_DATE

    def first_rank(day: datetime) -> int:
        """Return the lowest rank whose mail, dated two seconds after its place, is of that day."""
        after = int(day.timestamp()) + 2 - mails.FIRST_DATE
        return -(-after * count // whole)

    def match(text: str) -> tuple[str, tuple[object, ...]]:
        return "bare MATCH ?", (text,)

    return [
        Case("rare word (0.1 %)", mails.RARE, *match(mails.RARE)),
        Case("common word (20 %)", mails.COMMON, *match(mails.COMMON)),
        Case("word in nearly all", mails.NEARLY_ALL, *match(mails.NEARLY_ALL)),
        Case("phrase (1 %)", f'"{mails.PHRASE}"', *match(f'"{mails.PHRASE}"')),
        Case("from: name", f'from:"{name}"', *match(f'sender : "{name}"')),
        Case("from: address", f"from:{address}", *match(f'sender : "{address}"')),
        Case("subject:", f"subject:{topic}", *match(f"subject : {topic}")),
        Case(
            "date range",
            f"after:{since:%Y/%m/%d} before:{until:%Y/%m/%d}",
            "rowid >= ? AND rowid < ?",
            (first_rank(since), first_rank(until)),
            DATE_BOUND,
        ),
        Case("unread in inbox", "is:unread in:inbox", *match("marks : unread AND marks : inbox")),
        Case(
            "common, rare label",
            f"{mails.COMMON} label:{mails.RARE_LABEL}",
            *match(f"{mails.COMMON} AND marks : {mails.RARE_LABEL}"),
        ),
    ]


def run(sizes: Sequence[int]) -> list[Measure]:
    """Measure every case in mailboxes of these sizes; the bound is for the first."""
    answers = [_answers(size) for size in sizes]
    usual, beside = answers[0], answers[1:]
    say(f"search: the newest {NEWEST}, {RUNS} runs each; × is the median against bare FTS5's")
    widths = (39, *(18 for _ in beside))
    say(
        f"{'':18}"
        + "".join(f"{f'{size:,} mails':>{wide}}" for wide, size in zip(widths, sizes, strict=True))
    )
    say(
        f"{'ms':18}{'best':>9}{'median':>9}{'×':>7}{'bound':>9}"
        + f"{'':5}{'median':>11}{'×':>7}" * len(beside)
    )
    measures = []
    for name, answer in usual.items():
        verdict = answer.bound.verdict(answer.postroom.median / answer.bare.median)
        row = (
            f"{name:18}{answer.postroom.best * 1e3:9.3f}{answer.postroom.median * 1e3:9.3f}"
            f"{answer.postroom.median / answer.bare.median:7.1f}{answer.bound!s:>9} {verdict:4}"
        )
        measures.append(_measure(sizes[0], name, answer, str(answer.bound), verdict))
        for size, other in zip(sizes[1:], beside, strict=True):
            found = other[name]
            row += f"{found.postroom.median * 1e3:11.3f}{found.postroom.median / found.bare.median:7.1f}"
            measures.append(_measure(size, name, found))
        say(row.rstrip())
    return measures


def _measure(size: int, name: str, answer: Answer, bound: str = "", verdict: str = "") -> Measure:
    return Measure(
        "search",
        f"{name}, {size:,} mails",
        answer.postroom.median,
        "s",
        "bare FTS5",
        answer.bare.median,
        bound,
        verdict,
    )


def _answers(size: int) -> dict[str, Answer]:
    with folder() as place, ProcessPoolExecutor(1) as second_core:
        building = second_core.submit(bare.build, place / "bare.sqlite", size)
        box = LocalMailbox(
            place / "mail.sqlite",
            [Address(*mails.ME.split("@"))],
            now=lambda: mails.LAST_DATE,
            zone=UTC,
        )
        with closing(box):
            _fill(box, size)
            building.result()
            with closing(bare.Bare(place / "bare.sqlite")) as baseline:
                return {case.name: _answer(case, box, baseline) for case in cases(size)}


def _fill(box: LocalMailbox, size: int) -> None:
    began, done = time.perf_counter(), 0
    for batch in _batches(mails.shuffled(size)):
        box.add_mails([made.arrival for made in batch])
        done += len(batch)
        if done % PROGRESS_EVERY == 0 or done == size:
            rate = done / (time.perf_counter() - began)
            progress(f"search: {done:,} of {size:,} mails kept, {rate:,.0f} a second")


def _answer(case: Case, box: LocalMailbox, baseline: bare.Bare) -> Answer:
    def ask() -> list[int]:
        page = box.search(case.query, limit=NEWEST)
        return [mails.rank_of(item.message_id) for item in page.items]

    def ask_bare() -> list[int]:
        return baseline.newest(case.condition, case.values, NEWEST)

    found = ask()
    if found != ask_bare():
        raise SystemExit(f"{case.query}: the mailbox and bare FTS5 find different mails")
    if not found:
        raise SystemExit(f"{case.query}: finds nothing; take more mails")
    own: list[float] = []
    theirs: list[float] = []
    for _ in range(RUNS):
        own.append(_seconds(lambda: box.search(case.query, limit=NEWEST)))
        theirs.append(_seconds(ask_bare))
    return Answer(Times(own), Times(theirs), case.bound)


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _batches(made: Iterator[mails.Made]) -> Iterator[list[mails.Made]]:
    while batch := list(islice(made, BATCH)):
        yield batch
