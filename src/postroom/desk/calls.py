"""The calls of agents about letters: each reconciles the vault once, and leaves one line in the log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from postroom.core import life, policy
from postroom.core.audit import Value, redact_addresses
from postroom.core.errors import Conflict, NotFound, PostroomError
from postroom.core.letter import Letter
from postroom.core.records import Entry, LetterSummary
from postroom.core.values import dataclass
from postroom.desk.proposals import PLAIN, Proposal
from postroom.desk.recorder import Call, add_line, check_name
from postroom.store.files import locked
from postroom.store.sql.letters import LetterReader

if TYPE_CHECKING:
    from postroom.desk.desk import Desk

# Seconds that a call waits:
MAX_UNDO_WAIT = 30.0  # for an undo window to pass
MAX_PACE_WAIT = 60.0  # for the pace
MAX_WAIT = 90.0  # in all, with the wait for another dispatcher
MIN_WAIT = 0.5  # between two reads of a letter that another dispatcher has
MAX_ROUNDS = 8  # of waiting


class PaceDelay(float):
    """Seconds to wait because too many letters were sent in a short time."""


@dataclass(frozen=True, slots=True)
class LetterCalls:
    desk: Desk

    def posting(
        self, call: Call, letter: Letter, proposal: Proposal = PLAIN, *, slips: bool = False
    ) -> Generator[float, None, Entry]:
        """Ask for a letter to be sent; return it as it is then, usually waiting for a verdict.

        With `slips`, a slip in Approved/ that fits the letter approves it. An approved letter is sent within the call;
        if it must first wait for a short undo window or the pace, the generator yields the seconds to wait.
        """
        with self._refusals(call):
            self.desk.reconcile()
            if slips and self.desk.rules.live and self.desk.rules.trust == "folder":
                recipient = self.desk.exposure.answered(letter)
                fitting = [s for s in self.desk.display.slips() if s.fits(letter, recipient)]
                proposal = proposal._replace(slip=fitting[0].hash if fitting else proposal.slip)
            entry = self.desk.proposals.propose(call, letter, proposal)
        if isinstance(entry.state, life.Approved | life.Sending):
            with self._refusals(call):
                entry = yield from self._dispatch_soon(call, entry)
            entry = self.desk.recorder.write_letter(call, entry)
        elif proposal.refuse_if_sent and isinstance(entry.state, life.Sent):
            refused = Conflict(
                f"{life.describe(entry.state, life.Audience.AGENT, id=entry.id)} It is not sent again",
                remedy="Change the letter if another one is meant.",
            )
            refused.logged = True  # `propose` has written the line of this call
            raise refused
        self.desk.sync_notes_and_log(entry)
        if proposal.slip and isinstance(entry.state, life.Sent):
            self._file_slip(proposal.slip)
        self._notify(letter, entry)
        return entry

    def propose(self, call: Call, letter: Letter, proposal: Proposal) -> Entry:
        """Enter a letter and notify the person; it is not sent within the call."""
        entry = self.desk.proposals.propose(call, letter, proposal)
        self.desk.sync_notes_and_log(entry)
        self._notify(letter, entry)
        return entry

    def _notify(self, letter: Letter, entry: Entry) -> None:
        if entry.id == letter.id and isinstance(entry.state, life.Pending):
            page = ""
            with suppress(PostroomError):  # then the notice has no address
                page = self.desk.locks.page_address()
            self.desk.effects.notify(entry, f"{page}/letter/{entry.id}" if page else "")

    def _dispatch_soon(self, call: Call, entry: Entry) -> Generator[float, None, Entry]:
        """Dispatch an approved letter once it is due, or wait for the dispatcher that has it; yield the seconds to wait.

        Returns the letter as it is then; if the wait would be too long, without dispatching it.
        """
        waited = 0.0
        try:
            for turn in range(MAX_ROUNDS):
                left = self.desk.due_in(entry) or 0.0
                wait = max(left, MIN_WAIT) if turn or left else 0.0
                waited += wait
                most = MAX_PACE_WAIT if _is_paced(entry) else MAX_UNDO_WAIT
                if left > most or waited > MAX_WAIT:
                    break
                if wait:
                    yield PaceDelay(wait) if _is_paced(entry) else wait
                began = entry.state
                entry = self.desk.dispatcher.dispatch(entry.id)
                died = isinstance(began, life.Sending) and self.desk.due_in(entry) == 0
                if not (_is_paced(entry) or _is_in_dispatch(entry) or died):
                    break
        except GeneratorExit:  # the client gave up waiting; the letter stays as it is
            self.desk.recorder.write_letter(call, entry)
            raise
        return entry

    def _file_slip(self, hash: str) -> None:
        """File a spent slip; if that fails now, the next reconcile does it."""
        try:
            with locked(self.desk.lock):
                self.desk.display.file_slip(hash)
        except PostroomError as why:
            self.desk.problems.append(f"The slip is spent, but not filed: {why.message}.")

    def rehearse(self, call: Call, letter: Letter | None, **parameters: Value) -> None:
        """Write the line of a call in a rehearsal, and enter no letter; raise if the letter could never be sent."""
        with self._refusals(call):
            check_name(call)
            target = ""
            if letter is not None:
                own = self.desk.exposure.own(letter.account) if letter.is_reply else frozenset()
                policy.admit(letter, self.desk.rules, own)
                target = redact_addresses([address.spec for address in letter.envelope])
                parameters = {"subject": letter.subject}
            self.desk.recorder.write(call, result="dev_mode", target=target, parameters=parameters)
        with suppress(PostroomError):  # the next call writes the log
            self.desk.flush_log()

    def refuse_over_budget(self) -> None:
        now = self.desk.clock()
        with self.desk.ledger.read() as tx:
            policy.budget(tx.budget.spent(now, self.desk.rules.reach), self.desk.rules, now)

    def withdraw(self, call: Call, id: str) -> Entry:
        """Withdraw a letter of this agent; raise `Conflict` if a dispatcher has claimed it or it is closed."""
        with self._refusals(call):
            self.desk.reconcile()
            with self.desk.ledger.write() as tx:
                entry = self._find(tx.letters, call, id)
                try:
                    state = life.change(id, entry.state, "withdraw", self.desk.clock())
                except Conflict as why:
                    why.remedy = "There is nothing more to do."
                    raise
                entry = tx.letters.swap(entry, state)
                add_line(tx, call, entry, result="success")
        return self.desk.synced(entry)

    def status(self, call: Call, id: str) -> Entry:
        with self._refusals(call):
            self.desk.reconcile()
            with self.desk.ledger.write() as tx:
                entry = self._find(tx.letters, call, id)
                add_line(tx, call, entry, result="success")
        self.desk.flush_log()
        return entry

    def replaced_by(self, entry: Entry) -> str:
        with self.desk.ledger.read() as tx:
            newer = tx.letters.replacement_of(entry.agent, entry.id)
        return newer[0] if newer else ""

    def peek(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent without writing a line: the call writes its own."""
        self.desk.reconcile()
        return self._find(self.desk.ledger.letters, call, id)

    def _find(self, letters: LetterReader, call: Call, id: str) -> Entry:
        check_name(call)
        entry = letters.find(id)
        # For another agent's letter the error is the same as for one that does not exist.
        if entry is None or entry.agent != call.agent:
            raise NotFound(f"There is no letter {id}", remedy="Name one that you proposed.")
        return entry

    def letters(self, call: Call) -> list[LetterSummary]:
        with self._refusals(call):
            check_name(call)
            self.desk.reconcile()
            summaries = self.desk.ledger.lists.summaries(agent=call.agent)
        self.desk.recorder.write(call, synced=False)
        return summaries

    def newest_letters(self, call: Call, count: int) -> list[str]:
        check_name(call)
        newest = self.desk.ledger.lists.summaries(agent=call.agent, newest=count)
        return [line.id for line in newest]

    def is_reply_approved(self, call: Call, thread: str) -> bool:
        """Return whether a letter of this agent in a conversation is approved, or a slip for a reply in it exists."""
        self.desk.reconcile()
        approved = self.desk.ledger.lists.summaries("approved", agent=call.agent)
        if any(self.desk.ledger.letters.get(line.id).letter.thread == thread for line in approved):
            return True
        wanted = ("email_reply", "approved", thread)
        slips = self.desk.display.slips() if self.desk.rules.trust == "folder" else []
        return any((slip.file.type, slip.file.status, slip.thread) == wanted for slip in slips)

    @contextmanager
    def _refusals(self, call: Call) -> Iterator[None]:
        """If the block raises, write the line of the call, also to the log file."""
        try:
            with self.desk.recorder.refusals(call):
                yield
        except PostroomError:
            with suppress(PostroomError):  # the next call writes the log
                self.desk.flush_log()
            raise


def _is_in_dispatch(entry: Entry) -> bool:
    state = entry.state
    return isinstance(state, life.Sending) or (isinstance(state, life.Approved) and not state.held)


def _is_paced(entry: Entry) -> bool:
    return isinstance(entry.state, life.Approved) and entry.state.code == "pace"
