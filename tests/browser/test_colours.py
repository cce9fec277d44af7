"""Light and dark: the page follows the reader's system."""

from playwright.sync_api import Page, expect

from tests.browser.served import SCHEMES, Room, Staged, Visits, approve, red
from tests.narrow import narrow


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
        seen[scheme] = {query: colours(page, query) for query in ("body", "#letter", "#approve", ".card li.stop")}  # fmt: skip
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


# The names of the animations that start from now on.
NOTE_ANIMATIONS = """() => {
    window.animated = [];
    document.addEventListener("animationstart", (event) => window.animated.push(event.animationName));
    document.addEventListener("transitionstart", (event) => window.animated.push(event.propertyName));
}"""


def animations(page: Page, bo: Page) -> list[str]:
    """Return what moves while a letter is approved, the next one slides in, and Bo approves that one."""
    page.evaluate(NOTE_ANIMATIONS)
    approve(page)
    expect(page.locator("#approve")).to_be_enabled()
    bo.goto(page.url)
    approve(bo)
    expect(page.locator(".postmark")).to_be_visible()
    page.wait_for_function("() => document.getAnimations().length === 0")
    return narrow(page.evaluate("window.animated"), list)


def test_who_wants_no_motion_sees_none(desk: Room, visits: Visits) -> None:
    bo = visits.page(desk, name="Bo")
    for _ in range(4):
        desk.propose()
    still = visits.letter(desk, desk.propose(), reduced_motion="reduce")
    assert animations(still, bo) == []
    moving = visits.letter(desk, desk.propose())  # what is looked for would be seen
    assert {"slide", "rise", "stamp"} <= set(animations(moving, bo))


# The colours of text and of what lies behind it, as they are painted.
PAINTED = """one => {
    let ground = one;
    while (ground && /, 0\\)$|transparent/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
    return [getComputedStyle(one).color, getComputedStyle(ground).backgroundColor];
}"""


def contrast(ink: str, ground: str) -> float:
    """Return the contrast of two colours, as WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]  # fmt: skip
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted(map(luminance, (ink, ground)))
    return (lighter + 0.05) / (darker + 0.05)


def test_highlights_are_read_in_light_and_dark(staged: Staged, visits: Visits) -> None:
    staged.desk.know("anna@weber.example")
    staged.desk.plain(0)
    staged.desk.amber()
    red, answer = staged.desk.red().id, staged.desk.answer().id
    for scheme in SCHEMES:
        page = visits.staged(staged.site, f"/letter/{red}", color_scheme=scheme)
        pairs = {}
        for query in (".body .place.stop", ".body .place:not(.stop)", ".envelope .place", ".card li.stop", ".card li.look", ".tick", ".unchecked", "#queue .look .reason", "#queue .stop .reason", "#queue .opening", ".state"):  # fmt: skip
            pairs[query] = page.locator(query).first.evaluate(PAINTED)
        assert len({pairs[query][1] for query in (".body .place.stop", ".body .place:not(.stop)", ".tick")}) == 3  # fmt: skip
        page.goto(f"{staged.site.address}/letter/{answer}/edit")
        page.get_by_label("Text").fill("Other words")
        page.get_by_role("button", name="Review the changes").click()
        for query in ("ins", "del"):
            pairs[query] = page.locator(query).first.evaluate(PAINTED)
        for query, (ink, ground) in pairs.items():
            assert contrast(ink, ground) >= 4.5, (scheme, query, ink, ground)


def test_a_letter_is_printed_without_its_buttons(desk: Room, visits: Visits) -> None:
    page = visits.letter(desk, desk.propose(body="On paper."))
    page.emulate_media(media="print")
    expect(page.locator("#letter .body")).to_be_visible()
    for query in ("header.bar", "#queue", ".actions"):
        expect(page.locator(query)).to_be_hidden()
