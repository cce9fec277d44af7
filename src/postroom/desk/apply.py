"""Shows letters as notes in the vault, and carries out what people decide by moving and editing notes.

`NoteDisplay` reads the folders, gets a list of actions from `plan`, and performs them: each action changes a letter
in the ledger, then writes the note as the ledger has the letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from postroom.core import life
from postroom.core.errors import Conflict, Corrupt, Denied, Invalid, NotFound, PostroomError
from postroom.core.records import NO_NOTE, DeskSettings, Entry, ExpectedNote, InboxItem
from postroom.core.text import one_line
from postroom.desk import plan
from postroom.desk.note_files import LetterFiles
from postroom.desk.note_sync import NoteSync, SeenNote
from postroom.desk.notes import LetterSource, is_sent_within_call, text_of
from postroom.desk.proposals import PERSON, Composer, Proposals, normalize_text
from postroom.desk.unowned_notes import Slip, UnownedNotes
from postroom.desk.verdicts import Verdicts
from postroom.store.ledger import Change
from postroom.vault import folders
from postroom.vault.note import Note
from postroom.vault.vault import Vault

SCANNED_FOLDERS: Final = (*plan.HOMES, folders.APPROVED)
RACY: Final = 2_000_000_000  # nanoseconds within which two changes may share one time stamp
MAX_SCANS: Final = 3  # a note that is missing may be on its way between two folders: scan again
# Before one of these events, the note's place is recorded. Otherwise, after a crash between the event and the note's
# move back, its place would count as another verdict.
LOCATED_FIRST: Final = ("edit", "reopen")
_LETTER_LIKE: Final = re.compile(rb"pending_approval|letter")


class NoteDisplay:
    """The letters of a desk as notes in its vault; the desk's lock is held for each call."""

    def __init__(
        self, vault: Vault, desk: str, composer: Composer, proposals: Proposals, verdicts: Verdicts
    ) -> None:
        self._vault, self._desk, self._verdicts = vault, desk, verdicts
        self._ledger, self._rules, self._clock = proposals.ledger, proposals.rules, proposals.clock
        self._sync = NoteSync(vault, proposals.ledger)
        self._files = LetterFiles(vault, proposals.ledger.letters.find)
        self._reports: list[str] = []
        self._report = self._reports.append
        self._unowned = UnownedNotes(
            self._sync, composer, proposals, verdicts, self.sync, self._report
        )
        self._seen: dict[str, SeenNote] = {}  # the notes of the last scan, by path
        self._had_conflict = False  # somebody changed a note or letter during this reconcile
        self._settings = DeskSettings()  # as of the beginning of the last reconcile

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Carry out what people did to the notes, and update the notes; return messages for them (see `Desk`)."""
        self._reports.clear()
        self._unowned.begin()
        self._had_conflict = False
        if adopt:
            self._adopt_requests()
        for id in self._ledger.letters.with_old_html():
            with self._guarded(f"The letter {id}"):
                if entry := self._verdicts.refreeze(id):
                    notice = next(one.text for one in entry.card.lines if one.kind == "refrozen")
                    self._report(f"The letter {id}: {notice}")
                    self.sync(entry, notice)
        self._settings = self._ledger.settings
        # Read once for all letters. `_plan_letter` reads a letter again before anything is done about it.
        expected = {note.key: note for note in self._ledger.notes.expected(*SCANNED_FOLDERS)}
        states = {note.key: note.letter for note in expected.values() if note.letter}
        for expired in self._verdicts.expire(states):
            del expected[expired.id]
            self.sync(expired)
        letters = self._scan(expected)
        for seen in letters.pop("", []):
            self._reconcile_unowned(seen)
        self._reconcile_letters(expected, letters)
        self._files.sweep({id for id, note in expected.items() if note.is_open})
        if adopt and self._rules.live and self._rules.trust == "folder":
            for slip in self.slips():
                with self._guarded(slip.path):
                    waiting = [entry.id for entry in self._unowned.waiting_for(slip)]
                    self._perform(plan.plan_slip(slip.path, slip.hash, waiting))
        return list(self._reports)

    def sync(self, entry: Entry, notice: str | None = "", *, restore: bool = False) -> None:
        self._ledger.apply(self.write(entry, notice, restore=restore))

    def write(
        self, entry: Entry, notice: str | None = "", *, retext: bool = False, restore: bool = False
    ) -> Change | None:
        """Write a letter's note, in its folder and as the ledger has the letter; return a function that records it.

        None if nothing was written. A `notice` of None keeps the notice in the note. `retext` replaces the text in the
        note too, after an edit elsewhere. A note that is missing is written again only with `restore`: somebody may
        have moved it.
        """
        location = entry.note.location
        old = self._sync.read_if(location.path, location.hash)
        if not old and entry.note != NO_NOTE:  # the note changed after the letter was read
            entry = self._ledger.letters.get(entry.id)
        notice = entry.note.location.notice if notice is None else notice
        source = LetterSource(
            self._ledger,
            self._rules,
            self._desk,
            entry,
            notice,
            retext,
            # Before the note, so that it has no link to a file that is missing.
            self._files.write(entry) if _has_files(entry) else None,
            self._answered_note(entry),
        )
        change = self._sync.write(source, restore=restore, status=entry.note, old=old)
        if change and entry.letter.attachments and entry.kind not in life.OPEN:
            self._files.remove(entry.letter)
        if change is None and entry.note == NO_NOTE:
            current = self._ledger.letters.get(entry.id)
            if current.note != NO_NOTE:  # another process wrote the first note meanwhile
                return self.write(current, notice, retext=retext, restore=restore)
        return change

    def _answered_note(self, entry: Entry) -> str:
        """Return the path of the note of the mail that a letter answers; empty if there is none."""
        answers = entry.card.answers
        if answers is None:
            return ""
        mail = InboxItem(entry.letter.account, answers.message)
        path = self._ledger.notes.location(mail.key).path
        return path if path and self._vault.stat(path) else ""

    def is_untouched(self, entry: Entry) -> bool:
        """Whether an approved letter's note, and the slip that approved it, are unchanged since the last scan."""
        verdict = getattr(entry.state, "verdict", None)
        if verdict is None:
            return False
        if verdict.slip:
            slip = self._slip(verdict.slip)
            # Two contents may have the same time stamp, so the content is compared too.
            if slip is None or self._vault.stat(slip.path) != slip.seen.file:
                return False
            if self._vault.read(slip.path)[0] != slip.seen.raw:
                return False
        location = entry.note.location
        if not location.path:
            return is_sent_within_call(entry.state)
        file = self._vault.stat(location.path)
        is_same = file is not None and file.stamp == location.file_stamp
        return is_same and location.path.startswith(f"{plan.folder(entry.state, entry.home)}/")

    def text(self, entry: Entry) -> str | None:
        """Return the text in a letter's note; None without a note, or if it cannot be read."""
        path = entry.note.location.path
        # The note may have moved since the letter was read.
        if not path or self._vault.stat(path) is None:
            path = self._ledger.notes.location(entry.id).path
        try:
            return text_of(entry, Note.parse(self._vault.read(path)[0])) if path else None
        except PostroomError:
            return None

    def slips(self, *, spent: bool = False) -> list[Slip]:
        """Return the slips of the last scan that can still be spent, newest first; with `spent`, also the spent ones."""
        approved = [one for one in self._seen.values() if one.folder == folders.APPROVED]
        return self._unowned.slips_among(approved, spent=spent)

    def _slip(self, hash: str) -> Slip | None:
        return next((slip for slip in self.slips(spent=True) if slip.hash == hash), None)

    def file_slip(self, hash: str) -> None:
        """Move a slip whose letter was sent to `Done/`; if somebody changes it now, the next reconcile does it."""
        slip = self._slip(hash)
        if slip and self._vault.stat(slip.path) == slip.seen.file:
            self._reconcile_unowned(slip.seen)

    # Steps of a reconcile

    @contextmanager
    def _guarded(self, subject: str) -> Iterator[None]:
        """Keep an error about one note or letter from stopping the others.

        A conflict means that somebody decides, moves or edits at this moment; the next reconcile sees the result. An
        error in the note itself is reported with `subject`. Any other error is raised.
        """
        try:
            yield
        except (Conflict, NotFound):
            self._had_conflict = True
        except (Corrupt, Denied, Invalid) as why:
            self._report(f"{subject}: {why.message}. {why.remedy}")

    def _reconcile_unowned(self, seen: SeenNote) -> None:
        with self._guarded(seen.path):
            self._perform(plan.plan_unowned(self._unowned.classify(seen), self._rules))

    def _adopt_requests(self) -> None:
        # Move the requests from `Plans/` to `Pending_Approval/`, as many as letters may wait.
        settled_before = self._settled_before()
        requests = self._unowned.requests_in(folders.PLANS, settled_before)
        if not requests:
            return
        waiting = len(self._unowned.requests_in(folders.PENDING, settled_before))
        most = self._rules.open_letters
        room = max(0, most - waiting)
        if len(requests) > room:
            count = max(waiting, most)
            self._report(f"{count} requests wait already; the others stay in {folders.PLANS}/.")
        for seen in requests[:room]:
            self._seen[seen.path] = seen
            self._reconcile_unowned(seen)

    def _reconcile_letters(
        self, expected: dict[str, ExpectedNote], letters: dict[str, list[SeenNote]]
    ) -> None:
        # Open letters, those whose note is still to be written or recorded, and those whose note was found in a folder.
        # The text of an open note depends on the trust level: at a new level all are written again.
        is_trust_new = self._settings.notes_trust != self._rules.trust
        needs_note = (
            id
            for id, note in expected.items()
            if note.is_open or note.is_planned or not note.location.path
        )
        for id in dict.fromkeys((*needs_note, *letters)):
            if id in self._unowned.handled:
                continue
            found, note = letters.get(id, []), expected.get(id)
            if note and note.letter and note.is_open and not is_trust_new:
                path, files = note.location.path, [_letter_note(one) for one in found]
                is_current = note.location.version == note.letter.version
                is_current = is_current and self._files.are_current(id, note.location)
                if is_current and plan.is_untouched(note.letter.state, path, files):
                    continue
            with self._guarded(f"The letter {id}"):
                self._reconcile_letter(id, found)
        if is_trust_new and not self._had_conflict:
            with self._ledger.write(synced=False) as tx:
                tx.save_settings(replace(tx.settings, notes_trust=self._rules.trust))

    def _reconcile_letter(self, id: str, seen: list[SeenNote]) -> None:
        try:
            entry = self._ledger.letters.get(id)
        except NotFound:
            unknown = f"names the letter {one_line(id)[:20]}, which this desk does not know."
            return self._perform([plan.Report(f"{one.path} {unknown}") for one in seen[:1]])
        location, planned = entry.note.location, entry.note.planned_path
        is_unfinished = self._sync.read_if(planned, entry.note.planned_hash) is not None
        slip = entry.state.verdict.slip if isinstance(entry.state, life.Approved) else ""
        record = plan.LetterRecord(
            id=id,
            state=entry.state,
            home=entry.home,
            text=normalize_text(entry.letter.text),
            location=location.path,
            is_at_location=bool(location.path) and self._vault.stat(location.path) is not None,
            unfinished_write=planned if is_unfinished else "",
            is_slip_gone=bool(slip) and self._slip(slip) is None,
            notice=location.notice,
        )
        source = LetterSource(self._ledger, self._rules, self._desk, entry)
        files = [_letter_note(one, source) for one in seen]
        return self._perform(plan.plan_letter(record, files, self._rules), entry)

    # Reading the folders

    def _settled_before(self) -> int:
        return int(self._clock().wall * 1e9) - RACY

    def _scan(self, expected: dict[str, ExpectedNote]) -> dict[str, list[SeenNote]]:
        """Return the notes in the folders by the letter that each names, under "" those that name none."""
        known = {note.location.path: (id, note.location) for id, note in expected.items()}
        for _ in range(MAX_SCANS):
            settled_before = self._settled_before()
            seen: list[SeenNote] = []
            for folder in SCANNED_FOLDERS:
                # There may be thousands of ordinary drafts, and parsing YAML is slow.
                unknown = _LETTER_LIKE if folder == folders.DRAFTS else None
                seen += self._sync.scan(
                    folder, settled_before=settled_before, unknown=unknown, known=known
                )
            letters = self._by_letter(seen)
            missing = [
                id
                for id, note in expected.items()
                if note.is_open
                and note.location.path
                and note.location.path not in (one.path for one in letters.get(id, ()))
            ]
            # Rejected/ may be large, and is read only if the folder has changed or a note is missing elsewhere.
            changed = self._vault.folder_mtime(folders.REJECTED)
            is_seen = self._settings.rejected_changed == changed and changed < settled_before
            if not is_seen or missing:
                seen += self._sync.scan(folders.REJECTED, settled_before=settled_before)
                letters = self._by_letter(seen)
                with self._ledger.write(synced=False) as tx:
                    tx.save_settings(replace(tx.settings, rejected_changed=changed))
            if all(id in letters for id in missing):
                break
        for one in seen:
            if one.problem:
                self._report(f"{one.path} cannot be read. {one.problem}. It is ignored.")
            elif self._letter_of(one) is None:
                self._report(f"{one.path} belongs to another desk and is ignored here.")
        self._seen = {one.path: one for one in seen}
        return letters

    def _letter_of(self, seen: SeenNote) -> str | None:
        """Return the id of the letter that a note names, "" for none; None if it is unreadable or another desk's."""
        if seen.note is None:
            return seen.key or None
        letter, desk = seen.note.text("letter"), seen.note.text("desk")
        return None if letter and desk not in ("", self._desk) else letter

    def _by_letter(self, seen: Iterable[SeenNote]) -> dict[str, list[SeenNote]]:
        letters: dict[str, list[SeenNote]] = {}
        for one in seen:
            if (letter := self._letter_of(one)) is not None:
                letters.setdefault(letter, []).append(one)
        return letters

    # Performing

    def _perform(self, actions: Iterable[plan.Action], planned: Entry | None = None) -> None:
        """Perform the actions that were planned for a letter as it was then, or for a file that names none."""
        for action in actions:
            match action:
                case plan.Report(sentence):
                    self._report(sentence)
                case plan.Update():
                    self._update(action, planned)
                case plan.FileAction(path):
                    self._seen[path] = self._unowned.act(action, self._seen[path])

    def _update(self, action: plan.Update, planned: Entry | None) -> None:
        # Carry out the verdict, record the place where the person left the note, and write the note. A verdict that is
        # refused becomes a notice in the note, which goes back.
        id, path = action.letter, action.path
        is_located_first = action.event in LOCATED_FIRST
        if is_located_first:
            self._sync.remember(id, self._seen[path])
        try:
            entry = self._decide(action, planned)
        except PostroomError as why:
            if action.event == "edit":
                refusal = f"Its new text was not taken: {why.message}."
            elif action.event == "approve" and path and isinstance(why, Denied | Conflict):
                refusal = f"{why.message}. {why.remedy}"
            else:
                raise
            action, entry = plan.put_back(id, path, refusal), self._ledger.letters.get(id)
        if action.report:
            self._report(action.report)
        if path and not is_located_first:
            self._sync.remember(id, self._seen[path])
        entry = self._ledger.letters.get(id) if path else entry
        self.sync(entry, action.notice, restore=action.restore)

    def _decide(self, action: plan.Update, planned: Entry | None) -> Entry:
        id, verdicts = action.letter, self._verdicts
        match action.event:
            case "approve":
                via = life.Channel.SLIP if action.slip else life.Channel.FOLDER
                # The verdict counts for the letter that the plan was made for, which may have been edited since.
                entry = planned or self._ledger.letters.get(id)
                return verdicts.approve(entry, by=PERSON, via=via, slip=action.slip)
            case "edit":
                letter = self._ledger.letters.get(id).letter
                return verdicts.edit(id, replace(letter, text=action.text))
            case "reject":
                return verdicts.decide(id, "reject", by=PERSON, reason=action.text)
            case "undo" | "reopen":
                return verdicts.decide(id, action.event)
        return self._ledger.letters.get(id)


def _has_files(entry: Entry) -> bool:
    """Whether the attachments of a letter are shown as files: while it is open and has a note with sections."""
    is_shown = entry.kind in life.OPEN and not is_sent_within_call(entry.state)
    return bool(entry.letter.attachments) and is_shown and entry.form != "draft"


def _letter_note(seen: SeenNote, source: LetterSource | None = None) -> plan.LetterNote:
    """Return the facts about a note; with its letter as `source`, also the text, fields and reason in the note."""
    file = plan.LetterNote(
        path=seen.path, is_changed=seen.note is not None, is_broken=bool(seen.problem)
    )
    if source is None or seen.note is None:
        return file
    return replace(
        file,
        text=text_of(source.entry, seen.note),
        wrong_fields=source.wrong_fields(seen.note),
        reason=seen.note.text("reason"),
    )
