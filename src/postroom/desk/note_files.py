"""The attachments of open letters as files in the vault, where a person can open what will be sent.

They are copies of the frozen bytes in `Pending_Approval/Files/<letter>/`, which tools may read and not change: what is
sent comes from the ledger. They are written before a note that links to them, and removed once the letter is closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import count
from typing import Any, Final, TypeAlias

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.core.letter import Letter
from postroom.core.records import Entry, NoteLocation
from postroom.core.text import file_name, numbered
from postroom.core.values import dataclass
from postroom.vault.folders import LETTER_FILES
from postroom.vault.vault import Vault

READ_ONLY: Final = 0o444
KEY: Final = "files"  # in what the ledger keeps of a note
_LETTER_ID: Final = re.compile(r"[a-z2-7]{10}")
# For each file in the order of the letter's attachments: its name, and its stamp, by which a change is noticed.
LinkedFiles: TypeAlias = Mapping[str, tuple[int, int, int]]


def file_names(letter: Letter) -> list[str]:
    """Return the names under which a letter's attachments are saved, each once whatever system reads them."""
    names: dict[str, str] = {}
    for file in letter.attachments:
        name = file_name(file.name)
        every = (numbered(name, number) if number > 1 else name for number in count(1))
        free = next(one for one in every if one.casefold() not in names)
        names[free.casefold()] = free
    return list(names.values())


def linked(written: Mapping[str, Any]) -> LinkedFiles:
    """Return the files that a note links to, from what the ledger keeps of the note."""
    return {name: tuple(stamp) for name, stamp in written.get(KEY, {}).items()}


@dataclass(slots=True)
class LetterFiles:
    vault: Vault
    find: Callable[[str], Entry | None]  # returns the letter with an id
    _swept: set[str] = field(default_factory=set)  # what is still there is not Postroom's

    def write(self, entry: Entry) -> LinkedFiles:
        """Write the attachments of an open letter; return none where that cannot be done."""
        letter, known = entry.letter, linked(json.loads(entry.note.location.pages))
        self._swept.discard(letter.id)
        try:
            return {
                name: self._write(
                    f"{LETTER_FILES}/{letter.id}/{name}", file.content, known.get(name)
                )
                for name, file in zip(file_names(letter), letter.attachments, strict=True)
            }
        except PostroomError:
            return {}  # the disk is full, or a link is in their place: the note names them all the same

    def _write(
        self, path: str, content: bytes, known: tuple[int, int, int] | None
    ) -> tuple[int, int, int]:
        file = self.vault.stat(path)
        if file is None:
            file = self.vault.create(path, content, mode=READ_ONLY)
        elif file.stamp != known:
            found, file = self.vault.read(path)
            if found != content:
                if not content.startswith(found):  # else it is a copy that was cut short
                    self._set_aside(path, found)
                file = self.vault.replace(path, content, file)
        return file.stamp

    def _set_aside(self, path: str, content: bytes) -> None:
        """Keep what somebody wrote into a file under another name: it may be a person's work."""
        folder, _, name = path.rpartition("/")
        names = (
            numbered(f"changed {name}", at) if at > 1 else f"changed {name}" for at in count(1)
        )
        self.vault.deposit(folder, names, [content])

    def are_current(self, id: str, location: NoteLocation) -> bool:
        """Whether the files that a letter's note links to are as they were written."""
        if f'"{KEY}"' not in location.pages:  # as in most
            return True
        files = linked(json.loads(location.pages))
        found = self.vault.stats([f"{LETTER_FILES}/{id}/{name}" for name in files])
        return [file and file.stamp for file in found] == list(files.values())

    def remove(self, letter: Letter) -> None:
        """Remove the files of a letter; what a person put beside them stays."""
        folder = f"{LETTER_FILES}/{letter.id}"
        for name, attachment in zip(file_names(letter), letter.attachments, strict=True):
            path = f"{folder}/{name}"
            with suppress(PostroomError):
                file = self.vault.stat(path)
                if file and file.size == len(attachment.content):
                    content, file = self.vault.read(path)
                    if content == attachment.content:
                        self.vault.remove(path, file)
        self.vault.remove_empty_folder(folder)
        self.vault.remove_empty_folder(LETTER_FILES)

    def sweep(self, open_letters: Container[str]) -> None:
        """Remove the files of letters that were closed while a crash, or somebody else, kept their files."""
        ids: Sequence[str] = ()
        with suppress(PostroomError):  # a link stands there, or a file
            ids = self.vault.subfolders(LETTER_FILES)
        for id in ids:
            if id in open_letters or id in self._swept or not _LETTER_ID.fullmatch(id):
                continue
            self._swept.add(id)
            entry = self.find(id)
            if entry and entry.kind not in life.OPEN:
                self.remove(entry.letter)
