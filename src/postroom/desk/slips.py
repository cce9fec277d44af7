"""Slips: a person's word for a recipient, given beforehand in a note without a letter."""

from __future__ import annotations

import hashlib
import json
from typing import Final, NamedTuple

from postroom.core.letter import Letter
from postroom.core.text import one_line
from postroom.vault.note import Note
from postroom.vault.vault import File

TYPES: Final = ("email_send", "email_reply")


class Slip(NamedTuple):
    """An approval that names a recipient, or a conversation; `hash` is what a copy of it shares."""

    hash: str
    path: str
    file: File
    type: str
    to: str
    subject: str
    thread: str
    status: str

    def fits(self, letter: Letter, answered: str = "") -> bool:
        """Whether it covers this letter: its kind, its whole envelope, and all that the slip names.

        `answered` is the key of the address that a reply goes to, for a slip that names the
        conversation alone.
        """
        wanted = "email_reply" if letter.in_reply_to else "email_send"
        keys = [address.key for address in letter.envelope]
        whom = self.to.casefold() or (answered if self.thread else "")
        return (
            self.type == wanted
            and self.status == "approved"
            and bool(whom)
            and keys == [whom]
            and not letter.attachments
            and (not self.subject or self.subject.casefold() == one_line(letter.subject).casefold())
            and (not self.thread or self.thread == letter.thread)
        )


def slip(path: str, file: File, note: Note) -> Slip | None:
    """Return the slip that a note is, if it is one."""
    if note.text("type") not in TYPES or note.text("letter"):
        return None
    named = {
        key: one_line(note.text(key)) for key in ("type", "to", "subject", "thread_id", "created")
    }
    # Over what it says, not over its bytes: a sync client may have changed line ends, we its status.
    said = json.dumps([*named.values(), note.body.split()])
    return Slip(
        hash=hashlib.sha256(said.encode()).hexdigest()[:16],
        path=path,
        file=file,
        type=named["type"],
        to=named["to"],
        subject=named["subject"],
        thread=named["thread_id"],
        status=note.text("status"),
    )
