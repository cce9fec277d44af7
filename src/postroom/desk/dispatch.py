"""Dispatch: an approved letter is claimed, checked for the last time, sent, and recorded.

The order of these steps makes it safe. A kernel lock is held for the claim's whole life: a letter in state *sending*
without its lock belongs to a dead dispatcher. The claim is in the ledger, and its line in the log, before a byte
leaves. So a crash afterwards, or a ledger restored from a backup, leaves a letter that counts as possibly sent, and
never one that was sent and counts as waiting. Such a letter is sent again only after the provider has proved that it
was not sent, or has refused it. A refusal of one try proves nothing about an earlier try without an answer, so it
counts only once the provider has been asked about that too.

A dispatcher may stall, and continue after another one took its claim over. So a dispatcher that takes a claim over
raises the letter's version first; the former one can then record nothing but that the letter was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from postroom.core import life, policy
from postroom.core.audit import Value
from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Denied,
    Invalid,
    Limited,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.core.policy import SLIP_SECONDS, Rules
from postroom.core.records import Entry
from postroom.core.stamp import DAY, Stamp, elapsed
from postroom.core.values import dataclass
from postroom.desk.proofs import Proofs
from postroom.desk.recorder import Call, add_line
from postroom.mail import mailbox, mime
from postroom.mail.mailbox import Mailbox
from postroom.store.ledger import Ledger, Transaction
from postroom.store.protocol import HoldClaim

ASK_AGAIN = 60.0  # seconds before a provider is asked again about an unknown letter
LATEST = 3600.0  # seconds after which a draft prepared without an answer no longer turns up
IMMEDIATE_TRIES = 3  # tries without a pause between them, while each proves that nothing was sent
_TEMPORARY = (Unavailable, Limited, AuthRequired)  # nothing was sent, and a later try may succeed


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    ledger: Ledger
    rules: Rules
    clock: Callable[[], Stamp]
    mailboxes: Callable[[str], Mailbox]
    hold_claim: HoldClaim
    paused: Callable[[], str]  # returns the file by which a person paused all sending
    refresh_note: Callable[[Entry], Entry]  # carries out what a person did to the letter's note
    flush_log: Callable[[], None]  # writes the ledger's new lines to the log file
    write_pre_send_record: Callable[[Entry], None]  # does nothing for a letter without one
    crash_point: Callable[[str], None]  # does nothing; crash tests stop the process here

    def dispatch(self, id: str) -> Entry:
        """Send a letter if it is approved and due; ask the provider about it if its dispatcher died or it is unknown.

        Returns the letter as it is afterwards, unchanged if another dispatcher has its claim.
        """
        with self.hold_claim(id) as is_owner:
            entry = self.ledger.letters.get(id)
            if not is_owner:
                return entry
            self.crash_point("locked")
            match entry.state:
                case life.Approved() as state if self._due(state):
                    return self._refresh_and_send(entry, state)
                case life.Sending():
                    return self._settle(entry, "its sender died")
                case life.Unknown(asked=asked) if elapsed(asked, self.clock()) >= ASK_AGAIN:
                    return self._ask_again(entry)
            return entry

    def dispatch_all(self) -> list[Entry]:
        """Dispatch all letters as `dispatch` does, and release the proofs of closed ones; return letters that changed."""
        changed = []
        for line in self.ledger.lists.summaries("approved", "sending", "unknown"):
            if isinstance(line.state, life.Approved) and not self._due(line.state):
                continue
            entry = self.dispatch(line.id)
            if entry.state != line.state:
                changed.append(entry)
        for id in self.ledger.proofs.unreleased():
            before = self.ledger.letters.get(id)
            if (entry := self._release(id)).state != before.state:
                changed.append(entry)
        for id, (since, swept) in self.ledger.proofs.orphans().items():
            if swept is None or elapsed(swept, self.clock()) >= ASK_AGAIN:
                self._sweep(id, since)
        return changed

    def _release(self, id: str) -> Entry:
        """Have the provider delete the draft that was prepared for a letter which is closed now.

        If the provider shows that an earlier try has sent the letter late, that is recorded.
        """
        with self.hold_claim(id) as is_owner:
            entry = self.ledger.letters.get(id)
            if not is_owner or entry.kind in life.OPEN:
                return entry
            try:
                outcome = self._proofs.release(entry)
            except PostroomError:  # the next call tries again
                return entry
            match outcome:
                case mailbox.Accepted() as sent:
                    return self._sent(entry, sent, "proved by the provider")
                case mailbox.Unproven(reason=why, final=True):
                    return self._unknown(entry, why, None, spent=True)
            return entry

    def _sweep(self, id: str, since: Stamp) -> None:
        """Have the provider delete drafts that were prepared for a letter and that no proof names.

        The provider may list such a draft only later, so each call searches again until some time has passed.
        """
        with self.hold_claim(id) as is_owner:
            entry = self.ledger.letters.get(id)
            if not is_owner or entry.kind == "sending":
                return
            now = self.clock()
            try:
                more = self._proofs.sweep(entry) and elapsed(since, now) < LATEST
            except PostroomError:
                more = elapsed(since, now) < DAY
            with self.ledger.write() as tx:
                tx.proofs.add_orphan(id, since, now) if more else tx.proofs.drop_orphan(id)

    @property
    def _proofs(self) -> Proofs:
        return Proofs(self.ledger, self.mailboxes, self.crash_point)

    def due_in(self, state: life.Approved) -> float:
        return max(0.0, state.wait - elapsed(state.since, self.clock()))

    def _due(self, state: life.Approved) -> bool:
        return self.due_in(state) <= 0

    # Sending

    def _refresh_and_send(self, entry: Entry, state: life.Approved) -> Entry:
        try:
            # The person may have taken the note back while the undo window passed.
            entry = self.refresh_note(entry)
        except PostroomError as absent:
            return self._hold(entry, state, absent.message, policy.back_off(1), absent.code)
        if isinstance(entry.state, life.Approved) and self._due(entry.state):
            return self._send(entry, entry.state)
        return entry

    def _send(self, entry: Entry, state: life.Approved) -> Entry:
        # Check the letter for the last time, claim it, and send it. A letter that cannot be sent now is held, one that
        # must never be sent fails, and one that needs another verdict becomes pending.
        now = self.clock()
        try:
            box = self.mailboxes(entry.letter.account)
            own = {address.key for address in box.own_addresses()}
            why = self._never(entry, state, own)
            paused = self.paused()
        except PostroomError as absent:
            return self._hold(entry, state, _held(absent), policy.back_off(1), _code(absent))
        if why:
            return self._record(entry, life.Failed(now, why), error=why)
        if not entry.letter.is_reduced:
            return self._record(entry, life.Pending(now), error="its HTML part was not built here")
        if not self.rules.live:
            return self._hold(entry, state, f"Postroom rehearses ({self.rules.source})")
        if paused:
            return self._hold(entry, state, f"all sending is paused by {paused}")
        if entry.letter.sender.key not in own:
            reason = f"the account no longer sends as {entry.letter.sender.spec}"
            return self._hold(entry, state, reason, policy.back_off(1))
        wire = box.wire(entry.letter, date=datetime.fromtimestamp(now.wall, UTC))
        if why := mime.find_difference(entry.letter, wire):
            return self._record(entry, life.Failed(now, why), error=why)
        self.crash_point("checked")
        try:
            claimed = self._claim(entry, state, wire)
        except Limited as full:
            return self._hold(
                entry, state, full.message, full.seconds, "pace" if full.pace else full.code
            )
        except Conflict:  # a person or another process has changed the letter at this moment
            return self.ledger.letters.get(entry.id)
        except Denied as void:  # its slip is spent on another letter: it needs another verdict
            return self._record(entry, life.Pending(now), error=void.message)
        self.crash_point("claimed")
        return self._hand_over(claimed, box, wire)

    def _never(self, entry: Entry, state: life.Approved, own: set[str]) -> str:
        """Return the reason for which a letter must never be sent; empty if there is none."""
        if not entry.digest == entry.letter.digest == state.verdict.digest:
            return "it is not the letter that was approved: its digest differs"
        if state.first and elapsed(state.first, self.clock()) >= DAY:
            return f"it was refused for 24 hours, at last: {state.held}"
        try:
            policy.admit(entry.letter, self.rules, own)
        except (Denied, Invalid) as refused:
            return refused.message
        return ""

    def _claim(self, entry: Entry, state: life.Approved, wire: bytes) -> Entry:
        # In one transaction: check and spend the budget, spend the slip, change the state, add the line of the log.
        # Raises `Limited` without budget, `Denied` for a spent slip, `Conflict` if the letter has changed.
        now = self.clock()
        with self.ledger.write() as tx:
            policy.room(tx.budget.spent(now, self.rules.reach), entry.letter, self.rules, now)
            if slip := state.verdict.slip:
                tx.slips.spend(slip, entry.id, lambda seen: elapsed(seen, now) < SLIP_SECONDS)
            tx.budget.spend(entry.id, len(entry.letter.envelope), entry.letter.thread, now)
            sha = hashlib.sha256(wire).hexdigest()
            claimed = tx.letters.swap(entry, life.claim(state, now, sha))
            self._line(tx, claimed, "claim_letter")
            return claimed

    def _hand_over(self, entry: Entry, box: Mailbox, wire: bytes) -> Entry:
        # Send a claimed letter and record the outcome.
        try:
            self.flush_log()
            self.write_pre_send_record(entry)
            self.crash_point("published")
        except PostroomError as why:
            return self._retry(entry, why)
        return self._try(entry, box, wire, may_repeat=True)

    def _try(self, entry: Entry, box: Mailbox, wire: bytes, *, may_repeat: bool) -> Entry:
        # After `Uncertain`, `Conflict` or an unexpected error the letter may have been sent, so the provider is asked. Any
        # other error is a refusal: this try has sent nothing, and if the provider answered with a status, it is asked
        # about earlier tries. A try that was refused for its token alone is repeated once, with the new one, by the same
        # proof.
        handed_over = False
        try:
            proof = self._proofs.prepare_proof(entry, box, wire)
            handed_over = True
            sent = box.send(entry.letter, wire, proof)
        except (Uncertain, Conflict) as why:
            return self._settle(entry, why.message, why)
        except PostroomError as why:
            if handed_over and may_repeat and isinstance(why, mailbox.TokenRenewed):
                with self.ledger.write() as tx:
                    tx.proofs.mark_answered(entry.id)
                return self._try(entry, box, wire, may_repeat=False)
            if handed_over and why.status:
                return self._check_refusal(entry, box, proof, why)
            return self._refused(entry, why, answered=handed_over)
        except Exception as why:  # noqa: BLE001 - after any error here, the letter may have been sent
            return self._settle(entry, f"{type(why).__name__} while it was sent")
        self.crash_point("answered")
        return self._sent(entry, sent, "accepted")

    def _sent(self, entry: Entry, sent: mailbox.Accepted, how: str) -> Entry:
        refused = tuple(address.spec for address in sent.refused)
        verdict = getattr(entry.state, "verdict", None)
        state = life.Sent(self.clock(), sent.message, sent.thread, refused, verdict, how)
        return self._record(entry, state)

    def _check_refusal(self, entry: Entry, box: Mailbox, proof: str, why: PostroomError) -> Entry:
        """Record a refusal, unless this try or an earlier one has sent the letter, or may have.

        If the provider cannot be asked now, a temporary refusal is recorded: the next try uses the same proof, so it
        cannot send the letter twice.
        """
        found: mailbox.SendOutcome
        answered = False
        try:
            found, answered = box.find_outcome(entry.letter, proof), True
        except Exception as unseen:  # noqa: BLE001 - after any error, nothing is proved
            found = mailbox.Unproven(str(unseen), final=not isinstance(why, _TEMPORARY))
        if isinstance(found, mailbox.Accepted) or (
            isinstance(found, mailbox.Unproven) and found.final
        ):
            return self._settle(entry, why.message, why)
        return self._refused(entry, why, answered=answered)

    def _refused(self, entry: Entry, why: PostroomError, *, answered: bool) -> Entry:
        if isinstance(why, _TEMPORARY):
            return self._retry(entry, why, answered=answered)
        failed = life.Failed(self.clock(), why.message, why.code)
        return self._record(entry, failed, error=why.message, refund=True, answered=answered)

    def _retry(self, entry: Entry, why: PostroomError, *, answered: bool = False) -> Entry:
        assert isinstance(entry.state, life.Sending)
        pause = policy.back_off if isinstance(why, AuthRequired) else policy.retry_pause
        wait = max(pause(entry.state.tries), why.seconds)
        state = life.hold(entry.state, self.clock(), wait, _held(why), _code(why))
        return self._record(entry, state, error=why.message, refund=True, answered=answered)

    # The outcome of a try without an answer

    def _settle(self, entry: Entry, why: str, error: PostroomError | None = None) -> Entry:
        """Take a claimed letter over, ask the provider whether it was sent, and record the outcome.

        `error` is what its own try ended with, if it ended.
        """
        state, now = entry.state, self.clock()
        assert isinstance(state, life.Sending)
        try:
            with self.ledger.write() as tx:
                entry = tx.letters.take_over(entry)
        except Conflict:  # another dispatcher has taken it over
            return self.ledger.letters.get(entry.id)
        self.crash_point("claim taken")
        match self._proofs.query_outcome(entry):
            case mailbox.Accepted() as sent:
                return self._sent(entry, sent, "proved by the provider")
            case mailbox.NotSent(evidence=proof):
                tries = state.tries - IMMEDIATE_TRIES
                wait = policy.back_off(tries) if tries > 0 else 0.0
                wait, code = max(wait, error.seconds if error else 0.0), _code(error)
                again = life.hold(state, now, wait, f"{why}; {proof}", code)
                return self._record(entry, again, error=why, refund=True)
            case mailbox.Unproven(reason=unproved, final=spent):
                code = _code(error) if isinstance(error, Uncertain) else ""
                return self._unknown(
                    entry, f"{why}; {unproved}", state.verdict, spent=spent, code=code
                )

    def _unknown(
        self, entry: Entry, why: str, verdict: life.Verdict | None, *, spent: bool, code: str = ""
    ) -> Entry:
        """Record that it is unknown whether a letter was sent; with `spent`, drop its proof, which proves nothing more."""
        now = self.clock()
        unknown = life.Unknown(now, why, now, verdict, code)
        return self._record(entry, unknown, error=why, spent=spent)

    def _ask_again(self, entry: Entry) -> Entry:
        """Ask the provider again about an unknown letter, and record a new answer.

        An answer that it was not sent counts only if this ledger has the proof of the try: after a restored backup, a
        later try may be missing in the ledger. After a day, the letter needs another verdict.
        """
        state, now = entry.state, self.clock()
        assert isinstance(state, life.Unknown)
        proof, answer = self.ledger.proofs.get(entry.id), self._proofs.query_outcome(entry)
        if isinstance(answer, mailbox.Accepted):
            return self._sent(entry, answer, "proved by the provider")
        if isinstance(answer, mailbox.NotSent) and proof and state.verdict:
            old = elapsed(state.at, now) >= DAY
            again = life.Approved(state.verdict, now, 0, answer.evidence, 1, state.at)
            return self._record(
                entry, life.Pending(now) if old else again, error=answer.evidence, refund=True
            )
        spent = isinstance(answer, mailbox.Unproven) and answer.final
        return self._swap(entry, replace(state, asked=now), drop=spent)

    # The ledger

    def _hold(
        self, entry: Entry, state: life.Approved, reason: str, wait: float = 0, code: str = ""
    ) -> Entry:
        if state.held == reason and not wait:
            return entry
        return self._swap(entry, life.hold(state, self.clock(), wait, reason, code))

    def _swap(self, entry: Entry, state: life.State, *, drop: bool = False) -> Entry:
        """Change a letter's state without a line in the log; if somebody changed it first, that change stays."""
        try:
            with self.ledger.write() as tx:
                if drop:
                    tx.proofs.drop(entry.id)
                return tx.letters.swap(entry, state)
        except Conflict:
            return self.ledger.letters.get(entry.id)

    def _record(
        self,
        entry: Entry,
        state: life.State,
        *,
        error: str = "",
        refund: bool = False,
        answered: bool = False,
        spent: bool = False,
    ) -> Entry:
        """Change a letter's state, with a line in the log; return the letter as it is afterwards.

        If somebody changed the letter first, that change stays. Only *sent* is recorded in any case. `answered` means
        that the provider has answered this try, `refund` returns its place in the budget, `spent` drops its proof.
        """
        sent = isinstance(state, life.Sent)
        try:
            with self.ledger.write() as tx:
                if (sent or spent) and not tx.proofs.drop(entry.id) and spent:
                    raise life.refuse(entry.id, entry.state, "settled by two at once")
                if answered:
                    tx.proofs.mark_answered(entry.id)
                verdict = getattr(entry.state, "verdict", None)
                if refund and verdict:
                    tx.budget.refund(entry.id, verdict.slip)
                new = self._swap_sent(tx, entry, state) if sent else tx.letters.swap(entry, state)
                self._line(tx, new, "send_letter", error)
        except Conflict:
            return self.ledger.letters.get(entry.id)
        self.crash_point("recorded")
        return new

    def _swap_sent(self, tx: Transaction, entry: Entry, state: life.State) -> Entry:
        try:
            return tx.letters.swap(entry, state)
        except Conflict:
            now = tx.letters.get(entry.id)
            # If the letter was edited meanwhile, another version was sent. The proof of the new one shows its outcome.
            if now.digest != entry.digest or now.kind == "sent":
                raise
            return tx.letters.swap(now, state)

    def _line(self, tx: Transaction, entry: Entry, action: str, error: str = "") -> None:
        verdict = getattr(entry.state, "verdict", None)
        about: dict[str, Value] = {}
        if verdict is not None:
            about |= {"by": verdict.by, "via": verdict.via, "slip": verdict.slip}
        if action == "claim_letter":  # a restored ledger takes these from the log, for its budget
            about |= {"recipients": len(entry.letter.envelope), "thread": entry.letter.thread}
        call = Call(action, entry.agent, "dispatcher")
        add_line(tx, call, entry, "error" if error else "success", error, about)


def _code(why: PostroomError | None) -> str:
    """Return the code of what holds a letter, which tells causes apart for which contracts have words of their own."""
    if isinstance(why, Limited):
        return "quota" if why.status == 403 else "throttled"
    if isinstance(why, mailbox.Unreachable | mailbox.ConnectionLost):
        return "unreachable"
    return why.code if isinstance(why, _TEMPORARY) else Unavailable.code


def _held(why: PostroomError) -> str:
    """Return the reason for which a letter is held, with the remedy if a person must sign in again."""
    return f"{why.message}. {why.remedy}" if isinstance(why, AuthRequired) else why.message
