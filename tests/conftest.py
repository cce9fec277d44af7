"""Fixtures for all tests: a person with a folder of their own who runs commands, and Gmail's double."""

import fcntl
import json
import os
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import forked
from tests.forked import fork_on_terminal
from tests.in_process import run_in_process
from tests.narrow import narrow

if TYPE_CHECKING:
    from tests.gmail.double import Gmail

# The percentage of its examples that each property test runs.
EXAMPLES = int(os.environ.get("POSTROOM_EXAMPLES", "25"))


def examples(full: int) -> int:
    """Return how many examples a property test runs now, if it has `full` of them at 100 percent."""
    return full * EXAMPLES // 100


def size(full: int) -> int:
    """Return how large a hostile input is in this run: `full` from 100 percent on, else a fifth of it."""
    return full if EXAMPLES >= 100 else full // 5


settings.register_profile("postroom", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile("postroom")


def pytest_configure() -> None:
    """Prepare this process for commands that run in it: UTC, no desktop notifications, no terminal."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    for variable in (
        "DISPLAY",
        "WAYLAND_DISPLAY",
    ):  # so that no notification reaches the developer's screen
        os.environ.pop(variable, None)
    _leave_terminal()


def pytest_unconfigure() -> None:
    forked.stop()


def _leave_terminal() -> None:
    """Give up the controlling terminal, so that commands that run in this process find none."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return
    if (
        os.getsid(0) != os.getpid()
    ):  # a session's leader would send SIGHUP to the terminal's processes
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
    os.close(terminal)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--providers", default="", help="which providers tests/contract runs against")


@dataclass
class Outcome:
    """A finished command: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Person:
    """A user with a home, a state folder and a vault of their own, who runs `postroom` commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "POSTROOM_STATE": str(folder / "state"),
            "VAULT_PATH": str(folder / "vault"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }
        self.vault = folder / "vault"

    def live(self, **settings: object) -> None:
        """Write a settings file that turns rehearsal off; `settings` go into its section `approvals`."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        file = self.folder / ".config" / "postroom" / "postroom.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(["dry_run = false", "[approvals]", *lines, ""]))

    def draft(self, name: str = "hello", *, folder: str = "Drafts", **changes: str) -> str:
        """Write a letter as a note, let Postroom take it up, and return its id; the desk must exist.

        `changes` replace fields of the note; `text` is its body.
        """
        fields = {"to": "ann@example.com", "subject": "Hello", "status": "pending_approval"}
        text = changes.pop("text", "Good day, Ann.")
        head = "".join(f"{key}: {value}\n" for key, value in (fields | changes).items())
        note = self.vault / folder / f"{name}.md"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"---\n{head}---\n\n{text}\n")
        assert self.run("pending").code == 0
        found = re.search(r'^letter: "([a-z2-7]{10})"$', note.read_text(), re.MULTILINE)
        assert found, note.read_text()
        return found[1]

    def show(self, id: str) -> dict[str, Any]:
        """Return what `postroom show --json` prints about a letter."""
        return narrow(self.run("show", id, "--json").json, dict)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command as a process and return it, still running."""
        return subprocess.Popen(
            [sys.executable, "-m", "postroom", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def at_terminal(
        self,
        *arguments: str,
        answers: Sequence[tuple[str, str | Callable[[str], str]]] = (),
        typed_ahead: str = "",
    ) -> Outcome:
        """Run a command on a terminal of its own, of 80x24, and type each answer after its question.

        Each of `answers` is a question and what to type after it, or a function from the output so far to that.
        A question is looked for after the one before.
        """
        process, terminal = fork_on_terminal(arguments, self.environment, self.folder, typed_ahead)
        try:
            output = _type_answers(terminal, list(answers))
            return Outcome(process.wait(timeout=60), output.replace("\r\n", "\n"), "")
        finally:
            os.close(terminal)
            process.close()

    def run(self, *arguments: str) -> Outcome:
        """Run a command to its end in this process, which costs a fraction of a process of its own."""
        return Outcome(*run_in_process(arguments, self.environment, self.folder))

    def run_as_process(self, *arguments: str, **options: Any) -> Outcome:
        """Run a command to its end in a process of its own."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=100)
        return Outcome(process.returncode, out.decode(), err.decode())

    def run_program(self, command: Sequence[str]) -> Outcome:
        """Run another program to its end in this person's folder and environment, with an empty stdin."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def _type_answers(terminal: int, waiting: list[tuple[str, str | Callable[[str], str]]]) -> str:
    """Type each answer after its question; return the whole output once the terminal is closed."""
    output, end, at = "", time.monotonic() + 60, 0
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, f"no answer within a minute; so far: {output[-2000:]}"
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece.decode(errors="replace")
        while waiting and waiting[0][0] in output[at:]:
            question, answer = waiting.pop(0)
            at = output.index(question, at) + len(question)
            os.write(terminal, (answer(output) if callable(answer) else answer).encode())
    assert not waiting, f"never asked: {waiting[0][0]}; output: {output[-2000:]}"
    return output


@pytest.fixture
def service() -> Iterator["Gmail"]:
    """Gmail's double on a local port, stopped after the test."""
    from tests.gmail.double import Gmail  # imported here, since most tests do not need it

    with Gmail() as service:
        yield service


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)
