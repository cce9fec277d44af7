"""One line of the original's files: a message, or an agent's state. Bytes in, values out, and back."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

TRIED: Final = 4  # beginnings of a message in a torn line
ZERO: Final = "0001-01-01T00:00:00Z"  # no time
STATUSES: Final = ("ready", "work", "offline")
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}  # fmt: skip
_FLAG: Final = re.compile(rb'(?<!\\)"read_flag"[ \t\r]*:[ \t\r]*(false)', re.IGNORECASE)
_USUAL: Final = re.compile(rb'(?<!\\)"read_flag":(false),"created_at":"[^"\\]*"\}\Z')
_GLUED: Final = re.compile(rb'\{[ \t]*"id"[ \t]*:')
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:Z|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


class AgentMessage(NamedTuple):
    """A message as a mailbox keeps it."""

    id: str
    sender: str
    to: str
    text: str
    read: bool = False
    created: str = ZERO


class AgentState(NamedTuple):
    """Whether an agent can be disturbed, and when it was last nudged and last read."""

    name: str
    status: str = ""
    updated: str = ZERO
    notified: str = ZERO
    last_read: int = 0  # Unix milliseconds


def write_message(message: AgentMessage) -> bytes:
    """Return the line of a message, as Go's encoder writes it."""
    return _line(
        {
            "id": message.id,
            "from": message.sender,
            "to": message.to,
            "message": message.text,
            "read_flag": message.read,
            "created_at": message.created,
        }
    )


def write_state(state: AgentState) -> bytes:
    """Return the line of a state."""
    record: dict[str, Any] = {
        "recipient": state.name,
        "status": state.status,
        "updated_at": state.updated,
        "notified_at": state.notified,
    }
    if state.last_read:
        record["last_read_at"] = state.last_read
    return _line(record)


def write_word(text: str) -> bytes:
    """Return a text as it stands within a line."""
    return _line(text)[1:-2]


def _line(record: dict[str, Any] | str) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    for sign, escape in _ESCAPED.items():
        if sign in text:  # only ever inside a string
            text = text.replace(sign, escape)
    return _whole(text).encode() + b"\n"


def _whole(text: str) -> str:
    """Return a text with U+FFFD for each half of a character, as Go has it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def read_message(line: bytes) -> AgentMessage | None:
    """Return the message of a line, or nothing where the line is none."""
    found = _fields(line)
    if found is None or not ({"id", "from", "to", "message"} & found.keys()):
        return None
    values = [found.get(key) or "" for key in ("id", "from", "to", "message", "created_at")]
    read = found.get("read_flag") or False
    if not all(isinstance(value, str) for value in values) or not isinstance(read, bool):
        return None
    id, sender, to, text, created = map(_whole, values)
    return AgentMessage(id, sender, to, text, read, created or ZERO)


def read_state(line: bytes) -> AgentState | None:
    """Return the state of a line; also of one that calls its agent `name`."""
    found = _fields(line)
    if found is None:
        return None
    name = found.get("recipient") or found.get("name")
    status, last = found.get("status") or "", found.get("last_read_at") or 0
    times = [found.get(key) or ZERO for key in ("updated_at", "notified_at")]
    if not isinstance(name, str) or not name or not isinstance(status, str):
        return None
    if type(last) is not int or not all(isinstance(at, str) and seconds(at) is not None for at in times):  # fmt: skip
        return None
    return AgentState(_whole(name), _whole(status), str(times[0]), str(times[1]), last)


def _fields(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    # As Go matches keys: whatever their case, the last of several.
    return {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else None


def find_glued(line: bytes) -> int:
    """Return where a whole message begins in a line whose beginning was torn; 0 where none does."""
    starts = [match.start() for match in _GLUED.finditer(line)][-TRIED:]
    return next((at for at in reversed(starts) if at and read_message(line[at:])), 0)


def find_unread_flag(line: bytes) -> int:
    """Return where `false` stands that says that a message is unread; -1 where it does not stand there.

    The line is known to be a message.
    """
    usual = _USUAL.search(line)
    if usual:  # the last two keys of the whole, and no nested one: only one brace closes it
        return usual.start(1)
    unread = read_message(line)
    if unread is None:
        return -1
    for found in reversed([*_FLAG.finditer(line)][-TRIED:]):  # of several keys the last counts
        start, end = found.span(1)
        if read_message(line[:start] + b"true " + line[end:]) == unread._replace(read=True):
            return start
    return -1


def now(nanoseconds: Callable[[], int] = time.time_ns) -> str:
    """Return this moment as RFC 3339, in the zone of this machine, without trailing zeros."""
    moment = nanoseconds()
    there = time.localtime(moment // 1_000_000_000)
    part = f"{moment % 1_000_000_000:09}".rstrip("0")
    minutes = there.tm_gmtoff // 60
    zone = f"{'+' if minutes >= 0 else '-'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    shown = time.strftime("%Y-%m-%dT%H:%M:%S", there)
    return f"{shown}{f'.{part}' if part else ''}{zone if minutes else 'Z'}"


def seconds(moment: str) -> float | None:
    """Return a moment as Unix seconds: 0 for no time, nothing for what is no moment."""
    found = _TIME.fullmatch(moment)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    if year < 1970:
        return 0.0
    at = float(_days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
    if found[8]:
        at -= (1 if found[8] == "+" else -1) * (int(found[9]) * 3600 + int(found[10]) * 60)
    return at + float(f"0.{found[7] or 0}")


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970; `calendar`, which knows it too, takes longer to import than all else."""
    year -= month < 3  # a year that begins in March has its odd day last
    return (
        year * 365
        + year // 4
        - year // 100
        + year // 400
        + (153 * ((month + 9) % 12) + 2) // 5
        + day
        - 719_469
    )
