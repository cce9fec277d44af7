"""Gmail, over its REST interface."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2

from postroom.mail.gmail.api import GmailApi
from postroom.mail.gmail.mailbox import GmailMailbox
from postroom.mail.gmail.oauth import TokenStore

__all__ = ["GmailMailbox", "open_gmail"]


def open_gmail(
    endpoint: str,
    token_uri: str,
    *,
    tokens: Sequence[Path],
    clients: Sequence[Path] = (),
    account: str = "",
    by_draft: bool = True,
    transport: httpx2.BaseTransport | None = None,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> GmailMailbox:
    """Return the mailbox of a Gmail account; no request is made yet.

    `tokens` and `clients` are files in the order of search, `account` is the name that remedies mention. `transport`
    replaces HTTP.
    """
    store = TokenStore(
        tokens=tokens, clients=clients, token_uri=token_uri, now=now, account=account
    )
    api = GmailApi(endpoint, store, now=now, pause=pause, chance=random.random, transport=transport)
    return GmailMailbox(api, now=now, by_draft=by_draft)
