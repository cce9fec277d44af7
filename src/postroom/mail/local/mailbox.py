"""The embedded mailbox itself: reading, labels, drafts, history, and sending between local addresses."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path

from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound, PostroomError
from postroom.core.language import parse
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import (
    DRAFT,
    INBOX,
    SENT,
    SYSTEM_LABELS,
    UNREAD,
    Mail,
    Message,
    Party,
    Summary,
    Thread,
    label_key,
    system_label,
)
from postroom.core.query import Labelled, Query, View, leaves
from postroom.core.text import clean, line
from postroom.mail import mime
from postroom.mail.local.index import (
    LAST_SECOND,
    MIGRATIONS,
    document,
    first_row,
    label_marks,
    plan,
    row_date,
    short_hash,
)
from postroom.mail.mailbox import (
    MAX_PAGE,
    Arrival,
    Changes,
    Draft,
    Kept,
    NotSent,
    Page,
    Relabelled,
    Sent,
    Settled,
)
from postroom.store.database import Database, Row

SNIPPET = 200
LISTED_RECIPIENTS = 20
FUTURE_SECONDS = 86_400  # a Date further ahead than this is not believed

_COLUMNS = "id, thread, size, labels, people, subject, snippet, attachments, message_id"
_BCC = re.compile(rb"(?im)^bcc:.*\r?\n(?:[ \t].*\r?\n)*")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A mail read and ready to be stored, before the write lock is taken."""

    raw: bytes
    hash: bytes
    mail: Mail
    labels: frozenset[str]
    second: int


class LocalMailbox:
    """One account's mail in one SQLite file."""

    def __init__(
        self,
        path: Path,
        addresses: Sequence[Address],
        *,
        now: Callable[[], float],
        zone: tzinfo,
        neighbours: Mapping[str, Path] | None = None,
    ) -> None:
        self._addresses = tuple(addresses)
        self._now = now
        self._zone = zone
        self._neighbours = dict(neighbours or {})
        self._database = Database(path, MIGRATIONS)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    # Reading

    def own(self) -> tuple[Address, ...]:
        """Return the account's own addresses, the main one first."""
        return self._addresses

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> Page:
        """Return the newest mails that match, at most `limit`."""
        if not 1 <= limit <= MAX_PAGE:
            raise Invalid(f"{limit} is no page size", remedy=f"Ask for 1 to {MAX_PAGE}.")
        view = View(
            now=int(self._now()),
            me=tuple(address.spec for address in self._addresses),
            zone=self._zone,
        )
        asked = parse(query)
        condition, values = plan(asked, view)
        if cursor:
            condition += " AND word.rowid < ?"
            values.append(_row(cursor, "page"))
        # The limit stands inside, where FTS5 can stop; one more row tells whether a page follows.
        found = self._database.rows(
            f"SELECT {_COLUMNS} FROM message JOIN (SELECT word.rowid AS id FROM word WHERE {condition}"
            " ORDER BY word.rowid DESC LIMIT ?) USING (id) ORDER BY id DESC",
            [*values, limit + 1],
        )
        items = tuple(_summary(row) for row in found[:limit])
        return Page(items, items[-1].id if len(found) > limit else "", self._notes(asked))

    def _notes(self, query: Query) -> tuple[str, ...]:
        """Say which labels of the query do not exist here, so that an empty answer is understood."""
        keys = {leaf.key for leaf in leaves(query) if isinstance(leaf, Labelled)}
        own = sorted(key for key in keys if not system_label(key))
        return tuple(
            f"There is no label {key}."
            for key in own
            if not self._database.row("SELECT 1 FROM label WHERE key = ?", [key])
        )

    def message(self, id: str) -> Message:
        """Return one mail, or raise `NotFound`."""
        found = self._messages("id = ?", [_row(id, "message")])
        if not found:
            raise _no_message(id)
        return found[0]

    def thread(self, id: str) -> Thread:
        """Return a conversation by its id or that of one of its mails, or raise `NotFound`."""
        row = _row(id, "thread")
        # A thread bears the id of the first mail kept in it; merged into another, that mail leads there.
        known = self._database.row("SELECT thread FROM message WHERE id = ?", [row])
        found = self._messages("thread = ?", [known[0] if known else row])
        if not found:
            raise NotFound(
                f"Thread ID {clean(id[:40]).text} not found", remedy="Search for the mail again."
            )
        return Thread(found[0].thread, found)

    def _messages(self, condition: str, values: Sequence[object]) -> tuple[Message, ...]:
        found = self._database.rows(
            f"SELECT id, thread, size, labels, content FROM message JOIN raw USING (id) WHERE {condition} ORDER BY id",
            values,
        )
        return tuple(
            Message(_name(row), _name(thread), row_date(row), size, _labels(labels), mime.read(raw))
            for row, thread, size, labels, raw in found
        )

    def raw(self, id: str) -> bytes:
        """Return the bytes of a mail."""
        found = self._database.row("SELECT content FROM raw WHERE id = ?", [_row(id, "message")])
        if not found:
            raise _no_message(id)
        return bytes(found[0])

    def attachment(self, id: str, part: str) -> Enclosure:
        """Return one attachment with its content, or raise `NotFound`."""
        return mime.attachment(self.raw(id), part)

    # Sorting

    def labels(self) -> tuple[str, ...]:
        """Return the names of all labels, the system's first."""
        own = self._database.rows("SELECT name FROM label ORDER BY key")
        return (*sorted(SYSTEM_LABELS), *(name for (name,) in own))

    def relabel(
        self, id: str, *, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
    ) -> Relabelled:
        """Add and remove labels; one that does not exist is made when it is first added."""
        row = _row(id, "message")
        with self._database.write() as connection:
            found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
            if not found:
                raise _no_message(id)
            before = _labels(found[0])
            gone = frozenset(_canonical(connection, name, make=False) for name in remove)
            new = frozenset(_canonical(connection, name, make=True) for name in add)
            for fixed in (SENT, DRAFT):
                if fixed in new - before or fixed in gone & before:
                    raise Invalid(
                        f"The label {fixed} cannot be changed", remedy="It says what the mail is."
                    )
            after = (before - gone) | new
            if after != before:
                connection.execute(
                    "UPDATE message SET labels = ? WHERE id = ?", [_label_text(after), row]
                )
                _change_marks(connection, row, label_marks(before), label_marks(after))
                _record(connection, [row], "relabelled")
        return Relabelled(id, after - before, before - after)

    # Taking mail in

    def keep(self, arrivals: Sequence[Arrival]) -> Kept:
        """Keep these mails, all or none; one that is there already stays as it is."""
        unseen = {}
        for arrival in arrivals:
            digest = _digest(arrival.raw)
            if digest not in unseen and not self._database.row(
                "SELECT 1 FROM message WHERE hash = ?", [digest]
            ):
                unseen[digest] = arrival
        prepared = [self._prepare(digest, arrival) for digest, arrival in unseen.items()]
        with self._database.write() as connection:
            added = len(self._store(connection, prepared))
        return Kept(added, len(arrivals) - added)

    def _prepare(self, digest: bytes, arrival: Arrival) -> _Prepared:
        mail = mime.read(arrival.raw)
        second = arrival.date
        if mail.date is not None and 0 <= mail.date <= self._now() + FUTURE_SECONDS:
            second = mail.date
        return _Prepared(
            arrival.raw, digest, mail, arrival.labels, min(max(second, 0), LAST_SECOND)
        )

    def _store(
        self,
        connection: sqlite3.Connection,
        prepared: Iterable[_Prepared],
        thread: int | None = None,
    ) -> list[int]:
        """Insert what is not there yet, oldest first: FTS5 writes out its tables when row ids step back."""
        rows, raws, documents = [], [], []
        for item in sorted(prepared, key=lambda item: item.second):
            if connection.execute("SELECT 1 FROM message WHERE hash = ?", [item.hash]).fetchone():
                continue
            row = _free_row(connection, item.second)
            labels = frozenset(_canonical(connection, name, make=True) for name in item.labels)
            mail = item.mail
            people = [
                [party.name, party.address]
                for party in (mail.sender or Party("", ""), *mail.to[:LISTED_RECIPIENTS])
            ]
            connection.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    row,
                    item.hash,
                    _thread_of(connection, mail, row, thread),
                    len(item.raw),
                    _label_text(labels),
                    json.dumps(people, ensure_ascii=False),
                    mail.subject,
                    _snippet(mail.text),
                    len(mail.attachments),
                    mail.message_id,
                ],
            )
            fields = document(mail)
            rows.append(row)
            raws.append((row, item.raw))
            documents.append((row, *fields[:-1], " ".join([fields.marks, *label_marks(labels)])))
        connection.executemany("INSERT INTO raw VALUES (?, ?)", raws)
        documents.sort(key=lambda values: values[0])
        connection.executemany(
            "INSERT INTO word (rowid, body, subject, sender, recipient, cc, bcc, files, marks)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            documents,
        )
        _record(connection, rows, "added")
        return rows

    def _store_one(
        self, connection: sqlite3.Connection, raw: bytes, labels: frozenset[str], thread: str = ""
    ) -> int:
        """Store one mail of our own making and return its row."""
        prepared = self._prepare(_digest(raw), Arrival(raw, labels, int(self._now())))
        within = None
        if thread:
            found = connection.execute(
                "SELECT thread FROM message WHERE id = ?", [_row(thread, "thread")]
            ).fetchone()
            within = found[0] if found else None
        stored = self._store(connection, [prepared], within)
        if not stored:
            raise Conflict(
                "This very mail is in the mailbox already",
                remedy="Change it, or leave it as it is.",
            )
        return stored[0]

    # Drafts

    def drafts(self) -> tuple[Draft, ...]:
        """Return all drafts, newest first."""
        rows = self._database.rows("SELECT id FROM draft ORDER BY message DESC")
        return tuple(self.draft(id) for (id,) in rows)

    def draft(self, id: str) -> Draft:
        """Return one draft, or raise `NotFound`."""
        found = self._database.row("SELECT message FROM draft WHERE id = ?", [id])
        if not found:
            raise _no_draft(id)
        message = self.message(_name(found[0]))
        return Draft(id, message.id, message)

    def create_draft(self, letter: Letter, *, date: datetime) -> Draft:
        """Store the letter as a draft."""
        id = f"r{letter.id}"
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM draft WHERE id = ?", [id]).fetchone():
                raise Conflict(f"The draft {id} exists", remedy="Revise it instead.")
            self._put_draft(connection, id, letter, date)
        return self.draft(id)

    def _put_draft(
        self, connection: sqlite3.Connection, id: str, letter: Letter, date: datetime
    ) -> None:
        raw = mime.build(letter, date=date, bcc=True)
        row = self._store_one(connection, raw, frozenset({DRAFT}), letter.thread)
        connection.execute("INSERT OR REPLACE INTO draft VALUES (?, ?)", [id, row])

    def revise_draft(self, id: str, letter: Letter, *, version: str, date: datetime) -> Draft:
        """Replace a draft that is still at this version, or raise `Conflict`."""
        with self._database.write() as connection:
            self._remove_draft(connection, id, version)
            self._put_draft(connection, id, letter, date)
        return self.draft(id)

    def discard_draft(self, id: str, *, version: str) -> None:
        """Delete a draft that is still at this version, or raise `Conflict`."""
        with self._database.write() as connection:
            self._remove_draft(connection, id, version)

    def _remove_draft(self, connection: sqlite3.Connection, id: str, version: str) -> None:
        found = connection.execute("SELECT message FROM draft WHERE id = ?", [id]).fetchone()
        if not found:
            raise _no_draft(id)
        row = found[0]
        if _name(row) != version:
            raise Conflict(
                f"The draft {id} was changed since", remedy="Read it again, then decide."
            )
        raw, labels = connection.execute(
            "SELECT content, labels FROM raw JOIN message USING (id) WHERE id = ?", [row]
        ).fetchone()
        # A contentless index forgets a document by being told it once more.
        fields = document(mime.read(raw))
        marks = " ".join([fields.marks, *label_marks(_labels(labels))])
        connection.execute(
            "INSERT INTO word (word, rowid, body, subject, sender, recipient, cc, bcc, files, marks)"
            " VALUES ('delete', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row, *fields[:-1], marks],
        )
        for table in ("message", "raw"):
            connection.execute(f"DELETE FROM {table} WHERE id = ?", [row])
        connection.execute("DELETE FROM draft WHERE id = ?", [id])
        connection.execute(
            "INSERT INTO gone VALUES (?)", [row]
        )  # so that its id is never another mail's
        _record(connection, [row], "removed")

    # Following

    def changes(self, since: str = "") -> Changes:
        """Return what happened since the cursor; without one, only the cursor of now."""
        epoch, head = self._database.rows(
            "SELECT value, (SELECT ifnull(max(seq), 0) FROM change) FROM meta WHERE key = 'epoch'"
        )[0]
        cursor = f"{epoch}-{head}"
        if not since:
            return Changes(cursor)
        known, _, text = since.partition("-")
        if known != epoch or not text.isdecimal() or int(text) > head:
            raise NotFound(
                "This mailbox does not know that cursor", remedy="Start again from a search."
            )
        seen: dict[str, dict[str, None]] = {"added": {}, "relabelled": {}, "removed": {}}
        for message, kind in self._database.rows(
            "SELECT message, kind FROM change WHERE seq > ? AND seq <= ? ORDER BY seq",
            [int(text), head],
        ):
            seen[kind][_name(message)] = None
        return Changes(cursor, *(tuple(ids) for ids in seen.values()))

    # Sending

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the very bytes that `send` will hand over; Bcc is taken off for each recipient."""
        return mime.build(letter, date=date, bcc=True)

    def send(self, letter: Letter, wire: bytes) -> Sent:
        """Send once: the transaction that puts the mail under Sent is the act, and its proof."""
        own = {address.key for address in self._addresses}
        to_self = any(address.key in own for address in letter.envelope)
        labels = frozenset({SENT, *({INBOX, UNREAD} if to_self else ())})
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM sent WHERE letter = ?", [letter.id]).fetchone():
                raise Conflict(
                    f"The letter {letter.id} was sent already", remedy="Do not send it again."
                )
            row = self._store_one(connection, wire, labels, letter.thread)
            connection.execute("INSERT INTO sent VALUES (?, ?)", [letter.id, row])
            connection.executemany(
                "INSERT INTO outgoing VALUES (?, ?)",
                [
                    (letter.id, a.key)
                    for a in letter.envelope
                    if a.key in self._neighbours and a.key not in own
                ],
            )
        self._deliver()
        return self._sent(row)

    def settle(self, letter: Letter) -> Settled:
        """Say what became of a letter: the transaction is there, or it is not."""
        found = self._database.row("SELECT message FROM sent WHERE letter = ?", [letter.id])
        if not found:
            return NotSent("the embedded mailbox holds no sent letter of this id")
        self._deliver()
        return self._sent(found[0])

    def _sent(self, row: int) -> Sent:
        found = self._database.row("SELECT thread FROM message WHERE id = ?", [row])
        return Sent(_name(row), _name(found[0] if found else row))

    def _deliver(self) -> None:
        """Put sent mail into the mailboxes of local neighbours; what fails stays queued for the next call."""
        waiting = self._database.rows(
            "SELECT letter, recipient, content FROM outgoing JOIN sent USING (letter) JOIN raw ON raw.id = sent.message"
        )
        for letter, recipient, wire in waiting:
            arrival = Arrival(_without_bcc(wire), frozenset({INBOX, UNREAD}), int(self._now()))
            with suppress(PostroomError):
                neighbour = LocalMailbox(
                    self._neighbours[recipient], (), now=self._now, zone=self._zone
                )
                try:
                    # Kept under the hash of its bytes: delivered twice, it is there once.
                    neighbour.keep([arrival])
                finally:
                    neighbour.close()
                with self._database.write() as connection:
                    connection.execute(
                        "DELETE FROM outgoing WHERE letter = ? AND recipient = ?",
                        [letter, recipient],
                    )


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()


def _without_bcc(wire: bytes) -> bytes:
    head, blank, body = wire.partition(b"\r\n\r\n")
    return _BCC.sub(b"", head + b"\r\n").removesuffix(b"\r\n") + blank + body


def _name(row: int) -> str:
    return f"{row:x}"


def _row(name: str, what: str) -> int:
    if not re.fullmatch(r"[0-9a-f]{1,15}", name):
        raise NotFound(
            f"{clean(name[:40]).text!r} is no id of a {what}", remedy="Search for the mail again."
        )
    return int(name, 16)


def _no_message(id: str) -> NotFound:
    return NotFound(
        f"Message ID {clean(id[:40]).text} not found", remedy="Search for the mail again."
    )


def _no_draft(id: str) -> NotFound:
    return NotFound(f"Draft ID {clean(id[:40]).text} not found", remedy="List the drafts again.")


def _labels(text: str) -> frozenset[str]:
    return frozenset(text.split("\n")) if text else frozenset()


def _label_text(labels: frozenset[str]) -> str:
    return "\n".join(sorted(labels))


def _canonical(connection: sqlite3.Connection, name: str, *, make: bool) -> str:
    """Return the label as it is written in this mailbox, made if it is new and wanted."""
    known = system_label(name)
    if known:
        return known
    shown = line(name)
    key = label_key(shown)
    found = connection.execute("SELECT name FROM label WHERE key = ?", [key]).fetchone()
    if found:
        return str(found[0])
    if make:
        if not shown or len(shown) > 225 or any(not part.strip() for part in shown.split("/")):
            raise Invalid(
                f"{shown[:80]!r} is no label's name",
                remedy="Give one such as Work or Work/Clients.",
            )
        connection.execute("INSERT INTO label VALUES (?, ?)", [key, shown])
    return shown


def _change_marks(
    connection: sqlite3.Connection, row: int, before: frozenset[str], after: frozenset[str]
) -> None:
    if before - after:
        connection.execute(
            "INSERT INTO word (word, rowid, marks) VALUES ('delete', ?, ?)",
            [row, " ".join(before - after)],
        )
    if after - before:
        connection.execute(
            "INSERT INTO word (rowid, marks) VALUES (?, ?)", [row, " ".join(after - before)]
        )


def _record(connection: sqlite3.Connection, rows: Iterable[int], kind: str) -> None:
    connection.executemany(
        "INSERT INTO change (message, kind) VALUES (?, ?)", [(row, kind) for row in rows]
    )


def _free_row(connection: sqlite3.Connection, second: int) -> int:
    """Return the next row id of the second, or of the first one after it that has room."""
    while True:
        first, last = first_row(second), first_row(second + 1) - 1
        values = [first, last]
        taken = connection.execute(
            "SELECT max(id) FROM message WHERE id BETWEEN ? AND ?", values
        ).fetchone()[0]
        gone = connection.execute(
            "SELECT max(id) FROM gone WHERE id BETWEEN ? AND ?", values
        ).fetchone()[0]
        row = max(first - 1, taken or 0, gone or 0) + 1
        if row <= last:
            return int(row)
        second += 1


def _thread_of(connection: sqlite3.Connection, mail: Mail, row: int, within: int | None) -> int:
    """Return the thread of a mail by the ids that it bears and names; threads that it joins become one."""
    names = dict.fromkeys(filter(None, (mail.message_id, *mail.in_reply_to, *mail.references)))
    ids = [short_hash(name) for name in names]
    found = {
        thread: None
        for id in ids
        for (thread,) in connection.execute(
            "SELECT thread FROM reference WHERE id = ?", [id]
        ).fetchall()
    }
    threads = sorted({*found, *(() if within is None else (within,))})
    thread = threads[0] if threads else row
    for other in threads[1:]:
        connection.execute("UPDATE message SET thread = ? WHERE thread = ?", [thread, other])
        connection.execute("UPDATE reference SET thread = ? WHERE thread = ?", [thread, other])
    connection.executemany(
        "INSERT OR IGNORE INTO reference VALUES (?, ?)", [(id, thread) for id in ids]
    )
    return thread


def _snippet(text: str) -> str:
    """Return the first words that the mail itself says, without what it quotes."""
    taken, length = [], 0
    for part in text[:4000].split("\n"):
        if part and not part.startswith(">"):
            taken.append(part)
            length += len(part)
            if length > SNIPPET:
                break
    return " ".join(" ".join(taken).split())[:SNIPPET]


def _summary(row: Row) -> Summary:
    id, thread, size, labels, people, subject, snippet, attachments, message_id = row
    sender, *to = (Party(name, address) for name, address in json.loads(people))
    return Summary(
        id=_name(id),
        thread=_name(thread),
        date=row_date(id),
        size=size,
        labels=_labels(labels),
        sender=sender,
        to=tuple(to),
        subject=subject,
        snippet=snippet,
        attachments=attachments,
        message_id=message_id,
    )
