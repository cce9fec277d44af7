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
LEAVES, STEP = (
    2.0,
    0.001,
)  # seconds that it has to leave once it has said all, and between two looks
LARGEST: Final = 4_000_000  # bytes of an answer
# The name comes last, since it may have spaces. A new window's may have line ends: `whoami` minds that.
_PANES: Final = (
    "#{pane_id} #{session_id} #{window_index} #{pane_dead} #{pane_in_mode} #{pane_synchronized}"
    " #{window_name}"
)
# By which it finds its server, and knows who asks; each further one costs a message.
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
    return _parsed(run_to(_END, words, environ))


def all_panes(environ: Mapping[str, str]) -> list[Pane]:
    """Return the panes of all sessions."""
    return _parsed(run(["list-panes", "-a", "-F", _PANES], environ))


def _parsed(text: str) -> list[Pane]:
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


def run(words: Sequence[str], environ: Mapping[str, str], *, patience: float = PATIENCE) -> str:
    """Run tmux and return what it says; what goes wrong is raised in its own words."""
    child, stream = _started(words, environ)
    try:
        said = _said(stream, time.monotonic() + patience)
    finally:
        os.close(stream)
    return _answer(said, _ended(child, stuck=said is None), patience)


def run_to(end: str, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Do the same with words that make it say `end` in a last row, and do not wait for it to leave."""
    child, stream = _started(words, environ)
    try:
        said = _said(stream, time.monotonic() + PATIENCE, last := f"\n{end}\n".encode())
    finally:
        os.close(stream)
    if said is not None and said.endswith(last):
        _leaving.append(child)
        return said.decode("utf-8", "replace")
    return _answer(said, _ended(child, stuck=said is None), PATIENCE)


def _started(words: Sequence[str], environ: Mapping[str, str]) -> tuple[int, int]:
    """Start it; return the process, and where it will say what."""
    _reap()
    # Without -u it writes _ for letters that the locale lacks, and names would differ.
    argv = ["tmux", "-u", *words]
    known = {name: environ[name] for name in _KNOWN if name in environ}
    ours, theirs = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    streams = [(os.POSIX_SPAWN_DUP2, handle, n) for n, handle in enumerate((null, theirs, theirs))]
    try:
        # Not `subprocess`, whose import costs as much as the call.
        return os.posix_spawn(_program(), argv, known, file_actions=streams), ours
    except OSError as why:
        os.close(ours)
        raise Unavailable(f"tmux cannot be run: {why.strerror}") from why
    finally:
        os.close(null)
        os.close(theirs)


def _program() -> str:
    """Return the program, which is looked for once."""
    path = os.environ.get("PATH", os.defpath)
    if path not in _programs:
        found = (os.path.join(folder, "tmux") for folder in path.split(os.pathsep))
        _programs[path] = next((file for file in found if os.access(file, os.X_OK)), "tmux")
    return _programs[path]


def _answer(said: bytes | None, code: int, patience: float) -> str:
    if said is None:
        raise Unavailable(f"tmux did not answer within {patience:g} seconds")
    text = said.decode("utf-8", "replace")
    if code:
        raise Unavailable(" ".join(text.split())[:200] or f"tmux ended with {code}")
    return text


def _said(stream: int, end: float, last: bytes | None = None) -> bytes | None:
    """Return all that comes until the stream ends, or until this comes last; nothing if it is late."""
    pieces: list[bytes] = []
    watch = select.poll()
    watch.register(stream, select.POLLIN)
    while watch.poll(max(0, end - time.monotonic()) * 1000):
        pieces.append(os.read(stream, 1 << 16))
        said = b"".join(pieces)
        if not pieces[-1] or (last and said.endswith(last)):
            return said
        if len(said) > LARGEST:
            return None
    return None


def _ended(child: int, *, stuck: bool) -> int:
    if stuck:
        os.kill(child, 9)
    try:
        for _ in range(int(LEAVES / STEP)):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(STEP)
        os.kill(child, 9)
        _, status = os.waitpid(child, 0)
    except ChildProcessError:  # somebody told the system not to keep them for us
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
