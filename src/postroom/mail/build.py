"""The builder of mail that leaves: one letter and one date always give the same octets."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from email.charset import BASE64, QP, Charset
from email.quoprimime import header_length
from email.utils import format_datetime
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from postroom.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroom.core.address import Address
    from postroom.core.letter import Enclosure, Letter

LINE: Final = 78  # RFC 5322 section 2.1.1: should; 998 octets are a must
ENCODED_LINE: Final = 76  # RFC 2045 sections 6.7 and 6.8
ENCODED_WORD: Final = 75  # RFC 2047 section 2
SECTION: Final = 50  # characters of one section of a long parameter, RFC 2231 section 3

_FOLD: Final = "\r\n "
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_WORDS: Final = re.compile(r"[!-~]{1,68}(?: [!-~]{1,68})*")
_SPEC: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.-]+")
_ATOMS: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
# What a mailbox file, a gateway or a boundary of ours would change or mistake.
_FRAGILE: Final = re.compile(rb"(?m)^From |^\.|^--=_|[ \t]$|[^\n\t -~]|^[^\n]{79}")


def build_mail(letter: Letter, *, date: datetime, bcc: bool) -> bytes:
    """Return the letter as the bytes to send; `bcc` says whether they name the hidden recipients."""
    head = [
        _addresses("From", (letter.sender,)),
        _addresses("To", letter.to),
        _addresses("Cc", letter.cc),
        _addresses("Bcc", letter.bcc if bcc else ()),
        _addresses("Reply-To", letter.reply_to),
        _header("Subject", _unstructured(letter.subject)),
        _header("Date", [_date(date)]),
        _header("Message-ID", [letter.message_id]),
        _header("In-Reply-To", filter(None, [letter.in_reply_to])),
        _header("References", letter.references),
        _header("X-Postroom-Letter", [letter.id]),
        _header("MIME-Version", ["1.0"]),
    ]
    return b"".join(head) + _body(letter) + b"\r\n"


def _header(name: str, pieces: Iterable[str]) -> bytes:
    """Return one header, one piece per line; raise `Invalid` for a piece that could end it or begin another."""
    lines = list(pieces)
    for line in lines:
        if _CONTROL.search(line) or not line.isascii():
            raise Invalid(f"The {name} header holds a line break or a character that none can hold")
    return f"{name}: {_FOLD.join(lines)}\r\n".encode("ascii") if lines else b""


def _addresses(name: str, addresses: Iterable[Address]) -> bytes:
    pieces: list[str] = []
    for address in addresses:
        if pieces:
            pieces[-1] += ","
        pieces += _mailbox(address)
    return _header(name, pieces)


def _mailbox(address: Address) -> list[str]:
    """Return an address for a header, its name as atoms, in quotes, or as encoded-words."""
    name, spec = address.name, address.spec
    if not _SPEC.fullmatch(spec):
        raise Invalid(f"{spec[:80]!r} is no address that a header can hold")
    if not name:
        return [spec]
    if len(name) <= LINE and name.isascii() and "=?" not in name:
        if not _ATOMS.fullmatch(name):
            name = _quoted(name)
        return [f"{name} <{spec}>"]
    return [*_encoded(name, lead=len("Reply-To: ")), f"<{spec}>"]


def _unstructured(value: str) -> list[str]:
    """Return free text for a header, folded between words, or encoded if it is not plain words."""
    if "=?" in value or not _WORDS.fullmatch(value):
        return _encoded(value, lead=len("Subject: "))
    lines = [""]
    for word in value.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) + 10 > LINE:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _encoded(value: str, *, lead: int) -> list[str]:
    """Return encoded-words of whole characters (RFC 2047 section 5), in the shorter encoding.

    A line with one has at most 76 characters (section 2), of which `lead` are already used in the first line.
    """
    if _CONTROL.search(value):
        raise Invalid("A header holds a line break or a control character")
    octets, utf8 = value.encode(), Charset("utf-8")
    utf8.header_encoding = QP if header_length(octets) <= len(octets) * 4 / 3 else BASE64
    rooms = chain([ENCODED_WORD - lead], repeat(ENCODED_WORD))
    return list(filter(None, utf8.header_encode_lines(value, rooms))) if value else []


def _date(date: datetime) -> str:
    offset = date.utcoffset()
    if offset is None:
        raise ValueError("a Date needs its offset from UTC")
    # RFC 5322 section 3.3 has hours and minutes; historic zones have seconds.
    return format_datetime(date.astimezone(UTC) if offset % timedelta(minutes=1) else date)


def _body(letter: Letter) -> bytes:
    bodies = []
    if letter.text or not (letter.html or letter.attachments):
        bodies.append(_text("plain", letter.text))
    if letter.html:
        bodies.append(_text("html", letter.html))
    if len(bodies) > 1:
        bodies = [_multipart("alternative", f"=_{letter.id}_a", bodies)]
    if not letter.attachments:
        return bodies[0]
    return _multipart("mixed", f"=_{letter.id}_m", [*bodies, *map(_file, letter.attachments)])


def _multipart(kind: str, boundary: str, parts: list[bytes]) -> bytes:
    # "=_" stands in no quoted-printable and no base64 line, and `_FRAGILE` keeps it out of others.
    mark = f"--{boundary}".encode("ascii")
    content = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts)
    head = f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n\r\n'
    return head.encode("ascii") + content + mark + b"--"


def _text(kind: str, text: str) -> bytes:
    encoding, body = _transfer(text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8"))
    head = _header("Content-Type", [f"text/{kind}; charset=utf-8"])
    return head + _header("Content-Transfer-Encoding", [encoding]) + b"\r\n" + body


def _transfer(octets: bytes) -> tuple[str, bytes]:
    """Return a transfer encoding that no gateway has a reason to change, and the text in it."""
    if not _FRAGILE.search(octets):
        return "7bit", octets.replace(b"\n", b"\r\n")
    quoted = binascii.b2a_qp(octets).replace(b"\r\n", b"\n")
    quoted = re.sub(rb"(?m)^From ", b"=46rom ", quoted)
    quoted = re.sub(rb"(?m)^\.", b"=2E", quoted)
    fits = all(len(line) <= ENCODED_LINE for line in quoted.split(b"\n"))
    if fits and len(quoted) <= len(octets) * 4 // 3 + 80:
        return "quoted-printable", quoted.replace(b"\n", b"\r\n")
    return "base64", _base64(octets.replace(b"\n", b"\r\n"))


def _base64(octets: bytes) -> bytes:
    return base64.encodebytes(octets).rstrip(b"\n").replace(b"\n", b"\r\n")


def _file(enclosure: Enclosure) -> bytes:
    name, kind, content = enclosure.name, enclosure.type, enclosure.content
    encoding, body = "base64", _base64(content)
    # RFC 2046 section 5.2.1: a mail in a mail is not encoded if it can be sent as it is.
    plain = content.replace(b"\r\n", b"\n")
    unchanged = b"\r" not in plain and plain.replace(b"\n", b"\r\n") == content
    if kind == "message/rfc822" and unchanged and not _FRAGILE.search(plain):
        encoding, body = "7bit", content
    # Old readers take the name beside the type, others the one beside the disposition.
    old, new = [_quoted(name)], [f"filename={_quoted(name)}"]
    if not name.isascii() or "=?" in name:
        words = _encoded(name, lead=len(' name="'))
        old, new = f'"{_FOLD.join(words)}"'.split(_FOLD), _sections(name)
    head = [
        _header("Content-Type", [f"{kind};", f"name={old[0]}", *old[1:]]),
        _header("Content-Transfer-Encoding", [encoding]),
        _header("Content-Disposition", ["attachment;", *new]),
    ]
    return b"".join(head) + b"\r\n" + body


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _sections(name: str) -> list[str]:
    """Return a file's name in the sections of RFC 2231."""
    sections = [""]
    for char in name:
        octets = quote(char, safe="")
        if len(sections[-1]) + len(octets) > SECTION:
            sections.append("")
        sections[-1] += octets
    first, *rest = sections
    if not rest:
        return [f"filename*=utf-8''{first}"]
    numbered = [f"filename*{number}*={section}" for number, section in enumerate(rest, 1)]
    lines = [f"filename*0*=utf-8''{first}", *numbered]
    return [f"{line};" for line in lines[:-1]] + lines[-1:]
