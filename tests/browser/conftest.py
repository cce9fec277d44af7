"""A real Chromium, and desks that real processes serve."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from scripts.scenes import Desk, checks
from tests.browser.served import Room, Rooms, Staged, Visits, serving
from tests.unit.web.browser import opened

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
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rooms]:
    """Desks of this module, one for each set of settings."""
    with ExitStack() as stack:
        made: dict[object, Room] = {}

        def room(**approvals: object) -> Room:
            key = tuple(sorted(approvals.items()))
            if key not in made:
                folder = tmp_path_factory.mktemp("desk")
                made[key] = stack.enter_context(serving(folder, **approvals))
            return made[key]

        yield room


@pytest.fixture
def desk(rooms: Rooms) -> Room:
    """A desk whose letters can be recalled for longer than a test takes."""
    return rooms(undo_seconds=600)


@pytest.fixture
def quick(rooms: Rooms) -> Room:
    """A desk whose letters leave at once when they are approved."""
    return rooms(undo_seconds=0)


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    """A desk without letters, whose clock stands still until a test moves it."""
    with ExitStack() as stack:
        desk = Desk(tmp_path, sends_per_hour=1000)
        stack.callback(desk.office.close)
        yield Staged(desk, stack.enter_context(opened(desk.office, health=checks)))


@pytest.fixture
def visits(browser: Browser) -> Iterator[Visits]:
    """Windows of the browser, in which nothing of ours may go wrong."""
    made = Visits(browser)
    yield made
    made.close()
    assert made.complaints == []
