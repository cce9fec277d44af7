"""One way to open a SQLite file: durable, shared between processes, versioned, its errors put into our words."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from postroom.core.errors import Corrupt, Invalid, PostroomError, Unavailable
from postroom.core.text import one_line
from postroom.store.files import private_folder
from postroom.store.protocol import Row

BUSY_SECONDS = 10.0
STEPS = 20_000  # of SQLite's machine between two looks at the clock
_RETRY = "Run the command again."


def read_migrations(schema: Path) -> list[str]:
    """Return the steps of a file of SQL, each below a line `-- step 1`."""
    return re.split(r"^-- step \d+\n", schema.read_text("utf-8"), flags=re.M)[1:]


def discard(path: Path) -> None:
    """Remove a database that can be made anew, and what SQLite keeps beside it."""
    for end in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


class Database:
    """SQLite's `Session`: a connection with full sync, one writer at a time, and every failure one of `PostroomError`."""

    def __init__(
        self, path: Path, migrations: Sequence[str], *, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.path = path
        self._translated = _Translation(path)
        self._synced = False  # whether commits wait for the disk; `_prepare` turns it on
        self._is_writing = False
        # One connection serves all threads of the process, in turn: a reader never sees half of
        # another thread's transaction.
        self._turn = threading.RLock()
        self._migrations = migrations
        self._busy_seconds = busy_seconds
        private_folder(path.parent)
        self._connect()

    def _connect(self) -> None:
        with self._translated:
            if not self.path.exists():
                self.path.touch(mode=0o600)
            self._synced = False
            self._connection = sqlite3.connect(
                self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(self._migrations)
            except BaseException:
                self._connection.close()
                raise

    def reopen(self, *, anew: bool = False) -> None:
        """Open the file that is there now, or an empty one in its place, for all threads at once."""
        with self._turn:
            self._connection.close()
            if anew:
                discard(self.path)
            self._connect()

    def _prepare(self, migrations: Sequence[str]) -> None:
        known = len(migrations)
        if (found := self._version()) <= known:
            self._use_wal()
            self._sync(synced=True)
        if found == known:
            return
        with self.write():
            # Read again under the write lock: another process may have migrated meanwhile.
            found = self._version()
            if found > known:
                raise Corrupt(
                    f"{self.path} was made by a newer Postroom (version {found}; this one knows {known})",
                    remedy="Upgrade Postroom. The file is left as it is.",
                )
            for name, function in (("casefold", str.casefold), ("one_line", one_line)):
                self._connection.create_function(name, 1, function, deterministic=True)
            for script in migrations[found:]:
                for statement in script.split(";\n"):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {known}")

    def _use_wal(self) -> None:
        """Keep a write-ahead log; where other processes open a new file at the same moment, SQLite does not wait by itself."""
        end = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as why:
                if why.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def check(self) -> str:
        return str(self.rows("PRAGMA quick_check(1)")[0][0])

    def close(self) -> None:
        with self._turn:
            self._connection.close()

    def rows(
        self, sql: str, values: Sequence[object] = (), *, patience: float | None = None
    ) -> list[Row]:
        with self._turn, self._translated:
            if patience is None:
                return self._connection.execute(sql, values).fetchall()
            end = time.monotonic() + patience
            self._connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
            try:
                return self._connection.execute(sql, values).fetchall()
            finally:
                self._connection.set_progress_handler(None, 0)

    def row(self, sql: str, values: Sequence[object] = ()) -> Row | None:
        return next(iter(self.rows(sql, values)), None)

    def run(self, sql: str, values: Sequence[object]) -> int:
        with self._turn:
            return self._writing().execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[object]]) -> int:
        with self._turn:
            return self._writing().executemany(sql, rows).rowcount if rows else 0

    def commit(self) -> None:
        self._writing().execute("COMMIT")

    def _writing(self) -> sqlite3.Connection:
        if not self._is_writing:
            raise RuntimeError("Changes need a transaction: they belong inside of `write`")
        return self._connection

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[sqlite3.Connection]:
        """Hold the write lock: all that is done inside is kept, or none of it.

        With `synced=False` a power cut may lose it, until the next synced transaction: for what can be
        computed or fetched again. With `early` the block may commit by itself before it ends.
        """
        with self._turn, self._translated:
            self._sync(synced=synced)
            self._connection.execute("BEGIN IMMEDIATE")
            self._is_writing = True
            try:
                yield self._connection
                if not early or self._connection.in_transaction:
                    self._connection.execute("COMMIT")
            except BaseException:
                # A failed COMMIT or a full disk may have rolled back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._is_writing = False

    def _sync(self, *, synced: bool) -> None:
        if synced != self._synced:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._synced = synced

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        with self._turn, self._translated:
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")


class _Translation:
    """Turns errors of its block into ours. No generator, which would take as long as a query."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, why: BaseException | None, _trace: object) -> None:
        if isinstance(why, sqlite3.Error | OSError | UnicodeError):
            raise _translate(why, self._path) from why


# What each error is to the caller: SQLite's by its code, others by their type. With it, message and remedy.
_ERRORS: list[tuple[type[PostroomError], tuple[object, ...], str, str]] = [
    (Unavailable, (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
     "{path} is in use by another process", f"Wait for it to finish. {_RETRY}"),
    (Unavailable, (OSError, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH),
     "{path} cannot be opened",
     "Get the right to read and write it and its folder, or set POSTROOM_STATE to another folder."),
    (Corrupt, (UnicodeDecodeError, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),  # SQLite quotes what is damaged
     "{path} is damaged or not a database of Postroom's", "It is left as it is. Put a backup in its place."),
    (Invalid, (UnicodeEncodeError,), "A text holds half a character", "Use valid Unicode."),
    (Invalid, (sqlite3.SQLITE_INTERRUPT,), "This takes too long", "Ask for less: narrow the search."),
    (Unavailable, (sqlite3.SQLITE_FULL,), "The disk is full: {path} was not changed", f"Free some space. {_RETRY}"),
    (Unavailable, (sqlite3.SQLITE_IOERR,), "{path} cannot be read or written ({why})", f"Check the disk. {_RETRY}"),
    (Unavailable, (sqlite3.SQLITE_TOOBIG,), "Too large for {path} ({why})", "Leave the largest mails out."),
    # It could not be opened again.
    (Unavailable, (sqlite3.ProgrammingError,), "{path} is not open", f"Check the disk. {_RETRY}"),
    (Corrupt, (Exception,), "{path}: {why}", "It is left as it is. Report this with the version of Postroom."),
]  # fmt: skip


def _translate(why: Exception, path: Path) -> PostroomError:
    """Return an error of SQLite, the file system or the text encoding as one of ours."""
    names = {getattr(why, "sqlite_errorcode", 0) & 0xFF, *type(why).__mro__}
    kind, _, text, remedy = next(row for row in _ERRORS if not names.isdisjoint(row[1]))
    return kind(text.format(path=path, why=why), remedy=remedy)
