"""Dispatchers, an agent and a person, killed at every step: nothing is sent twice, nothing is lost.

The processes are forked from this one, which opens no database while they live.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import re
import select
import signal
import sqlite3
import struct
import sys
import time
import traceback
from collections import Counter, defaultdict
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from postroom.core import life
from postroom.core.audit import GENESIS, ParsedLine, digest, read
from postroom.desk.desk import Desk
from postroom.desk.dispatch import ASK_AGAIN
from postroom.desk.proposals import Proposal
from tests.crash import worker
from tests.crash.counts import LETTERS, SEED, scaled
from tests.crash.worker import Asked, Late, Mute
from tests.desks import change_settings
from tests.narrow import narrow, present
from tests.posting import post

SHARE = -(-LETTERS // 3)  # of one provider
KILLS = scaled(40)  # at each step, with each provider
KILLS_WITHIN = scaled(14)  # at each of the finer ones
ANYWHERE = {"": scaled(60)}  # that die at a random moment
LIVES = {"dispatch": 0.5, "write": 2.0}  # seconds at most, of one that dies anywhere
PATIENCE = 2.0  # seconds that a worker is given to reach the step at which it dies
LONGEST = 180 + LETTERS  # seconds for one provider, on a machine that others use too

# Where a claim has an owner and no outcome: without, and with the provider having the letter.
NOT_YET = ("claimed", "published", "handing")
ALREADY = ("accepted", "answered")
STEPS = ("locked", "checked", *NOT_YET, *ALREADY, "recorded")
# Inside a question, a transaction that writes to the chain, the log, and the move of a note.
WITHIN = ("asking", "drawn", "appended", "linking", "linked")

LEGAL = {
    ("pending", "approved"),
    ("approved", "sending"),
    ("sending", "sent"),
    ("sending", "approved"),
    ("sending", "unknown"),
    ("unknown", "unknown"),
    ("unknown", "sent"),
}
RESOLVED = {("unknown", "pending")}
NOTE = {"sent": ("Done", "done"), "unknown": ("Approved", "unknown")}


@dataclass
class Worker:
    """A process that was started, where it is to die, and when if it does not get there."""

    pid: int
    pipe: int
    role: str
    step: str
    doom: float


@dataclass
class Storm:
    """One office, the processes in it, and how they died."""

    folder: Path
    provider: type[Asked]
    required: bool = True  # whether a person approves each letter
    dispatchers: int = 2
    killed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by role and step
    at_hand: defaultdict[str, set[str]] = field(
        default_factory=lambda: defaultdict(set)
    )  # letters, by step

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{SEED} {self.provider.__name__} {self.required}")
        self._parent = os.getpid()
        self._shared = mmap.mmap(-1, 16)  # seconds that the clock is ahead; whether it is enough
        for name in ("vault", "state"):
            (self.folder / name).mkdir(mode=0o700)
        with self.office() as (desk, _):
            change_settings(desk.ledger, desk_id=worker.DESK)

    def office(
        self, step: worker.Step = lambda _name: None
    ) -> AbstractContextManager[tuple[Desk, Asked]]:
        """Open the desk in this process; no other may be started meanwhile."""
        return worker.office(self.folder, self.provider, self._offset, step, required=self.required)

    def _offset(self) -> float:
        return narrow(struct.unpack_from("d", self._shared)[0], float)

    def _go(self, seconds: float) -> None:
        struct.pack_into("d", self._shared, 0, self._offset() + seconds)

    def _halted(self) -> bool:
        # Where the tests themselves were killed, their workers end too.
        return self._shared[8] != 0 or os.getppid() != self._parent

    def written(self) -> dict[int, str]:
        """Return the letters that the agent had an answer about: number and id."""
        found = worker.lines(self.folder / "proposed")
        return {int(number): id for number, id in found}

    # Processes

    def run(self, letters: int, plans: dict[str, list[str]]) -> None:
        """Start workers and kill them until each step was died at as planned, and so much is written.

        `plans` has the steps for each role; a worker without one dies at random.
        """
        for steps in plans.values():
            self.chance.shuffle(steps)
        end = time.monotonic() + LONGEST
        workers: list[Worker] = []
        while (
            any([*plans.values(), *(one.step for one in workers)]) or len(self.written()) < letters
        ):
            assert time.monotonic() < end, (plans, self.killed)
            for role in ["dispatch"] * self.dispatchers + ["write"]:
                wanted = self.dispatchers if role == "dispatch" else 1
                if sum(one.role == role for one in workers) < wanted:
                    step = plans[role].pop() if plans[role] else ""
                    # Where only letters are missing, time is for them.
                    lives = LIVES[role] if any(plans.values()) else 10 * LIVES[role]
                    lives = PATIENCE if step else self.chance.uniform(0.01, lives)
                    workers.append(self._start(role, step, lives))
            for dead in self._wait(workers):
                workers.remove(dead)
                if not self._ended(dead) and dead.step:
                    steps = plans[dead.role]
                    steps.insert(self.chance.randrange(len(steps) + 1), dead.step)
                if not self.killed.total() % 40:
                    self._go(ASK_AGAIN + 1)
        self._shared[8] = 1
        while workers:
            for dead in self._wait(workers):
                workers.remove(dead)
                self._ended(dead)

    def _start(self, role: str, step: str, lives: float) -> Worker:
        # The pipe ends with the process, however that ends.
        pipe, end = os.pipe()
        nth = 1 if step == "asking" else self.chance.randint(1, 3)
        pid = os.fork()
        if not pid:
            try:
                os.close(pipe)
                self._work(role, step, nth, end)
            except BaseException:  # noqa: BLE001 - the parent raises it
                _tell(end, error=traceback.format_exc())
            finally:
                os._exit(0)
        os.close(end)
        return Worker(pid, pipe, role, step, time.monotonic() + lives)

    def _work(self, role: str, step: str, nth: int, end: int) -> None:
        left, opened = nth, list[Asked]()

        def reached(name: str) -> None:
            nonlocal left
            left -= name == step
            if not left:
                _tell(end, step=name, letter=opened[0].at_hand if opened else "")
                os.kill(os.getpid(), signal.SIGKILL)

        with self.office(step=reached) as (desk, box):
            opened.append(box)
            self._act(role, desk)

    def _act(self, role: str, desk: Desk) -> None:
        """Do what a worker of this role does, until it is enough."""
        act = worker.dispatch if role == "dispatch" else worker.write
        act(desk, self.folder, self._halted)

    def _wait(self, workers: list[Worker]) -> list[Worker]:
        """Return those that ended, as soon as one did; kill those whose time has come."""
        by_pipe = {one.pipe: one for one in workers}
        while True:
            left = min(one.doom for one in workers) - time.monotonic()
            ready, _, _ = select.select(list(by_pipe), [], [], max(0.0, left))
            if ready:
                return [by_pipe[pipe] for pipe in ready]
            for one in workers:
                if one.doom <= time.monotonic():
                    os.kill(one.pid, signal.SIGKILL)
                    one.doom += LONGEST

    def _ended(self, dead: Worker) -> bool:
        """Take in how a worker ended; return whether it died where it should."""
        with open(dead.pipe, "rb") as pipe:
            said = [json.loads(line) for line in pipe.read().splitlines()]
        _, status = os.waitpid(dead.pid, 0)
        for one in said:
            assert "error" not in one, one["error"]
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.killed[dead.role, one["step"]] += 1
            self.at_hand[one["step"]].add(one["letter"])
        if not said and os.WIFSIGNALED(status):
            self.killed[dead.role, "anywhere"] += 1
        return bool(said)

    # Afterwards

    def calm(self) -> dict[str, life.State]:
        """Let one process that nobody kills bring everything to its end; return each letter's state."""
        begun = {int(number) for (number,) in worker.lines(self.folder / "begun")}
        with self.office() as (desk, _):
            while len(self.written()) < max(begun):
                worker.propose(desk, self.folder)
            for _ in range(worker.ASKS + 2):
                worker.approve(desk, self.folder)
                desk.reconcile()
                desk.send_approved()
                self._go(ASK_AGAIN + 1)
            desk.reconcile()
            return {line.id: line.state for line in desk.ledger.lists.summaries(*life.STATES)}

    def accepted(self) -> list[tuple[str, str]]:
        """Return what the provider took: letter and SHA-256 of the bytes, each time."""
        return self.provider.accepted(self.folder / "provider")

    def resolve(self) -> None:
        """Be the person who looks into the mailbox, says what was sent, and approves the rest again."""
        there = dict(self.accepted())
        with self.office() as (desk, _):
            for line in desk.ledger.lists.summaries("unknown"):
                desk.decide(line.id, "resolve", by="ada", sent=line.id in there)
        self.calm()

    def repeat(self, numbers: range) -> dict[int, str]:
        """Be the agent that asks for the same letters again; return what they are."""
        with self.office() as (desk, _):
            return {
                n: post(desk, worker.CALL, worker.letter(n), Proposal(key=f"number {n}")).id
                for n in numbers
            }

    def tell(self, took: float) -> None:
        """Print what was done, for whoever runs this."""
        deaths = Counter[str]()
        for (role, step), count in self.killed.items():
            deaths[f"{step} ({role})"] += count
        told = ", ".join(f"{name} {count}" for name, count in sorted(deaths.items()))
        name = self.provider.__name__ + ("" if self.required else ", without approvals")
        sys.stdout.write(
            f"\n{name}: {len(self.written())} letters in {took:.0f} s, deaths: {told}\n"
        )
        sys.stdout.flush()

    # What must hold

    def check(self, legal: set[tuple[str, str]]) -> defaultdict[str, set[str]]:
        """Check all that must hold of every letter, and return the ids by state."""
        with self.office() as (desk, _):
            assert desk.log.verify() == []
            assert desk.ledger.check_integrity() == "ok"
            listed = {line.id: line.state for line in desk.ledger.lists.summaries(*life.STATES)}
            subjects = {id: desk.ledger.letters.get(id).letter.subject for id in listed}
            histories = {id: desk.ledger.letters.past_states(id) for id in listed}
            actions = [present(read(line)) for _, line in desk.ledger.actions.after()]
        written = self.written()
        assert sorted(written) == list(range(1, len(written) + 1))
        # None lost, none made up: as many letters as were proposed, each under its first id.
        assert subjects == {id: f"Number {number}" for number, id in written.items()}
        accepted = self.accepted()
        assert {id for id, _ in accepted} <= listed.keys()
        counted = Counter(id for id, _ in accepted)
        assert [id for id, times in counted.items() if times > 1] == [], "sent twice"
        by_state = defaultdict[str, set[str]](set)
        for id, history in histories.items():
            assert history[-1] == listed[id]
            by_state[life.name(listed[id])].add(id)
            self._check_history(id, history, dict(accepted).get(id), legal)
        self._check_budget(histories)
        self._check_chain(actions, histories)
        self._check_notes(listed)
        return by_state

    def _check_history(
        self, id: str, history: list[life.State], accepted: str | None, legal: set[tuple[str, str]]
    ) -> None:
        """A letter went a way that there is, left as it was claimed, and only then is `sent`."""
        names = [life.name(state) for state in history]
        assert {("", names[0]), *pairwise(names)} <= legal | {("", "pending")}, (id, names)
        if names[-1] == "sent":
            assert accepted, f"{id} was lost"
        if accepted:
            assert names[-1] in ("sent", "unknown"), (id, names)
            last = [state for state in history if isinstance(state, life.Sending)][-1]
            assert accepted == last.wire, f"{id} left with other bytes than its claim has"

    def _check_budget(self, histories: dict[str, list[life.State]]) -> None:
        """What is spent is what was claimed, but for the claims that a proof gave back."""
        with closing(sqlite3.connect(self.folder / "state" / "ledger.sqlite")) as connection:
            spent = Counter(id for (id,) in connection.execute("SELECT letter FROM claim"))
        claimed = Counter[str]()
        for id, history in histories.items():
            moves = list(pairwise(life.name(state) for state in history))
            claims = moves.count(("approved", "sending"))
            claimed[id] = claims - moves.count(("sending", "approved"))
        assert spent == +claimed

    def _check_chain(
        self, actions: list[ParsedLine], histories: dict[str, list[life.State]]
    ) -> None:
        """The chain is whole by its own numbers and hashes, and tells every claim."""
        before = GENESIS
        for seq, action in enumerate(actions, 1):
            assert (action.seq, action.previous) == (seq, before)
            before = digest(action.line)
        claims = Counter(one.letter for one in actions if one.action_type == "claim_letter")
        for id, history in histories.items():
            assert claims[id] == sum(isinstance(state, life.Sending) for state in history)

    def _check_notes(self, listed: dict[str, life.State]) -> None:
        """Every letter has one note, where its state has it."""
        found = defaultdict[str, list[tuple[str, str]]](list)
        for path in (self.folder / "vault").rglob("*.md"):
            text = path.read_text("utf-8")
            (id,) = re.findall(r'^letter: "([a-z2-7]{10})"$', text, re.MULTILINE)
            (status,) = re.findall(r'^status: "(\w+)"$', text, re.MULTILINE)
            found[id].append((path.parent.name, status))
        wanted = {id: [NOTE[life.name(state)]] for id, state in listed.items()}
        assert {id: notes for id, notes in found.items() if notes != wanted.get(id)} == {}
        assert found.keys() == wanted.keys()


def _tell(end: int, **words: str) -> None:
    os.write(end, json.dumps(words).encode() + b"\n")


def planned(kills: dict[str, int]) -> list[str]:
    return [step for step in kills for _ in range(kills[step])]


@pytest.fixture
def storm(request: pytest.FixtureRequest, tmp_path: Path) -> Storm:
    """An office after the storm, and after one clean pass."""
    storm = Storm(tmp_path, request.param)
    began = time.monotonic()
    kills = dict.fromkeys(STEPS, KILLS) | dict.fromkeys(WITHIN, KILLS_WITHIN)
    within = dict.fromkeys(WITHIN[1:], KILLS_WITHIN)
    storm.run(SHARE, {"dispatch": planned(kills | ANYWHERE), "write": planned(within)})
    took = time.monotonic() - began
    storm.calm()
    storm.tell(took)
    assert all(storm.killed["dispatch", step] >= count for step, count in kills.items())
    return storm


@pytest.mark.timeout(2 * LONGEST)
@pytest.mark.parametrize("storm", [Asked], indirect=True)
def test_where_the_provider_can_be_asked_all_is_sent_once(storm: Storm) -> None:
    ids = storm.check(LEGAL)
    assert ids.keys() == {"sent"}
    again = storm.repeat(range(1, 21))
    assert again.items() <= storm.written().items()
    assert storm.check(LEGAL) == ids


@pytest.mark.timeout(2 * LONGEST)
@pytest.mark.parametrize("storm", [Late], indirect=True)
def test_where_the_provider_answers_late_what_it_has_is_found_and_the_rest_waits_for_a_person(
    storm: Storm,
) -> None:
    ids = storm.check(LEGAL)
    assert ids["sent"] == dict(storm.accepted()).keys()
    assert ids["unknown"] == {*storm.written().values()} - ids["sent"]
    assert set().union(*(storm.at_hand[step] for step in ALREADY)) <= ids["sent"]
    assert set().union(*(storm.at_hand[step] for step in NOT_YET)) <= ids["unknown"]
    storm.resolve()
    assert storm.check(LEGAL | RESOLVED).keys() == {"sent"}


@pytest.mark.timeout(2 * LONGEST)
@pytest.mark.parametrize("storm", [Mute], indirect=True)
def test_where_the_provider_tells_nothing_what_was_interrupted_is_unknown_and_listed(
    storm: Storm,
) -> None:
    ids = storm.check(LEGAL)
    assert ids.keys() == {"sent", "unknown"}
    with storm.office() as (desk, _):
        assert {line.id for line in desk.ledger.lists.summaries("unknown")} == ids["unknown"]
    # All whose owner died between claim and outcome, and at most one for each other death there.
    interrupted = set().union(*(storm.at_hand[step] for step in NOT_YET + ALREADY))
    assert interrupted <= ids["unknown"]
    elsewhere = storm.killed["dispatch", "anywhere"] + storm.killed["dispatch", "drawn"]
    assert len(ids["unknown"] - interrupted) <= elsewhere
    storm.resolve()
    assert storm.check(LEGAL | RESOLVED).keys() == {"sent"}


@pytest.mark.timeout(2 * LONGEST)
def test_what_an_agent_may_send_at_once_is_sent_once_however_often_it_dies_and_asks_again(
    tmp_path: Path,
) -> None:
    storm = Storm(tmp_path, Asked, required=False, dispatchers=1)
    began = time.monotonic()
    kills = dict.fromkeys(STEPS + WITHIN[1:], KILLS_WITHIN)
    storm.run(SHARE // 4, {"write": planned(kills), "dispatch": planned(ANYWHERE)})
    took = time.monotonic() - began
    storm.calm()
    storm.tell(took)
    legal = LEGAL | {("", "approved")}
    assert storm.check(legal).keys() == {"sent"}
