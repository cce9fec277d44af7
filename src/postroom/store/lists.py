"""Letters as lists and charts show them: short rows, found by state, agent, words or day."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.core import life
from postroom.core.records import AgentActivity, LetterSummary
from postroom.store import entries
from postroom.store.database import Database

_LINE = "id, agent, recipients, subject, card, created, state, detail"
OPEN = ", ".join(f"'{kind}'" for kind in life.OPEN)
PATIENCE = 3.0  # seconds for a search, which others wait for
_DECIDED = "coalesce(json_extract(detail, '$.at[0]'), json_extract(created, '$[0]'))"


class Lists:
    """The part of the ledger that lists letters."""

    _database: Database

    def lines(
        self, *states: str, agent: str | None = None, newest: int = -1, skip: int = 0
    ) -> list[LetterSummary]:
        """Return the letters in these states (all open ones without any), oldest first.

        Of more than `newest`, the newest after the `skip` that are newer still; less than 0 is no bound.
        """
        return self.found((), *states, agent=agent, newest=newest, skip=skip)

    def found(
        self,
        words: Sequence[str],
        *states: str,
        agent: str | None = None,
        newest: int = -1,
        skip: int = 0,
        by_outcome: bool = False,
    ) -> list[LetterSummary]:
        """Return those of them that have all these words: in a recipient, the subject, the text, the agent's name or the id."""
        where, values = self._where(words, states, agent)
        order = f"{_DECIDED} DESC, row DESC" if by_outcome else "row DESC"
        rows = self._database.rows(
            f"SELECT {_LINE} FROM letter WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?",
            [*values, newest, skip],
            patience=PATIENCE if words else None,
        )
        return [entries.line(row) for row in reversed(rows)]

    def count(self, words: Sequence[str], *states: str, agent: str | None = None) -> int:
        """Return how many `found` would find."""
        where, values = self._where(words, states, agent)
        patience = PATIENCE if words else None
        sql = f"SELECT count(*) FROM letter WHERE {where}"
        return int(self._database.rows(sql, values, patience=patience)[0][0])

    def _where(
        self, words: Sequence[str], states: Sequence[str], agent: str | None
    ) -> tuple[str, list[str]]:
        chosen = ", ".join(f"'{kind}'" for kind in states if kind in life.STATES) or OPEN
        parts, values = [f"state IN ({chosen})"], list[str]()
        if agent is not None:
            # The plus keeps SQLite from the agent's index, in which all closed letters are too.
            parts.append("+agent = ?")
            values.append(agent)
        for word in words:
            # SQLite folds the case of ASCII alone.
            spellings = dict.fromkeys((word, word.lower(), word.upper(), word.capitalize()))
            place = "agent || ' ' || id || ' ' || recipients || ' ' || subject || ' ' || json_extract(frozen, '$.text')"
            parts.append(f"({' OR '.join([f'instr(lower({place}), ?)'] + [f'instr({place}, ?)'] * len(spellings))})")  # fmt: skip
            values += [word.lower(), *spellings]
        return " AND ".join(parts), values

    def pulse(self) -> tuple[int, ...]:
        """Return what differs once a letter of the queue has come, gone or changed."""
        row = self._database.row(
            f"SELECT count(*), total(version), (SELECT max(row) FROM letter) FROM letter WHERE state IN ({OPEN})"
        )
        return tuple(int(part or 0) for part in row or ())

    def tallies(self) -> list[AgentActivity]:
        """Return each agent that has written letters, who wrote last first."""
        rows = self._database.rows(
            "SELECT agent, state, count(*), max(json_extract(created, '$[0]')) FROM letter GROUP BY agent, state"
        )
        found: dict[str, AgentActivity] = {}
        for agent, state, count, last in rows:
            known = found.get(agent, AgentActivity(agent, {}, 0.0))
            found[agent] = AgentActivity(
                agent, known.states | {state: count}, max(known.last, last)
            )
        return sorted(found.values(), key=lambda one: -one.last)

    def days(self, since: float, offset: int) -> dict[int, dict[str, int]]:
        """Return how many letters were approved, rejected and sent on each day since; days begin `offset` seconds before UTC's."""
        rows = self._database.rows(
            "SELECT state, CAST((at + ?) / 86400 AS INTEGER) AS day, count(DISTINCT letter || at)"
            " FROM (SELECT letter, state, CASE state WHEN 'approved' THEN"
            " json_extract(detail, '$.verdict[2][0]') ELSE json_extract(detail, '$.at[0]') END AS at"
            " FROM history WHERE state IN ('approved', 'rejected', 'sent'))"
            " WHERE at >= ? GROUP BY state, day",
            [offset, since],
        )
        found: dict[int, dict[str, int]] = {}
        for state, day, count in rows:
            found.setdefault(int(day), {})[state] = count
        return found
