"""Proofs: what a provider returned before a send, and with which it can be asked later whether the letter was sent.

A letter has at most one proof, for one version, and every try of that version uses it. Before each try the ledger
counts the try as unanswered; only a refusal of that try lowers the count. A proof is released before another version
is prepared, so that a mail found later under the letter's id is the version that was sent last. If the provider no
longer has the proof when it is released, the letter may have been sent, unless all tries were answered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from postroom.core.errors import PostroomError, Unavailable, Uncertain
from postroom.core.life import refuse
from postroom.core.records import Entry, ProviderProof
from postroom.core.values import dataclass
from postroom.mail.mailbox import (
    Accepted,
    ConnectionLost,
    Mailbox,
    NotSent,
    SendOutcome,
    Unproven,
    Unreachable,
)
from postroom.store.ledger import Ledger

EARLIER: Final = "an earlier version of it may have left"


@dataclass(frozen=True, slots=True)
class Proofs:
    ledger: Ledger
    mailboxes: Callable[[str], Mailbox]
    crash_point: Callable[[str], None]

    def prepare_proof(self, entry: Entry, box: Mailbox, wire: bytes) -> str:
        """Return the proof for a send, recorded in the ledger before the send begins.

        Raises `Conflict` if another dispatcher has taken the claim over.
        """
        version, proof, restored = self.ledger.proofs.before_send(entry.id)
        if version != entry.version:
            raise refuse(entry.id, self.ledger.letters.get(entry.id).state, "sent")
        if proof and proof.digest != entry.digest:
            if self._try_release(entry, proof, box):
                raise Uncertain(EARLIER)
            proof = None
        token = proof.text if proof else self._prepared(entry, box, wire, restored)
        if token:
            with self.ledger.write() as tx:
                tx.proofs.keep(entry, token)
            self.crash_point("proof kept")
        return token

    def _prepared(self, entry: Entry, box: Mailbox, wire: bytes, restored: str) -> str:
        if restored:
            # Before the search: a draft that is gone by then may have been sent.
            box.sweep(entry.letter)
            if isinstance(box.find_outcome(entry.letter, ""), Accepted):
                raise Uncertain("The provider has this letter, of which the ledger knows nothing")
        try:
            proof = box.prepare(entry.letter, wire)
        except Uncertain as lost:
            with self.ledger.write() as tx:
                tx.proofs.add_orphan(entry.id)
            kind = Unreachable if isinstance(lost, ConnectionLost) else Unavailable
            unsent = kind(lost.message, remedy="Nothing was sent. Try again.")
            unsent.seconds = lost.seconds
            raise unsent from lost
        if proof:
            self.crash_point("prepared")
        return proof

    def query_outcome(self, entry: Entry) -> SendOutcome:
        """Ask the provider whether a letter was sent; after any error, the answer is `Unproven`."""
        try:
            return self._query(entry, self._box(entry))
        except PostroomError as why:
            return Unproven(why.message)
        except Exception as why:  # noqa: BLE001 - one strange answer must not hold up other letters
            return Unproven(f"{type(why).__name__} while the provider was asked")

    def _query(self, entry: Entry, box: Mailbox) -> SendOutcome:
        proof = self.ledger.proofs.get(entry.id)
        if proof and proof.digest != entry.digest:
            if self._try_release(entry, proof, box):
                return Unproven(EARLIER, final=True)
            return NotSent("what was prepared for an earlier version is taken back")
        if not proof:
            with suppress(PostroomError):
                box.sweep(entry.letter)
            if self.ledger.letters.claimed_before_edit(entry.id):
                return Unproven(EARLIER)
        return box.find_outcome(entry.letter, proof.text if proof else "")

    def release(self, entry: Entry) -> SendOutcome | None:
        """Release the proof of a closed letter; return an outcome that the ledger does not know yet, None without one."""
        proof = self.ledger.proofs.get(entry.id)
        if not proof or not (found := self._try_release(entry, proof, self._box(entry))):
            return None
        if entry.kind != "sent":
            return found if proof.digest == entry.digest else Unproven(EARLIER, final=True)
        with self.ledger.write() as tx:  # the ledger knows already that the letter was sent
            tx.proofs.drop(entry.id, proof.text)
        return None

    def sweep(self, entry: Entry) -> bool:
        """Have the provider delete drafts of a letter that no proof names; return whether more may turn up."""
        proof = self.ledger.proofs.get(entry.id)
        return self._box(entry).sweep(entry.letter, proof.text if proof else "")

    def _try_release(
        self, entry: Entry, proof: ProviderProof, box: Mailbox
    ) -> Accepted | Unproven | None:
        """Make a proof unusable at the provider and drop it; return the outcome if it may have sent the letter.

        Raises `Unavailable` if the provider cannot do it now.
        """
        self.crash_point("releasing")
        try:
            gone = not box.release(proof.text)
            found = box.find_outcome(entry.letter, proof.text) if gone else None
        except PostroomError as why:
            kept = Unavailable(
                f"What was prepared for this letter could not be taken back: {why.message}",
                remedy="It is tried again.",
            )
            kept.seconds = why.seconds
            raise kept from why
        self.crash_point("released")
        if isinstance(found, NotSent):
            raise Unavailable("What was prepared for this letter is still there")
        if isinstance(found, Accepted) or (found and proof.unanswered):
            return found
        with self.ledger.write() as tx:
            dropped = tx.proofs.drop(entry.id, proof.text, unanswered=not gone)
        if gone and not dropped:
            raise Unavailable("Somebody else sends this letter, or has settled it")
        return None

    def _box(self, entry: Entry) -> Mailbox:
        """Return the letter's mailbox, if it still belongs to the letter's sender."""
        box = self.mailboxes(entry.letter.account)
        if entry.letter.sender.key not in {address.key for address in box.own_addresses()}:
            raise Unavailable(f"The account is no longer that of {entry.letter.sender.spec}")
        return box
