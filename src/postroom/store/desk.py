"""The desk id: which records belong to a vault, kept in the vault itself, so that a renamed vault keeps them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.core.errors import Corrupt, Denied, Unavailable
from postroom.store import files
from postroom.store.files import private_folder

_DESK_ID = r"[a-z2-7]{16}"


def desk_id(vault: Path) -> str | None:
    """Return the id of the desk that this vault belongs to; none before the first is drawn."""
    return _read(_file(vault, "desk"))


def read_mark(vault: Path) -> str | None:
    """Return the id of the one ledger that may send from this vault."""
    return _read(_file(vault, "ledger"))


def write_mark(vault: Path, id: str) -> None:
    """Name the one ledger that may send from this vault."""
    _replace(_file(vault, "ledger"), id)


def renew_desk(vault: Path, id: str) -> None:
    """Give the vault another desk."""
    _replace(_file(vault, "desk"), id)


def register(vault: Path, desks: Path, desk: str) -> None:
    """Remember outside the vault which desk it has: whoever deletes it there begins no new one."""
    private_folder(desks)
    _replace(_registration_file(vault, desks), desk)


def registered_desk(vault: Path, desks: Path) -> str | None:
    """Return the desk that this vault had when it was last opened here."""
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


def _read(file: Path) -> str | None:
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


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as why:
        raise Unavailable(
            f"{file} cannot be written: {why.strerror}.",
            remedy="Make the vault a folder that you may write to, or name another with VAULT_PATH.",
        ) from why


def _replace(file: Path, id: str) -> None:
    with _writing(file):
        files.replace(file, f"{id}\n".encode())


def make_desk(vault: Path, draw: Callable[[], str], *, link: Callable[..., None] = os.link) -> str:
    """Return the vault's desk id, drawn now where it has none; callers at the same time agree."""
    known = desk_id(vault)
    if known is not None:
        return known
    drawn = draw()
    if not re.fullmatch(_DESK_ID, drawn):
        raise ValueError("a desk id is 16 characters of a-z and 2-7")
    file = _file(vault, "desk")
    with _writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.create(file, f"{drawn}\n".encode(), link=link)
    # Read back: where another caller was first, theirs is the desk.
    return desk_id(vault) or drawn


def _file(vault: Path, name: str) -> Path:
    return vault / ".postroom" / name
