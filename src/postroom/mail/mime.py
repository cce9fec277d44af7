"""MIME, in and out. A list of mails needs none of it, so each part is imported at its first use."""

from __future__ import annotations

from datetime import datetime

from postroom.core.letter import Enclosure, Letter
from postroom.core.message import Mail


def read(raw: bytes) -> Mail:
    """Return what a mail says, whatever the bytes are; never raises."""
    from postroom.mail.read import read_mail

    return read_mail(raw)


def attachment(raw: bytes, part: str) -> Enclosure:
    """Return the file at this part of a mail, or raise `NotFound`."""
    from postroom.mail.read import read_attachment

    return read_attachment(raw, part)


def build(letter: Letter, *, date: datetime, bcc: bool) -> bytes:
    """Return the letter as the bytes to send; `bcc` says whether they name the hidden recipients."""
    from postroom.mail.build import build_mail

    return build_mail(letter, date=date, bcc=bcc)


def find_difference(letter: Letter, wire: bytes) -> str:
    """Return how these bytes differ from the letter, read by other code than wrote them; else an empty text."""
    from postroom.mail.build import find_difference as run

    return run(letter, wire)
