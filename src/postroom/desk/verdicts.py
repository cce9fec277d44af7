"""Verdicts: a person approves, edits, rejects or recalls a letter; and the passphrase that proves who the person is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from postroom.core import life, policy
from postroom.core.audit import ParsedLine
from postroom.core.errors import Conflict, Denied, Invalid
from postroom.core.letter import Letter
from postroom.core.life import Channel
from postroom.core.policy import Rules, has_expired
from postroom.core.records import Card, Entry, LetterState
from postroom.core.stamp import Stamp
from postroom.core.values import dataclass
from postroom.desk.exposure import ExposureLog
from postroom.desk.proposals import PERSON, refuse_other_html
from postroom.desk.recorder import Call, CallRecorder, add_line
from postroom.store.ledger import Ledger, Transaction

MAX_REASON = 2000  # characters of the reason for a rejection
MIN_PASSPHRASE = 8  # characters
SCRYPT_COST = 2**15  # takes 32 MB and about a tenth of a second
_BLOCK, _LANES = 8, 1
_MAX_MEMORY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Verdicts:
    ledger: Ledger
    rules: Rules
    exposure: ExposureLog
    clock: Callable[[], Stamp]

    def approve(
        self, entry: Entry, *, by: str, via: Channel, digest: str = "", slip: str = ""
    ) -> Entry:
        """Approve a letter as `entry` has it, to be sent after the undo window.

        `digest` is the digest that the person saw, or its beginning. `slip` is the hash of the slip or request that
        the person moved; a slip has no undo window, and approves one letter once. Raises `Conflict` if the letter has
        changed, and `Denied` in a rehearsal or if the trust level does not allow this channel.
        """
        self.refuse_rehearsal()
        with self.ledger.write() as tx:
            if via in (Channel.FOLDER, Channel.SLIP):
                self._refuse_folder(tx, entry.id)
            if via is Channel.SLIP and tx.letters.was_approved_by(entry.id, slip):
                return entry
            now, seen = self.clock(), digest.removeprefix("sha256:")
            if not entry.digest.removeprefix("sha256:").startswith(seen):
                raise _changed_since_seen(entry)
            if not has_expired(entry.state, self.rules, now):
                verdict = life.Verdict(by, via, now, entry.digest, slip)
                wait = 0 if via is Channel.SLIP else self.rules.undo_seconds
                new = tx.letters.swap(entry, life.approve(entry.id, entry.state, verdict, wait))
                return self._record(tx, new, "approve_letter", by=by, actor=PERSON)
        self.expire()
        raise life.refuse(entry.id, self.ledger.letters.get(entry.id).state, "approved")

    def refuse_rehearsal(self) -> None:
        """Raise `Denied` in a rehearsal, where an approved letter would not be sent."""
        if not self.rules.live:
            source = self.rules.source
            cause = "Nothing says otherwise" if source == "default" else f"{source} says so"
            raise Denied(
                f"Postroom rehearses ({source}): nothing can be sent, and nothing approved",
                remedy=f"{cause}. Set dry_run = false in your settings file, and DRY_RUN and DEV_MODE"
                " nowhere to true.",
            )

    def _refuse_folder(self, tx: Transaction, id: str) -> None:
        """Raise `Denied` for a verdict by a note or slip if the trust level is not `folder`."""
        if self.rules.trust != "folder" or tx.settings.is_trust_raised:
            raise Denied(
                "At trust level desk a note in a folder is not a verdict",
                remedy=f"Approve it with `postroom approve {id}`.",
            )

    def decide(
        self, id: str, event: str, *, by: str = "", reason: str = "", sent: bool = False
    ) -> Entry:
        """Carry out an event of `life.EVENTS` other than approve and edit; see `life.change`."""
        with self.ledger.write() as tx:
            entry, now = tx.letters.get(id), self.clock()
            state = life.change(
                id, entry.state, event, now, by=by, reason=reason[:MAX_REASON], sent=sent
            )
            new, action = tx.letters.swap(entry, state), life.EVENTS[event].action
            return self._record(tx, new, action, by=by, actor=PERSON)

    def edit(self, id: str, letter: Letter, *, was: str = "", by: str = "") -> Entry:
        """Freeze a waiting letter again with a person's changes; `Conflict` if its digest is no longer `was`."""
        entry = self.ledger.letters.get(id)
        if was and was != entry.digest:
            raise _changed_since_seen(entry)
        letter, card = self.preview_edit(entry, letter)
        with self.ledger.write() as tx:
            new = tx.letters.swap(entry, entry.state, letter=letter, card=card)
            return self._record(tx, new, "edit_letter", by=by, actor=PERSON)

    def preview_edit(self, entry: Entry, letter: Letter) -> tuple[Letter, Card]:
        """Return what an edit of a waiting letter would freeze, and its card; raise if it cannot."""
        life.require(entry.id, entry.state, "edit")
        if letter.text != entry.letter.text:
            letter = replace(letter, html="")  # the HTML part still has the old text
        refuse_other_html(letter)
        policy.admit(letter, self.rules, self.exposure.own(letter.account))
        return letter, self.exposure.card(letter, entry.origins)

    # Changes that no person or agent asks for

    def expire(self, states: dict[str, LetterState] | None = None) -> list[Entry]:
        """Close the pending letters that have waited too long, all or those in `states`; return them."""
        states = self.ledger.letters.states("pending") if states is None else states
        late = [id for id in states if has_expired(states[id].state, self.rules, self.clock())]
        closed = []
        for id in late:
            with self.ledger.write() as tx:
                entry, now = tx.letters.get(id), self.clock()
                if has_expired(entry.state, self.rules, now):
                    expired = tx.letters.swap(entry, life.Expired(now))
                    closed.append(self._record(tx, expired, "expire_letter"))
        return closed

    def refreeze(self, id: str) -> Entry | None:
        """Freeze a letter again if an older Postroom froze its HTML; return it if its content has changed.

        An approved letter whose content changes waits for another verdict. One that may have been sent keeps its bytes.
        """
        entry = self.ledger.letters.get(id)
        letter, why = _with_reduced_html(entry.letter)
        waits = isinstance(entry.state, life.Pending | life.Approved)
        if not waits or letter == entry.letter:
            with self.ledger.write() as tx:
                tx.letters.rekey(letter, done=waits)
            return None
        from postroom.review.tables import card_line

        card = self.exposure.card(letter, entry.origins).adding(card_line("refrozen", why=why))
        approved = isinstance(entry.state, life.Approved)
        with self.ledger.write() as tx:
            state = life.Pending(self.clock()) if approved else entry.state
            new = tx.letters.swap(entry, state, letter=letter, card=card)
            tx.letters.rekey(letter, done=True)
            return self._record(tx, new, "refreeze_letter")

    def reconcile_with_newer_log(self, ahead: Sequence[ParsedLine], why: str) -> int:
        """Take over what only the log knows, after the ledger was restored; return the number of unknown letters."""
        logged: dict[str, str] = {}
        for read in ahead:
            # A line that says *sent* is final; later lines of the letter do not count.
            if read.letter and read.state and logged.get(read.letter) != "sent":
                logged[read.letter] = read.state
        with self.ledger.write() as tx:
            # The ledger lacks the tool notes since the backup: every file older than now may be a tool's.
            since = self.clock().wall
            tx.save_settings(replace(tx.settings, restored=why, tool_notes_since=since))
            for read in ahead:
                tx.actions.import_from_log(read)
            doubtful = 0
            open_ones = tx.letters.in_states("pending", "approved", "sending")
            ids = dict.fromkeys([*(entry.id for entry in open_ones), *logged])
            for entry in filter(None, map(tx.letters.find, ids)):
                if isinstance(entry.state, life.Sent):
                    continue  # a sent letter never changes
                state = self._state_by_log(logged.get(entry.id, ""), why)
                doubtful += isinstance(state, life.Unknown)
                self._record(tx, tx.letters.swap(entry, state), "restore_ledger")
            return doubtful

    def _state_by_log(self, logged: str, why: str) -> life.State:
        """Return a letter's state by its last line in the log; unknown if it was claimed or has no line."""
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
        return states.get(logged, life.Unknown(now, why, now))

    def _record(
        self, tx: Transaction, entry: Entry, action: str, *, by: str = "", actor: str = "desk"
    ) -> Entry:
        about = {"by": by} if by else {}
        add_line(tx, Call(action, entry.agent, actor), entry, "success", parameters=about)
        return entry


def _changed_since_seen(entry: Entry) -> Conflict:
    return Conflict(
        f"The letter {entry.id} is not what you saw: its digest is {entry.digest}",
        remedy=f"Look at it again with `postroom show {entry.id}`.",
    )


def _with_reduced_html(letter: Letter) -> tuple[Letter, str]:
    """Return a letter with its HTML part reduced again, or without it if that fails; and a sentence that says which."""
    from postroom.core.outgoing_html import reduce_html  # few letters need it

    try:
        html, text, _ = reduce_html(letter.html)
        if html:
            return replace(letter, html=html, text=text), "The text was made from its HTML part."
        why = "it shows nothing"
    except Invalid as refused:
        why = refused.message
    return replace(letter, html=""), f"Its HTML part was dropped ({why}); the plain text stays."


class Unlocked(NamedTuple):
    """Proof that the passphrase was given, valid until the passphrase is changed."""

    hash: str


def hash_passphrase(passphrase: str, salt: bytes, cost: int = SCRYPT_COST) -> str:
    """Return the hash of a new passphrase, with salt and parameters, as it is stored."""
    if len(passphrase) < MIN_PASSPHRASE:
        raise Invalid(
            f"A passphrase has at least {MIN_PASSPHRASE} characters", remedy="Choose a longer one."
        )
    hashed = _hash(passphrase, salt, cost, _BLOCK, _LANES)
    return f"scrypt${cost}${_BLOCK}${_LANES}${salt.hex()}${hashed.hex()}"


def check_passphrase(stored: str, passphrase: str | Unlocked | None) -> None:
    """Raise `Denied` unless this is the passphrase, or proof that it was given."""
    if not stored:
        raise Denied(
            "Trust level desk needs a passphrase, and none is set",
            remedy="Set one with `postroom init`.",
        )
    if isinstance(passphrase, Unlocked):
        if not hmac.compare_digest(passphrase.hash, stored):
            raise Denied("The passphrase was changed since", remedy="Sign in with the new one.")
        return
    _, cost, block, lanes, salt, expected = stored.split("$")
    actual = passphrase is not None and _hash(
        passphrase, bytes.fromhex(salt), int(cost), int(block), int(lanes)
    )
    if not actual or not hmac.compare_digest(actual, bytes.fromhex(expected)):
        raise Denied("That is not the passphrase", remedy="Nothing was changed. Try again.")


def _hash(passphrase: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(
        passphrase.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MAX_MEMORY
    )


@dataclass(frozen=True, slots=True)
class Trust:
    ledger: Ledger
    rules: Rules
    recorder: CallRecorder
    draw: Callable[[int], bytes]
    flush_log: Callable[[], None]

    def prove(self, proof: str | Unlocked | None) -> None:
        """At trust level desk, raise `Denied` without the passphrase or proof of it."""
        settings = self.ledger.settings
        if self.rules.trust != "folder" or settings.is_trust_raised:
            check_passphrase(settings.passphrase, proof)

    def is_valid(self, unlocked: Unlocked) -> bool:
        """Whether the passphrase that was given is still the current one."""
        return unlocked.hash == self.ledger.settings.passphrase != ""

    def unlock(self, passphrase: str) -> Unlocked:
        stored = self.ledger.settings.passphrase
        check_passphrase(stored, passphrase)
        return Unlocked(stored)

    def loosen(self, proof: str | None, *, trust: str, required: bool) -> None:
        """Lower the pinned trust level and requirement of approval; needs the passphrase if one is set."""
        self._check(proof)
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, trust=trust, approval_required=required))
        self._log("lower_trust")

    def set_passphrase(self, new: str, *, old: str | None = None) -> None:
        """Set a new passphrase; if one is set already, `old` must be that one."""
        self._check(old)
        hashed = hash_passphrase(new, self.draw(16))
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, passphrase=hashed))
        self._log("set_passphrase")

    def _check(self, proof: str | None) -> None:
        if stored := self.ledger.settings.passphrase:
            check_passphrase(stored, proof)

    def _log(self, action: str) -> None:
        self.recorder.write(Call(action, "", "person"))
        self.flush_log()
