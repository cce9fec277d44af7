"""`status` and `doctor`: what waits and in which mode, and whether each part works."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli.command import json_option, open_desk, output
from postroom.cli.printing import fields, fit, folded, hanging, table_row
from postroom.core import life
from postroom.core.audit import ACTORS, RESULTS
from postroom.core.errors import Invalid, PostroomError
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
    from postroom.wiring.desk import find_desk, rules

    config = wiring.settings()
    notices = list(config.mode.warnings)
    with find_desk(config) as desk:
        active, paused = rules(config), ""
        letters, mails = dict[str, int](), dict[str, int]()
        spent, slips, running, page = 0, 0, False, ""
        if desk is not None:
            active, paused = desk.rules, desk.paused()
            notices += desk.reconcile()
            letters = {state: desk.reader.lists.count(state) for state in life.OPEN}
            tally = desk.reader.inbox.count_by_state()
            mails = {state: tally.get(state, 0) for state in INBOX_STATES}
            spent, slips = _spent_in_window(desk), len(desk.display.slips())
            running, page = desk.locks.has_orchestrator(), desk.locks.page_address()
    vault = str(config.vault.postroom_folder)
    values = {
        "accounts": {account.name: account.provider for account in config.accounts},
        "mode": "live" if active.live else "rehearsal",
        "mode_source": active.source,
        "trust": active.trust,
        "trust_source": config.source("approvals.trust"),
        "approval_required": active.required,
        "vault": vault,
        "letters": letters,
        "sent_in_window": spent,
        "sends_allowed": active.sends,
        "slips": slips,
        "paused": bool(paused),
        "running": running,
        "desk": page,
        "mails": mails,
    }
    facts = {
        "Mode": active.mode,
        "Paused": f"by {paused}: no mail is sent, moved or labelled" if paused else "",
        "Trust": _describe_trust(active.trust, config),
        "Approval": "" if active.required else WITHOUT_PERSON,
        "Vault": vault,
        "Mail": ", ".join(f"{one.name} ({one.provider})" for one in config.accounts),
        "Letters": _list_counts(letters) or "none open",
        "Inbox": _list_counts(mails),
        "Slips": f"{slips} open: each approves the next letter that fits it" if slips else "",
        "Budget": f"{spent} of {active.sends} in {duration(active.window)}",
        "Desk": page,
    }
    output(values, fields(facts), *notices, _describe_sender(running, page))


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


def _spent_in_window(desk: Desk) -> int:
    now, window = desk.clock(), desk.rules.window
    return sum(elapsed(claim.at, now) < window for claim in desk.reader.budget.spent(now, window))


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
        rows.append(hanging(head, check.found))
        if check.remedy:
            rows.append(folded(check.remedy, " " * 15))
    output({"checks": [check._asdict() for check in checks]}, rows)
    if any(check.verdict == "fail" for check in checks):
        raise click.exceptions.Exit(8)


def check_page(desk: Desk, config: Config) -> list[Check]:
    """Return the checks that need nobody else's answer, for the page, which itself sends."""
    running = desk.locks.has_orchestrator()
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
    from postroom.wiring.desk import find_desk

    part = "settings"
    try:
        config, file = wiring.settings(), wiring.settings_file()
        found = str(file) if file.exists() else f"no file at {file}: the defaults"
        yield Check(part, "ok", found)
        yield from _check_mode(config)
        part = "desk"
        with find_desk(config) as desk:
            if desk is None:
                yield Check("ledger", "note", "none yet", "Run `postroom init`.")
                return
            for sentence in desk.reconcile():
                yield Check("notes", "note", sentence)
            yield from _check_desk(desk, config)
            faults = desk.log.verify()
            found = f"changed: {faults[0].what}" if faults else "whole"
            yield _check("log", faults, found, "See them with `postroom audit verify`.")
            yield from check_mail(desk, config)
            running = desk.locks.has_orchestrator()
            sender = _describe_sender(running, desk.locks.page_address())
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
    actions = plural(desk.reader.actions.head(), "line")
    yield Check("ledger", "ok", f"{actions} of actions, {desk.reader.check_integrity()}")
    if unknown := desk.reader.lists.count("unknown"):
        found = f"{unknown} may or may not have been sent"
        yield Check("letters", "fail", found, "See `postroom pending`.")
    has_passphrase = bool(desk.reader.settings.passphrase)
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


MOST_FAULTS = 100  # that are listed


@click.command("audit")
@click.argument("what", required=False, type=click.Choice(["verify"]), metavar="[verify]")
@click.option("--letter", default="", metavar="ID", help="Only this letter.")
@click.option("--since", default="", metavar="DATE", help="From this day or moment (UTC) on.")
@click.option("--until", default="", metavar="DATE", help="Up to this day or moment (UTC).")
@click.option("--actor", type=click.Choice(ACTORS), help="Only by this actor.")
@click.option("--result", type=click.Choice(RESULTS), help="Only with this result.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many."
)
@json_option
def audit_command(what: str | None, letter: str, limit: int, **options: str | None) -> None:
    """Show what was done, when and by whom.

    The newest come last. `postroom audit verify` compares the log files with the ledger's chain. It
    finds edited, deleted, moved and cut-off lines, and a ledger that is older than the log.
    """
    filters = {name: given or "" for name, given in options.items()}
    for moment in filter(None, (filters["since"], filters["until"])):
        if not re.fullmatch(r"\d{4}(-\d\d(-\d\d(T[\d:.]{2,15}Z?)?)?)?", moment):
            raise Invalid(f"{moment!r} is no date", remedy="Write it as 2026-11-15, or 2026-11.")
    with open_desk(make=True) as desk:
        if what == "verify":
            _verify(desk)
            return
        letter = desk.reader.letters.find_id(letter) if letter else ""
        records = list(desk.log.records(letter=letter, **filters))[-limit:]
    rows = [_row(record) for record in records]
    output({"actions": records}, rows or ["No action fits."])


def _row(record: dict[str, Any]) -> str:
    def part(name: str) -> str:
        return str(record.get(name, ""))

    # Anybody may have written to the files: `fit` cleans what they hold.
    moment = fit(part("timestamp")[:19].replace("T", " "), 19)
    # As a call, a held letter is `rejected`: its state says more.
    outcome = part("state") if part("result") in {"rejected", "success"} else ""
    cells = [moment, fit(part("actor"), 12), fit(part("action_type"), 15)]
    cells.append(fit(outcome or part("result"), 9))
    return table_row(*cells, last=" ".join(filter(None, map(part, ("letter", "target", "error")))))


def _verify(desk: Desk) -> None:
    faults, head = desk.log.verify(), desk.reader.actions.head()
    rows = [
        f"{f'Logs/actions/{fault.file}:{fault.line}: ' if fault.file else ''}{fault.what}"
        for fault in faults[:MOST_FAULTS]
    ]
    whole = f"All {head:,} actions are in the log as they were written."
    rows.append(f"The log was changed: {len(faults)} faults." if faults else whole)
    found = [{"file": fault.file, "line": fault.line, "what": fault.what} for fault in faults]
    output({"actions": head, "whole": not faults, "faults": found}, rows)
    if faults:
        raise click.exceptions.Exit(10)
