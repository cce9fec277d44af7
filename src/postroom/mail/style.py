"""Which text of a page the eye cannot see: the few rules of CSS that hide, size and colour words."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

MAX_SHEET: Final = 300_000  # characters of style sheets that are looked at
MAX_RULES: Final = 5_000
MAX_STYLE: Final = 4_000  # characters of one element's own style
MAX_CLASSES: Final = 20
SMALLEST: Final = 1.0  # pixels: text of this size or less is not read
FAINTEST: Final = 0.05
FAR: Final = -400.0  # pixels beyond the edge of the page
ALIKE: Final = 10  # steps of 255 in each colour: the eye tells no two such apart

Colour = tuple[int, int, int]
Declared = dict[str, str]

_PROPERTIES: Final = frozenset(
    "display visibility opacity font font-size color background background-color background-image overflow "  # noqa: SIM905
    "overflow-x overflow-y height max-height width max-width position left right top bottom text-indent "
    "margin-left margin-top clip clip-path transform".split()
)
_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SIMPLE: Final = re.compile(r"(\*|[a-z][a-z0-9]*)?(?:([.#])([\w-]+))?", re.IGNORECASE)
_LENGTH: Final = re.compile(r"(-?\d{0,9}\.?\d{1,9})\s*(px|pt|em|rem|ex|%|vw|vh|cm|mm|in)?")
_FONT_SIZE: Final = re.compile(r"(?:^|\s)(0|\d{0,9}\.?\d{1,9}(?:px|pt|em|rem|ex|%))(?=[\s/]|$)")
_NUMBERS: Final = re.compile(r"-?\d{0,9}\.?\d{1,9}%?")
_WORDS: Final = re.compile(r"[a-z-]+\([^()]*\)|[^\s]+")
_INHERITED: Final = frozenset({"inherit", "initial", "unset", "currentcolor"})
_PIXELS: Final = {"px": 1.0, "pt": 4 / 3, "rem": 16.0, "cm": 37.8, "mm": 3.78, "in": 96.0, "": 1.0}
_NAMED: Final[dict[str, Colour]] = {
    "aqua": (0, 255, 255),
    "black": (0, 0, 0),
    "blue": (0, 0, 255),
    "cyan": (0, 255, 255),
    "fuchsia": (255, 0, 255),
    "ghostwhite": (248, 248, 255),
    "gray": (128, 128, 128),
    "green": (0, 128, 0),
    "grey": (128, 128, 128),
    "ivory": (255, 255, 240),
    "lightgray": (211, 211, 211),
    "lightgrey": (211, 211, 211),
    "lime": (0, 255, 0),
    "magenta": (255, 0, 255),
    "maroon": (128, 0, 0),
    "navy": (0, 0, 128),
    "olive": (128, 128, 0),
    "orange": (255, 165, 0),
    "purple": (128, 0, 128),
    "red": (255, 0, 0),
    "silver": (192, 192, 192),
    "snow": (255, 250, 250),
    "teal": (0, 128, 128),
    "white": (255, 255, 255),
    "whitesmoke": (245, 245, 245),
    "yellow": (255, 255, 0),
}
_WHITE: Final = _NAMED["white"]
_CLEAR: Final = frozenset({"transparent", "none", "inherit", "initial", "unset", ""})


@dataclass(frozen=True, slots=True)
class Look:
    """How text looks at one place of the page; a colour of None is not known, and so not judged."""

    gone: bool = False
    invisible: bool = False
    size: float = 16.0
    colour: Colour | None = None
    background: Colour | None = _WHITE

    @property
    def hidden(self) -> bool:
        """Whether a person who looks at the page would not see text here."""
        if self.gone or self.invisible or self.size <= SMALLEST:
            return True
        if self.colour is None or self.background is None:
            return False
        return all(
            abs(ink - ground) <= ALIKE
            for ink, ground in zip(self.colour, self.background, strict=True)
        )

    def inside(self, declared: Declared) -> Look:
        """Return how text looks inside an element with these declarations."""
        if self.gone or not declared:
            return self
        if _removed(declared):
            return replace(self, gone=True)
        visibility = declared.get("visibility", "")
        invisible = self.invisible
        if visibility in {"hidden", "collapse", "visible"}:
            invisible = visibility != "visible"
        colour: Colour | None = self.colour
        if ink := declared.get("color", ""):
            meant = _colour(ink)
            if meant == "clear" and ink not in _INHERITED:
                return replace(self, gone=True)
            if ink not in _INHERITED:
                colour = meant if isinstance(meant, tuple) else None
        return Look(
            gone=False,
            invisible=invisible,
            size=_size(declared, self.size),
            colour=colour,
            background=self._ground(declared),
        )

    def _ground(self, declared: Declared) -> Colour | None:
        ground = self.background
        for name in ("background", "background-color", "background-image"):
            value = declared.get(name, "")
            if not value:
                continue
            if "url(" in value or "gradient" in value:
                return None
            painted = [_colour(word) for word in _WORDS.findall(value)]
            known = [colour for colour in painted if isinstance(colour, tuple)]
            if known:
                ground = known[0]
            elif "unknown" in painted:
                return None
        return ground


class Sheet:
    """The rules of a page's style sheets, by the tag, class or id that they speak of."""

    def __init__(self, css: str) -> None:
        self._rules: dict[str, tuple[Declared, Declared]] = {}
        self._own: dict[str, tuple[Declared, Declared]] = {}
        # Old pages hide their sheets in the marks of a comment.
        css = css[:MAX_SHEET].replace("<!--", " ").replace("-->", " ")
        for selectors, body in _blocks(_COMMENT.sub(" ", css)):
            declared = _declarations(body)
            if any(declared):
                for selector in selectors.split(",")[:50]:
                    self._add(selector.strip(), declared)

    def _add(self, selector: str, declared: tuple[Declared, Declared]) -> None:
        plain, important = declared
        if not _SIMPLE.fullmatch(selector):
            # Where it applies is not worked out; only that colours are not known there any more.
            touched = {name.partition("-")[0] for name in (*plain, *important)}
            plain, important = dict.fromkeys(touched & {"background", "color"}, "unknown"), {}
            selector = re.split(r"[\s>+~]", selector.partition(":")[0].strip())[-1]
        simple = _SIMPLE.fullmatch(selector)
        if not simple or not selector:
            return
        tag, mark, name = simple.groups()
        key = f"{mark}{name}" if mark else (tag or "*").lower()
        if mark and tag and tag != "*":
            key = f"{tag.lower()}{key}"
        known = self._rules.setdefault(key, ({}, {}))
        known[0].update(plain)
        known[1].update(important)

    def declared(self, tag: str, attributes: dict[str, str]) -> Declared:
        """Return what holds for an element: rules, then its own style, then what is important."""
        style = attributes.get("style", "")[:MAX_STYLE]
        own = self._own.get(style)
        if own is None:
            own = self._own[style] = _declarations(style)
        if not self._rules:
            found, loud = dict(own[0]), own[1]
            found.update(loud)
            return _attributed(attributes, found)
        keys = ["*", tag]
        for name in attributes.get("class", "").split()[:MAX_CLASSES]:
            keys += (f".{name}", f"{tag}.{name}")
        if "id" in attributes:
            keys += (f"#{attributes['id']}", f"{tag}#{attributes['id']}")
        rules = [self._rules[key] for key in keys if key in self._rules]
        found = {}
        for declared in (
            *(rule[0] for rule in rules),
            own[0],
            *(rule[1] for rule in rules),
            own[1],
        ):
            found.update(declared)
        return _attributed(attributes, found)


def _attributed(attributes: dict[str, str], declared: Declared) -> Declared:
    """Add what older attributes say; a style is stronger than they are."""
    if "hidden" in attributes:
        declared.setdefault("display", "none")
    if colour := attributes.get("color"):
        declared.setdefault("color", colour.lower())
    if ground := attributes.get("bgcolor"):
        declared.setdefault("background-color", ground.lower())
    if attributes.get("background"):
        declared.setdefault("background-image", "url()")
    return declared


def _blocks(css: str) -> list[tuple[str, str]]:
    """Return the rules outside of @-blocks, which hold for some screens only."""
    found: list[tuple[str, str]] = []
    depth, start, selectors = 0, 0, ""
    for brace in re.finditer(r"[{}]", css):
        at = brace.start()
        if brace.group() == "{":
            if depth == 0:
                selectors = css[start:at].rpartition(";")[2].strip()
            depth += 1
        else:
            if depth == 1 and selectors and not selectors.startswith("@"):
                found.append((selectors, css[start:at]))
            depth = max(0, depth - 1)
        start = at + 1
        if len(found) >= MAX_RULES:
            break
    return found


def _declarations(text: str) -> tuple[Declared, Declared]:
    plain: Declared = {}
    important: Declared = {}
    if not text:
        return plain, important
    for declaration in _COMMENT.sub(" ", text).lower().split(";"):
        name, _, value = declaration.partition(":")
        name = name.strip()
        if name in _PROPERTIES:
            value, loud, _ = value.strip().partition("!")
            (important if loud else plain)[name] = value.strip()
    return plain, important


def _removed(declared: Declared) -> bool:
    """Whether nothing inside can be seen, whatever it declares itself."""
    if declared.get("display") == "none":
        return True
    faint = _number(declared.get("opacity", ""))
    if faint is not None and faint <= FAINTEST:
        return True
    if "hidden" in (
        declared.get("overflow"),
        declared.get("overflow-x"),
        declared.get("overflow-y"),
    ):
        for name in ("height", "max-height", "width", "max-width"):
            length = _pixels(declared.get(name, ""))
            if length is not None and length <= SMALLEST:
                return True
    if declared.get("position") in {"absolute", "fixed"} and _clipped(declared):
        return True
    away = ["text-indent", "margin-left", "margin-top"]
    if declared.get("position", "static") != "static":
        away += ["left", "right", "top", "bottom"]
    lengths = (_pixels(declared.get(name, "")) for name in away)
    if any(length is not None and length <= FAR for length in lengths):
        return True
    return "scale(0" in declared.get("transform", "") and "scale(0." not in declared["transform"]


def _clipped(declared: Declared) -> bool:
    numbers = [_number(number.rstrip("%")) for number in _NUMBERS.findall(declared.get("clip", ""))]
    if len(numbers) == 4 and all(number is not None and abs(number) <= 1 for number in numbers):
        return True
    return bool(re.match(r"inset\((50|100)%", declared.get("clip-path", "")))


def _number(text: str) -> float | None:
    found = _LENGTH.match(text)
    return float(found[1]) / (100 if found[2] == "%" else 1) if found else None


def _pixels(text: str) -> float | None:
    """Return a length in pixels; one relative to something unknown only where it is nought."""
    found = _LENGTH.match(text)
    if not found:
        return None
    number, unit = float(found[1]), found[2] or ""
    if unit in _PIXELS:
        return number * _PIXELS[unit]
    if unit == "em":
        return number * 16
    return 0.0 if number == 0 else None


def _size(declared: Declared, inherited: float) -> float:
    value = declared.get("font-size", "")
    if not value and (short := _FONT_SIZE.search(declared.get("font", ""))):
        value = short[1]
    found = _LENGTH.match(value)
    if not found:
        # A word such as `medium` or `small` is a size that can be read; no word is no change.
        return 16.0 if value and value not in {"inherit", "smaller", "larger"} else inherited
    number, unit = float(found[1]), found[2] or ""
    if unit in {"em", "ex", "%"}:
        return inherited * number / (100 if unit == "%" else 1)
    return number * _PIXELS.get(unit, 10.0)


def _colour(word: str) -> Colour | str:
    """Return a colour, "clear" for one that paints nothing, or "unknown"."""
    word = word.strip()
    if word in _NAMED:
        return _NAMED[word]
    if word in _CLEAR:
        return "clear"
    digits = word.lstrip("#")
    if re.fullmatch(r"[0-9a-f]{3,8}", digits) and len(digits) in {3, 4, 6, 8}:
        if len(digits) < 6:
            digits = "".join(digit * 2 for digit in digits)
        red, green, blue = (int(digits[at : at + 2], 16) for at in (0, 2, 4))
        return "clear" if digits[6:] == "00" else (red, green, blue)
    if word.startswith("rgb"):
        numbers = _NUMBERS.findall(word)
        if len(numbers) >= 3:
            if len(numbers) > 3 and (_number(numbers[3]) or 0) <= FAINTEST:
                return "clear"
            channels = [
                int(float(n.rstrip("%")) * (2.55 if n.endswith("%") else 1)) for n in numbers[:3]
            ]
            red, green, blue = (max(0, min(255, channel)) for channel in channels)
            return red, green, blue
    return "unknown"
