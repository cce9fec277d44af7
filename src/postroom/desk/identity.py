"""Ownership of a vault: one ledger on one machine may send from it; a copy of either may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from postroom.core.errors import Denied, Unavailable
from postroom.store.desk import desk_id, read_mark, write_mark
from postroom.store.ledger import Ledger

_ADOPT = "Run `postroom adopt` to send from here; the other machine then only reads."


def refuse_strangers(vault: Path, ledger: Path) -> None:
    """Refuse a vault and a ledger that do not belong together, before a new one is made beside the other."""
    if not ledger.exists() and read_mark(vault):
        raise _lost(vault)
    if ledger.exists() and not vault.is_dir():
        raise Unavailable(
            f"The vault {vault} is not there", remedy="Bring it back, or set VAULT_PATH to it."
        )
    if ledger.exists() and desk_id(vault) is None:
        raise _other(vault, ledger)


def bind(vault: Path, ledger: Ledger, *, desk: str, machine: str, draw: Callable[[], str]) -> None:
    """Bind a new ledger to this vault and machine; refuse one that belongs to others."""
    marked = read_mark(vault)  # first: another process may be binding this ledger now
    if not ledger.settings.desk_id:
        if marked:
            raise _lost(vault)
        rebind(vault, ledger, desk=desk, machine=machine, draw=draw)
    check(vault, ledger)
    settings = ledger.settings
    if machine and settings.machine not in ("", machine):
        raise Denied("The state folder was copied from another machine", remedy=_ADOPT)
    if settings.state_inode != _inode(ledger):
        if settings.state_inode:
            raise Denied(
                f"The state folder {ledger.path.parent} is a copy, or was put back from a backup:"
                " the original may send the same letters",
                remedy="Run `postroom adopt` to send from here. It makes open letters *unknown*: you say"
                " of each whether it was sent (`postroom resolve`).",
            )
        with ledger.write() as tx:  # from a version that did not record it
            tx.save_settings(replace(tx.settings, state_inode=_inode(ledger)))
    if not read_mark(vault):
        write_mark(vault, settings.ledger_id)


def check(vault: Path, ledger: Ledger) -> None:
    """Refuse a vault that another desk has adopted since."""
    mark, settings = read_mark(vault), ledger.settings
    if desk_id(vault) != settings.desk_id or mark not in (None, settings.ledger_id):
        raise _other(vault, ledger.path)


def check_room(ledger: Ledger, room: str, *, moved: bool) -> None:
    """Refuse another `vault.room` than before, unless the person has moved the folders."""
    known = ledger.settings.room
    if known in ("", f"/{room}") or moved:
        if known != f"/{room}":
            with ledger.write() as tx:
                tx.save_settings(replace(tx.settings, room=f"/{room}"))
        return
    raise Denied(
        f"Postroom's folders are in {known[1:] or 'the root'} of the vault, and vault.room now says"
        f" {room or 'the root'}",
        remedy="Set vault.room back; or move the folders there, then run `postroom init`.",
    )


def _lost(vault: Path) -> Denied:
    return Denied(
        f"The ledger of the vault {vault} is on another machine, or was lost", remedy=_ADOPT
    )


def _other(vault: Path, ledger: Path) -> Denied:
    return Denied(
        f"The vault {vault} is not the one of the ledger {ledger}: it is another folder, or was"
        " adopted by another machine",
        remedy=f"Check VAULT_PATH and POSTROOM_STATE. {_ADOPT}",
    )


def rebind(
    vault: Path, ledger: Ledger, *, desk: str, machine: str, draw: Callable[[], str]
) -> None:
    """Make this ledger the one that sends from the vault."""
    id = draw()
    with ledger.write() as tx:
        bound = replace(
            tx.settings, desk_id=desk, machine=machine, state_inode=_inode(ledger), ledger_id=id
        )
        tx.save_settings(bound)
    write_mark(vault, id)


def _inode(ledger: Ledger) -> str:
    """Return what tells the state folder from a copy of it; its device changes with each boot."""
    return str(ledger.path.parent.stat().st_ino)
