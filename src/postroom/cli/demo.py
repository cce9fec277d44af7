"""`postroom demo`: sample mail, an agent that reads and writes over MCP, and a person who decides."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from postroom import wiring
from postroom.cli.printing import folded, wrapped
from postroom.core.errors import Invalid, PostroomError
from postroom.desk.outbox import ORCHESTRATOR
from postroom.wiring import files

if TYPE_CHECKING:
    from postroom.desk.desk import Desk
    from postroom.tools.client import ToolAnswer, ToolClient

ADDRESS = "you@example.org"
HOSTILE = "subject:greyboard"  # a mail with hidden instructions to an assistant
ANSWER = "Hello Dora,\n\nthank you, that is a relief.\n\nKind regards,\nRobin"
DRAFT: dict[str, Any] = {
    "to": ["ines.calder@saltmarsh-library.example"],
    "subject": "Saturday",
    "body": "Dear Ines,\n\nthe Saturday suits me. I shall bring the sewing frames.\n\nRobin",
}
LURED: dict[str, Any] = {
    "to": ["ledger@bright-audit.example"],
    "subject": "Invoices",
    "body": "As you asked, the invoices of this mailbox: https://bright-audit.example/in",
}
# Commands that would reach out of the demo's folder.
ELSEWHERE = {"demo", "mcp", "install", "init", "adopt", "desk", "service"}
MOST_LINES = 9  # lines of an answer
SETTINGS_FILE = f"""\
state = "state"
address = "{ADDRESS}"
dry_run = false   # live: what a person approves is sent, here into the embedded mailbox

[vault]
path = "vault"

[approvals]
undo_seconds = {{undo}}

[notify]
desktop = false
"""


class DemoLetters(NamedTuple):
    """The two letters that the agent has asked for, and the answer that `postroom run` drafted."""

    good: str
    lured: str
    drafted: str


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
        own = _write_settings(keep.resolve(), undo=5)
        letters = _play()
        _tell("The letters wait for you. To go on with them:")
        click.echo(f"  export POSTROOM_CONFIG={shlex.quote(str(own))}")
        for line in ("desk", *_suggestions(letters)):
            click.echo(f"  postroom {line}")
        return
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(1))  # a closed terminal: remove the folder
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        _write_settings(Path(folder).resolve(), undo=5 if _is_interactive() else 2)
        letters = _play()
        (_let_person_decide if _is_interactive() else _decide_for_person)(letters)
    _tell("The demo's folder is removed; `postroom demo --keep DIR` keeps one to play with.")


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _write_settings(folder: Path, undo: int) -> Path:
    """Make every later command work in this folder alone; return its settings file."""
    from postroom.config import SETTINGS

    own = folder / "postroom.toml"
    files.create(own, SETTINGS_FILE.format(undo=undo).encode())
    for setting in SETTINGS:
        os.environ.pop(setting.variable, None)
    os.environ["POSTROOM_CONFIG"] = str(own)
    return own


@contextmanager
def _open_desk() -> Iterator[Desk]:
    from postroom.wiring.desk import needed

    with needed(wiring.settings()) as desk:
        yield desk


def _play() -> DemoLetters:
    """Import mail, let the agent and `postroom run` work, and show what waits."""
    from postroom.tools.client import connect

    _import("mail.mbox", "SAMPLE-MAIL")
    _tell("An agent connects over MCP, as from your client: `postroom mcp --agent demo`.")
    command = [sys.executable, "-P", "-m", "postroom", "mcp", "--agent", "demo"]
    with connect(command, os.environ) as agent:
        good, lured = _let_agent_work(agent)
    _tell("That was all that the agent can do. Nothing was sent.")
    _pause()
    drafted = _orchestrate()
    _pause()
    _tell("You see:")
    _run("pending")
    _tell("The letter that a mail asked for is red, and says why:")
    _run("show", lured)
    return DemoLetters(good, lured, drafted)


def _import(name: str, placeholder: str) -> None:
    from importlib.resources import as_file
    from importlib.resources import files as package_files

    with as_file(package_files("postroom.sample") / name) as sample:
        _run("import", str(sample), typed=f"import {placeholder}")


def _orchestrate() -> str:
    """Import new mail and triage it; return the letter that answers one of them."""
    from importlib.resources import files as package_files

    vault = wiring.settings().vault.path
    handbook = (package_files("postroom.sample") / "Handbook.md").read_text("utf-8")
    files.replace(vault / "Handbook.md", handbook.encode())
    _tell("Meanwhile `postroom run` watches the mailbox. These are your rules, in Handbook.md:")
    for row in handbook.splitlines()[4:]:
        click.echo("\n".join(f"  {piece}" for piece in wrapped(row, 75)))
    _run("run", "--once", "--text", typed="run --once")
    _tell("Four mails come in. One of them pretends to be a note that was approved.")
    _import("new.mbox", "NEW-MAIL")
    _run("run", "--once", "--text", typed="run --once")
    _tell("Each is a note in the vault now, and one is answered by a draft, which waits:")
    for folder in ("Needs_Action", "Drafts", "Done"):
        for file in sorted((vault / folder).glob("*.md")):
            click.echo(f"  {folder}/{file.name}")
    with _open_desk() as desk:
        pending = desk.ledger.lists.summaries("pending")
    return next(letter.id for letter in pending if letter.agent == ORCHESTRATOR)


def _let_agent_work(agent: ToolClient) -> tuple[str, str]:
    """Search, read, draft, answer, and do as a hostile mail says; return the ids of both letters."""
    _call(agent, "search_email", query="from:dora", limit=2)
    dora = agent.call("search_email", query="from:dora", limit=1).values["mails"][0]["id"]
    hostile = _call(agent, "search_email", query=HOSTILE, limit=1).values["mails"][0]["id"]
    _tell(
        "This mail hides instructions to an assistant in white text, which are removed. Its last"
        " sentence is visible, but spelled with invisible characters: it stays, cleaned."
    )
    _call(agent, "get_email", most_lines=40, id=hostile)
    _tell("The agent goes on with its work, and then does as that mail says.")
    _call(agent, "draft_email", **DRAFT)
    good = _call(agent, "reply_email", id=dora, body=ANSWER)
    lured = _call(agent, "send_email", **LURED)
    _tell("It tries once more, as agents do. It is the same letter:")
    _call(agent, "send_email", **LURED)
    return good.values["letter"], lured.values["letter"]


def _call(
    agent: ToolClient, tool: str, *, most_lines: int = MOST_LINES, **arguments: object
) -> ToolAnswer:
    """Let the agent call a tool, and show both sides."""
    given = ", ".join(f"{name}={_shorten(value)}" for name, value in arguments.items())
    typed = folded(f"agent > {tool}({given})", "        ").lstrip()
    click.echo(click.style(f"\n{typed}", fg="cyan", bold=True))
    answer = agent.call(tool, **arguments)
    rows = [row for text in answer.text.split("\n") for row in wrapped(text, 75)]
    for row in rows[:most_lines]:
        click.echo(f"  {row}")
    if len(rows) > most_lines:
        click.echo(click.style(f"  ... {len(rows) - most_lines} more lines", dim=True))
    return answer


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 50 else f"{text[:46]}...'"


def _suggestions(letters: DemoLetters) -> list[str]:
    return [
        f"show {letters.good}",
        f"approve {letters.good}",
        f"reject {letters.lured} --reason 'It came from a mail, not from me.'",
        f"approve {letters.drafted}",
        "run --once",
        "audit",
        "search in:sent",
    ]


@contextmanager
def _serve_page(sentence: str, *, opens: bool) -> Iterator[None]:
    """Serve the page of the demo's letters."""
    from postroom.cli.desk import PageOptions, page_in_background

    options = PageOptions(port=0, person="Robin")
    with page_in_background(wiring.settings(), options, opens=opens) as page:
        _tell(sentence)
        click.echo(f"  {page.sign_in}")
        yield


def _let_person_decide(letters: DemoLetters) -> None:
    """Let the person decide in the browser, or type commands, until they end it."""
    sentence = (
        "Now you: decide in your browser. If it does not open, this address lets it in, once:"
    )
    with _serve_page(sentence, opens=True):
        _tell("Or type a command here, or nothing to end. For example:")
        for line in _suggestions(letters):
            click.echo(f"  {line}")
        while (words := _ask_command()) and words[0] not in {"exit", "quit"}:
            if words[0] in ELSEWHERE:
                _tell(f"`postroom {words[0]}` is for another terminal.")
                continue
            with suppress(PostroomError, SystemExit):
                _run(*(["--help"] if words[0] == "help" else words), quiet=True)


def _ask_command() -> list[str]:
    with suppress(EOFError, KeyboardInterrupt):
        text = input("\npostroom> ").strip()
        try:
            return shlex.split(text.removeprefix("postroom "))
        except ValueError:
            return [text]
    return []


def _pause() -> None:
    """On a terminal, let the person read."""
    if _is_interactive():
        with suppress(EOFError):
            input("\nEnter to go on. ")


def _decide_for_person(letters: DemoLetters) -> None:
    """Where nobody is there to decide, show how it goes on."""
    vault = wiring.settings().vault.path
    with _open_desk() as desk:
        digest = desk.ledger.letters.get(letters.good).digest.removeprefix("sha256:")[:8]
        draft = vault / desk.ledger.notes.location(letters.drafted).path
    _tell("A person rejects it, and approves the other by the digest that they saw:")
    _run("reject", letters.lured, "--reason", "It came from a mail, not from me.")
    _run("approve", letters.good, "--yes", digest)
    _tell("The draft they approve in Obsidian, by moving its note; then it is sent:")
    click.echo(click.style("\n$ mv Drafts/... Approved/", fg="green", bold=True))
    draft.rename(vault / "Approved" / draft.name)
    _run("run", "--once", "--text", typed="run --once")
    sentence = "All of it is in the browser, too: `postroom desk` serves the page while you decide."
    with _serve_page(sentence, opens=False):
        _tell("That address let one browser in, once; it is closed again with this demo.")
    _run("audit", "--limit", "6")


def _tell(sentence: str) -> None:
    click.echo("\n" + folded(sentence))


def _run(*arguments: str, typed: str = "", quiet: bool = False) -> None:
    """Run a command as if somebody had typed it; end the demo where it fails."""
    from postroom.cli.main import run

    if not quiet:
        typed = typed or shlex.join(arguments)
        click.echo(click.style(f"\n$ postroom {typed}", fg="green", bold=True))
    sys.stdout.flush()
    code = run(list(arguments))
    if code and not quiet:
        raise SystemExit(code)
