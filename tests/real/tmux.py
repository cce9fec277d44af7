"""A tmux server of its own, whose windows are agents in one git repository."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from tests.agents import wait_for_line
from tests.conftest import Outcome, Person

TMUX = shutil.which("tmux")


def until(fits: Callable[[], object], what: str) -> None:
    """Wait, within reason, for something to come about."""
    deadline = time.monotonic() + 30
    while not fits():
        assert time.monotonic() < deadline, f"within half a minute: {what}"
        time.sleep(0.02)


class Window(Person):
    """A pane of a window, and whoever works in it."""

    def __init__(self, server: "Server", pane: str) -> None:
        super().__init__(server.folder)
        self.server = server
        self.pane = pane
        self.environment |= {"TMUX": server.variable, "TMUX_PANE": pane}

    def mail(self, *words: str, piped: str | None = None, folder: str = "") -> Outcome:
        """Run `postroom agentmail` as this window."""
        done = subprocess.run(
            [sys.executable, "-m", "postroom", "agentmail", *words],
            cwd=self.folder / folder,
            env=self.environment,
            capture_output=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL if piped is None else None,
            input=None if piped is None else piped.encode(),
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    def send(self, recipient: str, text: str = "hello") -> str:
        """Send a message that must be sent, and return its id."""
        said = self.mail("send", recipient, text)
        found = re.fullmatch(r"Message #([A-Za-z0-9]{8}) sent\n", said.out)
        assert found, said
        return found[1]

    def received(self) -> str:
        """Receive without an error, and return what was said."""
        said = self.mail("receive")
        assert (said.code, said.err) == (0, "")
        return said.out

    def becomes(self, status: str) -> None:
        assert self.mail("status", status) == Outcome(0, "", "")

    def type(self, *keys: str) -> None:
        self.server.do("send-keys", "-t", self.pane, *keys)

    def types(self, text: str) -> None:
        """Type something, and leave it there once it is seen."""
        self.type("-l", text)
        until(lambda: text in self.screen, f"{text!r} on the screen")

    @property
    def screen(self) -> str:
        return self.server.do("capture-pane", "-p", "-t", self.pane)

    def rename(self, name: str) -> None:
        self.server.do("rename-window", "-t", self.pane, name)

    def split(self, command: str = "cat") -> "Window":
        """Return another pane of this window."""
        words = ("split-window", "-d", "-P", "-F", "#{pane_id}", "-t", self.pane, command)
        return Window(self.server, self.server.do(*words).strip())

    def close(self) -> None:
        self.server.do("kill-pane", "-t", self.pane)


class Agent(Window):
    """A window in which a program takes what is typed, line by line."""

    def __init__(self, server: "Server", pane: str, heard: Path) -> None:
        super().__init__(server, pane)
        self._heard = heard
        asked = ("display-message", "-p", "-t", pane, "#{pane_current_command}")
        until(lambda: server.do(*asked) == "cat\n", "a program that takes input")

    @property
    def heard(self) -> list[str]:
        return self._heard.read_text().splitlines() if self._heard.exists() else []

    def beside(self) -> "Agent":
        """Return an agent in another pane of this window."""
        heard = self.server.place()
        return Agent(self.server, self.split(taking(heard)).pane, heard)


def taking(file: Path) -> str:
    """Return the command of a program that keeps the lines it is given."""
    return f"exec cat >> {shlex.quote(str(file))}"


class Server:
    """A tmux server, in the folder of a repository."""

    def __init__(self, folder: Path) -> None:
        assert TMUX, "tmux is not installed"
        self._tmux = TMUX
        self.folder = folder
        (folder / ".git").mkdir()
        self._label = f"postroom-{uuid4().hex[:12]}"
        self._environment = Person(folder).environment
        self._heard = 0
        self.do("new-session", "-d", "-s", "work", "-n", "hall", "-x", "120", "-y", "30", "cat")
        asked = "#{socket_path},#{pid},0 #{pane_id}"
        self.variable, pane = self.do("display-message", "-p", asked).split()
        self.hall = Window(self, pane)

    def do(self, *words: str) -> str:
        """Run tmux itself."""
        command = [self._tmux, "-u", "-L", self._label, "-f", "/dev/null", *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def window(self, name: str, command: str = "cat") -> Window:
        return Window(self, self._pane(name, command))

    def windows(self, *names: str) -> list[Window]:
        return [self.window(name) for name in names]

    def agent(self, name: str) -> Agent:
        """Open a window with a program that takes what is typed there."""
        heard = self.place()
        return Agent(self, self._pane(name, taking(heard)), heard)

    def _pane(self, name: str, command: str) -> str:
        words = ("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "work:", "-n", name, command)
        return self.do(*words).strip()

    def place(self) -> Path:
        """Return a file for what one agent hears."""
        self._heard += 1
        return self.folder / f"heard-{self._heard}"

    def box(self, name: str) -> Path:
        return self.folder / ".agentmail" / "mailboxes" / f"{name}.jsonl"

    @property
    def states(self) -> Path:
        return self.folder / ".agentmail" / "recipients.jsonl"

    @property
    def pid(self) -> Path:
        return self.folder / ".agentmail" / "mailman.pid"

    @contextmanager
    def mailman(self) -> Iterator["Mailman"]:
        """Run the mailman as the one in the hall."""
        mailman = Mailman(self.hall)
        try:
            yield mailman
        finally:
            mailman.end()

    @contextmanager
    def person(self) -> Iterator[Callable[[str], object]]:
        """Sit somebody down before the session; what is lent are their keys."""
        ours, theirs = pty.openpty()
        client = subprocess.Popen(
            [self._tmux, "-u", "-L", self._label, "attach-session", "-t", "work"],
            env=self._environment | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        drain = threading.Thread(target=_drain, args=(ours,), daemon=True)
        drain.start()
        until(lambda: self.do("list-clients"), "somebody before the session")
        try:
            yield lambda keys: os.write(ours, keys.encode())
        finally:
            client.terminate()
            client.wait(timeout=30)
            drain.join(timeout=30)
            os.close(ours)

    def end(self) -> None:
        self.do("kill-server")
        Path(self.variable.split(",")[0]).unlink(missing_ok=True)


def _drain(terminal: int) -> None:
    with suppress(OSError):  # the other end is closed
        while os.read(terminal, 65_536):
            pass


class Mailman:
    """The mailman in the foreground, and what it has said."""

    def __init__(self, window: Window) -> None:
        self._process = window.start("agentmail", "mailman", bufsize=0)
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._ended: Outcome | None = None
        self.says(f"Mailman daemon started (PID: {self.pid})")

    def says(self, line: str) -> None:
        """Wait for this line, unless it has been said."""
        while line not in self.lines:
            self.lines.append(wait_for_line(self._process.stdout, "").rstrip("\n"))

    def tells(self, *names: str) -> None:
        """Wait until each of these was told."""
        for name in names:
            self.says(f"[mailman] told {name} of its mail")

    def spares(self, name: str, why: str) -> None:
        """Wait until it has found that this one cannot be told."""
        self.says(f"[mailman] {name} is not told yet: {why}")

    def end(self) -> Outcome:
        """Have it end by a signal, and return how it did, unless that is known."""
        if self._ended is None:
            self._process.terminate()
            out, err = self._process.communicate(timeout=30)
            self.lines += out.decode().splitlines()
            self._ended = Outcome(self._process.returncode, "", err.decode())
        return self._ended


def counting(folder: Path) -> tuple[str, Path]:
    """Return a PATH on which tmux adds a line to a file before it begins, and that file."""
    programs, calls = folder / "programs", folder / "calls"
    programs.mkdir()
    script = programs / "tmux"
    script.write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(calls))}\nexec {TMUX} "$@"\n')
    script.chmod(0o755)
    return f"{programs}:{os.environ['PATH']}", calls
