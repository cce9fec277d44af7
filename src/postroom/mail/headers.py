"""Octets of a mail to text and values: charsets, transfer encodings, and header values as strangers write them.

What is broken is repaired. Nothing here raises.
"""

from __future__ import annotations

import binascii
import codecs
import json
import re
from calendar import timegm
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from email.utils import parsedate_tz
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from postroom.core.message import Party
from postroom.core.text import clean
from postroom.core.values import dataclass

MAX_CHUNKS: Final = 1_000  # padded runs in one base64 body
MAX_MENDED: Final = 10_000  # octets of another charset in a text

# Python's registry also holds codecs that no mail uses, some of them slow on hostile input
# (punycode, idna) or with escapes of their own (unicode_escape).
_CODECS: Final = re.compile(r"utf|iso|cp\d|koi8|mac|gb|hz|big5|euc|shift|johab|ptcp|kz|tis|hp")
# Names that Python does not know, and codecs that mail software means where Python's is narrower
# (WHATWG Encoding, section 4.2).
_CHARSETS: Final[dict[str, dict[str, str]]] = json.loads(
    Path(__file__).with_name("charsets.json").read_text("utf-8")
)
# Codecs whose text is not what its ASCII octets look like.
_SHIFTING: Final = re.compile(r"utf-?(7|16|32)|iso2022|hz")
_WESTERN: Final = "".join(bytes([n]).decode("cp1252", "ignore") or chr(n) for n in range(256))
_NOT_BASE64: Final = re.sub(rb"[A-Za-z0-9+/=]", b"", bytes(range(256)))
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def _mend(error: UnicodeError) -> tuple[str, int]:
    """Read octets that are not in the charset as windows-1252, so that no text is lost."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(_WESTERN[octet] for octet in error.object[error.start : error.end]), error.end


codecs.register_error("postroom-mend", _mend)


@lru_cache(maxsize=256)
def _codec(charset: str) -> str:
    name = charset.strip().strip("\"'").lower()
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.:()+-]{0,39}", name):
        return ""
    try:
        found = codecs.lookup(_CHARSETS["aliases"].get(name, name)).name
    except (LookupError, ValueError):
        return ""
    found = _CHARSETS["supersets"].get(found, found)
    return found if _CODECS.match(found) else ""


def decode(octets: bytes, charset: str = "") -> tuple[str, bool]:
    """Return the text, and whether the declared charset (UTF-8 if there is none) could decode it."""
    codec = _codec(charset) if charset else "utf-8"
    if octets.isascii() and not _SHIFTING.match(codec):
        return octets.decode("ascii"), True
    for attempt in filter(None, (codec, "utf-8")):
        with suppress(ValueError):
            return _decode(octets, attempt), attempt == codec
    return _mixed(octets, codec or "utf-8"), False


def _decode(octets: bytes, codec: str, errors: str = "strict") -> str:
    text = octets.decode(codec, errors)
    # UTF-7 alone decodes to halves of characters.
    return text.encode("utf-8", "replace").decode("utf-8") if codec == "utf-7" else text


def encode(text: str, charset: str) -> bytes:
    """Return the octets that `decode` reads as this text; those of UTF-8 if the charset has none."""
    try:
        return text.encode(_codec(charset) or "utf-8")
    except ValueError:
        return text.encode("utf-8", "replace")


def _mixed(octets: bytes, codec: str) -> str:
    """Return text of two charsets: decoded by the codec where it can, the rest as windows-1252."""
    strange = octets.decode(codec, "replace").count("\ufffd")
    # Mostly strange: it is another charset altogether, and mending octet by octet would be slow.
    if strange > MAX_MENDED and strange * 20 > len(octets):
        return codecs.charmap_decode(octets, "strict", _WESTERN)[0]
    return _decode(octets, codec, "postroom-mend")


def unbase64(octets: bytes) -> bytes:
    """Decode base64 that may lack padding, hold foreign characters, or be several runs in one."""
    with suppress(binascii.Error):
        if b"=" not in octets.rstrip(b"=\r\n\t "):
            return binascii.a2b_base64(octets)
    if (b"-" in octets or b"_" in octets) and not (b"+" in octets or b"/" in octets):
        octets = octets.translate(_URL_SAFE)
    runs = re.split(rb"=+", octets.translate(None, _NOT_BASE64), maxsplit=MAX_CHUNKS)[:MAX_CHUNKS]
    # One character alone is six bits, no octet: it was cut.
    whole = [run[:-1] if len(run) % 4 == 1 else run for run in runs]
    return b"".join(binascii.a2b_base64(run + b"=" * (-len(run) % 4)) for run in whole)


def _unuu(octets: bytes) -> bytes:
    begin = octets.find(b"begin ")
    lines = BytesIO(octets[octets.find(b"\n", begin) + 1 :] if begin >= 0 else octets)
    content = bytearray()
    for ended in lines:
        line = ended.rstrip(b"\r\n")
        if line in (b"end", b"`", b""):
            break
        # Some encoders write more characters than the line's own length says.
        length = (line[0] - 32) & 63
        with suppress(binascii.Error):
            content += binascii.a2b_uu(line[: 1 + (length + 2) // 3 * 4])
    return bytes(content)


_DECODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "base64": unbase64,
    "quoted-printable": binascii.a2b_qp,
    **dict.fromkeys(("uuencode", "x-uuencode", "uue", "x-uue"), _unuu),
}


def unpack(octets: bytes, encoding: str) -> bytes:
    return _DECODERS[encoding](octets) if encoding in _DECODERS else octets


# Header values

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
_PARAMETER: Final = re.compile(r';\s*+([^\s=;"]++)\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^;]*+)', re.DOTALL)
_ID: Final = re.compile(r"<\s*+([^<>\s]{1,996})\s*+>")


@dataclass(slots=True)
class Findings:
    """What was repaired or cut while reading one mail, and how many characters a person would not see."""

    hidden: int = 0
    damage: dict[str, None] = field(default_factory=dict)

    def note(self, sentence: str) -> None:
        if len(self.damage) < MAX_DAMAGE:
            self.damage[sentence] = None

    def clean_block(self, text: str) -> str:
        """Return a text without its invisible characters, and count them."""
        cleaned, removed = clean(text)
        self.hidden += removed
        return cleaned

    def clean_line(self, text: str) -> str:
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
        # White space between two encoded-words is not text (RFC 2047 section 6.2).
        adjacent = end > 0 and not gap.strip()
        if not adjacent or named != charset:
            text += decode(bytes(pending), charset)[0]
            pending.clear()
        text += "" if adjacent else gap
        charset, end = named, found.end()
        octets = encode(found[3], charset)
        pending += unbase64(octets) if found[2] in "Bb" else binascii.a2b_qp(octets, header=True)
    return text + decode(bytes(pending), charset)[0] + value[end:]


def parties(value: str, findings: Findings) -> tuple[Party, ...]:
    """Return the people of an address header; a comma or a bracket inside an encoded-word is part of a name."""
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
        name = "".join(pieces[: bare.start]) + " " + "".join(pieces[bare.stop :])
        name, spec = name.strip(" <>"), "".join(pieces[bare])
    else:
        last = angles[-1] if angles else len(pieces)
        name, spec = "".join(pieces[:last]), "".join(pieces[last : last + 1])[1:-1]
    display = findings.clean_line(words(_unquote(name)))
    if not display and comment:
        display = findings.clean_line(words(_ESCAPED.sub(r"\1", comment)))
    address = findings.clean_line(spec)[:MAX_ADDRESS]
    if '"' not in address:
        address = address.replace(" ", "")
    return Party(display, address) if display or address else None


def _bare_address(pieces: list[str]) -> slice | None:
    """Return where an address without brackets stands: the last run of tokens that has an @."""
    named = [at for at, piece in enumerate(pieces) if "@" in piece and piece[0] != '"']
    if not named:
        return None
    bounds = [at for at, piece in enumerate(pieces) if piece.isspace() or piece in _OUTSIDE]
    start = max((at + 1 for at in bounds if at < named[-1]), default=0)
    return slice(start, min((at for at in bounds if at > named[-1]), default=len(pieces)))


def _unquote(phrase: str) -> str:
    if '"' not in phrase and "\\" not in phrase:
        return phrase
    return "".join(
        _ESCAPED.sub(r"\1", token[1:-1] if token[0] == '"' and len(token) > 1 else token)
        for token in _TOKEN.findall(phrase)
    )


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """Return a header's main value in lower case and its parameters, RFC 2231 and 2047 read."""
    main = value.partition(";")[0]
    plain: dict[str, str] = {}
    sections: dict[str, list[tuple[int, str, bool]]] = {}
    for found in islice(_PARAMETER.finditer(value, len(main)), MAX_PARAMETERS):
        name, given = found[1].lower(), found[2].strip()
        if given.startswith('"'):
            # Only these two: `C:\temp\x` in quotes is a path, not an escape.
            closed = len(given) > 1 and given.endswith('"')
            given = re.sub(r'\\(["\\])', r"\1", given[1 : -1 if closed else None])
        if section := re.fullmatch(r"([^*]+)\*(?:(\d{1,3})(\*?))?", name):
            extended = section[2] is None or bool(section[3])
            sections.setdefault(section[1], []).append((int(section[2] or 0), given, extended))
        else:
            plain.setdefault(name, words(given))
    for name, parts in sections.items():
        plain[name] = _join_sections(sorted(parts, key=lambda part: part[0]))
    return main.strip().lower(), plain


def _join_sections(parts: list[tuple[int, str, bool]]) -> str:
    """Join the sections of a parameter (RFC 2231 section 4.1): the first may name the charset."""
    charset, octets = "", b""
    for at, (_, given, extended) in enumerate(parts):
        rest = given
        if extended and at == 0 and given.count("'") >= 2:
            charset, _, rest = given.split("'", 2)
        octets += unquote_to_bytes(rest) if extended else rest.encode("utf-8", "replace")
    return decode(octets, charset)[0]


def ids(value: str) -> tuple[str, ...]:
    """Return the message ids in a value, each once; of very many the first and the latest."""
    found = list(dict.fromkeys(f"<{inner}>" for inner in _ID.findall(value) if inner.isprintable()))
    bare = value.strip("<>")
    if not found and re.fullmatch(r"[^<> ]+", bare) and value.isprintable() and len(value) < MAX_ID:
        return (f"<{bare}>",)
    return tuple(found if len(found) <= MAX_IDS else found[:1] + found[1 - MAX_IDS :])


def seconds(value: str) -> int | None:
    """Return a date in seconds since 1970, or None where it is not a date of mail."""
    try:
        parsed = parsedate_tz(value[:200])
        if parsed is None:
            moment = datetime.fromisoformat(value[:40].strip())
            since = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        else:
            fields, zone = [int(part or 0) for part in parsed[:6]], parsed[9] or 0
            limits = zip(fields[1:], (1, 1, 0, 0, 0), (12, 31, 24, 59, 60), strict=True)
            if not all(least <= part <= most for part, least, most in limits):
                return None
            since = timegm((*fields,)) - (zone if abs(zone) <= 86_400 else 0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return since if 0 <= since <= LAST_SECOND else None
