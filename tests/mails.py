"""Mails that tests receive."""

from datetime import UTC, datetime

DAY = datetime(2026, 11, 1, 9, tzinfo=UTC)


def mail(
    *,
    subject: str = "Hello",
    sender: str = "Ann Example <ann@example.com>",
    to: str = "you@example.org",
    text: str = "Good day.",
    date: datetime = DAY,
    message_id: str = "",
    more: str = "",
) -> bytes:
    """Return the bytes of a mail as it arrives."""
    id_line = f"Message-ID: {message_id}\r\n" if message_id else ""
    return (
        f"From: {sender}\r\nTo: {to}\r\nSubject: {subject}\r\n"
        f"Date: {date:%a, %d %b %Y %H:%M:%S +0000}\r\n"
        f"{id_line}{more}MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n"
    ).encode()


def mbox(*mails: bytes) -> bytes:
    """Return an mbox file of these mails."""
    return b"".join(
        b"From ann@example.com Sun Nov  1 09:00:00 2026\n" + raw + b"\n" for raw in mails
    )
