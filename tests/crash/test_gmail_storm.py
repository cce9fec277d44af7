"""A Gmail whose faults are drawn at random, and four processes that are killed: none twice, none lost.

Answers are lost, come late, or are false, before and after a request was carried out; lists lag. Three
dispatchers run beside an agent and a person who approves, takes back, changes and rejects.
"""

from __future__ import annotations

import json
import os
import random
import re
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.desk.desk import Desk
from postroom.desk.dispatch import ASK_AGAIN, LATEST
from tests.crash import worker
from tests.crash.counts import GMAIL_LETTERS as LETTERS
from tests.crash.counts import SEED
from tests.crash.test_crash import Storm, Worker, planned
from tests.crash.worker import Asked
from tests.gmail.boxes import gmail_box, token_file
from tests.gmail.double import Failure, Fault, Gmail
from tests.narrow import narrow

T = TypeVar("T")

LONGEST = 120 + LETTERS  # seconds, on a machine that others use too
SPEED = 60.0  # seconds that pass in the storm for one outside
STEPS = (
    *("claimed", "prepared", "proof kept", "handing", "accepted", "answered", "recorded"),
    *("claim taken", "releasing", "released"),  # only after a fault
)
DRAWN = 0.4  # of requests that meet a fault

LOSSES: list[Failure] = [{"lost": "before"}, {"lost": "after"}, {"lost": "late"}, {"cut": True}]
FAILURES: list[Failure] = [{"status": status} for status in (302, 408, 500, 503)]
REFUSALS: list[Failure] = [
    {"status": 401},
    {"status": 409},
    {"status": 429},
    {"status": 403, "reason": "forbidden"},
    {"status": 403, "reason": "rateLimitExceeded"},
    {"status": 404, "reason": "notFound"},
    {"status": 404, "body": b"<html>"},
]
LAGS: list[Failure] = [{"lag": lag} for lag in (1, 3, 10, 100)]
DONE: Failure = {"done": True}
# What befalls a request. That a draft is there, or gone, Gmail never says falsely when it is asked.
FAULTS: dict[str, list[Failure]] = {
    "POST .*/drafts/send$": LOSSES
    + FAILURES
    + REFUSALS
    + [fault | DONE for fault in FAILURES + REFUSALS],
    # By messages, nothing but the mail itself could tell that a refusal is false.
    "POST .*/messages/send$": LOSSES
    + FAILURES
    + REFUSALS
    + [fault | DONE for fault in (*FAILURES, REFUSALS[-1])],
    "POST .*/drafts$": [*LOSSES, *FAILURES, {"status": 429}, *(fault | DONE for fault in FAILURES)],
    "DELETE .*/drafts/": LOSSES
    + FAILURES
    + REFUSALS
    + [fault | DONE for fault in FAILURES + REFUSALS],
    "GET .*/drafts/": [{"lost": "after"}, {"status": 403, "reason": "forbidden"}, {"status": 503}],
    "GET .*/(drafts|messages|history)$": [
        *LAGS,
        {"lost": "after"},
        {"status": 429},
        {"status": 500},
    ],
}


class Weather:
    """Faults by chance; their seed is printed, and which request meets which is up to the processes."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.met = Counter[str]()

    def __call__(self, where: str) -> Fault | None:
        """Return the fault of the request "METHOD /path", if it meets one."""
        for pattern, faults in FAULTS.items():
            if re.search(pattern, where) and self.chance.random() < DRAWN:
                drawn = self.chance.choice(faults)
                self.met[pattern] += 1
                delay = self.chance.uniform(0.0, 1.0) if drawn.get("lost") == "late" else 0.0
                return Fault(re.compile(pattern), delay=delay, **drawn)
        return None


class Service:
    """The double in a process of its own, so that this one can fork others."""

    def __init__(self, seed: str) -> None:
        ours, self._end = os.pipe()
        self._answers, theirs = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._end)
                os.close(self._answers)
                with os.fdopen(ours) as orders:
                    _serve(seed, orders, theirs)
            except BaseException:  # noqa: BLE001 - the parent waits for an answer, and has none
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(ours)
        os.close(theirs)
        self._read = os.fdopen(self._answers)
        self.where = self._answer(list)

    def _answer(self, kind: type[T]) -> T:
        return narrow(json.loads(self._read.readline()), kind)

    def report(self) -> dict[str, Any]:
        """Have Gmail work as it should from now on; return what was accepted, and what drafts it holds."""
        os.write(self._end, b"report\n")
        return self._answer(dict)

    def close(self) -> None:
        """End it."""
        os.close(self._end)
        os.waitpid(self.pid, 0)
        self._read.close()


def _serve(seed: str, orders: Iterable[str], answers: int) -> None:
    with Gmail() as service:
        where = [service.endpoint, service.token_uri, service.token(expires_in=86_400)]
        os.write(answers, json.dumps(where).encode() + b"\n")
        service.draw_fault = weather = Weather(seed)
        for _ in orders:
            service.draw_fault = None
            service.wait_for_late()
            with service.lock:
                marks = re.compile(rb"^X-Postroom-Letter: *(\w+)", re.MULTILINE)
                drafts = [
                    service.mailbox.messages[id].raw for id in service.mailbox.drafts.values()
                ]
                report = {
                    "accepted": [one.letter for one in service.sent],
                    "drafts": [mark.decode() for raw in drafts for mark in marks.findall(raw)],
                    "met": weather.met,
                }
            os.write(answers, json.dumps(report).encode() + b"\n")


class AtGmail(Asked):
    """A line to the double, as a process opens it."""

    def __init__(self, folder: Path, step: worker.Step, now: Callable[[], float]) -> None:
        endpoint, token_uri, by_draft = json.loads((folder / "where.json").read_text())
        self.step = step
        self.at_hand = ""
        self.box = gmail_box(endpoint, token_uri, folder / "token.json", by_draft=by_draft)


@dataclass
class GmailStorm(Storm):
    """An office at Gmail, in which time runs fast."""

    by_draft: bool = True

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        folder = self.folder / "provider"
        folder.mkdir()
        self.service = Service(f"{SEED} {self.by_draft}")
        endpoint, token_uri, token = self.service.where
        (folder / "where.json").write_text(json.dumps([endpoint, token_uri, self.by_draft]))
        token_file(folder, token)
        super().__post_init__()

    def _offset(self) -> float:
        return super()._offset() + (time.monotonic() - self.began) * SPEED

    def _go(self, seconds: float) -> None:
        struct.pack_into("d", self._shared, 0, super()._offset() + seconds)

    def _act(self, role: str, desk: Desk) -> None:
        if role == "dispatch":
            worker.dispatch(desk, self.folder, self._halted)
        else:
            decide(desk, self.folder, self._halted, random.Random(os.urandom(8)))

    def _ended(self, dead: Worker) -> bool:
        """Take in how a worker ended; one that did not come to its step in time is not missed."""
        super()._ended(dead)
        return True

    def calm(self) -> dict[str, life.State]:
        """Let one process that nobody kills bring everything to its end; return each letter's state."""
        with self.office() as (desk, _):
            for wait in (0.0, ASK_AGAIN, ASK_AGAIN, LATEST, LATEST, LATEST, LATEST):
                self._go(wait + 1)
                worker.approve(desk, self.folder)
                desk.reconcile()
                for _ in range(2):
                    desk.send_approved()
            assert desk.log.verify() == []
            assert desk.ledger.check_integrity() == "ok"
            return {line.id: line.state for line in desk.ledger.lists.summaries(*life.STATES)}


def decide(desk: Desk, folder: Path, halted: Callable[[], bool], chance: Random) -> None:
    """Be an agent that writes letters, and a person who approves them and thinks again."""
    while not halted():
        with suppress(PostroomError):  # Gmail is asked about recipients, and fails
            worker.approve(desk, folder)
            if len(desk.ledger.lists.summaries("pending", "approved")) < worker.AHEAD:
                worker.propose(desk, folder)
        for line in desk.ledger.lists.summaries("approved"):
            if narrow(line.state, life.Approved).tries and chance.random() < 0.2:
                with suppress(PostroomError):
                    think_again(desk, line.id, chance)


def think_again(desk: Desk, id: str, chance: Random) -> None:
    """Take back a letter that was tried already; reject it, change it, or leave it to be approved again."""
    entry, act = desk.decide(id, "undo"), chance.random()
    if act < 0.2:
        desk.decide(id, "reject", by="ada", reason="no")
    elif act < 0.7:
        desk.edit(id, replace(entry.letter, text=f"{entry.letter.text}And {chance.random()}.\n"))


@pytest.mark.timeout(2 * LONGEST)
@pytest.mark.parametrize("sending", ["draft", "message"])
def test_whatever_gmail_answers_and_whoever_dies_a_letter_is_accepted_once_and_known_to_be(
    tmp_path: Path, sending: str
) -> None:
    storm = GmailStorm(tmp_path, AtGmail, dispatchers=3, by_draft=sending == "draft")
    letters = LETTERS if storm.by_draft else LETTERS // 3
    kills = -(-letters // 30)
    try:
        began = time.monotonic()
        steps = dict.fromkeys(STEPS, kills) | {"": 4 * kills}
        storm.run(letters, {"dispatch": planned(steps), "write": [""] * kills})
        took = time.monotonic() - began
        storm.service.report()
        check(storm, took)
    except BaseException:
        sys.stdout.write(f"\nPOSTROOM_CRASH_SEED={SEED}\n")
        raise
    finally:
        storm.service.close()


def check(storm: GmailStorm, took: float) -> None:
    """Check that no letter was accepted twice, and that what the ledger says is so."""
    ended = storm.calm()
    report = storm.service.report()
    accepted = Counter(report["accepted"])
    kinds = Counter(life.name(state) for state in ended.values())
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    met, how = sum(report["met"].values()), "draft" if storm.by_draft else "message"
    at = ", ".join(f"{step} {count}" for (_, step), count in sorted(storm.killed.items()))
    sys.stdout.write(
        f"\nseed {SEED}, by {how}: {len(ended)} letters in {took:.0f} s, {met} faults,"
        f" {storm.killed.total()} deaths ({at}); {told}\n"
    )
    assert set(storm.written().values()) <= ended.keys(), "lost"
    assert max(accepted.values()) == 1, "sent twice"
    assert accepted.keys() <= ended.keys()
    for id, state in ended.items():
        assert life.name(state) in ("sent", "unknown", "failed", "rejected"), (id, state)
        if isinstance(state, life.Sent):
            assert id in accepted, (id, state)
        elif not isinstance(state, life.Unknown):
            assert id not in accepted, (id, state)
    # What nobody could tell the person tells, by what Gmail has; the rest leaves then.
    with storm.office() as (desk, _):
        for id, state in ended.items():
            if isinstance(state, life.Unknown):
                desk.decide(id, "resolve", by="ada", sent=id in accepted)
    ended, report = storm.calm(), storm.service.report()
    accepted = Counter(report["accepted"])
    assert max(accepted.values()) == 1, "sent twice"
    assert accepted.keys() == {id for id, state in ended.items() if isinstance(state, life.Sent)}
    assert {life.name(state) for state in ended.values()} <= {"sent", "failed", "rejected"}
    assert not set(report["drafts"]) & ended.keys(), "drafts left behind"
    assert accepted.total() >= len(ended) // 2
