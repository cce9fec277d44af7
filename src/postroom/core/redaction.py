"""What may stand in a log: addresses, subjects and messages, without what they give away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from postroom.core.text import one_line

MAX_TEXT = 200
MAX_SUBJECT = 50
MAX_ADDRESSES = 5
_LOOKED_AT = 4_000  # characters; far more than is ever shown

# RFC 5322 section 3.2.3: what no unquoted local part holds ends a word here; a quoted one is a word.
_WORD = re.compile(r'"[^"]*+"@[^\s<>()\[\],;:"\\]*+|[^\s<>()\[\],;:"\\]++')
_AT = re.compile("[@＠﹫]|%40")
_DOMAIN = re.compile(r"[\w.-]{0,100}")
_SECRET = re.compile(
    r"(?i:\b(bearer)\s+)[^\s\"',;]+|\b(?:ya29\.|eyJ)[\w.~+/=-]*|[A-Za-z0-9+/_-]{32,}+={0,2}"
)
# A note's path is as long as a token, but made of words and numbers; a token never is, throughout.
_NAME = re.compile(r"[A-Z]?[a-z]{1,20}|[A-Z]{1,20}|\d{1,8}|[A-Za-z0-9]{1,4}")
_BETWEEN = re.compile(r"[+/_-]+")


def address(spec: str) -> str:
    """Return the address with no more of its local part than the first letter."""
    at = list(_AT.finditer(spec))
    if not at:
        return "***" if spec.strip() else ""
    local, rest = spec[: at[-1].start()], spec[at[-1].end() :]
    local = local.rpartition("<")[2].lstrip('"')
    shown = _DOMAIN.match(rest)
    return f"{local[:1] if local[:1].isalnum() else ''}***@{shown.group() if shown else ''}"


def addresses(specs: Sequence[str]) -> str:
    """Return the first addresses, redacted, and how many more there are."""
    shown = ", ".join(address(spec) for spec in specs[:MAX_ADDRESSES])
    more = len(specs) - MAX_ADDRESSES
    return f"{shown} and {more} more" if more > 0 else shown


def subject(text: str) -> str:
    """Return the beginning of a subject, on one line."""
    return _WORD.sub(_word, _bounded(text))[:MAX_SUBJECT]


def text(message: str) -> str:
    """Return a message on one line, without addresses or anything that looks like a secret."""
    if not message:
        return ""
    return _SECRET.sub(_secret, _WORD.sub(_word, _bounded(message)))[:MAX_TEXT]


def _bounded(text: str) -> str:
    text = one_line(text)
    if len(text) <= _LOOKED_AT:
        return text
    # A word that is cut in two might not be known for what it is.
    return text[:_LOOKED_AT].rpartition(" ")[0] or text[:_LOOKED_AT]


def _word(found: re.Match[str]) -> str:
    word = found.group()
    return address(word) if _AT.search(word) and not _AT.fullmatch(word) else word


def _secret(found: re.Match[str]) -> str:
    names = list(filter(None, _BETWEEN.split(found.group())))
    if names and all(map(_NAME.fullmatch, names)):
        return found.group()
    return f"{found.group(1)} ***" if found.group(1) else "***"
