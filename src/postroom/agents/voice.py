"""The person's voice: a message of theirs carries a seal that only the person's key makes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os


def seal(key: bytes, root: str, id: str, to: str, text: str) -> str:
    """Return the seal of a message in this repository."""
    words = json.dumps([os.path.realpath(root), id, to, text]).encode()
    return hmac.new(key, b"postroom voice\n" + words, hashlib.sha256).hexdigest()


def sealed(key: bytes, root: str, id: str, to: str, text: str, found: str) -> bool:
    """Whether the person wrote this message."""
    return bool(key and found) and hmac.compare_digest(
        seal(key, root, id, to, text).encode(), found.encode()
    )
