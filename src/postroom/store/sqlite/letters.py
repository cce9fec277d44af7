"""Letters: entering, changing and finding them, and what they were before."""

from __future__ import annotations

import json
from dataclasses import replace

from postroom.core import life
from postroom.core.card import Card
from postroom.core.errors import NotFound
from postroom.core.letter import Letter
from postroom.core.records import Entry, LetterState
from postroom.core.stamp import Stamp
from postroom.store.database import Database, Row
from postroom.store.sqlite import rows
from postroom.store.sqlite.rows import ENTRIES, OPEN, marks
from postroom.store.sqlite.sending import SqlProofs

MAX_KEYS = 100  # idempotency keys that name one letter


class SqlLetters:
    """Implements `store.protocol.LetterStore`."""

    def __init__(self, database: Database, proofs: SqlProofs) -> None:
        self._database = database
        self._proofs = proofs

    def get(self, id: str) -> Entry:
        found = self.find(id)
        if found is None:
            raise NotFound(f"There is no letter {id}", remedy="`postroom pending` lists them.")
        return found

    def find(self, id: str) -> Entry | None:
        return self._first(f"{ENTRIES} WHERE letter.id = ? ORDER BY enclosure.place", id)

    def _first(self, sql: str, *values: object) -> Entry | None:
        return next(iter(rows.entries(self._database.rows(sql, values))), None)

    def find_id(self, beginning: str) -> str:
        beginning = beginning.strip().lower()
        sql = "SELECT id FROM letter WHERE id >= ? AND id < ? ORDER BY id LIMIT 2"
        found: list[Row] = []
        if len(beginning) >= 3:
            found = self._database.rows(sql, [beginning, beginning + "{"])
        if len(found) == 1:
            return str(found[0][0])
        if found:
            raise NotFound(f"Several letters begin with {beginning}", remedy="Type more of the id.")
        raise NotFound(
            f"There is no letter {beginning[:40]}", remedy="`postroom pending` lists what waits."
        )

    def refresh(self, entry: Entry) -> Entry:
        row = self._database.row("SELECT version FROM letter WHERE id = ?", [entry.id])
        return entry if row == (entry.version,) else self.get(entry.id)

    def latest(self, agent: str, content_key: str) -> Entry | None:
        return self._first(
            f"{ENTRIES} WHERE letter.row = (SELECT row FROM letter WHERE agent = ? AND content_key = ?"
            f" ORDER BY CASE WHEN state IN ({OPEN}) THEN 0 ELSE 1 END, row DESC LIMIT 1)"
            " ORDER BY enclosure.place",
            agent,
            content_key,
        )

    def replacement_of(self, agent: str, id: str) -> tuple[str, life.State] | None:
        row = self._database.row(
            "SELECT id, state, detail FROM letter WHERE agent = ? AND replaces = ?"
            f" AND state IN ({OPEN}, 'sent') ORDER BY row DESC LIMIT 1",
            [agent, id],
        )
        return (row[0], life.load(*row[1:])) if row else None

    def in_states(self, *states: str) -> list[Entry]:
        sql = f"{ENTRIES} WHERE state IN ({marks(states)}) ORDER BY letter.row, enclosure.place"
        return rows.entries(self._database.rows(sql, states))

    def states(self, *states: str) -> dict[str, LetterState]:
        states = states or life.OPEN
        sql = f"SELECT id, state, detail, version FROM letter WHERE state IN ({marks(states)}) ORDER BY row"
        return {row[0]: rows.letter_state(row) for row in self._database.rows(sql, states)}

    def by_key(self, agent: str, key: str) -> tuple[str, str] | None:
        sql = "SELECT letter, content_key FROM idempotency WHERE agent = ? AND key = ?"
        row = self._database.row(sql, [agent, key])
        return (row[0], row[1]) if row else None

    def count_open(self, agent: str) -> int:
        sql = f"SELECT count(*) FROM letter WHERE agent = ? AND state IN ({OPEN})"
        return int(self._database.rows(sql, [agent])[0][0])

    def proposal_times(self, agent: str, count: int) -> list[Stamp]:
        sql = "SELECT created FROM letter WHERE agent = ? ORDER BY row DESC LIMIT ?"
        found = self._database.rows(sql, [agent, count])
        return [rows.stamp(created) for (created,) in found] if len(found) == count else []

    def with_same_text(self, text: str, *, except_id: str) -> tuple[str, ...]:
        found = self._database.rows(
            "SELECT id FROM letter WHERE text_key = ? AND id != ? AND state != 'rehearsal'"
            " ORDER BY row DESC LIMIT 5",
            [rows.text_key(text), except_id],
        )
        return tuple(id for (id,) in found)

    def with_old_html(self) -> list[str]:
        found = self._database.rows(
            "SELECT old_html.letter FROM old_html JOIN letter ON id = old_html.letter"
            " WHERE keyed = 0 OR state IN ('pending', 'approved')"
        )
        return [id for (id,) in found]

    def insert(self, entry: Entry) -> Entry:
        letter = entry.letter
        columns = {
            "id": letter.id,
            "agent": entry.agent,
            "content_key": entry.content_key,
            "digest": entry.digest,
            "origins": json.dumps(entry.origins),
            "card": json.dumps(entry.card.to_json()),
            "home": entry.home,
            "form": entry.form,
            "replaces": entry.replaces,
            "created": json.dumps(entry.created),
            "created_at": entry.created.wall,
            "pre_send": entry.pre_send,
            "fields": json.dumps(dict(entry.fields)),
            **self._state_columns(entry),
            **rows.text_columns(letter, entry.agent),
        }
        sql = f"INSERT INTO letter ({', '.join(columns)}) VALUES ({marks(columns)})"
        self._database.run(sql, list(columns.values()))
        if letter.attachments:
            self._database.run_many(
                "INSERT INTO enclosure (letter, place, name, type, content) VALUES (?, ?, ?, ?, ?)",
                [(letter.id, n, a.name, a.type, a.content) for n, a in enumerate(letter.attachments)],
            )  # fmt: skip
        if not isinstance(entry.state, life.Rehearsal):
            self._database.run("INSERT INTO note (letter) VALUES (?)", [entry.id])
        self._add_history(entry)
        return entry

    @staticmethod
    def _state_columns(entry: Entry) -> dict[str, object]:
        at = getattr(entry.state, "at", entry.created)
        return {
            "state": entry.kind,
            "detail": life.dump(entry.state),
            "decided_at": at.wall,
            "version": entry.version,
        }

    def swap(
        self,
        entry: Entry,
        state: life.State,
        *,
        letter: Letter | None = None,
        card: Card | None = None,
    ) -> Entry:
        new = replace(
            entry,
            state=state,
            letter=letter or entry.letter,
            digest=letter.digest if letter else entry.digest,
            card=card or entry.card,
            version=entry.version + 1,
        )
        columns = self._state_columns(new)
        if letter is not None:
            columns |= {"digest": new.digest, **rows.text_columns(letter, entry.agent)}
            self._database.run(
                "INSERT INTO revision (letter, version, frozen)"
                " SELECT id, version, frozen FROM letter WHERE id = ? AND version = ?",
                [entry.id, entry.version],
            )
        if card is not None:
            columns["card"] = json.dumps(card.to_json())
        names = ", ".join(f"{name} = ?" for name in columns)
        sql = f"UPDATE letter SET {names} WHERE id = ? AND version = ?"
        if not self._database.run(sql, [*columns.values(), entry.id, entry.version]):
            raise life.refuse(entry.id, self.get(entry.id).state, "changed by two at once")
        self._add_history(new)
        return new

    def _add_history(self, entry: Entry) -> None:
        verdict = entry.state.verdict if isinstance(entry.state, life.Approved) else None
        self._database.run(
            "INSERT INTO history (letter, version, state, detail, decided_at, slip)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [
                entry.id, entry.version, entry.kind, life.dump(entry.state),
                rows.decided_at(entry.state), verdict.slip if verdict else "",
            ],
        )  # fmt: skip

    def take_over(self, entry: Entry) -> Entry:
        taken = replace(entry, version=entry.version + 1)
        sql = "UPDATE letter SET version = ? WHERE id = ? AND version = ?"
        if not self._database.run(sql, [taken.version, entry.id, entry.version]):
            raise life.refuse(entry.id, self.get(entry.id).state, "settled by two at once")
        if self._proofs.get(entry.id) is None:
            self._proofs.add_orphan(entry.id)
        return taken

    def bind_key(self, agent: str, key: str, entry: Entry) -> None:
        self._database.run(
            "INSERT INTO idempotency (agent, key, letter, content_key) SELECT ?, ?, ?, ?"
            " WHERE (SELECT count(*) FROM idempotency WHERE letter = ?) < ?"
            " ON CONFLICT (agent, key) DO NOTHING",
            [agent, key, entry.id, entry.content_key, entry.id, MAX_KEYS],
        )

    def request_pre_send_record(self, id: str, reply_to: str) -> None:
        self._database.run("UPDATE letter SET pre_send = ? WHERE id = ?", [reply_to, id])

    def rekey(self, letter: Letter, *, done: bool) -> None:
        for table, name in (("letter", "id"), ("idempotency", "letter")):
            sql = f"UPDATE {table} SET content_key = ? WHERE {name} = ?"
            self._database.run(sql, [letter.content_key, letter.id])
        self._database.run("UPDATE old_html SET keyed = 1 WHERE letter = ?", [letter.id])
        if done:
            self._database.run("DELETE FROM old_html WHERE letter = ?", [letter.id])

    def remove_rehearsal(self, id: str) -> None:
        self._database.run("DELETE FROM letter WHERE id = ? AND state = 'rehearsal'", [id])
        for table in ("enclosure", "history", "idempotency"):
            self._database.run(f"DELETE FROM {table} WHERE letter = ?", [id])


class SqlHistory:
    """Implements `store.protocol.HistoryReader`."""

    def __init__(self, database: Database, letters: SqlLetters) -> None:
        self._database = database
        self._letters = letters

    def states(self, id: str) -> list[life.State]:
        sql = "SELECT state, detail FROM history WHERE letter = ? ORDER BY version"
        return [life.load(*row) for row in self._database.rows(sql, [id])]

    def original(self, id: str) -> Letter | None:
        sql = "SELECT frozen FROM revision WHERE letter = ? ORDER BY version LIMIT 1"
        row = self._database.row(sql, [id])
        return rows.thaw(row[0], self._letters.get(id).letter.attachments) if row else None

    def claimed_before_edit(self, id: str) -> bool:
        sql = (
            "SELECT 1 FROM history WHERE letter = ? AND state = 'sending'"
            " AND version <= (SELECT max(version) FROM revision WHERE letter = ?)"
        )
        return self._database.row(sql, [id, id]) is not None

    def was_approved_by(self, id: str, slip: str) -> bool:
        sql = "SELECT 1 FROM history WHERE letter = ? AND state = 'approved' AND slip = ?"
        return self._database.row(sql, [id, slip]) is not None
