"""`postroom auth`: the person signs in to a provider, once, in a browser."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.printing import say
from postroom.core.errors import Invalid

if TYPE_CHECKING:
    from postroom.config import Account, Config
    from postroom.wiring.gmail import Signed

LEVELS = ("read", "draft", "send", "modify")
TESTING = (
    "An app in Google's testing mode is signed out after seven days. Publish it in Google's console"
    " (Audience, Publish app) to stay signed in: docs/gmail.md shows where."
)


@click.command("auth")
@click.argument("provider", type=click.Choice(["gmail"]), expose_value=False)
@click.option("--scopes", type=click.Choice(LEVELS), default="modify", show_default=True, help="The most that it may do.")  # fmt: skip
@click.option(
    "--no-browser", is_flag=True, help="Print the address, and ask where the browser ended."
)
@click.option("--credentials", type=click.Path(path_type=Path), help="First keep a copy of this file, the OAuth client from Google.")  # fmt: skip
@click.option("--status", "only_status", is_flag=True, help="Say as whom and for what.")
@click.option("--revoke", "give_up", is_flag=True, help="Sign out: Google forgets the token.")
@click.option("--account", metavar="NAME", help="The account, where there are several.")
@printing.json_option
def auth_command(
    scopes: str,
    no_browser: bool,
    credentials: Path | None,
    only_status: bool,
    give_up: bool,
    account: str | None,
    as_json: bool,
) -> None:
    """Sign in to Gmail, or out again.

    Google's page opens in a browser, and what you agree to there is kept in a file for you alone.
    It needs an OAuth client of your own, credentials.json: docs/gmail.md shows how to get one. The
    servers that agents talk to never open a browser; they name this command.

    \b
    --scopes read    search and read; the only one that cannot send
    --scopes draft   and keep drafts, and send what you approve: one scope
    --scopes send    the same; no drafts where gmail.sending is "message"
    --scopes modify  and label and move mail: all that Postroom can do
    """
    from postroom.wiring import gmail

    if only_status and give_up:
        raise Invalid("--status and --revoke exclude each other", remedy="Give one of them.")
    config = wiring.settings()
    if credentials is not None:
        say(f"The OAuth client is kept as {gmail.keep_client(config, credentials)}.")
    chosen = config.account(account)
    if give_up:
        file = gmail.revoke(config, chosen)
        _record(config, "sign_out")
        if as_json:
            printing.print_json({"revoked": str(file)})
        else:
            click.echo(f"Signed out: Google has forgotten the token, and {file} is set aside.")
        return
    if only_status:
        signed = gmail.status(config, chosen)
    else:
        pasted = _pasted if no_browser else None
        signed = gmail.sign_in(config, chosen, scopes, pasted=pasted, say=say)
        _record(config, "sign_in", scopes=", ".join(signed.allows), address=signed.address)
    _report(signed, config, chosen, new=not only_status, as_json=as_json)
    if signed.problem is not None:
        raise signed.problem


def _record(config: Config, what: str, **parameters: str) -> None:
    """Leave a line in the log of actions: who may send has changed."""
    from postroom.desk.recorder import Call
    from postroom.wiring.desk import desk

    with desk(config) as found:
        if found is not None:
            found.recorder.write(Call(what, "", "person"), parameters=parameters)
            found.publish()


def _pasted(address: str) -> str:
    from postroom.cli import terminal

    with terminal.opened("Run it in one: what comes of Google's page is asked for there.") as tty:
        say("Open this address in a browser, on any machine, and agree there:")
        # Whole, on one line of its own: it is to be copied.
        click.echo(f"\n{address}\n", err=True)
        say(
            "The browser then ends at an address that begins with http://localhost and shows an"
            " error. That is right: copy that address."
        )
        tty.write("Paste that address, or the code in it: ")
        return tty.readline()


def _report(signed: Signed, config: Config, account: Account, *, new: bool, as_json: bool) -> None:
    last = datetime.fromtimestamp(time.time() + signed.ends, UTC)
    ends = f"{last:%Y-%m-%d}" if signed.ends else ""
    if as_json:
        facts: dict[str, Any] = {
            "address": signed.address,
            "expected": signed.expected,
            "token": str(signed.file),
            "allows": list(signed.allows),
            "lacking": list(signed.lacking),
            "ends": ends,
        }
        printing.print_json(facts)
        return
    if signed.address:
        click.echo(f"Account {signed.address}")
    click.echo(f"Kept    {signed.file}")
    sends = "" if "send" in signed.allows else " (it cannot send)"
    click.echo(f"Allows  {', '.join(signed.allows)}{sends}")
    if signed.expected:
        said = f"The settings say that {account.name} is {signed.expected}, which it is not."
        say(f"{said} Sign in as that one, or change accounts.{account.name}.address.")
    if signed.lacking:
        say(
            f"Not allowed on Google's page: {', '.join(signed.lacking)}. Sign in again to allow it."
        )
    if ends:
        say(f"Google ends this sign-in on {ends}. {TESTING}")
    elif new:
        say(TESTING)
    if account.provider != "gmail":
        place = "at its top" if len(config.accounts) == 1 else f"under [accounts.{account.name}]"
        file = wiring.settings_file()
        say(f'To use it, write provider = "gmail" into {file}, {place}.')
