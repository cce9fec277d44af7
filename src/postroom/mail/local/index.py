"""The index of the embedded mailbox: what is stored, and how a query becomes one FTS5 expression.

Newest-first answers must not cost more for a common word than for a rare one. Two choices give
that. A mail's row id *is* its date (seconds, then a slot within the second), so FTS5 walks its
lists from the newest mail down and stops at the limit, in whatever order mails arrived. And all
that a query can ask for, labels and flags included, is a token of the same index, so that FTS5
intersects the lists itself instead of looking rows up one by one.

The index keeps no text (it is contentless) and gets its tokens ready-made from `core.text.words`;
FTS5's own `ascii` tokenizer only splits them at the spaces. A label is added or removed by adding
or removing its token alone: to FTS5 that is another small document under the same row id.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from postroom.core import query as nodes
from postroom.core.message import SYSTEM_LABELS, Mail, label_key
from postroom.core.query import Field, Kind, Query, QueryContext
from postroom.core.text import words

MIGRATIONS = (
    Path(__file__).with_name("schema.sql").read_text("utf-8"),
    # Bytes of words that FTS5 collects before it writes them out: at its usual million, an import mostly merges.
    "INSERT INTO word (word, rank) VALUES ('hashsize', 33554432)",
)

SLOT_BITS = 20  # a million mails in one second; the next one counts as a second later
MAX_HEIGHT = 10  # FTS5's parser has a stack of 100, and a level takes up to six of it
LAST_SECOND = 253_402_300_799  # the end of the year 9999

_ALL = "·all"
_PREFIX = {
    Field.FROM: "f·",
    Field.TO: "t·",
    Field.CC: "c·",
    Field.BCC: "b·",
    Field.SUBJECT: "s·",
    Field.FILENAME: "n·",
    Field.LIST: "l·",
    Field.DELIVEREDTO: "d·",
}
_HAS = {Kind.ATTACHMENT: "·attachment", Kind.USERLABELS: "·userlabels"}
_COLUMNS = (Field.SUBJECT, Field.FROM, Field.TO, Field.CC, Field.BCC, Field.FILENAME)
WORD_COLUMNS = "body, subject, sender, recipient, cc, bcc, files, marks"


def row_date(row: int) -> int:
    """Return the second that a row id stands for."""
    return row >> SLOT_BITS


def first_row(second: int) -> int:
    """Return the lowest row id of a second, whatever second is asked for."""
    return min(max(second, 0), LAST_SECOND + 1) << SLOT_BITS


def short_hash(text: str) -> int:
    """Return 64 bits that stand for a text, as SQLite's signed integer."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _mark(kind: str, value: str) -> str:
    # A hash, since labels and ids may hold what the tokenizer takes for a space.
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{kind}·{digest}"


def label_marks(labels: frozenset[str]) -> frozenset[str]:
    """Return the tokens by which mails with these labels are found."""
    marks = {_mark("label", label_key(name)) for name in labels}
    if labels - SYSTEM_LABELS:
        marks.add(_HAS[Kind.USERLABELS])
    return frozenset(marks)


Tokens = tuple[str, ...]  # a mail's words for each of `WORD_COLUMNS`


def tokens(mail: Mail) -> Tokens:
    """Return what the index holds of a mail; the last column lacks the marks of its labels."""
    fields = nodes.terms(mail)
    marks = [_ALL, *(prefix + token for at, prefix in _PREFIX.items() for token in fields[at])]
    for field, found in nodes.addresses(mail).items():
        marks += [_mark(field.value, address) for address in found]
    if mail.message_id:
        marks.append(_mark("id", mail.message_id.strip("<>")))
    if mail.attachments:
        marks.append(_HAS[Kind.ATTACHMENT])
    columns = (nodes.body_terms(mail), *(fields[field] for field in _COLUMNS), marks)
    return tuple(map(" ".join, columns))


class SqlCondition(NamedTuple):
    """A condition on the table `word` and the values of its parameters."""

    condition: str
    values: list[object]


def compile_query(query: Query, context: QueryContext) -> SqlCondition:
    """Return the SQL condition that holds for the mails that match, fastest where it is an AND at the top."""
    whole = nodes.restricted(query)
    parts = whole.parts if isinstance(whole, nodes.And) else (whole,)
    indexed = [part for part in parts if _is_indexed(part)]
    rest = [_condition(part, context) for part in parts if not _is_indexed(part)]
    match = _expression(nodes.And(tuple(indexed)) if indexed else nodes.Everything(), context)
    return SqlCondition(
        " AND ".join(["word MATCH ?", *(plan.condition for plan in rest)]),
        [match, *(value for plan in rest for value in plan.values)],
    )


def _is_indexed(node: Query) -> bool:
    """Whether FTS5 can answer this alone: tokens only, and no deeper than its parser goes."""
    return _height(node) <= MAX_HEIGHT


def _height(node: Query) -> int:
    if isinstance(node, nodes.And | nodes.Or):
        return 1 + max(_height(part) for part in node.parts)
    if isinstance(node, nodes.Not):
        return 1 + _height(node.part)
    on_row = isinstance(node, nodes.Since | nodes.Until | nodes.Age | nodes.Size)
    return MAX_HEIGHT + 1 if on_row else 0


def _expression(node: Query, context: QueryContext) -> str:
    """Return the FTS5 expression of a query that asks for tokens only."""
    match node:
        case nodes.And(parts):
            wanted = [
                _expression(part, context) for part in parts if not isinstance(part, nodes.Not)
            ]
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
        case nodes.Has(what):
            return _phrase([_HAS[what]])
        case nodes.MessageId(value):
            return _phrase([_mark("id", value)])
        case nodes.Everything() | nodes.Anywhere():
            return _phrase([_ALL])
        case nodes.Since() | nodes.Until() | nodes.Age() | nodes.Size():
            raise AssertionError("dates and sizes are conditions on the row")


def _text_expression(field: Field, text: str) -> str:
    whole = nodes.whole_address(text)
    if whole and field in nodes.PEOPLE:
        return _phrase([_mark(field.value, whole)])
    return _phrase([_PREFIX.get(field, "") + token for token in words(text)])


def _phrase(tokens: list[str]) -> str:
    return f'"{" ".join(tokens)}"'


def _condition(node: Query, context: QueryContext) -> SqlCondition:
    """Return a condition on the row itself; tokens below an OR are looked up as a set."""
    if _is_indexed(node):
        return SqlCondition(
            "word.rowid IN (SELECT rowid FROM word WHERE word MATCH ?)",
            [_expression(node, context)],
        )
    match node:
        case nodes.And(parts) | nodes.Or(parts):
            plans = [_condition(part, context) for part in parts]
            joint = " AND " if isinstance(node, nodes.And) else " OR "
            return SqlCondition(
                f"({joint.join(plan.condition for plan in plans)})",
                [value for plan in plans for value in plan.values],
            )
        case nodes.Not(part):
            inner = _condition(part, context)
            return SqlCondition(f"NOT {inner.condition}", inner.values)
        case nodes.Size(larger, limit):
            sign = ">" if larger else "<"
            return SqlCondition(
                f"(SELECT size FROM message WHERE id = word.rowid) {sign} ?", [limit]
            )
        case nodes.Since() | nodes.Until() | nodes.Age():
            since, until = nodes.bounds(node, context)
            limits = {"word.rowid >= ?": since, "word.rowid < ?": until}
            rows = {text: first_row(at) for text, at in limits.items() if at is not None}
            return SqlCondition(f"({' AND '.join(rows)})", list(rows.values()))
    raise AssertionError(node)
