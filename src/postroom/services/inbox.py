"""Mail that came in: its records in the ledger, what was decided about it, and its notes in the vault.

Each transaction about incoming mail is one method here; a mail that somebody else changed meanwhile is left to the
next round. The ledger decides and the note follows (`desk/note_sync`); what a person added to a note stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final, TypeAlias

from postroom.core.audit import Action
from postroom.core.errors import Conflict, Corrupt, PostroomError
from postroom.core.handbook import MailFacts
from postroom.core.mail_view import MailView
from postroom.core.records import (
    DecidedBy,
    Entry,
    InboxItem,
    InboxState,
    MailboxCursor,
    NoteLocation,
)
from postroom.core.values import dataclass
from postroom.desk.note_sync import NoteSync, SeenNote, seen_at
from postroom.desk.proposals import ORCHESTRATOR
from postroom.desk.unowned_notes import MAIL
from postroom.services import incoming
from postroom.services.incoming import STATUS, name_of, status_of
from postroom.store.ledger import Ledger, Transaction
from postroom.store.sql.mail import InboxValue
from postroom.vault import folders
from postroom.vault.folders import DONE, FAILED, NEEDS_ACTION
from postroom.vault.markdown import inert, link, quote
from postroom.vault.note import Note, render
from postroom.vault.vault import File

CHUNK: Final = 32  # mails that are read and written at once
# Where a mail does not belong.
OTHER_FOLDERS: Final = (
    folders.APPROVED, folders.REJECTED, folders.PENDING, folders.DRAFTS, folders.PLANS,
)  # fmt: skip
OPEN: Final = (
    InboxState.PENDING,
    InboxState.DECIDED,
    InboxState.DRAFTED,
    InboxState.NEEDS_INFO,
    InboxState.DELEGATED,
)
WITHOUT_NOTE: Final = (InboxState.FOUND, InboxState.BEFORE, InboxState.ASIDE)
STATE_AFTER: Final = {
    "archive": InboxState.DONE,
    "needs_info": InboxState.NEEDS_INFO,
    "delegate": InboxState.DELEGATED,
}  # an answer is `decided` first, and then drafted
Changes: TypeAlias = Mapping[str, InboxValue]
DONE_BY_HAND: Final[Changes] = {"state": InboxState.DONE, "by": DecidedBy.PERSON, "held": ""}
JUDGE_AGAIN: Final[Changes] = {
    "state": InboxState.PENDING, "judgement": None, "by": "", "held": "", "wish": "", "letter": "",
}  # fmt: skip


class InboxService:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.records = ledger.inbox  # reads alone

    def chunks(self, state: InboxState) -> Iterator[list[InboxItem]]:
        """Yield the mails in this state, oldest first, some at once; each mail once."""
        row = 0
        while page := self.records.page(state, CHUNK, row):
            row = page[-1][0]
            yield [item for _, item in page]

    def add(
        self,
        account: str,
        cursor: MailboxCursor,
        new: Sequence[str],
        relabelled: Sequence[str] = (),
        *,
        earlier: Sequence[str] = (),
    ) -> int:
        """Record new mails and the mailbox's cursor; return how many mails are to be triaged.

        `relabelled` mails are triaged if they were put aside before; `earlier` ones are recorded and not triaged.
        """
        with self._ledger.write() as tx:
            count = tx.inbox.reopen_aside(account, relabelled) + tx.inbox.add(account, cursor, new)
            if earlier:
                tx.inbox.add(account, cursor, earlier, InboxState.BEFORE)
            return count

    def add_backlog(self, account: str, ids: Sequence[str]) -> int:
        """Record mails that were there before as if they had just come in; return how many."""
        with self._ledger.write() as tx:
            cursor = tx.inbox.cursor(account)
            assert cursor is not None
            count = tx.inbox.add(account, cursor, ids)
            for id in ids:
                item = tx.inbox.get(account, id)
                if item and item.state == InboxState.BEFORE:
                    tx.inbox.change(item, state=InboxState.FOUND)
                    count += 1
            return count

    def close_without_note(self, item: InboxItem, state: InboxState, by: str = "") -> None:
        with suppress(Conflict), self._ledger.write(synced=False) as tx:
            tx.inbox.mark_note_current(tx.inbox.change(item, state=state, by=by))

    def change(self, item: InboxItem, **changes: InboxValue) -> InboxItem | None:
        """Change some fields of a mail and return it; None where somebody else changed it first."""
        with suppress(Conflict), self._ledger.write() as tx:
            return tx.inbox.change(item, **changes)
        return None

    def save_decisions(self, items: Sequence[InboxItem]) -> list[InboxItem]:
        """Record `judgement` and `by` of mails, in one transaction; return those that nobody else changed first."""
        saved = []
        with self._ledger.write() as tx:
            for item in items:
                decision = item.judgement.decision if item.judgement else ""
                action = Action(
                    actor=ORCHESTRATOR,
                    action_type="triage_mail",
                    agent=ORCHESTRATOR,
                    parameters={"message": item.message, "decision": decision, "by": item.by},
                )
                with suppress(Conflict):
                    tx.inbox.change(
                        item,
                        state=STATE_AFTER.get(decision, InboxState.DECIDED),
                        judgement=item.judgement,
                        by=item.by,
                        held="",
                        tries=0,
                        turn=item.turn + 1,
                    )
                    tx.actions.append(action)
                    saved.append(item)
        return saved

    def save_draft(self, item: InboxItem, entry: Entry) -> bool:
        """Record the letter that answers a mail; False where somebody else changed the mail first."""
        with suppress(Conflict), self._ledger.write() as tx:
            tx.inbox.change(
                item, state=InboxState.DRAFTED, letter=entry.id, wish="", held="", tries=0
            )
            if not entry.replaces:
                tx.inbox.add_draft_in_thread(item.account, item.thread, entry.id)
            return True
        return False


@dataclass(slots=True)
class _MailNote:
    """A mail as the source of its note; `mail` is known only until the note is first written."""

    ledger: Ledger
    item: InboxItem
    mail: MailView | None = None

    @property
    def key(self) -> str:
        return self.item.key

    @property
    def folder(self) -> str:
        return {InboxState.DONE: DONE, InboxState.FAILED: FAILED}.get(self.item.state, NEEDS_ACTION)

    def render(self) -> tuple[str, bytes] | None:
        if self.mail is None:
            return None  # a note that a person took away is not written again
        account = self.item.account
        return name_of(account, self.mail), incoming.render_mail(account, self.mail)

    def update(self, raw: bytes, location: NoteLocation) -> bytes:
        note, letter = Note.parse(raw), self.item.letter
        is_edited = hashlib.sha256(raw).hexdigest() != location.hash
        if is_edited and status_of(note) == "done" and self.item.state != InboxState.DONE:
            with self.ledger.write() as tx:  # a person was quicker
                self.item = tx.inbox.change(self.item, **DONE_BY_HAND)
        answer = link(self.ledger.notes.location(letter).path, letter) if letter else ""
        return incoming.update_mail(self.item, note, answer).raw

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
    sync: NoteSync
    inbox: InboxService
    report: Callable[[str], None]
    broken: dict[str, str] = field(default_factory=dict)  # a person's notes that do not parse
    problems: dict[str, str] = field(default_factory=dict)  # by path, in this round
    _strangers: dict[str, File] = field(default_factory=dict)  # files that are not a mail's note

    def create(self, items: Sequence[tuple[InboxItem, MailView, MailFacts]]) -> None:
        """Write the notes of mails that have come in; each is in the ledger before it is in the vault."""
        ledger = self.sync.ledger
        with ledger.write() as tx:
            sources = [
                _MailNote(ledger, tx.inbox.change(item, thread=mail.thread, facts=known), mail)
                for item, mail, known in items
            ]
        for source in sources:
            self.sync.sync(source)

    def finish_write(self, item: InboxItem) -> bool:
        return self.sync.finish_write(_MailNote(self.sync.ledger, item))

    def is_unchanged(self, item: InboxItem) -> bool:
        location = self.sync.ledger.notes.location(item.key)
        return self.sync.read_if(location.path, location.hash) is not None

    def is_filed(self, item: InboxItem, mail: MailView) -> bool:
        """Whether a note of this mail stands in Done/: tools cannot have put it there."""
        return self.sync.vault.stat(f"{DONE}/{name_of(item.account, mail)}") is not None

    def adopt_existing(self, item: InboxItem, mail: MailView, known: MailFacts) -> bool:
        """Go on with a note of this mail that is there already: the ledger is from a backup or before a crash."""
        ledger = self.sync.ledger
        planned_path = ledger.notes.status(item.key).planned_path
        path = planned_path or f"{NEEDS_ACTION}/{name_of(item.account, mail)}"
        seen = self._naming(item, path)
        if not seen or path in ledger.notes.in_folders(NEEDS_ACTION):
            return False
        with ledger.write() as tx:
            tx.notes.finish_write(item.key, seen_at(path, seen.raw, seen.file))
            tx.inbox.change(item, state=InboxState.PENDING, thread=mail.thread, facts=known)
        return True

    def sync_note(self, item: InboxItem) -> None:
        """Bring the note to what the ledger has; a note that does not parse any more is put aside."""
        source = _MailNote(self.sync.ledger, item)
        try:
            self.sync.sync(source, strict=True)
        except Corrupt as why:
            self._quarantine(source.item, why.message)

    def guarded(self, act: Callable[..., None], item: InboxItem, *more: object) -> None:
        """Call a function; an error about one mail must not keep all other mail waiting."""
        try:
            act(item, *more)
        except PostroomError as why:
            path = self.sync.ledger.notes.location(item.key).path or item.message
            self.problems[path] = why.message_with_remedy
            self.report(f"{path}: {self.problems[path]}")

    def _quarantine(self, item: InboxItem, problem: str) -> None:
        """Move a note of ours that does not parse any more to Failed/, as it is, with the reason beside it."""
        vault, status = self.sync.vault, self.sync.ledger.notes.status(item.key)
        old_path = status.location.path
        path, raw, file = old_path, b"", vault.stat(old_path)
        with suppress(Corrupt):  # one that is too large to be read is moved all the same
            raw, file = vault.read(path)
        if file is None:
            return
        if item.state != InboxState.FAILED:
            with self.sync.ledger.write() as tx:
                item = tx.inbox.change(item, state=InboxState.FAILED, held=problem)
        if not path.startswith(f"{FAILED}/"):
            path = self.sync.free_path(FAILED, path.rpartition("/")[2])
            self.sync.plan_write(item.key, path, raw, status)
            file = vault.move(old_path, path, file)
        if vault.stat(_reason_path(path)) is None:
            remedy = f"{problem}. Mend the note, and move it back to {NEEDS_ACTION}/."
            fields = {"status": "failed", "reason": inert(problem), "note": path.rpartition("/")[2]}
            vault.create(_reason_path(path), render(fields, f"\n{quote(remedy)}\n"))
        with self.sync.ledger.write(synced=False) as tx:
            _MailNote(self.sync.ledger, item).record(tx, path, raw, file, current=True)
        self.report(f"{old_path} does not parse any more and went to {FAILED}/: {problem}.")

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

        def remember_stranger(path: str, file: File) -> bool:
            """Remember a file that is not an open mail's note; return whether it is unchanged since the last round."""
            current[path] = file
            return previous.get(path) == file

        missing = dict(items)
        for seen in list(self.sync.scan(NEEDS_ACTION, ignore=remember_stranger)):
            if item := missing.pop(seen.key, None):
                if seen.note or seen.problem:
                    self.guarded(self._take_in, item, seen, stale)
                continue
            if seen.key in stale:
                continue
            # `scan` called `remember_stranger` only for files of which the ledger has no note.
            if seen.key and remember_stranger(seen.path, seen.file):
                continue
            self.broken.pop(seen.path, None)
            with suppress(PostroomError):  # the next round looks again
                self._look_at_stranger(seen, items.keys() | stale)
        for item in missing.values():
            self.guarded(self._look_elsewhere, item, stale)
        self._strangers = current
        self.broken = {path: why for path, why in self.broken.items() if path in current}

    def _take_in(self, item: InboxItem, seen: SeenNote, stale: Collection[str]) -> None:
        """Take in a note that changed where it stands; the status of a stale one may be an old one of ours."""
        if seen.note is None:
            self._quarantine(item, seen.problem)
            return
        self.sync.remember(item.key, seen)
        status = status_of(seen.note)
        left_to_person = item.state in (InboxState.NEEDS_INFO, InboxState.DELEGATED)
        if status == "done":
            self._change(item, DONE_BY_HAND)
        elif status == "pending" and left_to_person and item.key not in stale:
            self._change(item, JUDGE_AGAIN)
        elif status != STATUS.get(item.state, item.state):
            if item.key not in stale:
                rule = "Write `done` there, or `pending` if the mail waits for you."
                self.report(f"The status of {seen.path} was put back. {rule}")
            self.sync_note(item)

    def _change(self, item: InboxItem, changes: Changes) -> None:
        if changed := self.inbox.change(item, **changes):
            self.sync_note(changed)

    def _look_elsewhere(self, item: InboxItem, stale: Collection[str]) -> None:
        """Look for a note that is not in Needs_Action/: in its place, or moved; if it is gone, close the mail."""
        location, vault = self.sync.ledger.notes.location(item.key), self.sync.vault
        (file,) = vault.stats([location.path])  # None for a link or folder, unlike `stat`
        if file is not None:
            if file.stamp != location.file_stamp:
                self._take_in(item, self.sync.open(location.path, file), stale)
        elif self.finish_write(item) or not location.path:
            return
        elif moved := self._find_moved(item, location.path.rpartition("/")[2]):
            if moved.folder in OTHER_FOLDERS:
                self.report(f"{moved.path} is a mail, and went back to {NEEDS_ACTION}/.")
                path = self.sync.move_file(moved.path, moved.file, NEEDS_ACTION)
                moved = self.sync.open(path, moved.file)
            self.sync.remember(item.key, moved)
            if moved.folder == DONE:
                self._change(item, DONE_BY_HAND)
        elif vault.stat(location.path) is None:  # an editor may have put it back meanwhile
            gone = f"{location.path} was deleted or taken away"
            self.report(f"{gone}: nothing more is done about that mail.")
            self.inbox.close_without_note(item, InboxState.GONE, DecidedBy.PERSON)

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
        with suppress(PostroomError):
            raw, file = self.sync.vault.read(path)
            note = Note.parse(raw)
            names = tuple(map(note.text, ("type", "account", "id")))
            if names == (MAIL, item.account, item.message):
                return SeenNote(path, file, item.key, note)
        return None

    def _note_of(self, item: InboxItem, path: str) -> SeenNote | None:
        """Return the note that we wrote of this mail, by file or text: anybody can write one that names the mail."""
        seen, location = self._naming(item, path), self.sync.ledger.notes.location(item.key)
        if not seen:
            return None
        is_same_text = hashlib.sha256(seen.raw).hexdigest() == location.hash
        is_mended = item.state == InboxState.FAILED and self.sync.vault.stat(location.path) is None
        # Not in Plans/, where tools may write: a file system reuses inodes.
        is_same_file = seen.file.inode == location.inode and seen.folder != folders.PLANS
        is_it = is_same_text or seen.folder == DONE or is_same_file or is_mended
        return seen if is_it else None

    def _look_at_stranger(self, seen: SeenNote, keys: Collection[str]) -> None:
        """Look at a note that is not an open mail's: one that a person brought back is its mail's again."""
        opened = seen if seen.note or seen.problem else self.sync.open(seen.path, seen.file)
        path, note = opened.path, opened.note
        if note is None:
            self.broken[path] = opened.problem
            return
        item = self.inbox.records.get(note.text("account"), note.text("id"))
        if item is None or item.key in keys or item.state in WITHOUT_NOTE:
            return
        found = self._note_of(item, path)
        if found is None:
            return
        reason = self.sync.vault.stat(_reason_path(f"{FAILED}/{path.rpartition('/')[2]}"))
        if item.state == InboxState.FAILED and reason:
            # The note is repaired, so the reason does not apply any more.
            with suppress(PostroomError):
                self.sync.vault.remove(f"{FAILED}/{reason.name}", reason)
        self.report(f"{path} was brought back, and is judged again.")
        self.sync.remember(item.key, found)
        self._change(item, JUDGE_AGAIN)


def _reason_path(path: str) -> str:
    return f"{path.removesuffix('.md')} (why).md"
