"""The log: what may stand in it, redacted; the lines of the chain of actions; and how a changed log is recognised."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from postroom.core.text import one_line, plural
from postroom.core.values import dataclass

# Patterns are compiled at their first use, and kept by `re`: most commands need none.
MAX_REDACTED = 200
MAX_SUBJECT = 50
MAX_ADDRESSES = 5
_LOOKED_AT = 4_000  # characters; far more than is ever shown

# RFC 5322 section 3.2.3: what no unquoted local part holds ends a word here; a quoted one is a word.
_REDACTED_WORD = r'"[^"]*+"@[^\s<>()\[\],;:"\\]*+|[^\s<>()\[\],;:"\\]++'
_AT = "[@＠﹫]|%40"
_OPAQUE = r"(?i:\b(bearer)\s+)[^\s\"',;]+|\b(?:ya29\.|eyJ)[\w.~+/=-]*|[A-Za-z0-9+/_-]{32,}+={0,2}"
# A note's path is as long as a token, but made of words and numbers; a token never is, throughout.
_PATH_NAME = r"[A-Z]?[a-z]{1,20}|[A-Z]{1,20}|\d{1,8}|[A-Za-z0-9]{1,4}"


@lru_cache(maxsize=64)  # each of a letter's lines names its recipients
def redact_address(spec: str) -> str:
    """Return the address with no more of its local part than the first letter."""
    found = re.match(rf"(?s)(.*)(?:{_AT})([\w.-]{{0,100}})", spec)
    if not found:
        return "***" if spec.strip() else ""
    first = found[1].rpartition("<")[2].lstrip('"')[:1]
    return f"{first if first.isalnum() else ''}***@{found[2]}"


def redact_addresses(specs: Sequence[str]) -> str:
    shown = ", ".join(redact_address(spec) for spec in specs[:MAX_ADDRESSES])
    more = len(specs) - MAX_ADDRESSES
    return f"{shown} and {more} more" if more > 0 else shown


def redact_subject(text: str) -> str:
    """Return the beginning of a subject, on one line."""
    return _without_addresses(_bounded(text))[:MAX_SUBJECT]


def redact_text(message: str) -> str:
    """Return a message on one line, without addresses or anything that looks like a secret."""
    if _is_plain(message):
        return message
    return re.sub(_OPAQUE, _secret, _without_addresses(_bounded(message)))[:MAX_REDACTED]


def _is_plain(text: str) -> bool:
    """Whether a text is a short word or an id, in which nothing is redacted or cut."""
    word = text.replace("_", "")
    return not text or (len(text) < 32 and word.isascii() and word.isalnum() and word.islower())


def _bounded(text: str) -> str:
    text = one_line(text)
    if len(text) <= _LOOKED_AT:
        return text
    # A word that is cut in two might not be known for what it is.
    return text[:_LOOKED_AT].rpartition(" ")[0] or text[:_LOOKED_AT]


def _without_addresses(text: str) -> str:
    return re.sub(_REDACTED_WORD, _word, text) if re.search(_AT, text) else text


def _word(found: re.Match[str]) -> str:
    word = found.group()
    return redact_address(word) if re.search(_AT, word) and not re.fullmatch(_AT, word) else word


def _secret(found: re.Match[str]) -> str:
    names = list(filter(None, re.split(r"[+/_-]+", found.group())))
    if names and all(re.fullmatch(_PATH_NAME, name) for name in names):
        return found.group()
    return f"{found.group(1)} ***" if found.group(1) else "***"


ACTORS = ("email_mcp", "desk", "dispatcher", "person", "vault", "agents", "orchestrator")
RESULTS = ("success", "rejected", "rate_limited", "error", "dev_mode")
ADOPTION = "adopt_vault"  # the action by which a desk takes a vault over from another
GENESIS = "0" * 64  # stands before the first line
MAX_LINE = 4_000  # bytes
MAX_FAULTS = 100

Value = str | int | bool | None
LinePlace = tuple[str, int]  # file and line

_LONGEST = {  # bytes of a field, as it is written
    "target": 800, "error": 800, "agent": 200, "action_type": 100, "letter": 100, "state": 100,
}  # fmt: skip
_ALWAYS = frozenset(("actor", "action_type", "target", "result"))
_LARGEST = 2**53  # JSON's readers keep whole numbers up to here
_TIMESTAMP = r"(?a)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+00:00)"
_NAME = r"[!-~]{0,64}"
_DIGEST = r"[0-9a-f]{64}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What happened, redacted as it is made. A line has the fields in this order; of those after `result`, what is set."""

    actor: str
    action_type: str
    target: str = ""
    result: str = "success"
    duration_ms: int | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    letter: str = ""
    state: str = ""  # that the letter is in afterwards
    agent: str = ""

    def __post_init__(self) -> None:
        if self.actor not in ACTORS or self.result not in RESULTS:
            raise ValueError(f"{self.actor!r} or {self.result!r} is not a word of the log")
        if any(key.casefold() in ("body", "text", "html") for key in self.parameters):
            raise ValueError("bodies are never logged")
        for name, most in _LONGEST.items():
            if not _is_plain(text := getattr(self, name)):
                object.__setattr__(self, name, _fit(redact_text(text), most))
        shown = {
            key if _is_plain(key) else _fit(redact_text(key), 60): _value(key, value)
            for key, value in self.parameters.items()
        }
        object.__setattr__(self, "parameters", shown)


def _value(key: str, value: Value) -> Value:
    if value is None or isinstance(value, int):
        return value if abs(value or 0) <= _LARGEST else "***"
    return redact_subject(value) if key.casefold() == "subject" else redact_text(value)


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
    """Return the action as the next line of the chain, in ASCII, without its line end, and sealed with the key."""
    if seq < 1 or not re.fullmatch(_DIGEST, previous) or not re.fullmatch(_TIMESTAMP, timestamp):
        raise ValueError("a line needs its number, the digest before it and a moment in UTC")
    if not re.fullmatch(_NAME, desk) or not re.fullmatch(_NAME, correlation_id):
        raise ValueError("a desk and a correlation are named in 64 plain characters at most")
    datetime.fromisoformat(timestamp)
    values = {**vars(action), "parameters": dict(action.parameters)}
    shown = {k: v for k, v in values.items() if k in _ALWAYS or v not in (None, "", {})}
    record = {
        "timestamp": timestamp,
        "correlation_id": correlation_id,
        **shown,
        "desk": desk,
        "seq": seq,
        "previous": previous,
    }
    # All but the parameters is bounded to less than a line.
    while len(line := _json(record)) > MAX_LINE - 80:
        values["parameters"].popitem()
    return f'{line[:-1]},"seal":"{_seal(line, key)}"}}' if key else line


_json = json.JSONEncoder(separators=(",", ":")).encode


def _seal(line: str, key: str) -> str:
    return hmac.new(key.encode(), line.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def sealed(line: str, key: str) -> bool:
    unsealed, _, seal = line.rpartition(',"seal":"')
    true = f'{_seal(f"{unsealed}}}", key)}"}}'
    return bool(unsealed and key) and hmac.compare_digest(
        seal.encode("utf-8", "surrogatepass"), true.encode()
    )


def digest(line: str) -> str:
    # A damaged file may hold what is not text; it has a digest all the same.
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()


class LogPosition(NamedTuple):
    """How far the log was written."""

    seq: int = 0
    name: str = ""  # of the file
    size: int = 0  # of the file
    changed: int = 0  # when a file was last made


class ParsedLine(NamedTuple):
    desk: str
    seq: int
    previous: str
    digest: str
    letter: str
    state: str
    timestamp: str
    action_type: str
    parameters: dict[str, Any]
    record: dict[str, Any]
    line: str  # its text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_TEXTS = ("desk", "previous", "letter", "state", "timestamp", "action_type")
_TYPES = {**dict.fromkeys(_TEXTS, str), "seq": int, "parameters": dict}


def read(line: str) -> ParsedLine | None:
    """Return what a line says, or nothing where it is not a line of a log, whatever else it is."""
    if len(line) > MAX_LINE:
        return None
    try:
        record = _decode(line)
        values = {"letter": "", "state": "", "parameters": {}, **record}
        fields = {name: values[name] for name in _TYPES}
        datetime.fromisoformat(fields["timestamp"])
        if "\\u" in line or not line.isascii():
            json.dumps(record, ensure_ascii=False).encode()  # fails on halves of characters
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if any(type(fields[name]) is not kind for name, kind in _TYPES.items()):
        return None
    if not 0 < fields["seq"] <= _LARGEST or not re.fullmatch(_TIMESTAMP, fields["timestamp"]):
        return None
    return ParsedLine(**fields, digest=digest(line), record=record, line=line)


class Fault(NamedTuple):
    file: str
    line: int
    what: str


class _Walk:
    def __init__(self, last: int, digest: str, place: LinePlace) -> None:
        self.start = self.last = last
        self.digest = digest
        self.place = place
        self.places: dict[int, LinePlace] = {}  # by number

    def step(self, found: ParsedLine, true: str | None, place: LinePlace) -> Fault | None:
        """Take the next line; `true` is the digest that the ledger has for it, if it has any."""
        seq = found.seq
        if seq in self.places:
            return Fault(*place, "repeated")
        last, expected, before = self.last, self.digest, self.place
        self.last, self.digest, self.place = seq, true or found.digest, place
        self.places[seq] = place
        if true is not None and true != found.digest:
            return Fault(*place, "edited")
        if seq != last + 1:
            return Fault(*place, "out of order") if seq < last else None
        if found.previous == expected:
            return None
        # The digest speaks of the line before, unless the ledger knows this one.
        if true is None:
            return Fault(*before, "edited")
        return Fault(*place, "edited, in the ledger too")

    def missing(self) -> list[Fault]:
        """Return the gaps that nothing filled, each at the line that follows it."""
        pairs = pairwise([self.start, *sorted(self.places)])
        gaps = [(before + 1, seq) for before, seq in pairs if seq > before + 1]
        return [Fault(*self.places[seq], _gap(first, seq - 1)) for first, seq in gaps]


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
    for file, number, text in lines:
        place = (file, number)
        found = read(text)
        if found is None:
            faults.append(Fault(*place, "not a line of the log"))
            continue
        true = known(found.seq)
        if found.desk == desk and found.seq > head and true is None:
            past.append(place)
            continue
        # What the ledger has is ours, though the desk had another id then.
        owner = desk if true == found.digest else found.desk
        if owner not in walks:
            before = GENESIS if found.seq == 1 else found.previous
            walks[owner] = _Walk(found.seq - 1, before, place)
        if owner != desk:
            foreign.append(place)
        elif true == found.digest and (found.seq == 1 or found.action_type == ADOPTION):
            foreign.clear()
        if fault := walks[owner].step(found, true if owner == desk else None, place):
            faults.append(fault)
    faults = [fault for walk in walks.values() for fault in walk.missing()] + faults
    if (top := max(ours.places, default=0)) < head:
        faults.insert(0, Fault(*ours.place, f"cut off after {top}" if top else _gap(1, head)))
    if past:
        ahead = f"the ledger is older than the log: {plural(len(past), 'line')} past its head"
        faults.insert(0, Fault(*past[0], ahead))
    if ours.places:
        faults += [Fault(*place, "written by another desk") for place in foreign]
    shown = sorted(faults[:MAX_FAULTS], key=lambda fault: (fault.file, fault.line))
    more = len(faults) - MAX_FAULTS
    return [*shown, Fault("", 0, f"and {more} more")] if more > 0 else shown
