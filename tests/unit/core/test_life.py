"""Every state survives the ledger, every event fits the states it has, and each is told in one sentence."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from postroom.core import life
from postroom.core.errors import Conflict
from postroom.core.stamp import Stamp, elapsed
from tests.cases import for_each
from tests.narrow import narrow

THEN = Stamp(1_794_700_800.0, "boot-1", 1000.0)
NOW = Stamp(1_794_700_860.0, "boot-1", 1060.0)
VERDICT = life.Verdict("ada", life.Channel.TERMINAL, THEN, "sha256:00", "slip")
ID = "abcdefghij"
STATES = (
    life.Rehearsal(THEN),
    life.Pending(THEN),
    life.Approved(VERDICT, THEN, 10),
    life.Approved(VERDICT, THEN, 10, "busy", 3, NOW),
    life.Sending(VERDICT, NOW, "00ff", 1, THEN),
    life.Sent(NOW, "m1", "t1"),
    life.Sent(NOW, "m1", "t1", ("eve@example.com", "bob@example.com"), VERDICT, "resolved by ada"),
    life.Rejected(NOW, "ada", "Not to Ann"),
    life.Rejected(NOW, "ada", "Warmer", revise=True),
    life.Withdrawn(NOW),
    life.Expired(NOW),
    life.Failed(NOW, "refused"),
    life.Unknown(NOW, "lost", THEN),
    life.Unknown(NOW, "lost", THEN, VERDICT),
)
EVENTS: dict[str, Callable[[life.State], life.State]] = {
    "approve": lambda state: life.approve(ID, state, VERDICT, 10),
    "recall": lambda state: life.change(ID, state, "undo", NOW),
    "reject": lambda state: life.change(ID, state, "reject", NOW, by="ada", reason="no"),
    "withdraw": lambda state: life.change(ID, state, "withdraw", NOW),
    "resolve": lambda state: life.change(ID, state, "resolve", NOW, by="ada", sent=True),
    "reopen": lambda state: life.change(ID, state, "reopen", NOW),
}
HAS = {
    "approve": {"pending"},
    "recall": {"approved"},
    "reject": {"pending", "approved"},
    "withdraw": {"pending", "approved"},
    "resolve": {"unknown"},
    "reopen": {"rejected", "withdrawn", "expired", "failed"},
}


def test_there_is_an_example_of_every_state() -> None:
    assert {life.name(state) for state in STATES} == set(life.STATES)


@for_each("state", STATES)
def test_a_state_is_the_same_after_the_ledger_kept_it(state: life.State) -> None:
    assert life.load(life.name(state), life.dump(state)) == state


@for_each("state", STATES)
@for_each("event", EVENTS)
def test_an_event_happens_only_in_the_states_that_have_it(event: str, state: life.State) -> None:
    if life.name(state) in HAS[event]:
        assert EVENTS[event](state) != state
    else:
        with pytest.raises(Conflict) as refused:
            EVENTS[event](state)
        assert life.describe(state, life.Audience.AGENT, id=ID) in refused.value.message
        assert f"postroom show {ID}" in refused.value.remedy


@for_each("state", STATES)
def test_what_became_of_a_letter_is_one_sentence_that_names_it(state: life.State) -> None:
    said = life.describe(state, id=ID)
    assert said.startswith(f"The letter {ID} ")
    assert said.endswith(".")
    for part in fields(state):
        value = getattr(state, part.name)
        if part.name in ("reason", "held", "why") and value:
            assert value in said


def test_partial_refusals_are_told() -> None:
    assert "but not to eve@example.com, bob@example.com" in life.describe(STATES[6])


def test_a_retry_keeps_the_verdict_the_first_try_and_the_count() -> None:
    claimed = life.claim(life.Approved(VERDICT, THEN, 0), THEN, "00")
    held = life.hold(claimed, NOW, 30, "busy")
    again = life.claim(held, NOW, "11")
    assert (again.verdict, again.first, again.tries) == (VERDICT, THEN, 2)
    assert life.hold(held, NOW, 0, "paused").first == THEN


def test_a_recalled_letter_begins_anew() -> None:
    assert life.change(
        ID, life.Approved(VERDICT, THEN, 10, "busy", 3, THEN), "undo", NOW
    ) == life.Pending(NOW)


def test_an_unknown_letter_that_was_not_sent_waits_for_a_new_verdict() -> None:
    assert life.change(ID, STATES[-1], "resolve", NOW, by="ada", sent=False) == life.Pending(NOW)
    assert (
        narrow(life.change(ID, STATES[-1], "resolve", NOW, by="ada", sent=True), life.Sent).verdict
        == VERDICT
    )


def test_open_states_are_those_that_wait_or_are_on_their_way() -> None:
    assert set(life.OPEN) == {"pending", "approved", "sending", "unknown"}


# Stamps


@for_each(
    ("since", "now", "seconds"),
    [
        (Stamp(100, "a", 10), Stamp(200, "a", 15), 5),
        (Stamp(100, "a", 10), Stamp(0, "a", 15), 5),
        (Stamp(100, "a", 10), Stamp(200, "a", 5), 0),
        (Stamp(100, "a", 10), Stamp(200, "b", 5), 100),
        (Stamp(100, "a", 10), Stamp(50, "b", 500), 0),
        (Stamp(100, "", 10), Stamp(200, "b", 15), 100),
        (Stamp(100, "", 10), Stamp(200, "", 15), 5),
        (Stamp(100, "", 10), Stamp(103, "", 15), 3),
        (Stamp(100, "", 10), Stamp(50, "", 15), 0),
        (Stamp(100, "", 10), Stamp(200, "", 5), 100),
    ],
)
def test_within_one_boot_the_steady_clock_counts_across_boots_the_wall_clock_else_the_shorter(
    since: Stamp, now: Stamp, seconds: int
) -> None:
    assert elapsed(since, now) == seconds


def test_a_stamp_is_written_in_utc_to_the_second() -> None:
    assert Stamp(1_794_700_800.9).iso == "2026-11-15T00:00:00Z"


def test_a_state_offers_exactly_the_events_that_its_functions_accept() -> None:
    for state in STATES:
        allowed = {event for event in life.EVENTS if life.allows(state, event)}
        named = {"recall": "undo"}
        expected = {named.get(event, event) for event in HAS if life.name(state) in HAS[event]}
        assert allowed - {"edit", "revise"} == expected
        assert set(life.offered(state)) == allowed - {"withdraw"}
        assert ("revise" in allowed) == ("reject" in allowed)
    assert life.offered(life.Pending(NOW)) == ("approve", "edit", "reject", "revise")


def test_an_agent_is_told_not_to_send_again_what_is_on_its_way() -> None:
    sending = life.Sending(VERDICT, THEN, "wire", 1, THEN)
    for state in (life.Approved(VERDICT, THEN, 10), sending):
        advice = life.advise_agent(ID, state, life.Audience.AGENT)
        assert advice.startswith("Not sent yet. ")
        assert advice.endswith("Do not send it again.")


def test_the_history_of_a_letter_says_what_each_step_changed() -> None:
    waiting, again = life.Pending(THEN), life.Pending(NOW)
    approved = life.Approved(VERDICT, THEN, 10, held="all sending is paused.")
    rejected = life.Rejected(NOW, "ada", "no")
    steps: list[tuple[life.State | None, life.State, str]] = [
        (None, waiting, f"Proposed at {THEN.iso}."),
        (waiting, waiting, "Edited."),
        (waiting, approved, f"Approved by ada at {THEN.iso}; held: all sending is paused."),
        (approved, approved, f"Held at {THEN.iso}: all sending is paused."),
        (approved, again, f"Approval undone at {NOW.iso}."),
        (rejected, again, f"Put back into the queue at {NOW.iso}."),
        (waiting, rejected, life.describe(rejected)),
    ]
    assert [life.describe_step(state, before) for before, state, _ in steps] == [
        sentence for _, _, sentence in steps
    ]
