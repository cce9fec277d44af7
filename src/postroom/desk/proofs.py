"""Proofs: what a provider gave to tell what became of a letter; kept, and given back, in the right order.

A letter has one at most, for the version that it was prepared for, and every try of that version
goes by it. Before each try the ledger counts it as a send without an answer; only a refusal of that
very try takes it off the count. A proof is taken back before another version is prepared, so that
whatever is found later under the letter's mark is the version that was sent last. If it is gone
when it is to be taken back, the letter may have left, unless every send by it had its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from postroom.core.errors import PostroomError, Unavailable, Uncertain
from postroom.core.life import refuse
from postroom.core.records import Entry, ProviderProof
from postroom.mail.mailbox import Accepted, Mailbox, NotSent, SendOutcome, Unproven
from postroom.store.ledger import DISTRUSTED, Ledger

EARLIER: Final = "an earlier version of it may have left"


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs of the letters in a ledger."""

    ledger: Ledger
    mailboxes: Callable[[str], Mailbox]
    step: Callable[[str], None]

    def ready(self, entry: Entry, box: Mailbox, wire: bytes) -> str:
        """Return what will prove what became of the letter, in the ledger before the act that it proves.

        Raises `Conflict` if somebody else has taken the claim over.
        """
        if (now := self.ledger.current(entry)) is not entry:
            raise refuse(entry.id, now.state, "sent")
        kept = self.ledger.proof(entry.id)
        if kept and kept.digest != entry.digest:
            if self._take_back(entry, kept, box):
                raise Uncertain(EARLIER)
            kept = None
        proof = kept.text if kept else self._prepared(entry, box, wire)
        if proof:
            with self.ledger.write() as book:
                book.keep_proof(entry, proof)
            self.step("proof kept")
        return proof

    def _prepared(self, entry: Entry, box: Mailbox, wire: bytes) -> str:
        if self.ledger.meta(DISTRUSTED):
            box.sweep(entry.letter)  # first: what is not there any more by then is looked for
            if isinstance(box.find_outcome(entry.letter, ""), Accepted):
                raise Uncertain("The provider has this letter, of which the ledger knows nothing")
        try:
            proof = box.prepare(entry.letter, wire)
        except Uncertain as lost:
            with self.ledger.write() as book:
                book.set_orphan(entry.id)
            raise Unavailable(lost.message, remedy="Nothing was sent. Try again.") from lost
        if proof:
            self.step("prepared")
        return proof

    def ask(self, entry: Entry) -> SendOutcome:
        """Ask the provider what became of a letter; whatever goes wrong is no answer."""
        try:
            return self._asked(entry, self._box(entry))
        except PostroomError as why:
            return Unproven(why.message)
        except Exception as why:  # noqa: BLE001 - one strange answer must not hold up other letters
            return Unproven(f"{type(why).__name__} while the provider was asked")

    def _asked(self, entry: Entry, box: Mailbox) -> SendOutcome:
        kept = self.ledger.proof(entry.id)
        if kept and kept.digest != entry.digest:
            if self._take_back(entry, kept, box):
                return Unproven(EARLIER, final=True)
            return NotSent("what was prepared for an earlier version is taken back")
        if not kept:
            with suppress(PostroomError):
                box.sweep(entry.letter)
            if self.ledger.claimed_before_edit(entry.id):
                return Unproven(EARLIER)
        return box.find_outcome(entry.letter, kept.text if kept else "")

    def release(self, entry: Entry) -> SendOutcome | None:
        """Take back what was prepared for a closed letter; return what is news of it, if anything."""
        kept = self.ledger.proof(entry.id)
        if not kept or not (found := self._take_back(entry, kept, self._box(entry))):
            return None
        if entry.kind != "sent":
            return found if kept.digest == entry.digest else Unproven(EARLIER, final=True)
        with self.ledger.write() as book:  # that it has left is no news
            book.drop_proof(entry.id, kept.text)
        return None

    def sweep(self, entry: Entry) -> bool:
        """Remove what was prepared for a letter and no proof names; return whether more may turn up."""
        kept = self.ledger.proof(entry.id)
        return self._box(entry).sweep(entry.letter, kept.text if kept else "")

    def _take_back(
        self, entry: Entry, kept: ProviderProof, box: Mailbox
    ) -> Accepted | Unproven | None:
        """Have nothing leave by a proof any more, and forget it; return what it may have sent before.

        Raises `Unavailable` if the provider does not do it now.
        """
        self.step("releasing")
        try:
            gone = not box.release(kept.text)
            found = box.find_outcome(entry.letter, kept.text) if gone else None
        except PostroomError as why:
            raise Unavailable(
                f"What was prepared for this letter could not be taken back: {why.message}",
                remedy="It is tried again.",
            ) from why
        self.step("released")
        if isinstance(found, NotSent):
            raise Unavailable("What was prepared for this letter is still there")
        if isinstance(found, Accepted) or (found and kept.unanswered):
            return found
        with self.ledger.write() as book:
            dropped = book.drop_proof(entry.id, kept.text, unanswered=not gone)
        if gone and not dropped:
            raise Unavailable("Somebody else sends this letter, or has settled it")
        return None

    def _box(self, entry: Entry) -> Mailbox:
        """Return the letter's mailbox, if it is still that of its sender."""
        box = self.mailboxes(entry.letter.account)
        if entry.letter.sender.key not in {address.key for address in box.own_addresses()}:
            raise Unavailable(f"The account is no longer that of {entry.letter.sender.spec}")
        return box
