"""Makes letters: adds the sender, the conversation and the id to what was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import (
    ID_BYTES,
    MAX_REFERENCES,
    Enclosure,
    Letter,
    is_message_id,
    letter_id,
)
from postroom.core.outgoing_html import reduce_html
from postroom.core.text import clean
from postroom.core.values import dataclass

if TYPE_CHECKING:
    from postroom.mail.mailbox import Mailbox


class Written(NamedTuple):
    """The content of a new letter; `answers` is the id of the mail that it answers.

    With `html`, the text is made from it and `text` is ignored.
    """

    to: tuple[Address, ...]
    subject: str
    text: str
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    html: str = ""
    answers: str = ""
    account: str = ""
    attachments: tuple[Enclosure, ...] = ()
    reply_to: tuple[Address, ...] = ()


NOBODY: Final = Address(
    "nobody", "example.org"
)  # stands for the sender, which a rehearsal does not look up


@dataclass(frozen=True, slots=True)
class Composer:
    """Makes letters of the account that is named, or of the default one."""

    mailboxes: Callable[[str], Mailbox]
    draw: Callable[[int], bytes]
    default: str

    def letter(self, written: Written) -> Letter:
        """Return a new letter with this content."""
        account = written.account or self.default
        box, answers = self.mailboxes(account), written.answers
        thread, message_id, references = _reply_headers(box, answers) if answers else ("", "", ())
        preview = self.preview(written)
        return replace(
            preview,
            sender=box.own_addresses()[0],
            thread=thread,
            in_reply_to=message_id,
            references=references,
        )

    def preview(self, written: Written) -> Letter:
        """Return the letter as far as it can be made without its mailbox."""
        html, text, _ = reduce_html(written.html)
        return Letter(
            id=letter_id(self.draw(ID_BYTES)),
            account=written.account or self.default,
            sender=NOBODY,
            to=written.to,
            cc=written.cc,
            bcc=written.bcc,
            reply_to=written.reply_to,
            subject=written.subject,
            text=text if written.html else normalize_text(written.text),
            html=html,
            attachments=written.attachments,
        )


def _reply_headers(box: Mailbox, id: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the thread, the Message-ID and the references that an answer to this mail has."""
    message = box.message(id)
    mail = message.mail
    if not is_message_id(mail.message_id):
        raise Invalid(
            f"The mail {id} has no Message-ID to answer", remedy="Write a new letter instead."
        )
    # RFC 5322 section 3.6.4: the parent's references, or else what it answers, and the parent.
    chain = mail.references or mail.in_reply_to[:1]
    references = tuple(dict.fromkeys(filter(is_message_id, (*chain, mail.message_id))))
    # The beginning of a long conversation is what readers thread by.
    shortened = (
        references if len(references) <= MAX_REFERENCES else (references[0], *references[-20:])
    )
    return message.thread, mail.message_id, shortened


def normalize_text(text: str) -> str:
    """Return a text as it is frozen: plain newlines, nothing invisible, one newline at the end."""
    words = clean(text).text.strip("\n")
    return f"{words}\n" if words.strip() else ""
