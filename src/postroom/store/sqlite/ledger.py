"""The ledger in one SQLite file: every letter, its state and history, the limits that are spent, and the chain.

It decides; notes and log files show. All that changes a letter happens in a transaction, which
compares the version of what was read with what is there, so that of two who decide at the same
time one gets `Conflict`. The SQL is what SQLite and PostgreSQL have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.core import audit
from postroom.store.database import Database
from postroom.store.locks import try_lock
from postroom.store.sqlite import settings
from postroom.store.sqlite.inbox import SqlInbox
from postroom.store.sqlite.letters import SqlHistory, SqlLetters
from postroom.store.sqlite.lists import SqlLists
from postroom.store.sqlite.mail import SqlDrafts, SqlExposures, SqlLabelChanges, SqlWebSessions
from postroom.store.sqlite.notes import SqlNotes, SqlSlips, SqlToolNotes
from postroom.store.sqlite.schema import MIGRATIONS
from postroom.store.sqlite.sending import SqlActions, SqlBudget, SqlProofs

if TYPE_CHECKING:
    from postroom.core.records import DeskSettings
    from postroom.core.stamp import Stamp
    from postroom.store import protocol


class SqliteTransaction:
    """Implements `store.protocol.Transaction`, and so `Reading`."""

    def __init__(
        self, database: Database, clock: Callable[[], Stamp], draw: Callable[[int], bytes]
    ) -> None:
        self._database = database
        self._settings = settings.SqlSettings(database)
        proofs, budget = SqlProofs(database, clock), SqlBudget(database)
        letters = SqlLetters(database, proofs)
        self.letters: protocol.LetterStore = letters
        self.lists: protocol.LetterLists = SqlLists(database)
        self.history: protocol.HistoryReader = SqlHistory(database, letters)
        self.notes: protocol.NoteStore = SqlNotes(database)
        self.tool_notes: protocol.ToolNoteStore = SqlToolNotes(database, clock)
        self.slips: protocol.SlipStore = SqlSlips(database, clock)
        self.budget: protocol.BudgetStore = budget
        self.proofs: protocol.ProofStore = proofs
        self.inbox: protocol.InboxStore = SqlInbox(database, clock)
        self.exposure: protocol.ExposureStore = SqlExposures(database, clock)
        self.drafts: protocol.DraftStore = SqlDrafts(database)
        self.label_changes: protocol.LabelChangeStore = SqlLabelChanges(database, clock)
        self.sessions: protocol.SessionStore = SqlWebSessions(database, clock)
        self._actions = SqlActions(database, clock, draw, self._settings, budget)
        self.actions: protocol.ActionStore = self._actions

    @property
    def settings(self) -> DeskSettings:
        return self._settings.value

    def save_settings(self, settings: DeskSettings) -> None:
        self._settings.save(settings)

    def commit(self) -> None:
        self._database.commit()

    @property
    def last_action(self) -> int:
        """The number of the last audit line that this transaction added, or 0."""
        return self._actions.last


class KernelClaims:
    """Claims as kernel locks, one file each: they end with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, id: str) -> AbstractContextManager[bool]:
        """Hold the claim on a letter if nobody else does; the value says whether."""
        return try_lock(self._folder / id)


class SqliteLedger:
    """Implements `store.protocol.Ledger`."""

    def __init__(
        self, path: Path, *, clock: Callable[[], Stamp], draw: Callable[[int], bytes]
    ) -> None:
        self.path = path
        self.clock = clock
        self.claims: protocol.LetterClaims = KernelClaims(path.parent / "claims")
        self._database = Database(path, MIGRATIONS)
        self._draw = draw
        self._seal_key = ""
        self._durable = 0  # the last audit line that this process knows to be on the disk
        nouns = self._transaction()
        self.letters: protocol.LetterReader = nouns.letters
        self.lists: protocol.LetterLists = nouns.lists
        self.history: protocol.HistoryReader = nouns.history
        self.notes: protocol.NoteReader = nouns.notes
        self.tool_notes: protocol.ToolNoteReader = nouns.tool_notes
        self.slips: protocol.SlipReader = nouns.slips
        self.budget: protocol.BudgetReader = nouns.budget
        self.proofs: protocol.ProofReader = nouns.proofs
        self.inbox: protocol.InboxReader = nouns.inbox
        self.exposure: protocol.ExposureReader = nouns.exposure
        self.drafts: protocol.DraftReader = nouns.drafts
        self.label_changes: protocol.LabelChangeReader = nouns.label_changes
        self.sessions: protocol.SessionReader = nouns.sessions
        self.actions: protocol.ActionReader = nouns.actions

    def _transaction(self) -> SqliteTransaction:
        return SqliteTransaction(self._database, self.clock, self._draw)

    @property
    def settings(self) -> DeskSettings:
        return settings.load(self._database)

    @contextmanager
    def read(self) -> Iterator[protocol.LedgerReader]:
        with self._database.snapshot():
            yield self

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[SqliteTransaction]:
        with self._database.write(synced=synced, early=early):
            transaction = self._transaction()
            yield transaction
        if synced:
            self._durable = max(self._durable, transaction.last_action)

    def sync(self, number: int) -> None:
        if number > self._durable:
            with self.write():
                # SQLite syncs no transaction that changes nothing.
                self._database.run("UPDATE desk SET sync_count = sync_count + 1", [])
            self._durable = number

    def is_sealed(self, line: str) -> bool:
        self._seal_key = self._seal_key or self.settings.seal_key
        return audit.sealed(line, self._seal_key)

    def check_integrity(self) -> str:
        return str(self._database.rows("PRAGMA quick_check(1)")[0][0])

    def close(self) -> None:
        self._database.close()
