"""The watcher: new mail, by the provider's own history, becomes notes in Needs_Action/; none is missed, none comes twice.

The cursor and what was found up to it are one transaction. No clock of ours decides what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from postroom.core.errors import Conflict, Corrupt, NotFound, PostroomError
from postroom.core.message import DRAFT, INBOX, SPAM, TRASH
from postroom.core.records import InboxItem, MailboxCursor
from postroom.core.triage import MailFacts
from postroom.desk.outbox import ORCHESTRATOR
from postroom.desk.recorder import Call
from postroom.mail.mailbox import MAX_PAGE, Mailbox, SearchPage
from postroom.orchestrator.incoming import (
    BODY,
    IncomingMail,
    exposed,
    facts,
    parse_message,
    values_of,
)
from postroom.orchestrator.mail_notes import MailNotes
from postroom.orchestrator.servers import Answer, Question
from postroom.orchestrator.setup import Setup

BASELINE: Final = 500  # mails of the inbox that are known to have been there before
MAX_PAGES: Final = 50  # that are looked through where the cursor was lost
MAX_BACKLOG: Final = 1_000
NOT_OURS: Final = frozenset({DRAFT, SPAM, TRASH})


@dataclass(slots=True)
class Watcher:
    """Follows the mailboxes of the accounts."""

    setup: Setup
    mail_notes: MailNotes
    breathe: Callable[[], None]
    trouble: dict[str, PostroomError] = field(default_factory=dict)  # by account
    _told: dict[str, str] = field(default_factory=dict)

    def look(self, account: str) -> None:
        """Find what is new in a mailbox, and remember it together with how far that goes."""
        try:
            new = self._look(account)
        except PostroomError as why:
            self._amiss(account, why)
            return
        self.trouble.pop(account, None)
        if new:
            self.setup.tell("found", account=account, mails=new)

    def _amiss(self, account: str, why: PostroomError) -> None:
        self.trouble[account] = why
        if self._told.get(account) != why.message:
            self._told[account] = why.message
            self.setup.tell("trouble", account=account, error=why.message, remedy=why.remedy)

    def _look(self, account: str) -> int:
        box, ledger = self.setup.desk.mailboxes(account), self.setup.desk.ledger
        with ledger.read() as book:
            watch = book.watched(account)
        if watch is None:
            return self._begin(account, box)
        try:
            changes = box.changes(watch.cursor)
        except NotFound:
            return self._again(account, box, watch)
        if changes.cursor == watch.cursor:
            return 0
        with ledger.write() as book:
            again = book.reconsider(account, changes.relabelled)
            return again + book.watch(account, watch._replace(cursor=changes.cursor), changes.added)

    def _begin(self, account: str, box: Mailbox) -> int:
        """MailboxCursor from now on: what is there already was there before."""
        cursor = box.changes().cursor
        pages = list(self._pages(box, "in:inbox", BASELINE // MAX_PAGE))
        there = [one for page in pages for one in page.items]
        # What came while we looked is in both: it is new.
        changes = box.changes(cursor)
        added = set(changes.added)
        floor = min((one.date for one in there if one.id not in added), default=0)
        floor = floor if pages[-1].cursor else 0
        watch = MailboxCursor(changes.cursor, floor)
        with self.setup.desk.ledger.write() as book:
            book.watch(account, watch, changes.added)
            book.watch(account, watch, (one.id for one in there if one.id not in added), "before")
        self.setup.tell("watching", account=account, there=len(there) - len(added))
        return len(changes.added)

    def _again(self, account: str, box: Mailbox, watch: MailboxCursor) -> int:
        """The provider has forgotten our cursor: look through the inbox for what we have not seen."""
        self.setup.tell("cursor_lost", account=account)
        cursor = box.changes().cursor
        new: list[str] = []
        for page in self._pages(box, "in:inbox", MAX_PAGES):
            ids = [one.id for one in page.items if one.date >= watch.floor]
            with self.setup.desk.ledger.write(synced=False) as book:
                known = book.seen_of(account, ids)
                again = book.reconsider(account, ids)
            if again:
                self.setup.tell("found", account=account, mails=again)
            new += [id for id in ids if id not in known]
            if not ids or len(known) == len(page.items):
                break
        changes = box.changes(cursor)
        with self.setup.desk.ledger.write() as book:
            # Oldest first, as they came.
            found = [*reversed(new), *changes.added]
            return book.watch(account, watch._replace(cursor=changes.cursor), found)

    def backlog(self, account: str, query: str) -> None:
        """Take mails that were there before, as if they had just come in."""
        box = self.setup.desk.mailboxes(account)
        pages = self._pages(box, f"in:inbox ({query})", MAX_BACKLOG // MAX_PAGE)
        ids = [one.id for page in pages for one in page.items]
        with self.setup.desk.ledger.write() as book:
            watch = book.watched(account)
            assert watch is not None
            new = 0
            for id in reversed(ids):
                known = book.item(account, id)
                if known is not None and known.state == "before":
                    book.change(known, state="found")
                    new += 1
                elif known is None:
                    new += book.watch(account, watch, [id])
        self.setup.tell("found", account=account, mails=new)

    def _pages(self, box: Mailbox, query: str, most: int) -> Iterator[SearchPage]:
        cursor = ""
        for _ in range(most):
            page = box.search(query, limit=MAX_PAGE, cursor=cursor)
            yield page
            cursor = page.cursor
            if not cursor:
                return

    # From ids to notes

    def bring(self) -> None:
        """Read what was found, and write its notes."""
        for chunk in self.setup.waiting("found"):
            self._bring(chunk)
            self.breathe()
        self._told = {name: said for name, said in self._told.items() if name in self.trouble}

    def _bring(self, items: list[InboxItem]) -> None:
        fresh = [one for one in items if not self.mail_notes.finish_write(one)]
        questions = [Question(self._arguments(one), self._reader(one)) for one in fresh]
        answers = self.setup.servers.ask("email", "get_email", questions) if fresh else []
        if self.setup.stopping.is_set():
            return
        new: list[tuple[InboxItem, IncomingMail, MailFacts]] = []
        for item, answer in zip(fresh, answers, strict=True):
            if isinstance(answer, NotFound):
                self._aside(item)
            elif isinstance(answer, PostroomError):
                self._amiss(item.account, answer)
            else:
                self._take(item, answer, new)
        if new:
            # Whoever reads a note later reads the mail: its source is recorded before it is there.
            self.setup.desk.reading.record([exposed(item.account, mail) for item, mail, _ in new])
            self.mail_notes.create(new)
            self.setup.tell("noted", mails=len(new))

    def _take(
        self, item: InboxItem, answer: Answer, new: list[tuple[InboxItem, IncomingMail, MailFacts]]
    ) -> None:
        try:
            try:
                mail = parse_message(answer)
            except Corrupt:
                mail = parse_message(self._reader(item)())
            own = self.setup.desk.reading.own(item.account)
        except PostroomError as why:
            self._amiss(item.account, why)
            return
        labels = set(mail.labels)
        if INBOX not in labels or labels & NOT_OURS:
            self._aside(item)
        elif self.mail_notes.is_filed(item, mail):  # a ledger from a backup: it was dealt with
            self._aside(item, "done")
        elif self.mail_notes.adopt_existing(item, mail, known := facts(mail, own)):
            self.setup.desk.reading.record([exposed(item.account, mail)])
        else:
            new.append((item, mail, known))

    def _aside(self, item: InboxItem, state: str = "aside") -> None:
        with suppress(Conflict), self.setup.desk.ledger.write(synced=False) as book:
            book.shown(book.change(item, state=state))

    def _arguments(self, item: InboxItem) -> dict[str, object]:
        asked: dict[str, object] = {"id": item.message, "max_chars": BODY}
        several = len(self.setup.accounts) > 1
        return asked | ({"account": item.account} if several else {})

    def _reader(self, item: InboxItem) -> Callable[[], Answer]:
        call = Call("get_email", ORCHESTRATOR, ORCHESTRATOR)
        return lambda: values_of(
            self.setup.services.mailbox.message(call, item.account, item.message)
        )
