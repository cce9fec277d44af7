"""The person's passphrase: kept as scrypt in the ledger, asked for where a note's move is not enough."""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from postroom.core.errors import Denied, Invalid

KEY = "passphrase"
SHORTEST = 8
COST = 2**15  # 32 MB and about a tenth of a second
_BLOCK, _LANES = 8, 1
_MEMORY = 64 * 1024 * 1024


class Unlocked(NamedTuple):
    """Proof that the passphrase was given, as long as it is still the one that is kept."""

    kept: str


def sealed(passphrase: str, salt: bytes, cost: int = COST) -> str:
    """Return what is kept of a new passphrase: its hash, with the parameters it was made with."""
    if len(passphrase) < SHORTEST:
        raise Invalid(
            f"A passphrase has at least {SHORTEST} characters", remedy="Choose a longer one."
        )
    hashed = _hash(passphrase, salt, cost, _BLOCK, _LANES)
    return f"scrypt${cost}${_BLOCK}${_LANES}${salt.hex()}${hashed.hex()}"


def check(kept: str, passphrase: str | Unlocked | None) -> None:
    """Return only if this is the passphrase, or proves that it was given."""
    if not kept:
        raise Denied(
            "Trust level desk needs a passphrase, and none is set",
            remedy="Set one with `postroom init`.",
        )
    if isinstance(passphrase, Unlocked):
        if not hmac.compare_digest(passphrase.kept, kept):
            raise Denied("The passphrase was changed since", remedy="Sign in with the new one.")
        return
    _, cost, block, lanes, salt, expected = kept.split("$")
    given = passphrase is not None and _hash(
        passphrase, bytes.fromhex(salt), int(cost), int(block), int(lanes)
    )
    if not given or not hmac.compare_digest(given, bytes.fromhex(expected)):
        raise Denied("That is not the passphrase", remedy="Nothing was changed. Try again.")


def _hash(passphrase: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY)
