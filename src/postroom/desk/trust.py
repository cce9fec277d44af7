"""Trust: whether a moved note is a verdict, or only the person's passphrase, which the ledger keeps as scrypt."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from postroom.core.errors import Denied, Invalid
from postroom.core.policy import Rules
from postroom.core.records import DeskSettings
from postroom.core.values import dataclass
from postroom.desk.recorder import Call, CallRecorder
from postroom.store.ledger import Ledger

MIN_LENGTH = 8
COST = 2**15  # 32 MB and about a tenth of a second
_BLOCK, _LANES = 8, 1
_MEMORY = 64 * 1024 * 1024


class Unlocked(NamedTuple):
    """Proof that the passphrase was given, valid until it is changed."""

    hash: str


def hash_passphrase(passphrase: str, salt: bytes, cost: int = COST) -> str:
    """Return the hash of a new passphrase, with its parameters."""
    if len(passphrase) < MIN_LENGTH:
        raise Invalid(
            f"A passphrase has at least {MIN_LENGTH} characters", remedy="Choose a longer one."
        )
    hashed = _hash(passphrase, salt, cost, _BLOCK, _LANES)
    return f"scrypt${cost}${_BLOCK}${_LANES}${salt.hex()}${hashed.hex()}"


def check_passphrase(stored: str, passphrase: str | Unlocked | None) -> None:
    """Raise `Denied` unless this is the passphrase, or proof that it was given."""
    if not stored:
        raise Denied(
            "Trust level desk needs a passphrase, and none is set",
            remedy="Set one with `postroom init`.",
        )
    if isinstance(passphrase, Unlocked):
        if not hmac.compare_digest(passphrase.hash, stored):
            raise Denied("The passphrase was changed since", remedy="Sign in with the new one.")
        return
    _, cost, block, lanes, salt, expected = stored.split("$")
    actual = passphrase is not None and _hash(
        passphrase, bytes.fromhex(salt), int(cost), int(block), int(lanes)
    )
    if not actual or not hmac.compare_digest(actual, bytes.fromhex(expected)):
        raise Denied("That is not the passphrase", remedy="Nothing was changed. Try again.")


def _hash(passphrase: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY)


def folders_decide(rules: Rules, settings: DeskSettings) -> bool:
    """Whether a note in a folder is a verdict, by this process's rules and by the ledger's pinned trust level."""
    return rules.trust == "folder" and not _is_raised(settings)


def _is_raised(settings: DeskSettings) -> bool:
    return settings.trust == "desk" and bool(settings.passphrase)


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust level of one desk, and its passphrase."""

    ledger: Ledger
    rules: Rules
    recorder: CallRecorder
    draw: Callable[[int], bytes]
    flush_log: Callable[[], None]

    def prove(self, proof: str | Unlocked | None) -> None:
        """At trust level desk, raise `Denied` without the passphrase or proof of it."""
        if self.rules.trust != "folder" or self.is_raised():
            check_passphrase(self.ledger.settings.passphrase, proof)

    def is_raised(self) -> bool:
        """Whether the ledger pins the trust level desk: it may have been raised after this process started."""
        return _is_raised(self.ledger.settings)

    def is_valid(self, unlocked: Unlocked) -> bool:
        """Whether the passphrase that was given is still the current one."""
        return unlocked.hash == self.ledger.settings.passphrase != ""

    def unlock(self, passphrase: str) -> Unlocked:
        """Return proof that this is the passphrase."""
        stored = self.ledger.settings.passphrase
        check_passphrase(stored, passphrase)
        return Unlocked(stored)

    def loosen(
        self, proof: str | None, *, trust: str | None = None, required: bool | None = None
    ) -> None:
        """Lower the pinned trust level or requirement; with a passphrase set, it is needed."""
        if stored := self.ledger.settings.passphrase:
            check_passphrase(stored, proof)
        with self.ledger.write() as tx:
            now = tx.settings
            lowered = replace(
                now,
                trust=now.trust if trust is None else trust,
                approval_required=now.approval_required if required is None else required,
            )
            tx.save_settings(lowered)
        self.recorder.write(Call("lower_trust", "", "person"))
        self.flush_log()

    def set_passphrase(self, new: str, *, old: str | None = None) -> None:
        """Set the passphrase; if one is set already, `old` must be it."""
        if stored := self.ledger.settings.passphrase:
            check_passphrase(stored, old)
        hashed = hash_passphrase(new, self.draw(16))
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, passphrase=hashed))
        self.recorder.write(Call("set_passphrase", "", "person"))
        self.flush_log()
