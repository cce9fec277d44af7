"""Which names a reader could confuse: letters of other scripts, small capitals, digits for letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Final

from postroom.core.text import clean

# Both sides of a comparison are mapped.
_ALIKE: Final = str.maketrans(
    "авекмнорстухіјѕԁһӏԛԝьгпиαβγεηικμνορστυχωօսհոցզıłøđħŧɑɡ01i|53",
    "abekmhopctyxljsdhlqwbrnuabyenlkuvopotuxwouhngqllodhtagolllse",
)
# Capitals that look like Latin ones, while their small letters look like others (Η and η).
_CAPITALS: Final = str.maketrans("ΖΗΜΝΥ", "zhmny")
_SYMBOL: Final = "?"
_SYMBOLS: Final = re.compile(r"\?+")
_SMALL_CAPITAL: Final = "LATIN LETTER SMALL CAPITAL "


def skeleton(text: str) -> str:
    """Return what a text is taken for at a glance, the same for all texts that look alike."""
    text = text.translate(_CAPITALS).casefold()
    if not text.isascii():
        marked = unicodedata.normalize("NFKD", text).casefold()
        text = "".join(_letter(char) for char in marked if not unicodedata.combining(char))
    return text.translate(_ALIKE).replace("rn", "m").replace("vv", "w").replace("cl", "d")


def _letter(char: str) -> str:
    # Unicode does not decompose small capitals: ᴘ, ꜱ.
    name = "" if char.isascii() else unicodedata.name(char, "")
    return name[-1].lower() if name[:-1] == _SMALL_CAPITAL else char


def reads_as(name: str, known: Collection[str]) -> str:
    """Return the known name that a reader could take this name for, or nothing.

    Case, width, accents, separators and invisible characters do not count. A letter of a script that
    the table leaves out may look like any, and a symbol too, or like none (Appr○ved ✓): where half of
    the letters are right, the name is too.
    """
    text = skeleton(clean(name).text)
    sure = sum(char.isascii() and char.isalnum() for char in text)
    any_of = _SYMBOLS.sub(lambda run: f".{{0,{len(run[0])}}}", "".join(map(_pattern, text)))
    for one in known:
        wanted = "".join(filter(str.isalnum, skeleton(one)))
        if sure <= len(wanted) <= 2 * sure and re.fullmatch(any_of, wanted):
            return one
    return ""


def _pattern(char: str) -> str:
    if char.isalnum():
        return char if char.isascii() else "."
    return _SYMBOL if char in "@$!" or not (char.isascii() or char.isspace()) else ""
