"""HTML as a person sees it, in plain text: structure and links kept, hidden text taken out and counted.

The tokenizer is our own and linear in what it is given. Parsers that build a tree after the HTML standard
are not: unclosed formatting elements are opened again in every paragraph, which is quadratic.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html import unescape
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from postroom.mail.style import Box, Declared, Look, Sheet, covers, tiny

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HTML: Final = 1_000_000  # characters of a page that are read
MAX_TEXT: Final = 1_000_000  # characters of text that are made of it
MAX_DEPTH: Final = 128  # open elements; what is nested deeper counts to the one above it
MAX_INDENT: Final = 8  # quotations in quotations, lists in lists
# Formatting elements that go on behind their block; those that hide come first.
MAX_CARRIED: Final = 8
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
_ENTITY: Final = re.compile(
    r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};?)"
)
_SPACE: Final = re.compile(r"[ \t\n\r\f\xa0]+")
_BREAK: Final = re.compile(r"[\t\r\n]+")
_UNSAFE: Final = re.compile(r"[\x00-\x20<>\x7f-\xa0\u2028\u2029]")
_SCHEME: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_HAS_STYLE: Final = re.compile(r"<style", re.IGNORECASE)
# Names of tokens that no tag can have: a style sheet, and text that nobody sees.
STYLE: Final = "#style"
UNSEEN: Final = "#unseen"

_VOID: Final = frozenset(
    "area base br col embed hr img input link meta param source track wbr bgsound frame keygen".split()
)
_RAW: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes")
}
_SHOWN_RAW: Final = frozenset({"textarea", "xmp"})
_FOREIGN: Final = frozenset({"svg", "math"})  # an empty one ends itself (section 13.2.6.5)
# What a browser draws itself or not at all; what can be hidden in drawings and formulas has no end.
_DROPPED: Final = _FOREIGN | frozenset(
    "audio canvas datalist marquee meter progress rp select template video".split()
)
# These stay in force when the block that they stand in ends (HTML standard, section 13.2.4.3).
_FORMATTING: Final = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_PARAGRAPHS: Final = frozenset(
    "p h1 h2 h3 h4 h5 h6 ul ol dl blockquote table pre hr fieldset".split()
)
_BLOCKS: Final = _PARAGRAPHS | frozenset(
    "address article aside body caption center dd details dialog div dt figcaption figure footer form "
    "header html legend li main nav option section summary tbody tfoot thead tr".split()
)
_PREFORMATTED: Final = frozenset({"pre", "xmp", "textarea", "listing", "plaintext"})
_LISTS: Final = frozenset({"ul", "ol"})
_P: Final = frozenset({"p"})
_COVERED: Final = frozenset({"covered"})
_NONE: Final[frozenset[str]] = frozenset()
_CELLS: Final = frozenset({"td", "th"})
# A stray end tag does not reach out of them.
_SCOPES: Final = frozenset({"td", "th", "caption", "table"})
_TABLE: Final = _SCOPES | {"tr", "tbody", "thead", "tfoot"}
# An element that ends where another of these begins (HTML standard, section 13.1.2.4).
_ENDED_BY: Final = {
    "a": (frozenset({"a"}), _SCOPES),
    "li": (frozenset({"li"}), frozenset({"ul", "ol"})),
    "dt": (frozenset({"dt", "dd"}), frozenset({"dl"})),
    "dd": (frozenset({"dt", "dd"}), frozenset({"dl"})),
    "td": (_CELLS, frozenset({"table"})),
    "th": (_CELLS, frozenset({"table"})),
    "tr": (frozenset({"tr"}), frozenset({"table"})),
    "option": (frozenset({"option"}), frozenset({"select"})),
}


class Rendered(NamedTuple):
    """The readable text of a page, and how many characters of it were hidden from the eye."""

    text: str
    hidden: int


def text(source: str) -> Rendered:
    """Return a page as readable text; nothing that it names is fetched."""
    source = source[:MAX_HTML].replace("\0", "")
    styles, implied = _styles(source)
    sheet = Sheet(styles)
    page = _render(source, sheet, implied, frozenset())
    if page.covered:
        page = _render(source, sheet, implied, frozenset(page.covered))
    return Rendered(page.finished(), page.hidden)


def _render(source: str, sheet: Sheet, implied: list[str], covered: frozenset[int]) -> _Page:
    """Return the page; `covered` are elements, by number, over which another is drawn."""
    page = _Page(sheet, covered)
    for name in implied:
        page.open(name, {})
    for name, chars, closing in tokens(source):
        if not name:
            page.say(unescaped(chars))
        elif closing:
            page.close(name)
        elif name == UNSEEN:
            page.hide(chars)
        elif name not in {STYLE, "style"} and not (name in _FOREIGN and chars.endswith("/")):
            page.open(name, attributes(chars) if chars else {})
        if page.written > MAX_TEXT:
            break
    return page


def unescaped(chars: str) -> str:
    """Return text with its character references read."""
    if "&" not in chars:
        return chars
    return _ENTITY.sub(lambda found: unescape(found.group()), chars)


def tokens(source: str) -> Iterator[tuple[str, str, bool]]:
    """Yield each tag as name, attributes and whether it closes; text has no name."""
    at, end = 0, len(source)
    while at < end:
        token = _TOKEN.match(source, at)
        if token is None:
            yield UNSEEN, source[at:], False  # a tag without its end: the rest is taken for it
            return
        at = token.end()
        chars, closing, tag, attributes, sign = token.groups()
        if chars or sign:
            yield "", chars or sign, False
        elif tag:
            name = tag.lower()
            if name not in _RAW or closing:
                yield name, attributes, bool(closing)
                continue
            until = _RAW[name].search(source, at)
            stop = until.start() if until else end
            if name in _SHOWN_RAW:
                yield name, attributes, False
                yield "", source[at:stop], False
            elif name == "style":
                yield name, attributes, False
                yield STYLE, source[at:stop], False
            elif name != "script" and (name != "title" or not until):
                yield UNSEEN, source[at:stop], False
            at = stop


def _styles(source: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return each style sheet with its media, and which of html and body have no tag; sheets in a template do not count."""
    if not _HAS_STYLE.search(source):
        return [], []
    found, implied = [], ["html", "body"]
    media, css, templates = "", True, 0
    for name, chars, closing in tokens(source):
        if name == "template":
            templates = max(0, templates + (-1 if closing else 1))
        elif name == STYLE and css:
            found.append((media, chars))
        elif name == "style" and not closing:
            stated = attributes(chars)
            media = stated.get("media", "")
            css = stated.get("type", "").strip().lower() in {"", "text/css"} and not templates
        elif name in implied:
            implied.remove(name)
    return found, implied


def attributes(chars: str) -> dict[str, str]:
    """Return an element's attributes; of two with one name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(chars):
        found.setdefault(name.lower(), unescaped(double or single or bare))
    return found


@dataclass(slots=True)
class _Element:
    """An open element, and what it does to the text inside it."""

    name: str
    look: Look
    declared: Declared
    box: Box | None = None
    number: int = 0
    hides: frozenset[str] = _NONE  # until an element inside shows it
    shows: frozenset[str] = _NONE
    quote: int = 0
    lists: int = 0
    pre: bool = False
    items: int = 0
    href: str = ""
    label: list[str] = field(default_factory=list)
    pictured: bool = False
    unseen: bool = False
    deeper: Counter[str] | None = None  # of the page, where this one stands beyond the depth


class _Page:
    """The text of a page as it grows, line by line."""

    def __init__(self, sheet: Sheet, covered: frozenset[int]) -> None:
        self.covered: set[int] = set()  # elements over which another is drawn
        self._covered = covered
        self._opened = 0
        self.hidden = 0
        self.written = 0
        self._sheet = sheet
        self._stack = [_Element("", Look(), {})]
        if 0 in covered:
            self._stack[0].look, self._stack[0].unseen = Look(gone=True), True
        self._open: Counter[str] = Counter()
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
        if top.unseen:
            self.hidden += len(words.strip())
        elif top.pre:
            first, *rest = chars.replace("\r\n", "\n").replace("\xa0", " ").split("\n")
            self._put(first, top, raw=True)
            for line in rest:
                self._break_line()
                self._put(line, top, raw=True)
        else:
            self._space = self._space or words.startswith(" ")
            if words.strip(" "):
                self._put(words.strip(" "), top)
                self._space = words.endswith(" ")

    def hide(self, chars: str) -> None:
        """Count text that nobody sees."""
        self.hidden += len(_SPACE.sub(" ", chars).strip())

    def open(self, name: str, attributes: dict[str, str]) -> None:
        """Take a start tag."""
        if name in _ENDED_BY:
            self._end_before(*_ENDED_BY[name])
        elif name in _BLOCKS and self._open["p"]:
            self._end_before(_P, _SCOPES)
        if name == "body" and "text" in attributes:
            attributes.setdefault("color", attributes["text"])
        top = self._stack[-1]
        box, declared = self._sheet.style(name, attributes, top.box)
        if name in _DROPPED or (name == "object" and "data" in attributes):
            declared["display"] = True
        self._opened += 1
        element = _Element(name, top.look, declared, box, self._opened)
        self._cover(element)
        if name == "details" and "open" not in attributes:
            element.hides = frozenset({f"details {element.number}"})
        elif name == "summary" and top.name == "details":
            element.shows = top.hides
        if name in _VOID:
            self._void(name, attributes, declared)
        elif self._push(element) and not self._stack[-1].look.gone:
            self._begin(self._stack[-1], attributes)

    def _cover(self, element: _Element) -> None:
        """Note what a box may be drawn over, or a column or a sheet may hide."""
        name, declared = element.name, element.declared
        top = self._stack[-1]
        over = covers(name, declared) if (declared or name == "img") and not top.look.gone else ""
        if over == "block":
            placed = (e for e in reversed(self._stack) if e.declared.get("placed") == "relative")
            self.covered.add(next(placed, self._stack[0]).number)
        elif over == "page" or (name == "link" and declared.get("display")):
            self.covered.add(0)
        elif over:
            self.covered.add(top.number)
            element.shows = _COVERED
        elif name in {"col", "colgroup"} and declared.get("visibility"):
            self.covered.update(e.number for e in self._stack if e.name == "table")
        if element.number in self._covered:
            element.hides |= _COVERED

    def _push(self, element: _Element) -> bool:
        """Put an element on the stack; beyond the depth only one that hides, and count the others."""
        name, top = element.name, self._stack[-1]
        self._see(element, top.look)
        if len(self._stack) >= MAX_DEPTH:
            if top.unseen or not element.unseen:
                self._deeper[name] += 1
                return False
            element.deeper, self._deeper = self._deeper, Counter()
        element.quote = min(MAX_INDENT, top.quote + (name == "blockquote"))
        element.lists = min(MAX_INDENT, top.lists + (name in _LISTS))
        element.pre = top.pre or name in _PREFORMATTED
        self._stack.append(element)
        self._open[name] += 1
        return True

    def _see(self, element: _Element, around: Look) -> None:
        look = around.inside(element.name, element.declared)
        if element.hides or element.shows:
            look = replace(look, hiding=(look.hiding - element.shows) | element.hides)
        element.look, element.unseen = look, look.hidden

    def _begin(self, element: _Element, attributes: dict[str, str]) -> None:
        name = element.name
        if name in _BLOCKS:
            # A list inside a list is no paragraph of its own.
            self._break(2 if name in _PARAGRAPHS and element.lists < 2 else 1)
        if name in _CELLS:
            self._cell = bool(self._line)
        elif name == "li":
            owner = next((e for e in reversed(self._stack[:-1]) if e.name in _LISTS), None)
            if owner is None or owner.name == "ul":
                self._bullet = "- "
            else:
                owner.items += 1
                self._bullet = f"{owner.items}. "
        elif name == "a":
            element.href = _address(attributes.get("href", ""))
            self._link = element if element.href else None

    def _void(self, name: str, attributes: dict[str, str], declared: Declared) -> None:
        top = self._stack[-1]
        words = " ".join(attributes.get("alt", "").split()) if name == "img" else ""
        look = top.look.inside(name, declared)
        if look.gone or look.hiding or (name == "img" and tiny(declared)):
            self.hide(words)
        elif name == "br":
            self._break_line()
        elif name == "hr":
            self._break(2)
            self._put("---", top)
            self._break(2)
        elif name == "img":
            if self._link:
                self._link.pictured = True
            if words and look.hidden:
                self.hide(words)
            elif words:
                self._put(f"[image: {words}]", top)

    def close(self, name: str) -> None:
        """Take an end tag; one without its start tag is nothing."""
        if name in {"html", "body"}:
            return  # what follows still belongs to them
        if self._deeper[name]:
            self._deeper[name] -= 1
        elif name == "br":
            self._break_line()
        elif self._open[name]:
            self._end_before(frozenset({name}), _NONE if name in _TABLE else _SCOPES - {name})

    def _end_before(self, names: frozenset[str], barrier: frozenset[str]) -> None:
        """Close the innermost element of these names, unless a barrier stands before it."""
        for at in range(len(self._stack) - 1, 0, -1):
            name = self._stack[at].name
            if name in names:
                if name in _FORMATTING:
                    self._end_alone(at)
                else:
                    self._end(at)
                return
            if name in barrier:
                return

    def _end_alone(self, at: int) -> None:
        """Close a formatting element, and nothing that was opened inside it."""
        inner = self._stack[at + 1 :]
        del self._stack[at + 1 :]
        self._pop()
        for element in inner:
            self._see(element, self._stack[-1].look)
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
        self._open[element.name] -= 1
        if element.deeper is not None:
            self._deeper = element.deeper
        if element.look.gone:
            return
        if element.href:
            self._finish_link(element)
        if element.name in _BLOCKS:
            self._break(2 if element.name in _PARAGRAPHS and element.lists < 2 else 1)
        elif element.name in _CELLS:
            self._cell = bool(self._line)

    def _finish_link(self, link: _Element) -> None:
        self._link = None
        label = " ".join(link.label)
        if not (label or link.pictured) or _bare(label) == _bare(link.href):
            return
        said = f"<{link.href}>"
        self.written += len(said)
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
        self.written += len(words) + 1
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
        return "\n".join(self._lines).rstrip()  # a line of other white space is none


def _address(href: str) -> str:
    """Return the address of a link that leads to a page or a mailbox, on one line; else nothing."""
    href = _BREAK.sub("", href).strip()
    if not _SCHEME.match(href):
        return ""
    href = _UNSAFE.sub(lambda found: quote(found.group()), href)
    return href if len(href) <= MAX_LINK else f"{href[:MAX_LINK]}…"


def _bare(address: str) -> str:
    return _SCHEME.sub("", address.strip().lower()).rstrip("/")
