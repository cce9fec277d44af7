"""The notebook: agents read, write and edit notes. No change of anybody's is lost, and no rule of the folders broken."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.errors import Conflict, Corrupt, Invalid, NotFound, PostroomError
from postroom.core.values import dataclass
from postroom.desk.recorder import Call, CallRecorder
from postroom.desk.unowned_notes import PROPOSED
from postroom.services.note_rules import NoteRules
from postroom.services.note_search import NoteSearch, parse_body, parse_note
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.access import NOTE, Access
from postroom.vault.edit import Edit
from postroom.vault.note import Note, Typed, etag
from postroom.vault.vault import File, Ready, Vault

if TYPE_CHECKING:
    from postroom.services.note_moves import Mover

MAX_REMEMBERED: Final = 10_000  # notes that each server knows its clients have read
PART: Final = "~"  # ends the etag of a note of which not all was shown
_LETTER_HINT: Final = "It is the letter {} now, which waits for a person. Do not write it again."


class NoteVersion(NamedTuple):
    """A note as it was when it was read or written."""

    path: str
    note: Note
    etag: str
    letter: str = ""  # that a draft became
    hint: str = ""  # what its writer should know


@dataclass(kw_only=True, eq=False)
class Notebook:
    """The notes of the whole vault, for tools."""

    vault: Vault
    access: Access
    rules: NoteRules
    state: Path
    ledger: Ledger
    recorder: CallRecorder
    reconcile: Callable[[], Sequence[str]]
    rehearsal: str  # what set the mode to rehearsal; empty in live mode
    _etags: OrderedDict[tuple[str, str, str], str] = field(default_factory=OrderedDict)
    _remembering: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def finder(self) -> NoteSearch:
        """Lists and searches."""
        return NoteSearch(self.vault, self.access, self.recorder, self.state, self._finish_moves)

    def _finish_moves(self) -> None:
        self.mover.recover()

    @cached_property
    def mover(self) -> Mover:
        """Moves notes and rewrites the links to them."""
        from postroom.services.note_moves import Mover

        return Mover(self, self.state)

    def close(self) -> None:
        """Release the files and the index."""
        self.finder.close()
        self.vault.close()

    def read(self, call: Call, path: str, *, raw: bool = False) -> NoteVersion:
        """Return a note; `raw`, its whole text as it is, even if it is broken."""
        with self.recorder.recording(call, path):
            self._finish_interrupted_move()
            place = self.find(path)
            self.access.refuse_reading(place)
            self.rules.refuse_folder(place)
            data, _ = self.vault.read(place)
            note = parse_body(place, data) if raw else parse_note(place, data)
            return NoteVersion(place, note, etag(data))

    def _finish_interrupted_move(self) -> None:
        if (self.state / "move.json").exists():  # else the note would have two names
            self.mover.settle()

    def remember(self, call: Call, version: NoteVersion, *, whole: bool = True) -> str:
        """Remember what an agent was shown, and return the etag for it."""
        tag = version.etag if whole else f"{version.etag}{PART}"
        if call.client_session is None:  # whether the next call is the same client's is not known
            return tag
        with self._remembering:
            key = (call.agent, call.client_session, version.path)
            self._etags[key] = tag
            self._etags.move_to_end(key)
            if len(self._etags) > MAX_REMEMBERED:
                self._etags.popitem(last=False)
        return tag

    def write(
        self, call: Call, path: str, values: Mapping[str, Typed], body: str, if_match: str
    ) -> NoteVersion:
        """Make a note, or give one that the agent knows as it is another content."""
        with self.recorder.recording(call, path, changes=True):
            self._finish_interrupted_move()
            place = self._note_path(self.find(path))
            current = self._open(call, place, if_match, whole=True)
            if current is None:
                # Without fields there is no frontmatter, unless the body would be read as one.
                bare = not values and not body.startswith("---")
                new = Note.parse(b"" if bare else b"---\n---\n").revise(values, body=body)
                self.rules.refuse_active("", new)
                self.rules.refuse_approval(place, new)
                ready = self.tool_note(place, etag(new.raw), call.agent)
                self.vault.create(place, new.raw, ready=ready)
            else:
                note, file, _ = current
                removed = [name for name in note.values if name not in values]
                new = note.revise(values, removed, body)
                self._replace(call, place, note, new, file)
            return self._after_write(call, place, new, whole=True)

    def edit(self, call: Call, path: str, edit: Edit, if_match: str) -> NoteVersion:
        """Change a part of a note that the agent knows as it is."""
        with self.recorder.recording(call, path, changes=True):
            self._finish_interrupted_move()
            place = self._note_path(self.find(path))
            repairs = not (edit.set or edit.remove or edit.append or edit.prepend)
            current = self._open(call, place, if_match, whole=False, repairs=repairs)
            if current is None:
                raise NotFound(f"There is no note {place!r}", remedy="Make it with write_note.")
            note, file, whole = current
            new = edit.apply(note)
            if len(note.raw) > file.size:  # it was broken, and read as a body alone
                new = Note.parse(new.raw[len(note.raw) - file.size :])
            self._replace(call, place, note, new, file)
            return self._after_write(call, place, new, whole=whole)

    def find(self, path: str) -> str:
        """Return the path of a file that exists, however its name is composed, `.md` added if need be."""
        place = self.vault.spelled(path)
        if self.vault.stat(place) is None:
            note = self.vault.spelled(f"{path}{NOTE}")
            return note if self.vault.stat(note) is not None else place
        return place

    def _note_path(self, place: str) -> str:
        self.access.refuse_closed(place)
        place = self.with_ending(place, NOTE)
        if not place.lower().endswith(NOTE):
            raise Invalid(f"{place!r} is no note", remedy=f"A note's path ends in {NOTE}.")
        return place

    def with_ending(self, path: str, ending: str) -> str:
        """Return a new path with the ending that it may have been given without."""
        complete = "." in path.rpartition("/")[2] or self.vault.stat(path) is not None
        return path if complete else f"{path}{ending}"

    def _open(
        self, call: Call, path: str, if_match: str, *, whole: bool, repairs: bool = False
    ) -> tuple[Note, File, bool] | None:
        """Return the note that this agent may change now, and whether it knows all of it.

        None if there is none yet. A broken note is opened only for an edit that `repairs` it.
        """
        try:
            raw, file = self.vault.read(path)
        except NotFound:
            self.access.refuse_writing(path, new=True)
            self.rules.refuse_name(path)
            if if_match:
                raise Conflict(
                    f"{path!r} is not there any more", remedy="Leave if_match out to make it anew."
                ) from None
            return None
        self.rules.refuse_letter(path)
        self.access.refuse_writing(path, new=False, by_tool=self.rules.is_tool_written(path, raw))
        try:
            note = Note.parse(raw)
        except Corrupt:
            if not repairs:
                raise
            note = parse_body(path, raw)
        knows_all = self._compare(call, path, etag(raw), if_match, whole=whole)
        return note, file, knows_all

    def _compare(self, call: Call, path: str, now: str, if_match: str, *, whole: bool) -> bool:
        """Refuse a change of what the agent does not know; return whether it knows all of the note."""
        known = if_match or self._etags.get((call.agent, call.client_session or "", path), "")
        if known == now or (known == now + PART and not whole):
            return known == now
        if known == now + PART:
            raise Conflict(
                f"Not all of {path!r} was shown, and writing it would lose the rest",
                remedy="Change it with edit_note, or read all of it first.",
                etag=known,
            )
        why = "was changed since you read it"
        if not known:
            why = "is there, and you have not read it yet"
        if not known and call.client_session is None:
            why = "is there, and without a session it takes if_match to change it"
        raise Conflict(
            f"{path!r} {why}: nothing was written",
            remedy="Read it as it is now, then decide; if_match takes its etag.",
            etag=now,
        )

    def _replace(self, call: Call, path: str, note: Note, new: Note, file: File) -> None:
        if new.raw == note.raw:
            return
        self.rules.refuse_active(note.source, new)
        self.rules.refuse_desk_fields(path, note)
        self.rules.refuse_approval(path, new)
        try:
            self.replace(path, new.raw, file, call.agent)
        except Conflict as lost:
            with suppress(PostroomError):
                lost.etag = etag(self.vault.read(path)[0])
            raise

    def replace(self, path: str, data: bytes, file: File, agent: str) -> None:
        """Give a file another content, as a tool of this agent."""
        self.vault.replace(path, data, file, self.tool_note(path, etag(data), agent))
        self.free_inode(file)

    def tool_note(self, path: str, tag: str, agent: str) -> Ready:
        """Return a callback that records a file as tool-written.

        The vault calls it between writing and naming the file. A crash before the file has its name
        leaves a row without a file, which does no harm; a file without a row would count as the
        person's.
        """

        def record(inode: int) -> None:
            with self.ledger.write() as tx:
                tx.tool_notes.add(self.rules.in_room(path), inode, tag, agent)

        return record

    def free_inode(self, file: File) -> None:
        """Forget the inode of a file that a tool replaced: the file system gives it to others.

        Afterwards, not before: until then the file may still exist, under another name too.
        """
        with self.ledger.write(synced=False) as tx:
            tx.tool_notes.free_inode(file.inode)

    def rename(self, source: str, target: str) -> None:
        """Take in that a note has another path."""
        self.finder.index.refresh(self.vault, [source, target])
        with self._remembering:
            for agent, session, path in list(self._etags):
                if path == source:  # if the move changed it, this is an old etag
                    self._etags[agent, session, target] = self._etags.pop((agent, session, path))

    def _after_write(self, call: Call, path: str, note: Note, *, whole: bool) -> NoteVersion:
        """Return the note that was written, as the index and the desk then have it."""
        self.finder.refresh(path)
        version = NoteVersion(path, note, etag(note.raw))
        version = version._replace(etag=self.remember(call, version, whole=whole))
        inside = self.rules.in_room(path)
        if inside.startswith(f"{folders.DRAFTS}/"):
            with suppress(PostroomError):  # the next reconcile takes it
                return self._after_reconcile(version, inside)
        return version._replace(hint=self.access.hint(path))

    def _after_reconcile(self, version: NoteVersion, inside: str) -> NoteVersion:
        """Let the desk look at a draft, and return it with the letter that it became, if any."""
        reports = [report for report in self.reconcile() if report.startswith(f"{inside} ")]
        letter, _ = self.ledger.notes.in_folders(folders.DRAFTS).get(inside, ("", None))
        if letter:
            raw, _ = self.vault.read(version.path)
            note = parse_note(version.path, raw)
            return NoteVersion(version.path, note, etag(raw), letter, _LETTER_HINT.format(letter))
        is_proposed = version.note.text("status") == PROPOSED and version.note.text("to")
        if is_proposed and self.rehearsal:
            hint = f"Postroom rehearses ({self.rehearsal}): it is no letter yet."
            return version._replace(hint=hint)
        return version._replace(hint=reports[0] if reports else "")
