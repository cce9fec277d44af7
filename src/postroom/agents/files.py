"""How files that others share, or may have planted, are opened: plain ones alone, locked, in place."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from postroom.core.errors import Denied, Unavailable

PATIENCE: Final = 10.0  # seconds that another process may hold a file
STEP: Final = 0.002
SMALL: Final = 1_000_000  # bytes of a file that is read whole without being asked how large it is


class Locked(Unavailable):
    """Somebody else holds a file."""


def opened(path: str, flags: int) -> int:
    """Open a file that is one: no link, no second name of another, no pipe that keeps us waiting."""
    # Without waiting, which tells a pipe; of a plain file it says nothing.
    handle = os.open(
        path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600
    )
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise Denied(
            f"{path} is not a plain file of its own", remedy="Take it away, or put it right."
        )
    return handle


@contextmanager
def lent(path: str, flags: int) -> Iterator[int]:
    """Open a file as `opened` does, and close it after the block."""
    handle = opened(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


def content(path: str, most: int = SMALL) -> bytes:
    """Return what a small file holds; nothing where there is none that is one."""
    try:
        handle = opened(path, os.O_RDONLY)
    except (OSError, Denied, ValueError):
        return b""
    try:
        return os.pread(handle, most, 0)
    finally:
        os.close(handle)


def whole(path: str) -> bytes:
    """Return all that a file holds, of whatever size; nothing where there is none that is one."""
    try:
        handle = opened(path, os.O_RDONLY)
    except (OSError, Denied):
        return b""
    try:
        return read_all(handle)
    finally:
        os.close(handle)


def put(path: str, data: bytes, flags: int = os.O_TRUNC, *, synced: bool = False) -> None:
    """Write a file of ours anew, or with another flag onto its end."""
    with lent(path, os.O_WRONLY | os.O_CREAT | (flags & ~os.O_TRUNC)) as handle:
        if flags & os.O_TRUNC:
            os.ftruncate(handle, 0)  # now that it is known to be a file of its own
        write_out(handle, data)
        if synced:
            os.fsync(handle)


@contextmanager
def locked(path: str, *, make: bool = True, patience: float = PATIENCE) -> Iterator[int]:
    """Lend the file's descriptor under its lock; what was unlinked meanwhile is opened anew.

    Raises `FileNotFoundError` where it is not there and not to be made.
    """
    handle = _taken(path, make=make, end=time.monotonic() + patience)
    try:
        yield handle
    finally:
        os.close(handle)


def _taken(path: str, *, make: bool, end: float) -> int:
    while True:
        handle = opened(path, os.O_RDWR | (os.O_CREAT if make else 0))
        try:
            wait(handle, end, path)
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                return handle
        except FileNotFoundError:
            pass  # unlinked while we waited
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def wait(handle: int, end: float, path: str) -> None:
    """Take the lock of a descriptor, until a moment of the steady clock at the latest."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise Locked(
                    f"{path} is locked by another process", remedy="Try again in a moment."
                ) from None
            time.sleep(STEP)
        else:
            return


def write_all(handle: int, data: bytes, at: int) -> None:
    """Write all of it at this place."""
    view = memoryview(data)
    while view:
        done = os.pwrite(handle, view, at)
        view, at = view[done:], at + done


def write_out(handle: int, data: bytes) -> None:
    """Write all of it to a stream, whose other end may have made it one that does not wait."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except BlockingIOError:
            until_writable(handle)


def until_writable(handle: int) -> None:
    """Wait until a stream takes more, or says that it never will."""
    watch = select.poll()
    watch.register(handle, select.POLLOUT)
    watch.poll()


def read_all(handle: int, start: int = 0) -> bytes:
    """Return what the file holds from this place on."""
    pieces = []
    while piece := os.pread(handle, 1 << 24, start):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def replace_all(handle: int, new: bytes) -> None:
    """Give a file other content in place; who reads it meanwhile without a lock sees no half of it."""
    old = read_all(handle)
    try:
        # Blank lines are legal: only with them is it cut to its length.
        write_all(handle, new.ljust(len(old), b"\n"), 0)
    except OSError:  # the disk is full; what was there has its room
        write_all(handle, old, 0)
        os.ftruncate(handle, len(old))
        raise
    os.ftruncate(handle, len(new))
