"""Ownership: one ledger on one machine may send from a vault; a copy of the ledger or the vault may not.

Also the roles that only one process at a time can have at a desk: being the orchestrator, and serving the page. Each
role is a kernel lock, which is released even if the process is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from postroom.core.errors import Conflict, Denied, Unavailable
from postroom.core.records import DeskSettings
from postroom.core.values import dataclass
from postroom.store.desk import desk_id, read_mark, write_mark
from postroom.store.files import is_locked, try_lock
from postroom.store.ledger import Ledger

_ORCHESTRATOR, _PAGE = "orchestrator.lock", "page.lock"
_PATIENCE = 0.5  # seconds to wait for a role's lock, which `is_locked` holds for a moment
_ADOPT = "Run `postroom adopt` to send from here; the other machine then only reads."


def refuse_strangers(vault: Path, ledger: Path) -> None:
    """Raise if a vault and a ledger do not belong together, before a missing one is created for the other."""
    if not ledger.exists() and read_mark(vault):
        raise _lost(vault)
    if ledger.exists() and not vault.is_dir():
        raise Unavailable(
            f"The vault {vault} is not there", remedy="Bring it back, or set VAULT_PATH to it."
        )
    if ledger.exists() and desk_id(vault) is None:
        raise _other(vault, ledger)


def bind(
    vault: Path, ledger: Ledger, *, desk: str, machine: str, draw: Callable[[], str]
) -> DeskSettings:
    """Bind a new ledger to this vault and machine, and return its settings; raise `Denied` if it is bound to others."""
    marked = read_mark(vault)  # first: another process may be binding this ledger now
    if not ledger.settings.desk_id:
        if marked:
            raise _lost(vault)
        _save_owner(ledger, desk=desk, machine=machine, draw=draw, is_new=True)
    settings = ledger.settings
    check(vault, ledger, settings)
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
        with ledger.write() as tx:  # the ledger is of a Postroom that did not record the inode
            tx.save_settings(replace(tx.settings, state_inode=_inode(ledger)))
    if not read_mark(vault):
        write_mark(vault, settings.ledger_id)
    return settings


def check(vault: Path, ledger: Ledger, settings: DeskSettings) -> None:
    """Raise `Denied` if another desk has adopted the vault since the ledger was opened with these settings."""
    mark = read_mark(vault)
    if desk_id(vault) != settings.desk_id or mark not in (None, settings.ledger_id):
        raise _other(vault, ledger.path)


def check_room(ledger: Ledger, room: str, *, moved: bool) -> None:
    """Raise `Denied` if `vault.room` has changed, unless the person has `moved` the folders; record a new one."""
    known, new = ledger.settings.room, f"/{room}"
    if known not in ("", new) and not moved:
        raise Denied(
            f"Postroom's folders are in {known[1:] or 'the root'} of the vault, and vault.room now"
            f" says {room or 'the root'}",
            remedy="Set vault.room back; or move the folders there, then run `postroom init`.",
        )
    if known != new:
        with ledger.write() as tx:
            tx.save_settings(replace(tx.settings, room=new))


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
    write_mark(vault, _save_owner(ledger, desk=desk, machine=machine, draw=draw))


def _save_owner(
    ledger: Ledger, *, desk: str, machine: str, draw: Callable[[], str], is_new: bool = False
) -> str:
    """Record whose ledger this is; return its id. A new one keeps the owner that another process just gave it."""
    id, inode = draw(), _inode(ledger)
    with ledger.write() as tx:
        old = tx.settings
        if is_new and old.desk_id:
            return old.ledger_id
        tx.save_settings(
            replace(old, desk_id=desk, machine=machine, state_inode=inode, ledger_id=id)
        )
    return id


def _inode(ledger: Ledger) -> str:
    """Return the inode of the state folder, which a copy does not share. (The device number changes with each boot.)"""
    return str(ledger.path.parent.stat().st_ino)


@dataclass(frozen=True, slots=True)
class SingletonLocks:
    """The kernel locks of one desk's roles."""

    ledger: Ledger
    state: Path

    @contextmanager
    def hold_orchestrator(self) -> Iterator[None]:
        """Be the orchestrator of this desk during the block; raise `Conflict` if another process is."""
        with try_lock(self.state / _ORCHESTRATOR, patience=_PATIENCE) as is_held:
            if not is_held:
                raise Conflict(
                    "Another orchestrator works at this desk already",
                    remedy="Let that one run, or end it first (Ctrl-C, or `systemctl --user stop"
                    " postroom`).",
                )
            yield

    def has_orchestrator(self) -> bool:
        return is_locked(self.state / _ORCHESTRATOR)

    def hold_page(self) -> AbstractContextManager[bool]:
        """Be the process that serves the page, if no other is; the context's value says whether."""
        return try_lock(self.state / _PAGE, patience=_PATIENCE)

    def set_page_address(self, address: str) -> None:
        """Record where the page is served."""
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, page_address=address))

    def page_address(self) -> str:
        """Return the address at which the page is served now; empty if it is not served."""
        return self.ledger.settings.page_address if is_locked(self.state / _PAGE) else ""
