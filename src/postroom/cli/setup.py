"""Setting up and looking after it: `init`, `adopt`, `status`, `doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.printing import say
from postroom.core.errors import Invalid, PostroomError
from postroom.core.policy import duration
from postroom.core.stamp import elapsed
from postroom.vault.folders import FOLDERS

if TYPE_CHECKING:
    from postroom.config import Account, Config
    from postroom.desk.desk import Desk

ROOM = "Postroom"
RUNS = "`postroom run` watches for mail and sends what you approve."
NOBODY_SENDS = (
    "Nothing sends by itself while `postroom run` does not run: `postroom approve` and `postroom"
    " send-approved` do, and an agent that asks again for a letter that you approved."
)
SPACE = 100_000_000  # bytes of disk below which doctor warns
_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")

DASHBOARD = """# Postroom

## Now

%%postroom%%
`postroom run` keeps this part current. It has not run here yet.

## How it works

Letters that agents write wait in `{room}Pending_Approval/` until you decide, drafts of answers to new mail in `Drafts/`.

- Move a letter to `Approved/` to approve it, or to `Rejected/`. `postroom pending` lists them. At trust level desk only the
  terminal counts: `postroom approve`.
- What is approved leaves by `postroom run`, or with `postroom send-approved`; at once with `postroom approve`.
- Mail that came in is in `Needs_Action/`. Your rules for it are in `Handbook.md`. In its note, `status: done` files a mail, and
  `status: pending` has it judged again.
- Make a file named `PAUSED.md` beside this one to stop all sending; delete it to go on.

| folder | what it is for |
|---|---|
{rows}
"""


HANDBOOK = """# Handbook

Your rules for mail, as `postroom run` follows them. The first rule that fits a mail decides. What none fits is judged by the model, where you
have set one; without one, the draft of a short acknowledgement is put before you. Nothing that is drafted leaves before you approve it.

A rule is a line of the list below: *when*, a colon, and *what to do*.

- *When* is `from` or `to` (addresses, or domains with all below them), `subject`, `text` or `label` with what it must be, several separated by
  commas; or `list` (a mailing list), `automatic` (sent by a machine), `anything`. Join two with `and`.
- *What to do* is `draft_reply`, `urgent` (a draft at the top of the dashboard), `archive`, `needs_info` (left to you) or `delegate`. Words after
  `draft_reply` and `urgent` are the answer's text, after `delegate` the note for whom it concerns.

For example: ``- from `@school.example` and subject `trip`, `fee`: urgent Thank you, I shall see to it today.``

## Rules

- automatic: archive
- list: archive
"""


@click.command("init")
@click.argument("vault", required=False, type=click.Path(path_type=Path))
@click.option("--passphrase", "with_passphrase", is_flag=True, help="Set or change the passphrase.")
@click.option("--token", "agent", metavar="NAME", help="Make a token for HTTP that carries this agent's name.")  # fmt: skip
@_json
def init_command(
    vault: Path | None, with_passphrase: bool, agent: str | None, as_json: bool
) -> None:
    """Set up the vault's folders, the ledger and the passphrase.

    VAULT is the vault's folder; where you have no settings file yet, one is made that names it, so
    that every folder finds it. Without VAULT it is that of your settings, or ./vault. In a vault with notes of its own, all of Postroom's goes into the folder Postroom/: where you
    have a settings file already, put room = "Postroom" under [vault] there first. Running it again
    changes nothing that is there. A passphrase is needed at trust level desk; where the settings
    lower that level, it is asked for. A token lets a client in over `postroom mcp --http`: it is in
    the file that is named, for you to give to that client.
    """
    from postroom.config import user_file
    from postroom.desk.outbox import Call, check_name
    from postroom.store.tokens import make_token, token_file
    from postroom.wiring.desk import desk

    if agent:
        check_name(Call("init", agent))
    token_file(Path(), agent or "")
    unnamed = _name_vault(vault.expanduser().absolute()) if vault is not None else None
    config = _roomed(wiring.settings())
    wiring.state_folder(config, make=False)  # refuses before anything is made
    config.vault.mkdir(parents=True, exist_ok=True)
    with desk(config, make=True, moved=True) as made:
        assert made is not None
        new = _folders(made, config)
        _passphrase(made, config, asked=with_passphrase)
        made.reconcile()
        report = {
            "vault": str(config.vault),
            "room": config.room,
            "desk": made.id,
            "state": str(config.state_for(made.id)),
            "made": new,
            "token": str(make_token(config.state_for(made.id), agent or "")),
        }
    if unnamed is not None and not unnamed.exists():
        _write_settings(unnamed, config.vault)
        say(f"Wrote {unnamed}: every folder finds the vault {config.vault} now.")
    if as_json:
        printing.print_json(report)
        return
    click.echo(f"Vault   {config.vault / config.room}")
    click.echo(f"State   {report['state']}")
    click.echo(f"Token   {report['token']}")
    made_now = ", ".join(new) if new else "nothing: all was there"
    click.echo(printing.hanging("Made    ", made_now))
    if not config.mode.live:
        file = user_file(os.environ, Path.home())
        say(f"Postroom rehearses: nothing is sent until dry_run = false is in {file}.")


def _name_vault(vault: Path) -> Path | None:
    """Work in this vault; return the settings file that is to name it, where there is none yet."""
    from postroom.config import user_file

    if not str(vault).isprintable():
        raise Invalid("The vault's path holds what cannot be written", remedy="Rename the folder.")
    if vault.exists() and not vault.is_dir():
        raise Invalid(f"{vault} is no folder", remedy="Name another.")
    file, config = user_file(os.environ, Path.home()), wiring.settings()
    source = config.source("vault.path")
    if source != "default":
        if config.vault.absolute() == vault:
            return None
        raise Invalid(
            f"{source} names another vault, {config.vault}",
            remedy=f"Change it there to {vault}, or run `postroom init` without a folder.",
        )
    if file.exists() or file.is_symlink():
        raise Invalid(f"{file} names no vault", remedy=f'Put path = "{vault}" under [vault] there.')
    os.environ["VAULT_PATH"] = str(vault)  # for this command; the file is written when all is done
    return file


def _write_settings(file: Path, vault: Path, room: str = "") -> None:
    path = str(vault).replace("\\", "\\\\").replace('"', '\\"')
    text = "# dry_run = false              # to go live: what you approve is sent\n"
    text += '# address = "you@example.org"  # your own address\n\n'
    text += f'[vault]\npath = "{path}"\n' + (f'room = "{room}"\n' if room else "")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)


def _roomed(config: Config) -> Config:
    """Return the settings with a room of Postroom's own where the vault has notes already."""
    from postroom.config import user_file

    theirs = [] if config.room else _theirs(config.vault)
    if not theirs:
        return config
    file = user_file(os.environ, Path.home())
    if file.exists():
        raise Invalid(
            f"The vault {config.vault} has notes of its own ({', '.join(sorted(theirs)[:3])})",
            remedy=f'Add `room = "{ROOM}"` under [vault] in {file}, then run it again.',
        )
    _write_settings(file, config.vault.resolve(), ROOM)
    say(f"Wrote {file}: the vault has notes of its own, so Postroom's go into {ROOM}/.")
    return wiring.settings()


def _theirs(vault: Path) -> list[str]:
    """Return what notes of its own a vault has that is not Postroom's yet."""
    ours = {folder.name for folder in FOLDERS}
    if any((vault / name).is_dir() for name in ours):  # made by hand, for Postroom
        ours |= {"Dashboard.md", "Handbook.md", "Style.md"}
    if not vault.is_dir() or (vault / ".postroom" / "desk").exists():
        return []
    return [
        path.name
        for path in vault.iterdir()
        if path.name not in ours and (path.is_dir() or path.suffix == ".md") and path.name[0] != "."
    ]


def _folders(desk: Desk, config: Config) -> list[str]:
    made = []
    root = config.vault / config.room
    for folder in FOLDERS:
        if not (root / folder.name).is_dir():
            (root / folder.name).mkdir(parents=True)
            made.append(f"{folder.name}/")
    if desk.vault.stat("Dashboard.md") is None:
        rows = "\n".join(f"| `{f.name}/` | {f.purpose} |" for f in FOLDERS)
        room = f"{config.room}/" if config.room else ""
        desk.vault.create("Dashboard.md", DASHBOARD.format(room=room, rows=rows).encode())
        made.append("Dashboard.md")
    if desk.vault.stat("Handbook.md") is None:
        desk.vault.create("Handbook.md", HANDBOOK.encode())
        made.append("Handbook.md")
    return made


def _passphrase(desk: Desk, config: Config, *, asked: bool) -> None:
    from postroom.cli import terminal
    from postroom.desk.passphrase import KEY

    known = bool(desk.ledger.meta(KEY))
    wanted = config.approvals
    lower = (desk.rules.trust, desk.rules.required) != (wanted.trust, wanted.required)
    if known and lower:
        say("The settings ask for less than the ledger holds: that takes the passphrase.")
        proof = terminal.passphrase()
        desk.loosen(proof, trust=wanted.trust, required=str(wanted.required).lower())
    if asked or (wanted.trust == "desk" and not known):
        old = terminal.passphrase("Current passphrase: ") if known else None
        new = terminal.passphrase("A new passphrase: ")
        if terminal.passphrase("Once more: ") != new:
            raise Invalid("The two are not the same", remedy="Nothing was changed. Try again.")
        desk.set_passphrase(new, old=old)
        say("The passphrase is set.")


@click.command("adopt")
@_json
def adopt_command(as_json: bool) -> None:
    """Send from this vault here; the other machine then only reads.

    For a vault that came from another machine, or whose state folder was lost or copied. Letters of
    the former desk that were open become unknown, since they may have been sent there.
    """
    from postroom.cli import terminal
    from postroom.wiring.desk import adopt

    config = wiring.settings()
    question = f"Send from the vault {config.vault} on this machine from now on?"
    if _sends(config):
        say(f"This machine sends from the vault {config.vault} already, and its desk is whole.")
        question = "Begin a new desk all the same, with all open letters unknown?"
    if not terminal.agrees(question):
        raise click.Abort
    new = adopt(config)
    if as_json:
        printing.print_json({"desk": new})
    else:
        click.echo(f"This machine sends from {config.vault} now, as desk {new}.")


def _sends(config: Config) -> bool:
    """Whether the desk of these settings is whole, and this machine's."""
    from postroom.wiring.desk import desk

    try:
        with desk(config) as found:
            return found is not None
    except PostroomError:
        return False


@click.command("status")
@_json
def status_command(as_json: bool) -> None:
    """Say what waits, in which mode, at which trust level."""
    from postroom.wiring.desk import desk, rules

    config = wiring.settings()
    with desk(config) as found:
        held = found.rules if found else rules(config)
        said = found.reconcile() if found else []
        counts = _counts(found) if found else {}
        spent = _spent(found) if found else 0
        paused = found.paused() if found else ""
        slips = len(found.slips()) if found else 0
        runs = bool(found and found.orchestrated())
        mails = _mails(found) if found else {}
    mail = ", ".join(f"{account.name} ({account.provider})" for account in config.accounts)
    facts = {
        "accounts": {account.name: account.provider for account in config.accounts},
        "mode": "live" if held.live else "rehearsal",
        "mode_source": held.source,
        "trust": held.trust,
        "trust_source": config.source("approvals.trust"),
        "approval_required": held.required,
        "vault": str(config.vault / config.room),
        "letters": counts,
        "sent_in_window": spent,
        "sends_allowed": held.sends,
        "slips": slips,
        "paused": bool(paused),
        "running": runs,
        "mails": mails,
    }
    if as_json:
        printing.print_json(facts)
        return
    for warning in (*config.mode.warnings, *said):
        say(warning)
    click.echo(printing.hanging("Mode    ", held.mode))
    if paused:
        click.echo(f"        paused by {paused}: nothing is sent")
    click.echo(printing.hanging("Trust   ", _trust(held.trust, config)))
    if not held.required:
        click.echo("        approvals.required = false: letters leave without a person")
    click.echo(f"Vault   {facts['vault']}")
    click.echo(printing.hanging("Mail    ", mail))
    waiting = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    click.echo(f"Letters {waiting or 'none open'}")
    if any(mails.values()):
        click.echo(f"Action  {', '.join(f'{n} {state}' for state, n in mails.items() if n)}")
    if slips:
        click.echo(f"Slips   {slips} open: each lets the next letter out that fits it")
    click.echo(f"Budget  {spent} of {held.sends} in {duration(held.window)}")
    say(RUNS if runs else NOBODY_SENDS)


def _trust(level: str, config: Config) -> str:
    source, wanted = config.source("approvals.trust"), config.approvals.trust
    if level == wanted:
        return f"{level} ({source})"
    return (
        f"{level}, held by the ledger; settings that say {wanted} ({source}) need `postroom init`"
    )


def _counts(desk: Desk) -> dict[str, int]:
    from postroom.core import life

    states = [life.name(line.state) for line in desk.ledger.lines()]
    return {state: states.count(state) for state in life.OPEN}


def _mails(desk: Desk) -> dict[str, int]:
    """Return how many mails that came in are still to be dealt with, by their status."""
    with desk.ledger.write(synced=False) as book:
        tally = book.tally()
    states = ("pending", "decided", "drafted", "needs_info", "delegated", "failed")
    return {state: tally.get(state, 0) for state in states}


def _spent(desk: Desk) -> int:
    now = desk.clock()
    with desk.ledger.write(synced=False) as book:
        claims = book.spent(now, desk.rules.window)
    return sum(elapsed(claim.at, now) < desk.rules.window for claim in claims)


class Check(NamedTuple):
    """One part that was looked at: `ok`, `note` or `fail`, and what to do."""

    part: str
    verdict: str
    found: str
    remedy: str = ""


@click.command("doctor")
@_json
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


def _checks() -> Iterator[Check]:
    from postroom.config import user_file

    try:
        config = wiring.settings()
    except PostroomError as wrong:
        yield Check("settings", "fail", wrong.message, wrong.remedy)
        return
    file = user_file(os.environ, Path.home())
    yield Check(
        "settings", "ok", str(file) if file.exists() else f"no file at {file}: the defaults"
    )
    for warning in config.mode.warnings:
        yield Check("mode", "note", warning)
    live = config.mode.live
    yield Check(
        "mode",
        "ok" if live else "note",
        f"{'live' if live else 'rehearsal'} ({config.mode.source})",
        "" if live else "Nothing is sent. Set dry_run = false in your settings to go live.",
    )
    yield from _desk_checks(config)


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
    except PostroomError as wrong:
        yield Check("desk", "fail", wrong.message, wrong.remedy)


def _parts(desk: Desk, config: Config) -> Iterator[Check]:
    import shutil

    from postroom.desk.passphrase import KEY

    state = config.state_for(desk.id)
    yield Check("vault", "ok", f"{desk.vault.root}, desk {desk.id}")
    private = not state.stat().st_mode & 0o077
    yield Check(
        "state",
        "ok" if private else "fail",
        str(state) if private else f"others may look into {state}",
        "" if private else f"Run `chmod 700 {state}`.",
    )
    for place in (state, desk.vault.root):
        free = shutil.disk_usage(place).free
        if free < SPACE:
            yield Check(
                "disk", "note", f"{free // 1_000_000} MB left at {place}", "Free some space."
            )
    yield Check("ledger", "ok", f"{desk.ledger.head():,} lines of actions, {desk.ledger.check()}")
    faults = desk.log.verify()
    yield Check(
        "log",
        "fail" if faults else "ok",
        f"changed: {faults[0].what}" if faults else "whole",
        "See them with `postroom audit verify`." if faults else "",
    )
    unknown = len(desk.ledger.lines("unknown"))
    if unknown:
        yield Check(
            "letters", "fail", f"{unknown} may or may not have been sent", "See `postroom pending`."
        )
    locked = bool(desk.ledger.meta(KEY))
    lacking = desk.rules.trust == "desk" and not locked
    yield Check(
        "trust",
        "fail" if lacking else "ok",
        f"{_trust(desk.rules.trust, config)}; {'a' if locked else 'no'} passphrase is set",
        "Set one with `postroom init`." if lacking else "",
    )
    if not desk.rules.required:
        yield Check(
            "approval", "note", "approvals.required = false: letters leave without a person"
        )
    if paused := desk.paused():
        yield Check("sending", "note", "paused", f"Delete {paused} in the vault to go on.")
    for account in config.accounts:
        yield from _account_checks(config, account)
    yield from _triage_checks(desk, config)
    runs = desk.orchestrated()
    yield Check("run", "ok" if runs else "note", RUNS if runs else NOBODY_SENDS)


def _triage_checks(desk: Desk, config: Config) -> Iterator[Check]:
    """Look whether the rules parse, and whether a model that is set could be asked."""
    import threading

    from postroom.orchestrator.triage import rules_of
    from postroom.vault.folders import HANDBOOK

    try:
        there = desk.vault.stat(HANDBOOK) is not None
        text = desk.vault.read(HANDBOOK)[0].decode(errors="replace") if there else ""
        count = len(rules_of(text.replace("\r\n", "\n")))
        said = f"{count} rule{'' if count == 1 else 's'}"
        yield Check("handbook", "ok" if there else "note", said if there else "there is none", "" if there else "`postroom init` writes one.")  # fmt: skip
    except PostroomError as wrong:
        yield Check("handbook", "fail", wrong.message, wrong.remedy)
    given = config.triage
    if given.model or given.command:
        from postroom.orchestrator.model import model

        try:
            model(given.model, given.command, endpoint=given.endpoint, timeout=1, stopping=threading.Event())  # fmt: skip
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
                address, empty = box.own()[0].spec, not box.search("", limit=1).items
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
    if signed.expected:
        remedy = f"Sign in as {signed.expected}, or change accounts.{account.name}.address."
        yield Check("account", "note", f"{account.name} is {signed.address}", remedy)
    if "send" not in signed.allows:
        said = f"{account.name} may only {' and '.join(signed.allows)}: no letter leaves"
        yield Check("scopes", "note", said, "Sign in again with `postroom auth gmail`.")
