"""The desk: one queue of letters for every surface. Surfaces call it and have no rules of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.core import life, policy
from postroom.core.errors import Conflict, PostroomError, Unavailable
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.policy import Rules
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.core.values import dataclass
from postroom.desk.apply import NoteDisplay
from postroom.desk.calls import LetterCalls
from postroom.desk.exposure import ExposureLog
from postroom.desk.log import ActionLog, AuditLogEntry
from postroom.desk.notes import difference
from postroom.desk.ownership import SingletonLocks
from postroom.desk.proposals import Composer, Proposals, normalize_text
from postroom.desk.recorder import CallRecorder
from postroom.desk.verdicts import Trust, Unlocked, Verdicts
from postroom.store.files import locked
from postroom.store.ledger import Change, Ledger, LedgerReader
from postroom.vault.folders import PAUSES
from postroom.vault.vault import Vault

if TYPE_CHECKING:
    from postroom.desk.dispatch import Dispatcher
    from postroom.mail.mailbox import Mailbox

PREVIEW = 200  # characters of a letter in its pre-send record
RESTORE_REASON = "the ledger was put back from a backup"  # why letters become unknown
Proof = str | Unlocked | None  # the passphrase, or proof that it was given


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Time, randomness and the outside world, each replaceable in tests."""

    clock: Callable[[], Stamp]
    draw: Callable[[int], bytes]
    sleep: Callable[[float], None]
    notify: Callable[[Entry, str], None] = lambda _entry, _page: None
    check_ownership: Callable[[], None] = lambda: None  # raises if another desk adopted the vault
    crash_point: Callable[[str], None] = lambda _name: None
    cwd: str = "."  # the folder in whose repository agent mail lives
    environ: Mapping[str, str] = field(default_factory=dict)  # names the agent that calls
    voice: Callable[[], bytes] = lambda: b""  # the key that seals the person's messages to agents


@dataclass(frozen=True, slots=True)
class VaultPermissions:
    root: Path
    room: str = ""  # the folder that holds Postroom's own folders
    folders: tuple[str, ...] | None = None  # of the person that tools may write to; None means all
    active: bool = False  # tools may write content that acts when a note is opened
    outgoing: Sequence[Path] = ()  # folders that attachments may be taken from


class Desk:
    """Letters, verdicts and sending, over one ledger; with a vault, letters are also shown as notes."""

    def __init__(
        self,
        *,
        id: str,
        state: Path,
        ledger: Ledger,
        vault: Vault,
        mailboxes: Callable[[str], Mailbox],
        account: str,
        rules: Rules,
        effects: Effects,
        permissions: VaultPermissions | None = None,
    ) -> None:
        self.id, self.account = id, account
        self.ledger, self.vault, self.state = ledger, vault, state
        self.rules, self.permissions = rules, permissions or VaultPermissions(vault.root)
        self.mailboxes, self.effects = mailboxes, effects
        self.clock = clock = effects.clock
        self.problems: list[str] = []  # for the person: errors that changed no outcome
        self.lock, self.locks = state / "desk.lock", SingletonLocks(ledger, state)
        self.recorder = CallRecorder(ledger)
        self.exposure = ExposureLog(ledger, mailboxes, clock)
        self.composer = Composer(mailboxes, effects.draw, account)
        self.proposals = Proposals(ledger, rules, self.exposure, clock)
        self.verdicts = Verdicts(ledger, rules, self.exposure, clock)
        self.trust = Trust(ledger, rules, self.recorder, effects.draw, self.flush_log)
        self.calls = LetterCalls(self)
        self.log = ActionLog(vault, ledger, desk=id, trusted=ledger.is_sealed)
        self.display = NoteDisplay(vault, id, self.composer, self.proposals, self.verdicts)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        # Imported here: most commands send nothing, and need neither this nor MIME.
        from postroom.desk.dispatch import Dispatcher

        return Dispatcher(
            ledger=self.ledger,
            rules=self.rules,
            clock=self.clock,
            mailboxes=self.mailboxes,
            hold_claim=self.ledger.hold_claim,
            paused=self.paused,
            refresh_note=self._refresh_note,
            flush_log=self._append_to_log,
            write_pre_send_record=self._write_pre_send_record,
            crash_point=self.effects.crash_point,
        )

    @property
    def reader(self) -> LedgerReader:
        """The ledger for surfaces, which may only read it: letters, lists, history and settings."""
        return self.ledger

    def close(self) -> None:
        self.ledger.close()
        self.vault.close()

    def paused(self) -> str:
        """Return the name of the file by which a person paused all sending and sorting; empty without one.

        Raises `Denied` if another desk has adopted the vault, and `Unavailable` if the vault cannot be read.
        """
        self.effects.check_ownership()
        # The name counts in upper and lower case, as a file or folder, in the vault's root and in Postroom's folder.
        for root in dict.fromkeys((self.vault.root, self.permissions.root)):
            try:
                with os.scandir(root) as entries:
                    names = sorted(e.name for e in entries if e.name.casefold() in PAUSES)
            except OSError as why:
                raise Unavailable(
                    f"{root} cannot be looked into: {why.strerror}",
                    remedy="Whether a person paused all sending cannot be told until it can.",
                ) from why
            if names:
                return names[0]
        return ""

    # Notes and log

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Carry out what people did to the notes, and bring notes and log up to the ledger; return messages for them.

        With `adopt`, the requests in `Plans/` move to `Pending_Approval/`, and slips approve waiting letters. If the
        log is ahead, an older ledger was restored: it first takes over what only the log knows. Raises `Denied` if
        another desk has adopted the vault.
        """
        self.effects.check_ownership()
        with locked(self.lock):
            backlog, last_line = self.ledger.actions.backlog(), self.ledger.last_line
            reports: list[str] = []
            if ahead := self.log.lines_ahead(backlog):
                unknown = self.verdicts.reconcile_with_newer_log(ahead, RESTORE_REASON)
                reports.append(
                    f"The log is {len(ahead)} lines ahead of the ledger: {RESTORE_REASON}. {unknown}"
                    " letters may or may not have been sent: `postroom pending`."
                )
            reports += self.display.reconcile(adopt=adopt)
            if backlog.lines or self.ledger.last_line != last_line:
                self.log.write_new_lines()
        return reports

    def _refresh_note(self, entry: Entry) -> Entry:
        """Return the letter after what the person did to its note: all notes are reconciled if that one has changed."""
        if self.display.is_untouched(entry):
            return entry
        self.problems += [text for text in self.reconcile() if text not in self.problems]
        return self.ledger.letters.get(entry.id)

    def flush_log(self) -> None:
        with locked(self.lock):
            self.log.write_new_lines()

    def _append_to_log(self) -> None:
        """Write the ledger's new lines to the log files; the next sync of notes records the position."""
        with locked(self.lock):
            self.log.append_new_lines()

    def _write_pre_send_record(self, entry: Entry) -> None:
        """Write the pre-send record of a letter that is to have one; if that fails, the letter is not sent."""
        letter = entry.letter
        if entry.pre_send:
            record = AuditLogEntry(
                timestamp=self.clock().iso,
                to=", ".join(address.spec for address in letter.to),
                subject=letter.subject,
                body_preview=(letter.html or letter.text).rstrip("\n")[:PREVIEW],
                reply_to_message_id=json.loads(entry.pre_send),
            )
            self.log.write_pre_send_record(record)

    def sync_notes_and_log(self, *entries: Entry, retext: bool = False) -> None:
        """Bring notes and log up to the ledger; an error undoes no decision, and is added to `problems`."""
        try:
            with locked(self.lock):
                changes: list[Change | None] = []
                try:
                    for entry in entries:
                        change = self.display.write(entry, retext=retext)
                        changes.append(change)  # those before one that raises count
                    changes.append(self.log.append_new_lines())
                finally:  # what was written is recorded, whatever could not be
                    self.ledger.apply(*changes)
        except PostroomError as why:
            self.problems.append(f"The ledger has it, but not the vault: {why.message}.")

    def synced(self, entry: Entry) -> Entry:
        """Bring a letter's note and the log up to the ledger; return the letter."""
        self.sync_notes_and_log(entry)
        return entry

    def note_difference(self, entry: Entry) -> str:
        """Return the difference between the frozen letter and the text in its note; empty if they are the same."""
        text, frozen = self.display.text(entry), normalize_text(entry.letter.text)
        return "" if text is None or text == frozen else difference(frozen, text)

    # Verdicts

    def approve(
        self, id: str, *, by: str, digest: str, proof: Proof = None, via: Channel = Channel.TERMINAL
    ) -> Entry:
        """Approve the letter with the `digest` that the person saw; `Conflict` if it or its note has changed since."""
        self.trust.prove(proof)
        entry = self.ledger.letters.get(id)
        self.refuse_edited_note(entry)
        return self.synced(self.verdicts.approve(entry, by=by, via=via, digest=digest))

    def edit(
        self,
        id: str,
        letter: Letter,
        *,
        proof: Proof = None,
        from_note: bool = False,
        was: str = "",
        by: str = "",
    ) -> Entry:
        """Freeze the letter again with the person's changes, and write its note.

        Raises `Conflict` if the text in the note was edited too, unless the change is `from_note`; and if `was`, the
        digest of the letter that the person edited, is no longer the letter's.
        """
        self.trust.prove(proof)
        if not from_note:
            self.refuse_edited_note(self.ledger.letters.get(id))
        letter = replace(letter, text=normalize_text(letter.text))
        entry = self.verdicts.edit(id, letter, was=was, by=by)
        self.sync_notes_and_log(entry, retext=True)
        return entry

    def decide(
        self,
        id: str,
        event: str,
        *,
        by: str = "",
        reason: str = "",
        sent: bool = False,
        proof: Proof = None,
    ) -> Entry:
        """Carry out one of `life.DECISIONS`, and bring the letter's note up to it."""
        if life.EVENTS[event].needs_proof:
            self.trust.prove(proof)
        return self.synced(self.verdicts.decide(id, event, by=by, reason=reason, sent=sent))

    def refuse_edited_note(self, entry: Entry) -> None:
        """Raise `Conflict` if a person edited the text in the letter's note."""
        if edited := self.note_difference(entry):
            raise Conflict(
                f"The note of the letter {entry.id} was edited, and its text is not the letter's:\n"
                f"{edited}",
                remedy=f"Take the note's text with `postroom edit {entry.id} --from-note`,"
                " or put it back.",
            )

    # Browser sessions

    def issue_ticket(self, ticket: str, person: str) -> None:
        with self.ledger.write() as tx:
            tx.sessions.issue_ticket(ticket, person)

    def redeem_ticket(self, ticket: str, secret: str) -> str | None:
        """Spend a ticket and begin a session with this secret; return the person, or None for an invalid ticket."""
        with self.ledger.write() as tx:
            return tx.sessions.redeem_ticket(ticket, secret)

    def end_session(self, secret: str) -> None:
        with self.ledger.write() as tx:
            tx.sessions.end(secret)

    # Sending

    def meter(self) -> policy.SendMeter:
        """Return how many letters were sent within the window of the budget, and when the next may be."""
        now, rules = self.clock(), self.rules
        return policy.measure(self.reader.budget.spent(now, rules.window_seconds), rules, now)

    def due_in(self, entry: Entry) -> float | None:
        """Return the seconds until an approved letter may be sent; None if it is not approved."""
        state = entry.state
        return self.dispatcher.due_in(state) if isinstance(state, life.Approved) else None

    def dispatch(self, id: str) -> Entry:
        return self.synced(self.dispatcher.dispatch(id))

    def send_approved(self) -> list[Entry]:
        """Send all letters that are approved and due; return those that changed."""
        changed = self.dispatcher.dispatch_all()
        self.sync_notes_and_log(*changed)
        return changed
