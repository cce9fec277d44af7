"""A model is asked where no rule fits: what it may say, what becomes of it, and what it cannot do."""

import pytest

from postroom.core.errors import AuthRequired, Corrupt, Unavailable
from postroom.core.handbook import Case, Decision, Judgement
from postroom.vault.markdown import sections
from tests.fences import fenced
from tests.rounds import Rounds, Thinker, approved, with_model

WRITTEN = Judgement("draft_reply", "Dear Ann, I shall come.", "She asks for it.")


def test_a_model_is_asked_where_no_rule_fits_and_only_there(rounds: Rounds) -> None:
    rounds.handbook("from @shop.example: archive")
    model = with_model(rounds, WRITTEN)
    ad, tea = rounds.deliver("Ad", sender="ad@shop.example"), rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(ad) == ("Done", "done")
    assert rounds.letter_text(tea) == "Dear Ann, I shall come."
    (case,) = model.cases
    assert (case.sender, case.subject) == ("Ann <ann@example.com>", "Tea")
    assert "Come at four?" in case.body
    assert "from @shop.example: archive" in case.handbook


@pytest.mark.parametrize("decision", ["draft_reply", "urgent"])
def test_a_model_cannot_have_a_machine_answered(rounds: Rounds, decision: Decision) -> None:
    with_model(rounds, Judgement(decision, "Thank you!"))
    id = rounds.deliver(headers={"Auto-Submitted": "auto-generated"})
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")


def test_a_model_that_fails_is_asked_again_later_and_then_no_more(rounds: Rounds) -> None:
    model = with_model(rounds, Unavailable("It does not answer"))
    id = rounds.deliver()
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")
    assert rounds.mail_note(id)[1].text("held") == "It does not answer"
    rounds.round()
    assert len(model.cases) == 1  # its time has not come
    for _ in range(4):
        rounds.clock.go(3600)
        rounds.round()
    assert len(model.cases) == 4
    assert rounds.status(id) == ("Needs_Action", "needs_info")


def test_a_model_that_is_set_up_wrongly_keeps_mail_waiting_and_says_what_to_do(
    rounds: Rounds,
) -> None:
    wrong = AuthRequired("The key is refused", remedy="Set OTHER_KEY.")
    model = with_model(rounds, wrong)
    id = rounds.deliver()
    for _ in range(6):
        rounds.round()
        rounds.clock.go(7200)
    assert rounds.status(id) == ("Needs_Action", "pending")
    assert "Set OTHER_KEY." in (rounds.vault / "Dashboard.md").read_text()
    model.answers = [WRITTEN]
    rounds.round()
    assert rounds.status(id)[1] == "drafted"


def test_one_mail_that_a_model_cannot_judge_does_not_keep_others_waiting(rounds: Rounds) -> None:
    with_model(rounds, Corrupt("no decision"), WRITTEN)
    first, second = rounds.deliver("One"), rounds.deliver("Two", sender="bob@example.net")
    rounds.round()
    assert (rounds.status(first)[1], rounds.status(second)[1]) == ("pending", "drafted")


def test_another_version_is_written_as_the_person_wishes_and_replaces_the_first(
    rounds: Rounds,
) -> None:
    second = Judgement("draft_reply", "Dear Ann, gladly.")
    model = with_model(rounds, WRITTEN, second)
    id = rounds.deliver("Tea")
    rounds.round()
    first = rounds.item(id).letter
    rounds.desk.decide(first, "revise", by="ada", reason="Shorter, please")
    for _ in range(2):
        rounds.round()
    entry = rounds.desk.ledger.letters.get(rounds.item(id).letter)
    assert entry.replaces == first
    assert entry.letter.text.strip() == "Dear Ann, gladly."
    case = model.cases[1]
    assert (case.wish, case.draft.strip()) == ("Shorter, please", "Dear Ann, I shall come.")
    assert rounds.status(id) == ("Needs_Action", "drafted")


def test_what_was_approved_leaves_while_a_model_thinks(rounds: Rounds) -> None:
    first = rounds.deliver("Tea")
    rounds.round()
    rounds.carry(rounds.letter_note(first)[0], "Approved")
    rounds.round()

    class Slow(Thinker):
        """Thinks until the letter has left."""

        def judge(self, case: Case) -> Judgement:
            rounds.clock.go(rounds.rules.undo_seconds)
            while not rounds.sent():
                rounds.stopping.wait(0.05)
            return Judgement("archive")

    rounds.model = Slow()
    rounds.restart()
    second = rounds.deliver("Other", sender="bob@example.net")
    rounds.round()
    assert rounds.status(second) == ("Done", "done")


@pytest.mark.parametrize(
    "text",
    [
        "![x](http://evil.example/x.png)",
        "<img src=http://evil.example/x>",
        "```dataviewjs\nx\n```",
        "Yes.\n\n## Risk assessment\n\nNothing unusual.",
        "[[Handbook]]",
        "| a | b |\n|---|---|",
        "Yes.\n\n[//]: # (secret)\n\n%%hidden%%\n\nSo[^1].\n\n[^1]: and pay\n\n$\\phantom{x}$",
        "Plain words.",
    ],
)
def test_what_a_model_wrote_is_not_rendered_in_its_note(rounds: Rounds, text: str) -> None:
    with_model(rounds, Judgement("draft_reply", text))
    id = rounds.deliver("Tea")
    rounds.round()
    path, note = rounds.letter_note(id)
    assert path.startswith("Drafts/")
    assert fenced(dict(sections(note.body))["Letter"]) == text
    approved(rounds, id)
    assert rounds.sent() == ["Re: Tea"]
    assert rounds.status(id) == ("Done", "done")


def test_the_person_may_ask_for_as_many_versions_as_they_like(rounds: Rounds) -> None:
    answers = [Judgement("draft_reply", f"Version {number}.") for number in range(5)]
    with_model(rounds, *answers)
    id = rounds.deliver("Tea")
    rounds.round()
    for number in range(1, 5):
        rounds.desk.decide(rounds.item(id).letter, "revise", by="ada", reason="Again")
        for _ in range(2):
            rounds.round()
        assert rounds.letter_text(id) == f"Version {number}."


def test_answers_of_a_model_survive_a_crash_one_by_one(rounds: Rounds) -> None:
    class Dies(Thinker):
        def judge(self, case: Case) -> Judgement:
            if len(self.cases) == 3:
                raise KeyboardInterrupt
            return super().judge(case)

    rounds.model = Dies(Judgement("archive"))
    rounds.restart()
    for number in range(5):
        rounds.deliver(f"Tea {number}")
    with pytest.raises(KeyboardInterrupt):
        rounds.round()
    assert len(rounds.triaged()) == 3


def test_a_status_that_is_written_while_a_model_thinks_is_the_persons_word(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")

    class Slow(Thinker):
        def judge(self, case: Case) -> Judgement:
            path = rounds.vault / rounds.mail_note(id)[0]
            path.write_text(path.read_text().replace('"pending"', "done", 1))
            return super().judge(case)

    rounds.model = Slow(WRITTEN)
    rounds.restart()
    for _ in range(2):
        rounds.round()
    assert rounds.status(id) == ("Done", "done")
    assert rounds.desk.ledger.lists.summaries() == []


def test_a_fenced_draft_goes_home_and_keeps_what_it_shows(rounds: Rounds) -> None:
    with_model(rounds, Judgement("urgent", "See [[this]]."))
    id = rounds.deliver("Tea")
    rounds.round()
    path, note = rounds.letter_note(id)
    assert (note.text("priority"), note.text("reply_to_message_id")) == ("urgent", id)
    rounds.carry(path, "Approved")
    rounds.round()
    rounds.carry(rounds.letter_note(id)[0], "Drafts")  # taken back
    rounds.round()
    letter = rounds.item(id).letter
    assert rounds.state_of(letter) == "pending"
    assert rounds.where(letter) == "Drafts"
    renamed = rounds.vault / rounds.letter_note(id)[0]
    renamed.rename(renamed.with_name("tea.md"))
    rounds.round()
    assert rounds.note(letter).name == "tea.md"
