"""What the desk asks of the vault, as one interface, and its implementation over notes.

`VaultDisplay` looks at the folders, has `plan` decide, and performs the actions: letters change, and notes follow the
ledger. `NoteDisplay`, the interface, is also the display of a desk without a vault.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.audit import ParsedLine
from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    PostroomError,
    Unavailable,
)
from postroom.core.records import DeskSettings, Entry, LetterState, NoteLocation
from postroom.desk import note_actions as do
from postroom.desk import plan as planning
from postroom.desk.compose import Composer, normalize_text
from postroom.desk.exposure import ExposureLog
from postroom.desk.log import ActionLog, AuditLogEntry
from postroom.desk.note_actions import NoteAction
from postroom.desk.note_sync import NoteSync, SeenNote
from postroom.desk.notes import Notes, text_of
from postroom.desk.plan import LetterNote, LetterRecord, plan
from postroom.desk.proposals import PERSON, Proposals
from postroom.desk.unowned_notes import Slip, UnownedNotes
from postroom.desk.verdicts import Verdicts
from postroom.vault import folders
from postroom.vault.vault import Vault

RACY: Final = 2_000_000_000  # nanoseconds within which two changes may share one time stamp
LOOKS: Final = 3  # at the folders while something is missing: it may be on its way meanwhile
_LETTER_LIKE: Final = re.compile(rb"pending_approval|letter")


class Look(NamedTuple):
    """What a look at the folders showed: the notes of each letter, those without one, and remarks."""

    letters: dict[str, list[SeenNote]]
    unowned: list[SeenNote]
    reports: list[str]


class NoteDisplay:
    """Shows letters and the log to the person as files, and takes in what the person did to them.

    This is the display of a desk without a vault: it shows nothing, and the terminal and the page are the only
    surfaces. `VaultDisplay` is the one with a vault.
    """

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what was done to the notes and bring them up to date; return what to tell the person.

        `adopt` also takes requests from `Plans/`, and lets slips approve what waits.
        """
        del adopt
        return []

    def sync(self, entry: Entry, *, retext: bool = False) -> None:
        """Bring a letter's note up to the ledger; `retext` also replaces the text in it."""

    def is_untouched(self, entry: Entry) -> bool:
        """Whether note and slip of an approved letter, its verdict, are as they were at the last look."""
        del entry
        return True

    def text(self, entry: Entry) -> str | None:
        """Return the text in a letter's note; None without a note, or if it cannot be read."""
        del entry
        return None

    def slips(self) -> list[Slip]:
        """Return the slips of the last look that may still be spent, the newest first."""
        return []

    def file_slip(self, hash: str) -> None:
        """Put a slip away whose letter was sent; if somebody is at it, the next look does."""

    def paused_by(self) -> str:
        """Return the file by which the person has paused everything, or nothing."""
        return ""

    def flush_log(self) -> None:
        """Bring the log files up to the ledger."""

    def lines_ahead(self) -> list[ParsedLine]:
        """Return the lines of the log files that the ledger does not have."""
        return []

    def write_pre_send_record(self, record: AuditLogEntry) -> None:
        """Write what a contract wants recorded before a letter is sent; without it, the letter is held."""
        del record
        raise Unavailable(
            "This desk has no vault for the record that must precede the letter",
            remedy="Set VAULT_PATH to a folder.",
        )


class VaultDisplay(NoteDisplay):
    """The display of a desk that has a vault; the desk's lock is held meanwhile."""

    def __init__(
        self,
        vault: Vault,
        log: ActionLog,
        proposals: Proposals,
        verdicts: Verdicts,
        composer: Composer,
        exposure: ExposureLog,
        roots: Sequence[Path],  # folders in which a person can pause
    ) -> None:
        self._vault, self._log, self._verdicts, self._roots = vault, log, verdicts, roots
        self._ledger, self._rules, self._clock = proposals.ledger, proposals.rules, proposals.clock
        self._sync = NoteSync(vault, proposals.ledger)
        self._notes = Notes(self._sync, proposals.rules, log.desk)
        self._reports: list[str] = []
        self._unowned = UnownedNotes(
            self._notes, proposals, composer, exposure, self._reports.append
        )
        self._seen: dict[str, SeenNote] = {}  # at the last look, by path
        self._handled: set[str] = set()  # letters that a note without one became
        self._was_disturbed = False  # somebody was at a note meanwhile
        self._settings = DeskSettings()  # as of the beginning of the last look

    # The desk's interface

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what was done to the notes and bring them up to date; return what to tell the person."""
        self._reports.clear()
        self._unowned.full.clear()
        self._handled.clear()
        self._was_disturbed = False
        if adopt:
            self._adopt_requests()
        for id in self._ledger.letters.with_old_html():
            with self._guarded(f"The letter {id}"):
                if entry := self._verdicts.upkeep.refreeze(id):
                    notice = next(one.text for one in entry.card.lines if one.kind == "refrozen")
                    self._reports.append(f"The letter {id}: {notice}")
                    self._notes.sync_note(entry, notice)
        self._settings = self._ledger.settings
        states = self._ledger.letters.states()  # what changes meanwhile is read again by itself
        for expired in self._verdicts.upkeep.expire(states):
            states.pop(expired.id)
            self._notes.sync_note(expired)
        look = self._look()
        self._seen = {
            one.path: one for notes in (*look.letters.values(), look.unowned) for one in notes
        }
        for seen in look.unowned:
            with self._guarded(seen.path):
                self._perform(plan((), [self._unowned.classify(seen)], self._rules))
        self._reconcile_letters(states, look)
        if adopt and self._rules.live and self._rules.trust == "folder":
            for slip in self.slips():
                with self._guarded(slip.path):
                    letters = [entry.id for entry in self._unowned.waiting_for(slip)]
                    self._perform(planning.plan_slip(slip.path, slip.hash, letters))
        return list(self._reports)

    def sync(self, entry: Entry, *, retext: bool = False) -> None:
        """Bring a letter's note up to the ledger; `retext` also replaces the text in it."""
        self._notes.sync_note(entry, retext=retext)

    def is_untouched(self, entry: Entry) -> bool:
        """Whether an approved letter's note, and the slip that approved it, are as they were last seen."""
        verdict = getattr(entry.state, "verdict", None)
        if verdict is None:
            return False
        if verdict.slip:
            slip = self._slip(verdict.slip)
            if (
                slip is None
                or self._vault.stat(slip.path) != slip.file
                # Two versions may share a stamp. Another thread may have looked again meanwhile.
                or (seen := self._seen.get(slip.path)) is None
                or self._vault.read(slip.path)[0] != seen.raw
            ):
                return False
        return self._notes.is_untouched(entry)

    def text(self, entry: Entry) -> str | None:
        """Return the text in a letter's note; None without a note, or if it cannot be read."""
        return self._notes.text(entry)

    def slips(self) -> list[Slip]:
        """Return the slips of the last look that may still be spent, the newest first."""
        return self._unowned.slips_among(self._in_approved())

    def file_slip(self, hash: str) -> None:
        """Put a slip away whose letter was sent; what is in the way, the next look does."""
        slip = self._slip(hash)
        if slip and self._vault.stat(slip.path) == slip.file:
            with self._guarded(slip.path):
                facts = self._unowned.classify(self._seen[slip.path])
                self._perform(plan((), [facts], self._rules))

    def paused_by(self) -> str:
        """Return the file by which the person has paused everything, or nothing."""
        # In any case, of whatever kind, and also beside a room: what should stop must not miss.
        for root in self._roots:
            try:
                with os.scandir(root) as entries:
                    names = sorted(e.name for e in entries if e.name.casefold() in folders.PAUSES)
            except OSError as why:
                raise Unavailable(
                    f"{root} cannot be looked into: {why.strerror}",
                    remedy="Whether a person paused all sending cannot be told until it can.",
                ) from why
            if names:
                return names[0]
        return ""

    def flush_log(self) -> None:
        """Bring the log files up to the ledger."""
        self._log.write_new_lines()

    def lines_ahead(self) -> list[ParsedLine]:
        """Return the lines of the log files that the ledger does not have."""
        return self._log.lines_ahead()

    def write_pre_send_record(self, record: AuditLogEntry) -> None:
        """Write what a contract wants recorded before a letter is sent."""
        self._log.write_pre_send_record(record)

    # Steps of a reconcile

    @contextmanager
    def _guarded(self, subject: str) -> Iterator[None]:
        """Go on with the next note if somebody decides, moves or edits in this moment: the next look sees that."""
        try:
            yield
        except (Conflict, NotFound):
            self._was_disturbed = True
        except (Corrupt, Denied, Invalid) as why:  # one note must not keep all others waiting
            self._reports.append(f"{subject}: {why.message}. {why.remedy}")

    def _adopt_requests(self) -> None:
        waiting = len(self._unowned.requests_in(folders.PENDING))
        seen = self._unowned.requests_in(folders.PLANS)
        self._seen = self._seen | {one.path: one for one in seen}
        requests = []
        for one in seen:
            with self._guarded(one.path):
                requests.append(self._unowned.classify(one))
        for action in planning.plan_requests(requests, waiting, self._rules):
            with self._guarded(getattr(action, "path", "")):
                self._perform([action])

    def _reconcile_letters(self, states: dict[str, LetterState], look: Look) -> None:
        locations = self._ledger.notes.locations()
        # What to do, as the notes say, depends on the trust level.
        is_trust_new = self._settings.notes_trust != self._rules.trust
        for id in dict.fromkeys((*states, *locations, *look.letters)):
            if id in self._handled:
                continue
            seen, state, location = look.letters.get(id, []), states.get(id), locations.get(id)
            files = [_letter_note(id, one) for one in seen]
            if state and location and not is_trust_new:
                is_current = location.version == state.version
                if planning.is_untouched(state.state, location.path, files, is_current=is_current):
                    continue
            with self._guarded(f"The letter {id}"):
                self._perform(self._plan_letter(id, files))
        if is_trust_new and not self._was_disturbed:
            with self._ledger.write(synced=False) as tx:
                tx.save_settings(replace(tx.settings, notes_trust=self._rules.trust))

    def _plan_letter(self, id: str, files: list[LetterNote]) -> list[NoteAction]:
        """Gather the facts about one letter as it is now, and plan."""
        try:
            entry = self._ledger.letters.get(id)
        except NotFound:
            return plan((), files[:1], self._rules)
        location, unfinished = self._ledger.notes.location(id), self._sync.unfinished_write(id)
        slip = entry.state.verdict.slip if isinstance(entry.state, life.Approved) else ""
        record = LetterRecord(
            id=id,
            state=entry.state,
            home=entry.home,
            text=normalize_text(entry.letter.text),
            location=location.path,
            is_at_location=bool(location.path) and self._vault.stat(location.path) is not None,
            unfinished_write=unfinished[0] if unfinished else "",
            is_slip_gone=bool(slip) and self._slip(slip) is None,
        )
        return plan([record], [self._with_content(entry, file) for file in files], self._rules)

    def _with_content(self, entry: Entry, file: LetterNote) -> LetterNote:
        note = self._seen[file.path].note
        if note is None:
            return file
        text, wrong = text_of(entry, note), self._notes.wrong_fields(entry, note)
        return replace(file, text=text, wrong_fields=wrong, reason=note.text("reason"))

    def _in_approved(self) -> list[SeenNote]:
        return [one for one in self._seen.values() if one.folder == folders.APPROVED]

    def _slip(self, hash: str) -> Slip | None:
        slips = self._unowned.slips_among(self._in_approved(), spent=True)
        return next((slip for slip in slips if slip.hash == hash), None)

    # Looking

    def _look(self) -> Look:
        """Look at the folders; again while something is missing, for it may be on its way meanwhile."""
        for count in range(LOOKS):
            look = Look({}, [], [])
            settled_before = int(self._clock().wall * 1e9) - RACY
            watched = (*planning.HOMES, folders.APPROVED)
            known = self._ledger.notes.in_folders(*watched)
            for folder in watched:
                self._look_into(folder, settled_before, look, known)
            # Into Rejected/ notes only come: while it is as it was, and nothing is missing, so is all in it.
            changed = self._vault.changed(folders.REJECTED)
            is_seen = self._settings.rejected_changed == changed and changed < settled_before
            missing = self._missing(look)
            if not is_seen or missing:
                self._look_into(folders.REJECTED, settled_before, look)
                with self._ledger.write(synced=False) as tx:
                    tx.save_settings(replace(tx.settings, rejected_changed=changed))
            if not missing or all(look.letters.get(id) for id in missing) or count == LOOKS - 1:
                break
        self._reports += look.reports
        return look

    def _missing(self, look: Look) -> list[str]:
        """Return the letters whose note is not where it was last seen."""
        return [
            id
            for id, location in self._ledger.notes.locations().items()
            if location.path and all(one.path != location.path for one in look.letters.get(id, ()))
        ]

    def _look_into(
        self,
        folder: str,
        settled_before: int,
        look: Look,
        known: Mapping[str, tuple[str, NoteLocation]] | None = None,
    ) -> None:
        # There may be thousands of plain drafts, and parsing YAML takes its time.
        unknown = _LETTER_LIKE if folder == folders.DRAFTS else None
        for seen in self._sync.scan(
            folder, settled_before=settled_before, unknown=unknown, known=known
        ):
            note, path = seen.note, seen.path
            if seen.problem:
                look.reports.append(f"{path} cannot be read. {seen.problem}. It is ignored.")
            if note is None:
                if seen.key:
                    look.letters.setdefault(seen.key, []).append(seen)
            elif not (letter := note.text("letter")):
                look.unowned.append(seen)
            elif note.text("desk") not in ("", self._log.desk):
                look.reports.append(f"{path} belongs to another desk and is ignored here.")
            else:
                look.letters.setdefault(letter, []).append(seen)

    # Performing

    def _perform(self, actions: Iterable[NoteAction]) -> None:
        """Perform actions in order; what an action leads to comes before the next one."""
        waiting = deque(actions)
        while waiting:
            waiting.extendleft(reversed(self._act(waiting.popleft())))

    def _act(self, action: NoteAction) -> Sequence[NoteAction]:
        """Perform one action; return what follows from its outcome."""
        match action:
            case do.Report(sentence):
                self._reports.append(sentence)
            case do.Remember(letter, path):
                self._sync.remember(letter, self._seen[path])
            case do.Sync(letter, notice, restore):
                kept = self._ledger.notes.location(letter).notice if notice is None else notice
                self._notes.sync_note(self._ledger.letters.get(letter), kept, restore=restore)
            case do.Approve():
                return self._approve(action)
            case do.FreezeText():
                return self._freeze_text(action)
            case do.Decide(letter, "reject", reason):
                self._verdicts.decide(letter, "reject", by=PERSON, reason=reason)
            case do.Decide(letter, "undo" | "reopen" as event):
                self._verdicts.decide(letter, event)
            case do.Decide(letter, "approve by slip", hash):
                self._verdicts.approve_by_slip(letter, hash)
                return [do.Sync(letter, "")]
            case do.ApproveListed():
                return self._approve_listed(action)
            case do.FileAction(path):
                self._act_on_file(action, self._seen[path])
        return ()

    def _act_on_file(self, action: do.FileAction, seen: SeenNote) -> None:
        match action:
            case do.MoveFile(path, folder, forget_inode):
                self._sync.move_file(path, seen.file, folder)
                self._seen[path] = seen._replace(note=None)  # it is no slip any more
                if forget_inode:
                    with self._ledger.write(synced=False) as tx:
                        tx.tool_notes.free_inode(seen.file.inode)
            case do.Freeze():
                if letter := self._unowned.freeze(seen, action):
                    self._handled.add(letter)
            case do.SeeSlip(path, hash, mark):
                if mark:
                    self._unowned.mark_approved(seen)
                    self._seen[path] = self._sync.open(path, seen.file)
                with self._ledger.write() as tx:
                    tx.slips.add(hash)
            case do.FileSlip():
                self._unowned.file_slip(seen, action)
            case do.PresentRequest():
                self._unowned.present_request(seen, action)

    def _approve(self, action: do.Approve) -> list[NoteAction]:
        letter, path = action.letter, action.path
        try:
            self._verdicts.approve(letter, by=PERSON, via=life.Channel.FOLDER)
        except (Denied, Conflict) as why:
            return planning.put_back(letter, path, f"{why.message}. {why.remedy}")
        approved = f"The letter {letter} was approved: its note was moved to Approved/."
        return [do.Report(approved), do.Remember(letter, path), do.Sync(letter, "")]

    def _freeze_text(self, action: do.FreezeText) -> list[NoteAction]:
        entry, notice = self._ledger.letters.get(action.letter), planning.REFROZEN
        try:
            self._verdicts.edit(entry.id, replace(entry.letter, text=action.text))
        except PostroomError as why:
            notice = f"Its new text was not taken: {why.message}."
        return planning.put_back(action.letter, action.path, notice)

    def _approve_listed(self, action: do.ApproveListed) -> list[NoteAction]:
        id, path = action.letter, action.path
        with self._ledger.write() as tx:
            tx.slips.add(action.hash)
        try:
            self._verdicts.approve(
                id, by=PERSON, via=life.Channel.FOLDER, digest=action.digest, slip=action.hash
            )
        except (Conflict, Denied) as why:
            return [do.PresentRequest(path, action.agent, why=why.message)]
        self._handled.add(id)
        return [do.Sync(id, ""), do.Report(f"The letter {id} was approved: {path} lists it.")]


def _letter_note(letter: str, seen: SeenNote) -> LetterNote:
    is_changed, is_broken = seen.note is not None, bool(seen.problem)
    return LetterNote(path=seen.path, letter=letter, is_changed=is_changed, is_broken=is_broken)
