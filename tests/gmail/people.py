"""A person whose mail is at Gmail: their settings, their token, and the service on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import Person
from tests.gmail.double import Gmail


def at_gmail(person: Person, service: Gmail, *, signed_in: bool = True, **token: Any) -> Path:
    """Point a person's settings at this service; return where their token is kept."""
    person.environment |= {
        "POSTROOM_PROVIDER": "gmail",
        "GMAIL_API_ENDPOINT": service.endpoint,
        "GMAIL_TOKEN_URI": service.token_uri,
    }
    person.vault.mkdir(exist_ok=True)
    state = person.folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    file = state / "token.json"
    if signed_in:
        keep(file, service.token(**token))
    return file


def keep(file: Path, content: object, mode: int = 0o600) -> None:
    """Write a file of JSON with this mode."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    file.chmod(mode)
