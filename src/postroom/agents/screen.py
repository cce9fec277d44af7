"""What a pane shows, and whether one may type there: nothing that a person has begun is typed over."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NUDGE: Final = "Check your agentmail"
BORDERS: Final = " │┃|╎┆\t"
SHELLS: Final = frozenset("sh bash zsh fish dash ksh mksh tcsh csh nu elvish xonsh pwsh".split())

_CODES: Final = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
# What stands after the first of these, with a blank behind it, is typed. What ends in `:` asks for
# something else than a line to work on.
_PROMPT: Final = re.compile(r"[>❯›»$#%λ➜](?:\s|$)")
_INPUT: Final = re.compile(r"\s*[│┃|]?\s?[>❯›](?:\s(.*))?")


class Screen(NamedTuple):
    """The rows of a pane as a person sees them, without dimmed text, and where the cursor is."""

    rows: tuple[str, ...]
    x: int
    y: int

    @property
    def left(self) -> str:
        """What stands before the cursor."""
        return self.rows[self.y][: self.x] if self.y < len(self.rows) else ""

    @property
    def right(self) -> str:
        """What stands after it."""
        return self.rows[self.y][self.x :] if self.y < len(self.rows) else ""

    def input(self) -> str:
        """Return what the program's input holds, as far as that can be told."""
        if self.left.strip(BORDERS) or self.right.strip(BORDERS):
            prompt = _PROMPT.search(self.left)
            typed = self.left[prompt.end() if prompt else 0 :] + self.right
            return typed.strip(BORDERS)
        # The cursor is parked elsewhere: the last row that looks like an input is it.
        inputs = [found for found in map(_INPUT.fullmatch, self.rows) if found]
        return (inputs[-1][1] or "").strip(BORDERS) if inputs else ""


def screen(captured: str, x: int, y: int) -> Screen:
    """Return a screen as tmux gives it with its codes."""
    return Screen(tuple(map(_bright, captured.split("\n"))), x, y)


def _bright(row: str) -> str:
    """Return a row with blanks for what is dimmed: a program's own hint, not a person's words."""
    kept, at, dim = [], 0, False
    for found in _CODES.finditer(row):
        piece = row[at : found.start()]
        kept.append(" " * len(piece) if dim else piece)
        at = found.end()
        if found[1] is not None:
            dim = _dim(found[1], dim)
    piece = row[at:]
    kept.append(" " * len(piece) if dim else piece)
    return "".join(kept)


def _dim(codes: str, dim: bool) -> bool:  # noqa: FBT001
    parts = iter(codes.split(";"))
    for code in parts:
        if code in ("38", "48"):  # a colour, whose numbers follow
            kind = next(parts, "")
            for _ in range({"5": 1, "2": 3}.get(kind, 0)):
                next(parts, "")
        elif code == "2":
            dim = True
        elif code in ("", "0", "22"):
            dim = False
    return dim
