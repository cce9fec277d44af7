"""What a worker of the crash suite is: a desk in a process of its own, and the providers that it sends by.

Everything is real but the moment of death: ledger, vault and locks are files, the clock is the
machine's with an offset that all workers share, and a provider is kept outside the state folder.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from postroom.core.address import Address
from postroom.core.errors import Conflict
from postroom.core.letter import ID_BYTES, Enclosure, Letter, letter_id
from postroom.core.policy import Rules
from postroom.core.stamp import Stamp
from postroom.desk.desk import Desk, Effects
from postroom.desk.proposals import Proposal
from postroom.desk.recorder import Call
from postroom.mail import build, mailbox, read  # noqa: F401 - warm before the fork
from postroom.mail.local import LocalMailbox
from postroom.store.ledger import SqliteLedger
from postroom.vault.vault import Vault
from postroom.wiring.desk import clock as machine_clock
from tests.posting import post

DESK = "crashcrashcrash2"
YOU = Address.parse("You <you@example.org>")
ANN = Address.parse("Ann <ann@example.com>")
BEN = Address.parse("Ben <ben@example.net>")
CALL = Call("send_email", "claude")
MANY = 1_000_000
RULES = Rules(
    live=True,
    source="crash suite",
    undo_seconds=0,
    sends_per_hour=MANY,
    sends_per_pace=MANY,
    recipients_per_hour=MANY,
    open_letters=MANY,
    proposals_per_hour=MANY,
    replies_per_thread=MANY,
)
BATCH = 4  # letters that are proposed before a person decides on them
AHEAD = 24  # letters that may wait before the agent writes more
ASKS = 3  # times that a late provider is asked before it knows
IDLE = 0.005  # seconds between two looks, where there is nothing to do

Step = Callable[[str], None]


# Providers


def append(path: Path, *words: str) -> None:
    """Add a line to a file, in one write: it is there whole, or not at all."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, (" ".join(words) + "\n").encode())
    finally:
        os.close(handle)


def lines(path: Path) -> list[list[str]]:
    """Return the words of each line of such a file."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


class Asked:
    """The embedded mailbox, which can be asked: its transaction is the act and the proof."""

    def __init__(self, folder: Path, step: Step, now: Callable[[], float]) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.step = step
        self.at_hand = ""  # the letter that is on its way out
        self.box: mailbox.Mailbox = LocalMailbox(folder / "mail.sqlite", (YOU,), now=now, zone=UTC)

    def __getattr__(self, name: str) -> Any:  # the rest of `Mailbox`
        return getattr(self.box, name)

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        self.at_hand = letter.id
        return self.box.wire(letter, date=date)

    def send(self, letter: Letter, wire: bytes, proof: str) -> mailbox.Accepted:
        self.step("handing")
        try:
            sent = self.box.send(letter, wire, proof)
        except Conflict:
            append(self.folder / "repeated", letter.id)
            raise
        self.step("accepted")
        return sent

    def find_outcome(self, letter: Letter, proof: str) -> mailbox.SendOutcome:
        self.step("asking")
        return self.box.find_outcome(letter, proof)

    @classmethod
    def accepted(cls, folder: Path) -> list[tuple[str, str]]:
        """Return what was accepted: letter and SHA-256 of the bytes, each time."""
        with closing(sqlite3.connect(folder / "mail.sqlite")) as connection:
            mails = connection.execute("SELECT content FROM raw").fetchall()
        found = [(_letter_of(bytes(mail)), sha(bytes(mail))) for (mail,) in mails]
        return found + [(id, "") for (id,) in lines(folder / "repeated")]


class Mute(Asked):
    """A server that takes every mail it is given, twice if it is given twice, and tells nothing."""

    def send(self, letter: Letter, wire: bytes, proof: str) -> mailbox.Accepted:
        self.step("handing")
        append(self.folder / "spool", letter.id, sha(wire), base64.b64encode(wire).decode())
        self.step("accepted")
        return mailbox.Accepted(f"m-{letter.id}", f"t-{letter.id}")

    def find_outcome(self, letter: Letter, proof: str) -> mailbox.SendOutcome:
        self.step("asking")
        return mailbox.Unproven("this provider tells nothing")

    @classmethod
    def accepted(cls, folder: Path) -> list[tuple[str, str]]:
        """Return what was accepted: letter and SHA-256 of the bytes, each time."""
        found = [(id, said, base64.b64decode(wire)) for id, said, wire in lines(folder / "spool")]
        assert all(said == sha(wire) and _letter_of(wire) == id for id, said, wire in found)
        return [(id, said) for id, said, _ in found]


class Late(Mute):
    """A server that finds what it sent only after a while, and never proves that it did not send."""

    def find_outcome(self, letter: Letter, proof: str) -> mailbox.SendOutcome:
        self.step("asking")
        append(self.folder / "asked", letter.id)
        asked = lines(self.folder / "asked").count([letter.id])
        if asked < ASKS or letter.id not in {id for id, *_ in lines(self.folder / "spool")}:
            return mailbox.Unproven("the search does not find it")
        return mailbox.Accepted(f"m-{letter.id}", f"t-{letter.id}")


def sha(wire: bytes) -> str:
    return hashlib.sha256(wire).hexdigest()


def _letter_of(wire: bytes) -> str:
    head = wire.partition(b"\r\n\r\n")[0].split(b"\r\n")
    (id,) = [line.split()[1] for line in head if line.startswith(b"X-Postroom-Letter:")]
    return id.decode()


# The desk


class Watched(Vault):
    """A vault that tells where a process is with a note, and with the log."""

    def __init__(self, root: Path, step: Step) -> None:
        def link(
            source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool
        ) -> None:
            step("linking")
            os.link(
                source,
                target,
                src_dir_fd=src_dir_fd,
                dst_dir_fd=dst_dir_fd,
                follow_symlinks=follow_symlinks,
            )
            step("linked")  # a note has two names now

        super().__init__(root, link=link)
        self._step = step

    def append(self, path: str, data: bytes, mode: int = 0o600) -> int:
        """Add to the log, of which the ledger does not know yet."""
        size = super().append(path, data, mode)
        self._step("appended")
        return size


@contextmanager
def office(
    folder: Path,
    provider: type[Asked],
    offset: Callable[[], float],
    step: Step = lambda _name: None,
    *,
    required: bool = True,
) -> Iterator[tuple[Desk, Asked]]:
    """Open the desk of this folder as a process does; `step` is told where the process is.

    Where an approval is not `required`, an agent's letters leave by themselves.
    """
    machine = machine_clock()

    def clock() -> Stamp:
        wall, boot, steady = machine()
        return Stamp(wall + offset(), boot, steady + offset())

    def draw(count: int) -> bytes:
        step("drawn")  # inside the transaction that writes a line of the chain
        return os.urandom(count)

    tools = Effects(clock=clock, draw=draw, sleep=time.sleep, crash_point=step)
    with (
        closing(SqliteLedger(folder / "state" / "ledger.sqlite", clock=clock, draw=draw)) as ledger,
        closing(Watched(folder / "vault", step)) as vault,
    ):
        box = provider(folder / "provider", step, lambda: clock().wall)
        with closing(box.box):
            desk = Desk(
                id=DESK,
                state=folder / "state",
                ledger=ledger,
                vault=vault,
                mailboxes=lambda _account: box,
                account="default",
                rules=replace(RULES, required=required),
                effects=tools,
            )
            yield desk, box


# What workers do


def dispatch(desk: Desk, folder: Path, halted: Callable[[], bool]) -> None:
    """Take in the notes and send what is approved, until it is enough."""
    while not halted():
        for sentence in desk.reconcile():
            append(folder / "said", f"{time.monotonic():.3f} {os.getpid()}", sentence)
        if not desk.send_approved():
            time.sleep(IDLE)


def write(desk: Desk, folder: Path, halted: Callable[[], bool]) -> None:
    """Be an agent that writes letters, and the person who approves them, until it is enough."""
    while not halted():
        approve(desk, folder)
        if len(desk.ledger.lists.summaries("pending", "approved")) > AHEAD:
            time.sleep(IDLE)
            continue
        for _ in range(BATCH):
            propose(desk, folder)


def propose(desk: Desk, folder: Path) -> None:
    """Propose the next letter; one whose answer never came is proposed again, under its key."""
    number = len(lines(folder / "proposed")) + 1
    append(folder / "begun", str(number))
    entry = post(desk, CALL, letter(number), Proposal(key=f"number {number}"))
    append(folder / "proposed", str(number), entry.id)


def approve(desk: Desk, folder: Path) -> None:
    """Approve all that waits: every other letter at the terminal, the others by moving the note."""
    desk.reconcile()  # as the terminal does before it acts
    for line in desk.ledger.lists.summaries("pending"):
        entry = desk.ledger.letters.get(line.id)
        try:
            if number_of(entry.letter.subject) % 2:
                desk.approve(line.id, by="ada", digest=entry.digest)
            else:
                here = folder / "vault" / desk.ledger.notes.location(line.id).path
                if here.parent.name != "Pending_Approval":
                    continue
                there = folder / "vault" / "Approved" / here.name
                there.parent.mkdir(exist_ok=True)
                here.rename(there)
        except (Conflict, FileNotFoundError):
            continue  # it was moved before, and a dispatcher has seen it or will


def letter(number: int) -> Letter:
    """Return a letter of this number, under a new id: some are long, have two readers, or files."""
    return Letter(
        id=letter_id(os.urandom(ID_BYTES)),
        account="default",
        sender=YOU,
        to=(ANN,),
        cc=(BEN,) if number % 3 == 0 else (),
        bcc=(BEN,) if number % 5 == 0 else (),
        subject=f"Number {number}",
        text=f"This is letter {number}.\n" + "Grüße, wie immer.\n" * (number % 11 and number % 7),
        html=f"<p>This is letter {number}.</p>" if number % 11 == 0 else "",
        attachments=(
            (Enclosure("plan.bin", "application/octet-stream", bytes(range(256)) * 8),)
            if number % 13 == 0
            else ()
        ),
    )


def number_of(subject: str) -> int:
    return int(subject.removeprefix("Number "))
