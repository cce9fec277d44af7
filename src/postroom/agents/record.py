"""Reads and writes the lines of the original program's files: messages, and the states of agents."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any, Final, NamedTuple

MAX_TRIES: Final = 4  # candidates for the beginning of a message within one line
ZERO: Final = "0001-01-01T00:00:00Z"  # how Go writes that there is no time
STATUSES: Final = ("ready", "work", "offline")

_MESSAGE_KEYS: Final = ("id", "from", "to", "message", "read_flag", "created_at")
_STATE_KEYS: Final = ("recipient", "status", "updated_at", "notified_at", "last_read_at")
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}  # fmt: skip
_FLAG: Final = re.compile(rb'(?<!\\)"read_flag"[ \t\r]*:[ \t\r]*(false)', re.IGNORECASE)
_GLUED: Final = re.compile(rb'\{[ \t]*"id"[ \t]*:')
_MOMENT: Final = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


class AgentMessage(NamedTuple):
    id: str
    sender: str
    to: str
    text: str
    read: bool = False
    created: str = ZERO


class AgentState(NamedTuple):
    """Whether an agent can be disturbed, and when it was last nudged and last read its mail."""

    name: str
    status: str = ""
    updated: str = ZERO
    notified: str = ZERO
    last_read: int = 0  # Unix milliseconds

    def with_status(self, status: str) -> AgentState:
        """Return the new state; work and offline clear the time of the last nudge, so that ready can bring one at once."""
        notified = self.notified if status == "ready" else ZERO
        return self._replace(status=status, updated=now(), notified=notified)

    def after_reading(self, milliseconds: int) -> AgentState:
        """Return the state after the agent read its mail; an agent without a status becomes ready."""
        state = self if self.status else self._replace(status="ready", updated=now())
        return state._replace(last_read=milliseconds)


def write_message(message: AgentMessage) -> bytes:
    return _line(dict(zip(_MESSAGE_KEYS, message, strict=True)))


def write_state(state: AgentState) -> bytes:
    """Return the line of a state, without `last_read_at` for an agent that never read."""
    given = state if state.last_read else state[:-1]
    return _line(dict(zip(_STATE_KEYS, given, strict=False)))


def write_word(text: str) -> bytes:
    """Return a text as it stands inside a line, without the quotation marks."""
    return _line(text)[1:-2]


def _line(record: dict[str, Any] | str) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    for sign, escape in _ESCAPED.items():
        if sign in text:  # only ever inside a string
            text = text.replace(sign, escape)
    return _whole(text).encode() + b"\n"


def _whole(text: str) -> str:
    """Return a text with U+FFFD in place of each lone surrogate, as Go writes it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_message(line: bytes) -> AgentMessage | None:
    """Return the message of a line; None if the line is not a valid message."""
    found = _fields(line)
    values = [found.get(key) or "" for key in ("id", "from", "to", "message", "created_at")]
    read = found.get("read_flag") or False
    are_typed = isinstance(read, bool) and all(isinstance(value, str) for value in values)
    if not are_typed or found.keys().isdisjoint(_MESSAGE_KEYS[:4]):
        return None
    id, sender, to, text, created = map(_whole, values)
    return AgentMessage(id, sender, to, text, read, created or ZERO)


def read_state(line: bytes) -> AgentState | None:
    """Return the state of a line; None if it is not a valid state. The agent's key may be `recipient` or `name`."""
    found = _fields(line)
    name = found.get("recipient") or found.get("name")
    status, last = found.get("status") or "", found.get("last_read_at") or 0
    times = [found.get(key) or ZERO for key in ("updated_at", "notified_at")]
    if not name or not all(isinstance(value, str) for value in (name, status, *times)):
        return None
    if type(last) is not int or not all(map(_MOMENT.fullmatch, times)):
        return None
    return AgentState(_whole(str(name)), _whole(status), times[0], times[1], last)


def _fields(line: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object as Go matches keys: in any case, and of equal ones the last."""
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else {}


class MessageLine(NamedTuple):
    message: AgentMessage
    start: int  # the offset in the file
    line: bytes


Line = tuple[int, bytes]  # its offset in the file, and its bytes


def split_lines(data: bytes) -> Iterator[Line]:
    """Yield the lines that have a line end and are not empty."""
    return _numbered(BytesIO(data), 0)


def read_lines(handle: int, start: int) -> Iterator[Line]:
    """Yield the same lines of an open file from an offset on, which is read as the caller asks for them."""
    with open(handle, "rb", closefd=False) as file:
        file.seek(start)
        yield from _numbered(file, start)


def _numbered(lines: Iterable[bytes], start: int) -> Iterator[Line]:
    for line in lines:
        if line.endswith(b"\n") and line != b"\n":
            yield start, line[:-1]
        start += len(line)


def find_message(line: bytes) -> tuple[AgentMessage | None, int]:
    """Return the message of a line and its offset, which is not 0 after an incomplete line of the original's."""
    if message := read_message(line):
        return message, 0
    starts = [match.start() for match in _GLUED.finditer(line)][-MAX_TRIES:]
    found = ((read_message(line[at:]), at) for at in reversed(starts) if at)
    return next((one for one in found if one[0]), (None, 0))


def find_messages(lines: Iterable[Line]) -> Iterator[MessageLine]:
    for start, line in lines:
        message, at = find_message(line)
        if message:
            yield MessageLine(message, start + at, line[at:])


def find_unread(lines: Iterable[Line]) -> Iterator[MessageLine]:
    """Yield the unread messages among these lines; most of the read ones are skipped without parsing."""
    maybe = (row for row in lines if b'"read_flag":true' not in row[1] or b"false" in row[1])
    return (one for one in find_messages(maybe) if not one.message.read)


def count_unread(data: bytes) -> int:
    """Return the number of unread messages; most are counted without parsing."""
    rows = list(split_lines(data))
    others = [row for row in rows if b'"read_flag":false' not in row[1]]
    return len(rows) - len(others) + sum(1 for _ in find_unread(others))


def find_unread_flag(line: bytes) -> int:
    """Return the offset of the `false` in a line that makes its message unread; -1 if there is none."""
    unread = read_message(line)
    if unread is not None:
        # Of several equal keys the last counts.
        for found in reversed([*_FLAG.finditer(line)][-MAX_TRIES:]):
            start, end = found.span(1)
            if read_message(line[:start] + b"true " + line[end:]) == unread._replace(read=True):
                return start
    return -1


def now(nanoseconds: Callable[[], int] = time.time_ns) -> str:
    """Return the current time as RFC 3339 in the zone of this machine, its fraction without trailing zeros."""
    moment = nanoseconds()
    local = time.localtime(moment // 1_000_000_000)
    part = f".{moment % 1_000_000_000:09}".rstrip("0").rstrip(".")
    zone = time.strftime("%z", local)
    shown = "Z" if zone == "+0000" else f"{zone[:3]}:{zone[3:5]}"
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}{part}{shown}"


def seconds(moment: str) -> float | None:
    """Return an RFC 3339 time as Unix seconds: 0 for one before 1970, such as `ZERO`, None if it is invalid."""
    from datetime import datetime  # hooks must start quickly, and do not need it

    if not _MOMENT.fullmatch(moment):
        return None
    try:
        return max(0.0, datetime.fromisoformat(moment).timestamp())
    except ValueError:  # 30 February
        return None
