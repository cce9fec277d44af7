"""Which names a reader can confuse: letters of other scripts, small capitals, digits for letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache, lru_cache
from pkgutil import get_data
from typing import Final

from postroom.core.errors import Invalid
from postroom.core.text import clean

# Both sides of a comparison are mapped. Letters that Unicode's table does not call confusable, though a reader
# in a hurry confuses them, and the digits that stand for letters.
_ALSO: Final = str.maketrans(
    "вкмнтьпиβεηκμτχωłøđħŧ01i|53",
    "bkmhtbnubenkutxwlodhtolllse",
)
# Letters that readers take for others than the table says: a name counts as alike whichever they stand for.
_AMBIGUOUS: Final = "ʋᶌυɣγɯƍքẝнимμ"
_ANY: Final = "○"  # a symbol, which stands for any letter or none
_SYMBOL: Final = "?"
_SYMBOLS: Final = re.compile(r"\?+")
_ONE_LETTER: Final = frozenset("0135abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SMALL_CAPITAL: Final = "LATIN LETTER SMALL CAPITAL "


@cache
def _confusables() -> dict[int, str]:
    """Return Unicode's table (UTS 39) of letters that look like ASCII; ASCII names never load it."""
    table = (get_data(__package__, "confusables.txt") or b"").decode()
    rows = (row.split(" ") for row in table.splitlines() if row[0] != "#")
    return {ord(char): look for look, chars in rows for char in chars}


@cache
def _ambiguous() -> re.Pattern[str]:
    """Match letters with several readings.

    Beside those above, the letters that the table takes for a digit or for two letters, and capitals of which it has
    the small letter alone.
    """
    table = _confusables()
    small = {*_AMBIGUOUS, *(chr(point) for point, look in table.items() if look not in _ONE_LETTER)}
    letters = small | {one.upper() for one in small} | {one.lower() for one in small}
    letters |= {chr(point).upper() for point in table} - {chr(point) for point in table}
    return re.compile(f"[{''.join(sorted(one for one in letters if not one.isascii()))}]")


def skeleton(text: str) -> str:
    """Return what a text is taken for at a glance, the same for all texts that look alike."""
    if not text.isascii():
        table = _confusables()  # before the case is folded: Η looks like H, η like n
        folded = unicodedata.normalize("NFKD", text.translate(table).casefold()).casefold()
        text = "".join(_letter(char) for char in folded if not unicodedata.combining(char))
        text = text.translate(table)
    text = text.casefold().translate(_ALSO)
    return text.replace("rn", "m").replace("vv", "w").replace("cl", "d")


def _letter(char: str) -> str:
    # Unicode does not decompose small capitals: ᴘ, ꜱ.
    name = "" if char.isascii() else unicodedata.name(char, "")
    return name[-1].lower() if name[:-1] == _SMALL_CAPITAL else char


def reads_as(name: str, known: Collection[str]) -> str:
    """Return the known name that a reader could take this name for, or nothing.

    Case, width, accents, separators and invisible characters do not count. A letter of a script that
    the table leaves out may look like any, and a symbol or a letter with several readings (Approʋed) too,
    or like none (Appr○ved ✓): where half of the letters are right, the name is too.
    """
    text = unicodedata.normalize("NFKD", clean(name).text)
    readings = [skeleton(text)]
    if not text.isascii():
        readings.append(skeleton(_ambiguous().sub(_ANY, text)))
    for reading in readings:
        sure = sum(char.isascii() and char.isalnum() for char in reading)
        any_of = _SYMBOLS.sub(lambda run: f".{{0,{len(run[0])}}}", "".join(map(_pattern, reading)))
        for one in known:
            wanted = "".join(filter(str.isalnum, skeleton(one)))
            if sure <= len(wanted) <= 2 * sure and re.fullmatch(any_of, wanted):
                return one
    return ""


def _pattern(char: str) -> str:
    if char.isalnum():
        return char if char.isascii() else "."
    return _SYMBOL if char in "@$!" or not (char.isascii() or char.isspace()) else ""


MAX_AGENT: Final = 64
# Who acts besides agents, as letters and the log name them.
OURS: Final = frozenset({"person", "vault", "desk", "dispatcher", "nobody", "orchestrator"})


def check_agent_name(name: str) -> None:
    """Raise `Invalid` for a name that could be taken for one of ours, or cannot be shown."""
    if not _is_allowed(name):
        raise Invalid(
            f"An agent's name has 1 to {MAX_AGENT} printable characters, and is none of ours",
            remedy=f"Choose another; {', '.join(sorted(OURS))} are taken.",
        )


@lru_cache(maxsize=64)  # each call of a tool asks
def _is_allowed(name: str) -> bool:
    shown = 0 < len(name) <= MAX_AGENT and name.isprintable() and name == name.strip()
    return shown and name == unicodedata.normalize("NFKC", name) and not reads_as(name, OURS)
