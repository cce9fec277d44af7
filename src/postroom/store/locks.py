"""Kernel locks on files: one ends with the process that holds it, however that process ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from postroom.core.errors import Unavailable
from postroom.store.files import open_regular, opened, private_folder

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE: Final = 30.0  # seconds to wait for another process
STEP: Final = 0.002  # seconds between two attempts


class Locked(Unavailable):
    """Another process holds the lock."""


def acquire(handle: int, end: float = float("inf")) -> bool:
    """Lock an open file until it is closed; return False if `end` (monotonic clock) passes first."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(STEP)
        else:
            return True


def open_locked(
    path: str | Path,
    patience: float,
    *,
    create: bool = True,
    open_file: Callable[[str | Path, int], int] = open_regular,
) -> int:
    """Return the descriptor of a locked file; closing it releases the lock.

    A file that is unlinked while this waits is opened again: its new name is another file. Raises
    `Locked` after `patience` seconds, and `FileNotFoundError` if it is missing and not to be created.
    """
    end = time.monotonic() + patience
    while True:
        handle = open_file(path, os.O_RDWR | (os.O_CREAT if create else 0))
        try:
            if not acquire(handle, end):
                raise Locked(
                    f"{path} is locked by another process",
                    remedy="Wait for it to finish, then try again.",
                )
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


@contextmanager
def locked(path: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock of this name in the state folder, waiting for it at most so long."""
    handle = _open_state_lock(path, patience)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock if it is free, and yield whether it is held; its file is removed afterwards."""
    try:
        handle = _open_state_lock(path, 0.0)
    except Locked:
        handle = -1
    try:
        yield handle >= 0
    finally:
        if handle >= 0:
            # Unlinked while it is held: a process that waits for it sees another inode, and retries.
            path.unlink(missing_ok=True)
            os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock now; two processes that ask do not disturb each other."""
    try:
        with opened(path, os.O_RDONLY) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file that is missing is locked by nobody
        return False
    return False


def _open_state_lock(path: Path, patience: float) -> int:
    try:
        try:
            return open_locked(path, patience)
        except FileNotFoundError:
            private_folder(path.parent)
            return open_locked(path, patience)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be opened: {error.strerror}",
            remedy="Make its folder one that you may write to, and take away what is in its place.",
        ) from error
