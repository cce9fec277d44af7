"""Text that strangers wrote: cleaned of what the eye cannot see, folded into the words that search compares; look-alikes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from pkgutil import get_data
from typing import Final, NamedTuple

from postroom.core.errors import raise_if

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
# Those given as strings are compiled at their first use: `re` keeps them, and most commands need none.
_MARK_RUN = f"((?:(?![^\\W\\d])[{_MARKS}]){{30}})(?:(?![^\\W\\d])[{_MARKS}])+"

# The one table of invisible characters: controls but tab and newline; soft hyphen, fillers, joiners, direction
# marks and overrides; tags, variation selectors, lone surrogates and noncharacters. `is_shaping` tells apart the
# joiners and selectors that shape the letter or emoji before them.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U00013430-\U0001343f\U000e0000-\U000e0fff]"
)
# Those that can carry a message: programs do not write them into ordinary text.
HIDDEN_CARRIER = "[\u180e\u200b\u202a-\u202e\u2060-\u206f\U000e0000-\U000e0fff]"
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe0e\ufe0f"
_KEYCAPS = "#*0123456789"


class CleanText(NamedTuple):
    text: str
    removed: int


def is_shaping(text: str, at: int) -> bool:
    """Whether the joiner or selector at this place shapes what a reader sees on both sides of it."""
    before, after = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if text[at] in _SELECTORS:
        return _is_visible(before) and (before > "\u00a8" or before in _KEYCAPS)
    if text[at] in _JOINERS:
        if before and before in _SELECTORS:
            before = text[max(0, at - 2) : at - 1]
        return _is_visible(before) and _is_visible(after) and min(before, after) > "\u02ff"
    return False


def _is_visible(char: str) -> bool:
    return bool(char) and not INVISIBLE.match(char)


def clean(text: str) -> CleanText:
    """Return the text as a reader sees it: newlines unified, invisible characters taken out and counted."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():  # as most are
        return CleanText(text, 0)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    removed = 0

    def judge(found: re.Match[str]) -> str:
        nonlocal removed
        if is_shaping(text, found.start()):
            return found.group()
        removed += 1
        return "\n" if found.group() in "\u2028\u2029" else ""

    return CleanText(INVISIBLE.sub(judge, text), removed)


def without_invisible(text: str) -> str:
    """Return the text without invisible characters, also without those that shape an emoji: for comparing words."""
    return text if text.isascii() else INVISIBLE.sub("", text)


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


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: `1 letter`, `2 letters`."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def duration(seconds: float) -> str:
    """Return a time to wait, in words: `40 seconds`, `5 minutes`, `2 hours`."""
    if seconds < 90:
        return plural(max(1, round(seconds)), "second")
    if seconds < 5400 and seconds != 3600:
        return plural(-int(-seconds // 60), "minute")
    return plural(round(seconds / 3600), "hour")


def short_duration(seconds: float) -> str:
    """Return a time as a list shows it: `40 s`, `5 min`, `2 h`, `3 d`."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


MAX_NAME: Final = 180  # bytes, so that no file system finds it too long
MAX_TITLE: Final = 60  # characters of a title in a file's name
# What opens without running anything. All else, known or not, is saved under a name that opens nothing;
# Markdown too, which in a vault would be a note that somebody else wrote.
PASSIVE: Final = frozenset(
    "bmp csv docx gif heic ics jpeg jpg json log m4a mov mp3 mp4 odp ods odt ogg pdf png pptx tif tiff"
    " tsv txt vcf wav webm webp xlsx zip".split()
)
DOWNLOAD: Final = ".download"

# Separators and signs of any system, and those that end a link in a note.
_UNFIT: Final = r'[/\\:*?"<>|#^\[\]`]'
# Names that Windows takes for devices, whatever follows the dot.
_DEVICES: Final = r"(?i)(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|\Z)"


def file_name(name: str) -> str:
    """Return the name under which a file is saved: plain, short, and opening nothing that runs."""
    # Composed first: some characters are others then, or longer.
    plain = unicodedata.normalize("NFC", one_line(name))
    plain = re.sub(_UNFIT, "_", plain).strip(". ").lstrip("-~. ")
    stem, _, kind = plain.rpartition(".") if "." in plain else (plain, "", "")
    kind = kind.encode()[:20].decode(errors="ignore")
    stem = stem.encode()[: MAX_NAME - 20].decode(errors="ignore").rstrip(". ") or "attachment"
    shown = f"{stem}.{kind}" if kind else stem
    shown = f"_{shown}" if re.match(_DEVICES, shown) else shown
    return shown if kind.casefold() in PASSIVE else f"{shown}{DOWNLOAD}"


def file_title(title: str) -> str:
    """Return a title as it may begin the name of a file and stand in a link: short, without signs of any system."""
    # Composed first, as above.
    plain = unicodedata.normalize("NFC", without_invisible(one_line(title)))
    plain = " ".join(re.sub(f"{_UNFIT}|%", " ", plain).split()).lstrip("-~. ")[:MAX_TITLE]
    plain = plain.encode()[: MAX_NAME - 20].decode(errors="ignore").rstrip(" .,;-")
    return f"_{plain}" if re.match(_DEVICES, plain) else plain


def numbered(name: str, number: int) -> str:
    """Return another name for a file whose name is taken."""
    stem, dot, kind = name.removesuffix(DOWNLOAD).rpartition(".")
    tail = DOWNLOAD if name.endswith(DOWNLOAD) else ""
    return f"{stem}-{number}.{kind}{tail}" if dot and stem else f"{kind}-{number}{tail}"


_OTHERS: Final = bytes(set(range(256)) - set(b"0123456789abcdef"))


def draw_fence(*contents: str, draw: Callable[[], str]) -> str:
    """Return a mark that none of these texts holds, in any case and with anything between: a model reads past both."""
    raw = (content.encode("ascii", "ignore").lower() for content in contents)
    digits = [text.translate(None, _OTHERS) for text in raw]
    while True:
        drawn = draw()
        if not any(drawn.encode() in text for text in digits):
            return drawn


# Both sides of a comparison are mapped. Letters that Unicode's table does not call confusable, though a reader
# in a hurry confuses them, and the digits that stand for letters.
_ALSO: Final = str.maketrans(
    "вкмнтьпиβεηκμτχωłøđħŧ01i|53",
    "bkmhtbnubenkutxwlodhtolllse",
)
# Letters that readers take for others than the table says: a name counts as alike whichever they stand for.
_AMBIGUOUS: Final = "ʋᶌυɣγɯƍքẝнимμ"
_ANY: Final = "○"  # a symbol, which stands for any letter or none
_ONE_LETTER: Final = frozenset("0135abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@cache
def _confusables() -> dict[int, str]:
    """Return Unicode's table (UTS 39) of letters that look like ASCII; ASCII names never load it."""
    table = (get_data(__package__, "confusables.txt") or b"").decode()
    rows = (row.split(" ") for row in table.splitlines() if row[0] != "#")
    return {ord(char): look for look, chars in rows for char in chars}


@cache
def _ambiguous() -> re.Pattern[str]:
    """Match letters with several readings, among them those that the table takes for a digit or for two letters."""
    table = _confusables()
    small = {*_AMBIGUOUS, *(chr(point) for point, look in table.items() if look not in _ONE_LETTER)}
    letters = small | {one.upper() for one in small} | {one.lower() for one in small}
    # And capitals of which the table has the small letter alone.
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
    return name[-1].lower() if name[:-1] == "LATIN LETTER SMALL CAPITAL " else char


def reads_as(name: str, known: Collection[str]) -> str:
    """Return the known name that a reader could take this name for, or nothing.

    Case, width, accents, separators and invisible characters do not count. A letter of a script that the table
    leaves out may look like any; a symbol or a letter with several readings (Approʋed) too, or like none (Appr○ved ✓).
    """
    # Where half of the letters are right, the name is too.
    text = unicodedata.normalize("NFKD", clean(name).text)
    readings = [skeleton(text)]
    if not text.isascii():
        readings.append(skeleton(_ambiguous().sub(_ANY, text)))
    for reading in readings:
        sure = sum(char.isascii() and char.isalnum() for char in reading)
        pattern = "".join(map(_pattern, reading))
        any_of = re.sub(r"\?+", lambda run: f".{{0,{len(run[0])}}}", pattern)
        for one in known:
            wanted = "".join(filter(str.isalnum, skeleton(one)))
            if sure <= len(wanted) <= 2 * sure and re.fullmatch(any_of, wanted):
                return one
    return ""


def _pattern(char: str) -> str:
    if char.isalnum():
        return char if char.isascii() else "."
    return "?" if char in "@$!" or not (char.isascii() or char.isspace()) else ""


MAX_AGENT: Final = 64
# Who acts besides agents, as letters and the log name them.
OURS: Final = frozenset({"person", "vault", "desk", "dispatcher", "nobody", "orchestrator"})


@lru_cache(maxsize=64)  # each call of a tool asks
def check_agent_name(name: str) -> None:
    """Raise `Invalid` for a name that could be taken for one of ours, or cannot be shown."""
    shown = 0 < len(name) <= MAX_AGENT and name.isprintable() and name == name.strip()
    plain = shown and name == unicodedata.normalize("NFKC", name) and not reads_as(name, OURS)
    why = f"An agent's name has 1 to {MAX_AGENT} printable characters, and is none of ours"
    raise_if((not plain, why, f"Choose another; {', '.join(sorted(OURS))} are taken."))
