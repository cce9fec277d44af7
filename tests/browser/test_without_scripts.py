"""With scripts off: everything that a person decides works all the same."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.served import Room, Visits, reject

Plain = Callable[[Room, str], Page]


@pytest.fixture
def plain(visits: Visits) -> Plain:
    """Visits without scripts."""

    def page(room: Room, path: str) -> Page:
        return visits.page(room, path, java_script_enabled=False)

    return page


def test_a_letter_is_found_in_the_queue_approved_and_looked_up(quick: Room, plain: Plain) -> None:
    id = quick.propose(subject="Without scripts", body="An unusual word: quokka.")
    page = plain(quick, "/")
    page.locator("#queue").get_by_role("link", name="Without scripts").click()
    page.get_by_role("button", name="Approve and send").click()
    expect(page.locator("#letter .state")).to_contain_text("Sent")  # the page looks again by itself
    expect(page.locator(".postmark")).to_be_visible()
    assert quick.person.show(id)["state"] == "sent"
    page.get_by_role("link", name="History").click()
    page.get_by_label("Search letters").fill("quokka")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.locator("main tbody tr")).to_contain_text("Without scripts")
    page.get_by_role("link", name="Verify the audit log").click()
    expect(page.locator("main")).to_contain_text("The audit log is intact")


def test_an_approval_is_undone(desk: Room, plain: Plain) -> None:
    id = desk.propose()
    page = plain(desk, f"/letter/{id}")
    page.get_by_role("button", name="Approve and send").click()
    expect(page.locator("#letter .countdown")).to_be_visible()
    page.locator("#undo").click()
    expect(page.locator("#approve")).to_be_visible()
    assert desk.state(id) == "pending"


def test_a_letter_is_rejected_with_its_reason(desk: Room, plain: Plain) -> None:
    id = desk.propose()
    page = plain(desk, f"/letter/{id}")
    reject(page, "Too long")
    expect(page).to_have_url(re.compile(desk.url(id)))
    expect(page.locator("#letter .state")).to_contain_text("Rejected by Ada")
    assert desk.state(id) == "rejected"


def test_a_letter_is_edited_and_approved(desk: Room, plain: Plain) -> None:
    id = desk.propose()
    page = plain(desk, f"/letter/{id}")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Text").fill("Plain words.")
    page.get_by_role("button", name="Review the changes").click()
    expect(page.locator("ins").first).to_be_visible()
    page.get_by_role("button", name="Approve and send").click()
    expect(page.locator("#letter .state")).to_contain_text("Approved")
    assert desk.person.show(id)["text"] == "Plain words.\n"


def test_what_scripts_would_load_is_a_link_away(desk: Room, plain: Plain) -> None:
    mail = desk.agent.first("in:inbox")
    page = plain(desk, f"/letter/{desk.agent.done('reply_email', id=mail, body='Thanks.')['letter']}")  # fmt: skip
    page.get_by_role("link", name="The mail it answers").click()
    expect(page.locator("main")).to_contain_text("answered here")
    page.get_by_role("link", name="Back").click()
    expect(page.locator("#approve")).to_be_visible()
    page.get_by_role("link", name="Health").click()
    page.get_by_role("link", name="Check the mail providers").click()
    expect(page.locator("main .checks")).to_be_visible()


def test_buttons_that_need_scripts_are_not_shown(desk: Room, plain: Plain) -> None:
    page = plain(desk, "/")
    expect(page.get_by_role("button", name="Keys")).to_have_count(0)


def test_signing_out_works(desk: Room, plain: Plain, visits: Visits) -> None:
    page = visits.window(java_script_enabled=False).new_page()
    page.goto(desk.invite())
    page.get_by_role("button", name="Open the desk").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("main")).to_contain_text("not signed in")
