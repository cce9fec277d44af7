"""Cleaning up: agents that are gone, and messages that were read. Nothing unread is ever removed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from postroom.agents import roster, tmux
from postroom.agents.folder import MailFolder, States, change_states, find, states
from postroom.agents.mailbox import AgentMailbox
from postroom.agents.record import seconds
from postroom.core.errors import PostroomError, Unavailable
from postroom.core.text import one_line

NO_TMUX = "Warning: not running in tmux session, skipping offline recipient check"

Warn = Callable[[str], None]


class CleanupCounts(NamedTuple):
    """How much was removed, or would be."""

    offline: int = 0
    stale: int = 0
    messages: int = 0
    mailboxes: int = 0

    def describe(self, *, dry_run: bool) -> str:
        """Return a summary in the original's words."""
        head = "Cleanup preview (dry-run):" if dry_run else "Cleanup complete:"
        word = "to remove" if dry_run else "removed"
        return (
            f"{head}\n"
            f"  Recipients {word}: {self.offline + self.stale}"
            f" ({self.offline} offline, {self.stale} stale)\n"
            f"  Messages {word}: {self.messages}\n"
            f"  Mailboxes {word}: {self.mailboxes}\n"
        )


def cleanup(
    cwd: str,
    environ: Mapping[str, str],
    stale_hours: int,
    delivered_hours: int,
    *,
    dry_run: bool,
    err: Warn,
) -> CleanupCounts:
    """Clean up the agent mail of this very folder; mailboxes are emptied, and never unlinked.

    A program that holds one open to write to it would write to a file that nobody finds.
    """
    folder = MailFolder(cwd).check()
    present = _present(folder, environ, err)
    if not os.path.isdir(folder.path):
        root = find(cwd)
        if root and os.path.isdir(root.path):
            err(
                f"Note: this folder has no agent mail; that of the repository is in {one_line(root.root)}"
            )
        return CleanupCounts()
    now = time.time()
    offline, stale = _clean_states(folder, present, now - stale_hours * 3600, dry_run=dry_run)
    messages = mailboxes = 0
    for name in folder.names():
        try:
            box = AgentMailbox(folder, name)
            removed, is_emptied = box.clean(now - delivered_hours * 3600, dry_run=dry_run)
            if damaged := box.damaged():
                err(
                    f"Note: {one_line(box.path)} has {damaged} lines that are no message; they stay as they are"
                )
        except (OSError, PostroomError) as why:
            wrong = getattr(why, "strerror", None) or str(why)
            err(f"Error cleaning mailbox {one_line(name)}: {one_line(wrong)}")
            continue
        messages += removed
        mailboxes += is_emptied
    if not dry_run:
        used = roster.registered(folder, lasts=stale_hours * 3600)
        for name in roster.registered(folder, lasts=float("inf")).keys() - used.keys():
            roster.forget(folder, name)
    return CleanupCounts(offline, stale, messages, mailboxes)


def _present(folder: MailFolder, environ: Mapping[str, str], err: Warn) -> set[str] | None:
    """Return the agents that are there; None where that cannot be found out."""
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


def _clean_states(
    folder: MailFolder, present: set[str] | None, oldest: float, *, dry_run: bool
) -> tuple[int, int]:
    """Drop the states of agents that are gone or silent since; return how many of each."""
    gone: list[str] = []

    def decide(known: States) -> States:
        kept = []
        gone.clear()
        for state in known:
            if present is not None and state.name not in present:
                gone.append("offline")
            elif (seconds(state.updated) or 0.0) <= oldest:
                gone.append("stale")
            else:
                kept.append(state)
        return kept

    if dry_run:
        decide(states(folder))
    elif os.path.lexists(folder.states):
        change_states(folder, decide)
    return gone.count("offline"), gone.count("stale")
