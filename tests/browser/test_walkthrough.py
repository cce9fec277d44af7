"""How much a person does to decide a morning's letters: every key and every tap is counted."""

import sys
from collections import Counter

from playwright.sync_api import Page, expect

from scripts.scenes import KNOWN
from tests.browser.served import PHONE, WIDE, Staged, Visits, until
from tests.narrow import present

MOST = 1.5  # keys or taps for a plain letter


class Hand:
    """A person's hand at the keyboard, or on the glass of a phone: it counts what it does."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.done: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.done.total()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.done[key] += 1

    def tap(self, query: str) -> None:
        self.page.locator(query).first.tap()
        self.done[query] += 1

    def type(self, text: str) -> None:
        """Type words, which count as one: people dictate them too."""
        self.page.keyboard.type(text)
        self.done["words"] += 1

    def open_letter(self) -> str:
        """Wait until a verdict about the open letter counts; return its id."""
        expect(self.page.locator("#approve")).to_be_enabled()
        return present(self.page.locator("#letter").get_attribute("data-letter"))

    def wait_until_left(self, id: str) -> None:
        """Wait until another letter is open, or none."""
        self.page.wait_for_function(
            "id => document.querySelector('#letter')?.dataset.letter !== id", arg=id
        )


def plain_letters(staged: Staged, count: int) -> list[str]:
    """Propose letters to people whom the person has written to before; return their ids."""
    staged.desk.know(*KNOWN)
    return [staged.desk.plain(at + at // 5).id for at in range(count)]  # the sixth is not known


def leave(staged: Staged, approved: list[str]) -> None:
    """Let the undo window pass, and check that these letters leave, each once, and no other."""
    office, courier = staged.desk.office, staged.desk.courier

    def all_sent() -> bool:
        office.clock.go(30)  # they leave a few at a time
        return all(office.state_of(id) == "sent" for id in approved)

    until(all_sent)
    assert sorted(one.letter.id for one in courier.accepted) == sorted(approved)


def report(what: str, hand: Hand, letters: int) -> None:
    sys.stdout.write(f"\n{what}: {hand.total} for {letters} letters, {hand.total / letters:.2f} each: {dict(hand.done)}\n")  # fmt: skip


def test_twenty_plain_letters_are_approved_with_a_key_each(staged: Staged, visits: Visits) -> None:
    ids = plain_letters(staged, 20)
    hand = Hand(visits.staged(staged.site, **WIDE))
    expect(hand.page.locator("#queue li a.open")).to_have_count(20)
    expect(hand.page.locator("#queue li a:is(.look, .stop)")).to_have_count(0)
    for _ in ids:
        id = hand.open_letter()
        hand.press("a")
        hand.wait_until_left(id)
    expect(hand.page.get_by_role("heading", name="All decided")).to_be_visible()
    report("Keys", hand, len(ids))
    assert hand.total <= MOST * len(ids)
    assert {staged.desk.office.state_of(id) for id in ids} == {"approved"}
    leave(staged, ids)


def test_ten_plain_letters_are_approved_on_a_phone_with_a_tap_each(
    staged: Staged, visits: Visits
) -> None:
    ids = plain_letters(staged, 10)
    hand = Hand(visits.staged(staged.site, **PHONE))
    expect(hand.page.locator("#queue li a.open")).to_have_count(10)
    hand.tap("#queue li a")
    for _ in ids:
        id = hand.open_letter()
        hand.tap("#approve")
        hand.wait_until_left(id)
    expect(hand.page.get_by_role("heading", name="All decided")).to_be_visible()
    report("Taps", hand, len(ids))
    assert hand.total <= MOST * len(ids)
    assert {staged.desk.office.state_of(id) for id in ids} == {"approved"}
    leave(staged, ids)


def test_a_mixed_morning_takes_a_few_keys_more(staged: Staged, visits: Visits) -> None:
    """A red letter, one to somebody new, one that is rejected with a reason, one taken back and approved again."""
    plain = plain_letters(staged, 4)
    amber, red = staged.desk.amber().id, staged.desk.red().id
    hand = Hand(visits.staged(staged.site, **WIDE))
    page, spent = hand.page, dict[str, int]()

    def step(name: str, before: int) -> None:
        spent[name] = hand.total - before

    assert hand.open_letter() == red  # the newest that needs a look stands first
    boxes = page.get_by_role("checkbox", name="I checked this")
    count = boxes.count()
    assert count >= 2
    for at in range(count):
        hand.press("a")
        expect(boxes.nth(at)).to_be_focused()
        hand.press("Space")
    hand.press("a")
    hand.wait_until_left(red)
    step(f"red, {count} places", 0)

    before = hand.total
    assert hand.open_letter() == amber
    hand.press("a")
    hand.wait_until_left(amber)
    step("amber", before)

    before, rejected = hand.total, hand.open_letter()
    hand.press("r")
    hand.type("We met already.")
    hand.press("Tab")
    hand.press("Enter")
    hand.wait_until_left(rejected)
    step("rejected with a reason", before)

    before, wavering = hand.total, hand.open_letter()
    hand.press("a")
    hand.wait_until_left(wavering)
    hand.press("u")
    page.wait_for_url(f"{staged.site.address}/letter/{wavering}")
    assert staged.desk.office.state_of(wavering) == "pending"
    assert hand.open_letter() == wavering
    hand.press("a")
    hand.wait_until_left(wavering)
    step("approved, taken back, approved", before)

    before = hand.total
    for _ in range(2):
        id = hand.open_letter()
        hand.press("a")
        hand.wait_until_left(id)
    step("two plain", before)
    expect(page.get_by_role("heading", name="All decided")).to_be_visible()

    report(f"Mixed {spent}", hand, 6)
    assert spent == {
        f"red, {count} places": 2 * count + 1,
        "amber": 1,
        "rejected with a reason": 4,
        "approved, taken back, approved": 3,
        "two plain": 2,
    }
    assert staged.desk.office.state_of(rejected) == "rejected"
    leave(staged, [id for id in (*plain, amber, red) if id != rejected])
