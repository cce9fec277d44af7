"""Taking a mail apart: where its parts are, and the headers of each. It never raises, and all work is bounded."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from postroom.core.values import dataclass
from postroom.mail import headers
from postroom.mail.decoding import unpack
from postroom.mail.headers import Findings

MAX_DEPTH: Final = 50  # multiparts within multiparts
MAX_PARTS: Final = 1_000
MAX_HEADER: Final = 262_144  # octets of one part's header
MAX_SCAN: Final = 500_000_000  # octets searched for boundaries, all levels together
MAX_MARKS: Final = 100_000  # lines that begin like a boundary

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
_EMPTY: Final = re.compile(rb"\r{0,2}\n")
_MARK_END: Final = re.compile(rb"(--)?[ \t]*+(?:\r{0,2}\n|\Z)")
_GUESS: Final = re.compile(rb"(?:\A|\n)--(\S{1,200})[ \t]{0,20}\r?\n(?i:content-)")
_TYPE: Final = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}", re.ASCII
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
        """The Content-Transfer-Encoding, in lower case."""
        value = self.header(b"content-transfer-encoding")
        return value.partition(";")[0].strip().lower()

    def header(self, name: bytes) -> str:
        """Return the first header of this name; empty if there is none."""
        values = self.fields.get(name)
        return headers.text(values[0]) if values else ""

    def content(self, raw: bytes, limit: int | None = None) -> bytes:
        """Return the body without its transfer encoding, of at most so many octets."""
        end = self.end if limit is None else min(self.end, self.start + limit)
        return unpack(raw[self.start : end], self.encoding)


def first_header(fields: HeaderFields, name: bytes) -> str:
    """Return the first header of this name; empty if there is none."""
    values = fields.get(name)
    return headers.text(values[0]) if values else ""


def open_mail(raw: bytes, findings: Findings) -> tuple[bytes, MailPart]:
    """Return a mail with its line ends mended, and its tree of parts.

    It goes level by level, so that no depth can exhaust the stack.
    """
    if b"\r" in raw[:MAX_HEADER] and b"\n" not in raw[:MAX_HEADER]:
        raw = raw.replace(b"\r", b"\n")
    root = _read_part(raw, "", (0, len(raw)), "text/plain", findings)
    level, count, scan = [root], 1, MAX_SCAN
    for depth in range(MAX_DEPTH + 1):
        multiparts = [part for part in level if part.type.startswith("multipart/")]
        level = []
        for parent in multiparts:
            scan -= parent.end - parent.start
            if depth == MAX_DEPTH or scan < 0:
                findings.note(f"Parts nested deeper than {MAX_DEPTH} were not opened")
                continue
            if count >= MAX_PARTS:
                findings.note(_TOO_MANY)
                continue
            spans = _find_parts(raw, parent, MAX_PARTS - count, findings)
            count += len(spans)
            usual = "message/rfc822" if parent.type == "multipart/digest" else "text/plain"
            parent.children = [
                _read_part(raw, f"{parent.path}.{number}".lstrip("."), span, usual, findings)
                for number, span in enumerate(spans, 1)
            ]
            level += parent.children
        if not level:
            break
    if not root.type.startswith("multipart/"):
        root.path = "1"
        # The last line break ends the mail and not its text, as the one before a boundary does.
        if root.type.startswith("text/"):
            root.end = _before_break(raw, root.start, root.end)
    return raw, root


def _read_part(raw: bytes, path: str, span: Span, usual: str, findings: Findings) -> MailPart:
    """Return the part in this span of the mail; one that declares no type has the usual one."""
    fields, start = read_fields(raw, *span, findings, first=not path)
    for name in _ONCE:
        if len(fields.get(name, ())) > 1:
            findings.note(f"There are several {name.decode().title()} headers")
    declared = first_header(fields, b"content-type")
    if not declared:
        return MailPart(path, usual, {}, fields, start, span[1])
    kind, parameters = headers.parameters(declared)
    if not _TYPE.fullmatch(kind):
        findings.note("A part's type could not be read")
        kind = "multipart/mixed" if "boundary" in parameters else usual
        if b"content-disposition" in fields or "name" in parameters:
            kind = "application/octet-stream"
    return MailPart(path, kind, parameters, fields, start, span[1])


def read_fields(
    raw: bytes, start: int, end: int, findings: Findings, *, first: bool
) -> tuple[HeaderFields, int]:
    """Return the headers that are used, as octets, and where the body begins."""
    if first:
        start = _LEADING.match(raw).end()  # type: ignore[union-attr]
    elif empty := _EMPTY.match(raw, start, end):
        return {}, empty.end()
    blank = _BLANK.search(raw, start, end)
    close, body = blank.span() if blank else (end, end)
    cut = close - start > MAX_HEADER
    if cut:
        findings.note(f"Only the first {MAX_HEADER:,} octets of a header were read")
        close = start + MAX_HEADER
        body = body if blank else close
    block = raw[start:close]
    lines = _FOLD.sub(b"", block).split(b"\n")
    found: HeaderFields = {}
    strange: list[int] = []  # lines that are no header
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
        findings.note("A line among the headers is no header")
    late = next((at for at in strange if at > last), None)
    if late is None:
        return found, body
    # No blank line between header and text: the text begins at the first line that is no header.
    places = [begun.start() for begun in _LINE.finditer(block)]
    if first or last >= 0:
        findings.note("The blank line between header and text is missing")
    return found, start + places[late] if late < len(places) else body


def _find_parts(raw: bytes, parent: MailPart, room: int, findings: Findings) -> list[Span]:
    """Return where the parts of a multipart are; one without parts becomes text."""
    boundary = parent.parameters.get("boundary", "").rstrip().encode("utf-8", "replace")
    spans = _split(raw, parent, boundary, room, findings) if boundary else []
    if not spans and (guess := _GUESS.search(raw[parent.start : parent.end][:MAX_HEADER])):
        findings.note("A boundary was missing and was guessed")
        spans = _split(raw, parent, guess[1], room, findings)
    # Encoded as a whole, which RFC 2045 section 6.4 forbids: then it is a file.
    if not spans and parent.encoding not in {"base64", "quoted-printable"}:
        findings.note("A multipart has no parts; it was read as text")
        parent.type = "text/plain"
    return spans


def _split(
    raw: bytes, parent: MailPart, boundary: bytes, room: int, findings: Findings
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
        if len(spans) >= room:
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
    """Return `end`, or the place of the line break right before it."""
    if end > start and raw[end - 1] == 10:
        end -= 1
        if end > start and raw[end - 1] == 13:
            end -= 1
    return max(start, end)
