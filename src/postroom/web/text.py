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

# Characters that a reader does not see, or that change the order of what a reader sees; runs of one are one match.
_HIDDEN = re.compile(
    "([\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff])\\1*"
)
_MARK = Markup('<b class="unseen" title="{}">U+{:04X}{}</b>')
_ISOLATED = Markup('<bdi dir="auto">{}</bdi>')
_CODE = Markup("<code>{}</code>")


def reveal(text: str) -> Markup:
    """Return escaped text in which every hidden or direction-changing character is a mark with its code point.

    A run of the same character is one mark with a count.
    """
    parts, end = [], 0
    for match in _HIDDEN.finditer(text):
        if _joins_letters(text, match.start()):
            continue
        name = unicodedata.name(match[1], "a control character").lower()
        count = f" × {len(match[0]):,}" if len(match[0]) > 1 else ""
        parts += [escape(text[end : match.start()]), _MARK.format(name, ord(match[1]), count)]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def _joins_letters(text: str, at: int) -> bool:
    """Whether this is a joiner between letters of a script, or parts of an emoji, that need it."""
    if text[at] not in "\u200c\u200d":
        return False
    neighbours = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    return all(one > "\u02ff" and not _HIDDEN.match(one) for one in neighbours)


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
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return "now" if seconds < 10 else f"{int(seconds)} s"


def time_left(seconds: float) -> str:
    """Return the time that is left, in one unit, rounded up."""
    if seconds > 96 * 3600:
        return f"{ceil(seconds / 86_400)} d"
    return f"{ceil(seconds / 3600)} h" if seconds > 3600 else f"{max(1, ceil(seconds / 60))} min"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
