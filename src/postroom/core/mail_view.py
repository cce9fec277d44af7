"""A mail as every surface shows it: cleaned, bounded, and without the history that it quotes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from postroom.core.message import SYSTEM_LABELS, Attachment, Message, Party
from postroom.core.quoting import split
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line

MAX_PEOPLE: Final = 20  # of one header
MAX_FILES: Final = 20
MAX_LABELS: Final = 20
MAX_WARNINGS: Final = 5
MAX_PERSON, MAX_SUBJECT, MAX_NAME = 200, 500, 120  # bytes of one text


class FileView(NamedTuple):
    """An attachment; `part` finds it in its mail."""

    part: str
    name: str
    type: str
    size: int


class MailView(NamedTuple):
    """One mail, its text in a window: `next_offset` is where the next one begins, 0 at the end."""

    id: str
    thread: str
    date: str
    sender: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    reply_to: tuple[str, ...]
    subject: str
    labels: tuple[str, ...]
    list_id: str
    automatic: bool
    files: tuple[FileView, ...]
    text: str
    warnings: tuple[str, ...]
    total_chars: int
    next_offset: int
    quoted_chars: int  # of history that was left out
    hidden_chars: int  # that were removed


def cut(text: str, size: int) -> str:
    """Return the text on one line, cleaned, in at most `size` bytes."""
    plain = one_line(text)
    raw = plain.encode()
    if len(raw) <= size:
        return plain
    return raw[: max(0, size - 3)].decode(errors="ignore") + "…" if size > 8 else ""


def person(party: Party | None, size: int = MAX_PERSON) -> str:
    """Return name and address, or the address alone where both have no room."""
    if party is None:
        return ""
    whole = one_line(str(party))
    return whole if len(whole.encode()) <= size else cut(party.address, size)


def people(parties: Sequence[Party], most: int = MAX_PEOPLE) -> tuple[str, ...]:
    """Return the first people of a header, and how many more there are."""
    shown = tuple(person(party, 150) for party in parties[:most])
    return (*shown, f"and {len(parties) - most} more") if parties[most:] else shown


def view(
    message: Message,
    *,
    offset: int = 0,
    max_chars: int,
    quotes: bool = False,
    max_people: int = MAX_PEOPLE,
    max_files: int = MAX_FILES,
) -> MailView:
    """Return a mail with `max_chars` of its text from `offset` on; quoted history only with `quotes`."""
    mail = message.mail
    fresh, quoted = (mail.text, "") if quotes else split(mail.text)
    body, end = fresh.strip("\n"), offset + max_chars
    window = clean(body[offset:end])
    # The mailbox's own labels first: if there are too many, those say what the mail is.
    labels = sorted(message.labels, key=lambda label: (label not in SYSTEM_LABELS, label))
    return MailView(
        id=message.id,
        thread=message.thread,
        date=Stamp(message.date).iso,
        sender=person(mail.sender),
        to=people(mail.to, max_people),
        cc=people(mail.cc, max_people),
        reply_to=people(mail.reply_to, max_people),
        subject=cut(mail.subject, MAX_SUBJECT),
        labels=tuple(cut(label, 60) for label in labels[:MAX_LABELS]),
        list_id=cut(mail.list_id, MAX_NAME),
        automatic=mail.automatic,
        files=tuple(map(_file, mail.attachments[:max_files])),
        text=window.text,
        warnings=_warnings(message, max_files),
        total_chars=len(body),
        next_offset=end if end < len(body) else 0,
        quoted_chars=len(quoted.strip()),
        hidden_chars=mail.hidden + window.removed,
    )


def _file(file: Attachment) -> FileView:
    return FileView(file.part, cut(file.name, MAX_NAME), cut(file.type, 80), file.size)


def _warnings(message: Message, max_files: int) -> tuple[str, ...]:
    left = len(message.mail.attachments) - max_files
    more = (f"{left} more files are not listed",) if left > 0 else ()
    return (*more, *(cut(sentence, 200) for sentence in message.mail.damage[:MAX_WARNINGS]))
