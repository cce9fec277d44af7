"""The HTML part of a letter as a picture of itself: nothing in it loads, runs, leads anywhere or covers the page around it.

It is shown in a frame without scripts, forms, network or origin of its own. That alone would do in a browser that has no
faults; what is taken out here would be asked for before any policy is looked at (a name looked up, a connection made ready).
"""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser

from postroom.web.markup import Html, html

MAX_HTML = 1_000_000  # characters that are shown
_TAGS = frozenset(
    "a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del details dfn div dl dt em"
    " figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark nav ol p pre q s samp section small span"
    " strike strong sub summary sup table tbody td tfoot th thead tr tt u ul var wbr".split()
)
_VOID = frozenset("br col hr img wbr".split())
_DROPPED = frozenset(
    "script style title head noscript template iframe object embed svg math audio video select textarea xmp noembed noframes"
    " plaintext".split()
)
_ATTRIBUTES = frozenset(
    "align alt bgcolor border cellpadding cellspacing color colspan dir face height hspace lang nowrap rowspan size start style title"
    " type valign vspace width".split()
)
_PICTURE = re.compile(r"data:image/(?:png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]{0,2000000}", re.I)
# An address, an import, or an escape that could spell one.
_REACHES = re.compile(r"url|image|@|\\|src\(|expression|</", re.I)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The HTML part</title>
<style>:root{{color-scheme:light;background:#fff;color:#111}}body{{margin:12px;font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}}
img{{max-width:100%;border:1px dashed #777;padding:2px;color:#444}}a{{color:#0645ad;text-decoration:underline}}</style></head>
<body>{body}</body></html>
"""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self.open: list[str] = []
        self.dropped: list[str] = []
        self.removed = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.dropped:
            if tag in _DROPPED:
                self.dropped.append(tag)
            return
        if tag in _DROPPED:
            self.removed += tag not in {"head", "title"}
            self.dropped.append(tag)
            return
        if tag not in _TAGS:
            self.removed += tag not in {"html", "body"}
            return
        kept = []
        for name, value in attrs:
            text = value or ""
            if tag == "a" and name == "href":
                kept.append(("title", text))
            elif (tag == "img" and name == "src" and _PICTURE.fullmatch(text)) or (
                name in _ATTRIBUTES and not (name == "style" and _REACHES.search(text))
            ):
                kept.append((name, text))
            else:
                self.removed += 1
        given = dict(reversed(kept))  # where there are two, the first counts
        if tag == "img":
            given.setdefault("alt", "picture")
        shown = "".join(f' {name}="{escape(text)}"' for name, text in given.items())
        self.out.append(f"<{tag}{shown}>")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.dropped:
            if tag in self.dropped:
                del self.dropped[len(self.dropped) - 1 - self.dropped[::-1].index(tag) :]
            return
        if tag in self.open:
            while self.open and (last := self.open.pop()):
                self.out.append(f"</{last}>")
                if last == tag:
                    break

    def handle_data(self, data: str) -> None:
        if not self.dropped:
            self.out.append(escape(data))


def page(part: str) -> tuple[Html, int]:
    """Return the HTML part as a page for its frame, and how much was taken out of it."""
    reader = _Reader()
    reader.feed(part[:MAX_HTML])
    reader.close()
    reader.out += [f"</{tag}>" for tag in reversed(reader.open)]
    removed = reader.removed + (len(part) > MAX_HTML)
    return html(_PAGE, body=Html("".join(reader.out))), removed
