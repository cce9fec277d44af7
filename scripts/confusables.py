"""Write src/postroom/core/confusables.txt: the letters that look like ASCII ones, by Unicode's table (UTS 39).

The table comes from ICU's spoof checker (Debian: libicu72), which carries Unicode's confusables.txt.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import sys
import unicodedata
from pathlib import Path

TABLE = Path(__file__).parents[1] / "src" / "postroom" / "core" / "confusables.txt"


def main() -> None:
    """Ask ICU for the skeleton of every letter, and keep those that are ASCII."""
    name = ctypes.util.find_library("icui18n") or ""
    version = re.search(r"\.so\.(\d+)", name)
    if version is None:
        raise SystemExit("ICU is missing: apt-get install libicu72")
    icu = ctypes.CDLL(name)
    status = ctypes.c_int(0)
    open_checker = getattr(icu, f"uspoof_open_{version[1]}")
    open_checker.restype = ctypes.c_void_p
    checker = ctypes.c_void_p(open_checker(ctypes.byref(status)))
    skeleton = getattr(icu, f"uspoof_getSkeletonUTF8_{version[1]}")
    looks: dict[str, list[str]] = {}
    for point in range(0x80, 0x110000):
        char = chr(point)
        if unicodedata.category(char)[0] not in "LN" or unicodedata.normalize("NFKD", char) != char:
            continue
        raw, room = char.encode(), ctypes.create_string_buffer(64)
        size = skeleton(checker, 0, raw, len(raw), room, 64, ctypes.byref(status))
        look = room.raw[:size].decode()
        if re.fullmatch("[A-Za-z0-9]{1,3}", look):
            looks.setdefault(look, []).append(char)
    rows = [f"{look} {''.join(chars)}\n" for look, chars in sorted(looks.items())]
    head = f"# Letters that look like ASCII, from Unicode's confusables by ICU {version[1]}. Written by scripts/confusables.py.\n"
    TABLE.write_text(head + "".join(rows), encoding="utf-8")
    sys.stdout.write(f"{sum(map(len, looks.values()))} letters in {TABLE}\n")


if __name__ == "__main__":
    main()
