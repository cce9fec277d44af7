"""A SQLite file under our rules: durable, private, shared, and never touched when it is not ours."""

import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom.core.errors import Corrupt, Denied, Unavailable
from postroom.store.database import Database

SCHEMA = ("CREATE TABLE thing (name TEXT);\nCREATE INDEX thing_name ON thing (name)",)
Connect = Callable[..., Database]


def names(opened: Database) -> list[str]:
    return [name for (name,) in opened.rows("SELECT name FROM thing ORDER BY name")]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return how to open a database, which is closed after the test."""
    opened: list[Database] = []

    def open_one(path: Path, migrations: Sequence[str], **options: float) -> Database:
        opened.append(Database(path, migrations, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_a_new_file_and_its_folders_are_for_the_owner_alone(
    connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "state" / "x.sqlite"
    connect(path, SCHEMA).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_every_commit_is_synced_to_the_disk(connect: Connect, tmp_path: Path) -> None:
    opened = connect(tmp_path / "x.sqlite", SCHEMA)
    assert opened.row("PRAGMA journal_mode") == ("wal",)
    assert opened.row("PRAGMA synchronous") == (2,)


def test_a_transaction_that_fails_leaves_nothing(connect: Connect, tmp_path: Path) -> None:
    opened = connect(tmp_path / "x.sqlite", SCHEMA)
    with pytest.raises(ZeroDivisionError), opened.write() as connection:
        connection.execute("INSERT INTO thing VALUES ('half')")
        raise ZeroDivisionError
    assert names(opened) == []
    with opened.write() as connection:
        connection.execute("INSERT INTO thing VALUES ('whole')")
    assert names(opened) == ["whole"]


def test_a_migration_runs_once_and_keeps_what_is_there(connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    first = connect(path, SCHEMA)
    with first.write() as connection:
        connection.execute("INSERT INTO thing VALUES ('old')")
    later = (*SCHEMA, "ALTER TABLE thing ADD COLUMN colour TEXT")
    for _ in range(2):
        connect(path, later).close()
    assert connect(path, later).row("SELECT name, colour FROM thing") == ("old", None)


def test_a_migration_that_fails_leaves_the_file_at_its_version(
    connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "x.sqlite"
    connect(path, SCHEMA).close()
    with pytest.raises(Corrupt):
        connect(path, (*SCHEMA, "CREATE TABLE new (a);\nCREATE TABLE thing (b)"))
    assert connect(path, SCHEMA).rows("SELECT name FROM sqlite_master WHERE name = 'new'") == []


def test_a_file_of_a_newer_version_is_left_alone_with_the_remedy(
    connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "x.sqlite"
    connect(path, (*SCHEMA, "CREATE TABLE new (a)")).close()
    with pytest.raises(Corrupt, match="newer Postroom") as refusal:
        connect(path, SCHEMA)
    assert "Upgrade" in refusal.value.remedy


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_a_damaged_file_is_named_and_left_alone(
    connect: Connect, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(Corrupt) as refusal:
        connect(path, SCHEMA)
    assert str(path) in refusal.value.message
    assert "left as it is" in refusal.value.remedy
    assert path.read_bytes() == content


def test_a_file_whose_pages_were_overwritten_is_reported_when_it_is_read(
    connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "x.sqlite"
    opened = connect(path, SCHEMA)
    with opened.write() as connection:
        connection.executemany(
            "INSERT INTO thing VALUES (?)", [(f"name {n}" * 50,) for n in range(500)]
        )
    opened.close()
    raw = bytearray(path.read_bytes())
    raw[4096 * 3 :] = b"\xa5" * (len(raw) - 4096 * 3)
    path.write_bytes(bytes(raw))
    with pytest.raises(Corrupt):
        names(connect(path, SCHEMA))


def test_a_writer_that_waits_too_long_for_another_process_says_who_to_wait_for(
    connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "x.sqlite"
    connect(path, SCHEMA).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    opened = connect(path, SCHEMA, busy_seconds=0.01)
    with pytest.raises(Unavailable, match="in use by another process"), opened.write():
        pass
    other.execute("ROLLBACK")
    other.close()
    with opened.write() as connection:
        connection.execute("INSERT INTO thing VALUES ('later')")
    assert names(opened) == ["later"]


def test_several_that_open_a_new_file_at_once_all_open_it(connect: Connect, tmp_path: Path) -> None:
    """SQLite does not wait by itself where two want to begin the write-ahead log of a file."""
    together = threading.Barrier(3)

    def open_one(number: int) -> list[str]:
        path = tmp_path / f"{number}.sqlite"
        together.wait(10)
        return names(connect(path, SCHEMA))

    with ThreadPoolExecutor(3) as pool:
        assert not any(pool.map(open_one, [number for number in range(5) for _ in range(3)]))


def test_a_reader_sees_none_of_another_threads_transaction(
    connect: Connect, tmp_path: Path
) -> None:
    opened = connect(tmp_path / "x.sqlite", SCHEMA)
    inside, seen = threading.Event(), []

    def read() -> None:
        inside.wait(10)
        seen.append(names(opened))

    reader = threading.Thread(target=read)
    reader.start()
    with opened.write() as connection:
        connection.execute("INSERT INTO thing VALUES ('a')")
        inside.set()
        reader.join(0.05)
        connection.execute("INSERT INTO thing VALUES ('b')")
    reader.join(10)
    assert seen == [["a", "b"]]


def test_a_full_file_is_reported_and_nothing_is_half_written(
    connect: Connect, tmp_path: Path
) -> None:
    opened = connect(tmp_path / "x.sqlite", SCHEMA)
    opened.row("PRAGMA max_page_count = 20")
    with (
        pytest.raises(Unavailable, match="disk is full") as refusal,
        opened.write() as connection,
    ):
        connection.executemany("INSERT INTO thing VALUES (?)", [("x" * 5000,) for _ in range(100)])
    assert "Free some space" in refusal.value.remedy
    assert names(opened) == []


def test_a_folder_that_cannot_be_made_is_named(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot be made") as refusal:
        connect(tmp_path / "file" / "x.sqlite", SCHEMA)
    assert "POSTROOM_STATE" in refusal.value.remedy


def test_a_folder_that_everybody_may_write_to_is_refused(connect: Connect, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Denied, match="Everybody may write") as refusal:
        connect(folder / "x.sqlite", SCHEMA)
    assert "chmod 700" in refusal.value.remedy
