"""HTML as a person sees it, in plain text: structure and links kept, hidden text taken out and counted.

The tokenizer is our own and linear in what it is given. Parsers that build a tree after the HTML standard
are not: unclosed formatting elements are opened again in every paragraph, which is quadratic.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from postroom.mail.style import Box, Declared, Look, Sheet, covers

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HTML: Final = 1_000_000  # characters of a page that are read
MAX_TEXT: Final = 1_000_000  # characters of text that are made of it
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
_BREAK: Final = re.compile(r"[\t\r\n]+")
_UNSAFE: Final = re.compile(r"[\x00-\x20<>\x7f-\xa0\u2028\u2029]")
_SCHEME: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_VOID: Final = frozenset("area base br col embed hr img input link meta source track wbr".split())
_RAW: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes")
}
_UNSEEN: Final = "#unseen"  # the name of text that nobody sees
_UNSHOWN: Final = frozenset({"iframe", "noembed", "noframes", _UNSEEN})
_APART: Final = {"link": "display", "col": "visibility", "colgroup": "visibility"}  # hide others
_FOREIGN: Final = frozenset({"svg", "math"})  # an empty one ends itself (section 13.2.6.5)
# What a browser draws itself, backwards or not at all; what can be hidden in drawings and formulas has no end.
_DROPPED: Final = _FOREIGN | frozenset(
    "audio bdo canvas datalist marquee meter progress rp select template video".split()
)
# These stay in force when the block that they stand in ends (HTML standard, section 13.2.4.3).
_FORMATTING: Final = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_PARAGRAPHS: Final = frozenset("p h1 h2 h3 h4 h5 h6 ul ol dl blockquote table pre hr".split())
_BLOCKS: Final = _PARAGRAPHS | frozenset(
    "address article aside body caption center dd details dialog div dt fieldset figcaption figure "
    "footer form header html legend li main nav option section summary tbody tfoot thead tr".split()
)
_PREFORMATTED: Final = frozenset({"pre", "xmp", "textarea", "listing", "plaintext"})
_LISTS: Final = frozenset({"ul", "ol"})
_CELLS: Final = frozenset({"td", "th"})
# A stray end tag does not reach out of them.
_SCOPES: Final = frozenset({"td", "th", "caption", "table"})
_TABLE: Final = _SCOPES | {"tr", "tbody", "thead", "tfoot"}
# An element that ends where another of these begins (HTML standard, section 13.1.2.4).
_ENDED_BY: Final = {
    "a": (frozenset({"a"}), _SCOPES),
    "li": (frozenset({"li"}), frozenset({"ul", "ol"})),
    **dict.fromkeys(("dt", "dd"), (frozenset({"dt", "dd"}), frozenset({"dl"}))),
    **dict.fromkeys(_CELLS, (_CELLS, frozenset({"table"}))),
    "tr": (frozenset({"tr"}), frozenset({"table"})),
}


class Rendered(NamedTuple):
    """The readable text of a page, and how many characters of it were hidden from the eye."""

    text: str
    hidden: int


def text(source: str) -> Rendered:
    """Return a page as readable text; nothing that it names is fetched."""
    source = source[:MAX_HTML].replace("\0", "")
    sheet, implied = Sheet([]), list[str]()
    page = _render(source, sheet, implied, set())
    if page.styles:
        sheet = Sheet(page.styles)
        implied = [name for name in ("html", "body") if name not in page.elements]
        page = _render(source, sheet, implied, set())
    if page.covered:
        page = _render(source, sheet, implied, page.covered)
    return Rendered(page.finished(), page.hidden)


def _render(source: str, sheet: Sheet, implied: list[str], covered: set[int]) -> _Page:
    """Return the page; `implied` elements have no tag, over `covered` ones (by number) another is drawn."""
    page = _Page(sheet, covered)
    for name in implied:
        page.open(name, {})
    for name, chars, closing, content in _tokens(source):
        if not name:
            page.say(_unescaped(content))
        elif closing:
            page.close(name)
        elif name == "style":
            page.take_style(_attributes(chars), content)
        elif name in _UNSHOWN:
            page.hide(content)
        elif name not in {"script", "title"} and not (name in _FOREIGN and chars.endswith("/")):
            page.open(name, _attributes(chars) if chars else {})
            if content:
                page.say(_unescaped(content))
    return page


def _unescaped(chars: str) -> str:
    """Return text with its character references read."""
    return _ENTITY.sub(lambda found: unescape(found.group()), chars)


def _tokens(source: str) -> Iterator[tuple[str, str, bool, str]]:
    """Yield each tag as name, attributes, whether it closes, and text that holds no tags; text between tags has no name."""
    at, end = 0, len(source)
    while at < end:
        token = _TOKEN.match(source, at)
        if token is None:
            yield _UNSEEN, "", False, source[at:]  # a tag without its end: the rest is taken for it
            return
        at = token.end()
        chars, closing, tag, attributes, sign = token.groups()
        if chars or sign:
            yield "", "", False, chars or sign
        elif tag and (closing or tag.lower() not in _RAW):
            yield tag.lower(), attributes, bool(closing), ""
        elif tag:
            name, start = tag.lower(), at
            until = _RAW[name].search(source, at)
            at = until.start() if until else end
            shown = until or name != "title"
            yield name if shown else _UNSEEN, attributes, False, source[start:at]


def _attributes(chars: str) -> dict[str, str]:
    """Return an element's attributes; of two with one name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(chars):
        found.setdefault(name.lower(), _unescaped(double or single or bare))
    return found


@dataclass(slots=True)
class _Element:
    """An open element, and what it does to the text inside it."""

    name: str
    look: Look
    declared: Declared
    box: Box | None = None
    number: int = 0
    quote: int = 0
    lists: int = 0
    pre: bool = False
    items: int = 0
    href: str = ""
    label: list[str] = field(default_factory=list)  # empty words for a picture
    deeper: Counter[str] | None = None  # of the page, where this one stands beyond the depth


class _Page:
    """The text of a page as it grows, line by line."""

    def __init__(self, sheet: Sheet, covered: set[int]) -> None:
        self.styles: list[tuple[str, str]] = []  # each style sheet with its media
        self.covered: set[int] = set()  # elements over which another is drawn
        self.hidden = 0
        self.elements: Counter[str] = Counter()  # open ones; 0 where there was one
        self._sheet = sheet
        self._covered = covered
        self._opened = 0
        self._stack = [_Element("", Look(gone=0 in covered), {})]
        self._deeper: Counter[str] = Counter()  # elements beyond the depth, not on the stack
        self._lines: list[str] = []
        self._quote = 0  # of the last line
        self._line: list[str] = []
        self._gap = 0
        self._space = self._cell = self._linked = False
        self._bullet = ""
        self._link: _Element | None = None

    def say(self, chars: str) -> None:
        """Take text as it stands between two tags."""
        top = self._stack[-1]
        words = _SPACE.sub(" ", chars)
        if top.look.hidden:
            self.hide(words)
        elif top.pre:
            lines = chars.replace("\r\n", "\n").replace("\xa0", " ").split("\n")
            for at, line in enumerate(lines):
                if at:
                    self._break_line()
                self._put(line, top, raw=True)
        else:
            self._space = self._space or words.startswith(" ")
            if words.strip(" "):
                self._put(words.strip(" "), top)
                self._space = words.endswith(" ")

    def take_style(self, attributes: dict[str, str], css: str) -> None:
        """Take a style sheet; one in a template does not count."""
        kind = attributes.get("type", "").strip().lower()
        if kind in {"", "text/css"} and not (self.elements["template"] or self._deeper["template"]):
            self.styles.append((attributes.get("media", ""), css))

    def hide(self, chars: str) -> None:
        """Count text that nobody sees."""
        self.hidden += len(_SPACE.sub(" ", chars).strip())

    def open(self, name: str, attributes: dict[str, str]) -> None:
        """Take a start tag."""
        if name in _ENDED_BY:
            self._end_before(*_ENDED_BY[name])
        elif name in _BLOCKS and self.elements["p"]:
            self._end_before(frozenset({"p"}), _SCOPES)
        box, declared = self._sheet.style(name, attributes, self._stack[-1].box)
        if name in _DROPPED or (name == "object" and "data" in attributes):
            declared["display"] = True
        self._opened += 1
        element = _Element(name, Look(), declared, box, self._opened)
        self._cover(element)
        if name in _VOID:
            self._void(name, attributes, declared)
        elif self._push(element) and not element.look.gone:
            self._begin(element, attributes)

    def _cover(self, element: _Element) -> None:
        """Note what a box may be drawn over, or a column or a sheet may hide."""
        top, name, declared = self._stack[-1], element.name, element.declared
        over = covers(name, declared) if (declared or name == "img") and not top.look.gone else ""
        if over == "block":
            placed = (e for e in reversed(self._stack) if e.declared.get("placed") == "relative")
            self.covered.add(next(placed, self._stack[0]).number)
        elif over == "page" or declared.get(_APART.get(name, "")) is True:
            self.covered.add(0)
        elif over:
            self.covered.add(top.number)
        if over or element.number in self._covered:
            declared["covered"] = element.number in self._covered

    def _push(self, element: _Element) -> bool:
        """Put an element on the stack; beyond the depth only one that hides, and count the others."""
        name, top = element.name, self._stack[-1]
        element.look = top.look.inside(name, element.declared)
        if len(self._stack) >= MAX_DEPTH:
            if top.look.hidden or not element.look.hidden:
                self._deeper[name] += 1
                return False
            element.deeper, self._deeper = self._deeper, Counter()
        element.quote = min(MAX_INDENT, top.quote + (name == "blockquote"))
        element.lists = min(MAX_INDENT, top.lists + (name in _LISTS))
        element.pre = top.pre or name in _PREFORMATTED
        self._stack.append(element)
        self.elements[name] += 1
        return True

    def _begin(self, element: _Element, attributes: dict[str, str]) -> None:
        self._separate(element)
        if element.name == "li":
            owner = next((e for e in reversed(self._stack) if e.name in _LISTS), element)
            owner.items += 1
            self._bullet = f"{owner.items}. " if owner.name == "ol" else "- "
        elif element.name == "a":
            element.href = _address(attributes.get("href", ""))
            self._link = element if element.href else None

    def _void(self, name: str, attributes: dict[str, str], declared: Declared) -> None:
        top = self._stack[-1]
        words = " ".join(attributes.get("alt", "").split()) if name == "img" else ""
        look = top.look.inside(name, declared)
        if look.gone or look.hiding or (words and look.hidden):
            self.hide(words)
        elif name == "br":
            self._break_line()
        elif name == "hr":
            self._break(2)
            self._put("---", top)
            self._break(2)
        elif name == "img":
            if self._link:
                self._link.label.append("")
            self._put(f"[image: {words}]" if words else "", top)

    def close(self, name: str) -> None:
        """Take an end tag; one without its start tag is nothing."""
        if self._deeper[name]:
            self._deeper[name] -= 1
        elif name == "br":
            self._break_line()
        elif self.elements[name] and name not in {"html", "body"}:  # what follows is still in them
            barrier = frozenset() if name in _TABLE else _SCOPES - {name}
            self._end_before(frozenset({name}), barrier)

    def _end_before(self, names: frozenset[str], barrier: frozenset[str]) -> None:
        """Close the innermost element of these names, unless a barrier stands before it."""
        for at in range(len(self._stack) - 1, 0, -1):
            name = self._stack[at].name
            if name in names:
                end = self._end_alone if name in _FORMATTING else self._end
                end(at)
            if name in names or name in barrier:
                break

    def _end_alone(self, at: int) -> None:
        """Close a formatting element, and nothing that was opened inside it."""
        inner = self._stack[at + 1 :]
        del self._stack[at + 1 :]
        self._pop()
        for element in inner:
            element.look = self._stack[-1].look.inside(element.name, element.declared)
            self._stack.append(element)

    def _end(self, at: int) -> None:
        """Close an element with all that is in it; formatting goes on behind it, but not out of a table."""
        ended = self._stack[at + 1 :]
        bounded = self._stack[at].name in _TABLE
        while len(self._stack) > at:
            self._pop()
        styled = [e for e in ended if e.declared and e.name in _FORMATTING and not bounded]
        styled.sort(key=lambda e: not Look().inside(e.name, e.declared).hidden)
        for old in styled[:MAX_CARRIED]:
            near = self._stack[-MAX_CARRIED:]
            if not any(e.name == old.name and e.declared == old.declared for e in near):
                self._push(_Element(old.name, old.look, old.declared, self._stack[-1].box))

    def _pop(self) -> None:
        element = self._stack.pop()
        self.elements[element.name] -= 1
        if element.deeper is not None:
            self._deeper = element.deeper
        if element.look.gone:
            return
        if element.href:
            self._finish_link(element)
        self._separate(element)

    def _separate(self, element: _Element) -> None:
        """Begin a new line, paragraph or cell where an element begins or ends."""
        if element.name in _BLOCKS:
            # A list inside a list is no paragraph of its own.
            self._break(2 if element.name in _PARAGRAPHS and element.lists < 2 else 1)
        elif element.name in _CELLS:
            self._cell = bool(self._line)

    def _finish_link(self, link: _Element) -> None:
        self._link = None
        label = " ".join(link.label).strip()
        if not link.label or _bare(label) == _bare(link.href):
            return
        said = f"<{link.href}>"
        if label and not self._line and self._lines:
            self._lines[-1] += f" {said}"  # a block inside the link has ended its line
        elif label:
            self._line.append(f" {said}")
        else:
            self._put(said, link)
        self._linked = True

    def _put(self, words: str, top: _Element, *, raw: bool = False) -> None:
        if not words:
            return
        if not self._line:
            if self._gap > 1 and self._lines:
                self._lines.append(">" * min(self._quote, top.quote))
            indent = "  " * max(0, top.lists - bool(self._bullet))
            self._line.append("> " * top.quote + indent + self._bullet)
            self._quote, self._bullet, self._gap = top.quote, "", 0
        elif self._cell:
            self._line.append(" | ")
        elif not raw and (self._space or (self._linked and words[0].isalnum())):
            self._line.append(" ")
        self._space = self._cell = self._linked = False
        self._line.append(words)
        if self._link:
            self._link.label.append(words)

    def _break_line(self) -> None:
        """End the line; a second break in a row is an empty line."""
        if self._line:
            self._break(1)
        elif self._lines:
            self._gap = min(2, self._gap + 1)

    def _break(self, gap: int) -> None:
        if self._line:
            self._lines.append("".join(self._line).rstrip())
            self._line = []
        self._gap = max(self._gap, gap)
        self._space = self._cell = self._linked = False

    def finished(self) -> str:
        """Return the whole text."""
        while len(self._stack) > 1:
            self._pop()
        self._break(0)
        return "\n".join(self._lines)[:MAX_TEXT].rstrip()  # a line of other white space is none


def _address(href: str) -> str:
    """Return the address of a link that leads to a page or a mailbox, on one line; else nothing."""
    href = _BREAK.sub("", href).strip()
    if not _SCHEME.match(href):
        return ""
    href = _UNSAFE.sub(lambda found: quote(found.group()), href)
    return href if len(href) <= MAX_LINK else f"{href[:MAX_LINK]}…"


def _bare(address: str) -> str:
    return _SCHEME.sub("", address.strip().lower()).rstrip("/")
