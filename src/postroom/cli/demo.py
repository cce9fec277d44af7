"""`postroom demo`: the embedded mailbox with sample mail, searched and read, in a folder of its own."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from postroom.cli.printing import folded
from postroom.core.errors import Invalid

ACCOUNT = "you@example.org"
SEARCHES = ("invoice has:attachment", "from:dora is:unread", "hutte")
HOSTILE = "subject:greyboard"  # a mail with hidden instructions to an assistant


@click.command("demo")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the demo's folder here."
)
def demo_command(keep: Path | None) -> None:
    """Try it: sample mail, imported and searched, in a folder of its own.

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
    own.write_text(f'state = "state"\naddress = "{ACCOUNT}"\n\n[vault]\npath = "vault"\n')
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
    _tell("Try your own: `postroom import YOUR.mbox` (or a Maildir), then `postroom search WORDS`.")
    return own


def _first(query: str) -> str:
    from contextlib import closing

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
