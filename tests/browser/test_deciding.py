"""Deciding on the page: what is approved leaves, and only as it was seen."""

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from tests.agents import visiting
from tests.browser.served import Room, Rooms, Visits, approve, red, reject, tick


def text_of_sent(room: Room, subject: str) -> object:
    """Return the mail under Sent with this subject."""
    (found,) = room.person.run("search", f'in:sent subject:"{subject}"', "--json").json["messages"]
    return room.person.run("read", found["id"], "--json").json


# Approving


def test_an_approved_letter_is_sent_and_bears_a_postmark(quick: Room, visits: Visits) -> None:
    id = quick.propose(subject="Postmarked")
    page = visits.letter(quick, id)
    approve(page)
    page.goto(quick.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    today = datetime.now(UTC)
    mark = page.get_by_role("img", name=f"Approved by Ada on {today.day} {today:%B %Y}")
    expect(mark).to_be_visible()
    expect(mark).to_contain_text("Ada")
    expect(mark).to_contain_text(f"{today.day} {today:%b}".upper())
    expect(page.locator("#approve")).to_have_count(0)
    assert quick.person.show(id)["state"] == "sent"
    assert quick.sent().count("Postmarked") == 1


def test_the_count_down_counts_and_undo_puts_the_letter_back(desk: Room, visits: Visits) -> None:
    id = desk.propose(subject="Taken back")
    page = visits.letter(desk, id)
    for taken_back_at in ("#toast form button", "#undo"):  # at once, or at the letter
        approve(page)
        if taken_back_at == "#undo":
            page.goto(desk.url(id))
        count = page.locator("#toast .countdown, #letter .countdown")
        expect(count).to_have_text(re.compile(r"^5\d\d$"))
        first = int(count.inner_text())
        expect(count).not_to_have_text(str(first))
        assert int(count.inner_text()) < first
        page.locator(taken_back_at).click()
        expect(page).to_have_url(desk.url(id))
        expect(page.locator("#toast")).to_contain_text("Nothing was sent")
        expect(page.locator("#approve")).to_be_visible()
        expect(page.locator("#letter .state")).to_contain_text("Waiting for your approval")
        assert desk.person.show(id)["state"] == "pending"
    assert "Taken back" not in desk.sent()


def test_a_letter_leaves_by_itself_when_the_window_has_passed(rooms: Rooms, visits: Visits) -> None:
    room = rooms(undo_seconds=2)
    id = room.propose(subject="In its time")
    page = visits.letter(room, id)
    approve(page)
    expect(page.locator("#toast form button")).to_be_visible()
    page.goto(room.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    expect(page.locator("#undo")).to_have_count(0)
    assert room.sent().count("In its time") == 1


def test_a_red_letter_is_approved_only_by_who_ticks_its_place(quick: Room, visits: Visits) -> None:
    id = red(quick)
    page = visits.letter(quick, id)
    expect(page.locator(".card li.stop")).to_contain_text("Red")
    box = page.locator(".body").get_by_role("checkbox", name="I checked this")
    expect(page.locator(".body .place.stop")).to_have_text("AKIAIOSFODNN7EXAMQLE")
    page.get_by_role("button", name="Approve and send").click()
    expect(box).to_be_focused()
    assert quick.state(id) == "pending"
    box.check()
    approve(page)
    page.goto(quick.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")


def test_two_clicks_approve_once(quick: Room, visits: Visits) -> None:
    id = quick.propose(subject="Clicked twice")
    page = visits.letter(quick, id)
    page.get_by_role("button", name="Approve and send").dblclick()
    expect(page.locator("#toast")).to_contain_text("Approved.")
    page.goto(quick.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    assert quick.sent().count("Clicked twice") == 1


def test_every_recipient_stands_on_the_sheet(desk: Room, visits: Visits) -> None:
    id = desk.propose(cc=["carl@example.com"], bcc=["boss@example.net"])
    page = visits.letter(desk, id)
    for who in ("ann@example.com", "carl@example.com", "boss@example.net"):
        expect(page.locator(".envelope")).to_contain_text(who)
    expect(page.locator(".digest")).to_contain_text(desk.person.show(id)["digest"])


def test_an_answer_shows_the_conversation_that_it_answers(desk: Room, visits: Visits) -> None:
    mail = desk.agent.first("in:inbox")
    id = desk.agent.done("reply_email", id=mail, body="Thank you.")["letter"]
    page = visits.letter(desk, id)
    expect(page.locator("#beside")).to_be_hidden()
    page.get_by_role("link", name="The mail it answers").click()
    expect(page.locator("#beside .thread details[open]")).to_contain_text("answered here")


def test_an_attachment_is_named_with_its_digest_and_is_saved_not_shown(
    desk: Room, visits: Visits
) -> None:
    outgoing = desk.person.vault / "Outgoing"
    outgoing.mkdir(exist_ok=True)
    (outgoing / "plan.html").write_text("<script>alert(1)</script>")
    page = visits.letter(desk, desk.propose(attachments=["Outgoing/plan.html"]))
    page.locator(".files summary").click()
    expect(page.locator(".files code")).to_have_text(re.compile("^[0-9a-f]{64}$"))
    expect(page.locator(".files .preview")).to_have_text("<script>alert(1)</script>")
    with page.expect_download() as saved:
        page.get_by_role("link", name="plan.html", exact=True).click()
    assert saved.value.suggested_filename == "plan.html"
    assert saved.value.path().read_text() == "<script>alert(1)</script>"


# Editing


def test_the_edited_letter_is_what_leaves(quick: Room, visits: Visits) -> None:
    id = quick.propose(subject="Draft one", body="Good day, Ann. All is well.")
    page = visits.letter(quick, id)
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Text").fill("Good evening, Ann. All is well.")
    page.get_by_label("To").fill("Dora <dora@example.com>")
    page.get_by_label("Bcc").fill("boss@example.net")
    page.get_by_label("Subject").fill("Draft two")
    page.get_by_role("button", name="Review the changes").click()
    changed = page.locator(".changes")
    for gone in ("day", "ann@example.com", "one"):
        expect(changed.locator("del", has_text=gone)).to_be_visible()
    for came in ("evening", "dora@example.com", "boss@example.net", "two"):
        expect(changed.locator("ins", has_text=came)).to_be_visible()
    assert quick.state(id) == "pending"
    approve(page)
    page.goto(quick.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Sent")
    expect(page.locator(".changes")).to_contain_text("evening")
    seen = quick.person.show(id)
    assert (seen["state"], seen["subject"]) == ("sent", "Draft two")
    assert "dora@example.com" in seen["to"][0]
    assert seen["bcc"] == ["boss@example.net"]
    assert "Good evening" in str(text_of_sent(quick, "Draft two"))
    assert "Draft one" not in quick.sent()


def test_an_edited_letter_may_go_on_waiting(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.page(desk, f"/letter/{id}/edit")
    page.get_by_label("Text").fill("Better words.")
    page.get_by_role("button", name="Review the changes").click()
    page.get_by_role("button", name="Save without approving").click()
    expect(page.locator("#letter .body")).to_have_text("Better words.")
    expect(page.get_by_role("heading", name="Changes")).to_be_visible()
    expect(page.locator("#approve")).to_be_visible()
    seen = desk.person.show(id)
    assert (seen["state"], seen["text"]) == ("pending", "Better words.\n")


def test_an_edit_can_be_gone_on_with_and_left(desk: Room, visits: Visits) -> None:
    id = desk.propose(body="As it was.")
    page = visits.page(desk, f"/letter/{id}/edit")
    page.get_by_label("Text").fill("Half of it")
    page.get_by_role("button", name="Review the changes").click()
    page.get_by_role("button", name="Continue editing").click()
    expect(page.get_by_label("Text")).to_have_value(re.compile(r"^\s*Half of it\s*$"))
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator("#letter .body")).to_have_text("As it was.")


def test_an_address_that_is_none_is_named_and_nothing_typed_is_lost(
    desk: Room, visits: Visits
) -> None:
    id = desk.propose()
    page = visits.page(desk, f"/letter/{id}/edit")
    page.get_by_label("To").fill("ann@@example.com")
    page.get_by_label("Text").fill("A long afternoon's work, <b>kept</b>.")
    page.get_by_role("button", name="Review the changes").click()
    expect(page.locator("main .notice.stop")).to_contain_text("ann@@example.com")
    expect(page.get_by_label("To")).to_have_value("ann@@example.com")
    expect(page.get_by_label("Text")).to_have_value("A long afternoon's work, <b>kept</b>.")
    assert desk.state(id) == "pending"


def test_an_edit_that_changes_nothing_says_so(desk: Room, visits: Visits) -> None:
    page = visits.page(desk, f"/letter/{desk.propose()}/edit")
    page.get_by_role("button", name="Review the changes").click()
    expect(page.locator("main .notice")).to_contain_text("You have not changed anything yet")


def test_an_edit_that_makes_a_letter_red_asks_to_read_that(desk: Room, visits: Visits) -> None:
    page = visits.page(desk, f"/letter/{desk.propose()}/edit")
    page.get_by_label("Text").fill("My key is AKIAIOSFODNN7EXAMQLE.")
    page.get_by_role("button", name="Review the changes").click()
    expect(page.locator(".card")).to_contain_text("Red")
    page.get_by_role("button", name="Approve and send").click()
    expect(page.get_by_role("heading", name="Review your changes")).to_be_visible()
    expect(page.locator(".body").get_by_role("checkbox")).to_be_focused()
    tick(page)
    approve(page)
    expect(page.locator("#toast form button")).to_be_visible()


# Turning down


def test_a_letter_is_rejected_with_its_reason_and_can_be_put_back(
    desk: Room, visits: Visits
) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    reject(page, "Far too long")
    page.goto(desk.url(id))
    expect(page.locator("#letter .state")).to_contain_text("Rejected by Ada")
    expect(page.locator("#letter .state")).to_contain_text("Far too long")
    assert "Far too long" in desk.person.show(id)["description"]
    page.get_by_role("button", name="Put back into the queue").click()
    expect(page.locator("#approve")).to_be_visible()


@pytest.mark.parametrize(
    ("choice", "asks", "does"),
    [
        ("reject", "Reason (the agent", "Reject this letter"),
        ("revise", "What should be different?", "Ask for another version"),
    ],
)
def test_the_reason_reaches_the_agent(
    desk: Room, visits: Visits, choice: str, asks: str, does: str
) -> None:
    with visiting(desk.person) as agent:
        id = agent.done("send_email", to=["ann@example.com"], subject=does, body=choice)["letter"]
        page = visits.letter(desk, id)
        page.locator(f"button[popovertarget={choice}]").first.click()
        page.get_by_label(asks).fill("Say it more kindly")
        page.locator(f"#{choice}").get_by_role("button", name=does).click()
        expect(page.locator("#toast")).to_contain_text("The agent can see this")
        page.goto(desk.url(id))
        expect(page.locator("#letter .state")).to_contain_text("Say it more kindly")
        said = agent.call("letter_status", id=id)
        assert said.values["status"] == "rejected"
        assert "Say it more kindly" in said.text


def test_another_version_is_not_asked_for_without_a_word(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.locator("button[popovertarget=revise]").first.click()
    page.locator("#revise").get_by_role("button", name="Ask for another version").click()
    expect(page.get_by_label("What should be different?")).to_be_focused()
    assert desk.state(id) == "pending"


def test_the_next_version_is_a_link_away(desk: Room, visits: Visits) -> None:
    id = desk.propose()
    page = visits.letter(desk, id)
    page.locator("button[popovertarget=revise]").first.click()
    page.get_by_label("What should be different?").fill("Shorter")
    page.locator("#revise").get_by_role("button", name="Ask for another version").click()
    expect(page.locator("#toast")).to_contain_text("Sent back")
    page.goto(desk.url(id))
    expect(page.locator("#letter .state")).to_contain_text("another version")
    desk.propose(replaces=id, body="Short.")
    page.reload()
    page.get_by_role("link", name="Its next version").click()
    expect(page.locator("#letter .body")).to_have_text("Short.")
