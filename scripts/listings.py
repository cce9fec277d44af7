"""Write src/postroom/tools/contracts/NAME.json, from which servers list their tools, out of the contracts.

`make listings` runs it after a change of a tool or its arguments. Tests compare the files with what it gives.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from postroom.core.mail_view import FileView
from postroom.tools.arguments import Check, as_list
from postroom.tools.listing import FOLDER, SERVERS
from postroom.tools.models import Arguments, check_pattern, check_size, model_of
from postroom.tools.table import MAIL, Contract, Resource, Result, Tool

NAMES: Final = tuple(name for contracts in SERVERS.values() for name in contracts.values())
COMMAND: Final = "make listings"
UNLISTED_BOUND: Final = (
    1_000  # a bound that is enforced and not listed: this one says nothing to a model
)
UNLISTED: Final = frozenset({"title", "maxItems"})
OPEN: Final = (
    "approval"  # the contract whose document lists no `additionalProperties`: refused all the same
)
FREE: Final = "all"  # follows no document, so what it lists as required is what it requires
JSON_TYPES: Final = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


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
    texts = tomllib.loads(Path(FOLDER, f"{contract.name}.toml").read_text(encoding="utf-8"))
    return {
        "server": dict(contract.server),
        "instructions": texts["instructions"],
        "accounts": [t.name for t in contract.tools if contract.accounts and t.actor == MAIL],
        "tools": [_tool(tool, contract) for tool in contract.tools],
        "resourceTemplates": list(map(_template, contract.resources)),
        "arguments": {tool.name: _checks(tool) for tool in contract.tools},
    }


def _tool(tool: Tool, contract: Contract) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": " ".join((tool.function.__doc__ or "").split()),
        "inputSchema": _schema(tool, contract),
        "outputSchema": _result_schema(tool.result),
        "annotations": dict(tool.hints),
    }


def _template(resource: Resource) -> dict[str, str]:
    return {
        "name": resource.scheme,
        "title": resource.title,
        "uriTemplate": f"{resource.scheme}://{{id}}",
        "description": resource.text,
        "mimeType": "text/plain",
    }


# Schemas


def _result_schema(hint: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, whichever it is
    """Return the schema of a result, or of a field of one; it asks for nothing.

    An error has none of the result's fields, and some clients hold it to the schema too.
    """
    if isinstance(hint, type) and issubclass(hint, Result | FileView):
        types, aliases = get_type_hints(hint), getattr(hint, "_aliases", {})
        fields = {aliases.get(name, name): _result_schema(types[name]) for name in hint._fields}
        return {"properties": fields, "type": "object"}
    if get_origin(hint) is UnionType:
        return {"anyOf": list(map(_result_schema, get_args(hint)))}
    if get_origin(hint) is tuple:
        return {"items": _result_schema(get_args(hint)[0]), "type": "array"}
    if get_origin(hint) is dict:
        return {"additionalProperties": True, "type": "object"}
    return {"type": JSON_TYPES[hint]}


def _schema(tool: Tool, contract: Contract) -> dict[str, Any]:
    """Return the schema of a tool's arguments without what says nothing: titles that repeat the name.

    Defaults that are false or null are listed only on request, empty ones never.
    """
    short = _short(model_of(tool.function).model_json_schema(), defaults=contract.whole)
    assert isinstance(short, dict)
    short.pop("description", None)
    if contract.name == OPEN:
        del short["additionalProperties"]
    properties = short["properties"]
    needed = {name for name, about in properties.items() if about.pop("required", 0)}
    if needed and contract.name != FREE:
        needed |= {*short.get("required", ())}
        short["required"] = [name for name in properties if name in needed]
    return short


def _short(value: object, *, defaults: bool) -> object:
    shorten = partial(_short, defaults=defaults)
    if isinstance(value, list):
        return list(map(shorten, value))
    if not isinstance(value, dict):
        return value
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if key == "properties":
            kept[key] = {name: shorten(about) for name, about in inner.items()}
        elif key == "default" and not inner:
            kept |= {key: inner} if defaults and inner != "" else {}
        elif key not in UNLISTED and inner != UNLISTED_BOUND:
            kept[key] = shorten(inner)
    return kept


# Checks


def _checks(tool: Tool) -> dict[str, Check]:
    try:
        return checks_of(model_of(tool.function))
    except ValueError as why:
        raise ValueError(
            f"{tool.name}: {why}; add it to `tools/arguments.py` and `scripts/listings.py`"
        ) from why


def checks_of(model: type[Arguments]) -> dict[str, Check]:
    """Return what a model enforces of each argument, in the form that `tools.arguments` describes."""
    schema: Any = model.__pydantic_core_schema__
    while schema["type"] != "model-fields":
        schema = schema["schema"]
    return {
        name: _check(field["schema"]) | _aliases(name, field.get("validation_alias", []))
        for name, field in schema["fields"].items()
    }


def _aliases(name: str, paths: list[list[str]]) -> dict[str, list[str]]:
    """Return the other names of an argument; its own is the first, which is the one that schemas list."""
    if not paths:
        return {}
    assert paths[0] == [name]
    return {"aliases": [alias for (alias,) in paths[1:]]}


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
        case {"type": "function-before", "schema": inner, "function": {"function": f}} if (
            f is as_list
        ):
            return {**_check(inner), "one_item": True}
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


if __name__ == "__main__":
    main()
