"""The last check of mail that leaves: other code than wrote it reads it and compares it with the letter."""

from __future__ import annotations

import base64
import email
import email.header
import email.utils
from email.message import Message
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from postroom.core.address import Address
    from postroom.core.letter import Letter

_HEADERS: Final = frozenset(
    {
        "from", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id", "in-reply-to",
        "references", "x-postroom-letter", "mime-version", "content-type",
        "content-transfer-encoding",
    }
)  # fmt: skip


def find_difference(letter: Letter, wire: bytes) -> str:
    """Return how these bytes differ from the letter; an empty text if they do not."""
    mail = email.message_from_bytes(wire)
    fields = [name.lower() for name in mail.keys()]  # noqa: SIM118 - a mail may have one name twice
    if strange := [name for name in fields if name not in _HEADERS or fields.count(name) > 1]:
        return f"the bytes to be sent have a header that the letter has not: {strange[0][:40]}"
    for name, found, expected in _header_pairs(mail, letter):
        if found != expected:
            return f"the bytes to be sent have another {name} than the letter"
    texts = [(k, t) for k, t in (("plain", letter.text), ("html", letter.html)) if t]
    if not texts and not letter.attachments:
        texts = [("plain", "")]
    parts = _parts(mail, "mixed") if letter.attachments else [mail]
    bodies, files = parts[: bool(texts)], parts[bool(texts) :]
    if len(texts) > 1 and bodies:
        bodies = _parts(bodies[0], "alternative")
    if (len(bodies), len(files)) != (len(texts), len(letter.attachments)):
        return "the bytes to be sent have other parts than the letter"
    if any(_has_stray_text(part) for part in mail.walk()):
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


def _header_pairs(mail: Message, letter: Letter) -> Iterator[tuple[str, object, object]]:
    yield "From", _people(mail["from"]), _pairs((letter.sender,))
    for name, people in (("To", letter.to), ("Cc", letter.cc), ("Reply-To", letter.reply_to)):
        yield name, _people(mail[name]), _pairs(people)
    # Where there is no envelope beside them, the bytes carry the hidden recipients too.
    if mail["bcc"] is not None:
        yield "Bcc", _people(mail["bcc"]), _pairs(letter.bcc)
    yield "Subject", _decoded(mail["subject"] or ""), letter.subject
    yield "Message-ID", mail["message-id"], letter.message_id
    yield "In-Reply-To", mail["in-reply-to"] or "", letter.in_reply_to
    yield "References", tuple((mail["references"] or "").split()), letter.references
    yield "X-Postroom-Letter", mail["x-postroom-letter"], letter.id


def _people(value: str | None) -> list[tuple[str, str]]:
    pairs = email.utils.getaddresses([_unfolded(value or "")]) if value else []
    return [(_decoded(name), spec) for name, spec in pairs]


def _pairs(addresses: Sequence[Address]) -> list[tuple[str, str]]:
    return [(address.name, address.spec) for address in addresses]


def _unfolded(value: str) -> str:
    return value.replace("\r\n", "").replace("\n", "")


def _decoded(value: str) -> str:
    # RFC 2047 section 6.2: what stands between two encoded-words is none of the text.
    return str(email.header.make_header(email.header.decode_header(_unfolded(value))))


def _parts(mail: Message, kind: str) -> list[Message]:
    payload = mail.get_payload()
    whole = isinstance(payload, list) and mail.get_content_type() == f"multipart/{kind}"
    return [part for part in payload if isinstance(part, Message)] if whole else []


def _has_stray_text(part: Message) -> bool:
    return any((beside or "").strip() for beside in (part.preamble, part.epilogue))


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
        encoded = base64.encodebytes(content).rstrip(b"\n").replace(b"\n", b"\r\n")
        return content in wire or encoded in wire
    return part.get_payload(decode=True) == content
