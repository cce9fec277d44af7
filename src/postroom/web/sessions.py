"""Sign-in and sessions of browsers, and what a browser may do with the page.

A request must name a host of the desk, and a form must come from a page of the desk and carry the session's token.
A browser signs in with an address that works once. Where a passphrase is required, it is asked for at sign-in and
again after a time without activity.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from dataclasses import field
from typing import Final, NamedTuple

from postroom.core.errors import Denied, Limited
from postroom.core.values import dataclass
from postroom.desk.desk import Desk
from postroom.desk.verdicts import Unlocked

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: browsers would then send `Origin: null` with the desk's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-dns-prefetch-control": "off",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "cache-control": "no-store",
}
FREE_TRIES: Final = 5  # wrong passphrases before there is a delay
LONGEST_DELAY: Final = 900.0  # seconds between two tries


class BrowserSession(NamedTuple):
    """A browser that is signed in."""

    secret: str  # the value of its cookie
    person: str

    @property
    def token(self) -> str:
        """The token that every form of this session carries; pages of others cannot know it."""
        return hmac.new(self.secret.encode(), b"post", hashlib.sha256).hexdigest()


@dataclass(slots=True)
class Sessions:
    desk: Desk
    port: int
    origin: str = ""  # the address of the person's own proxy, if there is one
    host: str = "127.0.0.1"  # as an address has it: IPv6 in brackets
    is_exposed: bool = False  # whether other machines reach it: the passphrase is always required
    idle_seconds: float = 900.0  # without activity, after which the passphrase is asked for again
    _unlocked: dict[str, tuple[float, Unlocked]] = field(default_factory=dict)  # by secret
    _wrong_tries: int = 0
    _delayed_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def origins(self) -> frozenset[str]:
        hosts = [self.host, "localhost"] if self.host in {"127.0.0.1", "[::1]"} else [self.host]
        port = "" if self.port == 80 else f":{self.port}"  # as browsers write it
        own = [f"http://{host}{port}" for host in hosts]
        return frozenset([*own, self.origin] if self.origin else own)

    @property
    def address(self) -> str:
        return self.origin or f"http://{self.host}:{self.port}"

    @property
    def is_https(self) -> bool:
        return self.origin.startswith("https:")

    @property
    def cookie(self) -> str:
        """The name of the cookie; it has the port, since cookies are shared by all ports of a host."""
        return "__Host-postroom" if self.is_https else f"postroom-{self.port}"

    def is_own_host(self, host: str) -> bool:
        return any(origin.partition("://")[2] == host.lower() for origin in self.origins)

    def is_own_form(self, headers: Mapping[str, str]) -> bool:
        return (
            headers.get("origin", "") in self.origins
            and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        )

    @property
    def needs_passphrase(self) -> bool:
        """Whether a sign-in address alone is not enough."""
        rules, settings = self.desk.rules, self.desk.reader.settings
        return self.is_exposed or rules.trust == "desk" or settings.is_trust_raised

    def sign_in(self, ticket: str, passphrase: str) -> BrowserSession:
        """Use up a ticket and return a new session; raises `Denied` or `Limited`."""
        if not self.desk.reader.sessions.is_ticket_valid(ticket):
            raise ticket_error()
        unlocked = self._check_passphrase(passphrase) if self.needs_passphrase else None
        secret = secrets.token_urlsafe(32)
        person = self.desk.redeem_ticket(ticket, self._key(secret))
        if person is None:  # another browser used it in between
            raise ticket_error()
        if unlocked:
            self._unlocked[secret] = (self._now, unlocked)
        return BrowserSession(secret, person)

    def find(self, cookies: Mapping[str, str]) -> BrowserSession | None:
        secret = cookies.get(self.cookie, "")
        person = self.desk.reader.sessions.person(self._key(secret)) if secret else None
        return BrowserSession(secret, person) if person is not None else None

    def sign_out(self, session: BrowserSession) -> None:
        self.desk.end_session(self._key(session.secret))
        self._unlocked.pop(session.secret, None)

    def _key(self, secret: str) -> str:
        """Return the secret bound to this address, so that a cookie of another desk is worth nothing here."""
        return f"{secret} {self.origin or self.port}"

    def is_locked(self, session: BrowserSession) -> bool:
        return self.needs_passphrase and self.proof(session) is None

    def proof(self, session: BrowserSession) -> Unlocked | None:
        """Return the proof that this browser gave the passphrase and was active since."""
        last, unlocked = self._unlocked.get(session.secret, (0.0, None))
        is_idle = self._now - last > self.idle_seconds
        return unlocked if unlocked and not is_idle and self.desk.trust.is_valid(unlocked) else None

    def record_activity(self, session: BrowserSession) -> None:
        if (unlocked := self.proof(session)) is not None:
            self._unlocked[session.secret] = (self._now, unlocked)

    def unlock(self, session: BrowserSession, passphrase: str) -> None:
        """Unlock a session; raises `Denied` for a wrong passphrase, `Limited` after too many."""
        self._unlocked[session.secret] = (self._now, self._check_passphrase(passphrase))

    @property
    def _now(self) -> float:
        return self.desk.clock().steady

    def _check_passphrase(self, passphrase: str) -> Unlocked:
        with self._lock:  # one at a time: parallel tries must not evade the delay
            if (left := self._delayed_until - self._now) > 0:
                raise Limited(
                    f"Too many wrong passphrases; try again in {left:.0f} seconds",
                    seconds=left,
                    remedy="Wait, or use `postroom approve` in the terminal, which asks for it too.",
                )
            try:
                unlocked = self.desk.trust.unlock(passphrase)
            except Denied:
                self._wrong_tries += 1
                if self._wrong_tries >= FREE_TRIES:
                    delay = 5.0 * 2 ** min(self._wrong_tries - FREE_TRIES, 8)
                    self._delayed_until = self._now + min(delay, LONGEST_DELAY)
                raise
            self._wrong_tries = 0
            return unlocked


def new_sign_in_address(desk: Desk, person: str, address: str) -> str:
    """Return an address that signs one browser in, once, at a page that is served at `address`."""
    ticket = secrets.token_urlsafe(32)
    desk.issue_ticket(ticket, person)
    return f"{address}/in/{ticket}"


def ticket_error() -> Denied:
    return Denied(
        "This sign-in address was already used, or is older than ten minutes",
        remedy="Get a new one with `postroom desk`.",
    )
