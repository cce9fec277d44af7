"""The plain text of a letter's reduced HTML: every word in its order, and where each link leads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# A tag by its name, its end with a slash before it, or text under no name; and the text, or where a link leads.
Token = tuple[str, str]

APART: Final = frozenset("p h1 h2 h3 h4 blockquote pre ul ol table hr".split())  # by a blank line
BLOCKS: Final = APART | frozenset("div li thead tbody tr th td".split())
_FRAMES: Final = frozenset("blockquote li tr th td".split())
_SPACES: Final = re.compile("[ \t\n]++")


class _Frame:
    """The lines of one block that is set off from what is around it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lines: list[str] = []
        self.blank = False  # whether an empty line comes before the next

    def put(self, rows: list[str]) -> None:
        if rows:
            self.lines += [""] if self.blank and self.lines else []
            self.lines += rows
            self.blank = False


class _Writer:
    def __init__(self) -> None:
        self.frames = [_Frame()]
        self.run: list[str] = []  # since the last line
        self.words: list[str] = []
        self.link, self.label = "", 0  # where the open link leads, and where its words begin
        self.pre = False

    def take(self, name: str, value: str) -> None:
        if not name:
            self.run.append(value if self.pre else _SPACES.sub(" ", value))
            self.words.append(self.run[-1])
        elif name == "br":
            self.run.append("\n")
            self.words.append("\n")
        elif name == "a":
            self.link, self.label = value, len(self.words)
        elif name == "/a":
            label = _SPACES.sub(" ", "".join(self.words[self.label :])).strip(" ")
            same = label in (self.link, self.link.removeprefix("mailto:"))
            after = " " if self.run and self.run[-1].endswith(" ") else ""
            self.run += [] if same else [f" ({self.link}){after}"]
        elif name in ("s", "/s"):  # what is struck out says the opposite
            self.run.append("~~")
        elif name.lstrip("/") in BLOCKS:
            self._block(name)

    def _block(self, name: str) -> None:
        self.line()
        if name in _FRAMES:
            self.frames[-1].blank |= name in APART
            self.frames.append(_Frame(name))
        elif name[0] == "/" and name[1:] in _FRAMES:
            self._close_frame()
        self.pre = name == "pre"
        frame = self.frames[-1]
        if name == "hr":
            frame.blank = True
            frame.put(["---"])
        frame.blank |= name.lstrip("/") in APART and frame.name != "li"

    def _close_frame(self) -> None:
        closed, outer = self.frames.pop(), self.frames[-1]
        lines = closed.lines
        if closed.name == "blockquote":
            outer.put([f"> {row}".rstrip(" ") for row in lines])
        elif closed.name == "li":
            outer.put([f"{'  ' if at else '- '}{row}".rstrip(" ") for at, row in enumerate(lines)])
        elif closed.name == "tr":
            outer.put(" | ".join(lines).split("\n") if any(lines) else [])
        else:
            outer.lines.append("\n".join(lines))  # a cell of its row

    def line(self) -> None:
        """End the line where a block begins or ends; a line break just before it shows nothing."""
        rows = "".join(self.run).split("\n")
        self.run.clear()
        self.words.append("\n")
        if not self.pre:
            rows = [_SPACES.sub(" ", row).strip(" ") for row in rows]
        self.frames[-1].put([row.rstrip(" ") for row in (rows if rows[-1] else rows[:-1])])


def plain_text(tokens: Iterable[Token]) -> tuple[str, str]:
    """Return the text, nothing where nothing can be seen; and its words without marks and addresses of links.

    Links are `label (address)`; items begin with `- `, quoted lines with `> `; ` | ` stands between cells; what is
    struck out stands between `~~`.
    """
    writer = _Writer()
    for token in tokens:
        writer.take(*token)
    writer.line()
    text = "\n".join(writer.frames[0].lines).strip("\n")
    return (f"{text}\n" if text.strip() else ""), "".join(writer.words)
