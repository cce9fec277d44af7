"""The desk itself: its settings, the chain of audit lines, and who may use the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from postroom.core import audit
from postroom.core.audit import Action, LogPosition, ParsedLine
from postroom.core.records import DeskSettings
from postroom.core.stamp import Stamp
from postroom.store.protocol import Clock, Session
from postroom.store.sql.rows import Noun
from postroom.store.sql.sending import BudgetStore

TICKET_SECONDS: Final = 600.0  # in which a one-time address must be used
SESSION_SECONDS: Final = 30 * 86_400.0  # after which a browser must sign in again
MAX_SESSIONS: Final = 200  # tickets, and sessions, that are kept
_NAMES: Final = tuple(field.name for field in fields(DeskSettings))


class SettingStore(Noun):
    """The settings as one transaction sees them."""

    _value: DeskSettings | None = None

    @property
    def value(self) -> DeskSettings:
        """The settings, read once."""
        if self._value is None:
            self._value = load_settings(self._session)
        return self._value

    def forget(self) -> None:
        """Read them again next time."""
        self._value = None

    def save(self, settings: DeskSettings) -> None:
        """Write the fields that differ."""
        before = self.value
        changed = [name for name in _NAMES if getattr(settings, name) != getattr(before, name)]
        if changed:
            names = ", ".join(f"{name} = ?" for name in changed)
            values = [getattr(settings, name) for name in changed]
            sql = f"UPDATE desk SET {names}"
            if not self._session.run(sql, values):  # somebody emptied the table
                self._session.run("INSERT INTO desk (sync_count) VALUES (?)", [0])
                self._session.run(sql, values)
            self._value = settings


def load_settings(session: Session) -> DeskSettings:
    """Return the settings as they are now."""
    row = session.row(f"SELECT {', '.join(_NAMES)} FROM desk")
    if row is None:
        return DeskSettings()
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    values["approval_required"] = bool(values["approval_required"])
    return DeskSettings(**values)


class LogBacklog(NamedTuple):
    """How far the log was written, the number of the last line, and the lines that the log lacks."""

    position: LogPosition
    head: int
    lines: list[tuple[int, str]]


class ActionReader(Noun):
    """The chain of audit lines."""

    def head(self) -> int:
        """Return the number of the last line."""
        ((last,),) = self._session.rows("SELECT max(seq) FROM action")
        return int(last or 0)

    def backlog(self) -> LogBacklog:
        """Return what the log still lacks."""
        found = self._session.rows(
            "SELECT log_seq, log_name, log_size, log_changed, (SELECT max(seq) FROM action), seq, line"
            " FROM desk LEFT JOIN action ON seq > log_seq ORDER BY seq"
        )
        if not found:
            return LogBacklog(LogPosition(), self.head(), self.after())
        lines = [(row[5], row[6]) for row in found if row[5] is not None]
        return LogBacklog(LogPosition(*found[0][:4]), found[0][4] or 0, lines)

    def after(self, number: int = 0) -> list[tuple[int, str]]:
        """Return the lines past this number, each with its number."""
        sql = "SELECT seq, line FROM action WHERE seq > ? ORDER BY seq"
        return [(seq, line) for seq, line in self._session.rows(sql, [number])]


class ActionStore(ActionReader):
    """The chain of audit lines, to be added to."""

    def __init__(
        self, session: Session, clock: Clock, draw: Callable[[int], bytes], settings: SettingStore
    ) -> None:
        super().__init__(session, clock)
        self._draw = draw
        self._settings = settings
        # The end of the chain as this process saw it last, and what new lines name; verified when one is added.
        self._seq, self._line, self._desk_id, self._seal_key = 0, "", "", ""
        self.last = 0  # the last line that this transaction added

    def append(self, action: Action) -> None:
        """Add a line to the chain."""
        from uuid import UUID  # who only reads needs none

        id = str(UUID(bytes=self._draw(16), version=4))
        line = self._next_line(action, id)
        if not self._insert_if_current(line):
            self._read_head()
            line = self._next_line(action, id)
            sql = "INSERT INTO action (seq, line) VALUES (?, ?)"
            self._session.run(sql, [self._seq + 1, line])
        self._seq, self._line, self.last = self._seq + 1, line, self._seq + 1

    def _next_line(self, action: Action, id: str) -> str:
        return audit.write(
            action,
            seq=self._seq + 1,
            previous=audit.digest(self._line) if self._line else audit.GENESIS,
            desk=self._desk_id,
            timestamp=self._clock().iso,
            correlation_id=id,
            key=self._seal_key,
        )

    def _insert_if_current(self, line: str) -> bool:
        """Add a line if the chain, the desk and its key are still what the line was made for."""
        if not self._seal_key:
            return False
        sql = (
            "INSERT INTO action (seq, line) SELECT ?, ? FROM desk WHERE desk_id = ? AND seal_key = ?"
            " AND coalesce((SELECT line FROM action ORDER BY seq DESC LIMIT 1), '') = ?"
        )
        values = [self._seq + 1, line, self._desk_id, self._seal_key, self._line]
        return self._session.run(sql, values) > 0

    def _read_head(self) -> None:
        if not self._settings.value.seal_key:
            self._settings.save(replace(self._settings.value, seal_key=self._draw(32).hex()))
        row = self._session.row(
            "SELECT coalesce(seq, 0), coalesce(line, ''), desk_id, seal_key FROM desk"
            " LEFT JOIN action ON seq = (SELECT max(seq) FROM action)"
        )
        self._seq, self._line, self._desk_id, self._seal_key = row or (0, "", "", "")

    def save_position(self, position: LogPosition) -> None:
        """Record how far the log was written."""
        names = ", ".join(f"log_{name} = ?" for name in LogPosition._fields)
        self._session.run(f"UPDATE desk SET {names}", position)

    def import_from_log(self, line: ParsedLine) -> None:
        """Take over a line that the log has and this ledger has not: what it spent stays spent."""
        sql = "INSERT INTO action (seq, line) VALUES (?, ?)"
        self._session.run(sql, [line.seq, line.line])
        if line.action_type != "claim_letter":
            return
        at = Stamp(datetime.fromisoformat(line.timestamp).timestamp())
        about: dict[str, Any] = line.record.get("parameters", {})
        BudgetStore(self._session, self._clock).add(
            line.letter, about.get("recipients", 1), about.get("thread", ""), at
        )
        if slip := about.get("slip"):
            self._session.run(
                "INSERT INTO slip (hash, seen, letter) VALUES (?, ?, ?) ON CONFLICT (hash)"
                " DO UPDATE SET seen = excluded.seen, letter = excluded.letter",
                [slip, json.dumps(at), line.letter],
            )


class SessionReader(Noun):
    """Who may use the page. Only hashes of secrets are kept."""

    def is_ticket_valid(self, ticket: str) -> bool:
        """Whether this one-time secret still opens the page."""
        return self._person("ticket", ticket, TICKET_SECONDS) is not None

    def person(self, secret: str) -> str | None:
        """Return whose browser has this secret, if its session has not ended."""
        return self._person("web_session", secret, SESSION_SECONDS)

    def _person(self, table: str, secret: str, seconds: float) -> str | None:
        row = self._session.row(f"SELECT person, at FROM {table} WHERE hash = ?", [_hash(secret)])
        # A clock that was set back makes it older too, never younger.
        return str(row[0]) if row and abs(self._clock().wall - row[1]) < seconds else None


class SessionStore(SessionReader):
    """Who may use the page from now on."""

    def issue_ticket(self, ticket: str, person: str) -> None:
        """Let this secret open the page once, for the person of this name."""
        self._add("ticket", ticket, person)

    def redeem_ticket(self, ticket: str, secret: str) -> str | None:
        """Spend a ticket and begin a session with this secret; return whose it is, if the ticket was valid."""
        person = self._person("ticket", ticket, TICKET_SECONDS)
        if person is None or not self._remove("ticket", ticket):
            return None
        self._add("web_session", secret, person)
        return person

    def end(self, secret: str) -> None:
        """End the session with this secret."""
        self._remove("web_session", secret)

    def _add(self, table: str, secret: str, person: str) -> None:
        self._session.run(
            f"INSERT INTO {table} (hash, person, at) VALUES (?, ?, ?)",
            [_hash(secret), person, self._clock().wall],
        )
        sql = f"DELETE FROM {table} WHERE row <= (SELECT max(row) FROM {table}) - ?"
        self._session.run(sql, [MAX_SESSIONS])

    def _remove(self, table: str, secret: str) -> bool:
        return self._session.run(f"DELETE FROM {table} WHERE hash = ?", [_hash(secret)]) > 0


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
