"""Which text of a page the eye cannot see: the few rules of CSS that hide, size and colour words.

A declaration is resolved once, where it is read, into the few terms that hide; what is not valid says nothing.
"""

from __future__ import annotations

import re
from colorsys import hls_to_rgb
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_VALUE: Final = 200  # characters of a value; a longer one is a picture, or meant to be missed
MAX_COMPOUNDS: Final = 16  # sets of names that one name is joined with, each asked one by one
MAX_NESTED: Final = 10  # @-blocks in @-blocks
SMALLEST: Final = 1.0  # pixels: text of this size or less is not read
LARGEST: Final = 1e6
FAINTEST: Final = 0.05
BEFORE: Final = -400.0  # pixels before the edge of the page
BEYOND: Final = 2_000.0  # pixels behind it
ALIKE: Final = 30  # steps of 255, of three colours together: the eye tells no two such apart

# Red, green, blue, and how much it hides of what is below it.
Colour = tuple[float, float, float, float]
Value = float | str | Colour
Declared = dict[str, Value]
Stated = dict[str, tuple[bool, Value]]  # with whether it is important
Ranked = dict[str, tuple[tuple[bool, int, int], Value]]  # by importance, specificity and place

_NAMED: Final = dict(
    re.findall(
        r"(\w+)=(\w+)",
        """aliceblue=f0f8ff antiquewhite=faebd7 aqua=00ffff aquamarine=7fffd4 azure=f0ffff beige=f5f5dc bisque=ffe4c4 black=000000 blanchedalmond=ffebcd blue=0000ff
blueviolet=8a2be2 brown=a52a2a burlywood=deb887 cadetblue=5f9ea0 chartreuse=7fff00 chocolate=d2691e coral=ff7f50 cornflowerblue=6495ed cornsilk=fff8dc
crimson=dc143c cyan=00ffff darkblue=00008b darkcyan=008b8b darkgoldenrod=b8860b darkgray=a9a9a9 darkgreen=006400 darkgrey=a9a9a9 darkkhaki=bdb76b
darkmagenta=8b008b darkolivegreen=556b2f darkorange=ff8c00 darkorchid=9932cc darkred=8b0000 darksalmon=e9967a darkseagreen=8fbc8f darkslateblue=483d8b
darkslategray=2f4f4f darkslategrey=2f4f4f darkturquoise=00ced1 darkviolet=9400d3 deeppink=ff1493 deepskyblue=00bfff dimgray=696969 dimgrey=696969
dodgerblue=1e90ff firebrick=b22222 floralwhite=fffaf0 forestgreen=228b22 fuchsia=ff00ff gainsboro=dcdcdc ghostwhite=f8f8ff gold=ffd700 goldenrod=daa520
gray=808080 green=008000 greenyellow=adff2f grey=808080 honeydew=f0fff0 hotpink=ff69b4 indianred=cd5c5c indigo=4b0082 ivory=fffff0 khaki=f0e68c
lavender=e6e6fa lavenderblush=fff0f5 lawngreen=7cfc00 lemonchiffon=fffacd lightblue=add8e6 lightcoral=f08080 lightcyan=e0ffff lightgoldenrodyellow=fafad2
lightgray=d3d3d3 lightgreen=90ee90 lightgrey=d3d3d3 lightpink=ffb6c1 lightsalmon=ffa07a lightseagreen=20b2aa lightskyblue=87cefa lightslategray=778899
lightslategrey=778899 lightsteelblue=b0c4de lightyellow=ffffe0 lime=00ff00 limegreen=32cd32 linen=faf0e6 magenta=ff00ff maroon=800000
mediumaquamarine=66cdaa mediumblue=0000cd mediumorchid=ba55d3 mediumpurple=9370db mediumseagreen=3cb371 mediumslateblue=7b68ee mediumspringgreen=00fa9a
mediumturquoise=48d1cc mediumvioletred=c71585 midnightblue=191970 mintcream=f5fffa mistyrose=ffe4e1 moccasin=ffe4b5 navajowhite=ffdead navy=000080
oldlace=fdf5e6 olive=808000 olivedrab=6b8e23 orange=ffa500 orangered=ff4500 orchid=da70d6 palegoldenrod=eee8aa palegreen=98fb98 paleturquoise=afeeee
palevioletred=db7093 papayawhip=ffefd5 peachpuff=ffdab9 peru=cd853f pink=ffc0cb plum=dda0dd powderblue=b0e0e6 purple=800080 rebeccapurple=663399 red=ff0000
rosybrown=bc8f8f royalblue=4169e1 saddlebrown=8b4513 salmon=fa8072 sandybrown=f4a460 seagreen=2e8b57 seashell=fff5ee sienna=a0522d silver=c0c0c0
skyblue=87ceeb slateblue=6a5acd slategray=708090 slategrey=708090 snow=fffafa springgreen=00ff7f steelblue=4682b4 tan=d2b48c teal=008080 thistle=d8bfd8
tomato=ff6347 turquoise=40e0d0 violet=ee82ee wheat=f5deb3 white=ffffff whitesmoke=f5f5f5 yellow=ffff00 yellowgreen=9acd32 canvas=ffffff window=ffffff
field=ffffff canvastext=000000 windowtext=000000 transparent=00000000""",
    )
)
_WHITE: Final = (255.0, 255.0, 255.0, 1.0)
_LINK_BLUE: Final = (0.0, 0.0, 238.0, 1.0)

# CSS Syntax Level 3, section 4: comments, strings and addresses hold whatever marks they like.
_OPAQUE: Final = re.compile(
    r"""/\*[\s\S]*?(?:\*/|\Z)
      | "([^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*)"?+ | '([^'\\\n]*+(?:\\[\s\S][^'\\\n]*+)*)'?+
      | \burl\(\s*+(?!["'\s])[^)]*+\)?+ | <!-- | -->""",
    re.VERBOSE | re.IGNORECASE,
)
_MARK: Final = re.compile(r"\\[\s\S]|[;{}()\[\]]")
_CLOSER: Final = {"{": "}", "(": ")", "[": "]"}
_ESCAPE: Final = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|([\s\S]))")
_IMPORTANT: Final = re.compile(r"\s?!\s?important$")
_NO_NAME: Final = re.compile(r"[^\w -]+")
_AT: Final = re.compile(r"\s*+@")
_MEDIA: Final = re.compile(r"\s*+@media\b", re.IGNORECASE)
_SCREEN: Final = re.compile(r"\s*+(?:only\s++)?(?:all|screen)?\s*+", re.IGNORECASE)
_ARGUMENTS: Final = re.compile(r"\([^()]*+\)")
_ATTRIBUTE: Final = re.compile(
    r"""\[\s*+(?:(class|id)\s*+~?=\s*+["']?([\w-]++))?+[^\]]*+\]""", re.IGNORECASE
)
_COMBINATOR: Final = re.compile(r"\s*+[>+~]\s*+|\s++")
_PIECE: Final = re.compile(r"(::?|[.#])?((?:[\w-]|[^\x00-\x7f]|\\[\s\S])++|\*)")
_COMPOUND: Final = re.compile(rf"(?:{_PIECE.pattern})+")
_UNMET: Final = frozenset(
    "hover active focus visited checked target before after first-line first-letter empty disabled "
    "focus-within focus-visible invalid selection placeholder root".split()
)
_OWN: Final = 10**6  # the specificity of an element's own style
_EVERYWHERE: Final = frozenset({"html", "body", "*"})

_NUMBER: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_LENGTH: Final = re.compile(rf"({_NUMBER})(%|[a-z]+)?")
_FONT: Final = re.compile(
    rf"(?:^|\s)(0|{_NUMBER}(?:%|[a-z]+)|(?:xx?-)?(?:small|large)(?:er)?|medium)(?:\s?/\s?\S+)?\s\S"
)
_WORDS: Final = re.compile(r"[a-z-]*\((?:[^()]|\([^()]*\))*\)|[^\s,()]+")
_CALLED: Final = re.compile(r"[a-z-]+\(")
_DISPLAY: Final = re.compile(
    r"(?:-(?:webkit|moz|ms)-)?(?:inline|block|flow|flex|box|grid|table|ruby|list-item|run-in|contents|"
    r"inherit|initial|unset|revert)[a-z -]*"
)
_SHIFT: Final = re.compile(r"translate(x|y|3d)?\(([^(),]+)(?:,([^(),]+))?")
_SCALE: Final = re.compile(rf"scale(?:x|y|3d)?\(\s*({_NUMBER})")
_SHAPE: Final = re.compile(rf"(circle|ellipse|inset|polygon)\(\s*({_NUMBER})")
_FADED: Final = re.compile(rf"opacity\(\s*({_NUMBER}%?)\s*\)")
# Pixels of a unit. What is relative to something unknown is guessed for the usual page.
_PIXELS: Final = {
    "px": 1.0, "": 1.0, "pt": 4 / 3, "pc": 16.0, "em": 16.0, "rem": 16.0, "ex": 8.0, "ch": 8.0, "cm": 37.8,
    "mm": 3.78, "q": 0.95, "in": 96.0, "%": 3.0, "vw": 10.0, "vh": 8.0, "vmin": 8.0, "vmax": 10.0,
}  # fmt: skip
_SIDES: Final = ("top", "right", "bottom", "left")
_ROOM: Final = ("height", "max-height", "width", "max-width")
_LENGTHS: Final = frozenset(
    {*_ROOM, *_SIDES, "text-indent"}
    | {f"{box}-{s}" for box in ("margin", "padding") for s in _SIDES}
)
_SHORT: Final = _LENGTHS | frozenset(
    "margin padding inset display visibility overflow position color opacity filter transform font-size clip "
    "-webkit-text-fill-color".split()
)
_COLOURS: Final = frozenset({"color", "fill", "ground", "image"})
_WORDED: Final = frozenset(
    "visibility position overflow overflow-x overflow-y background-clip".split()
)
_KEYWORDS: Final = dict(
    re.findall(
        r"([\w-]+)=(\w+)",
        """hidden=hidden collapse=hidden clip=hidden auto=hidden scroll=hidden visible=visible initial=visible revert=visible
        inherit=inherit unset=inherit absolute=out fixed=out relative=moved sticky=moved static=static text=text border-box=box""",
    )
)
_LENGTH_WORD: Final = re.compile(r"auto|none|inherit|initial|unset|revert|(?:min|max|fit)-content")
_SIZE_WORD: Final = re.compile(r"(?:x{1,3}-)?(?:small|large)|medium|initial|revert")
# Attributes that say what a property says.
_HINTS: Final = {"color": "color", "bgcolor": "background-color"}
_BOX_HINTS: Final = {"width": "width", "height": "height"}
_SVG_HINTS: Final = _BOX_HINTS | {
    "fill": "color", "opacity": "opacity", "display": "display", "visibility": "visibility", "font-size": "font-size"
}  # fmt: skip
_TAG_HINTS: Final = {"img": _HINTS | _BOX_HINTS} | dict.fromkeys(
    ("svg", "g", "text", "tspan"), _SVG_HINTS
)
_HEX: Final = re.compile(r"[0-9a-f]{3,8}")
_SEPARATED: Final = re.compile(r"\s*[,/]\s*|\s+")
_AS_USUAL: Final = frozenset({"inherit", "unset", "currentcolor"})
_RESET: Final = frozenset({"initial", "revert"})
_GROUND_WORD: Final = re.compile(
    r"none|(?:no-)?repeat(?:-[xy])?|space|round|scroll|fixed|local|center|top|bottom|left|right|auto|cover|contain|"
    r"(?:border|padding|content)-box|text|/.*|inherit|initial|unset|revert"
)


@dataclass(frozen=True, slots=True)
class Look:
    """How text looks at one place of the page; a colour of None is not known, and so not judged."""

    gone: bool = False
    invisible: bool = False
    size: float = 16.0
    opacity: float = 1.0
    colour: Colour | None = None
    fill: Colour | None = None  # paints the letters instead of the colour
    background: Colour | None = _WHITE

    @property
    def hidden(self) -> bool:
        """Whether a person who looks at the page would not see text here."""
        if self.gone or self.invisible or self.size <= SMALLEST:
            return True
        ink, ground = self.fill or self.colour, self.background
        if ink is None:
            return False
        if ground is None:
            return ink[3] <= FAINTEST
        seen = _painted(ground, ink) or ground
        return sum(abs(one - other) for one, other in zip(seen, ground, strict=True)) <= ALIKE

    def inside(self, declared: Declared) -> Look:
        """Return how text looks inside an element with these declarations."""
        if self.gone or not declared:
            return self
        opacity = self.opacity * _number(declared, "opacity", 1) * _number(declared, "filter", 1)
        if opacity <= FAINTEST or _removed(declared):
            return replace(self, gone=True)
        size = _number(declared, "size", 0) + self.size * _number(declared, "ratio", 1)
        colour = _inked(self.colour, declared.get("color"))
        fill = _inked(self.fill, declared.get("fill"))
        if declared.get("background-clip") == "text":
            colour = fill = None  # the picture behind is seen through the letters
        visibility = declared.get("visibility", "inherit")
        ground = _painted(self.background, declared.get("ground"))
        return Look(
            gone=False,
            invisible=self.invisible if visibility == "inherit" else visibility == "hidden",
            size=min(size, LARGEST),
            opacity=opacity,
            colour=colour,
            fill=fill,
            background=_painted(ground, declared.get("image")),
        )


class Sheet:
    """The rules of a page's style sheets, by a tag, class or id that they need."""

    def __init__(self, css: str) -> None:
        self._rules: dict[str, dict[frozenset[str], Ranked]] = {}
        self._matched: dict[tuple[str, str, str], Ranked] = {}
        self._own: dict[str, Ranked] = {}
        for order, (selectors, body) in enumerate(_rules(_bare(css))):
            declared = _declarations(body)
            if declared:
                guessed = _guessed(declared)
                for selector in _ARGUMENTS.sub("", selectors).split(","):
                    self._add(selector.strip(), order, declared, guessed)

    def _add(self, selector: str, order: int, declared: Stated, guessed: Stated) -> None:
        *above, last = _COMBINATOR.split(_ATTRIBUTE.sub(_named, selector))
        if not _COMPOUND.fullmatch(last):
            return
        needs = []
        for mark, name in _PIECE.findall(last):
            if mark in {".", "#"}:
                needs.append(mark + _unescaped(name))
            elif not mark:
                needs.insert(0, name.lower())
            elif mark == "::" or name.lower() in _UNMET:
                return
        if not needs:
            return
        if ":" in last or not _EVERYWHERE.issuperset(above):
            declared = guessed
        weight = selector.count("#") * 10_000 + len(above) + (needs[0][0] not in ".#*")
        weight += sum(map(selector.count, ".:[")) * 100
        weight = min(weight, _OWN - 1)
        kinds = self._rules.setdefault(needs.pop(), {})
        others = frozenset(needs) - {"*"}
        if others not in kinds and len(kinds) >= MAX_COMPOUNDS:
            others, declared = frozenset(), guessed
        known = kinds.setdefault(others, {})
        _cascade(known, {n: ((loud, weight, order), v) for n, (loud, v) in declared.items()})

    def declared(self, tag: str, attributes: dict[str, str]) -> Declared:
        """Return what holds for an element: older attributes, then rules, then its own style."""
        found: Ranked = {term: ((False, -1, 0), value) for term, value in _hints(tag, attributes)}
        if self._rules:
            _cascade(found, self._matching(tag, attributes))
        if style := attributes.get("style"):
            if style not in self._own:
                stated = _declarations(_bare(style))
                self._own[style] = {n: ((loud, _OWN, 0), v) for n, (loud, v) in stated.items()}
            _cascade(found, self._own[style])
        # The room that is given to a cell of a table is the least that it takes.
        unbound = _ROOM if tag in {"td", "th"} else ()
        return {term: value for term, (_, value) in found.items() if term not in unbound}

    def _matching(self, tag: str, attributes: dict[str, str]) -> Ranked:
        classes, id_ = attributes.get("class", ""), attributes.get("id", "")
        found = self._matched.get((tag, classes, id_))
        if found is None:
            found = self._matched[tag, classes, id_] = {}
            keys = {"*", tag, f"#{id_}", *(f".{name}" for name in classes.split())}
            for key in keys & self._rules.keys() if len(keys) < len(self._rules) else keys:
                for others, ranked in self._rules.get(key, {}).items():
                    if others <= keys:
                        _cascade(found, ranked)
        return found


def tiny(declared: Declared) -> bool:
    """Whether a box of these measures has no room for anything."""
    return any(_number(declared, name, LARGEST) <= SMALLEST for name in _ROOM)


def _cascade(found: Ranked, more: Ranked) -> None:
    for term, stated in more.items():
        if term not in found or found[term][0] <= stated[0]:
            found[term] = stated


def _guessed(declared: Stated) -> Stated:
    """Return what is taken from a rule of which only the last name is looked at: whether it hides, and no colour."""
    plain = {term: stated for term, stated in declared.items() if term not in _COLOURS}
    if not Look().inside({term: value for term, (_, value) in plain.items()}).hidden:
        plain = {}
    return plain | dict.fromkeys(_COLOURS & declared.keys(), (False, "unknown"))


def _hints(tag: str, attributes: dict[str, str]) -> Iterator[tuple[str, Value]]:
    """Yield what the tag and older attributes say."""
    if "hidden" in attributes or (tag == "dialog" and "open" not in attributes):
        yield "display", "none"
    if tag == "a" and "href" in attributes:
        yield "color", _LINK_BLUE
    if tag == "svg":
        yield "overflow", "hidden"
    for name, meant in _TAG_HINTS.get(tag, _HINTS).items():
        if name in attributes:
            yield from _resolved(meant, " ".join(attributes[name].lower().split()))
    if attributes.get("background"):
        yield "image", "unknown"


def _bare(css: str) -> str:
    """Return a sheet without comments, and without what could be a mark in its strings."""
    return _OPAQUE.sub(_inert, css)


def _inert(found: re.Match[str]) -> str:
    said = found[1] or found[2]
    if said:
        return f'"{_NO_NAME.sub("", said)}"'
    return '""' if found.group()[0] in "\"'" else "url()" if found.group()[0] in "uU" else " "


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda e: chr(min(int(e[1], 16), 0x10FFFF)) if e[1] else e[2], text)


def _named(found: re.Match[str]) -> str:
    """Return an attribute of a selector as the class or id that it asks for, and as a guess."""
    return f"{'.' if found[1].lower() == 'class' else '#'}{found[2]}:is" if found[1] else ":is"


def _statements(css: str, *, rules: bool) -> Iterator[tuple[str, str | None]]:
    """Yield what stands between semicolons, or before a block and in it, whatever its brackets hold."""
    start = opened = 0
    ends = not rules or bool(_AT.match(css))
    stack: list[str] = []
    for mark in _MARK.finditer(css):
        char, at = mark.group(), mark.start()
        if stack and char == stack[-1]:
            stack.pop()
            if stack or char != "}":
                continue
            yield css[start:opened], css[opened + 1 : at]
        elif char in _CLOSER:
            opened = opened if stack else at
            stack.append(_CLOSER[char])
            continue
        elif char == ";" and not stack and ends:
            yield css[start:at], None
        else:
            continue
        start = at + 1
        ends = not rules or bool(_AT.match(css, start))
    if stack and stack[0] == "}":
        yield css[start:opened], css[opened + 1 :]
    else:
        yield css[start:], None


def _rules(css: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the rules that hold on every screen: each with its selectors."""
    for head, body in _statements(css, rules=True):
        if body is None:
            continue
        if not _AT.match(head):
            yield head, body
        elif depth < MAX_NESTED and (media := _MEDIA.match(head)):
            held = any(_SCREEN.fullmatch(query) for query in head[media.end() :].split(","))
            yield from _rules(body, depth + 1) if held else ()


def _declarations(text: str) -> Stated:
    found: Stated = {}
    for statement, block in _statements(text, rules=False):
        name, _, said = statement.partition(":")
        name = _unescaped(name.strip()).lower()
        if block is not None:
            continue
        value = " ".join(_unescaped(said).lower().split())
        value, loud = _IMPORTANT.subn("", value)
        for term, meant in _resolved(name, value):
            if loud or term not in found or not found[term][0]:
                found[term] = (bool(loud), meant)
    return found


def _resolved(name: str, value: str) -> Iterator[tuple[str, Value]]:  # noqa: C901, PLR0912
    """Yield what a declaration means, in the few terms that hide; nothing where it is not valid."""
    if name == "font":
        value = value[:MAX_VALUE]  # behind the size stand names, as many as there are
    if len(value) > MAX_VALUE:
        if name in _SHORT:
            yield "display", "none"
        elif name.startswith("background"):
            yield "image", "unknown"
    elif name in _LENGTHS:
        if (length := _pixels(value)) is not None:
            yield name, length
    elif name in {"margin", "padding", "inset"}:
        lengths = [_pixels(word) for word in _WORDS.findall(value)]
        if 1 <= len(lengths) <= 4 and None not in lengths:
            lengths += lengths[1:2] * 2 if len(lengths) > 2 else lengths * 3
            for side, length in zip(_SIDES, lengths, strict=False):
                yield side if name == "inset" else f"{name}-{side}", length or 0.0
    elif name == "display":
        if value == "none" or "var(" in value:
            yield name, "none"
        elif _DISPLAY.fullmatch(value):
            yield name, "shown"
    elif name in _WORDED:
        meanings = [_KEYWORDS.get(word) for word in value.split()]
        if meanings and meanings[0] and all(meanings):
            yield name, meanings[0]
    elif name in {"font-size", "font"}:
        short = _FONT.search(value) if name == "font" else None
        size = _sized(short[1] if short else value)
        if size and (short or name == "font-size" or value in _AS_USUAL | _RESET):
            yield from zip(("size", "ratio"), size, strict=True)
    elif name in {"color", "-webkit-text-fill-color", "background-color"}:
        colour = _colour(value)
        if colour:
            yield {"color": "color", "background-color": "ground"}.get(name, "fill"), colour
    elif name in {"background", "background-image"}:
        yield from _background(value, whole=name == "background")
    else:
        yield from _faded(name, value)


def _faded(name: str, value: str) -> Iterator[tuple[str, Value]]:
    """Yield the same of what fades, clips and moves."""
    if name in {"opacity", "filter"}:
        found = _FADED.search(value)
        part = _share(found[1] if found else value if name == "opacity" else "1")
        if part is not None or value in _AS_USUAL | _RESET:
            yield name, 1.0 if part is None else part
    elif name in {"clip", "clip-path"} and ("(" in value or _LENGTH_WORD.fullmatch(value)):
        yield name, "all" if _clipped(value) else "some"
    elif name == "transform" and ("(" in value or value in {"none", *_AS_USUAL, *_RESET}):
        x = y = 0.0
        for axis, first, second in _SHIFT.findall(value):
            one, two = _pixels(first.strip()), _pixels(second.strip())
            x += one if axis != "y" and isinstance(one, float) else 0
            down = one if axis == "y" else two
            y += down if isinstance(down, float) else 0
        yield "shift-x", x
        yield "shift-y", y
        yield "scale", min((float(n) for n in _SCALE.findall(value)), default=1.0, key=abs)


def _background(value: str, *, whole: bool) -> Iterator[tuple[str, Value]]:
    ground: Value = "none"
    image: Value = "none"
    for word in _WORDS.findall(value):
        if "gradient(" in word:
            inner = {_colour(w) for w in _WORDS.findall(word.partition("(")[2][:-1])} - {None}
            image = inner.pop() or "unknown" if len(inner) == 1 else "unknown"
        elif (colour := _colour(word)) and word not in _AS_USUAL and "url(" not in word:
            image, ground = ("unknown", ground) if colour == "unknown" else (image, colour)
        elif _CALLED.match(word):
            image = "unknown"
        elif not _GROUND_WORD.fullmatch(word) and _pixels(word) is None:
            return
    if value:
        yield "image", image
    if value and whole:
        yield "ground", ground


def _removed(declared: Declared) -> bool:
    """Whether nothing inside can be seen, whatever it declares itself."""
    if declared.get("display") == "none" or declared.get("clip-path") == "all":
        return True
    if abs(_number(declared, "scale", 1)) < 0.01:
        return True
    if "hidden" in map(declared.get, ("overflow", "overflow-x", "overflow-y")) and tiny(declared):
        return True
    position = declared.get("position", "static")
    if position == "out" and declared.get("clip") == "all":
        return True
    x, y = (
        sum(_number(declared, name, 0) for name in names)
        for names in (
            ("text-indent", "margin-left", "padding-left", "shift-x"),
            ("margin-top", "padding-top", "shift-y"),
        )
    )
    if position != "static":
        x += _number(declared, "left", -_number(declared, "right", 0))
        y += _number(declared, "top", -_number(declared, "bottom", 0))
    return min(x, y) <= BEFORE or x >= BEYOND


def _clipped(value: str) -> bool:
    if shape := _SHAPE.match(value):
        number = float(shape[2])
        return number >= 50 if shape[1] == "inset" else number <= SMALLEST and shape[1] != "polygon"
    sides = [float(number) for number, _ in _LENGTH.findall(value)]
    if not value.startswith("rect(") or len(sides) != 4:
        return False
    return sides[2] - sides[0] <= SMALLEST or sides[1] - sides[3] <= SMALLEST


def _number(declared: Declared, term: str, usual: float) -> float:
    value = declared.get(term)
    return value if isinstance(value, float) else usual


def _measured(value: str) -> tuple[float, str] | None:
    """Return a number and its unit; of a sum, the largest in it."""
    if re.match(r"(?:calc|min|max|clamp)\(", value):
        sizes = [s for s in map(_measured, re.findall(r"[^\s,()*/]+", value)) if s]
        return max(sizes, key=lambda size: abs(size[0]), default=None)
    found = _LENGTH.fullmatch(value)
    if not found or (found[2] or "") not in _PIXELS:
        return None
    return max(-LARGEST, min(LARGEST, float(found[1]))), found[2] or ""


def _pixels(value: str) -> Value | None:
    if measured := _measured(value):
        return measured[0] * _PIXELS[measured[1]]
    return "auto" if _CALLED.match(value) or _LENGTH_WORD.fullmatch(value) else None


def _share(value: str) -> float | None:
    measured = _measured(value)
    return (
        max(0.0, min(1.0, measured[0] / (100 if measured[1] == "%" else 1))) if measured else None
    )


def _sized(value: str) -> tuple[float, float] | None:
    """Return a size of letters: pixels, and times the size around."""
    if measured := _measured(value):
        number, unit = measured
        if unit in {"em", "ex", "ch", "%"}:
            return (0.0, number / (100 if unit == "%" else 1)) if number >= 0 else None
        return (number * _PIXELS[unit], 0.0) if number >= 0 else None
    if value in {"smaller", "larger"}:
        return 0.0, 0.83 if value == "smaller" else 1.2
    if value in _AS_USUAL or _CALLED.match(value):
        return 0.0, 1.0
    return (16.0, 0.0) if _SIZE_WORD.fullmatch(value) else None


def _inked(colour: Colour | None, stated: Value | None) -> Colour | None:
    if stated is None or stated == "inherit":
        return colour
    return stated if isinstance(stated, tuple) else None


def _painted(below: Colour | None, stated: Value | None) -> Colour | None:
    """Return the colour that is seen where one is painted over another."""
    if not isinstance(stated, tuple):
        return None if stated == "unknown" else below
    *paint, part = stated
    if part >= 1 - FAINTEST or below is None:
        return (*stated[:3], 1.0) if part >= 1 - FAINTEST else None
    red, green, blue = (p * part + b * (1 - part) for p, b in zip(paint, below, strict=False))
    return red, green, blue, 1.0


def _colour(word: str) -> Colour | str | None:
    """Return a colour, "inherit", "unknown" for one that is not worked out, or None for none."""
    if word in _AS_USUAL:
        return "inherit"
    if word in _RESET:
        return "none"
    digits = _NAMED.get(word, word.lstrip("#"))
    if _HEX.fullmatch(digits) and len(digits) in {3, 4, 6, 8}:
        if len(digits) < 6:
            digits = "".join(digit * 2 for digit in digits)
        red, green, blue, clear = bytes.fromhex((digits + "ff")[:8])
        return float(red), float(green), float(blue), clear / 255
    kind, called, inner = word.rstrip(")").partition("(")
    if not called or not word.endswith(")"):
        return None
    numbers = [_measured(number) or (0.0, "") for number in _SEPARATED.split(inner.strip())]
    if kind.rstrip("a") not in {"rgb", "hsl", "hwb"} or not 3 <= len(numbers) <= 4 or "(" in inner:
        return "unknown"
    one, two, three, *rest = (number / (100 if unit == "%" else 1) for number, unit in numbers)
    if kind.startswith("rgb"):
        shares = zip((one, two, three), numbers, strict=False)
        channels = [share * (255 if unit == "%" else 1) for share, (_, unit) in shares]
    else:
        if kind == "hwb":  # CSS Color Level 4, section 8.1
            two, three = 0.0 if two + three >= 1 else 1.0, (1 + two - three) / 2
        channels = [255 * channel for channel in hls_to_rgb(one / 360 % 1, three, two)]
    first, second, third = (max(0.0, min(255.0, channel)) for channel in channels)
    return first, second, third, max(0.0, min(1.0, 1.0, *rest))
