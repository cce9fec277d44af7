"""What agents do with messages to each other: send, receive, list, clean up. Errors have the original's texts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Final, NamedTuple

from postroom.agents import roster, tmux
from postroom.agents.folder import NO_ROOT, PATIENCE, MailFolder, find
from postroom.agents.mailbox import AgentMailbox, Delivery
from postroom.agents.record import STATUSES, AgentMessage, seconds
from postroom.agents.roster import AgentCaller, States, change_state, change_states, states
from postroom.core.errors import Invalid, NotFound, PostroomError, Unavailable

MAX_BYTES: Final = 65_536  # of a message that a tool sends
SEAL: Final = "person"  # the key under which the person's seal is kept beside a message

Warn = Callable[[str], None]


class SelfAddressed(Invalid):
    """A message to oneself."""


class AgentLetter(NamedTuple):
    """A message with the details that we keep beside it; `state` is queued, delivered or read."""

    message: AgentMessage
    thread: str
    reply_to: str
    state: str
    seal: str = ""  # the seal of a sender who claims to be the person; not checked yet


class AgentMail:
    def __init__(self, cwd: str, environ: Mapping[str, str]) -> None:
        self._cwd = cwd
        self.environ = environ
        self._box = lru_cache(maxsize=64)(AgentMailbox)
        self._folder: MailFolder | None = None

    def find_folder(self) -> MailFolder | None:
        if self._folder is None:
            self._folder = find(self._cwd)
        return self._folder

    @property
    def folder(self) -> MailFolder:
        found = self.find_folder()
        if found is None:
            raise NotFound(NO_ROOT, remedy="Agents write to each other within one git repository.")
        found.check()
        return found

    def box(self, name: str) -> AgentMailbox:
        return self._box(self.folder, name)

    def register(self, me: AgentCaller) -> None:
        """Write this agent's name where others find it; an error in writing is ignored."""
        with suppress(OSError, PostroomError):
            roster.register(self.folder, me, self.environ.get("TMUX", "").partition(",")[0])

    def recipients(self, me: AgentCaller) -> list[str]:
        """Return the names that can be written to, with the caller's own."""
        folder = self.find_folder()
        ignored = folder.ignored() if folder else frozenset()
        names = [n for n in roster.everybody(folder, me) if n == me.name or n not in ignored]
        if folder and me.windows is None:
            self.register(me)
        return names

    def send(
        self,
        me: AgentCaller,
        recipient: str,
        text: str,
        *,
        about: Callable[[AgentMessage], dict[str, str]] = lambda _message: {},
        then: Callable[[AgentMessage], None] = lambda _message: None,
        patience: float = PATIENCE,
    ) -> AgentMessage:
        """Put a message into a mailbox, as `AgentMailbox.append` does, and return it."""
        folder = self.find_folder()
        is_known = recipient in roster.everybody(folder, me)
        is_self = is_known and recipient == me.name
        if is_self:
            raise SelfAddressed("cannot send message to self")
        is_known = is_known and not (folder and recipient in folder.ignored())
        if not is_known:
            raise NotFound(
                "recipient not found", remedy="list_agents, or recipients, says who is there."
            )

        folder = self.folder  # raises outside of a repository
        with error_context("failed to write message"):
            message = self._box(folder, recipient).append(
                me.name, text, about=about, then=then, patience=patience
            )
        self.register(me)
        return message

    def take(self, me: AgentCaller, *, patience: float = PATIENCE) -> Delivery | None:
        """Take the oldest unread message; None without one. It is marked as read once its delivery is confirmed."""
        if not me.name:
            raise Unavailable(roster.NO_WINDOW)
        if not self.folder.can_have(me.name):
            return None
        with error_context("failed to read messages"):
            delivery = self.box(me.name).take(patience=patience)
        if me.windows is None or delivery:  # in tmux, polls without mail need no registration
            self.register(me)
        return delivery

    def has_mail(self, me: AgentCaller) -> bool:
        """Whether there may be a message to take; False is certain. Takes no lock."""
        can_have = bool(me.name) and self.folder.can_have(me.name)
        return can_have and self.box(me.name).may_have_unread()

    def record_read(self, me: AgentCaller, patience: float) -> None:
        """Record that this agent reads its mail now; an error in writing is ignored."""
        if me.name:
            with suppress(OSError, PostroomError):
                at = time.time_ns() // 1_000_000
                change_state(self.folder, me.name, lambda old: old.after_reading(at), patience)

    def count_waiting(self, name: str) -> int:
        """Return the number of the agent's unread messages, and record that the agent was told of them."""
        with error_context("failed to read messages"):
            count = self.box(name).unread()
            if count:
                self.box(name).record_notice()
        return count

    def set_status(self, me: AgentCaller, status: str, patience: float = PATIENCE) -> None:
        if status not in STATUSES:
            raise Invalid(f"Invalid status: {status}. Valid: ready, work, offline")
        if not me.name:
            raise Unavailable(roster.NO_WINDOW)
        folder = self.folder
        with error_context("failed to update status"):
            change_state(folder, me.name, lambda old: old.with_status(status), patience)
        self.register(me)

    def statuses(self) -> dict[str, str]:
        return {state.name: state.status for state in states(self.folder)}

    def letter(
        self, message: AgentMessage, owner: str, about: Mapping[str, str] | None = None
    ) -> AgentLetter:
        """Return a message in the mailbox of `owner` with its details; `about` if they were read already."""
        box = self.box(owner)
        about = box.about(message.id) if about is None else about
        thread, reply_to, seal = (str(about.get(k) or "") for k in ("thread", "reply_to", SEAL))
        is_delivered = box.last_notice() >= (seconds(message.created) or 0.0) > 0
        state = "delivered" if is_delivered else "queued"
        if seal and box.copies(message.id) > 1:
            seal = ""  # another program has copied the message: it proves nothing for the copy
        state = "read" if message.read else state
        return AgentLetter(message, thread or message.id, reply_to, state, seal)

    def history(self, me: AgentCaller, id: str = "") -> Iterator[AgentMessage]:
        """Yield the messages to and from this agent, mailbox by mailbox; with `id`, only likely ones."""
        for name in dict.fromkeys([me.name, *self.folder.names()]):
            is_own = name == me.name
            try:
                with error_context("failed to read messages"):
                    found = self.box(name).messages(id or ("" if is_own else me.name))
            except PostroomError:
                if is_own:
                    raise
                continue  # another agent's broken mailbox is not this agent's trouble
            yield from (one for one in found if one.to == name and me.name in (one.to, one.sender))

    def find(self, me: AgentCaller, id: str) -> AgentMessage:
        for message in self.history(me, id):
            if message.id == id:
                return message
        raise NotFound(
            "There is no message of that id to you or from you",
            remedy="What was read long ago may have been cleaned up; search_messages lists the rest.",
        )


@contextmanager
def error_context(doing: str) -> Iterator[None]:
    """Put `doing`, the original's words for what failed, in front of the message of any error in the block."""
    try:
        yield
    except OSError as why:
        place = f"open {why.filename}: " if why.filename else ""
        reason = (why.strerror or str(why)).lower()
        raise Unavailable(f"{doing}: {place}{reason}") from why
    except PostroomError as why:
        if not why.message.startswith(doing):
            why.message = f"{doing}: {why.message}"
        raise


class CleanupCounts(NamedTuple):
    offline: int = 0
    stale: int = 0
    messages: int = 0
    mailboxes: int = 0

    def describe(self, *, dry_run: bool) -> str:
        head = "Cleanup preview (dry-run):" if dry_run else "Cleanup complete:"
        word = "to remove" if dry_run else "removed"
        states = f"{self.offline + self.stale} ({self.offline} offline, {self.stale} stale)"
        counts = {"Recipients": states, "Messages": self.messages, "Mailboxes": self.mailboxes}
        return "\n".join([head, *(f"  {of} {word}: {n}" for of, n in counts.items()), ""])


def cleanup(
    cwd: str,
    environ: Mapping[str, str],
    stale_hours: int,
    delivered_hours: int,
    *,
    dry_run: bool,
    err: Warn,
) -> CleanupCounts:
    """Remove agents that are gone, and messages that were read, in the folder `cwd`. A `dry_run` changes nothing.

    An empty mailbox is not unlinked: a program that has it open would write its next message to a file nobody finds.
    """
    folder = MailFolder(cwd)
    folder.check()
    present = _present(folder, environ, err)
    if not os.path.isdir(folder.path):
        root = find(cwd)
        if root and os.path.isdir(root.path):
            err(f"Note: this folder has no agent mail; that of the repository is in {root.root}")
        return CleanupCounts()
    now = time.time()
    gone = _clean_states(folder, present, now - stale_hours * 3600, dry_run=dry_run)
    messages = mailboxes = 0
    for name in folder.names():
        try:
            box = AgentMailbox(folder, name)
            removed, is_emptied, damaged = box.clean(now - delivered_hours * 3600, dry_run=dry_run)
            messages += removed
            mailboxes += is_emptied
            if damaged:
                lines = f"{damaged} lines that are not messages; they stay as they are"
                err(f"Note: {box.path} has {lines}")
        except (OSError, PostroomError) as why:
            err(f"Error cleaning mailbox {name}: {getattr(why, 'strerror', None) or why}")
    if not dry_run:
        used = roster.registered(folder, lasts=stale_hours * 3600)
        for name in roster.registered(folder, lasts=float("inf")).keys() - used.keys():
            os.unlink(os.path.join(folder.own_files, f"{name}.agent"))
    return CleanupCounts(gone.count("offline"), gone.count("stale"), messages, mailboxes)


def _present(folder: MailFolder, environ: Mapping[str, str], err: Warn) -> set[str] | None:
    """Return the names of the agents that are present; None if tmux cannot tell."""
    if not environ.get("TMUX"):
        err("Warning: not running in tmux session, skipping offline recipient check")
        return None
    try:
        windows = tmux.windows(tmux.panes("", environ))
    except Unavailable as why:
        err(f"Warning: failed to list tmux windows: {why.message}")
        return None
    named = roster.registered(folder).items()
    return {*windows, *(name for name, about in named if not about.get("pane"))}


def _clean_states(
    folder: MailFolder, present: set[str] | None, oldest: float, *, dry_run: bool
) -> list[str]:
    """Drop the states of agents that are gone, or silent since `oldest`; return "offline" or "stale" for each."""
    gone: list[str] = []

    def decide(known: States) -> States:
        kept = []
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
    return gone
