"""Light and dark: the page follows the reader's system."""

from playwright.sync_api import Page, expect

from tests.browser.served import SCHEMES, Room, Visits, red


def colours(page: Page, query: str) -> tuple[str, str]:
    """Return the colours of the first such element and of its background."""
    found = "one => { const style = getComputedStyle(one); return [style.color, style.backgroundColor]; }"
    ink, ground = page.locator(query).first.evaluate(found)
    return ink, ground


def brightness(colour: str) -> float:
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


def test_the_page_is_dark_where_the_system_is(desk: Room, visits: Visits) -> None:
    id = red(desk)
    seen: dict[str, dict[str, tuple[str, str]]] = {}
    for scheme in SCHEMES:
        page = visits.letter(desk, id, color_scheme=scheme)
        seen[scheme] = {query: colours(page, query) for query in ("body", "#letter", "#approve", ".card-lines li.stop")}  # fmt: skip
    for query in seen["light"]:
        assert seen["light"][query][0] != seen["dark"][query][0], query
        assert seen["light"][query][1] != seen["dark"][query][1], query
    (ink, table), (light_ink, dark_table) = seen["light"]["body"], seen["dark"]["body"]
    assert brightness(ink) < 80 < 180 < brightness(table)
    assert brightness(dark_table) < 80 < 180 < brightness(light_ink)


def test_the_page_follows_when_the_system_changes(desk: Room, visits: Visits) -> None:
    page = visits.page(desk, color_scheme="light")
    before = colours(page, "body")
    page.emulate_media(color_scheme="dark")
    assert colours(page, "body") != before


def test_who_wants_no_motion_sees_none(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose(), reduced_motion="reduce")
    page.get_by_role("button", name="Approve and send").click()
    mark = page.locator(".postmark")
    expect(mark).to_be_visible()
    assert mark.evaluate("one => getComputedStyle(one).animationName") == "none"


def test_a_letter_is_printed_without_its_buttons(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose(body="On paper."))
    page.emulate_media(media="print")
    expect(page.locator("#letter .body")).to_be_visible()
    for query in ("header.bar", "#queue", ".actions"):
        expect(page.locator(query)).to_be_hidden()
