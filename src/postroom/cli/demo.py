"""`postroom demo`: sample mail, an agent that reads and writes over MCP, and a person who decides.

`sample/demo.toml` has the script, this module performs it.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
import termios
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import GROUPS, HELP, run
from postroom.config.settings import SETTINGS
from postroom.core.errors import Invalid, PostroomError
from postroom.core.records import Entry
from postroom.core.text import plural
from postroom.desk.proposals import ORCHESTRATOR
from postroom.wiring import files
from postroom.wiring.desk import require_desk

SAMPLE = Path(__file__).parents[1] / "sample"
# Commands that would reach out of the demo's folder: to clients, accounts and other agents.
NOT_IN_DEMO = {"desk", "adopt", *GROUPS["Set-up"], *GROUPS["Accounts"], *GROUPS["Agents"]}
MOST_LINES = 9  # lines of an answer
PAUSE = "Enter goes on, `quit` ends the demo: "
PROMPT = "postroom> "


class DemoEnded(Exception):
    """The person ended the demo."""


@click.command("demo", help=HELP["demo"])
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the demo's folder here.")  # fmt: skip
def demo_command(keep: Path | None) -> None:
    with ExitStack() as stack:
        if keep is None:
            for each in (signal.SIGHUP, signal.SIGTERM):  # such as a closed terminal: clean up
                signal.signal(each, lambda *_: sys.exit(1))
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="postroom-demo-")))
        else:
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.iterdir()):
                raise Invalid(f"{keep} is not empty", remedy="Name a folder that is new or empty.")
            folder = keep
        demo = Demo(folder.resolve(), is_kept=keep is not None)
        with suppress(DemoEnded):
            demo.play()
    if keep is None:
        _narrate(f"The demo's folder {folder} is removed. `postroom demo --keep DIR` keeps one.")
        return
    _narrate(f"The demo's folder {keep} is kept. To go on with it:")
    click.echo(f"  export POSTROOM_CONFIG={shlex.quote(os.environ['POSTROOM_CONFIG'])}")
    for line in ("desk", *demo.suggestions()):
        click.echo(f"  postroom {line}")


class Demo:
    """The script, performed in one folder: every later command of this process works there alone."""

    def __init__(self, folder: Path, *, is_kept: bool) -> None:
        self._script = tomllib.loads((SAMPLE / "demo.toml").read_text("utf-8"))
        self._is_kept, self._is_interactive = is_kept, sys.stdin.isatty() and sys.stdout.isatty()
        fate = "kept" if is_kept else "removed"
        # What steps have kept, by name.
        self._names = {"sample": str(SAMPLE), "folder": str(folder), "fate": fate}
        undo = 5 if is_kept or self._is_interactive else 2
        own = folder / "postroom.toml"
        files.create(own, self._script["settings"]["file"].format(undo=undo).encode())
        for setting in SETTINGS:
            os.environ.pop(setting.variable, None)
        os.environ["POSTROOM_CONFIG"] = str(own)
        self._vault = wiring.settings().vault.path

    def play(self) -> None:
        """Perform the script; raise `DemoEnded` where the person ends it."""
        with _echo(on=False):  # what is typed ahead must not scroll the scene away
            for step in self._script["play"]:
                self._perform(step)

    def _perform(self, step: dict[str, Any]) -> None:
        if "say" in step:
            _narrate(self._fill(step["say"]))
        match step:
            case {"run": words}:
                self._run(words, step)
            case {"call": tool}:
                self._call(tool, step)
            case {"write": name}:
                files.replace(self._vault / name, (SAMPLE / name).read_bytes())
            case {"find_draft": name}:
                self._names[name] = self._find_draft()
            case {"pause": True} if self._is_interactive:
                while _ask(PAUSE, is_line_needed=False):
                    pass
            case {"decide": name}:
                self._decide(self._names[name], step)
            case {"move": name} if not (self._is_interactive or self._is_kept):
                self._move(self._names[name])
                self._run(step["then"], step)
            case {"finish": text} if self._is_interactive:
                self._finish(text)

    def _fill(self, text: str) -> str:
        return text.format(**self._names)

    def _run(self, words: list[str], step: dict[str, Any]) -> None:
        """Run a command as if somebody had typed it; end the demo where it fails."""
        words = list(map(self._fill, words))
        if not step.get("hidden"):
            typed = step.get("typed") or shlex.join(words)
            click.echo(click.style(f"\n$ postroom {typed}", fg="green", bold=True))
            code, hidden = run(words), ""
        else:
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
                code = run(words)
            hidden = out.getvalue()
        if code:
            click.echo(hidden, err=True)
            raise SystemExit(code)

    def _call(self, tool: str, step: dict[str, Any]) -> None:
        """Let the agent call a tool, show its answer's first and last lines, and keep the id in it."""
        from postroom.tools.client import connect

        arguments = {
            name: self._fill(value) if isinstance(value, str) else value
            for name, value in step["arguments"].items()
        }
        command = [sys.executable, "-P", "-m", "postroom", "mcp", "--agent", "demo"]
        with connect(command, os.environ) as agent:
            answer, values = agent(tool, arguments)
        if name := step.get("keep"):
            self._names[name] = values.get("letter") or values["mails"][0]["id"]
        if step.get("hidden"):
            return
        given = ", ".join(f"{name}={_shorten(repr(value))}" for name, value in arguments.items())
        typed = ui.folded(f"agent > {tool}({given})", "        ").lstrip()
        click.echo(click.style(f"\n{typed}", fg="cyan", bold=True))
        rows = [row for text in answer.split("\n") for row in ui.wrapped(text, 75)]
        first, last = step.get("first", MOST_LINES), step.get("last", 0)
        if left_out := max(0, len(rows) - first - last):
            more = click.style(f"... {plural(left_out, 'more line')}", dim=True)
            rows = [*rows[:first], more, *rows[first + left_out :]]
        for row in rows:
            click.echo(f"  {row}")

    def _find_draft(self) -> str:
        with require_desk(wiring.settings()) as desk:
            pending = desk.reader.lists.summaries("pending")
            return next(letter.id for letter in pending if letter.agent == ORCHESTRATOR)

    def _decide(self, id: str, step: dict[str, Any]) -> None:
        """Let the person type commands until the letter is decided; without a terminal, perform the script's."""
        if self._is_interactive:
            _narrate(f"Type a command, such as `{self._fill(step['propose'])}`, or `quit` to end.")
            while self._entry(id).kind == "pending":
                self._run_typed(_ask(PROMPT))
        elif not self._is_kept:
            self._names["digest"] = self._entry(id).digest.removeprefix("sha256:")
            for words in step["perform"]:
                self._run(words, {})

    def _move(self, id: str) -> None:
        """Approve a letter as in Obsidian: by moving its note."""
        with require_desk(wiring.settings()) as desk:
            note = self._vault / desk.reader.notes.location(id).path
        click.echo(click.style("\n$ mv Drafts/... Approved/", fg="green", bold=True))
        approved = self._vault / "Approved"
        approved.mkdir(exist_ok=True)
        note.rename(approved / note.name)

    def _entry(self, id: str) -> Entry:
        with require_desk(wiring.settings()) as desk:
            return desk.reader.letters.get(id)

    def _finish(self, text: str) -> None:
        """Let the person decide in the browser, or type commands, until they end the demo."""
        from postroom.cli.serve import open_browser, serve_page

        with ExitStack() as stack:
            page = stack.enter_context(serve_page(wiring.settings(), port=0, person="Robin"))
            _narrate(text)
            click.echo(f"  {page.sign_in}")
            open_browser(stack, page)
            _narrate("Or type a command here, such as these; `quit` ends the demo:")
            for line in self.suggestions():
                click.echo(f"  {line}")
            while True:
                self._run_typed(_ask(PROMPT))

    def suggestions(self) -> list[str]:
        """Return commands that the person could type, as far as the script has come."""
        lines = []
        for line in self._script["settings"]["suggestions"]:
            with suppress(KeyError):
                lines.append(self._fill(line))
        return lines

    def _run_typed(self, text: str) -> None:
        """Run what the person typed, which may fail."""
        try:
            words = shlex.split(text.removeprefix("postroom "))
        except ValueError:
            words = [text]
        if words and words[0] in NOT_IN_DEMO:
            _narrate(f"`postroom {words[0]}` is for another terminal.")
        elif words:
            with suppress(PostroomError, SystemExit), _echo(on=True):
                run(["--help"] if words[0] == "help" else words)


@contextmanager
def _echo(*, on: bool) -> Iterator[None]:
    """Let the terminal, if there is one, show what is typed, or not, until the block ends."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    flags = before[3] | termios.ECHO if on else before[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, [*before[:3], flags, *before[4:]])
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _ask(prompt: str, *, is_line_needed: bool = True) -> str:
    """Return what the person types after the prompt; raise `DemoEnded` at `quit`, `exit` and Ctrl-D."""
    click.echo()
    while True:
        sys.stdout.flush()
        # What was typed before the question is not an answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        try:
            with _echo(on=True):
                text = input(prompt).strip()
        except KeyboardInterrupt:
            click.echo()
            continue
        except EOFError:
            click.echo()
            raise DemoEnded from None
        if text in {"quit", "exit"}:
            raise DemoEnded
        if text or not is_line_needed:
            return text
        if os.environ.get("TERM") != "dumb":
            click.echo("\x1b[A", nl=False)  # ask again on the same line


def _shorten(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:46]}...'"


def _narrate(sentence: str) -> None:
    click.echo("\n" + ui.folded(sentence))
