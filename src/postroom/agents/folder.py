"""The folder `.agentmail/` of a repository: its paths, and safe access to files that other programs use too.

The lock of a shared file is on the file itself, which is changed in place and never replaced. A repository may come
from a stranger: links, devices and files with a second name are refused.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from postroom.core.errors import Denied, Invalid, NotFound, Unavailable
from postroom.store.files import create, open_locked, open_regular, replace, write_all

PATIENCE: Final = 10.0  # seconds to wait for another process's lock
SMALL: Final = 1_000_000  # bytes; a limit for files that are never larger by themselves
NO_ROOT: Final = "not in a git repository: not in a git repository"


class MailFolder:
    def __init__(self, root: str) -> None:
        self.root = root
        self.path = os.path.join(root, ".agentmail")
        self.boxes = os.path.join(self.path, "mailboxes")
        self.own_files = os.path.join(self.path, "postroom")
        self.states = os.path.join(self.path, "recipients.jsonl")
        self.pid = os.path.join(self.path, "mailman.pid")

    def make(self) -> None:
        for path in self.check():
            with suppress(FileExistsError):
                os.mkdir(path, 0o750)
                if path == self.path:  # git must not track the messages
                    create(os.path.join(path, ".gitignore"), b"*\n", 0o600)

    def check(self) -> list[str]:
        """Return the folders that are missing; raise `Denied` if one is a link or a file."""
        missing = []
        for path in (self.path, self.boxes, self.own_files):
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise Denied(f"{path} is not a folder of its own", remedy="Remove it.")
            except FileNotFoundError:
                missing.append(path)
            except OSError as error:
                raise Unavailable(f"{path}: {error.strerror}") from error
        return missing

    def box(self, name: str) -> str:
        """Return the path of the mailbox of this name; raise if a name cannot have one."""
        cleaned = os.path.normpath(f"{name}.jsonl")
        if cleaned.startswith(("..", "/")) or "\0" in name:
            raise Invalid("invalid path: directory traversal detected")
        path = os.path.join(self.boxes, f"{name}.jsonl")
        if "/" in name:  # the original makes no folder for it
            raise NotFound(f"open {path}: no such file or directory")
        return path

    def can_have(self, name: str) -> bool:
        """Whether a mailbox of this name is possible: not with a slash. For names that begin with `..`, `box` raises."""
        return "/" not in name or name.startswith("..")

    def beside(self, name: str, ending: str) -> str:
        """Return the path of a file of Postroom's own that belongs to a mailbox."""
        self.box(name)
        return os.path.join(self.own_files, f"{name}.{ending}")

    def names(self) -> list[str]:
        return list_names(self.boxes, ".jsonl")

    def ignored(self) -> frozenset[str]:
        data = content(os.path.join(self.root, ".agentmailignore"))
        lines = data.decode("utf-8", "replace").split("\n")
        return frozenset(filter(None, map(str.strip, lines)))


def find(start: str) -> MailFolder | None:
    """Return the mail folder of the git repository that contains the folder `start`; None outside of one."""
    here = os.path.abspath(start)
    while not os.path.lexists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above
    return MailFolder(here)


def list_names(folder: str, ending: str) -> list[str]:
    with suppress(OSError):
        files = os.listdir(folder)
        return sorted(name.removesuffix(ending) for name in files if name.endswith(ending))
    return []


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file and return its descriptor; raise `Denied` for a link, a device, or a file with a second name."""
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
def _closing(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def opened_own(path: str, flags: int) -> AbstractContextManager[int]:
    return _closing(open_own(path, flags))


def locked(
    path: str, *, make: bool = True, patience: float = PATIENCE
) -> AbstractContextManager[int]:
    """Lock a file and return its descriptor for a block; with `make`, a missing file is created.

    Raises `Locked` after `patience` seconds, and without `make` `FileNotFoundError` for a missing file.
    """
    return _closing(open_locked(path, patience, create=make, open_file=open_own))


def content(path: str, limit: int | None = SMALL) -> bytes:
    """Return the first `limit` bytes of a file, all for None; no bytes if it is missing or must not be opened."""
    with suppress(OSError, Denied, ValueError), opened_own(path, os.O_RDONLY) as handle:
        return read_all(handle) if limit is None else os.pread(handle, limit, 0)
    return b""


def append(path: str, data: bytes) -> None:
    """Add data to the end of a file and flush it to the disk; a missing file is created."""
    with opened_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as handle:
        write_all(handle, data)
        os.fsync(handle)


def write_at(handle: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(handle, rest, offset)
        rest, offset = rest[count:], offset + count


def read_all(handle: int, start: int = 0) -> bytes:
    pieces = []
    while piece := os.pread(handle, 1 << 24, start):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def overwrite(handle: int, new: bytes) -> None:
    """Replace the content of a file in place, so that a reader without the lock never sees half a line.

    If the disk is full, the old content is restored and `OSError` raised.
    """
    old = read_all(handle)
    try:
        # Shorter content is padded with blank lines, which readers skip, and the file is truncated only afterwards.
        write_at(handle, new.ljust(len(old), b"\n"), 0)
    except OSError:  # the disk is full; the blocks of the old content are still the file's
        write_at(handle, old, 0)
        os.ftruncate(handle, len(old))
        raise
    os.ftruncate(handle, len(new))


def overwrite_safely(copy: str, handle: int, old: bytes, new: bytes) -> None:
    """Overwrite `old` by `new`; until that is done, the file `copy` has both, for `finish_overwriting`."""
    head = json.dumps([os.fstat(handle).st_ino, len(old), zlib.crc32(old + new)]).encode()
    replace(copy, head + b"\n" + old + new, 0o600)
    overwrite(handle, new)
    os.unlink(copy)


def finish_overwriting(copy: str, handle: int) -> None:
    """Finish an `overwrite_safely` that a crash interrupted, unless another program has rewritten the file since."""
    try:
        with opened_own(copy, os.O_RDONLY) as source:
            data = read_all(source)
    except (FileNotFoundError, Denied):
        return
    head = re.match(rb"\[(\d{1,20}), (\d{1,20}), (\d{1,20})\]\n", data)
    inode, length, crc = map(int, head.groups()) if head else (0, 0, 0)
    both = data[head.end() :] if head else b""
    if inode == os.fstat(handle).st_ino and zlib.crc32(both) == crc:
        old, new = both[:length], both[length:]
        now = read_all(handle)
        padded = new.ljust(length, b"\n")
        written = len(os.path.commonprefix([now, padded]))  # noqa: RUF071 - of bytes, as intended
        if now[written:].startswith(old[written:]):
            added = now[max(written, length) :]  # lines that other programs added after the crash
            overwrite_safely(copy, handle, now, new + added)
            return
    os.unlink(copy)
