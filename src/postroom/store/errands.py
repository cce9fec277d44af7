"""The journal of mail that came in: what the watcher has seen, and what became of each, in the ledger's tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from postroom.core.errors import Conflict
from postroom.core.records import InboxItem, MailboxCursor
from postroom.store.lists import OPEN as OPEN_LETTERS
from postroom.store.visits import Visits

# found: seen, its note is still to be written; decided: what is to be done is known, but not done;
# aside: no mail of the inbox (yet); before: was there when watching began; gone: its note was deleted.
OPEN: Final = ("found", "pending", "decided", "drafted", "needs_info", "delegated", "failed")
CLOSED: Final = ("done", "aside", "before", "gone")
WATCH: Final = "watch "


_COLUMNS: Final = ", ".join(InboxItem._fields)


class Errands(Visits):
    """The part of a transaction that is about mail that came in."""

    def watched(self, account: str) -> MailboxCursor | None:
        """Return how far this account was followed; None where it never was."""
        kept = self.get(WATCH + account)
        return MailboxCursor(*json.loads(kept)) if kept else None

    def watch(
        self, account: str, watch: MailboxCursor, ids: Iterable[str], state: str = "found"
    ) -> int:
        """Remember what was seen and how far that goes, both or neither; return how many are new."""
        now = self._clock().wall
        new = sum(
            self._do(
                "INSERT OR IGNORE INTO errand (account, message, state, seen, changed)"
                " VALUES (?, ?, ?, ?, ?)",
                account, id, state, now, now,
            )
            for id in ids
        )  # fmt: skip
        self.set(WATCH + account, json.dumps(watch))
        return new

    def seen_of(self, account: str, ids: Sequence[str]) -> set[str]:
        """Return those of the mails that were seen before."""
        marks = ", ".join("?" * len(ids))
        sql = f"SELECT message FROM errand WHERE account = ? AND message IN ({marks})"
        return {id for (id,) in self._rows(sql, account, *ids)}

    def reconsider(self, account: str, ids: Iterable[str]) -> int:
        """Look again at mails that were put aside, since their labels changed."""
        return sum(
            self._do(
                "UPDATE errand SET state = 'found', version = version + 1"
                " WHERE account = ? AND message = ? AND state = 'aside'",
                account, id,
            )
            for id in ids
        )  # fmt: skip

    def items(self, *states: str) -> list[InboxItem]:
        """Return mails in these states, oldest first."""
        marks = ", ".join("?" * len(states))
        return self._errands(f"state IN ({marks})", *states)

    def waiting(self, state: str, most: int, after: int = 0) -> list[tuple[int, InboxItem]]:
        """Return the oldest mails in this state past a row, each with its row."""
        rows = self._rows(
            f"SELECT row, {_COLUMNS} FROM errand WHERE state = ? AND row > ? ORDER BY row LIMIT ?",
            state, after, most,
        )  # fmt: skip
        return [(row[0], InboxItem(*row[1:])) for row in rows]

    def item(self, account: str, message: str) -> InboxItem | None:
        """Return what is known of a mail."""
        return next(iter(self._errands("account = ? AND message = ?", account, message)), None)

    def unfollowed(self) -> list[InboxItem]:
        """Return the mails whose note does not show what the ledger has."""
        return self._errands(
            "unshown AND EXISTS (SELECT 1 FROM note WHERE path != ''"
            " AND note.letter = 'mail ' || account || ' ' || message)"
        )

    def news(self) -> list[InboxItem]:
        """Return the mails whose letter has come to an end, or back from one."""
        return self._errands(
            "EXISTS (SELECT 1 FROM letter WHERE letter.id = errand.letter AND"
            f" ((errand.state = 'drafted' AND letter.state NOT IN ({OPEN_LETTERS}))"
            f" OR (errand.state = 'needs_info' AND letter.state IN ({OPEN_LETTERS}, 'sent'))"
            " OR (errand.state = 'done' AND errand.by = 'a person')))"
        )

    def _errands(self, where: str, *values: object) -> list[InboxItem]:
        rows = self._rows(f"SELECT {_COLUMNS} FROM errand WHERE {where} ORDER BY row", *values)
        return [InboxItem(*row) for row in rows]

    def change(self, item: InboxItem, **changes: str | int | float) -> InboxItem:
        """Give a mail another state, unless somebody was first: then `Conflict`."""
        changes.setdefault("changed", self._clock().wall)
        new = item._replace(**changes, version=item.version + 1)  # type: ignore[arg-type]
        names = ", ".join(f"{name} = ?" for name in (*changes, "version"))
        done = self._do(
            f"UPDATE errand SET {names}, unshown = 1"
            " WHERE account = ? AND message = ? AND version = ?",
            *changes.values(), new.version, item.account, item.message, item.version,
        )  # fmt: skip
        if not done:
            raise Conflict(f"The mail {item.message} was changed by two at once")
        return new

    def shown(self, item: InboxItem) -> None:
        """Remember that the note of a mail shows what it had to."""
        self._do(
            "UPDATE errand SET unshown = 0 WHERE account = ? AND message = ? AND version = ?",
            item.account, item.message, item.version,
        )  # fmt: skip

    def drafts_in(self, account: str, thread: str, since: float) -> int:
        """Return how many letters were drafted by themselves in a conversation since then."""
        sql = "SELECT count(*) FROM drafting WHERE account = ? AND thread = ? AND at > ?"
        ((count,),) = self._rows(sql, account, thread, since)
        return int(count)

    def drafted_in(self, account: str, thread: str, letter: str) -> None:
        """Count a letter that was drafted by itself in a conversation."""
        self._do(
            "INSERT OR IGNORE INTO drafting VALUES (?, ?, ?, ?)",
            letter, account, thread, self._clock().wall,
        )  # fmt: skip

    def tally(self, since: float = 0) -> dict[str, int]:
        """Return how many mails are in each state, of those that changed since then."""
        since_then, values = ("WHERE changed >= ?", [since]) if since else ("", [])
        sql = f"SELECT state, count(*) FROM errand {since_then} GROUP BY state"
        return dict(self._rows(sql, *values))
