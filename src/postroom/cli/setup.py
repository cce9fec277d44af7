"""`init` and `adopt`: the vault's folders, the ledger, the passphrase, and which machine sends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli import terminal
from postroom.cli.command import json_option, output
from postroom.cli.printing import field, say
from postroom.core.errors import Invalid, PostroomError
from postroom.vault.folders import FOLDERS
from postroom.wiring import files

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.desk.desk import Desk

ROOM = "Postroom"
TEXTS = Path(__file__).with_name("texts")  # the notes that a new vault starts with
SETTINGS_FILE = """\
# dry_run = false              # to go live: what you approve is sent
# address = "you@example.org"  # your own address

[vault]
path = "{path}"
"""


@click.command("init")
@click.argument("vault", required=False, type=click.Path(path_type=Path))
@click.option("--passphrase", "with_passphrase", is_flag=True, help="Set or change the passphrase.")
@click.option("--token", "agent", metavar="NAME", default="", help="Make a token for HTTP that carries this agent's name.")  # fmt: skip
@json_option
def init_command(vault: Path | None, with_passphrase: bool, agent: str) -> None:
    """Set up the vault's folders, the ledger and the passphrase.

    VAULT is the vault's folder. If you have no settings file yet, one is written that names it, so
    that Postroom finds it from every folder. Without VAULT it is that of your settings, or ./vault.

    In a vault with notes of its own, all of Postroom's files go into the folder Postroom/. If you
    have a settings file already, put room = "Postroom" under [vault] there first. Running init again
    changes nothing that exists. Trust level desk needs a passphrase; to lower the level, you are
    asked for it. A token lets a client in over `postroom mcp --http`: give the client what is in
    the file that is named.
    """
    from postroom.core.lookalike import check_agent_name
    from postroom.wiring.desk import desk as lend_desk

    if agent:
        check_agent_name(agent)
    wiring.check_token_name(agent)
    new_file = _use_vault(vault.expanduser().absolute()) if vault is not None else None
    config = _with_room(wiring.settings())
    wiring.state_folder(config, make=False)  # refuses before anything is made
    config.vault.path.mkdir(parents=True, exist_ok=True)
    with lend_desk(config, make=True, moved=True) as desk:
        assert desk is not None
        made = _make_folders(desk, config)
        _set_passphrase(desk, config, asked=with_passphrase)
        desk.reconcile()
        state = config.state_for(desk.id)
        values = {
            "vault": str(config.vault.path),
            "room": config.vault.room,
            "desk": desk.id,
            "state": str(state),
            "made": made,
            "token": str(wiring.make_token(state, agent)),
        }
    if new_file is not None and not new_file.exists():
        _write_settings(new_file, config.vault.path)
        say(
            f"Wrote {new_file}: Postroom finds the vault {config.vault.path} from every folder now."
        )
    rows = [
        field("Vault", str(config.vault.postroom_folder)),
        field("State", str(state)),
        field("Token", str(values["token"])),
        field("Made", ", ".join(made) or "nothing: everything was there"),
    ]
    hint = (
        f"Postroom rehearses: nothing is sent until dry_run = false is in {wiring.settings_file()}."
    )
    output(values, rows, *([] if config.mode.live else [hint]))


def _use_vault(vault: Path) -> Path | None:
    """Work in this vault; return the settings file that is to name it, where there is none yet."""
    if not str(vault).isprintable():
        raise Invalid("The vault's path has unprintable characters", remedy="Rename the folder.")
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
    os.environ["VAULT_PATH"] = str(vault)  # for this command; the file is written at its end
    return file


def _write_settings(file: Path, vault: Path, room: str = "") -> None:
    text = SETTINGS_FILE.format(path=str(vault).replace("\\", "\\\\").replace('"', '\\"'))
    text += f'room = "{room}"\n' if room else ""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.create(file, text.encode())


def _with_room(config: Config) -> Config:
    """Return the settings, with a room for Postroom's files where the vault has notes already."""
    notes = [] if config.vault.room else _other_notes(config.vault.path)
    if not notes:
        return config
    file = wiring.settings_file()
    if file.exists():
        raise Invalid(
            f"The vault {config.vault.path} has notes of its own ({', '.join(sorted(notes)[:3])})",
            remedy=f'Add `room = "{ROOM}"` under [vault] in {file}, then run it again.',
        )
    _write_settings(file, config.vault.path.resolve(), ROOM)
    say(f"Wrote {file}: the vault has notes of its own, so Postroom's go into {ROOM}/.")
    return wiring.settings()


def _other_notes(vault: Path) -> list[str]:
    """Return the notes and folders of a vault without a desk that are not Postroom's."""
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


def _make_folders(desk: Desk, config: Config) -> list[str]:
    """Make the folders and notes that are missing; return their names."""
    made = []
    for folder in FOLDERS:
        place = config.vault.postroom_folder / folder.name
        if not place.is_dir():
            place.mkdir(parents=True)
            made.append(f"{folder.name}/")
    rows = "\n".join(f"| `{folder.name}/` | {folder.purpose} |" for folder in FOLDERS)
    for name in ("Dashboard.md", "Handbook.md"):
        if desk.vault.stat(name) is None:
            text = (TEXTS / name).read_text("utf-8").replace("{room}", config.vault.room_prefix)
            desk.vault.create(name, text.replace("{rows}", rows).encode())
            made.append(name)
    return made


def _set_passphrase(desk: Desk, config: Config, *, asked: bool) -> None:

    has_one = bool(desk.ledger.settings.passphrase)
    wanted = config.approvals
    if has_one and (desk.rules.trust, desk.rules.required) != (wanted.trust, wanted.required):
        say("The settings ask for less than the ledger requires: that takes the passphrase.")
        proof = terminal.ask_passphrase()
        desk.loosen(proof, trust=wanted.trust, required=wanted.required)
    if asked or (wanted.trust == "desk" and not has_one):
        old = terminal.ask_passphrase("Current passphrase: ") if has_one else None
        new = terminal.ask_passphrase("A new passphrase: ")
        if terminal.ask_passphrase("Once more: ") != new:
            raise Invalid("The two are not the same", remedy="Nothing was changed. Try again.")
        desk.set_passphrase(new, old=old)
        say("The passphrase is set.")


@click.command("adopt")
@json_option
def adopt_command() -> None:
    """Send from this vault here; the other machine then only reads.

    For a vault that came from another machine, or whose state folder was lost or copied. Open
    letters of the former desk become unknown, because they may have been sent there.
    """
    from postroom.wiring.desk import adopt

    config = wiring.settings()
    vault = config.vault.path
    question = f"Send from the vault {vault} on this machine from now on?"
    if _is_adopted(config):
        say(f"This machine sends from the vault {vault} already, and its desk is whole.")
        question = "Begin a new desk all the same, with all open letters unknown?"
    terminal.require(question, "Run it in one.")
    new = adopt(config)
    output({"desk": new}, [f"This machine sends from {vault} now, as desk {new}."])


def _is_adopted(config: Config) -> bool:
    """Return whether the desk of these settings is whole, and this machine's."""
    from postroom.wiring.desk import desk as lend_desk

    try:
        with lend_desk(config) as desk:
            return desk is not None
    except PostroomError:
        return False
