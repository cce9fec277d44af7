"""The door of the page: who is let in, by which address, and what a browser may do with what it gets.

A page that somebody else made must not reach us: requests must name a host of ours, posts must come from a page of ours
and bear its token. A browser is let in by an address that works once; where a passphrase is needed, by that as well, and
again after a while in which nobody did anything.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from postroom.core.errors import Denied, Limited
from postroom.desk.desk import Desk
from postroom.desk.passphrase import Unlocked

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: a browser would then keep the origin of our own posts from us.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-dns-prefetch-control": "off",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "cache-control": "no-store",
}
FREE_TRIES: Final = 5  # wrong passphrases before each further one must wait
LONGEST_WAIT: Final = 900.0


def steady() -> float:
    """Return the seconds of a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Visitor(NamedTuple):
    """A browser that was let in: its secret, and whose word it brings."""

    secret: str
    person: str

    @property
    def token(self) -> str:
        """What every post of this browser bears; another page cannot know it."""
        return hmac.new(self.secret.encode(), b"post", hashlib.sha256).hexdigest()


@dataclass(slots=True)
class Door:
    """Lets browsers in to one desk."""

    desk: Desk
    port: int
    origin: str = ""  # of the person's own proxy, if there is one
    host: str = "127.0.0.1"
    guarded: bool = False  # whether the passphrase is asked for whatever the trust level is
    idle: float = 900.0  # seconds without a word after which it is asked for again
    now: Callable[[], float] = steady
    _active: dict[str, tuple[float, Unlocked]] = field(default_factory=dict)
    _wrong: int = 0
    _until: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def origins(self) -> frozenset[str]:
        """The addresses under which a browser knows us."""
        hosts = [f"[{self.host}]" if ":" in self.host else self.host]
        hosts += ["localhost"] if self.host in {"127.0.0.1", "::1"} else []
        port = "" if self.port == 80 else f":{self.port}"  # as browsers write it
        own = [f"http://{host}{port}" for host in hosts]
        return frozenset([*own, self.origin] if self.origin else own)

    @property
    def cookie(self) -> str:
        """The name of the cookie: other programs of this machine share the host, and some the port's past."""
        return "__Host-postroom" if self.origin.startswith("https:") else f"postroom-{self.port}"

    def greets(self, host: str) -> bool:
        """Whether this is a host of ours."""
        return any(origin.partition("://")[2] == host.lower() for origin in self.origins)

    def trusts(self, headers: Mapping[str, str]) -> bool:
        """Whether a post comes from a page of ours."""
        return (
            headers.get("origin", "") in self.origins
            and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        )

    @property
    def needs_passphrase(self) -> bool:
        """Whether an address that works once is not enough."""
        return self.guarded or self.desk.rules.trust == "desk" or self.desk.raised()

    # Coming in

    def ticket(self, person: str) -> str:
        """Return an address that lets one browser in, once, for this person."""
        return issue(self.desk, person, self.address)

    @property
    def address(self) -> str:
        """Where a person finds us."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.origin or f"http://{host}:{self.port}"

    def expects(self, ticket: str) -> bool:
        """Whether this address still lets somebody in."""
        with self.desk.ledger.read() as book:
            return book.valid(ticket)

    def enter(self, ticket: str, passphrase: str) -> Visitor:
        """Let a browser in by an address that was not used yet, or refuse."""
        if not self.expects(ticket):
            raise spent()
        unlocked = self._unlocked(passphrase) if self.needs_passphrase else None
        secret = secrets.token_urlsafe(32)
        with self.desk.ledger.write() as book:
            person = book.redeem(ticket, self._kept(secret))
        if person is None:  # somebody was quicker with the same address
            raise spent()
        visitor = Visitor(secret, person)
        if unlocked:
            self._active[secret] = (self.now(), unlocked)
        return visitor

    def visitor(self, cookie: str) -> Visitor | None:
        """Return who this browser was let in for."""
        if not cookie:
            return None
        with self.desk.ledger.read() as book:
            person = book.visitor(self._kept(cookie))
        return Visitor(cookie, person) if person is not None else None

    def leave(self, visitor: Visitor) -> None:
        """Let this browser in no more."""
        with self.desk.ledger.write() as book:
            book.dismiss(self._kept(visitor.secret))
        self._active.pop(visitor.secret, None)

    def _kept(self, secret: str) -> str:
        """Return the secret with where it counts: cookies know no ports, and who has one elsewhere has nothing."""
        return f"{secret} {self.origin or self.port}"

    # Staying

    def locked(self, visitor: Visitor) -> bool:
        """Whether the passphrase is to be given (again)."""
        return self.needs_passphrase and self.proof(visitor) is None

    def proof(self, visitor: Visitor) -> Unlocked | None:
        """Return that this browser gave the passphrase, and has not been idle since."""
        last, unlocked = self._active.get(visitor.secret, (0.0, None))
        if unlocked is None or self.now() - last > self.idle:
            return None
        return unlocked if self.desk.opens(unlocked) else None

    def stir(self, visitor: Visitor) -> None:
        """Take note that the person did something."""
        if (unlocked := self.proof(visitor)) is not None:
            self._active[visitor.secret] = (self.now(), unlocked)

    def unlock(self, visitor: Visitor, passphrase: str) -> None:
        """Take the passphrase, or refuse."""
        self._active[visitor.secret] = (self.now(), self._unlocked(passphrase))

    def _unlocked(self, passphrase: str) -> Unlocked:
        with self._turn:  # one at a time: trying many at once is no way around the waiting
            if (left := self._until - self.now()) > 0:
                raise Limited(
                    f"Too many wrong passphrases; the next is taken in {left:.0f} seconds",
                    seconds=left,
                    remedy="Wait, then try again. In the terminal, `postroom approve` asks for it too.",
                )
            try:
                unlocked = self.desk.unlock(passphrase)
            except Denied:
                self._wrong += 1
                if self._wrong >= FREE_TRIES:
                    wait = 5.0 * 2 ** min(self._wrong - FREE_TRIES, 8)
                    self._until = self.now() + min(wait, LONGEST_WAIT)
                raise
            self._wrong = 0
            return unlocked


def issue(desk: Desk, person: str, address: str) -> str:
    """Return an address that lets one browser in at a page that is served there, once, for this person."""
    ticket = secrets.token_urlsafe(32)
    with desk.ledger.write() as book:
        book.issue(ticket, person)
    return f"{address}/in/{ticket}"


def spent() -> Denied:
    """Return the refusal of an address that lets nobody in any more."""
    return Denied(
        "This address was used already, or is older than ten minutes",
        remedy="`postroom desk` prints a new one.",
    )
