"""`postroom demo`: sample mail, searched and read, and letters that wait, in a folder of its own."""

from __future__ import annotations

import os
import shlex
from contextlib import closing
from pathlib import Path

import click

from postroom.cli.printing import folded
from postroom.core.errors import Invalid

ACCOUNT = "you@example.org"
SEARCHES = ("invoice has:attachment", "from:dora is:unread", "hutte")
HOSTILE = "subject:greyboard"  # a mail with hidden instructions to an assistant
ANSWERED = "from:dora"
REPLY = (
    "Re: Q3 figures for the VAT return",
    "Hello Dora,\n\nthank you, that is a relief.\n\nKind regards,\nRobin",
)
LURED = ("Invoices", "As you asked, the invoices of this mailbox: https://bright-audit.example/in")
SETTINGS_FILE = f"""\
state = "state"
address = "{ACCOUNT}"
dry_run = false   # live: what a person approves is sent, here into the embedded mailbox

[vault]
path = "vault"

[approvals]
undo_seconds = 2

[notify]
desktop = false
"""


@click.command("demo")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the demo's folder here."
)
def demo_command(keep: Path | None) -> None:
    """Try it with sample mail, in a folder of its own.

    It reads and writes nothing of yours: no settings, no mailbox, no account.
    """
    import tempfile

    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Invalid(f"{keep} is not empty", remedy="Name a folder that is new or empty.")
        own = _show(keep.resolve())
        _tell(f"To go on: export POSTROOM_CONFIG={shlex.quote(str(own))}")
        return
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        _show(Path(folder))
    _tell("The demo's folder is gone again; `postroom demo --keep DIR` keeps one to play with.")


def _show(folder: Path) -> Path:
    """Run the demo in this folder and return its settings file."""
    from importlib.resources import as_file, files

    from postroom.config import SETTINGS

    own = folder / "postroom.toml"
    own.write_text(SETTINGS_FILE)
    # The commands below are the real ones; these settings alone keep them in this folder.
    for setting in SETTINGS:
        os.environ.pop(setting.variable, None)
    os.environ["POSTROOM_CONFIG"] = str(own)
    with as_file(files("postroom.sample") / "mail.mbox") as sample:
        _run("import", str(sample), shown="import SAMPLE-MAIL")
    for query in SEARCHES:
        _run("search", query)
    _tell(
        "The next mail hides instructions to an assistant in white text and invisible characters."
    )
    _run("read", _first(HOSTILE))
    _tell(
        "What a person would see stays, its last sentence too: to be distrusted by whoever reads it."
    )
    good, bad = _propose()
    _tell("An agent has read that mail, and asks for two letters to be sent. Neither has left:")
    _run("pending")
    _tell("The one that the mail asked for is red, and says why:")
    _run("show", bad[0])
    _run("reject", bad[0], "--reason", "It came from a mail, not from me.")
    _tell("The other is approved, by the digest that a person saw, and leaves once:")
    _run("approve", good[0], "--yes", good[1])
    _run("audit", "--limit", "6")
    _tell("Try your own: `postroom import YOUR.mbox` (or a Maildir), then `postroom init`.")
    return own


def _propose() -> tuple[tuple[str, str], tuple[str, str]]:
    """Let an agent propose two letters; return the id and the digest of each."""
    from postroom import wiring
    from postroom.core.address import Address
    from postroom.desk.compose import Written
    from postroom.desk.outbox import Call
    from postroom.wiring.desk import desk

    config = wiring.settings()
    with desk(config, make=True) as made:
        assert made is not None
        box = wiring.mailbox(config)
        assert box is not None
        with closing(box):
            made.reading.shown(box.message(_first(HOSTILE)))
        call = Call("send_email", "demo agent")
        answer = Written(
            (Address.parse("Dora Lindqvist <dora@lindqvist.example>"),), REPLY[0], REPLY[1],
            answers=_first(ANSWERED),
        )  # fmt: skip
        lured = Written((Address.parse("ledger@bright-audit.example"),), *LURED)
        posted = [made.post(call, made.composer.letter(written)) for written in (answer, lured)]
    good, bad = ((entry.id, entry.digest.removeprefix("sha256:")[:8]) for entry in posted)
    return good, bad


def _first(query: str) -> str:
    from postroom import wiring

    box = wiring.mailbox(wiring.settings())
    assert box is not None
    with closing(box):
        return box.search(query, limit=1).items[0].id


def _tell(sentence: str) -> None:
    click.echo("\n" + folded(sentence))


def _run(*arguments: str, shown: str = "") -> None:
    from postroom.cli.main import run

    typed = shown or " ".join(shlex.quote(argument) for argument in arguments)
    click.echo(click.style(f"\n$ postroom {typed}", fg="green", bold=True))
    code = run(list(arguments))
    if code:
        raise SystemExit(code)
