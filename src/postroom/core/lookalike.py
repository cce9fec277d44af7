"""Which names a reader could confuse: letters of other scripts, small capitals, digits for letters."""

from __future__ import annotations

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
_SMALL_CAPITAL: Final = "LATIN LETTER SMALL CAPITAL "


def skeleton(text: str) -> str:
    """Return what a text is taken for at a glance, the same for all texts that look alike."""
    text = text.translate(_CAPITALS).casefold()
    if not text.isascii():
        marked = unicodedata.normalize("NFKD", text)
        text = "".join(_letter(char) for char in marked if not unicodedata.combining(char))
    return text.translate(_ALIKE).replace("rn", "m").replace("vv", "w").replace("cl", "d")


def _letter(char: str) -> str:
    # Unicode does not decompose small capitals: ᴘ, ꜱ.
    name = "" if char.isascii() else unicodedata.name(char, "")
    return name[-1].lower() if name[:-1] == _SMALL_CAPITAL else char


def reads_as(name: str, known: Collection[str]) -> str:
    """Return the known name that a reader could take this name for, or nothing.

    Case, width, accents, separators and invisible characters do not count. A letter of a script that
    the table leaves out may look like any: where half of the others are right, the name is too.
    """
    letters = _letters(name)
    for one in known:
        pairs = list(zip(letters, wanted := _letters(one), strict=False))
        same = sum(a == b for a, b in pairs)
        alike = len(letters) == len(wanted) and all(a == b or not a.isascii() for a, b in pairs)
        if alike and 2 * same >= len(wanted):
            return one
    return ""


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, skeleton(clean(name).text)))
