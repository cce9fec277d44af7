"""The ledger: every letter, its state and history, the limits that are spent, and the chain of actions.

It decides; notes and log files show. All that changes a letter happens in a transaction of `Book`,
which compares the version of what it read with what is there, so that of two who decide at the same
time one is told what the other did. A replicated store could stand in its place: it needs these
few tables, transactions that are serial, and nothing of SQLite's.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from postroom.core import audit, life
from postroom.core.address import Address
from postroom.core.audit import Action
from postroom.core.card import Card
from postroom.core.errors import Corrupt, Denied, Invalid, NotFound
from postroom.core.letter import Enclosure, Letter
from postroom.core.policy import Spent
from postroom.core.stamp import Stamp, elapsed
from postroom.store.database import Database, Row

MIGRATIONS = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE letter (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    content_key TEXT NOT NULL,
    text_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    frozen TEXT NOT NULL,
    origins TEXT NOT NULL,
    recipients TEXT NOT NULL,
    subject TEXT NOT NULL,
    card TEXT NOT NULL,
    home TEXT NOT NULL,
    form TEXT NOT NULL,
    replaces TEXT NOT NULL,
    created TEXT NOT NULL,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    version INTEGER NOT NULL
);
CREATE INDEX letter_content ON letter (agent, content_key);
CREATE INDEX letter_text ON letter (text_key);
CREATE INDEX letter_agent ON letter (agent, row);
CREATE INDEX letter_state ON letter (state, row);
CREATE TABLE enclosure (
    letter TEXT NOT NULL, place INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (letter, place)
);
CREATE TABLE history (
    letter TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL,
    PRIMARY KEY (letter, version)
) WITHOUT ROWID;
CREATE TABLE revision (
    letter TEXT NOT NULL, version INTEGER NOT NULL, frozen TEXT NOT NULL,
    PRIMARY KEY (letter, version)
) WITHOUT ROWID;
CREATE TABLE idempotency (
    agent TEXT NOT NULL, key TEXT NOT NULL, letter TEXT NOT NULL, content_key TEXT NOT NULL,
    PRIMARY KEY (agent, key)
) WITHOUT ROWID;
CREATE TABLE spent (
    letter TEXT NOT NULL, at TEXT NOT NULL, recipients INTEGER NOT NULL, thread TEXT NOT NULL
);
CREATE TABLE slip (
    hash TEXT PRIMARY KEY, seen TEXT NOT NULL, letter TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE note (
    letter TEXT PRIMARY KEY, path TEXT NOT NULL, hash TEXT NOT NULL, notice TEXT NOT NULL,
    pages TEXT NOT NULL, version INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX note_path ON note (path);
CREATE TABLE adopted (hash TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE action (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE token (
    token TEXT PRIMARY KEY, place TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE contact (
    account TEXT NOT NULL, domain TEXT NOT NULL, PRIMARY KEY (account, domain)
) WITHOUT ROWID;
""",
    """
CREATE TABLE claim (
    row INTEGER PRIMARY KEY, letter TEXT NOT NULL, recipients INTEGER NOT NULL,
    thread TEXT NOT NULL, wall REAL NOT NULL, boot TEXT NOT NULL, steady REAL NOT NULL
);
INSERT INTO claim SELECT NULL, letter, recipients, thread, json_extract(at, '$[0]'),
    json_extract(at, '$[1]'), json_extract(at, '$[2]') FROM spent ORDER BY rowid;
DROP TABLE spent;
CREATE INDEX claim_wall ON claim (wall);
CREATE INDEX claim_steady ON claim (boot, steady);
""",
)

_ENTRY = (
    "id, agent, content_key, digest, frozen, origins, card, home, form, replaces, created, state,"
    " detail, version"
)
MAX_CLAIMS = 100_000  # that are remembered; more than any window has room for
_PLACE = "path, hash, notice, pages, note.version, size, mtime, inode"
_OPEN = ", ".join(f"'{kind}'" for kind in life.OPEN)


@dataclass(frozen=True, slots=True)
class Entry:
    """A letter in the ledger; `digest` is what it had when it was frozen."""

    letter: Letter
    agent: str
    state: life.State
    created: Stamp
    card: Card
    digest: str
    content_key: str
    home: str
    form: str = "note"  # or "draft": a note whose whole body is the letter's text
    replaces: str = ""
    origins: tuple[str, ...] = field(default=())
    version: int = 1

    @property
    def id(self) -> str:
        """The letter's id."""
        return self.letter.id

    @property
    def kind(self) -> str:
        """The name of its state."""
        return life.name(self.state)


class Line(NamedTuple):
    """A letter as a list shows it."""

    id: str
    agent: str
    recipients: str
    subject: str
    level: int
    warning: str
    home: str
    created: Stamp
    state: life.State


class Standing(NamedTuple):
    """How a letter stands."""

    state: life.State
    version: int


class Place(NamedTuple):
    """Where a letter's note stood when it was last written or seen, and what it was."""

    path: str
    hash: str
    notice: str
    pages: str  # what our sections of it were, as JSON: title and hash
    version: int  # of the letter that it shows
    size: int
    mtime: int
    inode: int


NOWHERE = Place("", "", "", "{}", 0, 0, 0, 0)  # a note that is still to be written


class Ledger:
    """One desk's ledger in one SQLite file."""

    def __init__(
        self, path: Path, *, clock: Callable[[], Stamp], draw: Callable[[int], bytes]
    ) -> None:
        self.path = path
        self._database = Database(path, MIGRATIONS)
        self._clock = clock
        self._draw = draw
        self._sealing = ""

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @contextmanager
    def write(self, *, synced: bool = True) -> Iterator[Book]:
        """Hold the ledger: all that is written inside is kept, or none of it."""
        with self._database.write(synced=synced) as connection:
            yield Book(connection, self._clock, self._draw)

    def find(self, id: str) -> str:
        """Return the whole id of the letter that this id, or the beginning of it, names."""
        beginning = id.strip().lower()
        found = self._database.rows(
            "SELECT id FROM letter WHERE id >= ? AND id < ? ORDER BY id LIMIT 2",
            [beginning, beginning + "{"],
        )
        if len(found) == 1 and len(beginning) >= 3:
            return str(found[0][0])
        if found and len(beginning) >= 3:
            raise NotFound(f"Several letters begin with {beginning}", remedy="Type more of the id.")
        raise NotFound(
            f"There is no letter {beginning[:40]}", remedy="`postroom pending` lists what waits."
        )

    def entry(self, id: str) -> Entry:
        """Return one letter, or raise `NotFound`."""
        with self._database.snapshot() as connection:
            return Book(connection, self._clock, self._draw).entry(id)

    def current(self, entry: Entry) -> Entry:
        """Return a letter as it is now: somebody may have decided since it was read."""
        row = self._database.row("SELECT version FROM letter WHERE id = ?", [entry.id])
        return entry if row == (entry.version,) else self.entry(entry.id)

    def lines(self, *states: str, agent: str | None = None, newest: int = -1) -> list[Line]:
        """Return the letters in these states (all open ones without any), oldest first.

        Of more than `newest`, the newest; less than 0 is no bound.
        """
        chosen = ", ".join(f"'{kind}'" for kind in states if kind in life.STATES) or _OPEN
        of = "" if agent is None else " AND +agent = ?"
        rows = self._database.rows(
            "SELECT id, agent, recipients, subject, card, home, created, state, detail"
            f" FROM letter WHERE state IN ({chosen}){of} ORDER BY row DESC LIMIT ?",
            [newest] if agent is None else [agent, newest],
        )
        return [_line(row) for row in reversed(rows)]

    def standings(self, *states: str) -> dict[str, Standing]:
        """Return the state and version of each letter in these states (all open ones without any)."""
        chosen = ", ".join(f"'{kind}'" for kind in states) or _OPEN
        rows = self._database.rows(
            f"SELECT id, state, detail, version FROM letter WHERE state IN ({chosen}) ORDER BY row"
        )
        return {row[0]: _standing(row) for row in rows}

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
        return None if row is None else _letter(row[0], self.entry(id).letter.attachments)

    def places(self) -> dict[str, Place]:
        """Return where the notes of open letters stand, and of closed ones those still to be written."""
        rows = self._database.rows(
            f"SELECT note.letter, {_PLACE} FROM note"
            f" JOIN letter ON letter.id = note.letter WHERE state IN ({_OPEN}) UNION ALL"
            f" SELECT letter, {_PLACE} FROM note WHERE path = ''"
        )
        return {row[0]: Place(*row[1:]) for row in rows}

    def standing(self, folder: str) -> dict[str, tuple[str, Place]]:
        """Return the notes that stand in this folder: path, letter, and what it was."""
        rows = self._database.rows(
            f"SELECT letter, {_PLACE} FROM note WHERE path > ? AND path < ?",
            [f"{folder}/", f"{folder}0"],
        )
        return {row[1]: (row[0], Place(*row[1:])) for row in rows}

    def place(self, id: str) -> Place:
        """Return where a letter's note stands."""
        row = self._database.row(f"SELECT {_PLACE} FROM note WHERE letter = ?", [id])
        return NOWHERE if row is None else Place(*row)

    def intended(self, id: str) -> tuple[str, str]:
        """Return the path and the hash of a note that we began to write; nothing where it was done."""
        hash, _, path = self.meta(f"note {id}").partition(" ")
        return path, hash

    def meta(self, key: str) -> str:
        """Return what was kept under this key, or nothing."""
        row = self._database.row("SELECT value FROM meta WHERE key = ?", [key])
        return str(row[0]) if row else ""

    def slips(self) -> dict[str, tuple[Stamp, str]]:
        """Return every slip that was seen: when first, and the letter that it was spent on."""
        rows = self._database.rows("SELECT hash, seen, letter FROM slip")
        return {hash: (_stamp(seen), letter) for hash, seen, letter in rows}

    def adopted(self, hash: str) -> bool:
        """Whether this note without a letter was taken from `Plans/`."""
        return self._database.row("SELECT 1 FROM adopted WHERE hash = ?", [hash]) is not None

    def check(self) -> str:
        """Return SQLite's own word on the file, `ok` where nothing is wrong."""
        return str(self._database.rows("PRAGMA quick_check(1)")[0][0])

    # Facts for the risk card

    def repeats(self, text: str, *, but: str) -> tuple[str, ...]:
        """Return earlier letters with the same text, newest first."""
        rows = self._database.rows(
            "SELECT id FROM letter WHERE text_key = ? AND id != ? AND state != 'rehearsal'"
            " ORDER BY row DESC LIMIT 5",
            [_key(text), but],
        )
        return tuple(id for (id,) in rows)

    def seen(self, tokens: frozenset[str], since: float) -> dict[str, str]:
        """Return those of the tokens that a mail brought which an agent was shown since, and where."""
        found: dict[str, str] = {}
        wanted = sorted(tokens)
        for at in range(0, len(wanted), 500):
            some = wanted[at : at + 500]
            marks = ", ".join("?" * len(some))
            sql = f"SELECT token, place FROM token WHERE token IN ({marks}) AND at > ?"
            found.update(self._database.rows(sql, [*some, since]))
        return found

    def domains(self, account: str) -> frozenset[str]:
        """Return the domains that the person of this account has written to, as far as was looked."""
        rows = self._database.rows("SELECT domain FROM contact WHERE account = ?", [account])
        return frozenset(domain for (domain,) in rows)

    # The chain of actions

    def head(self) -> int:
        """Return the number of the last action."""
        row = self._database.row("SELECT max(seq) FROM action")
        return int(row[0] or 0) if row else 0

    def actions(self, after: int = 0) -> list[tuple[int, str]]:
        """Return the actions past this number, each as the line that the log shows."""
        rows = self._database.rows(
            "SELECT seq, line FROM action WHERE seq > ? ORDER BY seq", [after]
        )
        return [(seq, line) for seq, line in rows]

    def wrote(self, line: str) -> bool:
        """Whether a line of the log is sealed with this ledger's key."""
        self._sealing = self._sealing or self.meta("key")
        return audit.sealed(line, self._sealing)

    def mark(self) -> audit.Mark:
        """Return how far the log was written."""
        return audit.Mark(*json.loads(self.meta("log") or "[]"))

    def set_mark(self, mark: audit.Mark) -> None:
        """Remember how far the log was written."""
        with self.write(synced=False) as book:
            book.set("log", json.dumps(mark))


class Book:
    """The ledger while one transaction holds it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], Stamp],
        draw: Callable[[int], bytes],
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._draw = draw

    def _row(self, sql: str, *values: object) -> Row | None:
        found: Row | None = self._connection.execute(sql, values).fetchone()
        return found

    def _do(self, sql: str, *values: object) -> int:
        return self._connection.execute(sql, values).rowcount

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
        (id, agent, content_key, digest, frozen, origins, card, home, form, replaces, created, kind,
         detail, version) = row  # fmt: skip
        files = self._connection.execute(
            "SELECT name, type, content FROM enclosure WHERE letter = ? ORDER BY place", [id]
        )
        with _parsed(id):
            return Entry(
                letter=_letter(frozen, tuple(Enclosure(*file) for file in files)),
                agent=agent,
                state=life.load(kind, detail),
                created=_stamp(created),
                card=Card.from_json(json.loads(card)),
                digest=digest,
                content_key=content_key,
                home=home,
                form=form,
                replaces=replaces,
                origins=tuple(json.loads(origins)),
                version=version,
            )

    def insert(self, entry: Entry) -> Entry:
        """Enter a letter that is frozen for the first time."""
        letter = entry.letter
        self._connection.execute(
            "INSERT INTO letter VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                letter.id, entry.agent, entry.content_key, _key(letter.text), entry.digest,
                _frozen(letter), json.dumps(entry.origins), _recipients(letter), letter.subject,
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
                _frozen(letter), _key(letter.text), _recipients(letter), letter.subject, entry.id,
            )  # fmt: skip
        self._remember(new)
        return new

    def _remember(self, entry: Entry) -> None:
        self._do(
            "INSERT INTO history VALUES (?, ?, ?, ?)",
            entry.id, entry.version, entry.kind, life.dump(entry.state),
        )  # fmt: skip

    def forget(self, id: str) -> None:
        """Take a rehearsal out, in whose place another comes."""
        self._do("DELETE FROM letter WHERE id = ? AND state = 'rehearsal'", id)
        for table in ("enclosure", "history", "idempotency"):
            self._do(f"DELETE FROM {table} WHERE letter = ?", id)

    def in_state(self, *states: str) -> list[Entry]:
        """Return all letters in these states, oldest first."""
        marks = ", ".join("?" * len(states))
        rows = self._connection.execute(
            f"SELECT {_ENTRY} FROM letter WHERE state IN ({marks}) ORDER BY row", states
        ).fetchall()
        return [self._entry(row) for row in rows]

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
        row = self._row(
            # The plus keeps SQLite from the agent's index, in which all closed letters are too.
            f"SELECT count(*) FROM letter WHERE state IN ({_OPEN}) AND +agent = ?",
            agent,
        )
        return int(row[0]) if row else 0

    def proposals(self, agent: str, most: int) -> list[Stamp]:
        """Return when the agent proposed its last letters, if there are so many; fewer are never too many."""
        newest = "SELECT created FROM letter WHERE agent = ? ORDER BY row DESC LIMIT ?"
        if self._row(f"{newest} OFFSET ?", agent, 1, most - 1) is None:
            return []
        rows = self._connection.execute(newest, [agent, most]).fetchall()
        return [_stamp(created) for (created,) in rows]

    # Limits and slips

    def spent(self, now: Stamp, seconds: float) -> list[Spent]:
        """Return the claims that are younger than this, or may be, oldest first.

        None is older than one before it, whatever a clock said that was behind for a while.
        """
        rows = self._connection.execute(
            "SELECT recipients, thread, wall, boot, steady FROM claim WHERE row >= (SELECT min(row)"
            " FROM claim WHERE (boot = ?1 AND steady > ?2) OR ((boot != ?1 OR boot = '') AND wall > ?3))"
            " ORDER BY row",
            [now.boot, now.steady - seconds, now.wall - seconds],
        ).fetchall()
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
        """Give back what an explicit refusal did not use: the newest claim, and its slip."""
        self._do("DELETE FROM claim WHERE row = (SELECT max(row) FROM claim WHERE letter = ?)", id)
        self._do("UPDATE slip SET letter = '' WHERE letter = ? AND hash = ?", id, slip)

    def used(self, id: str, slip: str) -> bool:
        """Whether this slip let the letter out before, and the person took that back."""
        return bool(
            self._row(
                "SELECT 1 FROM history WHERE letter = ? AND state = 'approved' AND instr(detail, ?)",
                id,
                slip,
            )
        )

    def see_slip(self, hash: str) -> None:
        """Remember when a slip was first seen."""
        self._do("INSERT OR IGNORE INTO slip VALUES (?, ?, '')", hash, json.dumps(self._clock()))

    def spend_slip(self, hash: str, id: str, fresh: Callable[[Stamp], bool]) -> None:
        """Spend a slip on a letter, once, while it is fresh; else `Denied`."""
        row = self._row("SELECT seen FROM slip WHERE hash = ? AND letter IN ('', ?)", hash, id)
        if row is None or not fresh(_stamp(row[0])):
            raise Denied(
                "The slip was spent on another letter, or has lapsed", remedy="Write a new one."
            )
        self._do("UPDATE slip SET letter = ? WHERE hash = ?", id, hash)

    # Notes, tokens, contacts, settings

    def intend(self, id: str, path: str, hash: str) -> None:
        """Remember what is about to be written where, in case nobody comes back to say so."""
        self.set(f"note {id}", f"{hash} {path}")

    def written(self, id: str, place: Place) -> None:
        """Remember where a note stands that was written as intended."""
        self._do("DELETE FROM meta WHERE key = ?", f"note {id}")
        self.set_place(id, place)

    def set_place(self, id: str, place: Place) -> None:
        """Remember where a letter's note stands."""
        self._do("INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", id, *place)

    def adopt(self, hash: str) -> None:
        """Remember a note that was taken from `Plans/`."""
        self._do("INSERT OR IGNORE INTO adopted VALUES (?)", hash)

    def see(self, tokens: frozenset[str], place: str, *, keep: float) -> None:
        """Remember what a mail brought that an agent was shown; forget what was shown before `keep`."""
        now = self._clock().wall
        self._do("DELETE FROM token WHERE at < ?", keep)
        self._connection.executemany(
            "INSERT OR REPLACE INTO token VALUES (?, ?, ?)",
            [(token, place, now) for token in sorted(tokens)],
        )

    def meet(self, account: str, domains: frozenset[str]) -> None:
        """Remember domains that the person has written to."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO contact VALUES (?, ?)",
            [(account, domain) for domain in sorted(domains)],
        )

    def set(self, key: str, value: str) -> None:
        """Keep a value under a key."""
        self._do("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)

    def get(self, key: str) -> str:
        """Return what was kept under this key, or nothing."""
        row = self._row("SELECT value FROM meta WHERE key = ?", key)
        return str(row[0]) if row else ""

    def log(self, action: Action) -> None:
        """Add an action to the chain."""
        row = self._row("SELECT seq, line FROM action ORDER BY seq DESC LIMIT 1")
        seq, previous = (row[0] + 1, audit.digest(row[1])) if row else (1, audit.GENESIS)
        line = audit.write(
            action,
            seq=seq,
            previous=previous,
            desk=self.get("desk"),
            timestamp=self._clock().iso,
            correlation_id=_uuid4(self._draw(16)),
            key=self._key(),
        )
        self._do("INSERT INTO action VALUES (?, ?)", seq, line)

    def _key(self) -> str:
        """Return the key that seals our lines in the log, drawn for the first."""
        key = self.get("key")
        if not key:
            key = self._draw(32).hex()
            self.set("key", key)
        return key

    def take(self, read: audit.Read) -> None:
        """Take over an action that the log has and this ledger has not: what it spent stays spent."""
        self._do("INSERT INTO action VALUES (?, ?)", read.seq, read.line)
        if read.action_type == "claim_letter":
            at = Stamp(datetime.fromisoformat(read.timestamp).timestamp())
            said: dict[str, Any] = read.record.get("parameters", {})
            self._claim(read.letter, said.get("recipients", 1), said.get("thread", ""), at)
            if slip := said.get("slip"):
                self._do(
                    "INSERT OR REPLACE INTO slip VALUES (?, ?, ?)",
                    slip,
                    json.dumps(at),
                    read.letter,
                )


@contextmanager
def _parsed(id: str) -> Iterator[None]:
    """Say in our words that the ledger holds what nobody wrote."""
    try:
        yield
    except (ValueError, KeyError, TypeError, Invalid) as why:
        raise Corrupt(
            f"The ledger's entry of the letter {id} does not parse",
            remedy="Put a backup of the state folder in its place.",
        ) from why


# Letters as JSON


def _frozen(letter: Letter) -> str:
    people = {
        part: [[a.local, a.domain, a.name] for a in getattr(letter, part)]
        for part in ("to", "cc", "bcc", "reply_to")
    }
    sender = letter.sender
    return json.dumps(
        {
            "id": letter.id,
            "account": letter.account,
            "sender": [sender.local, sender.domain, sender.name],
            **people,
            "subject": letter.subject,
            "text": letter.text,
            "html": letter.html,
            "thread": letter.thread,
            "in_reply_to": letter.in_reply_to,
            "references": letter.references,
        },
        ensure_ascii=False,
    )


def _letter(frozen: str, attachments: tuple[Enclosure, ...]) -> Letter:
    values: dict[str, Any] = json.loads(frozen)
    for part in ("to", "cc", "bcc", "reply_to"):
        values[part] = tuple(Address(*address) for address in values[part])
    values["sender"] = Address(*values["sender"])
    values["references"] = tuple(values["references"])
    return Letter(**values, attachments=attachments)


def _line(row: Row) -> Line:
    id, agent, recipients, subject, card, home, created, kind, detail = row
    with _parsed(id):
        lines, at, state = json.loads(card), _stamp(created), life.load(kind, detail)
        level, _, warning = lines[0] if lines else (0, "", "")
        return Line(id, agent, recipients, subject, level, warning, home, at, state)


def _standing(row: Row) -> Standing:
    id, kind, detail, version = row
    with _parsed(id):
        return Standing(life.load(kind, detail), version)


def _recipients(letter: Letter) -> str:
    return ", ".join(address.spec for address in letter.envelope)


def _stamp(text: str) -> Stamp:
    return Stamp(*json.loads(text))


def _key(text: str) -> str:
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest() if text.strip() else ""


def _uuid4(drawn: bytes) -> str:
    # RFC 9562 section 5.4: version and variant over random bits.
    octets = bytearray(drawn)
    octets[6] = octets[6] & 0x0F | 0x40
    octets[8] = octets[8] & 0x3F | 0x80
    text = octets.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
