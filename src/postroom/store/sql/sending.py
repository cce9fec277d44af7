"""What sending leaves behind: proofs, and the budget that claims use up."""

from __future__ import annotations

import json

from postroom.core import life
from postroom.core.letter import Letter
from postroom.core.policy import Spent
from postroom.core.records import Entry, ProviderProof
from postroom.core.stamp import Stamp, elapsed
from postroom.store.sql import rows
from postroom.store.sql.rows import OPEN, Noun

MAX_CLAIMS = 100_000  # that are remembered; more than any window has room for
PRUNE_EVERY = 1000  # claims


class ProofReader(Noun):
    """What providers gave to tell what became of letters."""

    def get(self, id: str) -> ProviderProof | None:
        """Return a letter's proof."""
        sql = "SELECT proof, digest, unanswered FROM proof WHERE letter = ?"
        row = self._session.row(sql, [id])
        return ProviderProof(*row) if row else None

    def before_send(self, id: str) -> tuple[int, ProviderProof | None, str]:
        """Return a letter's version and proof, and why this ledger may be older than the log, if it may."""
        row = self._session.row(
            "SELECT letter.version, proof.proof, proof.digest, proof.unanswered, desk.restored"
            " FROM desk LEFT JOIN letter ON letter.id = ?"
            " LEFT JOIN proof ON proof.letter = letter.id",
            [id],
        )
        version, text, digest, unanswered, restored = row or (0, None, "", 0, "")
        proof = None if text is None else ProviderProof(text, digest, unanswered)
        return version or 0, proof, restored

    def unreleased(self) -> list[str]:
        """Return the closed letters whose proof the provider has still to take back."""
        # A join would walk through all letters.
        found = self._session.rows(
            "SELECT letter FROM proof WHERE EXISTS (SELECT 1 FROM letter WHERE id = proof.letter"
            f" AND state NOT IN ({OPEN}))"
        )
        return [id for (id,) in found]

    def orphans(self) -> dict[str, tuple[Stamp, Stamp | None]]:
        """Return the letters of which the provider may hold what no proof names: since when, last swept when."""
        found = self._session.rows("SELECT letter, since, swept FROM orphan ORDER BY letter")
        return {
            id: (rows.stamp(since), rows.stamp(swept) if swept else None)
            for id, since, swept in found
        }


class ProofStore(ProofReader):
    """Proofs, kept before the act that they prove."""

    def keep(self, entry: Entry, proof: str) -> None:
        """Keep a proof, and that a send by it has no answer yet; `Conflict` where the letter's version changed."""
        row = self._session.row(
            "SELECT id, state, detail, version FROM letter WHERE id = ?", [entry.id]
        )
        now = rows.letter_state(row or (entry.id, "", "", 0))
        if now.version != entry.version:
            raise life.refuse(entry.id, now.state, "sent")
        self._session.run(
            "INSERT INTO proof (letter, proof, digest, unanswered) VALUES (?, ?, ?, 1)"
            " ON CONFLICT (letter) DO UPDATE SET proof = excluded.proof, digest = excluded.digest,"
            " unanswered = CASE WHEN proof.proof = excluded.proof THEN proof.unanswered + 1 ELSE 1 END",
            [entry.id, proof, entry.digest],
        )

    def mark_answered(self, id: str) -> None:
        """Record that the last send by a letter's proof was refused, and did nothing."""
        sql = "UPDATE proof SET unanswered = unanswered - 1 WHERE letter = ?"
        self._session.run(sql, [id])

    def drop(self, id: str, proof: str = "", *, unanswered: bool = True) -> bool:
        """Delete a letter's proof, if it is this one; with `unanswered` false, only if every send was answered."""
        sql, values = "DELETE FROM proof WHERE letter = ?", [id]
        if proof:
            sql, values = f"{sql} AND proof = ?", [id, proof]
        if not unanswered:
            sql = f"{sql} AND unanswered = 0"
        return self._session.run(sql, values) > 0

    def add_orphan(self, id: str, since: Stamp | None = None, swept: Stamp | None = None) -> None:
        """Record that the provider may hold something of a letter that no proof names."""
        self._session.run(
            "INSERT INTO orphan (letter, since, swept) VALUES (?, ?, ?) ON CONFLICT (letter)"
            " DO UPDATE SET since = excluded.since, swept = excluded.swept",
            [id, json.dumps(since or self._clock()), json.dumps(swept) if swept else ""],
        )

    def drop_orphan(self, id: str) -> None:
        """Record that the provider holds nothing more of a letter."""
        self._session.run("DELETE FROM orphan WHERE letter = ?", [id])


class BudgetReader(Noun):
    """The claims that count against the limits."""

    def spent(self, now: Stamp, seconds: float) -> list[Spent]:
        """Return the claims that are younger than this, or may be, oldest first.

        None is older than one before it, whatever a clock said that was behind for a while.
        """
        found = self._session.rows(
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


class BudgetStore(BudgetReader):
    """The claims that count against the limits, to be spent and given back."""

    def spend(self, letter: Letter, at: Stamp) -> None:
        """Count a claim."""
        self.add(letter.id, len(letter.envelope), letter.thread, at)

    def add(self, id: str, recipients: int, thread: str, at: Stamp) -> None:
        """Count a claim of this many recipients."""
        ((row,),) = self._session.rows(
            "INSERT INTO claim (letter, recipients, thread, wall, boot, steady)"
            " VALUES (?, ?, ?, ?, ?, ?) RETURNING row",
            [id, recipients, thread, *at],
        )
        # By their number: a clock that is wrong for a while must not make them look old.
        if row % PRUNE_EVERY == 0:
            self._session.run("DELETE FROM claim WHERE row <= ?", [row - MAX_CLAIMS])

    def refund(self, id: str, slip: str) -> None:
        """Give back what a try did not use: the newest claim, and its slip unless the letter may still leave."""
        sql = "DELETE FROM claim WHERE row = (SELECT max(row) FROM claim WHERE letter = ?)"
        self._session.run(sql, [id])
        if slip:
            self._session.run(
                "UPDATE slip SET letter = '' WHERE letter = ? AND hash = ?"
                " AND NOT EXISTS (SELECT 1 FROM proof WHERE letter = ? AND unanswered > 0)",
                [id, slip, id],
            )
