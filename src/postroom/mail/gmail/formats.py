"""The formats of Gmail's interface: bodies of requests, batches, base64 in pieces, refusals as errors, and JSON as mails.

Every field is checked before it is used.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import ssl
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any, Final, NamedTuple

import httpx2

from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
)
from postroom.core.message import Mail, Message, Party, Summary
from postroom.core.text import one_line
from postroom.mail import mime
from postroom.mail.mailbox import SNIPPET, Unreachable

INLINE: Final = 1_000_000  # bytes of a mail that travel inside JSON; larger ones are uploaded

_BOUNDARY: Final = "postroom-batch"
LONGEST: Final = 86_400.0  # seconds: the longest wait that is taken from Gmail's answer
DAILY: Final = 3_600.0  # seconds to wait if a daily quota is used up
TIMED_OUT: Final = frozenset({408, 425})  # may have been carried out, unlike other 4xx
RETRY_LATER: Final = "Try again in a while."

_DAILY_QUOTA: Final = frozenset({"quotaExceeded", "dailyLimitExceeded"})
_QUOTA: Final = _DAILY_QUOTA | {"rateLimitExceeded", "userRateLimitExceeded"}
# Raised before a single byte of the request was sent.
NOTHING_SENT: Final = (
    httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout,
    httpx2.ProxyError, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError,
)  # fmt: skip

Json = dict[str, Any]

_ANY: Final[frozenset[str]] = frozenset()
# Statuses, reasons of which one must be given (`_ANY`: or none), error, message and remedy: the first row that fits counts.
_Refusal = tuple[Container[int], frozenset[str], type[PostroomError], str, str]
_REFUSALS: Final[tuple[_Refusal, ...]] = (
    ({401}, _ANY, AuthRequired, "Gmail does not accept the token", "{sign_in}"),
    ({403}, frozenset({"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}), AuthRequired,
     "Your sign-in does not allow this", "{sign_in} `--scopes modify` allows all that Postroom can do."),
    ({403}, frozenset({"accessNotConfigured", "SERVICE_DISABLED"}), Denied,
     "The Gmail API is not enabled for your app", "Enable it in Google's console: docs/gmail.md shows where."),
    ({403}, _ANY, Denied, "Gmail forbids this{detail}", "Ask whoever looks after the account's domain."),
    ({404}, _ANY, NotFound, "Gmail has no such thing", "Search for it again."),
    ({409, 412}, _ANY, Conflict, "Gmail refuses{detail}", "Read it again, then decide."),
    (TIMED_OUT, _ANY, Unavailable, "Gmail failed ({status})", RETRY_LATER),
    (range(400, 500), _ANY, Invalid, "Gmail refuses{cause}", "Change the request."),
    (range(1000), _ANY, Unavailable, "Gmail failed ({status})", RETRY_LATER),
)  # fmt: skip


def refusal(response: httpx2.Response, *, now: float, sign_in: str) -> PostroomError:
    """Return the error for a response; `sign_in` is the remedy if the account must sign in again."""
    status = response.status_code
    reasons, sentence = _reasons(response.content)
    detail = f": {sentence}" if sentence else ""
    known = 404 if status == 400 and sentence.startswith("Invalid id value") else status
    kind, message, remedy = next(
        row[2:] for row in _REFUSALS if known in row[0] and (not row[1] or row[1] & reasons)
    )
    message = message.format(detail=detail, cause=detail or f" ({status})", status=status)
    error = kind(message, remedy=remedy.format(sign_in=sign_in))
    error.seconds = wait_seconds(response, now, sentence)
    if status == 429 or (status == 403 and reasons & _QUOTA):
        wait = max(error.seconds, DAILY if reasons & _DAILY_QUOTA else 1.0)
        message, remedy = f"Gmail's quota is used up{detail}", "Wait, then try again."
        error = Limited(message, seconds=wait, remedy=remedy)
    error.status = status
    return error


def error_object(body: bytes) -> Json:
    """Return the error that Gmail itself wrote into a response; empty if there is none."""
    with suppress(Unavailable):
        return object_field(json_object(body), "error")
    return {}


def _reasons(body: bytes) -> tuple[frozenset[str], str]:
    error = error_object(body)
    lists = (error.get("errors"), error.get("details"))
    entries = [entry for group in lists if isinstance(group, list) for entry in group]
    reasons = {str(entry.get("reason")) for entry in entries if isinstance(entry, dict)}
    return frozenset(reasons), one_line(str(error.get("message", "")))[:200].rstrip(".")


def wait_seconds(response: httpx2.Response, now: float, sentence: str = "") -> float:
    """Return the seconds after which Gmail wants to be asked again, by its header or this sentence; 0 without any."""
    retry_after = response.headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return min(float(retry_after), LONGEST)
    until = 0.0
    with suppress(ValueError, OverflowError):
        until = parsedate_to_datetime(retry_after).timestamp() if retry_after else 0.0
    if found := re.search(r"[Rr]etry after (\d{4}-\d\d-\d\dT[\d:.]+Z)", sentence):
        with suppress(ValueError):
            until = datetime.fromisoformat(found[1]).timestamp()
    return min(max(0.0, until - now), LONGEST)


def json_object(body: bytes) -> Json:
    """Return the JSON object in a body, or raise `Unavailable`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unavailable("Gmail did not send a valid answer", remedy=RETRY_LATER)
    return found


def object_field(answer: Json, key: str = "message") -> Json:
    """Return an object within an object; an empty one if there is none."""
    value = answer.get(key)
    return value if isinstance(value, dict) else {}


def malformed(problem: str) -> Unavailable:
    return Unavailable(f"Gmail's answer {problem}", remedy=RETRY_LATER)


def unreachable(error: Exception) -> Unreachable:
    if is_certificate_error(error):
        return Unreachable(
            "Gmail's certificate could not be verified",
            remedy="Check this machine's clock and certificates, and what stands between it and Google.",
        )
    cause = one_line(str(error))[:100].rstrip(".") or type(error).__name__
    return Unreachable(
        f"Gmail cannot be reached: {cause}", remedy="Check the network, then try again."
    )


def is_certificate_error(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


class RequestBody(NamedTuple):
    path: str
    type: str = ""
    content: bytes = b""


def encode_batch(paths: Sequence[str]) -> RequestBody:
    parts = [
        f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{number}>\r\n\r\n"
        f"GET {path} HTTP/1.1\r\n\r\n\r\n"
        for number, path in enumerate(paths)
    ]
    content = f"{''.join(parts)}--{_BOUNDARY}--\r\n".encode("ascii")
    return RequestBody("/batch/gmail/v1", f'multipart/mixed; boundary="{_BOUNDARY}"', content)


def decode_batch(response: httpx2.Response, count: int) -> list[httpx2.Response]:
    """Return the answers in the order of their requests, in whatever order they arrived."""
    kind = response.headers.get("content-type", "")
    boundary = re.search(r'(?i)boundary="?([^";\s]{1,200})"?', kind)
    mark = rb"(?m)^" + re.escape(f"--{boundary[1]}".encode()) if boundary else b""
    found: dict[int, httpx2.Response] = {}
    for part in re.split(mark, response.content)[1:-1] if mark else ():
        head, _, answer = part.partition(b"\r\n\r\n")
        top, _, content = answer.partition(b"\r\n\r\n")
        number = re.search(rb"(?im)^content-id:\s*<?response-<?(\d{1,4})>?\s*$", head)
        wait = re.search(rb"(?im)^retry-after:\s*(\S.*?)\s*$", top)
        if number and (status := re.match(rb"HTTP/\d(?:\.\d)? (\d{3})", top)):
            headers = {"retry-after": wait[1].decode("latin-1")} if wait else {}
            found[int(number[1])] = httpx2.Response(
                int(status[1]), headers=headers, content=content.strip()
            )
    if found.keys() != set(range(count)):
        raise Unavailable(
            f"Gmail answered {len(found)} of {count} requests of a batch", remedy="Try again."
        )
    return [found[number] for number in range(count)]


def encode_body(path: str, body: Json | None, raw: bytes) -> RequestBody:
    """Return the body of a request, whose message has the bytes `raw`: in the JSON, or as a part of its own if long."""
    if body is None:
        return RequestBody(path)
    if len(raw) <= INLINE:
        if raw:
            body.get("message", body)["raw"] = base64.urlsafe_b64encode(raw).decode("ascii")
        return RequestBody(path, "application/json", json.dumps(body).encode())
    boundary = f"postroom-{binascii.hexlify(raw[-16:]).decode()}-upload"
    while boundary.encode() in raw:
        boundary += "x"
    head = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
    between = f"\r\n--{boundary}\r\nContent-Type: message/rfc822\r\n\r\n"
    content = f"{head}{json.dumps(body)}{between}".encode() + raw + f"\r\n--{boundary}--".encode()
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
        # The closing quote, or padding in whatever spelling.
        if end := re.search(rb"[^A-Za-z0-9_+/-]", buffer):
            yield decode_base64(buffer[: end.start()])
            for _rest in pieces:  # so that a connection that breaks here is noticed
                pass
            return
        if whole := len(buffer) // 4 * 4:
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


# From JSON to mails

SUMMARY_HEADERS: Final = ("From", "To", "Subject", "Message-ID", "Content-Type")
SUMMARY: Final = "id,threadId,labelIds,snippet,internalDate,sizeEstimate,payload(mimeType,headers)"
WHOLE: Final = "id,threadId,labelIds,internalDate,sizeEstimate,raw"
PARTS: Final = "id,threadId,labelIds,internalDate,sizeEstimate,payload"
LARGE: Final = 4_000_000  # bytes of a mail from which on its files are fetched one by one
MAX_PARTS: Final = 1_000
MAX_DEPTH: Final = 50  # parts within parts

ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_BREAKS: Final = re.compile(r"[\r\n\0]+")


def text_field(answer: Json, key: str) -> str:
    """Return a text that Gmail must have given."""
    value = answer.get(key)
    if isinstance(value, str) and value:
        return value
    raise malformed(f"lacks its {key}")


def id_field(answer: Json, key: str = "id") -> str:
    """Return an id that Gmail must have given and that can be part of a path."""
    value = text_field(answer, key)
    if ID.fullmatch(value):
        return value
    raise malformed(f"has a strange {key}")


def object_list(answer: Json, key: str) -> list[Json]:
    """Return a list of objects; Gmail leaves out an empty one."""
    value = answer.get(key, [])
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise malformed(f"has strange {key}")
    return value


def label_ids(answer: Json) -> tuple[str, ...]:
    value = answer.get("labelIds")
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def number_field(answer: Json, key: str) -> int:
    """Return a number, which Gmail may write as a text; 0 if there is none."""
    value = answer.get(key)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def bytes_field(value: object) -> bytes:
    if not isinstance(value, str):
        raise malformed("lacks the mail itself")
    return decode_base64(value.encode("ascii", "replace"))


def summary(answer: Json, labels: frozenset[str]) -> Summary:
    head = object_field(answer, "payload")
    mail = mime.read(_head(head) + b"\r\n")
    snippet, kind = answer.get("snippet"), str(head.get("mimeType") or "").lower()
    # A list does not fetch the parts of a mail; its own type suggests whether it has files.
    no_files = kind != "multipart/mixed" and (kind or "text/").startswith(("text/", "multipart/"))
    return Summary(
        *_place(answer),
        size=number_field(answer, "sizeEstimate"),
        labels=labels,
        sender=mail.sender or Party("", ""),
        to=mail.to,
        subject=mail.subject,
        snippet=one_line(unescape(snippet))[:SNIPPET] if isinstance(snippet, str) else "",
        attachments=int(not no_files),
        message_id=mail.message_id,
    )


def message(answer: Json, labels: frozenset[str]) -> Message:
    raw = bytes_field(answer["raw"]) if "raw" in answer else b""
    size = len(raw) or number_field(answer, "sizeEstimate")
    mail = mime.read(raw) if "raw" in answer else _read_parts(answer)
    return Message(*_place(answer), size, labels, mail)


def _place(answer: Json) -> tuple[str, str, int]:
    date = number_field(answer, "internalDate") // 1000
    return id_field(answer), id_field(answer, "threadId"), date


# Large mails: headers and texts are fetched, files stay at Gmail until they are wanted


def parts(payload: Json) -> dict[str, Json]:
    """Return the parts of a mail by the paths that the MIME reader gives them."""
    found, level = {"": payload}, [("", payload)]
    for _ in range(MAX_DEPTH):
        level = [
            (f"{path}.{number}".lstrip("."), part)
            for path, parent in level
            for number, part in enumerate(object_list(parent, "parts"), 1)
        ][:MAX_PARTS]
        found.update(level)
    # A mail of one part has it at 1, whatever its type.
    return {"1": payload} | found


def _read_parts(answer: Json) -> Mail:
    payload = object_field(answer, "payload")
    if not payload:
        raise malformed("lacks the mail itself")
    mail, by_path = mime.read(skeleton(payload)), parts(payload)
    files = tuple(
        replace(file, size=number_field(object_field(by_path.get(file.part, {}), "body"), "size"))
        for file in mail.attachments
    )
    damage = mail.damage
    if any(map(_has_separate_text, by_path.values())):
        damage += ("A text of this mail is too large to be shown here",)
    return replace(mail, attachments=files, damage=damage)


def _has_separate_text(part: Json) -> bool:
    """Whether Gmail stores the text of a part apart, as it does with files."""
    is_text = str(part.get("mimeType") or "").lower().startswith("text/")
    return is_text and not part.get("filename") and "attachmentId" in object_field(part, "body")


def skeleton(payload: Json, depth: int = 0) -> bytes:
    """Return a mail with the same headers, structure and texts, whose files are empty."""
    kind = str(payload.get("mimeType") or "").lower()
    kind = kind if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9.+-]+", kind) else "text/plain"
    nested = kind.startswith("multipart/") and depth < MAX_DEPTH
    if children := object_list(payload, "parts") if nested else []:
        mark = f"=_postroom_{depth}"
        inner = [skeleton(part, depth + 1) for part in children[:MAX_PARTS]]
        joined = b"".join(f"\r\n--{mark}\r\n".encode() + part for part in inner)
        end = f"\r\n--{mark}--\r\n".encode()
        return _head(payload, f'{kind}; boundary="{mark}"') + joined + end
    body = object_field(payload, "body")
    data = b"" if "attachmentId" in body else bytes_field(body.get("data", ""))
    # Whatever the header says, Gmail returns many charsets as UTF-8.
    is_utf8 = data.decode("utf-8", "replace").encode() == data
    recoded = kind.startswith("text/") and not data.isascii() and is_utf8
    head = _head(payload, f"{kind}; charset=utf-8" if recoded else "")
    return head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(data)


def _head(payload: Json, content_type: str = "") -> bytes:
    """Return a part's headers without its transfer encoding, each on one line, with another type if one is given."""
    replaced = {"content-transfer-encoding", "content-type" if content_type else ""}
    lines = []
    for header in object_list(payload, "headers"):
        key, value = header.get("name"), header.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or key.lower() in replaced:
            continue
        if re.fullmatch(r"[!-9;-~]{1,100}", key):
            lines.append(f"{key}: {_BREAKS.sub(' ', value)}\r\n")
    lines += [f"Content-Type: {content_type}\r\n"] if content_type else []
    return "".join(lines).encode("utf-8", "replace")
