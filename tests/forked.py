"""Processes of `postroom` that are forked from one which has imported it: as real, and far cheaper."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

PRELOADED = (
    "anyio._backends._asyncio",
    "postroom.cli.listening",
    "postroom.cli.main",
    "postroom.cli.mcp",
    "postroom.mail.gmail",
    "postroom.mail.local",
    "postroom.tools.contracts.agents",
    "postroom.tools.contracts.all",
    "postroom.tools.contracts.approval",
    "postroom.tools.contracts.dry_run",
    "postroom.tools.contracts.gmail",
    "postroom.tools.contracts.vault",
    "postroom.tools.http",
    "postroom.wiring.desk",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)


class Forked:
    """A process with pipes for its streams; it stays a zombie, whose id is its own, until asked."""

    def __init__(self, pid: int, streams: Sequence[int], life: int) -> None:
        self.pid = pid
        self.stdin = FileIO(streams[0], "w")
        self.stdout = FileIO(streams[1])
        self.stderr = FileIO(streams[2])
        self._life = FileIO(life)  # at its end when the process has ended
        self._code: int | None = None

    def wait(self, timeout: float = 30) -> int:
        """Return its exit code once it has ended."""
        if self._code is None:
            ended, _, _ = select.select([self._life], [], [], timeout)
            assert ended, f"the process {self.pid} still runs after {timeout} seconds"
            self._life.close()
            self._code = _fork_server().reap(self.pid)
        return self._code

    def send_signal(self, number: int) -> None:
        """Signal it, if it still runs."""
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, wherever it is."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, and close all that leads to it."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


def fork(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Forked:
    """Run `postroom` with these arguments in a process of its own."""
    pipes = [os.pipe() for _ in range(4)]
    theirs = [pipes[0][0], *(write for _, write in pipes[1:])]
    ours = [pipes[0][1], *(read for read, _ in pipes[1:])]
    pid = _start(arguments, environment, folder, theirs)
    return Forked(pid, ours[:3], ours[3])


def fork_on_terminal(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path
) -> tuple[Forked, int]:
    """Run `postroom` on a terminal of its own; return the process, and our end of the terminal.

    The process's streams are three handles of our end; whoever takes the end closes it.
    """
    terminal, theirs = pty.openpty()
    life = os.pipe()
    handles = [theirs, os.dup(theirs), os.dup(theirs), life[1]]
    pid = _start(arguments, environment, folder, handles)
    return Forked(pid, [os.dup(terminal) for _ in range(3)], life[0]), terminal


def _start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    handles: Sequence[int],
) -> int:
    """Have a process forked with these handles as its streams and its life; return its id."""
    request = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": str(folder),
    }
    pid = _fork_server().ask(request, handles)
    for handle in handles:
        os.close(handle)
    return pid


class _ForkServer:
    """The process that has imported everything, and forks when it is asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(number)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
            )
        self._answers = self._socket.makefile("r")

    def ask(self, request: Mapping[str, Any], handles: Sequence[int] = ()) -> int:
        """Send a request with these descriptors, and return the number that is its answer."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], handles)
            return int(self._answers.readline())

    def reap(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        return self.ask({"reap": pid})

    def close(self) -> None:
        """End it."""
        self._answers.close()
        self._socket.close()
        self._process.wait(timeout=30)


_servers: list[_ForkServer] = []  # one, once a test has asked for a process
_starting = threading.Lock()


def _fork_server() -> _ForkServer:
    with _starting:
        if not _servers:
            _servers.append(_ForkServer())
        return _servers[0]


def stop() -> None:
    """End the process that forks, if there is one; its children do as they like."""
    while _servers:
        _servers.pop().close()


def _serve(requests: socket.socket) -> None:
    """Answer requests, until nobody can ask any more."""
    while True:
        raw, handles = b"", list[int]()
        while not raw.endswith(b"\n"):
            piece, more, _, _ = socket.recv_fds(requests, 1 << 16, 4)
            if not piece:
                return
            raw, handles = raw + piece, handles + more
        request = json.loads(raw)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                requests.close()
                _become(handles, **request)
            for handle in handles:
                os.close(handle)
        requests.sendall(f"{answer}\n".encode())


def _become(
    handles: Sequence[int], arguments: Sequence[str], environment: Mapping[str, str], folder: str
) -> None:
    """Be the command: its streams, variables, folder and arguments."""
    from postroom.__main__ import main

    if os.isatty(handles[0]):  # the leader of a new session takes it for its controlling terminal
        os.setsid()
        fcntl.ioctl(handles[0], termios.TIOCSCTTY, 0)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(handles[number], number)
        os.close(handles[number])
        stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.set_inheritable(handles[3], False)  # it ends with this very process
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = ["postroom", *arguments]
    main()


if __name__ == "__main__":
    for module in PRELOADED:
        import_module(module)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
