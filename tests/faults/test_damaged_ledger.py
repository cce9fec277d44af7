"""Whatever a damaged ledger holds, each command answers with one of our errors, and none with a traceback."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from postroom.cli.main import EXITS, UNEXPECTED
from postroom.core.errors import Denied
from tests.conftest import Outcome, Person

Damage = Callable[[Path], object]

CODES = frozenset({0, *EXITS.values()})


class Somebody(Person):
    """Somebody whose ledger is damaged."""

    id: str  # of the letter that waits

    @property
    def ledger(self) -> Path:
        return self.folder / "state/ledger.sqlite"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Somebody:
    """A desk with a letter that waits, one that was sent, and one that an agent moved a mail beside."""
    person = Somebody(tmp_path_factory.mktemp("whole"))
    person.live(undo_seconds=0)
    assert person.run("init").code == 0
    person.id = person.draft()
    other = person.draft("second", subject="Second")
    digest = person.show(other)["digest"].removeprefix("sha256:")[:8]
    assert person.run("approve", other, "--yes", digest).code == 0
    with closing(sqlite3.connect(person.ledger)) as ledger, ledger:
        ledger.execute("UPDATE desk SET state_inode = ''")  # it is copied for each case
        ledger.execute(
            "INSERT INTO label_change VALUES (NULL, 1, 'claude', 'default', 'm', '[\"A\"]', '[]', '', 0)"
        )
        ledger.execute("INSERT INTO slip VALUES ('h', '[1, \"\", 1]', '', '')")
    with closing(sqlite3.connect(person.ledger)) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return person


def copied(whole: Somebody, folder: Path) -> Somebody:
    person = Somebody(folder)
    shutil.copytree(whole.folder, folder, dirs_exist_ok=True)
    (folder / "state").chmod(0o700)
    return person


def answers(
    person: Somebody, id: str, codes: frozenset[int] = CODES
) -> Iterator[tuple[list[str], Outcome]]:
    """Yield the commands that use the ledger and do not answer as they should: by one of these codes."""
    commands = [["pending"], ["show", id], ["status"], ["audit", "verify"], ["send-approved"]]
    commands += [["undo-moves"], ["doctor"], ["reject", id, "--reason", "No."]]
    for command in commands:
        done = person.run(*command, "--json")
        errors = [json.loads(line)["error"] for line in done.err.splitlines() if line[:2] == '{"']
        told = all(error["message"] and error["remedy"] for error in errors)
        # `doctor` and `audit verify` have their findings on stdout.
        if done.code not in codes or not told or (done.code and not errors and not done.out):
            yield command, done


def cut(at: int) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[:at])


def flipped(*places: int) -> Damage:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        for place in places:
            data[place : place + 64] = (byte ^ 0xFF for byte in data[place : place + 64])
        path.write_bytes(data)

    return damage


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def beside(end: str) -> Damage:
    return lambda path: path.with_name(path.name + end).write_bytes(b"nonsense" * 5000)


def sql(statement: str, *values: bytes | str) -> Damage:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as ledger, ledger:
            ledger.execute(statement, values)

    return damage


def cell(table: str, column: str, value: bytes | str) -> Damage:
    return sql(f"UPDATE OR IGNORE {table} SET {column} = ?", value)


FILES: dict[str, Damage] = {
    "zero length": cut(0), "one byte": cut(1), "half a header": cut(50), "a header": cut(100),
    "one page": cut(4096), "a page too few": cut(-4096), "a byte too few": cut(-1),
    "another magic": flipped(0), "another header": flipped(16), "another schema": flipped(100),
    "another page": flipped(4096), "other pages": flipped(*range(4096, 400_000, 1500)),
    "a folder": a_folder, "no database": lambda path: path.write_bytes(b"not a database" * 1000),
    "a WAL of nonsense": beside("-wal"), "a journal of nonsense": beside("-journal"),
}  # fmt: skip
TABLES = {
    f"without {table}": sql(f"DROP TABLE {table}")
    for table in ("desk", "letter", "note", "action", "claim", "history", "label_change", "slip")
} | {
    "an empty letter": sql("DELETE FROM letter"), "an empty desk": sql("DELETE FROM desk"),
    "an older version": sql("PRAGMA user_version = 0"), "a version below": sql("PRAGMA user_version = -1"),
}  # fmt: skip
CELLS = {
    f"{table}.{column} = {value!r}": cell(table, column, value)
    for table, column, value in (
        ("letter", "frozen", "nonsense"), ("letter", "frozen", '{"id": 3}'), ("letter", "card", "{}"),
        ("letter", "created", '["x"]'), ("letter", "created", '{"id": 3}'), ("letter", "detail", b"\xff\xfe"),
        ("letter", "state", "nonsense"), ("letter", "version", "x"), ("letter", "agent", b"\xff"),
        ("letter", "recipients", b"\xff"), ("letter", "digest", b"\xff"), ("letter", "origins", "7"),
        ("note", "path", b"\xff"), ("note", "pages", "nonsense"), ("note", "pages", "[]"), ("note", "mtime", "x"),
        ("action", "line", b"\xff\xfe"), ("action", "line", "nonsense"), ("history", "detail", "nonsense"),
        ("history", "state", "nonsense"), ("claim", "wall", "x"), ("slip", "seen", "nonsense"),
        ("label_change", "added", "nonsense"), ("label_change", "removed", "7"), ("label_change", "at", "x"),
    )
} | {
    f"{column} is {value!r}": cell("desk", column, value)
    for column, value in (
        ("log_seq", "nonsense"), ("log_name", b"\xff"), ("log_size", "x"), ("log_changed", "x"),
        ("log_seq", "9" * 15), ("desk_id", b"\xff"),
        ("seal_key", b"\xff"), ("passphrase", "nonsense"), ("state_inode", "x"),
    )
}  # fmt: skip


# A value that SQLite cannot have written may also end in the error that names a fault of ours.
@pytest.mark.parametrize(
    ("damages", "codes"),
    [(FILES, CODES), (TABLES, CODES), (CELLS, CODES | {UNEXPECTED})],
    ids=["files", "tables", "cells"],
)
def test_no_damage_to_the_ledger_makes_a_command_fail_with_a_traceback(
    whole: Somebody, tmp_path: Path, damages: dict[str, Damage], codes: frozenset[int]
) -> None:
    for number, (name, damage) in enumerate(damages.items()):
        person = copied(whole, tmp_path / str(number))
        damage(person.ledger)
        assert list(answers(person, whole.id, codes)) == [], name


def test_a_whole_ledger_answers_every_command(whole: Somebody, tmp_path: Path) -> None:
    person = copied(whole, tmp_path / "copy")
    assert list(answers(person, whole.id)) == []
    assert person.show(whole.id)["state"] == "rejected"


@pytest.mark.parametrize(
    ("file", "command"),
    [("ledger.sqlite", ["pending"]), ("mail/default.sqlite", ["search", "hello"])],
)
def test_a_newer_schema_is_refused_with_what_to_do_and_left_as_it_is(
    whole: Somebody, tmp_path: Path, file: str, command: list[str]
) -> None:
    person = copied(whole, tmp_path / "copy")
    path = person.folder / "state" / file
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    refused = person.run(*command)
    assert refused.code == 10
    said = " ".join(refused.err.split())
    assert f"{file} was made by a newer Postroom (version 99; this one knows" in said
    assert "Upgrade Postroom. The file is left as it is." in said
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [cut(0), sql("DELETE FROM desk")], ids=["empty", "empty desk"])
def test_a_ledger_that_forgot_its_vault_is_not_begun_anew(
    whole: Somebody, tmp_path: Path, damage: Damage
) -> None:
    person = copied(whole, tmp_path)
    damage(person.ledger)
    mark = (tmp_path / "vault/.postroom/ledger").read_bytes()
    done = person.run("pending")
    assert done.code == EXITS[Denied], done
    assert "was lost" in done.err
    assert "postroom adopt" in done.err
    assert (tmp_path / "vault/.postroom/ledger").read_bytes() == mark
