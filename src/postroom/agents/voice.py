"""The person's voice: a message of theirs carries a seal that only the person's key makes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os

from postroom.agents.record import Message
from postroom.agents.roster import like_person
from postroom.core.text import one_line

UNPROVEN = "(not proven to be the person)"


def signed(sender: str, *, proven: bool) -> str:
    """Return who wrote a message, as a reader is told it."""
    shown = one_line(sender)
    return f"{shown} {UNPROVEN}" if like_person(sender) and not proven else shown


def seal(key: bytes, root: str, message: Message) -> str:
    """Return the seal of a message in this repository."""
    about = [os.path.realpath(root), message.id, message.to, message.created, message.text]
    words = json.dumps(about).encode()
    return hmac.new(key, b"postroom voice\n" + words, hashlib.sha256).hexdigest()


def sealed(key: bytes, root: str, message: Message, found: str) -> bool:
    """Whether the person wrote this message."""
    return bool(key and found) and hmac.compare_digest(
        seal(key, root, message).encode(), found.encode("utf-8", "replace")
    )
