"""Letters in lists: which are found by which words, in which order, and how many on each day."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.core.address import Address
from postroom.core.records import LetterFilter
from postroom.desk.recorder import Call
from tests.desks import ANN, BOB, START, Office

DAY = 86_400.0


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path, open_letters=100)
    yield office
    office.close()


def subjects(office: Office, *words: str) -> list[str]:
    return [
        line.subject for line in office.desk.ledger.lists.summaries(matching=LetterFilter(words))
    ]


def test_lines_are_oldest_first_and_the_newest_of_many_can_be_asked_for(office: Office) -> None:
    for n in range(5):
        office.propose(office.letter(subject=f"{n}"))
    ledger = office.desk.ledger
    assert [line.subject for line in ledger.lists.summaries()] == list("01234")
    assert [line.subject for line in ledger.lists.summaries(newest=2)] == ["3", "4"]
    assert [line.subject for line in ledger.lists.summaries(newest=2, skip=2)] == ["1", "2"]
    assert [line.subject for line in ledger.lists.summaries(newest=2, skip=4)] == ["0"]
    assert ledger.lists.summaries(newest=2, skip=9) == []
    assert ledger.lists.count() == 5


def test_a_letter_is_found_by_words_in_each_of_its_parts(office: Office) -> None:
    entry = office.propose(office.letter(to=(ANN,), cc=(BOB,), subject="On the Budget", text="It rains.\n"), Call("send_email", "claude-9"))  # fmt: skip
    office.propose(office.letter(to=(Address.parse("eve@example.org"),), subject="Else", text="Sun.\n"))  # fmt: skip
    for word in (
        "budget",
        "BUDGET",
        "ann@example.com",
        "bob@",
        "rains",
        "claude-9",
        entry.id,
        "udge",
    ):
        assert subjects(office, word) == ["On the Budget"], word
    assert subjects(office, "budget", "rains") == ["On the Budget"]
    assert subjects(office, "budget", "sun") == []
    assert len(subjects(office)) == 2


@pytest.mark.parametrize("word", ["%", "_", "'", '"', "\\", "*", "--", ";", "\0", "(", "[a-z]", "NULL"])  # fmt: skip
def test_what_means_something_to_a_database_is_only_a_character(office: Office, word: str) -> None:
    office.propose(office.letter(subject="plain", text="words\n"))
    assert subjects(office, word) == []
    if word != "\0":
        office.propose(office.letter(subject=f"a {word} b"))
        assert subjects(office, word) == [f"a {word} b"]


@pytest.mark.parametrize("text", ["Ärger", "ärger", "ÄRGER", "Éclair", "МОСКВА", "Москва", "ΑΘΗΝΑ"])
def test_case_does_not_matter_beyond_ascii_either(office: Office, text: str) -> None:
    office.propose(office.letter(subject=text))
    for word in (text, text.lower(), text.upper(), text.capitalize()):
        assert subjects(office, word) == [text]


def test_letters_are_counted_as_they_are_found(office: Office) -> None:
    for n in range(6):
        entry = office.propose(office.letter(subject=f"even {n}" if n % 2 == 0 else f"odd {n}"), Call("send_email", f"agent-{n % 3}"))  # fmt: skip
        if n > 3:
            office.desk.decide(entry.id, "reject", by="ada", reason="")
    ledger = office.desk.ledger
    for words in ((), ("even",), ("odd", "agent-1"), ("nothing",)):
        for states in ((), ("rejected",), ("pending", "rejected")):
            for agent in (None, "agent-1", "nobody"):
                matching = LetterFilter(words, agent)
                found = ledger.lists.summaries(*states, matching=matching)
                assert ledger.lists.count(*states, matching=matching) == len(found)
    assert ledger.lists.count("rejected") == 2
    assert ledger.lists.count("rejected", matching=LetterFilter(agent="agent-1")) == 1


def test_a_state_that_there_is_not_finds_no_more_than_none_given(office: Office) -> None:
    office.propose()
    assert office.desk.ledger.lists.count("x') OR 1=1 --") == office.desk.ledger.lists.count()


def test_the_pulse_beats_with_every_change_of_the_queue_and_only_then(office: Office) -> None:
    ledger = office.desk.ledger
    seen = [ledger.lists.change_token()]

    def beats() -> bool:
        seen.append(ledger.lists.change_token())
        return seen[-1] != seen[-2]

    assert not beats()
    entry = office.propose()
    assert beats()
    assert not beats()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert beats()
    office.desk.decide(entry.id, "undo")
    assert beats()
    office.desk.edit(entry.id, office.letter(id=entry.id, text="Other.\n"))
    assert beats()
    office.desk.decide(entry.id, "reject", by="ada", reason="")
    assert beats()
    office.desk.decide(entry.id, "reopen")
    assert beats()
    assert not beats()


def test_each_agent_has_its_tally_who_wrote_last_first(office: Office) -> None:
    for agent in ("a", "b", "a"):
        office.clock.go(10)
        entry = office.propose(call=Call("send_email", agent))
    office.desk.decide(entry.id, "reject", by="ada", reason="")
    first, second = office.desk.ledger.lists.agents(START)
    assert (first.agent, first.states, first.last) == (
        "a",
        {"pending": 1, "rejected": 1},
        START + 30,
    )
    assert (second.agent, second.states, second.last) == ("b", {"pending": 1}, START + 20)


def test_an_agents_tally_says_what_a_person_did_with_its_letters(office: Office) -> None:
    edited, rejected, revised, _ = (office.propose(office.letter(subject=f"{n}")) for n in range(4))
    new = office.desk.edit(edited.id, office.letter(id=edited.id, text="Other.\n"))
    office.desk.approve(new.id, by="ada", digest=new.digest)
    office.desk.decide(rejected.id, "reject", by="ada", reason="")
    office.desk.decide(revised.id, "revise", by="ada", reason="Shorter.")
    (one,) = office.desk.ledger.lists.agents(START)
    assert (one.proposed, one.approved, one.edited, one.rejected) == (4, 1, 1, 2)


def test_letters_are_counted_on_the_day_of_the_desks_zone(office: Office) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    office.clock.go(DAY)
    other = office.propose()
    office.desk.decide(other.id, "reject", by="ada", reason="")
    day = int(START // DAY)
    days = office.desk.ledger.lists.per_day(START - DAY, 0)
    assert days == {day: {"approved": 1, "sent": 1}, day + 1: {"rejected": 1}}
    assert office.desk.ledger.lists.per_day(START - DAY, -3600) == {day - 1: {"approved": 1, "sent": 1}, day: {"rejected": 1}}  # fmt: skip
    assert office.desk.ledger.lists.per_day(START + DAY, 0) == {day + 1: {"rejected": 1}}


def test_an_approval_that_was_held_for_a_while_counts_once(office: Office) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    (office.vault / "PAUSED").touch()
    for _ in range(3):
        office.clock.go(60)
        office.desk.send_approved()
    assert (
        sum(day.get("approved", 0) for day in office.desk.ledger.lists.per_day(0, 0).values()) == 1
    )
