"""Mail and letters as tools show them: cleaned, fenced, and no larger than a model has room for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from postroom.core import life
from postroom.core.letter import Letter
from postroom.core.message import (
    SYSTEM_LABELS,
    UNREAD,
    Attachment,
    Mail,
    Message,
    Party,
    Summary,
    Thread,
)
from postroom.core.policy import Rules
from postroom.core.quoting import split
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line
from postroom.mail.mailbox import SearchPage
from postroom.tools.fence import LETTER, NOTICE, fenced, mark
from postroom.tools.table import Reply, Result

SEARCH_BYTES: Final = 14_500  # of a whole answer, text and values; the wrapping comes on top
MAX_PEOPLE, MAX_FILES, MAX_NAME = 20, 20, 120  # of one mail that are shown
FEW: Final = 5  # people and files of a mail in a conversation
PER_MAIL: Final = 4_000  # characters of each mail of a conversation
MAX_THREAD: Final = 25  # mails of a conversation in one answer
_ROW: Final = 190  # bytes of a found mail beside what others wrote, in both forms


class Fenced(Result):
    """What others wrote stands between `fence` and `end`, which hold the same mark."""

    fence: str


class Hit(Result, sender="from"):
    """A mail in a list."""

    id: str
    date: str
    sender: str = ""
    subject: str = ""
    snippet: str = ""
    unread: bool = False
    files: int = 0


class SearchResult(Fenced):
    """Mails, newest first."""

    mails: tuple[Hit, ...]
    end: str
    cursor: str = ""
    notes: tuple[str, ...] = ()


class FileIn(Result):
    """An attachment."""

    part: str
    name: str
    type: str
    size: int


class MailResult(Fenced, sender="from"):
    """One mail."""

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
    files: tuple[FileIn, ...] = ()
    text: str = ""
    warnings: tuple[str, ...] = ()
    end: str
    total_chars: int
    next_offset: int = 0
    quoted_chars: int = 0
    hidden_chars: int = 0


class Said(Result, sender="from"):
    """One mail of a conversation."""

    id: str
    date: str
    sender: str = ""
    to: tuple[str, ...] = ()
    files: tuple[FileIn, ...] = ()
    text: str = ""
    cut_at: int = 0


class ThreadResult(Fenced):
    """A conversation, oldest mail first."""

    subject: str
    mails: tuple[Said, ...]
    end: str
    thread: str
    count: int
    cursor: str = ""
    hidden_chars: int = 0


class FileResult(Fenced):
    """A file that was saved."""

    path: str
    name: str
    type: str
    end: str
    size: int


class LetterResult(Result):
    """What became of a letter: a state of its life, or `draft` or `deleted` for a draft."""

    status: str
    sent: bool
    message: str
    letter: str = ""
    draft: str = ""
    code: str = ""


class OpenLetter(Result):
    """A letter in a list."""

    letter: str
    status: str
    to: str
    subject: str


class StatusResult(LetterResult):
    """What became of a letter, or which ones are open."""

    fence: str = ""
    open: tuple[OpenLetter, ...] = ()
    end: str = ""


class SortedResult(Result):
    """What was done to a mail; `done` is false where nothing was."""

    id: str
    done: bool
    message: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def cut(text: str, size: int) -> str:
    """Return the text on one line, cleaned, in at most so many bytes."""
    plain = one_line(text)
    raw = plain.encode()
    if len(raw) <= size:
        return plain
    return raw[: max(0, size - 3)].decode(errors="ignore") + "…" if size > 8 else ""


def fenced_reply(
    result: Result, head: str, text: str, tail: Iterable[str] = (), notice: str = NOTICE
) -> Reply:
    """Return an answer with what others wrote between two marks, which its values name too.

    Where they wrote nothing, there are no marks.
    """
    fence = mark(text) if text else ""
    said = [head, fenced(text, fence, notice) if text else "", *tail]
    marked = result._replace(fence=fence, end=fence)
    return Reply("\n".join(filter(None, said)), marked)


def search_reply(page: SearchPage) -> Reply:
    """Return found mails; the more there are, the less of each."""
    room = (SEARCH_BYTES // max(1, len(page.items)) - _ROW) // 2
    hits = tuple(_hit(item, max(30, min(room, 420))) for item in page.items)
    rows = [
        f"{hit.id} {hit.date} {'*' if hit.unread else '-'}{f' [{hit.files}]' if hit.files else ''}"
        f" {hit.sender} | {hit.subject}{f' | {hit.snippet}' if hit.snippet else ''}"
        for hit in hits
    ]
    notes = tuple(cut(note, 200) for note in page.notes[:5])
    result = SearchResult(fence="", mails=hits, end="", cursor=page.cursor, notes=notes)
    count = f"{len(hits)} mail{'' if len(hits) == 1 else 's'}, newest first; * is unread."
    more = f"More: cursor={page.cursor}" if page.cursor else ""
    head = count if hits else "No mail matches."
    return fenced_reply(result, head, "\n".join(rows), [*notes, more])


def _hit(summary: Summary, room: int) -> Hit:
    sender = cut(_person(summary.sender, min(room // 2, 60)), min(room // 2, 60))
    subject = cut(summary.subject, min(120, room - len(sender.encode())))
    left = room - len(sender.encode()) - len(subject.encode())
    return Hit(
        id=summary.id,
        date=Stamp(summary.date).iso,
        sender=sender,
        subject=subject,
        snippet=cut(summary.snippet, left) if left > 40 else "",
        unread=UNREAD in summary.labels,
        files=summary.attachments,
    )


def _person(party: Party | None, room: int = 200) -> str:
    """Return who it is: name and address, or the address alone where both have no room."""
    if party is None:
        return ""
    whole = one_line(str(party))
    return whole if len(whole.encode()) <= room else cut(party.address, room)


def _people(parties: Sequence[Party], most: int = MAX_PEOPLE) -> tuple[str, ...]:
    shown = tuple(_person(party, 150) for party in parties[:most])
    return (*shown, f"and {len(parties) - most} more") if parties[most:] else shown


def _files(attachments: Sequence[Attachment], most: int = MAX_FILES) -> tuple[FileIn, ...]:
    return tuple(
        FileIn(part=a.part, name=cut(a.name, MAX_NAME), type=cut(a.type, 80), size=a.size)
        for a in attachments[:most]
    )


def mail_reply(message: Message, *, offset: int, max_chars: int, quotes: bool) -> Reply:
    """Return one mail, its text in a window."""
    mail = message.mail
    fresh, quoted = (mail.text, "") if quotes else split(mail.text)
    body = fresh.strip("\n")
    window = clean(body[offset : offset + max_chars])
    end = offset + max_chars
    left_out = len(quoted.strip())
    values = MailResult(
        fence="",
        id=message.id,
        thread=message.thread,
        date=Stamp(message.date).iso,
        sender=_person(mail.sender),
        to=_people(mail.to),
        cc=_people(mail.cc),
        reply_to=_people(mail.reply_to),
        subject=cut(mail.subject, 500),
        # The mailbox's own first: where there are too many, those say what the mail is.
        labels=tuple(
            cut(label, 60)
            for label in sorted(message.labels, key=lambda one: (one not in SYSTEM_LABELS, one))
        )[:MAX_FILES],
        list_id=cut(mail.list_id, MAX_NAME),
        automatic=mail.automatic,
        files=_files(mail.attachments),
        text=window.text,
        warnings=_warnings(mail),
        end="",
        total_chars=len(body),
        next_offset=end if end < len(body) else 0,
        quoted_chars=left_out,
        hidden_chars=mail.hidden + window.removed,
    )
    amiss = [f"[{sentence}]" for sentence in values.warnings]
    text = "\n".join([*_head(values), "", window.text or "(no text)", *amiss])
    head = f"Mail {message.id} of conversation {message.thread}, {values.date}."
    return fenced_reply(values, head, text, _tail(values))


def _warnings(mail: Mail) -> tuple[str, ...]:
    left = len(mail.attachments) - MAX_FILES
    more = (f"{left} more files are not listed",) if left > 0 else ()
    return (*more, *(cut(sentence, 200) for sentence in mail.damage[:5]))


def _head(mail: MailResult) -> list[str]:
    people = {"From": (mail.sender,), "To": mail.to, "Cc": mail.cc, "Reply-To": mail.reply_to}
    rows = [f"{name}: {', '.join(who)}" for name, who in people.items() if any(who)]
    rows += [f"Subject: {mail.subject}", f"Labels: {', '.join(mail.labels) or 'none'}"]
    rows += [f"List: {mail.list_id}"] if mail.list_id else []
    rows += ["Sent by a machine."] if mail.automatic else []
    return [*rows, *_file_rows(mail.files)]


def _file_rows(files: Sequence[FileIn]) -> list[str]:
    return [
        f"File, part {file.part}: {file.name} ({file.type}, {file.size} bytes)" for file in files
    ]


def _tail(mail: MailResult) -> list[str]:
    rows = []
    if mail.next_offset:
        rows.append(f"More: offset={mail.next_offset} of {mail.total_chars} characters.")
    if mail.quoted_chars:
        rows.append(f"{mail.quoted_chars} characters of quoted history left out (quotes=true).")
    if mail.hidden_chars:
        rows.append(f"{mail.hidden_chars} hidden characters were removed.")
    return rows


def thread_reply(thread: Thread, *, cursor: str, max_chars: int, quotes: bool) -> Reply:
    """Return a conversation: its newest mails, in order; the cursor leads to older ones."""
    known = len(thread.messages)
    asked = int(cursor) if re.fullmatch("[0-9]{1,9}", cursor) else known
    end = asked if 0 < asked <= known else known
    shown: list[Said] = []
    room, start = max_chars, end
    hidden = 0
    while start > 0 and len(shown) < MAX_THREAD and (room > 0 or not shown):
        message = thread.messages[start - 1]
        said, removed = _said(message, min(PER_MAIL, max(room, 200)), quotes=quotes)
        if shown and len(said.text) > room:
            break
        room -= len(said.text) + 100
        hidden += removed
        shown.insert(0, said)
        start -= 1
    subject = cut(thread.subject, 500)
    text = "\n\n".join([f"Subject: {subject}", *map(_said_text, shown)])
    result = ThreadResult(
        fence="",
        subject=subject,
        mails=tuple(shown),
        end="",
        thread=thread.id,
        count=known,
        cursor=str(start) if start else "",
        hidden_chars=hidden,
    )
    head = f"Conversation {thread.id}: mails {start + 1} to {end} of {known}, oldest first."
    tail = [f"Older ones: cursor={start}."] if start else []
    tail += [f"{hidden} hidden characters were removed."] if hidden else []
    return fenced_reply(result, head, text, tail)


def _said(message: Message, room: int, *, quotes: bool) -> tuple[Said, int]:
    mail = message.mail
    body = (mail.text if quotes else split(mail.text)[0]).strip("\n")
    window = clean(body[:room])
    said = Said(
        id=message.id,
        date=Stamp(message.date).iso,
        sender=_person(mail.sender),
        to=_people((*mail.to, *mail.cc), FEW),
        files=_files(mail.attachments, FEW),
        text=window.text,
        cut_at=room if len(body) > room else 0,
    )
    return said, mail.hidden + window.removed


def _said_text(said: Said) -> str:
    head = f"{said.id} {said.date} {said.sender} to {', '.join(said.to) or 'nobody'}"
    cut_off = [f"[cut: get_email {said.id} offset={said.cut_at}]"] if said.cut_at else []
    # Indented, so that no line of a mail passes for the head of another.
    body = [f"  {row}" for row in (said.text or "(no text)").split("\n")]
    return "\n".join([head, *_file_rows(said.files), *body, *cut_off])


# Letters


def rehearsal(rules: Rules) -> str:
    """Return the words for what is shown and not done, and what decided that."""
    return f"Rehearsal ({rules.source})"


def letter_reply(entry: Entry, rules: Rules, newer: str = "") -> Reply:
    """Return what became of a letter, and what its agent does next."""
    state = entry.state
    sent = isinstance(state, life.Sent)
    code = "approval_required" if isinstance(state, life.Pending) else ""
    said = told(entry, rules, newer)
    result = LetterResult(letter=entry.id, status=entry.kind, sent=sent, message=said, code=code)
    return Reply(said, result)


def draft_reply(status: str, text: str, id: str = "") -> Reply:
    """Return what became of a draft."""
    return Reply(text, LetterResult(status=status, sent=False, message=text, draft=id))


def told(entry: Entry, rules: Rules, newer: str = "") -> str:
    """Return what an agent should know of its letter; `newer` stands in its place."""
    if isinstance(entry.state, life.Rehearsal):
        said = f"{rehearsal(rules)}: not sent, and it never will be. Letter {entry.id}:"
        return f"{said}\n{quoted(preview(entry.letter))}"
    said = life.advise_agent(entry.id, entry.state, life.Audience.AGENT, newer)
    if entry.letter.in_reply_to:
        for address in entry.letter.envelope:  # a mail named them, and this stands in no fence
            said = said.replace(address.spec, "a recipient")
    return said


def quoted(text: str) -> str:
    """Return a letter's words in a fence: a reply has its subject and names from a mail."""
    return fenced(text, mark(text), LETTER)


def preview(letter: Letter) -> str:
    """Return what would have gone out, in a few lines."""
    people = {"To": letter.to, "Cc": letter.cc, "Bcc": letter.bcc}
    rows = [f"{name}: {', '.join(map(str, who[:25]))}" for name, who in people.items() if who]
    rows += [f"Subject: {letter.subject}", f"Text: {len(letter.text.rstrip())} characters"]
    rows += [f"File: {file.name} ({len(file.content)} bytes)" for file in letter.attachments]
    return "\n".join(rows)
