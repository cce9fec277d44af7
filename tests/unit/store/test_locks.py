"""Kernel locks, as those see them who only ask."""

import fcntl
import os
from pathlib import Path

from postroom.store.files import is_locked, locked


def test_a_lock_is_taken_as_long_as_somebody_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "page.lock"
    assert not is_locked(path)
    assert not path.exists()  # who asks makes nothing
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)


def test_who_asks_is_not_taken_for_somebody_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "page.lock"
    path.touch()
    with path.open() as another:  # who asks at the same moment
        fcntl.flock(another, fcntl.LOCK_SH)
        assert not is_locked(path)


def test_what_is_no_lock_is_held_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a link").symlink_to(tmp_path / "a folder")
    os.mkfifo(tmp_path / "a pipe")
    assert not any(map(is_locked, tmp_path.iterdir()))
