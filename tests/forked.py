"""Starts `postroom` processes by forking one that has already imported it.

They are real processes, and cost far less than `python -m postroom`, whose time is nearly all imports.

The fork server is a child process (`python -m tests.forked`). It receives requests as lines of JSON over a
socket, with the descriptors of the new process's streams, and answers each with a number.
"""

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

PRELOADED = (  # what commands and servers import when they run
    "anyio._backends._asyncio",
    "postroom.cli.serve",
    "postroom.cli.main",
    "postroom.cli.server",
    "postroom.mail.gmail",
    "postroom.mail.local",
    "postroom.tools.contracts.agents",
    "postroom.tools.contracts.all",
    "postroom.tools.contracts.approval",
    "postroom.tools.contracts.dry_run",
    "postroom.tools.contracts.gmail",
    "postroom.tools.contracts.vault",
    "postroom.tools.serve",
    "postroom.tools.stdio",
    "postroom.tools.wire",
    "postroom.wiring.desk",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)


class ForkedProcess:
    """A running `postroom` process, and our ends of its streams.

    The fork server reaps it only when `wait` asks for its exit code. Until then its id belongs to no other
    process, so that a signal cannot reach the wrong one.
    """

    def __init__(self, pid: int, streams: Sequence[int], lifeline: int) -> None:
        self.pid = pid
        self.stdin = FileIO(streams[0], "w")
        self.stdout = FileIO(streams[1])
        self.stderr = FileIO(streams[2])
        self._lifeline = FileIO(lifeline)  # a pipe whose other end closes when the process ends
        self._code: int | None = None

    def wait(self, timeout: float = 30) -> int:
        """Wait until it ends, and return its exit code; fail after `timeout` seconds."""
        if self._code is None:
            ended, _, _ = select.select([self._lifeline], [], [], timeout)
            assert ended, f"the process {self.pid} still runs after {timeout} seconds"
            self._lifeline.close()
            self._code = _fork_server().reap(self.pid)
        return self._code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless its exit code is already known."""
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL, unless its exit code is already known."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it, wait for it, and close our ends of its streams."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


def fork(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> ForkedProcess:
    """Start `postroom` with these arguments and return the process, with pipes for its streams."""
    pipes = [os.pipe() for _ in range(4)]  # stdin, stdout, stderr, lifeline
    child_ends = [pipes[0][0], *(write for _, write in pipes[1:])]
    our_ends = [pipes[0][1], *(read for read, _ in pipes[1:])]
    pid = _start(arguments, environment, folder, child_ends)
    return ForkedProcess(pid, our_ends[:3], our_ends[3])


def fork_on_terminal(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, typed_ahead: str = ""
) -> tuple[ForkedProcess, int]:
    """Start `postroom` on a terminal of its own, of 80x24; return the process, and our end of the terminal.

    What is `typed_ahead` is there before the process starts. The caller closes our end. The streams of the returned process are three duplicates of it.
    """
    terminal, child_end = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    os.write(terminal, typed_ahead.encode())
    lifeline = os.pipe()
    handles = [child_end, os.dup(child_end), os.dup(child_end), lifeline[1]]
    pid = _start(arguments, environment, folder, handles)
    return ForkedProcess(pid, [os.dup(terminal) for _ in range(3)], lifeline[0]), terminal


def _start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    handles: Sequence[int],
) -> int:
    """Let the fork server start a process, and return its id.

    `handles` are the process's stdin, stdout, stderr and lifeline; they are closed here.
    """
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
    """The client of the fork server: starts it, and sends it one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, server_end = socket.socketpair()
        with server_end:
            number = server_end.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(number)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
            )
        self._answers = self._socket.makefile("r")

    def ask(self, request: Mapping[str, Any], handles: Sequence[int] = ()) -> int:
        """Send a request with these descriptors, and return the number that the server answers."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], handles)
            return int(self._answers.readline())

    def reap(self, pid: int) -> int:
        """Return the exit code of a process that has ended, and free its id."""
        return self.ask({"reap": pid})

    def close(self) -> None:
        """Close the connection, at which the server ends, and wait for that."""
        self._answers.close()
        self._socket.close()
        self._process.wait(timeout=30)


_servers: list[_ForkServer] = []  # at most one, from the first test that starts a process on
_starting = threading.Lock()


def _fork_server() -> _ForkServer:
    """Return the fork server, started if there is none yet."""
    with _starting:
        if not _servers:
            _servers.append(_ForkServer())
        return _servers[0]


def stop() -> None:
    """End the fork server, if there is one; processes that it has started go on."""
    while _servers:
        _servers.pop().close()


def _serve(requests: socket.socket) -> None:
    """Answer requests until the other end of the socket is closed."""
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
                _run_command(handles, **request)
            for handle in handles:
                os.close(handle)
        requests.sendall(f"{answer}\n".encode())


def _run_command(
    handles: Sequence[int], arguments: Sequence[str], environment: Mapping[str, str], folder: str
) -> None:
    """Run the command in this forked process, with its streams, environment, folder and arguments."""
    from postroom.__main__ import main

    if os.isatty(handles[0]):  # a controlling terminal belongs to the leader of a session
        os.setsid()
        fcntl.ioctl(handles[0], termios.TIOCSCTTY, 0)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(handles[number], number)
        os.close(handles[number])
        stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.set_inheritable(
        handles[3], False
    )  # so that it closes when this process ends, whatever its children do
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
