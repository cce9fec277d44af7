"""Letters as agents' calls see them: each call reconciles the vault once and leaves one line in the log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from postroom.core import life, policy
from postroom.core.audit import Value
from postroom.core.errors import Conflict, PostroomError
from postroom.core.letter import Letter
from postroom.core.records import Entry, LetterSummary
from postroom.core.values import dataclass
from postroom.desk.proposals import Proposal
from postroom.desk.recorder import Call, check_name
from postroom.store.locks import locked

if TYPE_CHECKING:
    from postroom.desk.desk import Desk

MAX_UNDO_WAIT = 30.0  # seconds that a call waits for an undo window to pass
MAX_PACE_WAIT = 60.0  # and for the pace
MAX_WAIT = 90.0  # and for both, and for other dispatchers
MIN_WAIT = 0.5  # between two looks at a letter that another dispatcher has
ROUNDS = 8  # of waiting


class PaceDelay(float):
    """Seconds to wait where too many letters leave at once."""


@dataclass(frozen=True, slots=True)
class LetterCalls:
    """What agents ask of a desk."""

    desk: Desk

    def post(
        self, call: Call, letter: Letter, proposal: Proposal | None = None, *, slips: bool = False
    ) -> Entry:
        """Ask for a letter to be sent and wait for the answer, as `posting` does."""
        running = self.posting(call, letter, proposal, slips=slips)
        while True:
            try:
                self.desk.effects.sleep(next(running))
            except StopIteration as done:
                entry: Entry = done.value
                return entry

    def posting(
        self, call: Call, letter: Letter, proposal: Proposal | None = None, *, slips: bool = False
    ) -> Generator[float, None, Entry]:
        """Ask for a letter to be sent; return its entry, which mostly waits for a verdict.

        With `slips`, a slip in Approved/ that fits counts as approval. An approved letter is sent within
        the call; if an undo window or the pace passes soon, the seconds to wait are yielded.
        """
        proposal = proposal or Proposal()
        with self._refusals(call):
            self.desk.reconcile()
            if slips and self.desk.rules.live and self.desk.rules.trust == "folder":
                recipient = self.desk.exposure.answered(letter)
                fitting = (s for s in self.desk.display.slips() if s.fits(letter, recipient))
                if slip := next(fitting, None):
                    proposal = proposal._replace(slip=slip.hash)
            entry = self.desk.proposals.propose(call, letter, proposal)
        if isinstance(entry.state, life.Approved | life.Sending):
            with self._refusals(call):
                entry = yield from self._dispatch_soon(call, entry)
            entry = self.desk.recorder.write_letter(call, entry)
        elif proposal.refuse_if_sent and isinstance(entry.state, life.Sent):
            raise self._already_sent(entry)
        self.desk.sync_notes_and_log(entry)
        if proposal.slip and isinstance(entry.state, life.Sent):
            self._file_slip(proposal.slip)
        self._notify(letter, entry)
        return entry

    def propose(self, call: Call, letter: Letter, proposal: Proposal) -> Entry:
        """Enter a letter and notify the person; nothing is sent within the call."""
        entry = self.desk.proposals.propose(call, letter, proposal)
        self.desk.sync_notes_and_log(entry)
        self._notify(letter, entry)
        return entry

    def _notify(self, letter: Letter, entry: Entry) -> None:
        """Notify the person of a new letter that waits, with its address on the page."""
        if entry.id == letter.id and isinstance(entry.state, life.Pending):
            page = ""
            with suppress(PostroomError):  # the letter waits in any case
                page = self.desk.locks.page_address()
            self.desk.effects.notify(entry, f"{page}/letter/{entry.id}" if page else "")

    def _dispatch_soon(self, call: Call, entry: Entry) -> Generator[float, None, Entry]:
        """Dispatch an approved letter if it is due soon; wait for a dispatcher that has it already."""
        waited = 0.0
        try:
            for turn in range(ROUNDS):
                left = self.desk.due_in(entry) or 0.0
                wait = max(left, MIN_WAIT) if turn or left else 0.0
                waited += wait
                if (
                    left > (MAX_PACE_WAIT if _is_paced(entry) else MAX_UNDO_WAIT)
                    or waited > MAX_WAIT
                ):
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

    def _already_sent(self, entry: Entry) -> Conflict:
        refused = Conflict(
            f"{life.describe(entry.state, life.Audience.AGENT, id=entry.id)} It is not sent again",
            remedy="Change the letter if another one is meant.",
        )
        refused.logged = True  # by `propose`
        return refused

    def _file_slip(self, hash: str) -> None:
        """File a spent slip; if that fails now, the next reconcile does it."""
        try:
            with locked(self.desk.lock):
                self.desk.display.file_slip(hash)
        except PostroomError as why:
            self.desk.problems.append(f"The slip is spent, but not filed: {why.message}.")

    def rehearse(self, call: Call, letter: Letter | None, **parameters: Value) -> None:
        """Refuse a letter that could never be sent, and write the line of the call; nothing is entered."""
        with self._refusals(call):
            self.desk.proposals.rehearse(call, letter, parameters)
        with suppress(PostroomError):  # the next call writes the log
            self.desk.flush_log()

    def refuse_over_budget(self) -> None:
        """Raise `Limited` if the budget has no room for any letter."""
        now = self.desk.clock()
        with self.desk.ledger.read() as tx:
            policy.budget(tx.budget.spent(now, self.desk.rules.reach), self.desk.rules, now)

    def withdraw(self, call: Call, id: str) -> Entry:
        """Withdraw a letter of this agent."""
        with self._refusals(call):
            self.desk.reconcile()
            entry = self.desk.proposals.withdraw(call, id)
        return self.desk.synced(entry)

    def status(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent."""
        with self._refusals(call):
            self.desk.reconcile()
            entry = self.desk.proposals.status(call, id)
        self.desk.flush_log()
        return entry

    def replaced_by(self, entry: Entry) -> str:
        """Return the id of the letter that replaces this one, or nothing."""
        with self.desk.ledger.read() as tx:
            newer = tx.letters.replacement_of(entry.agent, entry.id)
        return newer[0] if newer else ""

    def peek(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent, for a call whose line is written later."""
        self.desk.reconcile()
        return self.desk.proposals.find(call, id)

    def letters(self, call: Call) -> list[LetterSummary]:
        """Return the open letters of this agent, newest last."""
        with self._refusals(call):
            check_name(call)
            self.desk.reconcile()
            summaries = self.desk.ledger.lists.summaries(agent=call.agent)
        self.desk.recorder.write(call, synced=False)
        return summaries

    def newest_letters(self, call: Call, count: int) -> list[str]:
        """Return the ids of this agent's newest letters, for a call that leaves no line."""
        check_name(call)
        return [
            line.id for line in self.desk.ledger.lists.summaries(agent=call.agent, newest=count)
        ]

    def is_reply_approved(self, call: Call, thread: str) -> bool:
        """Return whether a letter of this agent's in a conversation, or a slip for a reply to it, is approved."""
        self.desk.reconcile()
        approved = self.desk.ledger.lists.summaries("approved", agent=call.agent)
        if any(self.desk.ledger.letters.get(line.id).letter.thread == thread for line in approved):
            return True
        return self.desk.rules.trust == "folder" and any(
            slip.type == "email_reply" and slip.status == "approved" and slip.thread == thread
            for slip in self.desk.display.slips()
        )

    @contextmanager
    def _refusals(self, call: Call) -> Iterator[None]:
        """Write the line of a call that is refused, and show it in the log file."""
        try:
            with self.desk.recorder.refusals(call):
                yield
        except PostroomError:
            with suppress(PostroomError):  # the next call writes the log
                self.desk.flush_log()
            raise


def _is_in_dispatch(entry: Entry) -> bool:
    """Whether another dispatcher is sending it, or about to."""
    state = entry.state
    return isinstance(state, life.Sending) or (isinstance(state, life.Approved) and not state.held)


def _is_paced(entry: Entry) -> bool:
    return isinstance(entry.state, life.Approved) and entry.state.code == "pace"
