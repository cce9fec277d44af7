"""A mail that came in: as the email server returns it, as the ledger records it, and as its note shows it.

What others wrote stands in a fence or as a quoted value.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from postroom.core.errors import Corrupt
from postroom.core.handbook import MailFacts
from postroom.core.mail_view import FileView, MailView
from postroom.core.message import IMPORTANT, SENT
from postroom.core.policy import back_off
from postroom.core.records import InboxItem, InboxState, ShownMail
from postroom.core.text import clean, one_line
from postroom.desk.exposure import Shown
from postroom.desk.note_text import date_time
from postroom.desk.unowned_notes import MAIL
from postroom.review.tokens import address_key
from postroom.vault.markdown import fence, fenced_sections, inert, quote
from postroom.vault.note import Note, render

BODY: Final = 20_000  # characters of a mail in its note
MAX_FIELD: Final = 1_000
STATUS: Final = {
    InboxState.FOUND: "pending",
    InboxState.DECIDED: "pending",
    InboxState.DELEGATED: "pending_approval",
    InboxState.ASIDE: "done",
}
_ADDRESS: Final = re.compile(r"<([^<>]*)>$")


def parse_message(values: Mapping[str, Any]) -> MailView:
    """Return the mail that `get_email` answered; one that is not a mail is `Corrupt`."""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(one_line(str(text)) for text in values.get(name, ()))

    try:
        datetime.fromisoformat(str(values["date"]))
        return MailView(
            id=str(values["id"]),
            thread=str(values["thread"]),
            date=str(values["date"]),
            sender=one_line(str(values.get("from", ""))),
            to=texts("to"),
            cc=texts("cc"),
            reply_to=texts("reply_to"),
            subject=one_line(str(values.get("subject", ""))),
            labels=texts("labels"),
            list_id=one_line(str(values.get("list_id", ""))),
            automatic=bool(values.get("automatic", False)),
            files=tuple(
                FileView(
                    "", one_line(str(one["name"])), one_line(str(one["type"])), int(one["size"])
                )
                for one in values.get("files", ())
            ),
            text=clean(str(values.get("text", "")))[0][:BODY],
            warnings=texts("warnings"),
            total_chars=int(values.get("total_chars", 0)),
            next_offset=int(values.get("next_offset", 0)),
            quoted_chars=int(values.get("quoted_chars", 0)),
            hidden_chars=int(values.get("hidden_chars", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt("The answer of the email server is not a mail") from error


def address(person: str) -> str:
    found = _ADDRESS.search(person)
    return (found[1] if found else person).strip().casefold()


def exposed(account: str, mail: MailView) -> Shown:
    """Return what the note of a mail shows to whoever reads it."""
    people = [("from", mail.sender), *(("to", person) for person in (*mail.to, *mail.cc))]
    files = "\n".join(file.name for file in mail.files)
    texts = [("name", person.rpartition("<")[0]) for _, person in people]
    texts += [("subject", mail.subject), ("body", mail.text), ("file", files)]
    date = datetime.fromisoformat(mail.date).timestamp()
    sender, sent = address_key(address(mail.sender)), SENT in mail.labels
    about = ShownMail(account, mail.id, sender, mail.subject[:MAX_FIELD], date, sent)
    keys = [(part, address_key(address(person))) for part, person in people]
    return Shown(about, "note", keys, texts)


def facts(mail: MailView, own: frozenset[str]) -> MailFacts:
    return MailFacts(
        sender=address(mail.sender),
        recipients=tuple(map(address, (*mail.to, *mail.cc))),
        subject=mail.subject,
        labels=mail.labels,
        list_id=mail.list_id.strip("<>").casefold(),
        automatic=mail.automatic,
        own=address(mail.sender) in own,
    )


def name_of(account: str, mail: MailView) -> str:
    """Return the name of a mail's note: the same for the same mail, whenever it is written."""
    digest = hashlib.sha256(f"{account}\0{mail.id}".encode()).digest()
    tag = base64.b32encode(digest)[:8].decode().lower()
    about = " ".join(re.findall(r"\w+", mail.subject))[:40].strip()
    return f"{mail.date[:10]} {tag}{f' {about}' if about else ''}.md"


def render_mail(account: str, mail: MailView) -> bytes:
    fields: dict[str, str | Sequence[str]] = {
        "type": MAIL,
        "id": mail.id,
        "account": account,
        "thread": mail.thread,
        "from": inert(mail.sender[:MAX_FIELD]),
        "to": inert(", ".join(mail.to)[:MAX_FIELD]),
        **({"cc": inert(", ".join(mail.cc)[:MAX_FIELD])} if mail.cc else {}),
        "subject": inert(mail.subject[:MAX_FIELD]),
        "date": mail.date,
        "labels": [inert(label) for label in mail.labels],
        "priority": "high" if IMPORTANT in mail.labels else "normal",
        "status": "pending",
    }
    left = mail.total_chars - mail.next_offset if mail.next_offset else 0
    omissions = (
        (left, "more characters are not shown here"),
        (mail.quoted_chars, "characters of quoted history are left out"),
        (mail.hidden_chars, "hidden characters were removed"),
    )
    remarks = [*mail.warnings, *(f"{count:,} {what}" for count, what in omissions if count)]
    rows = {
        "Attachments": [
            f"{quote(file.name)}, {quote(file.type)}, {file.size:,} bytes" for file in mail.files
        ],
        "Remarks": list(map(quote, remarks)),
    }
    body = f"\n## Mail\n\n{fence(mail.text.strip(chr(10)) or '(no text)')}\n"
    for title, lines in rows.items():
        if lines:
            body += f"\n## {title}\n\n" + "".join(f"- {line}\n" for line in lines)
    return render(fields, body)


def text_of(body: str) -> str:
    texts = [text for title, text in fenced_sections(body) if title == "Mail"]
    return texts[0] if texts and texts[0] is not None else body


def update_mail(item: InboxItem, note: Note, answer: str) -> Note:
    """Return the note brought up to what the ledger has; what a person wrote stays."""
    later = item.changed + back_off(item.tries) if item.tries and item.held else 0
    fields: dict[str, str | None] = {
        "status": STATUS.get(item.state, item.state),
        "answer": answer or None,
        "held": inert(item.held[:MAX_FIELD]) or None,
        "next_try": date_time(later) if later else None,
    }
    body = None
    if judged := item.judgement:
        fields |= {"decision": judged.decision, "decided_by": item.by[:MAX_FIELD]}
        fields["why"] = inert(judged.why) or None
        if judged.decision == "urgent":
            fields["priority"] = "urgent"
        if judged.decision == "delegate":
            added = f"\n## Delegation\n\n{fence(judged.text.strip(chr(10)))}\n"
            if added not in note.body:
                body = f"{note.body.rstrip(chr(10))}\n{added}"
    else:
        fields |= {"decision": None, "decided_by": None, "why": None}
    return note.set(fields, body)


def status_of(note: Note) -> str:
    return note.text("status").strip().casefold()
