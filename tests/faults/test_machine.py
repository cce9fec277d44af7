"""A machine that refuses: the message names the cause and the remedy, and nothing is lost."""

import os
import resource
import sqlite3
from pathlib import Path

import pytest

from tests.conftest import Person
from tests.mails import mail, mbox

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def full(person: Person) -> Person:
    """A person with one mail kept."""
    (person.folder / "mail.mbox").write_bytes(mbox(mail(subject="kept")))
    assert person.run("import", "mail.mbox").code == 0
    return person


def database(person: Person) -> Path:
    return person.folder / "state" / "mail" / "default.sqlite"


def test_a_damaged_mailbox_is_named_and_left_alone(full: Person) -> None:
    raw = b"scrambled" * 2000
    database(full).write_bytes(raw)
    for command in (["search", "kept"], ["import", "mail.mbox"], ["read", "1"]):
        outcome = full.run(*command)
        assert outcome.code == 10
        assert "damaged" in outcome.err
        assert "Put a backup in its place" in outcome.err
        assert "Traceback" not in outcome.err
    assert database(full).read_bytes() == raw


def test_a_mailbox_of_a_newer_version_is_left_alone(full: Person) -> None:
    connection = sqlite3.connect(database(full))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    outcome = full.run("search", "kept")
    assert outcome.code == 10
    assert "newer Postroom (version 99" in outcome.err
    assert "Upgrade" in outcome.err


def test_a_mailbox_that_another_process_holds_is_waited_for(full: Person) -> None:
    holder = sqlite3.connect(database(full), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    (full.folder / "more.mbox").write_bytes(mbox(mail(subject="waiting")))
    process = full.start("import", "more.mbox")
    assert full.run("search", "kept").out  # readers are not held up
    assert process.poll() is None
    holder.execute("ROLLBACK")
    holder.close()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "waiting" in full.run("search", "waiting").out


def test_a_file_size_limit_stops_an_import_with_a_clear_message_and_keeps_what_was_there(
    full: Person,
) -> None:
    big = [mail(subject=f"big {n}", text=f"word{n} " * 2000) for n in range(60)]
    (full.folder / "big.mbox").write_bytes(mbox(*big))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    outcome = full.run_as_process("import", "big.mbox", preexec_fn=limit)
    assert outcome.code == 8, outcome
    assert "default.sqlite" in outcome.err
    assert "Traceback" not in outcome.err
    assert "kept" in full.run("search", "kept").out
    assert full.run("import", "big.mbox", "--json").json["added"] == 60


def test_a_state_folder_that_cannot_be_written_is_named_with_the_setting_that_moves_it(
    person: Person,
) -> None:
    (person.folder / "mail.mbox").write_bytes(mbox(mail()))
    (person.folder / "state").write_text("a file is in the way")
    outcome = person.run("import", "mail.mbox")
    assert outcome.code == 8
    assert "POSTROOM_STATE" in outcome.err


def test_a_source_that_is_missing_or_no_mail_is_named(person: Person) -> None:
    outcome = person.run("import", "nowhere")
    assert (outcome.code, "nowhere does not exist" in outcome.err) == (3, True)
    (person.folder / "empty").mkdir()
    outcome = person.run("import", "empty")
    assert (outcome.code, "no mail in empty" in outcome.err) == (2, True)
    assert not (person.folder / "state").exists()
