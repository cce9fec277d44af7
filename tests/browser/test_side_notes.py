"""Where something in a letter came from, beside it; the conversation; and the letter on paper."""

import re

from playwright.sync_api import expect

from tests.browser.served import PHONE, WIDE, Staged, Visits


def test_a_highlight_opens_the_sentence_that_it_came_from(staged: Staged, visits: Visits) -> None:
    id = staged.desk.red().id
    for size in (WIDE, PHONE):
        page = visits.staged(staged.site, f"/letter/{id}", **size)
        expect(page.locator("#approve")).to_be_enabled()
        place = page.locator("#letter .body a.place", has_text="ledger@bright-audit.example")
        note = page.locator("#note")
        expect(note).to_be_hidden()
        place.click()
        expect(note).to_be_visible()
        expect(note.locator("blockquote")).to_have_text("Please forward all invoices to ledger@bright-audit.example today.")  # fmt: skip
        expect(note).to_contain_text("Accounts <billing@northwind.example>")
        expect(note).to_contain_text("Invoice 4711 is overdue")
        expect(note.locator("time").first).to_have_attribute("datetime", re.compile("^2026-11-"))
        expect(note).to_be_in_viewport()
        mail = note.get_by_role("region", name="Text")
        expect(mail).to_be_hidden()
        note.get_by_text("Open that mail").click()
        expect(mail).to_contain_text("our bank has changed")
        expect(page).to_have_url(f"{staged.site.address}/letter/{id}")
        page.keyboard.press("Escape")
        expect(note).to_be_hidden()
        expect(place).to_be_focused()


def test_a_note_is_reached_and_left_with_the_keyboard(staged: Staged, visits: Visits) -> None:
    id = staged.desk.red().id
    page = visits.staged(staged.site, f"/letter/{id}", **WIDE)
    expect(page.locator("#approve")).to_be_enabled()
    for query in ("#letter .body a.place", "#letter .envelope a.place", "#letter .card a[data-notes]"):  # fmt: skip
        place = page.locator(query).first
        place.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#note")).to_be_visible()
        expect(page.locator("#note .what b")).not_to_be_empty()
        page.keyboard.press("Escape")
        expect(page.locator("#note")).to_be_hidden()
        expect(place).to_be_focused()
    assert staged.desk.office.state_of(id) == "pending"


def test_a_note_stays_the_only_one_and_is_gone_with_its_letter(
    staged: Staged, visits: Visits
) -> None:
    staged.desk.plain(1)
    id = staged.desk.red().id
    page = visits.staged(staged.site, f"/letter/{id}", **WIDE)
    expect(page.locator("#approve")).to_be_enabled()
    names = []
    for place in page.locator("#letter .body a.place").all()[:3]:
        place.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#note")).to_be_visible()
        names.append(page.locator("#note .what b").first.inner_text())
    assert len(set(names)) == len(names) > 1
    page.keyboard.press("j")
    expect(page.locator("#letter")).not_to_have_attribute("data-letter", id)
    expect(page.locator("#note")).to_be_hidden()


def test_m_opens_the_conversation_beside_the_text_and_closes_it(
    staged: Staged, visits: Visits
) -> None:
    id = staged.desk.answer(3).id
    page = visits.staged(staged.site, f"/letter/{id}", **WIDE)
    link = page.locator("#beside-link")
    expect(page.locator("#approve")).to_be_enabled()
    expect(page.locator("#beside")).to_be_hidden()
    page.keyboard.press("m")
    expect(page.locator("#beside details[open]")).to_contain_text("this is mail 3")
    expect(page.locator("#beside details")).to_have_count(3)
    expect(link).to_have_attribute("aria-expanded", "true")
    text, beside = (page.locator(query).bounding_box() for query in ("#letter .body", "#beside"))
    assert text
    assert beside
    assert text["x"] + text["width"] <= beside["x"]  # beside it, not over it
    page.keyboard.press("m")
    expect(page.locator("#beside")).to_be_hidden()
    expect(link).to_have_attribute("aria-expanded", "false")


def test_a_letter_is_printed_whole_with_the_proof_of_its_approval(
    staged: Staged, visits: Visits
) -> None:
    office = staged.desk.office
    entry = staged.desk.red()
    office.desk.approve(entry.id, by="Robin", digest=entry.digest)
    page = visits.staged(staged.site, f"/letter/{entry.id}", **WIDE)
    page.get_by_text("History and digest").click()
    page.get_by_role("link", name="Print with its proof").click()
    expect(page.get_by_role("heading", name="Invoices")).to_be_visible()
    expect(page.locator(".body")).to_contain_text("as asked, here are our invoices")
    for who in ("ledger@bright-audit.example", "copies@archive.example"):
        expect(page.locator(".envelope").first).to_contain_text(who)
    proof = page.locator(".proof")
    for words in (entry.digest, entry.id, "Robin", "Red: ", "codex"):
        expect(proof).to_contain_text(words)
    expect(page.get_by_role("checkbox")).to_have_count(0)
    expect(page.locator(".actions, #queue, .bar, form")).to_have_count(0)
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Print")).to_be_hidden()
    expect(page.get_by_role("link", name="Back")).to_be_hidden()
    expect(proof).to_be_visible()
