"""Files that are opened only if they are regular, written whole or not at all, and locked by the kernel.

Every module that opens a file which others may have planted, or writes one that must survive a crash, uses these
functions. A kernel lock ends with its process. The hooks of agents load this module at each of their steps, so it
imports neither `pathlib` nor anything heavy.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from postroom.core.errors import Denied, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    AnyPath = str | os.PathLike[str]

# How file systems without hard links, and systems that forbid them, refuse one.
_NO_LINKS: Final = (
    errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EMLINK
)  # fmt: skip
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.ENOTSUP)
PATIENCE: Final = 30.0  # seconds to wait for another process
STEP: Final = 0.002  # seconds between two attempts


class NotRegularFile(OSError):
    """The path names a folder, a pipe, a socket or a device."""


def open_regular(
    path: AnyPath, flags: int, mode: int = 0o600, *, folder: int | None = None, follow: bool = False
) -> int:
    """Open a regular file and return its descriptor; a pipe in its place keeps nobody waiting.

    `folder` is a descriptor that `path` is relative to. A link is refused (ELOOP) unless `follow`.
    Raises `NotRegularFile`, or another `OSError`.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags, mode, dir_fd=folder)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise NotRegularFile(errno.ENXIO, "Not a regular file", os.fspath(path))


class opened:  # noqa: N801 - used as a function; a generator would take as long as all else
    """Open a file as `open_regular` does, and close it after the block."""

    def __init__(
        self,
        path: AnyPath,
        flags: int,
        mode: int = 0o600,
        *,
        folder: int | None = None,
        follow: bool = False,
    ) -> None:
        self._handle = open_regular(path, flags, mode, folder=folder, follow=follow)

    def __enter__(self) -> int:
        return self._handle

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def read(path: AnyPath, limit: int, *, follow: bool = False) -> bytes:
    """Return the first `limit` bytes of a regular file."""
    with opened(path, os.O_RDONLY, follow=follow) as handle:
        return os.pread(handle, limit, 0)


def write_all(handle: int, data: bytes) -> None:
    """Write all of the data to a file or stream, waiting for a stream that does not block."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(handle, rest) :]
        except BlockingIOError:
            wait_until_writable(handle)


def wait_until_writable(handle: int) -> None:
    """Wait until a stream takes more data, or reports that it never will."""
    poll = select.poll()
    poll.register(handle, select.POLLOUT)
    poll.poll()


@contextmanager
def temporary(
    folder: int, pieces: Iterable[bytes], mode: int, *, exact: bool = False
) -> Iterator[tuple[str, os.stat_result]]:
    """Write a synced file under a hidden name in a folder; yield the name and its status.

    The umask limits `mode` unless it is `exact`. A block that does not rename the file leaves none.
    """
    name = f".postroom-{os.urandom(8).hex()}.tmp"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
    try:
        try:
            if exact:
                os.fchmod(handle, mode)
            for piece in pieces:
                write_all(handle, piece)
            # The kernel's own timestamps are milliseconds coarse: two versions would look alike.
            os.utime(handle, ns=(time.time_ns(),) * 2)
            os.fsync(handle)
            status = os.fstat(handle)
        finally:
            os.close(handle)
        yield name, status
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def publish(
    source: int, old: str, target: int, new: str, link: Callable[..., None] = os.link
) -> bool:
    """Give a file a second name, or raise `FileExistsError`; return whether it still has the old name too."""
    try:
        link(old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        return True
    # A rename would replace another's file: an empty file reserves the name first.
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=target))
    try:
        os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)
    except OSError:
        os.unlink(new, dir_fd=target)
        raise
    return False


def create(
    path: AnyPath, data: bytes, mode: int | None = None, *, link: Callable[..., None] = os.link
) -> bool:
    """Write a new file, whole, with exactly this `mode`, or by the umask; return False if something has that name."""
    with _folder_of(path) as (folder, name):
        try:
            with temporary(folder, [data], mode or 0o666, exact=mode is not None) as (temp, _):
                publish(folder, temp, folder, name, link)
        except FileExistsError:
            return False
        sync_folder(folder)
    return True


def replace(path: AnyPath, data: bytes, mode: int | None = None) -> None:
    """Write a file, whole, in the place of whatever has that name; make its folder if missing."""
    parent = os.path.dirname(path) or "."
    if not os.path.isdir(parent):
        os.makedirs(parent, exist_ok=True)
    with _folder_of(path) as (folder, name):
        with temporary(folder, [data], mode or 0o666, exact=mode is not None) as (temp, _):
            os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
        sync_folder(folder)


def remove(path: AnyPath) -> None:
    """Remove a file, so that a power failure does not bring it back."""
    with _folder_of(path) as (folder, name):
        os.unlink(name, dir_fd=folder)
        sync_folder(folder)


def sync_folder(folder: int) -> None:
    """Flush the names in an open folder to the disk, where its file system can do that."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


@contextmanager
def _folder_of(path: AnyPath) -> Iterator[tuple[int, str]]:
    """Open the folder that a path is in; yield its descriptor and the path's last name."""
    parent, name = os.path.split(path)
    folder = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder, name
    finally:
        os.close(folder)


def private_folder(path: Path) -> Path:
    """Return the folder, made for its owner alone if it is missing, as its parents are."""
    try:
        if not path.parent.is_dir():
            private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be made: {error.strerror}",
            remedy="Set POSTROOM_STATE to a folder that you may write to.",
        ) from error
    if path.stat().st_mode & 0o002:
        raise Denied(
            f"Everybody may write to {path}",
            remedy=f"Run `chmod 700 {path}`, or use another folder.",
        )
    return path


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
def try_lock(path: Path, *, patience: float = 0.0) -> Iterator[bool]:
    """Hold the lock if it is free, and yield whether it is held; its file is removed afterwards."""
    try:
        handle = _open_state_lock(path, patience)
    except Locked:
        yield False
        return
    try:
        yield True
    finally:
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
        if not path.parent.is_dir():
            private_folder(path.parent)
        return open_locked(path, patience)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be opened: {error.strerror}",
            remedy="Make its folder one that you may write to, and take away what is in its place.",
        ) from error
