"""With the keyboard alone."""

import re
import time

from playwright.sync_api import Page, Route, expect

from tests.browser.served import Room, Rooms, Visits, red, tick, until
from tests.narrow import present


def focused(page: Page) -> object:
    return page.evaluate("document.activeElement.id || document.activeElement.tagName")


def press(page: Page, key: str) -> None:
    """Press a key of a verdict, once it counts."""
    expect(page.locator("#approve")).to_be_enabled()
    page.keyboard.press(key)


def test_the_whole_way_from_the_door_to_an_approval(quick: Room, visits: Visits) -> None:
    id = quick.propose(subject="By keys alone")
    page = visits.window(java_script_enabled=False).new_page()
    page.goto(quick.invite())
    expect(page.get_by_role("button", name="Open the desk")).to_be_focused()  # the only one
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{quick.address}/")
    page = visits.page(quick)
    expect(page).to_have_url(quick.url(id))  # the first letter is open
    press(page, "a")
    expect(page.locator("#approve")).to_be_focused()
    assert quick.state(id) == "pending"
    page.keyboard.press("Enter")
    expect(page.locator("#toast")).to_contain_text("Approved.")
    page.goto(quick.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    assert quick.state(id) == "sent"


def test_j_and_k_walk_through_the_queue_from_end_to_end(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=601)
    ids = {room.propose() for _ in range(3)}
    page = visits.page(room)
    order = [row.get_attribute("data-id") or "" for row in page.locator("#queue li a").all()]
    assert ids == set(order)
    expect(page).to_have_url(room.url(order[0]))
    for key, way in (("j", [1, 2, 2]), ("k", [1, 0, 0])):  # it does not go round
        for at in way:
            page.keyboard.press(key)
            expect(page).to_have_url(room.url(order[at]))
            expect(page.locator("#letter")).to_have_attribute("data-letter", order[at])
            expect(page.locator("#queue [aria-current]")).to_have_attribute("data-id", order[at])
    room.person.run("reject", order[1], "--reason", "meanwhile")
    expect(page.locator("#queue li a.open")).to_have_count(2)
    page.keyboard.press("j")
    expect(page).to_have_url(room.url(order[2]))  # what is decided is passed over
    page.goto(room.url(order[1]))
    page.keyboard.press("k")
    expect(page).to_have_url(
        room.url(order[0])
    )  # a letter in no list leads to the first that waits


def test_a_on_a_red_letter_leads_to_each_place_that_must_be_checked(
    desk: Room, visits: Visits
) -> None:
    id = red(
        desk, body="One key is AKIAIOSFODNN7EXAMQLE. Pay at https://xn--80ak6aa92e.com/in today."
    )
    page = visits.letter(desk, id)
    boxes = page.get_by_role("checkbox", name="I checked this")
    count = boxes.count()
    assert count > 1
    for at in range(count):
        press(page, "a")
        expect(boxes.nth(at)).to_be_focused()
        expect(boxes.nth(at)).to_be_in_viewport()
        assert desk.state(id) == "pending"
        page.keyboard.press("Space")
        expect(boxes.nth(at)).to_be_checked()
    press(page, "a")
    expect(page.locator("#toast")).to_contain_text("Approved.")
    assert desk.state(id) == "approved"
    page.keyboard.press("u")
    expect(page.locator("#toast")).to_contain_text("Nothing was sent")
    expect(page).to_have_url(desk.url(id))
    expect(page.locator("#approve")).to_be_visible()
    assert desk.state(id) == "pending"


def test_u_takes_an_approval_back_at_its_letter(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    press(page, "a")
    expect(page.locator("#toast")).to_contain_text("Approved.")
    page.goto(desk.url(id))
    expect(page.locator("#undo")).to_be_visible()
    page.keyboard.press("u")
    expect(page.locator("#approve")).to_be_visible()
    assert desk.state(id) == "pending"


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
    press(page, "r")
    expect(page.get_by_label("Reason (the agent")).to_be_focused()
    page.keyboard.type("a jerk's view? / e")
    expect(page.get_by_label("Reason (the agent")).to_have_value("a jerk's view? / e")
    expect(page).to_have_url(desk.url(id))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#toast")).to_contain_text("Rejected.")
    page.goto(desk.url(id))
    expect(page.locator("#letter .state")).to_contain_text("a jerk's view? / e")


def test_v_asks_for_another_version_and_escape_leaves_it(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.keyboard.press("v")
    expect(page.get_by_label("What should be different?")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("What should be different?")).to_be_hidden()
    button = page.locator("button[popovertarget=revise]").first
    button.focus()
    page.keyboard.press("v")
    expect(page.get_by_label("What should be different?")).to_be_focused()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
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


def test_a_slash_searches_the_queue_from_everywhere(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose(subject="Wanted alone"))
    page.keyboard.press("/")
    expect(page.get_by_label("Search the queue")).to_be_focused()
    page.keyboard.type("wanted a")
    page.keyboard.press("Enter")
    expect(page.locator("#queue li")).to_have_count(1)
    expect(page.locator("#queue li")).to_contain_text("Wanted alone")
    page.goto(f"{desk.address}/health")
    page.keyboard.press("/")
    expect(page.get_by_label("Search the queue")).to_be_focused()
    page.goto(f"{desk.address}/history")
    page.keyboard.press("/")
    expect(page.get_by_label("Search letters")).to_be_focused()


def test_a_key_that_is_held_down_counts_once(desk: Room, visits: Visits) -> None:
    for _ in range(3):
        desk.propose()
    page = visits.page(desk)
    waiting = page.locator("#queue li a.open")
    expect(page.locator("#approve")).to_be_enabled()
    ids = [row.get_attribute("data-id") or "" for row in waiting.all()]
    row = page.locator(f'#queue [data-id="{ids[0]}"]')
    box = page.locator("#letter").get_by_role("checkbox", name="I checked this")
    if box.count():
        tick(page)
    page.keyboard.down("a")
    expect(row).not_to_have_class(re.compile("open"))
    for _ in range(30):
        page.keyboard.down("a")
    expect(page.locator("#approve")).to_be_enabled()
    for _ in range(30):
        page.keyboard.down("a")
    page.keyboard.up("a")
    open_letter = page.url
    page.keyboard.down("j")
    expect(page).not_to_have_url(open_letter)
    open_letter = page.url
    for key in ("j", "k", "e", "r", "u"):
        for _ in range(20):
            page.evaluate("key => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, repeat: true, bubbles: true }))", key)  # fmt: skip
    page.keyboard.up("j")
    expect(page).to_have_url(open_letter)
    expect(page.locator("#reject")).to_be_hidden()
    assert [desk.state(id) for id in ids] == ["approved"] + ["pending"] * (len(ids) - 1)


# What happens at the moment when the next letter is there, before anybody can have read it.
AT_ONCE = """async () => {
    const [first, approve] = [document.querySelector("#letter").dataset.letter, () => document.querySelector("#approve")];
    approve().click();
    while (document.querySelector("#letter").dataset.letter === first) await new Promise(requestAnimationFrame);
    const second = document.querySelector("#letter").dataset.letter;
    approve().click();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true }));
    for (const button of document.querySelectorAll(".actions form button")) button.click();
    return [first, second];
}"""


def test_no_verdict_counts_while_a_letter_has_just_been_shown(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=602)
    for _ in range(3):
        room.propose()
    page = visits.page(room)
    expect(page.locator("#approve")).to_be_enabled()
    began = time.monotonic()
    first, second = page.evaluate(AT_ONCE)
    expect(page.locator("#approve")).to_be_enabled()
    assert time.monotonic() - began >= 0.7
    assert (room.state(first), room.state(second)) == ("approved", "pending")
    page.get_by_role("button", name="Approve and send").dblclick()
    expect(page.locator("#letter")).not_to_have_attribute("data-letter", second)
    expect(page.locator("#approve")).to_be_enabled()
    assert room.state(second) == "approved"
    assert room.state(present(page.locator("#letter").get_attribute("data-letter"))) == "pending"


def test_walking_through_a_long_queue_moves_the_list_and_not_the_page(
    rooms: Rooms, visits: Visits
) -> None:
    room = rooms(undo_seconds=603)
    for at in range(18):
        room.propose(body=f"{at}\n" * 60)
    page = visits.page(room, viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    place = "[scrollY, document.querySelector('.bar').getBoundingClientRect().y, document.querySelector('.actions').getBoundingClientRect().y]"
    before = page.evaluate(place)
    for key in "j" * 17 + "k" * 4:
        here = page.url
        page.keyboard.press(key)
        expect(page).not_to_have_url(here)
        expect(page.locator("#queue [aria-current]")).to_be_in_viewport()
        assert page.evaluate(place) == before


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
    expect(page.locator("main")).to_be_focused()


def test_every_stop_of_a_letter_can_be_seen(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose())
    expect(page.locator("#approve")).to_be_enabled()
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
    expect(page.locator("#approve")).to_be_enabled()
    page.locator("#approve").focus()
    desk.person.run("reject", id, "--reason", "meanwhile")
    expect(page.locator("#letter .state")).to_contain_text("meanwhile")
    assert focused(page) == "main"


def test_a_key_decides_nothing_about_a_letter_that_is_not_shown(
    rooms: Rooms, visits: Visits
) -> None:
    """On a narrow window the queue is shown alone, although its first letter is in the page."""
    room = rooms(undo_seconds=602)
    id = room.propose()
    page = visits.page(room, viewport={"width": 800, "height": 700})
    expect(page.locator("#letter")).to_be_hidden()
    expect(page.locator("#approve")).to_be_enabled()
    for key in ("a", "e", "r", "v", "u", "m"):
        page.keyboard.press(key)
    expect(page).to_have_url(f"{room.address}/")
    expect(page.locator("#reject")).to_be_hidden()
    assert room.state(id) == "pending"


def test_a_key_decides_nothing_while_another_letter_is_on_its_way(
    rooms: Rooms, visits: Visits
) -> None:
    room = rooms(undo_seconds=603)
    first, second = room.propose(), room.propose()
    page = visits.letter(room, second)
    waiting = list[Route]()
    page.route(f"**/letter/{first}", lambda route: waiting.append(route))  # noqa: PLW0108
    page.keyboard.press("j")
    until(lambda: page.evaluate("true") and waiting)
    # Once the first moments of the letter that is left have passed, too.
    began = page.evaluate("performance.now()")
    page.wait_for_function("began => performance.now() > began + 900", arg=began)
    expect(page.locator("#approve")).to_be_disabled()
    page.keyboard.press("a")
    waiting[0].continue_()
    expect(page.locator("#letter")).to_have_attribute("data-letter", first)
    assert [room.state(first), room.state(second)] == ["pending", "pending"]


BUSY = """
const real = fetch;
window.fetch = async (...given) => {
  const answer = await real(...given);
  if (!given[1]?.body) return answer;
  const busy = new Response("<main>Busy</main>", { status: 503 });
  Object.defineProperties(busy, { redirected: { value: true }, url: { value: answer.url } });
  return busy;
};
"""


def test_a_verdict_that_was_done_is_never_called_not_done(rooms: Rooms, visits: Visits) -> None:
    """The page after it could not be shown: the browser loads it again."""
    room = rooms(undo_seconds=604)
    first, second = room.propose(), room.propose()
    page = visits.letter(room, second)
    page.evaluate(BUSY)
    press(page, "a")
    expect(page.locator("#letter")).to_have_attribute("data-letter", first)
    expect(page.locator("#toast")).to_contain_text("Approved.")
    expect(page.locator("body")).not_to_contain_text("Not done")
    assert room.state(second) == "approved"


def test_a_search_beside_an_edit_loses_no_word_of_it(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.page(desk, f"/letter/{id}/edit")
    page.get_by_label("Text").fill("An hour's work.")
    page.locator("#find").fill("something else")
    began = page.evaluate("performance.now()")
    page.wait_for_function("began => performance.now() > began + 600", arg=began)
    expect(page.get_by_label("Text")).to_have_value("An hour's work.")
