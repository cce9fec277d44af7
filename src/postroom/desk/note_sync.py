"""Keeps notes in step with the ledger: the notes of letters, and those of incoming mail.

The ledger decides, and the note follows. Each note has a key in the ledger, under which its last known location is
kept: path, hash and file stamp. A write is planned in the ledger first, so that a crash leaves no second note. A note
that a person changes at the same moment is not overwritten: the next reconcile sees the change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import NamedTuple, Protocol

from postroom.core.errors import Conflict, Corrupt, NotFound, PostroomError
from postroom.core.records import NOWHERE, NoteLocation, NoteStatus
from postroom.core.values import dataclass
from postroom.store.ledger import Change, Ledger, Transaction
from postroom.vault.note import Note
from postroom.vault.vault import File, Vault


class SeenNote(NamedTuple):
    """A file in a folder; `note` is its content if it has changed since it was last seen, and can be parsed."""

    path: str
    file: File
    key: str = ""  # the ledger's key of the note that was last at this path
    note: Note | None = None
    problem: str = ""  # why it cannot be parsed

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def raw(self) -> bytes:
        return self.note.raw if self.note else b""


class NoteSource(Protocol):
    """One item that has a note, and what the note should be: a letter, or a mail."""

    @property
    def key(self) -> str:
        """The key of the note in the ledger."""

    @property
    def folder(self) -> str:
        """The folder in which the note belongs."""

    def render(self) -> tuple[str, bytes] | None:
        """Return name and content of a new note; None if a missing note is not written again."""

    def update(self, raw: bytes, location: NoteLocation) -> bytes | None:
        """Return the content brought up to date; None if the file is another item's note."""

    def record(self, tx: Transaction, path: str, data: bytes, file: File, *, current: bool) -> None:
        """Record the note's location; `current` is false if the content may be older than the ledger."""


def seen_at(path: str, data: bytes, file: File, location: NoteLocation = NOWHERE) -> NoteLocation:
    """Return the location of a note as it is in this file; what the note shows is taken over from `location`."""
    hash = hashlib.sha256(data).hexdigest()
    shown = (location.notice, location.pages, location.version)
    return NoteLocation(path, hash, *shown, *file.stamp)


@dataclass(frozen=True, slots=True)
class NoteSync:
    """Reads, writes, moves and restores notes, and records their locations."""

    vault: Vault
    ledger: Ledger
    # Of each folder and pattern of `scan`, the files that did not match when they were last read.
    _unlike: dict[object, dict[str, File]] = field(default_factory=dict)

    def sync(self, source: NoteSource, *, strict: bool = False) -> None:
        """Write a note and record its location; `strict` as in `write`."""
        self.ledger.apply(self.write(source, strict=strict))

    def write(
        self,
        source: NoteSource,
        *,
        restore: bool = False,
        strict: bool = False,
        status: NoteStatus | None = None,
        old: tuple[bytes, File] | None = None,
    ) -> Change | None:
        """Write a note in its folder; return a function that records the location, or None if nothing was written.

        A note that is missing is written again only with `restore`: somebody may have moved it. A note that cannot be
        read is left alone, or raises with `strict`. A caller that has just read the ledger's `status` of the note, or
        its `old` content, passes them.
        """
        status = status or self.ledger.notes.status(source.key)
        if status.planned_path and self.finish_write(source, status):
            status, old = self.ledger.notes.status(source.key), None
        location = status.location
        try:
            old = old or (self.vault.read(location.path) if location.path else None)
        except PostroomError as why:  # the file is missing, changing, or no regular file
            if strict and not isinstance(why, Conflict | NotFound):
                raise
            if not restore:
                return None
        try:
            updated = self._update(source, status, *old) if old else None
            written = updated or self._create(source, status)
        except (Conflict, NotFound):
            return None
        if written is None:
            return None
        path, data, file = written
        return partial(source.record, path=path, data=data, file=file, current=True)

    def _update(
        self, source: NoteSource, status: NoteStatus, raw: bytes, file: File
    ) -> tuple[str, bytes, File] | None:
        old_path = status.location.path
        new = source.update(raw, status.location)
        if new is None:
            return None
        where, _, name = old_path.rpartition("/")
        path = old_path if where == source.folder else self.free_path(source.folder, name)
        self.plan_write(source.key, path, new, status)
        is_changed = new != raw
        if path != old_path:
            file = self.vault.move(old_path, path, file, new if is_changed else None)
        elif is_changed:
            file = self.vault.replace(path, new, file)
        return path, new, file

    def _create(self, source: NoteSource, status: NoteStatus) -> tuple[str, bytes, File] | None:
        rendered = source.render()
        if rendered is None:
            return None
        name, data = rendered
        path = self.free_path(source.folder, name)
        self.plan_write(source.key, path, data, status)
        return path, data, self.vault.create(path, data)

    def plan_write(self, key: str, path: str, data: bytes, status: NoteStatus) -> None:
        """Record a write before it is done; raise `Conflict` if the ledger's status of the note has changed."""
        with self.ledger.write(synced=False) as tx:
            tx.notes.plan_write(key, path, hashlib.sha256(data).hexdigest(), status)

    def read_if(self, path: str, hash: str) -> tuple[bytes, File] | None:
        """Return content and file of the note at this path; None unless the content has this hash."""
        with suppress(PostroomError):
            raw, file = self.vault.read(path)
            if hashlib.sha256(raw).hexdigest() == hash:
                return raw, file
        return None

    def finish_write(self, source: NoteSource, status: NoteStatus | None = None) -> bool:
        """Finish an interrupted write: remove the old file, record the new one. Return whether there was one."""
        status = status or self.ledger.notes.status(source.key)
        location, path, hash = status
        written = self.read_if(path, hash)
        if written is None:
            return False
        old = self.read_if(location.path, location.hash)
        if old and location.path != path:  # a note that is missing, or that a person changed, stays
            with suppress(PostroomError):
                self.vault.remove(location.path, old[1])
        with self.ledger.write(synced=False) as tx:
            source.record(tx, path, *written, current=False)
        return True

    def free_path(self, folder: str, name: str) -> str:
        """Return an unused path in this folder, with a number after the name if the name is taken."""
        stem, path, number = name.removesuffix(".md"), f"{folder}/{name}", 1
        while self.vault.stat(path) is not None:
            number += 1
            # File systems allow 255 octets in a name.
            path = f"{folder}/{stem.encode()[:240].decode(errors='ignore')} {number}.md"
        return path

    def move_file(self, path: str, file: File, folder: str) -> str:
        """Move a file to another folder, return its path there; raise `Conflict` if it is not this `file` any more."""
        target = self.free_path(folder, path.rpartition("/")[2])
        self.vault.move(path, target, file)
        return target

    def remember(self, key: str, seen: SeenNote) -> None:
        """Record the new location of a note that somebody moved or changed."""
        if seen.note is not None:
            location = seen_at(seen.path, seen.raw, seen.file, self.ledger.notes.location(key))
            with self.ledger.write(synced=False) as tx:
                tx.notes.save_location(key, location)

    # Reading

    def open(self, path: str, file: File, key: str = "") -> SeenNote:
        """Read a note; one that does not parse comes with its `problem`. Raises if there is no file."""
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
        ignore: Callable[[str, File], bool] | None = None,
        unknown: re.Pattern[bytes] | None = None,
        known: Mapping[str, tuple[str, NoteLocation]] | None = None,
    ) -> Iterator[SeenNote]:
        """Yield the notes of a folder; notes that changed since they were last seen come with their content.

        A file changed after `settled_before` (in nanoseconds) is read even if its stamp is the same. Files of which
        the ledger has no note are left out if `ignore` returns true for them, or if they do not match `unknown`, and
        then are read again only once they change. A caller that has just read the ledger's notes of this folder passes
        them as `known`.
        """
        known = self.ledger.notes.in_folders(folder) if known is None else known
        before, unlike = self._unlike.get((folder, unknown), {}), dict[str, File]()
        self._unlike[folder, unknown] = unlike
        for listed in self.vault.list(folder):
            path, file = f"{folder}/{listed.name}", listed
            key, location = known.get(path, ("", None))
            if location and file.stamp == location.file_stamp and file.mtime_ns < settled_before:
                yield SeenNote(path, file, key)
                continue
            if not location and before.get(path) == file:
                unlike[path] = file
                continue
            if not location and ignore and ignore(path, file):
                continue
            note, same = None, None
            try:
                raw, file = self.vault.read(path)
                if location and hashlib.sha256(raw).hexdigest() == location.hash:
                    same = seen_at(path, raw, file, location)
                elif location or unknown is None or unknown.search(raw):
                    note = Note.parse(raw)
                elif file.mtime_ns < settled_before:
                    unlike[path] = file
            except Corrupt as why:
                yield SeenNote(path, file, key, problem=why.message)
            except PostroomError:  # the file has gone meanwhile, or is not a regular file
                continue
            if same:  # outside of `try`: an error of the ledger must not make the note look missing
                with self.ledger.write(synced=False) as tx:
                    tx.notes.save_location(key, same)
            if same or note:
                yield SeenNote(path, file, key, note)
