"""Text that strangers wrote: cleaned of what the eye cannot see, folded into the words that search compares."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

TOKEN_CHARS = 64  # a longer run is a blob, not a word; its beginning stands for it

# Scripts that put no spaces between words: each character is a token, and a phrase finds a word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_SYMBOLS = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_ASCII_TOKEN = re.compile(r"[0-9a-z]+")
_TOKEN = f"[{_UNSPACED}{_SYMBOLS}]|(?:(?![{_UNSPACED}{_SYMBOLS}])[^\\W_])+"
_DIACRITICS = re.compile("[\u0300-\u036f]+")
# More marks in a row than any word has (Unicode's Stream-Safe Text: 30); ranges that hold them all.
_MARKS = (
    "\u0300-\u036f\u0483-\u05c7\u0610-\u08ff\u093c-\u1aff\u1b34-\u1dff\u20d0-\u20f0\u2cef-\u2dff"
    "\u302a-\u302f\u3099\u309a\ua66f-\uabed\ufb1e\ufe20-\ufe2f\U000101fd-\U00016ff1\U0001bc9e"
    "\U0001d165-\U0001e94a"
)
# The two large ones are compiled at their first use: `re` keeps them, and most commands need none.
_MARK_RUN = f"((?:(?![^\\W\\d])[{_MARKS}]){{30}})(?:(?![^\\W\\d])[{_MARKS}])+"

# Controls but tab and newline; soft hyphen, fillers, joiners, direction marks and overrides; tags,
# variation selectors, lone surrogates and noncharacters. Joiners and selectors that shape the
# letter or emoji before them are told apart by `_kept`.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe0e\ufe0f"
_KEYCAPS = "#*0123456789"


class Cleaned(NamedTuple):
    """A text without its invisible characters, and how many there were."""

    text: str
    removed: int


def _kept(text: str, at: int) -> bool:
    """Whether the joiner or selector at this place shapes what a reader sees on both sides of it."""
    before, after = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if text[at] in _SELECTORS:
        return _seen(before) and (before > "\u00a8" or before in _KEYCAPS)
    if text[at] in _JOINERS:
        if before and before in _SELECTORS:
            before = text[max(0, at - 2) : at - 1]
        return _seen(before) and _seen(after) and min(before, after) > "\u02ff"
    return False


def _seen(char: str) -> bool:
    return bool(char) and not _INVISIBLE.match(char)


def clean(text: str) -> Cleaned:
    """Return the text as a reader sees it: newlines unified, invisible characters taken out and counted."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    removed = 0

    def judge(found: re.Match[str]) -> str:
        nonlocal removed
        if _kept(text, found.start()):
            return found.group()
        removed += 1
        return "\n" if found.group() in "\u2028\u2029" else ""

    return Cleaned(_INVISIBLE.sub(judge, text), removed)


def one_line(text: str) -> str:
    """Return the text on one line, cleaned, with runs of white space as one space."""
    if text.isascii() and text.isprintable():  # as most are: nothing to clean
        return " ".join(text.split())
    return " ".join(clean(text).text.split())


def words(text: str) -> list[str]:
    """Return the words that search compares: folded of case, width and diacritics, in order."""
    if text.isascii():
        found = _ASCII_TOKEN.findall(text.lower())
    else:
        # Cut first: normalization sorts a run of marks, in a time that grows with its square.
        text = re.sub(_MARK_RUN, r"\1", text)
        marked = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
        plain = unicodedata.normalize("NFKC", _DIACRITICS.sub("", marked))
        found = re.findall(_TOKEN, plain)
    # Most texts have no run that long, and asking is cheaper than cutting every word.
    if found and max(map(len, found)) > TOKEN_CHARS:
        return [token[:TOKEN_CHARS] for token in found]
    return found
