"""The rows of the embedded mailbox: how one mail is put in, labelled, threaded and taken out."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from postroom.core.message import SPAM, Mail, Party, Summary, label_key, system_label
from postroom.core.text import line
from postroom.mail import mime
from postroom.mail.local.index import (
    LAST_SECOND,
    SLOT_BITS,
    document,
    label_marks,
    row_date,
    short_hash,
)
from postroom.mail.mailbox import (
    MAX_LABEL,
    SNIPPET,
    Arrival,
    Relabelled,
    check_relabel,
    label_name,
    missing,
)
from postroom.store.database import Row

SUMMARY = "thread, size, labels, people, subject, snippet, attachments, message_id"
LISTED_RECIPIENTS = 20
FUTURE_SECONDS = 86_400  # a Date further ahead than this is not believed

_TOKENS = "body, subject, sender, recipient, cc, bcc, files, marks"


# Names: an id is its row in hexadecimal digits


def id_of(row: int) -> str:
    """Return the id of a row."""
    return f"{row:x}"


def row_of(id: str, what: str) -> int:
    """Return the row of an id, or raise `NotFound` for what cannot be one."""
    if not re.fullmatch(r"[0-9a-f]{1,15}", id):
        raise missing(what, id)
    return int(id, 16)


# Putting mail in


class Prepared(NamedTuple):
    """A mail read and ready to be stored, before the write lock is taken."""

    raw: bytes
    hash: bytes
    mail: Mail
    labels: frozenset[str]
    second: int


def digest(raw: bytes) -> bytes:
    """Return what the same bytes are recognised by."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def prepare(arrival: Arrival, now: float) -> Prepared:
    """Read a mail; its own date counts where it can be believed."""
    mail = mime.read(arrival.raw)
    second = arrival.date
    if mail.date is not None and 0 <= mail.date <= now + FUTURE_SECONDS:
        second = mail.date
    second = min(max(second, 0), LAST_SECOND)
    return Prepared(arrival.raw, digest(arrival.raw), mail, arrival.labels, second)


def store(
    connection: sqlite3.Connection, prepared: Iterable[Prepared], within: int | None = None
) -> list[int]:
    """Insert what is not there yet, within a thread if one is given, and return the new rows."""
    rows: list[int] = []
    raws: list[Row] = []
    documents: list[Row] = []
    for item in sorted(prepared, key=lambda item: item.second):
        if connection.execute("SELECT 1 FROM message WHERE hash = ?", [item.hash]).fetchone():
            continue
        row = _free_row(connection, item.second)
        mended = filter(None, map(_mended, item.labels))
        labels = frozenset(_canonical(connection, name, make=True) for name in mended)
        mail = item.mail
        people = (mail.sender or Party("", ""), *mail.to[:LISTED_RECIPIENTS])
        values = [
            row,
            item.hash,
            row if SPAM in labels else _thread_of(connection, mail, row, within),
            len(item.raw),
            _label_text(labels),
            json.dumps([[party.name, party.address] for party in people], ensure_ascii=False),
            mail.subject,
            _snippet(mail.text),
            len(mail.attachments),
            mail.message_id,
        ]
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        rows.append(row)
        raws.append((row, item.raw))
        *fields, marks = document(mail)
        documents.append((row, *fields, _labelled(marks, labels)))
    connection.executemany("INSERT INTO raw VALUES (?, ?)", raws)
    # In the order of the rows: FTS5 writes its tables out whenever row ids step back.
    documents.sort(key=lambda values: values[0])
    connection.executemany(
        f"INSERT INTO word (rowid, {_TOKENS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", documents
    )
    record(connection, rows, "added")
    return rows


def forget(connection: sqlite3.Connection, row: int, tokens: str) -> None:
    """Take a mail out, which had these tokens when it was stored; its id is never another mail's."""
    found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
    # A contentless index forgets a document by being told it once more, to the letter.
    *fields, marks = json.loads(tokens)
    connection.execute(
        f"INSERT INTO word (word, rowid, {_TOKENS}) VALUES ('delete', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [row, *fields, _labelled(marks, labels_of(found[0]))],
    )
    for table in ("message", "raw"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", [row])
    connection.execute("INSERT INTO gone VALUES (?)", [row])
    record(connection, [row], "removed")


def record(connection: sqlite3.Connection, rows: Iterable[int], kind: str) -> None:
    """Write down what happened, for those who follow the mailbox."""
    connection.executemany(
        "INSERT INTO change (message, kind) VALUES (?, ?)", [(row, kind) for row in rows]
    )


def unlabelled(mail: Mail) -> str:
    """Return the tokens of a mail but those of its labels, for the day when it is forgotten."""
    return json.dumps(document(mail), ensure_ascii=False)


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


def _thread_of(connection: sqlite3.Connection, mail: Mail, row: int, within: int | None) -> int:
    """Return the thread of a mail: that of its nearest known ancestor, joined by those that name it.

    Only these two ever become one. A mail that names two strangers' mails joins the nearer, or
    whoever knows their ids could mix up a person's conversations.
    """
    own = short_hash(mail.message_id) if mail.message_id else None
    ancestors = [short_hash(id) for id in (*mail.in_reply_to, *reversed(mail.references))]
    known = (_named(connection, id) for id in ancestors)
    parent = within if within is not None else next((t for t in known if t is not None), None)
    answers = None if own is None else _named(connection, own)
    threads = {thread for thread in (parent, answers) if thread is not None}
    thread = min(threads, default=row)
    for other in threads - {thread}:
        connection.execute("UPDATE message SET thread = ? WHERE thread = ?", [thread, other])
        connection.execute("UPDATE reference SET thread = ? WHERE thread = ?", [thread, other])
    ids = ancestors if own is None else [own, *ancestors]
    connection.executemany(
        "INSERT OR IGNORE INTO reference VALUES (?, ?)", [(id, thread) for id in ids]
    )
    return thread


def _named(connection: sqlite3.Connection, id: int) -> int | None:
    found = connection.execute("SELECT thread FROM reference WHERE id = ?", [id]).fetchone()
    return int(found[0]) if found else None


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


# Labels


def labels_of(text: str) -> frozenset[str]:
    """Return the labels that a row's text names."""
    return frozenset(text.split("\n")) if text else frozenset()


def _label_text(labels: frozenset[str]) -> str:
    return "\n".join(sorted(labels))


def relabel(
    connection: sqlite3.Connection, id: str, add: frozenset[str], remove: frozenset[str]
) -> Relabelled:
    """Change the labels of a mail, its row and its tokens together."""
    row = row_of(id, "Message")
    found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
    if not found:
        raise missing("Message", id)
    before = labels_of(found[0])
    gone = frozenset(_canonical(connection, name, make=False) for name in remove)
    new = frozenset(_canonical(connection, name, make=True) for name in add)
    check_relabel(before, add=new, remove=gone)
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
    return Relabelled(id, after - before, before - after)


def _mended(name: str) -> str:
    """Return a label's name that a mail came with as one that can be kept, or nothing."""
    return "/".join(filter(None, map(str.strip, line(name).split("/"))))[:MAX_LABEL].rstrip("/ ")


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
        connection.execute("INSERT INTO label VALUES (?, ?)", [key, label_name(name)])
    return shown


# Reading rows


def summary(row: Row) -> Summary:
    """Return a line of a list from the columns of `SUMMARY`."""
    id, thread, size, labels, people, subject, snippet, attachments, message_id = row
    sender, *to = (Party(name, address) for name, address in json.loads(people))
    return Summary(
        id=id_of(id),
        thread=id_of(thread),
        date=row_date(id),
        size=size,
        labels=labels_of(labels),
        sender=sender,
        to=tuple(to),
        subject=subject,
        snippet=snippet,
        attachments=attachments,
        message_id=message_id,
    )
