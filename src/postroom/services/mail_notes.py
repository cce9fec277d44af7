"""The notes of mail that came in: write them, keep them in step with the ledger, take in what people did.

As with letters, the ledger decides and the note follows (`desk/note_sync`); what a person added stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final, TypeAlias

from postroom.core.errors import Conflict, Corrupt, PostroomError
from postroom.core.handbook import MailFacts
from postroom.core.mail_view import MailView
from postroom.core.records import DecidedBy, InboxItem, InboxState, NoteLocation
from postroom.core.values import dataclass
from postroom.desk.note_sync import NoteSync, SeenNote, seen_at
from postroom.desk.unowned_notes import MAIL
from postroom.services.incoming import (
    STATUS,
    folder,
    name_of,
    render_mail,
    status_of,
    update_mail,
)
from postroom.store.ledger import Transaction
from postroom.vault.folders import (
    APPROVED,
    DONE,
    DRAFTS,
    FAILED,
    NEEDS_ACTION,
    PENDING,
    PLANS,
    REJECTED,
)
from postroom.vault.markdown import inert, link, quote
from postroom.vault.note import Note, render
from postroom.vault.vault import File

OTHER_FOLDERS: Final = (APPROVED, REJECTED, PENDING, DRAFTS, PLANS)  # where a mail does not belong
OPEN: Final = (
    InboxState.PENDING,
    InboxState.DECIDED,
    InboxState.DRAFTED,
    InboxState.NEEDS_INFO,
    InboxState.DELEGATED,
)
NO_NOTE: Final = (InboxState.FOUND, InboxState.BEFORE, InboxState.ASIDE)
Changes: TypeAlias = Mapping[str, str | None]
DONE_BY_HAND: Final[Changes] = {"state": InboxState.DONE, "by": DecidedBy.PERSON, "held": ""}
JUDGE_AGAIN: Final[Changes] = {
    "state": InboxState.PENDING, "judgement": None, "by": "", "held": "", "wish": "", "letter": "",
}  # fmt: skip


def changes_by_status(state: InboxState, status: str, *, is_current: bool) -> Changes | None:
    """Return what a status that a person wrote changes: `done`, or `pending` to be judged again.

    A status in a note that does not show the ledger's state yet (not `is_current`) may be an old one of ours.
    """
    if status == "done":
        return DONE_BY_HAND
    left_to_person = state in (InboxState.NEEDS_INFO, InboxState.DELEGATED)
    if status == "pending" and is_current and left_to_person:
        return JUDGE_AGAIN
    return None


@dataclass(slots=True)
class _MailNote:
    """A mail as the source of its note."""

    notes: MailNotes
    item: InboxItem

    @property
    def key(self) -> str:
        return self.item.key

    @property
    def folder(self) -> str:
        return folder(self.item)

    def render(self) -> None:
        """Return None: a note that a person took away is not written again."""

    def update(self, raw: bytes, location: NoteLocation) -> bytes:
        note, ledger = Note.parse(raw), self.notes.sync.ledger
        is_edited = hashlib.sha256(raw).hexdigest() != location.hash
        if is_edited and status_of(note) == "done" and self.item.state != InboxState.DONE:
            with ledger.write() as tx:  # a person was quicker
                self.item = tx.inbox.change(self.item, **DONE_BY_HAND)
        letter = self.item.letter
        answer = link(ledger.notes.location(letter).path, letter) if letter else ""
        return update_mail(self.item, note, answer).raw

    def record(self, tx: Transaction, path: str, data: bytes, file: File, *, current: bool) -> None:
        tx.notes.finish_write(self.key, seen_at(path, data, file))
        if self.item.state == InboxState.FOUND:
            self.item = tx.inbox.change(
                self.item, state=InboxState.PENDING, changed=self.item.changed
            )
        elif not current:
            return
        tx.inbox.mark_note_current(self.item)


@dataclass(slots=True)
class MailNotes:
    """Writes the notes of mail, and takes in what was done to them."""

    sync: NoteSync
    report: Callable[[str], None]
    broken: dict[str, str] = field(default_factory=dict)  # a person's notes that do not parse
    problems: dict[str, str] = field(default_factory=dict)  # by path, in this round
    _strangers: dict[str, File] = field(default_factory=dict)  # files that are no mail's note

    # Writing

    def create(self, items: Sequence[tuple[InboxItem, MailView, MailFacts]]) -> None:
        """Write the notes of mails that have come in; each is in the ledger before it is in the vault."""
        begun: list[tuple[_MailNote, str, bytes]] = []
        with self.sync.ledger.write() as tx:
            for item, mail, known in items:
                data = render_mail(item.account, mail)
                path = self.sync.free_path(NEEDS_ACTION, name_of(item.account, mail))
                tx.notes.plan_write(item.key, path, hashlib.sha256(data).hexdigest())
                changed = tx.inbox.change(item, thread=mail.thread, facts=known)
                begun.append((_MailNote(self, changed), path, data))
        written: list[tuple[_MailNote, str, bytes, File]] = []
        for source, path, data in begun:
            # If the name was taken in this moment, the next round finds another.
            with suppress(Conflict):
                written.append((source, path, data, self.sync.vault.create(path, data)))
        with self.sync.ledger.write(synced=False) as tx:
            for source, path, data, file in written:
                source.record(tx, path, data, file, current=True)

    def finish_write(self, item: InboxItem) -> bool:
        """Bring the write of a new note to its end that was interrupted; return whether it had begun."""
        source = _MailNote(self, item)
        if self.sync.finish_write(source):
            return True
        path = self.sync.ledger.notes.planned_write(item.key)[0]
        # A person may have edited it before we could record that it is there.
        is_new = bool(path) and item.state == InboxState.FOUND
        seen = self._naming(item, path) if is_new else None
        if seen:
            with self.sync.ledger.write(synced=False) as tx:
                source.record(tx, path, seen.raw, seen.file, current=False)
        return seen is not None

    def is_unchanged(self, item: InboxItem) -> bool:
        """Whether the note of a mail still has the text that it last had."""
        location = self.sync.ledger.notes.location(item.key)
        try:
            raw = self.sync.vault.read(location.path)[0]
        except PostroomError:
            return False
        return hashlib.sha256(raw).hexdigest() == location.hash

    def is_filed(self, item: InboxItem, mail: MailView) -> bool:
        """Whether a note of this mail stands in Done/: tools cannot have put it there."""
        return self.sync.vault.stat(f"{DONE}/{name_of(item.account, mail)}") is not None

    def adopt_existing(self, item: InboxItem, mail: MailView, known: MailFacts) -> bool:
        """Go on with a note of this mail that is there already: the ledger came from a backup."""
        path, ledger = f"{NEEDS_ACTION}/{name_of(item.account, mail)}", self.sync.ledger
        seen = self._naming(item, path)
        if not seen or path in ledger.notes.in_folders(NEEDS_ACTION):
            return False
        with ledger.write() as tx:
            tx.notes.finish_write(item.key, seen_at(path, seen.raw, seen.file))
            pending = InboxState.PENDING
            tx.inbox.change(item, state=pending, thread=mail.thread, facts=known)
        return True

    def sync_note(self, item: InboxItem) -> None:
        """Bring the note to what the ledger has; a note that does not parse any more is put aside."""
        source = _MailNote(self, item)
        try:
            self.sync.sync(source, strict=True)
        except Corrupt as why:
            self._quarantine(source.item, why.message)

    def guarded(
        self, act: Callable[..., None], item: InboxItem, *more: object, **options: object
    ) -> None:
        """Call a function; an error about one mail must not keep all other mail waiting."""
        try:
            act(item, *more, **options)
        except PostroomError as why:
            path = self.sync.ledger.notes.location(item.key).path or item.message
            self.problems[path] = why.message_with_remedy
            self.report(f"{path}: {self.problems[path]}")

    def _quarantine(self, item: InboxItem, problem: str) -> None:
        """Move a note of ours that does not parse any more to Failed/, as it is, with the reason beside it."""
        vault, old_path = self.sync.vault, self.sync.ledger.notes.location(item.key).path
        path, raw, file = old_path, b"", vault.stat(old_path)
        with suppress(Corrupt):  # one that is too large to be read is moved all the same
            raw, file = vault.read(path)
        if file is None:
            return
        if item.state != InboxState.FAILED:
            with self.sync.ledger.write() as tx:
                item = tx.inbox.change(item, state=InboxState.FAILED, held=problem)
        if not path.startswith(f"{FAILED}/"):
            path = self.sync.reserve_path(item.key, FAILED, path.rpartition("/")[2], raw)
            file = vault.move(old_path, path, file)
        reason_path = f"{path.removesuffix('.md')} (why).md"
        if vault.stat(reason_path) is None:
            remedy = f"{problem}. Mend the note, and move it back to {NEEDS_ACTION}/."
            name = path.rpartition("/")[2]
            fields = {"status": "failed", "reason": inert(problem), "note": name}
            vault.create(reason_path, render(fields, f"\n{quote(remedy)}\n"))
        with self.sync.ledger.write(synced=False) as tx:
            _MailNote(self, item).record(tx, path, raw, file, current=True)
        self.report(f"{old_path} does not parse any more and went to {FAILED}/: {problem}.")

    # What people did

    def reconcile(self) -> None:
        """Take in what was done to the notes of mail that is still to be dealt with."""
        self.problems.clear()
        if not self.sync.vault.is_folder(NEEDS_ACTION):
            return  # a sync client may be about to bring it: nothing in it was deleted
        with self.sync.ledger.read() as tx:
            items = {item.key: item for item in tx.inbox.in_states(*OPEN)}
            # The note of a stale item is not where it belongs, and its status nobody's word.
            stale = {item.key for item in tx.inbox.with_stale_note()}
        previous, current = self._strangers, dict[str, File]()

        def is_known_stranger(path: str, file: File) -> bool:
            current[path] = file
            return previous.get(path) == file

        present, strangers = set[str](), list[SeenNote]()
        for seen in list(self.sync.scan(NEEDS_ACTION, ignore=is_known_stranger)):
            if seen.key in items:
                present.add(seen.key)
                if seen.note or seen.problem:
                    is_current = seen.key not in stale
                    self.guarded(self._take_in, items[seen.key], seen, is_current=is_current)
            elif seen.key not in stale:
                is_known = bool(seen.key) and is_known_stranger(seen.path, seen.file)
                strangers += [] if is_known else [seen]
        for key in [key for key in items if key not in present]:
            self.guarded(self._look_elsewhere, items[key], is_current=key not in stale)
        self._strangers = current
        self.broken = {path: why for path, why in self.broken.items() if path in current}
        self._look_at_strangers(strangers, items.keys() | stale)

    def _take_in(self, item: InboxItem, seen: SeenNote, *, is_current: bool) -> None:
        """Take in a note that changed where it stands."""
        if seen.note is None:
            self._quarantine(item, seen.problem)
            return
        self.sync.remember(item.key, seen)
        status = status_of(seen.note)
        if changes := changes_by_status(item.state, status, is_current=is_current):
            self._change(item, changes)
        elif status != STATUS.get(item.state, item.state):
            if is_current:
                rule = "Write `done` there, or `pending` if the mail waits for you."
                self.report(f"The status of {seen.path} was put back. {rule}")
            self.sync_note(item)

    def _change(self, item: InboxItem, changes: Changes) -> None:
        try:
            with self.sync.ledger.write() as tx:
                item = tx.inbox.change(item, **changes)
        except Conflict:
            return
        self.sync_note(item)

    def _look_elsewhere(self, item: InboxItem, *, is_current: bool) -> None:
        """Look for a note that is not in Needs_Action/ under its name."""
        location, vault = self.sync.ledger.notes.location(item.key), self.sync.vault
        (file,) = vault.stats([location.path])
        if file is not None:
            if file[1:] != location[-3:]:
                seen = self.sync.open(location.path, file)
                self._take_in(item, seen, is_current=is_current)
            return
        if self.finish_write(item) or not location.path:
            return
        if moved := self._find_moved(item, location.path.rpartition("/")[2]):
            if moved.folder in OTHER_FOLDERS:
                self.report(f"{moved.path} is a mail, and went back to {NEEDS_ACTION}/.")
                path = self.sync.move_file(moved.path, moved.file, NEEDS_ACTION)
                moved = self.sync.open(path, moved.file)
            self.sync.remember(item.key, moved)
            if moved.folder == DONE:
                self._change(item, DONE_BY_HAND)
        elif vault.stat(location.path) is None:  # an editor may have put it back meanwhile
            self.report(
                f"{location.path} was deleted or taken away: nothing more is done about that mail."
            )
            with self.sync.ledger.write() as tx:
                tx.inbox.mark_note_current(
                    tx.inbox.change(item, state=InboxState.GONE, by=DecidedBy.PERSON)
                )

    def _find_moved(self, item: InboxItem, name: str) -> SeenNote | None:
        """Return a mail's note that was renamed in Needs_Action/, or moved to another workflow folder."""
        known = self.sync.ledger.notes.in_folders(NEEDS_ACTION)
        renamed = [f"{NEEDS_ACTION}/{file.name}" for file in self.sync.vault.list(NEEDS_ACTION)]
        paths = [path for path in renamed if known.get(path, ("",))[0] in ("", item.key)]
        paths += [f"{folder}/{name}" for folder in (DONE, *OTHER_FOLDERS)]
        return next(filter(None, (self._note_of(item, path) for path in paths)), None)

    def _naming(self, item: InboxItem, path: str) -> SeenNote | None:
        """Return a note that names this mail, and that no tool wrote."""
        if self.sync.ledger.tool_notes.has(path):
            return None
        try:
            raw, file = self.sync.vault.read(path)
            note = Note.parse(raw)
        except PostroomError:
            return None
        names = (note.text("type"), note.text("account"), note.text("id"))
        is_it = names == (MAIL, item.account, item.message)
        return SeenNote(path, file, item.key, note) if is_it else None

    def _note_of(self, item: InboxItem, path: str) -> SeenNote | None:
        """Return the note that we wrote of this mail: it names it, and is that very file or text.

        Otherwise anybody could write one that names a mail.
        """
        seen = self._naming(item, path)
        if not seen:
            return None
        location = self.sync.ledger.notes.location(item.key)
        is_same_text = hashlib.sha256(seen.raw).hexdigest() == location.hash
        is_mended = item.state == InboxState.FAILED and self.sync.vault.stat(location.path) is None
        # Not in Plans/, where tools may write: a file system reuses inodes.
        is_same_file = seen.file.inode == location.inode and seen.folder != PLANS
        is_it = is_same_text or seen.folder == DONE or is_same_file or is_mended
        return seen if is_it else None

    def _look_at_strangers(self, strangers: list[SeenNote], keys: Collection[str]) -> None:
        """Look at notes that are no open mail's: one that a person brought back is its mail's again."""
        for seen in strangers:
            self.broken.pop(seen.path, None)
            with suppress(PostroomError):  # the next round looks again
                opened = seen if seen.note or seen.problem else self.sync.open(seen.path, seen.file)
                if opened.problem:
                    self.broken[seen.path] = opened.problem
                elif opened.note and opened.note.text("type") == MAIL:
                    self._bring_back(seen.path, opened.note, keys)

    def _bring_back(self, path: str, note: Note, keys: Collection[str]) -> None:
        with self.sync.ledger.read() as tx:
            item = tx.inbox.get(note.text("account"), note.text("id"))
        if item is None or item.key in keys or item.state in NO_NOTE:
            return
        seen = self._note_of(item, path)
        if seen is None:
            return  # anybody can write a note that names a mail
        reason_path = f"{FAILED}/{path.rpartition('/')[2].removesuffix('.md')} (why).md"
        if item.state == InboxState.FAILED and (file := self.sync.vault.stat(reason_path)):
            with suppress(PostroomError):  # it told what is mended now
                self.sync.vault.remove(reason_path, file)
        self.report(f"{path} was brought back, and is judged again.")
        self.sync.remember(item.key, seen)
        self._change(item, JUDGE_AGAIN)
