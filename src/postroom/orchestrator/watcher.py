"""The watcher: follow the mailboxes by the provider's own history, and write a note for each new mail.

The cursor and what was found up to it are one transaction. No clock of this machine decides what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Final

from postroom.core.errors import NotFound, PostroomError
from postroom.core.handbook import MailFacts
from postroom.core.mail_view import MailView, view
from postroom.core.message import DRAFT, INBOX, SPAM, TRASH
from postroom.core.records import InboxItem, InboxState, MailboxCursor
from postroom.core.values import dataclass
from postroom.desk.proposals import ORCHESTRATOR
from postroom.desk.recorder import Call
from postroom.mail.mailbox import MAX_PAGE, Mailbox, SearchPage
from postroom.orchestrator.context import Question, RunContext
from postroom.services.inbox import MailNotes
from postroom.services.incoming import BODY, exposed, facts, parse_message

BASELINE: Final = 500  # mails of the inbox that are recorded as there before
MAX_PAGES: Final = 50  # that are searched where the cursor was lost
MAX_BACKLOG: Final = 1_000
READ_CALL: Final = Call("get_email", ORCHESTRATOR, ORCHESTRATOR)


@dataclass(slots=True)
class Watcher:
    context: RunContext
    mail_notes: MailNotes
    between_mails: Callable[[], None]  # called often: approved letters do not wait for a round
    _failed: set[str] = field(default_factory=set)  # accounts, in this round

    def find_all_new(self) -> None:
        self._failed.clear()
        for account in self.context.accounts:
            self.find_new(account)

    def find_new(self, account: str) -> bool:
        """Record what is new in a mailbox, and how far it was followed; return whether that could be done."""
        try:
            count = self._find_new(account)
        except PostroomError as error:
            self._report(account, error)
            return False
        if count:
            self.context.emit("found", account=account, mails=count)
        return True

    def _report(self, account: str, error: PostroomError) -> None:
        self._failed.add(account)
        known = {"account": account, "error": error.message, "remedy": error.remedy}
        self.context.report(f"account {account}", error, **known)

    def _find_new(self, account: str) -> int:
        box = self.context.desk.mailboxes(account)
        cursor = self.context.inbox.records.cursor(account)
        if cursor is None:
            return self._start(account, box)
        try:
            changes = box.changes(cursor.cursor)
        except NotFound:
            return self._search_inbox(account, box, cursor)
        if changes.cursor == cursor.cursor:
            return 0
        cursor = cursor._replace(cursor=changes.cursor)
        return self.context.inbox.add(account, cursor, changes.added, changes.relabelled)

    def _start(self, account: str, box: Mailbox) -> int:
        """Watch from now on: the mails that are there already are left alone."""
        start = box.changes().cursor
        pages = list(_pages(box, "in:inbox", BASELINE // MAX_PAGE))
        changes = box.changes(start)
        new = set(changes.added)  # what came during the search is also in its pages
        earlier = [mail for page in pages for mail in page.items if mail.id not in new]
        oldest = min((mail.date for mail in earlier), default=0)
        cursor = MailboxCursor(changes.cursor, oldest if pages[-1].cursor else 0)
        ids = [mail.id for mail in earlier]
        count = self.context.inbox.add(account, cursor, changes.added, earlier=ids)
        self.context.emit("watching", account=account, there=len(ids))
        return count

    def _search_inbox(self, account: str, box: Mailbox, cursor: MailboxCursor) -> int:
        """The provider has forgotten the cursor: search the inbox for mails that are not known."""
        self.context.emit("cursor_lost", account=account)
        start = box.changes().cursor
        there: list[str] = []
        for page in _pages(box, "in:inbox", MAX_PAGES):
            ids = [mail.id for mail in page.items if mail.date >= cursor.floor]
            there += ids
            known = self.context.inbox.records.known_of(account, ids)
            if not ids or len(known) == len(page.items):
                break
        changes = box.changes(start)
        cursor = cursor._replace(cursor=changes.cursor)
        oldest_first = [*reversed(there), *changes.added]
        return self.context.inbox.add(account, cursor, oldest_first, relabelled=there)

    def add_backlog(self, account: str, query: str) -> None:
        """Take mails that were there before, as if they had just come in."""
        box = self.context.desk.mailboxes(account)
        pages = list(_pages(box, f"in:inbox ({query})", MAX_BACKLOG // MAX_PAGE))
        ids = [mail.id for page in pages for mail in page.items]
        count = self.context.inbox.add_backlog(account, ids[::-1])
        self.context.emit("found", account=account, mails=count)

    def write_notes(self) -> None:
        for items in self.context.chunks(InboxState.FOUND):
            self._write_notes(items)
            self.between_mails()
        for account in set(self.context.accounts) - self._failed:
            self.context.trouble.pop(f"account {account}", None)

    def _write_notes(self, items: Sequence[InboxItem]) -> None:
        items = [item for item in items if not self.mail_notes.finish_write(item)]
        answers = self.context.servers.ask("email", "get_email", list(map(self._question, items)))
        if self.context.stopping.is_set():
            return
        new: list[tuple[InboxItem, MailView, MailFacts]] = []
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, NotFound):
                self.context.inbox.close_without_note(item, InboxState.ASIDE)
            elif isinstance(answer, PostroomError):
                self._report(item.account, answer)
            elif self._needs_note(item, *answer):
                new.append((item, *answer))
        if new:
            # Recorded before the note is there: whoever reads the note has seen the mail.
            shown = [exposed(item.account, mail) for item, mail, _ in new]
            self.context.desk.exposure.record(shown)
            self.mail_notes.create(new)
            self.context.emit("noted", mails=len(new))

    def _needs_note(self, item: InboxItem, mail: MailView, mail_facts: MailFacts) -> bool:
        """Whether a note is to be written; else the mail is closed, or its note adopted."""
        labels = set(mail.labels)
        if INBOX not in labels or labels & {DRAFT, SPAM, TRASH}:
            self.context.inbox.close_without_note(item, InboxState.ASIDE)
        elif self.mail_notes.is_filed(item, mail):  # the ledger is from a backup: it was done
            self.context.inbox.close_without_note(item, InboxState.DONE)
        elif self.mail_notes.adopt_existing(item, mail, mail_facts):
            self.context.desk.exposure.record([exposed(item.account, mail)])
        else:
            return True
        return False

    def _question(self, item: InboxItem) -> Question[tuple[MailView, MailFacts]]:
        def with_facts(mail: MailView) -> tuple[MailView, MailFacts]:
            return mail, facts(mail, self.context.desk.exposure.own(item.account))

        def read() -> tuple[MailView, MailFacts]:
            mailbox = self.context.services.mailbox
            message = mailbox.message(READ_CALL, item.account, item.message)
            return with_facts(view(message, max_chars=BODY))

        account = {"account": item.account} if len(self.context.accounts) > 1 else {}
        arguments = {"id": item.message, "max_chars": BODY, **account}
        return Question(arguments, lambda values: with_facts(parse_message(values)), read)


def _pages(box: Mailbox, query: str, most: int) -> Iterator[SearchPage]:
    cursor = ""
    for _ in range(most):
        page = box.search(query, limit=MAX_PAGE, cursor=cursor)
        yield page
        cursor = page.cursor
        if not cursor:
            return
