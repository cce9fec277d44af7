"""What the embedded mailbox stores: rows, threads, labels and the index, and how a query becomes one FTS5 expression.

A search, newest first, must not take longer for a common word than for a rare one. A mail's row id *is* its date (seconds,
then a slot within the second), so FTS5 walks its lists from the newest mail down and stops at the limit, in whatever order
mails arrived. And all that a query can ask for, labels and flags included, is a token of the same index, so that FTS5
intersects the lists itself instead of looking rows up one by one.

The index keeps no text (it is contentless) and gets its tokens ready-made from `core.text.words`; FTS5's own `ascii`
tokenizer only splits them at the spaces. A label is added or removed by adding or removing its token alone: to FTS5 that
is another small document under the same row id.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from postroom.core import query as nodes
from postroom.core.errors import PostroomError
from postroom.core.message import (
    SPAM,
    SYSTEM_LABELS,
    Mail,
    Party,
    Summary,
    label_key,
    system_label,
)
from postroom.core.query import Fact, Field, Query, QueryContext
from postroom.core.text import one_line, words
from postroom.mail import mime
from postroom.mail.mailbox import (
    MAX_LABEL,
    SNIPPET,
    Arrival,
    RelabelResult,
    check_label_change,
    new_label_name,
    not_found,
)
from postroom.store.protocol import Row

MIGRATIONS = (
    Path(__file__).with_name("schema.sql").read_text("utf-8"),
    # Bytes of words that FTS5 collects before it writes them out: at its usual million, an import mostly merges.
    "INSERT INTO word (word, rank) VALUES ('hashsize', 33554432)",
)

SUMMARY = "thread, size, labels, people, subject, snippet, attachments, message_id"
LISTED_RECIPIENTS = 20
FUTURE_SECONDS = 86_400  # a Date further ahead than this is not believed
SLOT_BITS = 20  # a million mails in one second; the next one counts as a second later
MAX_HEIGHT = 10  # FTS5's parser has a stack of 100, and a level takes up to six of it
LAST_SECOND = 253_402_300_799  # the end of the year 9999

_ALL = "·all"
_PREFIX = {
    Field.FROM: "f·", Field.TO: "t·", Field.CC: "c·", Field.BCC: "b·",
    Field.SUBJECT: "s·", Field.FILENAME: "n·", Field.LIST: "l·", Field.DELIVEREDTO: "d·",
}  # fmt: skip
_FACTS = {
    Fact.EVERYTHING: _ALL, Fact.ANYWHERE: _ALL,
    Fact.ATTACHMENT: "·attachment", Fact.USERLABELS: "·userlabels",
}  # fmt: skip
_COLUMNS = (Field.SUBJECT, Field.FROM, Field.TO, Field.CC, Field.BCC, Field.FILENAME)
WORD_COLUMNS = "body, subject, sender, recipient, cc, bcc, files, marks"


def row_date(row: int) -> int:
    return row >> SLOT_BITS


def short_hash(text: str) -> int:
    """Return 64 bits that stand for a text, as SQLite's signed integer."""
    hashed = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(hashed.digest(), "big", signed=True)


@lru_cache(maxsize=4096)  # few people write most of the mail
def _mark(kind: str, value: str) -> str:
    # A hash, since labels and ids may hold what the tokenizer takes for a space.
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{kind}·{digest}"


def label_marks(labels: frozenset[str]) -> frozenset[str]:
    marks = {_mark("label", label_key(name)) for name in labels}
    return frozenset(marks | {_FACTS[Fact.USERLABELS]} if labels - SYSTEM_LABELS else marks)


Tokens = tuple[str, ...]  # a mail's words for each of `WORD_COLUMNS`


def tokens(mail: Mail) -> Tokens:
    """Return what the index holds of a mail; the last column lacks the marks of its labels."""
    fields = nodes.terms(mail)
    marks = [_ALL]
    for at, prefix in _PREFIX.items():
        marks += [prefix + token for token in fields[at]]
    for field, found in nodes.addresses(mail).items():
        marks += [_mark(field.value, address) for address in found]
    if mail.message_id:
        marks.append(_mark("id", mail.message_id.strip("<>")))
    if mail.attachments:
        marks.append(_FACTS[Fact.ATTACHMENT])
    columns = (words(mail.text), *(fields[field] for field in _COLUMNS), marks)
    return tuple(map(" ".join, columns))


def id_of(row: int) -> str:
    return f"{row:x}"


def row_of(id: str, missing: PostroomError) -> int:
    if not re.fullmatch(r"[0-9a-f]{1,15}", id):
        raise missing
    return int(id, 16)


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
    """Return the hash of a mail's bytes, by which a mail that is already stored is recognised."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def parse_mail(arrival: Arrival, now: float) -> ParsedMail:
    """Return a mail parsed, with its Date header as date; if that is before 1970 or in the future, with its arrival."""
    mail = mime.read(arrival.raw)
    second = arrival.date
    if mail.date is not None and 0 <= mail.date <= now + FUTURE_SECONDS:
        second = mail.date
    own = re.sub("(?m)^>.*", "", mail.text[:4000]).split(maxsplit=SNIPPET)  # without quotations
    people = (mail.sender or Party("", ""), *mail.to[:LISTED_RECIPIENTS])
    return ParsedMail(
        raw=arrival.raw,
        hash=digest(arrival.raw),
        labels=arrival.labels,
        second=min(max(second, 0), LAST_SECOND),
        people=json.dumps([[party.name, party.address] for party in people], ensure_ascii=False),
        subject=mail.subject,
        snippet=" ".join(own[:SNIPPET])[:SNIPPET],
        attachments=len(mail.attachments),
        message_id=mail.message_id,
        ancestors=[short_hash(id) for id in (*mail.in_reply_to, *reversed(mail.references))],
        tokens=tokens(mail),
    )


def store(
    connection: sqlite3.Connection, prepared: Iterable[ParsedMail], known_thread: int | None = None
) -> list[int]:
    """Insert the mails that are not stored yet, and return their rows. They join `known_thread` if it is given."""
    stored: dict[int, ParsedMail] = {}
    for item in sorted(prepared, key=lambda item: item.second):
        if connection.execute("SELECT 1 FROM message WHERE hash = ?", [item.hash]).fetchone():
            continue
        row = _free_row(connection, item.second)
        names = filter(None, map(_valid_label, item.labels))
        labels = frozenset(_canonical(connection, name, make=True) for name in names)
        # Spam begins a thread of its own, whatever mails it names as ancestors.
        thread = row if SPAM in labels else _join_thread(connection, item, row, known_thread)
        about = (item.people, item.subject, item.snippet, item.attachments, item.message_id)
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [row, item.hash, thread, len(item.raw), "\n".join(sorted(labels)), *about],
        )
        stored[row] = item._replace(labels=labels)
    raws = ((row, item.raw) for row, item in stored.items())
    connection.executemany("INSERT INTO raw VALUES (?, ?)", raws)
    # In the order of the rows: FTS5 writes its tables out whenever row ids step back.
    documents = (
        (row, *_document(stored[row].tokens, stored[row].labels)) for row in sorted(stored)
    )
    connection.executemany(
        f"INSERT INTO word (rowid, {WORD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", documents
    )
    record(connection, stored, "added")
    return list(stored)


def forget(connection: sqlite3.Connection, row: int, stored: str) -> None:
    """Remove a mail; `stored` are its tokens as JSON. Its row id is never used again."""
    found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
    # A contentless index removes a document only if it is given the same tokens again.
    connection.execute(
        f"INSERT INTO word (word, rowid, {WORD_COLUMNS}) VALUES ('delete', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [row, *_document(json.loads(stored), labels_of(found[0]))],
    )
    for table in ("message", "raw"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", [row])
    connection.execute("INSERT INTO gone VALUES (?)", [row])
    record(connection, [row], "removed")


def record(connection: sqlite3.Connection, rows: Iterable[int], kind: str) -> None:
    connection.executemany(
        "INSERT INTO change (message, kind) VALUES (?, ?)", [(row, kind) for row in rows]
    )


def _document(tokens: Sequence[str], labels: frozenset[str]) -> Row:
    *fields, marks = tokens
    return (*fields, " ".join([marks, *label_marks(labels)]))


def _free_row(connection: sqlite3.Connection, second: int) -> int:
    """Return an unused row id of this second, or if it has none left, of the next second that has."""
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


def _join_thread(
    connection: sqlite3.Connection, item: ParsedMail, row: int, known_thread: int | None
) -> int:
    """Return the thread of a new mail, and record the ids of the mail and its ancestors under that thread.

    The mail joins `known_thread`, or without one the thread of its nearest ancestor that is known. If mails that came
    earlier name this mail as their ancestor, their thread and that one are merged, under the smaller number. Threads of
    two ancestors are not merged: otherwise a stranger who knows two ids could join a person's conversations.
    """
    own_id = short_hash(item.message_id) if item.message_id else None
    ancestors = (_thread_by_id(connection, id) for id in item.ancestors)
    above = known_thread
    if above is None:
        above = next((thread for thread in ancestors if thread is not None), None)
    below = None if own_id is None else _thread_by_id(connection, own_id)
    threads = {thread for thread in (above, below) if thread is not None}
    thread = min(threads, default=row)
    for other in threads - {thread}:
        connection.execute("UPDATE message SET thread = ? WHERE thread = ?", [thread, other])
        connection.execute("UPDATE reference SET thread = ? WHERE thread = ?", [thread, other])
    ids = item.ancestors if own_id is None else [own_id, *item.ancestors]
    connection.executemany(
        "INSERT OR IGNORE INTO reference VALUES (?, ?)", [(id, thread) for id in ids]
    )
    return thread


def _thread_by_id(connection: sqlite3.Connection, id: int) -> int | None:
    found = connection.execute("SELECT thread FROM reference WHERE id = ?", [id]).fetchone()
    return int(found[0]) if found else None


def labels_of(text: str) -> frozenset[str]:
    return frozenset(text.split("\n")) if text else frozenset()


def relabel(
    connection: sqlite3.Connection, id: str, add: frozenset[str], remove: frozenset[str]
) -> RelabelResult:
    """Change the labels of a mail in its row and in the index; return what changed. New labels are created."""
    row = row_of(id, not_found("mail", id))
    found = connection.execute("SELECT labels FROM message WHERE id = ?", [row]).fetchone()
    if not found:
        raise not_found("mail", id)
    before = labels_of(found[0])
    gone = frozenset(_canonical(connection, name, make=False) for name in remove)
    new = frozenset(_canonical(connection, name, make=True) for name in add)
    check_label_change(before, add=new, remove=gone)
    after = (before - gone) | new
    if after != before:
        connection.execute(
            "UPDATE message SET labels = ? WHERE id = ?", ["\n".join(sorted(after)), row]
        )
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
    """Return a valid name for a label of an imported mail; empty if no character of it is allowed."""
    joined = "/".join(filter(None, map(str.strip, one_line(name).split("/"))))
    return joined[:MAX_LABEL].rstrip("/ ")


def _canonical(connection: sqlite3.Connection, name: str, *, make: bool) -> str:
    """Return a label's name as this mailbox spells it; with `make`, a label that does not exist is created."""
    if known := system_label(name):
        return known
    shown = one_line(name)
    key = label_key(shown)
    if found := connection.execute("SELECT name FROM label WHERE key = ?", [key]).fetchone():
        return str(found[0])
    if make:
        connection.execute("INSERT INTO label VALUES (?, ?)", [key, new_label_name(name)])
    return shown


def summary(row: Row) -> Summary:
    id, thread, size, labels, people, *about = row
    sender, *to = (Party(name, address) for name, address in json.loads(people))
    place = id_of(id), id_of(thread), row_date(id), size, labels_of(labels)
    return Summary(*place, sender, tuple(to), *about)


SqlCondition = tuple[str, list[object]]  # on the table `word`, with the values of its parameters


def compile_query(query: Query, context: QueryContext) -> SqlCondition:
    """Return the SQL condition for the mails that match a query; what the index can answer is one expression."""
    whole = nodes.restricted(query)
    parts = whole.parts if isinstance(whole, nodes.And) else (whole,)
    indexed: list[Query] = []
    others: list[Query] = []
    for part in parts:
        (indexed if _is_indexed(part) else others).append(part)
    rest = [_condition(part, context) for part in others]
    match = _expression(nodes.And(tuple(indexed)) if indexed else Fact.EVERYTHING, context)
    return _joined(" AND ", [("word MATCH ?", [match]), *rest])


def _joined(word: str, conditions: list[SqlCondition]) -> SqlCondition:
    texts, values = zip(*conditions, strict=True)
    return f"({word.join(texts)})", list(chain.from_iterable(values))


def _is_indexed(node: Query, levels: int = MAX_HEIGHT) -> bool:
    """Whether FTS5 alone can answer this query: it needs only tokens, and is not nested too deeply for its parser."""
    match node:
        case nodes.And(parts) | nodes.Or(parts):
            return levels > 0 and all(_is_indexed(part, levels - 1) for part in parts)
        case nodes.Not(part):
            return levels > 0 and _is_indexed(part, levels - 1)
        case _:
            return not isinstance(node, nodes.Dated | nodes.Age | nodes.Size)


def _expression(node: Query, context: QueryContext) -> str:
    match node:
        case nodes.And(parts):
            wanted = [_expression(p, context) for p in parts if not isinstance(p, nodes.Not)]
            # One NOT over an OR of all: a chain of NOTs would nest, and FTS5 bounds the depth.
            unwanted = [_expression(p.part, context) for p in parts if isinstance(p, nodes.Not)]
            base = f"({' AND '.join(wanted or [_phrase([_ALL])])})"
            return f"({base} NOT ({' OR '.join(unwanted)}))" if unwanted else base
        case nodes.Or(parts):
            return f"({' OR '.join(_expression(part, context) for part in parts)})"
        case nodes.Not(part):
            return f"({_phrase([_ALL])} NOT {_expression(part, context)})"
        case nodes.Text(field, text):
            return _text_expression(field, text)
        case nodes.OwnAddress(field):
            own = [_text_expression(field, address) for address in context.me]
            return f"({' OR '.join(own or [_phrase(['·nobody'])])})"
        case nodes.Labelled(key):
            return _phrase([_mark("label", key)])
        case nodes.MessageId(value):
            return _phrase([_mark("id", value)])
        case Fact():
            return _phrase([_FACTS[node]])
        case nodes.Dated() | nodes.Age() | nodes.Size():
            raise AssertionError("dates and sizes are conditions on the row")


def _text_expression(field: Field, text: str) -> str:
    whole = nodes.whole_address(text)
    if whole and field in nodes.PEOPLE:
        return _phrase([_mark(field.value, whole)])
    return _phrase([_PREFIX.get(field, "") + token for token in words(text)])


def _phrase(tokens: list[str]) -> str:
    return f'"{" ".join(tokens)}"'


def _condition(node: Query, context: QueryContext) -> SqlCondition:
    """Return the SQL condition of a query; a part that needs only tokens becomes a set of row ids from the index."""
    if _is_indexed(node):
        found = "word.rowid IN (SELECT rowid FROM word WHERE word MATCH ?)"
        return found, [_expression(node, context)]
    match node:
        case nodes.And(parts) | nodes.Or(parts):
            word = " AND " if isinstance(node, nodes.And) else " OR "
            return _joined(word, [_condition(part, context) for part in parts])
        case nodes.Not(part):
            text, values = _condition(part, context)
            return f"NOT {text}", values
        case nodes.Size(larger, limit):
            sign = ">" if larger else "<"
            return f"(SELECT size FROM message WHERE id = word.rowid) {sign} ?", [limit]
        case nodes.Dated() | nodes.Age():
            since, until = nodes.bounds(node, context)
            limits = (("word.rowid >= ?", since), ("word.rowid < ?", until))
            rows: list[SqlCondition] = [
                (text, [min(max(second, 0), LAST_SECOND + 1) << SLOT_BITS])
                for text, second in limits
                if second is not None
            ]
            return _joined(" AND ", rows)
    raise AssertionError(node)
