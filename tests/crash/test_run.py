"""`postroom run` and its servers, killed at any moment: each mail is triaged once, each approved answer sent once.

All are real processes; the test itself is the person who
approves and rejects answers in the vault meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from signal import Signals
from typing import Any

import pytest

from postroom.config.loading import load
from postroom.desk.proposals import ORCHESTRATOR
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from postroom.wiring.desk import find_desk
from tests.conftest import Person
from tests.crash.counts import MAILS, SEED
from tests.narrow import present

LIVES = MAILS // 8  # of which each ends by force
STOPS = max(4, MAILS // 50)  # that are asked for, in the other test
LONGEST = 4.0  # seconds of a life in which too little is said
PATIENCE = 30.0  # seconds in which a process has to be gone, on a machine that others use too
SETTINGS = """dry_run = false
[approvals]
undo_seconds = 0
[limits]
sends_per_hour = 10000
sends_per_pace = 10000
recipients_per_hour = 10000
open_letters = 10000
proposals_per_hour = 10000
replies_per_thread = 1000
[run]
interval_seconds = 1
[notify]
desktop = false
"""
HANDBOOK = """# Handbook

## Rules

- subject invoice: draft_reply It is paid on Friday.
- subject newsletter: archive
- subject puzzle: needs_info
- from boss@example.net: urgent I am on my way.
- subject books: delegate Ines keeps the books.
"""
# What a mail is about, and what is to be decided then; no rule speaks of tea.
KINDS = {
    "invoice": "draft_reply",
    "newsletter": "archive",
    "puzzle": "needs_info",
    "fire": "urgent",
    "books": "delegate",
    "tea": "draft_reply",
}
MAIL = """From somebody@example.com Sat Nov 14 10:00:00 2026
From: {sender}
To: you@example.org
Subject: {subject}
Message-ID: <{number}@example.com>
Date: Sat, 14 Nov 2026 10:00:00 +0000

This is the mail {subject}.

"""
FIXED = {
    "archive": ("done", "Done", "done"),
    "needs_info": ("needs_info", "Needs_Action", "needs_info"),
    "delegate": ("delegated", "Needs_Action", "pending_approval"),
}
# By what the person did to the letter: the item, the folder and status of the mail, the letter and
# where its note stands.
ANSWERED = {
    "": ("drafted", "Needs_Action", "drafted", "pending", "Drafts"),
    "Approved": ("done", "Done", "done", "sent", "Done"),
    "Rejected": ("needs_info", "Needs_Action", "needs_info", "rejected", "Rejected"),
}


# What the person says to the answer, by the number of the mail; about some they never say anything.
VERDICTS = ("", "Rejected", "Approved", "Approved", "Approved")
WHOM = ("alone", "all", "alone", "a server")  # who is killed, in turn


class Life:
    """One `postroom run`, in a process group of its own, with what it has said so far."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.said = b""
        with (person.folder / "complaints").open("ab") as complaints:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "postroom", "run", "--json"],
                cwd=person.folder,
                env=person.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )
        self._out = present(self.process.stdout)

    @property
    def lines(self) -> int:
        return self.said.count(b"\n")

    @property
    def last(self) -> str:
        """The event that was told last."""
        whole = self.said.rpartition(b"\n")[0].splitlines()
        return json.loads(whole[-1])["event"] if whole else "nothing"

    def hear(self, seconds: float) -> bool:
        """Take in what is said within this time, or return at the first of it; False at the end."""
        ready, _, _ = select.select([self._out], [], [], max(0.0, seconds))
        if ready:
            piece = os.read(self._out.fileno(), 65_536)
            self.said += piece
            return bool(piece)
        return True

    def until(self, lines: int, seconds: float, act: Callable[[], object]) -> None:
        """Listen until so much was said, or so long; `act` is done at each piece."""
        end = time.monotonic() + seconds
        while self.lines < lines and time.monotonic() < end:
            assert self.hear(end - time.monotonic()), self.told()
            act()

    def servers(self, seconds: float = 0.0) -> list[int]:
        """Return its servers; where it has none yet, wait so long for one."""
        end = time.monotonic() + seconds
        while True:
            found = [pid for pid in running(self.person) if parent(pid) == self.process.pid]
            if found or time.monotonic() >= end:
                return found
            assert self.hear(0.01), self.told()

    def end(self, *signals: tuple[int, Signals]) -> int:
        """Send each signal to its process, wait for the end of this one, and return its code."""
        for pid, number in signals:  # one by one: each server leads a session of its own
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        end = time.monotonic() + PATIENCE
        while self.hear(end - time.monotonic()):
            assert time.monotonic() < end, f"it goes on: {self.told()}"
        self._out.close()
        return self.process.wait(timeout=PATIENCE)

    def told(self) -> str:
        return self.said.decode() + (self.person.folder / "complaints").read_text()


class Post:
    """A person's mail, the runs over it, and what the person said to the answers."""

    def __init__(self, person: Person, name: str) -> None:
        self.person = person
        self.chance = random.Random(f"{SEED} {name}")
        self.came = 0
        self.said: dict[str, str] = {}  # what the person said, by the subject of the mail
        self.killed = Counter[str]()
        self.after = Counter[str]()  # what was said last
        self.lingered = 0.0
        file = person.folder / ".config" / "postroom" / "postroom.toml"
        file.parent.mkdir(parents=True)
        file.write_text(SETTINGS)
        assert person.run("init").code == 0
        (person.vault / "Handbook.md").write_text(HANDBOOK)
        assert person.run("run", "--once").code == 0  # what comes from here on is new

    def deliver(self, mails: int) -> subprocess.Popen[bytes] | None:
        """Let so many mails come in, or those that are left; return the process that brings any."""
        numbers = range(self.came, min(MAILS, self.came + mails))
        if not numbers:
            return None
        file = self.person.folder / f"{self.came}.mbox"
        file.write_text("".join(map(mail_of, numbers)))
        self.came = numbers.stop
        return self.person.start("import", str(file))

    def delivered(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err

    def say(self, share: float = 0.05) -> None:
        """Approve and reject some of the answers that wait, as one does in Obsidian."""
        for note in sorted((self.person.vault / "Drafts").glob("*.md")):
            subject = note.stem.removeprefix("Re ").partition(" (")[0]
            folder = VERDICTS[int(subject[-4:]) % len(VERDICTS)]
            if folder and self.chance.random() < share:
                with suppress(FileNotFoundError):  # it was put elsewhere just now
                    note.rename(self.person.vault / folder / note.name)
                    self.said[subject] = folder
        for note in sorted((self.person.vault / "Needs_Action").glob("*.md")):
            if self.chance.random() < share:
                with suppress(FileNotFoundError):
                    os.utime(note)  # as a sync client does

    def live(self, whom: str) -> None:
        """Live a life that ends by force."""
        life = Life(self.person)
        bringing = self.deliver(self.chance.randrange(3 * MAILS // LIVES // 2) + 1)
        lines, pause = self.chance.choice(
            [
                *[(0, self.chance.uniform(0, 0.6))] * 2,  # what was approved leaves first of all
                (0, self.chance.uniform(0, LONGEST)),
                *[(self.chance.randrange(1, 20), self.chance.uniform(0, 0.05))] * 3,
            ]
        )
        try:
            life.until(lines, LONGEST, self.say)
            life.until(sys.maxsize, pause, lambda: None)
            servers = life.servers(LONGEST) if whom != "alone" else []
            if whom == "a server" and servers:
                self.killed[whom] += 1
                os.kill(self.chance.choice(servers), signal.SIGKILL)
                life.until(life.lines + self.chance.randrange(1, 8), LONGEST / 2, self.say)
        finally:
            also = life.servers() if whom == "all" else []
            code = life.end(*((pid, signal.SIGKILL) for pid in [life.process.pid, *also]))
            self.delivered(bringing)
        assert code == -signal.SIGKILL, life.told()
        self.killed["all" if also else "alone"] += 1
        self.after[life.last] += 1
        if self.chance.random() < 0.5:  # otherwise the next one meets what is left
            self.alone()
        self.say(0.1)

    def alone(self) -> None:
        """Wait until no process is left of those that were killed, or that such a one started."""
        begun = time.monotonic()
        while running(self.person):
            assert time.monotonic() - begun < PATIENCE, "a server outlives its orchestrator"
            time.sleep(0.01)
        self.lingered = max(self.lingered, time.monotonic() - begun)

    def rest(self) -> int:
        """Let all that is left be done in peace, until nothing changes any more; return the rounds."""
        self.alone()
        before = None
        for rounds in range(20):
            done = self.person.run("run", "--once", "--json")
            assert done.code == 0, done.err
            now = self.outcome(), self.notes()
            if now == before:
                return rounds
            before = now
        raise AssertionError("it does not come to rest")

    def rows(self, question: str) -> list[Any]:
        with closing(sqlite3.connect(self.person.folder / "state" / "ledger.sqlite")) as ledger:
            return ledger.execute(question).fetchall()

    def outcome(self) -> list[list[Any]]:
        return [
            self.rows("SELECT message, state, letter, version, note_stale FROM inbox_item"),
            self.rows("SELECT id, agent, state, version FROM letter"),
            self.rows("SELECT seq FROM action"),
        ]

    def notes(self) -> dict[Path, Note]:
        """Return the paths of all notes; each of them parses."""
        paths = sorted(self.person.vault.rglob("*.md"))
        return {
            path.relative_to(self.person.vault): Note.parse(path.read_bytes()) for path in paths
        }

    def mail(self, query: str) -> list[tuple[str, str]]:
        """Return the mails that a search finds: the subject, and the id."""
        config = load(self.person.environment, self.person.folder, self.person.folder)
        found, cursor = [], ""
        with find_desk(config, make=True) as opened:
            box = present(opened).mailboxes("default")
            while True:
                page = box.search(query, limit=100, cursor=cursor)
                found += [(one.subject, one.id) for one in page.items]
                cursor = page.cursor
                if not cursor:
                    return found


def subject_of(number: int) -> str:
    return f"{list(KINDS)[number % len(KINDS)]} {number:04}"


def mail_of(number: int) -> str:
    subject = subject_of(number)
    fire = subject.startswith("fire")
    # No two of them look alike: an answer to somebody who could be taken for another is not drafted.
    name = hashlib.sha256(str(number).encode()).hexdigest()[:12]
    sender = "boss@example.net" if fire else f"Ann <{name}@example.com>"
    return MAIL.format(sender=sender, subject=subject, number=number)


def running(person: Person) -> list[int]:
    """Return the processes that work for this person."""
    mark = f"POSTROOM_STATE={person.folder / 'state'}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def check(post: Post) -> None:
    """Each mail has one item, one note and one line of the log; each answer is where it belongs."""
    person, notes = post.person, post.notes()
    came = post.mail("in:inbox")
    assert sorted(subject for subject, _ in came) == sorted(map(subject_of, range(post.came)))
    inbox = dict(came)
    columns = ("message", "state", "letter", "note_stale")
    rows = post.rows(f"SELECT {', '.join(columns)} FROM inbox_item")
    items = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert len(items) == len(rows)
    # The answers that were sent are no mail that came in.
    assert {items[id]["state"] for id in set(items) - set(inbox.values())} <= {"aside"}
    lines = [json.loads(line) for (line,) in post.rows("SELECT line FROM action")]
    triaged = Counter(
        line["parameters"]["message"] for line in lines if line["action_type"] == "triage_mail"
    )
    assert triaged == Counter(inbox.values())
    sent = Counter(subject for subject, _ in post.mail("in:sent"))
    rows = post.rows("SELECT id, subject, state, agent FROM letter")
    letters = {id: (subject, state) for id, subject, state, _ in rows}
    assert {agent for *_, agent in rows} == {ORCHESTRATOR}
    answers = set()
    for subject, id in inbox.items():
        item, decision = items[id], KINDS[subject.partition(" ")[0]]
        standing = [
            (path, note)
            for path, note in notes.items()
            if note.text("type") == "email" and note.text("id") == id
        ]
        assert len(standing) == 1, (subject, item, standing)
        ((path, note),) = standing
        assert note.text("decision") == decision or post.said.get(subject) == "Rejected"
        shown = (item["state"], path.parts[0], note.text("status"))
        assert not item["note_stale"]
        if decision in FIXED:
            assert shown == FIXED[decision], subject
            titles = [title for title, _ in sections(note.body) if title]
            assert titles == ["Mail", *(["Delegation"] if decision == "delegate" else [])]
            assert not item["letter"]
            continue
        *expected, state, folder = ANSWERED[post.said.get(subject, "")]
        assert shown == tuple(expected), subject
        assert letters[item["letter"]] == (f"Re: {subject}", state)
        answers.add(item["letter"])
        assert sent[f"Re: {subject}"] == (state == "sent"), subject
        drafts = [
            (path, note)
            for path, note in notes.items()
            if note.text("letter") == item["letter"] and note.text("type") != "email"
        ]
        assert [path.parts[0] for path, _ in drafts] == [folder], subject
        urgent = "urgent" if decision == "urgent" else ""
        assert drafts[0][1].text("priority") == urgent
        assert note.text("priority") == (urgent or "normal")
    assert answers == set(letters)
    assert sum(sent.values()) == list(post.said.values()).count("Approved")
    verified = person.run("audit", "verify")
    assert verified.code == 0, verified.out + verified.err
    checks = person.run("doctor", "--json").json["checks"]
    assert [one for one in checks if one["verdict"] not in ("ok", "note")] == []
    assert "Traceback" not in (person.folder / "complaints").read_text()


def leftovers(post: Post) -> int:
    """Return how many temporary files there are: the index's sweep takes them after an hour."""
    return len([*post.person.vault.rglob(".postroom-*.tmp")])


@pytest.mark.timeout(120 + 10 * LIVES)
def test_each_mail_is_triaged_once_and_each_approved_answer_sent_once_whoever_is_killed(
    person: Person,
) -> None:
    post = Post(person, "killed")
    post.delivered(post.deliver(MAILS // 4))
    for number in range(LIVES):
        post.live(WHOM[number % len(WHOM)])
    post.delivered(post.deliver(MAILS))
    rounds = post.rest()
    post.say(1)
    rounds += post.rest()
    said = Counter(post.said.values())
    sys.stdout.write(
        f"\n{post.came} mails in {LIVES} lives and {rounds} rounds of peace;"
        f" killed: {dict(post.killed)}, after: {dict(post.after)};"
        f" {said['Approved']} answers approved, {said['Rejected']} rejected;"
        f" servers lived on for {post.lingered:.1f} s at most; {leftovers(post)} temporary files\n"
    )
    check(post)
    assert set(post.killed) == set(WHOM)
    assert set(said) == {"Approved", "Rejected"}


@pytest.mark.timeout(120 + 3 * MAILS)
def test_a_run_that_is_told_to_stop_ends_in_order_and_the_next_goes_on(person: Person) -> None:
    post = Post(person, "stopped")
    longest = 0.0
    for _ in range(STOPS):
        life = Life(person)
        bringing = post.deliver(-(-MAILS // STOPS))
        begun = time.monotonic()
        while not heeds(life.process.pid, signal.SIGTERM):
            assert time.monotonic() - begun < PATIENCE, life.told()
            time.sleep(0.001)
        life.until(post.chance.randrange(25), LONGEST, post.say)
        life.until(sys.maxsize, post.chance.uniform(0, 0.1), lambda: None)
        begun = time.monotonic()
        # A terminal and the system tell the servers too.
        also = life.servers() if post.chance.random() < 0.5 else []
        code = life.end(*((pid, signal.SIGTERM) for pid in [life.process.pid, *also]))
        longest = max(longest, time.monotonic() - begun)
        post.delivered(bringing)
        assert code == 0, life.told()
        assert life.last == "stopped"
        assert "Not running since" in (person.vault / "Dashboard.md").read_text()
        assert not running(person)
        assert not leftovers(post)
        post.say(0.1)
    rounds = post.rest()
    sys.stdout.write(
        f"\n{post.came} mails; stopped {STOPS} times, within {longest:.1f} s; {rounds} rounds of peace\n"
    )
    check(post)


def heeds(pid: int, number: Signals) -> bool:
    """Whether a process has said what it does at a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(row for row in status.splitlines() if row.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
