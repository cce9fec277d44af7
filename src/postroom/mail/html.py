"""HTML as a person sees it, in plain text: structure and links stay, hidden text is removed and counted.

The tokenizer takes time linear in its input. Parsers that build a tree by the HTML standard do not: they open unclosed
formatting elements again in every paragraph, which is quadratic (docs/decisions/0014-html-reader.md).
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from postroom.core.text import CleanText
from postroom.core.values import dataclass
from postroom.mail.read import MAX_HTML, MAX_TEXT
from postroom.mail.style import Declared, TextStyle, covered_by
from postroom.mail.stylesheet import StyledElement, StyleSheets

MAX_DEPTH: Final = 128  # open elements; what is nested deeper counts to the one above it
MAX_INDENT: Final = 8  # quotations in quotations, lists in lists
MAX_CARRIED: Final = 8  # formatting elements that go on behind their block; first those that hide
MAX_LINK: Final = 2_000  # characters of an address

# No group that can match in two ways is possessive here: before 3.11.5 Python misreads that (gh-106052).
# HTML standard, section 13.2.5: after `=` a quote holds to its fellow, and elsewhere is a character.
_TOKEN: Final = re.compile(
    r"""([^<]++)
      | <!--(?:>|->|[\s\S]*?(?:--!?>|\Z))
      | <(/?)([a-zA-Z][^\s/>]*+)((?:[\s/]++|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|(?=>))|(?!\s*+=)))*+)>
      | <(?:[!?]|/(?![a-zA-Z]))[^>]*+>?+
      | (<)(?![a-zA-Z/])""",
    re.VERBOSE,
)
_ATTRIBUTE: Final = re.compile(
    r"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"'][^\s>]*+)))?"""
)
_ENTITY: Final = re.compile(r"(?i)&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,31});?")
_SPACE: Final = re.compile(r"[ \t\n\r\f\xa0]+")
_SCHEME: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_TABLE: Final = tomllib.loads(Path(__file__).with_name("html.toml").read_text("utf-8"))
_TAGS: Final = {name: frozenset[str](names.split()) for name, names in _TABLE.items()}
_RAW_TEXT: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _TAGS["raw_text"]
}
_UNSEEN: Final = "#unseen"  # the name of text that nobody sees
_HIDES_OTHERS: Final = {"link": "display", "col": "visibility", "colgroup": "visibility"}
# Browsers ignore these outside of a table.
_TABLE_PARTS: Final = frozenset("caption colgroup tbody td tfoot th thead tr".split())
_NO_BARRIERS: Final = _TABLE_PARTS | {"address", "div", "p", "body", "html"}
_AROUND_ITEMS: Final = (_TAGS["scopes"] | _TAGS["blocks"]) - _NO_BARRIERS
_AROUND_CELLS: Final = _TAGS["foreign"] | {"table"}
# An element that ends where another of these begins, unless a third stands between (section 13.1.2.4).
_ENDED_BY: Final = {
    "a": (frozenset({"a"}), _TAGS["scopes"]),
    "li": (frozenset({"li"}), _AROUND_ITEMS),
    **dict.fromkeys(("dt", "dd"), (frozenset({"dt", "dd"}), _AROUND_ITEMS)),
    **dict.fromkeys(_TAGS["cells"], (_TAGS["cells"], _AROUND_CELLS)),
    "tr": (frozenset({"tr"}), _AROUND_CELLS),
}


def render(source: str) -> CleanText:
    """Return a page as readable text without what a person would not see; nothing that it refers to is fetched."""
    source = source[:MAX_HTML].replace("\0", "")
    styles, implied = _find_styles(source) if re.search("(?i)<style", source) else ([], [])
    sheets = StyleSheets(styles)
    page = _read_page(source, sheets, implied, set())
    if page.covered:
        page = _read_page(source, sheets, implied, page.covered)
    return CleanText(page.finish(), page.hidden)


def _find_styles(source: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the style sheets with their media, and the elements with styles that no tag opens for the whole page."""
    styles, page, templates = list[tuple[str, str]](), _Page(StyleSheets([]), set()), 0
    drawn = any(f"<{name}" in source.lower() for name in _TAGS["foreign"])  # no templates in these
    for name, chars, closing, content in _tokens(source):
        templates = max(0, templates + (name == "template") * (-1 if closing else 1))
        if closing:
            page.close(name)
        elif name == "style" and (drawn or not templates):
            attributes = _attributes(chars)
            if attributes.get("type", "").strip().lower() in {"", "text/css"}:
                # A sheet in a template does not count, unless that may stand in a drawing: it may hold.
                styles.append(("(drawn)" if templates else attributes.get("media", ""), content))
        elif name and name not in _TAGS["raw_text"]:
            page.open(name, {})
    return styles, [name for name in ("html", "body") if styles and not page.counts[name]]


def _read_page(source: str, sheets: StyleSheets, implied: list[str], covered: set[int]) -> _Page:
    """Return the page; `implied` elements have no tag, others are drawn over `covered` ones (by number)."""
    page = _Page(sheets, covered)
    for name in implied:
        page.open(name, {})
    for name, chars, closing, content in _tokens(source):
        empty_drawing = name in _TAGS["foreign"] and _ATTRIBUTE.sub("", chars).endswith("/")
        if not name:
            page.add_text(_unescape(content))
        elif closing:
            page.close(name)
        elif name in _TAGS["never_shown"]:
            page.hide(content)
        elif name not in {"script", "style", "title"} and not empty_drawing:
            page.open(name, _attributes(chars) if chars else {})
            if content:
                page.add_text(_unescape(content))
    return page


def _unescape(chars: str) -> str:
    return _ENTITY.sub(lambda found: unescape(found.group()), chars) if "&" in chars else chars


def _tokens(source: str) -> Iterator[tuple[str, str, bool, str]]:
    """Yield each tag as name, attributes, whether it closes, and text without tags; text between tags has no name."""
    at, end = 0, len(source)
    while at < end:
        token = _TOKEN.match(source, at)
        if token is None:
            yield _UNSEEN, "", False, source[at:]  # a tag without its end swallows the rest
            return
        at = token.end()
        chars, closing, tag, attributes, sign = token.groups()
        if chars or sign:
            yield "", "", False, chars or sign
        elif tag and (closing or tag.lower() not in _RAW_TEXT):
            yield tag.lower(), attributes, bool(closing), ""
        elif tag:
            name, start = tag.lower(), at
            until = _RAW_TEXT[name].search(source, at)
            at = until.start() if until else end
            yield name if until or name != "title" else _UNSEEN, attributes, False, source[start:at]


def _attributes(chars: str) -> dict[str, str]:
    """Return an element's attributes; of two with one name the first counts."""
    pairs = reversed(_ATTRIBUTE.findall(chars))
    return {name.lower(): _unescape("".join(values)) for name, *values in pairs}


@dataclass(slots=True)
class _Element:
    name: str
    style: TextStyle
    declared: Declared
    styled: StyledElement | None = None
    number: int = 0
    quote: int = 0
    lists: int = 0
    pre: bool = False
    items: int = 0
    href: str = ""
    label: list[str] = field(default_factory=list)  # empty words for a picture
    deeper: Counter[str] | None = None  # of the page, if this one stands beyond the depth


class _Lines:
    def __init__(self) -> None:
        self.bullet = ""
        self.link: _Element | None = None
        self.space = self.cell = self._after_link = False
        self._lines: list[str] = []
        self._quote = 0  # of the last line
        self._line: list[str] = []
        self._gap = 0

    def put(self, words: str, top: _Element, *, raw: bool = False) -> None:
        if not words:
            return
        if not self._line:
            if self._gap > 1 and self._lines:
                self._lines.append(">" * min(self._quote, top.quote))
            indent = "  " * max(0, top.lists - bool(self.bullet))
            self._line.append("> " * top.quote + indent + self.bullet)
            self._quote, self.bullet, self._gap = top.quote, "", 0
        elif self.cell:
            self._line.append(" | ")
        elif not raw and (self.space or (self._after_link and words[0].isalnum())):
            self._line.append(" ")
        self.space = self.cell = self._after_link = False
        self._line.append(words)
        if self.link:
            self.link.label.append(words)

    @property
    def is_empty(self) -> bool:
        return not (self._lines or self._line)

    def begin_cell(self) -> None:
        self.cell = bool(self._line)

    def break_line(self) -> None:
        """End the line; a second break in a row is an empty line."""
        if self._line:
            self.separate(1)
        elif self._lines:
            self._gap = min(2, self._gap + 1)

    def separate(self, gap: int) -> None:
        """End the line, with so many line breaks before the next."""
        if self._line:
            self._lines.append("".join(self._line).rstrip())
            self._line = []
        self._gap = max(self._gap, gap)
        self.space = self.cell = self._after_link = False

    def end_link(self, link: _Element) -> None:
        """Write the address of a link after its words, unless they say the same."""
        self.link = None
        label = " ".join(link.label).strip()
        if not link.label or _without_scheme(label) == _without_scheme(link.href):
            return
        address = f"<{link.href}>"
        if label and not self._line and self._lines:
            self._lines[-1] += f" {address}"  # a block inside the link has ended its line
        elif label:
            self._line.append(f" {address}")
        else:
            self.put(address, link)
        self._after_link = True

    def text(self) -> str:
        self.separate(0)
        return "\n".join(self._lines)[:MAX_TEXT].rstrip()  # a line of other white space is none


class _Page:
    def __init__(self, sheets: StyleSheets, covered: set[int]) -> None:
        self.covered: set[int] = set()  # elements over which another is drawn
        self.hidden = 0
        self.counts: Counter[str] = Counter()  # of open elements
        self._sheets = sheets
        self._covered = covered
        self._opened = 0
        self._stack = [_Element("", TextStyle(removed=0 in covered), {})]
        self._deeper: Counter[str] = Counter()  # elements beyond the depth, not on the stack
        self._lines = _Lines()

    def add_text(self, chars: str) -> None:
        top, lines = self._stack[-1], self._lines
        words = _SPACE.sub(" ", chars)
        if top.style.hidden:
            self.hide(words)
        elif top.pre:
            first, *rows = chars.replace("\r\n", "\n").replace("\xa0", " ").split("\n")
            lines.put(first, top, raw=True)
            for row in rows:
                lines.break_line()
                lines.put(row, top, raw=True)
        else:
            lines.space = lines.space or words.startswith(" ")
            if words.strip(" "):
                lines.put(words.strip(" "), top)
                lines.space = words.endswith(" ")

    def hide(self, chars: str) -> None:
        self.hidden += len(_SPACE.sub(" ", chars).strip())

    def open(self, name: str, attributes: dict[str, str]) -> None:
        if name in _ENDED_BY:
            self._close_innermost(*_ENDED_BY[name])
        elif self.counts["p"] and name in _TAGS["blocks"] and name not in _TAGS["inside_p"]:
            self._close_innermost(frozenset({"p"}), _TAGS["scopes"] | {"button"})
        styled, declared = self._sheets.style(name, attributes, self._stack[-1].styled)
        if name in _TAGS["dropped"] or (name == "object" and "data" in attributes):
            declared["display"] = True
        if name in {"html", "body"} and attributes and declared and self._has_begun():
            style = TextStyle().inside(name, declared)
            if style.removed or style.hidden_by:  # browsers give its attributes to the page's own
                self.covered.add(0)
        if name == "template" and "shadowrootmode" in attributes:
            self.covered.add(self._stack[-1].number)  # it is shown in place of what is beside it
        self._opened += 1
        element = _Element(name, TextStyle(), declared, styled, self._opened)
        self._note_covered(element)
        if name in _TAGS["void"]:
            self._add_void(name, attributes, declared)
        elif self._push(element) and not element.style.removed:
            self._begin(element, attributes)

    def _has_begun(self) -> bool:
        """Whether there is content, so that another `html` or `body` begins nothing."""
        opened = any(element.name not in {"", "html", "head"} for element in self._stack)
        return opened or not self._lines.is_empty

    def _note_covered(self, element: _Element) -> None:
        """Note what a box may be drawn over, or a column or a linked sheet may hide."""
        top, name, declared = self._stack[-1], element.name, element.declared
        drawn = (declared or name == "img") and not top.style.removed
        over = covered_by(name, declared) if drawn else ""
        if over == "block":
            placed = (e for e in reversed(self._stack) if e.declared.get("placed") == "relative")
            self.covered.add(next(placed, self._stack[0]).number)
        elif over == "page" or declared.get(_HIDES_OTHERS.get(name, "")) is True:
            self.covered.add(0)
        elif over:
            self.covered.add(top.number)
        if over or element.number in self._covered:
            declared["covered"] = element.number in self._covered

    def _push(self, element: _Element) -> bool:
        """Put an element on the stack; beyond the depth only one that hides, the others are counted."""
        name, top = element.name, self._stack[-1]
        element.style = top.style.inside(name, element.declared)
        if len(self._stack) >= MAX_DEPTH:
            if top.style.hidden or not element.style.hidden:
                self._deeper[name] += 1
                return False
            element.deeper, self._deeper = self._deeper, Counter()
        element.quote = min(MAX_INDENT, top.quote + (name == "blockquote"))
        element.lists = min(MAX_INDENT, top.lists + (name in _TAGS["lists"]))
        element.pre = top.pre or name in _TAGS["preformatted"]
        self._stack.append(element)
        self.counts[name] += 1
        return True

    def _begin(self, element: _Element, attributes: dict[str, str]) -> None:
        self._separate(element)
        if element.name == "li":
            owner = next((e for e in reversed(self._stack) if e.name in _TAGS["lists"]), element)
            owner.items += 1
            self._lines.bullet = f"{owner.items}. " if owner.name == "ol" else "- "
        elif element.name == "a":
            element.href = _link_address(attributes.get("href", ""))
            self._lines.link = element if element.href else None

    def _add_void(self, name: str, attributes: dict[str, str], declared: Declared) -> None:
        top, lines = self._stack[-1], self._lines
        words = " ".join(attributes.get("alt", "").split()) if name == "img" else ""
        style = top.style.inside(name, declared)
        if style.removed or style.hidden_by or (words and style.hidden):
            self.hide(words)
        elif name == "br":
            lines.break_line()
        elif name == "hr":
            lines.separate(2)
            lines.put("---", top)
            lines.separate(2)
        elif name == "img":
            if lines.link:
                lines.link.label.append("")
            lines.put(f"[image: {words}]" if words else "", top)

    def close(self, name: str) -> None:
        if self._deeper[name]:
            self._deeper[name] -= 1
        elif name == "br":
            self._lines.break_line()
        elif name in _TABLE_PARTS and not self.counts["table"]:
            pass  # browsers ignore it, as its start tag
        elif self.counts[name] and name not in {"html", "body"}:  # what follows is still in them
            barrier = frozenset() if name in _TAGS["bounds"] else _TAGS["scopes"] - {name}
            self._close_innermost(frozenset({name}), barrier)

    def _close_innermost(self, names: frozenset[str], barrier: frozenset[str]) -> None:
        """Close the innermost element of these names, unless a barrier or a template stands before it."""
        for at in range(len(self._stack) - 1, 0, -1):
            name = self._stack[at].name
            if name in names:
                end = self._end_formatting if name in _TAGS["formatting"] else self._end
                end(at)
            # A template holds all but the end of a drawing, in which it is none.
            template = name == "template" and names.isdisjoint(_TAGS["foreign"])
            if template or name in names or name in barrier:
                break

    def _end_formatting(self, at: int) -> None:
        """Close a formatting element, and nothing that was opened inside it."""
        inner = self._stack[at + 1 :]
        del self._stack[at + 1 :]
        self._pop()
        for element in inner:
            element.style = self._stack[-1].style.inside(element.name, element.declared)
            self._stack.append(element)

    def _end(self, at: int) -> None:
        """Close an element with all that is in it; formatting goes on behind it, but not out of a table or template."""
        inner = self._stack[at + 1 :]
        bounded = self._stack[at].name in _TAGS["bounds"]
        while len(self._stack) > at:
            self._pop()
        carried = [e for e in inner if e.declared and e.name in _TAGS["formatting"] and not bounded]
        carried.sort(key=lambda e: not TextStyle().inside(e.name, e.declared).hidden)
        for old in carried[:MAX_CARRIED]:
            near = self._stack[-MAX_CARRIED:]
            if not any(e.name == old.name and e.declared == old.declared for e in near):
                self._push(_Element(old.name, old.style, old.declared, self._stack[-1].styled))

    def _pop(self) -> None:
        element = self._stack.pop()
        self.counts[element.name] -= 1
        if element.deeper is not None:
            self._deeper = element.deeper
        if element.style.removed:
            return
        if element.href:
            self._lines.end_link(element)
        self._separate(element)

    def _separate(self, element: _Element) -> None:
        if element.name in _TAGS["blocks"]:
            # A list inside a list is not a paragraph of its own.
            paragraph = element.name in _TAGS["paragraphs"] and element.lists < 2
            self._lines.separate(2 if paragraph else 1)
        elif element.name in _TAGS["cells"]:
            self._lines.begin_cell()

    def finish(self) -> str:
        while len(self._stack) > 1:
            self._pop()
        return self._lines.text()


def _link_address(href: str) -> str:
    """Return the address of a link to a page or a mailbox, on one line; empty for other links."""
    href = re.sub(r"[\t\r\n]+", "", href).strip()
    if not _SCHEME.match(href):
        return ""
    unsafe = r"[\x00-\x20<>\x7f-\xa0\u2028\u2029]"
    href = re.sub(unsafe, lambda found: quote(found.group()), href)
    return href if len(href) <= MAX_LINK else f"{href[:MAX_LINK]}…"


def _without_scheme(address: str) -> str:
    return _SCHEME.sub("", address.strip().lower()).rstrip("/")
