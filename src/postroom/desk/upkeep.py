"""Upkeep of the ledger without anybody's call: letters expire, are frozen again after an upgrade, or come from a backup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from postroom.core import life
from postroom.core.audit import ParsedLine
from postroom.core.errors import Invalid
from postroom.core.letter import Letter
from postroom.core.outgoing_html import reduce_html
from postroom.core.policy import Rules, has_expired
from postroom.core.records import Entry, LetterState
from postroom.core.stamp import Stamp
from postroom.core.values import dataclass
from postroom.desk.proposals import PERSON, Assessor
from postroom.desk.recorder import Call, CallRecorder
from postroom.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What happens to letters by itself."""

    ledger: Ledger
    rules: Rules
    assessor: Assessor
    clock: Callable[[], Stamp]
    recorder: CallRecorder

    def expire(self, states: dict[str, LetterState] | None = None) -> list[Entry]:
        """Close the letters that have waited too long: of all pending ones, or of these."""
        states = self.ledger.letters.states("pending") if states is None else states
        closed = []
        for id in [
            id for id, (state, _) in states.items() if has_expired(state, self.rules, self.clock())
        ]:
            with self.ledger.write() as tx:
                entry = tx.letters.get(id)
                if has_expired(entry.state, self.rules, self.clock()):
                    new = tx.letters.swap(entry, life.Expired(self.clock()))
                    self.recorder.add_line(
                        tx, Call("expire_letter", entry.agent, "desk"), new, "success"
                    )
                    closed.append(new)
        return closed

    def refreeze(self, id: str) -> Entry | None:
        """Freeze a letter again whose HTML an older version froze; return it if it now needs another verdict.

        A letter that may have been sent keeps its bytes. Card, letter and state change in one transaction.
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

    def reconcile_with_newer_log(self, ahead: Sequence[ParsedLine], why: str) -> int:
        """Take over what the log knows and this ledger, restored from a backup, does not; return how many are unknown."""
        logged: dict[str, ParsedLine] = {}
        for read in ahead:
            # That it was sent is a fact, whatever was written after it.
            known = logged.get(read.letter)
            if read.letter and read.state and not (known and known.state == "sent"):
                logged[read.letter] = read
        with self.ledger.write() as tx:
            # Some files that tools wrote until now have no row here.
            since = self.clock().wall
            tx.save_settings(replace(tx.settings, restored=why, tool_notes_since=since))
            for read in ahead:
                tx.actions.import_from_log(read)
            doubtful = 0
            open_ones = tx.letters.in_states("pending", "approved", "sending")
            ids = dict.fromkeys([*(entry.id for entry in open_ones), *logged])
            for entry in filter(None, map(tx.letters.find, ids)):
                if isinstance(entry.state, life.Sent):
                    continue  # nothing that came later can take that back
                state = self._state_by_log(logged.get(entry.id), why)
                doubtful += isinstance(state, life.Unknown)
                new = tx.letters.swap(entry, state)
                self.recorder.add_line(
                    tx, Call("restore_ledger", entry.agent, "desk"), new, "success"
                )
            return doubtful

    def _state_by_log(self, read: ParsedLine | None, why: str) -> life.State:
        """Return the state that the log gives; a claimed letter, and one that the log does not name, is unknown."""
        now = self.clock()
        states: dict[str, life.State] = {
            "sent": life.Sent(now, "", "", how="sent, as the log says"),
            "pending": life.Pending(now),
            "approved": life.Pending(now),  # who approved it is lost: it needs another verdict
            "rejected": life.Rejected(now, PERSON, "as the log says"),
            "withdrawn": life.Withdrawn(now),
            "expired": life.Expired(now),
            "failed": life.Failed(now, "as the log says"),
        }
        return states.get(read.state if read else "", life.Unknown(now, why, now))


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
