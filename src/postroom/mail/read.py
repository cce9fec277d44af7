"""The reader of mail that arrives: bytes in, values out. It never raises, and all work is bounded."""

from __future__ import annotations

import json
import re
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple

from postroom.core.letter import Enclosure
from postroom.core.message import Attachment, Mail, Party
from postroom.core.text import clean, words
from postroom.core.values import dataclass
from postroom.mail import headers
from postroom.mail.headers import Findings, decode, unpack
from postroom.mail.mailbox import no_attachment

MAX_DEPTH: Final = 50  # multiparts within multiparts
MAX_PARTS: Final = 1_000
MAX_HEADER: Final = 262_144  # octets of one part's header
MAX_SCAN: Final = 500_000_000  # octets searched for boundaries, all levels together
MAX_MARKS: Final = 100_000  # lines that begin like a boundary
MAX_SOURCE: Final = 10_000_000  # octets of one text part that are decoded
MAX_TEXT: Final = 1_000_000  # characters of text that are returned
MAX_HTML: Final = 1_000_000  # characters of HTML that are returned
MAX_NAME: Final = 200  # characters of an attachment's name
MAX_DELIVERED: Final = 50

_TOO_MANY: Final = f"Only the first {MAX_PARTS:,} parts were read"

HeaderFields = dict[bytes, list[bytes]]
Span = tuple[int, int]  # where something begins and ends in the mail

_WANTED: Final = frozenset(
    b"from to cc bcc reply-to sender subject date message-id in-reply-to references list-id list-unsubscribe "
    b"delivered-to x-original-to auto-submitted precedence x-auto-response-suppress return-path content-type "
    b"content-disposition content-transfer-encoding content-id".split()
)
_ONCE: Final = (b"subject", b"content-type", b"content-transfer-encoding")
_HEADER_NAME: Final = re.compile(rb"[!-9;-~]+[ \t]*")
_BLANK: Final = re.compile(rb"\n\r{0,2}\n")
_FOLD: Final = re.compile(rb"\r{0,2}\n(?=[ \t])")
_LEADING: Final = re.compile(rb"(?:\xef\xbb\xbf)?(?:\r?\n)*+")
_LINE: Final = re.compile(rb"^(?![ \t])", re.MULTILINE)
_MARK_END: Final = re.compile(rb"(--)?[ \t]*+(?:\r{0,2}\n|\Z)")
_GUESS: Final = re.compile(rb"(?:\A|\n)--(\S{1,200})[ \t]{0,20}\r?\n(?i:content-)")
_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")

CONTRADICTED: Final = "The plain text says what the HTML does not; the HTML is shown"
UNREADABLE: Final = "The mail could not be read; its raw text is shown"

_SLASH: Final = re.compile(r"[/\\]")
_META: Final = rb"(?i)<meta\b[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})"
_EXTENSIONS: Final[dict[str, str]] = json.loads(  # of file names, for files without one
    Path(__file__).with_name("file_types.json").read_text("utf-8")
)
_TEXT_TYPES: Final = frozenset(
    "text/plain text/markdown text/enriched text/richtext text/html".split()
)


@dataclass(slots=True)
class MailPart:
    """A part of a mail: `start` and `end` are where its body is."""

    path: str
    type: str
    parameters: dict[str, str]
    fields: HeaderFields
    start: int
    end: int
    children: list[MailPart] = field(default_factory=list)

    @property
    def encoding(self) -> str:
        return self.header(b"content-transfer-encoding").partition(";")[0].strip().lower()

    def header(self, name: bytes) -> str:
        values = self.fields.get(name)
        return headers.text(values[0]) if values else ""

    def content(self, raw: bytes, limit: int | None = None) -> bytes:
        return unpack(raw[self.start : self.end][:limit], self.encoding)


def _read_parts(raw: bytes, findings: Findings) -> tuple[bytes, MailPart]:
    """Return a mail's bytes, which differ if its lines ended in CR, and its root part with the tree of all parts."""
    if b"\r" in raw[:MAX_HEADER] and b"\n" not in raw[:MAX_HEADER]:
        raw = raw.replace(b"\r", b"\n")
    root = _read_part(raw, "", (0, len(raw)), "text/plain", findings)
    parts, scan = [root], MAX_SCAN
    for parent in parts:  # which grow meanwhile, level by level: no depth can exhaust the stack
        if not parent.type.startswith("multipart/"):
            continue
        scan -= parent.end - parent.start
        if len(parent.path.split(".")) >= MAX_DEPTH or scan < 0:
            findings.note(f"Parts nested deeper than {MAX_DEPTH} were not opened")
        elif len(parts) >= MAX_PARTS:
            findings.note(_TOO_MANY)
        else:
            spans = _find_parts(raw, parent, MAX_PARTS - len(parts), findings)
            usual = "message/rfc822" if parent.type == "multipart/digest" else "text/plain"
            parent.children = [
                _read_part(raw, f"{parent.path}.{number}".lstrip("."), span, usual, findings)
                for number, span in enumerate(spans, 1)
            ]
            parts += parent.children
    if not root.type.startswith("multipart/"):
        root.path = "1"
        if root.type.startswith("text/"):  # its last line break is none of the text
            root.end = _before_break(raw, root.start, root.end)
    return raw, root


def _read_part(raw: bytes, path: str, span: Span, usual: str, findings: Findings) -> MailPart:
    fields, start = read_fields(raw, *span, findings, first=not path)
    for name in _ONCE:
        if len(fields.get(name, ())) > 1:
            findings.note(f"There are several {name.decode().title()} headers")
    part = MailPart(path, usual, {}, fields, start, span[1])
    if declared := part.header(b"content-type"):
        part.type, part.parameters = headers.parameters(declared)
    if not _TYPE.fullmatch(part.type):
        findings.note("A part's type could not be read")
        part.type = "multipart/mixed" if "boundary" in part.parameters else usual
        if b"content-disposition" in fields or "name" in part.parameters:
            part.type = "application/octet-stream"
    return part


def read_fields(
    raw: bytes, start: int, end: int, findings: Findings, *, first: bool
) -> tuple[HeaderFields, int]:
    """Return the headers that are used, as octets, and where the body begins."""
    if first:
        start = _LEADING.match(raw).end()  # type: ignore[union-attr]
    # The line break before a part may be the first of its blank line.
    blank = _BLANK.search(raw, start if first else start - 1, end)
    close, body = blank.span() if blank else (end, end)
    cut = close - start > MAX_HEADER
    if cut:
        findings.note(f"Only the first {MAX_HEADER:,} octets of a header were read")
        close = start + MAX_HEADER
        body = body if blank else close
    block = raw[start:close]
    lines = _FOLD.sub(b"", block).split(b"\n")
    found: HeaderFields = {}
    strange: list[int] = []  # lines that are not a header
    last = -1
    for at, line in enumerate(lines[:-1] if cut and len(lines) > 1 else lines):
        name, colon, value = line.partition(b":")
        key = name.rstrip().lower()
        if colon and key in _WANTED:
            found.setdefault(key, []).append(value)
            last = at
        elif key and not (colon and _HEADER_NAME.fullmatch(name)):
            strange.append(at)
    if strange and first and block.startswith((b"From ", b">From ")):
        del strange[0]  # the line that an mbox puts before each mail
    if strange and strange[0] <= last:
        findings.note("A line among the headers is not a header")
    late = next((at for at in strange if at > last), None)
    if late is None:
        return found, body
    # No blank line between header and text: the text begins at the first line that is not a header.
    places = [begun.start() for begun in _LINE.finditer(block)]
    if first or last >= 0:
        findings.note("The blank line between header and text is missing")
    return found, start + places[late] if late < len(places) else body


def _find_parts(raw: bytes, parent: MailPart, max_parts: int, findings: Findings) -> list[Span]:
    """Return the span of each part of a multipart; guess its boundary if the declared one does not occur.

    A multipart without any part becomes text/plain, unless it is encoded as a whole (which RFC 2045 section 6.4
    forbids): the caller lists it as a file.
    """
    boundary = parent.parameters.get("boundary", "").rstrip().encode("utf-8", "replace")
    spans = _split(raw, parent, boundary, max_parts, findings) if boundary else []
    if not spans and (guess := _GUESS.search(raw[parent.start : parent.end][:MAX_HEADER])):
        findings.note("A boundary was missing and was guessed")
        spans = _split(raw, parent, guess[1], max_parts, findings)
    if not spans and parent.encoding not in {"base64", "quoted-printable"}:
        findings.note("A multipart has no parts; it was read as text")
        parent.type = "text/plain"
    return spans


def _split(
    raw: bytes, parent: MailPart, boundary: bytes, max_parts: int, findings: Findings
) -> list[Span]:
    mark = b"\n--" + boundary
    spans: list[Span] = []
    start, end, opened, closed = parent.start, parent.end, -1, False
    at = start - 1 if raw.startswith(mark[1:], start, end) else raw.find(mark, start, end)
    for _ in range(MAX_MARKS):
        if at < 0:
            break
        tail = _MARK_END.match(raw, at + len(mark), end)
        if not tail:
            at = raw.find(mark, at + 1, end)
            continue
        if opened >= 0:
            spans.append((opened, _before_break(raw, opened, at + 1)))
        if len(spans) >= max_parts:
            findings.note(_TOO_MANY)
            return spans
        if closed and not tail[1]:
            # Some readers show these parts and some do not: a way past scanners.
            findings.note("Parts follow the end of a multipart")
        closed = closed or bool(tail[1])
        opened = -1 if tail[1] else tail.end()
        at = raw.find(mark, tail.end() - 1, end)
    if opened >= 0:
        if not closed:
            findings.note("A multipart is not closed")
        spans.append((opened, end))
    return spans


def _before_break(raw: bytes, start: int, end: int) -> int:
    """Return `end`, or where the last line break before it begins: it belongs to the boundary, not to the part."""
    if raw.endswith(b"\r\n", start, end):
        return end - 2
    return end - 1 if raw.endswith(b"\n", start, end) else end


class _Body(NamedTuple):
    plain: str = ""
    html: str = ""


@dataclass(slots=True)
class _BodyReader:
    raw: bytes
    root: MailPart
    findings: Findings
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
            return [self._text(part)]
        unnamed = f"attachment-{len(self.files) + 1}.{_EXTENSIONS.get(part.type, 'bin')}"
        listed = Attachment(
            part=part.path,
            name=self._file_name(part, name) or unnamed,
            type=part.type,
            size=len(part.content(self.raw)),
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
        if is_html and not charset and (meta := re.search(_META, octets[:4096])):
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
            subject = headers.text(fields.get(b"subject", [b""])[0])
            subject = self.findings.clean_line(headers.words(subject))
            given = f"{_SLASH.sub('-', subject)[:MAX_NAME]}.eml" if subject else ""
        name = _SLASH.split(self.findings.clean_block(given))[-1]
        name = clean(re.sub(r"[\n\t]+", " ", name)).text.strip()
        if len(name) > MAX_NAME:
            _, dot, extension = name.rpartition(".")
            keep = len(extension) + 1 if dot and len(extension) <= 10 else 0
            name = name[: MAX_NAME - keep].rstrip() + name[len(name) - keep :]
        return "" if not name.strip(". ") or clean(name).text != name else name


def read_mail(raw: bytes) -> Mail:
    findings = Findings()
    try:
        return _parse_mail(raw, findings)
    except Exception:  # noqa: BLE001 - a mail that finds a bug here must not stop the import of the next
        findings.note(UNREADABLE)
        text = findings.clean_block(decode(raw[:MAX_TEXT])[0])
        return Mail(text=text, hidden=findings.hidden, damage=tuple(findings.damage))


def read_attachment(raw: bytes, part: str) -> Enclosure:
    raw, root = _read_parts(raw, Findings())
    reader = _BodyReader(raw, root, Findings())
    reader.bodies(root)
    for found, attachment in reader.files:
        if found.path == part:
            return Enclosure(attachment.name, attachment.type, found.content(raw))
    raise no_attachment(part)


# What is wrong with the mail is noted in `findings`. Only a bug raises, which `read_mail` catches.
def _parse_mail(raw: bytes, findings: Findings) -> Mail:
    raw, root = _read_parts(raw, findings)
    reader = _BodyReader(raw, root, findings)
    text, html = _combine(reader.bodies(root), findings)  # `bodies` also collects `reader.files`
    senders = _parties(root, b"from", findings)
    if len({party.address or party.name for party in senders}) > 1:
        findings.note("There are several senders")
    senders = senders or _parties(root, b"sender", findings)
    date_header = root.header(b"date")
    date = headers.seconds(date_header) if date_header else None
    if date_header and date is None:
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
        attachments=tuple(attachment for _, attachment in reader.files),
        # Last: everything above adds to the findings. `hidden` is a number of characters.
        hidden=findings.hidden,
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
    plains = ["\n".join(filter(None, (body.plain for body in run))) for run in runs]
    htmls = ["\n".join(filter(None, (body.html for body in run))) for run in runs]
    plain = next((text for text in plains if text.strip()), "")
    return _Body(plain, next((text for text in reversed(htmls) if text.strip()), ""))


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
    findings.hidden += rendered.removed
    return findings.clean_block(rendered.text)


def _is_contradicted(body: _Body, findings: Findings) -> bool:
    """Whether the plain text says what the HTML, which a person sees, does not; note that, and count it as hidden.

    A line counts if it has two words or more, and the HTML has fewer than half of them.
    """
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
        bool(root.fields.keys() & {b"list-id", b"list-unsubscribe"})
        or submitted not in {"", "no"}
        or root.header(b"precedence").lower() in {"bulk", "list", "junk"}
        or root.header(b"x-auto-response-suppress").lower() not in {"", "none"}
        or root.header(b"return-path") == "<>"
    )
