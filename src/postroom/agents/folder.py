"""`.agentmail/` of a repository: its folders, its mailboxes' names, and the states of its agents."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final

from postroom.agents.files import PATIENCE, SMALL, append, content, locked, overwrite, read_all
from postroom.agents.record import ZERO, AgentState, now, read_state, write_state
from postroom.core.errors import Denied, Invalid, NotFound, Unavailable
from postroom.store.files import create

NO_ROOT: Final = "not in a git repository: not in a git repository"
PERSON: Final = "person"  # whose name no agent has

States = list[AgentState]


class MailFolder:
    """`.agentmail` of one repository."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.path = os.path.join(root, ".agentmail")
        self.boxes = os.path.join(self.path, "mailboxes")
        self.own_files = os.path.join(self.path, "postroom")
        self.states = os.path.join(self.path, "recipients.jsonl")
        self.pid = os.path.join(self.path, "mailman.pid")

    def check(self) -> MailFolder:
        """Return the folder, unless a link leads elsewhere: a repository may be a stranger's."""
        self._missing()
        return self

    def make(self) -> None:
        """Make the folders that are missing."""
        for path in self._missing():
            try:
                os.mkdir(path, 0o750)
            except FileExistsError:
                continue
            if path == self.path:  # messages are no part of the repository's history
                create(os.path.join(path, ".gitignore"), b"*\n", 0o600)

    def _missing(self) -> list[str]:
        missing = []
        for path in (self.path, self.boxes, self.own_files):
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                missing.append(path)
                continue
            except OSError as error:
                raise Unavailable(f"{path}: {error.strerror}") from error
            if not stat.S_ISDIR(mode):
                raise Denied(f"{path} is not a folder of its own", remedy="Remove it.")
        return missing

    def box(self, name: str) -> str:
        """Return the file of a mailbox."""
        cleaned = os.path.normpath(f"{name}.jsonl")
        if cleaned.startswith(("..", "/")) or "\0" in name:
            raise Invalid("invalid path: directory traversal detected")
        path = os.path.join(self.boxes, f"{name}.jsonl")
        if "/" in name:  # the original makes no folder for it
            raise NotFound(f"open {path}: no such file or directory")
        return path

    def can_have(self, name: str) -> bool:
        """Whether there can be a mailbox of this name: one with a slash has none."""
        return "/" not in name or name.startswith("..")

    def beside(self, name: str, ending: str) -> str:
        """Return a file of ours that belongs to a mailbox."""
        self.box(name)
        return os.path.join(self.own_files, f"{name}.{ending}")

    def names(self) -> list[str]:
        """Return the names that have a mailbox."""
        try:
            files = os.listdir(self.boxes)
        except OSError:
            return []
        return sorted(name.removesuffix(".jsonl") for name in files if name.endswith(".jsonl"))

    def ignored(self) -> frozenset[str]:
        """Return the names that nobody may write to."""
        data = content(os.path.join(self.root, ".agentmailignore"))
        lines = data.decode("utf-8", "replace").split("\n")
        return frozenset(filter(None, map(str.strip, lines)))


def find(start: str) -> MailFolder | None:
    """Return the agent mail of the repository that a folder is in."""
    here = os.path.abspath(start)
    while not os.path.lexists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above
    return MailFolder(here)


# Which agents may be disturbed: a file that others read without a lock


def states(folder: MailFolder) -> States:
    """Return the states in the order of the file; lines that are none are left out."""
    return [state for state in map(read_state, content(folder.states).split(b"\n")) if state]


def change_states(
    folder: MailFolder, decide: Callable[[States], States], patience: float = PATIENCE
) -> None:
    """Replace the states; a line that is none is set aside, or the original could read nothing."""
    folder.make()
    with locked(folder.states, patience=patience) as handle:
        if os.fstat(handle).st_size > SMALL:
            raise Unavailable(f"{folder.states} is too large to be one of ours")
        data = read_all(handle)
        lines = [(line, read_state(line)) for line in data.split(b"\n") if line]
        if torn := [line + b"\n" for line, state in lines if state is None]:
            append(os.path.join(folder.own_files, "recipients.torn"), b"".join(torn))
        new = b"".join(map(write_state, decide([state for _, state in lines if state])))
        if new != data:
            overwrite(handle, new)


def set_status(folder: MailFolder, name: str, status: str, patience: float = PATIENCE) -> None:
    """Set an agent's status; one that is busy or gone may be nudged at once when it is ready again."""

    def update(old: AgentState) -> AgentState:
        notified = old.notified if status == "ready" else ZERO
        return old._replace(status=status, updated=now(), notified=notified)

    change_states(folder, lambda known: _with(known, name, update), patience)


def record_read(
    folder: MailFolder, name: str, milliseconds: int, patience: float = PATIENCE
) -> None:
    """Remember when an agent last read; one that has no state yet becomes ready."""

    def update(old: AgentState) -> AgentState:
        state = old if old.status else old._replace(status="ready", updated=now())
        return state._replace(last_read=milliseconds)

    change_states(folder, lambda known: _with(known, name, update), patience)


def record_nudge(folder: MailFolder, name: str) -> None:
    """Remember when an agent was last nudged, if it has a state."""

    def decide(known: States) -> States:
        has_state = any(state.name == name for state in known)
        return _with(known, name, lambda old: old._replace(notified=now())) if has_state else known

    change_states(folder, decide)


def _with(known: States, name: str, update: Callable[[AgentState], AgentState]) -> States:
    """Return the states with one of them updated: the first of its name, or another at the end."""
    for at, state in enumerate(known):
        if state.name == name:
            return [*known[:at], update(state), *known[at + 1 :]]
    return [*known, update(AgentState(name))]
