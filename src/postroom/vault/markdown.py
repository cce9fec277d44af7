"""Markdown: where a text has headings, fences, code and links, and text that nothing renders.

`parse` is the one reader of Markdown's structure, by pulldown-cmark (docs/decisions/0012-markdown.md).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_ATX = re.compile(r" {0,3}#{1,6}(?:[ \t](.*))?")
# Code, HTML, underlines, indents and bare #: without these, a line with # in front is a heading.
_NEEDS_PARSER = ("`", "<", "\t", "~~~", "\n ", "\n=", "\n-", "#\n")
_SIMPLE_HEADING = re.compile(r"\n#{1,6} +([^\n]*)")
_CLOSING_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_TABS_AFTER_FENCE = re.compile(r"(?<=```|~~~)[ \t]*\t[ \t]*$", re.MULTILINE)
_WIDE = re.compile(r"[^\x00-\x7f]")
_PLAIN = re.compile(r"[\w .,;()'’“”„&+!@€–—-]+")
# A wikilink or embed, an inline image or link, a tag, an autolink (that of an address does nothing).
_LIVE = re.compile(
    r"!?\[\[|!\[|\]\s*\(|</?[A-Za-z][A-Za-z0-9-]*(?:[\s/>]|$)|<!|<[A-Za-z][A-Za-z0-9+.-]*:"
)
_BRACKET = re.compile(r"[\\\[\]<]")
_INLINE_QUERY = re.compile(r"[\s\ufeff]*\$?=")
_LINKS = ("Link", "Image")
_CONTAINERS = ("BlockQuote", "List", "FootnoteDefinition")
_TAGS = frozenset({*_LINKS, *_CONTAINERS, "CodeBlock", "Heading"})
_WIKI = "WikiLink"


class Heading(NamedTuple):
    """A heading, and the part of the text that it stands over, up to the next of its rank."""

    level: int
    title: str
    start: int
    text: int  # where what stands under it begins
    end: int
    is_atx: bool = True  # written with #, not underlined


class Fence(NamedTuple):
    """A fenced block of code, by whole lines."""

    start: int
    end: int
    text: str
    is_closed: bool


class LinkSpan(NamedTuple):
    """A link or image, from its first bracket to its last character."""

    start: int
    end: int
    label_end: int  # where the `]` after its label stands
    is_wiki: bool


class Structure(NamedTuple):
    """What a text consists of; offsets are characters."""

    headings: Sequence[Heading]  # outside of quotes and lists
    fences: Sequence[Fence]
    code: Sequence[tuple[int, int]]  # fences, and code within lines
    links: Sequence[LinkSpan]  # inline ones and wikilinks
    definitions: Sequence[tuple[int, int]]  # of links by reference


@lru_cache(maxsize=16)
def parse(text: str) -> Structure:
    """Return the structure of a text without frontmatter."""
    import pyromark
    from pyromark import Options

    options = Options.ENABLE_WIKILINKS | Options.ENABLE_TABLES
    options |= Options.ENABLE_MATH | Options.ENABLE_FOOTNOTES
    readable, parts = _readable(text), _Parts(text)
    offset = _char_offsets(readable)
    events: Any = pyromark.events_with_range(readable, options=options)
    # Most events are of no interest, and are passed over before anything else is done with them.
    for event, span in events:
        if isinstance(event, str):  # a line break, or a rule
            continue
        ((kind, value),) = event.items()
        tag, details = (value, None) if isinstance(value, str) else next(iter(value.items()))
        # The place of a text matters in a fence, and in the label of a link.
        wants_text = parts.fence_text is not None or parts.open_links
        if tag in _TAGS if kind in ("Start", "End") else kind == "Code" or wants_text:
            parts.add(kind, tag, details, offset(span["start"]), offset(span["end"]))
    found = pyromark.reference_definitions(readable, options=options) if "]:" in text else {}
    spans = [one["span"] for one in found.values()]
    definitions = sorted((offset(span["start"]), offset(span["end"])) for span in spans)
    headings = _with_ends(parts.headings, len(text))
    return Structure(headings, parts.fences, parts.code, parts.links, definitions)


def _readable(text: str) -> str:
    """Return a text of the same length that the parser reads as CommonMark has it."""
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)  # UTF-8 has none of these
    if "\r" in text:
        text = _LONE_RETURN.sub("\n", text)
    if "\t" in text:
        text = _TABS_AFTER_FENCE.sub(lambda found: " " * len(found[0]), text)
    return text


def _char_offsets(text: str) -> Callable[[int], int]:
    """Return a function from offsets in the text's UTF-8 bytes to offsets in its characters."""
    if text.isascii():
        return int
    # The end of each character of several bytes, and how many more bytes than characters there are then.
    ends, extra = [], [0]
    for wide in _WIDE.finditer(text):
        extra.append(extra[-1] + len(wide[0].encode()) - 1)
        ends.append(wide.end() + extra[-1])
    return lambda at: at - extra[bisect_right(ends, at)]


class _Parts:
    def __init__(self, text: str) -> None:
        self.headings: list[Heading] = []
        self.fences: list[Fence] = []
        self.code: list[tuple[int, int]] = []
        self.links: list[LinkSpan] = []
        self._text = text
        self._depth = 0  # of quotes, lists and footnotes
        self.fence_text: list[str] | None = None  # the text of the open one
        self.open_links: list[tuple[str, int]] = []  # links: type, and the end of the label so far

    def add(self, kind: str, tag: str, details: Any, start: int, end: int) -> None:  # noqa: ANN401 - JSON
        if kind == "Start":
            self._start(tag, details, start, end)
        elif kind == "End":
            self._end(tag, start, end)
        elif kind == "Text" and self.fence_text is not None:
            self.fence_text.append(self._text[start:end])
        elif kind == "Code":
            self.code.append((start, end))
        if self.open_links and kind != "Start":
            self.open_links[-1] = (self.open_links[-1][0], max(self.open_links[-1][1], end))

    def _start(self, tag: str, details: Any, start: int, end: int) -> None:  # noqa: ANN401 - JSON
        if tag in _LINKS:
            kind = details["link_type"]
            self.open_links.append((kind if isinstance(kind, str) else _WIKI, start + 1))
        elif tag == "CodeBlock" and isinstance(details, dict):
            self.fence_text = []
        elif tag == "Heading" and not self._depth:
            self._add_heading(int(details["level"][1]), start, end)
        self._depth += tag in _CONTAINERS

    def _end(self, tag: str, start: int, end: int) -> None:
        self._depth -= tag in _CONTAINERS
        if tag in _LINKS:
            kind, label_end = self.open_links.pop()
            if kind in ("Inline", _WIKI):
                close = self._text.find("]", label_end)
                self.links.append(LinkSpan(start, end, close, kind == _WIKI))
        elif tag == "CodeBlock" and self.fence_text is not None:
            self._add_fence("".join(self.fence_text), start, end)
            self.fence_text = None

    def _add_heading(self, level: int, start: int, end: int) -> None:
        start = self._text.rfind("\n", 0, start) + 1
        source = self._text[start:end].rstrip("\r\n")
        atx = _ATX.fullmatch(source)
        title = _without_closing(atx[1] or "") if atx else source.rpartition("\n")[0].strip()
        self.headings.append(Heading(level, title, start, end, end, atx is not None))

    def _add_fence(self, content: str, start: int, end: int) -> None:
        opening, *lines = self._text[start:end].removesuffix("\n").split("\n")
        run = opening[: len(opening) - len(opening.lstrip(opening[0]))]
        closing = _CLOSING_FENCE.fullmatch(lines[-1]) if lines else None
        is_closed = closing is not None and closing[1].startswith(run)
        self.code.append((start, end))
        start = self._text.rfind("\n", 0, start) + 1
        if not self._text.endswith("\n", start, end):
            end = self._text.find("\n", end) + 1 or len(self._text)
        self.fences.append(Fence(start, end, content, is_closed))


def _without_closing(title: str) -> str:
    title = title.strip(" \t")  # a run of # may close it
    bare = title.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else title


def _with_ends(headings: list[Heading], size: int) -> Sequence[Heading]:
    """Return the headings with the ends of their parts, where the next of their rank or a higher begins."""
    ends = [size] * 7  # of a part of each rank, as seen from below
    for index in range(len(headings) - 1, -1, -1):
        one = headings[index]
        headings[index] = one._replace(end=min(ends[1 : one.level + 1]))
        ends[one.level] = one.start
    return headings


def fence(text: str) -> str:
    """Return the text in a code fence that nothing in it can close."""
    ticks = _ticks(text, 3)
    return f"{ticks}text\n{text}\n{ticks}"


def sections(body: str) -> list[tuple[str, str]]:
    """Return (title, text) of each part that starts with `## title`; the texts joined are the body."""
    return [(title, body[start:end]) for title, start, end in _section_spans(body)]


def fenced_sections(body: str) -> list[tuple[str, str | None]]:
    """Return (title, what its one fence holds) of each part, or None where it has none, a second, or one left open."""
    found, fences = [], parse(body).fences
    starts = [one.start for one in fences]
    for title, start, end in _section_spans(body):
        inside = fences[bisect_left(starts, start) : bisect_left(starts, end)]
        is_one = len(inside) == 1 and inside[0].is_closed
        found.append((title, inside[0].text.removesuffix("\n") if is_one else None))
    return found


def _section_spans(body: str) -> Iterator[tuple[str, int, int]]:
    title, start = "", 0
    for one in headings(body):
        if one.level == 2 and one.is_atx:
            yield title, start, one.start
            title, start = one.title, one.start
    yield title, start, len(body)


def leaves_open(text: str) -> bool:
    """Whether a text leaves a fence, comment or tag open that would swallow a heading after it."""
    with_heading = f"{text}\n\n## x\n"
    return not any(one.start == len(text) + 2 for one in headings(with_heading))


def headings(body: str) -> Sequence[Heading]:
    """Return the headings outside of code, quotes and lists, in order."""
    return parse(body).headings


def numbered(body: str) -> Iterator[tuple[int, str, str]]:
    """Yield each line that is in no fence: its number, the heading of the second rank over it, the line."""
    high = [one for one in headings(body) if one.level <= 2]
    over_at = {one.start: one.title if one.level == 2 else "" for one in high}
    fences, over, at = parse(body).fences, "", 0
    starts = [one.start for one in fences]
    for number, line in enumerate(_LINE.findall(body), 1):
        over = over_at.get(at, over)
        begun = bisect_right(starts, at)
        if not begun or fences[begun - 1].end <= at:
            yield number, over, line.rstrip("\n")
        at += len(line)


def titles(body: str) -> list[str]:
    """Return the titles of the headings, without the parser where a text is simple enough."""
    text = f"\n{body}\n"
    if any(sign in text for sign in _NEEDS_PARSER):
        return [one.title for one in headings(body)]
    return list(map(_without_closing, _SIMPLE_HEADING.findall(text)))


def outside_code(body: str) -> str:
    """Return the text with a blank for each fence and each piece of code within a line."""
    if "`" not in body and "~~~" not in body:
        return body
    kept, at = [], 0
    for start, end in sorted(parse(body).code):
        kept.append(body[at:start])
        at = end
    return " ".join([*kept, body[at:]])


def _ticks(text: str, least: int) -> str:
    if "`" not in text:
        return "`" * least
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


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
