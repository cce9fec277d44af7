"""What a person sees of mail: cleaned, on lines that fit the terminal; and the same as JSON."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from postroom.core.message import SYSTEM_LABELS, UNREAD, Message, Party, Summary
from postroom.core.text import clean, line

if TYPE_CHECKING:
    from postroom.store.ledger import Entry

_ACTED_UPON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
WIDTH = 80
HEAD_WIDTH = 42  # unread mark, date, sender
ID_WIDTH = 13  # of an id of the embedded mailbox


def width() -> int:
    """Return the columns to write to: the terminal's, or 80 where there is none."""
    try:
        return max(40, os.get_terminal_size().columns)
    except OSError:
        return WIDTH


def print_json(value: object) -> None:
    """Write one JSON document; what a terminal would act upon is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_ACTED_UPON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def say(text: str = "") -> None:
    """Write a sentence for a person, beside the data."""
    click.echo(folded(text), err=True)


def folded(text: str, indent: str = "") -> str:
    """Return a text on lines that fit, cleaned; a path or a command is never broken."""
    import textwrap

    return textwrap.fill(
        clean(text).text,
        WIDTH - 1,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hanging(head: str, text: str) -> str:
    """Return a text after its head, its further lines below its beginning."""
    return head + folded(text, " " * len(head)).lstrip()


def fit(text: str, columns: int) -> str:
    """Return the text on one line, padded or cut to this many columns of the terminal."""
    text = line(text)
    if text.isascii():
        return text.ljust(columns) if len(text) <= columns else text[: columns - 1] + "…"
    taken: list[str] = []
    used = 0
    for char in text:
        wide = (
            0
            if unicodedata.combining(char)
            else 2
            if unicodedata.east_asian_width(char) in "WF"
            else 1
        )
        if used + wide > columns - 1:
            return "".join(taken) + "…" + " " * (columns - used - 1)
        taken.append(char)
        used += wide
    return text + " " * (columns - used)


def short_date(second: int) -> str:
    """Return the day and time in the person's zone."""
    return datetime.fromtimestamp(second).astimezone().strftime("%Y-%m-%d %H:%M")


def iso_date(second: int) -> str:
    """Return the instant in UTC, as ISO 8601."""
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield two lines: who, when and what; then how it begins."""
    columns = width()
    unread = UNREAD in summary.labels
    who = line(summary.sender.shown) or "(nobody)"
    subject = line(summary.subject) or "(no subject)"
    about = f"[{summary.attachments}] {subject}" if summary.attachments else subject
    head = f"{'*' if unread else ' '} {short_date(summary.date)}  {fit(who, 20)}  "
    yield click.style((head + fit(about, columns - HEAD_WIDTH - 1)).rstrip(), bold=unread)
    yield click.style(f"  {summary.id:<{ID_WIDTH}}    ", fg="cyan") + click.style(
        fit(summary.snippet, columns - ID_WIDTH - 7).rstrip(), dim=True
    )


def summary_json(summary: Summary) -> dict[str, Any]:
    """Return a line of a list as JSON has it."""
    return {
        "id": summary.id,
        "thread": summary.thread,
        "date": iso_date(summary.date),
        "from": party_json(summary.sender),
        "to": [party_json(party) for party in summary.to],
        "subject": summary.subject,
        "snippet": summary.snippet,
        "labels": sorted(summary.labels),
        "unread": UNREAD in summary.labels,
        "attachments": summary.attachments,
        "size": summary.size,
        "message_id": summary.message_id,
    }


def party_json(party: Party | None) -> dict[str, str]:
    """Return a person as JSON has them."""
    return {"name": party.name, "address": party.address} if party else {"name": "", "address": ""}


def message_json(message: Message) -> dict[str, Any]:
    """Return a whole mail as JSON has it."""
    from postroom.core.quoting import split

    mail = message.mail
    fresh, quoted = split(mail.text)
    return {
        "id": message.id,
        "thread": message.thread,
        "date": iso_date(message.date),
        "from": party_json(mail.sender),
        "to": [party_json(party) for party in mail.to],
        "cc": [party_json(party) for party in mail.cc],
        "bcc": [party_json(party) for party in mail.bcc],
        "reply_to": [party_json(party) for party in mail.reply_to],
        "subject": mail.subject,
        "text": fresh,
        "quoted": quoted,
        "attachments": [
            {"part": a.part, "name": a.name, "type": a.type, "size": a.size, "inline": a.inline}
            for a in mail.attachments
        ],
        "labels": sorted(message.labels),
        "unread": UNREAD in message.labels,
        "size": message.size,
        "message_id": mail.message_id,
        "references": list(mail.references),
        "hidden_characters": mail.hidden,
        "damage": list(mail.damage),
    }


def message_lines(message: Message, *, quotes: bool) -> Iterator[str]:
    """Yield a mail as a person reads it: its head, its text, its attachments, and what was amiss."""
    from postroom.core.quoting import split

    mail = message.mail
    people = [
        ("From", (mail.sender,) if mail.sender else ()),
        ("To", mail.to),
        ("Cc", mail.cc),
        ("Bcc", mail.bcc),
    ]
    for name, parties in people:
        if parties:
            yield from _folded(name, [line(str(party)) for party in parties])
    yield f"{_field('Date')}{short_date(message.date)}"
    yield f"{_field('Subject')}{click.style(line(mail.subject) or '(no subject)', bold=True)}"
    own = sorted(message.labels - SYSTEM_LABELS)
    yield f"{_field('Labels')}{', '.join([*own, *sorted(message.labels & SYSTEM_LABELS)]) or 'none'}"
    yield f"{_field('Id')}{message.id}   thread {message.thread}"
    for attachment in mail.attachments:
        kind = f"{attachment.type}, {_size(attachment.size)}, part {attachment.part}"
        yield f"{_field('File')}{line(attachment.name)} ({kind})"
    yield ""
    fresh, quoted = split(mail.text)
    yield from _wrapped(clean(mail.text if quotes else fresh).text.strip("\n") or "(no text)")
    if quoted.strip() and not quotes:
        count = len(quoted.strip().split("\n"))
        yield click.style(f"\n[{count} quoted lines left out; --quotes shows them]", dim=True)
    if mail.hidden:
        yield click.style(f"\n[{mail.hidden} hidden characters removed]", fg="yellow")
    for sentence in mail.damage:
        yield click.style(f"[{line(sentence)}]", fg="yellow")


def letter_lines(entry: Entry, html_text: Callable[[str], str]) -> Iterator[str]:
    """Yield a letter as it will be sent: its whole envelope, its text, its files, its risk card."""
    import hashlib

    from postroom.core.risk import html_differs

    letter = entry.letter
    people = [("From", (letter.sender,)), ("To", letter.to), ("Cc", letter.cc)]
    people += [("Bcc", letter.bcc), ("Reply-To", letter.reply_to)]
    for name, addresses in people:
        if addresses:
            yield from _folded(name, [str(address) for address in addresses])
    yield f"{_field('Subject')}{click.style(letter.subject or '(no subject)', bold=True)}"
    yield f"{_field('Agent')}{line(entry.agent)}, {short_date(int(entry.created.wall))}, id {entry.id}"
    for at, file in enumerate(letter.attachments):
        origin = entry.origins[at] if at < len(entry.origins) else "agent"
        sha = hashlib.sha256(file.content).hexdigest()[:12]
        about = f"{file.type}, {_size(len(file.content))}, SHA-256 {sha}…, from the {origin}"
        yield f"{_field('File')}{file.name} ({about})"
    if letter.html:
        shown = html_text(letter.html)
        if html_differs(letter, shown):
            yield click.style("\nThe HTML part, which most people see, says:", fg="red", bold=True)
            yield from _marked(shown)
            yield click.style("\nThe plain part says:", bold=True)
    yield ""
    yield from _marked(letter.text.strip("\n") or "(no text)")
    yield ""
    colours = {0: None, 1: "yellow", 2: "red"}
    for found in entry.card.lines:
        mark = {0: " ", 1: "?", 2: "!"}[found.level]
        text = folded(f"{mark} {found.text}", "").replace("\n", "\n  ")
        yield click.style(text, fg=colours[found.level])
    yield f"{_field('Digest')}{entry.digest}"


def _marked(text: str) -> Iterator[str]:
    """Yield the lines of a letter, each marked, so that none passes for one of ours."""
    mark = click.style("│ ", dim=True)
    for row in clean(text).text.split("\n"):
        yield from (f"{mark}{piece}" for piece in _wrapped(row, width() - 3))


def _wrapped(text: str, columns: int = 0) -> Iterator[str]:
    """Yield lines that fit, broken between words; a long address stays in one piece."""
    import textwrap

    columns = columns or width() - 1
    for row in text.split("\n"):
        if len(row) <= columns:
            yield row
            continue
        mark = row[: len(row) - len(row.lstrip("> "))][: columns // 2]
        yield from textwrap.wrap(
            row, columns, subsequent_indent=mark, break_long_words=False, break_on_hyphens=False
        )


def _field(name: str) -> str:
    return click.style(f"{name + ':':<9}", dim=True)


def _folded(name: str, items: list[str]) -> Iterator[str]:
    """Yield a list after its name, broken between items where it grows wider than the terminal."""
    room, current = width() - 10, ""
    for at, item in enumerate(items):
        text = item if at == len(items) - 1 else f"{item},"
        if current and len(current) + 1 + len(text) > room:
            yield f"{_field(name) if name else ' ' * 9}{current}"
            name, current = "", text
        else:
            current = f"{current} {text}".strip()
    yield f"{_field(name) if name else ' ' * 9}{current}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
