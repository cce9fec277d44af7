"""Many requests in one: Google's multipart batches, to bytes and from bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from postroom.core.errors import Unavailable

_BOUNDARY: Final = "postroom-batch"
_IN_TYPE: Final = re.compile(r'boundary="?([^";\s]{1,200})"?', re.IGNORECASE)
_NUMBER: Final = re.compile(rb"(?im)^content-id:\s*<?response-<?(\d{1,4})>?\s*$")
_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})")


class Inner(NamedTuple):
    """One answer of a batch."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def encode(paths: Sequence[str]) -> tuple[str, bytes]:
    """Return the type and the body of a request that asks for all of these."""
    parts = [
        f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
        f"GET {path} HTTP/1.1\r\n\r\n\r\n"
        for number, path in enumerate(paths)
    ]
    body = "".join(parts) + f"--{_BOUNDARY}--\r\n"
    return f'multipart/mixed; boundary="{_BOUNDARY}"', body.encode("ascii")


def decode(kind: str, body: bytes, count: int) -> list[Inner]:
    """Return the answers in the order of their requests, in whatever order they came."""
    boundary = _IN_TYPE.search(kind)
    mark = b"--" + boundary[1].encode("utf-8", "replace") if boundary else b""
    found: dict[int, Inner] = {}
    for part in re.split(rb"(?m)^" + re.escape(mark), body)[1:-1] if mark else ():
        head, _, answer = part.partition(b"\r\n\r\n")
        top, _, content = answer.partition(b"\r\n\r\n")
        number, status = _NUMBER.search(head), _STATUS.match(top)
        if number and status:
            lines = (line.decode("latin-1").partition(":") for line in top.split(b"\r\n")[1:])
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            found[int(number[1])] = Inner(int(status[1]), headers, content.strip())
    if found.keys() != set(range(count)):
        raise Unavailable(
            f"Gmail answered {len(found)} of {count} requests of a batch", remedy="Try again."
        )
    return [found[number] for number in range(count)]
