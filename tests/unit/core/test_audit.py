"""A line of the log, and how a log that was changed is recognised."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core import audit
from postroom.core.audit import GENESIS, Action, Fault
from tests.cases import for_each
from tests.narrow import present

DESK = "abcdefghijklmnop"
OTHER = "qrstuvwxyz234567"
FILE = "2026-01-05.json"
OLDER = "the ledger is older than the log: {} past its head"


def act(actor: str = "email_mcp", action_type: str = "send_email", **fields: Any) -> Action:
    return Action(actor=actor, action_type=action_type, **fields)


def write(
    action: Action,
    *,
    seq: int = 1,
    previous: str = GENESIS,
    desk: str = DESK,
    timestamp: str = "2026-01-05T10:00:00Z",
) -> str:
    return audit.write(
        action, seq=seq, previous=previous, desk=desk, timestamp=timestamp, correlation_id="c0ffee"
    )


def chain(count: int, *, desk: str = DESK) -> list[str]:
    lines, previous = [], GENESIS
    for seq in range(1, count + 1):
        lines.append(
            write(act(target=f"p{seq}@example.org"), seq=seq, previous=previous, desk=desk)
        )
        previous = audit.digest(lines[-1])
    return lines


def faults(shown: list[str], ledger: list[str], *, desk: str = DESK) -> list[tuple[int, str]]:
    """What is found where the file shows these lines and the ledger has those."""
    digests = [audit.digest(line) for line in ledger]
    found = audit.verify(
        ((FILE, number, line) for number, line in enumerate(shown, 1)),
        desk=desk,
        head=len(ledger),
        known=lambda seq: digests[seq - 1] if seq <= len(digests) else None,
    )
    return [(fault.line, fault.what) for fault in found]


# Lines


def test_a_line_has_the_documents_fields_first_and_in_its_order() -> None:
    action = act(
        target="john.doe@example.com",
        result="error",
        letter="abcdefghij",
        state="pending",
        agent="claude",
        duration_ms=12,
        parameters={"subject": "Hello", "attachments": 2},
        error="550 no",
    )
    record = json.loads(write(action))
    assert (
        list(record)
        == (
            "timestamp correlation_id actor action_type target result duration_ms parameters error"
            " letter state agent desk seq previous"
        ).split()
    )
    assert record["target"] == "j***@example.com"


def test_what_is_not_set_is_left_out() -> None:
    assert (
        list(json.loads(write(act())))
        == ("timestamp correlation_id actor action_type target result desk seq previous").split()
    )


@for_each("key", ["body", "Body", "text", "html"])
def test_a_body_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="never logged"):
        act(parameters={key: "Dear John"})


def test_all_that_people_wrote_is_redacted_before_it_is_kept() -> None:
    action = act(
        target="ann.lee@example.org, bob.ray@example.org",
        error="550 <cy.fox@example.org>\nBearer abc123",
        agent="eve.day@example.org",
        parameters={"to": "dee.poe@example.org", "subject": "s" * 80, "n": 10**5000, "flag": True},
    )
    line = write(action)
    assert not any(part in line for part in ("lee@", "ray@", "fox@", "day@", "poe@", "abc123"))
    assert action.parameters == {
        "to": "d***@example.org",
        "subject": "s" * 50,
        "n": "***",
        "flag": True,
    }


@pytest.mark.parametrize("field", [{"actor": "mallory"}, {"result": "maybe"}])
def test_actors_and_results_are_closed_sets(field: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not a word of the log"):
        act(**field)


@for_each(
    "wrong",
    [
        {"seq": 0},
        {"previous": "short"},
        {"timestamp": "2026-01-05T10:00:00+02:00"},
        {"timestamp": "2026-13-05T10:00:00Z"},
        {"desk": "two\nlines"},
    ],
)
def test_a_line_that_could_not_be_read_back_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a line needs|a desk and|month"):
        write(act(), **wrong)


text = st.text() | st.text("\n\r\u2028\0\ud800😀a@ ", max_size=500)


@given(
    text, text, text, text, st.dictionaries(text.map(lambda key: f"k{key}"), text | st.integers())
)
def test_every_line_is_one_line_of_ascii_within_its_size_and_reads_back(
    target: str, error: str, agent: str, action_type: str, parameters: dict[str, Any]
) -> None:
    action = act(
        target=target, error=error, agent=agent, action_type=action_type, parameters=parameters
    )
    line = write(action, seq=7, previous="ab" * 32)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) <= audit.MAX_LINE
    found = present(audit.read(line))
    assert found[:4] == (DESK, 7, "ab" * 32, audit.digest(line))
    assert found.line == line


def test_parameters_are_cut_before_the_line_grows_too_long() -> None:
    line = write(act(parameters={f"key{n}": "😀" * 200 for n in range(100)}, error="😀" * 900))
    assert 1_000 < len(line) <= audit.MAX_LINE
    assert json.loads(line)["parameters"]


@for_each(
    "garbage",
    [
        "",
        "{}",
        "null",
        "[]",
        '"seq"',
        "[" * 3_000,
        '{"a":' * 700,
        "x" * 5_000,
        "\ud800",
        "\0",
        chain(1)[0][:-1],
        chain(1)[0].replace('"seq":1', '"seq":true'),
        chain(1)[0].replace('"seq":1', '"seq":NaN'),
        chain(1)[0].replace('"seq":1', '"seq":1e3'),
        chain(1)[0].replace('"seq":1', f'"seq":{"9" * 3_000}'),
        chain(1)[0].replace('"seq":1', '"seq":-1'),
        chain(1)[0].replace('"seq":1', '"seq":1,"x":Infinity'),
        chain(1)[0].replace(f'"{DESK}"', "[]"),
        chain(1)[0].replace("10:00:00Z", "soon"),
        chain(1)[0].replace("10:00:00Z", "25:00:00Z"),
        chain(1)[0].replace("2026-01-05", "2026-02-30"),
        chain(1)[0].replace('"seq":1', '"seq":1,"parameters":[]'),
        chain(1)[0].replace('"seq":1', '"seq":1,"letter":"\\ud800"'),
        chain(1)[0].replace('"seq":1', '"seq":1,"letter":"\ud800"'),
        chain(1)[0].replace('"seq":1', '"seq":9223372036854775807'),
    ],
)
def test_what_is_no_line_is_nothing(garbage: str) -> None:
    assert audit.read(garbage) is None


@given(st.text() | st.recursive(st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_makes_reading_fail(garbage: str) -> None:
    assert audit.read(garbage) is None
    assert len(audit.digest(garbage)) == 64


# Verifying


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_log_that_nobody_touched_has_no_faults(count: int) -> None:
    assert faults(chain(count), chain(count)) == []


@for_each("at", range(5))
def test_an_edited_line_is_found_even_the_first_and_the_last(at: int) -> None:
    shown = chain(5)
    shown[at] = shown[at].replace("success", "rejected")
    assert faults(shown, chain(5)) == [(at + 1, "edited")]


def test_an_edit_whose_chain_was_computed_anew_is_found() -> None:
    shown = chain(2)
    for seq in (3, 4, 5):
        edited = act(result="rejected")
        shown.append(write(edited, seq=seq, previous=audit.digest(shown[-1])))
    assert faults(shown, chain(5)) == [(3, "edited"), (4, "edited"), (5, "edited")]


def test_an_edit_of_file_and_ledger_breaks_the_chain() -> None:
    shown = chain(5)
    shown[2] = shown[2].replace("success", "rejected")
    assert faults(shown, shown) == [(4, "edited, in the ledger too")]


def test_a_line_made_unreadable_is_found() -> None:
    shown = chain(3)
    shown[1] = "\0" * 100
    assert faults(shown, chain(3)) == [(2, "not a line of the log"), (3, "missing line 2")]


@for_each(
    ("gone", "found"),
    [
        (slice(0, 1), (1, "missing line 1")),
        (slice(2, 5), (3, "missing lines 3 to 5")),
        (slice(7, 8), (7, "cut off after 7")),
        (slice(1, 8), (1, "cut off after 1")),
        (slice(0, 8), (0, "missing lines 1 to 8")),
    ],
)
def test_deleted_lines_are_found(gone: slice, found: tuple[int, str]) -> None:
    shown = chain(8)
    del shown[gone]
    assert faults(shown, chain(8)) == [found]


def test_two_deletions_are_two_faults() -> None:
    one, two, _, four, _, six = chain(6)
    assert faults([one, two, four, six], chain(6)) == [(3, "missing line 3"), (4, "missing line 5")]


@for_each(
    ("order", "found"),
    [
        ([1, 2, 4, 3, 5], [(4, "out of order")]),
        ([2, 1, 3, 4, 5], [(2, "out of order")]),
        ([4, 5, 1, 2, 3], [(3, "out of order")]),
        ([1, 5, 2, 3, 4], [(3, "out of order")]),
        ([1, 4, 2, 5], [(2, "missing line 3"), (3, "out of order")]),
        ([1, 2, 2, 3, 4, 5], [(3, "repeated")]),
        ([1, 2, 3, 4, 5, 1], [(6, "repeated")]),
        ([1, 2, 2, 4, 5], [(3, "repeated"), (4, "missing line 3")]),
    ],
)
def test_lines_that_were_moved_or_copied_are_found(
    order: list[int], found: list[tuple[int, str]]
) -> None:
    lines = chain(5)
    assert faults([lines[seq - 1] for seq in order], lines) == found


def test_a_ledger_older_than_the_file_is_found() -> None:
    assert faults(chain(5), chain(2)) == [(3, OLDER.format("3 lines"))]
    assert faults(chain(5), chain(4)) == [(5, OLDER.format("1 line"))]
    assert faults(chain(2), []) == [(1, OLDER.format("2 lines"))]


def test_a_line_that_the_ledger_wrote_meanwhile_is_no_fault() -> None:
    lines = chain(3)
    known = {seq: audit.digest(line) for seq, line in enumerate(lines, 1)}.get
    shown = [(FILE, number, line) for number, line in enumerate(lines, 1)]
    assert audit.verify(shown, desk=DESK, head=2, known=known) == []


def test_another_desks_lines_count_before_our_first_and_before_an_adoption_alone() -> None:
    theirs, foreign = chain(3, desk=OTHER), "written by another desk"
    ours = chain(2)
    ours.append(write(act(action_type="adopt_vault"), seq=3, previous=audit.digest(ours[-1])))
    ours.append(write(act(), seq=4, previous=audit.digest(ours[-1])))
    assert faults([*theirs, *ours], ours) == []
    assert faults([*ours[:2], *theirs, *ours[2:]], ours) == []
    assert faults([*ours[:3], theirs[0], *ours[3:]], ours) == [(4, foreign)]
    assert faults([*ours, *theirs], ours) == [(5, foreign), (6, foreign), (7, foreign)]
    assert faults([*ours[:2], theirs[0]], ours[:2]) == [(3, foreign)]
    # What only says so is no adoption.
    claims = write(act(action_type="adopt_vault"), seq=1, desk=OTHER)
    assert faults([*ours, claims], ours) == [(5, foreign)]


def test_another_desks_lines_are_held_to_their_own_chain() -> None:
    ours, theirs = chain(2), chain(6, desk=OTHER)
    edited = theirs[2].replace("success", "rejected")
    assert faults([*theirs[:2], edited, *theirs[3:], *ours], ours) == [(3, "edited")]
    assert faults([*theirs[:2], *theirs[3:], *ours], ours) == [(3, "missing line 3")]
    assert faults([theirs[4], theirs[1], *ours], ours) == [
        (1, "missing lines 3 to 4"),
        (2, "out of order"),
    ]
    assert faults([theirs[0], theirs[0], *ours], ours) == [(2, "repeated")]
    forged = write(act(), desk=OTHER, previous="ab" * 32)
    assert faults([forged, *ours], ours) == [(1, "edited")]


def test_faults_are_counted_where_they_are_too_many_and_the_gravest_stay() -> None:
    found = faults(["garbage"] * 1_000 + chain(3), chain(5))
    assert len(found) == 101
    assert found[-2:] == [(1_003, "cut off after 3"), (0, "and 901 more")]
    assert faults(["garbage"] * 100, [])[-1] == (100, "not a line of the log")


def test_files_are_told_apart() -> None:
    first, _, third = chain(3)
    digests = [audit.digest(line) for line in chain(3)]
    shown = [("2026-01-05.json", 1, first), ("2026-01-06.json", 1, third)]
    assert audit.verify(shown, desk=DESK, head=3, known=lambda seq: digests[seq - 1]) == [
        Fault("2026-01-06.json", 1, "missing line 2")
    ]
