"""The HTML part of a letter as a picture of itself: nothing in it loads, runs, leads anywhere or covers the page around it.

It is shown in a frame without scripts, forms, network or origin of its own. That alone would do in a browser that has no
faults; what is taken out here would be asked for before any policy is looked at (a name looked up, a connection made ready).
Styles stay, since they say what a reader sees: with them gone, a text could be hidden here and shown there.
"""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from typing import Final

from postroom.mail.html import STYLE, UNSEEN, attributes, tokens, unescaped
from postroom.web.markup import Html, html

MAX_HTML: Final = 1_000_000  # characters that are shown
MAX_DEPTH: Final = 200  # open elements; what is nested deeper stands in the one above it
_TAGS: Final = frozenset(
    "a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del dfn div dl dt em"
    " figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark nav ol p pre q s samp section small span"
    " strike strong sub sup table tbody td tfoot th thead tr tt u ul var wbr".split()
)
_VOID: Final = frozenset("br col hr img wbr".split())
_ATTRIBUTES: Final = frozenset(
    "align alt bgcolor border cellpadding cellspacing class color colspan dir face height hidden hspace id lang nowrap rowspan size start"
    " style title type valign vspace width".split()
)
_PICTURE: Final = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*+", re.I)
# The frame's policy refuses what these would load; this way it is not even asked for.
_LOADS: Final = re.compile(
    r"url\s*+\(|image(?:-set)?\s*+\(|src\s*+\(|@import|@font-face|@namespace", re.I
)
# CSS Syntax, section 4.3.7: a character by its number, or any other as itself.
_ESCAPE: Final = re.compile(r"\\(?:0{0,4}([0-9a-fA-F]{2})(?![0-9a-fA-F])[ \t\n]?|([g-zG-Z]))")
_LESS: Final = "\\3c "

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'self'; sandbox"
)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The HTML part</title>
<style>:root{{color-scheme:light;background:#fff;color:#111}}body{{margin:12px;font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}}
img{{max-width:100%;border:1px dashed #777;padding:2px;color:#444}}a{{color:#0645ad;text-decoration:underline}}</style></head>
<body>{body}</body></html>
"""


def page(part: str) -> Html:
    """Return the HTML part as a page for its frame."""
    out, open_tags, how_many = list[str](), list[str](), Counter[str]()
    for name, chars, closing in tokens(part[:MAX_HTML].replace("\0", "")):
        if not name:
            out.append(escape(unescaped(chars)))
        elif name == STYLE:
            # A sign that could end the element, or begin another, is written as CSS has it.
            out.append(f"<style>{_style(chars).replace('<', _LESS)}</style>")
        elif name == UNSEEN or name not in _TAGS:
            continue
        elif not closing:
            if name in _VOID:
                out.append(_tag(name, attributes(chars)))
            elif len(open_tags) < MAX_DEPTH:
                out.append(_tag(name, attributes(chars)))
                open_tags.append(name)
                how_many[name] += 1
        elif how_many[name]:
            last = ""
            while last != name:
                last = open_tags.pop()
                how_many[last] -= 1
                out.append(f"</{last}>")
    out += [f"</{name}>" for name in reversed(open_tags)]
    return html(_PAGE, body=Html("".join(out)))


def _style(text: str) -> str:
    """Return a style in which nothing is loaded, by whatever spelling."""

    def letter(found: re.Match[str]) -> str:
        sign = chr(int(found[1], 16)) if found[1] else found[2]
        return sign if sign.isascii() and sign.isalnum() else found[0]

    def loads(found: re.Match[str]) -> str:
        return "none(" if found[0].endswith("(") else f"@x-{found[0][1:]}"

    return _LOADS.sub(loads, _ESCAPE.sub(letter, text))


def _tag(name: str, given: dict[str, str]) -> str:
    kept = {key: value for key, value in given.items() if key in _ATTRIBUTES}
    if "style" in kept:
        kept["style"] = _style(kept["style"])
    if name == "a" and "href" in given:
        kept["title"] = given["href"]
    if name == "img":
        kept.setdefault("alt", "picture")
        if _PICTURE.fullmatch(given.get("src", "")):
            kept["src"] = given["src"]
    return f"<{name}{''.join(f' {key}={chr(34)}{escape(value)}{chr(34)}' for key, value in kept.items())}>"
