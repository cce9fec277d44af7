"""A place in a mailbox up to which something is known, and how it is known again after others wrote."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from postroom.agents.files import content, open_own
from postroom.core.errors import Denied

TAIL: Final = (
    36  # bytes by which a place is known again: a line's time, which nobody changes afterwards
)
WIDTH: Final = 200  # bytes of a cursor


class Place(NamedTuple):
    """A place in a file."""

    inode: int
    offset: int
    crc: int

    @classmethod
    def at(cls, handle: int, offset: int) -> Place:
        """Return the place at this offset, as the file is now."""
        begin = max(0, offset - TAIL)
        tail = os.pread(handle, offset - begin, begin)
        return cls(os.fstat(handle).st_ino, offset, zlib.crc32(tail))

    def holds(self, handle: int) -> bool:
        """Whether the file is still the same up to here, as far as its last line tells."""
        status = os.fstat(handle)
        if status.st_ino != self.inode or not 0 <= self.offset <= status.st_size:
            return False
        return self == Place.at(handle, self.offset)


def read(path: str, handle: int) -> int:
    """Return an offset before which all is read: as far as we know, which may be the beginning."""
    try:
        inode, offset, crc, size, mtime, check = map(int, content(path, WIDTH).split())
    except ValueError:
        return 0
    place, status = Place(inode, offset, crc), os.fstat(handle)
    if check != zlib.crc32(repr((*place, size, mtime)).encode()) or not place.holds(handle):
        return 0
    # Changed, and no longer than before: somebody changed what is there.
    changed = size == status.st_size and mtime != status.st_mtime_ns
    return 0 if changed or status.st_size < size else offset


def keep(path: str, handle: int, offset: int) -> None:
    """Remember that all before this offset is read."""
    with keeping(path, handle, offset) as write:
        write()


@contextmanager
def keeping(path: str, handle: int, offset: int) -> Iterator[Callable[[], None]]:
    """Lend what remembers it, with two calls of the system: the rest is done before."""
    place = Place.at(handle, offset)
    try:
        cursor = open_own(path, os.O_WRONLY | os.O_CREAT)
    except (OSError, Denied):  # without it, the next look takes longer
        yield lambda: None
        return

    def write() -> None:
        status = os.fstat(handle)
        values = (*place, status.st_size, status.st_mtime_ns)
        line = " ".join(map(str, (*values, zlib.crc32(repr(values).encode()))))
        with suppress(OSError):
            os.pwrite(cursor, line.ljust(WIDTH - 1).encode() + b"\n", 0)

    try:
        yield write
    finally:
        os.close(cursor)
