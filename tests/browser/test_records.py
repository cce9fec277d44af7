"""Looking back, and looking after it: history, agents, health, the chart, and what an empty desk says."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.served import Room, Rooms, Staged, Visits, status


@pytest.fixture(scope="module")
def past(rooms: Rooms) -> Room:
    """A desk where one letter was sent and one rejected."""
    room = rooms(undo_seconds=0)
    sent = room.propose(to=["gerda@example.com"], subject="Invoice of May", body="Attached is nothing, wombat.")  # fmt: skip
    digest = room.person.show(sent)["digest"].removeprefix("sha256:")
    assert room.person.run("approve", sent, "--yes", digest).code == 0
    rejected = room.propose(subject="Party", body="Come all.")
    assert room.person.run("reject", rejected, "--reason", "no").code == 0
    return room


@pytest.mark.parametrize("words", ["gerda@example.com", "Invoice", "wombat", "invoice WOMBAT"])
def test_the_history_is_found_by_recipient_subject_and_words(
    past: Room, visits: Visits, words: str
) -> None:
    page = visits.page(past, "/history")
    expect(page.locator("main tbody tr")).to_have_count(2)
    page.get_by_label("Search letters").fill(words)
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.get_by_label("Search letters")).to_have_value(words)
    page.get_by_role("link", name="Invoice of May").click()
    expect(page.locator("#letter .state")).to_contain_text("Sent")


def test_the_history_is_narrowed_by_outcome(past: Room, visits: Visits) -> None:
    page = visits.page(past, "/history")
    page.get_by_label("Outcome").select_option("rejected")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("main tbody tr")).to_have_count(1)
    expect(page.locator("main tbody tr")).to_contain_text("Party")


def test_a_search_that_finds_nothing_says_what_to_do(past: Room, visits: Visits) -> None:
    page = visits.page(past, "/history?q=%3Cb%3Enothing%3C%2Fb%3E%22%27")
    expect(page.locator("main")).to_contain_text("Try fewer words")
    expect(page.get_by_label("Search letters")).to_have_value("<b>nothing</b>\"'")


def test_the_chain_of_the_log_is_compared(past: Room, visits: Visits) -> None:
    page = visits.page(past, "/history")
    expect(page.locator("main")).to_contain_text("The audit log is intact")


def test_a_log_that_somebody_changed_is_told(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=1)
    room.propose()
    room.person.run("pending")
    log = next((room.person.vault / "Logs" / "actions").iterdir())
    log.write_text(log.read_text().replace("claude", "cloude", 1))
    page = visits.page(room, "/history")
    expect(page.locator("main")).to_contain_text("The audit log was changed")
    expect(page.locator("main")).to_contain_text("postroom audit verify")


def test_the_last_weeks_are_drawn(staged: Staged, visits: Visits) -> None:
    staged.desk.sent(12)  # in six days
    for path in ("/", "/history"):
        page = visits.staged(staged.site, path)
        chart = page.get_by_role("img", name=re.compile("10 approved, 2 rejected, 10 sent"))
        expect(chart).to_be_visible()
        expect(chart.locator("rect").first).to_be_attached()


def test_each_agent_is_listed_with_its_letters(past: Room, visits: Visits) -> None:
    page = visits.page(past, "/agents")
    row = page.get_by_role("row", name=re.compile("claude"))
    expect(row).to_be_visible()
    row.get_by_role("link", name="Letters").click()
    expect(page.locator("main tbody tr")).to_have_count(2)


def test_the_health_page_names_remedies(past: Room, visits: Visits) -> None:
    page = visits.page(past, "/health")
    checks = page.locator("main .checks").first
    expect(checks.get_by_role("listitem").filter(has_text="mode")).to_be_visible()
    expect(checks).to_contain_text("Start it with postroom run")
    expect(page.locator("[data-load]")).to_have_count(0)
    expect(page.locator("main .checks")).to_have_count(2)


def test_a_pause_is_told_on_every_page_with_its_remedy(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=1)
    paused = room.person.vault / "PAUSED.md"
    paused.write_text("")
    page = visits.page(room)
    expect(page.locator("#notices")).to_contain_text("Delete it to continue")
    paused.unlink()


def test_a_letter_that_is_none_is_not_found(past: Room, visits: Visits) -> None:
    page = visits.page(past)
    assert status(page, past.url("aaaaaaaaaa")) == 404
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page.get_by_role("link", name="Back to the queue").click()
    expect(page).to_have_url(f"{past.address}/")


def test_an_empty_desk_says_what_will_be_there(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=3)
    page = visits.page(room)
    expect(page.get_by_role("heading", name="No letters waiting")).to_be_visible()
    expect(page.locator("#queue")).to_contain_text("appear here automatically")
    expect(page.locator(".chart, svg:not([aria-hidden])")).to_have_count(0)
    page.goto(f"{room.address}/history")
    expect(page.locator("main")).to_contain_text("No letters decided yet")
    page.goto(f"{room.address}/agents")
    expect(page.locator("main")).to_contain_text("postroom install claude-code")


def test_a_queue_of_many_has_pages(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=5)
    for _ in range(52):
        room.propose()
    page = visits.page(room)
    expect(page.locator("#queue li")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("#queue li")).to_have_count(2)
    page.locator("#queue li a").first.click()
    expect(page.locator("#letter")).to_be_visible()
