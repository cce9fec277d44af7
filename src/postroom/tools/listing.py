"""What a server says before any tool is called: its name, its tools and their arguments, read from a file.

The files `contracts/NAME.json` are generated from the contracts by `make listings` (`scripts/listings.py`), and
committed. So a server starts without Pydantic, and a change of
what clients see is a change of a file.
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
    tools: list[str] = listing["accounts"]
    if len(names) < 2 or not tools:
        return listing
    account: dict[str, Any] = {"enum": list(names), "type": "string"}
    if default:
        account = {"default": default, **account}
    check = {"type": "literal", "values": list(names), "default": default}
    return listing | {
        "tools": [
            _with_property(tool, account) if tool["name"] in tools else tool
            for tool in listing["tools"]
        ],
        "arguments": {
            name: checks | {"account": check} if name in tools else checks
            for name, checks in listing["arguments"].items()
        },
    }


def _with_property(tool: dict[str, Any], account: dict[str, Any]) -> dict[str, Any]:
    schema = tool["inputSchema"]
    properties = schema["properties"] | {"account": account}
    return tool | {"inputSchema": schema | {"properties": properties}}
