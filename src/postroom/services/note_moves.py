"""Moving a note, and with it the links that point to it.

What is about to be done is on the disk first. A move that a crash left is finished by whoever looks next: the file
under its new name alone, and the links rewritten that are still to be.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from postroom.core.errors import Conflict, Corrupt, Invalid, NotFound, PostroomError, Unavailable
from postroom.core.values import dataclass
from postroom.desk.recorder import Call
from postroom.store.files import private_folder, replace, try_lock
from postroom.vault.folders import NOTE
from postroom.vault.index import CANVAS
from postroom.vault.keeper import Progress
from postroom.vault.links import Moved, Rewritten, key, rewrite, rewrite_canvas, stem
from postroom.vault.note import Note, etag
from postroom.vault.vault import File

if TYPE_CHECKING:
    from postroom.services.notebook import Notebook

MAX_TRIES: Final = 300  # of a move, while another process moves a note
REPORT_EVERY: Final = 10  # files between two reports of progress
TRIES: Final = 5  # to rewrite a note that others write to


@dataclass(frozen=True, slots=True)
class Intent:
    """A move that was begun, by whom, and the file as it was."""

    source: str
    target: str
    agent: str
    size: int
    mtime_ns: int
    inode: int
    etag: str  # of what the file holds afterwards
    id: str

    @property
    def was(self) -> File:
        return File(self.source.rpartition("/")[2], self.size, self.mtime_ns, self.inode)


@dataclass(slots=True)
class MoveResult:
    """What a move changed beside the note's name."""

    path: str
    links: dict[str, int] = field(default_factory=dict)  # rewritten, by note
    ambiguous: dict[str, tuple[str, ...]] = field(default_factory=dict)  # left, by note
    untouched: list[str] = field(default_factory=list)  # notes that tools may not change


class Mover:
    def __init__(self, book: Notebook, intent: Path) -> None:
        self._book = book
        self._lock = private_folder(intent.parent) / "move.lock"
        self._intent = intent

    def move(self, call: Call, source: str, target: str) -> Generator[Progress, None, MoveResult]:
        """Give a note another path, and rewrite the links to it; yield how far that is."""
        recorder, id = self._book.recorder, os.urandom(8).hex()
        with ExitStack() as stack:
            with recorder.abandonment(call):
                yield from self._wait_for_lock(stack)
            self._finish(links=True)
            with (
                recorder.recording(call, source, changes=True, once=id, destination=target[:200]),
                recorder.abandonment(call, partial(self._has_begun, id)),
            ):
                moved, raw, file = self._allowed(source, target)
                done = yield from self._move(call.agent, moved, raw, file, id)
            self._intent.unlink(missing_ok=True)  # once the line is there that tells of it
        return done

    def _wait_for_lock(self, stack: ExitStack) -> Generator[Progress, None, None]:
        """Wait for others who move; a thread that waited for them could be the one that they need."""
        for _ in range(MAX_TRIES):
            if stack.enter_context(try_lock(self._lock)):
                return
            yield Progress(0, 0)
        raise Unavailable("Other notes are being moved", remedy="Try again in a while.")

    def _has_begun(self, id: str) -> bool:
        """Whether this move is on the disk: it is then finished, by whatever process looks next."""
        intent = self._left()
        return intent is not None and intent.id == id

    def _allowed(self, source: str, target: str) -> tuple[Moved, bytes, File]:
        book = self._book
        old, new = book.find(source), book.vault.spelled(target.removesuffix("/"))
        book.access.refuse_reading(old)
        for closed in (old, new):
            book.access.refuse_writing(closed, new=True)
        if target.endswith("/") or book.vault.is_folder(new):
            raise Invalid(
                f"{target!r} names a folder", remedy="Name the file too: the whole new path."
            )
        kind = _suffix(old)
        new = book.with_ending(new, kind)
        book.refuse_folder(old)
        raw, file = book.vault.read(old)
        if kind != _suffix(new):
            raise Invalid(
                f"{old!r} would not keep its kind as {new!r}",
                remedy=f"Let the destination be a whole path that ends in {kind or 'no dot'}.",
            )
        book.refuse_changing(old, raw)
        book.access.refuse_writing(new, new=True)
        book.refuse_name(new)
        if kind == NOTE:
            with suppress(Corrupt):
                book.refuse_approval(new, Note.parse(raw))
        if book.vault.stat(new) is not None:
            raise Conflict(f"{new!r} is there already", remedy="Take another name.")
        return Moved(old, new), raw, file

    def _move(
        self, agent: str, moved: Moved, raw: bytes, file: File, id: str
    ) -> Generator[Progress, None, MoveResult]:
        book = self._book
        book.finder.sweep()  # a link that was written a moment ago must follow too
        own = self._rewritten(moved.source, raw, moved)
        data = own.text.encode() if own.changed else None
        intent = Intent(*moved, agent, *file[1:], etag(data or raw), id)
        replace(self._intent, json.dumps(asdict(intent)).encode())
        ready = book.tool_note(moved.target, data or raw, agent)
        try:
            book.vault.move(intent.source, intent.target, intent.was, data, ready)
        except PostroomError:
            self._intent.unlink()
            raise
        done = MoveResult(intent.target)
        if data is not None:
            book.free_inode(file)
            done.links[intent.target] = own.changed
        if own.ambiguous:
            done.ambiguous[intent.target] = own.ambiguous
        yield from self._rewrite(agent, moved, done)
        return done

    def _rewrite(
        self, agent: str, moved: Moved, done: MoveResult
    ) -> Generator[Progress, None, None]:
        book = self._book
        book.rename(*moved)
        linking = book.finder.index.linking(key(stem(moved.source)))
        paths = [path for path in linking if path not in moved]
        for number, path in enumerate(paths):
            if number % REPORT_EVERY == 0:
                yield Progress(number, len(paths))
            try:
                self._rewrite_in(path, agent, moved, done)
            except (NotFound, Corrupt):  # gone, or not to be read: nothing to rewrite
                continue
            except PostroomError:  # no right to it, or a full disk: the note has moved all the same
                done.untouched.append(path)

    def _rewrite_in(self, path: str, agent: str, moved: Moved, done: MoveResult) -> None:
        book = self._book
        for _ in range(TRIES):
            raw, file = book.vault.read(path)
            found = self._rewritten(path, raw, moved)
            if found.ambiguous:
                done.ambiguous[path] = found.ambiguous
            if not found.changed:
                return
            if book.access.is_workflow(path) or book.access.right(path) != "all":
                break
            with suppress(Conflict):  # somebody writes to it: look again
                book.replace(path, found.text.encode(), file, agent)
                done.links[path] = found.changed
                book.finder.index.refresh(book.vault, [path])
                return
        done.untouched.append(path)

    def _rewritten(self, path: str, raw: bytes, moved: Moved) -> Rewritten:
        def files(name: str) -> Sequence[str]:
            """Return who had this name before the move, whether the index knows of it yet or not."""
            if any("\ud800" <= char <= "\udfff" for char in name):  # which no file has
                return []
            others = [one for one in self._book.finder.index.named(name) if one not in moved]
            return [*others, moved.source] if key(stem(moved.source)) == name else others

        found = same = Rewritten("", 0, ())
        text, kind = "", _suffix(path)
        with suppress(UnicodeDecodeError):
            text = raw.decode()
            if kind == CANVAS:
                found = rewrite_canvas(text, moved, files, at=path)
            elif kind == NOTE:
                found = rewrite(text, moved, files, at=path, frontmatter=Note.parse(raw).head)
        if found.changed and not self._is_sound(kind, text, found.text):
            return same._replace(ambiguous=(stem(moved.source),))
        return found

    def _is_sound(self, kind: str, before: str, after: str) -> bool:
        """Whether a note can hold the new name: as YAML, and without acting by it."""
        with suppress(Corrupt, UnicodeEncodeError):
            raw = after.encode()
            if kind == NOTE:
                Note.parse(raw)
            return self._book.active_content(before, after) is None
        return False

    def recover(self, *, links: bool) -> None:
        """Finish a move that a crash left, unless somebody is at it; without `links`, the file alone."""
        with try_lock(self._lock) as ours, suppress(PostroomError):  # the next look tries again
            if ours:
                self._finish(links=links)

    def _finish(self, *, links: bool) -> None:
        intent = self._left()
        if intent is None:
            return
        has_moved = self._settle(intent)
        if not links:  # which take an index
            return
        if has_moved:
            moved = Moved(intent.source, intent.target)
            for _ in self._rewrite(intent.agent, moved, MoveResult(intent.target)):
                pass
            call = Call("move_note", intent.agent, "vault")
            self._book.recorder.write(call, target=intent.source, once=intent.id)
        self._intent.unlink()

    def _left(self) -> Intent | None:
        try:
            return Intent(**json.loads(self._intent.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # none of ours
            self._intent.unlink()
            return None

    def _settle(self, intent: Intent) -> bool:
        """Let the file have one name; return whether that is the new one, where another file may stand."""
        vault = self._book.vault
        try:
            there, left = vault.stat(intent.target), vault.stat(intent.source)
            if there is None:
                return False
            is_ours = left is None or there.inode == intent.inode
            if not is_ours and etag(vault.read(intent.target)[0]) != intent.etag:
                # Where files cannot be linked, the new name is first taken with an empty one.
                if not there.size and left == intent.was:
                    vault.remove(intent.target, there)
                return False
            with suppress(Conflict, NotFound):  # gone already, or another file by now
                vault.remove(intent.source, intent.was)
        except PostroomError:  # not ours to touch, or no place where we could have put it
            return False
        return True


def _suffix(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :].lower() if "." in name else ""
