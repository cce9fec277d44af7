"""One agent's mailbox: a file that many processes append to and take from. Any of them may be killed.

The original program's rules hold: the lock is on the file itself, which is changed in place and never renamed or
unlinked. Postroom adds four files beside it: a cursor after the messages that are read, so that old ones need not be
read again; a lock for the process that takes a message, so that the message is marked only once it was delivered; a
copy of lines that are about to be overwritten, so that the next process can finish after a crash; and the details of
messages, such as the thread.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Final

from postroom.agents import folder as files
from postroom.agents import record
from postroom.agents.folder import PATIENCE, MailFolder, content, opened_own, read_all
from postroom.agents.record import AgentMessage, MessageLine
from postroom.core.errors import Denied, PostroomError, Unavailable
from postroom.store.files import open_locked, wait_until_writable, write_all

ID_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
MAX_SIZE: Final = 64_000_000  # bytes; a mailbox takes no message beyond it
# A message is marked together with its last bytes: so few that a pipe takes them in one piece.
LAST_BYTES: Final = 512
# Bytes before a position that identify it: a line's time, which never changes.
POSITION_TAIL: Final = 36
CURSOR_SIZE: Final = 200  # bytes of the file with the cursor
_ID: Final = re.compile(rb'"id":"([A-Za-z0-9]{8})"')

Action = Callable[[], None]


def _nothing() -> None:
    pass


class Delivery(AbstractContextManager["Delivery"]):
    """A message that is being delivered: no other process gets it until it is confirmed or released.

    As a context manager it releases the message if the block raises.
    """

    def __init__(self, box: AgentMailbox, lock: int, line: MessageLine) -> None:
        self.message = line.message
        self._box = box
        self._lock: int | None = lock
        self._line = line

    def __exit__(self, error: type[BaseException] | None, *_details: object) -> None:
        if error is not None:
            self.release()

    def deliver(
        self, handle: int, data: bytes, *, patience: float = PATIENCE, done: Action = _nothing
    ) -> None:
        """Write `data`, the message as text, to a descriptor; mark the message with the last bytes; call `done`.

        A process that is killed before the end has written an incomplete text, and the message stays unread. Raises
        `Locked` and writes nothing if another process holds the mailbox for longer than `patience` seconds.
        """
        end = max(0, len(data) - LAST_BYTES)
        with self:
            self._box.wait(patience)
            write_all(handle, data[:end])
            # The descriptor then takes the rest at once, so that the mailbox is locked only briefly.
            wait_until_writable(handle)
        self.confirm(lambda: write_all(handle, data[end:]), done)

    def take_back(self) -> None:
        """Make the message unread again: the call was cancelled after the message had been confirmed."""
        with suppress(OSError, PostroomError):
            self._box.unmark(self._line)

    def confirm(self, write: Action = _nothing, done: Action = _nothing) -> None:
        """Call `write`; if it succeeds, mark the message as read and call `done`. Release the message in any case.

        An error in marking is ignored: the message is then read twice, which is better than never.
        """
        with ExitStack() as stack:
            mark = _nothing
            with suppress(OSError, PostroomError):
                if self._lock is not None:
                    mark = stack.enter_context(self._box.marking(self._line, PATIENCE))
            stack.callback(self.release)
            write()
            with suppress(OSError):
                mark()
            done()

    def release(self) -> None:
        """Release the lock; a message that was not confirmed stays for the next reader."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


# Inode, offset, and CRC of the bytes before the offset: if all are the same, the file was not rewritten up to there.
Position = tuple[int, int, int]


def _position(handle: int, offset: int) -> Position:
    begin = max(0, offset - POSITION_TAIL)
    tail = os.pread(handle, offset - begin, begin)
    return os.fstat(handle).st_ino, offset, zlib.crc32(tail)


def _is_unchanged(handle: int, position: Position) -> bool:
    is_inside = 0 <= position[1] <= os.fstat(handle).st_size
    return is_inside and position == _position(handle, position[1])


class AgentMailbox:
    def __init__(self, folder: MailFolder, name: str) -> None:
        self.name = name
        self.path = folder.box(name)
        self._folder = folder
        self._beside = folder.beside(name, "")
        self._cursor = f"{self._beside}cursor"
        self._copy = f"{self._beside}rewrite"
        self._about = f"{self._beside}about"
        self._notice = f"{self._beside}told"
        self._ids = set[bytes]()  # of all messages before `_ids_end`
        self._ids_end: Position = (0, 0, 0)

    @contextmanager
    def _open(self, patience: float = PATIENCE, *, make: bool = False) -> Iterator[int]:
        """Hold the file's lock and yield its descriptor, after repairing what a crash left."""
        with files.locked(self.path, make=make, patience=patience) as handle:
            self._repair(handle)
            yield handle

    def append(
        self,
        sender: str,
        text: str,
        *,
        about: Callable[[AgentMessage], dict[str, str]] = lambda _message: {},
        then: Callable[[AgentMessage], None] = lambda _message: None,
        draw: Callable[[int], bytes] = os.urandom,
        patience: float = PATIENCE,
    ) -> AgentMessage:
        """Add a message at the end of the mailbox and return it; `about` returns the details to keep beside it.

        `then` is called last, still under the lock: if it raises, the message is removed before another process can
        see it. Raises `Unavailable` if the mailbox is full.
        """
        self._folder.make()
        with self._open(patience, make=True) as handle:
            size = os.fstat(handle).st_size
            id = self._new_id(handle, draw)
            message = AgentMessage(id, sender, self.name, text, created=record.now())
            line = record.write_message(message)
            if size + len(line) > MAX_SIZE:
                name = self.name
                raise Unavailable(f"the mailbox of {name} is full: nobody reads or cleans it up")
            try:
                if details := about(message):
                    line_about = json.dumps({"id": id, **details}, separators=(",", ":"))
                    with opened_own(self._about, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as kept:
                        # A line end first: the last line may be incomplete after a crash.
                        write_all(kept, b"\n%b\n" % line_about.encode())
                files.write_at(handle, line, size)
                then(message)
            except BaseException:
                os.ftruncate(handle, size)  # on a full disk, half a line may be there
                raise
        return message

    def _new_id(self, handle: int, draw: Callable[[int], bytes]) -> str:
        if not _is_unchanged(handle, self._ids_end):
            self._ids.clear()
            self._ids_end = (0, 0, 0)
        self._ids.update(_ID.findall(read_all(handle, self._ids_end[1])))
        self._ids_end = _position(handle, os.fstat(handle).st_size)
        id = ""
        while len(id) < 8 or id.encode() in self._ids:
            drawn = (byte % 64 for byte in draw(24))
            id = "".join(ID_ALPHABET[one] for one in drawn if one < len(ID_ALPHABET))[:8]
        return id

    def about(self, id: str) -> dict[str, str]:
        """Return the details of one message, such as its thread; empty if it has none."""
        return self.abouts(b'{"id":"' + record.write_word(id) + b'"').get(id, {})

    def abouts(self, start: bytes = b"{") -> dict[str, dict[str, str]]:
        """Return the details of all messages by their ids; with `start`, of those whose line begins with it."""
        found = {}
        for _, line in record.split_lines(content(self._about, None)):
            if line.startswith(start):
                with suppress(ValueError, RecursionError):
                    values = json.loads(line).items()
                    about = {key: value for key, value in values if isinstance(value, str)}
                    found[about.get("id", "")] = about
        return found

    def copies(self, id: str) -> int:
        """Return how often this id occurs in the file: an estimate of how many lines name the message."""
        return content(self.path, None).count(b'"' + record.write_word(id) + b'"')

    def _remove_abouts(self, ids: set[str]) -> None:
        gone = {id.encode("utf-8", "replace") for id in ids}
        with suppress(OSError, Denied), opened_own(self._about, os.O_RDWR) as handle:
            kept = []
            for line in read_all(handle).splitlines(keepends=True):
                id = _ID.match(line, 1)
                if line.strip() and not (id and id[1] in gone):
                    kept.append(line)
            files.overwrite(handle, b"".join(kept))

    def take(self, *, patience: float = PATIENCE) -> Delivery | None:
        """Take the oldest unread message, which no other process gets meanwhile; None if all are read."""
        if not os.path.lexists(self.path):
            return None
        self._folder.make()
        lock = open_locked(f"{self._beside}take", patience, open_file=files.open_own)
        line = None
        try:
            line = self._oldest(patience)
            return Delivery(self, lock, line) if line else None
        finally:
            if line is None:
                os.close(lock)

    def _oldest(self, patience: float) -> MessageLine | None:
        with suppress(FileNotFoundError), self._open(patience) as handle:
            start = self._read_cursor(handle)
            line = next(record.find_unread(record.read_lines(handle, start)), None)
            read_until = line.start if line else os.fstat(handle).st_size
            if start != read_until:
                self._write_cursor(handle, read_until)
            return line
        return None

    @contextmanager
    def marking(self, line: MessageLine, patience: float) -> Iterator[Action]:
        """Hold the file's lock and yield a function that marks a message as read.

        The message is found again if another program has moved it in the file. If it is marked already or removed,
        the function does nothing.
        """
        with self._open(patience) as handle:
            if os.pread(handle, len(line.line) + 1, line.start) != line.line + b"\n":
                # Another program has rewritten the file meanwhile.
                everything = record.find_messages(record.split_lines(read_all(handle)))
                moved = next((one for one in everything if one.message == line.message), None)
                if moved is None:
                    yield _nothing
                    return
                line = moved
            at = record.find_unread_flag(line.line)

            def mark() -> None:
                if at >= 0:
                    os.pwrite(handle, b"true ", line.start + at)  # as long as `false`
                    self._write_cursor(handle, line.start + len(line.line) + 1)
                else:  # the line has no `read_flag` to overwrite
                    old = read_all(handle)
                    end = line.start + len(line.line) + 1
                    new = record.write_message(line.message._replace(read=True))
                    new = old[: line.start] + new + old[end:]
                    files.overwrite_safely(self._copy, handle, old, new)

            yield mark

    def wait(self, patience: float) -> None:
        """Wait until no process holds the mailbox's lock; `Locked` after `patience` seconds, other errors are ignored."""
        with suppress(OSError, Denied), files.locked(self.path, make=False, patience=patience):
            pass

    def unmark(self, line: MessageLine) -> None:
        """Make a message unread again, unless its line was changed or moved after it was marked."""
        at = record.find_unread_flag(line.line)
        marked = line.line[:at] + b"true " + line.line[at + 5 :] + b"\n"
        with files.locked(self.path, make=False) as handle:
            if at >= 0 and os.pread(handle, len(marked), line.start) == marked:
                unread_from = min(self._read_cursor(handle), line.start)
                os.pwrite(handle, b"false", line.start + at)
                self._write_cursor(handle, unread_from)

    def unread(self) -> int:
        """Return the number of unread messages; raises `Locked` if another process holds the mailbox for long."""
        with suppress(FileNotFoundError), self._open() as handle:
            return record.count_unread(read_all(handle, self._read_cursor(handle)))
        return 0

    def may_have_unread(self) -> bool:
        """Whether there may be an unread message; False is certain. Takes no lock."""
        with suppress(FileNotFoundError), opened_own(self.path, os.O_RDONLY) as handle:
            return self._read_cursor(handle) < os.fstat(handle).st_size
        return False

    def messages(self, word: str = "") -> list[AgentMessage]:
        """Return the messages whose line contains this word, oldest first."""
        wanted, data = record.write_word(word), b""
        with suppress(FileNotFoundError), self._open() as handle:
            data = read_all(handle)  # the lock is held no longer than that takes
        likely = (row for row in record.split_lines(data) if wanted in row[1])
        return [one.message for one in record.find_messages(likely)]

    def change_token(self) -> tuple[int, int]:
        """Return a value that differs after each change of the file: its size and time."""
        with suppress(OSError):
            status = os.lstat(self.path)
            return (status.st_size, status.st_mtime_ns)
        return (0, 0)

    def _read_cursor(self, handle: int) -> int:
        """Return an offset before which all messages are read; 0 if the file before the cursor has changed."""
        try:
            inode, offset, crc, size, mtime = map(int, content(self._cursor, CURSOR_SIZE).split())
        except ValueError:
            return 0
        status = os.fstat(handle)
        # A file that only grew was appended to. Otherwise a program has changed lines before the end.
        has_grown = status.st_size > size
        is_same = (size, mtime) == (status.st_size, status.st_mtime_ns)
        is_valid = (has_grown or is_same) and _is_unchanged(handle, (inode, offset, crc))
        return offset if is_valid else 0

    def _write_cursor(self, handle: int, offset: int) -> None:
        """Write the cursor; errors are ignored, since without a cursor the next process only reads more."""
        status = os.fstat(handle)
        values = (*_position(handle, offset), status.st_size, status.st_mtime_ns)
        line = " ".join(map(str, values)).ljust(CURSOR_SIZE - 1) + "\n"
        flags = os.O_WRONLY | os.O_CREAT
        with suppress(OSError, Denied), opened_own(self._cursor, flags) as cursor:
            os.pwrite(cursor, line.encode(), 0)

    def record_notice(self) -> None:
        """Record that the owner was told of unread mail now."""
        with opened_own(self._notice, os.O_WRONLY | os.O_CREAT) as handle:
            # The kernel's own time stamps lag by milliseconds: a message just written would seem newer.
            os.utime(handle, ns=(time.time_ns(),) * 2)

    def last_notice(self) -> float:
        """Return the Unix time at which the owner last learned of unread mail; 0 if it never did."""
        with suppress(OSError):
            return os.lstat(self._notice).st_mtime
        return 0.0

    def clean(self, before: float, *, dry_run: bool = False) -> tuple[int, bool, int]:
        """Remove messages that are read and not newer than `before`.

        Returns their number, whether no line is left, and the number of lines that are not messages: those stay. If a
        message follows an incomplete line without a line end, that incomplete part is moved to another file.
        """
        kept, torn, gone, damaged = [], [], [], 0
        with suppress(FileNotFoundError), self._open() as handle:
            data = read_all(handle)
            for _, line in record.split_lines(data):
                message, at = record.find_message(line)
                damaged += message is None
                if at:
                    torn.append(line[:at])
                if message and message.read and (record.seconds(message.created) or 0.0) <= before:
                    gone.append(message.id)
                else:
                    kept.append(line[at:] + b"\n")
            new = b"".join(kept)
            is_emptied = bool(data) and not new
            if not dry_run and (gone or is_emptied or torn):
                self._set_aside(*torn)
                if new:
                    files.overwrite_safely(self._copy, handle, data, new)
                else:
                    os.ftruncate(handle, 0)
                self._remove_abouts(set(gone))
            return len(gone), is_emptied, damaged
        return 0, False, 0

    def _repair(self, handle: int) -> None:
        """Finish an overwriting that a crash interrupted, and complete or set aside an incomplete last line."""
        files.finish_overwriting(self._copy, handle)
        size = os.fstat(handle).st_size
        if not size or os.pread(handle, 1, size - 1) == b"\n":
            return
        data = read_all(handle)
        start = data.rfind(b"\n") + 1
        if record.read_message(data[start:]) is not None:  # complete, but without its line end
            files.write_at(handle, b"\n", size)
        else:
            self._set_aside(data[start:])
            os.ftruncate(handle, start)

    def _set_aside(self, *torn: bytes) -> None:
        if torn:
            self._folder.make()
            files.append(f"{self._beside}torn", b"".join(piece + b"\n" for piece in torn))
