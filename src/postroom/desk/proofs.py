"""Proofs: what a provider gave to tell what became of a letter; kept, and given back, in the right order.

A letter has one at most, for the version that it was prepared for, and every try of that version
goes by it. Before another version is prepared it is taken back, so that whatever is found later
under the letter's mark is the version that was sent last. Whether a taking back is news is told by
a note made before it: what is gone without one was spent, and not by us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from postroom.core.errors import PostroomError, Unavailable, Uncertain
from postroom.mail.mailbox import Mailbox, NotSent, Sent, Settled, Unknown
from postroom.store.entries import Entry, Proof
from postroom.store.ledger import DISTRUSTED, Ledger

EARLIER: Final = "an earlier version of it may have left"


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs of the letters in a ledger."""

    ledger: Ledger
    mailboxes: Callable[[str], Mailbox]
    step: Callable[[str], None]

    def ready(self, entry: Entry, box: Mailbox, wire: bytes) -> str:
        """Return what will prove what became of the letter, in the ledger before the act that it proves."""
        kept = self.ledger.proof(entry.id)
        if kept and kept.digest != entry.digest:
            if not self._taken(entry.id, kept, box):
                raise Uncertain(EARLIER)
            kept = None
        if kept:
            return kept.text
        if self.ledger.meta(DISTRUSTED) and isinstance(box.settle(entry.letter, ""), Sent):
            raise Uncertain("The provider has this letter, of which the ledger knows nothing")
        proof = box.prepare(entry.letter, wire)
        if proof:
            self.step("prepared")
            with self.ledger.write() as book:
                book.keep_proof(entry, proof)
            self.step("proof kept")
        return proof

    def ask(self, entry: Entry) -> Settled:
        """Ask the provider what became of a letter; whatever goes wrong is no answer."""
        try:
            return self._asked(entry, self._box(entry))
        except PostroomError as why:
            return Unknown(why.message)
        except Exception as why:  # noqa: BLE001 - one strange answer must not hold up other letters
            return Unknown(f"{type(why).__name__} while the provider was asked")

    def _asked(self, entry: Entry, box: Mailbox) -> Settled:
        kept = self.ledger.proof(entry.id)
        if kept and kept.digest != entry.digest:
            if self._taken(entry.id, kept, box):
                return NotSent("what was prepared for an earlier version is taken back")
            return Unknown(EARLIER, spent=True)
        if not kept and self.ledger.claimed_before_edit(entry.id):
            return Unknown(EARLIER)
        return box.settle(entry.letter, kept.text if kept else "")

    def release(self, entry: Entry) -> Settled | None:
        """Take back what was prepared for a closed letter; return what is news of it, if anything."""
        kept = self.ledger.proof(entry.id)
        assert kept is not None
        box = self._box(entry)
        taken = self._taken(entry.id, kept, box)
        if taken:
            return None
        known = kept.digest == entry.digest and entry.kind != "sent"
        answer = box.settle(entry.letter, kept.text) if known else Unknown(EARLIER, spent=True)
        if entry.kind == "sent" or (taken is None and not isinstance(answer, Sent)):
            self._drop(entry.id)
            return None
        return answer

    def _taken(self, id: str, kept: Proof, box: Mailbox) -> bool | None:
        """Take a proof back; false where it was spent, none where an earlier taking back may have done it."""
        if not kept.releasing:
            with self.ledger.write() as book:
                book.mark_releasing(id)
            self.step("releasing")
        if box.release(kept.text):
            self.step("released")
            self._drop(id)
            return True
        return None if kept.releasing else False

    def _drop(self, id: str) -> None:
        with self.ledger.write() as book:
            book.drop_proof(id)

    def _box(self, entry: Entry) -> Mailbox:
        """Return the letter's mailbox, if it is still that of its sender."""
        box = self.mailboxes(entry.letter.account)
        if entry.letter.sender.key not in {address.key for address in box.own()}:
            raise Unavailable(f"The account is no longer that of {entry.letter.sender.spec}")
        return box
