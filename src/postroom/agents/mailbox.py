"""One agent's mailbox: a file that many processes append to and take from, of which any may be killed.

The original's rules: the file is locked itself, changed in place and never renamed or unlinked. Ours
beside them, all in files of our own: a cursor past what is read, so that history costs nothing; a lock
under which a message is taken, so that it is marked only when it was handed over; and a copy of what a
rewrite is about to put there, so that half a rewrite is finished by whoever comes next.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

from postroom.agents.folder import (
    PATIENCE,
    Folder,
    locked,
    read_all,
    replace_all,
    until_writable,
    wait,
    write_all,
    write_out,
)
from postroom.agents.record import (
    Message,
    flag,
    glued,
    now,
    read_message,
    seconds,
    write_message,
    write_word,
)
from postroom.core.errors import PostroomError, Unavailable

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
READ: Final = b'"read_flag":true'
LAST: Final = 512  # bytes, fewer than any pipe takes at once or not at all
FULL: Final = 256_000_000  # bytes of a mailbox that takes no more
PIECE: Final = 65_536  # bytes that are read at once
TAIL: Final = (
    36  # bytes by which a place is known again: a line's time, which nobody changes afterwards
)
_ID: Final = rb'"id":"([A-Za-z0-9]{8})"'

Line = tuple[int, bytes]  # and where it begins
Within = Callable[[Message], AbstractContextManager[object]]


class Found(NamedTuple):
    """A message, and the place of its line in the file."""

    message: Message
    start: int
    line: bytes

    @property
    def end(self) -> int:
        """Where the line after it begins."""
        return self.start + len(self.line) + 1


class _Place(NamedTuple):
    """A place in the file up to which something is known."""

    inode: int
    offset: int
    crc: int

    @classmethod
    def at(cls, handle: int, offset: int) -> _Place:
        begin = max(0, offset - TAIL)
        tail = os.pread(handle, offset - begin, begin)
        return cls(os.fstat(handle).st_ino, offset, zlib.crc32(tail))

    def holds(self, handle: int) -> bool:
        """Whether the file is still the same up to here, as far as its last line tells."""
        status = os.fstat(handle)
        if status.st_ino != self.inode or status.st_size < self.offset:
            return False
        return self == _Place.at(handle, self.offset)


class Taken:
    """A message that is being handed over: nobody else gets it until it is confirmed or let go."""

    def __init__(self, box: Mailbox, lock: int, found: Found) -> None:
        self.message = found.message
        self._box = box
        self._lock: int | None = lock
        self._found = found

    def confirm(self) -> None:
        """Mark it as read: it was handed over."""
        self._mark(lambda: None)

    def hand(self, handle: int, data: bytes) -> None:
        """Write it out, and mark it as read in the same breath as the end of it.

        Who is killed before that has handed over nothing that is whole, and it is there for the next.
        """
        end = max(0, len(data) - LAST)
        write_out(handle, data[:end])
        until_writable(handle)  # then it takes the rest at once, and nobody waits for the lock
        self._mark(lambda: write_out(handle, data[end:]))

    def _mark(self, before: Callable[[], None]) -> None:
        steps: list[str] = []

        def once() -> None:
            steps.append("began")
            before()
            steps.append("done")

        try:
            if self._lock is not None:
                self._box.mark(self._found, once)
        except (OSError, PostroomError):
            if steps == ["began"]:
                raise  # it could not be written; what cannot be marked is rather read twice than never
        finally:
            if not steps:
                before()
            self.release()

    def release(self) -> None:
        """Let go; what was not confirmed is there for the next who asks."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class Mailbox:
    """The mailbox of one name."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.path = folder.box(name)
        self._folder = folder
        self._ids: tuple[_Place, set[bytes]] | None = None

    def _beside(self, ending: str) -> str:
        return self._folder.beside(self.name, ending)

    # Sending

    def append(
        self,
        sender: str,
        text: str,
        *,
        about: dict[str, str] | Callable[[str], dict[str, str]] | None = None,
        within: Within = lambda _message: nullcontext(),
        draw: Callable[[int], bytes] = os.urandom,
    ) -> Message:
        """Put a message at the end and return it; `about` is kept beside it, as it is or made from the id.

        `within` holds what must come about together with it, or not at all.
        """
        self._folder.make()
        with locked(self.path) as handle:
            size = self._mended(handle)
            if size > FULL:
                raise Unavailable(
                    f"the mailbox of {self.name} is full: nobody reads or cleans it up"
                )
            message = Message(self._fresh(handle, draw), sender, self.name, text, created=now())
            line = write_message(message)
            try:
                with within(message):
                    if said := about(message.id) if callable(about) else about:
                        self._say({"id": message.id, **said})
                    write_all(handle, line, size)
            except BaseException:
                os.ftruncate(handle, size)  # a full disk leaves half a line
                raise
        return message

    def _fresh(self, handle: int, draw: Callable[[int], bytes]) -> str:
        """Return an id that no message of the file has."""
        known = self._ids if self._ids and self._ids[0].holds(handle) else None
        size = os.fstat(handle).st_size
        ids = known[1] if known else set()
        start = known[0].offset if known else 0
        if size > start:
            ids.update(re.findall(_ID, read_all(handle, start)))
        while True:
            drawn = "".join(ALPHABET[byte % 64] for byte in draw(24) if byte % 64 < len(ALPHABET))
            id = drawn[:8]
            if len(id) == 8 and id.encode() not in ids:
                break
        ids.add(id.encode())
        self._ids = (_Place.at(handle, size), ids)
        return id

    def _say(self, about: dict[str, str]) -> None:
        with locked(self._beside("about")) as handle:
            size = os.fstat(handle).st_size
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            line = json.dumps(about, separators=(",", ":")).encode() + b"\n"
            write_all(handle, b"\n" + line if torn else line, size)

    def about(self, id: str) -> dict[str, Any]:
        """Return what is kept beside a message."""
        try:
            handle = os.open(self._beside("about"), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return {}
        try:
            if not os.fstat(handle).st_size:
                return {}
            with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as file:
                at = file.rfind(f'{{"id":"{id}"'.encode())  # the newest are asked for most
                end = file.find(b"\n", at)
                line = file[at:end] if 0 <= at < end else b"{}"
        finally:
            os.close(handle)
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            return {}
        return found

    # Receiving

    def take(self, *, patience: float = PATIENCE) -> Taken | None:
        """Take the oldest unread message, for this process alone; or nothing where all is read."""
        end = time.monotonic() + patience
        if not os.path.lexists(self.path):
            return None
        self._folder.make()
        lock = os.open(self._beside("take"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)  # fmt: skip
        try:
            wait(lock, end, self.path)
            found = self._oldest(patience)
        except BaseException:
            os.close(lock)
            raise
        if found is None:
            os.close(lock)
            return None
        return Taken(self, lock, found)

    def _oldest(self, patience: float) -> Found | None:
        try:
            with locked(self.path, make=False, patience=patience) as handle:
                size = self._mended(handle)
                start = self._cursor(handle)
                found = next(_unread(_read_lines(handle, start)), None)
                if start != (read_until := found.start if found else size):
                    self._keep_cursor(handle, read_until)
                return found
        except FileNotFoundError:
            return None

    def mark(self, found: Found, before: Callable[[], None] = lambda: None) -> None:
        """Mark a message as read, wherever it stands by now, and right before that do something."""
        try:
            with locked(self.path, make=False) as handle:
                self._mended(handle)
                if os.pread(handle, len(found.line) + 1, found.start) != found.line + b"\n":
                    # Somebody has rewritten the file meanwhile.
                    everything = _messages(_lines(read_all(handle), 0))
                    again = next((one for one in everything if one.message == found.message), None)
                    if again is None:
                        before()
                        return  # it is marked already, or gone
                    found = again
                self._mark(handle, found, before)
        except FileNotFoundError:
            before()  # though the mailbox is gone, with all that was in it

    def _mark(self, handle: int, found: Found, before: Callable[[], None]) -> None:
        at = flag(found.line)
        if at >= 0:
            place = found.start + at
            before()
            os.pwrite(handle, b"true ", place)
            self._keep_cursor(handle, found.end)
        else:  # nothing to write over: the key is missing
            old = read_all(handle)
            line = write_message(found.message._replace(read=True))
            before()
            self._rewrite(handle, old, old[: found.start] + line + old[found.end :])

    def unread(self) -> int:
        """Return how many messages wait."""
        try:
            with locked(self.path, make=False) as handle:
                self._mended(handle)
                start = self._cursor(handle)
                data = read_all(handle, start)
        except FileNotFoundError:
            return 0
        return sum(1 for _ in _unread(_lines(data, start)))

    def messages(self, *words: str) -> list[Message]:
        """Return all messages, oldest first; those lines alone that have these words anywhere."""
        try:
            with locked(self.path, make=False) as handle:
                self._mended(handle)
                data = read_all(handle)
        except FileNotFoundError:
            return []
        wanted = [write_word(word) for word in words]
        if not all(word in data for word in wanted):
            return []
        lines = _lines(data, 0)
        likely = (row for row in lines if all(word in row[1] for word in wanted))
        return [found.message for found in _messages(likely if wanted else lines)]

    def may_have(self) -> bool:
        """Whether a message may wait: for certain where not."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return os.path.lexists(self.path)
        try:
            return self._cursor(handle) < os.fstat(handle).st_size
        finally:
            os.close(handle)

    def size(self) -> tuple[int, int]:
        """Return what changes when the file does."""
        try:
            status = os.lstat(self.path)
        except OSError:
            return (0, 0)
        return (status.st_size, status.st_mtime_ns)

    # Whether the owner was told

    def tell(self) -> None:
        """Remember that the owner knows now that mail waits."""
        path = self._beside("told")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        os.utime(path)

    def told(self) -> float:
        """Return when the owner was last told."""
        try:
            return os.lstat(self._beside("told")).st_mtime
        except OSError:
            return 0.0

    # Cleaning

    def clean(self, before: float, *, rehearse: bool = False) -> tuple[int, bool]:
        """Remove what was read and written before that moment; return how many, and if all is gone.

        What is no message stays.
        """
        try:
            with locked(self.path, make=False) as handle:
                size = self._mended(handle)
                data = read_all(handle)
                everything = list(_messages(_lines(data, 0)))
                gone = {
                    found
                    for found in everything
                    if found.message.read and (seconds(found.message.created) or 0.0) <= before
                }
                pieces, at, torn = [], 0, []
                for found in everything:
                    # What was torn stands before a message that was glued to it.
                    begin = data.rfind(b"\n", 0, found.start) + 1
                    torn += [data[begin : found.start]] if begin < found.start else []
                    if begin < found.start or found in gone:
                        pieces.append(data[at:begin])
                        at = found.end if found in gone else found.start
                new = b"".join([*pieces, data[at:]]).lstrip(b"\n")
                emptied = bool(size) and not new
                if rehearse or not (gone or emptied or torn):
                    return len(gone), emptied
                self._set_aside(*torn)
                if new:
                    self._rewrite(handle, data, new)
                else:
                    os.ftruncate(handle, 0)
                self._forget({found.message.id for found in gone})
                return len(gone), emptied
        except FileNotFoundError:
            return 0, False

    def damaged(self) -> int:
        """Return how many lines are no message."""
        try:
            with locked(self.path, make=False) as handle:
                data = read_all(handle)
        except FileNotFoundError:
            return 0
        return sum(1 for _, line in _lines(data, 0) if read_message(line) is None)

    def _forget(self, ids: set[str]) -> None:
        """Drop what is kept beside messages that are gone."""
        path = self._beside("about")
        try:
            with locked(path, make=False) as handle:
                kept = [
                    line
                    for line in read_all(handle).splitlines(keepends=True)
                    if not any(f'{{"id":"{id}"'.encode() in line for id in ids)
                ]
                replace_all(handle, b"".join(kept))
        except FileNotFoundError:
            return

    # The cursor

    def _cursor(self, handle: int) -> int:
        """Return a place before which all is read: as far as we know, which may be the beginning."""
        try:
            with open(self._beside("cursor"), "rb") as file:
                inode, offset, crc, size, mtime, check = map(int, file.read(200).split())
        except (OSError, ValueError):
            return 0
        place, status = _Place(inode, offset, crc), os.fstat(handle)
        if check != zlib.crc32(repr((*place, size, mtime)).encode()) or not place.holds(handle):
            return 0
        # Changed, and no longer than before: somebody changed what is there.
        changed = size == status.st_size and mtime != status.st_mtime_ns
        return 0 if changed or status.st_size < size else offset

    def _keep_cursor(self, handle: int, offset: int) -> None:
        status = os.fstat(handle)
        place = _Place.at(handle, offset)
        values = (*place, status.st_size, status.st_mtime_ns)
        line = " ".join(map(str, (*values, zlib.crc32(repr(values).encode()))))
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        cursor = os.open(self._beside("cursor"), flags, 0o600)
        try:
            os.pwrite(cursor, line.ljust(199).encode() + b"\n", 0)
        finally:
            os.close(cursor)

    # Crashes

    def _mended(self, handle: int) -> int:
        """Finish what a crash left half done, set a torn last line aside, and return the file's size."""
        self._finish(handle)
        size = os.fstat(handle).st_size
        if not size or os.pread(handle, 1, size - 1) == b"\n":
            return size
        start, tail = _last_line(handle, size)
        if read_message(tail) is not None:  # whole but for its end
            write_all(handle, b"\n", size)
            return size + 1
        self._set_aside(tail)
        os.ftruncate(handle, start)
        return start

    def _set_aside(self, *torn: bytes) -> None:
        if torn:
            self._folder.make()
            with open(self._beside("torn"), "ab") as aside:
                aside.write(b"".join(piece + b"\n" for piece in torn))
                aside.flush()
                os.fsync(aside.fileno())

    def _rewrite(self, handle: int, old: bytes, new: bytes) -> None:
        """Put `new` in the place of `old` so that a crash at any moment leaves enough to finish it."""
        path = self._beside("rewrite")
        head = [os.fstat(handle).st_ino, len(old), zlib.crc32(old + new)]
        with open(f"{path}.new", "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + old + new)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
        replace_all(handle, new)
        os.unlink(path)

    def _finish(self, handle: int) -> None:
        """Finish a rewrite that a crash broke off, unless somebody else has rewritten the file since."""
        path = self._beside("rewrite")
        try:
            with open(path, "rb") as file:
                head, both = file.readline(), file.read()
        except FileNotFoundError:
            return
        try:
            inode, length, crc = json.loads(head)
        except ValueError:  # nothing that we wrote
            inode, length, crc = 0, 0, 0
        old, new = both[:length], both[length:]
        now_there = read_all(handle)
        same = os.fstat(handle).st_ino == inode and zlib.crc32(both) == crc
        if same and len(now_there) >= length and _mixed(now_there[:length], old, new):
            added = now_there[length:]  # by others, after the crash
            if added:
                self._rewrite(handle, now_there, new + added)
                return
            replace_all(handle, new)
        os.unlink(path)


def _mixed(found: bytes, old: bytes, new: bytes) -> bool:
    """Whether this is what a write of `new` over `old` leaves when it is broken off anywhere."""
    padded = new.ljust(len(old), b"\n")
    low, high = 0, len(old)
    while low < high:  # how far it came
        middle = (low + high + 1) // 2
        if found[:middle] == padded[:middle]:
            low = middle
        else:
            high = middle - 1
    return found[low:] == old[low:]


def _last_line(handle: int, size: int) -> tuple[int, bytes]:
    """Return the last line, which has no end, and where it begins."""
    step = 4096
    while True:
        begin = max(0, size - step)
        tail = os.pread(handle, size - begin, begin)
        cut = tail.rfind(b"\n")
        if cut >= 0 or begin == 0:
            return begin + cut + 1, tail[cut + 1 :]
        step *= 4


def _lines(data: bytes, base: int) -> Iterator[Line]:
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        if end > at:
            yield base + at, data[at:end]
        at = end + 1


def _read_lines(handle: int, start: int) -> Iterator[Line]:
    """Yield the lines of a file, of which no more is read than is asked for."""
    rest = b""
    while piece := os.pread(handle, PIECE, start + len(rest)):
        data = rest + piece
        whole = data.rfind(b"\n") + 1
        yield from _lines(data[:whole], start)
        start, rest = start + whole, data[whole:]


def _messages(lines: Iterable[Line]) -> Iterator[Found]:
    for start, line in lines:
        found = _message(start, line)
        if found is not None:
            yield found


def _unread(lines: Iterable[Line]) -> Iterator[Found]:
    for start, line in lines:
        if READ in line and b"false" not in line:
            continue  # as most are, which is seen without parsing them
        found = _message(start, line)
        if found is not None and not found.message.read:
            yield found


def _message(start: int, line: bytes) -> Found | None:
    message = read_message(line)
    if message is None and (at := glued(line)):  # the original appends to what was torn
        start, line = start + at, line[at:]
        message = read_message(line)
    return Found(message, start, line) if message else None
