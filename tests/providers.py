"""Providers that misbehave as they are told to: the embedded mailbox, behind a line that can fail."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from postroom.core.address import Address
from postroom.core.errors import Denied, Unavailable, Uncertain
from postroom.core.letter import Letter
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Accepted, Mailbox, SendOutcome, Unproven

BUSY = Unavailable("the server is busy")
BARRED = Denied("the server wants none of this")
LOST = Uncertain("the line went dead")


# What happens when a letter is sent: the error, whether it is taken all the same, whom it is refused for.
Arranged: TypeAlias = tuple[Exception | None, bool, tuple[Address, ...]]


class AcceptedLetter(NamedTuple):
    """A letter that the provider took, as it was then, and the bytes that went out."""

    letter: Letter
    wire: bytes


class Courier:
    """A provider whose sending does what was arranged, each time the next thing; then it works.

    `accepted` is the truth about what left, whatever the desk was told. It outlives every opening
    of the mailbox, and counts a second sending of one letter, which the embedded mailbox refuses.
    """

    def __init__(self) -> None:
        self.accepted: list[AcceptedLetter] = []
        self.tried = 0
        self.settles = True
        self.away = False
        self.forges: Callable[[bytes], bytes] = lambda wire: wire
        self.watch: Callable[[Letter, bytes], None] = lambda _letter, _wire: None
        self.arranged: list[Arranged] = []

    def __call__(self, box: LocalMailbox) -> Mailbox:
        """Stand before this mailbox; `Office.wrap`."""
        return Line(self, box)

    def refuses(self, why: Exception = BUSY, times: int = 1) -> None:
        """Refuse: nothing happens."""
        self.arranged += [(why, False, ())] * times

    def loses(self, why: Exception = LOST, *, after: bool) -> None:
        """Lose the connection, before or after the letter was taken."""
        self.arranged.append((why, after, ()))

    def turns_down(self, *people: Address) -> None:
        """Take the letter, but not for these."""
        self.arranged.append((None, True, people))


class Line:
    """One opened mailbox of that provider."""

    def __init__(self, courier: Courier, box: LocalMailbox) -> None:
        self._courier = courier
        self._box = box

    def __getattr__(self, name: str) -> Any:  # the rest of `Mailbox`
        return getattr(self._box, name)

    def own_addresses(self) -> tuple[Address, ...]:
        """Return the account's own addresses, if the provider can be reached."""
        if self._courier.away:
            raise Unavailable("no network")
        return self._box.own_addresses()

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the bytes, or what they were made into."""
        return self._courier.forges(self._box.wire(letter, date=date))

    def send(self, letter: Letter, wire: bytes, proof: str) -> Accepted:
        """Do what was arranged."""
        courier = self._courier
        courier.tried += 1
        why, taken, refused = courier.arranged.pop(0) if courier.arranged else (None, True, ())
        sent = Accepted("", "")
        if taken:
            courier.watch(letter, wire)
            courier.accepted.append(AcceptedLetter(letter, wire))
            sent = self._box.send(letter, wire)
        if why is not None:
            raise why
        return Accepted(sent.message, sent.thread, refused)

    def find_outcome(self, letter: Letter, proof: str) -> SendOutcome:
        """Say what became of it, if this provider can tell."""
        settles = self._courier.settles
        return (
            self._box.find_outcome(letter) if settles else Unproven("this server keeps no record")
        )
