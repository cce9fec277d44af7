"""A desk that is served, and a browser that was let in."""

import pytest

from tests.desks import Office
from tests.providers import Courier
from tests.unit.web.browser import opened


@pytest.fixture
def courier():
    return Courier()


@pytest.fixture
def office(tmp_path, courier):
    office = Office(tmp_path)
    office.wrap = courier
    office.reopen()
    yield office
    office.close()


@pytest.fixture
def site(office):
    with opened(office) as site:
        yield site


@pytest.fixture
def browser(site):
    return site.browser()
