"""Runs tmux, for all other modules. One call lists every pane with the name of its window."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from postroom.core.errors import Unavailable

TIMEOUT: Final = 5.0  # seconds for one call
MAX_OUTPUT: Final = 4_000_000  # bytes of tmux's output
# The name comes last, since it may have spaces. It may even have line ends, which `roster` checks for.
_PANE_FORMAT: Final = (
    "#{pane_id} #{session_id} #{window_index} #{pane_dead} #{pane_in_mode} #{pane_synchronized}"
    " #{window_name}"
)
# The environment that tmux gets: enough to find its server and the calling pane. It sends each variable to the server.
_VARIABLES: Final = ("TMUX", "TMUX_PANE", "TMUX_TMPDIR", "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE")  # fmt: skip


class Pane(NamedTuple):
    id: str
    session: str
    window: int  # the index of its window in the session
    dead: bool
    in_mode: bool  # a person scrolls or copies
    synchronized: bool  # text that is typed here goes to other panes too
    name: str  # the name of its window


def panes(pane: str | None, environ: Mapping[str, str]) -> list[Pane]:
    """Return the panes of this pane's session, window by window; for "" of the current session, for None of all."""
    which = ["-a"] if pane is None else ["-s"]
    which += ["-t", pane] if pane else []
    found = []
    for line in run(["list-panes", *which, "-F", _PANE_FORMAT], environ).split("\n"):
        parts = line.split(" ", 6)
        if len(parts) == 7 and parts[2].isdigit():
            id, session, window, *flags, name = parts
            dead, in_mode, synchronized = (flag not in ("0", "") for flag in flags)
            found.append(Pane(id, session, int(window), dead, in_mode, synchronized, name))
    return found


def windows(found: Sequence[Pane]) -> list[str]:
    """Return the name of each window of these panes, without empty names; a name may occur several times."""
    seen = {(pane.session, pane.window): pane.name.strip() for pane in found}
    return [name for name in seen.values() if name]


def run(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run tmux with these arguments and return its output; raise `Unavailable` with its error message."""
    child, stream = _start(words, environ)
    try:
        output = _read_output(stream, time.monotonic() + TIMEOUT)
    finally:
        os.close(stream)
    try:
        if output is None:
            os.kill(child, 9)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except (ChildProcessError, ProcessLookupError):  # this process ignores its children
        code = 0
    if output is None:
        raise Unavailable(f"tmux did not answer within {TIMEOUT:g} seconds")
    text = output.decode("utf-8", "replace")
    if code:
        raise Unavailable(" ".join(text.split())[:200] or f"tmux ended with {code}")
    return text


def _start(words: Sequence[str], environ: Mapping[str, str]) -> tuple[int, int]:
    """Start tmux; return its process id, and the descriptor of the pipe with its output."""
    # Without -u tmux writes _ for letters that the locale lacks, and names would differ.
    argv = ["tmux", "-u", *words]
    variables = {name: environ[name] for name in _VARIABLES if name in environ}
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    streams = [(os.POSIX_SPAWN_DUP2, handle, n) for n, handle in enumerate((null, writer, writer))]
    try:
        # Not `subprocess`, whose import costs as much as the call.
        return os.posix_spawnp(argv[0], argv, variables, file_actions=streams), reader
    except OSError as why:
        os.close(reader)
        raise Unavailable(f"tmux cannot be run: {why.strerror}") from why
    finally:
        os.close(null)
        os.close(writer)


def _read_output(stream: int, end: float) -> bytes | None:
    """Return the whole output; None if it is not complete at `end`, or is too long."""
    output = b""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    while poll.poll(max(0, end - time.monotonic()) * 1000):
        piece = os.read(stream, 1 << 16)
        output += piece
        if not piece:
            return output
        if len(output) > MAX_OUTPUT:
            return None
    return None
