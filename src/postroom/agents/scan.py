"""The lines of a mailbox: which of them are messages, and which of those are unread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from postroom.agents.record import Message, glued, read_message

PIECE: Final = 65_536  # bytes that are read at once
READ: Final = b'"read_flag":true'
UNREAD: Final = b'"read_flag":false'

Line = tuple[int, bytes]  # and where it begins


class Found(NamedTuple):
    """A message, and the place of its line in the file."""

    message: Message
    start: int
    line: bytes

    @property
    def end(self) -> int:
        """Where the line after it begins."""
        return self.start + len(self.line) + 1


def lines(data: bytes, base: int = 0) -> Iterator[Line]:
    """Yield the lines that have an end and are not empty."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        if end > at:
            yield base + at, data[at:end]
        at = end + 1


def read_lines(handle: int, start: int) -> Iterator[Line]:
    """Yield the lines of a file, of which little more is read than is asked for."""
    rest: list[bytes] = []
    read = start
    while piece := os.pread(handle, PIECE, read):
        read += len(piece)
        whole = piece.rfind(b"\n") + 1
        if not whole:
            rest.append(piece)  # of a line that is longer
            continue
        data = b"".join([*rest, piece[:whole]])
        yield from lines(data, start)
        start, rest = start + len(data), [piece[whole:]]


def messages(found: Iterable[Line]) -> Iterator[Found]:
    """Yield the messages among these lines."""
    for start, line in found:
        one = _message(start, line)
        if one is not None:
            yield one


def unread(found: Iterable[Line]) -> Iterator[Found]:
    """Yield the messages among these lines that are unread."""
    for start, line in found:
        if READ in line and b"false" not in line:
            continue  # as most are, which is seen without parsing them
        one = _message(start, line)
        if one is not None and not one.message.read:
            yield one


def count_unread(data: bytes) -> int:
    """Return how many are unread, of which most are seen without parsing them."""
    odd = [row for row in lines(data) if UNREAD not in row[1]]
    return sum(1 for _, line in lines(data) if UNREAD in line) + sum(1 for _ in unread(odd))


def last_line(handle: int, size: int) -> tuple[int, bytes]:
    """Return the last line, which has no end, and where it begins."""
    step = 4096
    while True:
        begin = max(0, size - step)
        tail = os.pread(handle, size - begin, begin)
        cut = tail.rfind(b"\n")
        if cut >= 0 or begin == 0:
            return begin + cut + 1, tail[cut + 1 :]
        step *= 4


def _message(start: int, line: bytes) -> Found | None:
    message = read_message(line)
    if message is None and (at := glued(line)):  # the original appends to what was torn
        start, line = start + at, line[at:]
        message = read_message(line)
    return Found(message, start, line) if message else None
