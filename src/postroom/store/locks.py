"""Kernel locks: they end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.core.errors import Unavailable
from postroom.store.database import private_folder

PATIENCE = 30.0
STEP = 0.01


@contextmanager
def held(path: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock of this name, waiting for it at most so long."""
    end = time.monotonic() + patience
    while (handle := _taken(path)) is None:
        if time.monotonic() >= end:
            raise Unavailable(
                f"Another process has held {path} for {patience:g} seconds",
                remedy="Wait for it to finish, then run the command again.",
            )
        time.sleep(STEP)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def tried(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody else does, and say whether; its file is gone afterwards."""
    handle = _taken(path)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            # Unlinked while it is held: whoever opened it meanwhile sees another inode, and retries.
            path.unlink(missing_ok=True)
            os.close(handle)


def taken(path: Path) -> bool:
    """Whether somebody holds the lock now; who asks keeps nobody else who asks from the answer."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # nobody holds what is not there
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _taken(path: Path) -> int | None:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            private_folder(path.parent)
            continue
        except OSError as why:
            raise Unavailable(
                f"{path} cannot be opened: {why.strerror}",
                remedy="Make its folder one that you may write to, and take away what is in its place.",
            ) from why
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        try:
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)
