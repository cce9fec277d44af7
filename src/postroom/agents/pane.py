"""A tmux pane: what it shows, whether one may type there, and typing one line into it.

Nothing that a person has begun is typed over.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from postroom.agents import tmux
from postroom.agents.tmux import Pane
from postroom.core.text import one_line

NUDGE: Final = "Check your agentmail"
STILL: Final = 0.5  # seconds in which a pane at rest does not change
TYPING: Final = 5.0  # seconds since the last key of a person who looks at the pane
ACCEPTED: Final = 3.0  # seconds that a program has to show, and to accept, a typed line
STEP: Final = 0.1
SETTLE: Final = 0.2
BORDERS: Final = " │┃|╎┆\t"
SHELLS: Final = frozenset("sh bash zsh fish dash ksh mksh tcsh csh nu elvish xonsh pwsh".split())

_CODES: Final = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
# What stands after the first of these, with a blank behind it, is typed. A prompt that ends in `:`
# asks for something else than a line to work on.
_PROMPT: Final = re.compile(r"[>❯›»$#%λ➜](?:\s|$)")
_INPUT: Final = re.compile(r"\s*[│┃|]?\s?[>❯›](?:\s(.*))?")


class Screen(NamedTuple):
    """The rows of a pane as a person sees them, without dimmed text, and where the cursor is."""

    rows: tuple[str, ...]
    x: int
    y: int

    def input(self) -> str:
        """Return what the program's input holds, as far as that can be seen."""
        row = self.rows[self.y] if self.y < len(self.rows) else ""
        left, right = row[: self.x], row[self.x :]
        if left.strip(BORDERS) or right.strip(BORDERS):
            prompt = _PROMPT.search(left)
            return (left[prompt.end() if prompt else 0 :] + right).strip(BORDERS)
        # The cursor is parked elsewhere: the last row that looks like an input is it.
        inputs = [match for match in map(_INPUT.fullmatch, self.rows) if match]
        return (inputs[-1][1] or "").strip(BORDERS) if inputs else ""


def parse_screen(captured: str, x: int, y: int) -> Screen:
    """Return a screen from what tmux captures with its codes."""
    return Screen(tuple(map(_without_dimmed, captured.split("\n"))), x, y)


def _without_dimmed(row: str) -> str:
    """Return a row with blanks for what is dimmed: a program's own hint, not a person's words."""
    kept, at, is_dim = [], 0, False
    for code in _CODES.finditer(f"{row}\x1b[m"):
        piece = row[at : code.start()]
        kept.append(" " * len(piece) if is_dim else piece)
        at = code.end()
        if code[1] is not None:
            is_dim = _dims(code[1], is_dim)
    return "".join(kept)


def _dims(codes: str, is_dim: bool) -> bool:  # noqa: FBT001
    parts = iter(codes.split(";"))
    for code in parts:
        if code in ("38", "48"):  # a colour, whose numbers follow
            kind = next(parts, "")
            for _ in range({"5": 1, "2": 3}.get(kind, 0)):
                next(parts, "")
        elif code == "2":
            is_dim = True
        elif code in ("", "0", "22"):
            is_dim = False
    return is_dim


class PaneSnapshot(NamedTuple):
    """A pane at one moment."""

    screen: Screen
    in_mode: bool
    command: str


class PaneControl:
    """Looks at panes and types into them."""

    def __init__(self, environ: Mapping[str, str], stop: threading.Event) -> None:
        self._environ = environ
        self._stop = stop

    def _capture(self, pane: Pane) -> PaneSnapshot:
        head = "#{cursor_x} #{cursor_y} #{pane_in_mode} #{pane_current_command}"
        about = ["display-message", "-p", "-t", pane.id, head]
        words = [*about, ";", "capture-pane", "-p", "-e", "-t", pane.id]
        first, _, rest = tmux.run(words, self._environ).partition("\n")
        x, y, mode, command = first.split(" ", 3)
        return PaneSnapshot(parse_screen(rest, int(x), int(y)), mode not in ("", "0"), command)

    def _is_person_typing(self, pane: Pane) -> bool:
        """Whether a person who has this pane before them pressed a key just now."""
        rows = tmux.run(["list-clients", "-F", "#{client_activity} #{pane_id}"], self._environ)
        return any(
            row.endswith(f" {pane.id}") and time.time() - int(row.split()[0]) < TYPING
            for row in rows.splitlines()
        )

    def reason_to_wait(self, pane: Pane, *, is_ready: bool) -> str:
        """Return why one may not type there now; nothing where one may.

        `is_ready`: the agent itself has set its status to ready, so that a shell in front is its own.
        """
        if pane.dead or pane.in_mode or pane.synchronized:
            return "its pane is not taking input of its own"
        if self._is_person_typing(pane):
            return "somebody is typing there"
        before = self._capture(pane)
        if self._stop.wait(STILL):
            return "the mailman ends"
        after = self._capture(pane)
        if before != after or after.in_mode:
            return "it is at work"
        if after.screen.input():
            return "something is typed there already"
        if not is_ready and after.command.lstrip("-") in SHELLS:
            return f"{one_line(after.command)} is in front, and no agent has said that it is ready"
        return ""

    def nudge(self, pane: Pane) -> str:
        """Type the line and have it accepted; return what went wrong, if anything."""
        tmux.run(["send-keys", "-t", pane.id, "-l", "--", NUDGE], self._environ)
        if not self._wait_for_input(pane, lambda typed: typed == NUDGE):
            return "it does not show what is typed, or somebody typed at the same time"
        time.sleep(SETTLE)  # some programs take an Enter that comes with the text for pasted
        for _ in range(2):
            if self._capture(pane).screen.input() != NUDGE:
                return "somebody typed at the same time: the line was left as it is"
            tmux.run(["send-keys", "-t", pane.id, "Enter"], self._environ)
            if self._wait_for_input(pane, lambda typed: NUDGE not in typed):
                return ""
        return "it did not take the line"

    def _wait_for_input(self, pane: Pane, fits: Callable[[str], bool]) -> bool:
        for _ in range(int(ACCEPTED / STEP)):
            if fits(self._capture(pane).screen.input()):
                return True
            time.sleep(STEP)  # also where the mailman is to end: no line is left half done
        return False
