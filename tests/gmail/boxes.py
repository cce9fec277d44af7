"""Gmail mailboxes for tests: on the double, with a token on the disk, and no pause that lasts."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from postroom.core.address import Address
from postroom.core.letter import Letter, letter_id
from postroom.mail.gmail import GmailMailbox, open_gmail
from tests.gmail.double import Gmail

YOU = Address.parse("You <you@example.org>")
SENDING = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOW = int(SENDING.timestamp())


def box_on(
    service: Gmail, token: Path, pauses: list[float] | None = None, *, by_draft: bool = True
) -> GmailMailbox:
    """Open a mailbox on the double, in process; what it would have waited for is added to `pauses`."""
    where = service.endpoint, service.token_uri
    return gmail_box(*where, token, pauses, by_draft=by_draft, transport=service.transport())


def gmail_box(
    endpoint: str,
    token_uri: str,
    token: Path,
    pauses: list[float] | None = None,
    *,
    by_draft: bool = True,
    transport: httpx2.BaseTransport | None = None,
) -> GmailMailbox:
    """Open a mailbox over HTTP, or this transport."""
    return open_gmail(
        endpoint,
        token_uri,
        tokens=[token],
        by_draft=by_draft,
        transport=transport,
        now=lambda: NOW,
        pause=([] if pauses is None else pauses).append,
    )


def token_file(folder: Path, content: object) -> Path:
    """Keep a token on the disk, for its owner alone."""
    file = folder / "token.json"
    file.write_text(json.dumps(content))
    file.chmod(0o600)
    return file


def letter(number: int = 1, **changes: object) -> Letter:
    """Return a letter to Ann."""
    values: dict[str, Any] = {
        "id": letter_id(number.to_bytes(7, "big")),
        "account": "default",
        "sender": YOU,
        "to": (Address.parse("Ann <ann@example.com>"),),
        "subject": "Hello",
        "text": "Good day.\n",
    }
    return Letter(**{**values, **changes})


def asked(service: Gmail, where: str) -> int:
    """Return how many requests of this kind were made."""
    return sum(
        bool(re.search(where, f"{one.method} {one.path}")) and not one.inner
        for one in service.requests
    )
