"""The attributes of a tag, and where a link of a letter may lead: to an absolute address of a page or of a person, all of it visible."""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5
from typing import Final

from postroom.core.errors import Invalid
from postroom.core.text import clean

MAX_HREF: Final = 2_000
SPACE: Final = "[ \t\n\f\r]"
ATTRIBUTE: Final = rf"""{SPACE}++([^ \t\n\f\r"'<>/=]++)(?:{SPACE}*+={SPACE}*+("[^"]*+"|'[^']*+'|[^ \t\n\f\r"'<>=`]++))?+"""
_ATTRIBUTES: Final = re.compile(ATTRIBUTE)
_REFERENCE: Final = re.compile("&(#?[A-Za-z0-9]++(?:;|(?!=)))")
_WEB: Final = re.compile(
    r"https?://(?:[\w.-]++|\[[0-9a-f:.]++\])(?::[0-9]{1,5}+)?+(?:[/?#]|\Z)", re.I
)
_REFUSED: Final = re.compile(r"""[\s\\<>"`\x00-\x20\x7f-\x9f]""")


def parse_href(attributes: str) -> str | None:
    """Return where the tag of a link leads, None where it names no place; the first `href` counts."""
    given = (value for name, value in _ATTRIBUTES.findall(attributes) if name.lower() == "href")
    if (value := next(given, None)) is None:
        return None
    bare = value[1:-1] if value[:1] in ('"', "'") else value
    href = _REFERENCE.sub(_character, bare).strip(" \t\n\f\r")
    if len(href) > MAX_HREF:
        raise Invalid(f"A link has {len(href):,} characters; {MAX_HREF:,} is the most")
    mails = href[:7].lower() == "mailto:" and len(href) > 7
    if not (mails or _WEB.match(href)) or _REFUSED.search(href) or clean(href).removed:
        raise Invalid(
            f"The link {clean(href[:60]).text!r} is no absolute http, https or mailto address",
            remedy="Write the whole address, without a user name and spaces.",
        )
    return href


def _character(found: re.Match[str]) -> str:
    """Return what a reference stands for; in an attribute, one without its end is often none."""
    return unescape(found[0]) if found[1] in html5 or found[1][0] == "#" else found[0]
