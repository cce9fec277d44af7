"""What agents saw of mail and did with it, and who may use the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from postroom.core.card import Exposure
from postroom.core.records import LabelChange, ShownMail
from postroom.core.stamp import Stamp
from postroom.store.database import Database, Row
from postroom.store.sqlite.rows import marks

BATCH: Final = 500  # tokens in one query
MOST_SENDERS: Final = 3  # mails that are named for a token
TICKET_SECONDS: Final = 600.0  # in which a one-time address must be used
SESSION_SECONDS: Final = 30 * 86_400.0  # after which a browser must sign in again
MAX_SESSIONS: Final = 200  # tickets, and sessions, that are kept


class SqlExposures:
    """Implements `store.protocol.ExposureStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def find(self, tokens: Collection[str], since: float) -> dict[str, tuple[Exposure, ...]]:
        found: dict[str, dict[int, Exposure]] = {}
        rows = self._shown(sorted(tokens), since)
        oldest = {row[0]: row for row in sorted(rows, key=lambda row: (-row[7], -row[5]))}
        sent_first = [row for row in oldest.values() if row[5]]
        for token, message, sender, subject, date, sent, part, _ in sent_first + rows:
            mails = found.setdefault(token, {})
            if message in mails:
                mails[message] = replace(mails[message], parts=mails[message].parts | {part})
            elif sender not in [one.sender for one in mails.values()] and len(mails) < MOST_SENDERS:
                mails[message] = Exposure(sender, subject, date, bool(sent), frozenset({part}))
        return {token: tuple(mails.values()) for token, mails in found.items()}

    def _shown(self, tokens: list[str], since: float) -> list[Row]:
        found: list[Row] = []
        for at in range(0, len(tokens), BATCH):
            some = tokens[at : at + BATCH]
            found += self._database.rows(
                "SELECT token, message, exposure.sender, subject, date, sent, part,"
                " CASE WHEN date > 0 AND date < first_at THEN date ELSE first_at END AS age"
                " FROM exposure JOIN shown_mail ON row = message"
                f" WHERE token IN ({marks(some)}) AND exposure.last_at > ?"
                " ORDER BY first_at, age, row",
                [*some, since],
            )
        return found

    def correspondents(self, account: str) -> frozenset[str]:
        sql = "SELECT address FROM correspondent WHERE account = ?"
        return frozenset(address for (address,) in self._database.rows(sql, [account]))

    def last_sent(self, account: str) -> str:
        row = self._database.row("SELECT message FROM last_sent WHERE account = ?", [account])
        return str(row[0]) if row else ""

    def record(self, mail: ShownMail, tokens: Mapping[str, Collection[str]]) -> None:
        now = self._clock().wall
        ((message,),) = self._database.rows(
            "INSERT INTO shown_mail (account, id, sender, subject, date, sent, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, id)"
            " DO UPDATE SET sent = excluded.sent, last_at = excluded.last_at RETURNING row",
            [*mail, now],
        )
        self._database.run_many(
            "INSERT INTO exposure (token, message, sender, part, first_at, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (token, message, part)"
            " DO UPDATE SET last_at = excluded.last_at",
            [
                (token, message, mail.sender, part, now, now)
                for part, found in tokens.items()
                for token in sorted(found)
            ],
        )

    def forget_before(self, before: float) -> None:
        self._database.run("DELETE FROM exposure WHERE last_at < ?", [before])
        self._database.run("DELETE FROM shown_mail WHERE last_at < ?", [before])

    def add_correspondents(self, account: str, addresses: Collection[str], last_sent: str) -> None:
        self._database.run_many(
            "INSERT INTO correspondent (account, address) VALUES (?, ?)"
            " ON CONFLICT (account, address) DO NOTHING",
            [(account, address) for address in sorted(addresses)],
        )
        self._database.run(
            "INSERT INTO last_sent (account, message) VALUES (?, ?)"
            " ON CONFLICT (account) DO UPDATE SET message = excluded.message",
            [account, last_sent],
        )


class SqlDrafts:
    """Implements `store.protocol.DraftStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, account: str, id: str) -> tuple[str, str] | None:
        sql = "SELECT version, agent FROM provider_draft WHERE account = ? AND id = ?"
        row = self._database.row(sql, [account, id])
        return (row[0], row[1]) if row else None

    def of_agent(self, account: str, agent: str) -> list[str]:
        sql = "SELECT id FROM provider_draft WHERE account = ? AND agent = ?"
        return [id for (id,) in self._database.rows(sql, [account, agent])]

    def save(self, account: str, id: str, version: str, agent: str) -> None:
        self._database.run(
            "INSERT INTO provider_draft (account, id, version, agent) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (account, id) DO UPDATE SET version = excluded.version, agent = excluded.agent",
            [account, id, version, agent],
        )

    def remove(self, account: str, id: str) -> None:
        sql = "DELETE FROM provider_draft WHERE account = ? AND id = ?"
        self._database.run(sql, [account, id])


class SqlLabelChanges:
    """Implements `store.protocol.LabelChangeStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def newest(self, count: int = 1000) -> list[LabelChange]:
        found = self._database.rows(
            "SELECT number, at, agent, account, message, added, removed FROM label_change"
            " ORDER BY number DESC LIMIT ?",
            [count],
        )
        return [
            LabelChange(*row[:5], *(frozenset(json.loads(labels)) for labels in row[5:]))
            for row in found
        ]

    def times(self, count: int) -> list[Stamp]:
        sql = "SELECT at, boot, steady FROM label_change ORDER BY number DESC LIMIT ?"
        return [Stamp(*row) for row in self._database.rows(sql, [count])]

    def add(self, change: LabelChange) -> int:
        added, removed = (json.dumps(sorted(one)) for one in (change.added, change.removed))
        ((number,),) = self._database.rows(
            "INSERT INTO label_change (agent, account, message, added, removed, at, boot, steady)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
            [change.agent, change.account, change.message, added, removed, *self._clock()],
        )
        return int(number)

    def remove(self, number: int) -> None:
        self._database.run("DELETE FROM label_change WHERE number = ?", [number])


class SqlWebSessions:
    """Implements `store.protocol.SessionStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def is_ticket_valid(self, ticket: str) -> bool:
        return self._person("ticket", ticket, TICKET_SECONDS) is not None

    def person(self, secret: str) -> str | None:
        return self._person("web_session", secret, SESSION_SECONDS)

    def _person(self, table: str, secret: str, seconds: float) -> str | None:
        row = self._database.row(f"SELECT person, at FROM {table} WHERE hash = ?", [_hash(secret)])
        # A clock that was set back makes it older too, never younger.
        return str(row[0]) if row and abs(self._clock().wall - row[1]) < seconds else None

    def issue_ticket(self, ticket: str, person: str) -> None:
        self._add("ticket", ticket, person)

    def redeem_ticket(self, ticket: str, secret: str) -> str | None:
        person = self._person("ticket", ticket, TICKET_SECONDS)
        if person is None or not self._remove("ticket", ticket):
            return None
        self._add("web_session", secret, person)
        return person

    def end(self, secret: str) -> None:
        self._remove("web_session", secret)

    def _add(self, table: str, secret: str, person: str) -> None:
        self._database.run(
            f"INSERT INTO {table} (hash, person, at) VALUES (?, ?, ?)",
            [_hash(secret), person, self._clock().wall],
        )
        sql = f"DELETE FROM {table} WHERE row <= (SELECT max(row) FROM {table}) - ?"
        self._database.run(sql, [MAX_SESSIONS])

    def _remove(self, table: str, secret: str) -> bool:
        return self._database.run(f"DELETE FROM {table} WHERE hash = ?", [_hash(secret)]) > 0


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
