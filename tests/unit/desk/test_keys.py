"""How a repeated call is recognised: by what it says, by its idempotency key, and for how long."""

from dataclasses import replace
from typing import Any

import pytest

from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound
from postroom.core.letter import Enclosure, Letter
from postroom.core.life import Rejected, Sent
from postroom.core.records import Entry
from postroom.core.stamp import DAY
from postroom.desk.proposals import Proposal, Proposals
from postroom.desk.recorder import Call
from tests.desks import SEND, YOU, Office
from tests.narrow import narrow
from tests.providers import BARRED, Courier

OTHER = Call("send_email", "codex")


def again(
    office: Office, letter: Letter, n: int = 1, call: Call = SEND, **wish: str | bool
) -> Entry:
    """Repeat a call: the same words, frozen under another id."""
    return office.propose(replace(letter, id="b" * (9 - n) + "z" * (n + 1)), call, **wish)


def sent(office: Office, letter: Letter, **wish: str) -> Entry:
    """Bring a letter out."""
    entry = office.propose(letter, SEND, **wish)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    assert office.desk.dispatch(entry.id).kind == "sent"
    return entry


# The content key


@pytest.mark.parametrize("kind", ["pending", "approved", "sending", "unknown"])
def test_an_open_letter_with_the_same_content_is_the_letter(
    office: Office, courier: Courier, kind: str
) -> None:
    letter = office.letter()
    office.propose(letter)
    courier.settles = False
    if kind != "pending":
        office.desk.approve(letter.id, by="ada", digest=letter.digest)
    if kind == "unknown":
        courier.loses(after=False)
        office.clock.go(10)
        office.desk.send_approved()
    if kind == "sending":
        seen = []
        office.clock.go(10)
        other = office.beside()
        office.at("published", lambda: seen.append(again(other, letter)))
        office.desk.send_approved()
        other.close()
        assert [(entry.id, entry.kind) for entry in seen] == [(letter.id, "sending")]
    else:
        assert again(office, letter).id == letter.id
    assert (
        len(
            office.desk.ledger.lists.summaries(
                *["pending", "approved", "sending", "unknown", "sent"]
            )
        )
        == 1
    )
    assert courier.tried <= 1


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "Hello!"},
        {"text": "Good day.\n"},
        {"html": "<p>Good day</p>", "text": "Good day\n"},
        {"to": (Address.parse("ann2@example.com"),)},
        {"to": (Address.parse("Another name <ann@example.com>"),)},
        {"cc": (Address.parse("cat@example.com"),)},
        {"bcc": (Address.parse("cat@example.com"),)},
        {"reply_to": (Address.parse("cat@example.com"),)},
        {"thread": "18e51234"},
        {"in_reply_to": "<a@example.com>"},
        {"attachments": (Enclosure("a.pdf", "application/pdf", b"%PDF-"),)},
        {"sender": replace(YOU, name="Me")},
    ],
)
def test_a_letter_that_differs_in_anything_is_another(
    office: Office, change: dict[str, Any]
) -> None:
    letter = office.letter()
    office.propose(letter)
    entry = office.propose(replace(letter, id="bbbbbbbbbb", **change))
    assert entry.id == "bbbbbbbbbb"
    assert len(office.desk.ledger.lists.summaries("pending")) == 2


def test_the_same_words_of_another_agent_are_another_letter(office: Office) -> None:
    letter = office.letter()
    office.propose(letter)
    assert again(office, letter, call=OTHER).id != letter.id


def test_a_letter_that_a_person_edited_is_still_recognised_by_what_the_agent_wrote(
    office: Office,
) -> None:
    letter = office.letter()
    office.propose(letter)
    office.desk.edit(letter.id, replace(letter, text="Other words.\n"))
    assert again(office, letter).id == letter.id
    assert (
        office.propose(replace(letter, id="cccccccccc", text="Other words.\n")).id == "cccccccccc"
    )


def test_the_same_call_is_answered_already_sent_for_24_hours(
    office: Office, courier: Courier
) -> None:
    letter = office.letter()
    sent(office, letter)
    office.clock.go(DAY - 1)
    answer = again(office, letter)
    assert (answer.id, answer.kind) == (letter.id, "sent")
    assert narrow(answer.state, Sent).at.iso == "2026-11-15T00:00:10Z"
    assert len(courier.accepted) == 1


def test_the_same_call_after_24_hours_is_a_new_letter_whose_card_says_so(office: Office) -> None:
    letter = office.letter()
    sent(office, letter)
    office.clock.go(DAY)
    fresh = again(office, letter)
    assert fresh.id != letter.id
    assert fresh.kind == "pending"
    assert f"The same text was written before: {letter.id}" in str(fresh.card)
    assert letter.id in office.head(fresh.id)


def test_the_same_call_for_a_rejected_letter_gets_the_reason_for_ever(office: Office) -> None:
    letter = office.letter()
    office.propose(letter)
    office.desk.decide(letter.id, "reject", by="ada", reason="Not to Ann")
    office.clock.go(30 * DAY)
    for key in ("", "new"):
        answer = again(office, letter, key=key)
        assert (answer.id, narrow(answer.state, Rejected).reason) == (letter.id, "Not to Ann")
    assert office.desk.ledger.lists.summaries() == []


def closed(office: Office, courier: Courier, letter: Letter, kind: str, **wish: str) -> None:
    office.propose(letter, SEND, **wish)
    if kind == "failed":
        courier.refuses(BARRED)
        office.desk.approve(letter.id, by="ada", digest=letter.digest)
        office.clock.go(10)
        office.desk.send_approved()
    elif kind == "expired":
        office.clock.go(3 * DAY)
        office.look()
    else:
        office.desk.calls.withdraw(SEND, letter.id)
    assert office.state_of(letter.id) == kind


@pytest.mark.parametrize("kind", ["failed", "expired", "withdrawn"])
def test_the_same_call_for_a_letter_that_failed_expired_or_was_withdrawn_is_a_new_letter(
    office: Office, courier: Courier, kind: str
) -> None:
    letter = office.letter()
    closed(office, courier, letter, kind)
    fresh = again(office, letter)
    assert (fresh.id != letter.id, fresh.kind) == (True, "pending")
    assert again(office, letter, 2).id == fresh.id


def test_of_several_letters_of_one_content_the_open_one_is_the_letter(office: Office) -> None:
    letter = office.letter()
    office.propose(letter)
    office.desk.calls.withdraw(SEND, letter.id)
    second = again(office, letter)
    office.desk.decide(second.id, "reject", by="ada", reason="no")
    office.move(letter.id, "Approved")
    office.look()
    assert office.state_of(letter.id) == "pending"
    assert again(office, letter, 2).id == letter.id


# The idempotency key


def test_the_same_key_names_the_same_letter(office: Office) -> None:
    letter = office.letter()
    office.propose(letter, key="k1")
    assert again(office, letter, key="k1").id == letter.id


def test_a_key_used_for_other_words_is_a_conflict_and_nothing_is_entered(office: Office) -> None:
    letter = office.letter()
    office.propose(letter, key="k1")
    with pytest.raises(Conflict, match=letter.id):
        office.propose(office.letter(), key="k1")
    assert len(office.desk.ledger.lists.summaries()) == 1


def test_a_key_is_its_agents_own(office: Office) -> None:
    office.propose(office.letter(), key="k1")
    assert office.propose(office.letter(), call=OTHER, key="k1").kind == "pending"


def test_a_new_key_for_an_open_letter_binds_to_it(office: Office) -> None:
    letter = office.letter()
    office.propose(letter, key="k1")
    assert again(office, letter, key="k2").id == letter.id
    with pytest.raises(Conflict):
        office.propose(office.letter(), key="k2")


def test_a_key_names_its_letter_for_ever_once_it_was_sent(office: Office, courier: Courier) -> None:
    letter = office.letter()
    sent(office, letter, key="k1")
    office.clock.go(365 * DAY)
    answer = again(office, letter, key="k1")
    assert (answer.id, answer.kind) == (letter.id, "sent")
    assert len(courier.accepted) == 1


def test_a_new_key_after_the_sending_is_a_new_letter_whose_card_says_so(office: Office) -> None:
    letter = office.letter()
    sent(office, letter, key="k1")
    fresh = again(office, letter, key="k2")
    assert (fresh.id != letter.id, fresh.kind) == (True, "pending")
    assert "written before" in str(fresh.card)
    assert again(office, letter, 2, key="k1").id == letter.id
    assert again(office, letter, 3, key="k2").id == fresh.id


@pytest.mark.parametrize("kind", ["failed", "expired", "withdrawn"])
def test_a_key_names_its_letter_even_when_that_is_closed(
    office: Office, courier: Courier, kind: str
) -> None:
    letter = office.letter()
    closed(office, courier, letter, kind, key="k1")
    assert again(office, letter, key="k1").id == letter.id
    assert again(office, letter, key="k2").id != letter.id


def test_a_key_that_a_person_opened_again_names_the_open_letter(office: Office) -> None:
    letter = office.letter()
    office.propose(letter, key="k1")
    office.desk.decide(letter.id, "reject", by="ada", reason="no")
    office.move(letter.id, "Approved")
    office.look()
    answer = again(office, letter, key="k1")
    assert (answer.id, answer.kind) == (letter.id, "pending")


@pytest.mark.parametrize("key", ["k" * 201, "a\nb", "\x00", "a\u202eb"])
def test_a_key_that_is_too_long_or_unprintable_is_refused(office: Office, key: str) -> None:
    with pytest.raises(Invalid):
        office.propose(office.letter(), key=key)
    assert office.desk.ledger.lists.summaries() == []


def test_a_key_of_200_characters_is_taken(office: Office) -> None:
    assert office.propose(office.letter(), key="k" * 200).kind == "pending"


# Rehearsals


def test_a_rehearsal_with_a_key_does_not_use_it_up(office: Office) -> None:
    letter = office.letter()
    office.reopen(live=False)
    assert office.propose(letter, key="k1").kind == "rehearsal"
    office.reopen(live=True)
    entry = again(office, letter, key="k1")
    assert (entry.kind, entry.id != letter.id) == ("pending", True)
    assert again(office, letter, 2, key="k1").id == entry.id


def test_a_rehearsal_is_replaced_by_the_live_letter_of_the_same_content(office: Office) -> None:
    letter = office.letter()
    office.reopen(live=False)
    office.propose(letter)
    office.reopen(live=True)
    entry = again(office, letter)
    assert entry.kind == "pending"
    assert office.desk.ledger.lists.summaries("rehearsal") == []


def test_the_letter_that_replaces_a_rehearsal_has_its_whole_card(office: Office) -> None:
    """The card records whom the person has written to since: that is no part of the letter's own transaction."""
    letter = office.letter()
    office.reopen(live=False)
    office.propose(letter)
    office.reopen(live=True)
    sent(office, office.letter(to=(Address("bob", "example.org"),)))
    entry = again(office, letter)
    assert entry.kind == "pending"
    assert "unchecked" not in {line.kind for line in entry.card.lines}


def test_a_letter_that_closes_while_its_call_is_repeated_is_entered_anew(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = office.letter()
    first = office.propose(letter)
    sent(office, office.letter(to=(Address("bob", "example.org"),)))
    existing, looks = Proposals._existing, list[Entry | None]()

    def closing(*args: Any) -> Entry | None:
        known = existing(*args)
        if not looks:
            office.desk.calls.withdraw(SEND, first.id)
        looks.append(known)
        return known

    monkeypatch.setattr(Proposals, "_existing", closing)
    entry = again(office, letter)
    assert (entry.kind, entry.id != first.id) == ("pending", True)
    assert "unchecked" not in {line.kind for line in entry.card.lines}


def test_a_rehearsal_of_other_words_stays(office: Office) -> None:
    office.reopen(live=False)
    office.propose()
    office.propose()
    assert len(office.desk.ledger.lists.summaries("rehearsal")) == 2


def test_a_letter_that_waits_is_not_rehearsed_over(office: Office) -> None:
    letter = office.letter()
    office.propose(letter)
    office.reopen(live=False)
    answer = again(office, letter)
    assert (answer.id, answer.kind) == (letter.id, "pending")


# Replacing


def test_a_letter_names_the_one_that_it_replaces(office: Office) -> None:
    first = office.propose()
    office.desk.decide(first.id, "revise", by="ada", reason="shorter")
    assert office.propose(office.letter(), replaces=first.id).replaces == first.id


def test_a_letter_of_another_agent_cannot_be_replaced(office: Office) -> None:
    first = office.propose(call=OTHER)
    with pytest.raises(NotFound):
        office.propose(office.letter(), replaces=first.id)
    assert len(office.desk.ledger.lists.summaries()) == 1


def test_a_letter_that_does_not_exist_cannot_be_replaced(office: Office) -> None:
    with pytest.raises(NotFound):
        office.propose(office.letter(), replaces="zzzzzzzzzz")


def test_the_same_words_do_not_replace_the_letter_that_was_sent_back(office: Office) -> None:
    letter = office.letter()
    office.propose(letter)
    office.desk.decide(letter.id, "revise", by="ada", reason="shorter")
    answer = again(office, letter, replaces=letter.id)
    assert (answer.id, narrow(answer.state, Rejected).revise) == (letter.id, True)


def test_a_persons_letter_of_long_ago_does_not_hide_the_agents_own_that_waits(
    office: Office,
) -> None:
    letter, person = office.letter(), Call("approve_draft", "person", "person")
    assert office.propose(letter, call=person, verdict="person").kind == "sent"
    office.clock.go(2 * DAY)
    first = again(office, letter, match_persons_letter=True)
    assert first.kind == "pending"
    assert again(office, letter, 2, match_persons_letter=True).id == first.id


def test_a_new_key_for_a_rejected_letter_is_not_used_up_by_the_answer(office: Office) -> None:
    letter = office.letter()
    office.propose(letter, key="first")
    office.desk.decide(letter.id, "reject", by="ada", reason="too long")
    answer = again(office, letter, key="second")
    assert (answer.id, answer.kind) == (letter.id, "rejected")
    shorter = office.propose(office.letter(text="Short.\n"), key="second")
    assert shorter.kind == "pending"


def approved_draft(office: Office, letter: Letter) -> Entry:
    """Let a person approve a draft of their own; nothing is sent yet."""
    call, wish = Call("approve_draft", "person", "person"), Proposal(verdict="person")
    return office.desk.calls.propose(call, letter, wish)


def test_a_persons_approved_letter_of_the_same_words_goes_before_the_agents_own_that_waits(
    office: Office, courier: Courier
) -> None:
    letter = office.letter()
    office.propose(letter)
    own = approved_draft(office, replace(letter, id="cccccccccc"))
    assert own.kind == "approved"
    answer = again(office, letter, match_persons_letter=True)
    assert (answer.id, answer.kind) == (own.id, "sent")
    assert office.state_of(letter.id) == "pending"
    assert len(courier.accepted) == 1


def test_the_agents_own_approved_letter_goes_before_a_persons_of_the_same_words(
    office: Office,
) -> None:
    letter = office.letter()
    office.propose(letter)
    office.desk.approve(letter.id, by="ada", digest=letter.digest)
    own = approved_draft(office, replace(letter, id="cccccccccc"))
    answer = again(office, letter, match_persons_letter=True)
    assert (answer.id, answer.kind) == (letter.id, "sent")
    assert office.state_of(own.id) == "approved"
