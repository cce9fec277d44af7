"""`postroom auth`: a person signs in to a provider, once, in a browser."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli.command import account_option, json_option, output
from postroom.cli.printing import field, say
from postroom.cli.terminal import open_terminal
from postroom.core.errors import Invalid

if TYPE_CHECKING:
    from postroom.config import Account, Config
    from postroom.wiring.gmail import SignIn

LEVELS = ("read", "draft", "send", "modify")
TESTING = (
    "An app in Google's testing mode is signed out after seven days. Publish it in Google's console"
    " (Audience, Publish app) to stay signed in: docs/gmail.md shows where."
)
PASTE_STEPS = (
    "The browser then ends at an address that begins with http://localhost and shows an"
    " error. That is right: copy that address."
)


@click.command("auth")
@click.argument("provider", type=click.Choice(["gmail"]), expose_value=False)
@click.option("--scopes", type=click.Choice(LEVELS), default="modify", show_default=True, help="The most that it may do.")  # fmt: skip
@click.option(
    "--no-browser", is_flag=True, help="Print the address, and ask where the browser ended."
)
@click.option("--credentials", type=click.Path(path_type=Path), help="First keep a copy of this file, the OAuth client from Google.")  # fmt: skip
@click.option("--status", "only_status", is_flag=True, help="Show as whom and for what.")
@click.option("--revoke", is_flag=True, help="Sign out: Google forgets the token.")
@account_option
@json_option
def auth_command(
    scopes: str,
    no_browser: bool,
    credentials: Path | None,
    only_status: bool,
    revoke: bool,
    account: str | None,
) -> None:
    """Sign in to Gmail, or out again.

    Google's page opens in a browser; the token that you grant there is kept in a file that only you
    can read. You need an OAuth client of your own, credentials.json: docs/gmail.md shows how to get
    one. The servers that agents talk to never open a browser; they name this command.

    \b
    --scopes read    search and read; the only one that cannot send
    --scopes draft   and keep drafts, and send what you approve: one scope
    --scopes send    the same; no drafts where gmail.sending is "message"
    --scopes modify  and label and move mail: all that Postroom can do
    """
    from postroom.wiring import gmail

    if only_status and revoke:
        raise Invalid("--status and --revoke exclude each other", remedy="Give one of them.")
    config = wiring.settings()
    if credentials is not None:
        say(f"The OAuth client is kept as {gmail.keep_client(config, credentials)}.")
    chosen = config.account(account)
    if revoke:
        file = gmail.revoke(config, chosen)
        _record(config, "sign_out")
        row = f"Signed out: Google has forgotten the token, and {file} is set aside."
        output({"revoked": str(file)}, [row])
        return
    if only_status:
        sign_in = gmail.status(config, chosen)
    else:
        pasted = _ask_for_address if no_browser else None
        sign_in = gmail.sign_in(config, chosen, scopes, pasted=pasted, say=say)
        _record(config, "sign_in", scopes=", ".join(sign_in.allows), address=sign_in.address)
    _report(sign_in, config, chosen, is_new=not only_status)
    if sign_in.problem is not None:
        raise sign_in.problem


def _record(config: Config, action: str, **parameters: str) -> None:
    """Leave a line in the action log: which accounts Postroom may use has changed."""
    from postroom.desk.recorder import Call
    from postroom.wiring.desk import desk as lend_desk

    with lend_desk(config) as desk:
        if desk is not None:
            desk.recorder.write(Call(action, "", "person"), parameters=parameters)
            desk.publish()


def _ask_for_address(address: str) -> str:
    """Show Google's address; return the one that the person's browser ended at."""
    with open_terminal("Run it in one: what comes of Google's page is asked for there.") as tty:
        say("Open this address in a browser, on any machine, and agree there:")
        # Whole, on one line of its own: it is to be copied.
        click.echo(f"\n{address}\n", err=True)
        say(PASTE_STEPS)
        tty.write("Paste that address, or the code in it: ")
        return tty.readline()


def _report(sign_in: SignIn, config: Config, account: Account, *, is_new: bool) -> None:
    last = datetime.fromtimestamp(time.time() + sign_in.ends, UTC)
    ends = f"{last:%Y-%m-%d}" if sign_in.ends else ""
    values = {
        "address": sign_in.address,
        "expected": sign_in.expected,
        "token": str(sign_in.file),
        "allows": list(sign_in.allows),
        "lacking": list(sign_in.lacking),
        "ends": ends,
    }
    allows = ", ".join(sign_in.allows)
    facts = [
        ("Account", sign_in.address),
        ("Token", str(sign_in.file)),
        ("Allows", allows if "send" in sign_in.allows else f"{allows} (it cannot send)"),
    ]
    output(
        values,
        [field(name, text) for name, text in facts if text],
        *_hints(sign_in, config, account, ends, is_new=is_new),
    )


def _hints(
    sign_in: SignIn, config: Config, account: Account, ends: str, *, is_new: bool
) -> list[str]:
    """Return what the person should know or do after signing in."""
    hints = []
    if sign_in.expected:
        hints.append(
            f"The settings say that {account.name} is {sign_in.expected}, but it is not. Sign in as"
            f" that one, or change accounts.{account.name}.address."
        )
    if sign_in.lacking:
        lacking = ", ".join(sign_in.lacking)
        hints.append(f"Not allowed on Google's page: {lacking}. Sign in again to allow it.")
    if ends:
        hints.append(f"Google ends this sign-in on {ends}. {TESTING}")
    elif is_new:
        hints.append(TESTING)
    if account.provider != "gmail":
        place = "at its top" if len(config.accounts) == 1 else f"under [accounts.{account.name}]"
        file = wiring.settings_file()
        hints.append(f'To use it, write provider = "gmail" into {file}, {place}.')
    return hints
