"""What sending leaves behind: proofs, the budget that claims use up, and the chain of audit lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from postroom.core import audit, life
from postroom.core.audit import Action, ParsedLine
from postroom.core.letter import Letter
from postroom.core.policy import Spent
from postroom.core.records import Entry, ProviderProof
from postroom.core.stamp import Stamp, elapsed
from postroom.store.database import Database
from postroom.store.sqlite import rows
from postroom.store.sqlite.rows import OPEN
from postroom.store.sqlite.settings import SqlSettings

MAX_CLAIMS = 100_000  # that are remembered; more than any window has room for
PRUNE_EVERY = 1000  # claims


class SqlProofs:
    """Implements `store.protocol.ProofStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def get(self, id: str) -> ProviderProof | None:
        sql = "SELECT proof, digest, unanswered FROM proof WHERE letter = ?"
        row = self._database.row(sql, [id])
        return ProviderProof(*row) if row else None

    def unreleased(self) -> list[str]:
        sql = f"SELECT letter FROM proof JOIN letter ON id = letter WHERE state NOT IN ({OPEN})"
        return [id for (id,) in self._database.rows(sql)]

    def orphans(self) -> dict[str, tuple[Stamp, Stamp | None]]:
        found = self._database.rows("SELECT letter, since, swept FROM orphan ORDER BY letter")
        return {
            id: (rows.stamp(since), rows.stamp(swept) if swept else None)
            for id, since, swept in found
        }

    def keep(self, entry: Entry, proof: str) -> None:
        row = self._database.row(
            "SELECT id, state, detail, version FROM letter WHERE id = ?", [entry.id]
        )
        now = rows.letter_state(row or (entry.id, "", "", 0))
        if now.version != entry.version:
            raise life.refuse(entry.id, now.state, "sent")
        self._database.run(
            "INSERT INTO proof (letter, proof, digest, unanswered) VALUES (?, ?, ?, 1)"
            " ON CONFLICT (letter) DO UPDATE SET proof = excluded.proof, digest = excluded.digest,"
            " unanswered = CASE WHEN proof.proof = excluded.proof THEN proof.unanswered + 1 ELSE 1 END",
            [entry.id, proof, entry.digest],
        )

    def mark_answered(self, id: str) -> None:
        sql = "UPDATE proof SET unanswered = unanswered - 1 WHERE letter = ?"
        self._database.run(sql, [id])

    def drop(self, id: str, proof: str = "", *, unanswered: bool = True) -> bool:
        sql, values = "DELETE FROM proof WHERE letter = ?", [id]
        if proof:
            sql, values = f"{sql} AND proof = ?", [id, proof]
        if not unanswered:
            sql = f"{sql} AND unanswered = 0"
        return self._database.run(sql, values) > 0

    def add_orphan(self, id: str, since: Stamp | None = None, swept: Stamp | None = None) -> None:
        self._database.run(
            "INSERT INTO orphan (letter, since, swept) VALUES (?, ?, ?) ON CONFLICT (letter)"
            " DO UPDATE SET since = excluded.since, swept = excluded.swept",
            [id, json.dumps(since or self._clock()), json.dumps(swept) if swept else ""],
        )

    def drop_orphan(self, id: str) -> None:
        self._database.run("DELETE FROM orphan WHERE letter = ?", [id])


class SqlBudget:
    """Implements `store.protocol.BudgetStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def spent(self, now: Stamp, seconds: float) -> list[Spent]:
        found = self._database.rows(
            "SELECT recipients, thread, wall, boot, steady FROM claim WHERE row >= (SELECT min(row)"
            " FROM claim WHERE (boot = ? AND steady > ?) OR ((boot != ? OR boot = '') AND wall > ?))"
            " ORDER BY row",
            [now.boot, now.steady - seconds, now.boot, now.wall - seconds],
        )
        claims, last = [], None
        for recipients, thread, *moment in found:
            at = Stamp(*moment)
            if last is not None and elapsed(last, now) < elapsed(at, now):
                at = last
            elif at.wall <= now.wall:
                last = at
            claims.append(Spent(at, recipients, thread))
        return claims

    def spend(self, letter: Letter, at: Stamp) -> None:
        self.add(letter.id, len(letter.envelope), letter.thread, at)

    def add(self, id: str, recipients: int, thread: str, at: Stamp) -> None:
        """Count a claim of this many recipients."""
        ((row,),) = self._database.rows(
            "INSERT INTO claim (letter, recipients, thread, wall, boot, steady)"
            " VALUES (?, ?, ?, ?, ?, ?) RETURNING row",
            [id, recipients, thread, *at],
        )
        # By their number: a clock that is wrong for a while must not make them look old.
        if row % PRUNE_EVERY == 0:
            self._database.run("DELETE FROM claim WHERE row <= ?", [row - MAX_CLAIMS])

    def refund(self, id: str, slip: str) -> None:
        sql = "DELETE FROM claim WHERE row = (SELECT max(row) FROM claim WHERE letter = ?)"
        self._database.run(sql, [id])
        if slip:
            self._database.run(
                "UPDATE slip SET letter = '' WHERE letter = ? AND hash = ?"
                " AND NOT EXISTS (SELECT 1 FROM proof WHERE letter = ? AND unanswered > 0)",
                [id, slip, id],
            )


class SqlActions:
    """Implements `store.protocol.ActionStore`; `last` is the last line that this transaction added."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], Stamp],
        draw: Callable[[int], bytes],
        settings: SqlSettings,
        budget: SqlBudget,
    ) -> None:
        self._database = database
        self._clock = clock
        self._draw = draw
        self._settings = settings
        self._budget = budget
        self.last = 0

    def head(self) -> int:
        ((last,),) = self._database.rows("SELECT max(seq) FROM action")
        return int(last or 0)

    def after(self, number: int = 0) -> list[tuple[int, str]]:
        sql = "SELECT seq, line FROM action WHERE seq > ? ORDER BY seq"
        return [(seq, line) for seq, line in self._database.rows(sql, [number])]

    def append(self, action: Action) -> None:
        from uuid import UUID  # who only reads needs none

        row = self._database.row("SELECT seq, line FROM action ORDER BY seq DESC LIMIT 1")
        seq, previous = (row[0] + 1, audit.digest(row[1])) if row else (1, audit.GENESIS)
        line = audit.write(
            action,
            seq=seq,
            previous=previous,
            desk=self._settings.value.desk_id,
            timestamp=self._clock().iso,
            correlation_id=str(UUID(bytes=self._draw(16), version=4)),
            key=self._settings.seal_key(self._draw),
        )
        self._add(seq, line)
        self.last = seq

    def _add(self, seq: int, line: str) -> None:
        self._database.run("INSERT INTO action (seq, line) VALUES (?, ?)", [seq, line])

    def import_from_log(self, line: ParsedLine) -> None:
        self._add(line.seq, line.line)
        if line.action_type != "claim_letter":
            return
        at = Stamp(datetime.fromisoformat(line.timestamp).timestamp())
        about: dict[str, Any] = line.record.get("parameters", {})
        self._budget.add(line.letter, about.get("recipients", 1), about.get("thread", ""), at)
        if slip := about.get("slip"):
            self._database.run(
                "INSERT INTO slip (hash, seen, letter) VALUES (?, ?, ?) ON CONFLICT (hash)"
                " DO UPDATE SET seen = excluded.seen, letter = excluded.letter",
                [slip, json.dumps(at), line.letter],
            )
