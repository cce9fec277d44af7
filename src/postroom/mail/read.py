"""The reader of whatever arrives: bytes in, values out. It never raises, and every measure of it is bounded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from postroom.core.letter import Enclosure
from postroom.core.message import Attachment, Mail, Party
from postroom.core.text import clean, words
from postroom.mail import headers
from postroom.mail.headers import Findings
from postroom.mail.octets import decode, unpack

MAX_DEPTH: Final = 50  # multiparts within multiparts
MAX_PARTS: Final = 1_000
MAX_HEADER: Final = 262_144  # octets of one part's header
MAX_SCAN: Final = 500_000_000  # octets searched for boundaries, all levels together
MAX_MARKS: Final = 100_000  # lines that begin like a boundary
MAX_SOURCE: Final = 10_000_000  # octets of one text part that are decoded
MAX_TEXT: Final = 1_000_000  # characters of text that are kept
MAX_HTML: Final = 1_000_000  # characters of HTML that are kept
MAX_NAME: Final = 200  # characters of an attachment's name
MAX_DELIVERED: Final = 50

_TOO_MANY: Final = f"Only the first {MAX_PARTS:,} parts were read"
BELIED: Final = "The plain text says what the HTML does not; the HTML is shown"
UNREADABLE: Final = "The mail could not be read; its raw text is shown"

Headers = dict[bytes, list[bytes]]

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
_SLASH: Final = re.compile(r"[/\\]")
_BREAKS: Final = re.compile(r"[\n\t]+")
_EMPTY: Final = re.compile(rb"\r{0,2}\n")
_MARK_END: Final = re.compile(rb"(--)?[ \t]*+(?:\r{0,2}\n|\Z)")
_GUESS: Final = re.compile(rb"(?:\A|\n)--(\S{1,200})[ \t]{0,20}\r?\n(?i:content-)")
_META: Final = re.compile(
    rb"<meta\b[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE
)
_TYPE: Final = re.compile(
    r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}", re.ASCII
)
_PLAIN: Final = frozenset({"text/plain", "text/markdown", "text/enriched", "text/richtext"})
_ENCODED: Final = frozenset({"base64", "quoted-printable"})
_EXTENSIONS: Final = {
    "application/gzip": "gz",
    "application/json": "json",
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/pgp-signature": "asc",
    "application/pkcs7-signature": "p7s",
    "application/rtf": "rtf",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/xml": "xml",
    "application/zip": "zip",
    "audio/mpeg": "mp3",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tif",
    "image/webp": "webp",
    "message/delivery-status": "txt",
    "message/disposition-notification": "txt",
    "message/rfc822": "eml",
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/rfc822-headers": "txt",
    "text/vcard": "vcf",
    "text/x-vcard": "vcf",
    "video/mp4": "mp4",
}


@dataclass(slots=True)
class _Part:
    """A part where it stands in the mail: `start` and `end` are its body's."""

    path: str
    type: str
    parameters: dict[str, str]
    headers: Headers
    start: int
    end: int
    children: list[_Part] = field(default_factory=list)

    @property
    def multipart(self) -> bool:
        """Whether it should hold parts."""
        return self.type.startswith("multipart/")

    @property
    def encoding(self) -> str:
        """The Content-Transfer-Encoding, in lower case."""
        return _first(self.headers, b"content-transfer-encoding").partition(";")[0].strip().lower()


@dataclass(slots=True)
class _Body:
    """One run of the mail's own text: as plain text, as HTML, or as both."""

    plain: str = ""
    html: str = ""


@dataclass(slots=True)
class _Opened:
    """A mail taken apart, its text read and its files found."""

    raw: bytes
    root: _Part
    findings: Findings
    files: list[tuple[_Part, Attachment]] = field(default_factory=list)
    kept: int = 0


def read_mail(raw: bytes) -> Mail:
    """Return what a mail says of itself, whatever the bytes are."""
    findings = Findings()
    try:
        return _read(raw, findings)
    except Exception:  # noqa: BLE001 - a mail that finds a bug here must not stop the import of the next
        findings.note(UNREADABLE)
        said = findings.block(decode(raw[:MAX_TEXT])[0])
        return Mail(text=said, hidden=findings.hidden, damage=tuple(findings.damage))


def read_attachment(raw: bytes, part: str) -> Enclosure | None:
    """Return the file at this part of a mail, with its bytes; None if there is none."""
    opened = _open(raw, Findings())
    _sort(opened, opened.root, reading=False)
    for found, listed in opened.files:
        if found.path == part:
            return Enclosure(listed.name, listed.type, _content(opened.raw, found))
    return None


def _read(raw: bytes, findings: Findings) -> Mail:
    opened = _open(raw, findings)
    text, html = _said(_sort(opened, opened.root, reading=True), findings)
    head = opened.root.headers
    senders = _parties(head, b"from", findings)
    if len({party.address or party.name for party in senders}) > 1:
        findings.note("There are several senders")
    senders = senders or _parties(head, b"sender", findings)
    dated = _first(head, b"date")
    date = headers.seconds(dated) if dated else None
    if dated and date is None:
        findings.note("The date could not be read")
    message_ids = headers.ids(_first(head, b"message-id"))
    return Mail(
        subject=findings.line(headers.words(_first(head, b"subject"))),
        sender=senders[0] if senders else None,
        to=_parties(head, b"to", findings),
        cc=_parties(head, b"cc", findings),
        bcc=_parties(head, b"bcc", findings),
        reply_to=_parties(head, b"reply-to", findings),
        date=date,
        message_id=message_ids[0] if message_ids else "",
        in_reply_to=headers.ids(_first(head, b"in-reply-to")),
        references=headers.ids(_first(head, b"references")),
        list_id=_list_id(head, findings),
        delivered_to=_delivered(head, findings),
        automatic=_automatic(head),
        text=text,
        html=html,
        hidden=findings.hidden,
        attachments=tuple(listed for _, listed in opened.files),
        damage=tuple(findings.damage),
    )


def _open(raw: bytes, findings: Findings) -> _Opened:
    """Take a mail apart, level by level, so that no depth can exhaust the stack."""
    if b"\r" in raw[:MAX_HEADER] and b"\n" not in raw[:MAX_HEADER]:
        raw = raw.replace(b"\r", b"\n")
    root = _part(raw, "", (0, len(raw)), "text/plain", findings)
    level, count, scan = [root], 1, MAX_SCAN
    for depth in range(MAX_DEPTH + 1):
        multiparts = [part for part in level if part.multipart]
        level = []
        for parent in multiparts:
            scan -= parent.end - parent.start
            if depth == MAX_DEPTH or scan < 0:
                findings.note(f"Parts nested deeper than {MAX_DEPTH} were not opened")
                continue
            if count >= MAX_PARTS:
                findings.note(_TOO_MANY)
                continue
            spans = _spans(raw, parent, MAX_PARTS - count, findings)
            count += len(spans)
            usual = "message/rfc822" if parent.type == "multipart/digest" else "text/plain"
            parent.children = [
                _part(raw, f"{parent.path}.{number}".lstrip("."), span, usual, findings)
                for number, span in enumerate(spans, 1)
            ]
            level += parent.children
        if not level:
            break
    if not root.multipart:
        root.path = "1"
        # The last line break ends the mail and not its text, as the one before a boundary does.
        if root.type.startswith("text/"):
            root.end = _before_break(raw, root.start, root.end)
    return _Opened(raw, root, findings)


def _part(raw: bytes, path: str, span: tuple[int, int], usual: str, findings: Findings) -> _Part:
    """Return the part in this span of the mail; what declares no type has the usual one."""
    head, start = _head(raw, *span, findings, first=not path)
    for name in _ONCE:
        if len(head.get(name, ())) > 1:
            findings.note(f"There are several {name.decode().title()} headers")
    declared = _first(head, b"content-type")
    if not declared:
        return _Part(path, usual, {}, head, start, span[1])
    kind, parameters = headers.parameters(declared)
    if not _TYPE.fullmatch(kind):
        findings.note("A part's type could not be read")
        kind = "multipart/mixed" if "boundary" in parameters else usual
        if b"content-disposition" in head or "name" in parameters:
            kind = "application/octet-stream"
    return _Part(path, kind, parameters, head, start, span[1])


def _head(
    raw: bytes, start: int, end: int, findings: Findings, *, first: bool
) -> tuple[Headers, int]:
    """Return the headers that are wanted, as octets, and where the body begins."""
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
    found: Headers = {}
    strange: list[int] = []
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


def _spans(raw: bytes, parent: _Part, room: int, findings: Findings) -> list[tuple[int, int]]:
    """Return where the parts of a multipart begin and end; one without parts becomes text."""
    boundary = parent.parameters.get("boundary", "").rstrip().encode("utf-8", "replace")
    spans = _split(raw, parent, boundary, room, findings) if boundary else []
    if not spans and (found := _GUESS.search(raw[parent.start : parent.end][:MAX_HEADER])):
        findings.note("A boundary was missing and was guessed")
        spans = _split(raw, parent, found[1], room, findings)
    # Encoded as a whole, which RFC 2045 section 6.4 forbids: then it is a file.
    if not spans and parent.encoding not in _ENCODED:
        findings.note("A multipart has no parts; it was read as text")
        parent.type = "text/plain"
    return spans


def _split(
    raw: bytes, parent: _Part, boundary: bytes, room: int, findings: Findings
) -> list[tuple[int, int]]:
    mark = b"\n--" + boundary
    spans: list[tuple[int, int]] = []
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
    """Return where the text ends that has a line break before `end`."""
    if end > start and raw[end - 1] == 10:
        end -= 1
        if end > start and raw[end - 1] == 13:
            end -= 1
    return max(start, end)


def _sort(
    opened: _Opened, part: _Part, *, reading: bool, chosen: bool = False, aside: bool = False
) -> list[_Body]:
    """Tell the mail's own texts from its files: `chosen` are parts of an alternative, `aside` is no text."""
    if part.children:
        alternative = part.type == "multipart/alternative"
        root = _root(part)
        runs = [
            _sort(
                opened,
                child,
                reading=reading,
                chosen=alternative,
                aside=aside or root not in {None, child.path},
            )
            for child in part.children
        ]
        return [_best(runs)] if alternative else [body for run in runs for body in run]
    disposition, parameters = headers.parameters(_first(part.headers, b"content-disposition"))
    given = parameters.get("filename") or part.parameters.get("name") or ""
    own = (chosen or not given or part is opened.root) and not aside
    if own and disposition != "attachment" and (part.type in _PLAIN or part.type == "text/html"):
        return [_text(opened, part)] if reading else []
    number = len(opened.files) + 1
    listed = Attachment(
        part=part.path,
        name=_name(opened, part, given)
        or f"attachment-{number}.{_EXTENSIONS.get(part.type, 'bin')}",
        type=part.type,
        size=len(_content(opened.raw, part)) if reading else 0,
        inline=disposition == "inline" or (not disposition and b"content-id" in part.headers),
    )
    opened.files.append((part, listed))
    return []


def _root(part: _Part) -> str | None:
    """Return which part speaks for a multipart whose others only serve it (RFC 2387 section 3.2)."""
    if part.type not in {"multipart/related", "multipart/signed"}:
        return None
    start = part.parameters.get("start", "").strip()
    named = (c for c in part.children if start and _first(c.headers, b"content-id") == start)
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


def _text(opened: _Opened, part: _Part) -> _Body:
    """Return a text part decoded, with plain newlines; beyond what is kept, nothing."""
    if opened.kept >= MAX_TEXT + MAX_HTML:
        return _Body()
    octets = opened.raw[part.start : min(part.end, part.start + MAX_SOURCE)]
    octets = unpack(octets, part.encoding)
    charset = part.parameters.get("charset", "")
    page = part.type == "text/html"
    if page and not charset and (meta := _META.search(octets[:4096])):
        charset = meta[1].decode("ascii", "replace")
    said, well = decode(octets, charset)
    if not well:
        opened.findings.note("A text's charset was wrong or unknown; it was read as well as can be")
    if "\r" in said:
        said = said.replace("\r\n", "\n").replace("\r", "\n")
    said = said.removeprefix("\ufeff")
    opened.kept += len(said)
    return _Body(html=said) if page else _Body(plain=said)


def _said(bodies: list[_Body], findings: Findings) -> tuple[str, str]:
    """Return the mail's text and its HTML, each cut at its bound."""
    html = "\n".join(body.html for body in bodies if body.html)
    texts = []
    for body in bodies:
        if not body.html.strip() or (body.plain.strip() and not _belied(body, findings)):
            texts.append(findings.block(body.plain[: MAX_TEXT + 1]))
        else:
            texts.append(_page(body.html, findings))
    text = "\n".join(filter(None, texts))
    if len(text) > MAX_TEXT or len(html) > MAX_HTML:
        findings.note(f"Only the first {MAX_TEXT:,} characters of the text were kept")
    return text[:MAX_TEXT], html[:MAX_HTML]


def _page(html: str, findings: Findings) -> str:
    # Imported where it is used: much mail is plain text alone, and the tables of entities are large.
    from postroom.mail.html import text as render

    rendered = render(html)
    findings.hidden += rendered.hidden
    return findings.block(rendered.text)


def _belied(body: _Body, findings: Findings) -> bool:
    """Whether a line of the plain text is not in the page, which is what a person sees."""
    seen = set(words(_page(body.html, Findings())))
    unseen = 0
    for line in clean(body.plain[: MAX_TEXT + 1]).text.split("\n"):
        said = words(line)
        if len(said) > 1 and 2 * sum(word in seen for word in said) < len(said):
            unseen += len(line.strip())
    if unseen:
        findings.hidden += unseen
        findings.note(BELIED)
    return bool(unseen)


def _content(raw: bytes, part: _Part) -> bytes:
    return unpack(raw[part.start : part.end], part.encoding)


def _name(opened: _Opened, part: _Part, given: str) -> str:
    """Return a file's name without path, controls or hidden characters; nothing where none is left."""
    findings = opened.findings
    if not given and part.type == "message/rfc822":
        inner = _content(opened.raw, part)[:MAX_HEADER]
        head, _ = _head(inner, 0, len(inner), Findings(), first=True)
        subject = findings.line(headers.words(_first(head, b"subject")))
        given = (
            f"{subject.replace('/', '-').replace(chr(92), '-')[:MAX_NAME]}.eml" if subject else ""
        )
    name = _SLASH.split(findings.block(given))[-1]
    name = clean(" ".join(_BREAKS.split(name))).text.strip()
    if len(name) > MAX_NAME:
        _, dot, extension = name.rpartition(".")
        keep = len(extension) + 1 if dot and len(extension) <= 10 else 0
        name = name[: MAX_NAME - keep].rstrip() + name[len(name) - keep :]
    return "" if not name.strip(". ") or clean(name).text != name else name


def _first(head: Headers, name: bytes) -> str:
    values = head.get(name)
    return headers.text(values[0]) if values else ""


def _parties(head: Headers, name: bytes, findings: Findings) -> tuple[Party, ...]:
    values = head.get(name)
    if not values:
        return ()
    if len(values) > 1:
        findings.note(f"There are several {name.decode().title()} headers")
    return headers.parties(", ".join(headers.text(value) for value in values[:20]), findings)


def _list_id(head: Headers, findings: Findings) -> str:
    """Return the list's identifier (RFC 2919), which stands in brackets after a description."""
    value = _first(head, b"list-id")
    inner = value.rpartition("<")[2].partition(">")[0] if "<" in value else headers.words(value)
    return findings.line(inner)


def _delivered(head: Headers, findings: Findings) -> tuple[str, ...]:
    values = [*head.get(b"delivered-to", ()), *head.get(b"x-original-to", ())][:MAX_DELIVERED]
    found = (headers.parties(headers.text(value), findings) for value in values)
    return tuple(dict.fromkeys(p.address for several in found for p in several if p.address))


def _automatic(head: Headers) -> bool:
    """Whether a machine sent it, or a list: nobody waits for an answer (RFC 3834 section 2)."""
    if b"list-id" in head or b"list-unsubscribe" in head:
        return True
    submitted = _first(head, b"auto-submitted").partition(";")[0].strip().lower()
    suppress = _first(head, b"x-auto-response-suppress").lower()
    return (
        submitted not in {"", "no"}
        or _first(head, b"precedence").lower() in {"bulk", "list", "junk"}
        or suppress not in {"", "none"}
        or _first(head, b"return-path") == "<>"
    )
