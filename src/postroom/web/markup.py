"""HTML that is escaped unless it says that it is HTML; and foreign text that cannot pass for anything else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from html import escape
from math import ceil

from postroom.core.stamp import Stamp

# What an eye does not see, or what turns the order of what it sees around.
_UNSEEN = re.compile(
    "([\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff])\\1*"
)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


NONE = Html("")


def html(template: str, /, **values: object) -> Html:
    """Return a template of ours with these values in it, each escaped unless it is HTML."""
    return Html(template.format_map({name: put(value) for name, value in values.items()}))


def put(value: object) -> Html:
    """Return a value as HTML: escaped, unless it is HTML; several one after the other."""
    if isinstance(value, Html):
        return value
    if isinstance(value, str):
        return Html(escape(value))
    if isinstance(value, Iterable):
        return Html("".join(map(put, value)))
    return Html(escape(str(value)))


def foreign(text: str) -> Html:
    """Return what somebody else wrote, in a box of its own direction; what cannot be seen is named."""
    return html('<bdi dir="auto">{text}</bdi>', text=shown(text))


def shown(text: str) -> Html:
    """Return text as HTML with every hidden or direction-changing character named in a mark, a row of one in one."""
    parts, last = [], 0
    for found in _UNSEEN.finditer(text):
        if _shapes(text, found.start()):
            continue
        name = unicodedata.name(found[1], "a control character").lower()
        many = f" × {len(found[0]):,}" if len(found[0]) > 1 else ""
        parts.append(escape(text[last : found.start()]))
        parts.append(f'<b class="unseen" title="{name}">U+{ord(found[1]):04X}{many}</b>')
        last = found.end()
    return Html("".join((*parts, escape(text[last:]))))


def _shapes(text: str, at: int) -> bool:
    """Whether a joiner stands between letters of a script, or parts of an emoji, that it joins."""
    around = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    return text[at] in "\u200c\u200d" and all(one > "\u02ff" and not _UNSEEN.match(one) for one in around)  # fmt: skip


def prose(text: str) -> Html:
    """Return a sentence of ours, with what stands in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is missing
        return put(text)
    return put(
        html("<code>{part}</code>", part=part) if at % 2 else part for at, part in enumerate(parts)
    )


def moment(stamp: Stamp | float, zone: tzinfo, form: str = "%Y-%m-%d %H:%M") -> Html:
    """Return a moment in the desk's zone; the page puts it into the reader's."""
    wall = stamp.wall if isinstance(stamp, Stamp) else stamp
    at = datetime.fromtimestamp(int(wall), UTC)
    local = at.astimezone(zone)
    return html(
        '<time datetime="{iso}">{text}</time>',
        iso=f"{at.isoformat()[:19]}Z",
        text=f"{local.strftime(form)} {local.tzname()}",
    )


def ago(stamp: Stamp, seconds: float) -> Html:
    """Return how long ago a moment was; the page keeps it true."""
    iso = datetime.fromtimestamp(int(stamp.wall), UTC).isoformat()[:19]
    return html('<time class="ago" datetime="{iso}Z">{text}</time>', iso=iso, text=span(seconds))


def span(seconds: float) -> str:
    """Return a time as short as a list shows it."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return "now" if seconds < 10 else f"{int(seconds)} s"


def left(seconds: float) -> str:
    """Return how long there still is, rounded up as people do."""
    if seconds > 96 * 3600:
        return f"{ceil(seconds / 86_400)} d"
    return f"{ceil(seconds / 3600)} h" if seconds > 3600 else f"{max(1, ceil(seconds / 60))} min"


def many(count: int, one: str, more: str = "") -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
