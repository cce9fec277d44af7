"""Files that are opened only if they are regular, and written whole or not at all."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.store import files
from postroom.store.files import Locked, locked, open_locked, try_lock


def no_links(_old: str, _new: str, **_folders: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "odd")
    with pytest.raises(files.NotRegularFile):
        files.read(tmp_path / "odd", 10)


def test_a_link_is_followed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="symbolic links") as refused:
        files.read(tmp_path / "link", 10)
    assert refused.value.errno == errno.ELOOP
    assert files.read(tmp_path / "link", 4, follow=True) == b"cont"


def test_a_file_is_replaced_whole_with_its_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "file"
    files.replace(file, b"one", 0o640)
    files.replace(file, b"two", 0o640)
    assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (b"two", 0o640)
    assert names(file.parent) == ["file"]


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "file").symlink_to(tmp_path / "secret")
    files.replace(tmp_path / "file", b"new")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("link", [os.link, no_links])
def test_a_file_is_created_once_and_never_over_another(
    tmp_path: Path, link: Callable[..., None]
) -> None:
    file = tmp_path / "file"
    assert files.create(file, b"first", 0o600, link=link)
    assert not files.create(file, b"second", 0o600, link=link)
    assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (b"first", 0o600)
    assert names(tmp_path) == ["file"]


def test_of_many_who_create_one_file_one_succeeds(tmp_path: Path) -> None:
    together, made = threading.Barrier(8), list[str]()

    def create(text: str) -> None:
        together.wait(30)
        if files.create(tmp_path / "file", text.encode()):
            made.append(text)

    threads = [threading.Thread(target=create, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [(tmp_path / "file").read_text()] == made
    assert names(tmp_path) == ["file"]


def test_what_fails_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(ZeroDivisionError), files.temporary(folder, [b"x"], 0o600):
            assert len(names(tmp_path)) == 1
            raise ZeroDivisionError
    finally:
        os.close(folder)
    assert names(tmp_path) == []


def test_a_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files.remove(tmp_path / "file")
    assert names(tmp_path) == []


def test_a_lock_that_another_holds_is_waited_for_and_then_refused(tmp_path: Path) -> None:
    lock = tmp_path / "state" / "x.lock"  # its folder is made
    with locked(lock):
        with try_lock(lock) as is_held:
            assert not is_held
        with pytest.raises(Locked, match="locked by another process"), locked(lock, patience=0.01):
            pass
    with try_lock(lock) as is_held:
        assert is_held
    assert not lock.exists()


def test_a_lock_file_that_is_missing_is_not_made_where_that_is_not_wanted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_locked(tmp_path / "x.lock", 0.0, create=False)
