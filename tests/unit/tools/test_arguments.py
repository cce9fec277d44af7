"""Arguments of a call: defaults and refusals."""

import pytest

from postroom.core.errors import Invalid
from postroom.tools.arguments import Checks, parse

CHECKS: Checks = {
    "to": {"type": "list", "max": 2, "items": {"type": "string", "max": 3}},
    "cc": {"type": "list", "items": {"type": "string"}, "default": []},
    "set": {"type": "object", "default": {}},
    "limit": {"type": "integer", "min": 1, "max": 50, "default": 20},
    "status": {"type": "literal", "values": ["ready"], "default": "ready"},
}


def refused(**given: object) -> str:
    with pytest.raises(Invalid) as wrong:
        parse("send", CHECKS, given)
    assert wrong.value.remedy == "It takes: to, cc, set, limit, status. Nothing was done."
    return wrong.value.message


def test_defaults_are_filled_in_and_each_call_has_its_own() -> None:
    first, second = parse("send", CHECKS, {"to": ["a"]}), parse("send", CHECKS, {"to": ["a"]})
    assert first == {"to": ["a"], "cc": [], "set": {}, "limit": 20, "status": "ready"}
    first["cc"].append("b")
    first["set"]["x"] = 1
    assert (second["cc"], second["set"]) == ([], {})
    assert CHECKS["cc"]["default"] == []


def test_it_is_known_whether_an_argument_was_given_that_null_stands_for() -> None:
    checks: Checks = {"replace": {"type": "string", "default": None}}
    assert parse("edit", checks, {}) == {"replace": None}
    assert parse("edit", checks, {"replace": ""}) == {"replace": ""}
    with pytest.raises(Invalid, match="replace: input should be a valid string"):
        parse("edit", checks, {"replace": None})


def test_all_problems_are_counted_and_the_first_three_named() -> None:
    said = refused(cc="x", limit=True, status="work", surprise=1)
    assert said == (
        "send: to is missing; cc: input should be a valid list; limit: input should be a valid integer"
        " and 2 more"
    )
    assert refused(to=[], surprise=1) == "send: surprise is not an argument of this tool"


def test_an_item_is_named_by_its_number() -> None:
    assert refused(to=["ok", "long"]) == "send: to.1: string should have at most 3 characters"
    assert refused(to=["", "", ""]) == (
        "send: to: list should have at most 2 items after validation, not 3"
    )


def test_what_was_given_is_not_repeated() -> None:
    assert refused(to=[], status="secret") == "send: status: input should be 'ready'"


OTHER_FORMS: Checks = {
    "to": {"type": "list", "max": 1, "items": {"type": "string", "max": 3}, "one_item": True},
    "id": {"type": "string", "default": "", "aliases": ["message_id", "mail"]},
}


def test_a_text_stands_for_a_list_of_one_or_none() -> None:
    assert parse("send", OTHER_FORMS, {"to": "a,b"}) == {"to": ["a,b"], "id": ""}
    assert parse("send", OTHER_FORMS, {"to": ""})["to"] == []
    for wrong, words in (("long", "to.0: string should"), (1, "to: input should be a valid list")):
        with pytest.raises(Invalid, match=words):
            parse("send", OTHER_FORMS, {"to": wrong})


def test_an_argument_is_taken_under_one_of_its_names() -> None:
    for name in ("id", "message_id", "mail"):
        assert parse("get", OTHER_FORMS, {"to": [], name: "m1"}) == {"to": [], "id": "m1"}
        with pytest.raises(Invalid, match=f"^get: {name}: input should be a valid string$"):
            parse("get", OTHER_FORMS, {"to": [], name: 1})
    with pytest.raises(Invalid) as wrong:
        parse("get", OTHER_FORMS, {"to": [], "mail": "m1", "id": "m1"})
    assert wrong.value.message == "get: id and mail are one argument: give id alone"
    assert wrong.value.remedy == "It takes: to, id. Nothing was done."
