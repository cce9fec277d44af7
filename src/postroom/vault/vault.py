"""The vault's folder: paths that cannot lead out of it, and files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.store.files import opened, publish, sync_folder, temporary, write_all
from postroom.store.locks import acquire

MAX_SIZE = 30_000_000
MAX_NAME = 255  # bytes, as file systems have it
# No dot in front; no control, no separator of any system; lone surrogates only as undecoded bytes.
_NAME = re.compile("(?!\\.)[^\x00-\x1f/\\\\\x7f-\x9f\ud800-\udfff]+")
_TEMP = re.compile(r"\.postroom-[0-9a-f]{16}\.tmp")
ABANDONED = 3600.0  # seconds after which nobody writes to such a file any more
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PIECE = 1_000_000  # bytes that are compared at once


class File(NamedTuple):
    """A file as it was at one moment: another version of it differs in one of these."""

    name: str
    size: int
    mtime_ns: int
    inode: int


Files: TypeAlias = list[File]
Names: TypeAlias = list[str]
# Called with the inode of what is written, before the file can be seen under its name: what must be
# known of a file is then known before the file is there.
Ready: TypeAlias = Callable[[int], None]


def _nothing(_inode: int) -> None:
    pass


class Vault:
    """A folder of notes, which people and several processes change at once."""

    def __init__(self, root: Path, *below: str, link: Callable[..., None] = os.link) -> None:
        self.root = root.joinpath(*below)
        self._link = link
        self._fd = -1
        try:
            top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as why:
            raise Unavailable(
                f"The vault {root} cannot be opened: {why.strerror}",
                remedy="Set VAULT_PATH to your vault's folder, or run `postroom init`.",
            ) from why
        try:
            self._fd = _descend(top, "/".join(below), make=True)
        except OSError as why:
            raise _in_our_words(why, "/".join(below)) from why
        finally:
            os.close(top)

    def close(self) -> None:
        """Let go of the folder."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def list(self, folder: str) -> Files:
        """Return the notes of a folder, by name; none where there is no folder."""
        return sorted(file for file in self._scan(folder) if file.name.endswith(".md"))

    def names(self, folder: str) -> Names:
        """Return the names of all files of a folder, sorted; none where there is no folder."""
        with suppress(NotFound), self._entries(folder) as entries:
            return sorted(entry.name for entry in entries)
        return []

    def changed(self, folder: str) -> int:
        """Return when a name in the folder was last added or removed, 0 where there is no folder."""
        try:
            with self._held(folder, folder) as fd:
                return os.fstat(fd).st_mtime_ns
        except NotFound:
            return 0

    def stat(self, path: str) -> File | None:
        """Return what stands at a path, of whatever kind; None where nothing does."""
        try:
            with self._at(path) as (folder, name):
                return _file(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
        except NotFound:
            return None

    def is_folder(self, path: str) -> bool:
        """Whether a folder stands at a path, not a link to one."""
        try:
            with self._at(path) as (folder, name):
                return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except NotFound:
            return False

    def stats(self, paths: Iterable[str]) -> Iterator[File | None]:
        """Yield what stands at each path, None where no plain file does; quick for neighbours."""
        for folder, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            names = [path.rpartition("/")[2] for path in group]
            found: dict[str, File] = {}
            with suppress(NotFound, Denied, Unavailable), self._held(folder, folder) as fd:
                for name in filter(_NAME.fullmatch, names):
                    with suppress(OSError):
                        seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISREG(seen.st_mode):
                            found[name] = _file(name, seen)
            yield from map(found.get, names)

    def walk(self, skip: Callable[[str], bool]) -> Iterator[tuple[str, Files]]:
        """Yield every folder with its files, the root first; none that is hidden, a link, or skipped.

        What a crash left half-written is removed on the way.
        """
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            files: Files = []
            try:
                with self._held(folder, folder) as fd, os.scandir(fd) as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if _TEMP.fullmatch(entry.name):
                            _clear(fd, entry)
                        if not _NAME.fullmatch(entry.name) or skip(path):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(path)
                        elif entry.is_file(follow_symlinks=False):
                            with suppress(FileNotFoundError):  # it may be gone since
                                files.append(_file(entry.name, entry.stat(follow_symlinks=False)))
            except (NotFound, Denied, Unavailable):  # gone, swapped, or not ours to read
                continue
            yield folder, sorted(files)

    def spelled(self, path: str) -> str:
        """Return a path as it is on the disk, where only the composition of its characters differs.

        A name that no file has stays as it is, in the composed form.
        """
        folder = ""
        for wanted in _parts(path):
            name = wanted if wanted.isascii() else self._spelled(folder, wanted)
            folder = f"{folder}/{name}" if folder else name
        return folder

    def _spelled(self, folder: str, name: str) -> str:
        plain = unicodedata.normalize("NFC", name)
        with suppress(NotFound), self._held(folder, folder) as fd:
            # The very name first: both spellings may stand in one folder.
            names = os.listdir(fd)  # noqa: PTH208 - of an open folder
            alike = (n for n in names if unicodedata.normalize("NFC", n) == plain)
            return name if name in names else min(alike, default=plain)
        return plain

    def read(self, path: str) -> tuple[bytes, File]:
        """Return a file's bytes, and the version that they are."""
        with self._at(path) as (folder, name), opened(name, os.O_RDONLY, folder=folder) as fd:
            for _ in range(3):
                before = _file(name, os.fstat(fd))
                if before.size > MAX_SIZE:
                    raise Corrupt(
                        f"{path!r} is larger than {MAX_SIZE // 1_000_000} MB",
                        remedy="It is left as it is: take it out of this folder, or shorten it.",
                    )
                data = os.pread(fd, before.size + 1, 0)
                if before == _file(name, os.fstat(fd)) and len(data) == before.size:
                    return data, before
        raise Conflict(f"{path!r} is being written", remedy="Wait a moment, then try again.")

    def create(self, path: str, data: bytes, *, mode: int = 0o644, ready: Ready = _nothing) -> File:
        """Write a new file, and its folders where they are missing; never over another."""
        with self._at(path, make=True) as (folder, name):
            with temporary(folder, [data], mode) as (temp, made):
                ready(made.st_ino)
                publish(folder, temp, folder, name, self._link)
            _sync(folder, path)
        return _file(name, made)

    def deposit(
        self,
        folder: str,
        names: Iterable[str],
        pieces: Iterable[bytes],
        ready: Callable[[str, int], None] = lambda _name, _inode: None,
    ) -> tuple[str, File]:
        """Write a new file as its bytes come, under the first of these names that is free.

        A file that holds the very same already is that file. Returns its name, and what it is.
        """
        with (
            self._held(folder, folder, make=True) as fd,
            temporary(fd, pieces, 0o644) as (temp, made),
        ):
            for name in names:
                _parts(name)
                if _same(fd, temp, name):
                    return name, _file(name, made)
                ready(name, made.st_ino)
                try:
                    publish(fd, temp, fd, name, self._link)
                except FileExistsError:
                    if _same(fd, temp, name):  # another call was quicker
                        return name, _file(name, made)
                else:
                    _sync(fd, folder)
                    return name, _file(name, made)
        raise Conflict(f"{folder} holds too many files of that name", remedy="Delete some of them.")

    def replace(self, path: str, data: bytes, was: File, ready: Ready = _nothing) -> File:
        """Give a file that is still as it was another content; its permissions stay."""
        with self._at(path) as (folder, name):
            mode = _checked(folder, name, was, path)
            with temporary(folder, [data], mode, exact=True) as (temp, made):
                ready(made.st_ino)
                _lock(folder)
                _checked(folder, name, was, path)
                os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
            _sync(folder, path)
        return _file(name, made)

    def move(
        self,
        source: str,
        target: str,
        was: File,
        data: bytes | None = None,
        ready: Ready = _nothing,
    ) -> File:
        """Give a file that is still as it was another path, and content if given; never over another."""
        with self._at(source) as (here, old), self._at(target, make=True) as (there, new):
            mode, stands = _checked(here, old, was, source), True
            if data is None:
                ready(was.inode)
                _lock(here)
                _checked(here, old, was, source)
                stands = publish(here, old, there, new, self._link)
                made = os.stat(new, dir_fd=there, follow_symlinks=False)
            else:
                with temporary(there, [data], mode, exact=True) as (temp, made):
                    ready(made.st_ino)
                    _lock(here)
                    _checked(here, old, was, source)
                    publish(there, temp, there, new, self._link)
            _sync(there, target)  # on the disk before the old one goes
            if stands:
                try:
                    _checked(here, old, was, source)
                    os.unlink(old, dir_fd=here)
                except (OSError, Conflict):
                    os.unlink(new, dir_fd=there)
                    raise
            _sync(here, source)
        return _file(new, made)

    def remove(self, path: str, was: File) -> None:
        """Remove a file that is still as it was."""
        with self._at(path) as (folder, name):
            _lock(folder)
            _checked(folder, name, was, path)
            os.unlink(name, dir_fd=folder)
            _sync(folder, path)

    def append(self, path: str, data: bytes, mode: int = 0o600) -> int:
        """Add to the end of a file, made where it is missing: all of it or, on a full disk, nothing.

        Returns the size that it has then.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._at(path, make=True) as (folder, name):
            with opened(name, flags, mode, folder=folder) as fd:
                _lock(fd)  # so that what is cut off below is nobody else's
                size = os.fstat(fd).st_size
                try:
                    write_all(fd, data)
                    os.fsync(fd)
                except OSError:
                    os.ftruncate(fd, size)
                    raise
            if size == 0:
                _sync(folder, path)
        return size + len(data)

    def tail(self, path: str, size: int = 65_536) -> bytes:
        """Return the last bytes of a file, none where it is missing."""
        try:
            with self._at(path) as (folder, name), opened(name, os.O_RDONLY, folder=folder) as fd:
                return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))
        except NotFound:
            return b""

    def _scan(self, folder: str) -> Iterator[File]:
        with suppress(NotFound), self._entries(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it may be gone since
                    yield _file(entry.name, entry.stat(follow_symlinks=False))

    @contextmanager
    def _entries(self, folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with self._held(folder, folder) as fd, os.scandir(fd) as found:
            yield (e for e in found if _NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False))

    @contextmanager
    def _at(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        name = _parts(path)[-1]
        with self._held(path.rpartition("/")[0], path, make=make) as fd:
            yield fd, name

    @contextmanager
    def _held(self, folder: str, path: str, *, make: bool = False) -> Iterator[int]:
        """Hold a folder open; what the system says meanwhile is put into our words."""
        try:
            fd = _descend(self._fd, folder, make=make)
            try:
                yield fd
            finally:
                os.close(fd)
        except OSError as why:
            raise _in_our_words(why, path) from why


def _clear(fd: int, entry: os.DirEntry[str]) -> None:
    with suppress(OSError):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED:
            os.unlink(entry.name, dir_fd=fd)


def _parts(path: str) -> Names:
    parts = path.split("/")
    if not all(map(_NAME.fullmatch, parts)):
        raise Denied(
            f"{path!r} is no path inside the vault",
            remedy="Name it from the vault's root: names with `/` between, none with a dot in front.",
        )
    if any(len(os.fsencode(part)) > MAX_NAME for part in parts):
        raise _in_our_words(OSError(errno.ENAMETOOLONG, ""), path)
    return parts


def _descend(fd: int, path: str, *, make: bool) -> int:
    """Open folder after folder, each in the one before it, so that no link is ever followed."""
    if not path:
        return os.open(".", _FOLDER, dir_fd=fd)  # not dup: a lock on it must end when it is closed
    root = fd
    for name in _parts(path):
        try:
            try:
                inner = os.open(name, _FOLDER, dir_fd=fd)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):  # another process was first
                    os.mkdir(name, dir_fd=fd)
                os.fsync(fd)
                inner = os.open(name, _FOLDER, dir_fd=fd)
        finally:
            if fd != root:
                os.close(fd)
        fd = inner
    return fd


def _same(folder: int, one: str, other: str) -> bool:
    """Whether two files of a folder hold the same."""
    try:
        with (
            opened(one, os.O_RDONLY, folder=folder) as first,
            opened(other, os.O_RDONLY, folder=folder) as second,
        ):
            while (piece := os.read(first, _PIECE)) == os.read(second, _PIECE):
                if not piece:
                    return True
    except OSError:  # no file, or none that we may read
        return False
    return False


def _sync(folder: int, path: str) -> None:
    try:
        sync_folder(folder)
    except OSError as why:
        raise Uncertain(
            f"{path!r} may be lost when the power fails: {why.strerror}",
            remedy="Check the disk, and look at the file.",
        ) from why


def _lock(fd: int) -> None:
    """Keep other processes of ours out until the file is closed, where the file system can."""
    with suppress(OSError):
        acquire(fd)


def _file(name: str, seen: os.stat_result) -> File:
    return File(name, seen.st_size, seen.st_mtime_ns, seen.st_ino)


def _checked(folder: int, name: str, was: File, path: str) -> int:
    """Return a file's permissions if it is still as it was."""
    with suppress(FileNotFoundError):
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(seen.st_mode) and _file(name, seen)[1:] == was[1:]:
            return stat.S_IMODE(seen.st_mode)
    raise Conflict(f"{path!r} was changed or moved meanwhile", remedy="Read it again, then decide.")


def _in_our_words(why: OSError, path: str) -> PostroomError:
    code, said = why.errno, why.strerror
    if code == errno.ENOENT:
        return NotFound(f"There is no {path!r} in the vault", remedy="Look for its new name.")
    if code == errno.EEXIST:
        return Conflict(f"{path!r} is there already", remedy="Take another name.")
    if code == errno.ENAMETOOLONG:
        return Invalid(f"{path!r} is too long a name", remedy="Take a shorter one.")
    if code in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}:
        told = f"{path!r} is a link or no plain file, or leads through a link"
        return Denied(told, remedy="Put the thing itself there: no link in the vault is followed.")
    if code in {errno.ENOSPC, errno.EDQUOT}:
        told, remedy = f"The disk is full: {path!r} was not written", "Free some space."
    elif code in {errno.EACCES, errno.EPERM, errno.EROFS}:
        told, remedy = f"No right to {path!r}: {said}", "Get the right to it and its folder."
    else:
        told, remedy = f"{path!r} cannot be read or written: {said}", "Check the disk."
    return Unavailable(told, remedy=f"{remedy} Then try again.")
