"""`postroom demo`: sample mail, an agent that reads and writes over MCP, and a person who decides."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from postroom.cli.printing import folded, wrapped
from postroom.core.errors import Invalid, PostroomError
from postroom.desk.outbox import ORCHESTRATOR

if TYPE_CHECKING:
    from postroom.tools.client import ToolAnswer, ToolClient

ACCOUNT = "you@example.org"
HOSTILE = "subject:greyboard"  # a mail with hidden instructions to an assistant
ANSWER = "Hello Dora,\n\nthank you, that is a relief.\n\nKind regards,\nRobin"
NOTE = "Dear Ines,\n\nthe Saturday suits me. I shall bring the sewing frames.\n\nRobin"
LURED = "As you asked, the invoices of this mailbox: https://bright-audit.example/in"
ELSEWHERE = {
    "demo",
    "mcp",
    "install",
    "init",
    "adopt",
    "desk",
    "service",
}  # would reach out of the demo's folder
SHOWN = 9  # lines of an answer
SETTINGS_FILE = f"""\
state = "state"
address = "{ACCOUNT}"
dry_run = false   # live: what a person approves is sent, here into the embedded mailbox

[vault]
path = "vault"

[approvals]
undo_seconds = {{undo}}

[notify]
desktop = false
"""


class Waiting(NamedTuple):
    """The two letters that the agent has asked for, and the answer that was drafted by itself."""

    good: str
    lured: str
    drafted: str = ""


@click.command("demo")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the demo's folder here."
)
def demo_command(keep: Path | None) -> None:
    """Try it with sample mail, in a folder of its own.

    It reads and writes nothing of yours: no settings, no mailbox, no account. On a terminal you
    then decide yourself what becomes of the letters.
    """
    import tempfile

    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Invalid(f"{keep} is not empty", remedy="Name a folder that is new or empty.")
        with _settled(keep.resolve(), keep=True) as own:
            letters = _show()
        _tell("The letters wait for you. To go on with them:")
        click.echo(f"  export POSTROOM_CONFIG={shlex.quote(str(own))}")
        for line in ("desk", *_next(letters)):
            click.echo(f"  postroom {line}")
        return
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(1))  # a closed terminal: the folder goes too
    with (
        tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder,
        _settled(Path(folder).resolve()),
    ):
        letters = _show()
        if sys.stdin.isatty() and sys.stdout.isatty():
            _decide(letters)
        else:
            _decided(letters)
    _tell("The demo's folder is gone again; `postroom demo --keep DIR` keeps one to play with.")


@contextmanager
def _settled(folder: Path, *, keep: bool = False) -> Iterator[Path]:
    """Let every command below work in this folder alone; lend its settings file."""
    from postroom.config import SETTINGS

    own = folder / "postroom.toml"
    # Where somebody decides on the page, there is time to undo.
    watched = keep or (sys.stdin.isatty() and sys.stdout.isatty())
    own.write_text(SETTINGS_FILE.format(undo=5 if watched else 2))
    for setting in SETTINGS:
        os.environ.pop(setting.variable, None)
    os.environ["POSTROOM_CONFIG"] = str(own)
    yield own


def _show() -> Waiting:
    """Bring mail in, let the agent work, and show what waits."""
    from postroom.tools.client import connect

    _import("mail.mbox", "SAMPLE-MAIL")
    _tell("An agent comes in over MCP, as it would from your client: `postroom mcp --agent demo`.")
    command = [sys.executable, "-P", "-m", "postroom", "mcp", "--agent", "demo"]
    with connect(command, os.environ) as visitor:
        letters = _work(visitor)
    _tell("That was all that the agent can do. Nothing has left.")
    _pause()
    letters = letters._replace(drafted=_orchestrate())
    _pause()
    _tell("You see:")
    _run("pending")
    _tell("The letter that a mail asked for is red, and says why:")
    _run("show", letters.lured)
    return letters


def _import(name: str, shown: str) -> None:
    from importlib.resources import as_file, files

    with as_file(files("postroom.sample") / name) as sample:
        _run("import", str(sample), shown=f"import {shown}")


def _orchestrate() -> str:
    """Let new mail come in and be triaged; return the letter that answers one of them."""
    from importlib.resources import files

    from postroom import wiring
    from postroom.wiring.desk import desk

    config = wiring.settings()
    handbook = (files("postroom.sample") / "Handbook.md").read_text("utf-8")
    (config.vault.path / "Handbook.md").write_text(handbook)
    _tell("Meanwhile `postroom run` watches the mailbox. These are your rules, in Handbook.md:")
    for row in handbook.splitlines()[4:]:
        click.echo("\n".join(f"  {piece}" for piece in wrapped(row, 75)))
    _run("run", "--once", "--text", shown="run --once")
    _tell("Four mails come in. One of them poses as a note that was approved.")
    _import("new.mbox", "NEW-MAIL")
    _run("run", "--once", "--text", shown="run --once")
    _tell("Each is a note in the vault now, and one is answered by a draft, which waits:")
    for folder in ("Needs_Action", "Drafts", "Done"):
        for file in sorted((config.vault.path / folder).glob("*.md")):
            click.echo(f"  {folder}/{file.name}")
    with desk(config) as found:
        assert found is not None
        return next(line.id for line in found.ledger.lines("pending") if line.agent == ORCHESTRATOR)


def _work(agent: ToolClient) -> Waiting:
    """Search, read, draft, answer, and do as a hostile mail says."""
    _call(agent, "search_email", query="from:dora", limit=2)
    dora = agent.call("search_email", query="from:dora", limit=1).values["mails"][0]["id"]
    hostile = _call(agent, "search_email", query=HOSTILE, limit=1).values["mails"][0]["id"]
    _tell(
        "This mail hides instructions to an assistant in white text, which are taken out. Its last"
        " sentence stands in plain sight, spelled with invisible characters: it stays, cleaned."
    )
    _call(agent, "get_email", lines=40, id=hostile)
    _tell("The agent goes on with its work, and then does as that mail says.")
    _call(
        agent,
        "draft_email",
        to=["ines.calder@saltmarsh-library.example"],
        subject="Saturday",
        body=NOTE,
    )
    good = _call(agent, "reply_email", id=dora, body=ANSWER)
    lured = _call(
        agent, "send_email", to=["ledger@bright-audit.example"], subject="Invoices", body=LURED
    )
    _tell("It tries once more, as agents do. It is the same letter:")
    _call(agent, "send_email", to=["ledger@bright-audit.example"], subject="Invoices", body=LURED)
    return Waiting(good.values["letter"], lured.values["letter"])


def _call(agent: ToolClient, tool: str, *, lines: int = SHOWN, **arguments: object) -> ToolAnswer:
    """Let the agent call a tool, and show both sides."""
    given = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    typed = folded(f"agent > {tool}({given})", "        ").lstrip()
    click.echo(click.style(f"\n{typed}", fg="cyan", bold=True))
    answer = agent.call(tool, **arguments)
    rows = [row for text in answer.text.split("\n") for row in wrapped(text, 75)]
    for row in rows[:lines]:
        click.echo(f"  {row}")
    if len(rows) > lines:
        click.echo(click.style(f"  ... {len(rows) - lines} more lines", dim=True))
    return answer


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 50 else f"{text[:46]}...'"


def _next(letters: Waiting) -> list[str]:
    return [
        f"show {letters.good}",
        f"approve {letters.good}",
        f"reject {letters.lured} --reason 'It came from a mail, not from me.'",
        f"approve {letters.drafted}",
        "run --once",
        "audit",
        "search in:sent",
    ]


def _decide(letters: Waiting) -> None:
    """Let the person decide in the browser, or type commands, until they have enough."""
    said = "Now you: decide in your browser. If it does not open, this address lets it in, once:"
    with _desk(said, opens=True):
        _tell("Or type a command here, or nothing to end. For example:")
        for line in _next(letters):
            click.echo(f"  {line}")
        _asked()


@contextmanager
def _desk(said: str, *, opens: bool) -> Iterator[None]:
    """Serve the page of the demo's letters."""
    from postroom import wiring
    from postroom.cli.desk import Wish, beside

    with beside(wiring.settings(), Wish(port=0, person="Robin"), opens=opens) as page:
        _tell(said)
        click.echo(f"  {page.sign_in}")
        yield


def _asked() -> None:
    while (typed := _typed()) and typed[0] not in {"exit", "quit"}:
        if typed[0] in ELSEWHERE:
            _tell(f"`postroom {typed[0]}` is for another terminal.")
            continue
        with suppress(PostroomError, SystemExit):
            _run(*(["--help"] if typed[0] == "help" else typed), quiet=True)


def _pause() -> None:
    """On a terminal, let the person read."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        with suppress(EOFError):
            input("\nEnter to go on. ")


def _typed() -> list[str]:
    with suppress(EOFError, KeyboardInterrupt):
        text = input("\npostroom> ").strip()
        try:
            return shlex.split(text.removeprefix("postroom "))
        except ValueError:
            return [text]
    return []


def _decided(letters: Waiting) -> None:
    """Where nobody is there to decide: show how it goes on."""
    from postroom import wiring
    from postroom.wiring.desk import desk

    config = wiring.settings()
    with desk(config) as found:
        assert found is not None
        digest = found.ledger.entry(letters.good).digest.removeprefix("sha256:")[:8]
        draft = config.vault.path / found.ledger.place(letters.drafted).path
    _tell("A person says no to it, and approves the other by the digest that they saw:")
    _run("reject", letters.lured, "--reason", "It came from a mail, not from me.")
    _run("approve", letters.good, "--yes", digest)
    _tell("The draft they approve in Obsidian, by moving its note; then it leaves by itself:")
    click.echo(click.style("\n$ mv Drafts/... Approved/", fg="green", bold=True))
    draft.rename(config.vault.path / "Approved" / draft.name)
    _run("run", "--once", "--text", shown="run --once")
    with _desk(
        "All of it is in the browser, too: `postroom desk` opens the page and stays while you decide.",
        opens=False,
    ):
        _tell("That address let one browser in, once; it is closed again with this demo.")
    _run("audit", "--limit", "6")


def _tell(sentence: str) -> None:
    click.echo("\n" + folded(sentence))


def _run(*arguments: str, shown: str = "", quiet: bool = False) -> None:
    from postroom.cli.main import run

    if not quiet:
        typed = shown or " ".join(shlex.quote(argument) for argument in arguments)
        click.echo(click.style(f"\n$ postroom {typed}", fg="green", bold=True))
    sys.stdout.flush()
    code = run(list(arguments))
    if code and not quiet:
        raise SystemExit(code)
