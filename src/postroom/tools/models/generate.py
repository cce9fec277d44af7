"""Generates the files that servers list their tools from, out of the contracts and the models of arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, create_model

from postroom import __version__
from postroom.tools.arguments import Check
from postroom.tools.listing import FOLDER, SERVERS
from postroom.tools.models import Arguments, check_pattern, check_size
from postroom.tools.table import MAIL, Contract, Hints, Resource, Result, Tool

NAMES: Final = tuple(name for contracts in SERVERS.values() for name in contracts.values())
COMMAND: Final = "make listings"
UNLISTED_BOUND: Final = (
    1_000  # a bound that is enforced and not listed: this one says nothing to a model
)
UNLISTED: Final = frozenset({"title", "maxItems"})


def main() -> None:
    """Write every file."""
    for name in NAMES:
        file_of(name).write_text(text_of(name), encoding="utf-8")


def file_of(name: str) -> Path:
    """Return the file of a contract's listing."""
    return Path(FOLDER, f"{name}.json")


def text_of(name: str) -> str:
    """Return what that file holds if it is up to date."""
    found: Contract = import_module(f"postroom.tools.contracts.{name}").CONTRACT
    return json.dumps(listing_of(found), indent=2, ensure_ascii=False) + "\n"


def listing_of(contract: Contract) -> dict[str, Any]:
    """Return what a server says without being called, and what it enforces of its tools' arguments."""
    about = contract.about
    server = {"name": about.name, "title": about.title}
    if about.description:
        server["description"] = about.description
    if about.version != __version__:
        server["version"] = about.version
    return {
        "server": server,
        "instructions": contract.instructions,
        "accounts": [t.name for t in contract.tools if contract.accounts and t.actor == MAIL],
        "tools": list(map(_tool, contract.tools)),
        "resourceTemplates": list(map(_template, contract.resources)),
        "arguments": {tool.name: _checks(tool) for tool in contract.tools},
    }


def model_of(tool: Tool) -> type[Arguments]:
    """Return the model of a tool's arguments, which annotates the second parameter of its function."""
    _, name, *_ = tool.function.__annotations__.values()
    module = tool.function.__module__.rpartition(".")[2]
    model: type[Arguments] = getattr(import_module(f"postroom.tools.models.{module}"), name)
    return model


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": " ".join((tool.function.__doc__ or "").split()),
        "inputSchema": _schema(model_of(tool), defaults=tool.whole),
        # An error has none of the result's fields, and some clients hold it to the schema too.
        "outputSchema": _optional(_schema(_model_of_result(tool.result))),
        "annotations": _annotations(tool.hints),
    }


def _annotations(hints: Hints) -> dict[str, bool]:
    # What is not said is as the protocol has it: it may write, and writing again does more. Of what
    # only reads, the two in the middle say nothing.
    if hints.read_only:
        return {"readOnlyHint": True, "openWorldHint": hints.open_world}
    found = {"destructiveHint": hints.destructive}
    if hints.idempotent:
        found["idempotentHint"] = True
    return found | {"openWorldHint": hints.open_world}


def _template(resource: Resource) -> dict[str, str]:
    return {
        "name": resource.scheme,
        "title": resource.title,
        "uriTemplate": f"{resource.scheme}://{{id}}",
        "description": resource.text,
        "mimeType": "text/plain",
    }


# Schemas


def _model_of_result(result: type[Result]) -> type[BaseModel]:
    """Return a model with the fields of a result, for its schema."""
    hints, aliases = get_type_hints(result), result._aliases  # noqa: SLF001
    fields: dict[str, Any] = {
        name: (
            _type(hints[name]),
            Field(result._field_defaults.get(name, ...), alias=aliases.get(name)),
        )
        for name in result._fields
    }
    made: type[BaseModel] = create_model(result.__name__, **fields)
    return made


def _type(hint: Any) -> Any:  # noqa: ANN401 - a type, whichever it is
    if isinstance(hint, type) and issubclass(hint, Result):
        return _model_of_result(hint)
    if get_origin(hint) is tuple:
        return tuple[_type(get_args(hint)[0]), ...]  # type: ignore[misc]
    return hint


def _schema(model: type[BaseModel], *, defaults: bool = False) -> dict[str, Any]:
    """Return a model's schema without what says nothing: titles that repeat the name, references used once.

    Of the defaults, those that are empty or false are listed only on request.
    """
    made = model.model_json_schema()
    short = _short(made, made.pop("$defs", {}), defaults=defaults)
    assert isinstance(short, dict)
    short.pop("description", None)
    return short


def _short(value: object, definitions: Mapping[str, Any], *, defaults: bool) -> object:
    shorten = partial(_short, definitions=definitions, defaults=defaults)
    if isinstance(value, list):
        return list(map(shorten, value))
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        found = dict(definitions[value["$ref"].rpartition("/")[2]])
        found.pop("description", None)
        return shorten(found)
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if key == "properties":
            kept[key] = {name: shorten(about) for name, about in inner.items()}
        elif key == "default" and not inner:
            kept |= {key: inner} if defaults else {}
        elif key not in UNLISTED and inner != UNLISTED_BOUND:
            kept[key] = shorten(inner)
    return kept


def _optional(schema: Any) -> Any:  # noqa: ANN401 - a schema is JSON
    """Return a schema that asks for nothing."""
    if isinstance(schema, list):
        return [_optional(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lists = isinstance(schema.get("required"), list)
    return {
        key: _optional(inner) for key, inner in schema.items() if not (key == "required" and lists)
    }


# Checks


def _checks(tool: Tool) -> dict[str, Check]:
    try:
        return checks_of(model_of(tool))
    except ValueError as why:
        raise ValueError(
            f"{tool.name}: {why}; add it to `tools/arguments.py` and `_check`"
        ) from why


def checks_of(model: type[Arguments]) -> dict[str, Check]:
    """Return what a model enforces of each argument, in the form that `tools.arguments` describes."""
    schema: Any = model.__pydantic_core_schema__
    while schema["type"] != "model-fields":
        schema = schema["schema"]
    return {name: _check(field["schema"]) for name, field in schema["fields"].items()}


def _check(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return one check of Pydantic's own schema; raise `ValueError` for what `tools.arguments` cannot do."""
    match schema:
        case {"type": "default", "schema": inner}:
            made = schema["default_factory"]() if "default_factory" in schema else schema["default"]
            return {**_check(inner), "default": made}
        case {"type": "nullable", "schema": inner}:
            return {**_check(inner), "nullable": True}
        case {"type": "function-after", "schema": inner, "function": {"function": partial() as f}}:
            return {**_check(inner), **_validator(f)}
        case {"type": "list", "items_schema": inner}:
            return {"type": "list", **_bounds(schema, max="max_length"), "items": _check(inner)}
        case {"type": "str"}:
            return {"type": "string", **_bounds(schema, min="min_length", max="max_length")}
        case {"type": "int"}:
            return {"type": "integer", **_bounds(schema, min="ge", max="le")}
        case {"type": "bool"}:
            return {"type": "boolean", **_bounds(schema)}
        case {"type": "literal", "expected": values} if all(isinstance(v, str) for v in values):
            return {"type": "literal", "values": list(values), **_bounds(schema)}
        case {"type": "dict", "keys_schema": {"type": "str"}, "values_schema": {"type": "any"}}:
            return {"type": "object", **_bounds(schema)}
    raise ValueError(f"There is no check for {schema}")


def _validator(function: partial[str]) -> dict[str, Any]:
    if function.func is check_size:
        return {"at_most": function.args[0]}
    if function.func is check_pattern:
        return {"pattern": function.args[0], "message": function.args[1]}
    raise ValueError(f"There is no check for {function}")


# What a schema can have beside its bounds.
_NO_BOUNDS: Final = frozenset(
    {"type", "items_schema", "keys_schema", "values_schema", "expected", "metadata"}
)


def _bounds(schema: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Return the bounds of a schema by our names for them; raise `ValueError` if it has another one."""
    if more := schema.keys() - _NO_BOUNDS - set(names.values()):
        raise ValueError(f"There is no check for {more} of {schema}")
    return {name: schema[key] for name, key in names.items() if key in schema}
