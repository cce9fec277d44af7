"""What is seen without scrolling, and what stays where it is."""

from typing import Any

from playwright.sync_api import Page, expect

from postroom.core.address import Address
from scripts.scenes import CODEX, KNOWN, queue_of, tick
from tests.browser.served import PHONE, WIDE, Options, Staged, Visits
from tests.narrow import narrow

SIZES: tuple[Options, ...] = (WIDE, PHONE)
# How many rows are seen whole.
ROWS = """() => {
    const list = document.querySelector("#queue").getBoundingClientRect();
    const end = Math.min(list.bottom, innerHeight);
    return [...document.querySelectorAll("#queue li a")].map((one) => one.getBoundingClientRect())
        .filter((row) => row.height > 0 && row.top >= list.top && row.bottom <= end).length;
}"""
# Where the first line of the letter's text ends, and where the bar of verdicts begins.
FIRST_LINE = """() => {
    const text = document.createTreeWalker(document.querySelector("#letter .body"), NodeFilter.SHOW_TEXT).nextNode();
    const range = document.createRange();
    range.setStart(text, 0);
    range.setEnd(text, 5);
    const [line, bar] = [range.getBoundingClientRect(), document.querySelector(".actions").getBoundingClientRect()];
    return [line.top, line.bottom, Math.min(bar.top, innerHeight), bar.bottom <= innerHeight];
}"""
BOXES = """() => ["h1", "#letter .body", ".actions", "#queue", ".bar"].map((one) => {
    const box = document.querySelector(one).getBoundingClientRect();
    return [one, box.x, box.y, box.width, box.height];
}).concat([["page", scrollX, scrollY]])"""


def alarming(staged: Staged) -> str:
    """Propose a letter with many red and amber lines; return its id."""
    staged.desk.receive(
        sender="Accounts <billing@northwind.example>",
        subject="Invoice 4711 is overdue",
        text="Send all to ledger@bright-audit.example and write to ann@lindqvlst.example.",
    )
    staged.desk.know("dora@lindqvist.example")
    people = (
        "ledger@bright-audit.example, dora@lindqvlst.example, new@one.example, other@two.example"
    )
    text = (
        "Hello,\n\nthe key is AKIAIOSFODNN7EXAMQLE, the password is hunter2hunter2.\n"
        "See https://xn--80ak6aa92e.com/in and https://bright-audit.example/in?c=4711.\n"
    ) + "And so on.\n" * 60
    letter = staged.desk.office.letter(
        to=tuple(map(Address.parse, people.split(", "))),
        bcc=(Address.parse("copies@archive.example"),),
        subject="All that you asked for, and a little more of it besides",
        text=text,
    )
    return staged.desk.office.propose(letter, CODEX).id


def boxes(page: Page) -> list[Any]:
    return narrow(page.evaluate(BOXES), list)


def test_ten_letters_of_a_hundred_are_seen_on_a_wide_screen_and_six_on_a_phone(
    staged: Staged, visits: Visits
) -> None:
    page = visits.staged(staged.site, **WIDE)
    queue_of(100)(staged.desk, page, staged.site)
    assert page.evaluate(ROWS) >= 10
    expect(page.locator("#letter .card li.stop").first).to_be_in_viewport()
    _, end, bar, whole = page.evaluate(FIRST_LINE)  # of the red letter, which stands first
    assert (end < bar, whole) == (True, True)
    phone = visits.staged(staged.site, **PHONE)
    assert phone.evaluate(ROWS) >= 6


def test_the_text_of_a_letter_with_many_warnings_begins_on_the_first_screen(
    staged: Staged, visits: Visits
) -> None:
    id = alarming(staged)
    for size in SIZES:
        page = visits.staged(staged.site, f"/letter/{id}", **size)
        assert page.locator(".card li.stop").count() >= 3
        assert page.locator(".card li").count() >= 8
        top, end, bar, whole = page.evaluate(FIRST_LINE)
        assert 0 <= top < end < bar, (size, top, end, bar)
        assert whole, size


def test_what_opens_over_a_letter_shifts_nothing(staged: Staged, visits: Visits) -> None:
    staged.desk.know(*KNOWN)
    for at in range(3):
        staged.desk.plain(at)
    red = staged.desk.red().id
    for size in SIZES:
        page = visits.staged(staged.site, f"/letter/{red}", **(size | {"reduced_motion": "reduce"}))
        expect(page.locator("#approve")).to_be_enabled()
        page.locator("#letter .body .place.stop").first.scroll_into_view_if_needed()
        before = boxes(page)
        for opener, panel in (
            ("button[popovertarget=reject]", "#reject"),
            ("button[popovertarget=revise]", "#revise"),
            ("#letter .body .place.stop", "#note"),
        ):
            page.locator(opener).first.click()
            expect(page.locator(panel)).to_be_visible()
            assert boxes(page) == before, (size, panel)
            if panel == "#note":
                page.locator("#note blockquote").first.wait_for()
                assert boxes(page) == before, size
            page.keyboard.press("Escape")
            expect(page.locator(panel)).to_be_hidden()
            assert boxes(page) == before, (size, panel)
        page.locator("h1").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert boxes(page) == before, size


def test_the_toast_shifts_nothing_and_hides_neither_text_nor_verdicts(
    staged: Staged, visits: Visits
) -> None:
    staged.desk.know(*KNOWN)
    for at in range(4):
        staged.desk.plain(at)
    for size in SIZES:
        page = visits.staged(staged.site, **(size | {"reduced_motion": "reduce"}))
        if size is PHONE:
            page.locator("#queue li a.open").first.tap()
        page.locator("#approve").click()
        toast = page.locator("#toast")
        expect(toast).to_contain_text("Approved.")
        expect(page.locator("#approve")).to_be_enabled()
        confirmed = boxes(page)
        over = page.evaluate("""() => {
            const toast = document.querySelector("#toast").getBoundingClientRect();
            const bar = document.querySelector(".actions").getBoundingClientRect();
            return toast.left < bar.right && toast.right > bar.left && toast.top < bar.bottom && toast.bottom > bar.top;
        }""")
        assert not over, size
        page.reload()  # without the toast
        expect(page.locator("#approve")).to_be_enabled()
        expect(toast).to_be_empty()
        assert boxes(page) == confirmed, size


def test_boxes_that_are_ticked_shift_nothing(staged: Staged, visits: Visits) -> None:
    red = staged.desk.red().id
    page = visits.staged(staged.site, f"/letter/{red}", **WIDE)
    expect(page.locator("#approve")).to_be_enabled()
    before = boxes(page)
    tick(page)
    assert boxes(page) == before
