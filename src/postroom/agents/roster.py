"""Which agent calls, which agents there are and can be disturbed, and how to tell the person's messages.

In tmux an agent's name is its window's. Elsewhere the person gives it, in AGENTMAIL_NAME or on the
command line; it is then kept beside the mailboxes so that others can find it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from postroom.agents import folder as files
from postroom.agents import tmux
from postroom.agents.folder import PATIENCE, SMALL, MailFolder, content
from postroom.agents.record import AgentMessage, AgentState, read_state, write_state
from postroom.core.errors import Denied, Invalid, NotFound, Unavailable
from postroom.store.files import replace

NAME_VARIABLE: Final = "AGENTMAIL_NAME"  # the environment variable with an agent's name
PERSON: Final = "person"  # the person's name, which no agent may have
NO_WINDOW: Final = "current window '' not found in tmux session"
MAX_NAME: Final = 64  # characters
NAME_LIFETIME: Final = 48 * 3600  # seconds that a name is known after it was last used

States = list[AgentState]


class NotInTmux(Denied):
    """The caller is not in tmux and has no name, so it is not known which agent it is."""


class AgentCaller(NamedTuple):
    """The agent that calls; in tmux with its pane and the names of all windows of its session."""

    name: str
    pane: str = ""
    windows: tuple[str, ...] | None = None


def identify(environ: Mapping[str, str], given: str = "", otherwise: str = "") -> AgentCaller:
    """Return which agent calls; outside tmux, `NotInTmux` if neither `given`, the environment nor `otherwise` has a name."""
    if environ.get("TMUX"):
        return _in_tmux(environ)
    name = given or environ.get(NAME_VARIABLE, "") or otherwise
    remedy = (
        f"Outside tmux, set {NAME_VARIABLE} to this agent's name, or start the server with --agent."
    )
    if not name:
        raise NotInTmux("agentmail must run inside a tmux session", remedy=remedy)
    return AgentCaller(check_name(name))


def person(environ: Mapping[str, str]) -> AgentCaller:
    windows = None
    if environ.get("TMUX") and _is_pane(environ.get("TMUX_PANE", "")):
        windows = tuple(tmux.windows(tmux.panes(environ["TMUX_PANE"], environ)))
    return AgentCaller(PERSON, windows=windows)


def _is_pane(id: str) -> bool:
    return re.fullmatch("%[0-9]+", id) is not None


def _in_tmux(environ: Mapping[str, str]) -> AgentCaller:
    # The caller is named after the window of its pane, which TMUX_PANE names.
    pane = environ.get("TMUX_PANE", "")
    why = "contains invalid format" if pane else "environment variable not set"
    failed = "failed to get current window:"
    if not _is_pane(pane):
        raise Unavailable(f"{failed} TMUX_PANE {why}")
    try:
        panes = tmux.panes(pane, environ)
    except Unavailable as why:
        is_gone = "can't find" in why.message
        raise Unavailable(NO_WINDOW if is_gone else f"{failed} {why.message}") from why
    names = {one.name.strip() for one in panes if one.id == pane}
    # A window whose name has line ends may be made to look like rows.
    if len(names) > 1:
        raise Unavailable(f"{failed} a window's name has a line end in it")
    name = next(iter(names), "")
    if resembles_person(name):
        raise Denied(
            f"the window is called {name!r}, which is the person's own name",
            remedy="Give it another name: `tmux rename-window NAME`.",
        )
    return AgentCaller(name, pane, tuple(tmux.windows(panes)))


def check_name(name: str) -> str:
    is_visible = 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip()
    if not name.isascii():
        from postroom.core.text import one_line

        is_visible = is_visible and one_line(name) == name
    is_plain = is_visible and "/" not in name and not name.startswith(".")
    if not is_plain or resembles_person(name):
        raise Invalid(
            f"a name has 1 to {MAX_NAME} printable characters, no slash, no dot in front, and is not {PERSON!r}",
            remedy=f"Choose another, in {NAME_VARIABLE} or for --as or --agent.",
        )
    return name


def resembles_person(name: str) -> bool:
    """Whether a reader could take this name for the person's."""
    if name.isascii() and "p" not in name.casefold():  # most names: spare the import
        return False
    from postroom.core.text import reads_as

    return any(reads_as(each, (PERSON,)) for each in (name, re.sub(r"\d", "", name)))


def register(folder: MailFolder, me: AgentCaller, socket: str = "") -> None:
    """Record that this name is used in the repository; in tmux also the pane and tmux's `socket`."""
    about = {"pane": me.pane, "socket": socket} if me.pane else {}
    text = json.dumps({"name": me.name, **about}).encode()
    folder.make()
    path = folder.beside(me.name, "agent")
    if content(path) == text:
        os.utime(path, follow_symlinks=False)
    else:
        replace(path, text, 0o600)


def registered(folder: MailFolder, *, lasts: float = NAME_LIFETIME) -> dict[str, dict[str, Any]]:
    """Return the record of each name that was used in the last `lasts` seconds."""
    known = {}
    for name in files.list_names(folder.own_files, ".agent"):
        path = os.path.join(folder.own_files, f"{name}.agent")
        try:
            about = json.loads(content(path, 10_000))
            is_recent = time.time() - os.lstat(path).st_mtime < lasts
        except (OSError, ValueError, RecursionError):
            continue
        if is_recent and isinstance(about, dict) and about.get("name") == name:
            known[name] = about
    return known


def everybody(folder: MailFolder | None, me: AgentCaller) -> list[str]:
    """Return the names of all agents that this caller can see, with its own.

    In tmux: its session's windows, and the agents outside tmux. Elsewhere: all registered names, and those with a
    status other than offline. Raises `NotFound` outside of a repository if there is no tmux either.
    """
    kept = registered(folder) if folder else {}
    if me.windows is not None:
        named = [name for name, about in kept.items() if not about.get("pane")]
        return [*me.windows, *(name for name in named if name not in me.windows)]
    if folder is None:
        remedy = "Agents that write to each other work in one git repository."
        raise NotFound(files.NO_ROOT, remedy=remedy)
    present = [state.name for state in states(folder) if state.status != "offline"]
    return sorted({*kept, *present, me.name} - ({PERSON} if PERSON not in kept else set()))


def states(folder: MailFolder) -> States:
    """Return the states in the order of the file, without the lines that are not a valid state."""
    return [state for state in map(read_state, content(folder.states).split(b"\n")) if state]


def change_states(
    folder: MailFolder, decide: Callable[[States], States], patience: float = PATIENCE
) -> None:
    """Replace the states in the file, which others read without a lock, by what `decide` returns for them.

    Lines that are not a valid state move to another file: the original program fails on such a line.
    """
    folder.make()
    with files.locked(folder.states, patience=patience) as handle:
        if os.fstat(handle).st_size > SMALL:
            raise Unavailable(f"{folder.states} is too large to be one of ours")
        data = files.read_all(handle)
        lines = [(line, read_state(line)) for line in data.split(b"\n") if line]
        if torn := [line + b"\n" for line, state in lines if state is None]:
            files.append(os.path.join(folder.own_files, "recipients.torn"), b"".join(torn))
        new = b"".join(map(write_state, decide([state for _, state in lines if state])))
        if new != data:
            files.overwrite(handle, new)


def change_state(
    folder: MailFolder,
    name: str,
    update: Callable[[AgentState], AgentState],
    patience: float = PATIENCE,
) -> None:
    """Replace the first state of this name by what `update` returns; add a new state only if that has a status."""

    def decide(known: States) -> States:
        at = next((at for at, state in enumerate(known) if state.name == name), len(known))
        state = update(known[at] if at < len(known) else AgentState(name))
        is_kept = at < len(known) or state.status
        return [*known[:at], state, *known[at + 1 :]] if is_kept else known

    change_states(folder, decide, patience)


def describe_sender(sender: str, *, proven: bool) -> str:
    """Return the sender's name for display; without proof, a name like the person's gets a warning after it."""
    from postroom.core.text import one_line

    is_doubtful = resembles_person(sender) and not proven
    return f"{one_line(sender)}{' (not proven to be the person)' if is_doubtful else ''}"


def seal(key: bytes, root: str, message: AgentMessage) -> str:
    """Return the proof that a message is the person's, by the key that only the person has."""
    import hmac

    about = [os.path.realpath(root), message.id, message.to, message.created, message.text]
    words = json.dumps(about).encode()
    return hmac.digest(key, b"postroom voice\n" + words, "sha256").hex()


def is_sealed(key: bytes, root: str, message: AgentMessage, given: str) -> bool:
    from hmac import compare_digest

    expected = seal(key, root, message).encode()
    return bool(key) and compare_digest(expected, given.encode("utf-8", "replace"))
