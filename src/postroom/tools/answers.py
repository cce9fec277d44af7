"""Answers about mail and letters: what others wrote is fenced, and nothing is larger than a model has room for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from postroom.core import life
from postroom.core.letter import Letter
from postroom.core.mail_view import FileView, MailView, cut, people, person, view
from postroom.core.message import UNREAD, Message, Summary, Thread
from postroom.core.policy import Rules
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.mail.mailbox import SearchPage
from postroom.tools.fence import LETTER, NOTICE, fenced, for_values, mark
from postroom.tools.table import Fenced, Reply, Result

SEARCH_BYTES: Final = 14_500  # of a whole answer, text and values; the wrapping comes on top
MAX_THREAD: Final = 25  # mails of a conversation in one answer
PER_MAIL: Final = 4_000  # characters of each of them
FEW: Final = 5  # people and files of each of them
_ROW: Final = 190  # bytes of a found mail beside what others wrote, in both forms


def fenced_letter(text: str) -> str:
    """Return words of a letter in a fence: a reply has its subject and names from a mail."""
    return fenced(text, mark(text), LETTER)


def fenced_reply(
    result: Result, head: str, text: str, tail: Iterable[str] = (), notice: str = NOTICE
) -> Reply:
    """Return an answer with what others wrote, if anything, between two marks, which its values name too."""
    drawn = mark(text) if text else ""
    parts = [head, fenced(text, drawn, notice) if text else "", *tail]
    values = result._replace(fence=drawn, end=drawn)
    shown = for_values(notice) if text else ""
    return Reply("\n".join(filter(None, parts)), values, notice=shown)


class FoundMail(Result, sender="from"):
    id: str
    date: str
    sender: str = ""
    subject: str = ""
    snippet: str = ""
    unread: bool = False
    files: int = 0


class SearchResult(Fenced):
    mails: tuple[FoundMail, ...]
    end: str = ""
    cursor: str = ""
    notes: tuple[str, ...] = ()


class MailResult(Fenced, sender="from"):
    id: str
    thread: str
    date: str
    sender: str = ""
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    reply_to: tuple[str, ...] = ()
    subject: str = ""
    labels: tuple[str, ...] = ()
    list_id: str = ""
    automatic: bool = False
    files: tuple[FileView, ...] = ()
    text: str = ""
    warnings: tuple[str, ...] = ()
    end: str = ""
    total_chars: int
    next_offset: int = 0
    quoted_chars: int = 0
    hidden_chars: int = 0


class ThreadMail(Result, sender="from"):
    id: str
    date: str
    sender: str = ""
    to: tuple[str, ...] = ()
    files: tuple[FileView, ...] = ()
    text: str = ""
    cut_at: int = 0


class ThreadResult(Fenced):
    subject: str
    mails: tuple[ThreadMail, ...]
    end: str = ""
    thread: str
    count: int
    cursor: str = ""
    hidden_chars: int = 0


class FileResult(Fenced):
    path: str
    name: str
    type: str
    end: str = ""
    size: int


class FilingResult(Result):
    """What was done to a mail's labels; `done` is false if nothing was."""

    id: str
    done: bool
    message: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def search_reply(page: SearchPage) -> Reply:
    room = (SEARCH_BYTES // max(1, len(page.items)) - _ROW) // 2
    mails = tuple(_found(item, max(30, min(room, 420))) for item in page.items)
    rows = [
        f"{mail.id} {mail.date} {'*' if mail.unread else '-'}{f' [{mail.files}]' if mail.files else ''}"
        f" {mail.sender} | {mail.subject}{f' | {mail.snippet}' if mail.snippet else ''}"
        for mail in mails
    ]
    notes = tuple(cut(note, 200) for note in page.notes[:5])
    result = SearchResult(mails=mails, cursor=page.cursor, notes=notes)
    count = f"{len(mails)} mail{'' if len(mails) == 1 else 's'}, newest first; * is unread."
    more = f"More: cursor={page.cursor}" if page.cursor else ""
    head = count if mails else "No mail matches."
    return fenced_reply(result, head, "\n".join(rows), [*notes, more])


def _found(summary: Summary, room: int) -> FoundMail:
    sender = person(summary.sender, min(room // 2, 60))
    subject = cut(summary.subject, min(120, room - len(sender.encode())))
    left = room - len(sender.encode()) - len(subject.encode())
    return FoundMail(
        id=summary.id,
        date=Stamp(summary.date).iso,
        sender=sender,
        subject=subject,
        snippet=cut(summary.snippet, left) if left > 40 else "",
        unread=UNREAD in summary.labels,
        files=summary.attachments,
    )


def mail_reply(message: Message, *, offset: int, max_chars: int, quotes: bool) -> Reply:
    mail = view(message, offset=offset, max_chars=max_chars, quotes=quotes)
    result = MailResult(**mail._asdict())
    headers = {"From": (mail.sender,), "To": mail.to, "Cc": mail.cc, "Reply-To": mail.reply_to}
    rows = [
        *(f"{name}: {', '.join(who)}" for name, who in headers.items() if any(who)),
        f"Subject: {mail.subject}",
        f"Labels: {', '.join(mail.labels) or 'none'}",
        *([f"List: {mail.list_id}"] if mail.list_id else []),
        *(["Sent by a machine."] if mail.automatic else []),
        *_file_rows(result.files),
        "",
        mail.text or "(no text)",
        *(f"[{sentence}]" for sentence in mail.warnings),
    ]
    quoted = f"{mail.quoted_chars} characters of quoted history left out (quotes=true)."
    tail = [
        more_text(mail.next_offset, mail.total_chars),
        quoted if mail.quoted_chars else "",
        hidden_text(mail.hidden_chars),
    ]
    head = f"Mail {mail.id} of conversation {mail.thread}, {mail.date}."
    return fenced_reply(result, head, "\n".join(rows), tail)


def more_text(offset: int, total: int) -> str:
    return f"More: offset={offset} of {total} characters." if offset else ""


def hidden_text(count: int) -> str:
    return f"{count} hidden characters were removed." if count else ""


def _file_rows(files: Iterable[FileView]) -> list[str]:
    return [f"File, part {f.part}: {f.name} ({f.type}, {f.size} bytes)" for f in files]


def thread_reply(thread: Thread, *, cursor: str, max_chars: int, quotes: bool) -> Reply:
    """Return a conversation: its newest mails, in order; the cursor leads to older ones."""
    known = len(thread.messages)
    asked = int(cursor) if re.fullmatch("[0-9]{1,9}", cursor) else 0
    end = min(asked or known, known)
    mails: list[ThreadMail] = []
    room, start, hidden = max_chars, end, 0
    while start > 0 and len(mails) < MAX_THREAD and (room > 0 or not mails):
        message, size = thread.messages[start - 1], min(PER_MAIL, max(room, 200))
        mail = view(message, max_chars=size, quotes=quotes, max_files=FEW)
        if mails and len(mail.text) > room:
            break
        room -= len(mail.text) + 100
        hidden += mail.hidden_chars
        mails.insert(0, _thread_mail(message, mail))
        start -= 1
    subject = cut(thread.subject, 500)
    result = ThreadResult(
        subject=subject,
        mails=tuple(mails),
        thread=thread.id,
        count=known,
        cursor=str(start) if start else "",
        hidden_chars=hidden,
    )
    head = f"Conversation {thread.id}: mails {start + 1} to {end} of {known}, oldest first."
    tail = [f"Older ones: cursor={start}." if start else "", hidden_text(hidden)]
    text = "\n\n".join([f"Subject: {subject}", *map(_thread_mail_text, mails)])
    return fenced_reply(result, head, text, tail)


def _thread_mail(message: Message, mail: MailView) -> ThreadMail:
    return ThreadMail(
        id=mail.id,
        date=mail.date,
        sender=mail.sender,
        to=people((*message.mail.to, *message.mail.cc), FEW),
        files=mail.files,
        text=mail.text,
        cut_at=mail.next_offset,
    )


def _thread_mail_text(mail: ThreadMail) -> str:
    head = f"{mail.id} {mail.date} {mail.sender} to {', '.join(mail.to) or 'nobody'}"
    cut_off = [f"[cut: get_email {mail.id} offset={mail.cut_at}]"] if mail.cut_at else []
    # Indented, so that no line of a mail passes for the head of another.
    body = [f"  {row}" for row in (mail.text or "(no text)").split("\n")]
    return "\n".join([head, *_file_rows(mail.files), *body, *cut_off])


class LetterResult(Result):
    """What became of a letter: its state, or `draft` or `deleted` for a draft."""

    status: str
    sent: bool
    message: str
    letter: str = ""
    draft: str = ""
    code: str = ""


class OpenLetter(Result):
    letter: str
    status: str
    to: str
    subject: str


class StatusResult(LetterResult):
    fence: str = ""
    open: tuple[OpenLetter, ...] = ()
    end: str = ""


def rehearsal(rules: Rules) -> str:
    """Return the words for what is shown and not done, and which setting says so."""
    return f"Rehearsal ({rules.source})"


def letter_reply(entry: Entry, rules: Rules, newer: str = "") -> Reply:
    text = letter_text(entry, rules, newer)
    result = LetterResult(
        letter=entry.id,
        status=entry.kind,
        sent=isinstance(entry.state, life.Sent),
        message=text,
        code="approval_required" if isinstance(entry.state, life.Pending) else "",
    )
    return Reply(text, result)


def draft_reply(status: str, text: str, id: str = "") -> Reply:
    return Reply(text, LetterResult(status=status, sent=False, message=text, draft=id))


def letter_text(entry: Entry, rules: Rules, newer: str = "") -> str:
    """Return what an agent should know of its letter; `newer` is the letter that replaces it."""
    if isinstance(entry.state, life.Rehearsal):
        head = f"{rehearsal(rules)}: not sent, and it never will be. Letter {entry.id}:"
        return f"{head}\n{fenced_letter(preview(entry.letter))}"
    text = life.advise_agent(entry.id, entry.state, life.Audience.AGENT, newer)
    if entry.letter.is_reply:
        for address in entry.letter.envelope:  # a mail named them, and this is in no fence
            text = text.replace(address.spec, "a recipient")
    return text


def preview(letter: Letter) -> str:
    headers = {"To": letter.to, "Cc": letter.cc, "Bcc": letter.bcc}
    rows = [f"{name}: {', '.join(map(str, who[:25]))}" for name, who in headers.items() if who]
    rows += [f"Subject: {letter.subject}", f"Text: {len(letter.text.rstrip())} characters"]
    rows += [f"File: {file.name} ({len(file.content)} bytes)" for file in letter.attachments]
    return "\n".join(rows)
