"""What CSS declarations mean for the visibility of text, by the tables in `css.toml`; nothing is laid out.

A declaration that can take text out of sight hides it unless its value is known to be harmless, so that a new trick is
caught too. Values are compared as `value_text` returns them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from tinycss2.color4 import parse_color

from postroom.core.values import dataclass

MAX_VALUE: Final = 300  # characters of a value that are judged
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
Terms = Sequence[tuple[str, Value]]
Declared = dict[str, Value]

_UNKNOWN: Final = "?"  # cannot be worked out: it hides, but as a size only where it clips
_WHITE: Final[Paint] = frozenset({(255.0, 255.0, 255.0, 1.0)})
_BLACK: Final[Paint] = frozenset({(0.0, 0.0, 0.0, 1.0)})
LINK_COLOUR: Final[Paint] = frozenset({(0.0, 0.0, 238.0, 1.0)})
_CLEAR: Final[Paint] = frozenset({(0.0, 0.0, 0.0, 0.0)})
NO_COLOUR: Final[Paint] = frozenset()

_TABLES: Final = tomllib.loads(Path(__file__).with_name("css.toml").read_text("utf-8"))
WORDS: Final = {name: frozenset[str](text.split()) for name, text in _TABLES["words"].items()}
PATTERNS: Final = {
    name: re.compile(text.replace("{narrow}", _TABLES["patterns"]["narrow"]))
    for name, text in _TABLES["patterns"].items()
}


def _harmless_values(table: str) -> dict[str, re.Pattern[str]]:
    always = "|initial|unset" if table == "joint" else "|initial|unset|inherit"
    rows = _TABLES[table].items()
    return {n: re.compile(f"(?:{text}){always}") for names, text in rows for n in names.split()}


_BOX, _INHERITED, _JOINT = (_harmless_values(table) for table in ("box", "inherited", "joint"))
_HARMLESS: Final = _BOX | _INHERITED | _JOINT
_TEXT_LENGTHS: Final[dict[str, tuple[float, float]]] = _TABLES["text_lengths"]
_SYNONYMS: Final[dict[str, str]] = _TABLES["synonyms"]
_UNITS: Final[dict[str, float]] = _TABLES["units"]
_SIDES: Final = ("top", "right", "bottom", "left")
_SIZES: Final = ("height", "max-height", "width", "max-width")
_MARGINS: Final = tuple(f"margin-{side}" for side in _SIDES)


@dataclass(frozen=True)
class TextStyle:
    """How text looks at one place of the page."""

    removed: bool = False  # whatever elements inside declare
    hidden_by: frozenset[str] = frozenset()  # properties that an element inside may override
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
        if self.removed or self.hidden_by or not (self.colour and self.background):
            return True
        pairs = product(self.colour, self.background)
        return self.size < SMALLEST or any(_is_alike(ink, ground) for ink, ground in pairs)

    def inside(self, tag: str, declared: Declared) -> TextStyle:
        inline = tag in WORDS["inline"]
        changes = declared or (not inline and self.background != self.block_background)
        if self.removed or not changes:
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
        outside = not (-20 <= x + min(0, pixels("indent")) <= edge and -50 <= y <= 3000)
        tiny = opacity < FAINTEST or (tag == "html" and size < 6)
        if outside or tiny or _is_removed(tag, declared):
            return replace(self, removed=True)
        shows = {name for name, value in declared.items() if value is False}
        hides = {name for name, value in declared.items() if value is True} - _JOINT.keys()
        hidden_by = (self.hidden_by - shows) | hides
        colour = declared.get("color")
        display = declared.get("shown", "inline" if inline else "block")
        block = display not in {"inline", "contents"}
        ground = self.block_background if block else self.background
        if "visibility" not in hidden_by and display != "contents":
            ground = _paint_over(ground, declared)
        return replace(
            self, hidden_by=hidden_by, size=size, opacity=opacity, x=x, y=y, edge=edge, background=ground,
            block_background=ground if block else self.block_background,
            colour=colour if isinstance(colour, frozenset) else self.colour,
        )  # fmt: skip


def _pixels(declared: Declared, name: str, default: float = 0.0) -> float:
    value = declared.get(name)
    return value if isinstance(value, float) else default


def _is_removed(tag: str, declared: Declared) -> bool:
    clips = bool(declared.get("overflow"))
    cell = tag in WORDS["table_parts"] and "shown" not in declared
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


def covered_by(tag: str, declared: Declared) -> str:
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


def _paint_over(below: Paint, declared: Declared) -> Paint:
    """Return the colours that may be behind text after these are painted; none if only a part is."""
    partly = declared.get("background-repeat") or declared.get("background-size")
    for name in ("ground", "image"):
        paint = declared.get(name, _CLEAR)
        if isinstance(paint, frozenset) and paint != _CLEAR:
            below = frozenset(_blend(top, under) for top, under in product(paint, below or _WHITE))
            if name == "image" and partly:
                return NO_COLOUR
    return below if len(below) <= MAX_COLOURS else NO_COLOUR


def _blend(paint: Colour, below: Colour) -> Colour:
    *channels, part = paint
    red, green, blue = (c * part + b * (1 - part) for c, b in zip(channels, below, strict=False))
    return red, green, blue, 1.0


def _is_alike(ink: Colour, ground: Colour) -> bool:
    return sum(abs(s - g) for s, g in zip(_blend(ink, ground), ground, strict=True)) <= ALIKE


def value_text(nodes: list[Node], depth: int = 0) -> str:
    """Return a value in lower case without comments; of strings and addresses only whether the mail embeds them."""
    text = ""
    for node in nodes:
        if node.type in {"comment", "whitespace"}:
            text += " "
        elif node.type in {"string", "url"}:
            text += "url(data:)" if PATTERNS["embedded"].match(node.value) else f"{node.type}()"
        elif node.type in {"function", "() block"} and depth < MAX_NESTED:
            inner = node.arguments if node.type == "function" else node.content
            text += f"{getattr(node, 'lower_name', '')}({value_text(inner, depth + 1)})"
        else:
            text += _UNKNOWN if node.type.endswith(("block", "function")) else node.serialize()
    return " ".join(text.lower().split()) if len(text) <= MAX_VALUE else _UNKNOWN


@lru_cache(maxsize=4096)  # mails of one sender share their declarations
def terms(name: str, text: str) -> Terms:
    """Return what a declaration means for visibility; nothing if it is harmless or not valid."""
    plain = name
    for other, usual in _SYNONYMS.items():
        plain = plain.replace(other, usual)
    unknown = bool(PATTERNS["reference"].search(text))
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
        return [("image", NO_COLOUR)] if "background" in plain else [(plain, _UNKNOWN)]
    return _TERMS[plain](plain, text)


def _side_terms(name: str, text: str) -> Terms:
    words = PATTERNS["word"].findall(text)
    words += words[1:2] * 2 if len(words) > 2 else words * 3
    group = "" if name == "inset" else f"{name}-"
    sides = zip(_SIDES, words, strict=False)
    return [term for side, word in sides for term in terms(group + side, word)]


def length_terms(name: str, text: str) -> Terms:
    """Return a length by its purpose; a share of a size is assumed to fit."""
    if name != "opacity" and PATTERNS["length_word"].fullmatch(text):
        inherits = name in _TEXT_LENGTHS and text in {"inherit", "unset"}
        return [(name, "inherit" if inherits else False if name in _TEXT_LENGTHS else "auto")]
    text += "em" if name == "line-height" and text[-1:].isdigit() else ""
    length = _length(text, {"line-height": 16.0, "opacity": 1.0}.get(name, SCREEN))
    if length is None:
        return _unknown_length(name, text)
    if name in _TEXT_LENGTHS:
        least, most = _TEXT_LENGTHS[name]
        hides = (name, not least <= length <= most)
        return [hides, ("indent", length)] if name == "text-indent" else [hides]
    if name in _SIZES and text.endswith("%") and 40 <= length <= 2000:
        return [(name, "auto")]
    return [(name, length)] if length >= 0 or name not in _SIZES else []


def _length(text: str, whole: float = SCREEN) -> float | None:
    """Return a length in pixels, where 100 % is `whole`; None if it cannot be worked out."""
    found = PATTERNS["length"].fullmatch(text)
    unit = (_UNITS | {"%": whole / 100}).get(found[2]) if found else None
    return max(-1e6, min(1e6, float(found[1]))) * unit if found and unit else None


def _unknown_length(name: str, text: str) -> Terms:
    return [(name, _UNKNOWN)] if "(" in text or PATTERNS["length"].fullmatch(text) else []


def _font_terms(name: str, text: str) -> Terms:
    short = PATTERNS["font"].fullmatch(text) if name == "font" else None
    if name == "font" and not short and not PATTERNS["font_word"].fullmatch(text):
        return []
    word = short[1] if short else text
    line = length_terms("line-height", short[2] or "normal") if short else []
    size = _length(word, 16)
    if PATTERNS["font_word"].fullmatch(word):
        size = 13.0 if "small" in word else 16.0
    if size is None or size < 0:
        return _unknown_length("size", word)
    if PATTERNS["font_ratio"].fullmatch(word):
        return [("ratio", size / 16), ("size", "ratio"), *line]
    return [("size", size), *line]


def _colour_terms(name: str, text: str) -> Terms:
    is_inherited = text in {"inherit", "unset", "currentcolor"}
    colour = "inherit" if is_inherited else parse_paint(text)
    return [] if colour is None else [(name, colour)]


def _background_terms(name: str, text: str) -> Terms:
    ground, image = _CLEAR, _CLEAR
    for word in PATTERNS["word"].findall(text):
        if "gradient(" in word:
            inside = PATTERNS["gradient_shape"].sub("", word).partition("(")[2][:-1]
            paints = (parse_paint(inner) for inner in PATTERNS["word"].findall(inside))
            stops = [paint for paint in paints if paint is not None]
            image = frozenset().union(*stops) if stops and all(stops) else NO_COLOUR
        elif word.startswith("url("):
            image = NO_COLOUR if "data:" in word else image
        elif not PATTERNS["background_word"].fullmatch(word) and _length(word) is None:
            if (colour := parse_paint(word)) is None:
                return []
            ground = colour
    partly = bool(PATTERNS["partial_background"].search(text))
    layers: Terms = [("ground", ground), ("image", image)]
    whole = [*layers, ("background-repeat", partly), ("background-size", False)]
    return {"background-color": layers[:1], "background-image": layers[1:]}.get(name, whole)


def parse_paint(text: str) -> Paint | None:
    """Return a colour; an empty paint if it cannot be worked out, None if it is none."""
    if text in {"windowtext", "canvastext", "initial"}:
        return _BLACK
    try:
        found = parse_color(text)
        if found is None or isinstance(found, str):
            known = text in {"none", "auto"} or not ("(" in text or text.isalpha())
            return None if known else NO_COLOUR
        *channels, part = found.to("srgb")
    except NotImplementedError:
        return NO_COLOUR
    red, green, blue = (255 * max(0.0, min(1.0, channel)) for channel in channels)
    return frozenset({(red, green, blue, float(part))})


_TERMS: Final[dict[str, Callable[[str, str], Terms]]] = {
    **dict.fromkeys((*_TEXT_LENGTHS, *_SIZES, *_SIDES, *_MARGINS), length_terms),
    **dict.fromkeys(("padding-left", "opacity"), length_terms),
    **dict.fromkeys(("inset", "margin", "padding"), _side_terms),
    **dict.fromkeys(("background", "background-color", "background-image"), _background_terms),
    **dict.fromkeys(("font", "font-size"), _font_terms),
    "all": lambda name, _: [(name, _UNKNOWN)],
    "color": _colour_terms,
}
