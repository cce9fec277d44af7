"""`postroom doctor`, and the page's health: each part is looked at, and what is amiss has its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.setup import RUNS, sends, spent_in_window, trust_said
from postroom.core.errors import PostroomError
from postroom.core.health import Check
from postroom.core.text import duration

if TYPE_CHECKING:
    from postroom.config import Account, Config
    from postroom.desk.desk import Desk

SPACE = 100_000_000  # bytes of disk below which it warns


@click.command("doctor")
@printing.json_option
def doctor_command(as_json: bool) -> None:
    """Check each part, and say how to mend what is amiss."""
    checks = list(_checks())
    if as_json:
        printing.print_json({"checks": [check._asdict() for check in checks]})
    else:
        marks = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}
        for check in checks:
            mark, colour = marks[check.verdict]
            text = printing.hanging(" " * 15, check.found).lstrip()
            click.echo(f"{click.style(mark, fg=colour)} {check.part:<9} {text}")
            if check.remedy:
                click.echo(printing.folded(check.remedy, " " * 15))
    if any(check.verdict == "fail" for check in checks):
        raise click.exceptions.Exit(8)


def _judged(part: str, wrong: object, found: str, remedy: str = "", *, bad: str = "fail") -> Check:
    """Return what was found of a part; the remedy belongs to what is wrong."""
    return Check(part, bad, found, remedy) if wrong else Check(part, "ok", found)


def _checks() -> Iterator[Check]:
    try:
        config = wiring.settings()
    except PostroomError as wrong:
        yield Check("settings", "fail", wrong.message, wrong.remedy)
        return
    file = wiring.settings_file()
    yield Check(
        "settings", "ok", str(file) if file.exists() else f"no file at {file}: the defaults"
    )
    yield from _mode(config)
    yield from _desk_checks(config)


def _mode(config: Config) -> Iterator[Check]:
    for warning in config.mode.warnings:
        yield Check("mode", "note", warning)
    said = f"{'live' if config.mode.live else 'rehearsal'} ({config.mode.source})"
    remedy = "Nothing is sent. Set dry_run = false in your settings to go live."
    yield _judged("mode", not config.mode.live, said, remedy, bad="note")


def on_the_page(desk: Desk, config: Config) -> list[Check]:
    """Return what can be told at once, for the page, which itself sends."""
    runs = desk.orchestrated()
    ours = "This page looks at the folders and sends what you approve, as long as it is served."
    said = RUNS if runs else f"{ours} New mail is looked at by `postroom run`, which does not run."
    remedy = "Start it with `postroom run`, or `postroom service install`."
    run = _judged("run", not runs, said, remedy, bad="note")
    return [*_mode(config), *_parts(desk, config), run]


def of_the_mail(desk: Desk, config: Config) -> list[Check]:
    """Return what others must be asked for, for the page."""
    found = [check for account in config.accounts for check in _account_checks(config, account)]
    return [*found, *_triage_checks(desk, config)]


def _desk_checks(config: Config) -> Iterator[Check]:
    from postroom.wiring.desk import desk

    try:
        with desk(config) as found:
            if found is None:
                yield Check("ledger", "note", "none yet", "Run `postroom init`.")
                return
            for sentence in found.reconcile():
                yield Check("notes", "note", sentence)
            yield from _parts(found, config)
            yield _log(found)
            for account in config.accounts:
                yield from _account_checks(config, account)
            yield from _triage_checks(found, config)
            runs = found.orchestrated()
            said = sends(runs=runs, page=found.served())
            yield _judged("run", not runs, said, bad="note")
    except PostroomError as wrong:
        yield Check("desk", "fail", wrong.message, wrong.remedy)


def _parts(desk: Desk, config: Config) -> Iterator[Check]:
    import shutil

    from postroom.desk.passphrase import KEY

    state = config.state_for(desk.id)
    yield Check("vault", "ok", f"{desk.vault.root}, desk {desk.id}")
    shared = state.stat().st_mode & 0o077
    said = f"others may look into {state}" if shared else str(state)
    yield _judged("state", shared, said, f"Run `chmod 700 {state}`.")
    for place in (state, desk.vault.root):
        free = shutil.disk_usage(place).free
        if free < SPACE:
            yield Check(
                "disk", "note", f"{free // 1_000_000} MB left at {place}", "Free some space."
            )
    yield Check("ledger", "ok", f"{desk.ledger.head():,} lines of actions, {desk.ledger.check()}")
    unknown = len(desk.ledger.lines("unknown"))
    if unknown:
        yield Check(
            "letters", "fail", f"{unknown} may or may not have been sent", "See `postroom pending`."
        )
    locked = bool(desk.ledger.meta(KEY))
    lacking = desk.rules.trust == "desk" and not locked
    said = f"{trust_said(desk.rules.trust, config)}; {'a' if locked else 'no'} passphrase is set"
    yield _judged("trust", lacking, said, "Set one with `postroom init`.")
    if not desk.rules.required:
        yield Check(
            "approval", "note", "approvals.required = false: letters leave without a person"
        )
    if paused := desk.paused():
        yield Check("sending", "note", "paused", f"Delete {paused} in the vault to go on.")
    spent, rules = spent_in_window(desk), desk.rules
    said = f"{spent} of {rules.sends} letters in {duration(rules.window)}"
    remedy = "What you approve waits until there is room (limits.sends_per_hour)."
    yield _judged("budget", spent >= rules.sends, said, remedy, bad="note")


def _log(desk: Desk) -> Check:
    faults = desk.log.verify()
    said = f"changed: {faults[0].what}" if faults else "whole"
    return _judged("log", faults, said, "See them with `postroom audit verify`.")


def _triage_checks(desk: Desk, config: Config) -> Iterator[Check]:
    """Look whether the rules parse, and whether a model that is set could be asked."""
    import threading

    from postroom.orchestrator.vault_reader import parse_rules
    from postroom.vault.folders import HANDBOOK

    try:
        there = desk.vault.stat(HANDBOOK) is not None
        text = desk.vault.read(HANDBOOK)[0].decode(errors="replace") if there else ""
        count = len(parse_rules(text.replace("\r\n", "\n")))
        said = f"{count} rule{'' if count == 1 else 's'}"
        yield Check("handbook", "ok" if there else "note", said if there else "there is none", "" if there else "`postroom init` writes one.")  # fmt: skip
    except PostroomError as wrong:
        yield Check("handbook", "fail", wrong.message, wrong.remedy)
    given = config.triage
    if given.model or given.command:
        from postroom.orchestrator.model import open_model

        try:
            open_model(given.model, given.command, endpoint=given.endpoint, timeout=1, stopping=threading.Event())  # fmt: skip
            yield Check("model", "ok", given.model or given.command[0])
        except PostroomError as wrong:
            yield Check("model", "fail", wrong.message, wrong.remedy)


def _account_checks(config: Config, account: Account) -> Iterator[Check]:
    """Open the account's mailbox and look whether there is mail in it; Gmail is asked."""
    name, address = account.name, account.address
    try:
        box = wiring.mailbox(config, name)
        empty = True
        if box is not None:
            with closing(box):
                address, empty = box.own_addresses()[0].spec, not box.search("", limit=1).items
    except PostroomError as wrong:
        yield Check("account", "fail", f"{name}: {wrong.message}", wrong.remedy)
        return
    yield Check("account", "ok", f"{name}, {account.provider}, {address}")
    local = account.provider == "local"
    if not local:
        yield from _gmail_checks(config, account)
    if empty:
        remedy = "Bring some with `postroom import`." if local else ""
        yield Check("mail", "note", f"{name} holds none", remedy)
    if local:
        said = "the embedded mailbox keeps letters and delivers to nobody outside"
        yield Check("delivery", "note", said)


def _gmail_checks(config: Config, account: Account) -> Iterator[Check]:
    from postroom.wiring import gmail

    signed = gmail.status(config, account)
    yield Check("token", "ok", f"{signed.file}: may {', '.join(signed.allows)}")
    if signed.expected:
        remedy = f"Sign in as {signed.expected}, or change accounts.{account.name}.address."
        yield Check("account", "note", f"{account.name} is {signed.address}", remedy)
    if "send" not in signed.allows:
        said = f"{account.name} may only {' and '.join(signed.allows)}: no letter leaves"
        yield Check("scopes", "note", said, "Sign in again with `postroom auth gmail`.")
