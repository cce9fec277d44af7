"""The desk: letters a second, the list of what waits, the check of the log, and how they grow."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench import mails, start
from bench.command import POSTROOM, environment
from bench.report import Bound, Measure, Times, folder, progress, say
from postroom.config.loading import load
from postroom.core import life
from postroom.core.address import Address
from postroom.core.audit import Action, redact_addresses
from postroom.core.letter import Letter, letter_id
from postroom.core.records import NOWHERE, Card, CardLine, Entry, Level
from postroom.core.stamp import DAY, Stamp
from postroom.desk.desk import Effects
from postroom.desk.proposals import DEFAULT_HOME
from postroom.desk.recorder import Call
from postroom.store.database import Database
from postroom.vault import folders
from postroom.wiring.desk import clock, open_desk

WAITING = 500
FEW, MANY, QUICK_MANY = 1_000, 100_000, 10_000
SENT, QUICK_SENT, WARM = 200, 60, 20
ONE_BY_ONE, VERIFIED = 50, 3
BATCH = 20_000
SENDING, FLAT = Bound(4, "×"), Bound(1.3, "×")
STATEMENTS = Bound(45, "statements")  # each is a round trip where the ledger is elsewhere
CONTROL = ("BEGIN", "COMMIT", "PRAGMA")

LONG = 1_000  # characters of a letter's text
AGENT, PERSON = "claude", "ada"
APART = 370.0  # seconds between two letters: ten an hour, as many as the default limits let out
LIVE = "dry_run = false\n"
ROOMY = f"{LIVE}[limits]\nopen_letters = {WAITING}\nproposals_per_hour = {WAITING}\n"

# What the three steps need of the disk, each synced before the next.
IN_LEDGER, IN_MAILBOX, NOTES, MOVES, LINES = 4, 1, 3, 2, 4
NEEDED = (
    f"{IN_LEDGER} transactions in the ledger: enter, approve, claim, record;",
    f"{IN_MAILBOX} in the mailbox: send;",
    f"{NOTES} notes (beside, fsync, rename, fsync the folder): propose, approve, sent,",
    f"{MOVES} of them then out of the folder before (unlink, fsync that folder);",
    f"{LINES} lines at the end of the log (append, fsync), one a transaction",
)


T = TypeVar("T")


class Clock:
    """Wall time as it is, or so many seconds behind; and a steady clock that runs when it is told to."""

    def __init__(self) -> None:
        self.steady = self.behind = 0.0

    def __call__(self) -> Stamp:
        return Stamp(time.time() - self.behind, "bench", self.steady)

    def go(self, seconds: float) -> None:
        """Let time pass; what is behind catches up."""
        self.steady += seconds
        self.behind = max(0.0, self.behind - seconds)


class Office:
    """A desk with the real wiring, in a home of its own."""

    def __init__(self, home: Path, stack: ExitStack, settings: str, tools: Effects) -> None:
        (home / "vault").mkdir(parents=True)
        (home / "config" / "postroom").mkdir(parents=True)
        (home / "config" / "postroom" / "postroom.toml").write_text(settings)
        self.home = home
        self.config = load(environment(home), home, home)
        self.desk = open_desk(self.config, home / "state", stack, effects=tools)
        self._numbers = count()

    def letter(self) -> Letter:
        """Return a new letter to one of those whom the bench knows, as long as all the others."""
        number = next(self._numbers)
        made = mails.mail(number, MANY)
        name, address = mails.senders()[number % mails.SENDERS]
        local, domain = address.split("@")
        return Letter(
            id=letter_id(os.urandom(7)),
            account=self.config.default_account,
            sender=Address(*mails.ME.split("@")),
            to=(Address(local, domain, name),),
            subject=made.subject,
            text=f"{(made.text * LONG)[:LONG].rstrip()}\n",
        )

    def propose(self, letter: Letter) -> Entry:
        """Let an agent ask for it, and wait for the answer."""
        running = self.desk.calls.posting(Call("send_email", AGENT), letter)
        while True:
            try:
                self.desk.effects.sleep(next(running))
            except StopIteration as done:
                entry: Entry = done.value
                return entry


class SendingOffice(Office):
    """One that sends at once: ten letters an hour, by a clock that does not wait."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.clock = Clock()
        self.closed = 0
        tools = Effects(clock=self.clock, draw=os.urandom, sleep=self.clock.go)
        super().__init__(home, stack, LIVE, tools)

    def fill(self, letters: int) -> None:
        """Enter letters that were sent, one line of the log each, and write the log."""
        desk, now = self.desk, self.clock
        now.behind = letters * APART
        card = Card((CardLine(Level.LOOK, "first", "The first letter to this address."),))
        for first in range(0, letters, BATCH):
            with desk.ledger.write(synced=False) as tx:
                for number in range(first, min(first + BATCH, letters)):
                    letter, at = self.letter(), now()
                    verdict = life.Verdict(PERSON, life.Channel.TERMINAL, at, letter.digest)
                    sent = life.Sent(at, f"{number:016x}", f"{number:016x}", (), verdict)
                    entry = tx.letters.insert(
                        Entry(
                            letter=letter,
                            agent=AGENT,
                            state=sent,
                            created=at,
                            card=card,
                            digest=letter.digest,
                            content_key=letter.content_key,
                            home=DEFAULT_HOME,
                        )
                    )
                    path = f"{folders.DONE}/{at.iso[:10]} {letter.id}.md"
                    tx.notes.save_location(
                        letter.id, NOWHERE._replace(path=path, hash=letter.digest)
                    )
                    if (letters - number) * APART < DAY:
                        tx.budget.spend(letter.id, len(letter.envelope), letter.thread, at)
                    tx.actions.append(_line(entry))
                    now.go(APART)
            self.closed = min(first + BATCH, letters)
            progress(f"desk: {self.closed:,} of {letters:,} letters in the ledger")
        desk.flush_log()
        os.sync()  # what was filled in is not on the account of what is measured

    def send(self, letter: Letter) -> None:
        """Propose, approve and dispatch a letter."""
        entry = self.propose(letter)
        self.desk.approve(entry.id, by=PERSON, digest=entry.digest)
        self.clock.go(self.desk.rules.undo_seconds)
        entry = self.desk.dispatch(entry.id)
        self.clock.go(APART)
        if not isinstance(entry.state, life.Sent):
            raise SystemExit(life.describe(entry.state))
        self.closed += 1


def _line(entry: Entry) -> Action:
    return Action(
        actor="dispatcher",
        action_type="send_letter",
        target=redact_addresses([address.spec for address in entry.letter.envelope]),
        letter=entry.id,
        state=entry.kind,
        agent=entry.agent,
        parameters={"subject": entry.letter.subject, "by": PERSON, "via": "terminal", "slip": ""},
    )


def run(*, quick: bool) -> list[Measure]:
    """Measure all of it: what waits first, then a desk with few letters, then beside one with many."""
    with lodging() as (home, stack):
        measures = _commands(Office(home, stack, ROOMY, silent()))
    with lodging() as (home, stack):
        few, many = (SendingOffice(home / name, stack) for name in ("few", "many"))
        few.fill(FEW)
        measures += _rate(few, QUICK_SENT if quick else SENT)
        many.fill(QUICK_MANY if quick else MANY)
        measures += _verify(many)
        measures += _growth(few, many)
    return measures


@contextmanager
def lodging() -> Iterator[tuple[Path, ExitStack]]:
    with folder() as home, ExitStack() as stack:
        yield home, stack


def silent() -> Effects:
    return Effects(clock=clock(), draw=os.urandom, sleep=time.sleep)


# Commands


def _commands(office: Office) -> list[Measure]:
    for number in range(1, WAITING + 1):
        last = office.propose(office.letter())
        if number % 100 == 0:
            progress(f"desk: {number} of {WAITING} letters wait")
    waiting = len(office.desk.ledger.lists.summaries("pending"))
    if waiting != WAITING:
        raise SystemExit(f"{waiting} of {WAITING} letters wait: the times would mean nothing")
    commands = {
        "postroom pending": (POSTROOM, "pending"),
        "postroom status": (POSTROOM, "status"),
        "postroom show": (POSTROOM, "show", last.id),
    }
    say(f"desk: {start.RUNS} runs each by turns, {WAITING} letters wait;")
    return start.turns("desk", office.home, commands, bounded="postroom pending")


# Letters a second


class Spells:
    """How long each run of one thing took, and how much of that the processor was at it."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._busy: list[float] = []

    def run(self, act: Callable[[T], object], what: T) -> None:
        """Do it once more."""
        began, busy = time.perf_counter(), time.process_time()
        act(what)
        self._busy.append(time.process_time() - busy)
        self._wall.append(time.perf_counter() - began)

    @property
    def times(self) -> Times:
        """Return the seconds by the clock on the wall."""
        return Times(self._wall)

    @property
    def busy(self) -> str:
        """Return the median of the processor's."""
        return f"{Times(self._busy).median * 1e3:.1f} ms"


class Sizes(NamedTuple):
    """The bytes that one letter leaves: of its row, a later state, a line, a note, the mail."""

    letter: int
    state: int
    line: int
    note: int
    mail: int


class Bare:
    """The same steps with nothing between: SQLite, a folder and a file, and made-up bytes of these sizes."""

    def __init__(self, place: Path, sizes: Sizes) -> None:
        place.mkdir()
        self.sizes = sizes
        self._ledger, self._mailbox = (_database(place / name) for name in ("ledger", "mailbox"))
        self._notes = [place / name for name in ("pending", "approved", "done")]
        for where in self._notes:
            where.mkdir()
        self._log = place / "log"

    def close(self) -> None:
        """Let go of the files."""
        self._ledger.close()
        self._mailbox.close()

    def send(self, name: str) -> None:
        """Do what one letter needs."""
        pending, approved, done = self._notes
        self._enter(self._ledger, self.sizes.letter)
        self._note(pending / name)
        self._append()
        self._enter(self._ledger, self.sizes.state)
        self._note(approved / name)
        self._remove(pending / name)
        self._append()
        self._enter(self._ledger, self.sizes.state)
        self._append()
        self._enter(self._mailbox, self.sizes.mail)
        self._enter(self._ledger, self.sizes.state)
        self._note(done / name)
        self._remove(approved / name)
        self._append()

    def _enter(self, database: sqlite3.Connection, size: int) -> None:
        line = "l" * self.sizes.line
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO entry VALUES (NULL, ?, ?)", ("e" * size, line))
        database.execute("COMMIT")

    def _note(self, file: Path) -> None:
        beside = file.with_name(".beside")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(handle, b"n" * self.sizes.note)
        os.fsync(handle)
        os.close(handle)
        beside.rename(file)
        self._sync(file.parent)

    def _remove(self, file: Path) -> None:
        file.unlink()
        self._sync(file.parent)

    def _sync(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def _append(self) -> None:
        handle = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, b"l" * self.sizes.line)
        os.fsync(handle)
        os.close(handle)


def _database(file: Path) -> sqlite3.Connection:
    made = sqlite3.connect(file, isolation_level=None)
    made.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE entry (row INTEGER PRIMARY KEY, entry TEXT, line TEXT)"
    )
    return made


def _rate(office: SendingOffice, letters: int) -> list[Measure]:
    for _ in range(WARM - 1):
        office.send(office.letter())
    office.send(last := office.letter())
    _count(office, last.id)
    own, theirs = Spells(), Spells()
    with closing(Bare(office.home / "bare", _sizes(office.home))) as bare:
        sizes = bare.sizes
        for _ in range(letters):
            letter = office.letter()
            own.run(office.send, letter)
            theirs.run(bare.send, letter.id)
    mine, other = own.times, theirs.times
    # The best is judged: where others keep the disk busy, both wait for it alike, and look alike.
    ratio = mine.best / other.best
    verdict = SENDING.verdict(ratio)
    say()
    say(f"desk: propose, approve and dispatch, {letters} letters by turns with the same steps")
    say("bare, each synced:")
    for needed in NEEDED:
        say(f"  {needed}")
    say(f"  (row {sizes.letter} bytes, state {sizes.state}, line {sizes.line},")
    say(f"  note {sizes.note}, mail {sizes.mail})")
    say(
        f"{'':10}{'best':>11}{'letters/s':>11}{'ratio':>9}{'bound':>9}{'':6}{'median':>11}{'ratio':>9}"
    )
    say(f"{'bare':10}{_ms(other.best)}{1 / other.best:11,.0f}{'':24}{_ms(other.median)}")
    say(
        f"{'postroom':10}{_ms(mine.best)}{1 / mine.best:11,.0f}{ratio:7.2f} ×{SENDING!s:>9} {verdict:5}"
        f"{_ms(mine.median)}{mine.median / other.median:7.2f} ×"
    )
    say(f"the processor's part, median: bare {theirs.busy}, postroom {own.busy}")
    name = "propose, approve, dispatch"
    rate = Measure("desk", name, mine.best, "s", "bare", other.best, str(SENDING), verdict)
    return [rate, _statements(office)]


def _statements(office: SendingOffice) -> Measure:
    """Count what the ledger is asked on the way of one letter, without the control of transactions."""
    asked: list[str] = []
    session = office.desk.ledger._session  # noqa: SLF001 - no caller but this one counts
    assert isinstance(session, Database)
    session._connection.set_trace_callback(asked.append)  # noqa: SLF001
    office.send(office.letter())
    session._connection.set_trace_callback(None)  # noqa: SLF001
    count = sum(not statement.startswith(CONTROL) for statement in asked)
    verdict = STATEMENTS.verdict(count)
    say(f"statements a letter: {count} ({STATEMENTS} {verdict})")
    name = "statements a letter"
    return Measure("desk", name, count, "", "bound", STATEMENTS.limit, str(STATEMENTS), verdict)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:8.2f} ms"


def _count(office: SendingOffice, id: str) -> None:
    """Stop where the desk has come to need something else than is set against it."""
    lines = len(list(office.desk.log.records(letter=id)))
    states = len(office.desk.ledger.letters.past_states(id))
    if (lines, states) != (LINES, IN_LEDGER):
        raise SystemExit(f"a letter left {lines} lines and {states} states: count its steps anew")


def _sizes(home: Path) -> Sizes:
    """Return what the letters of the warm-up left behind, on average."""

    def mean(file: Path, what: str) -> int:
        connection = sqlite3.connect(file)
        (found,) = connection.execute(f"SELECT avg(size) FROM (SELECT {what})").fetchone()
        connection.close()
        return int(found)

    newest = f"ORDER BY row DESC LIMIT {WARM}"
    ledger, mailbox = (
        home / "state" / "ledger.sqlite",
        next((home / "state" / "mail").glob("*.sqlite")),
    )
    row = "length(frozen) + length(card) + length(recipients) + length(subject) + length(detail)"
    notes = [file.stat().st_size for file in (home / "vault" / folders.DONE).iterdir()]
    return Sizes(
        letter=mean(ledger, f"{row} AS size FROM letter {newest}"),
        state=mean(ledger, "length(detail) AS size FROM history WHERE version > 1"),
        line=mean(ledger, f"length(line) AS size FROM action ORDER BY seq DESC LIMIT {WARM}"),
        note=sum(notes) // len(notes),
        mail=mean(mailbox, "length(content) AS size FROM raw"),
    )


# The log


def _verify(office: SendingOffice) -> list[Measure]:
    desk, lines = office.desk, office.desk.ledger.actions.head()
    files = sorted((office.home / "vault" / "Logs" / "actions").glob("*.json"))
    own: list[float] = []
    theirs: list[float] = []
    for _ in range(VERIFIED):
        began = time.perf_counter()
        if desk.log.verify():
            raise SystemExit("the log is not what was written: its check would mean nothing")
        own.append(time.perf_counter() - began)
        theirs.append(_read_all(files))
    mine, bare = Times(own), Times(theirs)
    say()
    say(f"desk: audit verify, {lines:,} lines in {len(files)} files, best of {VERIFIED};")
    say("bare: read the lines, json.loads and SHA-256 of each")
    say(f"{'':16}{'lines/s':>11}{'ratio':>9}")
    say(f"{'bare':16}{lines / bare.best:11,.0f}")
    say(f"{'postroom':16}{lines / mine.best:11,.0f}{mine.best / bare.best:7.1f} ×")
    return [Measure("desk", f"verify {lines:,} lines", mine.best, "s", "bare", bare.best)]


def _read_all(files: list[Path]) -> float:
    began = time.perf_counter()
    for file in files:
        for line in file.read_bytes().splitlines():
            json.loads(line)
            hashlib.sha256(line).hexdigest()
    return time.perf_counter() - began


# Growth


def _growth(few: SendingOffice, many: SendingOffice) -> list[Measure]:
    counts = few.closed, many.closed
    taken = {few: Spells(), many: Spells()}
    for office in taken:
        office.send(office.letter())  # once for what is opened and read the first time
    for _ in range(ONE_BY_ONE):
        for office, spells in taken.items():
            spells.run(office.send, office.letter())
    small, large = (spells.times for spells in taken.values())
    ratio = large.median / small.median
    verdict = FLAT.verdict(ratio)
    say()
    say(f"desk: propose, approve and dispatch one letter, {ONE_BY_ONE} each by turns,")
    say("beside letters that were sent, a line in the log each")
    say(f"{'':16}{'median':>11}{'ratio':>9}{'bound':>10}{'':6}{'best':>11}{'ratio':>9}")
    say(f"{f'{counts[0]:,} sent':16}{_ms(small.median)}{'':25}{_ms(small.best)}")
    say(
        f"{f'{counts[1]:,} sent':16}{_ms(large.median)}{ratio:7.2f} ×{FLAT!s:>10} {verdict:5}"
        f"{_ms(large.best)}{large.best / small.best:7.2f} ×"
    )
    busy = ", ".join(spells.busy for spells in taken.values())
    say(f"the processor's part, median: {busy}")
    name, against = f"a letter beside {counts[1]:,}", f"beside {counts[0]:,}"
    return [Measure("desk", name, large.median, "s", against, small.median, str(FLAT), verdict)]
