"""Setting up and looking after it: `init`, `adopt`, `status`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.printing import say
from postroom.core.errors import Invalid, PostroomError
from postroom.core.stamp import elapsed
from postroom.core.text import duration
from postroom.store import files
from postroom.vault.folders import FOLDERS

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.desk.desk import Desk

ROOM = "Postroom"
TEXTS = Path(__file__).with_name("texts")  # the notes that a new vault begins with
RUNS = "`postroom run` watches for mail and sends what you approve."
SERVED = "`postroom desk` sends what you approve; new mail is left alone while `postroom run` does not run."
NOBODY_SENDS = (
    "Nothing sends by itself while neither `postroom run` nor `postroom desk` does: `postroom approve` and `postroom"
    " send-approved` do, and an agent that asks again for a letter that you approved."
)


@click.command("init")
@click.argument("vault", required=False, type=click.Path(path_type=Path))
@click.option("--passphrase", "with_passphrase", is_flag=True, help="Set or change the passphrase.")
@click.option("--token", "agent", metavar="NAME", help="Make a token for HTTP that carries this agent's name.")  # fmt: skip
@printing.json_option
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
    from postroom.core.agent_name import check_agent_name
    from postroom.store.tokens import make_token, token_file
    from postroom.wiring.desk import desk

    if agent:
        check_agent_name(agent)
    token_file(Path(), agent or "")
    unnamed = _name_vault(vault.expanduser().absolute()) if vault is not None else None
    config = _roomed(wiring.settings())
    wiring.state_folder(config, make=False)  # refuses before anything is made
    config.vault.path.mkdir(parents=True, exist_ok=True)
    with desk(config, make=True, moved=True) as made:
        assert made is not None
        new = _folders(made, config)
        _passphrase(made, config, asked=with_passphrase)
        made.reconcile()
        report = {
            "vault": str(config.vault.path),
            "room": config.vault.room,
            "desk": made.id,
            "state": str(config.state_for(made.id)),
            "made": new,
            "token": str(make_token(config.state_for(made.id), agent or "")),
        }
    if unnamed is not None and not unnamed.exists():
        _write_settings(unnamed, config.vault.path)
        say(f"Wrote {unnamed}: every folder finds the vault {config.vault.path} now.")
    if as_json:
        printing.print_json(report)
        return
    click.echo(f"Vault   {config.vault.postroom_folder}")
    click.echo(f"State   {report['state']}")
    click.echo(f"Token   {report['token']}")
    made_now = ", ".join(new) if new else "nothing: all was there"
    click.echo(printing.hanging("Made    ", made_now))
    if not config.mode.live:
        file = wiring.settings_file()
        say(f"Postroom rehearses: nothing is sent until dry_run = false is in {file}.")


def _name_vault(vault: Path) -> Path | None:
    """Work in this vault; return the settings file that is to name it, where there is none yet."""
    if not str(vault).isprintable():
        raise Invalid("The vault's path holds what cannot be written", remedy="Rename the folder.")
    if vault.exists() and not vault.is_dir():
        raise Invalid(f"{vault} is no folder", remedy="Name another.")
    file, config = wiring.settings_file(), wiring.settings()
    source = config.source("vault.path")
    if source != "default":
        if config.vault.path.absolute() == vault:
            return None
        raise Invalid(
            f"{source} names another vault, {config.vault.path}",
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
    files.create(file, text.encode())


def _roomed(config: Config) -> Config:
    """Return the settings with a room of Postroom's own where the vault has notes already."""
    theirs = [] if config.vault.room else _theirs(config.vault.path)
    if not theirs:
        return config
    file = wiring.settings_file()
    if file.exists():
        raise Invalid(
            f"The vault {config.vault.path} has notes of its own ({', '.join(sorted(theirs)[:3])})",
            remedy=f'Add `room = "{ROOM}"` under [vault] in {file}, then run it again.',
        )
    _write_settings(file, config.vault.path.resolve(), ROOM)
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
    root = config.vault.postroom_folder
    for folder in FOLDERS:
        if not (root / folder.name).is_dir():
            (root / folder.name).mkdir(parents=True)
            made.append(f"{folder.name}/")
    rows = "\n".join(f"| `{f.name}/` | {f.purpose} |" for f in FOLDERS)
    room = config.vault.room_prefix
    for name in ("Dashboard.md", "Handbook.md"):
        if desk.vault.stat(name) is None:
            text = (TEXTS / name).read_text("utf-8").replace("{room}", room)
            desk.vault.create(name, text.replace("{rows}", rows).encode())
            made.append(name)
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
@printing.json_option
def adopt_command(as_json: bool) -> None:
    """Send from this vault here; the other machine then only reads.

    For a vault that came from another machine, or whose state folder was lost or copied. Letters of
    the former desk that were open become unknown, since they may have been sent there.
    """
    from postroom.cli import terminal
    from postroom.wiring.desk import adopt

    config = wiring.settings()
    question = f"Send from the vault {config.vault.path} on this machine from now on?"
    if _sends(config):
        say(
            f"This machine sends from the vault {config.vault.path} already, and its desk is whole."
        )
        question = "Begin a new desk all the same, with all open letters unknown?"
    if not terminal.agrees(question, "Run it in one."):
        raise click.Abort
    new = adopt(config)
    if as_json:
        printing.print_json({"desk": new})
    else:
        click.echo(f"This machine sends from {config.vault.path} now, as desk {new}.")


def _sends(config: Config) -> bool:
    """Whether the desk of these settings is whole, and this machine's."""
    from postroom.wiring.desk import desk

    try:
        with desk(config) as found:
            return found is not None
    except PostroomError:
        return False


@click.command("status")
@printing.json_option
def status_command(as_json: bool) -> None:
    """Say what waits, in which mode, at which trust level."""
    from postroom.wiring.desk import desk, rules

    config = wiring.settings()
    with desk(config) as found:
        held = found.rules if found else rules(config)
        said = found.reconcile() if found else []
        counts = _counts(found) if found else {}
        spent = spent_in_window(found) if found else 0
        paused = found.paused() if found else ""
        slips = len(found.slips()) if found else 0
        runs = bool(found and found.orchestrated())
        page = found.served() if found else ""
        mails = _mails(found) if found else {}
    mail = ", ".join(f"{account.name} ({account.provider})" for account in config.accounts)
    facts = {
        "accounts": {account.name: account.provider for account in config.accounts},
        "mode": "live" if held.live else "rehearsal",
        "mode_source": held.source,
        "trust": held.trust,
        "trust_source": config.source("approvals.trust"),
        "approval_required": held.required,
        "vault": str(config.vault.postroom_folder),
        "letters": counts,
        "sent_in_window": spent,
        "sends_allowed": held.sends,
        "slips": slips,
        "paused": bool(paused),
        "running": runs,
        "desk": page,
        "mails": mails,
    }
    if as_json:
        printing.print_json(facts)
        return
    for warning in (*config.mode.warnings, *said):
        say(warning)
    click.echo(printing.hanging("Mode    ", held.mode))
    if paused:
        click.echo(f"        paused by {paused}: no mail is sent, moved or labelled")
    click.echo(printing.hanging("Trust   ", trust_said(held.trust, config)))
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
    if page:
        click.echo(f"Desk    {page}")
    say(sends(runs=runs, page=page))


def sends(*, runs: bool, page: str) -> str:
    """Return who sends what is approved, if anybody does."""
    return RUNS if runs else SERVED if page else NOBODY_SENDS


def trust_said(level: str, config: Config) -> str:
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
    with desk.ledger.read() as book:
        tally = book.tally()
    states = ("pending", "decided", "drafted", "needs_info", "delegated", "failed")
    return {state: tally.get(state, 0) for state in states}


def spent_in_window(desk: Desk) -> int:
    now = desk.clock()
    with desk.ledger.read() as book:
        claims = book.spent(now, desk.rules.window)
    return sum(elapsed(claim.at, now) < desk.rules.window for claim in claims)
