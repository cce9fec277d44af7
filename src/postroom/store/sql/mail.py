"""Mail: what came in and is to be done about it, what agents saw of it, and what they did with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from postroom.core.errors import Conflict
from postroom.core.records import (
    DecidedBy,
    Exposure,
    InboxItem,
    InboxState,
    LabelChange,
    MailboxCursor,
    ShownMail,
)
from postroom.core.stamp import Stamp
from postroom.store.protocol import Row
from postroom.store.sql.rows import OPEN, Noun, marks

if TYPE_CHECKING:
    from postroom.core.handbook import Judgement, MailFacts

InboxValue: TypeAlias = "str | int | float | MailFacts | Judgement | None"
_COLUMNS: Final = ", ".join(InboxItem._fields)
BATCH: Final = 500  # tokens in one query
MOST_SENDERS: Final = 3  # mails that are named for a token


class InboxReader(Noun):
    def cursor(self, account: str) -> MailboxCursor | None:
        return self._find(MailboxCursor, "cursor, floor", "mailbox_cursor", account=account)

    def known_of(self, account: str, ids: Sequence[str]) -> set[str]:
        sql = f"SELECT message FROM inbox_item WHERE account = ? AND message IN ({marks(ids)})"
        return set(self._all(str, sql, account, *ids))

    def get(self, account: str, message: str) -> InboxItem | None:
        return next(iter(self._items("account = ? AND message = ?", account, message)), None)

    def in_states(self, *states: str) -> list[InboxItem]:
        return self._items(f"state IN ({marks(states)})", *states)

    def _items(self, where: str, *values: object) -> list[InboxItem]:
        sql = f"SELECT {_COLUMNS} FROM inbox_item WHERE {where} ORDER BY row"
        return self._all(_item, sql, *values)

    def page(self, state: str, count: int, after: int = 0) -> list[tuple[int, InboxItem]]:
        """Return the oldest mails in this state past a row, each with its row."""
        sql = f"SELECT row, {_COLUMNS} FROM inbox_item WHERE state = ? AND row > ? ORDER BY row LIMIT ?"
        found = self._session.rows(sql, [state, after, count])
        return [(row, _item(*columns)) for row, *columns in found]

    def with_stale_note(self) -> list[InboxItem]:
        return self._items(
            "note_stale != 0 AND EXISTS (SELECT 1 FROM note WHERE note.path != ''"
            " AND note.letter = 'mail ' || account || ' ' || message)"
        )

    def with_changed_letter(self) -> list[InboxItem]:
        """Return the mails whose letter was closed or reopened, or is to be withdrawn."""
        return self._items(
            "EXISTS (SELECT 1 FROM letter WHERE letter.id = inbox_item.letter AND"
            f" ((inbox_item.state = 'drafted' AND letter.state NOT IN ({OPEN}))"
            f" OR (inbox_item.state = 'needs_info' AND letter.state IN ({OPEN}, 'sent'))"
            " OR (inbox_item.state = 'done' AND inbox_item.by = ?)))",
            DecidedBy.PERSON,
        )

    def drafts_in_thread(self, account: str, thread: str, since: float) -> int:
        sql = "SELECT count(*) FROM thread_draft WHERE account = ? AND thread = ? AND at > ?"
        return int(self._session.rows(sql, [account, thread, since])[0][0])

    def count_by_state(self, since: float = 0) -> dict[str, int]:
        sql = "SELECT state, count(*) FROM inbox_item WHERE changed >= ? GROUP BY state"
        return dict(self._session.rows(sql, [since]))


class InboxStore(InboxReader):
    def add(
        self, account: str, cursor: MailboxCursor, ids: Iterable[str], state: str = InboxState.FOUND
    ) -> int:
        """Record mails and how far the mailbox was followed, in one transaction; return how many are new."""
        now = self._clock().wall
        new = self._session.run_many(
            "INSERT INTO inbox_item (account, message, state, seen, changed)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT (account, message) DO NOTHING",
            [(account, id, state, now, now) for id in ids],
        )
        self._upsert("mailbox_cursor", {"account": account}, cursor._asdict())
        return new

    def reopen_aside(self, account: str, ids: Iterable[str]) -> int:
        """Look again at mails that were put aside, since their labels changed; return how many."""
        return self._session.run_many(
            "UPDATE inbox_item SET state = 'found', version = version + 1"
            " WHERE account = ? AND message = ? AND state = 'aside'",
            [(account, id) for id in ids],
        )

    def change(self, item: InboxItem, **changes: InboxValue) -> InboxItem:
        """Change some fields of a mail; `Conflict` where its version has changed."""
        changes = {"changed": self._clock().wall, **changes, "version": item.version + 1}
        new = item._replace(**changes)  # type: ignore[arg-type]
        columns = {name: _column_value(value) for name, value in changes.items()}
        key = {"account": item.account, "message": item.message, "version": item.version}
        if not self._update("inbox_item", {**columns, "note_stale": 1}, **key):
            raise Conflict(f"The mail {item.message} was changed by two at once")
        return new

    def mark_note_current(self, item: InboxItem) -> None:
        key = {"account": item.account, "message": item.message, "version": item.version}
        self._update("inbox_item", {"note_stale": 0}, **key)

    def add_draft_in_thread(self, account: str, thread: str, letter: str) -> None:
        columns = {"letter": letter, "account": account, "thread": thread, "at": self._clock().wall}
        self._insert("thread_draft", columns, "ON CONFLICT (letter) DO NOTHING")


def _item(*row: Any) -> InboxItem:  # noqa: ANN401 - the columns of a row
    from postroom.core.handbook import Judgement, MailFacts

    columns = dict(zip(InboxItem._fields, row, strict=True))
    facts, judgement = (json.loads(columns[name] or "null") for name in ("facts", "judgement"))
    if facts is not None:
        lists = {name: tuple(facts.get(name, ())) for name in ("recipients", "labels")}
        facts = MailFacts(**facts | lists)
    judgement = Judgement(**judgement) if judgement else None
    parsed = {"state": InboxState(columns["state"]), "facts": facts, "judgement": judgement}
    return InboxItem(**columns | parsed)


def _column_value(value: InboxValue) -> object:
    if value is None:
        return ""
    return json.dumps(asdict(value)) if is_dataclass(value) else value


class ExposureReader(Noun):
    """What mail showed to agents, and whom the person has written to."""

    def find(self, tokens: Collection[str], since: float) -> dict[str, tuple[Exposure, ...]]:
        """Return for each token the mail that showed it first, then one of each further sender, 3 at most.

        A mail in Sent that is older than all others comes first whenever it was shown: they quote it.
        A mail is no younger than when it was shown, whatever date it claims.
        """
        found: dict[str, dict[int, Exposure]] = {}
        rows = self._shown(sorted(tokens), since)
        oldest = {row[0]: row for row in sorted(rows, key=lambda row: (-row[7], -row[5]))}
        sent_first = [row for row in oldest.values() if row[5]]
        for token, message, sender, subject, date, sent, part, _, mail in sent_first + rows:
            mails = found.setdefault(token, {})
            if message in mails:
                mails[message] = replace(mails[message], parts=mails[message].parts | {part})
            elif sender not in [one.sender for one in mails.values()] and len(mails) < MOST_SENDERS:
                parts = frozenset({part})
                mails[message] = Exposure(sender, subject, date, bool(sent), parts, mail)
        return {token: tuple(mails.values()) for token, mails in found.items()}

    def _shown(self, tokens: list[str], since: float) -> list[Row]:
        found: list[Row] = []
        for at in range(0, len(tokens), BATCH):
            some = tokens[at : at + BATCH]
            found += self._session.rows(
                "SELECT token, message, exposure.sender, subject, date, sent, part,"
                " CASE WHEN date > 0 AND date < first_at THEN date ELSE first_at END AS age,"
                " CASE WHEN account > '' THEN account || ' ' || id ELSE '' END"
                " FROM exposure JOIN shown_mail ON row = message"
                f" WHERE token IN ({marks(some)}) AND exposure.last_at > ?"
                " ORDER BY first_at, age, row",
                [*some, since],
            )
        return found

    def correspondents(self, account: str) -> tuple[frozenset[str], str]:
        """Return whom the person wrote to, of some only `@example.org`; and the newest mail in Sent of these."""
        found = self._session.rows(
            "SELECT 'sent', message FROM last_sent WHERE account = ? UNION ALL"
            " SELECT 'address', address FROM correspondent WHERE account = ?",
            [account, account],
        )
        addresses = frozenset(text for kind, text in found if kind == "address")
        return addresses, next((text for kind, text in found if kind == "sent"), "")


class ExposureStore(ExposureReader):
    def record(self, mail: ShownMail, tokens: Mapping[str, Collection[str]]) -> None:
        """Record which tokens a mail shows, by its part; a token that it has shown before keeps its first time."""
        now = self._clock().wall
        ((message,),) = self._session.rows(
            "INSERT INTO shown_mail (account, id, sender, subject, date, sent, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, id)"
            " DO UPDATE SET sent = excluded.sent, last_at = excluded.last_at RETURNING row",
            [*mail, now],
        )
        self._session.run_many(
            "INSERT INTO exposure (token, message, sender, part, first_at, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (token, message, part)"
            " DO UPDATE SET last_at = excluded.last_at",
            [
                (t, message, mail.sender, part, now, now)
                for part in tokens
                for t in sorted(tokens[part])
            ],
        )

    def forget_before(self, before: float) -> None:
        for table in ("exposure", "shown_mail"):
            self._session.run(f"DELETE FROM {table} WHERE last_at < ?", [before])

    def add_correspondents(self, account: str, addresses: Collection[str], last_sent: str) -> None:
        self._session.run_many(
            "INSERT INTO correspondent (account, address) VALUES (?, ?)"
            " ON CONFLICT (account, address) DO NOTHING",
            [(account, address) for address in sorted(addresses)],
        )
        self._upsert("last_sent", {"account": account}, {"message": last_sent})


class DraftReader(Noun):
    def get(self, account: str, id: str) -> tuple[str, str] | None:
        """Return the version in which Postroom left a draft, and its agent."""
        return self._row("version, agent", "provider_draft", account=account, id=id)

    def of_agent(self, account: str, agent: str) -> list[str]:
        sql = "SELECT id FROM provider_draft WHERE account = ? AND agent = ?"
        return self._all(str, sql, account, agent)


class DraftStore(DraftReader):
    def save(self, account: str, id: str, version: str, agent: str) -> None:
        keys = {"account": account, "id": id}
        self._upsert("provider_draft", keys, {"version": version, "agent": agent})

    def remove(self, account: str, id: str) -> None:
        self._delete("provider_draft", account=account, id=id)


class LabelChangeReader(Noun):
    def newest(self) -> list[LabelChange]:
        return self._all(
            lambda *row: LabelChange(*row[:5], *(frozenset(json.loads(one)) for one in row[5:])),
            "SELECT number, at, agent, account, message, added, removed FROM label_change"
            " ORDER BY number DESC",
        )

    def times(self, count: int) -> list[Stamp]:
        sql = "SELECT at, boot, steady FROM label_change ORDER BY number DESC LIMIT ?"
        return self._all(Stamp, sql, count)


class LabelChangeStore(LabelChangeReader):
    def add(self, change: LabelChange) -> int:
        added, removed = (json.dumps(sorted(one)) for one in (change.added, change.removed))
        ((number,),) = self._session.rows(
            "INSERT INTO label_change (agent, account, message, added, removed, at, boot, steady)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
            [change.agent, change.account, change.message, added, removed, *self._clock()],
        )
        return int(number)

    def remove(self, number: int) -> None:
        self._delete("label_change", number=number)
