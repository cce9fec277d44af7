"""A letter and a mail as the terminal shows them, whole and in lists, and as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from postroom.cli import printing
from postroom.cli.printing import field, field_list, field_name, fit, short_date, size
from postroom.core import life
from postroom.core.message import SYSTEM_LABELS, UNREAD
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line

if TYPE_CHECKING:
    from postroom.core.message import Message, Party, Summary
    from postroom.core.records import Entry, LetterSummary

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

    from postroom.desk.outbox import WHO

    letter = entry.letter
    people = [("From", (letter.sender,)), ("To", letter.to), ("Cc", letter.cc)]
    people += [("Bcc", letter.bcc), ("Reply-To", letter.reply_to)]
    yield from _envelope(people, letter.subject)
    agent = WHO.get(entry.agent) or one_line(entry.agent)
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
        yield from (f"{mark}{piece}" for piece in printing.wrapped(row, printing.width() - 3))
    yield ""
    for finding in entry.card.warnings:
        text = printing.hanging(f"{MARKS[finding.level]} ", finding.text)
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
    yield printing.table_row(head, fit(summary.recipients, 26), last=subject)
    author = AUTHORS.get(summary.agent, summary.agent)
    yield printing.table_row(" " * 12, last=f"{author}, {age} ago{f': {about}' if about else ''}")


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
    yield from printing.wrapped(text or "(no text)")
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
    yield click.style(printing.table_row(head, sender, last=files + subject), bold=unread)
    id = click.style(f"  {summary.id:<{ID_COLUMNS}}  ", fg="cyan")
    columns = printing.width() - ID_COLUMNS - 7
    yield id + printing.GAP + click.style(fit(summary.snippet, columns).rstrip(), dim=True)


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
