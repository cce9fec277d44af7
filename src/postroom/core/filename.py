"""Names of files that came by mail, made fit for a folder that people open."""

from __future__ import annotations

import re
from typing import Final

from postroom.core.text import one_line

MAX_NAME: Final = 180  # bytes, so that no file system finds it too long
# What opens without running anything. All else, known or not, is saved under a name that opens nothing;
# Markdown too, which in a vault would be a note that somebody else wrote.
PASSIVE: Final = frozenset(
    "bmp csv docx gif heic ics jpeg jpg json log m4a mov mp3 mp4 odp ods odt ogg pdf png pptx tif tiff"
    " tsv txt vcf wav webm webp xlsx zip".split()
)
DOWNLOAD: Final = ".download"

# Separators and signs of any system, and those that end a link in a note.
_UNFIT: Final = re.compile(r'[/\\:*?"<>|#^\[\]`]')
# Names that Windows takes for devices, whatever follows the dot.
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|\Z)", re.IGNORECASE)


def file_name(name: str) -> str:
    """Return the name under which a file is saved: plain, short, and opening nothing that runs."""
    plain = _UNFIT.sub("_", one_line(name)).strip(". ").lstrip("-~").strip(". ")
    stem, dot, kind = plain.rpartition(".")
    if not dot:
        stem, kind = plain, ""
    kind = _cut(kind, 20)
    stem = _cut(stem, MAX_NAME - 20).rstrip(". ") or "attachment"
    shown = f"{stem}.{kind}" if kind else stem
    shown = f"_{shown}" if _DEVICES.match(shown) else shown
    return shown if kind.casefold() in PASSIVE else f"{shown}{DOWNLOAD}"


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def numbered(name: str, number: int) -> str:
    """Return another name for a file whose name is taken."""
    stem, dot, kind = name.removesuffix(DOWNLOAD).rpartition(".")
    tail = DOWNLOAD if name.endswith(DOWNLOAD) else ""
    return f"{stem}-{number}.{kind}{tail}" if dot and stem else f"{kind}-{number}{tail}"
