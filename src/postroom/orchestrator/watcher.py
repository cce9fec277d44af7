"""The watcher: follow the mailboxes by the provider's own history, and write a note for each new mail.

The cursor and what was found up to it are one transaction. No clock of this machine decides what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Final

from postroom.core.errors import Corrupt, NotFound, PostroomError
from postroom.core.handbook import MailFacts
from postroom.core.mail_view import MailView
from postroom.core.message import DRAFT, INBOX, SPAM, TRASH
from postroom.core.records import InboxItem, InboxState, MailboxCursor
from postroom.core.values import dataclass
from postroom.desk.proposals import ORCHESTRATOR
from postroom.desk.recorder import Call
from postroom.mail.mailbox import MAX_PAGE, Mailbox, SearchPage
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.servers import Question, ToolValues
from postroom.services.incoming import (
    BODY,
    exposed,
    facts,
    parse_message,
    values_of,
)
from postroom.services.mail_notes import MailNotes

BASELINE: Final = 500  # mails of the inbox that are recorded as there before
MAX_PAGES: Final = 50  # that are searched where the cursor was lost
MAX_BACKLOG: Final = 1_000
NOT_INBOX: Final = frozenset({DRAFT, SPAM, TRASH})
READ_CALL: Final = Call("get_email", ORCHESTRATOR, ORCHESTRATOR)


@dataclass(slots=True)
class Watcher:
    """Follows the mailboxes of the accounts."""

    context: RunContext
    mail_notes: MailNotes
    between_mails: Callable[[], None]  # called often: approved letters do not wait for a round
    trouble: dict[str, PostroomError] = field(default_factory=dict)  # by account
    _reported: dict[str, str] = field(default_factory=dict)

    def find_new(self, account: str) -> None:
        """Record what is new in a mailbox, together with how far it was followed."""
        try:
            count = self._find_new(account)
        except PostroomError as error:
            self._report(account, error)
            return
        self.trouble.pop(account, None)
        if count:
            self.context.emit("found", account=account, mails=count)

    def _report(self, account: str, error: PostroomError) -> None:
        self.trouble[account] = error
        if self._reported.get(account) != error.message:
            self._reported[account] = error.message
            self.context.emit("trouble", account=account, error=error.message, remedy=error.remedy)

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
        new_cursor = cursor._replace(cursor=changes.cursor)
        return self.context.inbox.add(account, new_cursor, changes.added, changes.relabelled)

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
        self.context.inbox.start_watching(account, cursor, changes.added, ids)
        self.context.emit("watching", account=account, there=len(ids))
        return len(changes.added)

    def _search_inbox(self, account: str, box: Mailbox, cursor: MailboxCursor) -> int:
        """The provider has forgotten the cursor: search the inbox for mails that are not known."""
        self.context.emit("cursor_lost", account=account)
        start = box.changes().cursor
        new: list[str] = []
        for page in _pages(box, "in:inbox", MAX_PAGES):
            ids = [mail.id for mail in page.items if mail.date >= cursor.floor]
            unknown, reopened = self.context.inbox.select_unknown(account, ids)
            if reopened:
                self.context.emit("found", account=account, mails=reopened)
            new += unknown
            if not ids or len(ids) - len(unknown) == len(page.items):
                break
        changes = box.changes(start)
        oldest_first = [*reversed(new), *changes.added]
        return self.context.inbox.add(account, cursor._replace(cursor=changes.cursor), oldest_first)

    def add_backlog(self, account: str, query: str) -> None:
        """Take mails that were there before, as if they had just come in."""
        box = self.context.desk.mailboxes(account)
        pages = list(_pages(box, f"in:inbox ({query})", MAX_BACKLOG // MAX_PAGE))
        ids = [mail.id for page in pages for mail in page.items]
        count = self.context.inbox.add_backlog(account, ids[::-1])
        self.context.emit("found", account=account, mails=count)

    # From ids to notes

    def write_notes(self) -> None:
        """Read the mails that were found, and write their notes."""
        for items in self.context.chunks(InboxState.FOUND):
            self._write_notes(items)
            self.between_mails()
        self._reported = {
            name: text for name, text in self._reported.items() if name in self.trouble
        }

    def _write_notes(self, items: Sequence[InboxItem]) -> None:
        items = [item for item in items if not self.mail_notes.finish_write(item)]
        questions = list(map(self._question, items))
        answers = self.context.servers.ask("email", "get_email", questions)
        if self.context.stopping.is_set():
            return
        new: list[tuple[InboxItem, MailView, MailFacts]] = []
        for item, question, answer in zip(items, questions, answers, strict=True):
            if isinstance(answer, NotFound):
                self.context.inbox.close_without_note(item, InboxState.ASIDE)
                continue
            try:
                if isinstance(answer, PostroomError):
                    raise answer
                mail = _parse(question, answer)
                mail_facts = facts(mail, self.context.desk.exposure.own(item.account))
            except PostroomError as error:
                self._report(item.account, error)
                continue
            if self._needs_note(item, mail, mail_facts):
                new.append((item, mail, mail_facts))
        if new:
            # Recorded before the note is there: whoever reads the note has seen the mail.
            self.context.desk.exposure.record(
                [exposed(item.account, mail) for item, mail, _ in new]
            )
            self.mail_notes.create(new)
            self.context.emit("noted", mails=len(new))

    def _needs_note(self, item: InboxItem, mail: MailView, mail_facts: MailFacts) -> bool:
        """Whether a note is to be written; else the mail is closed, or its note adopted."""
        labels = set(mail.labels)
        if INBOX not in labels or labels & NOT_INBOX:
            self.context.inbox.close_without_note(item, InboxState.ASIDE)
        elif self.mail_notes.is_filed(item, mail):  # the ledger is from a backup: it was done
            self.context.inbox.close_without_note(item, InboxState.DONE)
        elif self.mail_notes.adopt_existing(item, mail, mail_facts):
            self.context.desk.exposure.record([exposed(item.account, mail)])
        else:
            return True
        return False

    def _question(self, item: InboxItem) -> Question:
        def read() -> ToolValues:
            mailbox = self.context.services.mailbox
            return values_of(mailbox.message(READ_CALL, item.account, item.message))

        arguments: dict[str, object] = {"id": item.message, "max_chars": BODY}
        if len(self.context.accounts) > 1:
            arguments["account"] = item.account
        return Question(arguments, read)


def _parse(question: Question, answer: ToolValues) -> MailView:
    """Return the mail; an answer that is no mail is read without the server."""
    try:
        return parse_message(answer)
    except Corrupt:
        return parse_message(question.fallback())


def _pages(box: Mailbox, query: str, most: int) -> Iterator[SearchPage]:
    cursor = ""
    for _ in range(most):
        page = box.search(query, limit=MAX_PAGE, cursor=cursor)
        yield page
        cursor = page.cursor
        if not cursor:
            return
