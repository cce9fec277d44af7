"""On a phone: one column, nothing to scroll sideways, large enough to tap."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.served import PHONE, red
from tests.conftest import Person
from tests.unit.desk.test_log import Desk

LONG = "https://example.com/" + "a" * 300


@pytest.fixture(scope="module")
def full(rooms: Any) -> Any:
    """A desk with letters of every width."""
    room = rooms(undo_seconds=600)
    room.ids = {
        "calm": room.propose(),
        "red": red(room, subject="W" * 200, body=f"AKIAIOSFODNN7EXAMQLE {LONG} {'x' * 400}"),
        "html": room.propose(html=f'<table width="2000"><tr><td>wide</td></tr></table><a href="{LONG}">Look</a>'),
        "many": room.propose(to=[f"somebody.with.a.long.name.{n}@department-of-long-names.example.com" for n in range(20)]),
    }  # fmt: skip
    (room.person.vault / "Outgoing").mkdir(exist_ok=True)
    (room.person.vault / "Outgoing" / f"{'n' * 120}.txt").write_text("x")
    room.ids["file"] = room.propose(attachments=[f"Outgoing/{'n' * 120}.txt"])
    room.ids["rejected"] = room.propose(body=f"rejected {LONG}")
    room.person.run("reject", room.ids["rejected"], "--reason", LONG)
    return room


def sideways(page: str) -> Any:
    """Return how far a page can be scrolled sideways."""
    return page.evaluate("document.documentElement.scrollWidth") - 390


@pytest.mark.parametrize("path", ["/", "/history", "/agents", "/health", "/nothing-here"])
def test_no_page_scrolls_sideways(full: Person, visits: Any, path: str) -> None:
    page = visits.page(full, path, **PHONE)
    page.wait_for_load_state("networkidle" if path == "/nothing-here" else "load")
    expect(page.locator("[data-load]")).to_have_count(0)
    assert sideways(page) <= 0


@pytest.mark.parametrize("which", ["calm", "red", "html", "many", "file", "rejected"])
def test_no_letter_scrolls_sideways(full: Person, visits: Any, which: int) -> None:
    page = visits.letter(full, full.ids[which], **PHONE)
    assert sideways(page) <= 0


def test_nothing_scrolls_sideways_while_editing(full: Person, visits: Any) -> None:
    page = visits.page(full, f"/letter/{full.ids['html']}/edit", **PHONE)
    assert sideways(page) <= 0
    page.get_by_label("Text").fill(f"Other words {LONG}")
    page.get_by_label("To").fill("x" * 60 + "@example.com")
    page.get_by_role("button", name="Look at the difference").tap()
    expect(page.locator("ins").first).to_be_visible()
    assert sideways(page) <= 0


def test_the_door_does_not_scroll_sideways(full: Person, visits: Any) -> None:
    page = visits.window(java_script_enabled=False, **PHONE).new_page()
    page.goto(full.invite())
    assert sideways(page) <= 0
    page.goto(f"{full.address}/")
    assert sideways(page) <= 0


def test_queue_and_letter_are_one_column(full: Person, visits: Any) -> None:
    page = visits.page(full, **PHONE)
    queue, main = page.locator("#queue").bounding_box(), page.locator("main").bounding_box()
    assert queue["width"] > 340
    assert main["y"] >= queue["y"] + queue["height"]
    page = visits.letter(full, full.ids["calm"], **PHONE)
    expect(page.locator("#queue")).to_be_hidden()
    assert page.locator("#letter").bounding_box()["width"] > 340


def test_a_letter_is_approved_and_taken_back_by_tapping(desk: Desk, visits: Any) -> None:
    id = desk.propose(subject="Tapped")
    page = visits.page(desk, **PHONE)
    page.locator(f'#queue a[href="/letter/{id}"]').tap()
    page.get_by_role("button", name="Approve and send").tap()
    expect(page.locator(".postmark")).to_be_visible()
    assert sideways(page) <= 0
    assert desk.state(id) == "approved"
    page.locator("#undo").tap()
    expect(page.locator("#approve")).to_be_visible()
    assert desk.state(id) == "pending"


def test_buttons_are_large_enough_for_a_thumb_and_in_reach(full: Person, visits: Any) -> None:
    page = visits.letter(full, full.ids["many"], **PHONE)
    for button in ("#approve", "#edit", "#reject summary", "#revise summary"):
        expect(page.locator(button)).to_be_in_viewport()  # however long the letter is
        assert page.locator(button).bounding_box()["height"] >= 40
