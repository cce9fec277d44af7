"""The rows of the embedded mailbox: how a mail is stored, labelled, threaded and removed."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from postroom.core.message import SPAM, Party, Summary, label_key, system_label
from postroom.core.text import one_line
from postroom.mail import mime
from postroom.mail.local.index import (
    LAST_SECOND,
    SLOT_BITS,
    WORD_COLUMNS,
    Tokens,
    label_marks,
    row_date,
    short_hash,
    tokens,
)
from postroom.mail.mailbox import (
    MAX_LABEL,
    SNIPPET,
    Arrival,
    RelabelResult,
    check_label_change,
    new_label_name,
    not_found,
)
from postroom.store.database import Row

SUMMARY = "thread, size, labels, people, subject, snippet, attachments, message_id"
LISTED_RECIPIENTS = 20
FUTURE_SECONDS = 86_400  # a Date further ahead than this is not believed


# Names: an id is its row in hexadecimal digits


def id_of(row: int) -> str:
    """Return the id of a row."""
    return f"{row:x}"


def row_of(id: str, what: str) -> int:
    """Return the row of an id, or raise `NotFound` for what cannot be one."""
    if not re.fullmatch(r"[0-9a-f]{1,15}", id):
        raise not_found(what, id)
    return int(id, 16)


# Storing mail


class ParsedMail(NamedTuple):
    """A mail ready to be stored, in plain values that another process can make."""

    raw: bytes
    hash: bytes
    labels: frozenset[str]
    second: int
    people: str
    subject: str
    snippet: str
    attachments: int
    message_id: str
    ancestors: list[int]  # hashes of the ids that it answers, the nearest first
    tokens: Tokens


def digest(raw: bytes) -> bytes:
    """Return the hash by which the same bytes are recognised."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def parse_mail(arrival: Arrival, now: float) -> ParsedMail:
    """Return a mail parsed; its own date counts unless it is before 1970 or in the future."""
    mail = mime.read(arrival.raw)
    second = arrival.date
    if mail.date is not None and 0 <= mail.date <= now + FUTURE_SECONDS:
        second = mail.date
    people = (mail.sender or Party("", ""), *mail.to[:LISTED_RECIPIENTS])
    return ParsedMail(
        raw=arrival.raw,
        hash=digest(arrival.raw),
        labels=arrival.labels,
        second=min(max(second, 0), LAST_SECOND),
        people=json.dumps([[party.name, party.address] for party in people], ensure_ascii=False),
        subject=mail.subject,
        snippet=_snippet(mail.text),
        attachments=len(mail.attachments),
        message_id=mail.message_id,
        ancestors=[short_hash(id) for id in (*mail.in_reply_to, *reversed(mail.references))],
        tokens=tokens(mail),
    )


def store(
    connection: sqlite3.Connection, prepared: Iterable[ParsedMail], within: int | None = None
) -> list[int]:
    """Insert the mails that are not there yet and return their rows; `within` is the thread they join."""
    rows: list[int] = []
    raws: list[Row] = []
    documents: list[Row] = []
    for item in sorted(prepared, key=lambda item: item.second):
        if connection.execute("SELECT 1 FROM message WHERE hash = ?", [item.hash]).fetchone():
            continue
        row = _free_row(connection, item.second)
        names = filter(None, map(_valid_label, item.labels))
        labels = frozenset(_canonical(connection, name, make=True) for name in names)
        thread = row if SPAM in labels else _thread_of(connection, item, row, within)
        about = (item.people, item.subject, item.snippet, item.attachments, item.message_id)
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row, item.hash, thread, len(item.raw), _label_text(labels), *about],
        )
        rows.append(row)
        raws.append((row, item.raw))
        *fields, marks = item.tokens
        documents.append((row, *fields, _labelled(marks, labels)))
    connection.executemany("INSERT INTO raw VALUES (?, ?)", raws)
    # In the order of the rows: FTS5 writes its tables out whenever row ids step back.
    documents.sort(key=lambda values: values[0])
    connection.executemany(
        f"INSERT INTO word (rowid, {WORD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", documents
    )
    record(connection, rows, "added")
    return rows


def forget(connection: sqlite3.Connection, row: int, stored: str) -> None:
    """Remove a mail that was stored with these tokens; its id is never given to another mail."""
    found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
    # A contentless index removes a document only if it is given the same tokens again.
    *fields, marks = json.loads(stored)
    connection.execute(
        f"INSERT INTO word (word, rowid, {WORD_COLUMNS}) VALUES ('delete', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [row, *fields, _labelled(marks, labels_of(found[0]))],
    )
    for table in ("message", "raw"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", [row])
    connection.execute("INSERT INTO gone VALUES (?)", [row])
    record(connection, [row], "removed")


def record(connection: sqlite3.Connection, rows: Iterable[int], kind: str) -> None:
    """Add changes to the history of the mailbox."""
    connection.executemany(
        "INSERT INTO change (message, kind) VALUES (?, ?)", [(row, kind) for row in rows]
    )


def _labelled(marks: str, labels: frozenset[str]) -> str:
    return " ".join([marks, *label_marks(labels)])


def _free_row(connection: sqlite3.Connection, second: int) -> int:
    """Return the next row id of the second, or of the first one after it that has room."""
    while True:
        first, last = second << SLOT_BITS, (second + 1 << SLOT_BITS) - 1
        taken = connection.execute(
            "SELECT max(ifnull((SELECT max(id) FROM message WHERE id BETWEEN ? AND ?), 0),"
            " ifnull((SELECT max(id) FROM gone WHERE id BETWEEN ? AND ?), 0))",
            [first, last, first, last],
        ).fetchone()[0]
        row = max(first, int(taken) + 1)
        if row <= last:
            return row
        second += 1


def _thread_of(
    connection: sqlite3.Connection, item: ParsedMail, row: int, within: int | None
) -> int:
    """Return the thread of a mail: that of its nearest known ancestor, joined by those that name it.

    Only these two ever become one. A mail that names two strangers' mails joins the nearer, or
    whoever knows their ids could mix up a person's conversations.
    """
    own = short_hash(item.message_id) if item.message_id else None
    parents = (_thread_by_id(connection, id) for id in item.ancestors)
    parent = within if within is not None else next((t for t in parents if t is not None), None)
    answers = None if own is None else _thread_by_id(connection, own)
    threads = {thread for thread in (parent, answers) if thread is not None}
    thread = min(threads, default=row)
    for other in threads - {thread}:
        connection.execute("UPDATE message SET thread = ? WHERE thread = ?", [thread, other])
        connection.execute("UPDATE reference SET thread = ? WHERE thread = ?", [thread, other])
    ids = item.ancestors if own is None else [own, *item.ancestors]
    connection.executemany(
        "INSERT OR IGNORE INTO reference VALUES (?, ?)", [(id, thread) for id in ids]
    )
    return thread


def _thread_by_id(connection: sqlite3.Connection, id: int) -> int | None:
    found = connection.execute("SELECT thread FROM reference WHERE id = ?", [id]).fetchone()
    return int(found[0]) if found else None


def _snippet(text: str) -> str:
    """Return the first words of the mail itself, without what it quotes."""
    taken, length = [], 0
    for part in text[:4000].split("\n"):
        if part and not part.startswith(">"):
            taken.append(part)
            length += len(part)
            if length > SNIPPET:
                break
    return " ".join(" ".join(taken).split())[:SNIPPET]


# Labels


def labels_of(text: str) -> frozenset[str]:
    """Return the labels that a row's text names."""
    return frozenset(text.split("\n")) if text else frozenset()


def _label_text(labels: frozenset[str]) -> str:
    return "\n".join(sorted(labels))


def relabel(
    connection: sqlite3.Connection, id: str, add: frozenset[str], remove: frozenset[str]
) -> RelabelResult:
    """Change the labels of a mail, its row and its tokens together."""
    row = row_of(id, "Message")
    found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
    if not found:
        raise not_found("Message", id)
    before = labels_of(found[0])
    gone = frozenset(_canonical(connection, name, make=False) for name in remove)
    new = frozenset(_canonical(connection, name, make=True) for name in add)
    check_label_change(before, add=new, remove=gone)
    after = (before - gone) | new
    if after != before:
        connection.execute("UPDATE message SET labels = ? WHERE id = ?", [_label_text(after), row])
        old, fresh = label_marks(before), label_marks(after)
        connection.execute(
            "INSERT INTO word (word, rowid, marks) VALUES ('delete', ?, ?)",
            [row, " ".join(old - fresh)],
        )
        connection.execute(
            "INSERT INTO word (rowid, marks) VALUES (?, ?)", [row, " ".join(fresh - old)]
        )
        record(connection, [row], "relabelled")
    return RelabelResult(id, after - before, before - after)


def _valid_label(name: str) -> str:
    """Return the name of a label that a mail came with, made valid; empty if nothing is left of it."""
    joined = "/".join(filter(None, map(str.strip, one_line(name).split("/"))))
    return joined[:MAX_LABEL].rstrip("/ ")


def _canonical(connection: sqlite3.Connection, name: str, *, make: bool) -> str:
    """Return the label as this mailbox spells it; if it is new, create it if asked to."""
    known = system_label(name)
    if known:
        return known
    shown = one_line(name)
    key = label_key(shown)
    found = connection.execute("SELECT name FROM label WHERE key = ?", [key]).fetchone()
    if found:
        return str(found[0])
    if make:
        connection.execute("INSERT INTO label VALUES (?, ?)", [key, new_label_name(name)])
    return shown


# Reading rows


def summary(row: Row) -> Summary:
    """Return a line of a list from the columns of `SUMMARY`."""
    id, thread, size, labels, people, *about = row
    sender, *to = (Party(name, address) for name, address in json.loads(people))
    place = id_of(id), id_of(thread), row_date(id), size, labels_of(labels)
    return Summary(*place, sender, tuple(to), *about)
