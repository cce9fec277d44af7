"""Small files of ours, written whole and down to the disk, or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def create(file: Path, data: bytes, mode: int | None = None) -> bool:
    """Write a file that is not there yet, and return whether it was made.

    `mode` are its rights; without one they are as the system's umask has them.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        handle = os.open(file, flags, 0o666 if mode is None else 0o600)
    except FileExistsError:
        return False
    try:
        with os.fdopen(handle, "wb") as stream:
            if mode is not None:
                os.fchmod(handle, mode)
            stream.write(data)
            stream.flush()
            os.fsync(handle)
    except OSError:  # a full disk leaves no half of it
        file.unlink(missing_ok=True)
        raise
    return True


def replace(file: Path, data: bytes, mode: int | None = None) -> None:
    """Put a whole file in the place of another; its folder is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".postroom-{os.urandom(8).hex()}.tmp")
    try:
        create(beside, data, mode)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
    sync(file.parent)


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
