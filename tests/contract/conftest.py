"""The providers that the contract suite runs against; a new one is a new entry here."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroom.core.address import Address
from postroom.core.letter import Letter, letter_id
from postroom.core.message import INBOX, UNREAD
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Arrival, Mailbox

YOU = Address.parse("You <you@example.org>")
ALIAS = Address.parse("desk@example.org")
NOW = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp())


@dataclass
class Post:
    """A mailbox under test, the way mail gets into it, and letters to send from it."""

    box: Mailbox
    receive: Callable[..., str]
    drawn: int = 0

    def letter(self, **changes: object) -> Letter:
        self.drawn += 1
        values = {
            "id": letter_id(self.drawn.to_bytes(7, "big")),
            "account": "default",
            "sender": YOU,
            "to": (Address.parse("Ann <ann@example.com>"),),
            "subject": "Hello",
            "text": "Good day.\n",
        }
        return Letter(**{**values, **changes})


def local(folder: Path) -> Post:
    """The embedded mailbox."""
    box = LocalMailbox(folder / "mail" / "default.sqlite", (YOU, ALIAS), now=lambda: NOW, zone=UTC)

    def receive(raw: bytes, labels: frozenset[str] = frozenset({INBOX, UNREAD})) -> str:
        before = box.changes().cursor
        box.keep([Arrival(raw, labels, NOW)])
        return box.changes(before).added[0]

    return Post(box, receive)


PROVIDERS = {"local": local}


@pytest.fixture(params=sorted(PROVIDERS))
def post(request: pytest.FixtureRequest, tmp_path: Path):
    made = PROVIDERS[request.param](tmp_path)
    yield made
    made.box.close()
