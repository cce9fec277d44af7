"""A desk for tests: a real ledger, a real vault, the embedded mailbox, and a clock that can be set."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest

from postroom.core import life
from postroom.core.address import Address
from postroom.core.letter import Letter, letter_id
from postroom.core.outgoing_html import reduce_html
from postroom.core.policy import Rules
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.desk import note_text, verdicts
from postroom.desk.desk import Desk, Effects
from postroom.desk.proposals import Proposal
from postroom.desk.recorder import Call
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Mailbox
from postroom.services.services import Services
from postroom.store.database import Database
from postroom.store.ledger import Ledger, SqliteLedger
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from postroom.vault.vault import Vault
from tests.narrow import narrow
from tests.posting import post
from tests.providers import BUSY, Courier

T = TypeVar("T")
START = 1_794_700_800.0  # 2026-11-15 00:00 UTC
YOU = Address.parse("You <you@example.org>")
ANN = Address.parse("Ann <ann@example.com>")
BOB = Address.parse('"Bob, the other" <bob@example.net>')
CAT = Address.parse("cat@example.net")
SEND = Call("send_email", "claude")
DESK = "abcdefgh22334455"
HOUR = 3600.0
THREE_DAYS = 72 * HOUR
HOME, APPROVED, REJECTED, DONE, FAILED = (
    "Pending_Approval",
    "Approved",
    "Rejected",
    "Done",
    "Failed",
)
DRAFT = """---
to: ann@example.com
subject: From my own hand
priority: urgent
---

Dear Ann,
this I wrote myself.
"""


class Dead(BaseException):
    """The process ended here, as by kill -9."""


class Clock:
    """Time that passes when it is told to, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.wall = START
        self.steady = 1000.0
        self.boot = "boot-1"

    def __call__(self) -> Stamp:
        return Stamp(self.wall, self.boot, self.steady)

    def go(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.steady += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock; no time passes."""
        self.wall += seconds

    def reboot(self) -> None:
        """Start the machine anew."""
        self.boot += "+"
        self.steady = 1.0


def database_of(ledger: Ledger) -> Database:
    """Return the SQLite file of a ledger, for tests that damage it or look behind it."""
    session = ledger._session
    assert isinstance(session, Database)
    return session


def change_settings(ledger: Ledger, **changes: Any) -> None:
    """Change what the ledger keeps for the whole desk."""
    with ledger.write() as tx:
        tx.save_settings(replace(tx.settings, **changes))


class Office:
    """A person's vault and state folder, and the desk over them, which can be closed and opened again."""

    own = YOU

    def __init__(self, folder: Path, *, after: float = 0, **rules: Any) -> None:
        self.folder = folder
        self.vault = folder / "vault"
        self.state = folder / "state"
        self.clock = Clock()
        self.clock.go(after)
        self.rules = Rules(**{"live": True, "source": "test", **rules})
        self.told: list[Entry] = []
        self.chance = random.Random(7)
        self.wrap: Callable[[LocalMailbox], Mailbox] = lambda box: box
        self.step: Callable[[str], None] = lambda _name: None
        self.sleep: Callable[[float], None] = self.clock.go
        self.ledgers: type[SqliteLedger] = SqliteLedger
        self.vaults: type[Vault] = Vault
        self.drawn = 0
        self.vault.mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()
        self.open()

    def set_passphrase(self, word: str) -> None:
        """Give the desk its first passphrase, sealed so that checking it costs nothing."""
        sealed = verdicts.hash_passphrase(word, b"salt", cost=2)
        change_settings(self.desk.ledger, passphrase=sealed)

    def open(self) -> Desk:
        """Open the desk as a new process would."""
        self._stack = ExitStack()
        tools = Effects(
            clock=self.clock,
            draw=self.chance.randbytes,
            sleep=lambda seconds: self.sleep(seconds),  # noqa: PLW0108
            notify=lambda entry, _page: self.told.append(entry),
            crash_point=lambda name: self.step(name),  # noqa: PLW0108 - it may be set later
        )
        ledger = self.ledgers(self.state / "ledger.sqlite", clock=tools.clock, draw=tools.draw)
        self._stack.callback(ledger.close)
        change_settings(ledger, desk_id=DESK)
        vault = self.vaults(self.vault)
        self._stack.callback(vault.close)
        self.box = LocalMailbox(
            self.state / "mail.sqlite", (self.own,), now=lambda: self.clock.wall, zone=UTC
        )
        self._stack.callback(self.box.close)
        outgoing = self.wrap(self.box)
        self.desk = Desk(
            id=DESK,
            state=self.state,
            ledger=ledger,
            vault=vault,
            mailboxes=lambda _account: outgoing,
            account="default",
            rules=self.rules,
            effects=tools,
        )
        self.services = Services(self.desk)
        self._stack.callback(self.services.close)
        return self.desk

    def close(self) -> None:
        """Close it; the files stay."""
        self._stack.close()

    def reopen(self, **rules: Any) -> Desk:
        """Close and open it, with other rules if any are given."""
        self.close()
        if rules:
            self.rules = Rules(**{"live": True, "source": "test", **rules})
        return self.open()

    def beside(self) -> Office:
        """Return another process at the same desk, with the same clock; to be closed like this one."""
        other = Office(self.folder)
        other.clock, other.chance, other.wrap = self.clock, self.chance, self.wrap
        other.close()
        other.rules = self.rules
        other.open()
        return other

    def at(self, step: str, act: Callable[[], object]) -> None:
        """Let somebody act once, when a dispatcher comes to this step."""

        def watch(name: str) -> None:
            if name == step:
                self.step = lambda _name: None
                act()

        self.step = watch

    def dies_at(self, step: str) -> None:
        """Let the process end at this step; it is to be reopened."""

        def die() -> None:
            raise Dead

        self.at(step, die)

    def killed_at(self, step: str) -> None:
        """Send what is approved, be killed at this step, and come back."""
        self.dies_at(step)
        with pytest.raises(Dead):
            self.desk.send_approved()
        self.reopen()

    # Letters

    def letter(self, **changes: Any) -> Letter:
        """Return a new letter to Ann."""
        self.drawn += 1
        values: dict[str, Any] = {
            "id": letter_id(self.drawn.to_bytes(7, "big")),
            "account": "default",
            "sender": YOU,
            "to": (ANN,),
            "subject": "Hello",
            "text": f"Good day, for the {self.drawn}th time.\n",
        }
        if changes.get("html"):  # as every letter that is frozen
            changes["html"], changes["text"], _ = reduce_html(changes["html"])
        return Letter(**{**values, **changes})

    def propose(self, letter: Letter | None = None, call: Call = SEND, **wish: Any) -> Entry:
        """Let an agent ask for a letter."""
        return post(self.desk, call, letter or self.letter(), Proposal(**wish))

    def approved(self, **changes: Any) -> Entry:
        """Return a letter that a person approved, its undo window passed."""
        entry = self.propose(self.letter(**changes))
        entry = self.desk.approve(entry.id, by="ada", digest=entry.digest)
        self.clock.go(self.rules.undo_seconds)
        return entry

    def state_of(self, id: str) -> str:
        """Return the name of a letter's state."""
        return self.desk.ledger.letters.get(id).kind

    def sent(self) -> list[str]:
        """Return the subjects of all sent mail, newest first."""
        return [summary.subject for summary in self.box.search("in:sent", limit=100).items]

    # Notes

    def notes(self, id: str) -> list[Path]:
        """Return all notes of a letter, wherever they stand."""
        found = []
        for path in sorted(self.vault.rglob("*.md")):
            try:
                if Note.parse(path.read_bytes()).text("letter") == id:
                    found.append(path)
            except Exception:  # noqa: BLE001 - not one that can be read
                continue
        return found

    def note(self, id: str) -> Path:
        """Return the one note of a letter."""
        found = self.notes(id)
        assert len(found) == 1, found
        return found[0]

    def where(self, id: str) -> str:
        """Return the folder that a letter's one note stands in."""
        return self.note(id).parent.name

    def move(self, id: str, folder: str) -> Path:
        """Move a letter's note as a person would."""
        note = self.note(id)
        target = self.vault / folder / note.name
        target.parent.mkdir(exist_ok=True)
        return note.rename(target)

    def edit(self, id: str, old: str, new: str) -> None:
        """Change a letter's note as a person would."""
        note = self.note(id)
        text = note.read_text(encoding="utf-8")
        assert old in text
        note.write_text(text.replace(old, new), encoding="utf-8")

    def write(self, path: str, text: str) -> Path:
        """Write a file into the vault as a person would."""
        target = self.vault / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
        return target

    def field(self, id: str, key: str) -> str:
        """Return a field of a letter's one note."""
        return Note.parse(self.note(id).read_bytes()).text(key)

    def page(self, id: str, title: str) -> str:
        """Return a section of a letter's one note, that of the top being empty; or a part of its details."""
        parts = dict(sections(Note.parse(self.note(id).read_bytes()).body))
        if title in parts:
            return parts[title]
        return note_text.details("".join(parts.values()))[title]

    def head(self, id: str) -> str:
        """Return what a letter's one note says around the letter: the top, what to do, the details."""
        said = dict(sections(Note.parse(self.note(id).read_bytes()).body))
        return "".join(
            text for title, text in said.items() if title not in ("Letter", "Difference")
        )

    def look(self, *, adopt: bool = False) -> str:
        """Reconcile; return all that was said."""
        return " ".join(self.desk.reconcile(adopt=adopt))


def old_desk(folder: Path, change: str = "") -> Office:
    """Return the desk that version 0.1.0 left, copied into this folder and opened a minute later.

    `change` is a statement that its ledger executes before.
    """
    shutil.copytree(Path(__file__).parent / "fixtures" / "desk-0.1", folder, dirs_exist_ok=True)
    (folder / "state").chmod(0o700)
    with closing(sqlite3.connect(folder / "state" / "ledger.sqlite")) as ledger, ledger:
        ledger.execute(change)
    return Office(folder, after=60)


@overload
def state(office: Office, id: str) -> life.State: ...
@overload
def state(office: Office, id: str, kind: type[T]) -> T: ...
def state(office: Office, id: str, kind: type[object] = object) -> object:
    """Return a letter's state; one that is not of this kind fails the test.

    state(office, id, Approved).wait
    """
    return narrow(office.desk.ledger.letters.get(id).state, kind)


def parsed(office: Office, id: str) -> Note:
    """Return a letter's one note."""
    return Note.parse(office.note(id).read_bytes())


def titles(office: Office, id: str) -> list[str]:
    """Return the titles of a letter's one note."""
    return [title for title, _ in sections(parsed(office, id).body) if title]


def journey(office: Office, courier: Courier, entry: Entry) -> Iterator[str]:
    """Yield after each step of a letter's way through all its states but the closed ones."""
    id = entry.id
    yield "pending"
    office.desk.approve(id, by="ada", digest=entry.digest)
    yield "approved"
    office.desk.decide(id, "undo")
    yield "recalled"
    office.move(id, "Approved")
    office.look()
    yield "moved"
    (office.vault / "PAUSED").touch()
    office.clock.go(10)
    office.desk.send_approved()
    yield "paused"
    (office.vault / "PAUSED").unlink()
    courier.refuses(BUSY)
    office.desk.send_approved()
    yield "refused"
    office.clock.go(30)
    courier.settles = False
    courier.loses(after=False)
    office.desk.send_approved()
    yield "unknown"
    office.desk.decide(id, "resolve", by="ada", sent=False)
    yield "resolved"
    office.desk.decide(id, "reject", by="ada", reason="no")
    yield "rejected"
    office.move(id, "Approved")
    office.look()
    yield "reopened"
    office.clock.go(THREE_DAYS)
    office.look()
    yield "expired"
    office.move(id, "Approved")
    office.look()
    office.desk.approve(id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert office.state_of(id) == "sent"
    yield "sent"


def survives(office: Office, courier: Courier, entry: Entry, *words: str) -> None:
    """Assert that these words stand in a letter's note all along."""
    for step in journey(office, courier, entry):
        text = office.note(entry.id).read_bytes().decode()
        missing = [word for word in words if word not in text]
        assert not missing, (step, text)
