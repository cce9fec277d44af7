"""Text for the page: hidden characters made visible, code marked, times and durations in short form.

`reveal`, `isolate` and `mark_code` are the only Python functions that write HTML; each escapes the text it is given.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, tzinfo
from math import ceil

from markupsafe import Markup, escape

from postroom.core.stamp import Stamp
from postroom.core.text import INVISIBLE, is_shaping, short_duration

_HIDDEN_RUN = re.compile(f"({INVISIBLE.pattern})\\1*")
_MARK = Markup('<b class="unseen" title="{}">U+{:04X}{}</b>')
_ISOLATED = Markup('<bdi dir="auto">{}</bdi>')
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


def shorten(text: str, most: int) -> str:
    """Return at most this many characters; the last one is an ellipsis where text was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
