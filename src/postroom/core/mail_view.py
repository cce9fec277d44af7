"""A mail for its reader: cleaned, bounded, without the history that it quotes; and whom an answer goes to."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from pkgutil import get_data
from typing import Final, NamedTuple

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import MAX_SUBJECT as MAX_ANSWER_SUBJECT
from postroom.core.message import DRAFT, SENT, SPAM, SYSTEM_LABELS, TRASH, Mail, Message, Party
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line

MAX_PEOPLE: Final = 20  # of one header
MAX_FILES: Final = 20
MAX_LABELS: Final = 20
MAX_WARNINGS: Final = 5
MAX_PERSON, MAX_SUBJECT, MAX_NAME = 200, 500, 120  # bytes of one text


class FileView(NamedTuple):
    part: str
    name: str
    type: str
    size: int


class MailView(NamedTuple):
    """One mail, its text in a window."""

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
    next_offset: int  # where the next window begins, 0 at the end
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


def shown_labels(labels: Collection[str]) -> tuple[str, ...]:
    """Return the first labels of a mail, the mailbox's own before others: those say what the mail is."""
    ordered = sorted(labels, key=lambda label: (label not in SYSTEM_LABELS, label))
    return tuple(cut(label, 60) for label in ordered[:MAX_LABELS])


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
    fresh, quoted = (mail.text, "") if quotes else split_quoted(mail.text)
    body, end = fresh.strip("\n"), offset + max_chars
    window = clean(body[offset:end])
    left = len(mail.attachments) - max_files
    more = [f"{left} more files are not listed"] if left > 0 else []
    return MailView(
        id=message.id,
        thread=message.thread,
        date=Stamp(message.date).iso,
        sender=person(mail.sender),
        to=people(mail.to, max_people),
        cc=people(mail.cc, max_people),
        reply_to=people(mail.reply_to, max_people),
        subject=cut(mail.subject, MAX_SUBJECT),
        labels=shown_labels(message.labels),
        list_id=cut(mail.list_id, MAX_NAME),
        automatic=mail.automatic,
        files=tuple(
            FileView(file.part, cut(file.name, MAX_NAME), cut(file.type, 80), file.size)
            for file in mail.attachments[:max_files]
        ),
        text=window.text,
        warnings=(*more, *(cut(sentence, 200) for sentence in mail.damage[:MAX_WARNINGS])),
        total_chars=len(body),
        next_offset=end if end < len(body) else 0,
        quoted_chars=len(quoted.strip()),
        hidden_chars=mail.hidden + window.removed,
    )


MAX_LINE: Final = 400  # characters of a line that is looked at; an attribution is shorter
HEADER_LINES: Final = 6  # lines in which the headers of an Outlook quotation stand


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern of `quoting.txt`, compiled at its first use."""
    rows = (get_data(__package__, "quoting.txt") or b"").decode().splitlines()
    return re.compile(dict(row.split(" ", 1) for row in rows)[name])


def split_quoted(text: str) -> tuple[str, str]:
    """Return what is new and what is quoted; answers between quoted lines, and forwarding, make all of it new."""
    lines = text.split("\n")
    shown = [line[:MAX_LINE].strip() for line in lines]
    cut = _find(shown)
    if cut is None or not any(shown[:cut]):
        return text, ""
    place = sum(len(line) + 1 for line in lines[:cut])
    return text[:place], text[place:]


def _find(shown: list[str]) -> int | None:
    """Return the line at which history begins, if it then goes on to the end."""
    last_quoted = max((at for at, line in enumerate(shown) if line.startswith(">")), default=-1)
    last_new = _last_new(shown, last_quoted)
    for at, line in enumerate(shown):
        if _pattern("forwarded").match(line):
            return None
        if _pattern("original").match(line) or _is_header_block(shown, at):
            above = next((row for row in range(at - 1, max(-1, at - 3), -1) if shown[row]), at)
            return above if _pattern("rule").fullmatch(shown[above]) else at
        if line.startswith(">"):
            return at if last_new < at else None
        length = _attribution(shown, at, quoted=last_quoted > at)
        if length:
            # Quoted line by line, or all that follows as it was.
            return at if last_quoted < at or last_new < at + length else None
    return None


def _last_new(shown: list[str], last_quoted: int) -> int:
    """Return the last line that is neither quoted nor empty nor a footer below the quotation."""
    first = next((at for at in range(last_quoted + 1, len(shown)) if shown[at]), -1)
    has_footer = last_quoted >= 0 and _pattern("footer").fullmatch(shown[first])
    end = first if has_footer else len(shown)
    return max((at for at in range(end) if shown[at] and not shown[at].startswith(">")), default=-1)


def _is_header_block(shown: list[str], at: int) -> bool:
    """Whether Outlook's way of quoting begins here: From, Sent, To and Subject, line by line."""
    below = shown[at + 1 : at + 1 + HEADER_LINES] if _pattern("from").match(shown[at]) else []
    subject = any(_pattern("subject").match(line) for line in below)
    return subject and any(_pattern(name).match(line) for name in ("sent", "to") for line in below)


def _attribution(shown: list[str], at: int, *, quoted: bool) -> int:
    """Return over how many lines somebody is said to have written what follows; 0 for none."""
    # Where the sender's program wrapped it, the first line has the date.
    may_go_on = _pattern("opener").match(shown[at]) and any(char.isdigit() for char in shown[at])
    joined = ""
    for end, line in enumerate(shown[at : at + 3], at + 1):
        if end > at + 1 and (not may_go_on or not line or line.startswith(">")):
            return 0
        joined = f"{joined} {line}".lstrip()
        following = next((row for row in shown[end : end + 3] if row), "")
        if _attributes(joined, quoted=quoted and following.startswith(">")):
            return end - at
    return 0


def _attributes(line: str, *, quoted: bool) -> bool:
    if len(line) > MAX_LINE or not line.endswith((":", "：")):
        return False
    verb, mailbox, year = (_pattern(name).search(line) for name in ("verb", "mailbox", "year"))
    if quoted:
        return bool(verb or (mailbox and year))
    # Nothing marks what follows as quoted: the line must be beyond doubt.
    return bool(year and _pattern("clock").search(line) and (verb or mailbox))


_MARKS: Final = ("re:", "re :", "aw:", "sv:", "antw:")


class ReplyEnvelope(NamedTuple):
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    subject: str


def answer(mail: Mail, own: Collection[str], *, sent: bool, everyone: bool) -> ReplyEnvelope:
    """Return where an answer to a mail goes: to whom it asks for, or to all but its own account.

    To one that this account has `sent`, it goes to whom that went; a mail that only claims so has
    chosen its recipients itself.
    """
    sender = tuple(filter(None, (mail.sender,)))
    to = _others(mail.to, own) if sent else _others(mail.reply_to, own) or _others(sender, own)
    if not to:
        raise Invalid(
            "The mail names nobody but this account to answer to",
            remedy="Write a new letter, and name its recipient.",
        )
    there = {*own, *(party.address.casefold() for party in to)}
    rest = _others((*mail.to, *mail.cc), there) if everyone else ()
    return ReplyEnvelope(
        tuple(map(_address, to)), tuple(map(_address, rest)), answer_subject(mail.subject)
    )


def answered(messages: Sequence[Message]) -> Message:
    """Return the mail of a conversation that an answer is to: the newest that came in."""
    incoming = [one for one in messages if one.labels.isdisjoint((DRAFT, SENT, SPAM, TRASH))]
    written = [one for one in messages if DRAFT not in one.labels]
    return (incoming or written or list(messages))[-1]


def answer_subject(subject: str) -> str:
    plain = one_line(subject)
    marked = plain if plain.casefold().startswith(_MARKS) else f"Re: {plain}".rstrip()
    return marked[:MAX_ANSWER_SUBJECT]


def _others(parties: Sequence[Party], own: Collection[str]) -> tuple[Party, ...]:
    found = {party.address.casefold(): party for party in reversed(parties) if party.address}
    return tuple(party for key, party in reversed(found.items()) if key not in own)


def _address(party: Party) -> Address:
    for text in (str(party), party.address):  # a name that poses as an address is not passed on
        with suppress(Invalid):
            return Address.parse(text)
    # Without the address: it is the mail's word, and an error is ours.
    raise Invalid(
        "The mail names somebody by an address that cannot be written to",
        remedy="Read it, and write a letter to the address that is meant.",
    )
