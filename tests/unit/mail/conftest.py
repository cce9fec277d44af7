"""What the tests of Gmail's mailbox share: a double whose clock stands still, and a mailbox on it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from postroom.mail.gmail import GmailMailbox
from tests.gmail.boxes import NOW, box_on, gmail_box, token_file
from tests.gmail.double import Gmail


@pytest.fixture
def service() -> Gmail:
    return Gmail(now=lambda: NOW)


@pytest.fixture
def served(service: Gmail) -> Iterator[Gmail]:
    """The double on a local port."""
    with service:
        yield service


@pytest.fixture
def token(tmp_path: Path, service: Gmail) -> Path:
    return token_file(tmp_path, service.token())


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def box(service: Gmail, token: Path, pauses: list[float]) -> Iterator[GmailMailbox]:
    with closing(box_on(service, token, pauses)) as box:
        yield box


@pytest.fixture
def http_box(served: Gmail, token: Path, pauses: list[float]) -> Iterator[GmailMailbox]:
    """A mailbox that reaches the double over HTTP."""
    with closing(gmail_box(served.endpoint, served.token_uri, token, pauses)) as box:
        yield box
