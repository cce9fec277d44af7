"""Letters: entering, changing and finding them, what they were before, and lists of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from postroom.core import life
from postroom.core.card import Card
from postroom.core.errors import NotFound
from postroom.core.letter import Letter
from postroom.core.records import DAY, AgentActivity, Entry, LetterState, LetterSummary
from postroom.core.stamp import Stamp
from postroom.store.protocol import Row
from postroom.store.sql import rows
from postroom.store.sql.rows import ENTRIES, OPEN, SUMMARY, Noun, marks
from postroom.store.sql.sending import ProofStore

MAX_KEYS: Final = 100  # idempotency keys that name one letter
PATIENCE: Final = 3.0  # seconds for a search, which others wait for
CHARTED: Final = ("approved", "rejected", "sent")


class LetterReader(Noun):
    """Letters, each with its state and version."""

    _is_html_current = False

    def get(self, id: str) -> Entry:
        """Return one letter, or raise `NotFound`."""
        found = self.find(id)
        if found is None:
            raise NotFound(f"There is no letter {id}", remedy="`postroom pending` lists them.")
        return found

    def find(self, id: str) -> Entry | None:
        """Return a letter, if there is one of this id."""
        return self._first(f"{ENTRIES} WHERE letter.id = ? ORDER BY enclosure.place", id)

    def _first(self, sql: str, *values: object) -> Entry | None:
        return next(iter(rows.entries(self._session.rows(sql, values))), None)

    def find_id(self, beginning: str) -> str:
        """Return the whole id of the one letter whose id begins so, or raise `NotFound`."""
        beginning = beginning.strip().lower()
        sql = "SELECT id FROM letter WHERE id >= ? AND id < ? ORDER BY id LIMIT 2"
        found: list[Row] = []
        if len(beginning) >= 3:
            found = self._session.rows(sql, [beginning, beginning + "{"])
        if len(found) == 1:
            return str(found[0][0])
        if found:
            raise NotFound(f"Several letters begin with {beginning}", remedy="Type more of the id.")
        raise NotFound(
            f"There is no letter {beginning[:40]}", remedy="`postroom pending` lists what waits."
        )

    def refresh(self, entry: Entry) -> Entry:
        """Return the letter as it is now; the very same object where its version has not changed."""
        row = self._session.row("SELECT version FROM letter WHERE id = ?", [entry.id])
        return entry if row == (entry.version,) else self.get(entry.id)

    def latest(self, agent: str, content_key: str) -> Entry | None:
        """Return the agent's letter of this content: the open one, or else the last."""
        return self._first(
            f"{ENTRIES} WHERE letter.row = (SELECT row FROM letter WHERE agent = ? AND content_key = ?"
            f" ORDER BY CASE WHEN state IN ({OPEN}) THEN 0 ELSE 1 END, row DESC LIMIT 1)"
            " ORDER BY enclosure.place",
            agent,
            content_key,
        )

    def replacement_of(self, agent: str, id: str) -> tuple[str, life.State] | None:
        """Return id and state of the letter that replaces this one, if it waits or was sent."""
        row = self._session.row(
            "SELECT id, state, detail FROM letter WHERE agent = ? AND replaces = ?"
            f" AND state IN ({OPEN}, 'sent') ORDER BY row DESC LIMIT 1",
            [agent, id],
        )
        return (row[0], life.load(*row[1:])) if row else None

    def in_states(self, *states: str) -> list[Entry]:
        """Return all letters in these states, oldest first."""
        sql = f"{ENTRIES} WHERE state IN ({marks(states)}) ORDER BY letter.row, enclosure.place"
        return rows.entries(self._session.rows(sql, states))

    def states(self, *states: str) -> dict[str, LetterState]:
        """Return the state of each letter in these states (all open ones without any), oldest first."""
        states = states or life.OPEN
        sql = f"SELECT id, state, detail, version FROM letter WHERE state IN ({marks(states)}) ORDER BY row"
        return {row[0]: rows.letter_state(row) for row in self._session.rows(sql, states)}

    def by_key(self, agent: str, key: str) -> tuple[str, str] | None:
        """Return id and content key of the letter that an agent's idempotency key names."""
        sql = "SELECT letter, content_key FROM idempotency WHERE agent = ? AND key = ?"
        row = self._session.row(sql, [agent, key])
        return (row[0], row[1]) if row else None

    def load_of(self, agent: str, count: int) -> tuple[int, list[Stamp]]:
        """Return how many letters of this agent are open, and when it proposed its last `count`.

        Where it has proposed fewer, no times are returned.
        """
        (waiting, _), *found = self._session.rows(
            f"SELECT count(*), '' FROM letter WHERE agent = ? AND state IN ({OPEN}) UNION ALL"
            " SELECT 0, created FROM (SELECT created FROM letter WHERE agent = ?"
            " ORDER BY row DESC LIMIT ?) AS newest",
            [agent, agent, count],
        )
        times = [rows.stamp(created) for _, created in found]
        return int(waiting), times if len(times) == count else []

    def with_same_text(self, text: str, *, except_id: str) -> tuple[str, ...]:
        """Return the ids of earlier letters with the same text, newest first, at most 5."""
        found = self._session.rows(
            "SELECT id FROM letter WHERE text_key = ? AND id != ? AND state != 'rehearsal'"
            " ORDER BY row DESC LIMIT 5",
            [rows.text_key(text), except_id],
        )
        return tuple(id for (id,) in found)

    def with_old_html(self) -> list[str]:
        """Return the letters whose HTML part an older version froze, and that are to be frozen anew."""
        if self._is_html_current:
            return []
        sql = "SELECT id, keyed, state FROM old_html JOIN letter ON id = old_html.letter"
        found = self._session.rows(sql)
        self._is_html_current = not found  # no version since then adds any
        return [id for id, keyed, state in found if not keyed or state in ("pending", "approved")]


class LetterStore(LetterReader):
    """Letters, to be entered and changed."""

    def insert(self, entry: Entry) -> Entry:
        """Enter a letter that is frozen for the first time."""
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
        self._session.run(sql, list(columns.values()))
        if letter.attachments:
            self._session.run_many(
                "INSERT INTO enclosure (letter, place, name, type, content) VALUES (?, ?, ?, ?, ?)",
                [(letter.id, n, a.name, a.type, a.content) for n, a in enumerate(letter.attachments)],
            )  # fmt: skip
        if not isinstance(entry.state, life.Rehearsal):
            self._session.run("INSERT INTO note (letter) VALUES (?)", [entry.id])
        self._add_history(entry, str(columns["detail"]))
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
        """Give a letter its next state (and text); `Conflict` where its version has changed."""
        new = replace(
            entry,
            state=state,
            letter=letter or entry.letter,
            digest=letter.digest if letter else entry.digest,
            card=card or entry.card,
            version=entry.version + 1,
            is_edited=entry.is_edited or letter is not None,
        )
        columns = self._state_columns(new)
        if letter is not None:
            columns |= {"digest": new.digest, **rows.text_columns(letter, entry.agent)}
            self._session.run(
                "INSERT INTO revision (letter, version, frozen)"
                " SELECT id, version, frozen FROM letter WHERE id = ? AND version = ?",
                [entry.id, entry.version],
            )
        if card is not None:
            columns["card"] = json.dumps(card.to_json())
        names = ", ".join(f"{name} = ?" for name in columns)
        sql = f"UPDATE letter SET {names} WHERE id = ? AND version = ?"
        if not self._session.run(sql, [*columns.values(), entry.id, entry.version]):
            raise life.refuse(entry.id, self.get(entry.id).state, "changed by two at once")
        self._add_history(new, str(columns["detail"]))
        return new

    def _add_history(self, entry: Entry, detail: str) -> None:
        verdict = entry.state.verdict if isinstance(entry.state, life.Approved) else None
        self._session.run(
            "INSERT INTO history (letter, version, state, detail, decided_at, slip)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [
                entry.id, entry.version, entry.kind, detail,
                rows.decided_at(entry.state), verdict.slip if verdict else "",
            ],
        )  # fmt: skip

    def take_over(self, entry: Entry) -> Entry:
        """Raise the version of a claimed letter, so that its former owner can keep no proof any more.

        Without a proof, the former owner may have prepared something that no proof names: it is
        entered as an orphan. `Conflict` where the version has changed.
        """
        taken = replace(entry, version=entry.version + 1)
        sql = "UPDATE letter SET version = ? WHERE id = ? AND version = ?"
        if not self._session.run(sql, [taken.version, entry.id, entry.version]):
            raise life.refuse(entry.id, self.get(entry.id).state, "settled by two at once")
        proofs = ProofStore(self._session, self._clock)
        if proofs.get(entry.id) is None:
            proofs.add_orphan(entry.id)
        return taken

    def bind_key(self, agent: str, key: str, entry: Entry) -> None:
        """Let an idempotency key name this letter for ever; a letter has at most 100."""
        self._session.run(
            "INSERT INTO idempotency (agent, key, letter, content_key) SELECT ?, ?, ?, ?"
            " WHERE (SELECT count(*) FROM idempotency WHERE letter = ?) < ?"
            " ON CONFLICT (agent, key) DO NOTHING",
            [agent, key, entry.id, entry.content_key, entry.id, MAX_KEYS],
        )

    def request_pre_send_record(self, id: str, reply_to: str) -> None:
        """Have a record written before the letter is sent; `reply_to` is what it answers, as JSON."""
        self._session.run("UPDATE letter SET pre_send = ? WHERE id = ?", [reply_to, id])

    def rekey(self, letter: Letter, *, done: bool) -> None:
        """Let a repeated call find a letter of `with_old_html` by what the call freezes now."""
        for table, name in (("letter", "id"), ("idempotency", "letter")):
            sql = f"UPDATE {table} SET content_key = ? WHERE {name} = ?"
            self._session.run(sql, [letter.content_key, letter.id])
        self._session.run("UPDATE old_html SET keyed = 1 WHERE letter = ?", [letter.id])
        if done:
            self._session.run("DELETE FROM old_html WHERE letter = ?", [letter.id])

    def remove_rehearsal(self, id: str) -> None:
        """Delete a rehearsal that another one replaces."""
        self._session.run("DELETE FROM letter WHERE id = ? AND state = 'rehearsal'", [id])
        for table in ("enclosure", "history", "idempotency"):
            self._session.run(f"DELETE FROM {table} WHERE letter = ?", [id])


class HistoryReader(Noun):
    """What letters were before."""

    def states(self, id: str) -> list[life.State]:
        """Return the states of a letter, oldest first."""
        sql = "SELECT state, detail FROM history WHERE letter = ? ORDER BY version"
        return [life.load(*row) for row in self._session.rows(sql, [id])]

    def original(self, id: str) -> Letter | None:
        """Return the letter as its agent wrote it, where a person has changed it."""
        sql = "SELECT frozen FROM revision WHERE letter = ? ORDER BY version LIMIT 1"
        row, letters = self._session.row(sql, [id]), LetterReader(self._session, self._clock)
        return rows.thaw(row[0], letters.get(id).letter.attachments) if row else None

    def claimed_before_edit(self, id: str) -> bool:
        """Whether a version of this letter was claimed before the one that it has now."""
        sql = (
            "SELECT 1 FROM history WHERE letter = ? AND state = 'sending'"
            " AND version <= (SELECT max(version) FROM revision WHERE letter = ?)"
        )
        return self._session.row(sql, [id, id]) is not None

    def was_approved_by(self, id: str, slip: str) -> bool:
        """Whether this slip approved the letter before."""
        sql = "SELECT 1 FROM history WHERE letter = ? AND state = 'approved' AND slip = ?"
        return self._session.row(sql, [id, slip]) is not None


class LetterLists(Noun):
    """Letters as lists and charts show them."""

    def summaries(
        self,
        *states: str,
        words: Sequence[str] = (),
        agent: str | None = None,
        newest: int | None = None,
        skip: int = 0,
        by_outcome: bool = False,
    ) -> list[LetterSummary]:
        """Return the letters in these states (all open ones without any), oldest first.

        `words` must all occur in the recipients, subject, text, agent's name or id. Of more than
        `newest`, the newest after the `skip` that are newer still. `by_outcome` orders by the time
        of the outcome.
        """
        where, values = _where(states, words, agent)
        order = "decided_at DESC, row DESC" if by_outcome else "row DESC"
        sql = f"SELECT {SUMMARY} FROM letter WHERE {where} ORDER BY {order}"
        if newest is not None:
            sql, values = f"{sql} LIMIT ? OFFSET ?", [*values, newest, skip]
        found = self._session.rows(sql, values, patience=PATIENCE if words else None)
        return [rows.summary(row) for row in reversed(found)]

    def count(self, *states: str, words: Sequence[str] = (), agent: str | None = None) -> int:
        """Return how many letters `summaries` finds."""
        where, values = _where(states, words, agent)
        sql = f"SELECT count(*) FROM letter WHERE {where}"
        patience = PATIENCE if words else None
        return int(self._session.rows(sql, values, patience=patience)[0][0])

    def change_token(self) -> tuple[int, ...]:
        """Return a value that differs once an open letter has come, gone or changed."""
        row = self._session.row(
            "SELECT count(*), coalesce(sum(version), 0), (SELECT max(row) FROM letter)"
            f" FROM letter WHERE state IN ({OPEN})"
        )
        return tuple(int(part or 0) for part in row or ())

    def agents(self) -> list[AgentActivity]:
        """Return each agent that has written letters, the last writer first."""
        found: dict[str, AgentActivity] = {}
        sql = "SELECT agent, state, count(*), max(created_at) FROM letter GROUP BY agent, state"
        for agent, state, count, last in self._session.rows(sql):
            known = found.get(agent, AgentActivity(agent, {}, 0.0))
            states = known.states | {state: count}
            found[agent] = AgentActivity(agent, states, max(known.last, last))
        return sorted(found.values(), key=lambda one: -one.last)

    def per_day(self, since: float, offset: int) -> dict[int, dict[str, int]]:
        """Return how many letters were approved, rejected and sent on each day since then.

        Days are numbered from 1970; they begin `offset` seconds before UTC's.
        """
        found: dict[int, dict[str, int]] = {}
        # A letter that is held has several rows of one verdict.
        sql = (
            "SELECT DISTINCT letter, state, decided_at FROM history"
            f" WHERE decided_at >= ? AND state IN ({marks(CHARTED)})"
        )
        for _, state, at in self._session.rows(sql, [since, *CHARTED]):
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
