"""Files of `.agentmail/`, which other programs share: locked themselves, and changed in place.

A repository may be a stranger's: every file is opened as if it had been planted.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from postroom.core.errors import Denied
from postroom.store.files import open_regular, replace, write_all
from postroom.store.locks import open_locked

if TYPE_CHECKING:
    from postroom.store.files import AnyPath

PATIENCE: Final = 10.0  # seconds to wait for another process
SMALL: Final = 1_000_000  # bytes of a file that has no reason to be larger


def open_own(path: AnyPath, flags: int) -> int:
    """Open a regular file that has no second name, and return its descriptor."""
    try:
        handle = open_regular(path, flags)
        if os.fstat(handle).st_nlink == 1:
            return handle
        os.close(handle)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ELOOP):
            raise
    raise Denied(f"{path} is not a regular file with one name", remedy="Remove it.")


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


def content(path: str, limit: int | None = SMALL) -> bytes:
    """Return the beginning of a file, or all of it; nothing if there is none that may be opened."""
    try:
        with opened_own(path, os.O_RDONLY) as handle:
            return read_all(handle) if limit is None else os.pread(handle, limit, 0)
    except (OSError, Denied, ValueError):
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


def overwrite(handle: int, new: bytes) -> None:
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


# Overwriting that survives a crash: both contents are kept at `copy` until it is done.


def overwrite_safely(copy: str, handle: int, old: bytes, new: bytes) -> None:
    """Overwrite `old` by `new`, so that `finish_overwriting` can finish it after a crash."""
    head = json.dumps([os.fstat(handle).st_ino, len(old), zlib.crc32(old + new)]).encode()
    replace(copy, head + b"\n" + old + new, 0o600)
    overwrite(handle, new)
    os.unlink(copy)


def finish_overwriting(copy: str, handle: int) -> None:
    """Finish what a crash broke off, unless another program has rewritten the file since."""
    try:
        with opened_own(copy, os.O_RDONLY) as source:
            head, _, both = read_all(source).partition(b"\n")
    except (FileNotFoundError, Denied):
        return
    old, new = _halves(head, both, os.fstat(handle).st_ino)
    now = read_all(handle)
    if old and len(now) >= len(old) and _is_mixed(now[: len(old)], old, new):
        added = now[len(old) :]  # by others, after the crash
        if added:
            overwrite_safely(copy, handle, now, new + added)
            return
        overwrite(handle, new)
    os.unlink(copy)


def _halves(head: bytes, both: bytes, inode: int) -> tuple[bytes, bytes]:
    """Return the old and the new content; nothing if the copy is not one of ours for this file."""
    try:
        of, length, crc = json.loads(head)
        if of != inode or type(length) is not int or zlib.crc32(both) != crc:
            return b"", b""
    except (ValueError, TypeError, RecursionError):
        return b"", b""
    return both[:length], both[length:]


def _is_mixed(found: bytes, old: bytes, new: bytes) -> bool:
    """Whether this is what a write of `new` over `old` leaves when it is broken off anywhere."""
    padded = new.ljust(len(old), b"\n")
    low, high = 0, len(old)
    while low < high:  # how far it came: comparing halves is quicker than comparing bytes
        middle = (low + high + 1) // 2
        if found[:middle] == padded[:middle]:
            low = middle
        else:
            high = middle - 1
    return found[low:] == old[low:]
