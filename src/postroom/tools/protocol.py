"""MCP's messages as data: versions, methods, the shapes of parameters, errors.

There are two eras of the protocol. In the handshake era (up to 2025-11-25) a client sends `initialize` first.
In the envelope era (2026-07-28) each request carries its version and the client's name in `params._meta`. The
first request of a connection decides its era.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple, TypeGuard

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ENVELOPE_VERSION: Final = "2026-07-28"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"

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
    params: dict[str, Any] | None


class Caller(NamedTuple):
    """Who calls; `named` says that the person gave the name, `session` tells clients of one name apart."""

    name: str
    named: bool = False
    session: str | None = ""


class InvalidMessage(ValueError):
    """A line that is no message; `id` is that of a request, where it can be made out."""

    def __init__(self, id: Id | None = None) -> None:
        super().__init__("Invalid message")
        self.id = id


# A shape is a type, a tuple of allowed texts, a list of one shape (a list of these), or an object: its fields by
# name. A field whose name ends with `?` may be missing or null, with `?!` missing but not null. `*` is the shape
# of every field; else a field without an entry may be anything. A token is a text or an integer.
_TOKEN: Final = "token"  # noqa: S105
_META: Final = {"_meta?": {"progressToken?!": _TOKEN}}
_ICON: Final = {"src": str, "mimeType?": str, "sizes?": [str], "theme?": ("light", "dark")}
_IMPLEMENTATION: Final = {
    "name": str,
    "version": str,
    "title?": str,
    "description?": str,
    "websiteUrl?": str,
    "icons?": [_ICON],
}
_OBJECTS: Final = {"*": dict}
_SAMPLING: Final = {"context?": dict, "tools?": dict}
_ELICITATION: Final = {"form?": dict, "url?": dict}
_TASKS: Final = {
    "cancel?": dict,
    "list?": dict,
    "requests?": {"elicitation?": {"create?": dict}, "sampling?": {"createMessage?": dict}},
}
_HANDSHAKE_CAPABILITIES: Final = {
    "elicitation?": _ELICITATION,
    "experimental?": _OBJECTS,
    "roots?": {"listChanged?": bool},
    "sampling?": _SAMPLING,
    "tasks?": _TASKS,
}
_ENVELOPE_CAPABILITIES: Final = {
    "elicitation?": _ELICITATION,
    "experimental?": _OBJECTS,
    "extensions?": _OBJECTS,
    "roots?": dict,
    "sampling?": _SAMPLING,
}
_LEVELS: Final = (
    *("debug", "info", "notice", "warning"),
    *("error", "critical", "alert", "emergency"),
)
_ENVELOPE: Final = {
    "_meta": {
        VERSION_KEY: str,
        CAPABILITIES_KEY: _ENVELOPE_CAPABILITIES,
        CLIENT_KEY + "?": _IMPLEMENTATION,
        LOG_LEVEL_KEY + "?": _LEVELS,
        "progressToken?!": _TOKEN,
    }
}
_LIST: Final = {"cursor?": str}
# Postroom asks a client for no input, so there is nothing to answer.
_ANSWERS: Final = {"inputResponses?": {"*": ()}, "requestState?": str}
_SHARED: Final[dict[str, dict[str, Any]]] = {
    "prompts/list": _LIST,
    "resources/list": _LIST,
    "resources/read": {"uri": str, **_ANSWERS},
    "resources/templates/list": _LIST,
    "tools/call": {"name": str, "arguments?": dict, "task?": {"ttl?": int}, **_ANSWERS},
    "tools/list": _LIST,
}
# What each method takes, in each era. Other methods are not served.
HANDSHAKE_METHODS: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        **_META,
        "protocolVersion": str,
        "capabilities": _HANDSHAKE_CAPABILITIES,
        "clientInfo": _IMPLEMENTATION,
    },
    "ping": _META,
    **{method: {**_META, **shape} for method, shape in _SHARED.items()},
}
ENVELOPE_METHODS: Final[dict[str, dict[str, Any]]] = {
    "server/discover": _ENVELOPE,
    **{method: {**_ENVELOPE, **shape} for method, shape in _SHARED.items()},
}
INITIALIZED: Final = {"_meta?": dict}

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
    """Return whether a value is a request's id or a progress token: a text or an integer."""
    return type(value) in (int, str)


def has_envelope(params: dict[str, Any] | None) -> bool:
    """Return whether a request says its protocol version itself."""
    meta = (params or {}).get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def check_envelope(method: str, params: dict[str, Any] | None) -> None:
    """Raise `ProtocolError` for a request that does not belong into the envelope era."""
    if method == "initialize":
        requested = (params or {}).get("protocolVersion")
        data: dict[str, Any] = {"supported": [ENVELOPE_VERSION]}
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted",
            data | {"requested": requested} if isinstance(requested, str) else data,
        )
    meta = (params or {}).get("_meta")
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


def progress_token(params: dict[str, Any] | None) -> Id | None:
    """Return the token under which the client wants to hear of a request's progress."""
    meta = (params or {}).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if is_id(token) else None


def fits(value: object, shape: Any) -> bool:  # noqa: ANN401 - see above
    """Return whether a value of a message has this shape."""
    if isinstance(shape, type):
        return type(value) is shape
    if shape is _TOKEN:
        return is_id(value)
    if isinstance(shape, tuple):
        return value in shape
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
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

    Raises `InvalidMessage` for everything else. A batch is no message.
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
        return Incoming(id if is_id(id) else None, method, params)
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
