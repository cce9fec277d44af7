"""Where a note of ours is written: what is about to happen is in the ledger first, so that a crash leaves no second note."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass

from postroom.core.errors import PostroomError
from postroom.core.records import NoteLocation
from postroom.store.ledger import Ledger
from postroom.vault.vault import File, Vault


def found_at(place: NoteLocation, path: str, data: bytes, file: File) -> NoteLocation:
    """Return what is remembered of a note that somebody moved or changed."""
    digest = hashlib.sha256(data).hexdigest()
    shown = (place.notice, place.pages, place.version)
    return NoteLocation(path, digest, *shown, *file[1:])


@dataclass(frozen=True, slots=True)
class NoteWriter:
    """Names for notes that no other has, and the end of writes that were interrupted."""

    vault: Vault
    ledger: Ledger

    def reserve_path(self, key: str, where: str, name: str, data: bytes) -> str:
        """Return where a note will be written, after the ledger knows it."""
        path = self.free(where, name)
        with self.ledger.write(synced=False) as book:
            book.intend(key, path, hashlib.sha256(data).hexdigest())
        return path

    def bring(
        self, key: str, place: NoteLocation, where: str, raw: bytes, file: File, new: bytes
    ) -> tuple[str, File]:
        """Give a note that stands at a place its new text, in the folder where it belongs."""
        at, _, name = place.path.rpartition("/")
        if at == where:
            return place.path, self.vault.replace(place.path, new, file) if new != raw else file
        path = self.reserve_path(key, where, name, new)
        return path, self.vault.move(place.path, path, file, new if new != raw else None)

    def finish(self, key: str) -> tuple[str, bytes, File] | None:
        """Bring a write of ours to its end that was interrupted; return what stands there, if it began."""
        path, hash = self.ledger.intended(key)
        if not path:
            return None
        try:
            raw, file = self.vault.read(path)
        except PostroomError:
            return None
        if hashlib.sha256(raw).hexdigest() != hash:
            return None
        place = self.ledger.place(key)
        with suppress(PostroomError):  # the old one is gone, or somebody was at it
            old, was = self.vault.read(place.path)
            if path != place.path and hashlib.sha256(old).hexdigest() == place.hash:
                self.vault.remove(place.path, was)
        return path, raw, file

    def free(self, where: str, name: str) -> str:
        """Return a path in this folder that no other file has."""
        stem, path, number = name.removesuffix(".md"), f"{where}/{name}", 1
        while self.vault.stat(path) is not None:
            number += 1
            # A name has room for 255 octets.
            path = f"{where}/{stem.encode()[:240].decode(errors='ignore')} {number}.md"
        return path

    def put_back(self, path: str, file: File, where: str) -> str:
        """Move a note that stands in the wrong place, unchanged; return its new path."""
        target = self.free(where, path.rpartition("/")[2])
        self.vault.move(path, target, file)
        return target
