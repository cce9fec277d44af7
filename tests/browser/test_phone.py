"""On a phone: one column, nothing to scroll sideways, large enough to tap."""

from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from tests.browser.served import PHONE, Room, Rooms, Visits, red
from tests.narrow import narrow, present

LONG = "https://example.com/" + "a" * 300


@dataclass
class Full:
    """A desk, and the id of each of its letters."""

    room: Room
    ids: dict[str, str]


@pytest.fixture(scope="module")
def full(rooms: Rooms) -> Full:
    """A desk with letters of every width."""
    room = rooms(undo_seconds=600)
    ids = {
        "calm": room.propose(),
        "red": red(room, subject="W" * 200, body=f"AKIAIOSFODNN7EXAMQLE {LONG} {'x' * 400}"),
        "html": room.propose(html=f'<table width="2000"><tr><td>wide</td></tr></table><a href="{LONG}">Look</a>'),
        "many": room.propose(to=[f"somebody.with.a.long.name.{n}@department-of-long-names.example.com" for n in range(20)]),
    }  # fmt: skip
    (room.person.vault / "Outgoing").mkdir(exist_ok=True)
    (room.person.vault / "Outgoing" / f"{'n' * 120}.txt").write_text("x")
    ids["file"] = room.propose(attachments=[f"Outgoing/{'n' * 120}.txt"])
    ids["rejected"] = room.propose(body=f"rejected {LONG}")
    room.person.run("reject", ids["rejected"], "--reason", LONG)
    return Full(room, ids)


def sideways(page: Page) -> int:
    """Return how far a page can be scrolled sideways."""
    return narrow(page.evaluate("document.documentElement.scrollWidth"), int) - 390


@pytest.mark.parametrize("path", ["/", "/history", "/agents", "/health", "/nothing-here"])
def test_no_page_scrolls_sideways(full: Full, visits: Visits, path: str) -> None:
    page = visits.page(full.room, path, **PHONE)
    page.wait_for_load_state("networkidle" if path == "/nothing-here" else "load")
    expect(page.locator("[data-load]")).to_have_count(0)
    assert sideways(page) <= 0


@pytest.mark.parametrize("which", ["calm", "red", "html", "many", "file", "rejected"])
def test_no_letter_scrolls_sideways(full: Full, visits: Visits, which: str) -> None:
    page = visits.letter(full.room, full.ids[which], **PHONE)
    assert sideways(page) <= 0


def test_nothing_scrolls_sideways_while_editing(full: Full, visits: Visits) -> None:
    page = visits.page(full.room, f"/letter/{full.ids['html']}/edit", **PHONE)
    assert sideways(page) <= 0
    page.get_by_label("Text").fill(f"Other words {LONG}")
    page.get_by_label("To").fill("x" * 60 + "@example.com")
    page.get_by_role("button", name="Review the changes").tap()
    expect(page.locator("ins").first).to_be_visible()
    assert sideways(page) <= 0


def test_the_door_does_not_scroll_sideways(full: Full, visits: Visits) -> None:
    page = visits.window(**(PHONE | {"java_script_enabled": False})).new_page()
    page.goto(full.room.invite())
    assert sideways(page) <= 0
    page.goto(f"{full.room.address}/")
    assert sideways(page) <= 0


def test_queue_and_letter_are_one_column(full: Full, visits: Visits) -> None:
    page = visits.page(full.room, **PHONE)
    assert present(page.locator("#queue").bounding_box())["width"] > 340
    expect(page.locator("#letter")).to_be_hidden()
    page = visits.letter(full.room, full.ids["calm"], **PHONE)
    expect(page.locator("#queue")).to_be_hidden()
    assert present(page.locator("#letter").bounding_box())["width"] > 340


def test_a_letter_is_approved_and_taken_back_by_tapping(desk: Room, visits: Visits) -> None:
    id = desk.propose(subject="Tapped")
    page = visits.page(desk, **PHONE)
    page.locator(f'#queue a[href="/letter/{id}"]').tap()
    page.get_by_role("button", name="Approve and send").tap()
    expect(page.locator("#toast")).to_contain_text("Approved.")
    assert sideways(page) <= 0
    assert desk.state(id) == "approved"
    page.locator("#toast form button").tap()
    expect(page).to_have_url(desk.url(id))
    expect(page.locator("#approve")).to_be_visible()
    assert desk.state(id) == "pending"


def test_buttons_are_large_enough_for_a_thumb_and_in_reach(full: Full, visits: Visits) -> None:
    page = visits.letter(full.room, full.ids["many"], **PHONE)
    for button in (
        "#approve",
        "#edit",
        "button[popovertarget=reject]",
        "button[popovertarget=revise]",
    ):
        expect(page.locator(button).first).to_be_in_viewport()  # however long the letter is
        assert present(page.locator(button).first.bounding_box())["height"] >= 40
