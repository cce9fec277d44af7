"""Giving a shared file other content in place, so that a crash at any moment leaves enough to finish it."""

from __future__ import annotations

import json
import os
import stat
import zlib

from postroom.agents.files import opened_own, read_all, replace_all
from postroom.core.errors import Denied
from postroom.store.files import replace


def rewrite(path: str, handle: int, old: bytes, new: bytes) -> None:
    """Put `new` in the place of `old`; both are at `path` until that is done."""
    head = json.dumps([os.fstat(handle).st_ino, len(old), zlib.crc32(old + new)]).encode()
    replace(path, head + b"\n" + old + new, 0o600)
    replace_all(handle, new)
    os.unlink(path)


def finish(path: str, handle: int) -> None:
    """Finish what a crash broke off, unless somebody else has rewritten the file since."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return  # nothing of ours
        with opened_own(path, os.O_RDONLY) as copy:
            head, _, both = read_all(copy).partition(b"\n")
    except (FileNotFoundError, Denied):
        return
    old, new = _halves(head, both, os.fstat(handle).st_ino)
    now = read_all(handle)
    if old and len(now) >= len(old) and _mixed(now[: len(old)], old, new):
        added = now[len(old) :]  # by others, after the crash
        if added:
            rewrite(path, handle, now, new + added)
            return
        replace_all(handle, new)
    os.unlink(path)


def _halves(head: bytes, both: bytes, inode: int) -> tuple[bytes, bytes]:
    """Return what was there and what should be; nothing where nobody of ours wrote it for this file."""
    try:
        of, length, crc = json.loads(head)
        if of != inode or type(length) is not int or zlib.crc32(both) != crc:
            return b"", b""
    except (ValueError, TypeError, RecursionError):
        return b"", b""
    return both[:length], both[length:]


def _mixed(found: bytes, old: bytes, new: bytes) -> bool:
    """Whether this is what a write of `new` over `old` leaves when it is broken off anywhere."""
    padded = new.ljust(len(old), b"\n")
    low, high = 0, len(old)
    while low < high:  # how far it came
        middle = (low + high + 1) // 2
        if found[:middle] == padded[:middle]:
            low = middle
        else:
            high = middle - 1
    return found[low:] == old[low:]
