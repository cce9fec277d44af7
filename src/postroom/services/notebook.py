"""The notebook: agents read, write and edit notes. No change of anybody's is lost, and no rule of the folders broken."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    PostroomError,
    raise_if,
)
from postroom.core.text import clean, one_line
from postroom.desk.desk import Desk
from postroom.desk.recorder import Call
from postroom.desk.unowned_notes import PROPOSED, TYPES
from postroom.services.note_search import NoteSearch, parse_body, parse_note
from postroom.vault import folders
from postroom.vault.active import Active, added
from postroom.vault.edit import Edit
from postroom.vault.folders import NOTE, Access
from postroom.vault.note import Note, Typed, etag
from postroom.vault.vault import File, Ready, Vault

if TYPE_CHECKING:
    from postroom.services.note_moves import Mover

MAX_REMEMBERED: Final = 10_000  # notes that each server knows its clients have read
PART: Final = "~"  # ends the etag of a note of which not all was shown
NO_LINK: Final = frozenset('[]#^|:*?"<>')  # signs that a wikilink or another system cannot hold
DESK_FIELDS: Final = frozenset({"letter", "letter_version", "digest", "desk"})


class NoteVersion(NamedTuple):
    path: str
    note: Note
    etag: str
    letter: str = ""  # that a draft became
    hint: str = ""  # what its writer should know


class Notebook:
    """The notes of the whole vault, for tools, and the rules that hold whatever a folder allows."""

    def __init__(self, desk: Desk) -> None:
        permissions = desk.permissions
        self.vault = Vault(permissions.root)
        self.access = Access(permissions.room, permissions.folders)
        self.recorder = desk.recorder
        self.state = desk.state / "vault"
        self.finder = NoteSearch(self)
        self._desk = desk
        self._ledger = desk.ledger
        self._intent = self.state / "move.json"
        self._etags: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._remembering = threading.Lock()

    @cached_property
    def mover(self) -> Mover:
        from postroom.services.note_moves import Mover

        return Mover(self, self._intent)

    def finish_moves(self, *, links: bool) -> None:
        """Finish a move that a crash left, so that its note has one name, and with `links` the rest."""
        if self._intent.exists():
            self.mover.recover(links=links)

    def close(self) -> None:
        self.finder.close()
        self.vault.close()

    def read(self, call: Call, path: str, *, raw: bool = False) -> NoteVersion:
        """Return a note; `raw`, its whole text as it is, even if it is broken."""
        with self.recorder.recording(call, path):
            self.finish_moves(links=False)
            place = self.find(path)
            self.access.refuse_reading(place)
            self.refuse_folder(place)
            data, _ = self.vault.read(place)
            note = parse_body(place, data) if raw else parse_note(place, data)
            return NoteVersion(place, note, etag(data))

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
        self, call: Call, path: str, values: Mapping[str, Typed] | None, body: str, if_match: str
    ) -> NoteVersion:
        """Make a note, or give one that the agent knows as it is another content; without values it keeps its fields."""
        with self.recorder.recording(call, path, changes=True):
            place = self._find_writable(path)
            current = self._open(call, place, if_match, whole=True)
            if current is None:
                # Without fields there is no frontmatter, unless the body would be read as one.
                bare = not values and not body.startswith("---")
                new = Note.parse(b"" if bare else b"---\n---\n").revise(values or {}, body=body)
                self._refuse_active("", new)
                self.refuse_approval(place, new)
                self.vault.create(place, new.raw, ready=self.tool_note(place, new.raw, call.agent))
            else:
                note, file, _ = current
                kept = note.values if values is None else values
                removed = [name for name in note.values if name not in kept]
                new = note.revise(values or {}, removed, body)
                self._replace(call, place, note, new, file)
            return self._after_write(call, place, new, whole=True)

    def edit(self, call: Call, path: str, edit: Edit, if_match: str) -> NoteVersion:
        with self.recorder.recording(call, path, changes=True):
            place = self._find_writable(path)
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

    def _find_writable(self, path: str) -> str:
        self.finish_moves(links=False)
        place = self.find(path)
        self.access.refuse_writing(place, new=True)
        place = self.with_ending(place, NOTE)
        if not place.lower().endswith(NOTE):
            raise Invalid(f"{place!r} is not a note", remedy=f"A note's path ends in {NOTE}.")
        return place

    def with_ending(self, path: str, ending: str) -> str:
        complete = "." in path.rpartition("/")[2] or self.vault.stat(path) is not None
        return path if complete else f"{path}{ending}"

    def _in_room(self, path: str) -> str:
        """Return a path as the desk knows it: in its own folder, or with a slash before it."""
        room = self._desk.permissions.room
        if not room:
            return path
        return path.removeprefix(f"{room}/") if path.startswith(f"{room}/") else f"/{path}"

    def _open(
        self, call: Call, path: str, if_match: str, *, whole: bool, repairs: bool = False
    ) -> tuple[Note, File, bool] | None:
        """Return the note that this agent may change now, and whether it knows all of it; None without a note.

        A broken note is opened only for an edit that `repairs` it.
        """
        try:
            raw, file = self.vault.read(path)
        except NotFound:
            self.access.refuse_writing(path, new=True)
            self.refuse_name(path)
            if if_match:
                raise Conflict(
                    f"{path!r} is not there any more", remedy="Leave if_match out to make it anew."
                ) from None
            return None
        self.refuse_changing(path, raw)
        try:
            note = Note.parse(raw)
        except Corrupt:
            if not repairs:
                raise
            note = parse_body(path, raw)
        return note, file, self._compare(call, path, etag(raw), if_match, whole=whole)

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
        unread = "you have not read it yet"
        if call.client_session is None:
            unread = "without a session it takes if_match to change it"
        why = "was changed since you read it" if known else f"is there, and {unread}"
        raise Conflict(
            f"{path!r} {why}: nothing was written",
            remedy="Read it as it is now, then decide; if_match takes its etag.",
            etag=now,
        )

    def _replace(self, call: Call, path: str, note: Note, new: Note, file: File) -> None:
        if new.raw == note.raw:
            return
        self._refuse_active(note.source, new)
        self._refuse_desk_fields(path, note)
        self.refuse_approval(path, new)
        try:
            self.replace(path, new.raw, file, call.agent)
        except Conflict as lost:
            with suppress(PostroomError):
                lost.etag = etag(self.vault.read(path)[0])
            raise

    def replace(self, path: str, data: bytes, file: File, agent: str) -> None:
        self.vault.replace(path, data, file, self.tool_note(path, data, agent))
        self.free_inode(file)

    def tool_note(self, path: str, data: bytes, agent: str) -> Ready:
        """Return a callback that records a file as tool-written, before it gets its name.

        After a crash, a row without a file does no harm; a file without a row would count as the person's.
        """

        def record(inode: int) -> None:
            with self._ledger.write() as tx:
                tx.tool_notes.add(self._in_room(path), inode, etag(data), agent)

        return record

    def free_inode(self, file: File) -> None:
        """Forget the inode of a file that a tool has replaced: the file system gives it to others now."""
        with self._ledger.write(synced=False) as tx:
            tx.tool_notes.free_inode(file.inode)

    def rename(self, source: str, target: str) -> None:
        self.finder.index.refresh(self.vault, [source, target])
        with self._remembering:
            for agent, session, path in list(self._etags):
                if path == source:  # if the move changed it, this is an old etag
                    self._etags[agent, session, target] = self._etags.pop((agent, session, path))

    def _after_write(self, call: Call, path: str, note: Note, *, whole: bool) -> NoteVersion:
        self.finder.refresh(path)
        version = NoteVersion(path, note, etag(note.raw))
        version = version._replace(etag=self.remember(call, version, whole=whole))
        inside = self._in_room(path)
        if inside.startswith(f"{folders.DRAFTS}/"):
            with suppress(PostroomError):  # the next reconcile takes it
                return self._after_reconcile(version, inside)
        return version._replace(hint=self.access.hint(path))

    def _after_reconcile(self, version: NoteVersion, inside: str) -> NoteVersion:
        """Let the desk look at a draft, and return it with the letter that it became, if any."""
        reports = [one for one in self._desk.reconcile() if one.startswith(f"{inside} ")]
        if letter := self._letter_at(inside):
            raw, _ = self.vault.read(version.path)
            hint = (
                f"It is the letter {letter} now, which waits for a person. Do not write it again."
            )
            return NoteVersion(version.path, parse_note(version.path, raw), etag(raw), letter, hint)
        rules, note = self._desk.rules, version.note
        hint = reports[0] if reports else ""
        if not rules.live and note.text("status") == PROPOSED and note.text("to"):
            hint = f"Postroom rehearses ({rules.source}): it is not a letter yet."
        return version._replace(hint=hint)

    def _letter_at(self, inside: str) -> str:
        """Return the letter whose note stands at a path of the desk; empty where there is none."""
        return self._ledger.notes.in_folders(inside.rpartition("/")[0]).get(inside, ("",))[0]

    # Rules: a tool's note passes for none of the desk's, approves nothing, acts and hides nowhere

    def refuse_folder(self, path: str) -> None:
        if self.vault.is_folder(path):
            raise Invalid(
                f"{path!r} is a folder",
                remedy="list_notes shows what is in it; notes are moved one by one.",
            )

    def refuse_changing(self, path: str, raw: bytes) -> None:
        """Refuse a draft that has become a letter, and what tools may not change where it stands."""
        inside = self._in_room(path)
        if letter := self._letter_at(inside):
            raise Denied(
                f"{path!r} is the letter {letter} now, and tools cannot change it",
                remedy="Write another draft, or take the letter back (withdraw_letter).",
            )
        by_tool = self._ledger.tool_notes.has(inside, etag(raw))
        self.access.refuse_writing(path, new=False, by_tool=by_tool)

    def _refuse_desk_fields(self, path: str, note: Note) -> None:
        """Refuse fields by which the desk knows its letters; outside its folders, if the letter exists."""
        fields = sorted(DESK_FIELDS & note.fields.keys())
        in_workflow = self.access.is_workflow(path)
        if fields and (in_workflow or self._ledger.notes.location(note.text("letter")).path):
            raise Denied(
                f"`{fields[0]}` is the desk's own field: tools do not write it in its folders, nor in a"
                " note that names one of its letters",
                remedy="Leave it out. A letter is asked for with `to`, `subject` and a status.",
            )

    def refuse_approval(self, path: str, note: Note) -> None:
        """Refuse a note that would pass for an approval: tools ask for one, in Plans/ alone."""
        self._refuse_desk_fields(path, note)
        kind, plans = note.text("type"), f"{folders.PLANS}/"
        is_approved = note.text("status").strip().casefold() == "approved"
        raise_if(
            (
                kind in TYPES and not self._in_room(path).startswith(plans),
                f"A note of the type {kind} asks for approval, and belongs into {plans}",
                f"Write it to {plans}, or leave `type` out.",
            ),
            (
                is_approved and self.access.is_workflow(path),
                "Only a person writes `status: approved` in Postroom's folders",
                "Leave it out, or write `status: pending`.",
            ),
            kind=Denied,
        )

    def active_content(self, before: str, after: str) -> Active | None:
        """Return what was added to a note that acts when it is opened, unless that is allowed."""
        return None if self._desk.permissions.active else added(before, after)

    def _refuse_active(self, before: str, note: Note) -> None:
        if active := self.active_content(before, note.source):
            raise Denied(
                f"Line {active.line} has {active.kind}, which acts when the note is opened:"
                f" {active.text!r}",
                remedy="Leave it out, or put it into a code fence of its own; a person can allow it"
                " with `vault.active_content`.",
            )

    def refuse_name(self, path: str) -> None:
        if clean(path).removed or any(name.strip() != name for name in path.split("/")):
            raise Denied(
                f"{one_line(path)!r} has characters that cannot be seen",
                remedy="Take a name without hidden characters, and without spaces at its ends.",
            )
        folder, _, name = path.rpartition("/")
        new = path if folder and not self.vault.is_folder(folder) else name
        if signs := sorted(NO_LINK & set(new)):
            raise Invalid(
                f"{path!r} has signs that a link cannot hold: {' '.join(signs)}",
                remedy="Take a name without them.",
            )
