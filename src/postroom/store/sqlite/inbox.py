"""Mail that came in: what the watcher has seen, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from postroom.core.errors import Conflict
from postroom.core.records import DecidedBy, InboxItem, InboxState, MailboxCursor
from postroom.core.stamp import Stamp
from postroom.store.database import Database, Row
from postroom.store.sqlite.rows import OPEN, marks

_COLUMNS: Final = ", ".join(InboxItem._fields)


class SqlInbox:
    """Implements `store.protocol.InboxStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def cursor(self, account: str) -> MailboxCursor | None:
        sql = "SELECT cursor, floor FROM mailbox_cursor WHERE account = ?"
        row = self._database.row(sql, [account])
        return MailboxCursor(*row) if row else None

    def known_of(self, account: str, ids: Sequence[str]) -> set[str]:
        sql = f"SELECT message FROM inbox_item WHERE account = ? AND message IN ({marks(ids)})"
        return {id for (id,) in self._database.rows(sql, [account, *ids])}

    def get(self, account: str, message: str) -> InboxItem | None:
        return next(iter(self._items("account = ? AND message = ?", account, message)), None)

    def in_states(self, *states: str) -> list[InboxItem]:
        return self._items(f"state IN ({marks(states)})", *states)

    def _items(self, where: str, *values: object) -> list[InboxItem]:
        sql = f"SELECT {_COLUMNS} FROM inbox_item WHERE {where} ORDER BY row"
        return [_item(row) for row in self._database.rows(sql, values)]

    def page(self, state: str, count: int, after: int = 0) -> list[tuple[int, InboxItem]]:
        found = self._database.rows(
            f"SELECT row, {_COLUMNS} FROM inbox_item WHERE state = ? AND row > ? ORDER BY row LIMIT ?",
            [state, after, count],
        )
        return [(row[0], _item(row[1:])) for row in found]

    def with_stale_note(self) -> list[InboxItem]:
        return self._items(
            "note_stale != 0 AND EXISTS (SELECT 1 FROM note WHERE note.path != ''"
            " AND note.letter = 'mail ' || account || ' ' || message)"
        )

    def with_changed_letter(self) -> list[InboxItem]:
        return self._items(
            "EXISTS (SELECT 1 FROM letter WHERE letter.id = inbox_item.letter AND"
            f" ((inbox_item.state = 'drafted' AND letter.state NOT IN ({OPEN}))"
            f" OR (inbox_item.state = 'needs_info' AND letter.state IN ({OPEN}, 'sent'))"
            " OR (inbox_item.state = 'done' AND inbox_item.by = ?)))",
            DecidedBy.PERSON,
        )

    def drafts_in_thread(self, account: str, thread: str, since: float) -> int:
        sql = "SELECT count(*) FROM thread_draft WHERE account = ? AND thread = ? AND at > ?"
        return int(self._database.rows(sql, [account, thread, since])[0][0])

    def count_by_state(self, since: float = 0) -> dict[str, int]:
        sql = "SELECT state, count(*) FROM inbox_item WHERE changed >= ? GROUP BY state"
        return dict(self._database.rows(sql, [since]))

    def add(
        self, account: str, cursor: MailboxCursor, ids: Iterable[str], state: str = InboxState.FOUND
    ) -> int:
        now = self._clock().wall
        new = self._database.run_many(
            "INSERT INTO inbox_item (account, message, state, seen, changed)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT (account, message) DO NOTHING",
            [(account, id, state, now, now) for id in ids],
        )
        self._database.run(
            "INSERT INTO mailbox_cursor (account, cursor, floor) VALUES (?, ?, ?)"
            " ON CONFLICT (account) DO UPDATE SET cursor = excluded.cursor, floor = excluded.floor",
            [account, *cursor],
        )
        return new

    def reopen_aside(self, account: str, ids: Iterable[str]) -> int:
        return self._database.run_many(
            "UPDATE inbox_item SET state = 'found', version = version + 1"
            " WHERE account = ? AND message = ? AND state = 'aside'",
            [(account, id) for id in ids],
        )

    def change(self, item: InboxItem, **changes: str | int | float) -> InboxItem:
        changes.setdefault("changed", self._clock().wall)
        new = item._replace(**changes, version=item.version + 1)  # type: ignore[arg-type]
        names = ", ".join(f"{name} = ?" for name in (*changes, "version"))
        done = self._database.run(
            f"UPDATE inbox_item SET {names}, note_stale = 1"
            " WHERE account = ? AND message = ? AND version = ?",
            [*changes.values(), new.version, item.account, item.message, item.version],
        )
        if not done:
            raise Conflict(f"The mail {item.message} was changed by two at once")
        return new

    def mark_note_current(self, item: InboxItem) -> None:
        self._database.run(
            "UPDATE inbox_item SET note_stale = 0 WHERE account = ? AND message = ? AND version = ?",
            [item.account, item.message, item.version],
        )

    def add_draft_in_thread(self, account: str, thread: str, letter: str) -> None:
        self._database.run(
            "INSERT INTO thread_draft (letter, account, thread, at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (letter) DO NOTHING",
            [letter, account, thread, self._clock().wall],
        )


def _item(row: Row) -> InboxItem:
    item = InboxItem(*row)
    return item._replace(state=InboxState(item.state))
