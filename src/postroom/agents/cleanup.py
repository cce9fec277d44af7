"""Cleaning up: agents that are gone, and messages that were read. Nothing unread is ever removed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from postroom.agents import roster, tmux
from postroom.agents.folder import Folder, find
from postroom.agents.mailbox import Mailbox
from postroom.agents.record import State, seconds
from postroom.agents.states import change, states
from postroom.core.errors import PostroomError, Unavailable
from postroom.core.text import one_line

NO_TMUX = "Warning: not running in tmux session, skipping offline recipient check"


class Cleaned(NamedTuple):
    """How much was removed, or would be."""

    offline: int
    stale: int
    messages: int
    mailboxes: int


def cleanup(
    cwd: str,
    environ: Mapping[str, str],
    stale_hours: int,
    delivered_hours: int,
    *,
    rehearse: bool,
    err: Callable[[str], None],
) -> Cleaned:
    """Clean up the agent mail of this very folder; mailboxes are emptied, and never unlinked.

    Whoever holds one open to write to it would write to a file that nobody finds.
    """
    folder = Folder(cwd).check()
    present = _present(folder, environ, err)
    if not os.path.isdir(folder.path):
        root = find(cwd)
        if root and os.path.isdir(root.path):
            err(
                f"Note: this folder has no agent mail; that of the repository is in {one_line(root.root)}"
            )
        return Cleaned(0, 0, 0, 0)
    now = time.time()
    offline, stale = _states(folder, present, now - stale_hours * 3600, rehearse=rehearse)
    messages = mailboxes = 0
    for name in folder.names():
        try:
            box = Mailbox(folder, name)
            removed, emptied = box.clean(now - delivered_hours * 3600, rehearse=rehearse)
            if odd := box.damaged():
                err(
                    f"Note: {one_line(box.path)} has {odd} lines that are no message; they stay as they are"
                )
        except (OSError, PostroomError) as why:
            wrong = getattr(why, "strerror", None) or str(why)
            err(f"Error cleaning mailbox {one_line(name)}: {one_line(wrong)}")
            continue
        messages += removed
        mailboxes += emptied
    if not rehearse:
        used = roster.registered(folder, lasts=stale_hours * 3600)
        for name in roster.registered(folder, lasts=float("inf")).keys() - used.keys():
            roster.forget(folder, name)
    return Cleaned(offline, stale, messages, mailboxes)


def _present(
    folder: Folder, environ: Mapping[str, str], err: Callable[[str], None]
) -> set[str] | None:
    """Return who is there; None where that cannot be told."""
    if not environ.get("TMUX"):
        err(NO_TMUX)
        return None
    try:
        windows = tmux.windows(tmux.panes("", environ))
    except Unavailable as why:
        err(f"Warning: failed to list tmux windows: {one_line(why.message)}")
        return None
    named = roster.registered(folder).items()
    return {*windows, *(name for name, about in named if not about.get("pane"))}


def _states(
    folder: Folder, present: set[str] | None, oldest: float, *, rehearse: bool
) -> tuple[int, int]:
    """Drop the states of who is gone or was not heard of since; return how many of each."""
    gone: list[str] = []

    def decide(found: list[State]) -> list[State]:
        kept = []
        gone.clear()
        for state in found:
            if present is not None and state.name not in present:
                gone.append("offline")
            elif (seconds(state.updated) or 0.0) <= oldest:
                gone.append("stale")
            else:
                kept.append(state)
        return kept

    if rehearse:
        decide(states(folder))
    elif os.path.lexists(folder.states):
        change(folder, decide)
    return gone.count("offline"), gone.count("stale")


def told(done: Cleaned, *, rehearse: bool) -> str:
    """Return what was done, in the original's words."""
    head = "Cleanup preview (dry-run):" if rehearse else "Cleanup complete:"
    word = "to remove" if rehearse else "removed"
    return (
        f"{head}\n"
        f"  Recipients {word}: {done.offline + done.stale} ({done.offline} offline, {done.stale} stale)\n"
        f"  Messages {word}: {done.messages}\n"
        f"  Mailboxes {word}: {done.mailboxes}\n"
    )
