"""A desk to work on, and the provider behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.core.records import Entry
from tests.desks import Office
from tests.providers import Courier


@pytest.fixture
def courier() -> Courier:
    return Courier()


@pytest.fixture
def office(tmp_path: Path, courier: Courier) -> Iterator[Office]:
    office = Office(tmp_path)
    office.wrap = courier
    office.reopen()
    yield office
    office.close()


@pytest.fixture
def lost(office: Office, courier: Courier) -> Entry:
    """A letter that may or may not have been sent."""
    courier.settles = False
    courier.loses(after=False)
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "unknown"
    return entry
