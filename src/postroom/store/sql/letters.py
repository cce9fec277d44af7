"""Letters: entering, changing and finding them, what they were before, lists of them, and proofs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from postroom.core import life
from postroom.core.errors import NotFound
from postroom.core.letter import Letter
from postroom.core.records import (
    ANY_LETTER,
    AgentActivity,
    Card,
    Entry,
    LetterFacets,
    LetterFilter,
    LetterState,
    LetterSummary,
    ListOrder,
    ProviderProof,
)
from postroom.core.stamp import DAY, Stamp
from postroom.store.sql import rows
from postroom.store.sql.rows import ENTRIES, OPEN, SUMMARY, Noun, marks, stamp

MAX_KEYS: Final = 100  # idempotency keys that name one letter
PATIENCE: Final = 3.0  # seconds for a search, which others wait for
CHARTED: Final = ("approved", "rejected", "sent")
ORDERS: Final = {
    ListOrder.NEWEST: "row DESC",
    ListOrder.OUTCOME: "decided_at DESC, row DESC",
    ListOrder.RISK: "CASE WHEN level > 0 THEN 0 ELSE 1 END, row DESC",
}
# How many letters each agent proposed since a moment, and how many of them have a row of these tables.
_TRACES: Final = (
    "history WHERE history.letter = letter.id AND history.state = 'approved' AND by_person = 1",
    "revision WHERE revision.letter = letter.id",
    "history WHERE history.letter = letter.id AND history.state = 'rejected'",
)
DECISIONS: Final = (
    "SELECT agent, count(*), "
    + ", ".join(f"count(CASE WHEN EXISTS (SELECT 1 FROM {one}) THEN 1 END)" for one in _TRACES)
    + " FROM letter WHERE created_at >= ? AND state != 'rehearsal' GROUP BY agent"
)


class LetterReader(Noun):
    _is_html_current = False

    def get(self, id: str) -> Entry:
        found = self.find(id)
        if found is None:
            raise NotFound(f"There is no letter {id}", remedy="`postroom pending` lists them.")
        return found

    def find(self, id: str) -> Entry | None:
        return self._first(f"{ENTRIES} WHERE letter.id = ? ORDER BY enclosure.place", id)

    def _first(self, sql: str, *values: object) -> Entry | None:
        return next(iter(rows.entries(self._session.rows(sql, values))), None)

    def find_id(self, beginning: str) -> str:
        """Return the whole id of the one letter whose id begins so, or raise `NotFound`."""
        beginning = beginning.strip().lower()
        sql = "SELECT id FROM letter WHERE id >= ? AND id < ? ORDER BY id LIMIT 2"
        found = self._all(str, sql, beginning, beginning + "{") if len(beginning) >= 3 else []
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"Several letters begin with {beginning}", remedy="Type more of the id.")
        raise NotFound(
            f"There is no letter {beginning[:40]}", remedy="`postroom pending` lists what waits."
        )

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
        return self._one(
            lambda id, kind, detail: (id, life.load(kind, detail)),
            "SELECT id, state, detail FROM letter WHERE agent = ? AND replaces = ?"
            f" AND state IN ({OPEN}, 'sent') ORDER BY row DESC LIMIT 1",
            agent,
            id,
        )

    def in_states(self, *states: str) -> list[Entry]:
        sql = f"{ENTRIES} WHERE state IN ({marks(states)}) ORDER BY letter.row, enclosure.place"
        return rows.entries(self._session.rows(sql, states))

    def states(self, *states: str) -> dict[str, LetterState]:
        """Return the state of each letter in these states (all open ones without any), oldest first."""
        states = states or life.OPEN
        sql = f"SELECT id, state, detail, version FROM letter WHERE state IN ({marks(states)}) ORDER BY row"
        return {row[0]: rows.letter_state(*row) for row in self._session.rows(sql, states)}

    def by_key(self, agent: str, key: str) -> tuple[str, str] | None:
        """Return id and content key of the letter that an agent's idempotency key names."""
        return self._row("letter, content_key", "idempotency", agent=agent, key=key)

    def load_of(self, agent: str, count: int) -> tuple[int, list[Stamp]]:
        """Return how many letters of an agent are open, and when it proposed its last `count`, if so many."""
        (waiting, _), *found = self._session.rows(
            f"SELECT count(*), '' FROM letter WHERE agent = ? AND state IN ({OPEN}) UNION ALL"
            " SELECT 0, created FROM (SELECT created FROM letter WHERE agent = ?"
            " ORDER BY row DESC LIMIT ?) AS newest",
            [agent, agent, count],
        )
        times = [Stamp(*at) for at in json.loads(f"[{','.join(at for _, at in found)}]")]
        return int(waiting), times if len(times) == count else []

    def with_same_text(self, text: str, *, except_id: str) -> tuple[str, ...]:
        sql = (
            "SELECT id FROM letter WHERE text_key = ? AND id != ? AND state != 'rehearsal'"
            " ORDER BY row DESC LIMIT 5"
        )
        return tuple(self._all(str, sql, rows.text_key(text), except_id))

    def past_states(self, id: str) -> list[life.State]:
        return self._all(
            life.load, "SELECT state, detail FROM history WHERE letter = ? ORDER BY version", id
        )

    def original(self, id: str) -> Letter | None:
        """Return the letter as its agent wrote it, where a person has changed it."""
        sql = "SELECT frozen FROM revision WHERE letter = ? ORDER BY version LIMIT 1"
        row = self._session.row(sql, [id])
        return rows.thaw(row[0], self.get(id).letter.attachments) if row else None

    def claimed_before_edit(self, id: str) -> bool:
        """Whether a version of this letter was claimed before the one that it has now."""
        row = self._session.row(
            "SELECT 1 FROM history WHERE letter = ? AND state = 'sending'"
            " AND version <= (SELECT max(version) FROM revision WHERE letter = ?)",
            [id, id],
        )
        return row is not None

    def was_approved_by(self, id: str, slip: str) -> bool:
        return self._has("history", letter=id, state="approved", slip=slip)

    def with_old_html(self) -> list[str]:
        """Return the letters whose HTML part an older version froze, and that are to be frozen anew."""
        if self._is_html_current:
            return []
        sql = "SELECT id, keyed, state FROM old_html JOIN letter ON id = old_html.letter"
        found = self._session.rows(sql)
        self._is_html_current = not found  # no version since then adds any
        return [id for id, keyed, state in found if not keyed or state in ("pending", "approved")]


class LetterStore(LetterReader):
    def insert(self, entry: Entry) -> Entry:
        letter = entry.letter
        columns = {
            "id": letter.id,
            "agent": entry.agent,
            "content_key": entry.content_key,
            "digest": entry.digest,
            "origins": json.dumps(entry.origins),
            "home": entry.home,
            "form": entry.form,
            "replaces": entry.replaces,
            "created": json.dumps(entry.created),
            "created_at": entry.created.wall,
            "pre_send": entry.pre_send,
            "fields": json.dumps(dict(entry.fields)),
            **self._state_columns(entry),
            **rows.card_columns(entry.card),
            **rows.text_columns(letter, entry.agent),
        }
        self._insert("letter", columns)
        if letter.attachments:
            self._session.run_many(
                "INSERT INTO enclosure (letter, place, name, type, content) VALUES (?, ?, ?, ?, ?)",
                [(letter.id, n, a.name, a.type, a.content) for n, a in enumerate(letter.attachments)],
            )  # fmt: skip
        if not isinstance(entry.state, life.Rehearsal):
            self._insert("note", {"letter": entry.id})
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
            columns |= rows.card_columns(card)
        if not self._update("letter", columns, id=entry.id, version=entry.version):
            raise life.refuse(entry.id, self.get(entry.id).state, "changed by two at once")
        self._add_history(new, str(columns["detail"]))
        return new

    def _add_history(self, entry: Entry, detail: str) -> None:
        verdict = entry.state.verdict if isinstance(entry.state, life.Approved) else None
        columns = {
            "letter": entry.id,
            "version": entry.version,
            "state": entry.kind,
            "detail": detail,
            "decided_at": rows.decided_at(entry.state),
            "slip": verdict.slip if verdict else "",
            "by_person": int(verdict is not None and not verdict.is_automatic),
        }
        self._insert("history", columns)

    def take_over(self, entry: Entry) -> Entry:
        """Raise the version of a claimed letter, so that its former owner can keep no proof any more.

        Without a proof, the former owner may have prepared something that no proof names: it is
        entered as an orphan. `Conflict` where the version has changed.
        """
        taken = replace(entry, version=entry.version + 1)
        if not self._update(
            "letter", {"version": taken.version}, id=entry.id, version=entry.version
        ):
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
        self._update("letter", {"pre_send": reply_to}, id=id)

    def set_reported(self, id: str, *, reported: bool) -> None:
        """Record whether a call was answered that this letter was sent."""
        self._update("letter", {"reported": int(reported)}, id=id)

    def rekey(self, letter: Letter, *, done: bool) -> None:
        """Let a repeated call find a letter of `with_old_html` by what the call freezes now."""
        columns = {"content_key": letter.content_key}
        self._update("letter", columns, id=letter.id)
        self._update("idempotency", columns, letter=letter.id)
        self._update("old_html", {"keyed": 1}, letter=letter.id)
        if done:
            self._delete("old_html", letter=letter.id)

    def remove_rehearsal(self, id: str) -> None:
        self._delete("letter", id=id, state="rehearsal")
        for table in ("enclosure", "history", "idempotency"):
            self._delete(table, letter=id)


class LetterLists(Noun):
    def summaries(
        self,
        *states: str,
        matching: LetterFilter = ANY_LETTER,
        newest: int | None = None,
        skip: int = 0,
        order: ListOrder = ListOrder.NEWEST,
    ) -> list[LetterSummary]:
        """Return the letters in these states (all open ones without any) that match the filter.

        Of more than `newest`, the first ones of the order after `skip` others. They are returned last first, so
        that the oldest comes first; in the order `RISK` as a page shows them: letters with a warning first, and
        among each the newest first.
        """
        where, values = _where(states, matching)
        sql = f"SELECT {SUMMARY} FROM letter WHERE {where} ORDER BY {ORDERS[order]}"
        if newest is not None:
            sql, values = f"{sql} LIMIT ? OFFSET ?", [*values, newest, skip]
        if newest is not None and order is ListOrder.RISK:
            # An index has all that the rows are sorted by: sorting them with all that is shown takes three times as long.
            sql = sql.replace(SUMMARY, "row", 1)
            sql = f"SELECT {SUMMARY} FROM letter WHERE row IN ({sql}) ORDER BY {ORDERS[order]}"
        found = self._session.rows(sql, values, patience=_patience(matching))
        return [rows.summary(row) for row in (found if order is ListOrder.RISK else found[::-1])]

    def count(self, *states: str, matching: LetterFilter = ANY_LETTER) -> int:
        where, values = _where(states, matching)
        sql = f"SELECT count(*) FROM letter WHERE {where}"
        return int(self._session.rows(sql, values, patience=_patience(matching))[0][0])

    def facets(self, *states: str) -> LetterFacets:
        """Return the agents and the accounts of the letters in these states (all open ones without any), sorted."""
        where, values = _where(states, ANY_LETTER)
        sql = f"SELECT DISTINCT agent, account FROM letter WHERE {where}"
        found = self._session.rows(sql, values)
        agents, accounts = ({row[at] for row in found} for at in (0, 1))
        return LetterFacets(tuple(sorted(agents)), tuple(sorted(accounts)))

    def change_token(self) -> tuple[int, ...]:
        """Return a value that differs once an open letter has come, gone or changed."""
        row = self._session.row(
            "SELECT count(*), coalesce(sum(version), 0), (SELECT max(row) FROM letter)"
            f" FROM letter WHERE state IN ({OPEN})"
        )
        return tuple(int(part or 0) for part in row or ())

    def agents(self, since: float) -> list[AgentActivity]:
        """Return what each agent did, the last one that wrote first; counts are of letters proposed since then.

        A letter counts as edited where its content has changed, also if an upgrade froze its HTML anew.
        """
        counts = {agent: row for agent, *row in self._session.rows(DECISIONS, [since])}
        found: dict[str, AgentActivity] = {}
        sql = "SELECT agent, state, count(*), max(created_at) FROM letter GROUP BY agent, state"
        for agent, state, count, last in self._session.rows(sql):
            known = found.get(agent) or AgentActivity(agent, {}, 0.0, *counts.get(agent, ()))
            states = known.states | {state: count}
            found[agent] = known._replace(states=states, last=max(known.last, last))
        return sorted(found.values(), key=lambda one: -one.last)

    def per_day(self, since: float, offset: int) -> dict[int, dict[str, int]]:
        """Return how many letters had which outcome on each day since then; days begin `offset` seconds before UTC's."""
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


class ProofReader(Noun):
    def get(self, id: str) -> ProviderProof | None:
        return self._find(ProviderProof, "proof, digest, unanswered", "proof", letter=id)

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
        # A join would walk through all letters.
        return self._all(
            str,
            "SELECT letter FROM proof WHERE EXISTS (SELECT 1 FROM letter WHERE id = proof.letter"
            f" AND state NOT IN ({OPEN}))",
        )

    def orphans(self) -> dict[str, tuple[Stamp, Stamp | None]]:
        """Return the letters of which the provider may hold what no proof names: since when, last swept when."""
        found = self._session.rows("SELECT letter, since, swept FROM orphan ORDER BY letter")
        return {id: (stamp(since), stamp(swept) if swept else None) for id, since, swept in found}


class ProofStore(ProofReader):
    """Proofs, kept before the act that they prove."""

    def keep(self, entry: Entry, proof: str) -> None:
        """Keep a proof, and that a send by it has no answer yet; `Conflict` where the letter's version changed."""
        columns = "id, state, detail, version"
        now = self._find(rows.letter_state, columns, "letter", id=entry.id) or rows.letter_state(
            entry.id, "", "", 0
        )
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
        self._session.run("UPDATE proof SET unanswered = unanswered - 1 WHERE letter = ?", [id])

    def drop(self, id: str, proof: str = "", *, unanswered: bool = True) -> bool:
        """Delete a letter's proof, if it is this one; with `unanswered` false, only if every send was answered."""
        where: dict[str, object] = {"proof": proof} if proof else {}
        if not unanswered:
            where["unanswered"] = 0
        return self._delete("proof", letter=id, **where) > 0

    def add_orphan(self, id: str, since: Stamp | None = None, swept: Stamp | None = None) -> None:
        columns = {
            "since": json.dumps(since or self._clock()),
            "swept": json.dumps(swept) if swept else "",
        }
        self._upsert("orphan", {"letter": id}, columns)

    def drop_orphan(self, id: str) -> None:
        self._delete("orphan", letter=id)


def _where(states: Sequence[str], matching: LetterFilter) -> tuple[str, list[str | int]]:
    chosen = [state for state in states if state in life.STATES] or life.OPEN
    parts, values = [f"state IN ({marks(chosen)})"], list[str | int](chosen)
    for column, value in (("agent", matching.agent), ("account", matching.account)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if matching.levels:
        parts.append(f"level IN ({marks(matching.levels)})")
        values += matching.levels
    sought = [("search_text", word) for word in matching.words]
    if matching.recipient:
        sought.append(("recipient_search", matching.recipient))
    for column, part in sought:
        # No text has a NUL, and what follows one would not be compared.
        parts.append("1 = 0" if "\0" in part else f"{column} LIKE ? ESCAPE '!'")
        if "\0" not in part:
            values.append(f"%{_escape(part.casefold())}%")
    return " AND ".join(parts), values


def _patience(matching: LetterFilter) -> float | None:
    return PATIENCE if matching.words or matching.recipient else None


def _escape(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
