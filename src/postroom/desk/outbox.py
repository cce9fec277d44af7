"""The outbox: letters are proposed, a person decides, and the ledger keeps both. No file, no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from postroom.core import life, policy
from postroom.core.audit import ParsedLine, Value
from postroom.core.card import Card
from postroom.core.errors import Conflict, Denied, Invalid, NotFound
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.outgoing_html import is_reduced, reduce_html
from postroom.core.policy import DAY, Rules
from postroom.core.records import Entry, LetterState
from postroom.core.redaction import addresses
from postroom.core.stamp import Stamp, elapsed
from postroom.desk.compose import settled
from postroom.desk.recorder import Call, CallRecorder, check_name
from postroom.store.ledger import Ledger, Transaction
from postroom.store.sql.letters import LetterReader

HOME = "Pending_Approval"
PRE_SEND_RECORD = "before."
FIELDS = "fields "  # in the ledger, with a letter's id: what else the frontmatter of its draft has
PERSON = "person"
WHO = {PERSON: "a person, by hand", "vault": "not known: a note in the vault"}  # no agents
MAX_KEY = 200
NOT_LIVE = "Postroom rehearses"
ORCHESTRATOR = "orchestrator"


class Proposal(NamedTuple):
    """What is asked for beside the letter itself."""

    key: str = ""  # idempotency
    origins: tuple[str, ...] = ()
    replaces: str = ""
    home: str = HOME
    form: str = "note"
    slip: str = ""  # the hash of one that fits
    verdict: str = ""  # whose word came with it: a draft that a person wrote and approved
    refuse_if_sent: bool = False  # what was sent already is refused, not answered as sent
    match_persons_letter: bool = (
        False  # a person's own letter of the same words, once approved, is this letter
    )
    pre_send_record: str = ""  # a record is kept of it before it is sent, and answers this (JSON)
    always_ask: bool = False  # it waits for a person, even where none is required
    fields: Mapping[str, str] | None = None  # what its draft shows besides


class Assessor(Protocol):
    """Who knows the facts about a letter's recipients and words."""

    def own(self, account: str) -> frozenset[str]:
        """Return the keys of the account's own addresses."""
        ...

    def card(self, letter: Letter, origins: Sequence[str]) -> Card:
        """Return the letter's risk card."""
        ...


@dataclass(frozen=True, slots=True)
class Outbox:
    """Proposals and verdicts."""

    ledger: Ledger
    rules: Rules
    assessor: Assessor
    clock: Callable[[], Stamp]
    recorder: CallRecorder

    # Agents

    def propose(self, call: Call, letter: Letter, wish: Proposal | None = None) -> Entry:
        """Return the letter that this call means: one that is there, or a new one.

        A letter that is held or rehearsed leaves its line in the log here; for one that is approved
        already the caller dispatches it, and writes the line of the call afterwards.
        """
        wish = wish or Proposal()
        if len(wish.key) > MAX_KEY or not wish.key.isprintable():
            raise Invalid(f"An idempotency key has at most {MAX_KEY} printable characters")
        check_name(call)
        letter = replace(letter, text=settled(letter.text))  # what a person sees is what it says
        refuse_other_html(letter)
        policy.admit(letter, self.rules, self.assessor.own(letter.account))
        with self.ledger.write() as tx:
            known = self._known(tx, call, letter, wish)
            if known is not None and not isinstance(known.state, life.Rehearsal):
                return self._again(tx, call, known, letter, wish)
        # Outside: the card asks the mailbox, and nobody should wait for that.
        card = self.assessor.card(letter, wish.origins)
        with self.ledger.write() as tx:
            known = self._known(tx, call, letter, wish)
            if known is not None and not isinstance(known.state, life.Rehearsal):
                return self._again(tx, call, known, letter, wish)
            return self._enter(tx, call, letter, wish, card, rehearsal=known)

    def _known(self, tx: Transaction, call: Call, letter: Letter, wish: Proposal) -> Entry | None:
        """Return the letter that answers this call, or the rehearsal that a new one replaces."""
        bound = tx.letters.by_key(call.agent, wish.key) if wish.key else None
        if bound:
            id, content = bound
            if content != letter.content_key:
                raise Conflict(
                    f"The idempotency key names the letter {id}, which says something else",
                    remedy="Use a new key for a new letter.",
                )
            return tx.letters.get(id)
        latest = tx.letters.latest(call.agent, letter.content_key)
        if wish.match_persons_letter and not (latest and latest.kind in ("approved", "sending")):
            theirs = tx.letters.latest(PERSON, letter.content_key)
            waits = latest is not None and latest.kind in life.OPEN
            counts = ("approved", "sending") if waits else ("approved", "sending", "sent")
            latest = theirs if theirs and theirs.kind in counts else latest
        match latest and latest.state:
            case life.Pending() | life.Approved() | life.Sending() | life.Unknown():
                return latest
            case life.Sent(at=at):
                if wish.verdict:  # a note that a sync client brought back is no new letter
                    return latest
                fresh = bool(wish.key) or (bool(wish.slip) and tx.slips.is_unspent(wish.slip))
                return latest if not fresh and elapsed(at, self.clock()) < DAY else None
            case life.Rejected() | life.Rehearsal():
                return latest
        return None

    def _again(
        self, tx: Transaction, call: Call, known: Entry, letter: Letter, wish: Proposal
    ) -> Entry:
        """Answer a repeated call by the letter that is there."""
        if wish.key and known.kind in life.OPEN:
            tx.letters.bind_key(call.agent, wish.key, known)
        if wish.pre_send_record:
            tx.letters.request_pre_send_record(known.id, wish.pre_send_record)
        # A slip is about what is asked for now, which a person may have changed since; and a draft
        # of the person's that comes back after a recall is a stale copy, not another word.
        verdict = self._verdict(tx, known.digest, wish._replace(verdict=""))
        same = known.letter.content_key == letter.content_key
        same = same and not (wish.slip and tx.history.was_approved_by(known.id, wish.slip))
        waits = isinstance(known.state, life.Pending) and not self._lapsed(known.state)
        if waits and verdict and same:
            known = tx.letters.swap(known, life.Approved(verdict, verdict.at, 0))
        if not isinstance(known.state, life.Approved | life.Sending):
            again = wish.refuse_if_sent and isinstance(known.state, life.Sent)
            self.recorder.add_line(tx, call, known, "rejected" if again else "")
        return known

    def _enter(
        self,
        tx: Transaction,
        call: Call,
        letter: Letter,
        wish: Proposal,
        card: Card,
        *,
        rehearsal: Entry | None,
    ) -> Entry:
        rules, now = self.rules, self.clock()
        replaced = tx.letters.find(wish.replaces) if wish.replaces else None
        if wish.replaces and (replaced is None or replaced.agent != call.agent):
            raise NotFound(f"There is no letter {wish.replaces} of yours to replace")
        if wish.replaces and (newer := tx.letters.replacement_of(call.agent, wish.replaces)):
            raise Conflict(
                f"The letter {wish.replaces} was replaced already: {life.describe(newer[1], life.Audience.AGENT, id=newer[0])}",
                remedy=f"Ask after that one, or replace it with replaces={newer[0]}.",
            )
        if call.agent != PERSON:
            waiting, recent = tx.letters.load_of(call.agent, rules.proposals_per_hour)
            policy.admit_agent(waiting if rules.live else 0, recent, now, rules)
        state: life.State = life.Pending(now)
        if not rules.live:
            state = life.Rehearsal(now)
        elif verdict := self._verdict(tx, letter.digest, wish):
            wait = rules.undo_seconds if wish.verdict else 0
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
                home=wish.home,
                form=wish.form,
                replaces=wish.replaces,
                origins=wish.origins,
                pre_send=wish.pre_send_record,
                fields=wish.fields or {},
            )
        )
        if wish.key:
            tx.letters.bind_key(call.agent, wish.key, entry)
        if not isinstance(state, life.Approved) or wish.verdict:
            self.recorder.add_line(tx, call, entry)
        return entry

    def rehearse(
        self, call: Call, letter: Letter | None, parameters: Mapping[str, Value] | None = None
    ) -> None:
        """Refuse what `propose` would, and leave the line of a call that is only rehearsed."""
        check_name(call)
        target = ""
        if letter is not None:
            own = self.assessor.own(letter.account) if letter.in_reply_to else frozenset()
            policy.admit(letter, self.rules, own)
            target = addresses([address.spec for address in letter.envelope])
            parameters = {"subject": letter.subject}
        self.recorder.write(call, result="dev_mode", target=target, parameters=parameters)

    def _verdict(self, tx: Transaction, digest: str, wish: Proposal) -> life.Verdict | None:
        """Return the word that lets this call's letter out at once, if there is one."""
        now = self.clock()
        if wish.always_ask:
            return None
        if (wish.verdict or wish.slip) and self._folders_count(tx):
            if wish.verdict:
                return life.Verdict(wish.verdict, Channel.FOLDER, now, digest)
            return life.Verdict(PERSON, Channel.SLIP, now, digest, wish.slip)
        if self.rules.required or (tx.settings.passphrase and tx.settings.approval_required):
            return None
        return life.Verdict("nobody", Channel.NOT_REQUIRED, now, digest)

    def _folders_count(self, tx: Transaction) -> bool:
        """Whether what stands in a folder is a verdict: by our rules, and by the ledger's as of now."""
        pinned = tx.settings.passphrase and tx.settings.trust == "desk"
        return self.rules.trust == "folder" and not pinned

    def withdraw(self, call: Call, id: str) -> Entry:
        """Take back a letter of this agent's that has not been claimed."""
        with self.ledger.write() as tx:
            entry = self._of(tx.letters, call, id)
            try:
                state = life.withdraw(id, entry.state, self.clock())
            except Conflict as why:
                why.remedy = "There is nothing more to do."
                raise
            entry = tx.letters.swap(entry, state)
            self.recorder.add_line(tx, call, entry, result="success")
            return entry

    def status(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent's."""
        with self.ledger.write() as tx:
            entry = self._of(tx.letters, call, id)
            self.recorder.add_line(tx, call, entry, result="success")
            return entry

    def of(self, call: Call, id: str) -> Entry:
        """Return a letter of this agent's, and leave no line."""
        with self.ledger.read() as tx:
            return self._of(tx.letters, call, id)

    def _of(self, letters: LetterReader, call: Call, id: str) -> Entry:
        check_name(call)
        entry = letters.find(id)
        # Another agent's is as if there were none: who writes what is not everybody's.
        if entry is None or entry.agent != call.agent:
            raise NotFound(f"There is no letter {id}", remedy="Name one that you proposed.")
        return entry

    # A person

    def approve(self, id: str, *, by: str, via: Channel, digest: str = "", slip: str = "") -> Entry:
        """Let a letter out after the undo window.

        `digest` is (the beginning of) what the person saw, `slip` the request that they moved.
        """
        self.refuse_rehearsal()
        with self.ledger.write() as tx:
            if via is Channel.FOLDER:
                self._refuse_files(tx, id)
            entry, now = tx.letters.get(id), self.clock()
            shown = digest.removeprefix("sha256:")
            if digest and not entry.digest.removeprefix("sha256:").startswith(shown):
                raise _not_as_seen(entry)
            if not self._lapsed(entry.state):
                verdict = life.Verdict(by, via, now, entry.digest, slip)
                state = life.approve(id, entry.state, verdict, self.rules.undo_seconds)
                return self._decided(tx, entry, state, "approve_letter", by)
        self.expire()
        raise life.refuse(id, self.ledger.letters.get(id).state, "approved")

    def refuse_rehearsal(self) -> None:
        """Refuse an approval that could send nothing."""
        if not self.rules.live:
            source = self.rules.source
            wrong = "Nothing says otherwise" if source == "default" else f"{source} says so"
            raise Denied(
                f"{NOT_LIVE} ({source}): nothing can be sent, and nothing approved",
                remedy=f"{wrong}. Set dry_run = false in your settings file, and DRY_RUN and DEV_MODE"
                " nowhere to true.",
            )

    def _refuse_files(self, tx: Transaction, id: str) -> None:
        """Refuse a verdict given by a file, where the trust level does not let files decide."""
        if not self._folders_count(tx):
            raise Denied(
                "At trust level desk a note in a folder is no verdict",
                remedy=f"Approve it with `postroom approve {id}`.",
            )

    def approve_by_slip(self, id: str, slip: str) -> Entry:
        """Let a waiting letter out by a slip that fits it; a slip has no undo window."""
        with self.ledger.write() as tx:
            self._refuse_files(tx, id)
            entry = tx.letters.get(id)
            if tx.history.was_approved_by(id, slip):
                return entry
            if self._lapsed(entry.state):
                raise Conflict(
                    f"The letter {id} has waited too long", remedy="It is closed shortly."
                )
            verdict = life.Verdict(PERSON, Channel.SLIP, self.clock(), entry.digest, slip)
            state = life.approve(id, entry.state, verdict, 0)
            return self._decided(tx, entry, state, "approve_letter")

    def reject(self, id: str, *, by: str, reason: str, revise: bool = False) -> Entry:
        """Say no, with a reason that reaches the agent; or ask it for another version."""
        action = "revise_letter" if revise else "reject_letter"
        rejected = partial(life.reject, by=by, reason=reason[:2000], revise=revise)
        return self._decide(id, rejected, action, by)

    def recall(self, id: str, *, by: str = "") -> Entry:
        """Take an approval back, as long as nobody has claimed the letter."""
        return self._decide(id, life.recall, "undo_letter", by)

    def edit(self, id: str, letter: Letter, *, was: str = "", by: str = "") -> Entry:
        """Freeze a waiting letter anew as the person wants it; what it was is kept."""
        entry = self.ledger.letters.get(id)
        if was and was != entry.digest:
            raise _not_as_seen(entry)
        letter, card = self.edited(entry, letter)
        with self.ledger.write() as tx:
            new = tx.letters.swap(entry, entry.state, letter=letter, card=card)
            self.recorder.add_line(
                tx, Call("edit_letter", entry.agent, PERSON), new, result="success", by=by
            )
            return new

    def edited(self, entry: Entry, letter: Letter) -> tuple[Letter, Card]:
        """Return what an edit of a waiting letter would freeze, and its card; or say why it cannot."""
        if not isinstance(entry.state, life.Pending):
            raise life.refuse(entry.id, entry.state, "edited")
        if letter.text != entry.letter.text:
            letter = replace(letter, html="")  # it would say what the agent wrote
        refuse_other_html(letter)
        policy.admit(letter, self.rules, self.assessor.own(letter.account))
        return letter, self.assessor.card(letter, entry.origins)

    def resolve(self, id: str, *, by: str, sent: bool) -> Entry:
        """Settle a letter whose fate was unknown by what the person found out."""
        return self._decide(id, partial(life.resolve, by=by, sent=sent), "resolve_letter", by)

    def reopen(self, id: str, *, by: str = "") -> Entry:
        """Put a closed letter that was not sent before the person again."""
        return self._decide(id, life.reopen, "reopen_letter", by)

    def _decide(
        self, id: str, change: Callable[[str, life.State, Stamp], life.State], action: str, by: str
    ) -> Entry:
        with self.ledger.write() as tx:
            entry = tx.letters.get(id)
            return self._decided(tx, entry, change(id, entry.state, self.clock()), action, by)

    def _decided(
        self, tx: Transaction, entry: Entry, state: life.State, action: str, by: str = ""
    ) -> Entry:
        new = tx.letters.swap(entry, state)
        self.recorder.add_line(tx, Call(action, entry.agent, PERSON), new, result="success", by=by)
        return new

    # Time, and backups

    def _lapsed(self, state: life.State) -> bool:
        since = state.since if isinstance(state, life.Pending) else None
        return since is not None and elapsed(since, self.clock()) >= self.rules.expiry_seconds

    def expire(self, standings: dict[str, LetterState] | None = None) -> list[Entry]:
        """Close what nobody decided in time; of all letters, or of these."""
        standings = self.ledger.letters.states("pending") if standings is None else standings
        closed = []
        for id in [id for id, (state, _) in standings.items() if self._lapsed(state)]:
            with self.ledger.write() as tx:
                entry = tx.letters.get(id)
                if self._lapsed(entry.state):
                    new = tx.letters.swap(entry, life.Expired(self.clock()))
                    self.recorder.add_line(
                        tx, Call("expire_letter", entry.agent, "desk"), new, "success"
                    )
                    closed.append(new)
        return closed

    def refreeze(self, id: str) -> Entry | None:
        """Freeze a letter anew whose HTML an older version froze; return it if it waits for the person again.

        One that may have been sent keeps its bytes. Card, letter and state change in one transaction.
        """
        entry = self.ledger.letters.get(id)
        letter, why = _with_reduced_html(entry.letter)
        waits = isinstance(entry.state, life.Pending | life.Approved)
        if not waits or letter == entry.letter:
            with self.ledger.write() as tx:
                tx.letters.rekey(letter, done=waits)
            return None
        from postroom.review.tables import card_line

        card = self.assessor.card(letter, entry.origins).adding(card_line("refrozen", why=why))
        approved = isinstance(entry.state, life.Approved)
        with self.ledger.write() as tx:
            state = life.Pending(self.clock()) if approved else entry.state
            new = tx.letters.swap(entry, state, letter=letter, card=card)
            tx.letters.rekey(letter, done=True)
            self.recorder.add_line(tx, Call("refreeze_letter", entry.agent, "desk"), new, "success")
            return new

    def distrust(self, ahead: Sequence[ParsedLine], why: str) -> int:
        """Believe the log where it knows more than this ledger; what it leaves open is unknown."""
        named: dict[str, ParsedLine] = {}
        for read in ahead:
            # That it was sent is a fact, whatever was written after it.
            known = named.get(read.letter)
            if read.letter and read.state and not (known and known.state == "sent"):
                named[read.letter] = read
        with self.ledger.write() as tx:
            # Of what tools wrote until now, some has no row here.
            since = self.clock().wall
            tx.save_settings(replace(tx.settings, restored=why, tool_notes_since=since))
            for read in ahead:
                tx.actions.import_from_log(read)
            doubtful = 0
            open_ones = tx.letters.in_states("pending", "approved", "sending")
            ids = dict.fromkeys([*(entry.id for entry in open_ones), *named])
            for entry in filter(None, map(tx.letters.find, ids)):
                if isinstance(entry.state, life.Sent):
                    continue  # nothing that came later can take that back
                state = self._logged(named.get(entry.id), why)
                doubtful += isinstance(state, life.Unknown)
                new = tx.letters.swap(entry, state)
                self.recorder.add_line(
                    tx, Call("restore_ledger", entry.agent, "desk"), new, "success"
                )
            return doubtful

    def _logged(self, read: ParsedLine | None, why: str) -> life.State:
        """Return the state that the log gives; a claim, and what it does not name, is in doubt."""
        now = self.clock()
        logged: dict[str, life.State] = {
            "sent": life.Sent(now, "", "", how="sent, as the log says"),
            "pending": life.Pending(now),
            "approved": life.Pending(now),  # whose word it was is lost: it is asked for again
            "rejected": life.Rejected(now, PERSON, "as the log says"),
            "withdrawn": life.Withdrawn(now),
            "expired": life.Expired(now),
            "failed": life.Failed(now, "as the log says"),
        }
        return logged.get(read.state if read else "", life.Unknown(now, why, now))


def _not_as_seen(entry: Entry) -> Conflict:
    return Conflict(
        f"The letter {entry.id} is not what you saw: its digest is {entry.digest}",
        remedy=f"Look at it again with `postroom show {entry.id}`.",
    )


def _with_reduced_html(letter: Letter) -> tuple[Letter, str]:
    """Return a letter with its HTML part built anew, or without it where that is refused; and what was done."""
    try:
        html, text, _ = reduce_html(letter.html)
        if html:
            return replace(letter, html=html, text=text), "The text was made from its HTML part."
        why = "it shows nothing"
    except Invalid as refused:
        why = refused.message
    return replace(letter, html=""), f"Its HTML part was dropped ({why}); the plain text stays."


def refuse_other_html(letter: Letter) -> None:
    """Refuse a letter whose HTML part was not built here, or whose text was not made from it."""
    if not is_reduced(letter.html, letter.text):
        raise Invalid("The HTML part and the text of a letter are made by Postroom alone")
