"""The files that servers list their tools from: up to date, and imported without Pydantic."""

import subprocess
import sys
from importlib import import_module
from inspect import signature
from typing import Any

import pytest
from pydantic import Field

from postroom.tools.listing import load, with_accounts
from postroom.tools.models import Arguments, model_of
from postroom.tools.table import Contract, Result, dump
from scripts.listings import COMMAND, NAMES, checks_of, file_of, text_of


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_what_the_contract_and_its_models_give(name: str) -> None:
    assert file_of(name).read_text(encoding="utf-8") == text_of(name), f"run {COMMAND}"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_the_tools_of_its_contract_in_their_order(name: str) -> None:
    contract: Contract = import_module(f"postroom.tools.contracts.{name}").CONTRACT
    listing = load(name)
    assert contract.name == name
    assert [tool["name"] for tool in listing["tools"]] == [tool.name for tool in contract.tools]
    assert [tool.name for tool in contract.tools] == list(listing["arguments"])
    schemes = [template["uriTemplate"] for template in listing["resourceTemplates"]]
    assert schemes == [f"{resource.scheme}://{{id}}" for resource in contract.resources]


def test_mail_tools_have_a_choice_of_accounts_where_there_are_several() -> None:
    listing = load("all")
    assert with_accounts(listing, ("work",), "work") is listing
    assert with_accounts(load("vault"), ("work", "home"), "home") is load("vault")
    before = str(listing)
    several = with_accounts(listing, ("work", "home"), "home")
    assert str(load("all")) == before
    assert "search_email" in listing["accounts"]
    for tool in several["tools"]:
        properties = tool["inputSchema"]["properties"]
        checks = several["arguments"][tool["name"]]
        if tool["name"] in listing["accounts"]:
            account = {"default": "home", "enum": ["work", "home"], "type": "string"}
            assert list(properties.items())[-1] == ("account", account)
            assert checks["account"]["values"] == ["work", "home"]
        else:
            assert "account" not in {*properties, *checks}


def test_a_contract_is_imported_without_pydantic_or_click() -> None:
    modules = ", ".join(f"postroom.tools.contracts.{name}" for name in NAMES)
    heavy = "{'pydantic', 'pydantic_core', 'typing_extensions', 'click', 'mcp', 'anyio'}"
    program = f"import sys, {modules}; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_keyword_parameters_of_a_tool_are_the_model_of_its_arguments(name: str) -> None:
    for tool in import_module(f"postroom.tools.contracts.{name}").CONTRACT.tools:
        model = model_of(tool.function)
        assert issubclass(model, Arguments)
        assert ["context", *model.model_fields] == list(signature(tool.function).parameters)


def test_a_bound_that_no_check_enforces_is_an_error() -> None:
    class Multiple(Arguments):
        number: int = Field(multiple_of=3)

    class Real(Arguments):
        number: float

    for model in (Multiple, Real):
        with pytest.raises(ValueError, match="There is no check for"):
            checks_of(model)


class Inner(Result, sender="from"):
    """A result in another one."""

    sender: str
    count: int = 0


class Outer(Inner):
    """A result."""

    inner: tuple[Inner, ...] = ()
    about: dict[str, Any] | None = None


def test_a_result_is_dumped_without_defaults_under_its_names_outside() -> None:
    assert dump(Outer(sender="")) == {"from": ""}
    inner = Inner(sender="ann", count=2)
    assert dump(Outer(sender="bob", inner=(inner, Inner(sender="")), about={})) == {
        "from": "bob",
        "inner": [{"from": "ann", "count": 2}, {"from": ""}],
        "about": {},
    }


def test_a_result_is_a_value() -> None:
    one = Inner(sender="ann")
    assert one == Inner(sender="ann", count=0) != Outer(sender="ann")
    assert one._replace(count=3) == Inner(sender="ann", count=3)
    assert repr(one) == "Inner(sender='ann', count=0)"
    with pytest.raises(AttributeError, match=r"Inner\.count cannot be changed"):
        one.count = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match="Inner: missing or unknown: sender"):
        Inner()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Inner: missing or unknown: surprise"):
        Inner(sender="ann", surprise=1)  # type: ignore[call-arg]
