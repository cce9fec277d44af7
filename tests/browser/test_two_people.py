"""Several who decide at once: each sees what the other did, and the first word counts."""

import re

from playwright.sync_api import Route, expect

from tests.browser.served import Room, Rooms, Staged, Visits, approve, red, reject, tick, until

SOON = 5.0  # seconds; it takes a second or less on a quiet machine


def test_what_one_decides_the_other_sees_at_once(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    ada, bo = visits.letter(desk, id), visits.letter(desk, id, name="Bo")
    reject(bo, "Not this one")
    took = until(lambda: "Rejected by Bo" in ada.locator("#letter .state").inner_text(), SOON)
    assert took < SOON
    expect(ada.locator("#letter .state")).to_contain_text("Not this one")
    expect(ada.locator("#approve")).to_have_count(0)
    expect(ada.locator(f'#queue a[href="/letter/{id}"]')).to_have_count(0)
    expect(ada.locator("#toast")).to_contain_text("Rejected by Bo")


def test_who_comes_second_with_a_stale_page_is_told_and_nothing_is_sent(
    quick: Room, visits: Visits
) -> None:
    id = quick.propose(subject="Too late")
    ada = visits.letter(quick, id, java_script_enabled=False)
    reject(visits.letter(quick, id, name="Bo"), "Not this one")
    until(lambda: quick.state(id) == "rejected")
    ada.get_by_role("button", name="Approve and send").click()
    expect(ada.locator("#notices")).to_contain_text("Not done")
    expect(ada.locator("#letter .state")).to_contain_text("Rejected by Bo")
    expect(ada.locator("#letter .state")).to_contain_text("Not this one")
    assert quick.person.show(id)["state"] == "rejected"
    assert "Too late" not in quick.sent()


def test_an_approval_of_what_was_edited_meanwhile_is_no_approval(
    quick: Room, visits: Visits
) -> None:
    id = quick.propose(subject="Edited meanwhile")
    ada = visits.letter(quick, id, java_script_enabled=False)
    bo = visits.page(quick, f"/letter/{id}/edit", name="Bo")
    bo.get_by_label("Text").fill("Other words.")
    bo.get_by_role("button", name="Review the changes").click()
    bo.get_by_role("button", name="Save without approving").click()
    expect(bo.locator("#letter .body")).to_have_text("Other words.")
    ada.get_by_role("button", name="Approve and send").click()
    expect(ada.locator("#notices")).to_contain_text("Not done")
    expect(ada.locator("#letter .body")).to_have_text("Other words.")
    assert quick.state(id) == "pending"
    assert "Edited meanwhile" not in quick.sent()


def test_a_letter_is_not_changed_under_a_hand_that_is_about_to_approve_it(
    desk: Room, visits: Visits
) -> None:
    id = desk.propose(subject="Ten", body="Send 10.")
    ada = visits.letter(desk, id)
    bo = visits.page(desk, f"/letter/{id}/edit", name="Bo")
    expect(ada.locator("#approve")).to_be_enabled()
    ada.locator("#approve").focus()
    bo.get_by_label("Text").fill("Send 10000.")
    bo.get_by_role("button", name="Review the changes").click()
    bo.get_by_role("button", name="Save without approving").click()
    expect(ada.locator("#toast")).to_contain_text("was changed in the meantime")
    ada.keyboard.press("Enter")
    expect(ada.locator("#approve")).to_be_disabled()
    expect(ada.locator("#letter .body")).to_have_text("Send 10.")
    assert desk.state(id) == "pending"


def test_what_somebody_types_is_kept_when_another_decides(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    ada, bo = visits.page(desk, f"/letter/{id}/edit"), visits.letter(desk, id, name="Bo")
    ada.get_by_label("Text").fill("An hour's work")
    reject(bo, "Not this one")
    expect(ada.locator("#toast")).to_contain_text("Rejected by Bo")
    expect(ada.get_by_label("Text")).to_have_value("An hour's work")
    ada.get_by_role("button", name="Review the changes").click()
    expect(ada.locator("#notices")).to_contain_text("Not edited")
    expect(ada.locator("#letter .state")).to_contain_text("Rejected by Bo")


def test_who_looks_at_a_difference_sees_that_another_decided(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    ada, bo = visits.page(desk, f"/letter/{id}/edit"), visits.letter(desk, id, name="Bo")
    ada.get_by_label("Text").fill("Better words")
    ada.get_by_role("button", name="Review the changes").click()
    expect(ada.get_by_role("heading", name="Review your changes")).to_be_visible()
    reject(bo, "Not this one")
    expect(ada.locator("body")).to_contain_text("Rejected by Bo")


def test_who_was_refused_still_gets_news(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    ada = visits.letter(desk, id, java_script_enabled=False)
    reject(visits.letter(desk, id, name="Bo"), "Not this one")
    until(lambda: desk.state(id) == "rejected")
    state = ada.context.storage_state()
    live = visits.window(storage_state=state).new_page()
    live.goto(desk.url(id))
    # The same stale post, from a page with scripts.
    fields = {name: ada.locator(f"form.approve [name={name}]").input_value() for name in ("token", "digest")}  # fmt: skip
    live.evaluate(
        """([address, fields]) => {
            const form = document.createElement("form");
            form.method = "post"; form.action = address;
            for (const [name, value] of Object.entries(fields)) {
                const one = document.createElement("input"); one.name = name; one.value = value; form.append(one);
            }
            document.body.append(form); form.submit();
        }""",
        [f"/letter/{id}/approve", fields],
    )
    expect(live.locator("#notices")).to_contain_text("Not done")
    other = desk.propose()
    expect(live.locator(f'#queue a[href="/letter/{other}"]')).to_be_visible()


def test_half_a_reason_is_kept_when_another_decides(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    ada, bo = visits.letter(desk, id), visits.letter(desk, id, name="Bo")
    ada.locator("button[popovertarget=reject]").first.click()
    ada.get_by_label("Reason (the agent").fill("Because")
    approve(bo)
    expect(ada.locator("#toast")).to_contain_text("Approved")
    expect(ada.get_by_label("Reason (the agent")).to_have_value("Because")


def test_what_is_decided_in_the_terminal_shows_on_the_page(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    assert desk.person.run("reject", id, "--reason", "said in the terminal").code == 0
    expect(page.locator("#letter .state")).to_contain_text("said in the terminal")


def test_what_is_decided_in_the_vault_shows_on_the_page(desk: Room, visits: Visits) -> None:
    id = desk.person.draft("moved")
    page = visits.letter(desk, id)
    (desk.person.vault / "Rejected").mkdir(exist_ok=True)
    (desk.person.vault / "Drafts/moved.md").rename(desk.person.vault / "Rejected/moved.md")
    expect(page.locator("#letter .state")).to_contain_text("Rejected")


def test_a_new_letter_appears_in_the_queue_by_itself(desk: Room, visits: Visits) -> None:
    page = visits.page(desk)
    before = int(page.locator("header.bar .count").inner_text()) if page.locator("header.bar .count").count() else 0  # fmt: skip
    id = desk.propose(subject="Just written")
    expect(page.locator(f'#queue a[href="/letter/{id}"]')).to_contain_text("Just written")
    expect(page.locator("header.bar .count")).to_have_text(str(before + 1))


def test_a_letter_that_its_agent_withdraws_can_no_longer_be_approved(
    desk: Room, visits: Visits
) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    desk.agent.done("withdraw_letter", id=id)
    expect(page.locator("#letter .state")).to_contain_text("Withdrawn")
    expect(page.locator("#approve")).to_have_count(0)


def test_each_gives_their_own_word(quick: Room, visits: Visits) -> None:
    for name in ("Ada", "Bo"):
        id = quick.propose()
        page = visits.letter(quick, id, name=name)
        approve(page)
        page.goto(quick.url(id))
        expect(page.get_by_role("img", name=f"Approved by {name} on")).to_be_visible()
        expect(page.locator("ol.history")).to_contain_text(f"Approved by {name}")


def test_a_page_finds_the_desk_again_after_it_was_away(desk: Room, visits: Visits) -> None:
    visits.tolerated = "net::ERR_"
    page = visits.page(desk)
    desk.restart()
    id = desk.propose(subject="After the pause")
    expect(page.locator(f'#queue a[href="/letter/{id}"]')).to_be_visible()


def test_a_new_red_letter_does_not_take_the_place_of_the_one_that_is_read(
    rooms: Rooms, visits: Visits
) -> None:
    room = rooms(undo_seconds=604)
    id = room.propose(body="A long letter.\n" * 200)
    pages = [
        visits.page(room),
        visits.letter(room, id),
    ]  # the first letter of the queue, and by its address
    for page in pages:
        expect(page.locator("#letter")).to_have_attribute("data-letter", id)
        page.locator("#letter .scroll").evaluate("one => { one.scrollTop = 300; }")
    new = red(room, subject="Just written, and red")
    for page in pages:
        expect(page.locator("#queue li a.stop")).to_contain_text("Just written, and red")
        expect(page.locator("header.bar .count")).to_have_text("2")
        expect(page).to_have_title(re.compile(r"^\(2\) "))
        expect(page.locator("#letter")).to_have_attribute("data-letter", id)
        expect(page.locator("#queue [aria-current]")).to_have_attribute("data-id", id)
        assert page.locator("#letter .scroll").evaluate("one => one.scrollTop") == 300
    pages[0].keyboard.press("k")
    expect(pages[0].locator("#letter")).to_have_attribute("data-letter", new)


def test_nothing_typed_or_ticked_is_lost_when_letters_come_and_go(
    desk: Room, visits: Visits
) -> None:
    id, other = red(desk), desk.propose()
    page = visits.letter(desk, id)
    tick(page)
    page.locator("button[popovertarget=revise]").first.click()
    page.get_by_label("What should be different?").fill("Half a sen")
    new = desk.propose(subject="Arrived meanwhile")
    assert desk.person.run("reject", other, "--reason", "in the terminal").code == 0
    took = until(lambda: page.locator(f'#queue [data-id="{new}"]').count(), SOON)
    assert took < SOON
    expect(page.locator(f'#queue [data-id="{other}"]')).to_have_count(0)
    expect(page.get_by_label("What should be different?")).to_be_visible()
    expect(page.get_by_label("What should be different?")).to_have_value("Half a sen")
    expect(page.get_by_label("What should be different?")).to_be_focused()
    for box in page.get_by_role("checkbox", name="I checked this", include_hidden=True).all():
        expect(box).to_be_checked()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("Arrived")
    expect(page.locator("#queue li")).to_have_count(1)
    desk.propose(subject="Arrived too")
    expect(page.locator("#queue li")).to_have_count(2)
    expect(page.get_by_label("Search the queue")).to_have_value("Arrived")
    expect(page.get_by_label("Search the queue")).to_be_focused()


def test_the_first_letter_of_an_empty_desk_is_shown_by_itself_under_the_whole_bar(
    staged: Staged, visits: Visits
) -> None:
    page = visits.staged(staged.site)
    expect(page.get_by_role("heading", name="No letters waiting")).to_be_visible()
    id = staged.desk.plain(1).id
    expect(page.locator("#letter")).to_have_attribute("data-letter", id)
    expect(page.locator("#queue [aria-current]")).to_have_attribute("data-id", id)
    expect(page.locator("header.bar nav a")).to_have_count(4)
    expect(page.locator("header.bar .count")).to_have_text("1")
    expect(page.locator("header.bar .budget")).to_be_visible()


def test_news_that_come_late_do_not_mark_a_letter_that_was_left(
    rooms: Rooms, visits: Visits
) -> None:
    """A letter is opened, the queue changes meanwhile, and the answer about the change comes last."""
    room = rooms(undo_seconds=605)
    second, first = room.propose(), room.propose()
    page = visits.page(room)
    expect(page.locator("#letter")).to_have_attribute("data-letter", first)
    late, opening = list[Route](), list[Route]()
    page.route("**/letter/*", lambda route: (late if "x-desk-live" in route.request.headers else opening).append(route))  # fmt: skip
    page.keyboard.press("j")
    until(lambda: page.evaluate("1") and opening)
    new = room.propose()
    until(lambda: page.evaluate("1") and late)
    opening[0].continue_()
    expect(page.locator("#letter")).to_have_attribute("data-letter", second)
    late[0].continue_()
    until(lambda: page.evaluate("1") and len(late) > 1)  # it asks again
    expect(page.locator("#queue [aria-current]")).to_have_attribute("data-id", second)
    late[1].continue_()
    expect(page.locator(f'#queue [data-id="{new}"]')).to_be_visible()
    expect(page.locator("#queue [aria-current]")).to_have_attribute("data-id", second)
    expect(page.locator("#letter")).to_have_attribute("data-letter", second)
