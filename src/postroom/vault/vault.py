"""The vault's folder: paths that cannot lead out of it, and files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.store.files import acquire, opened, publish, sync_folder, temporary, write_all
from postroom.vault.file_errors import in_our_words

MAX_SIZE = 30_000_000
MAX_NAME = 255  # bytes, as in most file systems
# No dot in front; no control, no separator of any system; lone surrogates only as undecoded bytes.
_NAME = re.compile("(?!\\.)[^\x00-\x1f/\\\\\x7f-\x9f\ud800-\udfff]+")
_TEMP = re.compile(r"\.postroom-[0-9a-f]{16}\.tmp")
ABANDONED = 3600.0  # seconds after which a temporary file is left over from a crash
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PIECE = 1_000_000  # bytes that are compared at once


class File(NamedTuple):
    """A file as it was at one moment: another version of it differs in one of these."""

    name: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time and inode: a file that still has these was not changed."""
        return self.size, self.mtime_ns, self.inode


Files: TypeAlias = list[File]
# Called with the inode of a new file before it has its name: what must be recorded of it is, before anybody sees it.
Ready: TypeAlias = Callable[[int], None]


class Vault:
    """A folder of notes, which people and several processes change at once."""

    def __init__(self, root: Path, *below: str, link: Callable[..., None] = os.link) -> None:
        self.root = root.joinpath(*below)
        self._link = link
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
            raise in_our_words(why, "/".join(below)) from why
        finally:
            os.close(top)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def list(self, folder: str) -> Files:
        """Return the notes of a folder, by name; none where there is no folder."""
        return sorted(file for file in self._files(folder) if file.name.endswith(".md"))

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of all files of a folder, sorted; none where there is no folder."""
        return sorted(file.name for file in self._files(folder))

    def _files(self, folder: str) -> Iterator[File]:
        with suppress(NotFound), self._open_folder(folder) as fd, os.scandir(fd) as entries:
            yield from filter(None, map(_plain_file, entries))

    def subfolders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders in a folder, sorted; none where there is no folder."""
        with suppress(NotFound), self._open_folder(folder) as fd, os.scandir(fd) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            return sorted(filter(_NAME.fullmatch, found))
        return ()

    def folder_mtime(self, folder: str) -> int:
        """Return when an entry of the folder was last added, removed or replaced, in nanoseconds; 0 without a folder."""
        with suppress(NotFound), self._open_folder(folder) as fd:
            return os.fstat(fd).st_mtime_ns
        return 0

    def stat_with_folder(self, path: str) -> tuple[int, File | None]:
        """Return `folder_mtime` of the folder of a path, and `stat` of the path."""
        with suppress(NotFound), self._open_parent(path) as folder:
            changed = os.fstat(folder).st_mtime_ns
            with suppress(FileNotFoundError):
                status = os.stat(_name(path), dir_fd=folder, follow_symlinks=False)
                return changed, _file(_name(path), status)
            return changed, None
        return 0, None

    def stat(self, path: str) -> File | None:
        """Return what stands at a path, of whatever kind; None where nothing does."""
        status = self._status(path)
        return _file(_name(path), status) if status else None

    def is_folder(self, path: str) -> bool:
        """Whether a folder stands at a path, not a link to one."""
        status = self._status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _status(self, path: str) -> os.stat_result | None:
        with (
            suppress(NotFound),
            self._open_parent(path) as folder,
            suppress(FileNotFoundError),
        ):
            return os.stat(_name(path), dir_fd=folder, follow_symlinks=False)
        return None

    def stats(self, paths: Iterable[str]) -> Iterator[File | None]:
        """Yield what stands at each path, None where no plain file does; quick for neighbours."""
        for folder, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            names = list(map(_name, group))
            found: dict[str, File] = {}
            with suppress(NotFound, Denied, Unavailable), self._open_folder(folder) as fd:
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
                with self._open_folder(folder) as fd, os.scandir(fd) as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        _remove_abandoned(fd, entry)
                        if not _NAME.fullmatch(entry.name) or skip(path):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(path)
                        elif file := _plain_file(entry):
                            files.append(file)
            except (NotFound, Denied, Unavailable):  # gone, swapped, or not readable
                continue
            yield folder, sorted(files)

    def spelled(self, path: str) -> str:
        """Return a path as it is on the disk, where only the composition of its characters differs.

        A name that no file has stays as it is, in the composed form.
        """
        folder = ""
        for wanted in _parts(path):
            name = wanted if wanted.isascii() else self._spelling(folder, wanted)
            folder = f"{folder}/{name}" if folder else name
        return folder

    def _spelling(self, folder: str, name: str) -> str:
        plain = unicodedata.normalize("NFC", name)
        with suppress(NotFound), self._open_folder(folder) as fd:
            # The very name first: both spellings may stand in one folder.
            names = os.listdir(fd)  # noqa: PTH208 - of an open folder
            alike = (n for n in names if unicodedata.normalize("NFC", n) == plain)
            return name if name in names else min(alike, default=plain)
        return plain

    def read(self, path: str) -> tuple[bytes, File]:
        """Return a file's bytes, and the version that they are."""
        name = _name(path)
        with (
            self._open_parent(path) as folder,
            opened(name, os.O_RDONLY, folder=folder) as fd,
        ):
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

    def create(
        self, path: str, data: bytes, *, mode: int = 0o644, ready: Ready = lambda _inode: None
    ) -> File:
        """Write a new file, and its folders where they are missing; never over another."""
        name = _name(path)
        with self._open_parent(path, make=True) as folder:
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
            self._open_folder(folder, make=True) as fd,
            temporary(fd, pieces, 0o644) as (temp, made),
        ):
            for name in names:
                _parts(name)
                if _have_same_bytes(fd, temp, name):
                    return name, _file(name, made)
                ready(name, made.st_ino)
                try:
                    publish(fd, temp, fd, name, self._link)
                except FileExistsError:
                    if _have_same_bytes(fd, temp, name):  # another call was quicker
                        return name, _file(name, made)
                else:
                    _sync(fd, folder)
                    return name, _file(name, made)
        raise Conflict(f"{folder} holds too many files of that name", remedy="Delete some of them.")

    def replace(
        self, path: str, data: bytes, was: File, ready: Ready = lambda _inode: None
    ) -> File:
        """Give a file that is still as it was another content; its permissions stay."""
        name = _name(path)
        with self._open_parent(path) as folder:
            mode = _check(folder, name, was, path)
            with temporary(folder, [data], mode, exact=True) as (temp, made):
                ready(made.st_ino)
                _check(folder, name, was, path, lock=True)
                os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
            _sync(folder, path)
        return _file(name, made)

    def move(
        self,
        source: str,
        target: str,
        was: File,
        data: bytes | None = None,
        ready: Ready = lambda _inode: None,
    ) -> File:
        """Give a file that is still as it was another path, and content if given; never over another."""
        old, new = _name(source), _name(target)
        with (
            self._open_parent(source) as here,
            self._open_parent(target, make=True) as there,
        ):
            mode, stands = _check(here, old, was, source), True
            if data is None:
                ready(was.inode)
                _check(here, old, was, source, lock=True)
                stands = publish(here, old, there, new, self._link)
                made = os.stat(new, dir_fd=there, follow_symlinks=False)
            else:
                with temporary(there, [data], mode, exact=True) as (temp, made):
                    ready(made.st_ino)
                    _check(here, old, was, source, lock=True)
                    publish(there, temp, there, new, self._link)
            _sync(there, target)  # on the disk before the old one goes
            if stands:
                try:
                    _check(here, old, was, source)
                    os.unlink(old, dir_fd=here)
                except (OSError, Conflict):
                    os.unlink(new, dir_fd=there)
                    raise
            _sync(here, source)
        return _file(new, made)

    def remove(self, path: str, was: File) -> None:
        name = _name(path)
        with self._open_parent(path) as folder:
            _check(folder, name, was, path, lock=True)
            os.unlink(name, dir_fd=folder)
            _sync(folder, path)

    def remove_empty_folder(self, path: str) -> None:
        """Remove a folder; one that holds anything, or is none, stays."""
        with suppress(PostroomError), self._open_parent(path) as folder, suppress(OSError):
            os.rmdir(_name(path), dir_fd=folder)

    def append(self, path: str, data: bytes, mode: int = 0o600) -> int:
        """Add to the end of a file, made where it is missing: all of it or, on a full disk, nothing.

        Returns the size that it has then.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._open_parent(path, make=True) as folder:
            with opened(_name(path), flags, mode, folder=folder) as fd:
                _lock(fd)  # so that only our own bytes are cut off below
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
        with (
            suppress(NotFound),
            self._open_parent(path) as folder,
            opened(_name(path), os.O_RDONLY, folder=folder) as fd,
        ):
            return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))
        return b""

    def _open_parent(self, path: str, *, make: bool = False) -> _Folder:
        """Return the folder that a path is in, to be opened."""
        _parts(path)
        return _Folder(self._fd, path.rpartition("/")[0], path, make=make)

    def _open_folder(self, folder: str, *, make: bool = False) -> _Folder:
        return _Folder(self._fd, folder, folder, make=make)


class _Folder:
    """A folder that is open during a block; an `OSError` of the block becomes an error about `path`.

    No generator, which would take as long as all else: one letter opens dozens of folders.
    """

    def __init__(self, root: int, folder: str, path: str, *, make: bool) -> None:
        self._root, self._folder, self._path, self._make = root, folder, path, make

    def __enter__(self) -> int:
        try:
            self._fd = _descend(self._root, self._folder, make=self._make)
        except OSError as error:
            raise in_our_words(error, self._path) from error
        return self._fd

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        os.close(self._fd)
        if isinstance(error, OSError):
            raise in_our_words(error, self._path) from error


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _plain_file(entry: os.DirEntry[str]) -> File | None:
    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
        with suppress(FileNotFoundError):  # it may be gone since
            return _file(entry.name, entry.stat(follow_symlinks=False))
    return None


def _remove_abandoned(fd: int, entry: os.DirEntry[str]) -> None:
    with suppress(OSError):
        is_temporary = _TEMP.fullmatch(entry.name)
        if is_temporary and time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED:
            os.unlink(entry.name, dir_fd=fd)


@lru_cache(maxsize=1_024)  # a letter's few paths are asked for dozens of times
def _parts(path: str) -> tuple[str, ...]:
    parts = tuple(path.split("/"))
    if not all(map(_NAME.fullmatch, parts)):
        raise Denied(
            f"{path!r} is not a path inside the vault",
            remedy="Name it from the vault's root: names with `/` between, none with a dot in front.",
        )
    if any(len(os.fsencode(part)) > MAX_NAME for part in parts):  # before a folder of it is made
        raise in_our_words(OSError(errno.ENAMETOOLONG, ""), path)
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


def _have_same_bytes(folder: int, one: str, other: str) -> bool:
    with (
        suppress(OSError),  # no file, or none that we may read
        opened(one, os.O_RDONLY, folder=folder) as first,
        opened(other, os.O_RDONLY, folder=folder) as second,
    ):
        while (piece := os.read(first, _PIECE)) == os.read(second, _PIECE):
            if not piece:
                return True
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


def _check(folder: int, name: str, was: File, path: str, *, lock: bool = False) -> int:
    """Return a file's permissions if it is still as it was; `lock` its folder before."""
    if lock:
        _lock(folder)
    with suppress(FileNotFoundError):
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(seen.st_mode) and _file(name, seen)[1:] == was[1:]:
            return stat.S_IMODE(seen.st_mode)
    raise Conflict(f"{path!r} was changed or moved meanwhile", remedy="Read it again, then decide.")
