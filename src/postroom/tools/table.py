"""A tool as a row of a table: name, title, arguments, result, what it may do, and the function."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from postroom.core.errors import Invalid
from postroom.core.text import line
from postroom.desk.desk import Desk
from postroom.desk.outbox import Call

MAX_PROBLEMS: Final = 3  # of a call's arguments that are told


class Arguments(BaseModel):
    """What a tool is called with: of these types and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Result(BaseModel):
    """What a tool answers, beside its text."""

    model_config = ConfigDict(frozen=True)


class Visit(NamedTuple):
    """One call at the desk: by whom, by which tool, for which account."""

    desk: Desk
    call: Call
    account: str = ""


class Reply(NamedTuple):
    """An answer: the same as text and as values."""

    text: str
    result: BaseModel


# A tool that waits yields how many seconds, and is called on afterwards; nobody else waits with it.
Waiting = Generator[float, None, Reply]
Function = Callable[[Visit, Any], Reply | Waiting]


class Hints(NamedTuple):
    """What a tool may do, as MCP's annotations say it."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


READS: Final = Hints(read_only=True, idempotent=True)


@dataclass(frozen=True)
class Tool:
    """One row."""

    name: str
    title: str
    text: str
    arguments: type[Arguments]
    result: type[Result]
    hints: Hints
    function: Function

    def parse(self, given: Mapping[str, Any]) -> Arguments:
        """Return the arguments as values, or say what is wrong with them."""
        try:
            return self.arguments.model_validate(dict(given))
        except ValidationError as wrong:
            problems = [_problem(dict(error)) for error in wrong.errors(include_url=False)]
        more = f" and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        known = ", ".join(self.arguments.model_fields)
        raise Invalid(
            f"{self.name}: {'; '.join(problems[:MAX_PROBLEMS])}{more}",
            remedy=f"It takes: {known}. Nothing was done.",
        )

    def of_accounts(self, names: tuple[str, ...], default: str) -> Tool:
        """Return the tool with a choice of accounts, where there are several."""
        if len(names) < 2:
            return self
        chosen: Any = Literal[names]
        model = create_model(
            self.arguments.__name__, __base__=self.arguments, account=(chosen, default)
        )
        return replace(self, arguments=model)

    @cached_property
    def schemas(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON Schemas of the arguments and of the result."""
        told = self.arguments.model_json_schema(schema_generator=_Terse)
        answered = self.result.model_json_schema(schema_generator=_Terse, mode="validation")
        return told, answered


def tool(
    function: Function,
    title: str,
    arguments: type[Arguments],
    result: type[Result],
    hints: Hints,
) -> Tool:
    """Return the row of a function: its name is the tool's, and its docstring what agents are told."""
    text = " ".join((function.__doc__ or "").split())
    return Tool(function.__name__, title, text, arguments, result, hints, function)


class Resource(NamedTuple):
    """A thing that can be read by its address, `scheme://ID`; `action` is what the log calls that."""

    scheme: str
    title: str
    text: str
    action: str
    function: Callable[[Visit, str], str]


class Contract(NamedTuple):
    """What one server shows."""

    instructions: str
    tools: tuple[Tool, ...]
    resources: tuple[Resource, ...] = ()


class _Terse(GenerateJsonSchema):
    """Schemas without what says nothing: titles that repeat the name, references used once."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        """Return the schema of a model."""
        made = super().generate(schema, mode)
        definitions = made.pop("$defs", {})
        short = _short(made, definitions)
        assert isinstance(short, dict)
        short.pop("description", None)
        return short


_SAYS_NOTHING: Final = frozenset({"title", "maxItems"})
_MANY: Final = 1_000  # a bound this high is enforced, and not worth telling


def _short(value: object, definitions: Mapping[str, Any]) -> object:
    if isinstance(value, list):
        return [_short(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        found = dict(definitions[value["$ref"].rpartition("/")[2]])
        found.pop("description", None)
        return _short(found, definitions)
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if key == "properties":
            kept[key] = {name: _short(about, definitions) for name, about in inner.items()}
        elif key not in _SAYS_NOTHING and not (key == "default" and not inner) and inner != _MANY:
            kept[key] = _short(inner, definitions)
    return kept


def _problem(error: dict[str, Any]) -> str:
    """Return what is wrong with one argument, without repeating what was given."""
    place = line(".".join(map(str, error["loc"])))[:60] or "arguments"
    match error["type"]:
        case "missing":
            return f"{place} is missing"
        case "extra_forbidden":
            return f"{place} is no argument of this tool"
    said = line(str(error["msg"]))[:160]
    return f"{place}: {said[:1].lower()}{said[1:]}"
