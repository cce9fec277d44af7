"""Files of `.agentmail/`, which other programs share: locked themselves, and changed in place.

A repository may be a stranger's: every file is opened as if it had been planted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from postroom.core.errors import Denied
from postroom.store.files import NotRegularFile, open_regular, write_all
from postroom.store.locks import open_locked

if TYPE_CHECKING:
    from postroom.store.files import AnyPath

PATIENCE: Final = 10.0  # seconds to wait for another process
SMALL: Final = 1_000_000  # bytes that `content` reads by default


def open_own(path: AnyPath, flags: int) -> int:
    """Open a regular file that has no second name, and return its descriptor."""
    try:
        handle = open_regular(path, flags)
        if os.fstat(handle).st_nlink == 1:
            return handle
        os.close(handle)
    except NotRegularFile:
        pass
    raise Denied(
        f"{path} is not a regular file with one name", remedy="Remove it, or put it right."
    )


@contextmanager
def opened_own(path: str, flags: int) -> Iterator[int]:
    """Open a file as `open_own` does, and close it after the block."""
    handle = open_own(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def locked(path: str, *, make: bool = True, patience: float = PATIENCE) -> Iterator[int]:
    """Yield the descriptor of a file under its lock.

    Raises `Locked` after `patience` seconds, and `FileNotFoundError` if the file is missing and not
    to be made.
    """
    handle = open_locked(path, patience, create=make, open_file=open_own)
    try:
        yield handle
    finally:
        os.close(handle)


def content(path: str, limit: int = SMALL) -> bytes:
    """Return the beginning of a file; nothing if there is none that may be opened."""
    try:
        with opened_own(path, os.O_RDONLY) as handle:
            return os.pread(handle, limit, 0)
    except (OSError, Denied, ValueError):
        return b""


def whole(path: str) -> bytes:
    """Return all of a file, of whatever size; nothing if there is none that may be opened."""
    try:
        with opened_own(path, os.O_RDONLY) as handle:
            return read_all(handle)
    except (OSError, Denied):
        return b""


def append(path: str, data: bytes) -> None:
    """Add data to the end of a file, made if it is missing, and flush it to the disk."""
    with opened_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as handle:
        write_all(handle, data)
        os.fsync(handle)


def write_at(handle: int, data: bytes, offset: int) -> None:
    """Write all of the data at an offset."""
    rest = memoryview(data)
    while rest:
        count = os.pwrite(handle, rest, offset)
        rest, offset = rest[count:], offset + count


def read_all(handle: int, start: int = 0) -> bytes:
    """Return what a file holds from an offset on."""
    pieces = []
    while piece := os.pread(handle, 1 << 24, start):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def replace_all(handle: int, new: bytes) -> None:
    """Give a file other content in place; a reader without a lock never sees half a line of it."""
    old = read_all(handle)
    try:
        # Blank lines are legal: only with them is the file cut to its length.
        write_at(handle, new.ljust(len(old), b"\n"), 0)
    except OSError:  # the disk is full; the old content still has its room
        write_at(handle, old, 0)
        os.ftruncate(handle, len(old))
        raise
    os.ftruncate(handle, len(new))
