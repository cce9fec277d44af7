"""From Gmail's JSON to mails: what it says is looked at before it is believed."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from html import unescape
from typing import Any, Final

from postroom.core.errors import Unavailable
from postroom.core.message import Mail, Message, Party, Summary
from postroom.core.text import one_line
from postroom.mail import mime
from postroom.mail.mailbox import SNIPPET, not_found

Json = dict[str, Any]

SUMMARY_HEADERS: Final = ("From", "To", "Subject", "Message-ID", "Content-Type")
SUMMARY: Final = "id,threadId,labelIds,snippet,internalDate,sizeEstimate,payload(mimeType,headers)"
WHOLE: Final = "id,threadId,labelIds,internalDate,sizeEstimate,raw"
PARTS: Final = "id,threadId,labelIds,internalDate,sizeEstimate,payload"
LARGE: Final = 4_000_000  # bytes of a mail beyond which its files stay at Gmail until wanted
MAX_PARTS: Final = 1_000
DEPTH: Final = 50  # parts within parts

_SAFE: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_BREAKS: Final = re.compile(r"[\r\n\0]+")


def checked(what: str, id: str) -> str:
    """Return an id that can stand in an address, or raise `NotFound` for what cannot be one."""
    if not _SAFE.fullmatch(id):
        raise not_found(what, id)
    return id


def text(found: Json, key: str) -> str:
    """Return a text that Gmail must have given."""
    value = found.get(key)
    if isinstance(value, str) and value:
        return value
    raise Unavailable(f"Gmail's answer lacks its {key}", remedy="Try again in a while.")


def name(found: Json, key: str) -> str:
    """Return an id that Gmail must have given, fit to stand in an address."""
    value = text(found, key)
    if not _SAFE.fullmatch(value):
        raise Unavailable(f"Gmail's answer has a strange {key}", remedy="Try again in a while.")
    return value


def rows(found: Json, key: str) -> list[Json]:
    """Return a list of objects; where there is none, an empty one, as Gmail leaves it out."""
    value = found.get(key, [])
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return value
    raise Unavailable(f"Gmail's answer has strange {key}", remedy="Try again in a while.")


def names(found: Json, key: str) -> tuple[str, ...]:
    """Return a list of texts; what is none is left out."""
    value = found.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def number(found: Json, key: str) -> int:
    """Return a number, which Gmail may write as a text; 0 where there is none."""
    value = found.get(key)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def decoded(value: object) -> bytes:
    """Return the bytes of base64 in Gmail's alphabet, with its padding or without."""
    if not isinstance(value, str):
        raise Unavailable("Gmail's answer lacks the mail itself", remedy="Try again in a while.")
    plain = value.rstrip("=")
    try:
        return base64.urlsafe_b64decode(plain + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        raise Unavailable("Gmail's answer is damaged", remedy="Try again in a while.") from None


def summary(found: Json, labels: frozenset[str]) -> Summary:
    """Return a line of a list."""
    head = inner(found, "payload")
    mail = mime.read(_head(head) + b"\r\n")
    said = found.get("snippet")
    return Summary(
        id=name(found, "id"),
        thread=name(found, "threadId"),
        date=number(found, "internalDate") // 1000,
        size=number(found, "sizeEstimate"),
        labels=labels,
        sender=mail.sender or Party("", ""),
        to=mail.to,
        subject=mail.subject,
        snippet=one_line(unescape(said))[:SNIPPET] if isinstance(said, str) else "",
        attachments=int(_encloses(head)),
        message_id=mail.message_id,
    )


def _encloses(head: Json) -> bool:
    """Whether a mail has files, as far as its own type tells: a list is not worth its parts."""
    kind = str(head.get("mimeType") or "").lower()
    return kind == "multipart/mixed" or bool(kind and not kind.startswith(("text/", "multipart/")))


def message(found: Json, labels: frozenset[str]) -> Message:
    """Return a mail from its bytes, or where it is too large for that, from its parts."""
    raw = decoded(found["raw"]) if "raw" in found else b""
    mail = mime.read(raw) if "raw" in found else _from_parts(found)
    return Message(
        id=name(found, "id"),
        thread=name(found, "threadId"),
        date=number(found, "internalDate") // 1000,
        size=len(raw) or number(found, "sizeEstimate"),
        labels=labels,
        mail=mail,
    )


# Mails too large to be fetched whole: texts and headers come, files stay where they are


def parts(payload: Json) -> dict[str, Json]:
    """Return the parts of a mail by the paths that its reader gives them."""
    found, level = {"": payload}, [("", payload)]
    for _ in range(DEPTH):
        level = [
            (f"{path}.{number}".lstrip("."), part)
            for path, parent in level
            for number, part in enumerate(rows(parent, "parts"), 1)
        ][:MAX_PARTS]
        found.update(level)
    # A mail that is one part has it at 1, whatever it says that it is.
    return {"1": payload} | found


def inner(found: Json, key: str = "message") -> Json:
    """Return an object within an object; an empty one where there is none."""
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def _from_parts(found: Json) -> Mail:
    payload = found.get("payload")
    if not isinstance(payload, dict):
        raise Unavailable("Gmail's answer lacks the mail itself", remedy="Try again in a while.")
    mail, there = mime.read(skeleton(payload)), parts(payload)
    sized = tuple(
        replace(file, size=number(inner(there.get(file.part, {}), "body"), "size"))
        for file in mail.attachments
    )
    damage = mail.damage
    if any(_text_apart(part) for part in there.values()):
        damage += ("A text of this mail is too large to be shown here",)
    return replace(mail, attachments=sized, damage=damage)


def _text_apart(part: Json) -> bool:
    """Whether Gmail keeps the text of a part apart, as it keeps files."""
    kind = str(part.get("mimeType") or "").lower()
    return (
        kind.startswith("text/")
        and not part.get("filename")
        and "attachmentId" in inner(part, "body")
    )


def skeleton(payload: Json, depth: int = 0) -> bytes:
    """Return a mail of the same headers, structure and texts, whose files are empty."""
    kind = str(payload.get("mimeType") or "").lower()
    kind = kind if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9.+-]+", kind) else "text/plain"
    below = rows(payload, "parts") if kind.startswith("multipart/") and depth < DEPTH else []
    if below:
        head = _head(payload, without={"content-transfer-encoding", "content-type"})
        mark = f"=_postroom_{depth}"
        within = [skeleton(part, depth + 1) for part in below[:MAX_PARTS]]
        joined = b"".join(f"\r\n--{mark}\r\n".encode() + part for part in within)
        head += f'Content-Type: {kind}; boundary="{mark}"\r\n'.encode()
        return head + joined + f"\r\n--{mark}--\r\n".encode()
    head = _head(payload, without={"content-transfer-encoding"})
    body = inner(payload, "body")
    data = b"" if "attachmentId" in body else decoded(body.get("data", ""))
    if kind.startswith("text/") and not data.isascii() and _is_utf8(data):
        # Whatever the header says: Gmail hands many charsets out as UTF-8.
        head = _head(payload, without={"content-transfer-encoding", "content-type"})
        head += f"Content-Type: {kind}; charset=utf-8\r\n".encode()
    return head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(data)


def _head(payload: Json, without: set[str] | frozenset[str] = frozenset()) -> bytes:
    """Return the headers of a part as a mail has them; none can end them or begin another."""
    lines = []
    for header in rows(payload, "headers"):
        key, value = header.get("name"), header.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or key.lower() in without:
            continue
        if re.fullmatch(r"[!-9;-~]{1,100}", key):
            lines.append(f"{key}: {_BREAKS.sub(' ', value)}\r\n")
    return "".join(lines).encode("utf-8", "replace")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
