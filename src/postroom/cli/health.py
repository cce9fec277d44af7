"""`status` and `doctor`: what waits and in which mode, and whether each part works."""

from __future__ import annotations

import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import HELP
from postroom.config.settings import Account, Config
from postroom.core import life
from postroom.core.audit import ACTORS, RESULTS
from postroom.core.errors import Invalid, NotFound, PostroomError
from postroom.core.records import Check
from postroom.core.text import plural
from postroom.desk.desk import Desk
from postroom.vault.folders import HANDBOOK
from postroom.wiring.desk import find_desk, rules

SPACE = 100_000_000  # bytes of free disk space below which it warns
MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}
RUN_SENDS = "`postroom run` watches for mail and sends what you approve."
DESK_SENDS = "`postroom desk` sends what you approve. New mail is not triaged until you start `postroom run`."
PAGE_SENDS = (
    "This page looks at the folders and sends what you approve, while it is served. New mail is not"
    " triaged, because `postroom run` does not run."
)
NO_DESK = "There is no desk in this vault yet: run `postroom init`."
NOBODY_SENDS = (
    "Nothing is sent automatically right now. Start `postroom desk` or `postroom run`, or send one"
    " letter with `postroom approve ID`."
)
REHEARSES = (
    "Nothing is sent in rehearsal: `postroom pending --all` lists what would have waited for you, and"
    " `postroom live` ends it."
)
WITHOUT_PERSON = "approvals.required = false: letters are sent without a person's approval"
DELIVERS_NOWHERE = "the embedded mailbox keeps letters and delivers to nobody outside"
MOST_FAULTS = 100  # that are listed
INBOX_STATES = ("pending", "decided", "drafted", "needs_info", "delegated", "failed")


@click.command("status", help=HELP["status"])
@ui.json_option
def status_command() -> None:
    config = wiring.settings()
    _require_vault(config)
    notices = list(config.mode.warnings)
    with find_desk(config) as desk:
        active, paused = rules(config), ""
        letters, mails = dict[str, int](), dict[str, int]()
        meter, slips, running, page = None, 0, False, ""
        if desk is not None:
            active, paused = desk.rules, desk.paused()
            notices += desk.reconcile()
            letters = {state: desk.reader.lists.count(state) for state in life.OPEN}
            tally = desk.reader.inbox.count_by_state()
            mails = {state: tally.get(state, 0) for state in INBOX_STATES}
            meter, slips = desk.meter(), len(desk.display.slips())
            running, page = desk.locks.has_orchestrator(), desk.locks.page_address()
    values = {
        "accounts": {account.name: account.provider for account in config.accounts},
        "mode": "live" if active.live else "rehearsal",
        "mode_source": active.source,
        "trust": active.trust,
        "trust_source": config.source("approvals.trust"),
        "approval_required": active.required,
        "vault": str(config.vault.postroom_folder),
        "letters": letters,
        "sent_in_window": meter.sent if meter else 0,
        "sends_allowed": active.sends_per_hour,
        "next_send_in": round(meter.wait) if meter else 0,
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
        "Vault": str(config.vault.postroom_folder),
        "Mail": ", ".join(f"{one.name} ({one.provider})" for one in config.accounts),
        "Letters": _list_counts(letters) or "none open",
        "Inbox": _list_counts(mails),
        "Slips": f"{slips} open: each approves the next letter that fits it" if slips else "",
        "Sent": meter.describe() if meter else "",
        "Desk": page,
    }
    sender = NO_DESK if desk is None else _describe_sender(running, page, is_live=active.live)
    ui.output(values, facts, *notices, sender)


def _require_vault(config: Config) -> None:
    vault = config.vault.path
    if not vault.is_dir():
        raise NotFound(
            f"There is no vault at {vault} ({config.source('vault.path')})",
            remedy="Run `postroom init` to make one, or set VAULT_PATH, or path under [vault] in your"
            " settings, to the vault that you mean.",
        )


def _list_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _describe_sender(running: bool, page: str, *, is_live: bool) -> str:
    if not is_live:
        return REHEARSES
    if running:
        return RUN_SENDS
    return DESK_SENDS if page else NOBODY_SENDS


def _describe_trust(level: str, config: Config) -> str:
    source, wanted = config.source("approvals.trust"), config.approvals.trust
    if level == wanted:
        return f"{level} ({source})"
    return f"{level}, kept by the ledger; to lower it to {wanted} ({source}), run `postroom init`"


@click.command("doctor", help=HELP["doctor"])
@ui.json_option
def doctor_command() -> None:
    checks = list(_all_checks())
    rows = []
    for check in checks:
        mark, colour = MARKS[check.verdict]
        head = f"{click.style(mark, fg=colour)} {check.part:<9} "
        rows += [ui.hanging(head, check.found), ui.folded(check.remedy, " " * 15)]
    ui.output({"checks": [check._asdict() for check in checks]}, filter(None, rows))
    if failed := {check.part for check in checks if check.verdict == "fail"}:
        raise click.exceptions.Exit(3 if "vault" in failed else 8)


def check_page(desk: Desk, config: Config) -> list[Check]:
    """Return the checks that need nobody else's answer, for the page, which itself sends."""
    verdict, found = ("ok", RUN_SENDS) if desk.locks.has_orchestrator() else ("note", PAGE_SENDS)
    run = "run", verdict, found, "Start it with `postroom run`, or `postroom service install`."
    if not desk.rules.live:
        run = "run", "note", REHEARSES, ""
    return [*_check_mode(config), *_check_desk(desk, config), *_checks(run)]


def check_mail(desk: Desk, config: Config) -> list[Check]:
    """Return the checks that ask mail providers and models, for the page."""
    accounts = [check for account in config.accounts for check in _check_account(config, account)]
    return [*accounts, *_check_triage(desk, config)]


def _checks(*rows: tuple[str, str, str, str]) -> list[Check]:
    """Return checks from rows of part, verdict, what was found, and remedy.

    A row without a verdict is left out, and what is ok needs no remedy.
    """
    return [
        Check(part, verdict, found, "" if verdict == "ok" else remedy)
        for part, verdict, found, remedy in rows
        if verdict
    ]


def _all_checks() -> Iterator[Check]:
    part = "settings"
    try:
        config = wiring.settings()
        file = config.file
        yield Check(part, "ok", str(file) if file.exists() else f"no file at {file}: the defaults")
        yield from _check_mode(config)
        part = "vault"
        _require_vault(config)
        part = "desk"
        with find_desk(config) as desk:
            if desk is None:
                yield Check("ledger", "note", "none yet", "Run `postroom init`.")
                return
            for sentence in desk.reconcile():
                yield Check("notes", "note", sentence)
            yield from _check_desk(desk, config)
            faults = desk.log.verify()
            verdict, found = (
                ("fail", f"changed: {faults[0].what}") if faults else ("ok", "unchanged")
            )
            yield from _checks(("log", verdict, found, "See them with `postroom audit verify`."))
            yield from check_mail(desk, config)
            running, page = desk.locks.has_orchestrator(), desk.locks.page_address()
            sender = _describe_sender(running, page, is_live=desk.rules.live)
            yield Check("run", "ok" if running else "note", sender)
    except PostroomError as wrong:
        yield Check(part, "fail", wrong.message, wrong.remedy)


def _check_mode(config: Config) -> list[Check]:
    verdict, mode = ("ok", "live") if config.mode.live else ("note", "rehearsal")
    remedy = "Nothing is sent. To go live, run `postroom live`."
    warnings = [Check("mode", "note", warning) for warning in config.mode.warnings]
    return warnings + _checks(("mode", verdict, f"{mode} ({config.mode.source})", remedy))


def _check_desk(desk: Desk, config: Config) -> list[Check]:
    folder, vault, rules = config.state_for(desk.id), desk.vault.root, desk.rules
    state = ("ok", str(folder))
    if folder.stat().st_mode & 0o077:
        state = ("fail", f"other users may look into {folder}")
    free = {place: shutil.disk_usage(place).free for place in (folder, vault)}
    disks = [
        ("disk", "note", f"{left // 1_000_000} MB left at {place}", "Free some space.")
        for place, left in free.items()
        if left < SPACE
    ]
    lines, health = plural(desk.reader.actions.head(), "line"), desk.reader.check_integrity()
    unknown, paused, meter = desk.reader.lists.count("unknown"), desk.paused(), desk.meter()
    unproven = f"{unknown} may or may not have been sent"
    has_one = bool(desk.reader.settings.passphrase)
    trust = f"{_describe_trust(rules.trust, config)}; {'a' if has_one else 'no'} passphrase is set"
    lacks_one = rules.trust == "desk" and not has_one
    no_room = "What you approve waits until there is room (limits.sends_per_hour)."
    return _checks(
        ("vault", "ok", f"{vault}, desk {desk.id}", ""),
        ("state", *state, f"Run `chmod 700 {folder}`."),
        *disks,
        ("ledger", "ok", f"{lines} of actions, {health}", ""),
        ("letters", "fail" if unknown else "", unproven, "See `postroom pending`."),
        ("trust", "fail" if lacks_one else "ok", trust, "Set one with `postroom init`."),
        ("approval", "" if rules.required else "note", WITHOUT_PERSON, ""),
        ("sending", "note" if paused else "", "paused", f"Delete {paused} in the vault to go on."),
        ("budget", "note" if meter.wait else "ok", meter.describe(), no_room),
    )


def _check_triage(desk: Desk, config: Config) -> Iterator[Check]:
    from postroom.cli.run import open_triage_model
    from postroom.orchestrator.triage import parse_rules

    part = "handbook"
    try:
        if desk.vault.stat(HANDBOOK) is None:
            yield Check(part, "note", "there is none", "`postroom init` writes one.")
        else:
            text = desk.vault.read(HANDBOOK)[0].decode(errors="replace")
            yield Check(part, "ok", plural(len(parse_rules(text.replace("\r\n", "\n"))), "rule"))
    except PostroomError as wrong:
        yield Check(part, "fail", wrong.message, wrong.remedy)
    try:
        if open_triage_model(config, threading.Event()) is not None:
            yield Check("model", "ok", config.triage.model or config.triage.command[0])
    except PostroomError as wrong:
        yield Check("model", "fail", wrong.message, wrong.remedy)


def _check_account(config: Config, account: Account) -> Iterator[Check]:
    name, address, is_empty = account.name, account.address, True
    try:
        box = wiring.mailbox(config, name)
        if box is not None:
            with closing(box):
                address = box.own_addresses()[0].spec
                is_empty = not box.search("", limit=1).items
        yield Check("account", "ok", f"{name}, {account.provider}, {address}")
        if account.provider == "gmail":
            from postroom.wiring import gmail

            sign_in = gmail.status(config, account)
            yield Check("token", "ok", f"{sign_in.file}: may {', '.join(sign_in.allows)}")
            if sign_in.expected:
                remedy = f"Sign in as {sign_in.expected}, or change accounts.{name}.address."
                yield Check("account", "note", f"{name} is {sign_in.address}", remedy)
            if "send" not in sign_in.allows:
                found = f"{name} may only {' and '.join(sign_in.allows)}: no letter is sent"
                yield Check("scopes", "note", found, "Sign in again with `postroom auth gmail`.")
    except PostroomError as wrong:
        yield Check("account", "fail", f"{name}: {wrong.message}", wrong.remedy)
        return
    is_local = account.provider == "local"
    if is_empty:
        remedy = "Bring some with `postroom import`." if is_local else ""
        yield Check("mail", "note", f"{name} has none", remedy)
    if is_local:
        yield Check("delivery", "note", DELIVERS_NOWHERE)


@click.command("audit", help=HELP["audit"])
@click.argument("what", required=False, type=click.Choice(["verify"]), metavar="[verify]")
@click.option("--letter", default="", metavar="ID", help="Only this letter.")
@click.option("--since", default="", metavar="DATE", help="From this day or moment (UTC) on.")
@click.option("--until", default="", metavar="DATE", help="Up to this day or moment (UTC).")
@click.option("--actor", type=click.Choice(ACTORS), help="Only by this actor.")
@click.option("--result", type=click.Choice(RESULTS), help="Only with this result.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="How many lines at most.")  # fmt: skip
@ui.json_option
def audit_command(what: str | None, letter: str, limit: int, **options: str | None) -> None:
    filters = {name: given or "" for name, given in options.items()}
    for moment in filter(None, (filters["since"], filters["until"])):
        if not re.fullmatch(r"\d{4}(-\d\d(-\d\d(T[\d:.]{2,15}Z?)?)?)?", moment):
            raise Invalid(f"{moment!r} is not a date", remedy="Write it as 2026-11-15, or 2026-11.")
    with ui.open_desk(make=True) as desk:
        if what == "verify":
            _verify(desk)
            return
        letter = desk.reader.letters.find_id(letter) if letter else ""
        records = list(desk.log.records(letter=letter, **filters))[-limit:]
    ui.output({"actions": records}, [_row(record) for record in records] or ["No action fits."])


def _row(record: dict[str, Any]) -> str:
    texts = defaultdict(str, {name: str(value) for name, value in record.items()})
    # As a call, a held letter is `rejected`: its state says more.
    outcome = texts["state"] if texts["result"] in {"rejected", "success"} else ""
    # Anybody may have written to the files: `fit` cleans what they hold.
    cells = [
        ui.fit(texts["timestamp"][:19].replace("T", " "), 19),
        ui.fit(texts["actor"], 12),
        ui.fit(texts["action_type"], 15),
        ui.fit(outcome or texts["result"], 9),
    ]
    about = " ".join(filter(None, (texts["letter"], texts["target"], texts["error"])))
    return ui.table_row(*cells, last=about)


def _verify(desk: Desk) -> None:
    faults, head = desk.log.verify(), desk.reader.actions.head()
    rows = [
        f"{f'Logs/actions/{fault.file}:{fault.line}: ' if fault.file else ''}{fault.what}"
        for fault in faults[:MOST_FAULTS]
    ]
    complete = f"All {head:,} actions are in the log as they were written."
    found = [{"file": fault.file, "line": fault.line, "what": fault.what} for fault in faults]
    ui.output(
        {"actions": head, "complete": not faults, "faults": found},
        [*rows, f"The log was changed: {len(faults)} faults." if faults else complete],
    )
    if faults:
        raise click.exceptions.Exit(10)
