"""Who can be disturbed: the states of agents, in a file that others read without a lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from postroom.agents.files import PATIENCE, append, content, locked, read_all, replace_all
from postroom.agents.folder import Folder
from postroom.agents.record import ZERO, State, now, read_state, write_state
from postroom.core.errors import Unavailable

LARGEST: Final = 1_000_000  # bytes


def states(folder: Folder) -> list[State]:
    """Return the states in the order of the file; lines that are none are left out."""
    return [state for state in map(read_state, content(folder.states).split(b"\n")) if state]


def change(
    folder: Folder, decide: Callable[[list[State]], list[State]], patience: float = PATIENCE
) -> None:
    """Replace the states by others; a line that is none is set aside, else the original reads nothing."""
    folder.make()
    with locked(folder.states, patience=patience) as handle:
        if os.fstat(handle).st_size > LARGEST:
            raise Unavailable(f"{folder.states} is too large to be one of ours")
        data = read_all(handle)
        lines = [line for line in data.split(b"\n") if line]
        found = [(line, read_state(line)) for line in lines]
        torn = [line for line, state in found if state is None]
        if torn:
            lost = b"".join(line + b"\n" for line in torn)
            append(os.path.join(folder.ours, "recipients.torn"), lost)
        new = b"".join(map(write_state, decide([state for _, state in found if state])))
        if new != data:
            replace_all(handle, new)


def set_status(folder: Folder, name: str, status: str, patience: float = PATIENCE) -> None:
    """Set an agent's status; one that is busy or gone may be nudged at once when it is ready again."""

    def decide(found: list[State]) -> list[State]:
        def new(old: State) -> State:
            notified = old.notified if status == "ready" else ZERO
            return old._replace(status=status, updated=now(), notified=notified)

        return _with(found, name, new)

    change(folder, decide, patience)


def was_read(folder: Folder, name: str, milliseconds: int, patience: float = PATIENCE) -> None:
    """Remember when an agent last read; one that has no state yet is ready."""

    def new(old: State) -> State:
        fresh = old if old.status else old._replace(status="ready", updated=now())
        return fresh._replace(last_read=milliseconds)

    change(folder, lambda found: _with(found, name, new), patience)


def was_notified(folder: Folder, name: str) -> None:
    """Remember when an agent was last nudged, if it has a state."""

    def decide(found: list[State]) -> list[State]:
        if not any(state.name == name for state in found):
            return found
        return _with(found, name, lambda old: old._replace(notified=now()))

    change(folder, decide)


def _with(found: list[State], name: str, new: Callable[[State], State]) -> list[State]:
    """Return the states with one of them changed: the first of its name, or another at the end."""
    for at, state in enumerate(found):
        if state.name == name:
            return [*found[:at], new(state), *found[at + 1 :]]
    return [*found, new(State(name))]
