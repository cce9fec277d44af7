"""Which declarations hold for an element: the style sheets of a page, `style` attributes and older attributes.

`tinycss2` parses the styles. A rule that may or may not hold counts only if it hides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from tinycss2 import parse_blocks_contents, parse_stylesheet

from postroom.mail.style import (
    LINK_COLOUR,
    MAX_NESTED,
    NO_COLOUR,
    PATTERNS,
    WORDS,
    Declared,
    Node,
    TextStyle,
    Value,
    covered_by,
    length_terms,
    parse_paint,
    terms,
    value_text,
)

MAX_STYLES: Final = 50_000  # characters parsed of style sheets, and again of `style` attributes
MAX_TESTS: Final = 1_000_000  # of names in selectors on a page; what follows is hidden

Attributes = dict[str, str]
Ranked = dict[str, tuple[tuple[bool, int, int], Value]]  # by importance, specificity and order

_SPECIFICITY: Final = {"#": 10_000, ".": 100, "[": 100, "*": 0}  # of a name; of a tag 1
_ATTRIBUTE_NODES: Final = frozenset({"ident", "literal", "string"})  # of `[name=value]`
_CONDITIONAL: Final = frozenset({"media", "supports", "layer", "container", "scope"})


class StyledElement(NamedTuple):
    keys: frozenset[str]  # tag, `.class`, `#id` and `[attribute`, in lower case; `*`
    exact: frozenset[str]
    parent: StyledElement | None


NO_ELEMENT: Final = StyledElement(frozenset(), frozenset(), None)  # where no rule could hold


class _Selector(NamedTuple):
    """The names that a selector asks for in each part, from the outermost element to its own: in lower case, and exact."""

    parts: list[tuple[set[str], set[str]]]
    weight: int  # the specificity
    sure: bool  # that it asks for nothing else
    generated: bool  # stands for `::before` or `::after`


class StyleSheets:
    """The rules of a page's style sheets, indexed by one name that the last part of their selector needs."""

    def __init__(self, styles: Iterable[tuple[str, str]]) -> None:
        # What a rule declares, and what counts of it where it may not hold.
        self._rules: dict[str, list[tuple[_Selector, Ranked, Ranked]]] = {}
        self._inline: dict[str, Ranked] = {}
        self._order = self._tests = self._parsed = 0
        self._unread: set[str] = set()  # names in what was not parsed
        left = MAX_STYLES
        for media, css in styles:
            holds = _media_holds(media.lower())
            if holds is not False and css.strip():
                if len(css) > left:
                    left = css.rfind("}", 0, left) + 1
                    self._unread |= set(re.findall(r"[\w-]+", css[left:].lower()))
                    self._unread |= {"*"} if PATTERNS["any_element"].search(css, left) else set()
                self._add_nodes(parse_stylesheet(css[:left]), [], sure=bool(holds), depth=0)
                left = max(0, left - len(css))

    def _add_nodes(
        self, nodes: list[Node], selectors: list[_Selector], *, sure: bool, depth: int
    ) -> None:
        if depth > MAX_NESTED:
            self._unread.add("*")
            return
        if selectors and (declared := _declarations(nodes)):
            self._add_rule(selectors, declared, sure=sure)
        for node in nodes:
            keyword = getattr(node, "lower_at_keyword", "")
            holds = _media_holds(value_text(node.prelude)) if keyword == "media" else None
            inner = selectors
            if node.type == "qualified-rule":
                holds, inner = not selectors or None, _selectors(node.prelude)
            elif keyword == "import" and "data:" in value_text(node.prelude):
                self._unread.add("*")
            elif keyword not in _CONDITIONAL:
                continue
            if holds is not False and node.content:
                nested = parse_blocks_contents(node.content)
                self._add_nodes(nested, inner, sure=sure and bool(holds), depth=depth + 1)

    def _add_rule(self, selectors: list[_Selector], declared: Ranked, *, sure: bool) -> None:
        self._order += 1
        for selector in selectors:
            if selector.generated and not covered_by("", _values(declared)):
                continue  # only what is drawn over an element can hide it
            rank = min(selector.weight, 10**6), self._order
            whole = {n: ((important, *rank), v) for n, ((important, _, _), v) in declared.items()}
            hiding = whole if TextStyle().inside("div", _values(whole)).hidden else {}
            index = max(selector.parts[-1][0], key=lambda name: _SPECIFICITY.get(name[0], 1))
            self._rules.setdefault(index, []).append((selector, whole if sure else hiding, hiding))

    def style(
        self, tag: str, attributes: Attributes, parent: StyledElement | None
    ) -> tuple[StyledElement, Declared]:
        """Return an element as selectors see it, and what older attributes, rules and its own style declare."""
        found: Ranked = {term: ((False, -1, 0), value) for term, value in _hints(tag, attributes)}
        if not (self._rules or self._unread):
            return NO_ELEMENT, self._with_own_style(found, attributes)
        names = [f".{name}" for name in attributes.get("class", "").split()]
        names += [f"#{attributes['id']}"] if "id" in attributes else []
        names += [f"[{name}" for name in attributes]
        names += [f"[{name}={value}" for name, value in attributes.items()]
        exact = frozenset((tag, "*", *names))
        element = StyledElement(frozenset(name.lower() for name in exact), exact, parent)
        unread = self._unread and self._unread & {key.lstrip(".#[") for key in element.keys}
        if unread or self._tests > MAX_TESTS:
            return element, {"display": True}
        for key in element.keys & self._rules.keys():
            for selector, whole, hiding in self._rules[key]:
                sure = self._holds(selector, element)
                if sure is not None:
                    _cascade(found, whole if sure else hiding)
        return element, self._with_own_style(found, attributes)

    def _with_own_style(self, found: Ranked, attributes: Attributes) -> Declared:
        if style := attributes.get("style"):
            if style not in self._inline:
                self._parsed += len(style)
                css = style if self._parsed <= MAX_STYLES else "display:none!important"
                self._inline[style] = _declarations(parse_blocks_contents(css))
            _cascade(found, self._inline[style])
        return _values(found)

    def _holds(self, selector: _Selector, element: StyledElement) -> bool | None:
        """Whether a selector holds for an element: surely, perhaps, or (None) not."""
        wanted, sure = list(selector.parts), selector.sure
        self._tests += len(wanted)
        place: StyledElement | None = element
        while wanted and place:
            names, exact = wanted[-1]
            self._tests += len(names)
            if names <= place.keys:
                sure &= exact <= place.exact
                wanted.pop()
            elif place is element:
                return None
            place = place.parent
        return None if wanted else sure


def _cascade(found: Ranked, more: Ranked) -> None:
    for term, ranked in more.items():
        if term not in found or found[term][0] <= ranked[0]:
            found[term] = ranked


def _values(ranked: Ranked) -> Declared:
    return {term: value for term, (_, value) in ranked.items()}


def _declarations(nodes: Iterable[Node]) -> Ranked:
    found: Ranked = {}
    for node in nodes:
        if node.type == "declaration":
            for term, value in terms(node.lower_name, value_text(node.value)):
                _cascade(found, {term: ((node.important, 10**7, 0), value)})
    return found


_WITH_BACKGROUND = frozenset("body marquee table tbody td tfoot th thead tr".split())


def _hints(tag: str, attributes: Attributes) -> Iterator[tuple[str, Value]]:
    embedded = PATTERNS["embedded"]
    closed = tag in {"details", "dialog"} and "open" not in attributes
    sheet = tag == "link" and embedded.match(attributes.get("href", ""))
    if closed or sheet or "hidden" in attributes or "popover" in attributes:
        yield "display", True
    if tag == "a" and "href" in attributes:
        yield "color", LINK_COLOUR
    for name in ("width", "height") if tag == "img" else ():
        yield from length_terms(name, attributes.get(name, "").strip().lower())
    ground = "bgcolor" if tag in _WITH_BACKGROUND else ""
    for name, term in (("text" if tag == "body" else "color", "color"), (ground, "ground")):
        if text := attributes.get(name, "").strip().lower().removeprefix("#"):
            yield term, parse_paint(f"#{text}") or parse_paint(text) or NO_COLOUR
    if embedded.match(attributes.get("background", "")):
        yield "image", NO_COLOUR


def _selectors(prelude: list[Node]) -> list[_Selector]:
    """Return each selector of a list, as far as it is understood; one that never holds is left out."""
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
            words = [n.value.lower() for n in node.content if n.type in _ATTRIBUTE_NODES]
            test = "".join(words[:3] if words[1:2] == ["="] else words[:1])
            parts[-1].add(f"[{test}" if test and "|" not in words else "*")
            sure = False
        elif text.lower() in {"before", "after"}:
            sure, generated = False, True
        elif text.lower() in WORDS["never"] or (marks == "::" and text != "first-line"):
            return None
        elif kind != "comment":
            parts[-1].add("*")
            sure &= kind == "*"
            weight += {"*": 0, "function": 10**5}.get(kind, 100)
        marks = ""
    *around, last = [part for part in parts if part] or [{"*"}]
    # Every element has html and body around it.
    needed = [part for part in around if not part <= {"html", "body", "*"}] + [last]
    weight += sum(_SPECIFICITY.get(name[0], 1) for part in parts for name in part)
    lower = [({name.lower() for name in part}, part) for part in needed]
    return _Selector(lower, weight, sure, generated)


def _media_holds(query: str) -> bool | None:
    """Whether a media query holds on a wide, light screen; None if that is not known."""
    found = set()
    for alternative in query.replace(": ", ":").replace(" :", ":").split(","):
        words = alternative.split()
        fails = "not" not in words and any(map(PATTERNS["media_fails"].fullmatch, words))
        found.add(False if fails else all(map(PATTERNS["media_holds"].fullmatch, words)) or None)
    return True if True in found else None if None in found else False
