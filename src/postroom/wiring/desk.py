"""Opens the desk of these settings on this machine, and moves it to another."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.config.settings import Config
from postroom.core.audit import ADOPTION
from postroom.core.errors import NotFound
from postroom.core.policy import Rules
from postroom.core.records import DeskSettings, Entry
from postroom.core.stamp import Stamp
from postroom.desk import ownership
from postroom.desk.desk import Desk, Effects, VaultPermissions
from postroom.desk.log import ActionLog
from postroom.desk.recorder import Call
from postroom.desk.unowned_notes import mark_unknown_drafts
from postroom.store.desk import desk_id, make_desk, register, registered_desk, renew_desk
from postroom.store.files import locked
from postroom.store.ledger import Ledger, SqliteLedger
from postroom.vault.vault import Vault
from postroom.wiring import draw_id, mailbox, state_folder, voice_key

if TYPE_CHECKING:
    from httpx2 import BaseTransport

    from postroom.mail.mailbox import Mailbox


@contextmanager
def find_desk(
    config: Config,
    *,
    make: bool = False,
    moved: bool = False,
    transport: BaseTransport | None = None,
) -> Iterator[Desk | None]:
    """Lend the desk of these settings; None where there is none yet, unless `make`.

    `moved` accepts that Postroom's folders are elsewhere in the vault than before; `transport` replaces
    HTTP for mail providers.
    """
    state = state_folder(config, make=make)
    if state is not None:
        ownership.refuse_strangers(config.vault.path, _ledger(state))
    if state is None or not (make or _ledger(state).exists()):
        yield None
        return
    with ExitStack() as stack:
        yield open_desk(config, state, stack, moved=moved, transport=transport)


@contextmanager
def require_desk(config: Config, *, make: bool = True) -> Iterator[Desk]:
    """Lend the desk of these settings; raise `NotFound` where the vault has none and `make` cannot help."""
    # Only `init` makes a vault.
    with find_desk(config, make=make and config.vault.path.is_dir()) as desk:
        if desk is None:
            raise NotFound(
                f"There is no desk in the vault {config.vault.path} yet",
                remedy="Run `postroom init`, or set VAULT_PATH to the vault that you mean.",
            )
        yield desk


def open_desk(
    config: Config,
    state: Path,
    stack: ExitStack,
    *,
    effects: Effects | None = None,
    moved: bool = False,
    adopts: bool = False,
    transport: BaseTransport | None = None,
) -> Desk:
    """Open the desk of this state folder; the stack closes it.

    With `adopts` it may be one that belongs to another vault, machine or folder.
    """
    effects = effects or _effects(config)
    id = make_desk(config.vault.path, draw_id)
    ledger = SqliteLedger(_ledger(state), clock=effects.clock, draw=effects.draw)
    stack.callback(ledger.close)
    if not adopts:
        bound = ownership.bind(config.vault.path, ledger, desk=id, machine=machine(), draw=draw_id)
        check = partial(ownership.check, config.vault.path, ledger, bound)
        effects = replace(effects, check_ownership=check)
    ownership.check_room(ledger, config.vault.room, moved=moved)
    vault = Vault(config.vault.path, *filter(None, [config.vault.room]))
    stack.callback(vault.close)
    opened: dict[str, Mailbox] = {}
    opening = threading.Lock()

    def mailboxes(account: str) -> Mailbox:
        with opening:
            if account not in opened:
                found = mailbox(config, account, make=True, transport=transport)
                assert found is not None
                stack.callback(found.close)
                opened[account] = found
            return opened[account]

    return Desk(
        id=id,
        state=state,
        ledger=ledger,
        vault=vault,
        mailboxes=mailboxes,
        account=config.default_account,
        rules=apply_pinned_rules(rules(config), ledger),
        effects=effects,
        permissions=VaultPermissions(
            config.vault.path,
            config.vault.room,
            config.vault.agent_folders,
            config.vault.active_content,
            config.attachments.folders,
        ),
    )


def rules(config: Config) -> Rules:
    approvals = config.approvals
    return Rules(
        live=config.mode.live,
        source=config.mode.source,
        required=approvals.required,
        trust=approvals.trust,
        undo_seconds=approvals.undo_seconds,
        expiry_seconds=approvals.expiry_hours * 3600,
        **config.limits._asdict(),
        allow=config.recipients.allow,
        deny=config.recipients.deny,
    )


def apply_pinned_rules(wanted: Rules, ledger: Ledger) -> Rules:
    """Return the rules as strict as the ledger pins them: only the passphrase loosens these.

    An agent can often write the settings of its client, so the strictest value ever set stays.
    """
    settings = ledger.settings
    rules = _pinned(wanted, settings)
    if (settings.trust, settings.approval_required) != (rules.trust, rules.required):
        with ledger.write() as tx:
            rules = _pinned(wanted, tx.settings)  # a passphrase may have been set meanwhile
            pins = replace(tx.settings, trust=rules.trust, approval_required=rules.required)
            tx.save_settings(pins)
    return rules


def _pinned(wanted: Rules, settings: DeskSettings) -> Rules:
    has_passphrase = bool(settings.passphrase)
    trust = "desk" if settings.is_trust_raised else wanted.trust
    required = wanted.required or (has_passphrase and settings.approval_required)
    return replace(wanted, trust=trust, required=required)


def _effects(config: Config) -> Effects:
    def notify(entry: Entry, page: str) -> None:
        from postroom.desk.notify import Notifier  # brings subprocess, which few commands need

        Notifier(desktop=config.notify.desktop, command=config.notify.command)(entry, page)

    return Effects(
        clock=clock(),
        draw=os.urandom,
        sleep=time.sleep,
        notify=notify,
        cwd=str(Path.cwd()),
        environ=os.environ,
        voice=lambda: voice_key(config, make=False),
    )


def clock() -> Callable[[], Stamp]:
    """Return this machine's clock: wall time, and a monotonic time since the boot that it names."""
    steady = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    boot = _first_line("/proc/sys/kernel/random/boot_id")
    return lambda: Stamp(time.time(), boot, time.clock_gettime(steady))


def machine() -> str:
    """Return an id of this machine; empty where the system has none."""
    # machine-id(5) asks not to publish the id itself.
    id = _first_line("/etc/machine-id")
    return hashlib.sha256(f"postroom {id}".encode()).hexdigest()[:16] if id else ""


def _first_line(file: str) -> str:
    try:
        return Path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def adopt(config: Config) -> str:
    """Make this machine the one that sends from the vault; return the new desk's id."""
    vault, new = config.vault.path, draw_id()
    state = config.state_for(new)
    old = registered_desk(vault, config.desks) or desk_id(vault)
    if config.state is None and old and config.state_for(old).exists():
        config.state_for(old).rename(state)
    renew_desk(vault, new)
    if config.state is None:
        register(vault, config.desks, new)
    with ExitStack() as stack:
        desk = open_desk(config, state, stack, adopts=True)
        ledger = desk.ledger
        bound = ledger.settings.desk_id
        former = ActionLog(desk.vault, ledger, desk=bound, trusted=ledger.is_sealed)
        # The letters first: once they are unknown, an interrupted adoption sends nothing.
        with locked(state / "desk.lock"):
            ahead = former.lines_ahead()
            desk.verdicts.reconcile_with_newer_log(ahead, "this ledger came from another desk")
            former.write_new_lines()
        mark_unknown_drafts(desk.vault, ledger)
        ownership.rebind(vault, ledger, desk=new, machine=machine(), draw=draw_id)
        desk.recorder.write(Call(ADOPTION, "", "person"))
    with ExitStack() as stack:
        open_desk(config, state, stack).reconcile()
    return new


def _ledger(state: Path) -> Path:
    return state / "ledger.sqlite"
