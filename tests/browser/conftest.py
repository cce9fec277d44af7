"""A real Chromium, and desks that real processes serve."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.served import Visits, serving
from tests.unit.web.browser import Browser

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]
expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Desks of this module, one for each set of settings."""
    with ExitStack() as stack:
        made = {}

        def room(**approvals: Any) -> Any:
            key = tuple(sorted(approvals.items()))
            if key not in made:
                folder = tmp_path_factory.mktemp("desk")
                made[key] = stack.enter_context(serving(folder, **approvals))
            return made[key]

        yield room


@pytest.fixture
def desk(rooms: Any) -> Any:
    """A desk whose letters can be recalled for longer than a test takes."""
    return rooms(undo_seconds=600)


@pytest.fixture
def quick(rooms: Any) -> Any:
    """A desk whose letters leave at once when they are approved."""
    return rooms(undo_seconds=0)


@pytest.fixture
def visits(browser: Browser) -> Iterator[Any]:
    """Windows of the browser, in which nothing of ours may go wrong."""
    made = Visits(browser)
    yield made
    made.close()
    assert made.complaints == []
