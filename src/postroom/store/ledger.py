"""The ledger: every letter, its state and history, the limits that are spent, and the chain of audit lines.

It decides; notes and log files show. All that changes a letter happens in a transaction, which compares the version
of what was read with what is there, so that of two who decide at the same time one gets `Conflict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from postroom.core import audit
from postroom.core.records import DeskSettings
from postroom.store.database import Database, read_migrations
from postroom.store.files import try_lock
from postroom.store.protocol import Clock, HoldClaim, Session
from postroom.store.sql import desk, letters, mail
from postroom.store.sql.rows import Noun

# The steps that make the tables, from the first version's on. They are SQLite's own SQL.
MIGRATIONS = read_migrations(Path(__file__).parent / "sql" / "schema.sql")


class LedgerReader:
    """All nouns, to be read. Outside of a transaction each call reads as of its own moment."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self.clock = clock
        self.letters = letters.LetterReader(session, clock)
        self.lists = letters.LetterLists(session, clock)
        self.notes = desk.NoteReader(session, clock)
        self.tool_notes = desk.ToolNoteReader(session, clock)
        self.slips = desk.SlipReader(session, clock)
        self.budget = desk.BudgetReader(session, clock)
        self.proofs = letters.ProofReader(session, clock)
        self.inbox = mail.InboxReader(session, clock)
        self.exposure = mail.ExposureReader(session, clock)
        self.drafts = mail.DraftReader(session, clock)
        self.label_changes = mail.LabelChangeReader(session, clock)
        self.sessions = desk.SessionReader(session, clock)
        self.actions = desk.ActionReader(session, clock)

    @property
    def settings(self) -> DeskSettings:
        return desk.load_settings(self._session)

    def check_integrity(self) -> str:
        return self._session.check()


class Transaction(Noun):
    """All nouns, to be read and written: all of it is kept, or none. One object serves all transactions of a ledger."""

    def __init__(self, session: Session, clock: Clock, actions: desk.ActionStore) -> None:
        super().__init__(session, clock)
        self.letters = letters.LetterStore(session, clock)
        self.lists = letters.LetterLists(session, clock)
        self.notes = desk.NoteStore(session, clock)
        self.tool_notes = desk.ToolNoteStore(session, clock)
        self.slips = desk.SlipStore(session, clock)
        self.budget = desk.BudgetStore(session, clock)
        self.proofs = letters.ProofStore(session, clock)
        self.inbox = mail.InboxStore(session, clock)
        self.exposure = mail.ExposureStore(session, clock)
        self.drafts = mail.DraftStore(session, clock)
        self.label_changes = mail.LabelChangeStore(session, clock)
        self.sessions = desk.SessionStore(session, clock)
        self.actions = actions

    def begin(self) -> None:
        """Reset what is cached for one transaction."""
        self.actions.last = 0
        vars(self).pop("settings", None)

    @cached_property
    def settings(self) -> DeskSettings:
        return desk.load_settings(self._session)

    def save_settings(self, settings: DeskSettings) -> None:
        """Keep the settings that differ from those of this transaction."""
        before, new = vars(self.settings), vars(settings)
        if changed := {name: value for name, value in new.items() if value != before[name]}:
            self._save_desk(changed)
            self.settings = settings

    def commit(self) -> None:
        """Keep what was written so far, before the block ends; nothing is written after it."""
        self._session.commit()


Change = Callable[[Transaction], None]  # a function that writes something in a transaction


class Ledger(LedgerReader):
    def __init__(
        self,
        session: Session,
        hold_claim: HoldClaim,
        path: Path,
        *,
        clock: Clock,
        draw: Callable[[int], bytes],
    ) -> None:
        super().__init__(session, clock)
        self.hold_claim = hold_claim
        self.path = path
        self._transaction = Transaction(session, clock, desk.ActionStore(session, clock, draw))
        self._seal_key = ""
        self.last_line = 0  # the last audit line that this process added
        self._durable = 0  # the last one that it knows to be on the disk

    @contextmanager
    def read(self) -> Iterator[LedgerReader]:
        """Read several things as of one moment."""
        with self._session.snapshot():
            yield self

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        """Yield a transaction: all changes in the block are kept, or none if it raises.

        Pass `synced=False` for changes that can be derived again after a power failure: they are not synced to disk.
        With `early`, the block may call `commit` before its end, and then writes nothing more.
        """
        with self._session.write(synced=synced, early=early):
            self._transaction.begin()
            yield self._transaction
            last = self._transaction.actions.last  # afterwards it may be another thread's
        self.last_line = max(self.last_line, last)
        if synced:
            self._durable = max(self._durable, last)

    def apply(self, *changes: Change | None) -> None:
        """Make these changes in one transaction that is not synced to disk (see `write`); None is skipped."""
        if due := [change for change in changes if change]:
            with self.write(synced=False) as tx:
                for change in due:
                    change(tx)

    def sync(self, number: int) -> None:
        """Sync the audit lines up to this number, which must be committed, to disk, also those of other processes."""
        if number > self._durable:
            with self.write():
                # SQLite syncs no transaction that changes nothing.
                self._session.run("UPDATE desk SET sync_count = sync_count + 1", [])
            self._durable = number

    def is_sealed(self, line: str) -> bool:
        """Whether an audit line is sealed with this ledger's key."""
        self._seal_key = self._seal_key or self.settings.seal_key
        return audit.sealed(line, self._seal_key)

    def close(self) -> None:
        self._session.close()


def kernel_claims(folder: Path) -> HoldClaim:
    """Return claims that are kernel locks, one file each in this folder."""
    return lambda id: try_lock(folder / id)


class SqliteLedger(Ledger):
    def __init__(self, path: Path, *, clock: Clock, draw: Callable[[int], bytes]) -> None:
        claims = kernel_claims(path.parent / "claims")
        super().__init__(Database(path, MIGRATIONS), claims, path, clock=clock, draw=draw)
