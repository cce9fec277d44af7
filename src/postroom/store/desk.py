"""Small files of a desk: its id, kept in the vault so that a renamed vault keeps its records, and agents' tokens.

A token lets an agent in over HTTP: one file each, named after its agent, readable by its owner alone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from postroom.core.errors import Corrupt, Denied, Invalid, Unavailable
from postroom.store import files
from postroom.store.files import private_folder

_DESK_ID = r"[a-z2-7]{16}"
UNNAMED = "token"  # the file of the token that belongs to no agent: the client's own name counts
_TOKEN_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET = re.compile(rb"[A-Za-z0-9_-]{40,200}")


def desk_id(vault: Path) -> str | None:
    """Return the id of the desk that this vault belongs to; none before the first is drawn."""
    return _read(_file(vault, "desk"))


def read_mark(vault: Path) -> str | None:
    """Return the id of the one ledger that may send from this vault."""
    return _read(_file(vault, "ledger"))


def write_mark(vault: Path, id: str) -> None:
    _write(_file(vault, "ledger"), id)


def renew_desk(vault: Path, id: str) -> None:
    _write(_file(vault, "desk"), id)


def register(vault: Path, desks: Path, desk: str) -> None:
    """Remember outside the vault which desk it has: whoever deletes it there begins no new one."""
    private_folder(desks)
    _write(_registration_file(vault, desks), desk)


def registered_desk(vault: Path, desks: Path) -> str | None:
    return _read(_registration_file(vault, desks))


def refuse_lost(vault: Path, desks: Path) -> None:
    """Refuse a vault that had a desk, and has lost it or got another."""
    known = registered_desk(vault, desks)
    if known and not vault.is_dir():
        raise Unavailable(
            f"The vault {vault} is not there", remedy="Bring it back, or set VAULT_PATH to it."
        )
    if known and desk_id(vault) != known:
        raise Denied(
            f"The vault {vault} had the desk {known}, and has lost or changed it",
            remedy=f"Write {known} back into .postroom/desk there, or run `postroom adopt`.",
        )


def _registration_file(vault: Path, desks: Path) -> Path:
    return desks / "vaults" / hashlib.sha256(os.fsencode(os.path.realpath(vault))).hexdigest()[:16]


def _read(file: str | Path) -> str | None:
    try:
        raw = files.read(file, 64, follow=True).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    except files.NotRegularFile:
        raw = ""
    except OSError as why:
        raise Unavailable(
            f"{file} cannot be read: {why.strerror}.", remedy="Make it a file that you may read."
        ) from why
    if not re.fullmatch(rf"{_DESK_ID}\n", raw):
        raise Corrupt(
            f"{file} holds no desk id: 16 characters of a-z and 2-7, and a line end.",
            remedy="Write the former id back (the state folder is named after it), or delete the file to begin a new desk.",
        )
    return raw[:-1]


def _write(
    file: str | Path, id: str, write: Callable[[str | Path, bytes], object] = files.replace
) -> None:
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write(file, f"{id}\n".encode())
    except OSError as why:
        raise Unavailable(
            f"{file} cannot be written: {why.strerror}.",
            remedy="Make the vault a folder that you may write to, or name another with VAULT_PATH.",
        ) from why


def make_desk(vault: Path, draw: Callable[[], str], *, link: Callable[..., None] = os.link) -> str:
    """Return the vault's desk id, drawn now where it has none; callers at the same time agree."""
    if known := desk_id(vault):
        return known
    drawn = draw()
    if not re.fullmatch(_DESK_ID, drawn):
        raise ValueError("a desk id is 16 characters of a-z and 2-7")
    _write(_file(vault, "desk"), drawn, partial(files.create, link=link))
    # Read back: where another caller was first, theirs is the desk.
    return desk_id(vault) or drawn


def _file(vault: Path, name: str) -> str:
    return os.path.join(vault, ".postroom", name)  # noqa: PTH118 - asked before each send, and quicker


def token_file(state: Path, agent: str = "") -> Path:
    if agent and not _TOKEN_OWNER.fullmatch(agent):
        raise Invalid(
            "An agent's name for a token has letters, digits, `.`, `_` and `-`, at most 64",
            remedy="Choose another name.",
        )
    return state / "tokens" / agent if agent else state / UNNAMED


def read_secret(file: Path, *, make: bool = False) -> bytes:
    """Return the secret in a file; empty if there is no file, or one that holds no secret.

    With `make`, a missing file is written first.
    """
    if make:
        make_secret(file)
    try:
        secret = files.read(file, 1000, follow=True).strip()
    except OSError:
        return b""
    return secret if _SECRET.fullmatch(secret) else b""


def make_secret(file: Path) -> Path:
    """Write a secret, such as a token, into a file unless there is one; return the file."""
    import secrets  # who only reads needs none

    private_folder(file.parent)
    try:
        files.create(file, f"{secrets.token_urlsafe(32)}\n".encode(), 0o600)
    except OSError as why:
        raise Unavailable(f"{file} cannot be made: {why.strerror}") from why
    return file


def read_tokens(state: Path) -> dict[str, str]:
    """Return the valid tokens, each with its agent's name; that of no agent has ''."""
    owners = {state / UNNAMED: ""}
    folder = state / "tokens"
    if folder.is_dir():
        owners |= {
            file: file.name for file in folder.iterdir() if _TOKEN_OWNER.fullmatch(file.name)
        }
    tokens = {read_secret(file).decode(): agent for file, agent in owners.items()}
    return {token: agent for token, agent in tokens.items() if token}
