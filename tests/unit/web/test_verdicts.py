"""Verdicts on the page: what a person decides there is what the ledger has, and whoever comes second is told."""

from functools import partial
from pathlib import Path

import pytest

from postroom.core import life
from postroom.core.life import Approved, Rejected
from postroom.core.records import Entry
from tests.desks import BOB, HOUR, SEND, THREE_DAYS, Office, state
from tests.providers import BARRED, Courier
from tests.unit.web.browser import Answer, Browser, Site, at_once, opened, until

RED = {"text": "Your password: hunter2hunter2\n"}


def refused(answer: Answer, status: int, *words: str) -> None:
    """Assert that nothing was done, and that the page says why."""
    assert answer.status == status
    for word in words:
        assert word in answer.words, answer.words


# Yes


def test_what_is_approved_on_the_page_leaves_once_and_bears_the_persons_name(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    with opened(office) as site:
        answer = site.browser("Grace H.").decide(entry.id, "approve")
        assert answer.status == 200
        assert "sent in" in answer.words
    approved = office.desk.ledger.letters.past_states(entry.id)[-1]
    assert isinstance(approved, life.Approved)
    assert approved.verdict.by == "Grace H."
    assert approved.verdict.via == "page"
    assert approved.verdict.digest == entry.digest
    assert courier.accepted == []
    office.clock.go(10)
    with opened(office):
        until(lambda: office.state_of(entry.id) == "sent")
    assert [one.letter for one in courier.accepted] == [entry.letter]
    assert office.where(entry.id) == "Done"


def test_what_was_not_the_letter_on_the_page_is_not_approved(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    form = browser.get(f"/letter/{entry.id}").page.form("/approve")
    other = office.beside()
    other.desk.edit(entry.id, office.letter(id=entry.id, text="Something else.\n"))
    other.close()
    answer = browser.submit(form)
    refused(answer, 409, "Not done", "is not what you saw")
    assert office.state_of(entry.id) == "pending"
    assert "Something else." in answer.words  # what it is now
    assert answer.page.form("/approve").fields["digest"] != entry.digest


@pytest.mark.parametrize("digest", ["", "sha256:", "x", "sha256:" + "0" * 63, "sha256:" + "G" * 64])
def test_an_approval_that_names_no_digest_is_refused(
    office: Office, browser: Browser, digest: str
) -> None:
    entry = office.propose()
    for more in ({"digest": digest}, {"digest": entry.digest[:20]}, {"digest": entry.digest.upper()}, {}):  # fmt: skip
        refused(browser.post(f"/letter/{entry.id}/approve", more), 400, "Load the page again")
    assert office.state_of(entry.id) == "pending"


def test_the_digest_of_another_letter_approves_neither(office: Office, browser: Browser) -> None:
    one, other = office.propose(), office.propose()
    refused(browser.post(f"/letter/{one.id}/approve", digest=other.digest), 409, one.id)
    assert [office.state_of(e.id) for e in (one, other)] == ["pending", "pending"]


def test_a_rehearsed_letter_cannot_be_approved(tmp_path: Path) -> None:
    office = Office(tmp_path, live=False, source="dry_run")
    entry = office.propose()
    with opened(office) as site:
        browser = site.browser()
        assert "Rehearsed" in browser.get("/").words
        answer = browser.get(f"/letter/{entry.id}")
        assert not [f for f in answer.page.all("form") if "/approve" in f.attrs.get("action", "")]
        answer = browser.post(f"/letter/{entry.id}/approve", digest=entry.digest)
        refused(answer, 403, "dry_run = false")
    assert office.state_of(entry.id) == "rehearsal"
    office.close()


def test_while_postroom_rehearses_a_letter_that_waited_cannot_be_approved(office: Office) -> None:
    entry = office.propose()
    office.reopen(live=False)
    with opened(office) as site:
        browser = site.browser()
        answer = browser.post(f"/letter/{entry.id}/approve", digest=entry.digest)
        refused(answer, 403, "rehears", "dry_run = false")
        form = browser.get(f"/letter/{entry.id}/edit").page.form("/preview")
        shown = browser.submit(form, text="Other words.")
        changed = browser.submit(shown.page.form("/change"), then="approve")
        refused(changed, 403, "dry_run = false")
    found = office.desk.ledger.letters.get(entry.id)
    assert (found.kind, found.digest) == ("pending", entry.digest)


def test_red_lines_must_be_ticked_before_a_letter_is_approved(
    office: Office, browser: Browser
) -> None:
    entry = office.propose(office.letter(**RED))
    answer = browser.get(f"/letter/{entry.id}")
    assert "The text seems to contain a password" in answer.words
    form = answer.page.form("/approve")
    assert form.attrs["id"] == "verdict"
    ((name, value),) = answer.page.boxes.items()
    for more in ({}, {name: ""}, {name: "no"}, {name: "YES"}, {name: "on"}, {"seen": "yes"}, {f"{name}0": "yes"}):  # fmt: skip
        refused(browser.submit(form, more), 400, "red warning", "Tick")
        assert office.state_of(entry.id) == "pending"
    browser.submit(form, {name: value})
    assert office.state_of(entry.id) == "approved"


def test_a_letter_that_expired_cannot_be_approved_and_the_page_says_so(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    form = browser.get(f"/letter/{entry.id}").page.form("/approve")
    office.clock.go(THREE_DAYS)
    refused(browser.submit(form), 409, "expired without a verdict")
    assert office.state_of(entry.id) == "expired"
    assert browser.decide(entry.id, "reopen").status == 200
    assert office.state_of(entry.id) == "pending"


def test_a_note_that_was_edited_in_the_vault_blocks_approval_and_the_page_says_how(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    page = browser.get(f"/letter/{entry.id}").page
    office.edit(entry.id, "Good day", "Pay Eve. Good day")
    refused(browser.submit(page.form("/approve")), 409, "Not done", "was edited")
    assert office.state_of(entry.id) == "pending"
    answer = browser.get(f"/letter/{entry.id}")
    assert "Pay Eve." in answer.words
    assert f"postroom edit {entry.id} --from-note" in answer.words
    actions = {form.attrs["action"].rpartition("/")[2] for form in answer.page.all("form") if "action" in form.attrs}  # fmt: skip
    assert "approve" not in actions
    assert "reject" in actions
    refused(browser.get(f"/letter/{entry.id}/edit"), 409, "--from-note")
    office.edit(entry.id, "Pay Eve. Good day", "Good day")
    assert browser.decide(entry.id, "approve").status == 200
    assert office.state_of(entry.id) == "approved"


def test_the_page_says_how_much_of_the_budget_is_used_and_when_the_next_letter_may_leave(
    office: Office,
) -> None:
    office.reopen(sends_per_hour=1)
    first, second = office.propose(), office.propose(office.letter(subject="Two"))
    with opened(office) as site:
        browser = site.browser()
        assert "Sent: 0 of 1 letter this hour" in browser.get("/").words
        for entry in (first, second):
            assert browser.decide(entry.id, "approve").status == 200
            office.clock.go(10)
        until(lambda: state(office, second.id, Approved).held)
        held = browser.get(f"/letter/{second.id}").words
        assert "Approved, but held: 1 of 1 letter this hour, next at" in held


def test_a_paused_vault_is_said_on_every_page_and_holds_what_is_approved(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    (office.vault / "PAUSED").touch()
    with opened(office) as site:
        browser = site.browser()
        for path in ("/", f"/letter/{entry.id}", "/history", "/agents", "/health"):
            assert "Sending and triage are paused by the file PAUSED" in browser.get(path).words
        assert browser.decide(entry.id, "approve").status == 200
    office.clock.go(10)
    with opened(office) as site:
        until(lambda: state(office, entry.id, Approved).held)
        assert "held" in site.browser().get(f"/letter/{entry.id}").words
    assert courier.accepted == []
    (office.vault / "PAUSED").unlink()
    with opened(office) as site:
        until(lambda: office.state_of(entry.id) == "sent")
        assert "paused" not in site.browser().get("/").words


# No


@pytest.mark.parametrize("reason", ["", "Not like <b>this</b>, {please} %s"])
def test_a_rejection_reaches_the_agent_with_its_reason(
    office: Office, browser: Browser, reason: str
) -> None:
    entry = office.propose()
    answer = browser.decide(entry.id, "reject", reason=reason)
    assert answer.status == 200
    found = state(office, entry.id, Rejected)
    assert (found.by, found.reason, found.revise) == ("ada", reason, False)
    assert reason in answer.page.text
    assert office.where(entry.id) == "Rejected"


def test_another_version_is_asked_for_with_a_word_and_never_without(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    for reason in ("", "  ", "\n\t\n"):
        refused(browser.decide(entry.id, "revise", reason=reason), 400, "the agent reads it")
    assert office.state_of(entry.id) == "pending"
    assert browser.decide(entry.id, "revise", reason="Kinder,\nplease.").status == 200
    found = state(office, entry.id, Rejected)
    assert (found.revise, found.reason, found.by) == (True, "Kinder,\nplease.", "ada")


def test_the_next_version_is_a_link_away(office: Office, browser: Browser) -> None:
    first = office.propose()
    browser.decide(first.id, "revise", reason="Kinder")
    second = office.propose(office.letter(text="Kinder.\n"), replaces=first.id)
    page = browser.get(f"/letter/{first.id}").page
    assert [a for a in page.all("a") if a.text == "Its next version" and a.attrs["href"] == f"/letter/{second.id}"]  # fmt: skip


def test_a_long_reason_is_cut_and_invisible_characters_in_it_are_gone(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    browser.decide(entry.id, "reject", reason="a\u200bb\u202e" + "x" * 5000)
    assert state(office, entry.id, Rejected).reason == "ab" + "x" * 1998


# Taking back


def test_an_approval_is_undone_while_the_letter_can_be_recalled(
    office: Office, browser: Browser, courier: Courier
) -> None:
    entry = office.propose()
    answer = browser.decide(entry.id, "approve")
    answer = browser.submit(answer.page.form("/undo"))
    assert answer.status == 200
    assert office.state_of(entry.id) == "pending"
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert courier.tried == 0


def test_what_was_sent_cannot_be_undone_and_the_page_says_so(
    office: Office, browser: Browser, courier: Courier
) -> None:
    entry = office.propose()
    form = browser.decide(entry.id, "approve").page.form("/undo")
    office.clock.go(10)
    office.desk.send_approved()
    answer = browser.submit(form)
    refused(answer, 409, "Not done", "was sent")
    assert "cannot be recalled" in answer.words
    assert office.state_of(entry.id) == "sent"


def test_closed_letters_are_put_back_into_the_queue_and_sent_ones_never(
    office: Office, browser: Browser, courier: Courier
) -> None:
    rejected, withdrawn = office.propose(), office.propose()
    office.desk.decide(rejected.id, "reject", by="ada", reason="")
    office.desk.calls.withdraw(SEND, withdrawn.id)
    for entry in (rejected, withdrawn):
        browser.decide(entry.id, "reopen")
        assert office.state_of(entry.id) == "pending"
    sent = office.approved()
    office.desk.send_approved()
    refused(browser.post(f"/letter/{sent.id}/reopen"), 409, "was sent")
    courier.refuses(BARRED)
    failed = office.approved()
    office.desk.send_approved()
    assert office.state_of(failed.id) == "failed"
    assert "the server wants none of this" in browser.get(f"/letter/{failed.id}").words
    browser.decide(failed.id, "reopen")
    assert office.state_of(failed.id) == "pending"


# Not known


@pytest.fixture
def lost(office: Office, courier: Courier) -> Entry:
    """A letter that may or may not have been sent."""
    courier.settles = False
    courier.loses(after=False)
    entry = office.approved()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "unknown"
    return entry


def test_a_letter_that_may_have_been_sent_stands_first_and_is_resolved_by_a_person(
    office: Office, browser: Browser, lost: Entry, courier: Courier
) -> None:
    office.propose()
    queue = browser.get("/").page.one(id="queue")
    assert [one.words for one in queue.all("h2")] == ["May or may not have been sent 1", "Needs a look 1"]  # fmt: skip
    assert queue.all("a")[0].attrs["data-id"] == lost.id
    page = browser.get(f"/letter/{lost.id}").page
    yes, no = [f for f in page.all("form") if f.attrs.get("action", "").endswith("/resolve")]
    for wrong in ({"sent": ""}, {"sent": "maybe"}):
        refused(browser.submit(yes, wrong), 400, "Was it sent or not?")
    assert office.state_of(lost.id) == "unknown"
    assert no.fields["sent"] == "no"
    browser.submit(yes)
    found = state(office, lost.id)
    assert isinstance(found, life.Sent)
    assert "ada" in found.how
    refused(browser.submit(no), 409, "was sent")
    assert courier.tried == 1


def test_a_letter_that_was_not_sent_waits_again(
    office: Office, browser: Browser, lost: Entry
) -> None:
    browser.post(f"/letter/{lost.id}/resolve", sent="no")
    assert office.state_of(lost.id) == "pending"


# Two at once


def test_of_two_who_decide_at_once_one_is_told_what_the_other_decided(
    office: Office, site: Site
) -> None:
    for _ in range(4):
        entry = office.propose()
        yes, no = site.browser("ada"), site.browser("bob")
        pages = [one.get(f"/letter/{entry.id}").page for one in (yes, no)]
        answers = at_once(
            partial(yes.submit, pages[0].form("/approve"), follow=False),
            partial(no.submit, pages[1].form("/reject"), follow=False),
        )
        statuses = [answer.status for answer in answers]
        # Within the same moment, no is stronger: an approval that has not left can be rejected.
        if statuses == [303, 303]:
            assert office.state_of(entry.id) == "rejected"
            continue
        assert sorted(statuses) == [303, 409]
        first = statuses.index(303)
        assert office.state_of(entry.id) == ("approved", "rejected")[first]
        told = ("ada already approved it", "bob already rejected it")[first]
        assert told in answers[1 - first].words


def test_of_two_that_resolve_or_reject_at_once_one_is_told(office: Office, site: Site) -> None:
    entry = office.propose()
    browsers = [site.browser(name) for name in ("ada", "bob")]
    forms = [one.get(f"/letter/{entry.id}").page.form("/reject") for one in browsers]
    answers = at_once(
        *[partial(one.submit, form, reason="no", follow=False) for one, form in zip(browsers, forms, strict=True)]
    )  # fmt: skip
    assert sorted(answer.status for answer in answers) == [303, 409]
    assert office.state_of(entry.id) == "rejected"


def test_twenty_approvals_at_once_send_one_letter(office: Office, courier: Courier) -> None:
    entry = office.propose()
    with opened(office) as site:
        browser = site.browser()
        form = browser.get(f"/letter/{entry.id}").page.form("/approve")
        answers = at_once(*[lambda: browser.submit(form, follow=False)] * 20)
        assert sorted(answer.status for answer in answers) == [303] + [409] * 19
    kinds = [life.name(one) for one in office.desk.ledger.letters.past_states(entry.id)]
    assert kinds == ["pending", "approved"]
    office.clock.go(10)
    other = office.beside()
    with opened(office), opened(other):
        until(lambda: office.state_of(entry.id) == "sent")
    other.close()
    assert len(courier.accepted) == 1
    assert office.sent() == ["Hello"]


# What is not there


@pytest.mark.parametrize(
    "id",
    ["zzzzzzzzzz", "%00", "%27%20OR%201=1", "<script>alert(1)</script>", "%3Cscript%3E", "..%2f..", "a" * 3000, "%ED%A0%80", "{id}", "%25s", "é"],
)  # fmt: skip
def test_a_letter_that_is_not_there_is_a_page_that_says_so(
    office: Office, browser: Browser, id: str
) -> None:
    office.propose()
    for path in ("", "/edit", "/source", "/text", "/thread", "/file/0"):
        answer = browser.get(f"/letter/{id}{path}")
        assert answer.status == 404, path
        assert "Not found" in answer.words
        assert len(answer.page.all("script")) == 1  # the page's own
    for verb in ("approve", "reject", "revise", "undo", "resolve", "reopen", "edit", "preview", "change"):  # fmt: skip
        answer = browser.post(f"/letter/{id}/{verb}", digest="sha256:" + "0" * 64, reason="x", sent="yes")  # fmt: skip
        assert answer.status == 404, verb


def test_everybody_who_gets_the_letter_is_in_what_was_approved(
    office: Office, browser: Browser, courier: Courier
) -> None:
    entry = office.propose(office.letter(cc=(BOB,)))
    browser.decide(entry.id, "approve")
    office.clock.go(10)
    office.desk.send_approved()
    (accepted,) = courier.accepted
    assert accepted.letter.digest == entry.digest


def test_what_was_done_is_said_once_it_is_done(office: Office, browser: Browser) -> None:
    entry = office.propose()
    for verb, said in (("approve", "Approved."), ("undo", "Approval undone. Nothing was sent."), ("reject", "Rejected. The agent can see this."), ("reopen", "Back in the queue.")):  # fmt: skip
        assert said in browser.decide(entry.id, verb).words


def test_a_letter_can_be_recalled_from_the_queue(office: Office, browser: Browser) -> None:
    entry = office.propose()
    browser.decide(entry.id, "approve")
    queue = browser.get("/").page.one(id="queue")
    assert queue.one("h2").words == "Sending 1"
    (row,) = queue.all("a")
    browser.submit(browser.get(row.attrs["href"]).page.form("/undo"))
    assert office.state_of(entry.id) == "pending"


def test_a_letter_that_failed_stands_in_the_queue_for_a_while(
    office: Office, browser: Browser, courier: Courier
) -> None:
    entry = office.approved(subject="Never left")
    courier.refuses(BARRED)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "failed"
    queue = browser.get("/").page.one(id="queue")
    assert "Could not be sent" in queue.text
    assert "Never left" in queue.text
    office.clock.go(4 * 86_400)
    assert "Never left" not in browser.get("/").page.one(id="queue").text


def test_the_log_says_whose_word_each_was(office: Office, browser: Browser) -> None:
    entry = office.propose()
    browser.decide(entry.id, "approve")
    browser.decide(entry.id, "undo")
    browser.decide(entry.id, "reject")
    browser.decide(entry.id, "reopen")
    records = [one for one in office.desk.log.records(letter=entry.id) if one["actor"] == "person"]
    assert [one["action_type"] for one in records] == ["approve_letter", "undo_letter", "reject_letter", "reopen_letter"]  # fmt: skip
    assert {one["parameters"]["by"] for one in records} == {"ada"}


def test_addresses_may_be_separated_as_other_programs_do(office: Office, browser: Browser) -> None:
    entry = office.propose()
    form = browser.get(f"/letter/{entry.id}/edit").page.form("/preview")
    shown = browser.submit(form, to="ann@example.com; bob@example.net")
    browser.submit(shown.page.form("/change"), then="wait")
    assert [a.spec for a in office.desk.ledger.letters.get(entry.id).letter.to] == ["ann@example.com", "bob@example.net"]  # fmt: skip
