"""What the tests of Gmail's mailbox share: a service whose clock stands still, and a mailbox on it."""

from contextlib import closing

import pytest

from tests.gmail.boxes import NOW, gmail_box, token_file
from tests.gmail.double import Gmail


@pytest.fixture
def service():
    with Gmail(now=lambda: NOW) as service:
        yield service


@pytest.fixture
def token(tmp_path, service):
    return token_file(tmp_path, service.token())


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def box(service, token, pauses):
    with closing(gmail_box(service.endpoint, service.token_uri, token, pauses)) as box:
        yield box
