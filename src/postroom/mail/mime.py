"""MIME, in and out. A list of mails needs none of it, so each part is imported when it is first used."""

from __future__ import annotations

from datetime import datetime

from postroom.core.letter import Enclosure, Letter
from postroom.core.message import Mail


def read(raw: bytes) -> Mail:
    """Return what a mail says of itself, whatever the bytes are."""
    from postroom.mail.read import read as run

    return run(raw)


def attachment(raw: bytes, part: str) -> Enclosure:
    """Return the file at this part of a mail, with its bytes, or raise `NotFound`."""
    from postroom.mail.read import attachment as run

    return run(raw, part)


def build(letter: Letter, *, date: datetime, bcc: bool) -> bytes:
    """Return the mail as it goes on the wire; `bcc` names the hidden recipients in a header."""
    from postroom.mail.build import build as run

    return run(letter, date=date, bcc=bcc)


def differs(letter: Letter, wire: bytes) -> str:
    """Return how these bytes are not the letter, read by other code than wrote them; else nothing."""
    from postroom.mail.check import differs as run

    return run(letter, wire)
