"""The templates of the page, their filters, and its static files.

Everything that a template is given is escaped unless it is `Markup`, and a name that it is not given is an error.
`reveal`, `isolate`, `mark_code` and `describe` are the only Python functions that write HTML; each escapes its text.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from importlib.resources import files
from itertools import chain, zip_longest
from math import ceil
from secrets import token_hex
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from postroom.core import life
from postroom.core.stamp import Stamp
from postroom.core.text import INVISIBLE, duration, is_shaping, plural, short_duration
from postroom.web import views

STATIC_TYPES: Final = {
    "desk.css": "text/css; charset=utf-8",
    "desk.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
STATIC: Final = {name: (files("postroom.web") / "static" / name).read_bytes() for name in STATIC_TYPES}  # fmt: skip
# The address changes with the content, so that browsers may keep a file for ever.
_STATIC_URLS: Final = {
    name: f"/static/{name}?{sha256(content).hexdigest()[:12]}" for name, content in STATIC.items()
}
_HIDDEN_RUN = re.compile(f"({INVISIBLE.pattern})\\1*")
_MARK = Markup('<b class="hidden-char" title="{}">U+{:04X}{}</b>')
_ISOLATED = Markup('<bdi dir="auto">{}</bdi>')
_TIME = Markup('<time datetime="{}">{}</time>')
_MARKER = f"\0{token_hex(8)}\0"  # for a moment; random, so that no text can contain it
_CODE = Markup("<code>{}</code>")


def reveal(text: str) -> Markup:
    """Return escaped text in which every hidden or direction-changing character is a mark with its code point.

    A run of the same character is one mark with a count.
    """
    parts, end = [], 0
    for match in _HIDDEN_RUN.finditer(text):
        start = match.start() + is_shaping(text, match.start())  # which is needed where it is
        if start == match.end():
            continue
        name = unicodedata.name(match[1], "a control character").lower()
        count = f" × {match.end() - start:,}" if match.end() - start > 1 else ""
        parts += [escape(text[end:start]), _MARK.format(name, ord(match[1]), count)]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def isolate(text: str) -> Markup:
    """Return revealed text in an element with a text direction of its own, so that it cannot reorder the page."""
    return _ISOLATED.format(reveal(text))


def mark_code(text: str) -> Markup:
    """Return a sentence of Postroom's with the words between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner
        return escape(text)
    return Markup("").join(_CODE.format(one) if at % 2 else one for at, one in enumerate(parts))


def describe(state: life.State, zone: tzinfo) -> Markup:
    """Return the sentence on a letter's state, with its moments as elements that the script puts into the reader's zone."""
    moments = list[Markup]()

    def mark(stamp: Stamp) -> str:
        moments.append(_TIME.format(utc_time(stamp), local_time(stamp, zone)))
        return _MARKER

    texts = map(reveal, life.describe(state, when=mark).split(_MARKER))
    return Markup("").join(chain(*zip_longest(texts, moments, fillvalue="")))


def utc_time(stamp: Stamp | float) -> str:
    """Return a moment as the `datetime` attribute of a `time` element has it."""
    return f"{datetime.fromtimestamp(_seconds(stamp), UTC).isoformat()[:19]}Z"


def local_time(stamp: Stamp | float, zone: tzinfo) -> str:
    """Return a moment in the zone of the machine; the script replaces it by the reader's zone."""
    local = datetime.fromtimestamp(_seconds(stamp), zone)
    return f"{local:%Y-%m-%d %H:%M} {local.tzname()}"


def _seconds(stamp: Stamp | float) -> int:
    return int(stamp.wall if isinstance(stamp, Stamp) else stamp)


def age(seconds: float) -> str:
    """Return how long ago something was, in one unit: `now`, `20 s`, `3 d`."""
    return "now" if seconds < 10 else short_duration(seconds)


def time_left(seconds: float) -> str:
    """Return the time that is left, in one unit, rounded up."""
    if seconds > 96 * 3600:
        return f"{ceil(seconds / 86_400)} d"
    return f"{ceil(seconds / 3600)} h" if seconds > 3600 else f"{max(1, ceil(seconds / 60))} min"


ENVIRONMENT: Final = Environment(
    loader=PackageLoader("postroom.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
ENVIRONMENT.policies["truncate.leeway"] = 0  # characters that a text may have more than it should
ENVIRONMENT.filters |= {
    "age": age,
    "agent_name": views.agent_name,
    "approval_date": views.approval_date,
    "decided_by": views.decided_by,
    "describe": describe,
    "duration": duration,
    "isolate": isolate,
    "kind": life.name,
    "local_time": local_time,
    "mark_code": mark_code,
    "pages": views.pages,
    "plural": plural,
    "reveal": reveal,
    "sha256": lambda content: sha256(content).hexdigest(),
    "time_left": time_left,
    "utc_time": utc_time,
}
ENVIRONMENT.globals |= {
    "chart_days": views.CHART_DAYS,
    "marks": ("calm", "look", "stop"),  # the classes of a risk card's levels
    "max_mail_text": views.MAX_MAIL_TEXT,
    "max_sources": views.MAX_SOURCES,
    "max_text_shown": views.MAX_TEXT_SHOWN,
    "open_states": life.OPEN,
    "outcomes": views.OUTCOMES,
    "static": _STATIC_URLS,
}


def render(template: str, **values: object) -> str:
    """Return a template of the page with these values in it, as HTML."""
    return ENVIRONMENT.get_template(template).render(values)
