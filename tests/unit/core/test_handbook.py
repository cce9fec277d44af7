"""The person's rules: read as they are written, or refused by line."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.errors import Corrupt
from postroom.core.handbook import (
    DECISIONS,
    Condition,
    Decision,
    Judgement,
    MailFacts,
    Rule,
    decide,
    parse,
)
from postroom.core.text import words
from tests.cases import for_each
from tests.narrow import present


def rules(*lines: str) -> tuple[Rule, ...]:
    return parse(enumerate(lines, 1))


def decided(rule: str, *, text: str = "", **facts: Any) -> str | None:
    found = decide(rules(rule), MailFacts(words=words(text), **facts))
    return found.judgement.decision if found else None


@for_each("decision", DECISIONS)
def test_every_decision_can_be_written(decision: Decision) -> None:
    (rule,) = rules(f"- anything: {decision}")
    assert rule.judgement == Judgement(decision)


def test_the_first_rule_that_fits_decides() -> None:
    found = rules("- list: archive", "- from @x.example: urgent", "- anything: needs_info")
    assert present(decide(found, MailFacts(sender="a@x.example"))).line == 2
    listed = MailFacts(sender="a@x.example", list_id="l.x.example")
    assert present(decide(found, listed)).line == 1
    assert present(decide(found, MailFacts())).line == 3
    assert decide(found[:2], MailFacts()) is None


@for_each(
    ("rule", "facts", "fits"),
    [
        ("- from ann@example.com: archive", {"sender": "ann@example.com"}, True),
        ("- from Ann@Example.com: archive", {"sender": "ann@example.com"}, True),
        ("- from `@example.com`: archive", {"sender": "ann@mail.example.com"}, True),
        ("- from example.com: archive", {"sender": "ann@notexample.com"}, False),
        ("- from ann@example.com: archive", {"sender": "joann@example.com"}, False),
        ("- to team@example.org: archive", {"recipients": ("x@y.z", "team@example.org")}, True),
        ("- subject invoice: archive", {"subject": "Your INVOICE, please"}, True),
        ("- subject invoice: archive", {"subject": "Invoices"}, False),
        ("- subject `past due`: archive", {"subject": "It is past   due now"}, True),
        ("- subject `past due`: archive", {"subject": "due past"}, False),
        ("- subject café: archive", {"subject": "Le CAFÉ"}, True),
        ("- text offer, sale: archive", {"text": "A sale!"}, True),
        ("- text `a: b`: archive", {"text": "a, b"}, True),
        ("- label Work/Clients: archive", {"labels": ("work/clients",)}, True),
        ("- list: archive", {"list_id": "l.example.org"}, True),
        ("- list l.example.org: archive", {"list_id": "l.example.org"}, True),
        ("- list other.example.org: archive", {"list_id": "l.example.org"}, False),
        ("- automatic: archive", {"automatic": True}, True),
        ("- automatic: archive", {}, False),
        ("- from @x.example and subject tea: archive", {"sender": "a@x.example"}, False),
        (
            "- from @x.example and subject tea: archive",
            {"sender": "a@x.example", "subject": "Tea"},
            True,
        ),
        ("* anything: archive", {}, True),
        ("3. anything: `archive`", {}, True),
    ],
)
def test_a_rule_fits_what_it_says(rule: str, facts: dict[str, Any], fits: bool) -> None:
    assert (decided(rule, **facts) == "archive") is fits


def test_the_words_after_a_decision_are_its_text() -> None:
    (rule,) = rules(
        "- from @x.example, b@y.example and text tea: draft_reply Yes: at four, gladly."
    )
    assert rule.judgement == Judgement("draft_reply", "Yes: at four, gladly.")
    assert rule.conditions == (
        Condition("from", ("@x.example", "b@y.example")),
        Condition("text", ("tea",)),
    )


@for_each(
    ("line", "why"),
    [
        ("- form a@b.example: archive", "begins with one of"),
        ("- from: archive", "says nothing"),
        ("- from Ann: archive", "takes addresses and domains"),
        ("- from a@b.example", "a colon and a decision are missing"),
        ("- from a@b.example archive", "takes addresses and domains"),
        ("- anything: bin", "is not a decision"),
        ("-list: archive", "begins with `-` and a space"),
        ("– list: archive", "begins with `-` and a space"),
        ("- from a@b.example or subject x: archive", "takes addresses"),
        ("- from: `a@b.example`: archive", "without a colon between"),
        ('- from "a@b.example": archive', "needs no quotes"),
        ("- from <a@b.example>: archive", "takes addresses and domains"),
        ("- from *@b.example: archive", "takes addresses and domains"),
        ("%% - list: archive %%", "a comment would not hide"),
        ("- anything:", "is not a decision"),
        ("- anything: archive now", "takes no text"),
        ("- automatic yes: archive", "stands alone"),
        ("- subject `...`: archive", "names no word"),
        ("  - anything: archive", "not indented"),
        ("- [ ] anything: archive", "no checkbox"),
        ("- anything and : archive", "begins with one of"),
        ("- list and anything else: archive", "stands alone"),
        ("- anything: draft_reply " + "x" * 10_001, "longer than"),
    ],
)
def test_a_line_that_is_no_rule_is_refused_by_its_number(line: str, why: str) -> None:
    with pytest.raises(Corrupt, match="line 2") as refused:
        rules("- list: archive", line)
    assert why in refused.value.message
    assert "no mail is triaged" in refused.value.remedy


def test_prose_between_rules_is_the_persons_own() -> None:
    assert len(rules("Newsletters first.", "", "- list: archive", "", "and so on")) == 1


def test_a_rule_goes_on_until_a_blank_line() -> None:
    (rule,) = rules("- anything: draft_reply Thank you,", "  we accept only", "paper.", "", "Mine.")
    assert rule.judgement.text == "Thank you, we accept only paper."


def test_decisions_and_conditions_are_known_in_any_case() -> None:
    (rule,) = rules("- List: Archive")
    assert rule.judgement.decision == "archive"


@given(st.text(max_size=200))
def test_any_line_is_a_rule_prose_or_refused(text: str) -> None:
    try:
        rules(f"- {text}")
    except Corrupt as refused:
        assert refused.message.startswith("Handbook.md, line 1: ")


@pytest.mark.parametrize("line", ["| a | b |", "> quoted", "---"])
def test_what_is_no_text_of_a_rule_is_refused_below_one(line: str) -> None:
    with pytest.raises(Corrupt, match="line 2"):
        rules("- anything: draft_reply Yes.", line)


def test_a_second_paragraph_is_not_cut_off_silently() -> None:
    with pytest.raises(Corrupt, match="line 3: a rule ends at a blank line"):
        rules("- anything: draft_reply Yes.", "", "  Ann")


def test_a_rule_does_not_go_on_past_a_heading_or_code() -> None:
    (rule,) = parse([(1, "- anything: draft_reply Hi"), (3, "more prose")])
    assert rule.judgement.text == "Hi"
