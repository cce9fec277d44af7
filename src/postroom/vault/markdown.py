"""Markdown, as far as a note of ours or an edit needs it: fences, headings, and text that nothing renders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

# CommonMark 0.31, sections 4.2, 4.3 and 4.5.
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]([^\n]*))?\n?")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\n?")
_NO_PARAGRAPH = re.compile(r"[ \t]*(?:\n?$|[#>|]|[-*+](?:[ \t]|$)|[0-9]{1,9}[.)](?:[ \t]|$))")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PLAIN = re.compile(r"[\w .,()'-]+")
# A wikilink or embed, an inline image or link, a tag, an autolink (that of an address does nothing).
_LIVE = re.compile(
    r"!?\[\[|!\[|\]\s*\(|</?[A-Za-z][A-Za-z0-9-]*(?:[\s/>]|$)|<!|<[A-Za-z][A-Za-z0-9+.-]*:"
)
_BRACKET = re.compile(r"[\\\[\]<]")
_INLINE_QUERY = re.compile(r"[\s\ufeff]*\$?=")


class Heading(NamedTuple):
    """A heading, and the part of the body that it stands over, up to the next of its rank."""

    level: int
    title: str
    start: int
    text: int  # where what stands under it begins
    end: int


def _ticks(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def fence(text: str) -> str:
    """Return the text in a code fence that nothing in it can close."""
    ticks = _ticks(text, 3)
    return f"{ticks}text\n{text}\n{ticks}"


def fenced(section: str) -> str | None:
    """Return what the one fence holds; None where there is none, a second, or one left open."""
    lines = list(_marked(section))
    if "".join(mark for _, mark in lines if mark in "<>") != "<>":
        return None
    indent = next(len(line) - len(line.lstrip(" ")) for line, mark in lines if mark == "<")
    held = "".join(line for line, mark in lines if mark == "|")
    if indent:
        held = re.sub(rf"(?m)^ {{1,{indent}}}", "", held)
    return held.removesuffix("\n")


@lru_cache(maxsize=8)
def sections(body: str) -> tuple[tuple[str, str], ...]:
    """Return (title, text) of each part that starts with `## title`; the texts joined are the body."""
    parts = [("", [""])]
    for line, mark in _marked(body):
        if mark == " " and (heading := _HEADING.fullmatch(line)) and len(heading[1]) == 2:
            parts.append((_title(heading[2]), []))
        parts[-1][1].append(line)
    return tuple((title, "".join(lines)) for title, lines in parts)


def _title(text: str | None) -> str:
    title = (text or "").strip(" \t")
    closing = title.rstrip("#")  # a closing run of # is none of the title
    return closing.rstrip(" \t") if not closing or closing[-1] in " \t" else title


def headings(body: str) -> list[Heading]:
    """Return the headings that are outside of code, in order."""
    found: list[Heading] = []
    at, before = 0, ""  # the line above, if it is one that an underline makes a heading
    for line, mark in _marked(body):
        after = at + len(line)
        atx = _HEADING.fullmatch(line) if mark == " " else None
        under = _UNDERLINE.fullmatch(line) if mark == " " and before else None
        if atx:
            found.append(Heading(len(atx[1]), _title(atx[2]), at, after, len(body)))
        elif under:
            level = 1 if under[1][0] == "=" else 2
            found.append(Heading(level, before.strip(), at - len(before), after, len(body)))
        before = "" if mark != " " or atx or under or _NO_PARAGRAPH.match(line) else line
        at = after
    ends = [len(body)] * 7  # of a part of each rank, as seen from below
    for index in range(len(found) - 1, -1, -1):
        one = found[index]
        found[index] = one._replace(end=min(ends[1 : one.level + 1]))
        ends[one.level] = one.start
    return found


def numbered(body: str) -> Iterator[tuple[int, str, str]]:
    """Yield each line that is in no code: its number, the heading of the second rank over it, the line."""
    over = ""
    for number, (line, mark) in enumerate(_marked(body), 1):
        heading = _HEADING.fullmatch(line) if mark == " " else None
        if heading and len(heading[1]) <= 2:
            over = _title(heading[2]) if len(heading[1]) == 2 else ""
        if mark == " ":
            yield number, over, line.rstrip("\n")


def outside_code(body: str) -> Iterator[str]:
    """Yield the lines that stand in no fence."""
    return (line for line, mark in _marked(body) if mark == " ")


def _marked(body: str) -> Iterator[tuple[str, str]]:
    """Yield each line with a mark: `<` opens a fence, `|` is inside, `>` closes, a space is outside."""
    closing = None
    for line in _LINE.findall(body):
        if closing is not None:
            ends = closing.fullmatch(line)
            yield line, ">" if ends else "|"
            closing = None if ends else closing
        elif opens := _FENCE.match(line):
            yield line, "<"
            closing = re.compile(rf" {{0,3}}{opens[1]}{opens[1][0]}*[ \t]*\n?")
        else:
            yield line, " "


def quote(text: str) -> str:
    """Return a text as one line of inline code; not for tables, where a `|` in it would end the cell."""
    line = " ".join(text.splitlines()) or " "
    if _INLINE_QUERY.match(line):
        line = "\\" + line  # the Dataview plugin would run it
    pad = " " if line.strip(" ") and (line[0] in "` " or line[-1] in "` ") else ""
    return f"{_ticks(line, 1)}{pad}{line}{pad}{_ticks(line, 1)}"


def inert(text: str) -> str:
    """Return a text for the frontmatter as it is, or escaped where it holds links, images or HTML.

    Obsidian and its plugins show a property's text as Markdown. A backslash stops all of them, those
    too that look for `[[` by themselves, where inline code would not.
    """
    return _BRACKET.sub(r"\\\g<0>", text) if _LIVE.search(text) else text


def link(path: str, otherwise: str) -> str:
    """Return a link to a note, or its name where that could not be one."""
    name = path.rpartition("/")[2].removesuffix(".md")
    # A name may be anybody's: one that could end the link, or is more than one, is only quoted.
    return f"[[{name}]]" if _PLAIN.fullmatch(name) else quote(name or otherwise)
