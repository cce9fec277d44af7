"""The providers that the contract suite runs against; a new one is a new entry here.

`--providers` chooses among them: by default those that need nothing but Python.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

import pytest

from postroom.core.address import Address
from postroom.core.letter import Letter
from postroom.core.message import INBOX, UNREAD
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Accepted, Arrival, Mailbox
from tests.gmail.boxes import NOW, SENDING, YOU, box_on, gmail_box, letter, token_file
from tests.gmail.double import Gmail

ALIAS = Address.parse("desk@example.org")


@dataclass
class Post:
    """A mailbox under test, the way mail gets into it, and letters to send from it."""

    box: Mailbox
    receive: Callable[..., str]
    gaps: frozenset[str] = frozenset()  # what this service is known not to do, by name
    drawn: int = 0
    proof: str = ""

    def letter(self, **changes: object) -> Letter:
        self.drawn += 1
        return letter(self.drawn, **changes)

    def send(self, letter: Letter) -> Accepted:
        wire = self.box.wire(letter, date=SENDING)
        self.proof = self.box.prepare(letter, wire)
        return self.box.send(letter, wire, self.proof)


@contextmanager
def local(folder: Path) -> Iterator[Post]:
    """The embedded mailbox."""
    box = LocalMailbox(folder / "mail" / "default.sqlite", (YOU, ALIAS), now=lambda: NOW, zone=UTC)

    def receive(raw: bytes, labels: frozenset[str] = frozenset({INBOX, UNREAD})) -> str:
        before = box.changes().cursor
        box.add_mails([Arrival(raw, labels, NOW)])
        return box.changes(before).added[0]

    with closing(box):
        yield Post(box, receive)


@contextmanager
def gmail(folder: Path, *, by_draft: bool = True) -> Iterator[Post]:
    """Gmail, as far as our own double of it goes, in process."""
    service = Gmail(now=lambda: NOW)
    token = token_file(folder, service.token())
    with closing(box_on(service, token, by_draft=by_draft)) as box:
        # Google replaces the Message-ID of what is sent.
        yield Post(box, service.receive, frozenset({"message id"}))


@contextmanager
def gmail_over_http(folder: Path) -> Iterator[Post]:
    """The double on a local port."""
    with Gmail(now=lambda: NOW) as service:
        token = token_file(folder, service.token())
        with closing(gmail_box(service.endpoint, service.token_uri, token)) as box:
            yield Post(box, service.receive, frozenset({"message id"}))


@contextmanager
def gmail_by_message(folder: Path) -> Iterator[Post]:
    """Gmail with `messages.send`, which proves only that a letter was sent."""
    with gmail(folder, by_draft=False) as post:
        yield post


@contextmanager
def emulate(folder: Path) -> Iterator[Post]:
    """Gmail, as far as an emulator by others goes; it needs Node."""
    from tests.gmail import emulator

    with (
        emulator.running(folder, YOU.spec, YOU.name) as service,
        closing(gmail_box(service.endpoint, service.token_uri, service.token)) as box,
    ):
        yield Post(box, service.receive, frozenset(emulator.GAPS))


PROVIDERS = {
    "local": local,
    "gmail": gmail,
    "gmail-by-message": gmail_by_message,
    "gmail-over-http": gmail_over_http,
    "emulate": emulate,
}
DEFAULT = ("local", "gmail", "gmail-by-message")  # those that need nothing but Python


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "post" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--providers")
        test = metafunc.function.__name__
        chosen = [
            pytest.param(name, marks=expected(name, test))
            for name in (asked.split(",") if asked else DEFAULT)
        ]
        metafunc.parametrize("post", chosen, indirect=True)


def expected(provider: str, test: str) -> list[pytest.MarkDecorator]:
    """Return the mark of a test that this provider is known to fail: one that it passes is an error."""
    if provider != "emulate":
        return []
    from tests.gmail.emulator import GAPS

    found = [gap for gap in GAPS.values() if test in gap.tests]
    if not found:
        return []
    ends_in = tuple({gap.tests[test] for gap in found})
    why = " ".join(gap.why for gap in found)
    return [pytest.mark.xfail(strict=True, reason=why, raises=ends_in)]


@pytest.fixture
def post(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Post]:
    with PROVIDERS[request.param](tmp_path) as made:
        yield made
