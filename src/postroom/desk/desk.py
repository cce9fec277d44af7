"""The desk: one queue of letters for every surface. Surfaces call it and have no rules of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.core import life
from postroom.core.errors import Conflict, PostroomError, Unavailable
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.policy import Rules
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.core.values import dataclass
from postroom.desk.apply import NoteDisplay, VaultDisplay
from postroom.desk.calls import LetterCalls
from postroom.desk.compose import Composer, normalize_text
from postroom.desk.exposure import ExposureLog
from postroom.desk.log import ActionLog, AuditLogEntry
from postroom.desk.notes import difference
from postroom.desk.proposals import Proposals
from postroom.desk.recorder import CallRecorder
from postroom.desk.singletons import SingletonLocks
from postroom.desk.trust import Trust, Unlocked
from postroom.desk.upkeep import Upkeep
from postroom.desk.verdicts import Verdicts
from postroom.store.ledger import Ledger, LedgerReader
from postroom.store.locks import locked
from postroom.vault.vault import Vault

if TYPE_CHECKING:
    from postroom.desk.dispatch import Dispatcher
    from postroom.mail.mailbox import Mailbox

PREVIEW = 200  # characters of a letter in its pre-send record
RESTORED = "the ledger was put back from a backup"
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
    """What tools may do in the vault."""

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
        vault: Vault | None,
        mailboxes: Callable[[str], Mailbox],
        account: str,
        rules: Rules,
        effects: Effects,
        permissions: VaultPermissions | None = None,
    ) -> None:
        self.id = id
        root = vault.root if vault else Path(os.devnull)
        self.permissions = permissions or VaultPermissions(root)
        self.rules = rules
        self.ledger = ledger
        self.mailboxes = mailboxes
        self.state = state
        self.account = account
        self.effects = effects
        self.clock = clock = effects.clock
        self.problems: list[str] = []  # that did not change an outcome, but a person should know
        self.lock = state / "desk.lock"
        self._vault = vault
        self.locks = SingletonLocks(ledger, state)
        self.recorder = CallRecorder(ledger)
        self.exposure = ExposureLog(ledger, mailboxes, clock)
        self.composer = Composer(mailboxes, effects.draw, account)
        parts = (ledger, rules, self.exposure, clock, self.recorder)
        self.proposals = Proposals(*parts)
        self.upkeep = Upkeep(*parts)
        self.verdicts = Verdicts(*parts, self.upkeep)
        self.trust = Trust(ledger, rules, self.recorder, effects.draw, self.flush_log)
        self.calls = LetterCalls(self)
        self.display = NoteDisplay()
        if vault is not None:
            roots = tuple(dict.fromkeys((vault.root, self.permissions.root)))
            self.display = VaultDisplay(
                vault, self.log, self.proposals, self.verdicts, self.composer, self.exposure, roots
            )

    @property
    def vault(self) -> Vault:
        """The vault; `Unavailable` if this desk has none."""
        if self._vault is None:
            remedy = "Set VAULT_PATH to a folder for notes, or use the terminal."
            raise Unavailable("This desk has no vault", remedy=remedy)
        return self._vault

    @cached_property
    def log(self) -> ActionLog:
        """The log files in the vault."""
        return ActionLog(self.vault, self.ledger, desk=self.id, trusted=self.ledger.is_sealed)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """Sends approved letters."""
        from postroom.desk.dispatch import Dispatcher  # a list of letters needs neither it nor MIME

        return Dispatcher(
            ledger=self.ledger,
            rules=self.rules,
            clock=self.clock,
            mailboxes=self.mailboxes,
            claims=self.ledger.claims,
            paused=self.paused,
            refresh_note=self._refresh_note,
            flush_log=self.flush_log,
            write_pre_send_record=self._write_pre_send_record,
            crash_point=self.effects.crash_point,
        )

    @property
    def reader(self) -> LedgerReader:
        """The ledger for surfaces: letters, lists, history and settings, to be read alone."""
        return self.ledger

    def close(self) -> None:
        """Close the ledger and the vault."""
        self.ledger.close()
        if self._vault is not None:
            self._vault.close()

    def paused(self) -> str:
        """Return the file by which a person stopped all sending and sorting, or nothing.

        Raises if another desk adopted the vault.
        """
        self.effects.check_ownership()
        return self.display.paused_by()

    # Notes and log

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what people did to the notes; return what they should know."""
        self.effects.check_ownership()
        with locked(self.lock):
            reports = self._reconcile_with_log()
            reports += self.display.reconcile(adopt=adopt)
            self.display.flush_log()
        return reports

    def _reconcile_with_log(self) -> list[str]:
        ahead = self.display.lines_ahead()
        if not ahead:
            return []
        unknown = self.upkeep.reconcile_with_newer_log(ahead, RESTORED)
        lines = f"The log is {len(ahead)} lines ahead of the ledger: {RESTORED}."
        return [f"{lines} {unknown} letters may or may not have been sent: `postroom pending`."]

    def _refresh_note(self, entry: Entry) -> None:
        """Take in what a person did to the note of a letter that is about to be sent."""
        if not self.display.is_untouched(entry):
            self.problems += [text for text in self.reconcile() if text not in self.problems]

    def flush_log(self) -> None:
        """Bring the log files up to the ledger."""
        with locked(self.lock):
            self.display.flush_log()

    def _write_pre_send_record(self, entry: Entry) -> None:
        """Write the record that a letter's contract asks for; if that fails, the letter is not sent."""
        if entry.pre_send:
            letter = entry.letter
            self.display.write_pre_send_record(
                AuditLogEntry(
                    timestamp=self.clock().iso,
                    to=", ".join(address.spec for address in letter.to),
                    subject=letter.subject,
                    body_preview=(letter.html or letter.text).rstrip("\n")[:PREVIEW],
                    reply_to_message_id=json.loads(entry.pre_send),
                )
            )

    def sync_notes_and_log(self, *entries: Entry, retext: bool = False) -> None:
        """Bring the notes of these letters, and the log, up to the ledger.

        What cannot be written now does not undo what was decided: the next reconcile writes it.
        """
        try:
            with locked(self.lock):
                for entry in entries:
                    self.display.sync(entry, retext=retext)
                self.display.flush_log()
        except PostroomError as why:
            self.problems.append(f"The ledger has it, but not the vault: {why.message}.")

    def synced(self, entry: Entry) -> Entry:
        """Return a letter after its note and the log show it."""
        self.sync_notes_and_log(entry)
        return entry

    def note_text(self, entry: Entry) -> str | None:
        """Return the text in the letter's note; None without a note, or if it cannot be read."""
        return self.display.text(entry)

    def note_difference(self, entry: Entry) -> str:
        """Return how the note's text differs from the frozen letter, if a person edited it in place."""
        text = self.note_text(entry)
        frozen = normalize_text(entry.letter.text)
        return "" if text is None or text == frozen else difference(frozen, text)

    # Verdicts

    def approve(
        self, id: str, *, by: str, digest: str, proof: Proof = None, via: Channel = Channel.TERMINAL
    ) -> Entry:
        """Approve what the person saw; at trust level desk with the passphrase."""
        self.trust.prove(proof)
        self.refuse_edited_note(self.ledger.letters.get(id))
        return self.synced(self.verdicts.approve(id, by=by, via=via, digest=digest))

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
        """Freeze the letter again with the person's changes; a text edited in its note is never lost.

        `was` is the digest of what they changed, if somebody else may have changed it since.
        """
        self.trust.prove(proof)
        if not from_note:
            self.refuse_edited_note(self.ledger.letters.get(id))
        entry = self.verdicts.edit(
            id, replace(letter, text=normalize_text(letter.text)), was=was, by=by
        )
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
        """Reject, revise, undo, reopen or resolve a letter: an event of `life.EVENTS`."""
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
        """Let this ticket sign one browser in to the page, once, as this person."""
        with self.ledger.write() as tx:
            tx.sessions.issue_ticket(ticket, person)

    def redeem_ticket(self, ticket: str, secret: str) -> str | None:
        """Use a ticket up and begin a session with this secret; return its person, None if it was not valid."""
        with self.ledger.write() as tx:
            return tx.sessions.redeem_ticket(ticket, secret)

    def end_session(self, secret: str) -> None:
        """End the session of a browser."""
        with self.ledger.write() as tx:
            tx.sessions.end(secret)

    # Sending

    def due_in(self, entry: Entry) -> float | None:
        """Return the seconds until an approved letter may be sent; None if it is not approved."""
        state = entry.state
        return self.dispatcher.due_in(state) if isinstance(state, life.Approved) else None

    def dispatch(self, id: str) -> Entry:
        """Send one approved letter, if it is due; return its new entry."""
        return self.synced(self.dispatcher.dispatch(id))

    def send_approved(self) -> list[Entry]:
        """Send all letters that are approved and due; return those that changed."""
        changed = self.dispatcher.dispatch_all()
        self.sync_notes_and_log(*changed)
        return changed
