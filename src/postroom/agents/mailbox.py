"""One agent's mailbox: a file that many processes append to and take from, of which any may be killed.

The original's rules: the file is locked itself, changed in place and never renamed or unlinked. Files
of our own beside it add three things: a cursor past what is read, so that history costs nothing; a lock
under which a message is taken, so that it is marked only when it was delivered; and a copy of what is
about to be overwritten, so that the next process finishes what a crash broke off.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from postroom.agents.files import (
    PATIENCE,
    append,
    content,
    finish_overwriting,
    locked,
    open_own,
    opened_own,
    overwrite,
    overwrite_safely,
    read_all,
    write_at,
)
from postroom.agents.folder import MailFolder
from postroom.agents.lines import (
    FilePosition,
    MessageLine,
    count_unread,
    find_messages,
    find_unread,
    prepared_cursor,
    read_cursor,
    read_lines,
    split_lines,
    write_cursor,
)
from postroom.agents.record import (
    AgentMessage,
    find_unread_flag,
    now,
    read_message,
    seconds,
    write_message,
    write_word,
)
from postroom.core.errors import Denied, PostroomError, Unavailable
from postroom.store.files import wait_until_writable, write_all
from postroom.store.locks import Locked, acquire

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
MAX_SIZE: Final = 64_000_000  # bytes of a mailbox that takes no more
LAST: Final = 512  # bytes, fewer than any pipe takes at once or not at all
_ID: Final = rb'"id":"([A-Za-z0-9]{8})"'
_ABOUT: Final = re.compile(rb'\{"id":"([A-Za-z0-9]{8})"')

Action = Callable[[], None]


def _nothing() -> None:
    pass


class Delivery:
    """A message that is being delivered: nobody else gets it until it is confirmed or released."""

    def __init__(self, box: AgentMailbox, lock: int, line: MessageLine) -> None:
        self.message = line.message
        self._box = box
        self._lock: int | None = lock
        self._line = line

    def confirm(self) -> None:
        """Mark the message as read: it was delivered."""
        self._mark(_nothing)

    def deliver(
        self, handle: int, data: bytes, *, patience: float = PATIENCE, done: Action = _nothing
    ) -> None:
        """Write the message out, mark it as read together with its last bytes, then call `done`.

        A process that is killed before has delivered nothing that is whole; the message is there for
        the next. Raises `Locked`, and writes nothing, if another process holds the mailbox for long.
        """
        end = max(0, len(data) - LAST)
        try:
            self._box.wait(patience)
            write_all(handle, data[:end])
            # Then the stream takes the rest at once, and nobody waits for the lock.
            wait_until_writable(handle)
        except BaseException:
            self.release()
            raise
        self._mark(lambda: write_all(handle, data[end:]), done=done)

    def try_deliver_now(self, handle: int, data: bytes) -> bool:
        """Deliver what a stream takes at once; return False if another process holds the mailbox."""
        try:
            self._mark(lambda: write_all(handle, data), patience=0.0)
        except Locked:
            return False
        return True

    def take_back(self) -> None:
        """Make the message unread again: the answer that it was confirmed for will not be given."""
        with suppress(OSError, PostroomError):
            self._box.unmark(self._line)

    def _mark(self, write: Action, patience: float = PATIENCE, done: Action = _nothing) -> None:
        """Call `write` and mark the message, in one step where the mailbox can be had."""
        steps: list[str] = []

        def write_once() -> None:
            steps.append("began")
            write()
            steps.append("ended")

        try:
            if self._lock is not None:
                self._box.mark(self._line, write_once, patience, done)
        except Locked:
            if not patience:
                raise
        except (OSError, PostroomError):
            if steps == ["began"]:
                self.release()
                raise  # it could not be written
        # A message that cannot be marked is rather read twice than never.
        try:
            if not steps:
                write()
        finally:
            self.release()
        done()

    def release(self) -> None:
        """Let go; a message that was not confirmed is there for the next reader."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class AgentMailbox:
    """The mailbox of one name."""

    def __init__(self, folder: MailFolder, name: str) -> None:
        self.name = name
        self.path = folder.box(name)
        self._folder = folder
        self._beside = folder.beside(name, "")
        self._cursor = f"{self._beside}cursor"
        self._copy = f"{self._beside}rewrite"
        self._ids: tuple[FilePosition, set[bytes]] | None = None

    @contextmanager
    def _open(self, patience: float = PATIENCE, *, make: bool = False) -> Iterator[int]:
        """Yield the file's descriptor under its lock, mended after a crash."""
        with locked(self.path, make=make, patience=patience) as handle:
            self._mend(handle)
            yield handle

    # Sending

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
        """Put a message at the end and return it; `about` returns what is kept beside it.

        `then` comes last: where it fails, the message is gone again before anybody saw it.
        """
        self._folder.make()
        with self._open(patience, make=True) as handle:
            size = os.fstat(handle).st_size
            message = AgentMessage(
                self._new_id(handle, draw), sender, self.name, text, created=now()
            )
            line = write_message(message)
            if size + len(line) > MAX_SIZE:
                raise Unavailable(
                    f"the mailbox of {self.name} is full: nobody reads or cleans it up"
                )
            try:
                if details := about(message):
                    self._add_about({"id": message.id, **details})
                write_at(handle, line, size)
                then(message)
            except BaseException:
                os.ftruncate(handle, size)  # a full disk leaves half a line
                raise
        return message

    def _new_id(self, handle: int, draw: Callable[[int], bytes]) -> str:
        """Return an id that no message of the file has."""
        known = self._ids if self._ids and self._ids[0].is_valid(handle) else None
        start, ids = (known[0].offset, known[1]) if known else (0, set())
        size = os.fstat(handle).st_size
        if size > start:
            ids.update(re.findall(_ID, read_all(handle, start)))
        while True:
            drawn = "".join(ALPHABET[byte % 64] for byte in draw(24) if byte % 64 < len(ALPHABET))
            id = drawn[:8]
            if len(id) == 8 and id.encode() not in ids:
                break
        ids.add(id.encode())
        self._ids = (FilePosition.at(handle, size), ids)
        return id

    # What is kept beside messages; changed under the mailbox's own lock

    def _add_about(self, about: dict[str, str]) -> None:
        with opened_own(f"{self._beside}about", os.O_RDWR | os.O_CREAT) as handle:
            size = os.fstat(handle).st_size
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            line = json.dumps(about, separators=(",", ":")).encode() + b"\n"
            write_at(handle, b"\n" + line if torn else line, size)

    def about(self, id: str) -> dict[str, str]:
        """Return what is kept beside a message."""
        data = content(f"{self._beside}about", None)
        at = data.rfind(b'{"id":"' + write_word(id) + b'"')  # the newest are asked for most
        end = data.find(b"\n", at)
        return _parse_about(data[at:end]) if 0 <= at < end else {}

    def abouts(self) -> dict[str, dict[str, str]]:
        """Return what is kept beside all messages, by their ids."""
        rows = split_lines(content(f"{self._beside}about", None))
        found = (_parse_about(line) for _, line in rows)
        return {about["id"]: about for about in found if "id" in about}

    def copies(self, id: str) -> int:
        """Return how often an id stands in the file. Takes no lock."""
        return content(self.path, None).count(b'"' + write_word(id) + b'"')

    def _remove_abouts(self, ids: set[str]) -> None:
        """Drop what is kept beside messages that are gone."""
        gone = {id.encode("utf-8", "replace") for id in ids}
        with suppress(OSError, Denied), opened_own(f"{self._beside}about", os.O_RDWR) as handle:
            old = read_all(handle).splitlines(keepends=True)
            new = [line for line in old if not ((of := _ABOUT.match(line)) and of[1] in gone)]
            if new != old:
                overwrite(handle, b"".join(new))

    # Receiving

    def take(self, *, patience: float = PATIENCE) -> Delivery | None:
        """Take the oldest unread message, for this process alone; nothing where all is read."""
        end = time.monotonic() + patience
        if not os.path.lexists(self.path):
            return None
        self._folder.make()
        lock = open_own(f"{self._beside}take", os.O_RDWR | os.O_CREAT)
        try:
            if not acquire(lock, end):
                raise Locked(
                    f"{self.path} is locked by another process", remedy="Try again in a moment."
                )
            if line := self._oldest(patience):
                return Delivery(self, lock, line)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        return None

    def _oldest(self, patience: float) -> MessageLine | None:
        with suppress(FileNotFoundError), self._open(patience) as handle:
            start = read_cursor(self._cursor, handle)
            line = next(find_unread(read_lines(handle, start)), None)
            read_until = line.start if line else os.fstat(handle).st_size
            if start != read_until:
                write_cursor(self._cursor, handle, read_until)
            return line
        return None

    def mark(
        self,
        line: MessageLine,
        before: Action = _nothing,
        patience: float = PATIENCE,
        after: Action = _nothing,
    ) -> None:
        """Mark a message as read, wherever it stands by now; call `before` and `after` around it.

        Nothing is called where it is marked already, or gone.
        """
        with self._open(patience) as handle:
            if os.pread(handle, len(line.line) + 1, line.start) != line.line + b"\n":
                # Another program has rewritten the file meanwhile.
                everything = find_messages(split_lines(read_all(handle)))
                again = next((one for one in everything if one.message == line.message), None)
                if again is None:
                    return
                line = again
            at = find_unread_flag(line.line)
            if at >= 0:
                with prepared_cursor(self._cursor, handle, line.end) as advance:
                    before()
                    os.pwrite(handle, b"true ", line.start + at)
                    advance()
                    after()
            else:  # nothing to write over: the key is missing
                old = read_all(handle)
                new = write_message(line.message._replace(read=True))
                before()
                overwrite_safely(self._copy, handle, old, old[: line.start] + new + old[line.end :])

    def wait(self, patience: float) -> None:
        """Wait until nobody holds the mailbox; anything else that is wrong with it is ignored."""
        try:
            with locked(self.path, make=False, patience=patience):
                return
        except Locked:
            raise
        except (OSError, PostroomError):
            return

    def unmark(self, line: MessageLine) -> None:
        """Make a message unread again, if it is as `mark` left it."""
        at = find_unread_flag(line.line)
        marked = line.line[:at] + b"true " + line.line[at + 5 :] + b"\n"
        with locked(self.path, make=False) as handle:
            if at >= 0 and os.pread(handle, len(marked), line.start) == marked:
                unread_from = min(read_cursor(self._cursor, handle), line.start)
                os.pwrite(handle, b"false", line.start + at)
                write_cursor(self._cursor, handle, unread_from)

    def unread(self) -> int:
        """Return how many messages wait."""
        with suppress(FileNotFoundError), self._open() as handle:
            return count_unread(read_all(handle, read_cursor(self._cursor, handle)))
        return 0

    def may_have_unread(self) -> bool:
        """Whether a message may wait; False is certain. Takes no lock."""
        with suppress(FileNotFoundError), opened_own(self.path, os.O_RDONLY) as handle:
            return read_cursor(self._cursor, handle) < os.fstat(handle).st_size
        return False

    def messages(self, *words: str) -> list[AgentMessage]:
        """Return all messages, oldest first, or those whose line has all of these words."""
        data = self._data()
        wanted = [write_word(word) for word in words]
        if not all(word in data for word in wanted):
            return []
        likely = (row for row in split_lines(data) if all(word in row[1] for word in wanted))
        return [one.message for one in find_messages(likely)]

    def damaged(self) -> int:
        """Return how many lines are no message."""
        return sum(1 for _, line in split_lines(self._data()) if read_message(line) is None)

    def _data(self) -> bytes:
        with suppress(FileNotFoundError), self._open() as handle:
            return read_all(handle)
        return b""

    def version(self) -> tuple[int, int]:
        """Return what changes when the file does."""
        try:
            status = os.lstat(self.path)
        except OSError:
            return (0, 0)
        return (status.st_size, status.st_mtime_ns)

    # When the owner last learned that mail waits

    def record_notice(self) -> None:
        """Remember that the owner knows now that mail waits."""
        path = f"{self._beside}told"
        os.close(open_own(path, os.O_WRONLY | os.O_CREAT))
        # The kernel's own timestamps are milliseconds behind: a message just written would be later.
        os.utime(path, ns=(time.time_ns(),) * 2, follow_symlinks=False)

    def last_notice(self) -> float:
        """Return when the owner last learned that mail waits, in Unix seconds."""
        try:
            return os.lstat(f"{self._beside}told").st_mtime
        except OSError:
            return 0.0

    # Cleaning, and mending

    def clean(self, before: float, *, dry_run: bool = False) -> tuple[int, bool]:
        """Remove messages that are read and older than `before`; return how many, and if all are gone.

        A line that is no message stays, but for a torn beginning that a message was glued to.
        """
        with suppress(FileNotFoundError), self._open() as handle:
            data = read_all(handle)
            pieces, at, torn, gone = [], 0, [], []
            for line in find_messages(split_lines(data)):
                begin = data.rfind(b"\n", 0, line.start) + 1
                is_old = line.message.read and (seconds(line.message.created) or 0.0) <= before
                if is_old or begin < line.start:
                    pieces.append(data[at:begin])
                    at = line.end if is_old else line.start
                torn += [data[begin : line.start]] if begin < line.start else []
                gone += [line.message.id] if is_old else []
            new = b"".join([*pieces, data[at:]]).lstrip(b"\n")
            is_emptied = bool(data) and not new
            if not dry_run and (gone or is_emptied or torn):
                self._set_aside(*torn)
                if new:
                    overwrite_safely(self._copy, handle, data, new)
                else:
                    os.ftruncate(handle, 0)
                self._remove_abouts(set(gone))
            return len(gone), is_emptied
        return 0, False

    def _mend(self, handle: int) -> None:
        """Finish what a crash left half done, and set a torn last line aside."""
        finish_overwriting(self._copy, handle)
        size = os.fstat(handle).st_size
        if not size or os.pread(handle, 1, size - 1) == b"\n":
            return
        data = read_all(handle)
        start = data.rfind(b"\n") + 1
        if read_message(data[start:]) is not None:  # whole but for its end
            write_at(handle, b"\n", size)
        else:
            self._set_aside(data[start:])
            os.ftruncate(handle, start)

    def _set_aside(self, *torn: bytes) -> None:
        if torn:
            self._folder.make()
            append(f"{self._beside}torn", b"".join(piece + b"\n" for piece in torn))


def _parse_about(line: bytes) -> dict[str, str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    values = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in values if isinstance(value, str)}
