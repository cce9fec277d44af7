"""tmux: the only place that runs it. One call tells who and where everybody is."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from postroom.core.errors import Unavailable

PATIENCE: Final = 5.0  # seconds
LARGEST: Final = 4_000_000  # bytes of an answer
# The name comes last, since it may have spaces; tmux writes a tab or a newline in it as two signs.
_PANES: Final = (
    "#{pane_id} #{session_id} #{window_index} #{window_id} #{pane_active} #{pane_dead} #{pane_in_mode}"
    " #{pane_synchronized} #{cursor_x} #{cursor_y} #{pane_height} #{window_name}"
)


class Pane(NamedTuple):
    """A pane of a session."""

    id: str
    session: str
    place: int  # of its window
    window: str
    active: bool
    dead: bool
    in_mode: bool  # a person scrolls or copies
    synchronized: bool  # what is typed goes to others too
    x: int
    y: int
    height: int
    name: str  # of its window


def panes(pane: str, environ: Mapping[str, str]) -> list[Pane]:
    """Return the panes of the session that this pane is in (without one, our own), window by window."""
    target = ["-t", pane] if pane else []
    return _parsed(run(["list-panes", "-s", *target, "-F", _PANES], environ))


def all_panes(environ: Mapping[str, str]) -> list[Pane]:
    """Return the panes of all sessions."""
    return _parsed(run(["list-panes", "-a", "-F", _PANES], environ))


def _parsed(text: str) -> list[Pane]:
    found = []
    for line in text.split("\n"):
        parts = line.split(" ", 11)
        if len(parts) == 12:
            id, session, place, window, *flags, x, y, height, name = parts
            active, dead, in_mode, synchronized = (flag not in ("0", "") for flag in flags)
            found.append(
                Pane(id, session, int(place), window, active, dead, in_mode, synchronized,
                     int(x or 0), int(y or 0), int(height or 0), name)
            )  # fmt: skip
    return found


def windows(found: Sequence[Pane]) -> list[str]:
    """Return the names of the windows, as often as there are windows of that name."""
    seen = {(pane.session, pane.place): pane.name.strip() for pane in found}
    return [name for name in seen.values() if name]


def run(words: Sequence[str], environ: Mapping[str, str], *, patience: float = PATIENCE) -> str:
    """Run tmux and return what it says; what goes wrong is raised in its own words."""
    # Without -u it writes _ for letters that the locale lacks, and names would differ.
    argv = ["tmux", "-u", *words]
    ours, theirs = os.pipe()
    try:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Not `subprocess`, whose import costs as much as the call.
            child = os.posix_spawnp(
                "tmux",
                argv,
                dict(environ),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, theirs, 1),
                    (os.POSIX_SPAWN_DUP2, theirs, 2),
                ],
            )
        except OSError as why:
            raise Unavailable(f"tmux cannot be run: {why.strerror}") from why
        finally:
            os.close(null)
            os.close(theirs)
        said = _said(ours, time.monotonic() + patience)
    finally:
        os.close(ours)
    code = _ended(child, said is None)
    if said is None:
        raise Unavailable(f"tmux did not answer within {patience:g} seconds")
    text = said.decode("utf-8", "replace")
    if code:
        raise Unavailable(" ".join(text.split())[:200] or f"tmux ended with {code}")
    return text


def _said(stream: int, end: float) -> bytes | None:
    pieces: list[bytes] = []
    watch = select.poll()
    watch.register(stream, select.POLLIN)
    while watch.poll(max(0, end - time.monotonic()) * 1000):
        piece = os.read(stream, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        if sum(map(len, pieces)) > LARGEST:
            return None
    return None


def _ended(child: int, stuck: bool) -> int:  # noqa: FBT001
    if stuck:
        os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
