"""`init`, `adopt` and `auth`: the vault's folders, the ledger, the passphrase, which machine sends, and signing in."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import HELP
from postroom.config.settings import Account, Config
from postroom.core.errors import Invalid, PostroomError
from postroom.core.text import check_agent_name
from postroom.desk.desk import Desk
from postroom.desk.recorder import Call
from postroom.vault.folders import FOLDERS
from postroom.wiring import files
from postroom.wiring.desk import adopt, find_desk

if TYPE_CHECKING:
    from postroom.wiring.gmail import SignIn

ROOM = "Postroom"
NEXT = "Next: {mail}, then `postroom install CLIENT` connects an agent (`postroom install --help` names the clients)."


@ui.personal
@click.command("init", help=HELP["init"])
@click.argument("vault", required=False, type=click.Path(path_type=Path))
@click.option("--passphrase", "with_passphrase", is_flag=True, help="Set or change the passphrase.")
@click.option("--token", "agent", metavar="NAME", default="", help="Make a token for HTTP that carries this agent's name.")  # fmt: skip
@ui.json_option
def init_command(vault: Path | None, with_passphrase: bool, agent: str) -> None:
    if agent:
        check_agent_name(agent)
    files.token_file(Path(), agent)  # refuses a name that no token can have
    is_new = vault is not None and _use_vault(vault.expanduser().absolute())
    config = wiring.settings()
    notes = [] if config.vault.room else _other_notes(config.vault.path)
    if notes and config.file.exists():
        raise Invalid(
            f"The vault {config.vault.path} has notes of its own ({', '.join(sorted(notes)[:3])})",
            remedy=f'Add `room = "{ROOM}"` under [vault] in {config.file}, then run it again.',
        )
    if notes:
        config = config._replace(vault=config.vault._replace(room=ROOM))
    wiring.state_folder(config, make=False)  # refuses before anything is made
    config.vault.path.mkdir(parents=True, exist_ok=True)
    if notes or is_new:
        _write_settings(config)
    with find_desk(config, make=True, moved=True) as desk:
        assert desk is not None
        made = _make_folders(desk, config)
        _set_passphrase(desk, config, asked=with_passphrase)
        desk.reconcile()
        state = config.state_for(desk.id)
        token = str(files.make_secret(files.token_file(state, agent)))
    rehearses = "Postroom rehearses: nothing is sent until you run `postroom live`."
    provider = config.account().provider
    brings = "`postroom import PATH` brings mail in"
    mail = brings if provider == "local" else f"`postroom auth {provider}` signs in"
    ui.output(
        {
            "vault": str(config.vault.path),
            "room": config.vault.room,
            "desk": desk.id,
            "state": str(state),
            "made": made,
            "token": token,
        },
        {
            "Vault": str(config.vault.postroom_folder),
            "State": str(state),
            "Token": token,
            "Made": ", ".join(made) or "nothing: everything was there",
        },
        *([] if config.mode.live else [rehearses]),
        NEXT.format(mail=mail),
    )


def _use_vault(vault: Path) -> bool:
    """Work in this vault; return whether it needs a settings file that names it."""
    if not str(vault).isprintable():
        raise Invalid("The vault's path has unprintable characters", remedy="Rename the folder.")
    if vault.exists() and not vault.is_dir():
        raise Invalid(f"{vault} is not a folder", remedy="Name another.")
    config = wiring.settings()
    file, source = config.file, config.source("vault.path")
    if source == "default":
        if file.exists() or file.is_symlink():
            remedy = f'Put path = "{vault}" under [vault] there, then run it again.'
            raise Invalid(f"{file} names no vault", remedy=remedy)
        os.environ["VAULT_PATH"] = str(vault)  # for this command
    elif config.vault.path.absolute() != vault:
        raise Invalid(
            f"{source} names another vault, {config.vault.path}",
            remedy=f"Change it there to {vault}, or run `postroom init` without a folder.",
        )
    return source == "default"


def _write_settings(config: Config) -> None:
    file, vault, room = config.file, config.vault.path, config.vault.room
    path = json.dumps(str(vault.absolute()), ensure_ascii=False)  # a string is the same in TOML
    text = f"{ui.read_text('postroom.toml')}path = {path}\n"
    why = f"Postroom finds the vault {vault} from every folder now"
    if room:
        text += f'room = "{room}"\n'
        why = f"the vault has notes of its own, so Postroom's go into {room}/"
    file.parent.mkdir(parents=True, exist_ok=True)
    files.create(file, text.encode())
    ui.say(f"Wrote {file}: {why}.")


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
    made = []
    for folder in FOLDERS:
        place = config.vault.postroom_folder / folder.name
        if not place.is_dir():
            place.mkdir(parents=True)
            made.append(f"{folder.name}/")
    rows = "\n".join(f"| `{folder.name}/` | {folder.purpose} |" for folder in FOLDERS)
    for name in ("Dashboard.md", "Handbook.md"):
        if desk.vault.stat(name) is None:
            text = ui.read_text(name).replace("{room}", config.vault.room_prefix)
            desk.vault.create(name, text.replace("{rows}", rows).encode())
            made.append(name)
    return made


def _set_passphrase(desk: Desk, config: Config, *, asked: bool) -> None:
    """Set the passphrase where that is asked for or lacking; loosen what the settings loosen."""
    has_one, wanted = bool(desk.reader.settings.passphrase), config.approvals
    if has_one and (desk.rules.trust, desk.rules.required) != (wanted.trust, wanted.required):
        ui.say("The settings ask for less than the ledger requires: that takes the passphrase.")
        desk.trust.loosen(ui.ask_passphrase(), trust=wanted.trust, required=wanted.required)
    if asked or (wanted.trust == "desk" and not has_one):
        old = ui.ask_passphrase("Current passphrase: ") if has_one else None
        new = ui.ask_passphrase("A new passphrase: ")
        if ui.ask_passphrase("Once more: ") != new:
            raise Invalid("The two are not the same", remedy="Nothing was changed. Try again.")
        desk.trust.set_passphrase(new, old=old)
        ui.say("The passphrase is set.")


@ui.personal
@click.command("adopt", help=HELP["adopt"])
@ui.json_option
def adopt_command() -> None:
    config = wiring.settings()
    vault = config.vault.path
    question = f"Send from the vault {vault} on this machine from now on?"
    # It raises where the desk is not whole, or not this machine's.
    with suppress(PostroomError), find_desk(config) as desk:
        if desk is not None:
            ui.say(
                f"This machine sends from the vault {vault} already; nothing needs to be adopted."
            )
            question = "Begin a new desk all the same, with all open letters unknown?"
    ui.require(question, "Run `postroom adopt` in a terminal.")
    new = adopt(config)
    ui.output({"desk": new}, [f"This machine sends from {vault} now, as desk {new}."])


LEVELS = ("read", "draft", "send", "modify")
TESTING = (
    "An app in Google's testing mode is signed out after seven days. Publish it in Google's console"
    " (Audience, Publish app) to stay signed in: docs/gmail.md shows where."
)
PASTE_STEPS = (
    "The browser then ends at an address that begins with http://localhost and shows an"
    " error. That is right: copy that address."
)


@ui.personal
@click.command("auth", help=HELP["auth"])
@click.argument("provider", metavar="gmail", type=click.Choice(["gmail"]), expose_value=False)
@click.option("--scopes", type=click.Choice(LEVELS), default="modify", show_default=True, help="What Postroom may do with your mail, at most.")  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Print the address to open, and ask for the one that it ends at.")  # fmt: skip
@click.option("--credentials", type=click.Path(path_type=Path), help="Your OAuth client's file from Google; a copy is kept.")  # fmt: skip
@click.option("--status", "only_status", is_flag=True, help="Show who is signed in, and what that allows.")  # fmt: skip
@click.option("--revoke", is_flag=True, help="Sign out: Google forgets the token.")
@ui.account_option
@ui.json_option
def auth_command(
    scopes: str, no_browser: bool, credentials: Path | None, only_status: bool, revoke: bool, account: str | None
) -> None:  # fmt: skip
    from postroom.wiring import gmail

    if only_status and revoke:
        raise Invalid("--status and --revoke exclude each other", remedy="Give one of them.")
    config = wiring.settings()
    if credentials is not None:
        ui.say(f"The OAuth client is kept as {gmail.keep_client(config, credentials)}.")
    chosen = config.account(account)
    if revoke:
        file = gmail.revoke(config, chosen)
        _record(config, "sign_out")
        row = f"Signed out: Google has forgotten the token, and {file} is set aside."
        ui.output({"revoked": str(file)}, [row])
        return
    if only_status:
        sign_in = gmail.status(config, chosen)
    else:
        pasted = _ask_for_address if no_browser else None
        sign_in = gmail.sign_in(config, chosen, scopes, pasted=pasted, say=ui.say)
        _record(config, "sign_in", scopes=", ".join(sign_in.allows), address=sign_in.address)
    _report(sign_in, config, chosen, is_new=not only_status)
    if sign_in.problem is not None:
        raise sign_in.problem


def _record(config: Config, action: str, **parameters: str) -> None:
    """Leave a line in the action log: which accounts Postroom may use has changed."""
    with find_desk(config) as desk:
        if desk is not None:
            desk.recorder.write(Call(action, "", "person"), parameters=parameters)
            desk.flush_log()


def _ask_for_address(address: str) -> str:
    """Show Google's address; return the one that the person's browser ended at."""
    with ui.open_terminal("Run it in one: what comes of Google's page is asked for there.") as tty:
        ui.say("Open this address in a browser, on any machine, and agree there:")
        # Whole, on one line of its own: it is to be copied.
        click.echo(f"\n{address}\n", err=True)
        ui.say(PASTE_STEPS)
        tty.write("Paste that address, or the code in it: ")
        return tty.readline()


def _report(sign_in: SignIn, config: Config, account: Account, *, is_new: bool) -> None:
    last = datetime.fromtimestamp(time.time() + sign_in.ends, UTC)
    ends = f"{last:%Y-%m-%d}" if sign_in.ends else ""
    allows, lacking = ", ".join(sign_in.allows), ", ".join(sign_in.lacking)
    place = "at its top" if len(config.accounts) == 1 else f"under [accounts.{account.name}]"
    other_address = (
        f"The settings say that {account.name} is {sign_in.expected}, but it is not. Sign in as that"
        f" one, or change accounts.{account.name}.address."
    )
    use_it = f'To use it, write provider = "gmail" into {config.file}, {place}.'
    hints = [
        (sign_in.expected, other_address),
        (lacking, f"Not allowed on Google's page: {lacking}. Sign in again to allow it."),
        (ends, f"Google ends this sign-in on {ends}. {TESTING}"),
        (is_new and not ends, TESTING),
        (account.provider != "gmail", use_it),
    ]
    ui.output(
        {
            "address": sign_in.address,
            "expected": sign_in.expected,
            "token": str(sign_in.file),
            "allows": list(sign_in.allows),
            "lacking": list(sign_in.lacking),
            "ends": ends,
        },
        {
            "Account": sign_in.address,
            "Token": str(sign_in.file),
            "Allows": allows if "send" in sign_in.allows else f"{allows} (it cannot send)",
        },
        *(hint for applies, hint in hints if applies),
    )
