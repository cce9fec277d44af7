"""The outbox as a state machine: whatever agents, people, crashes and providers do, a letter leaves once, as approved."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import PostroomError
from postroom.core.letter import Letter
from postroom.core.records import Entry
from postroom.desk.note_sync import SeenNote
from postroom.desk.notes import text_of
from postroom.desk.plan import folder
from postroom.desk.proposals import Proposal, normalize_text
from postroom.desk.recorder import Call
from postroom.desk.unowned_notes import parse_slip
from postroom.mail import mime
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.note import Note
from postroom.vault.vault import File, Ready, Vault
from tests.conftest import examples
from tests.desks import Clock, Dead, Office, database_of
from tests.posting import post
from tests.providers import BARRED, BUSY, LOST, Arranged, Courier

MEMORY = Path("/dev/shm")
AGENTS = ("claude", "codex")
KEYS = ("", "", "k1", "k2")
TEXTS = ("Good day.\n", "Good night.\n")
PEOPLE = (Address.parse("Ann <ann@example.com>"), Address.parse("bob@example.net"))
HOME, APPROVED, REJECTED = "Pending_Approval", "Approved", "Rejected"
FOLDERS = (HOME, APPROVED, APPROVED, REJECTED, "Done", "Failed", "Drafts", "Elsewhere")
STEPS = ("locked", "checked", "claimed", "published", "answered", "recorded")
VAULT = ("vault before", "vault between", "vault after", "log before", "log half", "log after")
LEDGER = ("ledger before", "ledger after")
TAKEN_BACK = ("pending", "rejected", "withdrawn", "expired", "failed")
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def nothing(_inode: int) -> None:
    """Take note of no inode."""


class Fate:
    """What befalls the process: at the so-many-th time at a point it dies, or somebody acts."""

    def __init__(self) -> None:
        self.point, self.left = "", 0
        self.act: Callable[[], None] = self.die
        self.died = False

    def meet(self, point: str) -> None:
        """Come to a point."""
        if point == self.point:
            self.left -= 1
            if self.left < 0:
                self.point = ""
                self.act()

    def die(self) -> None:
        self.died = True
        raise Dead


class FragileVault(Vault):
    """A vault whose process may die before, in the middle of, or after a change."""

    fate: Fate

    def create(self, path: str, data: bytes, *, mode: int = 0o644, ready: Ready = nothing) -> File:
        self.fate.meet("vault before")
        made = super().create(path, data, mode=mode, ready=ready)
        self.fate.meet("vault after")
        return made

    def replace(self, path: str, data: bytes, was: File, ready: Ready = nothing) -> File:
        self.fate.meet("vault before")
        made = super().replace(path, data, was, ready)
        self.fate.meet("vault after")
        return made

    def move(
        self,
        source: str,
        target: str,
        was: File,
        data: bytes | None = None,
        ready: Ready = nothing,
    ) -> File:
        self.fate.meet("vault before")
        if self.fate.point == "vault between" and self.fate.left == 0:
            self._double(source, target, was, data, ready)
        self.fate.meet("vault between")
        made = super().move(source, target, was, data, ready)
        self.fate.meet("vault after")
        return made

    def _double(
        self, source: str, target: str, was: File, data: bytes | None, ready: Ready
    ) -> None:
        """Leave both names behind: one file if its content stays, two if it changes."""
        if data is not None:
            super().create(target, data, ready=ready)
            return
        ready(was.inode)
        self.root.joinpath(target).parent.mkdir(parents=True, exist_ok=True)
        self.root.joinpath(target).hardlink_to(self.root / source)

    def remove(self, path: str, was: File) -> None:
        self.fate.meet("vault before")
        super().remove(path, was)
        self.fate.meet("vault after")

    def append(self, path: str, data: bytes, mode: int = 0o600) -> int:
        self.fate.meet("log before")
        if self.fate.point == "log half" and self.fate.left == 0:
            super().append(path, data[: len(data) // 2], mode)
        self.fate.meet("log half")
        size = super().append(path, data, mode)
        self.fate.meet("log after")
        return size


class FragileLedger(SqliteLedger):
    """A ledger whose process may die before or after a transaction."""

    fate: Fate

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        self.fate.meet("ledger before")
        with super().write(synced=synced, early=early) as tx:
            yield tx
        self.fate.meet("ledger after")


class TrueClock(Clock):
    """A clock that also knows how much time has really passed."""

    passed = 0.0

    def go(self, seconds: float) -> None:
        super().go(seconds)
        self.passed += seconds


class Yes(NamedTuple):
    """A person's word: to which letter, as it was when they saw it."""

    digest: str
    text: str
    boot: str
    passed: float


class Plan(NamedTuple):
    """A crash, or what somebody else does, at a point."""

    point: str
    after: int
    act: tuple[str, int, int] | None  # what is done, to which letter or note, and how


CRASHES = st.builds(Plan, st.sampled_from(STEPS + VAULT + LEDGER), st.integers(0, 4), st.none())
DESK_ACTS = ("approve", "undo", "reject", "withdraw", "edit", "resolve", "look", "send", "dispatch")
FILE_ACTS = ("move", "copy", "rename", "type", "add", "touch", "delete")
RACES = st.builds(
    Plan,
    st.sampled_from(STEPS),
    st.integers(0, 1),
    st.tuples(st.sampled_from(DESK_ACTS + FILE_ACTS), st.integers(0, 9), st.integers(0, 9)),
)
# Only files: whoever writes a note holds the desk's lock.
EDITS = st.builds(
    Plan,
    st.sampled_from(("vault before", "vault after", *LEDGER)),
    st.integers(0, 3),
    st.tuples(st.sampled_from(FILE_ACTS), st.integers(0, 9), st.integers(0, 9)),
)
PLANS = st.one_of(st.none(), st.none(), CRASHES, RACES, EDITS)
MOODS = st.lists(
    st.sampled_from(
        [
            (None, True, ()),
            (BUSY, False, ()),
            (BARRED, False, ()),
            (LOST, False, ()),
            (LOST, True, ()),
            (OSError("reset"), False, ()),
            (OSError("reset"), True, ()),
        ]
    ),
    max_size=2,
)
WHICH = st.integers(0, 9)


class OutboxMachine(RuleBasedStateMachine):
    """Agents propose, people decide in two places, time passes, processes die, providers fail."""

    def __init__(self) -> None:
        super().__init__()
        place = str(MEMORY) if os.access(MEMORY, os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(prefix="outbox-", dir=place)
        self.fate = Fate()
        self.said: dict[str, list[Yes]] = {}
        self.seen: dict[str, int] = {}
        self.faults: list[str] = []
        self.entered: set[str] = set()
        self.typed: set[str] = set()
        self.doubled: set[str] = set()  # letters of which a person may have left several notes
        self.slips: dict[str, str] = {}  # whom each slip is for
        self.spent: set[str] = set()
        self.own: dict[str, Yes] = {}  # texts that a person wrote and put into Approved/
        self.count = 0
        self.courier, self.second = Courier(), Courier()
        self.second.accepted = self.courier.accepted
        self.courier.watch = self.second.watch = self.accepts

    @initialize(ahead=st.booleans(), sends=st.sampled_from([2, 10]))
    def open(self, ahead: bool, sends: int) -> None:
        self.office = Office(Path(self.folder.name), sends_per_hour=sends)
        self.clock = self.office.clock = TrueClock()
        # Ahead of every file's time stamp, what is unchanged is not read again; behind, it always is.
        self.clock.wall = time.time() + (300 * DAY if ahead else -300 * DAY)
        self.office.wrap = self.courier
        fate = self.fate
        self.office.vaults = type("VaultPermissions", (FragileVault,), {"fate": fate})
        self.office.ledgers = type("Book", (FragileLedger,), {"fate": fate})
        self.office.step = fate.meet
        self.office.reopen(sends_per_hour=sends)
        self.other = self.office.beside()
        self.other.wrap = self.second
        self.other.reopen()
        self.sends = sends
        for text, agent in zip(TEXTS, AGENTS, strict=True):
            self.propose(text, PEOPLE[0], agent, "", None)

    # The model

    def sync(self) -> None:
        """Forget the words that were taken back, by what the ledger says happened."""
        for line in self.other.desk.ledger.lists.summaries(*life.STATES):
            history = self.other.desk.ledger.letters.past_states(line.id)
            new = history[self.seen.get(line.id, 0) :]
            self.seen[line.id] = len(history)
            if any(life.name(state) in TAKEN_BACK for state in new):
                self.said.pop(line.id, None)

    def accepts(self, letter: Letter, wire: bytes) -> None:
        """A letter leaves: was it approved, as it is, and is it the first time?"""
        self.sync()
        verdict = getattr(self.other.desk.ledger.letters.get(letter.id).state, "verdict", None)
        if verdict and verdict.slip:
            whole = [address.key for address in letter.envelope]
            if whole != [self.slips.get(verdict.slip)] or verdict.slip in self.spent:
                self.faults.append(f"{letter.id} left by a slip that was spent, or for another")
            self.spent.add(verdict.slip)
        words = [yes for yes in self.said.get(letter.id, []) if yes.digest == letter.digest]
        if letter.text in self.own:
            words.append(self.own[letter.text])
        if not words and not (verdict and verdict.slip):
            self.faults.append(f"{letter.id} left, and nobody approved it as it is")
        waited = [
            self.clock.passed - yes.passed if yes.boot == self.clock.boot else DAY for yes in words
        ]
        by_slip = verdict is not None and verdict.slip
        if words and not by_slip and max(waited) < self.office.rules.undo_seconds:
            self.faults.append(f"{letter.id} left before the undo window had passed")
        if any(yes.text != letter.text for yes in words):
            self.faults.append(f"{letter.id} left with another text")
        if mime.read(wire).text.strip() != letter.text.strip():
            self.faults.append(f"the bytes of {letter.id} say something else")
        if not self.office.rules.live or (self.office.vault / "PAUSED").exists():
            self.faults.append(f"{letter.id} left in rehearsal, or while paused")
        if any(one.letter.id == letter.id for one in self.courier.accepted):
            self.faults.append(f"{letter.id} left twice")

    def say_yes(self, entry: Entry) -> Yes:
        yes = Yes(entry.digest, entry.letter.text, self.clock.boot, self.clock.passed)
        self.said.setdefault(entry.id, []).append(yes)
        return yes

    def witness(self, id: str) -> None:
        """A person touched a letter's notes: what stands in Approved/ as it was frozen, they approve."""
        self.sync()
        try:
            entry = self.other.desk.ledger.letters.get(id)
        except PostroomError:
            return
        if not isinstance(entry.state, life.Pending | life.Approved):
            return
        for path in (self.office.vault / APPROVED).glob("*.md"):
            note = Note.parse(path.read_bytes())
            if note.text("letter") == id and text_of(entry, note) == normalize_text(
                entry.letter.text
            ):
                self.say_yes(entry)

    def token(self) -> str:
        self.count += 1
        return f"typed-{self.count:03}-"

    def forgets(self) -> None:
        """A person threw words of their own away."""
        self.typed = {token for token in self.typed if token in self.everything()}

    def everything(self) -> str:
        """Return all text that is kept anywhere."""
        ledger = database_of(self.other.desk.ledger)
        kept = [row[0] for row in ledger.rows("SELECT frozen FROM letter")]
        kept += [row[0] for row in ledger.rows("SELECT frozen FROM revision")]
        kept += [path.read_text(encoding="utf-8") for path in self.office.vault.rglob("*.md")]
        return "\n".join(kept)

    # Doing

    def during(self, plan: Plan | None, act: Callable[[], object], *, strict: bool = False) -> bool:
        """Do it while something happens at a point; return whether it came to its end undisturbed."""
        fate = self.fate
        if plan:
            fate.point, fate.left, fate.died = plan.point, plan.after, False
            what = plan.act
            fate.act = (lambda: self.perform(*what)) if what else fate.die
        planned = plan is not None
        try:
            act()
        except Dead:
            fate.point = ""
            self.office.reopen()
            if plan and plan.point == "vault between":  # which leaves two of them
                self.doubled |= {
                    line.id for line in self.other.desk.ledger.lists.summaries(*life.STATES)
                }
        except PostroomError as why:
            assert not strict, why
        met = planned and not fate.point
        fate.point = ""
        self.sync()
        return not met

    def perform(self, kind: str, which: int, how: int) -> None:
        """Act as somebody else, in another process or with a file manager, in this very moment."""
        getattr(self, f"_{kind}")(self.other, which, how)
        self.sync()

    def entry(self, office: Office, which: int, *states: str) -> Entry | None:
        """Return a letter, mostly one in such a state."""
        ledger = office.desk.ledger
        lines = (which < 8 and ledger.lists.summaries(*states)) or ledger.lists.summaries(
            *life.STATES
        )
        return ledger.letters.get(lines[-1 - which % len(lines)].id) if lines else None

    def _approve(self, office: Office, which: int, how: int) -> None:
        office.desk.reconcile()  # as the terminal does before it acts
        self.sync()
        entry = self.entry(office, which, "pending")
        if entry is None:
            return
        yes = self.say_yes(entry)
        try:
            office.desk.approve(entry.id, by="ada", digest=entry.digest)
        except PostroomError:
            words = self.said.get(entry.id, [])
            if yes in words:
                words.remove(yes)

    def _undo(self, office: Office, which: int, how: int) -> None:
        self.refusable(
            lambda entry: office.desk.decide(entry.id, "undo"), office, which, "approved"
        )

    def _reject(self, office: Office, which: int, how: int) -> None:
        self.refusable(
            lambda entry: office.desk.decide(entry.id, "reject", by="ada", reason="no"),
            office,
            which,
            "pending",
            "approved",
        )

    def _withdraw(self, office: Office, which: int, how: int) -> None:
        self.refusable(
            lambda entry: office.desk.calls.withdraw(Call("withdraw", entry.agent), entry.id),
            office,
            which,
            "pending",
            "approved",
        )

    def _edit(self, office: Office, which: int, how: int) -> None:
        def edit(entry: Entry) -> None:
            if how % 2:
                text = office.desk.display.text(entry)
                if text is not None:
                    office.desk.edit(entry.id, replace(entry.letter, text=text), from_note=True)
                return
            token = self.token()
            edited = office.desk.edit(entry.id, replace(entry.letter, text=f"{token}\n"))
            assert edited.letter.text == f"{token}\n"
            self.typed.add(token)

        self.refusable(edit, office, which, "pending")

    def _resolve(self, office: Office, which: int, how: int) -> None:
        def resolve(entry: Entry) -> None:
            sent = any(one.letter.id == entry.id for one in self.courier.accepted)
            office.desk.decide(entry.id, "resolve", by="ada", sent=sent)

        self.refusable(resolve, office, which, "unknown")

    def refusable(
        self, act: Callable[[Entry], object], office: Office, which: int, *states: str
    ) -> None:
        office.desk.reconcile()
        entry = self.entry(office, which, *states)
        if entry is not None:
            with suppress(PostroomError):
                act(entry)

    def _look(self, office: Office, which: int, how: int) -> None:
        office.desk.reconcile(adopt=bool(how % 2))

    def _send(self, office: Office, which: int, how: int) -> None:
        for _ in range(1 + how % 3):
            office.desk.send_approved()

    def _dispatch(self, office: Office, which: int, how: int) -> None:
        entry = self.entry(office, which, "approved", "sending", "unknown")
        if entry is not None:
            office.desk.dispatch(entry.id)

    # A person with a file manager

    def note(self, which: int) -> tuple[Path, str] | None:
        """Return a note of a letter, and the letter's id."""
        found = []
        for path in sorted(self.office.vault.rglob("*.md")):
            id = Note.parse(path.read_bytes()).text("letter")
            if id:
                found.append((path, id))
        found.sort(key=lambda pair: pair[1], reverse=True)
        return found[which % len(found)] if found else None

    def touched(self, *paths: Path) -> None:
        """Give files and folders times of their own: people are slower than a file system's clock."""
        for path in paths:
            now = time.time_ns()
            os.utime(path, ns=(now, now))

    def target(self, path: Path, how: int) -> Path:
        where = self.office.vault / FOLDERS[how % len(FOLDERS)]
        where.mkdir(exist_ok=True)
        target = where / path.name
        while target.exists():
            self.count += 1
            target = where / f"{path.stem} {self.count}.md"
        return target

    def _move(self, office: Office, which: int, how: int) -> None:
        if found := self.note(which):
            path, id = found
            target = self.target(path, how)
            if target.parent.name in ("Elsewhere", "Done", "Failed", "Drafts"):
                self.doubled.add(id)
            path.rename(target)
            self.touched(target.parent, path.parent)
            self.witness(id)

    def _copy(self, office: Office, which: int, how: int) -> None:
        if found := self.note(which):
            path, id = found
            target = self.target(path, how)
            target.write_bytes(path.read_bytes())
            self.touched(target, target.parent)
            self.doubled.add(id)
            self.witness(id)

    def _rename(self, office: Office, which: int, how: int) -> None:
        if found := self.note(which):
            path, id = found
            self.count += 1
            path.rename(path.with_name(f"renamed {self.count}.md"))
            self.touched(path.parent)
            self.witness(id)

    def _type(self, office: Office, which: int, how: int) -> None:
        """Type into the letter's text, or a section of one's own."""
        if found := self.note(which):
            path, id = found
            token, text = self.token(), path.read_text(encoding="utf-8")
            at = text.find("\n```text\n")
            if how % 3 and at > 0:
                # The last fence is the risk card's or the letter's own: the letter's has a heading.
                at = text.find("## Letter\n```text\n") + len("## Letter\n```text\n")
                text = f"{text[:at]}{token}\n{text[at:]}"
            else:
                text += f"\n## Mine\n{token}\n"
            path.write_text(text, encoding="utf-8")
            self.typed.add(token)
            self.touched(path)
            self.witness(id)

    def _add(self, office: Office, which: int, how: int) -> None:
        """Add a key of one's own."""
        if found := self.note(which):
            path, id = found
            token, text = self.token(), path.read_text(encoding="utf-8")
            path.write_text(text.replace("---\n", f"---\n{token}: mine\n", 1), encoding="utf-8")
            self.typed.add(token)
            self.touched(path)
            self.witness(id)

    def _touch(self, office: Office, which: int, how: int) -> None:
        """Save a note as it is."""
        if found := self.note(which):
            path, id = found
            path.write_bytes(path.read_bytes())
            self.touched(path)
            self.witness(id)

    def _delete(self, office: Office, which: int, how: int) -> None:
        if found := self.note(which):
            path, id = found
            path.unlink()
            self.touched(path.parent)
            self.forgets()
            self.witness(id)

    # Rules

    @rule(
        text=st.sampled_from(TEXTS),
        who=st.sampled_from(PEOPLE),
        agent=st.sampled_from(AGENTS),
        key=st.sampled_from(KEYS),
        slips=st.booleans(),
        plan=PLANS,
    )
    def an_agent_proposes(
        self, text: str, who: Address, agent: str, key: str, slips: bool, plan: Plan | None
    ) -> None:
        self.propose(text, who, agent, key, plan, slips=slips)

    def propose(
        self,
        text: str,
        who: Address,
        agent: str,
        key: str,
        plan: Plan | None,
        *,
        slips: bool = False,
    ) -> None:
        letter = self.office.letter(to=(who,), text=text)
        call = Call("send_email", agent)
        self.courier.arranged.clear()

        def ask() -> None:
            entry = post(self.office.desk, call, letter, Proposal(key=key), slips=slips)
            if entry.kind != "rehearsal":
                self.entered.add(entry.id)

        self.during(plan, ask)

    @rule(which=WHICH, plan=PLANS)
    def approve(self, which: int, plan: Plan | None) -> None:
        self.during(plan, lambda: self._approve(self.office, which, 0))

    @rule(
        kind=st.sampled_from(["undo", "reject", "withdraw", "edit", "edit", "resolve"]),
        which=WHICH,
        how=WHICH,
        plan=PLANS,
    )
    def decide(self, kind: str, which: int, how: int, plan: Plan | None) -> None:
        self.during(plan, lambda: getattr(self, f"_{kind}")(self.office, which, how))

    @rule(kind=st.sampled_from(FILE_ACTS), which=WHICH, how=WHICH)
    def touch_a_note(self, kind: str, which: int, how: int) -> None:
        self.perform(kind, which, how)

    @rule(which=WHICH)
    def edit_and_move(self, which: int) -> None:
        """What people do who would rather say it in their own words."""
        self._type(self.other, which, 1)
        self._move(self.other, which, FOLDERS.index(APPROVED))

    @rule(which=WHICH)
    def approve_by_moving(self, which: int) -> None:
        self._move(self.other, which, FOLDERS.index(APPROVED))

    @precondition(lambda self: len(self.own) < 4)
    @rule()
    def write_a_draft(self) -> None:
        token = self.token()
        where = self.office.vault / APPROVED
        where.mkdir(exist_ok=True)
        path = where / f"own {token}.md"
        path.write_text(f"---\nto: ann@example.com\nsubject: Own\n---\n{token}\n", "utf-8")
        self.typed.add(token)
        self.own[f"{token}\n"] = Yes("", f"{token}\n", self.clock.boot, self.clock.passed)
        self.touched(path, where)

    @precondition(lambda self: len(self.slips) < 3)
    @rule(who=st.sampled_from(PEOPLE))
    def write_a_slip(self, who: Address) -> None:
        where = self.office.vault / APPROVED
        where.mkdir(exist_ok=True)
        path = where / f"slip {len(self.slips)}.md"
        head = f"type: email_send\nstatus: approved\nto: {who.spec}\ncreated: {len(self.slips)}\n"
        path.write_text(f"---\n{head}---\n", "utf-8")
        self.touched(path, where)
        note = Note.parse(path.read_bytes())
        written = parse_slip(SeenNote(path.name, File("", 0, 0, 0), note=note))
        assert written is not None
        self.slips[written.hash] = who.key

    @precondition(lambda self: self.slips)
    @rule(how=st.sampled_from(["copy", "delete"]))
    def touch_a_slip(self, how: str) -> None:
        found = sorted(self.office.vault.rglob("slip*.md"))
        if found and how == "copy":
            self.count += 1
            copy = self.office.vault / APPROVED / f"slip copy {self.count}.md"
            copy.write_bytes(found[-1].read_bytes())
            self.touched(copy, copy.parent)
        elif found:
            found[0].unlink()
            self.touched(found[0].parent)

    def send(self, moods: list[Arranged], settles: bool, plan: Plan | None) -> None:
        self.courier.arranged[:] = moods
        self.courier.settles = settles
        self.during(plan, self.office.desk.send_approved, strict=True)
        self.courier.arranged.clear()

    @rule(moods=MOODS, settles=st.booleans(), plan=PLANS, wait=st.sampled_from([10, 10, 30, 60, 0]))
    def wait_and_send(
        self, moods: list[Arranged], settles: bool, plan: Plan | None, wait: float
    ) -> None:
        self.clock.go(wait)
        self.send(moods, settles, plan)

    @rule(which=WHICH, moods=MOODS, settles=st.booleans(), plan=PLANS)
    def approve_and_send(
        self, which: int, moods: list[Arranged], settles: bool, plan: Plan | None
    ) -> None:
        self._approve(self.office, which, 0)
        self.clock.go(10)
        self.send(moods, settles, plan)

    @rule(
        which=WHICH,
        point=st.sampled_from(["locked", "checked"]),
        kind=st.sampled_from(["undo", "reject", "withdraw", "edit", "move"]),
        how=WHICH,
    )
    def somebody_takes_it_back_in_time(self, which: int, point: str, kind: str, how: int) -> None:
        self.approve_and_send(which, [], True, Plan(point, 0, (kind, which, how)))

    @rule(
        which=WHICH,
        point=st.sampled_from(["claimed", "published", "answered"]),
        kind=st.sampled_from(["send", "dispatch", "look", "resolve", "undo", "move", "delete"]),
        how=WHICH,
        moods=MOODS,
        settles=st.booleans(),
    )
    def somebody_acts_while_it_is_sent(
        self, which: int, point: str, kind: str, how: int, moods: list[Arranged], settles: bool
    ) -> None:
        self.approve_and_send(which, moods, settles, Plan(point, 0, (kind, which, how)))

    @rule(paused=st.booleans(), which=WHICH)
    def try_while_it_is_stopped(self, paused: bool, which: int) -> None:
        self._approve(self.office, which, 0)
        self.the_person_stops_or_starts_it("pause" if paused else "rehearse")
        self.wait_and_send([], settles=True, plan=None, wait=10)
        self.the_person_stops_or_starts_it("go on" if paused else "live")

    @rule(adopt=st.booleans(), plan=PLANS)
    def look(self, adopt: bool, plan: Plan | None) -> None:
        calm = self.during(plan, lambda: self.office.desk.reconcile(adopt=adopt), strict=True)
        if calm:
            self.assert_notes_in_place()

    @rule(seconds=st.sampled_from([1.0, 30.0, MINUTE, HOUR, HOUR, HOUR, HOUR, DAY, 3 * DAY]))
    def time_passes(self, seconds: float) -> None:
        self.clock.go(seconds)

    @rule(seconds=st.sampled_from([-DAY, -HOUR, HOUR, 4 * DAY]), reboot=st.booleans())
    def the_clock_is_set(self, seconds: float, reboot: bool) -> None:
        self.clock.jump(seconds)
        if reboot:
            self.office.close()
            self.other.close()
            self.clock.reboot()
            self.office.open()
            self.other.open()

    @rule(what=st.sampled_from(["pause", "go on", "go on", "rehearse", "live", "live"]))
    def the_person_stops_or_starts_it(self, what: str) -> None:
        paused = self.office.vault / "PAUSED"
        if what == "pause":
            paused.touch()
        elif what == "go on":
            paused.unlink(missing_ok=True)
        else:
            self.another_mode(what == "live")

    def another_mode(self, live: bool) -> None:
        for office in (self.office, self.other):
            office.reopen(live=live, sends_per_hour=self.sends)

    # What holds

    @invariant()
    def nothing_left_twice_or_unapproved(self) -> None:
        assert not self.faults
        ids = [one.letter.id for one in self.courier.accepted]
        assert len(ids) == len(set(ids))

    @invariant()
    def what_left_is_never_taken_for_unsent(self) -> None:
        for one in self.courier.accepted:
            kind = self.other.desk.ledger.letters.get(one.letter.id).kind
            assert kind in ("sending", "unknown", "sent")

    @invariant()
    def what_is_called_sent_has_left(self) -> None:
        left = {one.letter.id for one in self.courier.accepted}
        assert {line.id for line in self.other.desk.ledger.lists.summaries("sent")} <= left

    @invariant()
    def letters_never_vanish(self) -> None:
        known = {line.id for line in self.other.desk.ledger.lists.summaries(*life.STATES)}
        assert self.entered <= known

    @invariant()
    def typed_text_is_never_lost(self) -> None:
        kept = self.everything()
        assert not [token for token in self.typed if token not in kept]

    @invariant()
    def the_log_verifies(self) -> None:
        self.other.desk.flush_log()
        assert self.other.desk.log.verify() == []

    def assert_notes_in_place(self) -> None:
        """After a look, every open letter has its note where it belongs, and no other note."""
        for line in self.other.desk.ledger.lists.summaries("pending", "approved", "unknown"):
            entry = self.other.desk.ledger.letters.get(line.id)
            place = self.other.desk.ledger.notes.location(line.id)
            notes = self.office.notes(line.id)
            verdict = getattr(entry.state, "verdict", None)
            if not place.path and verdict and not notes:
                assert verdict.slip  # it leaves within a call, and has a note afterwards
                continue
            assert self.office.vault / place.path in notes, (entry.state, place.path, notes)
            assert place.path.partition("/")[0] == folder(entry.state, entry.home), (
                entry.state,
                place.path,
            )
            note = Note.parse((self.office.vault / place.path).read_bytes())
            status = {"pending": ("pending", "pending_approval")}.get(entry.kind, (entry.kind,))
            assert note.text("status") in status, (entry.state, note.raw)
            assert note.text("digest") == entry.digest, (entry.state, note.raw)
            if line.id not in self.doubled:
                assert len(notes) == 1, (entry.state, notes)

    def teardown(self) -> None:
        """In the end, everything that is approved leaves, once the way is free."""
        try:
            if hasattr(self, "office") and not self.faults:
                self.settle()
        finally:
            if hasattr(self, "office"):
                self.office.close()
                self.other.close()
            self.folder.cleanup()

    def settle(self) -> None:
        (self.office.vault / "PAUSED").unlink(missing_ok=True)
        self.another_mode(True)
        self.courier.arranged.clear()
        self.courier.settles = True
        self.clock.jump(100 * DAY)  # a clock that was set back after a reboot is put right
        for wait in (DAY, HOUR, HOUR, DAY, HOUR, HOUR, HOUR, HOUR, HOUR, HOUR):
            self.office.desk.reconcile()
            self.office.desk.send_approved()
            self.clock.go(wait)
        assert self.office.desk.ledger.lists.summaries("approved", "sending") == []
        self.assert_notes_in_place()
        self.nothing_left_twice_or_unapproved()
        self.what_left_is_never_taken_for_unsent()
        self.typed_text_is_never_lost()
        self.the_log_verifies()


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(
    max_examples=examples(45),
    derandomize=True,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
TestOutbox = pytest.mark.timeout(600)(TestOutbox)  # a failure is shrunk for minutes
