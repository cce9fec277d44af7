"""The desk with Gmail behind it, when answers are lost and requests are carried out late."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from postroom.config.loading import load
from postroom.core import life
from postroom.core.address import Address
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.desk.desk import Desk
from postroom.desk.dispatch import Dispatcher
from postroom.desk.proposals import Proposal, Written
from postroom.desk.recorder import Call
from postroom.mail.mailbox import Accepted
from postroom.services.services import Services
from postroom.vault.note import Note
from postroom.wiring.desk import find_desk
from tests.cases import for_each
from tests.conftest import Person
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail, keep
from tests.narrow import narrow
from tests.posting import post as ask

AGENT = Call("send_email", "claude")
ANN, BOB = Address.parse("ann@example.com"), Address.parse("bob@example.com")
ACT = r"POST /gmail/v1/users/me/(drafts|messages)/send$"
DAY = 86_400


class Post:
    """A person whose letters leave through Gmail, and the agent who writes them."""

    def __init__(self, person: Person, service: Gmail) -> None:
        self.person = person
        self.service = service
        self.ahead = 0
        person.live(undo_seconds=0)
        self.token = at_gmail(person, service)

    @contextmanager
    def desk(self) -> Iterator[Desk]:
        config = load(self.person.environment, self.person.folder, self.person.folder)
        with find_desk(config, make=True, transport=self.service.transport()) as found:
            assert found is not None
            yield found

    def use(self, service: Gmail) -> None:
        """Sign in at this service from now on."""
        self.service = service
        self.token = at_gmail(self.person, service)

    def write(self, desk: Desk, subject: str = "Tea") -> Entry:
        letter = desk.composer.letter(Written((ANN,), subject, "At four.\n"))
        return ask(desk, AGENT, letter, Proposal())

    def approve(self, desk: Desk, id: str) -> life.State:
        desk.approve(id, by="ada", digest=desk.ledger.letters.get(id).digest)
        desk.send_approved()
        return desk.ledger.letters.get(id).state

    def carry_out_late(self) -> int:
        """Have Gmail carry out the last send whose answer was lost, as if it had been held up."""
        lost = next(one for one in reversed(self.service.requests) if one.path.endswith("/send"))
        assert lost.status == 0
        token = json.loads(self.token.read_text())["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with httpx2.Client(transport=self.service.transport()) as client:
            address = f"{self.service.endpoint}{lost.path}"
            return client.post(address, headers=headers, content=lost.body).status_code

    def forget_waits(self, **changes: int) -> None:
        """Make what waits due, and change what the ledger keeps of the letter's state."""
        file = self.person.folder / "state" / "ledger.sqlite"
        with closing(sqlite3.connect(file)) as ledger:
            for id, detail in ledger.execute("SELECT id, detail FROM letter").fetchall():
                values = (
                    json.loads(detail) | {"wait": 0} if "wait" in detail else json.loads(detail)
                )
                for key, seconds in changes.items():
                    wall, boot, steady = values[key]
                    values[key] = [wall - seconds, boot, steady - seconds]
                ledger.execute(
                    "UPDATE letter SET detail = ? WHERE id = ?", [json.dumps(values), id]
                )
            ledger.commit()

    def lose(self, desk: Desk) -> str:
        """Write and approve a letter whose first request never reaches Gmail; return its id."""
        id = self.write(desk).id
        self.service.fail(ACT, lost="before")
        self.approve(desk, id)
        return id


@pytest.fixture
def service() -> Gmail:
    return Gmail()


@pytest.fixture
def post(person: Person, service: Gmail) -> Post:
    return Post(person, service)


def name(state: life.State) -> str:
    return type(state).__name__.lower()


def test_an_approval_taken_back_and_given_again_does_not_send_a_second_time(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, lost="before")
        assert name(post.approve(desk, id)) == "approved"
        desk.decide(id, "undo")
        assert post.carry_out_late() == 200
        assert name(post.approve(desk, id)) == "sent"
    assert len(service.sent) == 1


def test_a_request_that_comes_after_the_next_try_finds_the_draft_gone(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        desk.approve(id, by="ada", digest=desk.ledger.letters.get(id).digest)
        desk.dispatch(id)
        service.requests[:] = [one for one in service.requests if one.status != 200]
        assert post.carry_out_late() == 404
    assert len(service.sent) == 1


@for_each("is_late", [True, False])
def test_a_try_that_is_repeated_with_a_new_token_sends_nothing_twice(
    post: Post, service: Gmail, is_late: bool
) -> None:
    with post.desk() as desk:
        id = post.write(desk, str(is_late)).id
        service.fail(ACT, lost="before")
        assert name(post.approve(desk, id)) == "approved"
        if is_late:
            assert post.carry_out_late() == 200
        before = len(service.requests)
        service.fail(ACT, status=401)
        assert [entry.kind for entry in desk.send_approved()] == ["sent"]
        sends = [one.status for one in service.requests[before:] if re.search("/send$", one.path)]
        assert sends == [401, 404 if is_late else 200]
    assert [one.letter for one in service.sent].count(id) == 1
    assert not service.mailbox.drafts


@for_each(("is_lost", "wanted"), [(True, "unknown"), (False, "rejected")])
def test_a_try_that_was_refused_for_its_token_counts_as_answered(
    post: Post, service: Gmail, is_lost: bool, wanted: str
) -> None:
    with post.desk() as desk:
        id = post.write(desk, wanted).id
        service.fail(ACT, status=401)
        service.fail(ACT, **({"lost": "before"} if is_lost else {"status": 429}))
        assert name(post.approve(desk, id)) == "approved"
        desk.decide(id, "reject", by="ada", reason="no")
        service.mailbox.drafts.clear()  # the person deletes it
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == wanted


def test_a_changed_letter_is_not_taken_for_sent_because_an_earlier_version_was(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        assert post.carry_out_late() == 200
        entry = desk.ledger.letters.get(id)
        desk.edit(id, replace(entry.letter, to=(BOB,), text="At five.\n"))
        assert name(post.approve(desk, id)) == "unknown"
    assert [one.letter for one in service.sent] == [id]


def test_a_rejected_letter_that_was_carried_out_late_is_told_as_sent(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "reject", by="ada", reason="no")
        assert post.carry_out_late() == 200
        assert [entry.id for entry in desk.send_approved()] == [id]
        assert desk.ledger.letters.get(id).kind == "sent"
        assert narrow(desk.ledger.letters.get(id).state, life.Sent).how == "proved by the provider"


def test_a_rejected_letter_of_which_an_earlier_version_left_late_is_unknown(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="At five.\n"))
        desk.decide(id, "reject", by="ada", reason="no")
        assert post.carry_out_late() == 200
        assert [entry.id for entry in desk.send_approved()] == [id]
        state = narrow(desk.ledger.letters.get(id).state, life.Unknown)
        assert "an earlier version of it may have left" in state.why
        assert desk.ledger.proofs.get(id) is None


def test_a_letter_leaves_by_no_other_account_than_the_one_it_was_approved_for(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
    other = Gmail("mallory@example.net", aliases=())
    post.use(other)
    with post.desk() as desk:
        state = post.approve(desk, id)
        assert isinstance(state, life.Approved)
        assert "you@example.org" in state.held
    assert not other.sent
    assert not service.sent


@for_each(("status", "reason"), [(400, "invalidArgument"), (404, "notFound"), (403, "forbidden")])
def test_what_gmail_refuses_for_good_while_the_draft_is_made_fails(
    post: Post, service: Gmail, status: int, reason: str
) -> None:
    with post.desk() as desk:
        id = post.write(desk, reason).id
        service.fail(r"POST /gmail/v1/users/me/drafts$", status=status, reason=reason)
        assert name(post.approve(desk, id)) == "failed"


def test_a_server_that_fails_for_long_is_not_asked_without_a_pause(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, status=503, times=99)
        post.approve(desk, id)
        for _ in range(20):
            desk.send_approved()
        assert sum(one.path.endswith("/drafts/send") for one in service.requests) == 4
        assert "unsent" in narrow(desk.ledger.letters.get(id).state, life.Approved).held


def test_a_letter_that_was_unknown_for_long_needs_a_new_verdict(post: Post, service: Gmail) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, lost="before")
        away = service.fail(
            r"GET /gmail/v1/users/me/drafts/", status=403, reason="forbidden", times=99
        )
        assert name(post.approve(desk, id)) == "unknown"
        away.times = 0
        post.forget_waits(at=2 * DAY, asked=2 * DAY)
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "pending"
        assert name(post.approve(desk, id)) == "sent"
    assert len(service.sent) == 1


def test_a_letter_that_turns_out_unsent_may_leave_from_that_moment_on(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, lost="before")
        away = service.fail(
            r"GET /gmail/v1/users/me/drafts/", status=403, reason="forbidden", times=99
        )
        assert name(post.approve(desk, id)) == "unknown"
        away.times = 0
        post.forget_waits(asked=120)
        desk.send_approved()
        state = narrow(desk.ledger.letters.get(id).state, life.Approved)
        note = Note.parse((post.person.vault / desk.ledger.notes.location(id).path).read_bytes())
        assert note.text("next_try") == state.since.iso.removesuffix("Z")
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "sent"
    assert len(service.sent) == 1


def test_a_strange_answer_about_one_letter_holds_up_no_other(post: Post, service: Gmail) -> None:
    with post.desk() as desk:
        first, second = post.write(desk, "one").id, post.write(desk, "two").id
        service.fail(ACT, lost="before")
        service.fail(r"GET /gmail/v1/users/me/drafts/", body=b'{"id": []}', status=418)
        for id in (first, second):
            desk.approve(id, by="ada", digest=desk.ledger.letters.get(id).digest)
        desk.send_approved()
        assert desk.ledger.letters.get(first).kind == "unknown"
        assert desk.ledger.letters.get(second).kind == "sent"


def test_a_ledger_copied_between_the_claim_and_its_proof_does_not_send_again(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        assert name(post.approve(desk, id)) == "sent"
        entry = desk.ledger.letters.get(id)
        box = Services(desk).mailbox.box("")
        settled = narrow(box.find_outcome(entry.letter, ""), Accepted)
        assert settled.message == narrow(entry.state, life.Sent).message


def test_an_account_without_a_display_name_writes_letters(person: Person) -> None:
    post = Post(person, Gmail(name="", aliases=()))
    with post.desk() as desk:
        assert post.write(desk).letter.sender.spec == "you@example.org"


def test_signing_in_as_somebody_else_is_noticed_by_a_server_that_runs(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        box = Services(desk).mailbox.box("")
        assert box.own_addresses()[0].spec == "you@example.org"
        keep(post.token, service.token())
        service.expire()
        service.requests.clear()
        keep(post.token, service.token())
        box.search("x")
        box.own_addresses()
        assert [one.path for one in service.requests if "sendAs" in one.path]


# Killed at every step


class Killed(BaseException):
    """The process is gone."""


def die_at(number: int) -> tuple[Callable[[str], None], list[str]]:
    """Return a step that lets so many pass, and ends the process at the next."""
    passed: list[str] = []

    def step(name: str) -> None:
        passed.append(name)
        if len(passed) == number:
            raise Killed(name)

    return step, passed


STORIES: dict[str, tuple[dict[str, Any], bool]] = {
    "plain": ({}, False),
    "answer lost, carried out": ({"lost": "after"}, False),
    "answer lost, not carried out": ({"lost": "before"}, False),
    "rejected after a first try": ({"lost": "before"}, True),
}


@pytest.mark.parametrize("story", STORIES)
def test_killed_at_any_step_a_letter_is_sent_once_and_nothing_is_left_behind(
    person: Person, story: str
) -> None:
    fault, rejected = STORIES[story]
    number, ended = 0, False
    while not ended:
        number += 1
        service = Gmail()
        folder = person.folder / str(number)
        folder.mkdir()
        post = Post(type(person)(folder), service)
        with post.desk() as desk:
            id = post.write(desk).id
            desk.approve(id, by="ada", digest=desk.ledger.letters.get(id).digest)
            if fault:
                service.fail(ACT, **fault)
            if rejected:
                desk.send_approved()
                desk.decide(id, "reject", by="ada", reason="no")
            step, passed = die_at(number)
            try:
                replace(desk.dispatcher, crash_point=step).dispatch_all()
            except Killed:
                pass
            else:
                ended = True
        with post.desk() as desk:
            for _ in range(3):
                desk.send_approved()
            entry = desk.ledger.letters.get(id)
            # Whether the draft was deleted or sent at last nobody knows who died just then.
            wanted = "unknown" if passed[-1] == "released" and not ended else "rejected"
            assert entry.kind == (wanted if rejected else "sent"), passed
            assert desk.ledger.proofs.get(id) is None, passed
        assert len(service.sent) == (not rejected), passed
        assert not service.mailbox.drafts, passed
    assert number >= 3


def test_a_letter_whose_account_is_anothers_now_waits_for_its_own(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, lost="before")
        away = service.fail(
            r"GET /gmail/v1/users/me/drafts/", status=403, reason="forbidden", times=99
        )
        post.approve(desk, id)
        proof = desk.ledger.proofs.get(id)
    away.times = 0
    post.use(Gmail("mallory@example.net", aliases=()))
    post.forget_waits(asked=120)
    with post.desk() as desk:
        desk.send_approved()
        assert (desk.ledger.letters.get(id).kind, desk.ledger.proofs.get(id)) == ("unknown", proof)
    post.use(service)
    post.forget_waits(asked=120)
    with post.desk() as desk:
        desk.send_approved()
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "sent"
    assert len(service.sent) == 1


@pytest.mark.parametrize(
    "change",
    [{"bcc": (BOB,)}, {"text": "At €500.\n"}, {"subject": "TEA"}, {"text": "At four\n"}],
    ids=str,
)
def test_whatever_was_changed_an_earlier_version_that_left_is_not_this_one(
    post: Post, service: Gmail, change: dict[str, Any]
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        post.carry_out_late()
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, **change))
        assert name(post.approve(desk, id)) == "unknown"
        post.forget_waits(asked=120)
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "unknown"
        desk.decide(id, "resolve", by="ada", sent=False)
        assert name(post.approve(desk, id)) == "sent"


def test_a_changed_letter_leaves_in_its_new_version_and_the_old_draft_is_gone(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="At five.\n"))
        assert name(post.approve(desk, id)) == "sent"
        service.requests[:] = [one for one in service.requests if one.status == 0]
        assert post.carry_out_late() == 404
    (left,) = service.sent
    assert b"At five." in left.raw


def test_a_draft_that_we_deleted_ourselves_makes_no_rejected_letter_unknown(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, status=429, headers={"Retry-After": "60"})
        post.approve(desk, id)
        desk.decide(id, "reject", by="ada", reason="no")
        service.fail(r"DELETE /gmail/v1/users/me/drafts/", lost="after")
        desk.send_approved()
        proof = desk.ledger.proofs.get(id)
        assert proof is not None
        assert not proof.unanswered
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "rejected"
        assert desk.ledger.proofs.get(id) is None


def test_another_provider_does_not_judge_by_gmails_draft(post: Post, service: Gmail) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, lost="after")
        away = service.fail(r"GET /gmail/v1/users/me/", status=403, reason="forbidden", times=99)
        assert name(post.approve(desk, id)) == "unknown"
    away.times = 0
    post.person.environment["POSTROOM_PROVIDER"] = "local"
    post.forget_waits(asked=120)
    with post.desk() as desk:
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "unknown"
    assert not post.person.run("search", "in:sent", "--json").json["messages"]


def test_a_letter_that_a_person_calls_sent_gives_its_draft_back(post: Post, service: Gmail) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.fail(ACT, lost="before")
        away = service.fail(
            r"GET /gmail/v1/users/me/drafts/", status=403, reason="forbidden", times=99
        )
        post.approve(desk, id)
        away.times = 0
        desk.decide(id, "resolve", by="ada", sent=True)
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "sent"
        assert post.carry_out_late() == 404
    assert not service.mailbox.drafts
    assert not service.sent


def test_a_ledger_from_a_backup_sweeps_up_what_its_successor_prepared(
    post: Post, service: Gmail
) -> None:
    state = post.person.folder / "state"
    with post.desk() as desk:
        id = post.write(desk).id
    saved = {file.name: file.read_bytes() for file in state.glob("ledger.sqlite*")}
    with post.desk() as desk:
        service.fail(ACT, lost="before")
        post.approve(desk, id)
    for file in state.glob("ledger.sqlite*"):
        file.unlink()
    for copy, content in saved.items():
        (state / copy).write_bytes(content)
    with post.desk() as desk:
        desk.reconcile()
        if desk.ledger.letters.get(id).kind == "unknown":
            desk.decide(id, "resolve", by="ada", sent=False)
        assert name(post.approve(desk, id)) == "sent"
        service.requests[:] = [one for one in service.requests if one.status == 0]
        assert post.carry_out_late() == 404
    assert len(service.sent) == 1


# A refusal after a lost answer proves nothing

DELETE = r"DELETE /gmail/v1/users/me/drafts/"
CREATE = r"POST /gmail/v1/users/me/drafts$"
MANY = 1000  # messages, and requests


def later(desk: Desk, seconds: float) -> Dispatcher:
    """Return the desk's dispatcher as it is so many seconds from now."""
    clock = desk.dispatcher.clock

    def ahead() -> Stamp:
        wall, boot, steady = clock()
        return Stamp(wall + seconds, boot, steady + seconds)

    return replace(desk.dispatcher, clock=ahead)


def look_later(post: Post, desk: Desk, times: int = 2) -> None:
    """Let dispatchers run, with a pause before each."""
    for _ in range(times):
        post.ahead += 1000
        later(desk, post.ahead).dispatch_all()


def test_a_letter_accepted_late_is_not_failed_because_its_second_try_is_refused(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        assert post.carry_out_late() == 200
        service.fail(ACT, status=403, reason="forbidden")
        service.fail(DELETE, status=500)
        service.lists_lag = MANY
        look_later(post, desk)
        assert desk.ledger.letters.get(id).kind == "unknown"
        service.lists_lag = 0
        look_later(post, desk)
        assert desk.ledger.letters.get(id).kind == "sent"
    assert len(service.sent) == 1


def test_a_letter_that_failed_and_is_accepted_afterwards_is_unknown_until_it_is_found(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        service.fail(ACT, status=403, reason="forbidden")
        failing = service.fail(DELETE, status=500, times=MANY)
        look_later(post, desk)
        assert desk.ledger.letters.get(id).kind == "failed"
        service.requests[:] = [one for one in service.requests if one.status in (0, 500)]
        assert post.carry_out_late() == 200
        service.lists_lag = MANY
        failing.times = 0
        look_later(post, desk)
        assert desk.ledger.letters.get(id).kind == "unknown"
        service.lists_lag = 0
        look_later(post, desk)
        assert desk.ledger.letters.get(id).kind == "sent"
    assert len(service.sent) == 1


FALSE_ANSWERS: list[dict[str, Any]] = [
    {"status": 302, "headers": {"Location": "https://example.com/"}},
    {"status": 400, "reason": "invalidArgument"},
    {"status": 401, "reason": "authError"},
    {"status": 403, "reason": "forbidden"},
    {"status": 403, "reason": "userRateLimitExceeded"},
    {"status": 404, "reason": "notFound"},
    {"status": 404, "body": b"<html>not found</html>"},
    {"status": 409, "reason": "aborted"},
    {"status": 429},
    {"status": 503},
]


def test_whatever_gmail_answers_after_it_accepted_a_draft_the_letter_is_sent_once(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        for number, answer in enumerate(FALSE_ANSWERS):
            for lag in (0, MANY):
                id = post.write(desk, f"{number} {lag}").id
                service.lists_lag = lag
                service.fail(ACT, done=True, **answer)
                desk.approve(id, by="ada", digest=desk.ledger.letters.get(id).digest)
                look_later(post, desk)
                wanted = "unknown" if lag else "sent"
                assert desk.ledger.letters.get(id).kind == wanted, answer
                service.lists_lag = 0
                look_later(post, desk, 1)
                assert desk.ledger.letters.get(id).kind == "sent", answer
                assert [one.letter for one in service.sent].count(id) == 1, answer


def test_a_new_version_waits_until_the_draft_of_the_old_one_is_deleted(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="At five.\n"))
        for fault in ({"status": 500}, {"status": 403, "reason": "forbidden"}, {"status": 404}):
            service.fail(DELETE, times=1, **fault)
        assert name(post.approve(desk, id)) == "approved"
        for _ in range(2):
            look_later(post, desk, 1)
            assert desk.ledger.letters.get(id).kind == "approved"
        assert sum(one.path.endswith("/drafts") for one in service.requests) == 1
        look_later(post, desk, 1)
        assert desk.ledger.letters.get(id).kind == "sent"
    (left,) = service.sent
    assert b"At five." in left.raw


def test_a_draft_that_gmail_is_too_busy_to_delete_is_deleted_as_late_as_gmail_asks(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="At five.\n"))
        service.fail(DELETE, status=503, headers={"Retry-After": "90"})
        state = narrow(post.approve(desk, id), life.Approved)
        assert state.wait == 90


def test_a_new_version_does_not_leave_after_the_old_one_was_accepted_late(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.lose(desk)
        desk.decide(id, "undo")
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="At five.\n"))
        service.fail(DELETE, status=500)
        assert name(post.approve(desk, id)) == "approved"
        service.requests[:] = [one for one in service.requests if one.method == "POST"]
        assert post.carry_out_late() == 200
        service.lists_lag = MANY
        look_later(post, desk)
        assert desk.ledger.letters.get(id).kind == "unknown"
    assert len(service.sent) == 1


def test_a_rejected_letter_whose_draft_vanished_is_unknown_only_after_a_send_without_an_answer(
    person: Person,
) -> None:
    stories: dict[str, tuple[dict[str, Any], str]] = {
        "429": ({"status": 429}, "rejected"),
        "lost": ({"lost": "before"}, "unknown"),
    }
    for story, (fault, wanted) in stories.items():
        folder = person.folder / story
        folder.mkdir()
        service = Gmail()
        post = Post(type(person)(folder), service)
        with post.desk() as desk:
            id = post.write(desk).id
            service.fail(ACT, **fault)
            post.approve(desk, id)
            desk.decide(id, "reject", by="ada", reason="no")
            service.fail(DELETE, lost="after")
            for _ in range(3):
                desk.send_approved()
            assert desk.ledger.letters.get(id).kind == wanted, story
            assert desk.ledger.proofs.get(id) is None, story


def test_by_messages_only_gmails_own_refusal_is_not_sent(post: Post, service: Gmail) -> None:
    refusals = {400: "failed", 403: "failed", 404: "failed", 429: "approved", 401: "sent"}
    answers = [(answer, done) for answer in FALSE_ANSWERS[:1] for done in (True, False)]
    answers += [(answer, True) for answer in FALSE_ANSWERS if "body" in answer]
    answers += [({"status": status}, False) for status in (304, 408, 409)]
    answers += [({"status": status, "reason": "x"}, False) for status in refusals]
    file = post.person.folder / "postroom.toml"
    file.write_text('[gmail]\nsending = "message"\n')
    post.person.environment |= {"POSTROOM_CONFIG": str(file), "DRY_RUN": "false"}
    with post.desk() as desk:
        for number, (answer, done) in enumerate(answers):
            id = post.write(desk, str(number)).id
            desk.approve(id, by="ada", digest=desk.ledger.letters.get(id).digest)
            service.fail(ACT, done=done, **answer)
            service.lists_lag = MANY
            look_later(post, desk, 1)
            state = desk.ledger.letters.get(id).kind
            own = "reason" in answer and not done
            assert state == (refusals[answer["status"]] if own else "unknown"), answer
            look_later(post, desk, 1)
            if state == "unknown":
                desk.decide(id, "resolve", by="ada", sent=True)
            times = [one.letter for one in service.sent].count(id)
            assert times == (done or state in ("approved", "sent")), answer


# Drafts that nobody knows of


def test_a_draft_whose_making_had_no_answer_is_deleted_once_it_is_listed(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        other = desk.composer.letter(Written((ANN,), "Of another desk", "At four.\n"))
        box = Services(desk).mailbox.box("")
        kept = {
            box.create_draft(other, date=datetime.now(UTC)).id,
            service.mailbox.create_draft(b"To: ann@example.com\r\nSubject: mine\r\n\r\nhi\r\n"),
        }
        service.lists_lag = MANY
        service.fail(CREATE, lost="after")
        assert name(post.approve(desk, id)) == "approved"
        later(desk, 600).dispatch_all()
        assert desk.ledger.letters.get(id).kind == "sent"
        assert len(service.mailbox.drafts) == 3
        service.lists_lag = 0
        later(desk, 1200).dispatch_all()
        assert set(service.mailbox.drafts) == kept
        service.requests.clear()
        later(desk, 2400).dispatch_all()
        later(desk, 9000).dispatch_all()
        assert service.requests
        service.requests.clear()
        later(desk, 12_000).dispatch_all()
        assert not service.requests
    assert len(service.sent) == 1


def test_no_draft_is_deleted_while_another_dispatcher_is_at_the_letter(
    post: Post, service: Gmail
) -> None:
    with post.desk() as desk:
        id = post.write(desk).id
        service.lists_lag = MANY
        service.fail(CREATE, lost="after")
        assert name(post.approve(desk, id)) == "approved"
        service.lists_lag = 0
        (draft,) = service.mailbox.drafts
        seen: list[bool] = []

        def another(step: str) -> None:
            if step == "checked":
                later(desk, 600).dispatch_all()
                seen.append(draft in service.mailbox.drafts)

        replace(later(desk, 600), crash_point=another).dispatch(id)
        assert seen == [True]
        assert desk.ledger.letters.get(id).kind == "sent"
        later(desk, 600).dispatch_all()
    assert not service.mailbox.drafts
    assert len(service.sent) == 1


def test_one_slip_does_not_let_a_second_letter_out_while_the_first_may_still_leave(
    post: Post, service: Gmail
) -> None:
    slip = post.person.vault / "Approved/tea.md"
    with post.desk() as desk:
        slip.parent.mkdir(exist_ok=True)
        slip.write_text("---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n")
        service.fail(ACT, lost="before", times=3)
        tea, cake = (
            desk.composer.letter(Written((ANN,), subject, "At four.\n"))
            for subject in ("Tea", "Cake")
        )
        assert ask(desk, AGENT, tea, Proposal(), slips=True).kind == "approved"
        assert ask(desk, AGENT, cake, Proposal(), slips=True).kind == "pending"
        assert post.carry_out_late() == 200
        desk.send_approved()
        assert desk.ledger.letters.get(tea.id).kind == "sent"
    assert [one.letter for one in service.sent] == [tea.id]
