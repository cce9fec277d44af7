"""What agents do with mail, in the ledger's tables: what they were shown, the drafts and moves they made."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping

from postroom.core.records import LabelChange, ShownMail
from postroom.core.stamp import Stamp
from postroom.store.database import Row


class Handling:
    """The part of a transaction that is about mail, not letters."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], Stamp]) -> None:
        self._connection = connection
        self._clock = clock

    def _row(self, sql: str, *values: object) -> Row | None:
        found: Row | None = self._connection.execute(sql, values).fetchone()
        return found

    def _rows(self, sql: str, *values: object) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def _do(self, sql: str, *values: object) -> int:
        return self._connection.execute(sql, values).rowcount

    def set(self, key: str, value: str) -> None:
        """Keep a value under a key."""
        self._do("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)

    def get(self, key: str) -> str:
        """Return what was kept under this key, or nothing."""
        row = self._row("SELECT value FROM meta WHERE key = ?", key)
        return str(row[0]) if row else ""

    def record_exposure(self, mail: ShownMail, tokens: Mapping[str, Collection[str]]) -> None:
        """Record which tokens a mail shows, by the part of the mail that they stand in.

        A token that the mail has shown before keeps the time when it did so first.
        """
        now = self._clock().wall
        ((message,),) = self._rows(
            "INSERT INTO shown_mail VALUES (NULL, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, id)"
            " DO UPDATE SET sent = excluded.sent, last_at = excluded.last_at RETURNING row",
            *mail, now,
        )  # fmt: skip
        self._connection.executemany(
            "INSERT INTO exposure VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (token, message, part)"
            " DO UPDATE SET last_at = excluded.last_at",
            [
                (token, message, mail.sender, part, now, now)
                for part, found in tokens.items()
                for token in sorted(found)
            ],
        )

    def forget_exposures(self, before: float) -> None:
        """Delete what no mail has shown since this time."""
        self._do("DELETE FROM exposure WHERE last_at < ?", before)
        self._do("DELETE FROM shown_mail WHERE last_at < ?", before)

    def record_correspondents(self, account: str, addresses: frozenset[str]) -> None:
        """Record addresses that the person has written to."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO correspondent VALUES (?, ?)",
            [(account, address) for address in sorted(addresses)],
        )

    def drafted(self, account: str, id: str) -> tuple[str, str] | None:
        """Return the version in which Postroom left a draft, and its agent, if it made the draft."""
        row = self._row(
            "SELECT version, agent FROM drafted WHERE account = ? AND id = ?", account, id
        )
        return (row[0], row[1]) if row else None

    def keep_draft(self, account: str, id: str, version: str, agent: str) -> None:
        """Remember the version in which Postroom left a draft."""
        self._do("INSERT OR REPLACE INTO drafted VALUES (?, ?, ?, ?)", account, id, version, agent)

    def drafts(self, account: str, agent: str) -> list[str]:
        """Return the drafts that Postroom made for this agent."""
        sql = "SELECT id FROM drafted WHERE account = ? AND agent = ?"
        return [id for (id,) in self._rows(sql, account, agent)]

    def drop_draft(self, account: str, id: str) -> None:
        """Forget a draft that is gone."""
        self._do("DELETE FROM drafted WHERE account = ? AND id = ?", account, id)

    def recent_moves(self, most: int) -> list[Stamp]:
        """Return when agents last moved or labelled a mail, so many times at most."""
        sql = "SELECT at, boot, steady FROM move ORDER BY number DESC LIMIT ?"
        return [Stamp(*row) for row in self._rows(sql, most)]

    def move(self, move: LabelChange) -> int:
        """Remember a move by its inverse, and return its number."""
        values = (json.dumps(sorted(labels)) for labels in (move.added, move.removed))
        now = self._clock()
        ((number,),) = self._rows(
            "INSERT INTO move VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
            now.wall, move.agent, move.account, move.message, *values, now.boot, now.steady,
        )  # fmt: skip
        return int(number)

    def unmove(self, number: int) -> None:
        """Forget a move that did not happen, or was undone."""
        self._do("DELETE FROM move WHERE number = ?", number)
