"""Verdicts: a person approves, edits, rejects, takes back. Everything happens in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from postroom.core import life, policy
from postroom.core.card import Card
from postroom.core.errors import Conflict, Denied
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.policy import Rules, has_expired
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.core.values import dataclass
from postroom.desk.proposals import PERSON, Assessor, refuse_other_html
from postroom.desk.recorder import Call, CallRecorder
from postroom.desk.trust import folders_decide
from postroom.desk.upkeep import Upkeep
from postroom.store.ledger import Ledger, Transaction

MAX_REASON = 2000


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a person decides about letters."""

    ledger: Ledger
    rules: Rules
    assessor: Assessor
    clock: Callable[[], Stamp]
    recorder: CallRecorder
    upkeep: Upkeep

    def approve(self, id: str, *, by: str, via: Channel, digest: str = "", slip: str = "") -> Entry:
        """Approve a letter, to be sent after the undo window.

        `digest` is (the beginning of) the digest that the person saw, `slip` the request that they moved.
        """
        self.refuse_rehearsal()
        with self.ledger.write() as tx:
            if via is Channel.FOLDER:
                self._refuse_folder(tx, id)
            entry, now = tx.letters.get(id), self.clock()
            seen = digest.removeprefix("sha256:")
            if digest and not entry.digest.removeprefix("sha256:").startswith(seen):
                raise _changed_since_seen(entry)
            if not has_expired(entry.state, self.rules, self.clock()):
                verdict = life.Verdict(by, via, now, entry.digest, slip)
                state = life.approve(id, entry.state, verdict, self.rules.undo_seconds)
                return self._record(tx, entry, state, "approve", by)
        self.upkeep.expire()
        raise life.refuse(id, self.ledger.letters.get(id).state, "approved")

    def refuse_rehearsal(self) -> None:
        """Refuse an approval that could send nothing."""
        if not self.rules.live:
            source = self.rules.source
            cause = "Nothing says otherwise" if source == "default" else f"{source} says so"
            raise Denied(
                f"Postroom rehearses ({source}): nothing can be sent, and nothing approved",
                remedy=f"{cause}. Set dry_run = false in your settings file, and DRY_RUN and DEV_MODE"
                " nowhere to true.",
            )

    def _refuse_folder(self, tx: Transaction, id: str) -> None:
        """Refuse a verdict given by a file if the trust level does not let files decide."""
        if not folders_decide(self.rules, tx.settings):
            raise Denied(
                "At trust level desk a note in a folder is no verdict",
                remedy=f"Approve it with `postroom approve {id}`.",
            )

    def approve_by_slip(self, id: str, slip: str) -> Entry:
        """Approve a waiting letter by a slip that fits it; a slip has no undo window."""
        with self.ledger.write() as tx:
            self._refuse_folder(tx, id)
            entry = tx.letters.get(id)
            if tx.history.was_approved_by(id, slip):
                return entry
            if has_expired(entry.state, self.rules, self.clock()):
                raise Conflict(
                    f"The letter {id} has waited too long", remedy="It is closed shortly."
                )
            verdict = life.Verdict(PERSON, Channel.SLIP, self.clock(), entry.digest, slip)
            state = life.approve(id, entry.state, verdict, 0)
            return self._record(tx, entry, state, "approve")

    def decide(
        self, id: str, event: str, *, by: str = "", reason: str = "", sent: bool = False
    ) -> Entry:
        """Carry out an event of `life.EVENTS` other than approve and edit; see `life.change`."""
        with self.ledger.write() as tx:
            entry, now = tx.letters.get(id), self.clock()
            state = life.change(
                id, entry.state, event, now, by=by, reason=reason[:MAX_REASON], sent=sent
            )
            return self._record(tx, entry, state, event, by)

    def edit(self, id: str, letter: Letter, *, was: str = "", by: str = "") -> Entry:
        """Freeze a waiting letter again with the person's changes; the earlier version stays in the history.

        `was` is the digest that the person edited.
        """
        entry = self.ledger.letters.get(id)
        if was and was != entry.digest:
            raise _changed_since_seen(entry)
        letter, card = self.preview_edit(entry, letter)
        with self.ledger.write() as tx:
            new = tx.letters.swap(entry, entry.state, letter=letter, card=card)
            self.recorder.add_line(
                tx, Call("edit_letter", entry.agent, PERSON), new, result="success", by=by
            )
            return new

    def preview_edit(self, entry: Entry, letter: Letter) -> tuple[Letter, Card]:
        """Return what an edit of a waiting letter would freeze, and its card; raise if it cannot."""
        life.require(entry.id, entry.state, "edit")
        if letter.text != entry.letter.text:
            letter = replace(letter, html="")  # it would still have the agent's words
        refuse_other_html(letter)
        policy.admit(letter, self.rules, self.assessor.own(letter.account))
        return letter, self.assessor.card(letter, entry.origins)

    def _record(
        self, tx: Transaction, entry: Entry, state: life.State, event: str, by: str = ""
    ) -> Entry:
        new = tx.letters.swap(entry, state)
        call = Call(life.EVENTS[event].action, entry.agent, PERSON)
        self.recorder.add_line(tx, call, new, result="success", by=by)
        return new


def _changed_since_seen(entry: Entry) -> Conflict:
    return Conflict(
        f"The letter {entry.id} is not what you saw: its digest is {entry.digest}",
        remedy=f"Look at it again with `postroom show {entry.id}`.",
    )
