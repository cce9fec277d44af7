"""The mailbox inside the Gmail double: messages, threads, drafts, labels and history, kept as Gmail keeps them."""

import base64
import binascii
import html
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from email import message_from_bytes, policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message as Parsed
from email.parser import BytesHeaderParser
from email.utils import formatdate
from functools import lru_cache
from typing import Any, NamedTuple

from postroom.core.errors import Invalid
from postroom.core.language import parse
from postroom.core.message import Mail, Message
from postroom.core.query import And, Fact, QueryContext, joined
from postroom.mail.mime import read
from tests.queries import matches

Json = dict[str, Any]

CATEGORIES = tuple(
    f"CATEGORY_{name}" for name in "PERSONAL SOCIAL PROMOTIONS UPDATES FORUMS".split()
)
SYSTEM = (
    *"CHAT SENT INBOX IMPORTANT TRASH DRAFT SPAM STARRED UNREAD".split(),
    *CATEGORIES,
)
UNTOUCHABLE = frozenset({"SENT", "DRAFT"})  # Gmail alone sets and removes them
PACIFIC = timezone(timedelta(hours=-8))  # the API reads the dates of a search as midnight there
PENDING = "pending@example.net"
MAX_RAW = 36_700_160  # octets of a mail, 35 MB as the reference has it
MAX_DEPTH = 30  # parts within parts
SNIPPET = 200  # characters
FIRST_HISTORY = 1000
FIRST_ID, NEXT_ID = 0x19A0_0000_0000_0000, 0x1_0001
HISTORY_KINDS = {
    "messageAdded": "messagesAdded",
    "messageDeleted": "messagesDeleted",
    "labelAdded": "labelsAdded",
    "labelRemoved": "labelsRemoved",
}


class Refused(Exception):
    """What Gmail answers instead of doing it: a status, a reason and a message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


def wrong(message: str) -> Refused:
    """Return the refusal of an argument."""
    return Refused(400, "invalidArgument", message)


def missing() -> Refused:
    """Return the refusal of what is not there."""
    return Refused(404, "notFound", "Requested entity was not found.")


class Sent(NamedTuple):
    """A mail that left: `raw` as its recipients get it, so without Bcc; `letter` is its X-Postroom-Letter."""

    id: str
    thread: str
    raw: bytes
    letter: str


class Change(NamedTuple):
    """One entry of the history."""

    id: int
    kind: str
    message: str
    thread: str
    labels: tuple[str, ...]
    moved: tuple[str, ...] = ()


@dataclass(slots=True)
class Stored:
    """A message in the mailbox; `number` counts them in the order in which they came."""

    id: str
    number: int
    raw: bytes
    labels: set[str]  # by id
    date: int  # milliseconds
    mail: Mail
    thread: str = ""
    history: int = 0


@dataclass(slots=True)
class Part:
    """A part of a mail as Gmail numbers it, with its content transfer-decoded."""

    id: str
    headers: list[tuple[str, str]]
    kind: str
    name: str
    content: bytes
    parts: list["Part"] = field(default_factory=list)


def _number(id: str) -> int:
    return (int(id, 16) - FIRST_ID) // NEXT_ID


def base64url(octets: bytes) -> str:
    """Return the octets in base64url with its padding, as Google writes it."""
    return base64.urlsafe_b64encode(octets).decode()


def from_base64url(text: object) -> bytes:
    """Return the octets of base64url, padded or not, or refuse."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", text):
        raise wrong("Invalid value for ByteString: raw")
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error as bad:
        raise wrong("Invalid value for ByteString: raw") from bad


# Mails as octets


def halves(entity: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the header of an entity, the gap after it and the body."""
    gap = re.search(rb"\A\r?\n|\r?\n\r?\n", entity)
    if gap is None:
        return entity, b"\r\n\r\n", b""
    return entity[: gap.start()], gap[0], entity[gap.end() :]


def parsed(entity: bytes) -> Parsed:
    """Return an entity parsed; its body is not read line by line, which takes long."""
    head, gap, body = halves(entity)
    told = BytesHeaderParser().parsebytes(head + gap)
    if not body or told.get_payload():  # a line that is no field ends the header early
        return BytesHeaderParser().parsebytes(entity)
    told.set_payload(body.decode("ascii", "surrogateescape"))
    return told


def between(body: bytes, boundary: str) -> Iterator[tuple[int, int]]:
    """Yield where each part of a multipart body begins and ends."""
    mark = re.escape(boundary.encode("utf-8", "surrogateescape"))
    begin = -1
    for found in re.finditer(rb"(?:\A|\r?\n)--" + mark + rb"(--)?[ \t]*(?=\r?\n|\Z)", body):
        if begin >= 0:
            yield begin, found.start()
        if found[1]:
            return
        newline = re.compile(rb"\r?\n|\Z").match(body, found.end())
        assert newline is not None
        begin = newline.end()
    if 0 <= begin < len(body):
        yield begin, len(body)


def fields_of(head: bytes) -> list[bytes]:
    """Return the header fields, each with its continuation lines."""
    return [each for each in re.split(rb"\r?\n(?![ \t])", head) if each]


def _named(line: bytes, *names: bytes) -> bool:
    return line.partition(b":")[0].strip().lower() in names


def without(raw: bytes, name: bytes) -> bytes:
    """Return the mail without the fields of this name."""
    head, gap, body = halves(raw)
    return b"\r\n".join(line for line in fields_of(head) if not _named(line, name)) + gap + body


def plain_rebuilt(entity: bytes, depth: int = 0) -> bytes:
    """Return the mail with its plain text in quoted-printable, and all else as it was."""
    head, gap, body = halves(entity)
    told = parsed(entity)
    boundary = _param(told.get_boundary)
    if told.get_content_maintype() == "multipart" and boundary and depth < MAX_DEPTH:
        if told.get_content_subtype() == "signed":
            return entity
        built, done = [], 0
        for begin, end in between(body, boundary):
            built += [body[done:begin], plain_rebuilt(body[begin:end], depth + 1)]
            done = end
        return head + gap + b"".join(built) + body[done:]
    attached = _param(told.get_filename) or told.get_content_disposition() == "attachment"
    if told.get_content_type() != "text/plain" or attached:
        return entity
    kept = [line for line in fields_of(head) if not _named(line, b"content-transfer-encoding")]
    kept.append(b"Content-Transfer-Encoding: quoted-printable")
    text = binascii.b2a_qp(_content(told), istext=True)
    return b"\r\n".join(kept) + b"\r\n\r\n" + text


def _content(told: Parsed) -> bytes:
    """Return the decoded body of a part that has no parts."""
    found = told.get_payload(decode=True)
    assert isinstance(found, bytes)
    return found


def message_id_replaced(raw: bytes) -> bytes:
    """Return the mail under a Message-ID of Gmail's, with its own one beside it."""
    head, gap, body = halves(raw)
    lines = [
        b"X-Google-Original-" + line if _named(line, b"message-id") else line
        for line in fields_of(head)
    ]
    lines.append(f"Message-ID: <{secrets.token_urlsafe(30)}@mail.gmail.com>".encode())
    return b"\r\n".join(lines) + gap + body


@lru_cache(maxsize=64)
def anatomy(entity: bytes, id: str = "", depth: int = 0) -> Part:
    """Return the tree of a mail's parts."""
    told = parsed(entity)
    body = halves(entity)[2]
    headers = [(name, _unfolded(value)) for name, value in told.raw_items()]
    part = Part(
        id, headers, told.get_content_type(), _decoded(_unfolded(_param(told.get_filename))), b""
    )
    boundary = _param(told.get_boundary)
    inner: list[bytes] = []
    if told.get_content_maintype() == "multipart" and boundary and depth < MAX_DEPTH:
        inner = [body[begin:end] for begin, end in between(body, boundary)]
    else:
        part.content = _content(told)
        if part.kind == "message/rfc822" and depth < MAX_DEPTH:
            inner = [part.content]
    prefix = f"{id}." if id else ""
    part.parts = [anatomy(each, f"{prefix}{n}", depth + 1) for n, each in enumerate(inner)]
    return part


def _unfolded(value: object) -> str:
    line = re.sub(r"\r?\n(?=[ \t])", "", str(value)).strip()
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _param(given: Callable[[], str | None]) -> str:
    try:
        return given() or ""
    except ValueError:  # a NUL in the charset of an extended parameter
        return ""


def _decoded(value: str) -> str:
    """Return a header value with its encoded words read."""
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        return value


def walk(part: Part) -> Iterator[Part]:
    """Yield a part and all below it."""
    yield part
    for each in part.parts:
        yield from walk(each)


def recipients(raw: bytes) -> list[str]:
    """Return the addresses that a mail goes to, or refuse as Gmail does."""
    told = message_from_bytes(halves(raw)[0] + b"\r\n\r\n", policy=policy.default)
    found: list[str] = []
    for name in ("To", "Cc", "Bcc"):
        try:
            for header in told.get_all(name, []):
                here = [address.addr_spec for address in header.addresses]
                if str(header).strip() and not header.groups:
                    raise ValueError("no address")
                found += here
                if not all(re.fullmatch(r"[^\s@]+@[^\s@]+", each) for each in here):
                    raise ValueError("half an address")
        except (ValueError, IndexError, AttributeError, HeaderParseError) as bad:
            raise wrong(f"Invalid {name} header") from bad
    if not found:
        raise wrong("Recipient address required")
    return [each.casefold() for each in found]


def _bounded(raw: bytes) -> None:
    if len(raw) > MAX_RAW:
        raise Refused(413, "uploadTooLarge", "Request Entity Too Large")


def page_size(asked: str) -> int:
    """Return how many results a page has; Gmail lowers what is too much."""
    if not re.fullmatch(r"[0-9]{1,9}", asked) or int(asked) == 0:
        raise wrong("Invalid value at 'max_results'")
    return min(int(asked), 500)


def _bare_subject(subject: str) -> str:
    return re.sub(r"\A(?:\s*re\s*:)+", "", subject, flags=re.IGNORECASE).strip().casefold()


def _ids(mail: Mail) -> set[str]:
    return {each.strip("<> ") for each in (*mail.references, *mail.in_reply_to)}


class Mailbox:
    """One person's mail; the caller holds the lock."""

    def __init__(self, address: str, aliases: Iterable[str], now: Callable[[], float]) -> None:
        self.address = address
        self.own = {each.casefold() for each in (address, *aliases)}
        self.now = now
        self.zone: tzinfo = PACIFIC
        self.decodes_headers = False
        self.messages: dict[str, Stored] = {}
        self.threads: dict[str, set[str]] = {}
        self.drafts: dict[str, str] = {}  # draft id to message id
        self.labels = {id: id for id in SYSTEM}  # id to name
        self.changes: list[Change] = []
        self.history = self.oldest = FIRST_HISTORY
        self.sent: list[Sent] = []
        self.horizon: int | None = None  # the last message that a lagging search sees
        self.lag = 0  # of the newest messages, how many no list and no history shows yet
        self.number = 0
        self._named: dict[str, set[str]] = defaultdict(set)  # Message-ID to messages
        self._awaited: dict[str, set[str]] = defaultdict(set)  # Message-ID to what refers to it
        self._tokens = 0

    # What happens to it

    def receive(self, raw: bytes, labels: Iterable[str]) -> Stored:
        """Return a mail that arrives, under labels by name; those of one's own are made."""
        return self._add(raw, {self._label_id(name) for name in labels})

    def send(self, raw: bytes, thread: str = "", *, replaces_id: bool, rebuilds: bool) -> Stored:
        """Return the copy of a mail that has left."""
        to = recipients(raw)
        self._known(thread)
        raw = self._completed(message_id_replaced(raw) if replaces_id else raw)
        raw = plain_rebuilt(raw) if rebuilds else raw
        labels = {"SENT", "INBOX", "UNREAD"} if self.own & set(to) else {"SENT"}
        stored = self._add(raw, labels, thread)
        letter = parsed(raw).get("X-Postroom-Letter", "")
        self.sent.append(Sent(stored.id, stored.thread, without(raw, b"bcc"), str(letter).strip()))
        return stored

    def _completed(self, raw: bytes) -> bytes:
        """Return the mail with the fields that Gmail adds where they are not given."""
        told = parsed(raw)
        given = {
            "From": self.address,
            "Date": formatdate(self.now()),
            "Message-ID": f"<{secrets.token_urlsafe(30)}@mail.gmail.com>",
        }
        lines = [f"{name}: {value}\r\n" for name, value in given.items() if name not in told]
        return "".join(lines).encode() + raw

    def create_draft(self, raw: bytes, thread: str = "") -> str:
        """Return the id of a new draft."""
        self._known(thread)
        id = f"r{10**18 + secrets.randbelow(9 * 10**18)}"
        self.drafts[id] = self._add(raw, {"DRAFT"}, thread).id
        return id

    def update_draft(self, id: str, raw: bytes, thread: str = "") -> None:
        """Give a draft another content, under another message id."""
        old = self.draft(id)
        self._known(thread)
        fresh = self._add(raw, {"DRAFT"}, thread, instead=old.id)
        self._remove(old)
        self.drafts[id] = fresh.id

    def delete_draft(self, id: str) -> None:
        """Remove a draft for good."""
        self._remove(self.draft(id))
        del self.drafts[id]

    def send_draft(
        self, id: str, raw: bytes | None, *, replaces_id: bool, rebuilds: bool
    ) -> Stored:
        """Send a draft, which is gone then, and return the copy."""
        old = self.draft(id)
        raw = old.raw if raw is None else raw
        recipients(raw)
        _bounded(raw)
        thread = old.thread if self.threads[old.thread] != {old.id} else ""
        del self.drafts[id]
        self._remove(old)
        return self.send(raw, thread, replaces_id=replaces_id, rebuilds=rebuilds)

    def modify(self, id: str, add: list[str], remove: list[str]) -> Stored:
        """Change a message's labels, by id."""
        message = self.message(id)
        for label in (*add, *remove):
            if label not in self.labels or label in UNTOUCHABLE:
                raise wrong(f"Invalid label: {label}")
        if both := set(add) & set(remove):
            raise wrong(f"Cannot both add and remove the same label: {min(both)}")
        added = tuple(sorted(set(add) - message.labels))
        removed = tuple(sorted(set(remove) & message.labels))
        message.labels = (message.labels | set(added)) - set(removed)
        if added:
            self._record("labelAdded", message, added)
        if removed:
            self._record("labelRemoved", message, removed)
        return message

    def create_label(self, name: str) -> str:
        """Return the id of a new label."""
        if not name.strip() or name.upper() in SYSTEM:
            raise wrong("Invalid label name")
        if any(each.casefold() == name.casefold() for each in self.labels.values()):
            raise Refused(409, "aborted", "Label name exists or conflicts")
        id = f"Label_{len(self.labels) - len(SYSTEM) + 1}"
        self.labels[id] = name
        return id

    def forget_history(self) -> None:
        """Make every history id so far too old."""
        self.history += 1
        self.oldest = self.history

    def _label_id(self, name: str) -> str:
        if name == "CATEGORY_PRIMARY":
            return CATEGORIES[0]
        key = name.casefold()
        found = next((id for id, label in self.labels.items() if label.casefold() == key), None)
        return found or self.create_label(name)

    def _known(self, thread: str) -> None:
        if thread and thread not in self.threads:
            raise missing()

    def _add(self, raw: bytes, labels: set[str], thread: str = "", instead: str = "") -> Stored:
        _bounded(raw)
        self.number += 1
        now, mail = self.now(), read(raw)
        # A Date in the distant past or in the future is a mistake or a lie.
        plausible = mail.date is not None and 0 < mail.date <= now + 86_400
        date = mail.date * 1000 if plausible and mail.date else int(now * 1000)
        id = f"{FIRST_ID + self.number * NEXT_ID:016x}"
        message = Stored(id, self.number, raw, set(labels), date, mail)
        self._place(message, thread, instead)
        self.messages[id] = message
        self._named[mail.message_id.strip("<> ")].add(id)
        for each in _ids(mail):
            self._awaited[each].add(id)
        self._record("messageAdded", message)
        return message

    def _remove(self, message: Stored) -> None:
        del self.messages[message.id]
        self._named[message.mail.message_id.strip("<> ")].discard(message.id)
        for each in _ids(message.mail):
            self._awaited[each].discard(message.id)
        rest = self.threads[message.thread]
        rest.discard(message.id)
        if not rest:
            del self.threads[message.thread]
        self._record("messageDeleted", message)

    def _place(self, message: Stored, given: str, instead: str) -> None:
        """Put a message into its thread; where it connects several, they become the oldest one."""
        kin = {id for each in _ids(message.mail) for id in self._named[each]}
        if own := message.mail.message_id.strip("<> "):
            kin |= self._awaited[own]
        threads = {self.messages[id].thread for id in kin - {instead}}
        others = self.threads.get(given, set()) - {instead}
        subject = _bare_subject(message.mail.subject)
        same = (_bare_subject(self.messages[id].mail.subject) == subject for id in others)
        if given and (not others or given in threads or any(same)):
            threads.add(given)
        message.thread = min(threads, default=message.id)
        home = self.threads.setdefault(message.thread, set())
        home.add(message.id)
        for other in threads - {message.thread}:
            for id in self.threads.pop(other):
                self.history += 1
                self.messages[id].thread, self.messages[id].history = message.thread, self.history
                home.add(id)

    def _record(self, kind: str, message: Stored, moved: tuple[str, ...] = ()) -> None:
        self.history += 1
        message.history = self.history
        labels = tuple(sorted(message.labels))
        self.changes.append(Change(self.history, kind, message.id, message.thread, labels, moved))

    # What it answers

    def message(self, id: str) -> Stored:
        """Return the message, or refuse."""
        if not re.fullmatch(r"[0-9a-f]{1,16}", id):
            raise wrong("Invalid id value")
        if id not in self.messages:
            raise missing()
        return self.messages[id]

    def draft(self, id: str) -> Stored:
        """Return the message of a draft, or refuse."""
        if id not in self.drafts:
            raise missing()
        return self.messages[self.drafts[id]]

    def thread(self, id: str) -> list[Stored]:
        """Return the messages of a thread, oldest first, or refuse."""
        if not re.fullmatch(r"[0-9a-f]{1,16}", id):
            raise wrong("Invalid id value")
        self._known(id)
        return sorted(
            (self.messages[each] for each in self.threads[id]), key=lambda m: (m.date, m.id)
        )

    def search(
        self, q: str, labels: Iterable[str], size: int, token: str, *, spam_and_trash: bool
    ) -> tuple[list[Stored], str]:
        """Return a page of what matches, newest first, and the token of the next one."""
        wanted = set(labels)
        if unknown := wanted - set(self.labels):
            raise wrong(f"Invalid label: {min(unknown)}")
        last = self._after(token)
        hidden = {"SPAM", "TRASH"}
        if spam_and_trash or wanted & hidden:
            hidden = set()
        asked = self._asked(q, lifted=not hidden) if q.strip() else None
        found: list[Stored] = []
        for message in sorted(self.messages.values(), key=lambda m: (m.date, m.id), reverse=True):
            if last is not None and (message.date, message.id) >= last:
                continue
            if message.number > self.number - self.lag:
                continue
            if not wanted <= message.labels:
                continue
            if asked is None and message.labels & hidden:
                continue
            if asked is not None and not asked(message):
                continue
            found.append(message)
            if len(found) > size:
                break
        page = found[:size]
        more = len(found) > size
        return page, f"{page[-1].date:020d}{int(page[-1].id, 16):020d}" if more else ""

    @staticmethod
    def _after(token: str) -> tuple[int, str] | None:
        if token and not re.fullmatch(r"[0-9]{40}", token):
            raise wrong("Invalid pageToken")
        return (int(token[:20]), f"{int(token[20:]):016x}") if token else None

    def _asked(self, q: str, *, lifted: bool) -> Callable[[Stored], bool]:
        try:
            query = parse(q)
        except Invalid:  # beyond the double; Google refuses no query
            return lambda _message: False
        if lifted:
            query = (
                Fact.ANYWHERE if query == Fact.EVERYTHING else joined(And, (query, Fact.ANYWHERE))
            )
        view = QueryContext(int(self.now()), (self.address, *sorted(self.own)), self.zone)

        def holds(message: Stored) -> bool:
            late = self.horizon is not None and message.number > self.horizon
            return not late and matches(query, self._seen(message), view)

        return holds

    def _seen(self, message: Stored) -> Message:
        """Return a message as the search sees it, labels by name."""
        names = {self.labels[id] for id in message.labels if id != "CHAT"}
        if CATEGORIES[0] in names:
            names = names - {CATEGORIES[0]} | {"CATEGORY_PRIMARY"}
        date, size = message.date // 1000, len(message.raw)
        return Message(message.id, message.thread, date, size, frozenset(names), message.mail)

    def changes_since(
        self, start: str, kinds: Iterable[str], label: str, size: int, token: str
    ) -> Json:
        """Return a page of the history after an id, or refuse one that is too old or unknown."""
        if not re.fullmatch(r"[0-9]{1,20}", start):
            raise wrong("Invalid value at 'start_history_id'")
        if token and not re.fullmatch(r"[0-9]{20}", token):
            raise wrong("Invalid pageToken")
        if not self.oldest <= int(start) <= self.history:
            raise missing()
        wanted = set(kinds) or set(HISTORY_KINDS)
        if unknown := wanted - set(HISTORY_KINDS):
            raise wrong(f"Invalid value at 'history_types': {min(unknown)}")
        after = max(int(start), int(token or 0))
        found = [
            each
            for each in self.changes
            if each.id > after
            and _number(each.message) <= self.number - self.lag
            and each.kind in wanted
            and (not label or label in (*each.labels, *each.moved))
        ]
        answer: Json = {"historyId": str(self.history)}
        if found:
            answer["history"] = [self._change(each) for each in found[:size]]
        if len(found) > size:
            answer["nextPageToken"] = f"{found[size - 1].id:020d}"
        return answer

    @staticmethod
    def _change(change: Change) -> Json:
        short = {"id": change.message, "threadId": change.thread}
        entry: Json = {"message": {**short, "labelIds": list(change.labels)}}
        if change.moved:
            entry["labelIds"] = list(change.moved)
        kind = HISTORY_KINDS[change.kind]
        return {"id": str(change.id), "messages": [short], kind: [entry]}

    def resource(self, message: Stored, form: str, wanted: Iterable[str] = ()) -> Json:
        """Return a message in one of the API's formats."""
        text = " ".join(message.mail.text.split())[:SNIPPET]
        answer: Json = {
            **self.short(message),
            "snippet": html.escape(text).replace("&#x27;", "&#39;"),
            "historyId": str(message.history),
            "internalDate": str(message.date),
            "sizeEstimate": len(message.raw),
        }
        if form == "raw":
            answer["raw"] = base64url(message.raw)
        elif form == "full":
            answer["payload"] = self._payload(message, anatomy(message.raw))
        elif form == "metadata":
            names = {name.lower() for name in wanted}
            told = parsed(message.raw)
            lines = [(name, _unfolded(value)) for name, value in told.raw_items()]
            kept = [line for line in lines if not names or line[0].lower() in names]
            answer["payload"] = {"mimeType": told.get_content_type()}
            if kept:
                answer["payload"]["headers"] = self._headers(kept)
        return answer

    def short(self, message: Stored) -> Json:
        """Return what a change of a message is answered with; no labels are no field."""
        answer: Json = {"id": message.id, "threadId": message.thread}
        if message.labels:
            answer["labelIds"] = sorted(message.labels)
        return answer

    def _headers(self, lines: list[tuple[str, str]]) -> list[Json]:
        read_value = _decoded if self.decodes_headers else str
        return [{"name": name, "value": read_value(value)} for name, value in lines]

    def _payload(self, message: Stored, part: Part) -> Json:
        answer: Json = {
            "partId": part.id,
            "mimeType": part.kind,
            "filename": part.name,
            "headers": self._headers(part.headers),
        }
        body: Json = {"size": len(part.content)}
        if part.content and (part.name or not part.kind.startswith("text/")):
            body = {"attachmentId": self._token(message.id, part.id), **body}
        elif part.content:
            body["data"] = base64url(part.content)
        answer["body"] = body
        if part.parts:
            answer["parts"] = [self._payload(message, each) for each in part.parts]
        return answer

    def _token(self, message: str, part: str) -> str:
        self._tokens += 1
        return f"ANGjdJ-{message}-{part.replace('.', '_')}-{self._tokens}"

    def attachment(self, message: Stored, token: str) -> bytes:
        """Return the content that an attachment id of this message stands for, or refuse."""
        found = re.fullmatch(r"ANGjdJ-([0-9a-f]{16})-([0-9_]*)-[0-9]+", token)
        if found and found[1] == message.id:
            for part in walk(anatomy(message.raw)):
                if part.id == found[2].replace("_", "."):
                    return part.content
        raise wrong("Invalid attachment token")

    def label_resources(self) -> list[Json]:
        """Return the labels, those of the system first."""
        system = [{"id": id, "name": id, "type": "system"} for id in SYSTEM]
        return [*system, *(self.label(id) for id in self.labels if id not in SYSTEM)]

    def label(self, id: str) -> Json:
        """Return a label of one's own."""
        shown = {"messageListVisibility": "show", "labelListVisibility": "labelShow"}
        return {"id": id, "name": self.labels[id], "type": "user", **shown}
