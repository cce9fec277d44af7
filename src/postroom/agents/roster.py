"""Which agent calls, which agents there are, and how a reader can tell the person's messages.

In tmux an agent's name is its window's. Elsewhere the person gives it, in AGENTMAIL_NAME or on the
command line; it is then kept beside the mailboxes so that others can find it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from postroom.agents import tmux
from postroom.agents.files import content
from postroom.agents.folder import NO_ROOT, PERSON, MailFolder, states
from postroom.agents.record import AgentMessage
from postroom.core.errors import Denied, Invalid, NotFound, Unavailable
from postroom.store.files import replace

NAME: Final = "AGENTMAIL_NAME"
LONGEST: Final = 64
ENDING: Final = ".agent"
LASTS: Final = 48 * 3600  # seconds that a name is known after it was last used
UNPROVEN: Final = "(not proven to be the person)"
_PANE: Final = re.compile(r"%\d+", re.ASCII)


class NotInTmux(Denied):
    """Neither tmux nor a name tells which agent calls."""


class AgentCaller(NamedTuple):
    """The agent that calls; in tmux with its pane, and all windows of the session."""

    name: str
    pane: str = ""
    windows: tuple[str, ...] | None = None


def identify(environ: Mapping[str, str], given: str = "", otherwise: str = "") -> AgentCaller:
    """Return which agent calls: by its tmux window, or without tmux by the first name of these."""
    if environ.get("TMUX"):
        return _in_tmux(environ)
    name = given or environ.get(NAME, "") or otherwise
    if not name:
        raise NotInTmux(
            "agentmail must run inside a tmux session",
            remedy=f"Outside tmux, set {NAME} to this agent's name, or start the server with --agent.",
        )
    return AgentCaller(check_name(name))


def person(environ: Mapping[str, str]) -> AgentCaller:
    """Return the person, with the windows of the session that they sit in, if they do."""
    windows = None
    if environ.get("TMUX") and _PANE.fullmatch(environ.get("TMUX_PANE", "")):
        windows = tuple(tmux.windows(tmux.panes(environ["TMUX_PANE"], environ)))
    return AgentCaller(PERSON, windows=windows)


def _in_tmux(environ: Mapping[str, str]) -> AgentCaller:
    pane = environ.get("TMUX_PANE", "")
    if not _PANE.fullmatch(pane):
        why = "contains invalid format" if pane else "environment variable not set"
        raise Unavailable(f"failed to get current window: TMUX_PANE {why}")
    try:
        panes = tmux.panes(pane, environ)
    except Unavailable as why:
        if "can't find" in why.message:
            raise Unavailable("current window '' not found in tmux session") from why
        raise Unavailable(f"failed to get current window: {why.message}") from why
    names = {one.name.strip() for one in panes if one.id == pane}
    if len(names) > 1:  # a window whose name has line ends, made to look like rows
        raise Unavailable("failed to get current window: a window's name has a line end in it")
    name = next(iter(names), "")
    if resembles_person(name):
        raise Denied(
            f"the window is called {name!r}, which is the person's own name",
            remedy="Give it another name: `tmux rename-window NAME`.",
        )
    return AgentCaller(name, pane, tuple(tmux.windows(panes)))


def check_name(name: str) -> str:
    """Return a name that may be an agent's, or refuse it."""
    is_visible = 0 < len(name) <= LONGEST and name.isprintable() and name == name.strip()
    if not name.isascii():
        from postroom.core.text import one_line

        is_visible = is_visible and one_line(name) == name
    if not is_visible or "/" in name or name.startswith(".") or resembles_person(name):
        raise Invalid(
            f"a name has 1 to {LONGEST} printable characters, no slash, no dot in front, and is not"
            f" {PERSON!r}",
            remedy=f"Choose another, in {NAME} or for --as or --agent.",
        )
    return name


def resembles_person(name: str) -> bool:
    """Whether a reader could take this name for the person's."""
    if name.isascii() and "p" not in name.casefold():  # most names: spare the import
        return False
    from postroom.core.lookalike import reads_as

    return any(reads_as(each, (PERSON,)) for each in (name, re.sub(r"\d", "", name)))


# Names that are kept


def register(folder: MailFolder, me: AgentCaller, socket: str = "") -> None:
    """Remember that this name is used here, and in which pane."""
    about = {"pane": me.pane, "socket": socket} if me.pane else {}
    text = json.dumps({"name": me.name, **about}).encode()
    folder.make()
    path = folder.beside(me.name, ENDING[1:])
    if content(path) == text:
        os.utime(path, follow_symlinks=False)
    else:
        replace(path, text, 0o600)


def registered(folder: MailFolder, *, lasts: float = LASTS) -> dict[str, dict[str, Any]]:
    """Return the names that were used here lately, and what is known of each."""
    try:
        files = sorted(name for name in os.listdir(folder.own_files) if name.endswith(ENDING))
    except OSError:
        return {}
    return _registered(folder, (name.removesuffix(ENDING) for name in files), lasts)


def _registered(
    folder: MailFolder, names: Iterable[str], lasts: float = LASTS
) -> dict[str, dict[str, Any]]:
    known = {}
    for name in names:
        path = os.path.join(folder.own_files, f"{name}{ENDING}")
        try:
            about = json.loads(content(path, 10_000))
            is_recent = time.time() - os.lstat(path).st_mtime < lasts
        except (OSError, ValueError, RecursionError):
            continue
        if is_recent and isinstance(about, dict) and about.get("name") == name:
            known[name] = about
    return known


def forget(folder: MailFolder, name: str) -> None:
    """Drop a name."""
    path = os.path.join(folder.own_files, f"{name}{ENDING}")
    if "/" not in name and os.path.lexists(path):
        os.unlink(path)


# Names that one can write to


def is_known(folder: MailFolder | None, me: AgentCaller, name: str) -> bool:
    """Whether `everybody` has this name; for most names, without reading all others'."""
    if name in (me.windows or ()):
        return True
    about = _registered(folder, [name]).get(name) if folder and "/" not in name else None
    if about is not None and (me.windows is None or not about.get("pane")):
        return True
    return name in everybody(folder, me)


def everybody(folder: MailFolder | None, me: AgentCaller) -> list[str]:
    """Return all names that there are, as this caller sees them, its own among them."""
    kept = registered(folder) if folder else {}
    if me.windows is not None:
        named = [name for name, about in kept.items() if not about.get("pane")]
        return [*me.windows, *(name for name in named if name not in me.windows)]
    if folder is None:
        raise NotFound(
            NO_ROOT, remedy="Agents that write to each other work in one git repository."
        )
    # Without tmux to ask, every agent that has set a status here.
    present = [state.name for state in states(folder) if state.status != "offline"]
    return sorted({*kept, *present, me.name} - ({PERSON} if PERSON not in kept else set()))


# The person's messages, sealed with a key that only the person has


def describe_sender(sender: str, *, proven: bool) -> str:
    """Return the sender of a message as its reader sees it."""
    from postroom.core.text import one_line

    name = one_line(sender)
    return f"{name} {UNPROVEN}" if resembles_person(sender) and not proven else name


def seal(key: bytes, root: str, message: AgentMessage) -> str:
    """Return the seal of a message in this repository."""
    import hashlib
    import hmac

    about = [os.path.realpath(root), message.id, message.to, message.created, message.text]
    words = json.dumps(about).encode()
    return hmac.new(key, b"postroom voice\n" + words, hashlib.sha256).hexdigest()


def is_sealed(key: bytes, root: str, message: AgentMessage, given: str) -> bool:
    """Whether this is the person's seal of this message."""
    from hmac import compare_digest

    if not key or not given:
        return False
    return compare_digest(seal(key, root, message).encode(), given.encode("utf-8", "replace"))
