"""The queue, narrowed down in place."""

import re

import pytest
from playwright.sync_api import Page, expect

from scripts.scenes import CLAUDE, CODEX, KNOWN
from tests.browser.served import WIDE, Staged, Visits


@pytest.fixture
def page(staged: Staged, visits: Visits) -> Page:
    """A queue of ten plain letters, three about a ferry or an atlas among them, a red one and an amber one."""
    staged.desk.know(*KNOWN)
    for at in range(12):
        if at % 6 != 5:
            staged.desk.plain(at, (CLAUDE, CODEX)[at % 2])
    staged.desk.amber()
    staged.desk.red()
    page = visits.staged(staged.site, **WIDE)
    expect(page.locator("#queue li")).to_have_count(12)
    page.evaluate("document.documentElement.dataset.loaded = 'once'")
    return page


def loaded_once(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.dataset.loaded === 'once'"))


def test_the_queue_is_searched_while_one_types_and_stays_so_over_a_verdict(
    page: Page, staged: Staged
) -> None:
    rows = page.locator("#queue li")
    page.keyboard.press("/")
    page.keyboard.type("atlas")
    expect(rows).to_have_count(2)
    expect(page.get_by_label("Search the queue")).to_be_focused()
    for row in rows.all():
        expect(row).to_contain_text("atlas")
    expect(page).to_have_url(re.compile("[?&]q=atlas"))
    page.keyboard.type(" of")
    expect(page.get_by_label("Search the queue")).to_have_value("atlas of")
    page.get_by_label("Search the queue").fill("atlas")
    expect(page.locator("#letter h1")).to_have_text("The atlas that you asked for")
    page.get_by_role("button", name="Approve and send").click()
    expect(page.locator("#toast")).to_contain_text("Approved.")
    expect(page.get_by_label("Search the queue")).to_have_value("atlas")
    expect(page.locator("#queue li a.open")).to_have_count(1)
    expect(page.locator("#letter h1")).to_have_text("The atlas that you asked for")
    expect(page).to_have_url(re.compile("[?&]q=atlas"))
    assert loaded_once(page)
    staged.desk.plain(3)
    expect(page.locator("header.bar .count")).to_have_text("12")  # it came, and is not shown here
    expect(page.locator("#queue li a.open")).to_have_count(1)
    page.get_by_label("Search the queue").fill("")
    expect(page.locator("#queue li a.open")).to_have_count(12)


def test_the_queue_is_filtered_by_risk_and_agent(page: Page) -> None:
    page.get_by_text("Filter", exact=True).click()
    page.get_by_role("combobox", name="Risk").select_option("red")
    expect(page.locator("#queue li")).to_have_count(1)
    expect(page.locator("#queue li a.stop")).to_have_count(1)
    expect(page.get_by_role("combobox", name="Risk")).to_have_value("red")
    page.get_by_role("combobox", name="Agent").select_option("claude-code")
    expect(page.get_by_role("heading", name="No letter fits")).to_be_visible()
    expect(page.locator("#queue")).to_contain_text("No letter fits")
    page.get_by_role("combobox", name="Risk").select_option("plain")
    expect(page.locator("#queue li")).to_have_count(6)
    expect(page.locator("#queue li a:is(.look, .stop)")).to_have_count(0)
    assert loaded_once(page)
    page.reload()
    expect(page.locator("#queue li")).to_have_count(6)
    page.locator(".filter").get_by_role("link", name="Show all").click()
    expect(page.locator("#queue li")).to_have_count(12)


def test_the_way_back_leads_through_the_letters_that_were_open(page: Page) -> None:
    first = page.locator("#letter h1").inner_text()
    page.keyboard.press("j")
    expect(page.locator("#letter h1")).not_to_have_text(first)
    second = page.locator("#letter h1").inner_text()
    page.get_by_role("link", name="Skip to content").focus()
    page.keyboard.press("Enter")  # a link within the page
    expect(page.locator("main")).to_be_focused()
    expect(page.locator("#letter h1")).to_have_text(second)
    page.go_back()
    page.go_back()
    expect(page.locator("#letter h1")).to_have_text(first)
    page.go_forward()
    expect(page.locator("#letter h1")).to_have_text(second)
    assert loaded_once(page)
