"""`status` and `doctor`: what waits and in which mode, and whether each part works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.command import json_option, output
from postroom.cli.printing import field
from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.core.records import Check
from postroom.core.stamp import elapsed
from postroom.core.text import duration, plural

if TYPE_CHECKING:
    from postroom.config import Account, Config
    from postroom.desk.desk import Desk

SPACE = 100_000_000  # bytes of free disk space below which it warns
MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}
RUN_SENDS = "`postroom run` watches for mail and sends what you approve."
DESK_SENDS = "`postroom desk` sends what you approve. New mail is not triaged until you start `postroom run`."
NOBODY_SENDS = (
    "Nothing is sent automatically right now. Start `postroom desk` or `postroom run`, or send one"
    " letter with `postroom approve ID`."
)
WITHOUT_PERSON = "approvals.required = false: letters are sent without a person's approval"
INBOX_STATES = ("pending", "decided", "drafted", "needs_info", "delegated", "failed")


@click.command("status")
@json_option
def status_command() -> None:
    """Show what waits, the mode and the trust level."""
    from postroom.wiring.desk import desk as lend_desk
    from postroom.wiring.desk import rules

    config = wiring.settings()
    with lend_desk(config) as desk:
        active = desk.rules if desk else rules(config)
        notices = [*config.mode.warnings, *(desk.reconcile() if desk else [])]
        letters = _letter_counts(desk) if desk else {}
        spent = _spent_in_window(desk) if desk else 0
        paused = desk.paused() if desk else ""
        slips = len(desk.slips()) if desk else 0
        running = bool(desk and desk.orchestrated())
        page = desk.served() if desk else ""
        mails = _mail_counts(desk) if desk else {}
    values = {
        "accounts": {account.name: account.provider for account in config.accounts},
        "mode": "live" if active.live else "rehearsal",
        "mode_source": active.source,
        "trust": active.trust,
        "trust_source": config.source("approvals.trust"),
        "approval_required": active.required,
        "vault": str(config.vault.postroom_folder),
        "letters": letters,
        "sent_in_window": spent,
        "sends_allowed": active.sends,
        "slips": slips,
        "paused": bool(paused),
        "running": running,
        "desk": page,
        "mails": mails,
    }
    facts = [
        ("Mode", active.mode),
        ("Paused", f"by {paused}: no mail is sent, moved or labelled" if paused else ""),
        ("Trust", _describe_trust(active.trust, config)),
        ("Approval", "" if active.required else WITHOUT_PERSON),
        ("Vault", str(config.vault.postroom_folder)),
        ("Mail", ", ".join(f"{one.name} ({one.provider})" for one in config.accounts)),
        ("Letters", _list_counts(letters) or "none open"),
        ("Inbox", _list_counts(mails)),
        ("Slips", f"{slips} open: each approves the next letter that fits it" if slips else ""),
        ("Budget", f"{spent} of {active.sends} in {duration(active.window)}"),
        ("Desk", page),
    ]
    rows = [field(name, text) for name, text in facts if text]
    output(values, rows, *notices, _describe_sender(running, page))


def _list_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _describe_sender(running: bool, page: str) -> str:
    """Return which process sends what is approved, if any."""
    return RUN_SENDS if running else DESK_SENDS if page else NOBODY_SENDS


def _describe_trust(level: str, config: Config) -> str:
    source, wanted = config.source("approvals.trust"), config.approvals.trust
    if level == wanted:
        return f"{level} ({source})"
    return f"{level}, kept by the ledger; to lower it to {wanted} ({source}), run `postroom init`"


def _letter_counts(desk: Desk) -> dict[str, int]:
    states = [life.name(letter.state) for letter in desk.ledger.lists.summaries()]
    return {state: states.count(state) for state in life.OPEN}


def _mail_counts(desk: Desk) -> dict[str, int]:
    """Return how many mails are still to be dealt with, by state."""
    with desk.ledger.read() as tx:
        tally = tx.inbox.count_by_state()
    return {state: tally.get(state, 0) for state in INBOX_STATES}


def _spent_in_window(desk: Desk) -> int:
    now = desk.clock()
    with desk.ledger.read() as tx:
        claims = tx.budget.spent(now, desk.rules.window)
    return sum(elapsed(claim.at, now) < desk.rules.window for claim in claims)


# Checks


@click.command("doctor")
@json_option
def doctor_command() -> None:
    """Check each part, and say how to repair it."""
    checks = list(_all_checks())
    rows = []
    for check in checks:
        mark, colour = MARKS[check.verdict]
        head = f"{click.style(mark, fg=colour)} {check.part:<9} "
        rows.append(printing.hanging(head, check.found))
        if check.remedy:
            rows.append(printing.folded(check.remedy, " " * 15))
    output({"checks": [check._asdict() for check in checks]}, rows)
    if any(check.verdict == "fail" for check in checks):
        raise click.exceptions.Exit(8)


def check_page(desk: Desk, config: Config) -> list[Check]:
    """Return the checks that need nobody else's answer, for the page, which itself sends."""
    running = desk.orchestrated()
    found = RUN_SENDS if running else (
        "This page looks at the folders and sends what you approve, while it is served. New mail is"
        " not triaged, because `postroom run` does not run."
    )  # fmt: skip
    remedy = "Start it with `postroom run`, or `postroom service install`."
    run = _check("run", not running, found, remedy, verdict="note")
    return [*_check_mode(config), *_check_desk(desk, config), run]


def check_mail(desk: Desk, config: Config) -> list[Check]:
    """Return the checks that ask mail providers and models, for the page."""
    accounts = [check for account in config.accounts for check in _check_account(config, account)]
    return [*accounts, *_check_triage(desk, config)]


def _check(
    part: str, problem: object, found: str, remedy: str = "", *, verdict: str = "fail"
) -> Check:
    """Return a check that is ok unless there is a problem, to which the remedy belongs."""
    return Check(part, verdict, found, remedy) if problem else Check(part, "ok", found)


def _all_checks() -> Iterator[Check]:
    from postroom.wiring.desk import desk as lend_desk

    part = "settings"
    try:
        config, file = wiring.settings(), wiring.settings_file()
        found = str(file) if file.exists() else f"no file at {file}: the defaults"
        yield Check(part, "ok", found)
        yield from _check_mode(config)
        part = "desk"
        with lend_desk(config) as desk:
            if desk is None:
                yield Check("ledger", "note", "none yet", "Run `postroom init`.")
                return
            for sentence in desk.reconcile():
                yield Check("notes", "note", sentence)
            yield from _check_desk(desk, config)
            yield _check_log(desk)
            yield from check_mail(desk, config)
            running = desk.orchestrated()
            sender = _describe_sender(running, desk.served())
            yield _check("run", not running, sender, verdict="note")
    except PostroomError as wrong:
        yield Check(part, "fail", wrong.message, wrong.remedy)


def _check_mode(config: Config) -> Iterator[Check]:
    for warning in config.mode.warnings:
        yield Check("mode", "note", warning)
    mode = f"{'live' if config.mode.live else 'rehearsal'} ({config.mode.source})"
    remedy = "Nothing is sent. Set dry_run = false in your settings to go live."
    yield _check("mode", not config.mode.live, mode, remedy, verdict="note")


def _check_desk(desk: Desk, config: Config) -> Iterator[Check]:
    import shutil

    state, rules = config.state_for(desk.id), desk.rules
    yield Check("vault", "ok", f"{desk.vault.root}, desk {desk.id}")
    is_shared = state.stat().st_mode & 0o077
    found = f"other users may look into {state}" if is_shared else str(state)
    yield _check("state", is_shared, found, f"Run `chmod 700 {state}`.")
    for place in (state, desk.vault.root):
        free = shutil.disk_usage(place).free
        if free < SPACE:
            left = f"{free // 1_000_000} MB left at {place}"
            yield Check("disk", "note", left, "Free some space.")
    yield Check(
        "ledger",
        "ok",
        f"{desk.ledger.actions.head():,} lines of actions, {desk.ledger.check_integrity()}",
    )
    if unknown := len(desk.ledger.lists.summaries("unknown")):
        found = f"{unknown} may or may not have been sent"
        yield Check("letters", "fail", found, "See `postroom pending`.")
    has_passphrase = bool(desk.ledger.settings.passphrase)
    trust = _describe_trust(rules.trust, config)
    found = f"{trust}; {'a' if has_passphrase else 'no'} passphrase is set"
    lacking = rules.trust == "desk" and not has_passphrase
    yield _check("trust", lacking, found, "Set one with `postroom init`.")
    if not rules.required:
        yield Check("approval", "note", WITHOUT_PERSON)
    if paused := desk.paused():
        yield Check("sending", "note", "paused", f"Delete {paused} in the vault to go on.")
    spent = _spent_in_window(desk)
    found = f"{spent} of {rules.sends} letters in {duration(rules.window)}"
    remedy = "What you approve waits until there is room (limits.sends_per_hour)."
    yield _check("budget", spent >= rules.sends, found, remedy, verdict="note")


def _check_log(desk: Desk) -> Check:
    faults = desk.log.verify()
    found = f"changed: {faults[0].what}" if faults else "whole"
    return _check("log", faults, found, "See them with `postroom audit verify`.")


def _check_triage(desk: Desk, config: Config) -> Iterator[Check]:
    """Check that the rules parse, and that a model that is set could be asked."""
    from postroom.cli.run import open_triage_model
    from postroom.orchestrator.vault_reader import parse_rules
    from postroom.vault.folders import HANDBOOK

    try:
        if desk.vault.stat(HANDBOOK) is None:
            yield Check("handbook", "note", "there is none", "`postroom init` writes one.")
        else:
            text = desk.vault.read(HANDBOOK)[0].decode(errors="replace")
            rules = parse_rules(text.replace("\r\n", "\n"))
            yield Check("handbook", "ok", plural(len(rules), "rule"))
    except PostroomError as wrong:
        yield Check("handbook", "fail", wrong.message, wrong.remedy)
    try:
        if open_triage_model(config, threading.Event()) is not None:
            yield Check("model", "ok", config.triage.model or config.triage.command[0])
    except PostroomError as wrong:
        yield Check("model", "fail", wrong.message, wrong.remedy)


def _check_account(config: Config, account: Account) -> Iterator[Check]:
    """Open the account's mailbox and look for mail in it; Gmail is asked."""
    name, address, is_empty = account.name, account.address, True
    try:
        box = wiring.mailbox(config, name)
        if box is not None:
            with closing(box):
                address = box.own_addresses()[0].spec
                is_empty = not box.search("", limit=1).items
        yield Check("account", "ok", f"{name}, {account.provider}, {address}")
        if account.provider == "gmail":
            yield from _check_gmail(config, account)
    except PostroomError as wrong:
        yield Check("account", "fail", f"{name}: {wrong.message}", wrong.remedy)
        return
    is_local = account.provider == "local"
    if is_empty:
        remedy = "Bring some with `postroom import`." if is_local else ""
        yield Check("mail", "note", f"{name} has none", remedy)
    if is_local:
        found = "the embedded mailbox keeps letters and delivers to nobody outside"
        yield Check("delivery", "note", found)


def _check_gmail(config: Config, account: Account) -> Iterator[Check]:
    from postroom.wiring import gmail

    sign_in = gmail.status(config, account)
    yield Check("token", "ok", f"{sign_in.file}: may {', '.join(sign_in.allows)}")
    if sign_in.expected:
        remedy = f"Sign in as {sign_in.expected}, or change accounts.{account.name}.address."
        yield Check("account", "note", f"{account.name} is {sign_in.address}", remedy)
    if "send" not in sign_in.allows:
        found = f"{account.name} may only {' and '.join(sign_in.allows)}: no letter is sent"
        yield Check("scopes", "note", found, "Sign in again with `postroom auth gmail`.")
