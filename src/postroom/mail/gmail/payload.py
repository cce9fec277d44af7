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
from postroom.mail.gmail.encoding import decode_base64
from postroom.mail.gmail.errors import Json, malformed
from postroom.mail.mailbox import SNIPPET, not_found

SUMMARY_HEADERS: Final = ("From", "To", "Subject", "Message-ID", "Content-Type")
SUMMARY: Final = "id,threadId,labelIds,snippet,internalDate,sizeEstimate,payload(mimeType,headers)"
WHOLE: Final = "id,threadId,labelIds,internalDate,sizeEstimate,raw"
PARTS: Final = "id,threadId,labelIds,internalDate,sizeEstimate,payload"
LARGE: Final = 4_000_000  # bytes of a mail from which on its files are fetched one by one
MAX_PARTS: Final = 1_000
MAX_DEPTH: Final = 50  # parts within parts

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9.+-]+")
_BREAKS: Final = re.compile(r"[\r\n\0]+")


def check_id(what: str, id: str) -> None:
    """Raise `NotFound` for a text that cannot be an id, since it becomes part of a path."""
    if not _ID.fullmatch(id):
        raise not_found(what, id)


def text_field(answer: Json, key: str) -> str:
    """Return a text that Gmail must have given."""
    value = answer.get(key)
    if isinstance(value, str) and value:
        return value
    raise malformed(f"lacks its {key}")


def id_field(answer: Json, key: str = "id") -> str:
    """Return an id that Gmail must have given and that can be part of a path."""
    value = text_field(answer, key)
    if not _ID.fullmatch(value):
        raise malformed(f"has a strange {key}")
    return value


def object_list(answer: Json, key: str) -> list[Json]:
    """Return a list of objects; Gmail leaves out an empty one."""
    value = answer.get(key, [])
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return value
    raise malformed(f"has strange {key}")


def object_field(answer: Json, key: str = "message") -> Json:
    """Return an object within an object; an empty one if there is none."""
    value = answer.get(key)
    return value if isinstance(value, dict) else {}


def label_ids(answer: Json) -> tuple[str, ...]:
    """Return the ids of a mail's labels."""
    value = answer.get("labelIds")
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def number_field(answer: Json, key: str) -> int:
    """Return a number, which Gmail may write as a text; 0 if there is none."""
    value = answer.get(key)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def bytes_field(value: object) -> bytes:
    """Return the bytes of a text in base64."""
    if not isinstance(value, str):
        raise malformed("lacks the mail itself")
    return decode_base64(value.encode("ascii", "replace"))


def summary(answer: Json, labels: frozenset[str]) -> Summary:
    """Return one line of a list of mails."""
    head = object_field(answer, "payload")
    mail = mime.read(_head(head) + b"\r\n")
    snippet = answer.get("snippet")
    return Summary(
        id=id_field(answer),
        thread=id_field(answer, "threadId"),
        date=number_field(answer, "internalDate") // 1000,
        size=number_field(answer, "sizeEstimate"),
        labels=labels,
        sender=mail.sender or Party("", ""),
        to=mail.to,
        subject=mail.subject,
        snippet=one_line(unescape(snippet))[:SNIPPET] if isinstance(snippet, str) else "",
        attachments=int(_seems_to_have_files(head)),
        message_id=mail.message_id,
    )


def _seems_to_have_files(head: Json) -> bool:
    """Whether a mail's own type suggests attachments; a list does not fetch its parts."""
    kind = str(head.get("mimeType") or "").lower()
    return kind == "multipart/mixed" or bool(kind and not kind.startswith(("text/", "multipart/")))


def message(answer: Json, labels: frozenset[str]) -> Message:
    """Return a mail from its bytes, or from its parts if it was too large to fetch whole."""
    raw = bytes_field(answer["raw"]) if "raw" in answer else b""
    return Message(
        id=id_field(answer),
        thread=id_field(answer, "threadId"),
        date=number_field(answer, "internalDate") // 1000,
        size=len(raw) or number_field(answer, "sizeEstimate"),
        labels=labels,
        mail=mime.read(raw) if "raw" in answer else _read_parts(answer),
    )


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
    payload = answer.get("payload")
    if not isinstance(payload, dict):
        raise malformed("lacks the mail itself")
    mail, by_path = mime.read(skeleton(payload)), parts(payload)
    files = tuple(
        replace(file, size=number_field(object_field(by_path.get(file.part, {}), "body"), "size"))
        for file in mail.attachments
    )
    damage = mail.damage
    if any(_has_separate_text(part) for part in by_path.values()):
        damage += ("A text of this mail is too large to be shown here",)
    return replace(mail, attachments=files, damage=damage)


def _has_separate_text(part: Json) -> bool:
    """Whether Gmail stores the text of a part apart, as it does with files."""
    is_text = str(part.get("mimeType") or "").lower().startswith("text/")
    return is_text and not part.get("filename") and "attachmentId" in object_field(part, "body")


def skeleton(payload: Json, depth: int = 0) -> bytes:
    """Return a mail with the same headers, structure and texts, whose files are empty."""
    kind = str(payload.get("mimeType") or "").lower()
    kind = kind if _TYPE.fullmatch(kind) else "text/plain"
    nested = kind.startswith("multipart/") and depth < MAX_DEPTH
    if children := object_list(payload, "parts") if nested else []:
        mark = f"=_postroom_{depth}"
        inner = [skeleton(part, depth + 1) for part in children[:MAX_PARTS]]
        joined = b"".join(f"\r\n--{mark}\r\n".encode() + part for part in inner)
        head = _head(payload, f'{kind}; boundary="{mark}"')
        return head + joined + f"\r\n--{mark}--\r\n".encode()
    body = object_field(payload, "body")
    data = b"" if "attachmentId" in body else bytes_field(body.get("data", ""))
    # Whatever the header says, Gmail returns many charsets as UTF-8.
    recoded = kind.startswith("text/") and not data.isascii() and _is_utf8(data)
    head = _head(payload, f"{kind}; charset=utf-8" if recoded else "")
    return head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(data)


def _head(payload: Json, content_type: str = "") -> bytes:
    """Return a part's headers without its transfer encoding, with another type if one is given.

    No value can end the headers or begin another one.
    """
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


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
