"""An import that dies, is repeated, or runs beside another keeps every mail once."""

import random
import sqlite3
import time
from datetime import timedelta
from functools import cache

import pytest

from tests.conftest import Person
from tests.mails import DAY, mail, mbox

COUNT = 12_000  # three batches


@cache
def mails() -> bytes:
    numbers = list(range(COUNT))
    random.Random(7).shuffle(numbers)
    made = (mail(subject=f"number {n}", date=DAY - timedelta(minutes=n), text="word " * 9) for n in numbers)  # fmt: skip
    return mbox(*made)


def kept(person: Person) -> int:
    """Return how many mails the file holds, as another process sees it."""
    path = person.folder / "state" / "mail" / "default.sqlite"
    if not path.exists():
        return 0
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        (count,) = connection.execute("SELECT count(*) FROM message").fetchone()
        return int(count)
    except sqlite3.OperationalError:  # the tables are being made
        return 0
    finally:
        connection.close()


def check_whole(person: Person) -> None:
    """Every mail is there once, and the index knows each of them."""
    path = person.folder / "state" / "mail" / "default.sqlite"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.execute("INSERT INTO word (word) VALUES ('integrity-check')")
    rows = connection.execute("SELECT id, subject FROM message").fetchall()
    indexed = connection.execute(
        'SELECT rowid FROM word WHERE word MATCH \'"number" AND "word"\''
    ).fetchall()
    raws = connection.execute("SELECT id FROM raw").fetchall()
    connection.close()
    assert sorted(subject for _, subject in rows) == sorted(f"number {n}" for n in range(COUNT))
    assert {id for id, _ in rows} == {id for (id,) in indexed} == {id for (id,) in raws}


@pytest.mark.parametrize("at_least", [0, 1, 4_001])
def test_an_import_killed_at_any_batch_goes_on_where_it_stopped(
    person: Person, at_least: int
) -> None:
    source = person.folder / "mail.mbox"
    source.write_bytes(mails())
    process = person.start("import", str(source))
    end = time.monotonic() + 60
    while kept(person) < at_least and process.poll() is None and time.monotonic() < end:
        pass
    process.kill()
    process.communicate()
    before = kept(person)
    assert at_least <= before
    outcome = person.run("import", str(source), "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["added"] == COUNT - before
    assert outcome.json["known"] == before
    check_whole(person)


def test_two_imports_of_the_same_mail_at_once_keep_each_mail_once(person: Person) -> None:
    source = person.folder / "mail.mbox"
    source.write_bytes(mails())
    both = [person.start("import", str(source), "--json") for _ in range(2)]
    ends = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    check_whole(person)
