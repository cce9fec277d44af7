"""Letters as lists and charts show them: short rows, found by state, agent, words or day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from postroom.core import life
from postroom.core.records import DAY, AgentActivity, LetterSummary
from postroom.store.database import Database
from postroom.store.sqlite import rows
from postroom.store.sqlite.rows import OPEN, SUMMARY, marks

PATIENCE: Final = 3.0  # seconds for a search, which others wait for
CHARTED: Final = ("approved", "rejected", "sent")


class SqlLists:
    """Implements `store.protocol.LetterLists`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def summaries(
        self,
        *states: str,
        words: Sequence[str] = (),
        agent: str | None = None,
        newest: int | None = None,
        skip: int = 0,
        by_outcome: bool = False,
    ) -> list[LetterSummary]:
        where, values = _where(states, words, agent)
        order = "decided_at DESC, row DESC" if by_outcome else "row DESC"
        sql = f"SELECT {SUMMARY} FROM letter WHERE {where} ORDER BY {order}"
        if newest is not None:
            sql, values = f"{sql} LIMIT ? OFFSET ?", [*values, newest, skip]
        found = self._database.rows(sql, values, patience=PATIENCE if words else None)
        return [rows.summary(row) for row in reversed(found)]

    def count(self, *states: str, words: Sequence[str] = (), agent: str | None = None) -> int:
        where, values = _where(states, words, agent)
        sql = f"SELECT count(*) FROM letter WHERE {where}"
        patience = PATIENCE if words else None
        return int(self._database.rows(sql, values, patience=patience)[0][0])

    def change_token(self) -> tuple[int, ...]:
        row = self._database.row(
            "SELECT count(*), coalesce(sum(version), 0), (SELECT max(row) FROM letter)"
            f" FROM letter WHERE state IN ({OPEN})"
        )
        return tuple(int(part or 0) for part in row or ())

    def agents(self) -> list[AgentActivity]:
        found: dict[str, AgentActivity] = {}
        sql = "SELECT agent, state, count(*), max(created_at) FROM letter GROUP BY agent, state"
        for agent, state, count, last in self._database.rows(sql):
            known = found.get(agent, AgentActivity(agent, {}, 0.0))
            states = known.states | {state: count}
            found[agent] = AgentActivity(agent, states, max(known.last, last))
        return sorted(found.values(), key=lambda one: -one.last)

    def per_day(self, since: float, offset: int) -> dict[int, dict[str, int]]:
        found: dict[int, dict[str, int]] = {}
        # A letter that is held has several rows of one verdict.
        sql = (
            "SELECT DISTINCT letter, state, decided_at FROM history"
            f" WHERE decided_at >= ? AND state IN ({marks(CHARTED)})"
        )
        for _, state, at in self._database.rows(sql, [since, *CHARTED]):
            day = found.setdefault(int((at + offset) // DAY), {})
            day[state] = day.get(state, 0) + 1
        return found


def _where(
    states: Sequence[str], words: Sequence[str], agent: str | None
) -> tuple[str, list[str | int]]:
    chosen = [state for state in states if state in life.STATES] or life.OPEN
    parts, values = [f"state IN ({marks(chosen)})"], list[str | int](chosen)
    if agent is not None:
        parts.append("agent = ?")
        values.append(agent)
    for word in words:
        # No text has a NUL, and what follows one would not be compared.
        parts.append("1 = 0" if "\0" in word else "search_text LIKE ? ESCAPE '!'")
        if "\0" not in word:
            values.append(f"%{_escape(word.casefold())}%")
    return " AND ".join(parts), values


def _escape(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
