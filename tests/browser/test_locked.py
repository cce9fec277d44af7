"""At trust desk: the passphrase is asked for at the door, and again after a while."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.served import PASSPHRASE, Room, Rooms, Visits, approve, status, until


@pytest.fixture
def guarded(rooms: Rooms) -> Room:
    return rooms(undo_seconds=0, trust="desk")


def give(page: Page, passphrase: str, button: str) -> None:
    page.get_by_label("Your passphrase").fill(passphrase)
    page.get_by_role("button", name=button).click()


def test_a_wrong_passphrase_is_refused_and_the_address_still_works(
    guarded: Room, visits: Visits
) -> None:
    page = visits.window().new_page()
    page.goto(guarded.invite())
    expect(page.get_by_label("Your passphrase")).to_be_focused()
    give(page, "guess it", "Open the desk")
    expect(page.locator(".notice.stop")).to_contain_text("not the passphrase")
    assert page.context.cookies() == []
    give(page, PASSPHRASE, "Open the desk")
    # The queue, or its first letter.
    expect(page).to_have_url(re.compile(f"^{guarded.address}/(letter/[a-z2-7]{{10}})?$"))
    expect(page.locator("#queue")).to_be_visible()
    expect(page.locator("header.bar")).to_contain_text("trust desk")


def test_the_address_alone_lets_nobody_in(guarded: Room, visits: Visits) -> None:
    page = visits.window().new_page()
    page.goto(guarded.invite())
    page.evaluate("document.querySelector('form').noValidate = true")
    page.get_by_role("button", name="Open the desk").click()
    expect(page.locator(".notice.stop")).to_be_visible()
    assert status(page, guarded.address) == 401


def test_an_approval_needs_no_passphrase_again_at_once(guarded: Room, visits: Visits) -> None:
    id = guarded.propose()
    page = visits.window().new_page()
    page.goto(guarded.invite())
    give(page, PASSPHRASE, "Open the desk")
    page.goto(guarded.url(id))
    approve(page)
    page.goto(guarded.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    assert guarded.person.show(id)["state"] == "sent"


def test_a_locked_desk_asks_goes_on_and_loses_nothing(guarded: Room, visits: Visits) -> None:
    """A desk that was started anew is locked, as after a while of doing nothing."""
    one, two = guarded.propose(subject="Locked out"), guarded.propose()
    approving = visits.letter(guarded, one, java_script_enabled=False)
    editing = visits.page(guarded, f"/letter/{two}/edit", java_script_enabled=False)
    editing.get_by_label("Text").fill("An hour's work,\nkept & well.")
    guarded.restart()
    approving.get_by_role("button", name="Approve and send").click()
    expect(approving.get_by_role("heading", name="Locked")).to_be_visible()
    give(approving, "guess it", "Unlock")
    expect(approving.locator(".notice.stop")).to_contain_text("not the passphrase")
    assert guarded.state(one) == "pending"
    give(approving, PASSPHRASE, "Unlock")
    expect(approving.locator("#letter .state")).to_contain_text("Sent")
    assert guarded.sent().count("Locked out") == 1
    guarded.restart()
    editing.get_by_role("button", name="Review the changes").click()
    give(editing, PASSPHRASE, "Unlock")
    expect(editing.get_by_role("heading", name="Review your changes")).to_be_visible()
    editing.get_by_role("button", name="Save without approving").click()
    expect(editing.locator("#letter .body")).to_have_text("An hour's work,\nkept & well.")


def test_a_locked_desk_shows_nothing_and_leads_back_to_where_one_was(
    guarded: Room, visits: Visits
) -> None:
    visits.tolerated = "net::ERR_"
    id = guarded.propose(subject="Behind the lock")
    page = visits.page(guarded, f"/letter/{id}")
    if page.get_by_role("heading", name="Locked").count():  # another test has started it anew
        give(page, PASSPHRASE, "Unlock")
    expect(page.locator("#letter")).to_be_visible()
    guarded.restart()
    expect(page.get_by_role("heading", name="Locked")).to_be_visible()  # by itself
    assert "Behind the lock" not in page.content()
    give(page, PASSPHRASE, "Unlock")
    expect(page).to_have_url(guarded.url(id))
    expect(page.locator("#letter")).to_contain_text("Behind the lock")


def test_the_lock_leads_to_no_other_place(guarded: Room, visits: Visits) -> None:
    visits.tolerated = "net::ERR_"
    page = visits.page(guarded, "/history?q=a%20b")
    if not page.get_by_role("heading", name="Locked").count():
        guarded.restart()
        page.reload()
    page.locator("[name=next]").evaluate("one => one.value = '//evil.example/'")
    give(page, PASSPHRASE, "Unlock")
    # The queue, or its first letter.
    expect(page).to_have_url(re.compile(f"^{guarded.address}/(letter/[a-z2-7]{{10}})?$"))
    expect(page.locator("#queue")).to_be_visible()


def test_after_many_wrong_ones_even_the_right_one_must_wait(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=1, trust="desk")
    page = visits.window().new_page()
    page.goto(room.invite())
    for _ in range(5):
        give(page, "guess it", "Open the desk")
        expect(page.locator(".notice.stop")).to_contain_text("not the passphrase")
    give(page, PASSPHRASE, "Open the desk")
    expect(page.locator(".notice.stop")).to_contain_text("Too many wrong passphrases")

    def in_at_last() -> int:
        give(page, PASSPHRASE, "Open the desk")
        page.wait_for_load_state()
        return page.get_by_role("button", name="Sign out").count()

    until(in_at_last, 60)
