"""tmux: the only place that runs it. One call tells who and where everybody is."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from postroom.core.errors import Unavailable

PATIENCE: Final = 5.0  # seconds
LEAVES: Final = 2.0  # seconds that it has to leave once it has answered
STEP: Final = 0.001
LARGEST: Final = 4_000_000  # bytes of an answer
# The name comes last, since it may have spaces. A new window's may have line ends: `whoami` minds that.
_PANES: Final = (
    "#{pane_id} #{session_id} #{window_index} #{pane_dead} #{pane_in_mode} #{pane_synchronized}"
    " #{window_name}"
)
# By these it finds its server and the calling pane; each further variable costs a message.
_KNOWN: Final = ("TMUX", "TMUX_PANE", "TMUX_TMPDIR", "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE")
_END: Final = "."
_programs: dict[str, str] = {}
_leaving: deque[int] = deque()  # processes that have answered


class Pane(NamedTuple):
    """A pane of a session."""

    id: str
    session: str
    place: int  # of its window
    dead: bool
    in_mode: bool  # a person scrolls or copies
    synchronized: bool  # what is typed goes to others too
    name: str  # of its window


def panes(pane: str, environ: Mapping[str, str]) -> list[Pane]:
    """Return the panes of the session that this pane is in (without one, our own), window by window."""
    target = ["-t", pane] if pane else []
    words = ["list-panes", "-s", *target, "-F", _PANES, ";", "display-message", *target, "-p", _END]
    return _parse_panes(run(words, environ, end=_END))


def all_panes(environ: Mapping[str, str]) -> list[Pane]:
    """Return the panes of all sessions."""
    return _parse_panes(run(["list-panes", "-a", "-F", _PANES], environ))


def _parse_panes(text: str) -> list[Pane]:
    found = []
    for line in text.split("\n"):
        parts = line.split(" ", 6)
        if len(parts) == 7 and parts[2].isdigit():
            id, session, place, *flags, name = parts
            dead, in_mode, synchronized = (flag not in ("0", "") for flag in flags)
            found.append(Pane(id, session, int(place), dead, in_mode, synchronized, name))
    return found


def windows(found: Sequence[Pane]) -> list[str]:
    """Return the names of the windows, as often as there are windows of that name."""
    seen = {(pane.session, pane.place): pane.name.strip() for pane in found}
    return [name for name in seen.values() if name]


def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    *,
    end: str = "",
    patience: float = PATIENCE,
) -> str:
    """Run tmux and return its output; an error is raised in its own words.

    With `end`, the words make it write that in a last row, and this does not wait for it to leave.
    """
    child, stream = _start(words, environ)
    last = f"\n{end}\n".encode() if end else b""
    try:
        output = _read_output(stream, time.monotonic() + patience, last)
    finally:
        os.close(stream)
    if last and output is not None and output.endswith(last):
        _leaving.append(child)
        return output.decode("utf-8", "replace")
    code = _wait(child, is_stuck=output is None)
    if output is None:
        raise Unavailable(f"tmux did not answer within {patience:g} seconds")
    text = output.decode("utf-8", "replace")
    if code:
        raise Unavailable(" ".join(text.split())[:200] or f"tmux ended with {code}")
    return text


def _start(words: Sequence[str], environ: Mapping[str, str]) -> tuple[int, int]:
    """Start tmux; return its process, and the descriptor that its output comes from."""
    _reap()
    # Without -u it writes _ for letters that the locale lacks, and names would differ.
    argv = ["tmux", "-u", *words]
    known = {name: environ[name] for name in _KNOWN if name in environ}
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    streams = [(os.POSIX_SPAWN_DUP2, handle, n) for n, handle in enumerate((null, writer, writer))]
    try:
        # Not `subprocess`, whose import costs as much as the call.
        return os.posix_spawn(_program(), argv, known, file_actions=streams), reader
    except OSError as why:
        os.close(reader)
        raise Unavailable(f"tmux cannot be run: {why.strerror}") from why
    finally:
        os.close(null)
        os.close(writer)


def _program() -> str:
    """Return the program, which is looked for once."""
    path = os.environ.get("PATH", os.defpath)
    if path not in _programs:
        found = (os.path.join(folder, "tmux") for folder in path.split(os.pathsep))
        _programs[path] = next((file for file in found if os.access(file, os.X_OK)), "tmux")
    return _programs[path]


def _read_output(stream: int, end: float, last: bytes) -> bytes | None:
    """Return all until the stream ends, or until `last` comes; None if it is late or too long."""
    output = b""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    while poll.poll(max(0, end - time.monotonic()) * 1000):
        piece = os.read(stream, 1 << 16)
        output += piece
        if not piece or (last and output.endswith(last)):
            return output
        if len(output) > LARGEST:
            return None
    return None


def _wait(child: int, *, is_stuck: bool) -> int:
    """Return the exit code of a process, which is killed if it does not end soon."""
    if is_stuck:
        os.kill(child, 9)
    try:
        for _ in range(int(LEAVES / STEP)):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(STEP)
        os.kill(child, 9)
        _, status = os.waitpid(child, 0)
    except ChildProcessError:  # this process ignores its children
        return 0
    return os.waitstatus_to_exitcode(status)


def _reap() -> None:
    """Let processes go that have left; those that have not are looked at again."""
    for _ in range(len(_leaving)):
        try:
            child = _leaving.popleft()
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                _leaving.append(child)
        except (IndexError, ChildProcessError):
            continue  # another thread was at it
