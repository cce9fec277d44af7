"""Who is who: the name of the one who calls, and whom they can write to.

In tmux a name is a window's. Elsewhere it is given by the person, in AGENTMAIL_NAME or on the command
line, and kept beside the mailboxes so that others can find it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from postroom.agents import tmux
from postroom.agents.files import content
from postroom.agents.folder import NO_ROOT, PERSON, Folder
from postroom.agents.states import states
from postroom.core.errors import Denied, Invalid, NotFound, Unavailable
from postroom.store.files import replace

NAME: Final = "AGENTMAIL_NAME"
LONGEST: Final = 64
ENDING: Final = ".agent"
LASTS: Final = 48 * 3600  # seconds that a name is known after it was last used
_PANE: Final = re.compile(r"%\d+", re.ASCII)


class Outside(Denied):
    """Neither tmux nor a name tells who calls."""


class Me(NamedTuple):
    """Who calls; in tmux with their pane, and all windows of the session."""

    name: str
    pane: str = ""
    windows: tuple[str, ...] | None = None


def whoami(environ: Mapping[str, str], given: str = "", otherwise: str = "") -> Me:
    """Return who calls: by the window that it happens in, or by a name where there is no tmux."""
    if environ.get("TMUX"):
        return _in_tmux(environ)
    name = given or environ.get(NAME, "") or otherwise
    if not name:
        raise Outside(
            "agentmail must run inside a tmux session",
            remedy=f"Outside tmux, set {NAME} to this agent's name, or start the server with --agent.",
        )
    return Me(checked(name))


def person(environ: Mapping[str, str]) -> Me:
    """Return the person, who sees the windows of the session that they sit in, if they do."""
    windows = None
    if environ.get("TMUX") and _PANE.fullmatch(environ.get("TMUX_PANE", "")):
        windows = tuple(tmux.windows(tmux.panes(environ["TMUX_PANE"], environ)))
    return Me(PERSON, windows=windows)


def _in_tmux(environ: Mapping[str, str]) -> Me:
    pane = environ.get("TMUX_PANE", "")
    if not _PANE.fullmatch(pane):
        why = "contains invalid format" if pane else "environment variable not set"
        raise Unavailable(f"failed to get current window: TMUX_PANE {why}")
    try:
        found = tmux.panes(pane, environ)
    except Unavailable as why:
        if "can't find" in why.message:
            raise Unavailable("current window '' not found in tmux session") from why
        raise Unavailable(f"failed to get current window: {why.message}") from why
    names = {one.name.strip() for one in found if one.id == pane}
    if len(names) > 1:  # a window whose name has line ends, made to look like rows
        raise Unavailable("failed to get current window: a window's name has a line end in it")
    name = next(iter(names), "")
    if like_person(name):
        raise Denied(
            f"the window is called {name!r}, which is the person's own name",
            remedy="Give it another name: `tmux rename-window NAME`.",
        )
    return Me(name, pane, tuple(tmux.windows(found)))


def checked(name: str) -> str:
    """Return a name that may be an agent's, or say what is wrong with it."""
    shown = 0 < len(name) <= LONGEST and name.isprintable() and name == name.strip()
    if not name.isascii():
        from postroom.core.text import one_line

        shown = shown and one_line(name) == name  # nothing that the eye does not see
    if not shown or "/" in name or name.startswith(".") or like_person(name):
        raise Invalid(
            f"a name has 1 to {LONGEST} printable characters, no slash, no dot in front, and is not"
            f" {PERSON!r}",
            remedy=f"Choose another, in {NAME} or for --as or --agent.",
        )
    return name


def like_person(name: str) -> bool:
    """Whether a reader could take this name for the person's."""
    if name.isascii() and "p" not in name.casefold():  # most are: spare the import
        return False
    from postroom.core.lookalike import reads_as

    return any(reads_as(each, (PERSON,)) for each in (name, re.sub(r"\d", "", name)))


# Names that are kept


def register(folder: Folder, me: Me, socket: str = "") -> None:
    """Remember that this name is used here, and in which pane."""
    about = {"pane": me.pane, "socket": socket} if me.pane else {}
    text = json.dumps({"name": me.name, **about}).encode()
    folder.make()
    path = folder.beside(me.name, ENDING[1:])
    if content(path) == text:
        os.utime(path, follow_symlinks=False)
        return
    replace(path, text, 0o600)


def registered(folder: Folder, *, lasts: float = LASTS) -> dict[str, dict[str, Any]]:
    """Return the names that were used here lately, and what is known of each."""
    try:
        files = sorted(name for name in os.listdir(folder.ours) if name.endswith(ENDING))
    except OSError:
        return {}
    found = {}
    for file in files:
        name, path = file.removesuffix(ENDING), os.path.join(folder.ours, file)
        try:
            about = json.loads(content(path, 10_000))
            fresh = time.time() - os.lstat(path).st_mtime < lasts
        except (OSError, ValueError, RecursionError):
            continue
        if fresh and isinstance(about, dict) and about.get("name") == name:
            found[name] = about
    return found


def forget(folder: Folder, name: str) -> None:
    """Drop a name."""
    path = os.path.join(folder.ours, f"{name}{ENDING}")
    if "/" not in name and os.path.lexists(path):
        os.unlink(path)


# Whom one can write to


def known(folder: Folder | None, me: Me, name: str) -> bool:
    """Whether `everybody` has this name; of a window, without asking after all others."""
    return name in (me.windows or ()) or name in everybody(folder, me)


def everybody(folder: Folder | None, me: Me) -> list[str]:
    """Return all names that there are, as this one sees them, their own among them."""
    kept = registered(folder) if folder else {}
    if me.windows is not None:
        named = [name for name, about in kept.items() if not about.get("pane")]
        return [*me.windows, *(name for name in named if name not in me.windows)]
    if folder is None:
        raise NotFound(
            NO_ROOT, remedy="Agents that write to each other work in one git repository."
        )
    # Without tmux to ask, whoever has said something here.
    present = [state.name for state in states(folder) if state.status != "offline"]
    return sorted({*kept, *present, me.name} - ({PERSON} if PERSON not in kept else set()))
