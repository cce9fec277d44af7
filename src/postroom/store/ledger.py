"""The ledger: every letter, its state and history, the limits that are spent, and the chain of actions.

It decides; notes and log files show. All that changes a letter happens in a transaction of `Book`,
which compares the version of what it read with what is there, so that of two who decide at the same
time one is told what the other did. A replicated store could stand in its place: it needs these
few tables, transactions that are serial, and nothing of SQLite's.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from postroom.core import audit, life
from postroom.core.audit import Action
from postroom.core.card import Card, Exposure
from postroom.core.errors import Denied, NotFound
from postroom.core.letter import Enclosure, Letter
from postroom.core.policy import Spent
from postroom.core.records import (
    NOWHERE,
    ApprovalRequest,
    Entry,
    LabelChange,
    LetterState,
    NoteLocation,
    ProviderProof,
    ToolNote,
)
from postroom.core.stamp import Stamp, elapsed
from postroom.store import entries
from postroom.store.database import Database, Row
from postroom.store.entries import stem
from postroom.store.errands import Errands
from postroom.store.lists import OPEN as _OPEN
from postroom.store.lists import Lists
from postroom.store.schema import MIGRATIONS

_AS_IT_IS = ("agent", "digest", "content_key", "home", "form", "replaces", "version")
_ENTRY = f"id, frozen, state, detail, created, card, origins, {', '.join(_AS_IT_IS)}"
MAX_CLAIMS = 100_000  # that are remembered; more than any window has room for
_PLACE = "path, hash, notice, pages, note.version, size, mtime, inode"
DISTRUSTED = "distrusted"  # the key under which a ledger remembers that it came from a backup
TOOL_NOTES_SINCE = "tool notes since"  # before it, tools may have written what has no row


class Ledger(Lists):
    """One desk's ledger in one SQLite file."""

    def __init__(
        self, path: Path, *, clock: Callable[[], Stamp], draw: Callable[[int], bytes]
    ) -> None:
        self.path = path
        self._database = Database(path, MIGRATIONS)
        self.clock = clock
        self._draw = draw
        self._sealing = ""
        self._durable = 0  # the last action that this process knows to be on the disk

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Book]:
        """Hold the ledger: all that is written inside is kept, or none of it.

        With `early`, the book may be told to keep it before the block ends.
        """
        with self._database.write(synced=synced, early=early) as connection:
            book = Book(connection, self.clock, self._draw)
            yield book
        if synced:
            self._durable = max(self._durable, book.last_action)

    @contextmanager
    def read(self) -> Iterator[Book]:
        """Look at several things as of one moment; nothing is written."""
        with self._database.snapshot() as connection:
            yield Book(connection, self.clock, self._draw)

    def _column(self, sql: str, *values: object) -> list[str]:
        return [value for (value,) in self._database.rows(sql, values)]

    def find(self, id: str) -> str:
        """Return the whole id of the letter that this id, or the beginning of it, names."""
        beginning = id.strip().lower()
        sql = "SELECT id FROM letter WHERE id >= ? AND id < ? ORDER BY id LIMIT 2"
        found = self._column(sql, beginning, beginning + "{") if len(beginning) >= 3 else []
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"Several letters begin with {beginning}", remedy="Type more of the id.")
        raise NotFound(
            f"There is no letter {beginning[:40]}", remedy="`postroom pending` lists what waits."
        )

    def entry(self, id: str) -> Entry:
        """Return one letter, or raise `NotFound`."""
        with self.read() as book:
            return book.entry(id)

    def current(self, entry: Entry) -> Entry:
        """Return a letter as it is now: somebody may have decided since it was read."""
        row = self._database.row("SELECT version FROM letter WHERE id = ?", [entry.id])
        return entry if row == (entry.version,) else self.entry(entry.id)

    def standings(self, *states: str) -> dict[str, LetterState]:
        """Return the state and version of each letter in these states (all open ones without any)."""
        chosen = ", ".join(f"'{kind}'" for kind in states) or _OPEN
        rows = self._database.rows(
            f"SELECT id, state, detail, version FROM letter WHERE state IN ({chosen}) ORDER BY row"
        )
        return {row[0]: entries.standing(row) for row in rows}

    def history(self, id: str) -> list[life.State]:
        """Return the states that a letter has gone through, oldest first."""
        rows = self._database.rows(
            "SELECT state, detail FROM history WHERE letter = ? ORDER BY version", [id]
        )
        return [life.load(*row) for row in rows]

    def former(self, id: str) -> Letter | None:
        """Return the letter as its agent wrote it, where a person changed it since."""
        row = self._database.row(
            "SELECT frozen FROM revision WHERE letter = ? ORDER BY version LIMIT 1", [id]
        )
        return None if row is None else entries.thawed(row[0], self.entry(id).letter.attachments)

    def places(self) -> dict[str, NoteLocation]:
        """Return where the notes of open letters stand, and of closed ones those still to be written."""
        rows = self._database.rows(
            f"SELECT note.letter, {_PLACE} FROM note"
            f" JOIN letter ON letter.id = note.letter WHERE state IN ({_OPEN}) UNION ALL"
            f" SELECT letter, {_PLACE} FROM note WHERE path = ''"
        )
        return {row[0]: NoteLocation(*row[1:]) for row in rows}

    def standing(self, folder: str) -> dict[str, tuple[str, NoteLocation]]:
        """Return the notes that stand in this folder: path, letter, and what it was."""
        rows = self._database.rows(
            f"SELECT letter, {_PLACE} FROM note WHERE path > ? AND path < ?",
            [f"{folder}/", f"{folder}0"],
        )
        return {row[1]: (row[0], NoteLocation(*row[1:])) for row in rows}

    def place(self, id: str) -> NoteLocation:
        """Return where a letter's note stands."""
        row = self._database.row(f"SELECT {_PLACE} FROM note WHERE letter = ?", [id])
        return NOWHERE if row is None else NoteLocation(*row)

    def intended(self, id: str) -> tuple[str, str]:
        """Return the path and the hash of a note that we began to write; nothing where it was done."""
        hash, _, path = self.meta(f"note {id}").partition(" ")
        return path, hash

    def meta(self, key: str) -> str:
        """Return what was kept under this key, or nothing."""
        row = self._database.row("SELECT value FROM meta WHERE key = ?", [key])
        return str(row[0]) if row else ""

    def proof(self, id: str) -> ProviderProof | None:
        """Return what the provider gave to settle this letter by."""
        row = self._database.row(
            "SELECT proof, digest, unanswered FROM proof WHERE letter = ?", [id]
        )
        return ProviderProof(*row) if row else None

    def claimed_before_edit(self, id: str) -> bool:
        """Whether a version of this letter was claimed before the one that it has now."""
        sql = (
            "SELECT 1 FROM history WHERE letter = ?1 AND state = 'sending' AND version <="
            " (SELECT max(version) FROM revision WHERE letter = ?1)"
        )
        return self._database.row(sql, [id]) is not None

    def unreleased(self) -> list[str]:
        """Return the letters that are closed, and whose proof the provider has still to take back."""
        return self._column(
            f"SELECT letter FROM proof JOIN letter ON id = letter WHERE state NOT IN ({_OPEN})"
        )

    def orphans(self) -> dict[str, tuple[Stamp, Stamp | None]]:
        """Return the letters of which the provider may hold what no proof names: since when, last swept when."""
        rows = self._database.rows(
            "SELECT substr(key, 8), value FROM meta WHERE key > 'orphan ' AND key < 'orphan!'"
        )
        found = {}
        for id, value in rows:
            since, swept = json.loads(value)
            found[str(id)] = Stamp(*since), Stamp(*swept) if swept else None
        return found

    def slips(self) -> dict[str, tuple[Stamp, str]]:
        """Return every slip that was seen: when first, and the letter that it was spent on."""
        rows = self._database.rows("SELECT hash, seen, letter FROM slip")
        return {hash: (entries.stamp(seen), letter) for hash, seen, letter in rows}

    def adopted(self, hash: str) -> ApprovalRequest | None:
        """Return the request that the desk wrote with this text, if it wrote one."""
        row = self._database.row("SELECT agent, letters FROM adopted WHERE hash = ?", [hash])
        return (
            ApprovalRequest(row[0], [(id, digest) for id, digest in json.loads(row[1])])
            if row
            else None
        )

    def tool_note(self, path: str, inode: int, text_hash: str) -> ToolNote | None:
        """Return which tool wrote a file: the row that has most in common with it, of several the newest."""
        row = self._database.row(
            "SELECT agent, path, (path = ?1) + (stem = ?2) + (text_hash = ?4) AS same FROM tool_note"
            " WHERE path = ?1 OR stem = ?2 OR (inode = ?3 AND inode != 0) OR text_hash = ?4"
            " ORDER BY same + (inode = ?3 AND inode != 0) DESC, row DESC LIMIT 1",
            [path, stem(path), inode, text_hash],
        )
        return ToolNote(row[0], row[1], inode_only=not row[2]) if row else None

    def tool_wrote(self, path: str, text_hash: str = "") -> bool:
        """Whether a tool wrote a file at this path; with a hash, whether it wrote that text there."""
        sql = "SELECT 1 FROM tool_note WHERE path = ?1 AND (text_hash = ?2 OR ?2 = '')"
        return self._database.row(sql, [path, text_hash]) is not None

    def check(self) -> str:
        """Return SQLite's own word on the file, `ok` where nothing is wrong."""
        return str(self._database.rows("PRAGMA quick_check(1)")[0][0])

    def old_html(self) -> list[str]:
        """Return the letters whose HTML an older version froze, and that are to be frozen anew or keyed."""
        return self._column(
            "SELECT old_html.letter FROM old_html JOIN letter ON id = old_html.letter"
            " WHERE NOT keyed OR state IN ('pending', 'approved')"
        )

    # Facts for the risk card

    def repeats(self, text: str, *, but: str) -> tuple[str, ...]:
        """Return earlier letters with the same text, newest first."""
        sql = (
            "SELECT id FROM letter WHERE text_key = ? AND id != ? AND state != 'rehearsal'"
            " ORDER BY row DESC LIMIT 5"
        )
        return tuple(self._column(sql, entries.text_key(text), but))

    def exposures(self, tokens: frozenset[str], since: float) -> dict[str, tuple[Exposure, ...]]:
        """Return for each token the mail that showed it first, then one of each further sender.

        A mail in Sent that is older than all others comes first whenever it was shown: they quote it.
        A mail is no younger than when it was shown, whatever date it claims.
        """
        found: dict[str, dict[int, Exposure]] = {}
        rows = self._database.rows(
            "SELECT token, message, exposure.sender, subject, date, sent, part,"
            " min(iif(date > 0, date, first_at), first_at) AS age FROM exposure"
            " JOIN shown_mail ON row = message"
            " WHERE token IN (SELECT value FROM json_each(?)) AND exposure.last_at > ?"
            " ORDER BY first_at, age, row",
            [json.dumps(sorted(tokens)), since],
        )
        oldest = {row[0]: row for row in sorted(rows, key=lambda row: (-row[7], -row[5]))}
        sent_first = [row for row in oldest.values() if row[5]]
        for token, message, sender, subject, date, sent, part, _ in sent_first + rows:
            mails = found.setdefault(token, {})
            if message in mails:
                mails[message] = replace(mails[message], parts=mails[message].parts | {part})
            elif sender not in [one.sender for one in mails.values()] and len(mails) < 3:
                mails[message] = Exposure(sender, subject, date, bool(sent), frozenset({part}))
        return {token: tuple(mails.values()) for token, mails in found.items()}

    def correspondents(self, account: str) -> frozenset[str]:
        """Return the addresses that the person of this account has written to, as far as is known.

        Of some only the domain is known: `@example.org`.
        """
        sql = "SELECT address FROM correspondent WHERE account = ?"
        return frozenset(self._column(sql, account))

    def moves(self, newest: int = 1000) -> list[LabelChange]:
        """Return the moves that can be undone, newest first."""
        rows = self._database.rows(
            "SELECT number, at, agent, account, message, added, removed FROM move"
            " ORDER BY number DESC LIMIT ?",
            [newest],
        )
        return [entries.move(row) for row in rows]

    # The chain of actions

    def head(self) -> int:
        """Return the number of the last action."""
        ((last,),) = self._database.rows("SELECT max(seq) FROM action")
        return int(last or 0)

    def actions(self, after: int = 0) -> list[tuple[int, str]]:
        """Return the actions past this number, each as the line that the log shows."""
        rows = self._database.rows(
            "SELECT seq, line FROM action WHERE seq > ? ORDER BY seq", [after]
        )
        return [(seq, line) for seq, line in rows]

    def sync(self, seq: int) -> None:
        """Have the actions up to this number on the disk, whichever process wrote them."""
        if seq > self._durable:
            with self.write() as book:
                book.set("log", book.get("log"))  # SQLite syncs no transaction that changes nothing
            self._durable = seq

    def wrote(self, line: str) -> bool:
        """Whether a line of the log is sealed with this ledger's key."""
        self._sealing = self._sealing or self.meta("key")
        return audit.sealed(line, self._sealing)

    def mark(self) -> audit.LogPosition:
        """Return how far the log was written."""
        return audit.LogPosition(*json.loads(self.meta("log") or "[]"))

    def set_mark(self, mark: audit.LogPosition) -> None:
        """Remember how far the log was written."""
        with self.write(synced=False) as book:
            book.set("log", json.dumps(mark))


class Book(Errands):
    """The ledger while one transaction holds it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], Stamp],
        draw: Callable[[int], bytes],
    ) -> None:
        super().__init__(connection, clock)
        self._draw = draw
        self.last_action = 0  # the number of the last one that this transaction added

    def commit(self) -> None:
        """Keep what was written so far, before the block ends; nothing is written after it."""
        self._connection.execute("COMMIT")

    # Letters

    def entry(self, id: str) -> Entry:
        """Return one letter, or raise `NotFound`."""
        found = self.known(id)
        if found is None:
            raise NotFound(f"There is no letter {id}", remedy="`postroom pending` lists them.")
        return found

    def known(self, id: str) -> Entry | None:
        """Return a letter, if there is one of this id."""
        row = self._row(f"SELECT {_ENTRY} FROM letter WHERE id = ?", id)
        return None if row is None else self._entry(row)

    def latest(self, agent: str, content_key: str) -> Entry | None:
        """Return the agent's letter of this content: the open one, or else the last."""
        row = self._row(
            f"SELECT {_ENTRY} FROM letter WHERE agent = ? AND content_key = ?"
            f" ORDER BY state IN ({_OPEN}) DESC, row DESC LIMIT 1",
            agent,
            content_key,
        )
        return None if row is None else self._entry(row)

    def _entry(self, row: Row) -> Entry:
        id, frozen, kind, detail, created, card, origins, *others = row
        sql = "SELECT name, type, content FROM enclosure WHERE letter = ? ORDER BY place"
        files = self._rows(sql, id)
        with entries.parsed(id):
            return Entry(
                letter=entries.thawed(frozen, tuple(Enclosure(*file) for file in files)),
                state=life.load(kind, detail),
                created=entries.stamp(created),
                card=Card.from_json(json.loads(card)),
                origins=tuple(json.loads(origins)),
                **dict(zip(_AS_IT_IS, others, strict=True)),
            )

    def replacement(self, agent: str, id: str) -> tuple[str, life.State] | None:
        """Return the letter that stands in the place of this one, if it waits or was sent."""
        row = self._row(
            "SELECT id, state, detail FROM letter WHERE agent = ? AND replaces = ?"
            f" AND state IN ({_OPEN}, 'sent') ORDER BY row DESC LIMIT 1",
            agent,
            id,
        )
        return (row[0], life.load(*row[1:])) if row else None

    def insert(self, entry: Entry) -> Entry:
        """Enter a letter that is frozen for the first time."""
        letter = entry.letter
        self._connection.execute(
            "INSERT INTO letter VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                letter.id, entry.agent, entry.content_key, entries.text_key(letter.text),
                entry.digest, entries.frozen(letter), json.dumps(entry.origins),
                entries.recipients(letter), letter.subject,
                json.dumps(entry.card.to_json()), entry.home, entry.form, entry.replaces,
                json.dumps(entry.created), entry.kind, life.dump(entry.state), entry.version,
            ],
        )  # fmt: skip
        self._connection.executemany(
            "INSERT INTO enclosure VALUES (?, ?, ?, ?, ?)",
            [(letter.id, at, a.name, a.type, a.content) for at, a in enumerate(letter.attachments)],
        )
        if not isinstance(entry.state, life.Rehearsal):
            self.set_place(entry.id, NOWHERE)
        self._remember(entry)
        return entry

    def swap(
        self,
        entry: Entry,
        state: life.State,
        *,
        letter: Letter | None = None,
        card: Card | None = None,
    ) -> Entry:
        """Give a letter its next state (and text), unless somebody was first: then `Conflict`."""
        new = replace(
            entry,
            state=state,
            letter=letter or entry.letter,
            digest=letter.digest if letter else entry.digest,
            card=card or entry.card,
            version=entry.version + 1,
        )
        changed = self._do(
            "UPDATE letter SET state = ?, detail = ?, version = ?, digest = ?, card = ?"
            " WHERE id = ? AND version = ?",
            new.kind, life.dump(state), new.version, new.digest, json.dumps(new.card.to_json()),
            entry.id, entry.version,
        )  # fmt: skip
        if not changed:
            raise life.refuse(entry.id, self.entry(entry.id).state, "changed by two at once")
        if letter is not None:
            self._do(
                "INSERT INTO revision SELECT id, ?, frozen FROM letter WHERE id = ?",
                entry.version, entry.id,
            )  # fmt: skip
            self._do(
                "UPDATE letter SET frozen = ?, text_key = ?, recipients = ?, subject = ?"
                " WHERE id = ?",
                entries.frozen(letter), entries.text_key(letter.text),
                entries.recipients(letter), letter.subject, entry.id,
            )  # fmt: skip
        self._remember(new)
        return new

    def _remember(self, entry: Entry) -> None:
        self._do(
            "INSERT INTO history VALUES (?, ?, ?, ?)",
            entry.id, entry.version, entry.kind, life.dump(entry.state),
        )  # fmt: skip

    def rekey(self, letter: Letter, *, done: bool) -> None:
        """Let a repeated call find a letter of `old_html` by what the call freezes now."""
        for table, name in (("letter", "id"), ("idempotency", "letter")):
            sql = f"UPDATE {table} SET content_key = ? WHERE {name} = ?"
            self._do(sql, letter.content_key, letter.id)
        self._do("UPDATE old_html SET keyed = 1 WHERE letter = ?", letter.id)
        if done:
            self._do("DELETE FROM old_html WHERE letter = ?", letter.id)

    def forget(self, id: str) -> None:
        """Take a rehearsal out, in whose place another comes."""
        self._do("DELETE FROM letter WHERE id = ? AND state = 'rehearsal'", id)
        for table in ("enclosure", "history", "idempotency"):
            self._do(f"DELETE FROM {table} WHERE letter = ?", id)

    def in_state(self, *states: str) -> list[Entry]:
        """Return all letters in these states, oldest first."""
        marks = ", ".join("?" * len(states))
        sql = f"SELECT {_ENTRY} FROM letter WHERE state IN ({marks}) ORDER BY row"
        return [self._entry(row) for row in self._rows(sql, *states)]

    # Keys and counts

    def bound(self, agent: str, key: str) -> tuple[str, str] | None:
        """Return the letter that an idempotency key names, and the content that it was given with."""
        row = self._row(
            "SELECT letter, content_key FROM idempotency WHERE agent = ? AND key = ?", agent, key
        )
        return None if row is None else (row[0], row[1])

    def bind(self, agent: str, key: str, entry: Entry) -> None:
        """Let an idempotency key name this letter, for ever."""
        self._do(
            "INSERT OR IGNORE INTO idempotency SELECT ?, ?, ?, ?"
            " WHERE (SELECT count(*) FROM idempotency WHERE letter = ?) < 100",
            agent, key, entry.id, entry.content_key, entry.id,
        )  # fmt: skip

    def open_letters(self, agent: str) -> int:
        """Return how many letters of this agent wait or are on their way."""
        # The plus keeps SQLite from the agent's index, in which all closed letters are too.
        sql = f"SELECT count(*) FROM letter WHERE state IN ({_OPEN}) AND +agent = ?"
        ((count,),) = self._rows(sql, agent)
        return int(count)

    def proposals(self, agent: str, most: int) -> list[Stamp]:
        """Return when the agent proposed its last letters, if there are so many; fewer are never too many."""
        newest = "SELECT created FROM letter WHERE agent = ? ORDER BY row DESC LIMIT ?"
        rows = self._rows(newest, agent, most)
        return [entries.stamp(created) for (created,) in rows] if len(rows) == most else []

    # Limits and slips

    def spent(self, now: Stamp, seconds: float) -> list[Spent]:
        """Return the claims that are younger than this, or may be, oldest first.

        None is older than one before it, whatever a clock said that was behind for a while.
        """
        rows = self._rows(
            "SELECT recipients, thread, wall, boot, steady FROM claim WHERE row >= (SELECT min(row)"
            " FROM claim WHERE (boot = ?1 AND steady > ?2) OR ((boot != ?1 OR boot = '') AND wall > ?3))"
            " ORDER BY row",
            now.boot, now.steady - seconds, now.wall - seconds,
        )  # fmt: skip
        claims, last = [], None
        for recipients, thread, *moment in rows:
            at = Stamp(*moment)
            if last is not None and elapsed(last, now) < elapsed(at, now):
                at = last
            elif at.wall <= now.wall:
                last = at
            claims.append(Spent(at, recipients, thread))
        return claims

    def spend(self, letter: Letter, at: Stamp) -> None:
        """Count a claim."""
        self._claim(letter.id, len(letter.envelope), letter.thread, at)
        # By their number: a clock that is wrong for a while must not make them look old.
        self._do("DELETE FROM claim WHERE row <= (SELECT max(row) FROM claim) - ?", MAX_CLAIMS)

    def _claim(self, id: str, recipients: int, thread: str, at: Stamp) -> None:
        self._do("INSERT INTO claim VALUES (NULL, ?, ?, ?, ?, ?, ?)", id, recipients, thread, *at)

    def refund(self, id: str, slip: str) -> None:
        """Give back what a try did not use: the newest claim, and its slip unless it may still leave."""
        self._do("DELETE FROM claim WHERE row = (SELECT max(row) FROM claim WHERE letter = ?)", id)
        self._do(
            "UPDATE slip SET letter = '' WHERE letter = ?1 AND hash = ?2"
            " AND NOT EXISTS (SELECT 1 FROM proof WHERE letter = ?1 AND unanswered > 0)",
            id, slip,
        )  # fmt: skip

    def used(self, id: str, slip: str) -> bool:
        """Whether this slip let the letter out before, and the person took that back."""
        sql = "SELECT 1 FROM history WHERE letter = ? AND state = 'approved' AND instr(detail, ?)"
        return self._row(sql, id, slip) is not None

    def see_slip(self, hash: str) -> None:
        """Remember when a slip was first seen."""
        self._do("INSERT OR IGNORE INTO slip VALUES (?, ?, '')", hash, json.dumps(self._clock()))

    def unspent(self, hash: str) -> bool:
        """Whether a slip was seen, and let nothing out so far."""
        return self._row("SELECT 1 FROM slip WHERE hash = ? AND letter = ''", hash) is not None

    def spend_slip(self, hash: str, id: str, fresh: Callable[[Stamp], bool]) -> None:
        """Spend a slip on a letter, once, while it is fresh; else `Denied`."""
        row = self._row("SELECT seen FROM slip WHERE hash = ? AND letter IN ('', ?)", hash, id)
        if row is None or not fresh(entries.stamp(row[0])):
            raise Denied(
                "The slip was spent on another letter, or has lapsed", remedy="Write a new one."
            )
        self._do("UPDATE slip SET letter = ? WHERE hash = ?", id, hash)

    # Notes, tokens, contacts, settings

    def intend(self, id: str, path: str, hash: str) -> None:
        """Remember what is about to be written where, in case nobody comes back to say so."""
        self.set(f"note {id}", f"{hash} {path}")

    def written(self, id: str, place: NoteLocation) -> None:
        """Remember where a note stands that was written as intended."""
        self._do("DELETE FROM meta WHERE key = ?", f"note {id}")
        self.set_place(id, place)

    def set_place(self, id: str, place: NoteLocation) -> None:
        """Remember where a letter's note stands."""
        self._do("INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", id, *place)

    def adopt(self, hash: str, request: ApprovalRequest) -> None:
        """Remember a request that is about to be put before the person, and what it lists."""
        letters = json.dumps(request.letters)
        self._do("INSERT OR REPLACE INTO adopted VALUES (?, ?, ?)", hash, request.agent, letters)

    def add_tool_note(self, path: str, inode: int, text_hash: str, agent: str) -> None:
        """Remember a file that a tool is about to write or move."""
        self._do(
            "INSERT OR REPLACE INTO tool_note VALUES (NULL, ?, ?, ?, ?, ?, ?)",
            path, stem(path), inode, text_hash, agent, self._clock().wall,
        )  # fmt: skip

    def free_inode(self, inode: int) -> None:
        """Forget an inode that tools no longer use: the file system gives it to another file."""
        self._do("UPDATE OR REPLACE tool_note SET inode = 0 WHERE inode = ? AND inode != 0", inode)

    def keep_proof(self, entry: Entry, proof: str) -> None:
        """Keep what a letter is settled by, and that a send by it has no answer yet.

        Raises `Conflict` if somebody changed the letter, or took the claim over, first.
        """
        if (now := self.entry(entry.id)).version != entry.version:
            raise life.refuse(entry.id, now.state, "sent")
        self._do(
            "INSERT INTO proof VALUES (?1, ?2, ?3, 1) ON CONFLICT DO UPDATE SET proof = ?2, digest ="
            " ?3, unanswered = CASE proof WHEN ?2 THEN unanswered + 1 ELSE 1 END",
            entry.id, proof, entry.digest,
        )  # fmt: skip

    def answered(self, id: str) -> None:
        """Note that the last send by a letter's proof was refused, and did nothing."""
        self._do("UPDATE proof SET unanswered = unanswered - 1 WHERE letter = ?", id)

    def drop_proof(self, id: str, proof: str = "", *, unanswered: bool = True) -> bool:
        """Forget a letter's proof, if it is this one; with `unanswered` false, only if every send had its answer."""
        sql = "DELETE FROM proof WHERE letter = ? AND ? IN ('', proof) AND (? OR unanswered = 0)"
        return self._do(sql, id, proof, unanswered) > 0

    def take_claim(self, entry: Entry) -> Entry:
        """Raise the version of a claimed letter: whoever claimed it before can keep no proof any more.

        Without a proof, that one may have prepared something that nobody knows of.
        """
        taken = replace(entry, version=entry.version + 1)
        changed = self._do(
            "UPDATE letter SET version = ? WHERE id = ? AND version = ?",
            taken.version, entry.id, entry.version,
        )  # fmt: skip
        if not changed:
            raise life.refuse(entry.id, self.entry(entry.id).state, "settled by two at once")
        if self._row("SELECT 1 FROM proof WHERE letter = ?", entry.id) is None:
            self.set_orphan(entry.id)
        return taken

    def set_orphan(self, id: str, since: Stamp | None = None, swept: Stamp | None = None) -> None:
        """Note that the provider may hold something of a letter that no proof names, from now on."""
        self.set(f"orphan {id}", json.dumps([since or self._clock(), swept]))

    def drop_orphan(self, id: str) -> None:
        """Forget that the provider may hold something of a letter."""
        self._do("DELETE FROM meta WHERE key = ?", f"orphan {id}")

    def log(self, action: Action) -> None:
        """Add an action to the chain."""
        from uuid import UUID  # who only reads needs none

        row = self._row("SELECT seq, line FROM action ORDER BY seq DESC LIMIT 1")
        seq, previous = (row[0] + 1, audit.digest(row[1])) if row else (1, audit.GENESIS)
        line = audit.write(
            action,
            seq=seq,
            previous=previous,
            desk=self.get("desk"),
            timestamp=self._clock().iso,
            correlation_id=str(UUID(bytes=self._draw(16), version=4)),
            key=self._key(),
        )
        self._do("INSERT INTO action VALUES (?, ?)", seq, line)
        self.last_action = seq

    def _key(self) -> str:
        """Return the key that seals our lines in the log, drawn for the first."""
        key = self.get("key")
        if not key:
            key = self._draw(32).hex()
            self.set("key", key)
        return key

    def take(self, read: audit.ParsedLine) -> None:
        """Take over an action that the log has and this ledger has not: what it spent stays spent."""
        self._do("INSERT INTO action VALUES (?, ?)", read.seq, read.line)
        if read.action_type == "claim_letter":
            at = Stamp(datetime.fromisoformat(read.timestamp).timestamp())
            said: dict[str, Any] = read.record.get("parameters", {})
            self._claim(read.letter, said.get("recipients", 1), said.get("thread", ""), at)
            if slip := said.get("slip"):
                sql = "INSERT OR REPLACE INTO slip VALUES (?, ?, ?)"
                self._do(sql, slip, json.dumps(at), read.letter)
