"""Two dispatchers that both believe to own one letter: it is sent once, and the newer owner's word counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from postroom.config.loading import load
from postroom.core.address import Address
from postroom.core.records import Entry
from postroom.core.stamp import Stamp
from postroom.desk.desk import Desk
from postroom.desk.dispatch import Dispatcher
from postroom.desk.proposals import Proposal, Written
from postroom.desk.recorder import Call
from postroom.store.ledger import kernel_claims
from postroom.wiring.desk import find_desk
from tests.conftest import Person
from tests.gmail.double import Gmail
from tests.gmail.people import at_gmail
from tests.narrow import present
from tests.posting import post

ANN = Address.parse("ann@example.com")
ACT = r"POST /gmail/v1/users/me/drafts/send$"
STALLS = ("claimed", "published", "prepared", "proof kept", "answered")
FAULTS: dict[str, dict[str, Any]] = {  # of Gmail.fail
    "none": {},
    "lost before": {"lost": "before"},
    "lost after": {"lost": "after"},
    "refused": {"status": 403, "reason": "forbidden"},
}
MANY = 1000


@contextmanager
def office(person: Person, service: Gmail) -> Iterator[Desk]:
    person.live(undo_seconds=0)
    at_gmail(person, service)
    with find_desk(load(person.environment, person.folder, person.folder), make=True) as found:
        yield present(found)


def approved(desk: Desk, subject: str = "Tea") -> Entry:
    letter = desk.composer.letter(Written((ANN,), subject, "At four.\n"))
    entry = post(desk, Call("send_email", f"agent {subject}"[:60]), letter, Proposal())
    return desk.approve(entry.id, by="ada", digest=entry.digest)


def later(dispatcher: Dispatcher, seconds: int) -> Dispatcher:
    """Return a dispatcher as it is so many seconds from now."""
    clock = dispatcher.clock

    def ahead() -> Stamp:
        wall, boot, steady = clock()
        return Stamp(wall + seconds, boot, steady + seconds)

    return replace(dispatcher, clock=ahead)


def stalled(dispatcher: Dispatcher, step: str, act: Callable[[], object]) -> Dispatcher:
    """Return a dispatcher whose lock was stolen, and that stalls once at this step while others act."""
    acts = [act]

    def stall(name: str) -> None:
        if name == step and acts:
            acts.pop()()

    return replace(
        dispatcher,
        hold_claim=kernel_claims(dispatcher.ledger.path.parent / "stolen"),
        crash_point=stall,
    )


@pytest.mark.parametrize("step", STALLS)
def test_an_owner_that_comes_back_late_sends_nothing_twice_and_undoes_nothing(
    person: Person, service: Gmail, step: str
) -> None:
    with office(person, service) as desk:
        firsts = FAULTS if step == "proof kept" else ["none"]  # others send nothing afterwards
        for number, (first, second) in enumerate(product(firsts, FAULTS)):
            story = step, first, second
            rules = replace(
                desk.rules, sends_per_hour=MANY, sends_per_pace=MANY, recipients_per_hour=MANY
            )
            dispatcher = replace(desk.dispatcher, rules=rules)
            id = approved(desk, str(number)).id
            between: list[Entry] = []

            def take_over(
                id: str = id,
                second: str = second,
                dispatcher: Dispatcher = dispatcher,
                between: list[Entry] = between,
            ) -> None:
                fault = service.fail(ACT, **FAULTS[second])
                for _ in range(3):
                    dispatcher.dispatch_all()
                fault.times = 0
                between.append(desk.ledger.letters.get(id))

            service.lists_lag = MANY
            # The first to come to it is the one that takes over.
            fault = service.fail(ACT, skip=step != "answered", **FAULTS[first])
            stalled(dispatcher, step, take_over).dispatch(id)
            fault.times = 0
            assert between, story  # the step was come to
            new = desk.ledger.letters.get(id)
            accepted = [one.letter for one in service.sent].count(id)
            assert accepted <= 1, story
            assert not accepted or new.kind in ("sent", "unknown"), (story, new.state)
            assert new.kind == "sent" or new == between[0], (story, between[0].state, new.state)
            service.lists_lag = 0
            for seconds in (1000, 2000, 3000):
                later(dispatcher, seconds).dispatch_all()
            new = desk.ledger.letters.get(id)
            accepted = [one.letter for one in service.sent].count(id)
            assert accepted == (new.kind == "sent"), (story, new.state)
            assert not service.mailbox.drafts, story


def test_an_owner_that_comes_back_late_does_not_make_a_newer_state_unknown(
    person: Person, service: Gmail
) -> None:
    with office(person, service) as desk:
        id = approved(desk).id

        def take_over() -> None:
            desk.dispatcher.dispatch(id)  # its draft is there: approved again
            desk.decide(id, "reject", by="ada", reason="no")
            service.fail(r"GET /gmail/v1/users/me/drafts/", status=403, reason="x", times=MANY)

        service.fail(ACT, lost="before")
        stalled(desk.dispatcher, "proof kept", take_over).dispatch(id)
        assert desk.ledger.letters.get(id).kind == "rejected"
    assert not service.sent


def test_that_an_older_version_was_sent_is_not_told_of_a_newer_one(
    person: Person, service: Gmail
) -> None:
    with office(person, service) as desk:
        id = approved(desk).id

        def take_over() -> None:
            desk.dispatcher.dispatch(id)
            desk.decide(id, "undo")
            desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="At five.\n"))

        stalled(desk.dispatcher, "proof kept", take_over).dispatch(id)
        assert len(service.sent) == 1
        entry = desk.ledger.letters.get(id)
        assert entry.kind == "pending"
        desk.approve(id, by="ada", digest=entry.digest)
        desk.send_approved()
        assert desk.ledger.letters.get(id).kind == "unknown"
    assert len(service.sent) == 1


def test_a_letter_whose_draft_another_released_is_not_unknown(
    person: Person, service: Gmail
) -> None:
    with office(person, service) as desk:
        id = approved(desk).id
        service.fail(ACT, lost="before")
        desk.dispatcher.dispatch_all()
        desk.decide(id, "reject", by="ada", reason="no")
        stalled(desk.dispatcher, "releasing", desk.dispatcher.dispatch_all).dispatch_all()
        assert desk.ledger.letters.get(id).kind == "rejected"
        assert desk.ledger.proofs.get(id) is None
    assert not service.mailbox.drafts


def test_the_draft_of_a_closed_letter_that_another_holds_is_deleted_in_a_later_round(
    person: Person, service: Gmail
) -> None:
    with office(person, service) as desk:
        id = approved(desk).id
        service.fail(ACT, lost="before")
        desk.dispatcher.dispatch_all()
        desk.decide(id, "reject", by="ada", reason="no")
        with desk.dispatcher.hold_claim(id) as mine:
            assert mine
            assert desk.dispatcher.dispatch_all() == []
            assert len(service.mailbox.drafts) == 1
        assert desk.dispatcher.dispatch_all() == []
        assert desk.ledger.letters.get(id).kind == "rejected"
    assert not service.mailbox.drafts
