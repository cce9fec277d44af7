"""Proposals: agents ask for letters, look after them and withdraw them. Everything happens in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from postroom.core import life, policy
from postroom.core.audit import Value
from postroom.core.card import Card
from postroom.core.errors import Conflict, Invalid, NotFound
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.outgoing_html import is_reduced
from postroom.core.policy import DAY, Rules, has_expired
from postroom.core.records import Entry
from postroom.core.redaction import addresses
from postroom.core.stamp import Stamp, elapsed
from postroom.core.values import dataclass
from postroom.desk.compose import normalize_text
from postroom.desk.recorder import Call, CallRecorder, check_name
from postroom.desk.trust import folders_decide
from postroom.store.ledger import Ledger, Transaction
from postroom.store.sql.letters import LetterReader

HOME = "Pending_Approval"
PERSON = "person"
ORCHESTRATOR = "orchestrator"
AUTHORS = {
    PERSON: "a person, by hand",
    "vault": "not known: a note in the vault",
}  # that are no agents
MAX_KEY = 200


class Proposal(NamedTuple):
    """Options of a proposed letter."""

    key: str = ""  # idempotency key
    origins: tuple[str, ...] = ()
    replaces: str = ""
    home: str = HOME
    form: str = "note"
    slip: str = ""  # hash of a slip that fits
    verdict: str = ""  # who approved it already: the writer of a draft in Approved/
    refuse_if_sent: bool = False  # a letter that was sent already is an error
    match_persons_letter: bool = (
        False  # an approved letter that a person wrote, of the same content, is this one
    )
    pre_send_record: str = ""  # what a record written before the send says it answers, as JSON
    always_ask: bool = False  # needs a verdict even with `approvals.required = false`
    fields: Mapping[str, str] | None = None  # further frontmatter of its draft


class Assessor(Protocol):
    """Finds the facts about a letter's recipients and text."""

    def own(self, account: str) -> frozenset[str]:
        """Return the keys of the account's own addresses."""
        ...

    def card(self, letter: Letter, origins: Sequence[str]) -> Card:
        """Return the letter's risk card."""
        ...


@dataclass(frozen=True, slots=True)
class Proposals:
    """What agents do with letters."""

    ledger: Ledger
    rules: Rules
    assessor: Assessor
    clock: Callable[[], Stamp]
    recorder: CallRecorder

    def propose(self, call: Call, letter: Letter, proposal: Proposal | None = None) -> Entry:
        """Return the letter that this call means: an existing one, or a new one.

        The line of the call is written here if the letter waits or is a rehearsal; if it is approved
        already, the caller dispatches it and writes the line afterwards.
        """
        proposal = proposal or Proposal()
        if len(proposal.key) > MAX_KEY or not proposal.key.isprintable():
            raise Invalid(f"An idempotency key has at most {MAX_KEY} printable characters")
        check_name(call)
        letter = replace(
            letter, text=normalize_text(letter.text)
        )  # what a person sees is what it says
        refuse_other_html(letter)
        policy.admit(letter, self.rules, self.assessor.own(letter.account))
        with self.ledger.write() as tx:
            known = self._existing(tx, call, letter, proposal)
            if known is not None and not isinstance(known.state, life.Rehearsal):
                return self._repeat(tx, call, known, letter, proposal)
        # Outside of the transaction: the card asks the mailbox, and other processes should not wait for that.
        card = self.assessor.card(letter, proposal.origins)
        with self.ledger.write() as tx:
            known = self._existing(tx, call, letter, proposal)
            if known is not None and not isinstance(known.state, life.Rehearsal):
                return self._repeat(tx, call, known, letter, proposal)
            return self._enter(tx, call, letter, proposal, card, rehearsal=known)

    def _existing(
        self, tx: Transaction, call: Call, letter: Letter, proposal: Proposal
    ) -> Entry | None:
        """Return the letter that answers this call, or the rehearsal that a new one replaces."""
        by_key = tx.letters.by_key(call.agent, proposal.key) if proposal.key else None
        if by_key:
            id, content = by_key
            if content != letter.content_key:
                raise Conflict(
                    f"The idempotency key names the letter {id}, which says something else",
                    remedy="Use a new key for a new letter.",
                )
            return tx.letters.get(id)
        latest = tx.letters.latest(call.agent, letter.content_key)
        if proposal.match_persons_letter and not (
            latest and latest.kind in ("approved", "sending")
        ):
            by_person = tx.letters.latest(PERSON, letter.content_key)
            waits = latest is not None and latest.kind in life.OPEN
            counts = ("approved", "sending") if waits else ("approved", "sending", "sent")
            latest = by_person if by_person and by_person.kind in counts else latest
        match latest and latest.state:
            case life.Pending() | life.Approved() | life.Sending() | life.Unknown():
                return latest
            case life.Sent(at=at):
                if proposal.verdict:  # a note that a sync client brought back is no new letter
                    return latest
                fresh = bool(proposal.key) or (
                    bool(proposal.slip) and tx.slips.is_unspent(proposal.slip)
                )
                return latest if not fresh and elapsed(at, self.clock()) < DAY else None
            case life.Rejected() | life.Rehearsal():
                return latest
        return None

    def _repeat(
        self, tx: Transaction, call: Call, known: Entry, letter: Letter, proposal: Proposal
    ) -> Entry:
        """Answer a repeated call with the letter that exists."""
        if proposal.key and known.kind in life.OPEN:
            tx.letters.bind_key(call.agent, proposal.key, known)
        if proposal.pre_send_record:
            tx.letters.request_pre_send_record(known.id, proposal.pre_send_record)
        # A slip is about what is asked for now, which a person may have changed since; and a draft
        # of the person's that comes back after a recall is a stale copy, not another word.
        verdict = self._verdict(tx, known.digest, proposal._replace(verdict=""))
        same = known.letter.content_key == letter.content_key
        same = same and not (proposal.slip and tx.history.was_approved_by(known.id, proposal.slip))
        waits = isinstance(known.state, life.Pending) and not has_expired(
            known.state, self.rules, self.clock()
        )
        if waits and verdict and same:
            known = tx.letters.swap(known, life.Approved(verdict, verdict.at, 0))
        if not isinstance(known.state, life.Approved | life.Sending):
            again = proposal.refuse_if_sent and isinstance(known.state, life.Sent)
            self.recorder.add_line(tx, call, known, "rejected" if again else "")
        return known

    def _enter(
        self,
        tx: Transaction,
        call: Call,
        letter: Letter,
        proposal: Proposal,
        card: Card,
        *,
        rehearsal: Entry | None,
    ) -> Entry:
        rules, now = self.rules, self.clock()
        replaced = tx.letters.find(proposal.replaces) if proposal.replaces else None
        if proposal.replaces and (replaced is None or replaced.agent != call.agent):
            raise NotFound(f"There is no letter {proposal.replaces} of yours to replace")
        if proposal.replaces and (
            newer := tx.letters.replacement_of(call.agent, proposal.replaces)
        ):
            raise Conflict(
                f"The letter {proposal.replaces} was replaced already: {life.describe(newer[1], life.Audience.AGENT, id=newer[0])}",
                remedy=f"Ask after that one, or replace it with replaces={newer[0]}.",
            )
        if call.agent != PERSON:
            waiting, recent = tx.letters.load_of(call.agent, rules.proposals_per_hour)
            policy.admit_agent(waiting if rules.live else 0, recent, now, rules)
        state: life.State = life.Pending(now)
        if not rules.live:
            state = life.Rehearsal(now)
        elif verdict := self._verdict(tx, letter.digest, proposal):
            wait = rules.undo_seconds if proposal.verdict else 0
            state = life.Approved(verdict, now, wait)
        if rehearsal is not None:
            tx.letters.remove_rehearsal(rehearsal.id)
        entry = tx.letters.insert(
            Entry(
                letter=letter,
                agent=call.agent,
                state=state,
                created=now,
                card=card,
                digest=letter.digest,
                content_key=letter.content_key,
                home=proposal.home,
                form=proposal.form,
                replaces=proposal.replaces,
                origins=proposal.origins,
                pre_send=proposal.pre_send_record,
                fields=proposal.fields or {},
            )
        )
        if proposal.key:
            tx.letters.bind_key(call.agent, proposal.key, entry)
        if not isinstance(state, life.Approved) or proposal.verdict:
            self.recorder.add_line(tx, call, entry)
        return entry

    def rehearse(
        self, call: Call, letter: Letter | None, parameters: Mapping[str, Value] | None = None
    ) -> None:
        """Refuse what `propose` would, and write the line of a call in rehearsal; no letter is entered."""
        check_name(call)
        target = ""
        if letter is not None:
            own = self.assessor.own(letter.account) if letter.in_reply_to else frozenset()
            policy.admit(letter, self.rules, own)
            target = addresses([address.spec for address in letter.envelope])
            parameters = {"subject": letter.subject}
        self.recorder.write(call, result="dev_mode", target=target, parameters=parameters)

    def _verdict(self, tx: Transaction, digest: str, proposal: Proposal) -> life.Verdict | None:
        """Return the verdict that approves this call's letter at once, if there is one."""
        now = self.clock()
        if proposal.always_ask:
            return None
        if (proposal.verdict or proposal.slip) and folders_decide(self.rules, tx.settings):
            if proposal.verdict:
                return life.Verdict(proposal.verdict, Channel.FOLDER, now, digest)
            return life.Verdict(PERSON, Channel.SLIP, now, digest, proposal.slip)
        if self.rules.required or (tx.settings.passphrase and tx.settings.approval_required):
            return None
        return life.Verdict("nobody", Channel.NOT_REQUIRED, now, digest)

    def withdraw(self, call: Call, id: str) -> Entry:
        """Withdraw a letter of this agent that no dispatcher has claimed."""
        with self.ledger.write() as tx:
            entry = self._find(tx.letters, call, id)
            try:
                state = life.change(id, entry.state, "withdraw", self.clock())
            except Conflict as why:
                why.remedy = "There is nothing more to do."
                raise
            entry = tx.letters.swap(entry, state)
            self.recorder.add_line(tx, call, entry, result="success")
            return entry

    def status(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent, with the line of the call."""
        with self.ledger.write() as tx:
            entry = self._find(tx.letters, call, id)
            self.recorder.add_line(tx, call, entry, result="success")
            return entry

    def find(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent, without a line in the log."""
        with self.ledger.read() as tx:
            return self._find(tx.letters, call, id)

    def _find(self, letters: LetterReader, call: Call, id: str) -> Entry:
        check_name(call)
        entry = letters.find(id)
        # Another agent's letter is answered as if it did not exist.
        if entry is None or entry.agent != call.agent:
            raise NotFound(f"There is no letter {id}", remedy="Name one that you proposed.")
        return entry


def refuse_other_html(letter: Letter) -> None:
    """Refuse a letter whose HTML part was not built here, or whose text was not made from it."""
    if not is_reduced(letter.html, letter.text):
        raise Invalid("The HTML part and the text of a letter are made by Postroom alone")
