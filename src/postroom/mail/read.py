"""The reader of mail that arrives: bytes in, values out. It never raises, and all work is bounded."""

from __future__ import annotations

import json
import re
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Final

from postroom.core.letter import Enclosure
from postroom.core.message import Attachment, Mail, Party
from postroom.core.text import clean, words
from postroom.core.values import dataclass
from postroom.mail import headers
from postroom.mail.decoding import decode
from postroom.mail.headers import Findings
from postroom.mail.structure import (
    MAX_HEADER,
    HeaderFields,
    MailPart,
    first_header,
    open_mail,
    read_fields,
)

MAX_SOURCE: Final = 10_000_000  # octets of one text part that are decoded
MAX_TEXT: Final = 1_000_000  # characters of text that are returned
MAX_HTML: Final = 1_000_000  # characters of HTML that are returned
MAX_NAME: Final = 200  # characters of an attachment's name
MAX_DELIVERED: Final = 50

CONTRADICTED: Final = "The plain text says what the HTML does not; the HTML is shown"
UNREADABLE: Final = "The mail could not be read; its raw text is shown"

_SLASH: Final = re.compile(r"[/\\]")
_META: Final = re.compile(
    rb"<meta\b[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE
)
_TEXT_TYPES: Final = frozenset(
    {"text/plain", "text/markdown", "text/enriched", "text/richtext", "text/html"}
)


@dataclass(slots=True)
class _Body:
    """One run of the mail's own text: as plain text, as HTML, or as both."""

    plain: str = ""
    html: str = ""


@dataclass(slots=True)
class _BodyReader:
    """A mail whose texts and files are being collected; files have no size unless `with_text`."""

    raw: bytes
    root: MailPart
    findings: Findings
    with_text: bool
    files: list[tuple[MailPart, Attachment]] = field(default_factory=list)
    length: int = 0  # characters of text that were read

    def bodies(
        self, part: MailPart, *, alternative: bool = False, auxiliary: bool = False
    ) -> list[_Body]:
        """Return the mail's own texts in a part and collect its files; `auxiliary` parts are never text."""
        if part.children:
            is_alternative = part.type == "multipart/alternative"
            main = _main_part(part)
            runs = [
                self.bodies(
                    child,
                    alternative=is_alternative,
                    auxiliary=auxiliary or main not in {None, child.path},
                )
                for child in part.children
            ]
            return [_best(runs)] if is_alternative else [body for run in runs for body in run]
        disposition, parameters = headers.parameters(part.header(b"content-disposition"))
        name = parameters.get("filename") or part.parameters.get("name") or ""
        own = (alternative or not name or part is self.root) and not auxiliary
        if own and disposition != "attachment" and part.type in _TEXT_TYPES:
            return [self._text(part)] if self.with_text else []
        kind = _extensions().get(part.type, "bin")
        listed = Attachment(
            part=part.path,
            name=self._file_name(part, name) or f"attachment-{len(self.files) + 1}.{kind}",
            type=part.type,
            size=len(part.content(self.raw)) if self.with_text else 0,
            inline=disposition == "inline" or (not disposition and b"content-id" in part.fields),
        )
        self.files.append((part, listed))
        return []

    def _text(self, part: MailPart) -> _Body:
        """Return a text part decoded, with plain newlines; empty beyond the bound."""
        if self.length >= MAX_TEXT + MAX_HTML:
            return _Body()
        octets = part.content(self.raw, MAX_SOURCE)
        charset = part.parameters.get("charset", "")
        is_html = part.type == "text/html"
        if is_html and not charset and (meta := _META.search(octets[:4096])):
            charset = meta[1].decode("ascii", "replace")
        text, as_declared = decode(octets, charset)
        if not as_declared:
            self.findings.note(
                "A text's charset was wrong or unknown; it was read as well as can be"
            )
        text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        self.length += len(text)
        return _Body(html=text) if is_html else _Body(plain=text)

    def _file_name(self, part: MailPart, given: str) -> str:
        """Return a file's name without path, controls or hidden characters; empty if nothing is left."""
        if not given and part.type == "message/rfc822":
            inner = part.content(self.raw)[:MAX_HEADER]
            fields, _ = read_fields(inner, 0, len(inner), Findings(), first=True)
            subject = self.findings.clean_line(headers.words(first_header(fields, b"subject")))
            given = f"{_SLASH.sub('-', subject)[:MAX_NAME]}.eml" if subject else ""
        name = _SLASH.split(self.findings.clean_block(given))[-1]
        name = clean(re.sub(r"[\n\t]+", " ", name)).text.strip()
        if len(name) > MAX_NAME:
            _, dot, extension = name.rpartition(".")
            keep = len(extension) + 1 if dot and len(extension) <= 10 else 0
            name = name[: MAX_NAME - keep].rstrip() + name[len(name) - keep :]
        return "" if not name.strip(". ") or clean(name).text != name else name


@cache
def _extensions() -> dict[str, str]:
    """Return the file name extension of each common type, for files without a name."""
    found: dict[str, str] = json.loads(
        Path(__file__).with_name("file_types.json").read_text("utf-8")
    )
    return found


def read_mail(raw: bytes) -> Mail:
    """Return what a mail says, whatever the bytes are."""
    findings = Findings()
    try:
        return _read(raw, findings)
    except Exception:  # noqa: BLE001 - a mail that finds a bug here must not stop the import of the next
        findings.note(UNREADABLE)
        text = findings.clean_block(decode(raw[:MAX_TEXT])[0])
        return Mail(text=text, hidden=findings.hidden, damage=tuple(findings.damage))


def read_attachment(raw: bytes, part: str) -> Enclosure | None:
    """Return the file at this part of a mail, with its bytes; None if there is none."""
    raw, root = open_mail(raw, Findings())
    reader = _BodyReader(raw, root, Findings(), with_text=False)
    reader.bodies(root)
    for found, listed in reader.files:
        if found.path == part:
            return Enclosure(listed.name, listed.type, found.content(raw))
    return None


def _read(raw: bytes, findings: Findings) -> Mail:
    raw, root = open_mail(raw, findings)
    reader = _BodyReader(raw, root, findings, with_text=True)
    text, html = _combine(reader.bodies(root), findings)
    senders = _parties(root, b"from", findings)
    if len({party.address or party.name for party in senders}) > 1:
        findings.note("There are several senders")
    senders = senders or _parties(root, b"sender", findings)
    dated = root.header(b"date")
    date = headers.seconds(dated) if dated else None
    if dated and date is None:
        findings.note("The date could not be read")
    message_ids = headers.ids(root.header(b"message-id"))
    return Mail(
        subject=findings.clean_line(headers.words(root.header(b"subject"))),
        sender=senders[0] if senders else None,
        to=_parties(root, b"to", findings),
        cc=_parties(root, b"cc", findings),
        bcc=_parties(root, b"bcc", findings),
        reply_to=_parties(root, b"reply-to", findings),
        date=date,
        message_id=message_ids[0] if message_ids else "",
        in_reply_to=headers.ids(root.header(b"in-reply-to")),
        references=headers.ids(root.header(b"references")),
        list_id=_list_id(root, findings),
        delivered_to=_delivered_to(root.fields, findings),
        automatic=_is_automatic(root),
        text=text,
        html=html,
        hidden=findings.hidden,
        attachments=tuple(listed for _, listed in reader.files),
        damage=tuple(findings.damage),
    )


def _main_part(part: MailPart) -> str | None:
    """Return the path of the part that speaks for a multipart whose others only serve it (RFC 2387 section 3.2)."""
    if part.type not in {"multipart/related", "multipart/signed"}:
        return None
    start = part.parameters.get("start", "").strip()
    named = (child for child in part.children if start and child.header(b"content-id") == start)
    return next(named, part.children[0]).path


def _best(runs: list[list[_Body]]) -> _Body:
    """Return one body of several that say the same: the first plain text, the last HTML."""
    best = _Body()
    for run in runs:
        plain = "\n".join(body.plain for body in run if body.plain)
        html = "\n".join(body.html for body in run if body.html)
        best.plain = best.plain if best.plain.strip() else plain or best.plain
        best.html = html if html.strip() else best.html or html
    return best


def _combine(bodies: list[_Body], findings: Findings) -> tuple[str, str]:
    """Return the mail's text and its HTML, each cut at its bound."""
    html = "\n".join(body.html for body in bodies if body.html)
    texts = []
    for body in bodies:
        if not body.html.strip() or (body.plain.strip() and not _is_contradicted(body, findings)):
            texts.append(findings.clean_block(body.plain[: MAX_TEXT + 1]))
        else:
            texts.append(_render(body.html, findings))
    text = "\n".join(filter(None, texts))
    if len(text) > MAX_TEXT or len(html) > MAX_HTML:
        findings.note(f"Only the first {MAX_TEXT:,} characters of the text were kept")
    return text[:MAX_TEXT], html[:MAX_HTML]


def _render(html: str, findings: Findings) -> str:
    # Imported at its first use: much mail is plain text alone, and the tables of entities are large.
    from postroom.mail.html import render

    rendered = render(html)
    findings.hidden += rendered.hidden
    return findings.clean_block(rendered.text)


def _is_contradicted(body: _Body, findings: Findings) -> bool:
    """Whether the plain text has a line that is not in the HTML, which is what a person sees."""
    seen = set(words(_render(body.html, Findings())))
    unseen = 0
    for line in clean(body.plain[: MAX_TEXT + 1]).text.split("\n"):
        tokens = words(line)
        if len(tokens) > 1 and 2 * sum(token in seen for token in tokens) < len(tokens):
            unseen += len(line.strip())
    if unseen:
        findings.hidden += unseen
        findings.note(CONTRADICTED)
    return bool(unseen)


def _parties(root: MailPart, name: bytes, findings: Findings) -> tuple[Party, ...]:
    values = root.fields.get(name)
    if not values:
        return ()
    if len(values) > 1:
        findings.note(f"There are several {name.decode().title()} headers")
    return headers.parties(", ".join(headers.text(value) for value in values[:20]), findings)


def _list_id(root: MailPart, findings: Findings) -> str:
    """Return the list's identifier (RFC 2919), which stands in brackets after a description."""
    value = root.header(b"list-id")
    inner = value.rpartition("<")[2].partition(">")[0] if "<" in value else headers.words(value)
    return findings.clean_line(inner)


def _delivered_to(fields: HeaderFields, findings: Findings) -> tuple[str, ...]:
    values = [*fields.get(b"delivered-to", ()), *fields.get(b"x-original-to", ())][:MAX_DELIVERED]
    found = (headers.parties(headers.text(value), findings) for value in values)
    return tuple(dict.fromkeys(p.address for several in found for p in several if p.address))


def _is_automatic(root: MailPart) -> bool:
    """Whether a machine sent it, or a list: nobody waits for an answer (RFC 3834 section 2)."""
    submitted = root.header(b"auto-submitted").partition(";")[0].strip().lower()
    return (
        b"list-id" in root.fields
        or b"list-unsubscribe" in root.fields
        or submitted not in {"", "no"}
        or root.header(b"precedence").lower() in {"bulk", "list", "junk"}
        or root.header(b"x-auto-response-suppress").lower() not in {"", "none"}
        or root.header(b"return-path") == "<>"
    )
