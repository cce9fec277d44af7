"""The baseline of search: a plain contentless FTS5 table of the same mails, row ids in order of date, and a table of their lines."""

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
    connection.execute("CREATE TABLE line (rank INTEGER PRIMARY KEY, date, sender, subject, start)")
    for start in range(0, count, COMMIT_EVERY):
        ranks = range(start, min(start + COMMIT_EVERY, count))
        made = [mail for mail in (mails.mail(rank, count) for rank in ranks) if not mail.trashed]
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO bare (rowid, body, subject, sender, marks) VALUES (?, ?, ?, ?, ?)",
            ((m.rank, m.text, m.subject, m.sender, m.marks) for m in made),
        )
        connection.executemany(
            "INSERT INTO line VALUES (?, ?, ?, ?, ?)",
            ((m.rank, m.date, m.sender, m.subject, m.text[:200]) for m in made),
        )
        connection.execute("COMMIT")
    connection.close()


class Bare:
    """Both tables, asked for the newest mails as a list shows them."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file)

    def newest(self, condition: str, values: tuple[object, ...], limit: int) -> list[int]:
        """Return the ranks of the newest mails for which the condition holds, after reading their lines."""
        found = self._connection.execute(
            "SELECT line.* FROM (SELECT rowid AS rank FROM bare"
            f" WHERE {condition} ORDER BY rowid DESC LIMIT ?) JOIN line USING (rank) ORDER BY rank DESC",
            (*values, limit),
        )
        return [row[0] for row in found.fetchall()]

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
