"""The rules by themselves: what is counted in a window, how long to wait, and how a wait is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.address import Address
from postroom.core.errors import Limited
from postroom.core.letter import Letter
from postroom.core.policy import BACK_OFF, Rules, Spent, back_off, covers, room
from postroom.core.stamp import Stamp
from postroom.core.text import duration
from tests.cases import for_each

ANN = Address.parse("ann@example.com")


def letter(count: int = 1) -> Letter:
    people = tuple(Address.parse(f"p{n}@example.com") for n in range(count))
    return Letter(id="aaaaaaaaaa", account="x", sender=ANN, to=people)


def stamp(seconds: float) -> Stamp:
    return Stamp(1e9 + seconds, "boot", seconds)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 9)), max_size=12),
    st.integers(1, 9),
    st.builds(
        Rules,
        sends_per_hour=st.integers(1, 5),
        sends_per_pace=st.integers(1, 5),
        recipients_per_hour=st.integers(9, 20),
    ),
)
def test_there_is_room_at_the_moment_that_was_named_and_none_a_moment_before(
    claims: list[tuple[int, int]], count: int, rules: Rules
) -> None:
    spent = [Spent(stamp(at), heads, "") for at, heads in claims]
    now, asked = 5000.0, letter(count)
    for _ in range(4):  # the budget, then the recipients, then the pace may each have their word
        try:
            room(spent, asked, rules, stamp(now))
        except Limited as full:
            assert 0 < full.seconds <= rules.window_seconds
            with pytest.raises(Limited):
                room(spent, asked, rules, stamp(now + full.seconds - 0.25))
            now += full.seconds
        else:
            break
    room(spent, asked, rules, stamp(now))
    window = [at for at, _ in claims if now - at < rules.window_seconds]
    assert len(window) < rules.sends_per_hour
    assert (
        sum(n for at, n in claims if now - at < rules.window_seconds) + count
        <= rules.recipients_per_hour
    )
    assert sum(now - at < rules.pace_seconds for at, _ in claims) < rules.sends_per_pace


def test_what_never_fits_is_refused_all_the_same() -> None:
    with pytest.raises(Limited) as full:
        room([], letter(3), Rules(recipients_per_hour=2), stamp(0))
    assert full.value.seconds == 3600


@for_each(
    ("seconds", "said"),
    [
        (0, "1 second"),
        (1, "1 second"),
        (59.6, "60 seconds"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (720, "12 minutes"),
        (3599, "60 minutes"),
        (3600, "1 hour"),
        (3601, "61 minutes"),
        (5399, "90 minutes"),
        (5400, "2 hours"),
        (7200, "2 hours"),
        (259_200, "72 hours"),
    ],
)
def test_a_wait_is_said_in_words(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@given(st.floats(0, 1e6))
def test_a_wait_that_is_said_is_never_much_shorter_than_it_is(seconds: float) -> None:
    count, unit = duration(seconds).split()
    size = {"second": 1, "minute": 60, "hour": 3600}[unit.rstrip("s")]
    assert int(count) * size >= seconds - size / 2
    assert int(count) >= 1


def test_the_waits_between_tries_grow_and_then_stay() -> None:
    waits = [back_off(tries) for tries in range(1, 12)]
    assert waits == sorted(waits)
    assert waits[0] == BACK_OFF[0]
    assert waits[-1] == BACK_OFF[-1] == 3600


@for_each("rule", ["example.com", "@EXAMPLE.com", "Ann@example.com", "com"])
def test_a_rule_covers_whatever_its_case(rule: str) -> None:
    assert covers(rule, ANN.key)


@for_each("rule", ["ann", "ample.com", "an@example.com", "mail.example.com", ""])
def test_a_rule_covers_nothing_else(rule: str) -> None:
    assert not covers(rule, ANN.key)


def test_the_mode_says_where_it_comes_from() -> None:
    assert Rules().mode == "rehearsal (default)"
    assert Rules(live=True, source="DRY_RUN").mode == "live (DRY_RUN = false)"
    assert Rules(live=True, source="dry_run in /a b").mode == "live (dry_run = false in /a b)"
