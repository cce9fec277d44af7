"""The inbox in the ledger: mail that came in, what was decided about it, and what became of it.

The orchestrator decides; each transaction about incoming mail is one method here. A mail that somebody
else changed meanwhile is left alone: the caller sees it again in the next round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.audit import Action
from postroom.core.errors import Conflict
from postroom.core.handbook import Judgement
from postroom.core.policy import DAY
from postroom.core.records import Entry, InboxItem, InboxState, MailboxCursor
from postroom.desk.proposals import ORCHESTRATOR

if TYPE_CHECKING:
    from postroom.store.ledger import Ledger

CHUNK: Final = 32  # mails that are read and written at once
STATE_AFTER: Final = {
    "archive": InboxState.DONE,
    "needs_info": InboxState.NEEDS_INFO,
    "delegate": InboxState.DELEGATED,
}  # an answer is `decided` first, and then drafted


class TriageResult(NamedTuple):
    """What is to become of a mail, and who decided so."""

    item: InboxItem
    judgement: Judgement
    by: str


class InboxService:
    """Reads and changes the records of incoming mail."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.records = ledger.inbox  # reads alone

    def chunks(self, state: InboxState) -> Iterator[list[InboxItem]]:
        """Yield the mails in this state, oldest first, some at once; each mail once."""
        row = 0
        while page := self.records.page(state, CHUNK, row):
            row = page[-1][0]
            yield [item for _, item in page]

    def with_changed_letter(self) -> list[tuple[InboxItem, Entry]]:
        """Return the mails whose letter was closed or reopened, or is to be withdrawn, with that letter."""
        return [(item, self.letter(item)) for item in self.records.with_changed_letter()]

    def letter(self, item: InboxItem) -> Entry:
        """Return the letter that answers a mail."""
        return self._ledger.letters.get(item.letter)

    def letter_by_key(self, key: str) -> Entry | None:
        """Return the letter that was drafted under this idempotency key."""
        known = self._ledger.letters.by_key(ORCHESTRATOR, key)
        return self._ledger.letters.get(known[0]) if known else None

    def drafts_within_a_day(self, item: InboxItem) -> int:
        """Return how many answers were drafted in this mail's conversation within a day."""
        since = self._ledger.clock().wall - DAY
        return self.records.drafts_in_thread(item.account, item.thread, since)

    def note_path(self, item: InboxItem) -> str:
        """Return where the note of a mail is; empty where it was not written."""
        return self._ledger.notes.location(item.key).path

    def note_name(self, item: InboxItem) -> str:
        """Return the name of a mail's note, as links give it."""
        return self.note_path(item).rpartition("/")[2].removesuffix(".md")

    # Following a mailbox

    def start_watching(
        self, account: str, cursor: MailboxCursor, new: Sequence[str], earlier: Sequence[str]
    ) -> None:
        """Record the mails of a mailbox that is watched from now on; `earlier` ones are left alone."""
        with self._ledger.write() as tx:
            tx.inbox.add(account, cursor, new)
            tx.inbox.add(account, cursor, earlier, InboxState.BEFORE)

    def add(
        self,
        account: str,
        cursor: MailboxCursor,
        new: Sequence[str],
        relabelled: Sequence[str] = (),
    ) -> int:
        """Record new mails and how far the mailbox was followed; return how many are to be looked at."""
        with self._ledger.write() as tx:
            return tx.inbox.reopen_aside(account, relabelled) + tx.inbox.add(account, cursor, new)

    def select_unknown(self, account: str, ids: Sequence[str]) -> tuple[list[str], int]:
        """Return those of these mails that are new, and how many put aside are looked at again."""
        with self._ledger.write(synced=False) as tx:
            known = tx.inbox.known_of(account, ids)
            return [id for id in ids if id not in known], tx.inbox.reopen_aside(account, ids)

    def add_backlog(self, account: str, ids: Sequence[str]) -> int:
        """Record mails that were there before as if they had just come in; return how many."""
        count = 0
        with self._ledger.write() as tx:
            cursor = tx.inbox.cursor(account)
            assert cursor is not None
            for id in ids:
                item = tx.inbox.get(account, id)
                if item is None:
                    count += tx.inbox.add(account, cursor, [id])
                elif item.state == InboxState.BEFORE:
                    tx.inbox.change(item, state=InboxState.FOUND)
                    count += 1
        return count

    def close_without_note(self, item: InboxItem, state: InboxState) -> None:
        """Close a mail that gets no note."""
        with suppress(Conflict), self._ledger.write(synced=False) as tx:
            tx.inbox.mark_note_current(tx.inbox.change(item, state=state))

    # Deciding

    def change(self, item: InboxItem, **changes: str | int | Judgement) -> bool:
        """Change some fields of a mail; return False where somebody else changed it first."""
        with suppress(Conflict), self._ledger.write() as tx:
            tx.inbox.change(item, **changes)
            return True
        return False

    def save_decisions(self, results: Sequence[TriageResult]) -> list[TriageResult]:
        """Record decisions with their audit lines, in one transaction; return those that were recorded."""
        saved = []
        with self._ledger.write() as tx:
            for result in results:
                item, judgement, by = result
                decision = judgement.decision
                with suppress(Conflict):
                    tx.inbox.change(
                        item,
                        state=STATE_AFTER.get(decision, InboxState.DECIDED),
                        judgement=judgement,
                        by=by,
                        held="",
                        tries=0,
                        turn=item.turn + 1,
                    )
                    tx.actions.append(
                        Action(
                            actor=ORCHESTRATOR,
                            action_type="triage_mail",
                            agent=ORCHESTRATOR,
                            parameters={"message": item.message, "decision": decision, "by": by},
                        )
                    )
                    saved.append(result)
        return saved

    def save_draft(self, item: InboxItem, entry: Entry) -> bool:
        """Record the letter that answers a mail; False where somebody else changed the mail first."""
        with suppress(Conflict), self._ledger.write() as tx:
            state = InboxState.DRAFTED
            tx.inbox.change(item, state=state, letter=entry.id, wish="", held="", tries=0)
            if not entry.replaces:
                tx.inbox.add_draft_in_thread(item.account, item.thread, entry.id)
            return True
        return False
