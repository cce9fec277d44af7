"""With the keyboard alone."""

import re

from playwright.sync_api import Page, expect

from tests.browser.served import Room, Visits, red


def focused(page: Page) -> object:
    return page.evaluate("document.activeElement.id || document.activeElement.tagName")


def test_the_whole_way_from_the_door_to_an_approval(quick: Room, visits: Visits) -> None:
    id = quick.propose(subject="By keys alone")
    page = visits.window(java_script_enabled=False).new_page()
    page.goto(quick.invite())
    expect(page.get_by_role("button", name="Open the desk")).to_be_focused()  # the only one
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{quick.address}/")
    page = visits.page(quick)
    page.keyboard.press("j")
    expect(page).to_have_url(quick.url(id))
    page.keyboard.press("a")
    expect(page.locator("#approve")).to_be_focused()
    assert quick.state(id) == "pending"
    page.keyboard.press("Enter")
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    assert quick.state(id) == "sent"


def test_j_and_k_walk_through_the_queue(desk: Room, visits: Visits) -> None:
    ids = [desk.propose() for _ in range(3)][::-1]  # the newest stands first
    page = visits.page(desk)
    for id in ids:
        page.keyboard.press("j")
        expect(page).to_have_url(desk.url(id))
    for id in ids[1::-1]:
        page.keyboard.press("k")
        expect(page).to_have_url(desk.url(id))
    page.keyboard.press("k")
    expect(page).to_have_url(desk.url(ids[0]))


def test_a_on_a_red_letter_leads_to_what_must_be_read_first(desk: Room, visits: Visits) -> None:
    id = red(desk)
    page = visits.letter(desk, id)
    page.keyboard.press("a")
    expect(page.get_by_role("checkbox", name="I have read")).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("a")
    expect(page.locator("#approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#undo")).to_be_visible()
    page.keyboard.press("u")
    expect(page.locator("#undo")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#approve")).to_be_visible()


def test_e_edits(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.keyboard.press("e")
    expect(page).to_have_url(desk.url(id, "/edit"))


def test_r_rejects_with_a_reason_and_keys_are_letters_while_typing(
    desk: Room, visits: Visits
) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.keyboard.press("r")
    expect(page.get_by_label("Reason (the agent")).to_be_focused()
    page.keyboard.type("a jerk's view? / e")
    expect(page.get_by_label("Reason (the agent")).to_have_value("a jerk's view? / e")
    expect(page).to_have_url(desk.url(id))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#letter .state")).to_contain_text("a jerk's view? / e")


def test_v_asks_for_another_version_and_escape_leaves_it(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.keyboard.press("v")
    expect(page.get_by_label("What should be different?")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("What should be different?")).to_be_hidden()
    expect(page.locator("#revise summary")).to_be_focused()
    assert desk.state(id) == "pending"


def test_the_keys_are_listed_and_can_be_turned_off(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.keyboard.press("?")
    page.get_by_role("checkbox", name="Use these keys").uncheck()
    page.get_by_role("button", name="Close").click()
    page.reload()
    page.keyboard.press("r")
    expect(page.get_by_label("Reason (the agent")).to_be_hidden()


def test_a_slash_searches_the_history(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose())
    page.keyboard.press("/")
    expect(page).to_have_url(re.compile("/history"))
    expect(page.get_by_label("Search letters")).to_be_focused()
    page.keyboard.type("nothing like it")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("No letters found")


def test_keys_with_control_or_alt_are_the_browsers(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    for key in ("Control+a", "Alt+r", "Control+e"):
        page.keyboard.press(key)
    expect(page).to_have_url(desk.url(id))
    assert focused(page) == "BODY"


def test_the_first_stop_skips_to_the_content(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose())
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert focused(page) == "main"


def test_every_stop_of_a_letter_can_be_seen(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose())
    stops = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = focused(page)
        if stop == "BODY":
            break
        stops.add(stop)
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert (width >= 2, style) == (True, "solid"), stop
    assert {"approve", "edit"} <= stops


def test_the_focus_stays_where_it_was_when_the_queue_changes(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.page(desk)
    row = page.locator(f'#queue a[href="/letter/{id}"]')
    row.focus()
    other = desk.propose()
    expect(page.locator(f'#queue a[href="/letter/{other}"]')).to_be_visible()
    expect(row).to_be_focused()


def test_the_focus_is_not_lost_when_another_decides(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.keyboard.press("a")
    expect(page.locator("#approve")).to_be_focused()
    desk.person.run("reject", id, "--reason", "meanwhile")
    expect(page.locator("#letter .state")).to_contain_text("meanwhile")
    assert focused(page) == "main"
