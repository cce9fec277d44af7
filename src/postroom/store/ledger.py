"""The ledger: every letter, its state and history, the limits that are spent, and the chain of audit lines.

It decides; notes and log files show. All that changes a letter happens in a transaction, which
compares the version of what was read with what is there, so that of two who decide at the same
time one gets `Conflict`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from postroom.core import audit
from postroom.core.records import DeskSettings
from postroom.store.database import Database
from postroom.store.locks import try_lock
from postroom.store.protocol import Clock, LetterClaims, Session
from postroom.store.sql.desk import (
    ActionReader,
    ActionStore,
    SessionReader,
    SessionStore,
    SettingStore,
    load_settings,
)
from postroom.store.sql.letters import HistoryReader, LetterLists, LetterReader, LetterStore
from postroom.store.sql.mail import (
    DraftReader,
    DraftStore,
    ExposureReader,
    ExposureStore,
    InboxReader,
    InboxStore,
    LabelChangeReader,
    LabelChangeStore,
)
from postroom.store.sql.notes import (
    NoteReader,
    NoteStore,
    SlipReader,
    SlipStore,
    ToolNoteReader,
    ToolNoteStore,
)
from postroom.store.sql.sending import BudgetReader, BudgetStore, ProofReader, ProofStore

_SCHEMA = Path(__file__).with_name("sql") / "schema.sql"


def migrations() -> list[str]:
    """Return the steps that make the tables, from the first version's on. They are SQLite's own SQL."""
    return re.split(r"^-- step \d+\n", _SCHEMA.read_text("utf-8"), flags=re.M)[1:]


class LedgerReader:
    """All nouns, to be read. Outside of a transaction each call reads as of its own moment."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self.clock = clock
        self.letters = LetterReader(session, clock)
        self.lists = LetterLists(session, clock)
        self.history = HistoryReader(session, clock)
        self.notes = NoteReader(session, clock)
        self.tool_notes = ToolNoteReader(session, clock)
        self.slips = SlipReader(session, clock)
        self.budget = BudgetReader(session, clock)
        self.proofs = ProofReader(session, clock)
        self.inbox = InboxReader(session, clock)
        self.exposure = ExposureReader(session, clock)
        self.drafts = DraftReader(session, clock)
        self.label_changes = LabelChangeReader(session, clock)
        self.sessions = SessionReader(session, clock)
        self.actions = ActionReader(session, clock)

    @property
    def settings(self) -> DeskSettings:
        """What is kept once for the whole desk."""
        return load_settings(self._session)

    def check_integrity(self) -> str:
        """Return the engine's own finding on its files, `ok` where nothing is wrong."""
        return self._session.check()


class Transaction:
    """All nouns, to be read and written: all of it is kept, or none."""

    def __init__(self, session: Session, clock: Clock, draw: Callable[[int], bytes]) -> None:
        self._session = session
        self._settings = SettingStore(session, clock)
        self.letters = LetterStore(session, clock)
        self.lists = LetterLists(session, clock)
        self.history = HistoryReader(session, clock)
        self.notes = NoteStore(session, clock)
        self.tool_notes = ToolNoteStore(session, clock)
        self.slips = SlipStore(session, clock)
        self.budget = BudgetStore(session, clock)
        self.proofs = ProofStore(session, clock)
        self.inbox = InboxStore(session, clock)
        self.exposure = ExposureStore(session, clock)
        self.drafts = DraftStore(session, clock)
        self.label_changes = LabelChangeStore(session, clock)
        self.sessions = SessionStore(session, clock)
        self.actions = ActionStore(session, clock, draw, self._settings)

    def begin(self) -> None:
        """Forget what the last transaction read and added."""
        self._settings.forget()
        self.actions.last = 0

    @property
    def settings(self) -> DeskSettings:
        """What is kept once for the whole desk, read once a transaction."""
        return self._settings.value

    def save_settings(self, settings: DeskSettings) -> None:
        """Keep the settings that differ from those of this transaction."""
        self._settings.save(settings)

    def commit(self) -> None:
        """Keep what was written so far, before the block ends; nothing is written after it."""
        self._session.commit()


class Ledger(LedgerReader):
    """The durable record of one desk, over any engine."""

    def __init__(
        self,
        session: Session,
        claims: LetterClaims,
        path: Path,
        *,
        clock: Clock,
        draw: Callable[[int], bytes],
    ) -> None:
        super().__init__(session, clock)
        self.claims = claims
        self.path = path
        self._transaction = Transaction(session, clock, draw)
        self._seal_key = ""
        self._durable = 0  # the last audit line that this process knows to be on the disk

    @contextmanager
    def read(self) -> Iterator[LedgerReader]:
        """Read several things as of one moment."""
        with self._session.snapshot():
            yield self

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
        """Hold the ledger: all that is written inside is kept, or none of it.

        What can be found out again need not be `synced` to the disk. With `early`, the transaction
        may be committed before the block ends.
        """
        with self._session.write(synced=synced, early=early):
            self._transaction.begin()
            yield self._transaction
            last = self._transaction.actions.last  # afterwards it may be another thread's
        if synced:
            self._durable = max(self._durable, last)

    def sync(self, number: int) -> None:
        """Have the audit lines up to this number on the disk, whichever process wrote them."""
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
        """Close the files."""
        self._session.close()


class KernelClaims:
    """Claims as kernel locks, one file each: they end with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hold(self, id: str) -> AbstractContextManager[bool]:
        """Hold the claim on a letter if nobody else does; the value says whether."""
        return try_lock(self._folder / id)


class SqliteLedger(Ledger):
    """A ledger in one SQLite file, with claims as kernel locks beside it."""

    def __init__(self, path: Path, *, clock: Clock, draw: Callable[[int], bytes]) -> None:
        database, claims = Database(path, migrations()), KernelClaims(path.parent / "claims")
        super().__init__(database, claims, path, clock=clock, draw=draw)
