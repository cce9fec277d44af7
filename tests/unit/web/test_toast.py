"""After a verdict on the page: what is confirmed and can be taken back, and which letter is shown next."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest

from postroom.core.records import Entry
from postroom.web.handlers import CONFIRMATIONS
from tests.desks import ANN, BOB, CAT, START, Office
from tests.mails import mail
from tests.providers import Courier
from tests.unit.web.browser import Browser, Node, opened


def toast(page: Node) -> str:
    return page.one(id="toast").words


def verdict(browser: Browser, entry: Entry, verb: str, **fields: str) -> str:
    """Carry out a verdict; return the address that the page goes to."""
    form = browser.get(f"/letter/{entry.id}").page.form(f"/{verb}")
    answer = browser.submit(form, fields, follow=False)
    assert answer.status == 303, answer.words
    return answer.headers["location"]


# What is confirmed


@pytest.mark.parametrize(
    ("verb", "sentence", "back"),
    [
        ("approve", "Approved.", "undo"),
        ("reject", "Rejected. The agent can see this.", "reopen"),
        ("revise", "Sent back for another version. The agent can see this.", "reopen"),
    ],
)
def test_a_verdict_is_confirmed_where_it_was_given_and_can_be_taken_back_there(
    office: Office, browser: Browser, verb: str, sentence: str, back: str
) -> None:
    entry = office.propose()
    address = verdict(browser, entry, verb, reason="Kinder, please.")
    assert address == f"/letter/{entry.id}?done={verb}"
    page = browser.get(address).page
    assert toast(page).startswith(sentence)
    assert not page.one(id="toast").all("a")  # the letter itself is open
    (form,) = page.one(id="toast").all("form")
    assert form.attrs["action"] == f"/letter/{entry.id}/{back}"
    assert form.words == "Undo U"
    answer = browser.submit(form)
    assert answer.status == 200
    assert office.state_of(entry.id) == "pending"
    assert toast(answer.page) == CONFIRMATIONS[back][2]
    assert not answer.page.one(id="toast").all("form")
    assert toast(browser.get(f"/letter/{entry.id}").page) == ""


def test_an_approval_says_when_the_letter_leaves_and_an_undo_that_is_too_late_does_nothing(
    office: Office, browser: Browser, courier: Courier
) -> None:
    entry = office.propose()
    address = verdict(browser, entry, "approve")
    office.clock.go(4)
    page = browser.get(address).page
    assert "Approved. It will be sent in 6 s." in toast(page)
    (form,) = page.one(id="toast").all("form")
    office.clock.go(6)
    office.desk.send_approved()
    answer = browser.submit(form)
    assert answer.status == 409
    assert "Not done" in answer.words
    assert toast(answer.page) == ""
    assert len(courier.accepted) == 1


def test_a_letter_that_was_sent_already_is_confirmed_without_an_undo(
    office: Office, courier: Courier
) -> None:
    office.reopen(undo_seconds=0)
    entry = office.propose()
    with opened(office) as site:
        browser = site.browser()
        address = verdict(browser, entry, "approve")
        office.desk.send_approved()
        page = browser.get(address).page
        assert toast(page).startswith("Approved.")
        assert not page.one(id="toast").all("form")
    assert office.state_of(entry.id) == "sent"


def test_an_edit_is_confirmed_as_saved_or_as_approved(office: Office, browser: Browser) -> None:
    for then, sentence, has_undo in (("wait", "Saved. The letter is waiting for you.", False), ("approve", "Changed and approved.", True)):  # fmt: skip
        entry = office.propose()
        form = browser.get(f"/letter/{entry.id}/edit").page.form("/preview")
        shown = browser.submit(form, text="Other words.")
        answer = browser.submit(shown.page.form("/change"), then=then)
        assert toast(answer.page).startswith(sentence)
        assert bool(answer.page.one(id="toast").all("form")) == has_undo


def test_an_answer_of_what_became_of_a_lost_letter_is_recorded_and_cannot_be_taken_back(
    office: Office, browser: Browser, courier: Courier
) -> None:
    courier.settles = False
    courier.loses(after=False)
    entry = office.approved()
    office.desk.send_approved()
    page = browser.get(verdict(browser, entry, "resolve", sent="no")).page
    assert toast(page) == "Recorded."
    assert not page.one(id="toast").all("form")


# What is not


def test_a_link_from_elsewhere_confirms_nothing_that_was_not_done(
    office: Office, browser: Browser
) -> None:
    waits, rejected = office.propose(), office.propose()
    office.desk.decide(rejected.id, "reject", by="ada", reason="")
    hostile = ("", "nonsense", "Approve", "approve\0", "<script>alert(1)</script>", "../approve", "x" * 5_000)  # fmt: skip
    for done in (*CONFIRMATIONS, *hostile):
        for of in (None, waits.id, "zzzzzzzzzz", "", "\0", "<b>", f"{waits.id}/", "é", "x" * 5_000):
            query = urlencode({"done": done} | ({} if of is None else {"of": of}))
            for path in ("/", f"/letter/{waits.id}"):
                answer = browser.get(f"{path}?{query}")
                assert (answer.status, toast(answer.page)) == (200, ""), (path, done, of)
        for path in ("/history", "/agents", "/health"):
            assert toast(browser.get(f"{path}?done={quote(done)}&of={rejected.id}").page) == ""
    for done in set(CONFIRMATIONS) - {"reject", "revise"}:
        assert toast(browser.get(f"/letter/{rejected.id}?done={done}").page) == "", done


def test_what_was_done_before_the_last_step_is_not_confirmed_again(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    approved, undone = (verdict(browser, entry, verb) for verb in ("approve", "undo"))
    assert toast(browser.get(approved).page) == ""
    assert toast(browser.get(undone).page) == "Approval undone. Nothing was sent."
    rejected, reopened = (verdict(browser, entry, verb) for verb in ("reject", "reopen"))
    for address in (approved, undone, rejected):
        assert toast(browser.get(address).page) == ""
    assert toast(browser.get(reopened).page) == "Back in the queue."


# Whom you know now


def test_a_first_letter_to_somebody_is_said_once_it_is_approved(
    office: Office, browser: Browser
) -> None:
    one = office.propose()
    assert "You know ann@example.com now." in toast(
        browser.get(verdict(browser, one, "approve")).page
    )
    several = office.propose(office.letter(to=(CAT, BOB), cc=(ANN,)))
    page = browser.get(verdict(browser, several, "approve")).page
    assert f"You know {CAT.spec} and 2 others now." in toast(page)
    other = office.propose(office.letter(to=(BOB,)))
    assert "You know" not in toast(browser.get(verdict(browser, other, "reject")).page)


def test_a_letter_to_people_who_are_known_says_nothing_of_them(
    office: Office, browser: Browser
) -> None:
    from postroom.mail.mailbox import Arrival

    raw = mail(sender="you@example.org", to=ANN.spec, subject="Earlier")
    office.box.add_mails([Arrival(raw, frozenset({"SENT"}), int(START) - 86_400)])
    entry = office.propose()
    text = toast(browser.get(verdict(browser, entry, "approve")).page)
    assert text.startswith("Approved.")
    assert "You know" not in text


# The next letter


def test_the_page_goes_on_to_the_letter_that_the_form_names_and_confirms_there(
    office: Office, browser: Browser
) -> None:
    first, second = office.propose(office.letter(subject="First <b>")), office.propose()
    address = verdict(browser, first, "approve", next=second.id)
    assert address == f"/letter/{second.id}?of={first.id}&done=approve"
    page = browser.get(address).page
    assert page.one("article").attrs["data-letter"] == second.id
    assert toast(page).startswith("First <b>: Approved.")
    assert page.one(id="toast").one("a").attrs["href"] == f"/letter/{first.id}"
    browser.submit(page.one(id="toast").one("form"))
    assert (office.state_of(first.id), office.state_of(second.id)) == ("pending", "pending")


def test_a_next_letter_that_does_not_wait_any_more_leads_to_the_queue(
    office: Office, browser: Browser
) -> None:
    gone, last = office.propose(), office.propose()
    office.desk.decide(gone.id, "reject", by="bob", reason="")
    for following in (gone.id, last.id, ""):
        entry = last if following == last.id else office.propose()
        address = verdict(browser, entry, "reject", next=following)
        assert address == f"/?of={entry.id}&done=reject", following
    page = browser.get(address).page
    assert toast(page).startswith("Hello: Rejected.")


def test_a_next_letter_that_there_is_none_of_leads_to_the_queue_and_nowhere_else(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    hostile = ("zzzzzzzzzz", "//evil.example", "https://evil.example/", "../../in/x", "\\evil", "<script>", "é", "\0", "x" * 5_000, f" {entry.id}", "?a=1", "%0d%0aSet-Cookie: a=b")  # fmt: skip
    for following in hostile:
        address = verdict(browser, entry, "reject", next=following)
        assert address == f"/?of={entry.id}&done=reject", following
        office.desk.decide(entry.id, "reopen")


def test_the_filter_is_kept_on_the_way_to_the_next_letter(office: Office, browser: Browser) -> None:
    first, second = office.propose(), office.propose()
    given = {"q": "hello & good", "risk": "amber"}
    form = browser.get(f"/letter/{first.id}?{urlencode(given)}").page.form(f"/reject?{urlencode(given)}")  # fmt: skip
    for following, path in ((second.id, f"/letter/{second.id}"), ("", "/")):
        answer = browser.submit(form, {"next": following}, follow=False)
        there = urlsplit(answer.headers["location"])
        wanted = {"of": [first.id], "done": ["reject"]} | {name: [one] for name, one in given.items()}  # fmt: skip
        assert (there.path, parse_qs(there.query)) == (path, wanted)
        office.desk.decide(first.id, "reopen")


def test_a_verdict_that_is_refused_leads_nowhere(office: Office, browser: Browser) -> None:
    entry, other = office.propose(office.letter(text="The password is hunter2hunter2\n")), office.propose()  # fmt: skip
    form = browser.get(f"/letter/{entry.id}").page.form("/approve")
    answer = browser.submit(form, next=other.id, follow=False)
    assert answer.status == 400
    form = browser.get(f"/letter/{other.id}").page.form("/approve")
    office.desk.decide(other.id, "reject", by="bob", reason="no")
    answer = browser.submit(form, next=entry.id, follow=False)
    assert answer.status == 409
    assert answer.page.one("article").attrs["data-letter"] == other.id
    assert "bob already rejected it: no" in answer.page.one(id="notices").words
    assert toast(answer.page) == ""
