"""Whose vault this is: one ledger on one machine may send from it, and a copy of either may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from postroom.core.errors import Denied
from postroom.store.desk import read_mark, write_mark
from postroom.store.ledger import Ledger

_ADOPT = "Run `postroom adopt` to send from here; the other machine then only reads."


def refuse_strangers(vault: Path, ledger: Path) -> None:
    """Refuse a vault whose ledger is kept elsewhere, before an empty one is begun here."""
    if not ledger.exists() and read_mark(vault):
        raise Denied(
            f"The ledger of the vault {vault} is on another machine, or was lost", remedy=_ADOPT
        )


def bind(vault: Path, ledger: Ledger, *, desk: str, machine: str, draw: Callable[[], str]) -> None:
    """Bind a new ledger to this vault and machine; refuse one that belongs to others."""
    mark = read_mark(vault)
    if not ledger.meta("desk"):
        rebind(vault, ledger, desk=desk, machine=machine, draw=draw)
    elif ledger.meta("desk") != desk:
        raise Denied(f"The vault {vault} was adopted by another machine", remedy=_ADOPT)
    elif machine and ledger.meta("machine") not in ("", machine):
        raise Denied("The state folder was copied from another machine", remedy=_ADOPT)
    elif not mark:
        write_mark(vault, ledger.meta("id"))
    elif mark != ledger.meta("id"):
        raise Denied(f"The vault {vault} belongs to another ledger than this one", remedy=_ADOPT)


def rebind(
    vault: Path, ledger: Ledger, *, desk: str, machine: str, draw: Callable[[], str]
) -> None:
    """Make this ledger the one that sends from the vault."""
    id = draw()
    with ledger.write() as book:
        book.set("desk", desk)
        book.set("machine", machine)
        book.set("id", id)
    write_mark(vault, id)
