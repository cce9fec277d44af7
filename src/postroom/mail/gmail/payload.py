"""From Gmail's JSON to mails; every field is checked before it is used."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html import unescape
from typing import Final

from postroom.core.message import Mail, Message, Party, Summary
from postroom.core.text import one_line
from postroom.mail import mime
from postroom.mail.gmail.formats import Json, decode_base64, malformed, object_field
from postroom.mail.mailbox import SNIPPET

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
