"""The notebook: what agents do with notes. No update of anybody's is lost, and no rule of the folders broken."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    PostroomError,
    Unavailable,
)
from postroom.core.text import clean, one_line
from postroom.desk.recorder import Call, CallRecorder
from postroom.desk.slips import TYPES
from postroom.desk.unowned_notes import PROPOSED
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.access import NOTE, Access
from postroom.vault.active import Active, added
from postroom.vault.edit import Edit
from postroom.vault.note import Note, Typed, etag
from postroom.vault.vault import File, Ready, Vault

if TYPE_CHECKING:
    from postroom.services.note_moves import Mover
    from postroom.vault.index import Found, Hit, Index
    from postroom.vault.keeper import Keeper, Progress

REMEMBERED: Final = 10_000  # notes that each server knows it has read
PART: Final = "~"  # ends the etag of a note of which not all was shown
PATIENCE: Final = 450  # tenths of a second that a call waits for the index
FEW: Final = 20  # folders that are named
ROUNDS: Final = 3  # of asking again where the index was behind
EMPTY: Final = b"---\n---\n"
WAITS: Final = "It is the letter {} now, which waits for a person. Do not write it again."
UNLINKED: Final = frozenset(
    '[]#^|:*?"<>'
)  # in a name, no wikilink or no other system can hold them
OURS: Final = frozenset({"letter", "letter_version", "digest", "desk"})


class Kept(NamedTuple):
    """A note as it was when it was read or written."""

    path: str
    note: Note
    etag: str
    letter: str = ""  # that a draft became
    hint: str = ""  # what its writer should know


class Match(NamedTuple):
    """A note that was found; without its text where only its name was asked for."""

    path: str
    note: Note | None = None


class Listed(NamedTuple):
    """Notes, how many there are in all, and what leads to the next."""

    matches: list[Match]
    total: int
    folders: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    loose: bool = False  # no note has the words themselves: these have words that begin so


@dataclass(kw_only=True, eq=False)
class Notebook:
    """The notes of the whole vault, for tools."""

    vault: Vault
    access: Access
    active: bool
    state: Path
    ledger: Ledger
    recorder: CallRecorder
    settle: Callable[[], Sequence[str]]
    rehearses: str  # by what; nothing where letters leave
    in_room: Callable[[str], str]
    _seen: OrderedDict[tuple[str, str, str], str] = field(default_factory=OrderedDict)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _keeper: Keeper | None = None

    def close(self) -> None:
        """Let go of the files, and of the index for whoever keeps it next."""
        if self._keeper:
            self._keeper.close()
            self.index.close()
        self.vault.close()

    # One note

    def read(self, call: Call, path: str, *, raw: bool = False) -> Kept:
        """Return a note; `raw`, its whole text as it is, though it be broken."""
        with self.recorder.recording(call, path):
            self._settle_move()
            found = self.find(path)
            self.access.refuse_reading(found)
            self.refuse_folder(found)
            data, _ = self.vault.read(found)
            note = _plain(found, data) if raw else _parsed(found, data)
            return Kept(found, note, etag(data))

    def _settle_move(self) -> None:
        """See to it that no note has two names because a move was interrupted."""
        if (self.state / "vault" / "move.json").exists():
            self.mover.settle()

    def refuse_folder(self, path: str) -> None:
        """Refuse a folder where a file is meant."""
        if self.vault.is_folder(path):
            raise Invalid(
                f"{path!r} is a folder",
                remedy="list_notes shows what is in it; notes are moved one by one.",
            )

    def remember(self, call: Call, kept: Kept, *, whole: bool = True) -> str:
        """Remember what an agent was shown, and return the etag for it."""
        tag = kept.etag if whole else f"{kept.etag}{PART}"
        if call.client_session is None:  # nobody knows whether the next call is the same client's
            return tag
        with self._turn:
            key = (call.agent, call.client_session, kept.path)
            self._seen[key] = tag
            self._seen.move_to_end(key)
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return tag

    def write(
        self, call: Call, path: str, values: Mapping[str, Typed], body: str, if_match: str
    ) -> Kept:
        """Make a note, or give one that is known as it is another content."""
        with self.recorder.recording(call, path, changes=True):
            self._settle_move()
            place = self._note_path(self.find(path))
            found = self._opened(call, place, if_match, whole=True)
            if found is None:
                made = _new(values, body)
                self._refuse_active("", made)
                self.refuse_slip(place, made)
                ready = self.tool_note(place, etag(made.raw), call.agent)
                self.vault.create(place, made.raw, ready=ready)
            else:
                note, file, _ = found
                removed = [name for name in note.values if name not in values]
                made = note.revise(values, removed, body)
                self._replace(call, place, note, made, file)
            return self._kept(call, place, made, whole=True)

    def edit(self, call: Call, path: str, edit: Edit, if_match: str) -> Kept:
        """Change a part of a note that is known as it is."""
        with self.recorder.recording(call, path, changes=True):
            self._settle_move()
            place = self._note_path(self.find(path))
            mends = not (edit.set or edit.remove or edit.append or edit.prepend)
            found = self._opened(call, place, if_match, whole=False, mends=mends)
            if found is None:
                raise NotFound(f"There is no note {place!r}", remedy="Make it with write_note.")
            note, file, whole = found
            made = edit.apply(note)
            if len(note.raw) > file.size:  # it was broken, and read as a body alone
                made = Note.parse(made.raw[len(note.raw) - file.size :])
            self._replace(call, place, note, made, file)
            return self._kept(call, place, made, whole=whole)

    def _note_path(self, place: str) -> str:
        self.access.refuse_closed(place)
        place = self.with_end(place, NOTE)
        if not place.lower().endswith(NOTE):
            raise Invalid(f"{place!r} is no note", remedy=f"A note's path ends in {NOTE}.")
        return place

    def with_end(self, path: str, end: str) -> str:
        """Return a new path that may have been given without its end."""
        given = "." in path.rpartition("/")[2] or self.vault.stat(path) is not None
        return path if given else f"{path}{end}"

    def _opened(
        self, call: Call, path: str, if_match: str, *, whole: bool, mends: bool = False
    ) -> tuple[Note, File, bool] | None:
        """Return the note that may now be changed by this agent, and whether it knows all of it.

        None where there is none yet.
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
        self.refuse_letter(path)
        self.access.refuse_writing(path, new=False, theirs=self.made(path, raw))
        try:
            note = Note.parse(raw)
        except Corrupt:
            if not mends:
                raise
            note = _plain(path, raw)
        known = self._compare(call, path, etag(raw), if_match, whole=whole)
        return note, file, known

    def made(self, path: str, raw: bytes) -> bool:
        """Whether it is as a tool has written it."""
        return self.ledger.tool_wrote(self.in_room(path), etag(raw))

    def refuse_letter(self, path: str) -> None:
        """Refuse a draft that is a letter by now."""
        inside = self.in_room(path)
        if found := self.ledger.standing(inside.rpartition("/")[0]).get(inside):
            raise Denied(
                f"{path!r} is the letter {found[0]} now, and out of the tools' hands",
                remedy="Write another draft, or take the letter back (withdraw_letter).",
            )

    def _compare(self, call: Call, path: str, now: str, if_match: str, *, whole: bool) -> bool:
        known = if_match or self._seen.get((call.agent, call.client_session or "", path), "")
        if known == now or (known == now + PART and not whole):
            return known == now
        if known == now + PART:
            raise Conflict(
                f"Not all of {path!r} was shown, and writing it would lose the rest",
                remedy="Change it with edit_note, or read all of it first.",
                etag=known,
            )
        told = "was changed since you read it"
        if not known:
            told = "is there, and you have not read it yet"
        if not known and call.client_session is None:
            told = "is there, and without a session it takes if_match to change it"
        raise Conflict(
            f"{path!r} {told}: nothing was written",
            remedy="Read it as it is now, then decide; if_match takes its etag.",
            etag=now,
        )

    def _replace(self, call: Call, path: str, note: Note, made: Note, file: File) -> None:
        if made.raw == note.raw:
            return
        self._refuse_active(note.source, made)
        self.refuse_marks(path, note)
        self.refuse_slip(path, made)
        try:
            self.replace(path, made.raw, file, call.agent)
        except Conflict as lost:
            with suppress(PostroomError):
                lost.etag = etag(self.vault.read(path)[0])
            raise

    def replace(self, path: str, data: bytes, was: File, agent: str) -> None:
        """Give a file another content, as a tool of this agent."""
        self.vault.replace(path, data, was, self.tool_note(path, etag(data), agent))
        self.free_inode(was)

    def tool_note(self, path: str, tag: str, agent: str) -> Ready:
        """Return what records a file as tool-written.

        The vault calls it between writing and naming the file. A crash before the file has its name
        leaves a row without a file, which does no harm; a file without a row would count as the
        person's.
        """

        def record(inode: int) -> None:
            with self.ledger.write() as book:
                book.add_tool_note(self.in_room(path), inode, tag, agent)

        return record

    def free_inode(self, was: File) -> None:
        """Forget the inode of a file that a tool replaced: from now on others get it.

        Afterwards, not before: until then the file may still be there, under another name too.
        """
        with self.ledger.write(synced=False) as book:
            book.free_inode(was.inode)

    def refuse_marks(self, path: str, note: Note) -> None:
        """Refuse fields by which the desk knows its letters.

        Where it looks, all of them; elsewhere those of a letter that it has, since the person may
        move the note.
        """
        ours = sorted(OURS & note.fields.keys())
        if ours and (self.access.is_workflow(path) or self.ledger.place(note.text("letter")).path):
            raise Denied(
                f"`{ours[0]}` is the desk's own field: tools do not write it in its folders, nor in a"
                " note that names one of its letters",
                remedy="Leave it out. A letter is asked for with `to`, `subject` and a status.",
            )

    def refuse_slip(self, path: str, note: Note) -> None:
        """Refuse a note that would pass for an approval: tools only ask for one, and in Plans/ alone."""
        self.refuse_marks(path, note)
        inside, workflow = self.in_room(path), self.access.is_workflow(path)
        if note.text("type") in TYPES and not inside.startswith(f"{folders.PLANS}/"):
            raise Denied(
                f"A note of the type {note.text('type')} asks for approval, and belongs into"
                f" {folders.PLANS}/",
                remedy=f"Write it to {folders.PLANS}/, or leave `type` out.",
            )
        if workflow and note.text("status").strip().casefold() == "approved":
            raise Denied(
                "Only a person writes `status: approved` in Postroom's folders",
                remedy="Leave it out, or write `status: pending`.",
            )

    def acts(self, before: str, after: str) -> Active | None:
        """Return what was added to a note that acts when it is opened, unless that is allowed."""
        return None if self.active else added(before, after)

    def _refuse_active(self, before: str, made: Note) -> None:
        found = self.acts(before, made.source)
        if found:
            raise Denied(
                f"Line {found.line} has {found.kind}, which acts when the note is opened:"
                f" {found.text!r}",
                remedy="Leave it out, or put it into a code fence of its own; a person can allow it"
                " with `vault.active_content`.",
            )

    def refuse_name(self, path: str) -> None:
        """Refuse a new name that shows as another, or that no link can hold."""
        if clean(path).removed or any(name.strip() != name for name in path.split("/")):
            raise Denied(
                f"{one_line(path)!r} has characters that cannot be seen",
                remedy="Take a name without hidden characters, and without spaces at its ends.",
            )
        folder, _, name = path.rpartition("/")
        new = path if folder and not self.vault.is_folder(folder) else name
        if wrong := sorted(UNLINKED & set(new)):
            raise Invalid(
                f"{path!r} has signs that a link cannot hold: {' '.join(wrong)}",
                remedy="Take a name without them.",
            )

    def _kept(self, call: Call, path: str, made: Note, *, whole: bool) -> Kept:
        """Return the note after it was written, as the index and the desk then have it."""
        if self._keeper:
            with suppress(PostroomError):  # the keeper sees it too
                self.index.refresh(self.vault, [path])
        inside, tag = self.in_room(path), etag(made.raw)
        kept = Kept(path, made, tag)
        kept = kept._replace(etag=self.remember(call, kept, whole=whole))
        if inside.startswith(f"{folders.DRAFTS}/"):
            with suppress(PostroomError):  # the next look takes it
                return self._settled(kept, inside)
        return kept._replace(hint=self.access.hint(path))

    def _settled(self, kept: Kept, inside: str) -> Kept:
        """Return a draft after the desk has looked at it."""
        said = [told for told in self.settle() if told.startswith(f"{inside} ")]
        letter, _ = self.ledger.standing(folders.DRAFTS).get(inside, ("", None))
        proposed = kept.note.text("status") == PROPOSED and kept.note.text("to")
        if letter:
            raw, _ = self.vault.read(kept.path)
            return Kept(kept.path, _parsed(kept.path, raw), etag(raw), letter, WAITS.format(letter))
        if proposed and self.rehearses:
            return kept._replace(
                hint=f"Postroom rehearses ({self.rehearses}): it is no letter yet."
            )
        return kept._replace(hint=said[0] if said else "")

    def moved(self, source: str, target: str) -> None:
        """Take in that a note has another path."""
        self.index.refresh(self.vault, [source, target])
        with self._turn:
            for agent, visit, path in list(self._seen):
                if path == source:  # if the move changed it, this is an old etag
                    known = self._seen.pop((agent, visit, path))
                    self._seen[agent, visit, target] = known

    def find(self, path: str) -> str:
        """Return the path of a file that is there, however its name is composed, `.md` added if need be."""
        place = self.vault.spelled(path)
        if self.vault.stat(place) is None:
            whole = self.vault.spelled(f"{path}{NOTE}")
            return whole if self.vault.stat(whole) is not None else place
        return place

    # Many notes

    @cached_property
    def index(self) -> Index:
        """The index of all notes."""
        from postroom.vault.index import Index  # a server that is never asked for it needs none

        return Index(self.state / "vault" / "index.sqlite")

    @cached_property
    def mover(self) -> Mover:
        """Who moves notes."""
        from postroom.services.note_moves import Mover

        return Mover(self, self.state / "vault")

    def ready(self) -> Progress | None:
        """Return how far the index is; None where it shows the vault as it is."""
        from postroom.vault.keeper import Keeper

        with self._turn:
            if self._keeper is None:
                lock = self.state / "vault" / "index.lock"
                keeper = Keeper(self.vault, self.index, lock, self.access.hidden)
                keeper.start()
                self._keeper = keeper
        progress = self._keeper.progress()
        if progress is None:
            self.mover.recover()
        return progress

    def sweep(self) -> None:
        """See at once what others changed, where a moment's delay would do harm."""
        if self._keeper:
            self._keeper.sweep()

    def list(self, call: Call, folder: str, asked: str, *, limit: int, after: str) -> Listed:
        """Return the notes of a folder and all below that a filter lets through, by path."""
        from postroom.vault.index import conditions

        with self.recorder.recording(call, folder, filter=asked[:200]):
            place = self.folder(folder)
            wanted = conditions(asked) if asked.strip() else []
            found = self._checked(lambda: self.index.list(place, wanted, limit=limit, after=after))
            return Listed(
                [Match(hit.path) for hit in found.hits],
                found.total,
                [f"{place}/{n}" if place else n for n in self.index.subfolders(place, FEW)],
                [path for path, _ in self.index.broken(place, 3)],
            )

    def search(self, call: Call, query: str, *, limit: int, offset: int) -> Listed:
        """Return notes that have these words, the best first."""
        from postroom.vault.index import expression

        with self.recorder.recording(call, query=query[:200]):
            match, loose = expression(query), False
            ask = lambda: self.index.search(match, limit=limit, offset=offset)  # noqa: E731
            found = self._checked(ask)
            if not found.total:
                match, loose = expression(query, prefixes=True), True
                found = self._checked(ask)
            matches = []
            for hit in found.hits:
                with suppress(PostroomError):  # it is gone in this moment
                    raw, _ = self.vault.read(hit.path)
                    matches.append(Match(hit.path, _parsed(hit.path, raw, anyway=True)))
            return Listed(matches, found.total, loose=loose and bool(matches))

    def settling(self, call: Call) -> Generator[Progress, None, None]:
        """Yield how far the index is until it shows the vault; ask again a tenth of a second later."""
        told = ""
        with self.recorder.abandonment(call):
            for _ in range(PATIENCE):
                progress = self.ready()
                if progress is None:
                    return
                told = f"{progress.done} of {progress.total} files"
                yield progress
        raise Unavailable(
            f"The index of the vault is being made: {told}", remedy="Try again in a while."
        )

    def folder(self, folder: str) -> str:
        """Return the path of a folder that is there; the root's is empty."""
        if folder in ("", ".", "./", "/"):
            return ""
        place = self.vault.spelled(folder.removesuffix("/"))
        self.access.refuse_reading(place)
        if not self.vault.changed(place) and not self.access.is_workflow(place):
            raise NotFound(
                f"There is no folder {folder!r} in the vault",
                remedy="list_notes of the folder above it names those that there are.",
            )
        return place

    def _checked(self, ask: Callable[[], Found]) -> Found:
        """Return what the index says, once it says of each file what is on the disk."""
        try:
            found = ask()
        except Corrupt:  # the index itself: it holds nothing that cannot be found out again
            self.index.renew()
            self.sweep()
            found = ask()
        taken = set[str]()  # what was taken in by this very call is no older than it
        for _ in range(ROUNDS):
            stale = [path for path in self._stale(found.hits) if path not in taken]
            if not stale:
                return found
            self.index.refresh(self.vault, stale)
            taken.update(stale)
            found = ask()
        # Somebody saves one note after the other: as of this moment, these are there.
        there = self.vault.stats([hit.path for hit in found.hits])
        return found._replace(hits=[h for h, file in zip(found.hits, there, strict=True) if file])

    def _stale(self, hits: Sequence[Hit]) -> Sequence[str]:
        now = self.vault.stats([hit.path for hit in hits])
        return [hit.path for hit, file in zip(hits, now, strict=True) if file != hit.file]


def _parsed(path: str, raw: bytes, *, anyway: bool = False) -> Note:
    """Return a file as a note; one that is no note, or `anyway` one that is broken, has no fields."""
    if path.lower().endswith(NOTE):
        try:
            return Note.parse(raw)
        except Corrupt:
            if not anyway:
                raise
    return _plain(path, raw.decode(errors="replace").encode() if anyway else raw)


def _plain(path: str, raw: bytes) -> Note:
    """Return a file as a body alone: an empty frontmatter keeps a `---` in it from being taken for one."""
    first = raw.find(b"\n")
    newline = b"\r\n" if raw[max(0, first - 1) : first] == b"\r" else b"\n"
    try:
        return Note.parse(EMPTY.replace(b"\n", newline) + raw)
    except Corrupt as why:
        raise Corrupt(f"{path!r} is no text", remedy="Only text can be read here.") from why


def _new(values: Mapping[str, Typed], body: str) -> Note:
    # Without fields there is no frontmatter, unless the body would be taken for one.
    bare = not values and not body.startswith("---")
    return Note.parse(b"" if bare else EMPTY).revise(values, body=body)
