"""The chain of actions: what a line of the log says, and how a changed log is recognised."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from postroom.core import redaction
from postroom.core.values import dataclass

ACTORS = ("email_mcp", "desk", "dispatcher", "person", "vault", "agents", "orchestrator")
RESULTS = ("success", "rejected", "rate_limited", "error", "dev_mode")
ADOPTION = "adopt_vault"  # the action by which a desk takes a vault over from another
GENESIS = "0" * 64  # stands before the first line
MAX_LINE = 4_000  # bytes
MAX_FAULTS = 100

Value = str | int | bool | None
LinePlace = tuple[str, int]  # file and line

_BODIES = frozenset(("body", "text", "html"))
_LARGEST = 2**53  # JSON's readers keep whole numbers up to here
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+00:00)", re.ASCII)
_NAME = re.compile(r"[!-~]{0,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What happened, redacted as it is made; `state` is the one that the letter is in afterwards."""

    actor: str
    action_type: str
    target: str = ""
    result: str = "success"
    letter: str = ""
    state: str = ""
    agent: str = ""
    duration_ms: int | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""

    def __post_init__(self) -> None:
        if self.actor not in ACTORS or self.result not in RESULTS:
            raise ValueError(f"{self.actor!r} or {self.result!r} is no word of the log")
        if any(key.casefold() in _BODIES for key in self.parameters):
            raise ValueError("bodies are never logged")
        for name, most in (("target", 800), ("error", 800), ("agent", 200)):
            object.__setattr__(self, name, _fit(redaction.text(getattr(self, name)), most))
        for name in ("action_type", "letter", "state"):
            object.__setattr__(self, name, _fit(redaction.text(getattr(self, name)), 100))
        shown = {_fit(redaction.text(k), 60): _value(k, v) for k, v in self.parameters.items()}
        object.__setattr__(self, "parameters", shown)


def _value(key: str, value: Value) -> Value:
    if value is None or isinstance(value, int):
        return value if abs(value or 0) <= _LARGEST else "***"
    return redaction.subject(value) if key.casefold() == "subject" else redaction.text(value)


def _fit(text: str, most: int) -> str:
    # A character takes twelve bytes at most, so that most texts need no counting.
    while 12 * len(text) + 2 > most and len(json.dumps(text)) > most:
        text = text[: len(text) * 3 // 4]
    return text


def write(
    action: Action,
    *,
    seq: int,
    previous: str,
    desk: str,
    timestamp: str,
    correlation_id: str,
    key: str = "",
) -> str:
    """Return the action as the next line of the chain, in ASCII and without its line end.

    With a key it is sealed: only who has the key can have written it.
    """
    if seq < 1 or not _DIGEST.fullmatch(previous) or not _TIMESTAMP.fullmatch(timestamp):
        raise ValueError("a line needs its number, the digest before it and a moment in UTC")
    if not _NAME.fullmatch(desk) or not _NAME.fullmatch(correlation_id):
        raise ValueError("a desk and a correlation are named in 64 plain characters at most")
    datetime.fromisoformat(timestamp)
    parameters = dict(action.parameters)
    optional = {
        "duration_ms": action.duration_ms,
        "parameters": parameters or None,
        "error": action.error or None,
        "letter": action.letter or None,
        "state": action.state or None,
        "agent": action.agent or None,
    }
    record = {
        "timestamp": timestamp,
        "correlation_id": correlation_id,
        "actor": action.actor,
        "action_type": action.action_type,
        "target": action.target,
        "result": action.result,
        **{name: value for name, value in optional.items() if value is not None},
        "desk": desk,
        "seq": seq,
        "previous": previous,
    }
    # All but the parameters is bounded to less than a line.
    while len(line := json.dumps(record, separators=(",", ":"))) > MAX_LINE - 80:
        parameters.popitem()
    return f'{line[:-1]},"seal":"{_seal(line, key)}"}}' if key else line


def _seal(line: str, key: str) -> str:
    return hmac.new(key.encode(), line.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def sealed(line: str, key: str) -> bool:
    """Whether this line was written with the key."""
    unsealed, mark, seal = line.rpartition(',"seal":"')
    whole = bool(mark and key) and seal.endswith('"}')
    return whole and hmac.compare_digest(seal[:-2].encode(), _seal(f"{unsealed}}}", key).encode())


def digest(line: str) -> str:
    """Return what the next line carries of this one."""
    # A damaged file may hold what is no text; it has a digest all the same.
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()


class LogPosition(NamedTuple):
    """How far the log was written: the last number, the file, its size, when a file was last made."""

    seq: int = 0
    name: str = ""
    size: int = 0
    changed: int = 0


class ParsedLine(NamedTuple):
    """A line of the log, read back; `line` is its text."""

    desk: str
    seq: int
    previous: str
    digest: str
    letter: str
    state: str
    timestamp: str
    action_type: str
    record: dict[str, Any]
    line: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_decode = json.JSONDecoder(parse_constant=_refuse).decode


def read(line: str) -> ParsedLine | None:
    """Return what a line says, or nothing where it is no line of a log, whatever else it is."""
    if len(line) > MAX_LINE:
        return None
    try:
        record = _decode(line)
        seq, get = record["seq"], record.get
        names = desk, previous, letter, state, timestamp, action_type = (
            record["desk"], record["previous"], get("letter", ""), get("state", ""),
            record["timestamp"], record["action_type"],
        )  # fmt: skip
        datetime.fromisoformat(timestamp)
        if "\\u" in line or not line.isascii():
            json.dumps(record, ensure_ascii=False).encode()  # fails on halves of characters
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if type(seq) is not int or not 0 < seq <= _LARGEST or {*map(type, names)} != {str}:
        return None
    if not _TIMESTAMP.fullmatch(timestamp) or type(get("parameters", {})) is not dict:
        return None
    return ParsedLine(
        desk, seq, previous, digest(line), letter, state, timestamp, action_type, record, line
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """Where the log is not what was written, and in which way."""

    file: str
    line: int
    what: str


class _Walk:
    """One desk's lines, as far as they were walked."""

    def __init__(self, last: int, digest: str, place: LinePlace) -> None:
        self.start = self.last = last
        self.digest = digest
        self.first = self.place = place
        self.seen: set[int] = set()
        self.jumps: dict[int, LinePlace] = {}

    def step(self, found: ParsedLine, true: str | None, place: LinePlace) -> Fault | None:
        """Take the next line; `true` is the digest that the ledger has for it, if it has any."""
        seq = found.seq
        if seq in self.seen:
            return Fault(*place, "repeated")
        self.seen.add(seq)
        fault = None
        if seq != self.last + 1:
            self.jumps[seq] = place
            if seq < self.last:
                fault = Fault(*place, "out of order")
        elif found.previous != self.digest and true is None:
            # The digest speaks of the line before.
            fault = Fault(*self.place, "edited")
        elif found.previous != self.digest and true == found.digest:
            fault = Fault(*place, "edited, in the ledger too")
        if true is not None and true != found.digest:
            fault = Fault(*place, "edited")
        self.last, self.digest, self.place = seq, true or found.digest, place
        return fault

    def missing(self) -> list[Fault]:
        """Return the gaps that nothing filled, each at the line that follows it."""
        faults = []
        before = self.start
        for seq in sorted(self.seen) if self.jumps else ():
            if seq > before + 1:
                faults.append(Fault(*self.jumps.get(seq, self.first), _gap(before + 1, seq - 1)))
            before = seq
        return faults


def _gap(first: int, last: int) -> str:
    return f"missing line {first}" if first == last else f"missing lines {first} to {last}"


def verify(
    lines: Iterable[tuple[str, int, str]],
    *,
    desk: str,
    head: int,
    known: Callable[[int], str | None],
) -> list[Fault]:
    """Return what is wrong with the log: (file, line, text) in order, against what the ledger knows.

    Other desks may have lines before this one's first, or before it adopted the vault; of these only
    the order and the chain are looked at. A line past `head` that is known was written meanwhile.
    """
    ours = _Walk(0, GENESIS, ("", 0))
    walks = {desk: ours}
    faults: list[Fault] = []
    past: list[LinePlace] = []
    foreign: list[LinePlace] = []
    more = 0
    for file, number, text in lines:
        place = (file, number)
        found = read(text)
        true = known(found.seq) if found else None
        if found is None:
            fault: Fault | None = Fault(*place, "not a line of the log")
        elif found.desk == desk and found.seq > head and true is None:
            past.append(place)
            continue
        else:
            # What the ledger has is ours, though the desk had another id then.
            owner = desk if true == found.digest else found.desk
            if owner not in walks:
                before = GENESIS if found.seq == 1 else found.previous
                walks[owner] = _Walk(found.seq - 1, before, place)
            if owner != desk:
                foreign.append(place)
            elif true == found.digest and (found.seq == 1 or found.action_type == ADOPTION):
                foreign.clear()
            fault = walks[owner].step(found, true if owner == desk else None, place)
        if fault and len(faults) < MAX_FAULTS:
            faults.append(fault)
        elif fault:
            more += 1
    faults = [fault for walk in walks.values() for fault in walk.missing()] + faults
    if (top := max(ours.seen, default=0)) < head:
        faults.insert(0, Fault(*ours.place, f"cut off after {top}" if top else _gap(1, head)))
    if past:
        lines_past = f"{len(past)} line{'s' if len(past) > 1 else ''} past its head"
        faults.insert(0, Fault(*past[0], f"the ledger is older than the log: {lines_past}"))
    if ours.seen:
        faults += [Fault(*place, "written by another desk") for place in foreign]
    more += max(0, len(faults) - MAX_FAULTS)
    faults = sorted(faults[:MAX_FAULTS], key=lambda fault: (fault.file, fault.line))
    return [*faults, Fault("", 0, f"and {more} more")] if more else faults
