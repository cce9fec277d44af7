"""Where a repository's agent mail lies, and how its files are opened: locked, in place, never replaced."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from postroom.core.errors import Invalid, NotFound, Unavailable

PATIENCE: Final = 10.0  # seconds that another process may hold a file
STEP: Final = 0.002
NO_ROOT: Final = "not in a git repository: not in a git repository"
PERSON: Final = "person"  # who has a voice that no agent has


class Folder:
    """`.agentmail` of one repository."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.path = os.path.join(root, ".agentmail")
        self.boxes = os.path.join(self.path, "mailboxes")
        self.ours = os.path.join(self.path, "postroom")
        self.states = os.path.join(self.path, "recipients.jsonl")
        self.pid = os.path.join(self.path, "mailman.pid")

    def make(self) -> None:
        """Make the folders that are missing."""
        if os.path.isdir(self.boxes) and os.path.isdir(self.ours):
            return
        for path in (self.path, self.boxes, self.ours):
            try:
                os.mkdir(path, 0o750)
            except FileExistsError:
                continue
            if path == self.path:  # letters are no part of what the repository keeps
                with open(os.path.join(path, ".gitignore"), "w", encoding="ascii") as file:
                    file.write("*\n")

    def box(self, name: str) -> str:
        """Return the file of a mailbox."""
        cleaned = os.path.normpath(f"{name}.jsonl")
        if cleaned.startswith(("..", "/")) or "\0" in name:
            raise Invalid("invalid path: directory traversal detected")
        path = os.path.join(self.boxes, f"{name}.jsonl")
        if "/" in name:  # the original makes no folder for it
            raise NotFound(f"open {path}: no such file or directory")
        return path

    def holds(self, name: str) -> bool:
        """Whether there can be a mailbox of this name: one with a slash has none."""
        return "/" not in name or name.startswith("..")

    def beside(self, name: str, ending: str) -> str:
        """Return a file of ours that belongs to a mailbox."""
        self.box(name)
        return os.path.join(self.ours, f"{name}.{ending}")

    def names(self) -> list[str]:
        """Return whose mailboxes there are."""
        try:
            found = os.listdir(self.boxes)
        except OSError:
            return []
        return sorted(name.removesuffix(".jsonl") for name in found if name.endswith(".jsonl"))

    def ignored(self) -> frozenset[str]:
        """Return the names that nobody may write to."""
        try:
            with open(os.path.join(self.root, ".agentmailignore"), "rb") as file:
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return frozenset()
        return frozenset(filter(None, map(str.strip, lines)))


def find(start: str) -> Folder | None:
    """Return the agent mail of the repository that this folder is in."""
    here = os.path.abspath(start)
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            return Folder(here)
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above


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
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if make else 0)
    while True:
        handle = os.open(path, flags, 0o600)
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
                raise Unavailable(
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
    size = os.fstat(handle).st_size
    # Blank lines are legal: only with them is it cut to its length.
    write_all(handle, new.ljust(size, b"\n"), 0)
    os.ftruncate(handle, len(new))
