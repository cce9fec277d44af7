"""MCP's messages as data: versions, methods, the shapes of parameters, errors.

There are two eras of the protocol. In the handshake era (up to 2025-11-25) a client sends `initialize` first.
In the envelope era (2026-07-28) each request carries its version and the client's name in `params._meta`. The
first request of a connection decides its era.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeGuard

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ENVELOPE_VERSION: Final = "2026-07-28"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002  # in the handshake era; later it is INVALID_PARAMS
UNSUPPORTED_VERSION: Final = -32022
CONNECTION_CLOSED: Final = -32000
PARSE_ERROR: Final = -32700

MAX_LINE: Final = 16_000_000  # bytes of a message
MAX_DEPTH: Final = 200  # lists and objects within each other in a message

Id = int | str


class ProtocolError(Exception):
    """A request that is answered with a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.body: dict[str, object] = {"code": code, "message": message}
        if data is not None:
            self.body["data"] = data


class Incoming(NamedTuple):
    """A request; or a notification, which has no id and is not answered."""

    id: Id | None
    method: str
    params: dict[str, Any]


class Caller(NamedTuple):
    """Who calls; `named` says that the person gave the name, `session` tells clients of one name apart."""

    name: str
    named: bool = False
    session: str | None = ""


class InvalidMessage(ValueError):
    """A line that is not a message; `id` is that of a request, where it can be made out."""

    def __init__(self, id: Id | None = None) -> None:
        super().__init__("Invalid message")
        self.id = id


# What each method takes, in each era. Other methods are not served.
with open(os.path.join(os.path.dirname(__file__), "protocol.json"), encoding="utf-8") as _file:  # noqa: PTH118, PTH120, PTH123
    _DATA: Final[dict[str, dict[str, Any]]] = json.load(_file)
HANDSHAKE_METHODS: Final[dict[str, Any]] = {
    method: {"_meta?": "handshake meta", **shape}
    for method, shape in (_DATA["handshake"] | _DATA["both"]).items()
}
ENVELOPE_METHODS: Final[dict[str, Any]] = {
    method: {"_meta": "envelope meta", **shape}
    for method, shape in (_DATA["envelope"] | _DATA["both"]).items()
}
INITIALIZED: Final = {"_meta?": "object"}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "token": (int, str),
}

# What the server says of itself, in both eras: lists never change while it runs.
CAPABILITIES: Final = {
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "tools": {"listChanged": False},
}
# In the envelope era each result but a tool's says how long a client may keep it: not at all.
FRESHNESS: Final = {"ttlMs": 0, "cacheScope": "private"}
WRONG_ERA: Final = (
    "this connection serves the handshake protocol era;"
    " requests carrying the 2026-07-28 envelope are not accepted on it"
)


def is_id(value: object) -> TypeGuard[Id]:
    return type(value) in (int, str)


def has_envelope(params: Mapping[str, Any]) -> bool:
    """Return whether a request says its protocol version itself."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def check_envelope(method: str, params: Mapping[str, Any]) -> None:
    """Raise `ProtocolError` for a request that does not belong into the envelope era."""
    if method == "initialize":
        requested = params.get("protocolVersion")
        data: dict[str, Any] = {"supported": [ENVELOPE_VERSION]}
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted",
            data | {"requested": requested} if isinstance(requested, str) else data,
        )
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        raise ProtocolError(
            INVALID_PARAMS,
            "params._meta must be an object carrying the required"
            f" {VERSION_KEY!r} and {CAPABILITIES_KEY!r} envelope keys",
        )
    if missing := [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]:
        raise ProtocolError(
            INVALID_PARAMS,
            f"params._meta is missing the required envelope key(s): {', '.join(missing)}",
        )
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, "the protocol-version envelope value must be a string")
    if version != ENVELOPE_VERSION:
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": [ENVELOPE_VERSION], "requested": version},
        )


def progress_token(params: Mapping[str, Any]) -> Id | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if is_id(token) else None


def fits(value: object, shape: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value of a message has a shape of `protocol.json`.

    That is the name of a type or of another shape, a list of one shape (a list of these), allowed texts (`one of`), or
    an object: its fields by name. A field whose name ends with `?` may be missing or null, with `?!` missing but not
    null. Every field must have the shape of `*`, if there is one; without it, fields that are not named may be anything.
    """
    if isinstance(shape, str):
        named = _DATA["shapes"].get(shape)
        return fits(value, named) if named else type(value) in _TYPES[shape]
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    if "one of" in shape:
        return value in shape["one of"]
    return isinstance(value, dict) and all(
        _has_field(value, name, inner) for name, inner in shape.items()
    )


def _has_field(value: dict[str, Any], name: str, shape: object) -> bool:
    if name == "*":
        return all(fits(item, shape) for item in value.values())
    key = name.rstrip("?!")
    if key not in value:
        return name != key
    return (value[key] is None and name.endswith("?")) or fits(value[key], shape)


def parse(line: bytes) -> Incoming | None:
    """Return the message of a line, or `None` for an answer, since nothing was asked.

    Raises `InvalidMessage` for everything else. A batch is not a message.
    """
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise InvalidMessage from None
    if not isinstance(found, dict):
        raise InvalidMessage
    id, method, params = found.get("id"), found.get("method"), found.get("params")
    sound = found.get("jsonrpc") == "2.0" and _is_flat(line, found) and _is_text(line, found)
    if sound and isinstance(method, str) and isinstance(params, dict | None):
        return Incoming(id if is_id(id) else None, method, params or {})
    if sound and not isinstance(method, str) and ("result" in found or "error" in found):
        return None
    named = type(id) is int or (isinstance(id, str) and id.isprintable())
    raise InvalidMessage(id if named and isinstance(method, str) else None)


def _is_text(line: bytes, found: object) -> bool:
    """Return whether all texts are Unicode: an escape can be half a character."""
    if b"\\ud" not in line.lower():
        return True
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_flat(line: bytes, found: object) -> bool:
    """Return whether nothing is nested too deep."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return True
    level: list[object] = [found]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
    return not level
