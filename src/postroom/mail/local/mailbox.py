"""The embedded mailbox: reading, labels, drafts, changes, and sending between local addresses."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime, tzinfo
from itertools import chain, islice
from pathlib import Path

from postroom.core.address import Address
from postroom.core.errors import Conflict, NotFound, PostroomError, Unavailable
from postroom.core.language import parse
from postroom.core.letter import Letter
from postroom.core.message import (
    DRAFT,
    INBOX,
    SENT,
    SYSTEM_LABELS,
    UNREAD,
    Message,
    Thread,
    system_label,
)
from postroom.core.query import Labelled, OwnAddress, Query, QueryContext, leaves
from postroom.mail import mime
from postroom.mail.local import index
from postroom.mail.local.index import ParsedMail, Tokens, id_of, labels_of, row_date, row_of
from postroom.mail.mailbox import (
    Accepted,
    Arrival,
    AttachmentStream,
    Changes,
    ImportCount,
    MailboxDraft,
    NotSent,
    RelabelResult,
    SearchPage,
    SendOutcome,
    check_page_size,
    draft_changed,
    invalid_cursor,
    not_found,
)
from postroom.store.database import Database

SEARCH_TIMEOUT = 5.0  # seconds for one search; usual ones take milliseconds
FEW_CHUNKS = 4  # with fewer, an import ends before worker processes have started
# Pages in the write-ahead log before a checkpoint; at SQLite's 1,000, an import would copy the same pages repeatedly.
CHECKPOINT_PAGES = 16_000


class LocalMailbox:
    """One account's mail in one SQLite file; `Mailbox` documents the methods.

    `neighbours` are the mailbox files of other local accounts, by address; letters to these are delivered there.
    """

    def __init__(
        self,
        path: Path,
        addresses: Sequence[Address],
        *,
        now: Callable[[], float],
        zone: tzinfo,
        neighbours: Mapping[str, Path] | None = None,
        patience: float = SEARCH_TIMEOUT,
    ) -> None:
        self._addresses = tuple(addresses)
        self._now = now
        self._zone = zone
        self._neighbours = dict(neighbours or {})
        self._patience = patience
        self._database = Database(path, index.MIGRATIONS)

    def close(self) -> None:
        self._database.close()

    def own_addresses(self) -> tuple[Address, ...]:
        return self._addresses

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> SearchPage:
        check_page_size(limit)
        tree, own = parse(query), tuple(address.spec for address in self._addresses)
        context = QueryContext(now=int(self._now()), me=own, zone=self._zone)
        condition, values = index.compile_query(tree, context)
        if cursor:
            condition += " AND word.rowid < ?"
            values.append(row_of(cursor, invalid_cursor()))
        # The limit is in the inner query, so that FTS5 can stop early; one more row shows whether a page follows.
        found = self._database.rows(
            f"SELECT id, {index.SUMMARY} FROM (SELECT word.rowid AS id FROM word"
            f" WHERE {condition} ORDER BY word.rowid DESC LIMIT ?) LEFT JOIN message USING (id)"
            " ORDER BY id DESC",
            [*values, limit + 1],
            patience=self._patience,
        )
        # An entry of the index whose mail is missing is skipped: the index is only derived from the mails.
        items = tuple(index.summary(row) for row in found[:limit] if row[1] is not None)
        notes = () if found or cursor else self._notes(tree)
        return SearchPage(items, id_of(found[limit - 1][0]) if len(found) > limit else "", notes)

    def _notes(self, query: Query) -> tuple[str, ...]:
        parts = list(leaves(query))
        keys = sorted({part.key for part in parts if isinstance(part, Labelled)})
        known = "SELECT 1 FROM label WHERE key = ?"
        unknown = [k for k in keys if not system_label(k) and not self._database.row(known, [k])]
        notes = [f"There is no label {key}." for key in unknown]
        if any(isinstance(part, OwnAddress) for part in parts):
            notes.append(f"Here, me is {', '.join(address.spec for address in self._addresses)}.")
        return tuple(notes)

    def message(self, id: str) -> Message:
        missing = not_found("mail", id)
        return self._messages("id = ?", row_of(id, missing), missing)[0]

    def thread(self, id: str) -> Thread:
        missing = not_found("conversation", id)
        row = row_of(id, missing)
        # A thread has the id of its first mail. After a merge, that mail has the id of the other thread.
        known = self._database.row("SELECT thread FROM message WHERE id = ?", [row])
        found = self._messages("thread = ?", known[0] if known else row, missing)
        return Thread(found[0].thread, found)

    def _messages(
        self, condition: str, value: object, missing: PostroomError
    ) -> tuple[Message, ...]:
        found = self._database.rows(
            "SELECT id, thread, size, labels, content FROM message JOIN raw USING (id)"
            f" WHERE {condition} ORDER BY id",
            [value],
        )
        if not found:
            raise missing
        return tuple(
            Message(id_of(r), id_of(thread), row_date(r), size, labels_of(labels), mime.read(raw))
            for r, thread, size, labels, raw in found
        )

    def raw(self, id: str) -> bytes:
        row = row_of(id, not_found("mail", id))
        found = self._database.row("SELECT content FROM raw WHERE id = ?", [row])
        if not found:
            raise not_found("mail", id)
        return bytes(found[0])

    def attachment(self, id: str, part: str) -> AttachmentStream:
        return AttachmentStream.of(mime.attachment(self.raw(id), part))

    def labels(self) -> tuple[str, ...]:
        own = self._database.rows("SELECT name FROM label ORDER BY key")
        return (*sorted(SYSTEM_LABELS), *(name for (name,) in own))

    def relabel(
        self, id: str, *, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
    ) -> RelabelResult:
        with self._database.write() as connection:
            return index.relabel(connection, id, add, remove)

    def add_mails(self, arrivals: Sequence[Arrival]) -> ImportCount:
        parsed = [index.parse_mail(mail, self._now()) for mail in self._new_mails(arrivals)]
        return self._store(parsed, len(arrivals))

    def add_batches(
        self, chunks: Iterable[Sequence[Arrival]], workers: int | None = None
    ) -> Iterator[ImportCount]:
        """Store many mails, parsed by worker processes (one per core); yield the count of each transaction.

        If there are few mails, or `workers` is 0, this process parses them. The result does not depend on the workers.
        """
        source = iter(chunks)
        first = list(islice(source, FEW_CHUNKS))
        if len(first) < FEW_CHUNKS or workers == 0:
            for chunk in chain(first, source):
                yield self.add_mails(chunk)
            return
        from postroom.mail.local import parallel

        new = ((len(chunk), self._new_mails(chunk)) for chunk in chain(first, source))
        # `closing` ends the workers at once if writing fails or the caller stops.
        with closing(parallel.parse_batches(new, workers, self._now())) as batches:
            for count, parsed in batches:
                yield self._store(parsed, count)

    def _new_mails(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        known = "SELECT 1 FROM message WHERE hash = ?"
        by_hash = {index.digest(arrival.raw): arrival for arrival in arrivals}
        return [mail for hash, mail in by_hash.items() if not self._database.row(known, [hash])]

    def _store(self, parsed: Sequence[ParsedMail], offered: int) -> ImportCount:
        with self._database.write() as connection:
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            added = len(index.store(connection, parsed))
        return ImportCount(added, offered - added)

    def drafts(self) -> dict[str, str]:
        found = self._database.rows("SELECT id, message FROM draft ORDER BY message DESC")
        return {id: id_of(row) for id, row in found}

    def draft(self, id: str) -> MailboxDraft:
        row = "(SELECT message FROM draft WHERE draft.id = ?)"
        (message,) = self._messages(f"id = {row}", id, not_found("draft", id))
        return MailboxDraft(id, message.id, message)

    def create_draft(self, letter: Letter, *, date: datetime) -> MailboxDraft:
        id = f"r{letter.id}"
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM draft WHERE id = ?", [id]).fetchone():
                raise Conflict(f"The draft {id} exists", remedy="Revise it instead.")
            self._put_draft(connection, id, letter, date)
        return self.draft(id)

    def revise_draft(
        self, id: str, letter: Letter, *, version: str, date: datetime
    ) -> MailboxDraft:
        with self._database.write() as connection:
            self._remove_draft(connection, id, version)
            self._put_draft(connection, id, letter, date)
        return self.draft(id)

    def discard_draft(self, id: str, *, version: str) -> None:
        with self._database.write() as connection:
            self._remove_draft(connection, id, version)

    def _put_draft(
        self, connection: sqlite3.Connection, id: str, letter: Letter, date: datetime
    ) -> None:
        raw = self.wire(letter, date=date)
        row, tokens = self._put(connection, raw, frozenset({DRAFT}), letter.thread)
        # The index needs the same tokens again when the draft is removed. (Those of its labels may change.)
        stored_tokens = json.dumps(tokens, ensure_ascii=False)
        connection.execute("INSERT INTO draft VALUES (?, ?, ?)", [id, row, stored_tokens])

    def _remove_draft(self, connection: sqlite3.Connection, id: str, version: str) -> None:
        deleting = "DELETE FROM draft WHERE id = ? RETURNING message, tokens"
        found = connection.execute(deleting, [id]).fetchone()
        if not found:
            raise not_found("draft", id)
        if id_of(found[0]) != version:
            raise draft_changed(id)
        index.forget(connection, *found)

    def _put(
        self, connection: sqlite3.Connection, raw: bytes, labels: frozenset[str], thread: str
    ) -> tuple[int, Tokens]:
        """Store a mail that Postroom built, in this thread if it exists; return its row and its tokens."""
        first = row_of(thread, not_found("conversation", thread)) if thread else -1
        known = connection.execute("SELECT thread FROM message WHERE id = ?", [first]).fetchone()
        parsed = index.parse_mail(Arrival(raw, labels, int(self._now())), self._now())
        if DRAFT in labels:
            # A draft and the letter that it becomes may have the same bytes, but both must be stored.
            parsed = parsed._replace(hash=index.digest(b"draft\0" + raw))
        stored = index.store(connection, [parsed], known[0] if known else None)
        if not stored:
            raise Conflict("This mail is already in the mailbox", remedy="Change it, or leave it.")
        return stored[0], parsed.tokens

    def changes(self, since: str = "") -> Changes:
        epoch, head = self._database.rows(
            "SELECT value, (SELECT ifnull(max(seq), 0) FROM change) FROM meta WHERE key = 'epoch'"
        )[0]
        cursor = f"{epoch}-{head}"
        if not since:
            return Changes(cursor)
        known, _, text = since.partition("-")
        if known != epoch or not re.fullmatch(r"[0-9]{1,18}", text) or int(text) > head:
            raise NotFound(
                "This mailbox does not know that cursor", remedy="Start again from a search."
            )
        found = self._database.rows(
            "SELECT kind, message FROM change WHERE seq > ? AND seq <= ? ORDER BY seq",
            [int(text), head],
        )
        return Changes.collect(cursor, ((kind, id_of(message)) for kind, message in found))

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the exact bytes that `send` stores; Bcc is removed for each recipient."""
        return mime.build(letter, date=date, bcc=True)

    def prepare(self, letter: Letter, wire: bytes) -> str:  # noqa: ARG002 - the transaction proves it
        return ""

    def release(self, proof: str) -> bool:
        _refuse_foreign(proof)
        return False

    def send(self, letter: Letter, wire: bytes, proof: str = "") -> Accepted:
        """Store the mail under Sent, and in the mailboxes of local recipients; raise `Conflict` if it was sent before."""
        _refuse_foreign(proof)
        own = {address.key for address in self._addresses}
        recipients = {address.key for address in letter.envelope}
        labels = frozenset({SENT, INBOX, UNREAD} if recipients & own else {SENT})
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM sent WHERE letter = ?", [letter.id]).fetchone():
                raise Conflict(
                    f"The letter {letter.id} was sent already", remedy="Do not send it again."
                )
            row, _ = self._put(connection, wire, labels, letter.thread)
            connection.execute("INSERT INTO sent VALUES (?, ?)", [letter.id, row])
            connection.executemany(
                "INSERT INTO outgoing VALUES (?, ?)",
                [(letter.id, key) for key in (recipients - own) & self._neighbours.keys()],
            )
        self._deliver()
        return self._accepted(row)

    def find_outcome(self, letter: Letter, proof: str = "") -> SendOutcome:
        _refuse_foreign(proof)
        found = self._database.row("SELECT message FROM sent WHERE letter = ?", [letter.id])
        if not found:
            return NotSent("the embedded mailbox holds no sent letter of this id")
        self._deliver()
        return self._accepted(found[0])

    def sweep(self, letter: Letter, proof: str = "") -> bool:  # noqa: ARG002 - nothing was made ready
        return False

    def _accepted(self, row: int) -> Accepted:
        ((thread,),) = self._database.rows("SELECT thread FROM message WHERE id = ?", [row])
        return Accepted(id_of(row), id_of(thread))

    def _deliver(self) -> None:
        """Store sent mails in the mailboxes of local neighbours; a failed delivery is tried again at the next call."""
        waiting = self._database.rows(
            "SELECT letter, recipient, content FROM outgoing JOIN sent USING (letter)"
            " JOIN raw ON raw.id = sent.message"
        )
        for letter, recipient, wire in waiting:
            if recipient not in self._neighbours:
                continue  # the account is no longer in the settings; it may come back
            arrival = Arrival(_without_bcc(wire), frozenset({INBOX, UNREAD}), int(self._now()))
            place = self._neighbours[recipient]
            with suppress(PostroomError):
                # A mailbox stores the same bytes only once, so a second delivery after a crash does no harm.
                with closing(LocalMailbox(place, (), now=self._now, zone=self._zone)) as neighbour:
                    neighbour.add_mails([arrival])
                delivered = "DELETE FROM outgoing WHERE letter = ? AND recipient = ?"
                with self._database.write() as connection:
                    connection.execute(delivered, [letter, recipient])


def _refuse_foreign(proof: str) -> None:
    if proof:
        raise Unavailable(
            f"Another provider has a {proof.partition(':')[0]} of this letter",
            remedy="Set the account's provider back until the letter is sent or rejected there.",
        )


def _without_bcc(wire: bytes) -> bytes:
    head, blank, body = wire.partition(b"\r\n\r\n")
    head = re.sub(rb"(?im)^bcc:.*\r?\n(?:[ \t].*\r?\n)*", b"", head + b"\r\n")
    return head.removesuffix(b"\r\n") + blank + body
