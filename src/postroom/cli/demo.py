"""`postroom demo`: the embedded mailbox with sample mail, searched and read, in a folder of its own."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from postroom.cli.printing import WIDTH

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
        _show(keep.resolve())
        return
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        _show(Path(folder))
    _tell("The demo's folder is gone again; `postroom demo --keep DIR` keeps one to play with.")


def _show(folder: Path) -> None:
    from importlib.resources import as_file, files

    from postroom.config import SETTINGS

    own = folder / "postroom.toml"
    own.touch()
    places = {
        "POSTROOM_CONFIG": str(own),
        "VAULT_PATH": str(folder / "vault"),
        "POSTROOM_STATE": str(folder / "state"),
        "POSTROOM_ADDRESS": ACCOUNT,
    }
    # The commands below are the real ones; the environment is what keeps them in this folder.
    for setting in SETTINGS:
        os.environ.pop(setting.variable, None)
    os.environ.update(places)
    with as_file(files("postroom.sample") / "mail.mbox") as sample:
        _run("import", str(sample), shown="import SAMPLE-MAIL")
    for query in SEARCHES:
        _run("search", query)
    _tell(
        "The next mail hides instructions to an assistant in white text and invisible characters."
    )
    _run("read", _first(HOSTILE))
    _tell("Try your own: `postroom import YOUR.mbox` (or a Maildir), then `postroom search WORDS`.")


def _first(query: str) -> str:
    from contextlib import closing

    from postroom import wiring

    box = wiring.mailbox(wiring.settings())
    assert box is not None
    with closing(box):
        return box.search(query, limit=1).items[0].id


def _tell(sentence: str) -> None:
    click.echo("\n" + click.wrap_text(sentence, WIDTH - 1))


def _run(*arguments: str, shown: str = "") -> None:
    from postroom.cli.main import run

    typed = shown or " ".join(shlex.quote(argument) for argument in arguments)
    click.echo(click.style(f"\n$ postroom {typed}", fg="green", bold=True))
    code = run(list(arguments))
    if code:
        raise SystemExit(code)
