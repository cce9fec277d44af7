"""The lines of a mailbox: which are messages, which of those are unread, and where reading goes on."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from postroom.agents.files import content, open_own
from postroom.agents.record import AgentMessage, find_glued, read_message
from postroom.core.errors import Denied

PIECE: Final = 65_536  # bytes that are read at once
READ: Final = b'"read_flag":true'
UNREAD: Final = b'"read_flag":false'
TAIL: Final = 36  # bytes that identify a position: a line's time, which nobody changes afterwards
WIDTH: Final = 200  # bytes of a cursor

Line = tuple[int, bytes]  # where it begins, and what it says


class MessageLine(NamedTuple):
    """A message, and the place of its line in the file."""

    message: AgentMessage
    start: int
    line: bytes

    @property
    def end(self) -> int:
        """Where the line after it begins."""
        return self.start + len(self.line) + 1


def split_lines(data: bytes, base: int = 0) -> Iterator[Line]:
    """Yield the lines that have an end and are not empty."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        if end > at:
            yield base + at, data[at:end]
        at = end + 1


def read_lines(handle: int, start: int) -> Iterator[Line]:
    """Yield the lines of a file from an offset on; little more is read than is asked for."""
    rest: list[bytes] = []  # of a line that is longer than a piece
    read = start
    while piece := os.pread(handle, PIECE, read):
        read += len(piece)
        whole = piece.rfind(b"\n") + 1
        if not whole:
            rest.append(piece)
            continue
        data = b"".join([*rest, piece[:whole]])
        yield from split_lines(data, start)
        start, rest = start + len(data), [piece[whole:]]


def find_messages(lines: Iterable[Line]) -> Iterator[MessageLine]:
    """Yield the messages among these lines."""
    for start, line in lines:
        message, at = read_message(line), 0
        if message is None and (at := find_glued(line)):  # the original appends to what was torn
            message = read_message(line[at:])
        if message:
            yield MessageLine(message, start + at, line[at:])


def find_unread(lines: Iterable[Line]) -> Iterator[MessageLine]:
    """Yield the unread messages among these lines; most that are read are passed over unparsed."""
    maybe = (row for row in lines if READ not in row[1] or b"false" in row[1])
    return (one for one in find_messages(maybe) if not one.message.read)


def count_unread(data: bytes) -> int:
    """Return how many messages are unread; most are counted without parsing them."""
    rows = list(split_lines(data))
    others = [row for row in rows if UNREAD not in row[1]]
    return len(rows) - len(others) + sum(1 for _ in find_unread(others))


# The cursor: an offset before which all is read, believed only while the file is as it was


class FilePosition(NamedTuple):
    """An offset in a file, with what shows that the file is still the same up to there."""

    inode: int
    offset: int
    crc: int

    @classmethod
    def at(cls, handle: int, offset: int) -> FilePosition:
        """Return the position at this offset, as the file is now."""
        begin = max(0, offset - TAIL)
        tail = os.pread(handle, offset - begin, begin)
        return cls(os.fstat(handle).st_ino, offset, zlib.crc32(tail))

    def is_valid(self, handle: int) -> bool:
        """Whether the file is still the same up to here, as far as its last line shows."""
        status = os.fstat(handle)
        if status.st_ino != self.inode or not 0 <= self.offset <= status.st_size:
            return False
        return self == FilePosition.at(handle, self.offset)


def read_cursor(path: str, handle: int) -> int:
    """Return an offset before which all is read; 0 where the cursor does not fit the file."""
    try:
        inode, offset, crc, size, mtime, check = map(int, content(path, WIDTH).split())
    except ValueError:
        return 0
    position, status = FilePosition(inode, offset, crc), os.fstat(handle)
    if check != zlib.crc32(repr((*position, size, mtime)).encode()):
        return 0
    # Changed, and no longer than before: a program has changed what is there.
    is_changed = size == status.st_size and mtime != status.st_mtime_ns
    is_changed = is_changed or status.st_size < size or not position.is_valid(handle)
    return 0 if is_changed else offset


def write_cursor(path: str, handle: int, offset: int) -> None:
    """Remember that all before this offset is read."""
    with prepared_cursor(path, handle, offset) as write:
        write()


@contextmanager
def prepared_cursor(path: str, handle: int, offset: int) -> Iterator[Callable[[], None]]:
    """Yield a function that writes the cursor with two system calls: all else is done before."""
    position = FilePosition.at(handle, offset)
    try:
        cursor = open_own(path, os.O_WRONLY | os.O_CREAT)
    except (OSError, Denied):  # without a cursor, the next look takes longer
        yield lambda: None
        return

    def write() -> None:
        status = os.fstat(handle)
        values = (*position, status.st_size, status.st_mtime_ns)
        line = " ".join(map(str, (*values, zlib.crc32(repr(values).encode()))))
        with suppress(OSError):
            os.pwrite(cursor, line.ljust(WIDTH - 1).encode() + b"\n", 0)

    try:
        yield write
    finally:
        os.close(cursor)
