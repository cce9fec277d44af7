"""The desk id: one a vault, whoever asks first, whatever the disk does."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from postroom.core.errors import Corrupt, Unavailable
from postroom.store.desk import desk_id, make_desk


def test_a_vault_has_no_desk_until_one_is_made_and_keeps_it(tmp_path: Path) -> None:
    vault = tmp_path / "deep" / "vault"
    assert desk_id(vault) is None
    assert make_desk(vault, lambda: "abcdefghijklm234") == "abcdefghijklm234"
    assert make_desk(vault, lambda: "z" * 16) == desk_id(vault) == "abcdefghijklm234"
    folder = vault / ".postroom"
    assert [file.name for file in folder.iterdir()] == ["desk"]
    assert (folder / "desk").read_bytes() == b"abcdefghijklm234\n"


@pytest.mark.parametrize(
    "raw", [b"", b"abcdefghijklm234", b"abcdefghijklm234\n\n", b"ABCDEFGHIJKLM234\n", b"abc\n", b"\xff" * 17]
)  # fmt: skip
def test_a_malformed_desk_is_corrupt_names_its_file_and_is_left_alone(
    tmp_path: Path, raw: bytes
) -> None:
    file = tmp_path / ".postroom" / "desk"
    file.parent.mkdir()
    file.write_bytes(raw)
    for ask in (desk_id, partial(make_desk, draw=lambda: "a" * 16)):
        with pytest.raises(Corrupt) as wrong:
            ask(tmp_path)
        assert str(file) in wrong.value.message
        assert "delete the file" in wrong.value.remedy
    assert file.read_bytes() == raw


@pytest.mark.parametrize(
    "drawn", ["", "short", "A" * 16, "a" * 17, "a" * 15 + "1", "../../../../../x"]
)
def test_an_id_that_is_none_is_never_written(tmp_path: Path, drawn: str) -> None:
    with pytest.raises(ValueError, match="desk id"):
        make_desk(tmp_path, lambda: drawn)
    assert list(tmp_path.iterdir()) == []


def no_links(_old: str, _new: str, **_folders: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("link", [os.link, no_links])
def test_whoever_is_first_makes_the_desk_and_the_other_takes_it(
    tmp_path: Path, link: Callable[..., None]
) -> None:
    def draw_second() -> str:
        make_desk(tmp_path, lambda: "a" * 16)
        return "b" * 16

    assert make_desk(tmp_path, draw_second, link=link) == "a" * 16
    assert [file.name for file in (tmp_path / ".postroom").iterdir()] == ["desk"]


def test_a_folder_without_hard_links_gets_its_desk_too(tmp_path: Path) -> None:
    assert make_desk(tmp_path, lambda: "a" * 16, link=no_links) == desk_id(tmp_path) == "a" * 16


def test_many_at_once_agree_on_one_desk(tmp_path: Path) -> None:
    letters = "abcdefghijklmnop"
    together, agreed = threading.Barrier(len(letters)), []

    def draw(letter: str) -> str:
        together.wait(30)
        return letter * 16

    threads = [
        threading.Thread(target=lambda letter=letter: agreed.append(make_desk(tmp_path, lambda: draw(letter))))
        for letter in letters
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(agreed) == len(letters)
    assert set(agreed) == {desk_id(tmp_path)}
    assert [file.name for file in (tmp_path / ".postroom").iterdir()] == ["desk"]


def test_a_vault_that_cannot_be_written_is_unavailable_with_a_remedy(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.write_text("a file where a folder should be")
    for ask in (desk_id, partial(make_desk, draw=lambda: "a" * 16)):
        with pytest.raises(Unavailable) as refused:
            ask(vault)
        assert refused.value.remedy


def test_a_vault_that_is_gone_when_it_is_written_to_is_unavailable_with_a_remedy(
    tmp_path: Path,
) -> None:
    vault = tmp_path / "vault"

    def draw() -> str:
        vault.write_text("a file where a folder should be")
        return "a" * 16

    with pytest.raises(Unavailable, match="desk cannot be written") as refused:
        make_desk(vault, draw)
    assert "VAULT_PATH" in refused.value.remedy


@pytest.mark.parametrize("full", ["before", "between"])
def test_a_full_disk_leaves_no_half_of_a_desk(tmp_path: Path, full: str) -> None:
    script = """
import os, resource, sys
from pathlib import Path
from postroom.store.desk import make_desk
from postroom.core.errors import Unavailable

def fill(*_, **folders):
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    raise PermissionError(1, "no links here")

def draw():
    if sys.argv[2] == "before":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return "a" * 16

try:
    make_desk(Path(sys.argv[1]), draw, link=fill)
except Unavailable as refused:
    sys.exit(1 if "File too large" in refused.message else refused.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), full],
        capture_output=True,
        text=True,
        check=False,
    )
    # Its bytes are on the disk before it gets its name.
    written = {} if full == "before" else {"desk": "a" * 16 + "\n"}
    assert (done.returncode, done.stderr) == (int(full == "before"), "")
    files = (tmp_path / ".postroom").iterdir()
    assert {file.name: file.read_text() for file in files} == written


def test_a_pipe_in_the_place_of_a_desk_hangs_nothing(tmp_path: Path) -> None:
    (tmp_path / ".postroom").mkdir()
    os.mkfifo(tmp_path / ".postroom" / "desk")
    with pytest.raises(Corrupt):
        desk_id(tmp_path)
