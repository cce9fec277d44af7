"""The bytes that Gmail's interface exchanges: batches of requests, uploads, and base64 that arrives in pieces."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from postroom.core.errors import Unavailable
from postroom.mail.gmail.errors import Json, malformed

INLINE: Final = 1_000_000  # bytes of a mail that travel inside JSON; larger ones are uploaded

_BOUNDARY: Final = "postroom-batch"
_IN_TYPE: Final = re.compile(r'boundary="?([^";\s]{1,200})"?', re.IGNORECASE)
_NUMBER: Final = re.compile(rb"(?im)^content-id:\s*<?response-<?(\d{1,4})>?\s*$")
_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})")
_NO_BASE64: Final = re.compile(rb"[^A-Za-z0-9_+/-]")


class RequestBody(NamedTuple):
    """What a request carries, and the path it goes to."""

    path: str
    type: str = ""
    content: bytes = b""


class BatchAnswer(NamedTuple):
    """The response to one request of a batch."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def encode_batch(paths: Sequence[str]) -> RequestBody:
    """Return one request that asks for all of these paths."""
    parts = [
        f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
        f"GET {path} HTTP/1.1\r\n\r\n\r\n"
        for number, path in enumerate(paths)
    ]
    content = "".join(parts) + f"--{_BOUNDARY}--\r\n"
    kind = f'multipart/mixed; boundary="{_BOUNDARY}"'
    return RequestBody("/batch/gmail/v1", kind, content.encode("ascii"))


def decode_batch(content_type: str, body: bytes, count: int) -> list[BatchAnswer]:
    """Return the answers in the order of their requests, in whatever order they arrived."""
    boundary = _IN_TYPE.search(content_type)
    mark = b"--" + boundary[1].encode("utf-8", "replace") if boundary else b""
    found: dict[int, BatchAnswer] = {}
    for part in re.split(rb"(?m)^" + re.escape(mark), body)[1:-1] if mark else ():
        head, _, answer = part.partition(b"\r\n\r\n")
        top, _, content = answer.partition(b"\r\n\r\n")
        number, status = _NUMBER.search(head), _STATUS.match(top)
        if number and status:
            lines = (line.decode("latin-1").partition(":") for line in top.split(b"\r\n")[1:])
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            found[int(number[1])] = BatchAnswer(int(status[1]), headers, content.strip())
    if found.keys() != set(range(count)):
        raise Unavailable(
            f"Gmail answered {len(found)} of {count} requests of a batch", remedy="Try again."
        )
    return [found[number] for number in range(count)]


def encode_body(path: str, body: Json | None, mail: Json | None, raw: bytes) -> RequestBody:
    """Return the body of a request; `mail` is the message in it that gets the bytes `raw`."""
    if body is None:
        return RequestBody(path)
    if mail is not None and len(raw) > INLINE:
        return _upload(path, body, raw)
    if mail is not None:
        mail["raw"] = base64.urlsafe_b64encode(raw).decode("ascii")
    return RequestBody(path, "application/json", json.dumps(body).encode())


def _upload(path: str, body: Json, raw: bytes) -> RequestBody:
    """Return an upload: the JSON and the mail as two parts."""
    boundary = f"postroom-{binascii.hexlify(raw[-16:]).decode()}-upload"
    while boundary.encode() in raw:
        boundary += "x"
    head = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
    between = f"\r\n--{boundary}\r\nContent-Type: message/rfc822\r\n\r\n"
    start = f"{head}{json.dumps(body)}{between}".encode()
    content = b"".join([start, raw, f"\r\n--{boundary}--".encode()])
    kind = f'multipart/related; boundary="{boundary}"'
    return RequestBody(f"/upload{path}?uploadType=multipart", kind, content)


def decode_stream(pieces: Iterator[bytes], key: str) -> Iterator[bytes]:
    """Yield the decoded bytes of the one base64 text under this key in pieces of JSON."""
    opening = re.compile(rb'"%s"\s*:\s*"' % key.encode("ascii"))
    buffer, is_open = b"", False
    for piece in pieces:
        buffer += piece
        if not is_open:
            start = opening.search(buffer)
            if not start:
                continue
            is_open, buffer = True, buffer[start.end() :]
        end = _NO_BASE64.search(buffer)  # the closing quote, or padding in whatever spelling
        if end:
            yield decode_base64(buffer[: end.start()])
            for _rest in pieces:  # so that a connection that breaks here is noticed
                pass
            return
        whole = len(buffer) // 4 * 4
        if whole:
            yield decode_base64(buffer[:whole])
            buffer = buffer[whole:]
    raise malformed("ended too early")


def decode_base64(text: bytes) -> bytes:
    """Decode base64 in either alphabet, with padding or without, or raise `Unavailable`."""
    plain = text.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        raise malformed("is damaged") from None
