"""Text for a terminal: cleaned, folded to its width, in fields and tables; and JSON."""

from __future__ import annotations

import json
import os
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from postroom.core import life
from postroom.core.message import SYSTEM_LABELS, UNREAD
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line

if TYPE_CHECKING:
    from postroom.core.message import Message, Party, Summary
    from postroom.core.records import Entry, LetterSummary


_ACTED_UPON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
WIDTH = 80
FIELD = 9  # columns of a field's name
GAP = "  "  # between two cells of a table


def width() -> int:
    """Return the columns to write to: the terminal's, or 80 where there is none."""
    try:
        return max(40, os.get_terminal_size().columns)
    except OSError:
        return WIDTH


def print_json(value: object) -> None:
    """Write one JSON document; characters that a terminal acts upon are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_ACTED_UPON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def say(text: str = "") -> None:
    """Write a sentence for a person to stderr, next to the data on stdout."""
    click.echo(folded(text), err=True)


def folded(text: str, indent: str = "") -> str:
    """Return a text on lines that fit, cleaned; a path or a command is never broken."""
    return textwrap.fill(
        clean(text).text,
        WIDTH - 1,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hanging(head: str, text: str) -> str:
    """Return a text after its head; its further lines start below its first word."""
    return head + folded(text, " " * len(click.unstyle(head))).lstrip()


def wrapped(text: str, columns: int = 0) -> Iterator[str]:
    """Yield lines that fit, broken between words; a long address stays in one piece."""
    columns = columns or width() - 1
    for row in text.split("\n"):
        if len(row) <= columns:
            yield row
            continue
        mark = row[: len(row) - len(row.lstrip("> "))][: columns // 2]
        yield from textwrap.wrap(
            row, columns, subsequent_indent=mark, break_long_words=False, break_on_hyphens=False
        )


def _columns(char: str) -> int:
    return 0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")


def fit(text: str, columns: int) -> str:
    """Return the text on one line, padded or cut to this many columns of the terminal."""
    text = one_line(text)
    if text.isascii():
        return text.ljust(columns) if len(text) <= columns else text[: columns - 1] + "…"
    used = 0
    for at, char in enumerate(text):
        if used + _columns(char) > columns - 1:
            return text[:at] + "…" + " " * (columns - used - 1)
        used += _columns(char)
    return text + " " * (columns - used)


def table_row(*cells: str, last: str) -> str:
    """Return a row of a table: cells of fixed width, and a last one that gets the columns left over."""
    head = "".join(f"{cell}{GAP}" for cell in cells)
    left = width() - 1 - sum(map(_columns, click.unstyle(head)))
    return (head + fit(last, max(10, left))).rstrip()


def field(name: str, text: str) -> str:
    """Return a named value on lines that fit."""
    return hanging(field_name(name), text)


def fields(facts: Mapping[str, str]) -> list[str]:
    """Return named values, without those that are empty."""
    return [field(name, text) for name, text in facts.items() if text]


def field_name(name: str) -> str:
    """Return the name of a field, as wide as all of them."""
    return click.style((f"{name}: " if name else "").ljust(FIELD), dim=True)


def field_list(name: str, items: Iterable[object]) -> Iterator[str]:
    """Yield a named list, broken only between its items."""
    words = [one_line(str(item)) for item in items]
    current = ""
    for at, word in enumerate(words, 1):
        text = word if at == len(words) else f"{word},"
        if current and len(current) + 1 + len(text) > width() - FIELD - 1:
            yield field_name(name) + current
            name, current = "", text
        else:
            current = f"{current} {text}".strip()
    if current:
        yield field_name(name) + current


def short_date(second: float) -> str:
    """Return day and time in the person's zone."""
    return datetime.fromtimestamp(int(second)).astimezone().strftime("%Y-%m-%d %H:%M")


def size(count: int) -> str:
    """Return a number of bytes in the unit that fits it."""
    if count < 1000:
        return f"{count} bytes"
    left = count / 1000
    for unit in ("KB", "MB"):
        if left < 1000:
            return f"{left:.1f} {unit}"
        left /= 1000
    return f"{left:.1f} GB"


MARKS = (" ", "?", "!")  # of the levels of a risk card
COLOURS = (None, "yellow", "red")
AUTHORS = {"person": "by hand", "vault": "a note in Drafts/"}  # where no agent is known
ID_COLUMNS = 13  # of an id of the embedded mailbox


def _envelope(people: Iterable[tuple[str, Sequence[object]]], subject: str) -> Iterator[str]:
    """Yield every recipient, and the subject."""
    for name, parties in people:
        yield from field_list(name, parties)
    title = one_line(subject) or "(no subject)"
    yield field_name("Subject") + click.style(title, bold=True)


# Letters


def letter_lines(entry: Entry) -> Iterator[str]:
    """Yield a letter as it will be sent: envelope, text and files; and its risk card."""
    import hashlib

    from postroom.desk.proposals import AUTHORS

    letter = entry.letter
    yield from _envelope(letter.address_rows, letter.subject)
    agent = AUTHORS.get(entry.agent) or one_line(entry.agent)
    yield f"{field_name('Agent')}{agent}, {short_date(entry.created.wall)}, id {entry.id}"
    for at, file in enumerate(letter.attachments):
        origin = entry.origins[at] if at < len(entry.origins) else "agent"
        sha = hashlib.sha256(file.content).hexdigest()[:12]
        about = f"{file.type}, {size(len(file.content))}, SHA-256 {sha}…, from the {origin}"
        yield field("File", f"{file.name} ({about})")
    if letter.html:
        yield field("HTML", letter.about_html)
    yield ""
    # Each line is marked, so that none passes for one of ours.
    mark = click.style("│ ", dim=True)
    for row in clean(letter.text.strip("\n") or "(no text)").text.split("\n"):
        yield from (f"{mark}{piece}" for piece in wrapped(row, width() - 3))
    yield ""
    for finding in entry.card.warnings:
        text = hanging(f"{MARKS[finding.level]} ", finding.text)
        yield click.style(text, fg=COLOURS[finding.level])
    for at, finding in enumerate(entry.card.facts):
        yield field("" if at else "Facts", finding.text)
    yield field_name("Digest") + entry.digest


def letter_rows(summary: LetterSummary, age: str) -> Iterator[str]:
    """Yield a letter as two lines of a list: recipients and subject; agent, age and reason."""
    match summary.state:
        case life.Approved(held=about) | life.Unknown(why=about):
            pass
        case life.Rejected(reason=about) | life.Failed(reason=about):
            pass
        case life.Sent(at=at):
            about = f"sent {short_date(at.wall)}"
        case _:
            about = summary.warning
    mark = click.style(MARKS[summary.level], fg=COLOURS[summary.level], bold=True)
    head = f"{mark} {click.style(summary.id, fg='cyan')}"
    subject = summary.subject or "(no subject)"
    yield table_row(head, fit(summary.recipients, 26), last=subject)
    author = AUTHORS.get(summary.agent, summary.agent)
    yield table_row(" " * 12, last=f"{author}, {age} ago{f': {about}' if about else ''}")


def letter_summary_json(summary: LetterSummary) -> dict[str, Any]:
    """Return a letter of a list as JSON has it."""
    return {
        "id": summary.id,
        "state": life.name(summary.state),
        "agent": summary.agent,
        "recipients": summary.recipients.split(", "),
        "subject": summary.subject,
        "level": summary.level,
        "warning": summary.warning,
        "created": summary.created.iso,
    }


def letter_json(entry: Entry, history: Iterable[life.State]) -> dict[str, Any]:
    """Return a letter and its history as JSON has them."""
    letter = entry.letter
    people = ("to", "cc", "bcc", "reply_to")
    return {
        "id": entry.id,
        "state": entry.kind,
        "said": life.describe(entry.state, id=entry.id),
        "agent": entry.agent,
        "account": letter.account,
        "from": str(letter.sender),
        **{name: [str(address) for address in getattr(letter, name)] for name in people},
        "subject": letter.subject,
        "text": letter.text,
        "html": letter.html,
        "attachments": [
            {"name": a.name, "type": a.type, "size": len(a.content)} for a in letter.attachments
        ],
        "digest": entry.digest,
        "replaces": entry.replaces,
        "risk": [
            {"level": int(line.level), "kind": line.kind, "text": line.text}
            for line in entry.card.lines
        ],
        "created": entry.created.iso,
        "history": [life.describe(state, id=entry.id) for state in history],
    }


# Mail


def mail_lines(message: Message, *, quotes: bool) -> Iterator[str]:
    """Yield a mail as a person reads it: envelope, text, attachments, and what was damaged."""
    from postroom.core.quoting import split

    mail = message.mail
    people = [("From", [mail.sender] if mail.sender else []), ("To", mail.to)]
    people += [("Cc", mail.cc), ("Bcc", mail.bcc)]
    yield from _envelope(people, mail.subject)
    yield field_name("Date") + short_date(message.date)
    own = sorted(message.labels - SYSTEM_LABELS)
    labels = [*own, *sorted(message.labels & SYSTEM_LABELS)] or ["none"]
    yield from field_list("Labels", labels)
    yield f"{field_name('Id')}{message.id}   thread {message.thread}"
    for attachment in mail.attachments:
        kind = f"{attachment.type}, {size(attachment.size)}, part {attachment.part}"
        yield f"{field_name('File')}{one_line(attachment.name)} ({kind})"
    yield ""
    fresh, quoted = split(mail.text)
    text = clean(mail.text if quotes else fresh).text.strip("\n")
    yield from wrapped(text or "(no text)")
    if quoted.strip() and not quotes:
        count = len(quoted.strip().split("\n"))
        yield click.style(f"\n[{count} quoted lines left out; --quotes shows them]", dim=True)
    if mail.hidden:
        yield click.style(f"\n[{mail.hidden} hidden characters removed]", fg="yellow")
    for sentence in mail.damage:
        yield click.style(f"[{one_line(sentence)}]", fg="yellow")


def mail_rows(summary: Summary) -> Iterator[str]:
    """Yield a mail as two lines of a list: sender, date and subject; id and how it begins."""
    unread = UNREAD in summary.labels
    head = f"{'*' if unread else ' '} {short_date(summary.date)}"
    sender = fit(one_line(summary.sender.shown) or "(nobody)", 20)
    files = f"[{summary.attachments}] " if summary.attachments else ""
    subject = one_line(summary.subject) or "(no subject)"
    yield click.style(table_row(head, sender, last=files + subject), bold=unread)
    id = click.style(f"  {summary.id:<{ID_COLUMNS}}  ", fg="cyan")
    columns = width() - ID_COLUMNS - 7
    yield id + GAP + click.style(fit(summary.snippet, columns).rstrip(), dim=True)


def mail_summary_json(summary: Summary) -> dict[str, Any]:
    """Return a mail of a list as JSON has it."""
    return {
        "id": summary.id,
        "thread": summary.thread,
        "date": Stamp(summary.date).iso,
        "from": _party_json(summary.sender),
        "to": [_party_json(party) for party in summary.to],
        "subject": summary.subject,
        "snippet": summary.snippet,
        "labels": sorted(summary.labels),
        "unread": UNREAD in summary.labels,
        "attachments": summary.attachments,
        "size": summary.size,
        "message_id": summary.message_id,
    }


def mail_json(message: Message) -> dict[str, Any]:
    """Return a whole mail as JSON has it."""
    from postroom.core.quoting import split

    mail = message.mail
    fresh, quoted = split(mail.text)
    people = ("to", "cc", "bcc", "reply_to")
    files = ("part", "name", "type", "size", "inline")
    return {
        "id": message.id,
        "thread": message.thread,
        "date": Stamp(message.date).iso,
        "from": _party_json(mail.sender),
        **{name: [_party_json(party) for party in getattr(mail, name)] for name in people},
        "subject": mail.subject,
        "text": fresh,
        "quoted": quoted,
        "attachments": [{name: getattr(a, name) for name in files} for a in mail.attachments],
        "labels": sorted(message.labels),
        "unread": UNREAD in message.labels,
        "size": message.size,
        "message_id": mail.message_id,
        "references": list(mail.references),
        "hidden_characters": mail.hidden,
        "damage": list(mail.damage),
    }


def _party_json(party: Party | None) -> dict[str, str]:
    return {"name": party.name, "address": party.address} if party else {"name": "", "address": ""}
