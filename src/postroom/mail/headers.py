"""Header values as strangers write them: encoded-words, people, parameters, ids and dates. Nothing here raises."""

from __future__ import annotations

import binascii
import re
from calendar import timegm
from dataclasses import field
from datetime import UTC, datetime
from email.utils import parsedate_tz
from typing import Final
from urllib.parse import unquote_to_bytes

from postroom.core.message import Party
from postroom.core.text import clean
from postroom.core.values import dataclass
from postroom.mail.decoding import decode, encode, unbase64

MAX_VALUE: Final = 100_000  # characters of one header that are looked at
MAX_LINE: Final = 2_000  # characters of a subject or a name that are kept
MAX_SIMPLE: Final = 2_000  # characters of an address list that may be a simple one
MAX_PARTIES: Final = 1_000
MAX_ADDRESS: Final = 320  # RFC 3696: 64 for the local part, 255 for the domain
MAX_IDS: Final = 100
MAX_ID: Final = 998
MAX_PARAMETERS: Final = 100
MAX_DAMAGE: Final = 20
LAST_SECOND: Final = 253_402_300_799  # the end of the year 9999

_WORD: Final = re.compile(r"=\?([^\s?]{1,80})\?([BbQq])\?([^?]*)\?=")
_TOKEN: Final = re.compile(
    r"""=\?[^\s?]{1,80}\?[BbQq]\?[^?<>@"]*\?=     # an encoded-word, a comma in it or not
      | "(?:[^"\\]|\\.)*+"                        # a quoted string
      | <[^<>]*>
      | \\. | [(),:;]
      | [^\s"<>(),:;\\=]+ | \s+ | .""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE: Final = re.compile(
    r"""[ \t]?(?:(\w[\w .'-]{0,80}?)[ \t]?<([\w.+=-]{1,64}@[\w.-]{1,255})>|([\w.+=-]{1,64}@[\w.-]{1,255}))[ \t]?""",
    re.ASCII,
)
_OUTSIDE: Final = frozenset("<>:()")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_PAIR: Final = re.compile(r'\\(["\\])')
_PARAMETER: Final = re.compile(r';\s*+([^\s=;"]++)\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^;]*+)', re.DOTALL)
_SECTION: Final = re.compile(r"([^*]+)\*(?:(\d{1,3})(\*?))?")
_ID: Final = re.compile(r"<\s*+([^<>\s]{1,996})\s*+>")


@dataclass(slots=True)
class Findings:
    """What was repaired or cut while reading one mail, and how many characters a person would not see."""

    hidden: int = 0
    damage: dict[str, None] = field(default_factory=dict)

    def note(self, sentence: str) -> None:
        """Add a sentence about damage, once."""
        if len(self.damage) < MAX_DAMAGE:
            self.damage[sentence] = None

    def clean_block(self, text: str) -> str:
        """Return a text without its invisible characters, and count them."""
        cleaned, removed = clean(text)
        self.hidden += removed
        return cleaned

    def clean_line(self, text: str) -> str:
        """Return the same on one line."""
        if not (text.isascii() and text.isprintable()):
            text = self.clean_block(text)
        return " ".join(text.split())[:MAX_LINE].rstrip()


def text(value: bytes) -> str:
    """Return a header's value, whose raw octets are UTF-8 or else windows-1252."""
    return decode(value[:MAX_VALUE])[0].strip()


def words(value: str) -> str:
    """Return the value with its encoded-words read (RFC 2047), also where words split a character."""
    if "=?" not in value:
        return value
    text = ""
    pending = bytearray()  # octets of adjacent words in one charset
    charset, end = "", 0
    for found in _WORD.finditer(value):
        named = found[1].partition("*")[0].lower()
        gap = value[end : found.start()]
        # White space between two encoded-words is no text (RFC 2047 section 6.2).
        adjacent = end > 0 and not gap.strip()
        if not adjacent or named != charset:
            text += decode(bytes(pending), charset)[0]
            pending.clear()
        text += "" if adjacent else gap
        octets = encode(found[3], named)
        is_base64 = found[2] in "Bb"
        pending += unbase64(octets) if is_base64 else binascii.a2b_qp(octets, header=True)
        charset, end = named, found.end()
    return text + decode(bytes(pending), charset)[0] + value[end:]


def parties(value: str, findings: Findings) -> tuple[Party, ...]:
    """Return the people of an address header.

    The structure is read before encoded-words are: a comma or a bracket inside one is part of a name.
    """
    # Nearly every mail has nothing but `Name <local@domain>`: four times as fast, and read the same.
    simple = [_SIMPLE.fullmatch(item) for item in value[:MAX_SIMPLE].split(",")]
    if len(value) <= MAX_SIMPLE and all(simple):
        return tuple(Party(" ".join((m[1] or "").split()), m[2] or m[3]) for m in simple if m)
    tokens = _TOKEN.findall(value)
    closers = tokens.count(")")
    found: list[Party] = []
    pieces: list[str] = []
    comment: list[str] = []
    grouped = ";" in value and ":" in value
    depth = 0
    for token in (*tokens, ","):
        closers -= token == ")"  # noqa: S105 - a token of a grammar
        if token == "(" and closers > depth:  # noqa: S105
            depth += 1
        elif token == ")" and depth:  # noqa: S105
            depth -= 1
        elif depth:
            comment.append(token)
        elif token == ":" and grouped:  # noqa: S105
            pieces.clear()  # a group's name is nobody
        elif token not in {",", ";"}:
            pieces.append(token)
        else:
            found += filter(None, (_party(pieces, "".join(comment), findings),))
            pieces, comment = [], []
            if len(found) >= MAX_PARTIES:
                findings.note(f"Only the first {MAX_PARTIES:,} addresses of a header were read")
                break
    return tuple(found)


def _party(pieces: list[str], comment: str, findings: Findings) -> Party | None:
    """Return the person of one mailbox; where it has several brackets, the last is the address."""
    angles = [at for at, piece in enumerate(pieces) if len(piece) > 1 and piece[0] == "<"]
    at = next((at for at in reversed(angles) if "@" in pieces[at]), None)
    if at is not None:
        name, spec = "".join(pieces[:at]) + " " + "".join(pieces[at + 1 :]), pieces[at][1:-1]
        if spec.startswith("@"):  # a route, RFC 5322 section 4.4
            spec = spec.rpartition(":")[2]
    elif bare := _bare_address(pieces):
        start, end = bare
        name = "".join(pieces[:start]) + " " + "".join(pieces[end:])
        name, spec = name.strip(" <>"), "".join(pieces[start:end])
    elif angles:
        name, spec = "".join(pieces[: angles[-1]]), pieces[angles[-1]][1:-1]
    else:
        name, spec = "".join(pieces), ""
    display = findings.clean_line(words(_unquote(name)))
    if not display and comment:
        display = findings.clean_line(words(_ESCAPED.sub(r"\1", comment)))
    address = findings.clean_line(spec)[:MAX_ADDRESS]
    if '"' not in address:
        address = address.replace(" ", "")
    return Party(display, address) if display or address else None


def _bare_address(pieces: list[str]) -> tuple[int, int] | None:
    """Return where an address without brackets stands: the last run of tokens that has an @."""
    for at in range(len(pieces) - 1, -1, -1):
        if "@" not in pieces[at] or pieces[at][0] == '"':
            continue
        start, end = at, at + 1
        while start and not (pieces[start - 1].isspace() or pieces[start - 1] in _OUTSIDE):
            start -= 1
        while end < len(pieces) and not (pieces[end].isspace() or pieces[end] in _OUTSIDE):
            end += 1
        return start, end
    return None


def _unquote(phrase: str) -> str:
    if '"' not in phrase and "\\" not in phrase:
        return phrase
    return "".join(
        _ESCAPED.sub(r"\1", token[1:-1] if token[0] == '"' and len(token) > 1 else token)
        for token in _TOKEN.findall(phrase)
    )


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """Return a header's main value in lower case and its parameters, RFC 2231 and 2047 read."""
    main = value.partition(";")[0].strip().lower()
    plain: dict[str, str] = {}
    sections: dict[str, list[tuple[int, str, bool]]] = {}
    for count, found in enumerate(_PARAMETER.finditer(value, len(value.partition(";")[0]))):
        if count >= MAX_PARAMETERS:
            break
        name, given = found[1].lower(), found[2].strip()
        if given.startswith('"'):
            # Only these two: `C:\temp\x` in quotes is a path, not an escape.
            closed = len(given) > 1 and given.endswith('"')
            given = _QUOTED_PAIR.sub(r"\1", given[1 : -1 if closed else None])
        if section := _SECTION.fullmatch(name):
            place, extended = int(section[2] or 0), section[2] is None or bool(section[3])
            sections.setdefault(section[1], []).append((place, given, extended))
        else:
            plain.setdefault(name, words(given))
    for name, parts in sections.items():
        plain[name] = _join_sections(sorted(parts, key=lambda part: part[0]))
    return main, plain


def _join_sections(parts: list[tuple[int, str, bool]]) -> str:
    """Join the sections of a parameter (RFC 2231 section 4.1): the first may name the charset."""
    charset, octets = "", b""
    for at, (_, given, extended) in enumerate(parts):
        if not extended:
            octets += given.encode("utf-8", "replace")
            continue
        rest = given
        if at == 0 and given.count("'") >= 2:
            charset, _, rest = given.split("'", 2)
        octets += unquote_to_bytes(rest)
    return decode(octets, charset)[0]


def ids(value: str) -> tuple[str, ...]:
    """Return the message ids in a value, each once; of very many the first and the latest."""
    found = list(dict.fromkeys(f"<{inner}>" for inner in _ID.findall(value) if inner.isprintable()))
    if not found and value and value.isprintable() and " " not in value and len(value) < MAX_ID:
        bare = value.strip("<>")
        return (f"<{bare}>",) if bare and "<" not in bare and ">" not in bare else ()
    return tuple(found if len(found) <= MAX_IDS else found[:1] + found[1 - MAX_IDS :])


def seconds(value: str) -> int | None:
    """Return a date in seconds since 1970, or None where it is no date of mail."""
    try:
        parsed = parsedate_tz(value[:200])
        if parsed is None:
            moment = datetime.fromisoformat(value[:40].strip())
            since = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        else:
            since = _seconds_since_1970(parsed)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return since if 0 <= since <= LAST_SECOND else None


def _seconds_since_1970(parsed: tuple[int | None, ...]) -> int:
    year, month, day, hour, minute, second = (int(part or 0) for part in parsed[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 24 and minute <= 59 and second <= 60):
        raise ValueError("no date")
    zone = parsed[9] or 0
    return timegm((year, month, day, hour, minute, second)) - (zone if abs(zone) <= 86_400 else 0)
