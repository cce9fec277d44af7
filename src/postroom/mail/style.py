"""Which text of a page a person cannot see, judged by one table of the CSS declarations that hide.

`tinycss2` parses the styles; nothing is laid out. A declaration that can take text out of sight hides it unless its value is
known to be harmless, so that a new trick is removed too. Values are compared as `_text` returns them: in lower case, without comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tinycss2 import parse_blocks_contents, parse_stylesheet
from tinycss2.color4 import parse_color

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_STYLES: Final = 50_000  # characters parsed of style sheets, and again of `style` attributes
MAX_VALUE: Final = 300  # characters of a value that are judged
MAX_TESTS: Final = 1_000_000  # of names in selectors on a page; what follows is hidden
MAX_NESTED: Final = 8  # blocks in blocks, functions in functions
MAX_COLOURS: Final = 8  # that may be at one place
SMALLEST: Final = 3.0  # pixels of text, or of a box
FAINTEST: Final = 0.1  # opacity
ALIKE: Final = 30  # steps of 255, summed over red, green and blue
SCREEN: Final = 1280.0  # pixels

Node = Any  # of tinycss2, which has no types
Colour = tuple[float, float, float, float]  # red, green and blue up to 255, opacity up to 1
Paint = frozenset[Colour]  # the colours that may be at a place; empty: unknown
Value = bool | float | str | Paint  # a bool: whether it hides; a float: pixels, or a share
Attributes = dict[str, str]
Terms = list[tuple[str, Value]]
Declared = dict[str, Value]
Ranked = dict[str, tuple[tuple[bool, int, int], Value]]  # by importance, specificity and order

_UNKNOWN: Final = "?"  # a value that is not worked out: hides, of a size only where it cuts off
_WHITE: Final[Paint] = frozenset({(255.0, 255.0, 255.0, 1.0)})
_BLACK: Final[Paint] = frozenset({(0.0, 0.0, 0.0, 1.0)})
_LINK: Final[Paint] = frozenset({(0.0, 0.0, 238.0, 1.0)})
_CLEAR: Final[Paint] = frozenset({(0.0, 0.0, 0.0, 0.0)})
_NO_COLOUR: Final[Paint] = frozenset()

# fmt: off
# The table. Property: the values that leave what is in a box in sight; any other hides it.
_NO_ZERO: Final = r"(?!(?:.*[ (,])?0(?:[a-z%]+)?(?:[ ),/]|$)).*"
_BOX: Final = {
    **dict.fromkeys("inset-block inset-inline margin-block margin-inline padding-block padding-inline".split(), "(?:auto|0[a-z]*| )+"),
    "animation": r"none\b.*|[\d.]+m?s", "animation-name": "none", "aspect-ratio": "auto.*", "backdrop-filter": "none", "background-blend-mode": "normal",
    "background-clip": "(?:border|padding|content)-box", "box-shadow": r"(?!.*inset.*\d\dpx).*", "clip": "auto", "clip-path": "none",
    "contain": r"none|content|(?:layout|paint|style| )+", "container-type": "normal|inline-size", "content": r"(?!.*(?:url|image|gradient)).*", "content-visibility": "visible|auto",
    "display": "(?:inline-)?(?:block|flex|grid|table)|-webkit-(?:inline-)?(?:box|flex)|inline|contents|flow-root|list-item|table-(?:cell|row|caption|(?:row|header|footer)-group)",
    "filter": r"none|(?:(?:drop-shadow|grayscale|saturate)\((?:[^()]|\([^()]*\))*\) ?)+|alpha\(.*|progid.*",
    "flex": r"(?!0 \d+ 0(?:[a-z%]+)?$|0$).*", "flex-basis": _NO_ZERO, "grid-auto-columns": _NO_ZERO, "grid-auto-rows": _NO_ZERO, "grid-template": _NO_ZERO,
    "grid-template-columns": _NO_ZERO, "grid-template-rows": _NO_ZERO, "mask": "none", "mask-border": "none", "mask-box-image": "none", "mask-image": "none",
    "mix-blend-mode": "normal", "offset": "none", "offset-path": "none", "outline": r"(?!.*\d\d[a-z]).*", "outline-offset": "[^-].*",
    "perspective": "none", "position": r"static|relative|(?:-webkit-)?sticky", "rotate": r"none|-?\ddeg", "scale": "none|1(?: 1)*",
    "transform": r"none|rotate\(-?\ddeg\)|scale\(1\)|translate(?:[xyz]|3d)?\([0px, ]+\)", "translate": "none|[0px ]+", "zoom": r"normal|1(?:\.[0-5]\d?)?|1[0-5]0%",
    "z-index": r"auto|\d+",
}
# The same for what elements inside inherit, and may take back.
_INHERITED: Final = {
    "column-count": "auto|[1-4]", "column-width": r"auto|\d{3,4}px", "columns": r"auto|[1-4]|\d{3,4}px|[1-4] auto|auto [1-4]", "tab-size": r"\d+",
    "text-fill-color": "currentcolor", "text-security": "none", "unicode-bidi": "normal|embed|isolate|plaintext", "visibility": "visible", "writing-mode": "horizontal-tb|lr-tb|lr",
}
# Values that never matter; any other hides only together with other declarations.
_JOINT: Final = {
    "background-repeat": "repeat", "background-size": "auto|cover|100%(?: 100%)?", "grid-area": "auto", "overflow": "visible(?: visible)?", "white-space": "normal|pre-(?:wrap|line)|break-spaces",
}
_HARMLESS: Final = {
    name: re.compile(f"(?:{harmless})|initial|unset" + "|inherit" * (name not in _JOINT)) for name, harmless in (_BOX | _INHERITED | _JOINT).items()
}
# Lengths that text inherits: the least and the most pixels that leave it readable.
_TEXT: Final = {"letter-spacing": (-2.0, 64.0), "line-height": (SMALLEST, 1600.0), "text-indent": (-2000.0, 560.0), "word-spacing": (-8.0, 150.0)}
_SIDES: Final = ("top", "right", "bottom", "left")
_SIZES: Final = ("height", "max-height", "width", "max-width")
_MARGINS: Final = tuple(f"margin-{side}" for side in _SIDES)
_LENGTHS: Final = frozenset((*_TEXT, *_SIZES, *_SIDES, *_MARGINS, "padding-left", "opacity"))
_SAME: Final = {
    "-webkit-": "", "inline-start": "left", "inline-end": "right", "block-start": "top", "block-end": "bottom", "block-size": "height", "inline-size": "width",
    "grid-row": "grid-area", "grid-column": "grid-area", "inset-left": "left", "inset-right": "right", "inset-top": "top", "inset-bottom": "bottom",
    "overflow-x": "overflow", "overflow-y": "overflow", "outline-width": "outline",
}
_TABLE_PARTS: Final = frozenset("table tbody thead tfoot tr td th caption".split())
_INLINE: Final = frozenset("a abbr b big code em font i s small span strong sub sup u".split())
_UNITS: Final = {"": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "cm": 37.8, "mm": 3.78, "in": 96.0, "rem": 16.0, "em": 16.0, "ex": 8.0, "ch": 8.0, "vw": 12.8, "vh": 8.0}
_LENGTH: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%|[a-z]*)")
_REFERENCE: Final = re.compile(r"(?:^|[^\w-])(?:(?:var|env|attr|if|random|--[\w-]+)\(|revert)|[\\?]")
_WORD: Final = re.compile(r"[a-z0-9-]*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|[^\s,()/]+")
_LENGTH_WORD: Final = re.compile("auto|none|normal|inherit|initial|unset|(?:min|max|fit)-content")
_FONT: Final = re.compile(r"(?:.* )?((?:x{1,3}-)?(?:small|large)(?:er)?|medium|[\d.][^ /]*|\w+\([^()]*\)) ?(?:/ ?(\S+))? [^\d/].*")
_FONT_WORD: Final = re.compile(r"inherit|unset|initial|medium|smaller|larger|(?:x{1,3}-)?(?:small|large)")
_FONT_RATIO: Final = re.compile(r"inherit|unset|smaller|larger|[\d.e-]+(?:%|em|ex|ch)")
_GROUND_WORD: Final = re.compile(r"none|(?:no-)?repeat(?:-[xy])?|space|round|scroll|fixed|local|center|top|bottom|left|right|auto|cover|contain|(?:border|padding|content)-box|unset|initial|inherit")
_SHAPE: Final = re.compile(r"\b(?:to|at|top|bottom|left|right|center|circle|ellipse)\b")  # of a gradient
_PARTIAL: Final = re.compile("/|no-repeat|repeat-[xy]|space")
_BROUGHT: Final = re.compile(r"(?i)\s*(?:data|cid|blob):")
_ANY_NAME: Final = re.compile(r"[*\\]|(?:^|[\s},]):")  # of selectors that may hold for anything
_WEIGHT: Final = {"#": 10_000, ".": 100, "[": 100, "*": 0}  # the specificity of a name; of a tag 1
_ATTRIBUTE: Final = frozenset({"ident", "literal", "string"})  # what counts in `[name=value]`
_NEVER: Final = frozenset("hover active focus visited target focus-within focus-visible invalid user-invalid fullscreen popover-open modal empty first-letter".split())
# Words of media queries: those that hold on a wide, light screen, and those that do not.
_NARROW: Final = r"(?:\d{1,3}|1[01]\d\d|12[0-7]\d)(?:\.\d+)?(?:px)?|[1-7]?\d(?:\.\d+)?r?em"
_HOLDS: Final = re.compile(rf"only|and|all|screen|\(min-(?:device-)?width:(?:{_NARROW})\)|\(orientation:landscape\)|\(prefers-color-scheme:light\)|\(hover:hover\)|\(-webkit-min-device-pixel-ratio:0\)")
_FAILS: Final = re.compile(rf"print|speech|yahoo|\(max-(?:device-)?width:(?:{_NARROW})\)|\(orientation:portrait\)|\(prefers-color-scheme:dark\)|\(hover:none\)|\(pointer:coarse\)|\(-ms-high-contrast:(?:none|active)\)")
# fmt: on


@dataclass(frozen=True)
class Look:
    """How text looks at one place of the page."""

    gone: bool = False
    hiding: frozenset[str] = frozenset()  # what hides until an element inside takes it back
    size: float = 16.0
    opacity: float = 1.0
    colour: Paint = _BLACK
    background: Paint = _WHITE
    block_background: Paint = _WHITE  # without that of inline elements
    x: float = 0.0  # pixels by which the boxes around have moved it
    y: float = 0.0
    edge: float = 1000.0  # where it is cut off

    @cached_property
    def hidden(self) -> bool:
        """Whether a person who looks at the page would not see text here."""
        known = self.colour and self.background
        if self.gone or self.hiding or self.size < SMALLEST or not known:
            return True
        return any(_alike(ink, ground) for ink, ground in product(self.colour, self.background))

    def inside(self, tag: str, declared: Declared) -> Look:
        """Return how text looks inside an element with these declarations."""
        inline = tag in _INLINE
        if self.gone or not (declared or (not inline and self.background != self.block_background)):
            return self
        pixels = partial(_pixels, declared)
        opacity = self.opacity * min(1.0, pixels("opacity", 1.0))
        size = pixels("size", self.size * pixels("ratio", 1.0))
        x = self.x + pixels("margin-left") + pixels("padding-left")
        y = self.y + pixels("margin-top")
        if declared.get("placed", "static") != "static":
            x += pixels("left", -pixels("right"))
            y += pixels("top", -pixels("bottom"))
        width = pixels("width", SCREEN) if declared.get("overflow") else SCREEN
        edge = min(self.edge, x + width)
        moved = not (-20 <= x + min(0, pixels("indent")) <= edge and -50 <= y <= 3000)
        if moved or opacity < FAINTEST or (tag == "html" and size < 6) or _removed(tag, declared):
            return replace(self, gone=True)
        taken_back = {name for name, value in declared.items() if value is False}
        hiding = (self.hiding - taken_back) | {n for n, value in declared.items() if value is True}
        hiding -= _JOINT.keys()
        colour = declared.get("color")
        shown = declared.get("shown", "inline" if inline else "block")
        block = shown not in {"inline", "contents"}
        ground = self.block_background if block else self.background
        if "visibility" not in hiding and shown != "contents":
            ground = _grounded(ground, declared)
        return replace(
            self, hiding=hiding, size=size, opacity=opacity, x=x, y=y, edge=edge, background=ground,
            block_background=ground if block else self.block_background,
            colour=colour if isinstance(colour, frozenset) else self.colour,
        )  # fmt: skip


def _pixels(declared: Declared, name: str, default: float = 0.0) -> float:
    value = declared.get(name)
    return value if isinstance(value, float) else default


def _removed(tag: str, declared: Declared) -> bool:
    """Whether nothing inside can be seen, whatever it declares itself."""
    clips, cell = bool(declared.get("overflow")), tag in _TABLE_PARTS and "shown" not in declared
    for name, value in declared.items():
        unclear = value == _UNKNOWN and (clips or name not in _SIZES)
        if unclear or (value is True and name in _BOX):
            return True
    if clips and tag not in {"html", "body"}:
        # How much of its text such a box cuts off is not worked out.
        fixed = " ".join(name for name in _SIZES if declared.get(name, "auto") != "auto")
        if ("height" in fixed and not cell) or ("width" in fixed and declared.get("white-space")):
            return True
    size = min(_pixels(declared, name, SCREEN) for name in _SIZES)
    return (
        ((clips or not cell) and size < (40 if clips else SMALLEST))
        or _pixels(declared, "width") > 2000
        or _pixels(declared, "margin-right") < -100
        or _pixels(declared, "margin-bottom") < -30
    )


def covers(tag: str, declared: Declared) -> str:
    """Return what a box may be drawn over: the `page`, its containing `block`, its `parent`, or nothing."""
    thick = declared.get("outline") is True
    painted = tag == "img" or any(declared.get(n, _CLEAR) != _CLEAR for n in ("ground", "image"))
    small = all(0 < _pixels(declared, name) <= 64 for name in ("width", "height"))
    if declared.get("display") is True or not (painted or thick) or small:
        return ""
    placed = declared.get("placed")
    if placed in {"absolute", "fixed", "sticky"}:
        return "block" if placed == "absolute" else "page"
    raised = placed == "relative" and any(abs(_pixels(declared, side)) > 10 for side in _SIDES)
    pulled = any(_pixels(declared, margin) < -15 for margin in _MARGINS)
    return "parent" if thick or raised or pulled or declared.get("grid-area") else ""


def _grounded(below: Paint, declared: Declared) -> Paint:
    """Return the colours that may be behind text where these are painted; none if only a part is."""
    partly = declared.get("background-repeat") or declared.get("background-size")
    for name in ("ground", "image"):
        paint = declared.get(name, _CLEAR)
        if isinstance(paint, frozenset) and paint != _CLEAR:
            below = frozenset(_over(top, under) for top, under in product(paint, below or _WHITE))
            if name == "image" and partly:
                return _NO_COLOUR
    return below if len(below) <= MAX_COLOURS else _NO_COLOUR


def _over(paint: Colour, below: Colour) -> Colour:
    *channels, part = paint
    red, green, blue = (c * part + b * (1 - part) for c, b in zip(channels, below, strict=False))
    return red, green, blue, 1.0


def _alike(ink: Colour, ground: Colour) -> bool:
    return sum(abs(s - g) for s, g in zip(_over(ink, ground), ground, strict=True)) <= ALIKE


class Box(NamedTuple):
    """An element as selectors see it."""

    keys: frozenset[str]  # tag, `.class`, `#id` and `[attribute`, in lower case; `*`
    exact: frozenset[str]
    above: Box | None


class _Selector(NamedTuple):
    """The names that a selector asks for in each part, from the outermost element to its own: in lower case, and exact."""

    parts: list[tuple[set[str], set[str]]]
    weight: int  # the specificity
    sure: bool  # that there is nothing more to it
    generated: bool  # stands for `::before` or `::after`


class Sheet:
    """The rules of a page's style sheets, by one name that the last part of their selector needs."""

    def __init__(self, styles: Iterable[tuple[str, str]]) -> None:
        # What a rule declares, and what is taken of it where it may not hold.
        self._rules: dict[str, list[tuple[_Selector, Ranked, Ranked]]] = {}
        self._own: dict[str, Ranked] = {}
        self._order = self._tests = self._parsed = 0
        self._unread: set[str] = set()
        left = MAX_STYLES
        for media, css in styles:
            held = _media(media.lower())
            if held is not False and css.strip():
                if len(css) > left:
                    left = css.rfind("}", 0, left) + 1
                    self._unread |= set(re.findall(r"[\w-]+", css[left:].lower()))
                    self._unread |= {"*"} if _ANY_NAME.search(css, left) else set()
                self._take(parse_stylesheet(css[:left]), [], sure=bool(held), depth=0)
                left = max(0, left - len(css))

    def _take(self, nodes: list[Node], above: list[_Selector], *, sure: bool, depth: int) -> None:
        """Take the rules of a sheet, or those inside other rules."""
        if depth > MAX_NESTED:
            self._unread.add("*")
            return
        if above and (stated := _stated(nodes)):
            self._add(above, stated, sure=sure)
        for node in nodes:
            keyword = getattr(node, "lower_at_keyword", "")
            held = _media(_text(node.prelude)) if keyword == "media" else None
            inner = above
            if node.type == "qualified-rule":
                held, inner = not above or None, _selectors(node.prelude)
            elif keyword == "import" and "data:" in _text(node.prelude):
                self._unread.add("*")
            elif keyword not in {"media", "supports", "layer", "container", "scope"}:
                continue
            if held is not False and node.content:
                inside = parse_blocks_contents(node.content)
                self._take(inside, inner, sure=sure and bool(held), depth=depth + 1)

    def _add(self, selectors: list[_Selector], stated: Ranked, *, sure: bool) -> None:
        self._order += 1
        for selector in selectors:
            if selector.generated and not covers("", _values(stated)):
                continue  # only what is drawn over an element can hide it
            rank = min(selector.weight, 10**6), self._order
            whole = {name: ((loud, *rank), value) for name, ((loud, _, _), value) in stated.items()}
            hiding = whole if Look().inside("div", _values(whole)).hidden else {}
            index = max(selector.parts[-1][0], key=lambda name: _WEIGHT.get(name[0], 1))
            self._rules.setdefault(index, []).append((selector, whole if sure else hiding, hiding))

    def style(self, tag: str, attributes: Attributes, above: Box | None) -> tuple[Box, Declared]:
        """Return an element as selectors see it, and what older attributes, rules and its own style declare."""
        found: Ranked = {term: ((False, -1, 0), value) for term, value in _hints(tag, attributes)}
        names = [f".{name}" for name in attributes.get("class", "").split()]
        names += [f"#{attributes['id']}"] if "id" in attributes else []
        names += [f"[{name}" for name in attributes]
        names += [f"[{name}={value}" for name, value in attributes.items()]
        exact = frozenset((tag, "*", *names))
        box = Box(frozenset(name.lower() for name in exact), exact, above)
        unread = self._unread and self._unread & {key.lstrip(".#[") for key in box.keys}
        if unread or self._tests > MAX_TESTS:
            return box, {"display": True}
        for key in box.keys & self._rules.keys():
            for selector, whole, hiding in self._rules[key]:
                sure = self._holds(selector, box)
                if sure is not None:
                    _cascade(found, whole if sure else hiding)
        if attributes.get("style"):
            _cascade(found, self._inline(attributes["style"]))
        return box, _values(found)

    def _inline(self, style: str) -> Ranked:
        """Return what a `style` attribute declares; one beyond the bound hides."""
        if style not in self._own:
            self._parsed += len(style)
            known = style if self._parsed <= MAX_STYLES else "display:none!important"
            self._own[style] = _stated(parse_blocks_contents(known))
        return self._own[style]

    def _holds(self, selector: _Selector, box: Box) -> bool | None:
        """Whether a selector holds for an element: surely, perhaps, or (None) not."""
        wanted, sure = list(selector.parts), selector.sure
        self._tests += len(wanted)
        place: Box | None = box
        while wanted and place:
            names, exact = wanted[-1]
            self._tests += len(names)
            if names <= place.keys:
                sure &= exact <= place.exact
                wanted.pop()
            elif place is box:
                return None
            place = place.above
        return None if wanted else sure


def _cascade(found: Ranked, more: Ranked) -> None:
    for term, stated in more.items():
        if term not in found or found[term][0] <= stated[0]:
            found[term] = stated


def _values(ranked: Ranked) -> Declared:
    return {term: value for term, (_, value) in ranked.items()}


def _stated(nodes: Iterable[Node]) -> Ranked:
    found: Ranked = {}
    for node in nodes:
        if node.type == "declaration":
            for term, value in _terms(node.lower_name, _text(node.value)):
                _cascade(found, {term: ((node.important, 10**7, 0), value)})
    return found


def _hints(tag: str, attributes: Attributes) -> Iterator[tuple[str, Value]]:
    """Yield what the tag and older attributes declare."""
    closed = tag in {"details", "dialog"} and "open" not in attributes
    embedded = tag == "link" and _BROUGHT.match(attributes.get("href", ""))
    if closed or embedded or "hidden" in attributes or "popover" in attributes:
        yield "display", True
    if tag == "a" and "href" in attributes:
        yield "color", _LINK
    for name in ("width", "height") if tag == "img" else ():
        yield from _lengths(name, attributes.get(name, "").strip().lower())
    for name, term in (("text" if tag == "body" else "color", "color"), ("bgcolor", "ground")):
        if text := attributes.get(name, "").strip().lower().removeprefix("#"):
            yield term, _colour(f"#{text}") or _colour(text) or _NO_COLOUR
    if _BROUGHT.match(attributes.get("background", "")):
        yield "image", _NO_COLOUR


def _text(nodes: list[Node], depth: int = 0) -> str:
    """Return a value as normalized text; of strings and addresses only whether the mail brings what they name."""
    found = ""
    for node in nodes:
        if node.type in {"comment", "whitespace"}:
            found += " "
        elif node.type in {"string", "url"}:
            found += "url(data:)" if _BROUGHT.match(node.value) else f"{node.type}()"
        elif node.type in {"function", "() block"} and depth < MAX_NESTED:
            inner = node.arguments if node.type == "function" else node.content
            found += f"{getattr(node, 'lower_name', '')}({_text(inner, depth + 1)})"
        else:
            found += _UNKNOWN if node.type.endswith(("block", "function")) else node.serialize()
    return " ".join(found.lower().split()) if len(found) <= MAX_VALUE else _UNKNOWN


def _selectors(prelude: list[Node]) -> list[_Selector]:
    """Return each selector of a list, as far as it is understood; what never holds is left out."""
    groups = [list(nodes) for comma, nodes in groupby(prelude, lambda n: n == ",") if not comma]
    return [selector for nodes in groups if (selector := _selector(nodes))]


def _selector(nodes: list[Node]) -> _Selector | None:
    parts, weight, sure, generated = [set[str]()], 0, True, False
    marks = ""  # that stand before a name
    for node in nodes:
        text = str(getattr(node, "value", ""))
        kind = text if node.type == "literal" else node.type
        if kind in {".", ":"}:
            marks += kind
            continue
        if kind in {"whitespace", ">", "+", "~"}:
            sure &= kind == "whitespace"
            if kind in {"+", "~"}:  # siblings are not known
                parts.clear()
                weight += 10**5
            parts.append(set())
        elif kind in {"ident", "hash"} and ":" not in marks:
            parts[-1].add("#" + text if kind == "hash" else marks + text if marks else text.lower())
        elif kind == "[] block":
            words = [n.value.lower() for n in node.content if n.type in _ATTRIBUTE]
            test = "".join(words[:3] if words[1:2] == ["="] else words[:1])
            parts[-1].add(f"[{test}" if test and "|" not in words else "*")
            sure = False
        elif text.lower() in {"before", "after"}:
            sure, generated = False, True
        elif text.lower() in _NEVER or (marks == "::" and text != "first-line"):
            return None
        elif kind != "comment":
            parts[-1].add("*")
            sure &= kind == "*"
            weight += {"*": 0, "function": 10**5}.get(kind, 100)
        marks = ""
    *around, last = [part for part in parts if part] or [{"*"}]
    # Every element has html and body around it.
    kept = [part for part in around if not part <= {"html", "body", "*"}] + [last]
    weight += sum(_WEIGHT.get(name[0], 1) for part in parts for name in part)
    lower = [({name.lower() for name in part}, part) for part in kept]
    return _Selector(lower, weight, sure, generated)


def _media(query: str) -> bool | None:
    """Whether a media query holds on a wide, light screen; None if that is not known."""
    found = set()
    for one in query.replace(": ", ":").replace(" :", ":").split(","):
        words = one.split()
        fails = "not" not in words and any(_FAILS.fullmatch(word) for word in words)
        found.add(False if fails else all(map(_HOLDS.fullmatch, words)) or None)
    return True if True in found else None if None in found else False


def _terms(name: str, text: str) -> Terms:
    """Return what a declaration means in the terms that hide; nothing if it is harmless or not valid."""
    plain = name
    for other, usual in _SAME.items():
        plain = plain.replace(other, usual) if other in plain else plain
    unknown = bool(_REFERENCE.search(text))
    if plain in _HARMLESS:
        if text in {"inherit", "unset"} and plain in _INHERITED:
            return [(plain, "inherit")]
        hides = unknown or not _HARMLESS[plain].fullmatch(text)
        if name in {"display", "position"}:
            return [(plain, hides), ("placed" if name == "position" else "shown", text)]
        return [(plain, hides)] if hides or plain == name else []
    if plain not in _TERMS or name.startswith("-webkit-"):
        return []
    if unknown:
        return [("image", _NO_COLOUR)] if "background" in plain else [(plain, _UNKNOWN)]
    return _TERMS[plain](plain, text)


def _sides(name: str, text: str) -> Terms:
    words = _WORD.findall(text)
    words += words[1:2] * 2 if len(words) > 2 else words * 3
    group = "" if name == "inset" else f"{name}-"
    sides = zip(_SIDES, words, strict=False)
    return [term for side, word in sides for term in _terms(group + side, word)]


def _lengths(name: str, text: str) -> Terms:
    """Return a length by what it is for; a share of a size is taken to fit."""
    if name != "opacity" and _LENGTH_WORD.fullmatch(text):
        inherits = name in _TEXT and text in {"inherit", "unset"}
        return [(name, "inherit" if inherits else False if name in _TEXT else "auto")]
    text += "em" if name == "line-height" and text[-1:].isdigit() else ""
    length = _length(text, whole={"line-height": 16.0, "opacity": 1.0}.get(name, SCREEN))
    if length is None:
        return [(name, _UNKNOWN)] if "(" in text or _LENGTH.fullmatch(text) else []
    if name in _TEXT:
        least, most = _TEXT[name]
        hides = not least <= length <= most
        return [(name, hides), ("indent", length)] if name == "text-indent" else [(name, hides)]
    if name in _SIZES and text.endswith("%") and 40 <= length <= 2000:
        return [(name, "auto")]
    return [(name, length)] if length >= 0 or name not in _SIZES else []


def _length(text: str, *, whole: float = SCREEN) -> float | None:
    """Return a length in pixels, where 100 % is `whole`; None if it is not worked out."""
    found = _LENGTH.fullmatch(text)
    unit = (_UNITS | {"%": whole / 100}).get(found[2]) if found else None
    return max(-1e6, min(1e6, float(found[1]))) * unit if found and unit else None


def _font(name: str, text: str) -> Terms:
    short = _FONT.fullmatch(text) if name == "font" else None
    if name == "font" and not short and not _FONT_WORD.fullmatch(text):
        return []
    word = short[1] if short else text
    line = _lengths("line-height", short[2] or "normal") if short else []
    size = _length(word, whole=16)
    if _FONT_WORD.fullmatch(word):
        size = 13.0 if "small" in word else 16.0
    if size is None or size < 0:
        return [("size", _UNKNOWN)] if "(" in word or _LENGTH.fullmatch(word) else []
    if _FONT_RATIO.fullmatch(word):
        return [("ratio", size / 16), ("size", "ratio"), *line]
    return [("size", size), *line]


def _coloured(name: str, text: str) -> Terms:
    if text in {"inherit", "unset", "currentcolor"}:
        return [(name, "inherit")]
    colour = _colour(text)
    return [] if colour is None else [(name, colour)]


def _background(name: str, text: str) -> Terms:
    ground, image = _CLEAR, _CLEAR
    for word in _WORD.findall(text):
        if "gradient(" in word:
            inner = (_colour(w) for w in _WORD.findall(_SHAPE.sub("", word).partition("(")[2][:-1]))
            stops = [colour for colour in inner if colour is not None]
            image = frozenset().union(*stops) if stops and all(stops) else _NO_COLOUR
        elif word.startswith("url("):
            image = _NO_COLOUR if "data:" in word else image
        elif not _GROUND_WORD.fullmatch(word) and _length(word) is None:
            if (colour := _colour(word)) is None:
                return []
            ground = colour
    partial: Terms = [
        ("background-repeat", bool(_PARTIAL.search(text))),
        ("background-size", False),
    ]
    found: Terms = [("ground", ground), ("image", image), *partial]
    return {"background-color": found[:1], "background-image": found[1:2]}.get(name, found)


def _colour(text: str) -> Paint | None:
    """Return a colour; an empty paint for one that is not worked out, None for none."""
    if text in {"windowtext", "canvastext", "initial"}:
        return _BLACK
    try:
        found = parse_color(text)
        if found is None or isinstance(found, str):
            known = text in {"none", "auto"} or not ("(" in text or text.isalpha())
            return None if known else _NO_COLOUR
        red, green, blue, part = found.to("srgb")
    except NotImplementedError:
        return _NO_COLOUR
    red, green, blue = (255 * max(0.0, min(1.0, channel)) for channel in (red, green, blue))
    return frozenset({(red, green, blue, float(part))})


_TERMS: Final[dict[str, Callable[[str, str], Terms]]] = {
    **dict.fromkeys(_LENGTHS, _lengths),
    **dict.fromkeys(("inset", "margin", "padding"), _sides),
    **dict.fromkeys(("background", "background-color", "background-image"), _background),
    **dict.fromkeys(("font", "font-size"), _font),
    "all": lambda name, _: [(name, _UNKNOWN)],
    "color": _coloured,
}
