"""Who is let in to the page: addresses that open it once, and browsers that were let in. Only hashes are kept."""

from __future__ import annotations

import hashlib

from postroom.store.handling import Handling

TICKET_SECONDS = 600.0  # in which a one-time address must be used
VISIT_SECONDS = 30 * 86_400.0  # after which a browser must be let in again
MOST = 200  # of each that are kept


class Visits(Handling):
    """The part of a transaction that is about the page's door."""

    def issue(self, ticket: str, person: str) -> None:
        """Let this secret open the page once, for the person of this name."""
        self._keep("ticket", ticket, person)

    def valid(self, ticket: str) -> bool:
        """Whether this secret still opens the page."""
        return self._whose("ticket", ticket, TICKET_SECONDS) is not None

    def redeem(self, ticket: str, visit: str) -> str | None:
        """Spend a secret, and let the browser in that now has the other; return whose it is, if it still opened."""
        person = self._whose("ticket", ticket, TICKET_SECONDS)
        if person is not None and self._do("DELETE FROM ticket WHERE hash = ?", _hash(ticket)):
            self._keep("visit", visit, person)
            return person
        return None

    def visitor(self, visit: str) -> str | None:
        """Return who the browser with this secret was let in for, if it still is."""
        return self._whose("visit", visit, VISIT_SECONDS)

    def dismiss(self, visit: str) -> None:
        """Let the browser with this secret in no more."""
        self._do("DELETE FROM visit WHERE hash = ?", _hash(visit))

    def _keep(self, table: str, secret: str, person: str) -> None:
        self._do(f"INSERT INTO {table} VALUES (NULL, ?, ?, ?)", _hash(secret), person, self._clock().wall)  # fmt: skip
        self._do(f"DELETE FROM {table} WHERE row <= (SELECT max(row) FROM {table}) - ?", MOST)

    def _whose(self, table: str, secret: str, lasts: float) -> str | None:
        row = self._row(f"SELECT person, at FROM {table} WHERE hash = ?", _hash(secret))
        # A clock that was set back makes it older too, never younger.
        return str(row[0]) if row and abs(self._clock().wall - row[1]) < lasts else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
