"""Octets of a mail to text: transfer encodings and charsets, repaired where they are broken. Nothing here raises."""

from __future__ import annotations

import binascii
import codecs
import json
import re
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Final

MAX_CHUNKS: Final = 1_000  # padded runs in one base64 body
MAX_MENDED: Final = 10_000  # octets of another charset in a text

_CHARSET: Final = re.compile(r"[a-z0-9][a-z0-9_.:()+-]{0,39}")
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
_WESTERN: Final = "".join(
    bytes([octet]).decode("cp1252", "ignore") or chr(octet) for octet in range(256)
)
_NOT_BASE64: Final = bytes(
    set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
)
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def _mend(error: UnicodeError) -> tuple[str, int]:
    """Read octets that are not in the charset as windows-1252, so that no text is lost."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    octets = error.object[error.start : error.end]
    return "".join(_WESTERN[octet] for octet in octets), error.end


codecs.register_error("postroom-mend", _mend)


@lru_cache(maxsize=256)
def _codec(charset: str) -> str:
    """Return the codec for the name of a charset; empty if mail has no such charset."""
    name = charset.strip().strip("\"'").lower()
    if not _CHARSET.fullmatch(name):
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
    for attempt in (codec, "utf-8"):
        if not attempt:
            continue
        try:
            text = octets.decode(attempt)
        except ValueError:
            continue
        # UTF-7 alone decodes to halves of characters.
        whole = text.encode("utf-8", "replace").decode("utf-8") if attempt == "utf-7" else text
        return whole, attempt == codec
    return _mixed(octets, codec or "utf-8"), False


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
    text = octets.decode(codec, "postroom-mend")
    return text.encode("utf-8", "replace").decode("utf-8") if codec == "utf-7" else text


def unpack(octets: bytes, encoding: str) -> bytes:
    """Return a body without its Content-Transfer-Encoding."""
    match encoding:
        case "base64":
            return unbase64(octets)
        case "quoted-printable":
            return binascii.a2b_qp(octets)
        case "uuencode" | "x-uuencode" | "uue" | "x-uue":
            return _unuu(octets)
        case _:
            return octets


def unbase64(octets: bytes) -> bytes:
    """Decode base64 that may lack padding, hold foreign characters, or be several runs in one."""
    with suppress(binascii.Error):
        if b"=" not in octets.rstrip(b"=\r\n\t "):
            return binascii.a2b_base64(octets)
    if (b"-" in octets or b"_" in octets) and not (b"+" in octets or b"/" in octets):
        octets = octets.translate(_URL_SAFE)
    plain = octets.translate(None, _NOT_BASE64)
    return b"".join(_run(run) for run in re.split(rb"=+", plain, maxsplit=MAX_CHUNKS)[:MAX_CHUNKS])


def _run(run: bytes) -> bytes:
    # One character alone is six bits, no octet: it was cut.
    whole = run[:-1] if len(run) % 4 == 1 else run
    return binascii.a2b_base64(whole + b"=" * (-len(whole) % 4))


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
        try:
            content += binascii.a2b_uu(line[: 1 + (length + 2) // 3 * 4])
        except binascii.Error:
            continue
    return bytes(content)
