"""One agent's mailbox: a file that many processes append to and take from, of which any may be killed.

The original's rules: the file is locked itself, changed in place and never renamed or unlinked. Ours
beside them, all in files of our own: a cursor past what is read, so that history costs nothing; a lock
under which a message is taken, so that it is marked only when it was handed over; and a copy of what a
rewrite is about to put there, so that half a rewrite is finished by whoever comes next.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from postroom.agents import cursor, scan
from postroom.agents.cursor import Place
from postroom.agents.files import (
    PATIENCE,
    append,
    locked,
    open_own,
    opened_own,
    read_all,
    replace_all,
    whole,
    write_at,
)
from postroom.agents.folder import Folder
from postroom.agents.record import (
    Message,
    flag,
    now,
    read_message,
    seconds,
    write_message,
    write_word,
)
from postroom.agents.rewrite import finish, rewrite
from postroom.agents.scan import Found
from postroom.core.errors import Denied, PostroomError, Unavailable
from postroom.store.files import wait_until_writable, write_all
from postroom.store.locks import Locked, acquire

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
FULL: Final = 64_000_000  # bytes of a mailbox that takes no more
LAST: Final = 512  # bytes, fewer than any pipe takes at once or not at all
_ID: Final = rb'"id":"([A-Za-z0-9]{8})"'
_ABOUT: Final = re.compile(rb'\{"id":"([A-Za-z0-9]{8})"')


class Delivery:
    """A message that is being handed over: nobody else gets it until it is confirmed or let go."""

    def __init__(self, box: Mailbox, lock: int, found: Found) -> None:
        self.message = found.message
        self._box = box
        self._lock: int | None = lock
        self._found = found

    def confirm(self) -> None:
        """Mark it as read: it was handed over."""
        self._mark(lambda: None)

    def deliver(
        self,
        handle: int,
        data: bytes,
        *,
        patience: float = PATIENCE,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Write it out, and mark it as read in the same breath as the end of it; then `done`.

        Who is killed before that has handed over nothing that is whole, and it is there for the next.
        Where somebody holds the mailbox for long, nothing is written, and `Locked` is raised.
        """
        end = max(0, len(data) - LAST)
        try:
            self._box.wait(patience)
            write_all(handle, data[:end])
            wait_until_writable(
                handle
            )  # then it takes the rest at once, and nobody waits for the lock
        except BaseException:
            self.release()
            raise
        self._mark(lambda: write_all(handle, data[end:]), done=done)

    def try_deliver_now(self, handle: int, data: bytes) -> bool:
        """Do the same with what can be written without waiting, unless a lock must be waited for."""
        try:
            self._mark(lambda: write_all(handle, data), patience=0.0)
        except Locked:
            return False
        return True

    def take_back(self) -> None:
        """Make it unread again: the answer that it was confirmed for will not be given."""
        with suppress(OSError, PostroomError):
            self._box.unmark(self._found)

    def _mark(
        self,
        before: Callable[[], None],
        patience: float = PATIENCE,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        steps: list[str] = []

        def once() -> None:
            steps.append("began")
            before()
            steps.append("done")

        try:
            if self._lock is not None:
                self._box.mark(self._found, once, patience, done)
        except Locked:
            if not patience:
                raise
        except (OSError, PostroomError):
            if steps == ["began"]:
                self.release()
                raise  # it could not be written
        # What cannot be marked is rather read twice than never.
        try:
            if not steps:
                before()
        finally:
            self.release()
        done()

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
        self._beside = folder.beside(name, "")
        self._ids: tuple[Place, set[bytes]] | None = None

    # Sending

    def append(
        self,
        sender: str,
        text: str,
        *,
        about: Callable[[Message], dict[str, str]] = lambda _message: {},
        then: Callable[[Message], None] = lambda _message: None,
        draw: Callable[[int], bytes] = os.urandom,
        patience: float = PATIENCE,
    ) -> Message:
        """Put a message at the end and return it; `about` is what is kept beside it.

        Where `then` fails, which comes last, the message is gone again before anybody saw it.
        """
        self._folder.make()
        with locked(self.path, patience=patience) as handle:
            size = self._mended(handle)
            message = Message(self._fresh(handle, draw), sender, self.name, text, created=now())
            line = write_message(message)
            if size + len(line) > FULL:
                raise Unavailable(
                    f"the mailbox of {self.name} is full: nobody reads or cleans it up"
                )
            try:
                if said := about(message):
                    self._say({"id": message.id, **said})
                write_at(handle, line, size)
                then(message)
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
        self._ids = (Place.at(handle, size), ids)
        return id

    # What is kept beside messages; changed under the mailbox's own lock

    def _say(self, about: dict[str, str]) -> None:
        with opened_own(f"{self._beside}about", os.O_RDWR | os.O_CREAT) as handle:
            size = os.fstat(handle).st_size
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            line = json.dumps(about, separators=(",", ":")).encode() + b"\n"
            write_at(handle, b"\n" + line if torn else line, size)

    def about(self, id: str) -> dict[str, str]:
        """Return what is kept beside a message."""
        data = whole(f"{self._beside}about")
        at = data.rfind(b'{"id":"' + write_word(id) + b'"')  # the newest are asked for most
        end = data.find(b"\n", at)
        return _about(data[at:end]) if 0 <= at < end else {}

    def abouts(self) -> dict[str, dict[str, str]]:
        """Return what is kept beside all messages, by their ids."""
        found = (_about(line) for _, line in scan.lines(whole(f"{self._beside}about")))
        return {about["id"]: about for about in found if "id" in about}

    def copies(self, id: str) -> int:
        """Return how often an id stands in the file. Without any lock."""
        return whole(self.path).count(b'"' + write_word(id) + b'"')

    def _forget(self, ids: set[str]) -> None:
        """Drop what is kept beside messages that are gone."""
        try:
            handle = open_own(f"{self._beside}about", os.O_RDWR)
        except (OSError, Denied):
            return
        try:
            gone = {id.encode("utf-8", "replace") for id in ids}
            old = read_all(handle).splitlines(keepends=True)
            new = [line for line in old if not ((of := _ABOUT.match(line)) and of[1] in gone)]
            if new != old:
                replace_all(handle, b"".join(new))
        finally:
            os.close(handle)

    # Receiving

    def take(self, *, patience: float = PATIENCE) -> Delivery | None:
        """Take the oldest unread message, for this process alone; or nothing where all is read."""
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
            found = self._oldest(patience)
        except BaseException:
            os.close(lock)
            raise
        if found is None:
            os.close(lock)
            return None
        return Delivery(self, lock, found)

    def _oldest(self, patience: float) -> Found | None:
        try:
            with locked(self.path, make=False, patience=patience) as handle:
                size = self._mended(handle)
                start = self._cursor(handle)
                found = next(scan.unread(scan.read_lines(handle, start)), None)
                if start != (read_until := found.start if found else size):
                    self._keep_cursor(handle, read_until)
                return found
        except FileNotFoundError:
            return None

    def mark(
        self,
        found: Found,
        before: Callable[[], None] = lambda: None,
        patience: float = PATIENCE,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Mark a message as read, wherever it stands by now; do something right before, and right after.

        Where it is marked already, or gone, nothing is done.
        """
        with locked(self.path, make=False, patience=patience) as handle:
            self._mended(handle)
            if os.pread(handle, len(found.line) + 1, found.start) != found.line + b"\n":
                # Somebody has rewritten the file meanwhile.
                everything = scan.messages(scan.lines(read_all(handle)))
                again = next((one for one in everything if one.message == found.message), None)
                if again is None:
                    return
                found = again
            at = flag(found.line)
            if at >= 0:
                place = found.start + at
                with cursor.keeping(f"{self._beside}cursor", handle, found.end) as keep:
                    before()
                    os.pwrite(handle, b"true ", place)
                    keep()
                    after()
            else:  # nothing to write over: the key is missing
                old = read_all(handle)
                line = write_message(found.message._replace(read=True))
                before()
                self._rewrite(handle, old, old[: found.start] + line + old[found.end :])

    def wait(self, patience: float) -> None:
        """Wait until nobody holds the mailbox; what else may be wrong with it is not asked here."""
        try:
            with locked(self.path, make=False, patience=patience):
                return
        except Locked:
            raise
        except (OSError, PostroomError):
            return

    def unmark(self, found: Found) -> None:
        """Make a message unread again that nobody has touched since we marked it."""
        at = flag(found.line)
        marked = found.line[:at] + b"true " + found.line[at + 5 :] + b"\n"
        with locked(self.path, make=False) as handle:
            if at >= 0 and os.pread(handle, len(marked), found.start) == marked:
                unread_from = min(self._cursor(handle), found.start)
                os.pwrite(handle, b"false", found.start + at)
                self._keep_cursor(handle, unread_from)

    def _cursor(self, handle: int) -> int:
        return cursor.read(f"{self._beside}cursor", handle)

    def _keep_cursor(self, handle: int, offset: int) -> None:
        cursor.keep(f"{self._beside}cursor", handle, offset)

    def unread(self) -> int:
        """Return how many messages wait."""
        try:
            with locked(self.path, make=False) as handle:
                self._mended(handle)
                data = read_all(handle, self._cursor(handle))
        except FileNotFoundError:
            return 0
        return scan.count_unread(data)

    def may_have(self) -> bool:
        """Whether a message may wait: for certain where not. Without any lock."""
        try:
            with opened_own(self.path, os.O_RDONLY) as handle:
                return self._cursor(handle) < os.fstat(handle).st_size
        except FileNotFoundError:
            return False

    def messages(self, *words: str) -> list[Message]:
        """Return all messages, oldest first; those lines alone that have these words anywhere."""
        data = self._data()
        wanted = [write_word(word) for word in words]
        if not all(word in data for word in wanted):
            return []
        likely = (row for row in scan.lines(data) if all(word in row[1] for word in wanted))
        return [found.message for found in scan.messages(likely)]

    def damaged(self) -> int:
        """Return how many lines are no message."""
        return sum(1 for _, line in scan.lines(self._data()) if read_message(line) is None)

    def _data(self) -> bytes:
        try:
            with locked(self.path, make=False) as handle:
                self._mended(handle)
                return read_all(handle)
        except FileNotFoundError:
            return b""

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
        path = f"{self._beside}told"
        os.close(open_own(path, os.O_WRONLY | os.O_CREAT))
        # The kernel's own stamps are milliseconds behind: what was just written would be after this.
        os.utime(path, ns=(time.time_ns(),) * 2, follow_symlinks=False)

    def told(self) -> float:
        """Return when the owner was last told."""
        try:
            return os.lstat(f"{self._beside}told").st_mtime
        except OSError:
            return 0.0

    # Cleaning, and mending

    def clean(self, before: float, *, rehearse: bool = False) -> tuple[int, bool]:
        """Remove what was read and written before that moment; return how many, and if all is gone.

        What is no message stays, but for a torn beginning that a message was glued to.
        """
        try:
            with locked(self.path, make=False) as handle:
                size = self._mended(handle)
                data = read_all(handle)
                pieces, at, torn, gone = [], 0, [], set()
                for found in scan.messages(scan.lines(data)):
                    begin = data.rfind(b"\n", 0, found.start) + 1
                    read_at = seconds(found.message.created) or 0.0
                    goes = found.message.read and read_at <= before
                    if goes or begin < found.start:
                        pieces.append(data[at:begin])
                        at = found.end if goes else found.start
                    torn += [data[begin : found.start]] if begin < found.start else []
                    gone |= {(found.message.id, found.start)} if goes else set()
                new = b"".join([*pieces, data[at:]]).lstrip(b"\n")
                emptied = bool(size) and not new
                if not rehearse and (gone or emptied or torn):
                    self._set_aside(*torn)
                    if new:
                        self._rewrite(handle, data, new)
                    else:
                        os.ftruncate(handle, 0)
                    self._forget({id for id, _ in gone})
                return len(gone), emptied
        except FileNotFoundError:
            return 0, False

    def _mended(self, handle: int) -> int:
        """Finish what a crash left half done, set a torn last line aside, and return the file's size."""
        finish(f"{self._beside}rewrite", handle)
        size = os.fstat(handle).st_size
        if not size or os.pread(handle, 1, size - 1) == b"\n":
            return size
        start, tail = scan.last_line(handle, size)
        if read_message(tail) is not None:  # whole but for its end
            write_at(handle, b"\n", size)
            return size + 1
        self._set_aside(tail)
        os.ftruncate(handle, start)
        return start

    def _set_aside(self, *torn: bytes) -> None:
        if torn:
            self._folder.make()
            data = b"".join(piece + b"\n" for piece in torn)
            append(f"{self._beside}torn", data)

    def _rewrite(self, handle: int, old: bytes, new: bytes) -> None:
        rewrite(f"{self._beside}rewrite", handle, old, new)


def _about(line: bytes) -> dict[str, str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    values = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in values if isinstance(value, str)}
