"""The baseline of search: a plain contentless FTS5 table of the same mails, row ids in order of date."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bench import mails

COMMIT_EVERY = 10_000


def build(file: Path, count: int) -> None:
    """Fill the table with that many mails; those in the trash, which no search shows, are left out."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(
        "CREATE VIRTUAL TABLE bare USING fts5(body, subject, sender, marks, content = '')"
    )
    for start in range(0, count, COMMIT_EVERY):
        made = (mails.mail(rank, count) for rank in range(start, min(start + COMMIT_EVERY, count)))
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO bare (rowid, body, subject, sender, marks) VALUES (?, ?, ?, ?, ?)",
            ((m.rank, m.text, m.subject, m.sender, m.marks) for m in made if not m.trashed),
        )
        connection.execute("COMMIT")
    connection.close()


class Bare:
    """The table, asked for the newest."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file)

    def newest(self, condition: str, values: tuple[object, ...], limit: int) -> list[int]:
        """Return the ranks of the newest mails for which the condition holds."""
        found = self._connection.execute(
            f"SELECT rowid FROM bare WHERE {condition} ORDER BY rowid DESC LIMIT ?",
            (*values, limit),
        )
        return [rank for (rank,) in found.fetchall()]

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
