"""A real disk that is full, and one that is read-only: a small file system of its own, mounted for the test."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Person
from tests.mails import mail, mbox


def as_root(*command: str) -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run([*sudo, *command], check=True, timeout=30)


@pytest.fixture
def small_disk(person: Person) -> Iterator[Path]:
    """The folder of the person's state, which is a file system of two megabytes."""
    place = person.folder / "disk"
    place.mkdir()
    as_root(
        "mount", "-t", "tmpfs", "-o", f"size=2m,mode=0700,uid={os.geteuid()}", "tmpfs", str(place)
    )
    person.environment["POSTROOM_STATE"] = str(place / "state")
    (person.folder / "one.mbox").write_bytes(mbox(mail(subject="kept")))
    big = [mail(subject=f"big {n}", text=f"word{n} " * 3000) for n in range(150)]
    (person.folder / "big.mbox").write_bytes(mbox(*big))
    assert person.run("import", "one.mbox").code == 0
    yield place
    as_root("umount", str(place))


def test_a_full_disk_stops_an_import_which_goes_on_when_there_is_room(
    person: Person, small_disk: Path
) -> None:
    outcome = person.run("import", "big.mbox")
    assert outcome.code == 8, outcome
    assert "disk is full" in outcome.err
    assert "Free some space" in outcome.err
    assert "Traceback" not in outcome.err
    assert "kept" in person.run("search", "kept").out
    as_root("mount", "-o", "remount,size=60m", str(small_disk))
    assert person.run("import", "big.mbox", "--json").json["added"] == 150


def test_a_disk_without_room_for_a_mailbox_is_named(person: Person, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(1_600_000))
    person.environment["POSTROOM_STATE"] = str(small_disk / "other")
    outcome = person.run("import", "big.mbox")
    assert outcome.code == 8, outcome
    assert "Traceback" not in outcome.err


def test_a_read_only_disk_is_named_with_the_setting_that_moves_the_mailbox(
    person: Person, small_disk: Path
) -> None:
    as_root("mount", "-o", "remount,ro", str(small_disk))
    outcome = person.run("import", "big.mbox")
    assert outcome.code == 8, outcome
    assert "cannot be opened" in outcome.err.replace("\n ", "")
    assert "POSTROOM_STATE" in outcome.err
    as_root("mount", "-o", "remount,rw", str(small_disk))
    assert "kept" in person.run("search", "kept").out
