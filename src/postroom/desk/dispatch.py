"""Dispatch: an approved letter is claimed, checked for the last time, sent, and recorded.

The order is the safety. A kernel lock is held for the claim's whole life, so that whoever finds a
letter *sending* without its lock knows that the owner is dead. The claim is in the ledger, and its
line in the log, before a byte leaves: a crash afterwards, or a ledger put back from a backup, finds
a letter that may have left, never one that has not. Only the provider can prove that it was sent,
and only a proof, or a refusal, lets it be sent again. A refusal of one try proves nothing about an
earlier one without an answer, so it counts only once the provider has been asked.

An owner may stall and come back after another took its claim over. So whoever settles a letter
raises its version first; afterwards the former owner can record nothing but that it was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from postroom.core import life, policy
from postroom.core.audit import Action
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
from postroom.core.outgoing_html import is_reduced
from postroom.core.policy import DAY, SLIP_SECONDS, Rules
from postroom.core.records import Entry
from postroom.core.redaction import addresses
from postroom.core.stamp import Stamp, elapsed
from postroom.core.values import dataclass
from postroom.desk.proofs import Proofs
from postroom.mail import mailbox, mime
from postroom.mail.mailbox import Mailbox
from postroom.store.ledger import Ledger, Transaction
from postroom.store.protocol import LetterClaims

ASK_AGAIN = 60.0  # seconds before a provider is asked again about a letter whose fate is unknown
LATEST = 3600.0  # seconds after which nothing that was prepared without an answer turns up any more
AT_ONCE = 3  # tries that follow each other where each proves that nothing was sent
_FOR_NOW = (Unavailable, Limited, AuthRequired)  # nothing happened, and it may go another time


def _no_crash(_name: str) -> None:
    """Do nothing; crash tests stop the process here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatcher:
    """Sends what a person approved, once."""

    ledger: Ledger
    rules: Rules
    clock: Callable[[], Stamp]
    mailboxes: Callable[[str], Mailbox]
    claims: LetterClaims
    paused: Callable[[], str]  # the file by which a person stopped all sending
    refresh_note: Callable[[Entry], None]  # takes in what a person did to the letter's note
    flush_log: Callable[[], None]  # brings the log file up to the ledger
    write_pre_send_record: Callable[[Entry], None]  # for a contract that asks for one
    crash_point: Callable[[str], None] = _no_crash

    def dispatch(self, id: str) -> Entry:
        """Send a letter if it is approved and due; ask about it if its dispatcher died. Return its new entry."""
        with self.claims.hold(id) as is_owner:
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
        """Dispatch every letter that is due, ask about interrupted ones, release proofs; return what changed."""
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
        """Have the provider take back what was prepared for a letter that did not leave after all.

        Where an earlier try was carried out late, that is recorded.
        """
        with self.claims.hold(id) as is_owner:
            entry = self.ledger.letters.get(id)
            if not is_owner or entry.kind in life.OPEN:
                return entry
            try:
                news = self._proofs.release(entry)
            except PostroomError:  # the next round does it
                return entry
            match news:
                case mailbox.Accepted() as sent:
                    return self._sent(entry, sent, "proved by the provider")
                case mailbox.Unproven(reason=why, final=True):
                    return self._unknown(entry, why, None, spent=True)
            return entry

    def _sweep(self, id: str, since: Stamp) -> None:
        """Have the provider remove what was prepared for a letter, and no proof names.

        Its lists may show that late, so it is looked for until some time has passed.
        """
        with self.claims.hold(id) as is_owner:
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
        """Return the seconds until an approved letter may be claimed."""
        return max(0.0, state.wait - elapsed(state.since, self.clock()))

    def _due(self, state: life.Approved) -> bool:
        return self.due_in(state) <= 0

    # The way out

    def _refresh_and_send(self, entry: Entry, state: life.Approved) -> Entry:
        try:
            self.refresh_note(
                entry
            )  # the person may have taken the note back while the undo window passed
        except PostroomError as absent:
            return self._hold(entry, state, absent.message, policy.back_off(1), absent.code)
        entry = self.ledger.letters.refresh(entry)
        if isinstance(entry.state, life.Approved) and self._due(entry.state):
            return self._send(entry, entry.state)
        return entry

    def _send(self, entry: Entry, state: life.Approved) -> Entry:
        now = self.clock()
        try:
            box = self.mailboxes(entry.letter.account)
            own = {address.key for address in box.own_addresses()}
            why = self._never(entry, state, own)
            paused = self.paused()
        except PostroomError as absent:
            return self._hold(entry, state, _held(absent), policy.back_off(1), absent.code)
        if why:
            return self._record(entry, life.Failed(now, why), error=why)
        if not is_reduced(entry.letter.html, entry.letter.text):
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
        except Conflict:  # somebody decided otherwise in this moment
            return self.ledger.letters.get(entry.id)
        except Denied as void:  # its slip is spent: it needs another word
            return self._record(entry, life.Pending(now), error=void.message)
        self.crash_point("claimed")
        return self._hand_over(claimed, box, wire)

    def _never(self, entry: Entry, state: life.Approved, own: set[str]) -> str:
        """Return why a letter must not be sent at all, by what is in the ledger now."""
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
        now = self.clock()
        with self.ledger.write() as tx:
            policy.room(tx.budget.spent(now, self.rules.reach), entry.letter, self.rules, now)
            if slip := state.verdict.slip:
                tx.slips.spend(slip, entry.id, lambda seen: elapsed(seen, now) < SLIP_SECONDS)
            tx.budget.spend(entry.letter, now)
            sha = hashlib.sha256(wire).hexdigest()
            claimed = tx.letters.swap(entry, life.claim(state, now, sha))
            self._line(tx, claimed, "claim_letter")
            return claimed

    def _hand_over(self, entry: Entry, box: Mailbox, wire: bytes) -> Entry:
        try:
            self.flush_log()
            self.write_pre_send_record(entry)
            self.crash_point("published")
        except PostroomError as why:
            return self._retry(entry, why)
        handed_over = False
        try:
            proof = self._proofs.prepare_proof(entry, box, wire)
            handed_over = True
            sent = box.send(entry.letter, wire, proof)
        except (Uncertain, Conflict) as why:
            return self._settle(entry, why.message)
        except PostroomError as why:
            if handed_over and why.status:
                return self._check_refusal(entry, box, proof, why)
            return self._refused(entry, why, answered=handed_over)
        except Exception as why:  # noqa: BLE001 - whatever broke, the letter may have left
            return self._settle(entry, f"{type(why).__name__} while it was sent")
        self.crash_point("answered")
        return self._sent(entry, sent, "accepted")

    def _sent(self, entry: Entry, sent: mailbox.Accepted, how: str) -> Entry:
        refused = tuple(address.spec for address in sent.refused)
        verdict = getattr(entry.state, "verdict", None)
        state = life.Sent(self.clock(), sent.message, sent.thread, refused, verdict, how)
        return self._record(entry, state)

    def _check_refusal(self, entry: Entry, box: Mailbox, proof: str, why: PostroomError) -> Entry:
        """Record a refusal, unless the letter has left or may have: by this try, or an earlier one.

        If nobody can tell now, a refusal for the moment is no risk: the next try has the same proof.
        """
        found: mailbox.SendOutcome
        answered = False
        try:
            found, answered = box.find_outcome(entry.letter, proof), True
        except Exception as unseen:  # noqa: BLE001 - whatever broke, nothing is proved
            found = mailbox.Unproven(str(unseen), final=not isinstance(why, _FOR_NOW))
        if isinstance(found, mailbox.Accepted) or (
            isinstance(found, mailbox.Unproven) and found.final
        ):
            return self._settle(entry, why.message)
        return self._refused(entry, why, answered=answered)

    def _refused(self, entry: Entry, why: PostroomError, *, answered: bool) -> Entry:
        if isinstance(why, _FOR_NOW):
            return self._retry(entry, why, answered=answered)
        failed = life.Failed(self.clock(), why.message)
        return self._record(entry, failed, error=why.message, refund=True, answered=answered)

    def _retry(self, entry: Entry, why: PostroomError, *, answered: bool = False) -> Entry:
        assert isinstance(entry.state, life.Sending)
        wait = max(policy.back_off(entry.state.tries), getattr(why, "seconds", 0.0))
        code = "quota" if isinstance(why, Limited) else why.code
        state = life.retry(entry.state, self.clock(), wait, _held(why), code)
        return self._record(entry, state, error=why.message, refund=True, answered=answered)

    # What became of it

    def _settle(self, entry: Entry, why: str) -> Entry:
        """Ask the provider what became of a claimed letter, as its only owner from now on."""
        state, now = entry.state, self.clock()
        assert isinstance(state, life.Sending)
        try:
            with self.ledger.write() as tx:
                entry = tx.letters.take_over(entry)
        except Conflict:  # somebody else has it
            return self.ledger.letters.get(entry.id)
        self.crash_point("claim taken")
        match self._proofs.query_outcome(entry):
            case mailbox.Accepted() as sent:
                return self._sent(entry, sent, "proved by the provider")
            case mailbox.NotSent(evidence=proof):
                tries = state.tries - AT_ONCE
                wait = policy.back_off(tries) if tries > 0 else 0.0
                again = life.retry(state, now, wait, f"{why}; {proof}", Unavailable.code)
                return self._record(entry, again, error=why, refund=True)
            case mailbox.Unproven(reason=unproved, final=spent):
                return self._unknown(entry, f"{why}; {unproved}", state.verdict, spent=spent)

    def _unknown(
        self, entry: Entry, why: str, verdict: life.Verdict | None, *, spent: bool
    ) -> Entry:
        """Record that nobody knows; a proof that is spent proves nothing any more, and goes with it."""
        now = self.clock()
        unknown = life.Unknown(now, why, now, verdict)
        return self._record(entry, unknown, error=why, spent=spent)

    def _ask_again(self, entry: Entry) -> Entry:
        """Ask once more about an unknown letter.

        That it was not sent is news only where its own claim left a proof: a ledger from a backup
        knows nothing of what its successor did. After a day, the verdict is asked for again.
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
        """Change what is no news to the log; a person who was quicker is right."""
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
        """Give a letter its next state, with its line in the log; somebody who was quicker is right.

        Only that it was sent counts whatever was believed meanwhile.
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
                if sent:
                    now = tx.letters.get(entry.id)
                    # Of another version it is not true, and its proof tells when that is sent.
                    if now.digest == entry.digest and now.kind != "sent":
                        entry = now
                new = tx.letters.swap(entry, state)
                self._line(tx, new, "send_letter", error)
        except Conflict:
            return self.ledger.letters.get(entry.id)
        self.crash_point("recorded")
        return new

    def _line(self, tx: Transaction, entry: Entry, action: str, error: str = "") -> None:
        state = entry.state
        verdict = getattr(state, "verdict", None)
        parameters: dict[str, str | int | bool | None] = {"subject": entry.letter.subject}
        if verdict is not None:
            parameters |= {"by": verdict.by, "via": verdict.via, "slip": verdict.slip}
        if action == "claim_letter":  # what a ledger from a backup must know of it
            parameters |= {"recipients": len(entry.letter.envelope), "thread": entry.letter.thread}
        tx.actions.append(
            Action(
                actor="dispatcher",
                action_type=action,
                target=addresses([address.spec for address in entry.letter.envelope]),
                result="error" if error else "success",
                letter=entry.id,
                state=entry.kind,
                agent=entry.agent,
                parameters=parameters,
                error=error,
            )
        )


def _held(why: PostroomError) -> str:
    """Return why a letter is held; what a person must do for it is part of it."""
    return f"{why.message}. {why.remedy}" if isinstance(why, AuthRequired) else why.message
