"""Keep notes in step with the ledger: those of letters, and those of mail that came in.

The ledger decides, and the note follows. Each note has a key in the ledger, under which its last known location is
kept: path, hash and file stamp. What is about to be written is in the ledger first, so that a crash leaves no second
note. A person who is at a note meanwhile is not disturbed: the next look sees what they did.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from postroom.core.errors import Conflict, Corrupt, NotFound, PostroomError
from postroom.core.records import NOWHERE, NoteLocation, NoteStatus
from postroom.core.values import dataclass
from postroom.store.ledger import Ledger, Transaction
from postroom.vault.note import Note
from postroom.vault.vault import File, Vault


class SeenNote(NamedTuple):
    """A file in a folder; without `note` it is as it was last seen, or broken."""

    path: str
    file: File
    key: str = ""  # of the note that was last seen at this path
    note: Note | None = None
    problem: str = ""  # why it cannot be parsed

    @property
    def folder(self) -> str:
        """The folder that it stands in."""
        return self.path.rpartition("/")[0]

    @property
    def raw(self) -> bytes:
        """The content, if it was read and parsed."""
        return self.note.raw if self.note else b""


class NoteSource(Protocol):
    """One item that has a note, and what the note should be: a letter, or a mail."""

    @property
    def key(self) -> str:
        """The key of the note in the ledger."""
        ...

    @property
    def folder(self) -> str:
        """The folder in which the note belongs."""
        ...

    def render(self) -> tuple[str, bytes] | None:
        """Return name and content of a new note; None if a missing note is not written again."""
        ...

    def update(self, raw: bytes, location: NoteLocation) -> bytes | None:
        """Return the content brought up to date; None if the file is another item's note."""
        ...

    def record(self, tx: Transaction, path: str, data: bytes, file: File, *, current: bool) -> None:
        """Record where the note stands; not `current` if what was written may be out of date."""
        ...


def seen_at(path: str, data: bytes, file: File, location: NoteLocation = NOWHERE) -> NoteLocation:
    """Return the location of a note that somebody moved or changed; what it shows stays."""
    digest = hashlib.sha256(data).hexdigest()
    return NoteLocation(path, digest, *location[2:5], *file[1:])


def never(_path: str, _file: File) -> bool:
    """Ignore no file."""
    return False


@dataclass(frozen=True, slots=True)
class NoteSync:
    """Reads, writes, moves and restores notes, and remembers where they stand."""

    vault: Vault
    ledger: Ledger

    def sync(
        self,
        source: NoteSource,
        *,
        restore: bool = False,
        strict: bool = False,
        status: NoteStatus | None = None,
    ) -> None:
        """Write a note as it should be, where it belongs.

        A note that is not where it was left is written again only with `restore`: somebody may have moved it. One that
        cannot be read is left alone, or with `strict` an error. `status` is what the ledger has of it, where
        that was just read.
        """
        status = status or self.ledger.notes.status(source.key)
        location = status.location
        if status.planned_path:
            self.finish_write(source)
            location = self.ledger.notes.location(source.key)
        old: tuple[bytes, File] | None = None
        try:
            old = self.vault.read(location.path) if location.path else None
        except PostroomError as why:  # gone, or something else has taken its place
            if strict and not isinstance(why, Conflict | NotFound):
                raise
            if not restore:
                return
        try:
            written = self._update(source, location, *old) if old else None
            written = written or self._create(source)
        except (Conflict, NotFound):
            return
        if written:
            with self.ledger.write(synced=False) as tx:
                source.record(tx, *written, current=True)

    def _update(
        self, source: NoteSource, location: NoteLocation, raw: bytes, file: File
    ) -> tuple[str, bytes, File] | None:
        new = source.update(raw, location)
        if new is None:
            return None
        where, _, name = location.path.rpartition("/")
        if where == source.folder:
            path = location.path
            return path, new, self.vault.replace(path, new, file) if new != raw else file
        path = self.reserve_path(source.key, source.folder, name, new)
        return path, new, self.vault.move(location.path, path, file, new if new != raw else None)

    def _create(self, source: NoteSource) -> tuple[str, bytes, File] | None:
        rendered = source.render()
        if rendered is None:
            return None
        name, data = rendered
        path = self.reserve_path(source.key, source.folder, name, data)
        return path, data, self.vault.create(path, data)

    def reserve_path(self, key: str, folder: str, name: str, data: bytes) -> str:
        """Return where a note will be written, after the ledger knows it."""
        path = self.free_path(folder, name)
        with self.ledger.write(synced=False) as tx:
            tx.notes.plan_write(key, path, hashlib.sha256(data).hexdigest())
        return path

    def unfinished_write(self, key: str) -> tuple[str, bytes, File] | None:
        """Return the file of a write that took place, but was not recorded."""
        path, hash = self.ledger.notes.planned_write(key)
        with suppress(PostroomError):
            raw, file = self.vault.read(path) if path else (b"", None)
            if file and hashlib.sha256(raw).hexdigest() == hash:
                return path, raw, file
        return None

    def finish_write(self, source: NoteSource) -> bool:
        """Bring a write to its end that a crash interrupted; return whether there was one."""
        written = self.unfinished_write(source.key)
        if written is None:
            return False
        location = self.ledger.notes.location(source.key)
        with suppress(PostroomError):  # the old one is gone, or somebody was at it
            raw, file = self.vault.read(location.path)
            if location.path != written[0] and hashlib.sha256(raw).hexdigest() == location.hash:
                self.vault.remove(location.path, file)
        with self.ledger.write(synced=False) as tx:
            source.record(tx, *written, current=False)
        return True

    def free_path(self, folder: str, name: str) -> str:
        """Return a path in this folder that no other file has."""
        stem, path, number = name.removesuffix(".md"), f"{folder}/{name}", 1
        while self.vault.stat(path) is not None:
            number += 1
            # A name has room for 255 octets.
            path = f"{folder}/{stem.encode()[:240].decode(errors='ignore')} {number}.md"
        return path

    def move_file(self, path: str, file: File, folder: str) -> str:
        """Move a file that belongs elsewhere, unchanged; return its new path."""
        target = self.free_path(folder, path.rpartition("/")[2])
        self.vault.move(path, target, file)
        return target

    def remember(self, key: str, seen: SeenNote) -> None:
        """Record that a note which was moved or changed stands here now."""
        if seen.note is not None:
            location = seen_at(seen.path, seen.raw, seen.file, self.ledger.notes.location(key))
            with self.ledger.write(synced=False) as tx:
                tx.notes.save_location(key, location)

    # Reading

    def open(self, path: str, file: File, key: str = "") -> SeenNote:
        """Return a note with its content, or with the problem if it has none; `PostroomError` if it is gone."""
        try:
            raw, file = self.vault.read(path)
            return SeenNote(path, file, key, Note.parse(raw))
        except Corrupt as why:
            return SeenNote(path, file, key, problem=why.message)

    def scan(
        self,
        folder: str,
        *,
        settled_before: float = float("inf"),
        ignore: Callable[[str, File], bool] = never,
        unknown: re.Pattern[bytes] | None = None,
        known: Mapping[str, tuple[str, NoteLocation]] | None = None,
    ) -> Iterator[SeenNote]:
        """Yield the notes of a folder; those that changed since they were last seen with their content.

        A file younger than `settled_before` (in nanoseconds) is read even if its stamp is the same. Of files that
        are no known note, those that `ignore` accepts or that do not match `unknown` are left out. `known` are
        the notes that the ledger has in this folder, where they were just read.
        """
        known = self.ledger.notes.in_folders(folder) if known is None else known
        for listed in self.vault.list(folder):
            path, file = f"{folder}/{listed.name}", listed
            key, location = known.get(path, ("", None))
            if location and file[1:] == location[-3:] and file.mtime_ns < settled_before:
                yield SeenNote(path, file, key)
                continue
            if not location and ignore(path, file):
                continue
            note, same = None, None
            try:
                raw, file = self.vault.read(path)
                if location and hashlib.sha256(raw).hexdigest() == location.hash:
                    same = seen_at(path, raw, file, location)
                elif location or unknown is None or unknown.search(raw):
                    note = Note.parse(raw)
            except Corrupt as why:
                yield SeenNote(path, file, key, problem=why.message)
            except PostroomError:  # gone again, or no file of ours to read
                continue
            if same:  # not above: a ledger that is busy does not make a note be gone
                with self.ledger.write(synced=False) as tx:
                    tx.notes.save_location(key, same)
            if same or note:
                yield SeenNote(path, file, key, note)
