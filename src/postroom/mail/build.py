"""Mail that leaves: one letter and one date always give the same octets, which are read again before they are sent."""

from __future__ import annotations

import base64
import binascii
import email
import email.header
import email.utils
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.charset import BASE64, QP, Charset
from email.message import Message
from email.quoprimime import header_length
from functools import partial
from itertools import chain, repeat
from textwrap import wrap
from typing import Final
from urllib.parse import quote

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import Enclosure, Letter

LINE: Final = 78  # RFC 5322 section 2.1.1: should; 998 octets are a must
ENCODED_LINE: Final = 76  # RFC 2045 sections 6.7 and 6.8
ENCODED_WORD: Final = 75  # RFC 2047 section 2
SECTION: Final = 50  # characters of one section of a long parameter, RFC 2231 section 3

_FOLD: Final = "\r\n "
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_WORDS: Final = re.compile(r"[!-~]{1,68}(?: [!-~]{1,68})*")
_ATEXT: Final = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~-"  # RFC 5322 section 3.2.3
# What a mailbox file, a gateway or a boundary of ours would change or mistake.
_FRAGILE: Final = re.compile(rb"(?m)^From |^\.|^--=_|[ \t]$|[^\n\t -~]|^[^\n]{79}")


def build_mail(letter: Letter, *, date: datetime, bcc: bool) -> bytes:
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
    name, spec = address.name, address.spec
    if not re.fullmatch(rf"[.{_ATEXT}]+@[A-Za-z0-9.-]+", spec):
        raise Invalid(f"{spec[:80]!r} is not an address that a header can hold")
    if not name:
        return [spec]
    if len(name) <= LINE and name.isascii() and "=?" not in name:
        shown = name if re.fullmatch(rf"[{_ATEXT}]+(?: [{_ATEXT}]+)*", name) else _quoted(name)
        return [f"{shown} <{spec}>"]
    return [*_encoded(name, lead=len("Reply-To: ")), f"<{spec}>"]


def _unstructured(value: str) -> list[str]:
    """Return free text for a header, folded between words, or encoded if it is not plain words."""
    if "=?" in value or not _WORDS.fullmatch(value):
        return _encoded(value, lead=len("Subject: "))
    return wrap(value, LINE - len("Subject: "), break_on_hyphens=False)


def _encoded(value: str, *, lead: int) -> list[str]:
    """Return encoded-words (RFC 2047) of whole characters; `lead` characters of the first line are used already."""
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
    return email.utils.format_datetime(
        date.astimezone(UTC) if offset % timedelta(minutes=1) else date
    )


def _body(letter: Letter) -> bytes:
    bodies = [_text(kind, text) for kind, text in _texts(letter)]
    if len(bodies) > 1:
        bodies = [_multipart("alternative", f"=_{letter.id}_a", bodies)]
    if not letter.attachments:
        return bodies[0]
    return _multipart("mixed", f"=_{letter.id}_m", [*bodies, *map(_file, letter.attachments)])


def _texts(letter: Letter) -> list[tuple[str, str]]:
    empty = not (letter.text or letter.html or letter.attachments)
    texts = (("plain", letter.text), ("html", letter.html))
    return [("plain", "")] if empty else [(kind, text) for kind, text in texts if text]


def _multipart(kind: str, boundary: str, parts: list[bytes]) -> bytes:
    # "=_" stands in no quoted-printable and no base64 line, and `_FRAGILE` keeps it out of others.
    mark = f"--{boundary}".encode("ascii")
    content = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts)
    head = _header("Content-Type", [f'multipart/{kind}; boundary="{boundary}"'])
    return head + b"\r\n" + content + mark + b"--"


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
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _sections(name: str) -> list[str]:
    sections = [""]
    for octets in map(partial(quote, safe=""), name):
        if len(sections[-1]) + len(octets) > SECTION:
            sections.append("")
        sections[-1] += octets
    sections[0] = f"utf-8''{sections[0]}"
    if len(sections) == 1:
        return [f"filename*={sections[0]}"]
    lines = [f"filename*{number}*={section};" for number, section in enumerate(sections)]
    return [*lines[:-1], lines[-1].removesuffix(";")]


# The last check: the standard library reads the bytes, which did not write them.
_HEADERS: Final = frozenset(
    "from to cc bcc reply-to subject date message-id in-reply-to references x-postroom-letter"
    " mime-version content-type content-transfer-encoding".split()
)


def find_difference(letter: Letter, wire: bytes) -> str:
    mail = email.message_from_bytes(wire)
    fields = mail.items()
    keys = [name.lower() for name, _ in fields]  # a mail may have one name twice
    if strange := [key for key in keys if key not in _HEADERS or keys.count(key) > 1]:
        return f"the bytes to be sent have a header that the letter has not: {strange[0][:40]}"
    headers = dict(zip(keys, (value for _, value in fields), strict=True))
    for name, found, expected in _header_pairs(headers, letter):
        if found != expected:
            return f"the bytes to be sent have another {name} than the letter"
    texts = _texts(letter)
    parts = _parts(mail, "mixed") if letter.attachments else [mail]
    bodies, files = parts[: bool(texts)], parts[bool(texts) :]
    if len(texts) > 1 and bodies:
        bodies = _parts(bodies[0], "alternative")
    if (len(bodies), len(files)) != (len(texts), len(letter.attachments)):
        return "the bytes to be sent have other parts than the letter"
    if any(f"{part.preamble or ''}{part.epilogue or ''}".strip() for part in mail.walk()):
        return "the bytes to be sent have text beside their parts"
    for part, (kind, text) in zip(bodies, texts, strict=True):
        if part.get_content_type() != f"text/{kind}" or not _has_text(part, text):
            return f"the bytes to be sent have another {kind} text than the letter"
    for part, file in zip(files, letter.attachments, strict=True):
        # One by RFC 2231, the other, for old readers, in encoded-words.
        names = {_filename(part), _decoded(str(part.get_param("name")))}
        same = part.get_content_type() == file.type and names == {file.name}
        if not same or not _has_content(part, file.content, wire):
            return f"the bytes to be sent have another attachment than {file.name}"
    return ""


def _header_pairs(headers: dict[str, str], letter: Letter) -> Iterator[tuple[str, object, object]]:
    addresses = dict(letter.address_rows)
    # Where there is an envelope beside them, the bytes do not name the hidden recipients.
    for name in ("From", "To", "Cc", "Reply-To", *(["Bcc"] if "bcc" in headers else [])):
        value = headers.get(name.lower())
        pairs = email.utils.getaddresses([_unfolded(value)]) if value else []
        found = [(_decoded(display), spec) for display, spec in pairs]
        yield name, found, [(a.name, a.spec) for a in addresses.get(name, ())]
    yield "Subject", _decoded(headers.get("subject") or ""), letter.subject
    ids = {"Message-ID": letter.message_id, "In-Reply-To": letter.in_reply_to}
    ids |= {"References": " ".join(letter.references), "X-Postroom-Letter": letter.id}
    for name, expected in ids.items():
        yield name, _unfolded(headers.get(name.lower()) or ""), expected


def _unfolded(value: str) -> str:
    return value.replace("\r\n", "").replace("\n", "")


def _decoded(value: str) -> str:
    # RFC 2047 section 6.2: what stands between two encoded-words is none of the text.
    plain = _unfolded(value)
    if "=?" not in plain:
        return plain
    return str(email.header.make_header(email.header.decode_header(plain)))


def _parts(mail: Message, kind: str) -> list[Message]:
    payload = mail.get_payload()
    whole = isinstance(payload, list) and mail.get_content_type() == f"multipart/{kind}"
    return [part for part in payload if isinstance(part, Message)] if whole else []


def _has_text(part: Message, text: str) -> bool:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes) or part.get_content_charset() != "utf-8":
        return False
    return payload.decode("utf-8", "replace").replace("\r\n", "\n") in {text, f"{text}\n"}


def _filename(part: Message) -> str:
    # Not `get_filename`, which takes quotes that are part of the name for quotes around it.
    name = part.get_param("filename", header="content-disposition")
    return email.utils.collapse_rfc2231_value(name) if isinstance(name, tuple) else str(name)


def _has_content(part: Message, content: bytes, wire: bytes) -> bool:
    if part.get_content_maintype() in {"message", "multipart"}:  # which the parser takes apart
        return content in wire or _base64(content) in wire
    return part.get_payload(decode=True) == content
