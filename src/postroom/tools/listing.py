"""What a server says before any tool is called: its name, its tools and their arguments, read from a file.

The files `contracts/NAME.json` are generated from the contracts by `make listings` (`scripts/listings.py`), and
committed. So a server starts without Pydantic, and a change of what clients see is a change of a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

# server → contract → the module that has it; `all` is one server with the tools of every other.
SERVERS: Final = {
    "all": {"postroom": "all"},
    "email": {
        "postroom": "postroom",
        "approval": "approval",
        "dry-run": "dry_run",
        "gmail": "gmail",
    },
    "vault": {"postroom": "vault"},
    "agents": {"postroom": "agents"},
}
FOLDER: Final = os.path.join(os.path.dirname(__file__), "contracts")  # noqa: PTH118, PTH120


@cache
def load(name: str) -> dict[str, Any]:
    """Return the listing of a contract by its module's name; shared, so never change it."""
    with open(f"{FOLDER}/{name}.json", encoding="utf-8") as file:  # noqa: PTH123
        listing: dict[str, Any] = json.load(file)
    return listing


def with_accounts(listing: dict[str, Any], names: Sequence[str], default: str) -> dict[str, Any]:
    """Return a listing whose mail tools have a choice of accounts, where there are several."""
    chosen: list[str] = listing["accounts"]
    if len(names) < 2 or not chosen:
        return listing
    account: dict[str, Any] = {"default": default} if default else {}
    account |= {"enum": list(names), "type": "string"}
    check = {"type": "literal", "values": list(names), "default": default}
    tools = {tool["name"]: tool for tool in listing["tools"]}
    for name in chosen:
        schema = tools[name]["inputSchema"]
        properties = schema["properties"] | {"account": account}
        tools[name] = tools[name] | {"inputSchema": schema | {"properties": properties}}
    arguments = {name: listing["arguments"][name] | {"account": check} for name in chosen}
    return listing | {
        "tools": list(tools.values()),
        "arguments": listing["arguments"] | arguments,
    }
