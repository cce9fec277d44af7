"""A desk that is served, and a browser that was let in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desks import Office
from tests.providers import Courier
from tests.unit.web.browser import Browser, Site, opened


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
def site(office: Office) -> Iterator[Site]:
    with opened(office) as site:
        yield site


@pytest.fixture
def browser(site: Site) -> Browser:
    return site.browser()
