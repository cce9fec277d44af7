"""Which text of a page a person cannot see, judged by one table of the CSS declarations that hide.

`tinycss2` parses the styles; nothing is laid out. A declaration that can take text out of sight hides it unless its value
is known to be harmless, so that a new trick is removed too. Values are compared as normalized text: lower case,
escapes and comments resolved, single spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_STYLES: Final = (
    50_000  # characters that are parsed of style sheets, and again of `style` attributes
)
MAX_VALUE: Final = 300  # characters of a value or a selector that are judged
MAX_TESTS: Final = 300_000  # of selectors on a page; then a rule that hides holds for its last name
MAX_NESTED: Final = 8  # blocks in blocks
MAX_COLOURS: Final = 8  # that may be at one place
SMALLEST: Final = 3.0  # pixels of text, or of a box
FAINTEST: Final = 0.1  # opacity
ALIKE: Final = 30  # steps of 255, summed over red, green and blue
SCREEN: Final = 1280.0  # pixels

Node = Any  # of tinycss2, which has no types
Colour = tuple[float, float, float, float]  # red, green and blue up to 255, opacity up to 1
Paint = frozenset[Colour]  # the colours that may be at a place; empty: unknown
Value = bool | float | str | Paint  # a float: pixels, or a share
Terms = list[tuple[str, Value]]
Declared = dict[str, Value]
Ranked = dict[str, tuple[tuple[bool, int, int], Value]]  # by importance, specificity and order

_UNKNOWN: Final = "?"  # a value that is not worked out, and so hides
_UNCERTAIN: Final = "uncertain"  # a size that is not worked out: hides where too much is cut off
_WHITE: Final[Paint] = frozenset({(255.0, 255.0, 255.0, 1.0)})
_BLACK: Final[Paint] = frozenset({(0.0, 0.0, 0.0, 1.0)})
_LINK: Final[Paint] = frozenset({(0.0, 0.0, 238.0, 1.0)})
_CLEAR: Final[Paint] = frozenset({(0.0, 0.0, 0.0, 0.0)})
_NO_COLOUR: Final[Paint] = frozenset()
_SYSTEM: Final = {
    "canvas": _WHITE, "window": _WHITE, "canvastext": _BLACK, "windowtext": _BLACK, "initial": _BLACK,
}  # fmt: skip

# fmt: off
# The table. Property: the values that leave what is in a box in sight; any other hides it.
_NO_ZERO: Final = r"(?!(?:.*[ (,])?0(?:[a-z%]+)?(?:[ ),/]|$)).*"
_BOX: Final = {
    "animation": r"none\b.*|[\d.]+m?s", "animation-name": "none", "aspect-ratio": "auto.*", "backdrop-filter": "none", "background-blend-mode": "normal",
    "box-shadow": r"(?!.*inset.*\d\dpx).*", "clip": "auto", "clip-path": "none", "contain": r"none|content|(?:layout|paint|style| )+",
    "container-type": "normal|inline-size", "content": r"(?!.*(?:url|image|gradient)).*", "content-visibility": "visible|auto",
    "display": r"(?!none|table-column)[a-z -]*", "filter": r"none|(?:(?:drop-shadow|grayscale|saturate)\((?:[^()]|\([^()]*\))*\) ?)+|alpha\(.*|progid.*",
    "flex": r"(?!0 \d+ 0(?:[a-z%]+)?$|0$).*", "flex-basis": _NO_ZERO, "grid-auto-columns": _NO_ZERO, "grid-auto-rows": _NO_ZERO, "grid-template": _NO_ZERO,
    "grid-template-columns": _NO_ZERO, "grid-template-rows": _NO_ZERO, "mask": "none", "mask-border": "none", "mask-box-image": "none", "mask-image": "none",
    "mix-blend-mode": "normal", "offset": "none", "offset-path": "none", "outline": r"(?!.*\d\d[a-z]).*", "outline-offset": "[^-].*", "outline-width": r"(?!.*\d\d).*",
    "perspective": "none", "position": r"static|relative|(?:-webkit-)?sticky", "rotate": r"none|-?\ddeg", "scale": "none|1(?: 1)*",
    "transform": r"none|rotate\(-?\ddeg\)|scale\(1\)|translate(?:[xyz]|3d)?\([0px, ]+\)", "translate": "none|[0px ]+", "zoom": r"normal|1(?:\.[0-5]\d?)?|1[0-5]0%",
    "z-index": r"auto|\d+",
}
# The same for what elements inside inherit, and may take back.
_INHERITED: Final = {
    "column-count": "auto|[1-4]", "column-width": r"auto|\d{3,4}px", "columns": r"auto|[1-4]|\d{3,4}px|[1-4] auto|auto [1-4]", "tab-size": r"\d+",
    "text-security": "none", "unicode-bidi": "normal|embed|isolate|plaintext", "visibility": "visible", "writing-mode": "horizontal-tb|lr-tb|lr",
}
# Boxes that do not cut off what is too large for them.
_CUT: Final = dict.fromkeys(("overflow", "overflow-x", "overflow-y"), "visible(?: visible)?")
_HARMLESS: Final = {
    name: re.compile(rf"(?:{harmless})|initial|unset{'' if name in _CUT else '|inherit'}") for name, harmless in (_BOX | _INHERITED | _CUT).items()
}
# Lengths that text inherits: the least and the most of font sizes that leave it readable.
_TEXT: Final = {
    "letter-spacing": (-0.3, 4.0), "line-height": (0.2, 100.0), "text-indent": (-120.0, 35.0), "word-spacing": (-0.5, 9.0),
}
_SIDES: Final = ("top", "right", "bottom", "left")
_HEIGHTS: Final = ("height", "max-height")
_WIDTHS: Final = ("width", "max-width")
_SIZES: Final = _HEIGHTS + _WIDTHS
_MOVES: Final = (*_SIDES, *(f"margin-{side}" for side in _SIDES), "padding-left")
_LENGTHS: Final = frozenset({*_TEXT, *_SIZES, *_MOVES})
_GROUPS: Final = {
    f"{group}{axis}": sides
    for group in ("margin", "padding", "inset")
    for axis, sides in (("", _SIDES), ("-inline", ("left", "right")), ("-block", ("top", "bottom")))
}
_SAME: Final = {
    "inline-start": "left", "inline-end": "right", "block-start": "top", "block-end": "bottom", "block-size": "height", "inline-size": "width",
    "grid-row": "grid-area", "grid-column": "grid-area", "inset-left": "left", "inset-right": "right", "inset-top": "top", "inset-bottom": "bottom",
}
_TABLE_PARTS: Final = frozenset("table tbody thead tfoot tr td th caption".split())
_INLINE: Final = frozenset("a abbr b big code em font i s small span strong sub sup u".split())
_UNITS: Final = {
    "": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "cm": 37.8, "mm": 3.78, "q": 0.95, "in": 96.0, "rem": 16.0, "%": 12.8, "vmin": 8.0, "vmax": 12.8, "vi": 12.8,
    "vb": 8.0, "vw": 12.8, "svw": 12.8, "lvw": 12.8, "dvw": 12.8, "vh": 8.0, "svh": 8.0, "lvh": 8.0, "dvh": 8.0,
}
_EMS: Final = {"em": 1.0, "ex": 0.5, "ch": 0.5, "cap": 0.7, "ic": 1.0, "lh": 1.2}
_AS_AROUND: Final = frozenset({"inherit", "unset", "smaller", "larger"})
_SIZE_WORD: Final = re.compile(r"(?:x{1,3}-)?(?:small|large)|medium|initial")

_LENGTH: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%|[a-z]*)")
_CHOICE: Final = re.compile(r"(?:calc|min|max|clamp)\(([^()*/]*)\)")
_LITTLE: Final = re.compile(r"0*\.?0*[0-2]?%|-.*%")
_REFERENCE: Final = re.compile(r"(?:^|[^\w-])(?:var|env|attr|if|random|--[\w-]+)\(|[\\?]")
_WORD: Final = re.compile(r"[a-z0-9-]*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|[^\s,()/]+")
_LENGTH_WORD: Final = re.compile("auto|none|normal|inherit|initial|unset|(?:min|max|fit)-content")
_FONT: Final = re.compile(r"(?:.* )?((?:x{1,3}-)?(?:small|large)(?:er)?|medium|[\d.][^ /]*|\w+\([^()]*\)) ?(?:/ ?(\S+))? [^\d/].*")
_SHOWN: Final = re.compile(r"(?:-webkit-)?(?:inline|block|flow|flex|box|grid|table|ruby|list-item|math|contents|initial|unset|inherit)[a-z -]*")
_GROUND_WORD: Final = re.compile(r"none|(?:no-)?repeat(?:-[xy])?|space|round|scroll|fixed|local|center|top|bottom|left|right|auto|cover|contain|(?:border|padding|content)-box|text|unset|initial")
_PARTIAL: Final = re.compile("/|no-repeat|repeat-[xy]")
_IMPORTANT: Final = re.compile(r" ?! ?important$")
# Declarations that need no parser: no escape, comment or block, and every string and bracket is closed.
_PLAIN: Final = re.compile(r"""(?:[^"'()\\{}\[\]/<]|/(?!\*)|"[^"\\\n]*+"|'[^'\\\n]*+'|(?<!url)\((?:[^"'()\\{}\[\]/<;]|"[^"\\\n]*+"|'[^'\\\n]*+')*+\))*+""")
_OPAQUE: Final = re.compile(r"""(?s)/\*.*?(?:\*/|\Z)|url\((?:\\.|[^)\\])*+\)|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'""")
_BROUGHT: Final = re.compile(r"""(?i)(?:url\()?[\s"']*(?:data|cid|blob):""")
_SELECTOR: Final = re.compile(r"(?:[^,()\[\]]|\[[^\[\]]*\]|\((?:[^()]|\([^()]*\))*\))+")
_COMBINATOR: Final = re.compile(r"(?:\s*([>+~])\s*|\s+)(?![^\[(]*[\])])")
_ONE_OF: Final = re.compile(r":(?:is|where)\(([^(),\s]*)\)")
_NAME: Final = r"(?:[\w-]|[^\x00-\x7f]|\\[0-9a-f]{1,6} ?|\\.)+"
_SIMPLE: Final = re.compile(rf"""(?s)([.#]?)({_NAME}|\*)|\[\s*({_NAME})\s*(?:([~|^$*]?=)\s*["']?([^"'\]]*?)["']?(?:\s+[is])?\s*)?\]|(::?)({_NAME})(\(.*\))?""")
_ESCAPE: Final = re.compile(r"(?s)\\(?:([0-9a-f]{1,6}) ?|(.))")
_ATTRIBUTE: Final = {
    "": "", "=": "{}$", "~=": r"(?:.*\s)?{}(?:\s|$)", "^=": "{}", "$=": ".*{}$", "*=": ".*{}", "|=": "{}(?:-|$)",
}
_EVERYWHERE: Final = frozenset({"html", "body"})
_NEVER: Final = frozenset("hover active focus visited target focus-within focus-visible invalid user-invalid selection placeholder backdrop marker fullscreen popover-open modal empty first-letter".split())
_WIDTH: Final = re.compile(r"\((min|max)-(?:device-)?width:(\d+)\.?\d*(px|r?em)?\)")
_FEATURES: Final = dict.fromkeys("print speech yahoo (orientation:portrait) (prefers-color-scheme:dark) (hover:none) (pointer:coarse) (-ms-high-contrast:none) (-ms-high-contrast:active)".split(), False) | dict.fromkeys("only and all screen (orientation:landscape) (prefers-color-scheme:light) (hover:hover) (-webkit-min-device-pixel-ratio:0)".split(), True)
# fmt: on


@dataclass(frozen=True, slots=True)
class Look:
    """How text looks at one place of the page."""

    gone: bool = False
    hiding: frozenset[str] = frozenset()  # what hides until an element inside takes it back
    size: float = 16.0
    opacity: float = 1.0
    colour: Paint = _BLACK
    fill: Paint | None = None  # paints the letters instead of the colour
    background: Paint = _WHITE
    block_background: Paint = _WHITE  # without that of inline elements
    x: float = 0.0  # pixels by which the boxes around have moved it
    y: float = 0.0
    edge: float = 1000.0  # where it is cut off
    lengths: dict[str, float] = field(default_factory=dict)

    @property
    def hidden(self) -> bool:
        """Whether a person who looks at the page would not see text here."""
        if self.gone or self.hiding or self.size < SMALLEST:
            return True
        for name, length in self.lengths.items():
            least, most = _TEXT[name]
            if not least * self.size <= length <= most * max(self.size, 16):
                return True
        inks = self.colour if self.fill is None else self.fill
        pairs = product(inks, self.background)
        return not (inks and self.background) or any(_alike(ink, ground) for ink, ground in pairs)

    def inside(self, tag: str, declared: Declared) -> Look:
        """Return how text looks inside an element with these declarations."""
        inline = tag in _INLINE
        if self.gone or not (declared or (not inline and self.background != self.block_background)):
            return self
        measure = {name: v for name, v in declared.items() if isinstance(v, float)}
        opacity = self.opacity * measure.get("opacity", 1)
        size = measure.get("size", self.size * measure.get("ratio", 1))
        shown = declared.get("shown", "inline" if inline else "block")
        block = shown not in {"inline", "contents"}
        x = self.x + measure.get("margin-left", 0) + measure.get("padding-left", 0)
        y = self.y + measure.get("margin-top", 0)
        if declared.get("placed", "static") != "static":
            x += measure.get("left", -measure.get("right", 0))
            y += measure.get("top", -measure.get("bottom", 0))
        edge = min(self.edge, x + measure.get("width", SCREEN)) if _clips(declared) else self.edge
        moved = not (-20 <= x + min(0, measure.get("text-indent", 0)) <= edge and -50 <= y <= 3000)
        if moved or opacity < FAINTEST or _removed(tag, declared, measure, size):
            return replace(self, gone=True)
        hiding = self.hiding
        for name in _INHERITED.keys() & declared.keys():
            if declared[name] != "inherit":
                hiding = hiding | {name} if declared[name] else hiding - {name}
        colour, fill = declared.get("color"), declared.get("fill", self.fill)
        below = ground = self.block_background if block else self.background
        if "visibility" not in hiding and shown != "contents":
            ground = _grounded(below, declared)
        if declared.get("background-clip") == "text":  # the ground is seen through the letters
            fill, ground = (_NO_COLOUR if ground == below else ground), below
        lengths = {
            name: measure.get(name, 16.0 * (name == "line-height"))
            for name in _TEXT.keys() & declared.keys()
            if declared[name] != "inherit"
        }
        return replace(
            self, size=size, opacity=opacity, hiding=hiding, colour=colour if isinstance(colour, frozenset) else self.colour, fill=fill if isinstance(fill, frozenset) else self.fill if fill == "inherit" else None,
            background=ground, block_background=ground if block else self.block_background, x=x, y=y, edge=edge,
            lengths=self.lengths | lengths if lengths else self.lengths,
        )  # fmt: skip


def _removed(tag: str, declared: Declared, measure: dict[str, float], size: float) -> bool:
    """Whether nothing inside can be seen, whatever it declares itself."""
    if _UNKNOWN in declared.values() or (tag == "html" and size < 6):
        return True
    if any(declared[name] is True for name in _BOX.keys() & declared.keys()):
        return True
    cell, clips = tag in _TABLE_PARTS and "shown" not in declared, _clips(declared)
    if clips and tag not in _EVERYWHERE:
        # How much of its text such a box cuts off is not worked out.
        bounds = [*(() if cell else _HEIGHTS)]
        bounds += _WIDTHS if declared.get("white-space") == "nowrap" else ()
        if any(declared.get(name, "auto") != "auto" for name in bounds):
            return True
    sizes = [measure[name] for name in _SIZES if name in measure]
    return (
        ((clips or not cell) and min(sizes, default=SCREEN) < (40 if clips else SMALLEST))
        or measure.get("width", 0) > 2000
        or measure.get("margin-right", 0) < -100
        or measure.get("margin-bottom", 0) < -30
    )


def _clips(declared: Declared) -> bool:
    return any(declared.get(name) for name in _CUT)


@dataclass(slots=True)
class Box:
    """An element as selectors see it."""

    keys: frozenset[str]  # tag, classes and id in lower case
    exact: frozenset[str]
    attributes: dict[str, str]
    above: Box | None
    before: set[str] = field(default_factory=set)  # keys of its children so far


_NO_BOX: Final = Box(frozenset(), frozenset(), {}, None)


@dataclass(slots=True)
class _Compound:
    """A part of a selector between two combinators."""

    combinator: str = " "  # to the part on its left
    keys: set[str] = field(default_factory=set)
    exact: set[str] = field(default_factory=set)
    attributes: list[tuple[str, re.Pattern[str]]] = field(default_factory=list)
    excluded: list[_Compound] = field(default_factory=list)
    doubtful: bool = False
    pseudo: str = ""  # an element that is no element

    @property
    def weight(self) -> int:
        """The specificity."""
        marks = [key[0] for key in self.keys]
        classes = marks.count(".") + len(self.attributes) + self.doubtful
        return 10_000 * marks.count("#") + 100 * classes + len(marks)


Selector = list[_Compound]


class Sheet:
    """The rules of a page's style sheets, by one name that the last part of their selector needs."""

    def __init__(self, styles: Iterable[tuple[str, str]]) -> None:
        # What a rule declares, and what is taken of it where it may not hold.
        self._rules: dict[str, list[tuple[Selector, Ranked, Ranked]]] = {}
        self._merged: dict[str, Ranked] = {}
        self._own: dict[str, Ranked] = {}
        self._terms: dict[tuple[str, str], Terms] = {}
        self._order = self._tests = self._parsed = 0
        self._unread: set[str] = set()
        left = MAX_STYLES
        for media, css in styles:
            held = _media(media.lower())
            if held is not False and css.strip():
                if len(css) > left:
                    left = css.rfind("}", 0, left) + 1
                    self._unread |= _names(css[left:])
                self._take(_nodes(css[:left], top=True), [], doubtful=held is None, depth=0)
                left = max(0, left - len(css))

    def _take(
        self, nodes: list[Node], above: list[Selector], *, doubtful: bool, depth: int
    ) -> None:
        """Take the rules of a sheet, or those inside other rules."""
        if depth > MAX_NESTED:
            self._unread.add("*")
            return
        if above and (stated := self._stated(nodes)):
            self._add(above, stated, doubtful=doubtful)
        for node in nodes:
            held: bool | None = None
            inner = above
            if node.type == "qualified-rule":
                held, inner = not above or None, _selectors(node.prelude, above)
            elif node.type != "at-rule":
                continue
            elif node.lower_at_keyword == "import" and "data:" in _text(node.prelude):
                self._unread.add("*")
            elif node.lower_at_keyword == "media":
                held = _media(_text(node.prelude))
            elif node.lower_at_keyword not in {"supports", "layer", "container", "scope"}:
                continue
            if held is not False and node.content:
                doubt = doubtful or held is None
                self._take(_nodes(node.content), inner, doubtful=doubt, depth=depth + 1)

    def _add(self, selectors: list[Selector], stated: Ranked, *, doubtful: bool) -> None:
        self._order += 1
        for selector in selectors:
            last, kept = selector[-1], stated
            if last.pseudo in {"before", "after"}:
                # What is drawn over an element hides it; other generated content is nothing to it.
                if not covers("", {n: v for n, (_, v) in stated.items()}):
                    continue
                kept = {"display": ((True, 0, 0), True)}
            weight = min(sum(compound.weight for compound in selector), 10**6)
            sure = {n: ((loud, weight, self._order), v) for n, ((loud, _, _), v) in kept.items()}
            look = Look().inside("div", {n: v for n, (_, v) in sure.items()})
            hiding = sure if look.hidden else {}
            index = max(last.keys, key=lambda k: (k[0] == "#", k[0] == "."), default="*")
            whole = hiding if doubtful or last.pseudo == "first-line" else sure
            self._rules.setdefault(index, []).append((selector, whole, hiding))

    def _stated(self, nodes: Iterable[Node]) -> Ranked:
        found: Ranked = {}
        for node in nodes:
            if node.type == "declaration":
                self._state(found, node.lower_name, _text(node.value), loud=node.important)
        return found

    def _state(self, found: Ranked, name: str, text: str, *, loud: bool) -> None:
        if (name, text) not in self._terms:
            self._terms[name, text] = _terms(name, text)
        for term, value in self._terms[name, text]:
            if loud or term not in found or not found[term][0][0]:
                found[term] = (loud, 10**7, 0), value

    def _inline(self, style: str) -> Ranked:
        """Return what a `style` attribute declares; one too many that needs the parser hides."""
        if style in self._own:
            return self._own[style]
        found = self._own[style] = {}
        if _PLAIN.fullmatch(style):
            for declaration in _normal(style).split(";"):
                name, _, text = declaration.partition(":")
                text, loud = _IMPORTANT.subn("", text.strip())
                self._state(found, name.strip(), text, loud=bool(loud))
        elif (parsed := self._parsed + len(style)) > MAX_STYLES:
            found["display"] = (True, 10**7, 0), True
        else:
            self._parsed = parsed
            found.update(self._stated(_nodes(style)))
        return found

    def style(
        self, tag: str, attributes: dict[str, str], above: Box | None
    ) -> tuple[Box, Declared]:
        """Return an element as selectors see it, and what older attributes, rules and its own style declare."""
        found: Ranked = {term: ((False, -1, 0), value) for term, value in _hints(tag, attributes)}
        box = _NO_BOX
        if self._rules or self._unread:
            names = [f".{name}" for name in attributes.get("class", "").split()]
            names += [f"#{attributes['id']}"] if "id" in attributes else []
            keys = frozenset((tag, *(name.lower() for name in names)))
            box = Box(keys, frozenset((tag, *names)), attributes, above)
            for key in (*keys, "*"):
                if key in self._rules:
                    self._match(key, box, found)
            if above is not None:
                above.before |= keys
            if not self._unread.isdisjoint(("*", *(key.lstrip(".#") for key in keys))):
                found["display"] = (True, 10**8, 0), True
        if attributes.get("style"):
            _cascade(found, self._inline(attributes["style"]))
        return box, {term: value for term, (_, value) in found.items()}

    def _match(self, key: str, box: Box, found: Ranked) -> None:
        if self._tests <= MAX_TESTS:
            for selector, whole, hiding in self._rules[key]:
                sure = self._holds(selector, box) if self._tests <= MAX_TESTS else False
                if sure is not None:
                    _cascade(found, whole if sure else hiding)
            return
        if key not in self._merged:
            self._merged[key] = {}
            for _, _, hiding in self._rules[key]:
                _cascade(self._merged[key], hiding)
        _cascade(found, self._merged[key])

    def _holds(self, selector: Selector, box: Box) -> bool | None:
        """Whether a selector holds for an element: surely, perhaps, or (None) not."""
        fit = self._fits(selector[-1], box)
        sure, near = bool(fit), True  # near: no ancestor has been searched for yet
        place: Box | None = box
        for left, right in zip(selector[-2::-1], selector[:0:-1], strict=True):
            if fit is None or place is None:
                return None
            if right.combinator in "+~":
                self._tests += len(left.keys)
                if place.above is None or not left.keys <= place.above.before:
                    return None
                sure = False
                continue
            near = near and right.combinator == ">"
            place = place.above
            while place and (fit := self._fits(left, place)) is None and not near:
                place = place.above
            if place is None:
                return None
            sure = sure and bool(fit) and (near or right.combinator != ">")
        return None if fit is None else sure

    def _fits(self, compound: _Compound, box: Box) -> bool | None:
        self._tests += 1 + len(compound.keys) + len(compound.attributes)
        if not compound.keys <= box.keys:
            return None
        for name, wanted in compound.attributes:
            value = box.attributes.get(name)
            self._tests += len(value or "") // 50
            if value is None or not wanted.match(value):
                return None
        fits = [self._fits(excluded, box) for excluded in compound.excluded]
        if True in fits:
            return None
        return not compound.doubtful and compound.exact <= box.exact and False not in fits


def tiny(declared: Declared) -> bool:
    """Whether a picture of these measures is too small to be seen."""
    sizes = (value for name in _SIZES if isinstance(value := declared.get(name), float))
    return min(sizes, default=SCREEN) < SMALLEST


def covers(tag: str, declared: Declared) -> str:
    """Return what a box may be drawn over: the `page`, its containing `block`, its `parent`, or nothing."""
    measure = {name: v for name, v in declared.items() if isinstance(v, float)}
    thick = any(declared.get(name) is True for name in ("outline", "outline-width"))
    painted = tag == "img" or any(declared.get(n, _CLEAR) != _CLEAR for n in ("ground", "image"))
    small = 0 < measure.get("width", 0) <= 64 and 0 < measure.get("height", 0) <= 64
    if declared.get("display") is True or not (painted or thick) or small:
        return ""
    placed = declared.get("placed")
    if placed in {"absolute", "fixed", "sticky"}:
        return "block" if placed == "absolute" else "page"
    moves = [measure.get(name, 0.0) for name in _MOVES]
    raised = placed == "relative" and max(map(abs, moves)) > 10
    pulled = min(measure.get("margin-top", 0), measure.get("margin-bottom", 0)) < -10
    over = thick or raised or pulled or min(moves) < -60 or "grid-area" in declared
    return "parent" if over else ""


def _cascade(found: Ranked, more: Ranked) -> None:
    for term, stated in more.items():
        if term not in found or found[term][0] <= stated[0]:
            found[term] = stated


def _grounded(below: Paint, declared: Declared) -> Paint:
    """Return the colours that may be behind text where these are painted; none if only a part is."""
    ground, image = declared.get("ground", _CLEAR), declared.get("image", _CLEAR)
    if isinstance(ground, frozenset) and ground != _CLEAR:
        below = frozenset(_over(paint, under) for paint, under in product(ground, below or _WHITE))
    if isinstance(image, frozenset) and image != _CLEAR:
        painted = frozenset(_over(paint, under) for paint, under in product(image, below or _WHITE))
        below = _NO_COLOUR if declared.get("partial") else painted
    return below if len(below) <= MAX_COLOURS else _NO_COLOUR


def _over(paint: Colour, below: Colour) -> Colour:
    *channels, part = paint
    red, green, blue = (c * part + b * (1 - part) for c, b in zip(channels, below, strict=False))
    return red, green, blue, 1.0


def _alike(ink: Colour, ground: Colour) -> bool:
    return sum(abs(s - g) for s, g in zip(_over(ink, ground), ground, strict=True)) <= ALIKE


def _hints(tag: str, attributes: dict[str, str]) -> Iterator[tuple[str, Value]]:
    """Yield what the tag and older attributes declare."""
    if tag == "dialog" and "open" not in attributes:
        yield "display", True
    elif tag == "bdo":
        yield "unicode-bidi", True
    if not attributes:
        return
    embedded = tag == "link" and _BROUGHT.match(attributes.get("href", ""))
    if embedded or "hidden" in attributes or "popover" in attributes:
        yield "display", True
    if tag == "a" and "href" in attributes:
        yield "color", _LINK
    for name in ("width", "height") if tag == "img" else ():
        yield from _bounded(name, attributes.get(name, "").strip().lower())
    for name, term in (("color", "color"), ("bgcolor", "ground")):
        if text := attributes.get(name, "").strip().lower().removeprefix("#"):
            yield term, _colour(f"#{text}") or _colour(text) or _NO_COLOUR
    if attributes.get("background"):
        yield from _background("", _normal(f"url({attributes['background']})"))


def _nodes(css: str | list[Node], *, top: bool = False) -> list[Node]:
    # Imported where it is used: most mails have no styles, or only plain ones.
    from tinycss2 import parse_blocks_contents, parse_stylesheet

    parse = parse_stylesheet if top else parse_blocks_contents
    found: list[Node] = parse(css, skip_comments=True, skip_whitespace=True)
    return found


def _serialized(nodes: list[Node]) -> str:
    from tinycss2 import serialize

    try:
        return str(serialize([node for node in nodes if node.type != "comment"]))
    except RecursionError:
        return _UNKNOWN


def _text(nodes: list[Node]) -> str:
    return _normal(_serialized(nodes))


def _normal(css: str) -> str:
    return " ".join(_OPAQUE.sub(_opaque, css).lower().split())


def _opaque(found: re.Match[str]) -> str:
    """Return what stands for a comment, a string or an address: that the mail brings it itself is all that counts."""
    if found.group().startswith("/*"):
        return " "
    inner = "data:" if _BROUGHT.match(found.group()) else ""
    return f"url({inner})" if found.group()[0] in "uU" else f'"{inner}"'


def _names(css: str) -> set[str]:
    """Return the names in selectors of rules that are not parsed; `*` if they may hold for anything."""
    found: set[str] = set()
    for before, _ in pairwise(css.split("{")):
        head = before.rpartition("}")[2].strip()
        if head[:1] != "@":
            names = re.findall(r"[\w-]+", head.lower())
            found.update(names if names and not set("*:[\\") & set(head) else "*")
    return found


def _selectors(nodes: list[Node], above: list[Selector]) -> list[Selector]:
    """Return each selector of a list; `&` and what is not understood is doubtful, what never holds is left out."""
    found = []
    for one in _SELECTOR.findall(_ONE_OF.sub(r"\1", _serialized(nodes))):
        if len(one) > MAX_VALUE:
            found.append([_Compound(doubtful=True)])
            continue
        parts = _COMBINATOR.split(one.strip())
        pairs = zip([" ", *parts[1::2]], parts[::2], strict=True)
        compounds = [_compound(part, sign or " ", above) for sign, part in pairs if part]
        selector = [compound for compound in compounds if compound]
        if len(selector) < len(compounds):
            continue
        while len(selector) > 1 and selector[0] == _Compound(
            " ", selector[0].keys & _EVERYWHERE, selector[0].exact
        ):
            selector[-1].doubtful |= selector[1].combinator != " "
            selector = selector[1:]
        found += [selector] if selector else []
    return found


def _compound(text: str, combinator: str, above: list[Selector]) -> _Compound | None:
    part = _Compound(combinator, doubtful=bool(_SIMPLE.sub("", text).strip()))
    if "&" in text and len(above) == 1:
        part.keys |= above[0][-1].keys
    for mark, name, attribute, operator, value, colon, pseudo, argument in _SIMPLE.findall(text):
        if name and name != "*":
            plain = _ESCAPE.sub(lambda e: chr(min(int(e[1], 16), 0x10FFFF)) if e[1] else e[2], name)
            part.keys.add(mark + plain.lower())
            part.exact.add(mark + (plain if mark else plain.lower()))
        elif attribute:
            wanted = _ATTRIBUTE[operator].replace("{}", re.escape(value))
            part.attributes.append((attribute.lower(), re.compile(f"(?si){wanted}")))
        elif pseudo in {"before", "after", "first-line"}:
            part.pseudo = pseudo
        elif colon == "::" or pseudo in _NEVER:
            return None
        elif pseudo == "root":
            part.keys.add("html")
        elif pseudo == "not" and _SIMPLE.fullmatch(argument[1:-1].strip()):
            excluded = _compound(argument[1:-1], " ", [])
            part.excluded += [excluded] if excluded else []
        elif pseudo:
            part.doubtful = True
    return part


def _media(query: str) -> bool | None:
    """Whether a media query holds on a wide, light screen; None if that is not known."""
    found = []
    for one in query.replace(": ", ":").replace(" :", ":").split(","):
        words = _WIDTH.sub(_wide, one).split()
        negated = words[:1] == ["not"]
        answers = {_FEATURES.get(word) for word in words[negated:]}
        held = False if False in answers else None if None in answers else True
        found.append(held if held is None or not negated else not held)
    return True if True in found else None if None in found else False


def _wide(found: re.Match[str]) -> str:
    size = int(found[2][:9]) * (16 if "em" in (found[3] or "") else 1)
    return " all " if (size <= SCREEN if found[1] == "min" else size >= SCREEN) else " print "


def _terms(name: str, text: str) -> Terms:
    """Return what a declaration means in the terms that hide; nothing if it is harmless or not valid."""
    plain = name.removeprefix("-webkit-")
    for other, usual in _SAME.items():
        plain = plain.replace(other, usual) if other in plain else plain
    plain = plain.removeprefix("inset-") if plain.removeprefix("inset-") in _SIDES else plain
    text = text[:MAX_VALUE] if plain == "font" else text  # names of fonts follow the size
    if text.startswith("revert"):  # to what other rules or the browser say
        return [(plain, _UNKNOWN)] if plain in _TERMS else []
    unknown = len(text) > MAX_VALUE or bool(_REFERENCE.search(text))
    if plain in _HARMLESS:
        if text in {"inherit", "unset"} and plain in _INHERITED:
            return [(plain, "inherit")]
        hides = unknown or not _HARMLESS[plain].fullmatch(text)
        if name == "position":
            return [(plain, hides), ("placed", text)]
        if name == "display" and not hides:
            return [(plain, False), ("shown", text)] if _SHOWN.fullmatch(text) else []
        return [(plain, hides)] if hides or plain == name else []
    if plain not in _TERMS and plain not in _LENGTHS and plain not in _GROUPS:
        return []
    if name.startswith("-webkit-") and plain not in {"text-fill-color", "background-clip"}:
        return []
    if unknown:
        return [("image", _NO_COLOUR)] if "background" in plain else [(plain, _UNKNOWN)]
    if plain in _LENGTHS:
        return _bounded(plain, text)
    if plain in _GROUPS:
        words = _WORD.findall(text)
        words += words[1:2] * 2 if len(words) > 2 else words * 3
        group = "" if plain.startswith("inset") else plain.split("-")[0] + "-"
        sides = zip(_GROUPS[plain], words, strict=False)
        return [term for side, word in sides for term in _bounded(group + side, word)]
    return _TERMS[plain](plain, text)


def _bounded(name: str, text: str) -> Terms:
    """Return a length by what it is for; a share of a size is taken to fit."""
    if name in _SIZES and text.endswith("%"):
        return [(name, 0.0 if _LITTLE.fullmatch(text) else "auto")]
    length = _length(text)
    if length is None and "(" in text:
        return [(name, _UNCERTAIN if name in _SIZES else _UNKNOWN)]
    if length is None:
        word = "inherit" if name in _TEXT and text in {"inherit", "unset"} else "auto"
        return [(name, word)] if _LENGTH_WORD.fullmatch(text) else []
    if name == "line-height" and (ratio := re.fullmatch(r"(\d*\.?\d*)(%|em|)", text)):
        share = float(f"0{ratio[1]}") / (100 if ratio[2] == "%" else 1)
        return [(name, 0.0 if share < 0.3 else "auto")]
    return [(name, length)] if length >= 0 or name not in _SIZES else []


def _font(name: str, text: str) -> Terms:
    short = _FONT.fullmatch(text) if name == "font" else None
    word = short[1] if short else text
    if name == "font" and not short and word not in _AS_AROUND:
        return []
    line = _bounded("line-height", short[2] or "normal") if short else []
    found = _LENGTH.fullmatch(word)
    if word in _AS_AROUND or (found and found[2] in {"%", *_EMS}):
        ratio = float(found[1]) * _EMS.get(found[2], 0.01) if found else 1.0
        return [("ratio", ratio), ("size", "ratio"), *line] if ratio >= 0 else []
    size = 13.0 if _SIZE_WORD.fullmatch(word) else _length(word)
    if size is None or size < 0:
        return [("size", _UNKNOWN)] if "(" in word else []
    return [("size", size), *line]


def _opacity(name: str, text: str) -> Terms:
    if found := _LENGTH.fullmatch(text):
        return [(name, max(0.0, min(1.0, float(found[1]) / (100 if found[2] else 1))))]
    return [(name, _UNKNOWN)] if "(" in text else []


def _coloured(name: str, text: str) -> Terms:
    term = {"color": "color", "background-color": "ground"}.get(name, "fill")
    if term == "ground" and text in {"initial", "unset"}:
        return [(term, _CLEAR)]
    if text in {"inherit", "unset", "currentcolor"}:
        return [(term, "currentcolor" if term == "fill" and text == "currentcolor" else "inherit")]
    colour = _colour(text)
    return [] if colour is None else [(term, colour)]


def _background(name: str, text: str) -> Terms:
    if text == "inherit":
        return [("image", _CLEAR), ("ground", text)]
    ground, image = _CLEAR, _CLEAR
    for word in _WORD.findall(text):
        if "gradient(" in word:
            inner = (_colour(w) for w in _WORD.findall(word.partition("(")[2][:-1]))
            stops = [colour for colour in inner if colour is not None]
            image = frozenset().union(*stops) if stops and all(stops) else _NO_COLOUR
        elif word.startswith("url("):
            image = _NO_COLOUR if "data:" in word else image
        elif word not in _SYSTEM and (colour := _colour(word)) is not None:
            ground = colour
        elif "(" in word and _length(word) is None:
            image = _NO_COLOUR
        elif not _GROUND_WORD.fullmatch(word) and _length(word) is None:
            return []
    found: Terms = [("image", image), ("ground", ground), ("partial", bool(_PARTIAL.search(text)))]
    return found if name == "background" else found[:1]


def _partial(_: str, text: str) -> Terms:
    return [
        ("partial", bool(_PARTIAL.search(text) or re.search(r"(?:^|\s)-?\d(?!00%)(?! 0)", text)))
    ]


_TERMS: Final[dict[str, Callable[[str, str], Terms]]] = {
    "all": lambda _, text: [("color", "inherit" if text == "unset" else _BLACK), ("ground", _CLEAR), ("image", _CLEAR)], "background": _background,
    "background-clip": lambda name, text: [(name, text)], "background-size": _partial, "background-repeat": _partial, "background-position": _partial,
    "background-color": _coloured, "background-image": _background, "color": _coloured,
    "font": _font, "font-size": _font, "grid-area": lambda name, text: [(name, text)], "opacity": _opacity, "text-fill-color": _coloured, "white-space": lambda name, text: [(name, text)],
}  # fmt: skip


def _length(text: str) -> float | None:
    """Return a length in pixels, or the smallest of a choice; None if it is not worked out."""
    if choice := _CHOICE.fullmatch(text):
        lengths = [_length(part.strip()) for part in choice[1].split(",")]
        known = [length for length in lengths if length is not None]
        return min(known) if len(known) == len(lengths) else None
    found = _LENGTH.fullmatch(text)
    unit = _UNITS.get(found[2], 16 * _EMS.get(found[2], 0.0)) if found else None
    return max(-1e6, min(1e6, float(found[1]))) * unit if found and unit else None


def _colour(text: str) -> Paint | None:
    """Return a colour; an empty paint for one that is not worked out, None for none."""
    if text in _SYSTEM:
        return _SYSTEM[text]
    if "(" not in text and text[:1] != "#" and not text.isalpha():
        return None
    from tinycss2.color5 import parse_color

    try:
        found = parse_color(text)
        if found is None or isinstance(found, str):
            return _NO_COLOUR if "(" in text else None
        red, green, blue, part = found.to("srgb")
    except NotImplementedError:
        return _NO_COLOUR
    red, green, blue = (255 * max(0.0, min(1.0, channel)) for channel in (red, green, blue))
    return frozenset({(red, green, blue, float(part))})
