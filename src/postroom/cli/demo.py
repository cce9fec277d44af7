"""`postroom demo`: sample mail, an agent that reads and writes over MCP, and a person who decides.

`sample/demo.toml` has the script, this module performs it.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import HELP, run
from postroom.config.settings import SETTINGS
from postroom.core.errors import Invalid, PostroomError
from postroom.core.text import plural
from postroom.desk.proposals import ORCHESTRATOR
from postroom.wiring import files

if TYPE_CHECKING:
    from postroom.tools.client import CallTool

SAMPLE = Path(__file__).parents[1] / "sample"
# Commands that would reach out of the demo's folder.
ELSEWHERE = {"demo", "mcp", "install", "init", "adopt", "desk", "service"}
MOST_LINES = 9  # lines of an answer


@click.command("demo", help=HELP["demo"])
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the demo's folder here.")  # fmt: skip
def demo_command(keep: Path | None) -> None:
    import tempfile

    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Invalid(f"{keep} is not empty", remedy="Name a folder that is new or empty.")
        demo = Demo(keep.resolve(), undo=5)
        demo.play()
        _tell("The letters wait for you. To go on with them:")
        click.echo(f"  export POSTROOM_CONFIG={shlex.quote(os.environ['POSTROOM_CONFIG'])}")
        for line in ("desk", *demo.suggestions()):
            click.echo(f"  postroom {line}")
        return
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(1))  # a closed terminal: remove the folder
    with tempfile.TemporaryDirectory(prefix="postroom-demo-") as folder:
        demo = Demo(Path(folder).resolve(), undo=5 if _is_interactive() else 2)
        demo.play()
        if _is_interactive():
            demo.let_person_decide()
        else:
            demo.perform("decide")
    _tell("The demo's folder is removed; `postroom demo --keep DIR` keeps one to play with.")


class Demo:
    """The script, performed in one folder: every later command of this process works there alone."""

    def __init__(self, folder: Path, undo: int) -> None:
        self._script = tomllib.loads((SAMPLE / "demo.toml").read_text("utf-8"))
        self.names = {"sample": str(SAMPLE)}  # what steps have kept, by name
        own = folder / "postroom.toml"
        files.create(own, self._script["settings"]["file"].format(undo=undo).encode())
        for setting in SETTINGS:
            os.environ.pop(setting.variable, None)
        os.environ["POSTROOM_CONFIG"] = str(own)
        self._vault = wiring.settings().vault.path

    def play(self) -> None:
        """Import mail, let the agent and `postroom run` work, and show what waits."""
        from postroom.tools.client import connect
        from postroom.wiring.desk import require_desk

        self.perform("start")
        command = [sys.executable, "-P", "-m", "postroom", "mcp", "--agent", "demo"]
        with connect(command, os.environ) as agent:
            self.perform("agent", agent)
        self.perform("run")
        with require_desk(wiring.settings()) as desk:
            pending = desk.reader.lists.summaries("pending")
            drafted = next(letter.id for letter in pending if letter.agent == ORCHESTRATOR)
            digest = desk.reader.letters.get(self.names["good"]).digest
            self.names |= {
                "drafted": drafted,
                "draft": desk.reader.notes.location(drafted).path,
                "digest": digest.removeprefix("sha256:")[:8],
            }

    def perform(self, act: str, agent: CallTool | None = None) -> None:
        for step in self._script[act]:
            match step:
                case {"say": text}:
                    _tell(text)
                case {"run": words}:
                    _run(*map(self._fill, words), typed=step.get("typed", ""))
                case {"call": tool, "arguments": arguments} if agent is not None:
                    filled = {
                        name: self._fill(value) if isinstance(value, str) else value
                        for name, value in arguments.items()
                    }
                    values = _call(agent, tool, filled, step.get("lines", MOST_LINES))
                    if name := step.get("keep"):
                        self.names[name] = values.get("letter") or values["mails"][0]["id"]
                case {"rules": name}:
                    text = (SAMPLE / name).read_text("utf-8")
                    files.replace(self._vault / name, text.encode())
                    for row in text.splitlines()[4:]:
                        click.echo("\n".join(f"  {piece}" for piece in ui.wrapped(row, 75)))
                case {"list": folders}:
                    notes = [f for name in folders for f in sorted((self._vault / name).glob("*.md"))]  # fmt: skip
                    click.echo("\n".join(f"  {file.relative_to(self._vault)}" for file in notes))
                case {"approve_by_moving": note}:
                    click.echo(click.style("\n$ mv Drafts/... Approved/", fg="green", bold=True))
                    draft = self._vault / self._fill(note)
                    draft.rename(self._vault / "Approved" / draft.name)
                case {"page": text, "then": after}:
                    with _serve_page(text, opens=False):
                        _tell(after)
                case {"pause": True} if _is_interactive():
                    with suppress(EOFError):
                        input("\nEnter to go on. ")

    def _fill(self, text: str) -> str:
        return text.format(**self.names)

    def let_person_decide(self) -> None:
        """Let the person decide in the browser, or type commands, until they end it."""
        with _serve_page(self._script["settings"]["decide"], opens=True):
            _tell("Or type a command here, or nothing to end. For example:")
            for line in self.suggestions():
                click.echo(f"  {line}")
            while (words := _ask_command()) and words[0] not in {"exit", "quit"}:
                if words[0] in ELSEWHERE:
                    _tell(f"`postroom {words[0]}` is for another terminal.")
                    continue
                with suppress(PostroomError, SystemExit):
                    _run(*(["--help"] if words[0] == "help" else words), quiet=True)

    def suggestions(self) -> list[str]:
        return [self._fill(line) for line in self._script["settings"]["suggestions"]]


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _call(agent: CallTool, tool: str, arguments: dict[str, Any], most_lines: int) -> dict[str, Any]:
    given = ", ".join(f"{name}={_shorten(repr(value))}" for name, value in arguments.items())
    typed = ui.folded(f"agent > {tool}({given})", "        ").lstrip()
    click.echo(click.style(f"\n{typed}", fg="cyan", bold=True))
    answer, values = agent(tool, arguments)
    rows = [row for text in answer.split("\n") for row in ui.wrapped(text, 75)]
    for row in rows[:most_lines]:
        click.echo(f"  {row}")
    if len(rows) > most_lines:
        more = plural(len(rows) - most_lines, "more line")
        click.echo(click.style(f"  ... {more}", dim=True))
    return values


def _shorten(text: str) -> str:
    return text if len(text) <= 50 else f"{text[:46]}...'"


@contextmanager
def _serve_page(text: str, *, opens: bool) -> Iterator[None]:
    from postroom.cli.serve import open_browser, serve_page

    with serve_page(wiring.settings(), port=0, person="Robin") as page, ExitStack() as stack:
        if opens:
            open_browser(stack, page)
        _tell(text)
        click.echo(f"  {page.sign_in}")
        yield


def _ask_command() -> list[str]:
    with suppress(EOFError, KeyboardInterrupt):
        text = input("\npostroom> ").strip()
        try:
            return shlex.split(text.removeprefix("postroom "))
        except ValueError:
            return [text]
    return []


def _tell(sentence: str) -> None:
    click.echo("\n" + ui.folded(sentence))


def _run(*arguments: str, typed: str = "", quiet: bool = False) -> None:
    """Run a command as if somebody had typed it; end the demo where it fails."""
    if not quiet:
        typed = typed or shlex.join(arguments)
        click.echo(click.style(f"\n$ postroom {typed}", fg="green", bold=True))
    sys.stdout.flush()
    code = run(list(arguments))
    if code and not quiet:
        raise SystemExit(code)
