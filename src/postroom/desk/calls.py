"""The calls of agents about letters: each reconciles the vault once, and leaves one line in the log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from postroom.core import life, policy
from postroom.core.audit import Value, redact_addresses
from postroom.core.errors import AuthRequired, Conflict, NotFound, PostroomError
from postroom.core.letter import Letter
from postroom.core.records import Entry, LetterFilter, LetterSummary
from postroom.core.stamp import elapsed
from postroom.core.values import dataclass
from postroom.desk.proposals import PLAIN, Proposal, is_refused_as_sent
from postroom.desk.recorder import Call, add_line, check_name
from postroom.store.files import locked, write_all
from postroom.store.sql.letters import LetterReader

if TYPE_CHECKING:
    from postroom.desk.desk import Desk

# Seconds that a call waits:
MAX_UNDO_WAIT = 30.0  # for an undo window to pass
MAX_PACE_WAIT = 60.0  # for the pace
MAX_WAIT = 90.0  # in all, with the wait for another dispatcher
MAX_RETRY_WAIT = 20.0  # for a provider that refuses a letter for now, from the first try on
MIN_WAIT = 0.5  # between two reads of a letter that another dispatcher has
MAX_ROUNDS = 8  # of waiting
MAX_TRIES = 1 + len(policy.RETRY_PAUSES)  # of a letter that the provider refuses for now


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
                answered = self.desk.exposure.answered
                fitting = [s for s in self.desk.display.slips() if s.fits(letter, answered)]
                proposal = proposal._replace(slip=fitting[0].hash if fitting else proposal.slip)
            entry = self.desk.proposals.propose(call, letter, proposal)
        if isinstance(entry.state, life.Approved | life.Sending):
            with self._refusals(call):
                entry = yield from self._dispatch_soon(call, entry)
            entry = self.desk.recorder.write_letter(call, entry)
        elif is_refused_as_sent(entry, proposal):
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

    def report_sent(self, id: str, *, reported: bool = True) -> None:
        """Record whether a call was answered that this letter was sent; skip it where that cannot be recorded."""
        with suppress(PostroomError), self.desk.ledger.write(synced=False) as tx:
            tx.letters.set_reported(id, reported=reported)

    def _notify(self, letter: Letter, entry: Entry) -> None:
        if entry.id == letter.id and isinstance(entry.state, life.Pending):
            page = ""
            with suppress(PostroomError):  # then the notice has no address
                page = self.desk.locks.page_address()
            self.desk.effects.notify(entry, f"{page}/letter/{entry.id}" if page else "")

    def _dispatch_soon(self, call: Call, entry: Entry) -> Generator[float, None, Entry]:
        """Dispatch an approved letter once it is due, or wait for the dispatcher that has it; yield the seconds to wait.

        A letter that its provider refuses for now, or proves unsent, is tried again a few times. Returns the letter as it
        is then; if the wait would be too long, without dispatching it.
        """
        waited, tries, since = 0.0, 0, self.desk.clock()
        try:
            for turn in range(MAX_ROUNDS):
                left = self.desk.due_in(entry) or 0.0
                least = policy.retry_pause(tries) if tries else MIN_WAIT
                wait = max(left, least) if turn or left else 0.0
                waited += wait
                if left > _most_wait(entry) or waited > MAX_WAIT:
                    break
                if tries and elapsed(since, self.desk.clock()) + wait > MAX_RETRY_WAIT:
                    break
                if wait:
                    yield PaceDelay(wait) if _is_paced(entry) else wait
                since = since if tries else self.desk.clock()
                before = entry.state
                entry = self.desk.dispatcher.dispatch(entry.id)
                tries += _was_refused(before, entry.state)
                died = isinstance(before, life.Sending) and self.desk.due_in(entry) == 0
                is_to_retry = _was_refused(before, entry.state) and tries < MAX_TRIES
                if not (_is_paced(entry) or _is_in_dispatch(entry) or died or is_to_retry):
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
            summaries = self.desk.ledger.lists.summaries(matching=LetterFilter(agent=call.agent))
        self.desk.recorder.write(call, synced=False)
        return summaries

    def newest_letters(self, call: Call, count: int) -> list[str]:
        check_name(call)
        newest = self.desk.ledger.lists.summaries(
            matching=LetterFilter(agent=call.agent), newest=count
        )
        return [line.id for line in newest]

    def is_reply_approved(self, call: Call, thread: str) -> bool:
        """Return whether a letter of this agent in a conversation is approved, or a slip for a reply in it exists."""
        self.desk.reconcile()
        approved = self.desk.ledger.lists.summaries(
            "approved", matching=LetterFilter(agent=call.agent)
        )
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


@dataclass(frozen=True, slots=True)
class SentDelivery:
    """The delivery of an answer that says that a letter was sent: once it is written out, a call was answered so."""

    calls: LetterCalls
    letter: str

    def __enter__(self) -> SentDelivery:
        return self

    def __exit__(self, *_details: object) -> None: ...

    def deliver(self, handle: int, data: bytes) -> None:
        """Write the answer to a descriptor, and record it before the last byte: the next call may come right after."""
        write_all(handle, data[:-1])
        self.confirm()
        try:
            write_all(handle, data[-1:])
        except OSError:
            self.take_back()
            raise

    def confirm(self) -> None:
        self.calls.report_sent(self.letter)

    def take_back(self) -> None:
        self.calls.report_sent(self.letter, reported=False)

    def release(self) -> None:
        """Leave it unrecorded: the answer was not written."""


def _is_in_dispatch(entry: Entry) -> bool:
    state = entry.state
    return isinstance(state, life.Sending) or (isinstance(state, life.Approved) and not state.held)


def _was_refused(before: life.State, after: life.State) -> bool:
    """Whether the provider refused a letter for now in a try between these states, or proved that it was not sent."""
    return (
        isinstance(before, life.Approved)
        and isinstance(after, life.Approved)
        and after.tries > before.tries
        and after.code != AuthRequired.code
    )


def _most_wait(entry: Entry) -> float:
    """Return the seconds for which a call waits at most until this letter is due."""
    if _is_paced(entry):
        return MAX_PACE_WAIT
    is_refused = isinstance(entry.state, life.Approved) and entry.state.tries > 0
    return MAX_RETRY_WAIT if is_refused else MAX_UNDO_WAIT


def _is_paced(entry: Entry) -> bool:
    return isinstance(entry.state, life.Approved) and entry.state.code == "pace"
