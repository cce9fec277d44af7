"""Arguments are checked as the Pydantic models check them: the same values, or the same words of refusal."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError, create_model

from postroom.core.errors import Invalid
from postroom.core.text import one_line
from postroom.tools.arguments import MAX_PROBLEMS, Check, Checks
from postroom.tools.listing import load, with_accounts
from postroom.tools.models import Arguments, model_of
from postroom.tools.table import Contract, Tool
from scripts.listings import NAMES
from tests.conftest import examples

ACCOUNTS = ("work", 'it\'s "mine"', "höme")


class Case(NamedTuple):
    """A contract's tool, what is enforced of its arguments, and the model that says the same."""

    contract: str
    tool: Tool
    checks: Checks
    model: type[Arguments]


def cases() -> list[Case]:
    """Return every tool of every contract; those for mail also with a choice of accounts."""
    found: list[Case] = []
    for name in NAMES:
        contract: Contract = import_module(f"postroom.tools.contracts.{name}").CONTRACT
        listing, chosen = load(name), cast("Any", Literal[ACCOUNTS])
        several = with_accounts(listing, ACCOUNTS, "work")["arguments"]
        for tool in contract.tools:
            model = model_of(tool.function)
            found.append(Case(name, tool, listing["arguments"][tool.name], model))
            if tool.name in listing["accounts"]:
                model = create_model(model.__name__, __base__=model, account=(chosen, "work"))
                found.append(Case(name, tool, several[tool.name], model))
    return found


CASES = cases()


def parse_by_model(case: Case, given: Mapping[str, Any]) -> Arguments:
    """Return what the model makes of the arguments; raise `Invalid` with its errors in our words."""
    try:
        return case.model.model_validate(dict(given))
    except ValidationError as wrong:
        problems = [problem(dict(error)) for error in wrong.errors(include_url=False)]
    more = f" and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    before = "failed to parse arguments: " if case.contract == "agents" else ""
    raise Invalid(
        f"{before}{case.tool.name}: {'; '.join(problems[:MAX_PROBLEMS])}{more}",
        remedy=f"It takes: {', '.join(case.model.model_fields)}. Nothing was done.",
    )


def problem(error: dict[str, Any]) -> str:
    place = one_line(".".join(map(str, error["loc"])))[:60] or "arguments"
    match error["type"]:
        case "missing":
            return f"{place} is missing"
        case "extra_forbidden":
            return f"{place} is not an argument of this tool"
    said = one_line(str(error["msg"])).removeprefix("Value error, ")[:160]
    return f"{place}: {said[:1].lower()}{said[1:]}"


def outcome(values: Mapping[str, object]) -> object:
    # As text too: 1 and True are equal, and are not the same.
    return values, repr(values)


def same(case: Case, arguments: Mapping[str, Any]) -> None:
    """Check that both make the same of these arguments."""
    fields = case.model.model_fields
    try:
        model = parse_by_model(case, arguments)
    except Invalid as refused:
        with pytest.raises(Invalid) as ours:
            case.tool.parse(arguments, case.checks)
        assert (ours.value.message, ours.value.remedy) == (refused.message, refused.remedy)
        return
    wanted = {name: getattr(model, name) for name in fields}
    assert outcome(case.tool.parse(arguments, case.checks)) == outcome(wanted)


# Texts as JSON has them: half a surrogate pair is none, and never gets as far as this.
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(CHARACTERS, max_size=8)
NUMBERS = st.integers() | st.sampled_from([0, 1, 19, 20, 21, 50, 51, 10**30, -(10**30)])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def near(bound: int) -> st.SearchStrategy[int]:
    return st.sampled_from([max(0, bound - 1), bound, bound + 1])


def fitting(check: Check) -> st.SearchStrategy[Any]:
    """Values of an argument's type, many of them at its bounds."""
    found: st.SearchStrategy[Any]
    match check["type"]:
        case "string":
            sizes = [check[key] for key in ("min", "max", "at_most") if key in check]
            found = TEXT | st.text("abc-1", min_size=1, max_size=8)
            for size in sizes:
                found |= st.builds(lambda sign, n: sign * n, st.sampled_from("xé "), near(size))
        case "integer":
            found = NUMBERS
            for bound in (check[key] for key in ("min", "max") if key in check):
                found |= st.sampled_from([bound - 1, bound, bound + 1])
        case "boolean":
            found = st.booleans()
        case "list":
            found = st.lists(fitting(check["items"]) | JSON, max_size=4)
            if "max" in check:
                found |= st.builds(lambda item, n: [item] * n, TEXT | JSON, near(check["max"]))
            if "one_item" in check:
                found |= fitting(check["items"])
        case "object":
            found = st.dictionaries(TEXT, JSON, max_size=3)
        case "literal":
            found = st.sampled_from(check["values"]) | TEXT
        case other:
            raise AssertionError(other)
    return found


@st.composite
def calls(draw: st.DrawFn) -> tuple[Case, dict[str, Any]]:
    """A tool and the arguments of a call, of which any may be wrong, missing or unknown."""
    case = draw(st.sampled_from(CASES))
    given: dict[str, Any] = {}
    for name, check in case.checks.items():
        if draw(st.integers(0, 9)) < ("default" in check and 5):
            continue
        if draw(st.integers(0, 19)):
            alias = draw(st.sampled_from([name, *check.get("aliases", ())]))
            given[alias] = draw(fitting(check) if draw(st.integers(0, 9)) else JSON)
    unknown = st.sampled_from(["account", "model_config", "self", ""]) | TEXT | st.text(min_size=61)
    for name in draw(st.lists(unknown, max_size=2) if not draw(st.integers(0, 5)) else st.just([])):
        given.setdefault(name, draw(JSON))
    names = draw(st.permutations(list(given)))
    return case, {name: given[name] for name in names}


@settings(max_examples=examples(2_000), suppress_health_check=[HealthCheck.too_slow])
@given(calls())
def test_a_call_is_parsed_as_the_model_parses_it(
    call: tuple[Case, dict[str, Any]],
) -> None:
    same(*call)


ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.0, 1.5, 10**30, -(10**30), 10**400, float("inf")),
    *("", " ", "x", "a b", "\x00", "é" * 65, "x" * 201, "x" * 1_001, "1", "ready", "work"),
    *([], [""], ["x"] * 101, ["x"] * 21, [None], [1, "x", ["x"]], ["x" * 1_001, 3], ("x",)),
    *({}, {"x": 1}, {"x": {"y": [None, 1.5]}}),
]


def test_every_argument_of_every_tool_takes_and_refuses_what_its_model_does() -> None:
    for case in CASES:
        needed: dict[str, Any] = {
            name: ["x"] if check["type"] == "list" else {} if check["type"] == "object" else "x"
            for name, check in case.checks.items()
            if "default" not in check
        }
        assert list(case.checks) == list(case.model.model_fields)
        for arguments in ({}, needed, {"surprise": 1, **needed}, {**needed, "": 1, "a\nb" * 40: 2}):
            same(case, arguments)
        for name, check in case.checks.items():
            for value in ODD:
                for alias in (name, *check.get("aliases", ())):
                    others = {key: needed[key] for key in needed if key != name}
                    same(case, {**others, alias: value})


def test_bounds_on_long_texts_are_those_of_the_models() -> None:
    for case in CASES:
        for name, check in case.checks.items():
            if size := check.get("at_most"):
                for text in ("x" * size, "x" * (size + 1)):
                    same(case, {name: text})
