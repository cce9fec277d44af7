"""The desk itself: one queue, whoever looks at it. Every surface calls it, and none has rules of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.core import life, policy
from postroom.core.audit import Value
from postroom.core.errors import Conflict, PostroomError, Unavailable
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.policy import Rules
from postroom.core.records import Entry, LetterSummary
from postroom.core.stamp import Stamp
from postroom.desk import passphrase
from postroom.desk.apply import VaultDisplay
from postroom.desk.compose import Composer, settled
from postroom.desk.exposure import ExposureLog
from postroom.desk.log import ActionLog, AuditLogEntry
from postroom.desk.note_display import NoteDisplay
from postroom.desk.notes import difference
from postroom.desk.outbox import Outbox, Proposal
from postroom.desk.passphrase import Unlocked
from postroom.desk.recorder import Call, CallRecorder, check_name
from postroom.desk.singletons import SingletonLocks
from postroom.desk.unowned_notes import Slip
from postroom.store.ledger import Ledger, LedgerReader
from postroom.store.locks import locked
from postroom.vault.vault import Vault

if TYPE_CHECKING:
    from postroom.desk.dispatch import Dispatcher
    from postroom.mail.mailbox import Mailbox

LONGEST_WAIT = 30.0  # seconds that a call waits for an undo window to pass
LONGEST_PACE = 60.0  # and for its turn
LONGEST = 90.0  # and for both, and for others who may take the room first
SHORTEST = 0.5  # the least that it waits, for whoever is at the letter already
PREVIEW = 200  # characters of a letter in the record before it is sent
ROUNDS = 8  # of waiting
Proof = str | Unlocked | None  # the passphrase, or that it was given
RESTORED = "the ledger was put back from a backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What the desk works with: time, chance and the world outside, each replaceable."""

    clock: Callable[[], Stamp]
    draw: Callable[[int], bytes]
    sleep: Callable[[float], None]
    notify: Callable[[Entry, str], None] = lambda _entry, _page: None
    belongs: Callable[[], None] = lambda: None  # raises where the vault is no longer this ledger's
    crash_point: Callable[[str], None] = lambda _name: None
    cwd: str = "."  # where the agents' repository is looked for
    environ: Mapping[str, str] = field(default_factory=dict)  # which says who calls
    voice: Callable[[], bytes] = lambda: b""  # the key of the person's words among agents


@dataclass(frozen=True, slots=True)
class VaultPermissions:
    """The vault as tools have it: its root, the folder that holds what is Postroom's, and their rights."""

    root: Path
    room: str = ""
    folders: tuple[str, ...] | None = None  # of the person's own, that they may write to; None: all
    active: bool = False
    outgoing: Sequence[Path] = ()  # folders that attachments may be taken from


class PaceDelay(float):
    """Seconds to wait where too many letters leave at once."""


class Desk(SingletonLocks):
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
        tools: Effects,
        shelf: VaultPermissions | None = None,
    ) -> None:
        self.id = id
        root = vault.root if vault else Path(os.devnull)
        self.shelf = shelf or VaultPermissions(root)
        self.rules = rules
        self.ledger = ledger
        self._vault = vault
        self.trouble: list[str] = []  # what a person should know of, beside the outcome
        self._lock = state / "desk.lock"
        self.tools = tools
        self.clock = clock = tools.clock
        self.reading = ExposureLog(ledger, mailboxes, clock)
        self.composer = Composer(mailboxes, tools.draw, account)
        self.recorder = CallRecorder(ledger)
        self.outbox = Outbox(ledger, rules, self.reading, clock, self.recorder)
        self.display = NoteDisplay()
        if vault is not None:
            roots = tuple(dict.fromkeys((vault.root, self.shelf.root)))
            self.display = VaultDisplay(
                vault, self.log, self.outbox, self.composer, self.reading, roots
            )
        self.mailboxes = mailboxes
        self.state = state
        self.account = account

    @property
    def vault(self) -> Vault:
        """The vault; refused if this desk has none."""
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
        """Who sends what was approved."""
        from postroom.desk.dispatch import Dispatcher  # a list of letters needs neither it nor MIME

        return Dispatcher(
            ledger=self.ledger,
            rules=self.rules,
            clock=self.clock,
            mailboxes=self.mailboxes,
            claims=self.ledger.claims,
            paused=self.paused,
            refresh_note=self._look,
            flush_log=self.publish,
            write_pre_send_record=self._write_pre_send_record,
            crash_point=self.tools.crash_point,
        )

    @property
    def reader(self) -> LedgerReader:
        """The ledger for surfaces: letters, lists, history and settings, to be read alone."""
        return self.ledger

    def close(self) -> None:
        """Let go of the files."""
        self.ledger.close()
        if self._vault is not None:
            self._vault.close()

    def belongs(self) -> None:
        """Refuse where another desk has the vault now."""
        self.tools.belongs()

    def paused(self) -> str:
        """Return the file by which a person has stopped all sending and sorting, if there is one.

        Refused where another desk has the vault now.
        """
        self.tools.belongs()
        return self.display.paused_by()

    def slips(self) -> list[Slip]:
        """Return the slips that may still be spent, as of the last look at the folders."""
        return self.display.slips()

    # Folders

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what was done to the notes; return what a person should know."""
        self.tools.belongs()
        with locked(self._lock):
            said = self._restored()
            said += self.display.reconcile(adopt=adopt)
            self.display.flush_log()
        return said

    def _look(self, entry: Entry) -> None:
        """Take in what was done to the note of a letter that is about to leave."""
        if not self.display.is_untouched(entry):
            self.trouble += [said for said in self.reconcile() if said not in self.trouble]

    def _restored(self) -> list[str]:
        ahead = self.display.lines_ahead()
        if not ahead:
            return []
        doubtful = self.outbox.distrust(ahead, RESTORED)
        lines = f"The log is {len(ahead)} lines ahead of the ledger: {RESTORED}."
        return [f"{lines} {doubtful} letters may or may not have been sent: `postroom pending`."]

    def publish(self) -> None:
        """Bring the log up to the ledger."""
        with locked(self._lock):
            self.display.flush_log()

    def _write_pre_send_record(self, entry: Entry) -> None:
        """Keep of a letter that is about to leave what its contract wants kept; else it does not leave."""
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

        What cannot be written now is no error of what was decided: the next look writes it.
        """
        try:
            with locked(self._lock):
                for entry in entries:
                    self.display.sync(entry, retext=retext)
                self.display.flush_log()
        except PostroomError as why:
            self.trouble.append(f"The ledger has it, but not the vault: {why.message}.")

    def _followed(self, entry: Entry) -> Entry:
        self.sync_notes_and_log(entry)
        return entry

    # Agents

    def post(
        self, call: Call, letter: Letter, wish: Proposal | None = None, *, slips: bool = False
    ) -> Entry:
        """Ask for a letter to be sent, as `posting` does, and wait meanwhile."""
        running = self.posting(call, letter, wish, slips=slips)
        while True:
            try:
                self.tools.sleep(next(running))
            except StopIteration as done:
                entry: Entry = done.value
                return entry

    def posting(
        self, call: Call, letter: Letter, wish: Proposal | None = None, *, slips: bool = False
    ) -> Generator[float, None, Entry]:
        """Ask for a letter to be sent; return what became of it, which is mostly that it waits.

        With `slips`, one in Approved/ that fits is the person's word. One that is approved already
        leaves now; for an undo window or a pace that passes soon, the seconds to wait are yielded.
        """
        wish = wish or Proposal()
        with self._recording_refusals(call):
            self.reconcile()
            if slips and self.rules.live and self.rules.trust == "folder":
                whom = self.reading.answered(letter)
                fitting = (s for s in self.display.slips() if s.fits(letter, whom))
                if found := next(fitting, None):
                    wish = wish._replace(slip=found.hash)
            entry = self.outbox.propose(call, letter, wish)
        if isinstance(entry.state, life.Approved | life.Sending):
            with self._recording_refusals(call):
                entry = yield from self._leaving(call, entry)
            entry = self.recorder.write_letter(call, entry)
        elif wish.refuse_if_sent and isinstance(entry.state, life.Sent):
            raise self._sent_already(entry)
        self.sync_notes_and_log(entry)
        if wish.slip and isinstance(entry.state, life.Sent):
            self._file_slip(wish.slip)
        self._tell(letter, entry)
        return entry

    def propose(self, call: Call, letter: Letter, wish: Proposal) -> Entry:
        """Put a letter before the person, and tell them; it is not sent from here."""
        entry = self.outbox.propose(call, letter, wish)
        self.sync_notes_and_log(entry)
        self._tell(letter, entry)
        return entry

    def _tell(self, letter: Letter, entry: Entry) -> None:
        """Tell the person of a letter that is new and waits, and on which page it does."""
        if entry.id == letter.id and isinstance(entry.state, life.Pending):
            page = ""
            with suppress(PostroomError):  # the letter waits, whether or not that can be told
                page = self.served()
            self.tools.notify(entry, f"{page}/letter/{entry.id}" if page else "")

    def _leaving(self, call: Call, entry: Entry) -> Generator[float, None, Entry]:
        """Dispatch a letter that may leave, once that is not long off; wait for who is at it already."""
        waited = 0.0
        try:
            for turn in range(ROUNDS):
                left = self.due_in(entry) or 0.0
                wait = max(left, SHORTEST) if turn or left else 0.0
                waited += wait
                if left > (LONGEST_PACE if _paced(entry) else LONGEST_WAIT) or waited > LONGEST:
                    break
                if wait:
                    yield PaceDelay(wait) if _paced(entry) else wait
                began = entry.state
                entry = self.dispatcher.dispatch(entry.id)
                died = isinstance(began, life.Sending) and self.due_in(entry) == 0
                if not (_paced(entry) or _at_work(entry) or died):
                    break
        except GeneratorExit:  # nobody waits for the answer any more; the letter stays as it is
            self.recorder.write_letter(call, entry)
            raise
        return entry

    def _sent_already(self, entry: Entry) -> Conflict:
        refused = Conflict(
            f"{life.describe(entry.state, life.Audience.AGENT, id=entry.id)} It is not sent again",
            remedy="Change the letter if another one is meant.",
        )
        refused.logged = True  # by the outbox, which knew it
        return refused

    def _file_slip(self, hash: str) -> None:
        """Put a spent slip away; what cannot be written now, the next look writes."""
        try:
            with locked(self._lock):
                self.display.file_slip(hash)
        except PostroomError as why:
            self.trouble.append(f"The slip is spent, but not filed: {why.message}.")

    def rehearse(self, call: Call, letter: Letter | None, **parameters: Value) -> None:
        """Refuse a letter that never could be sent, and leave the line of the call; nothing is entered."""
        with self._recording_refusals(call):
            self.outbox.rehearse(call, letter, parameters)
        with suppress(PostroomError):  # the next look writes the log
            self.publish()

    def refuse_over_budget(self) -> None:
        """Refuse, with the seconds left, where no letter at all could leave now."""
        now = self.clock()
        with self.ledger.read() as tx:
            policy.budget(tx.budget.spent(now, self.rules.reach), self.rules, now)

    def due_in(self, entry: Entry) -> float | None:
        """Return the seconds until an approved letter may leave; None where it is not approved."""
        state = entry.state
        return self.dispatcher.due_in(state) if isinstance(state, life.Approved) else None

    def withdraw(self, call: Call, id: str) -> Entry:
        """Take back a letter of this agent's."""
        with self._recording_refusals(call):
            self.reconcile()
            entry = self.outbox.withdraw(call, id)
        return self._followed(entry)

    def status(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent's."""
        with self._recording_refusals(call):
            self.reconcile()
            entry = self.outbox.status(call, id)
        self.publish()
        return entry

    def replaced_by(self, entry: Entry) -> str:
        """Return the id of the letter that stands in the place of this one, if there is one."""
        with self.ledger.read() as tx:
            newer = tx.letters.replacement_of(entry.agent, entry.id)
        return newer[0] if newer else ""

    def glance(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent's, for a call whose line is yet to be written."""
        self.reconcile()
        return self.outbox.of(call, id)

    def letters(self, call: Call) -> list[LetterSummary]:
        """Return the letters of this agent that are open, newest last."""
        with self._recording_refusals(call):
            check_name(call)
            self.reconcile()
            found = self.ledger.lists.summaries(agent=call.agent)
        self.recorder.write(call, synced=False)
        return found

    def newest_letters(self, call: Call, count: int) -> list[str]:
        """Return the ids of this agent's newest letters, for a call that leaves no line."""
        check_name(call)
        return [line.id for line in self.ledger.lists.summaries(agent=call.agent, newest=count)]

    def is_reply_approved(self, call: Call, thread: str) -> bool:
        """Return whether a letter of this agent's in a conversation, or a slip for a reply to it, is approved."""
        self.reconcile()
        approved = self.ledger.lists.summaries("approved", agent=call.agent)
        if any(self.ledger.letters.get(line.id).letter.thread == thread for line in approved):
            return True
        return self.rules.trust == "folder" and any(
            slip.type == "email_reply" and slip.status == "approved" and slip.thread == thread
            for slip in self.slips()
        )

    @contextmanager
    def _recording_refusals(self, call: Call) -> Iterator[None]:
        """Write the line of a call that is refused, and show it in the log file."""
        try:
            with self.recorder.refusals(call):
                yield
        except PostroomError:
            with suppress(PostroomError):  # the next look writes the log
                self.publish()
            raise

    # A person

    def approve(
        self, id: str, *, by: str, digest: str, proof: Proof = None, via: Channel = Channel.TERMINAL
    ) -> Entry:
        """Approve what the person saw; at trust level desk with the passphrase."""
        self.prove(proof)
        self.refuse_edited(self.ledger.letters.get(id))
        return self._followed(self.outbox.approve(id, by=by, via=via, digest=digest))

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
        """Freeze the letter anew as the person wants it; what they typed into its note is not lost.

        `was` is the digest of what they changed, where somebody else may have changed it since.
        """
        self.prove(proof)
        if not from_note:
            self.refuse_edited(self.ledger.letters.get(id))
        entry = self.outbox.edit(id, replace(letter, text=settled(letter.text)), was=was, by=by)
        self.sync_notes_and_log(entry, retext=True)
        return entry

    def reject(self, id: str, *, by: str, reason: str, revise: bool = False) -> Entry:
        """Say no, or ask for another version."""
        return self._followed(self.outbox.reject(id, by=by, reason=reason, revise=revise))

    def recall(self, id: str, *, by: str = "") -> Entry:
        """Take an approval back."""
        return self._followed(self.outbox.recall(id, by=by))

    def reopen(self, id: str, *, by: str = "") -> Entry:
        """Put a closed letter that was not sent before the person again."""
        return self._followed(self.outbox.reopen(id, by=by))

    def resolve(self, id: str, *, by: str, sent: bool, proof: Proof = None) -> Entry:
        """Settle a letter whose fate was unknown."""
        self.prove(proof)
        return self._followed(self.outbox.resolve(id, by=by, sent=sent))

    def prove(self, proof: Proof) -> None:
        """At trust level desk, refuse without the passphrase."""
        if self.rules.trust != "folder" or self.raised():
            passphrase.check(self.ledger.settings.passphrase, proof)

    def raised(self) -> bool:
        """Whether the trust level is desk by the ledger as of now: it may have been raised since we began."""
        settings = self.ledger.settings
        return settings.trust == "desk" and bool(settings.passphrase)

    def opens(self, unlocked: Unlocked) -> bool:
        """Whether the passphrase that was given is still the one that is kept."""
        return unlocked.kept == self.ledger.settings.passphrase != ""

    def unlock(self, given: str) -> Unlocked:
        """Return the proof that this is the passphrase, for as long as it is."""
        kept = self.ledger.settings.passphrase
        passphrase.check(kept, given)
        return Unlocked(kept)

    def note_text(self, entry: Entry) -> str | None:
        """Return the text in the letter's note; None without a note, or if it cannot be read."""
        return self.display.text(entry)

    def edited(self, entry: Entry) -> str:
        """Return how the note's text differs from the frozen letter, where a person edited it in place."""
        text = self.note_text(entry)
        frozen = settled(entry.letter.text)
        return "" if text is None or text == frozen else difference(frozen, text)

    def loosen(
        self, proof: str | None, *, trust: str | None = None, required: bool | None = None
    ) -> None:
        """Lower what the ledger holds fast, by the passphrase where there is one."""
        kept = self.ledger.settings.passphrase
        if kept:
            passphrase.check(kept, proof)
        with self.ledger.write() as tx:
            now = tx.settings
            lowered = replace(
                now,
                trust=now.trust if trust is None else trust,
                approval_required=now.approval_required if required is None else required,
            )
            tx.save_settings(lowered)
        self.recorder.write(Call("lower_trust", "", "person"))
        self.publish()

    def set_passphrase(self, new: str, *, old: str | None = None) -> None:
        """Keep a new passphrase; where there is one already, it is asked for."""
        if kept := self.ledger.settings.passphrase:
            passphrase.check(kept, old)
        sealed = passphrase.sealed(new, self.tools.draw(16))
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, passphrase=sealed))
        self.recorder.write(Call("set_passphrase", "", "person"))
        self.publish()

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

    def refuse_edited(self, entry: Entry) -> None:
        """Refuse to go on over a note whose text a person edited in place."""
        if edited := self.edited(entry):
            raise Conflict(
                f"The note of the letter {entry.id} was edited, and its text is not the letter's:\n"
                f"{edited}",
                remedy=f"Take the note's text with `postroom edit {entry.id} --from-note`,"
                " or put it back.",
            )

    # Sending

    def dispatch(self, id: str) -> Entry:
        """Send one approved letter, if it is due; return what became of it."""
        return self._followed(self.dispatcher.dispatch(id))

    def send_approved(self) -> list[Entry]:
        """Send all that is approved and due; return what changed."""
        changed = self.dispatcher.dispatch_all()
        self.sync_notes_and_log(*changed)
        return changed


def _at_work(entry: Entry) -> bool:
    """Whether somebody else is sending it, or about to."""
    state = entry.state
    return isinstance(state, life.Sending) or (isinstance(state, life.Approved) and not state.held)


def _paced(entry: Entry) -> bool:
    return isinstance(entry.state, life.Approved) and entry.state.code == "pace"
