"""A folder that is swapped for a link, again and again, while tools work through it: nothing outside is touched."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.tools.contracts import vault
from tests.agents import Visitor, visiting_inside
from tests.conftest import Person, size
from tests.narrow import present

ROUNDS = size(100)  # of all tools
SECRET = "xyzzy-outside"
# One exchange is one system call, so that there is a folder or a link at every moment.
SWAPPER = """
import ctypes, sys
libc, exchange, here = ctypes.CDLL(None), 2, -100
one, other = (name.encode() for name in sys.argv[1:])
print("ready", flush=True)
while True:
    if sys.platform == "darwin":
        libc.renamex_np(one, other, exchange)
    else:
        libc.renameat2(here, one, here, other, exchange)
"""


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Swap two names as fast as can be, meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(one), str(other)], stdout=subprocess.PIPE
    )
    said = present(process.stdout)
    try:
        assert said.readline() == b"ready\n"
        yield
        assert process.poll() is None, "the swapper has ended"
    finally:
        process.kill()
        process.wait(timeout=30)
        said.close()


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b"end"
        for path in sorted(folder.rglob("*"))
    }


class VaultPermissions(Person):
    """A person with an agent at their vault, and a folder outside of it."""

    visitor: Visitor

    @property
    def outside(self) -> Path:
        return self.folder / "outside"


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[VaultPermissions]:
    """A vault with a folder that has a twin outside, to which a link stands beside it."""
    person = VaultPermissions(tmp_path)
    outside = person.outside
    for top, word in ((person.vault / "Work", "inside"), (outside, SECRET)):
        (top / "Deep").mkdir(parents=True)
        for name in ("note.md", "other.md", "Deep/note.md", "Deep/far.md"):
            (top / name).write_text(f"---\nof: {word}\n---\n{word} " * 200 + "end\n")
    (outside / f"only-{SECRET}.md").write_text(f"{SECRET}\n")
    (person.vault / "Safe").mkdir()
    (person.folder / "aside").mkdir()
    (person.folder / "aside" / "Work").symlink_to(outside)
    with visiting_inside(person, contract=vault.CONTRACT) as visitor:
        person.visitor = visitor
        yield person


FAIR = {"", "permission_denied", "not_found", "conflict", "internal_error"}


@pytest.mark.parametrize("inner", ["", "Deep/"], ids=["the folder itself", "a folder above"])
def test_nothing_outside_is_read_written_or_listed_through_a_folder_that_turns_into_a_link(
    shelf: VaultPermissions, inner: str
) -> None:
    before = bytes_of(shelf.outside)
    said: list[str] = []
    codes: dict[str, set[str]] = {}

    def call(tool: str, **arguments: object) -> dict[str, Any]:
        answer = shelf.visitor.call(tool, **arguments)
        said.append(json.dumps(answer.values))
        code = answer.values.get("error", "") if answer.raw.is_error else ""
        codes.setdefault(tool, set()).add(code)
        return answer.values

    with swapping(shelf.vault / "Work", shelf.folder / "aside" / "Work"):
        for number in range(ROUNDS):
            path = f"Work/{inner}note.md"
            read = call("read_note", path=path)
            call("write_note", path=path, frontmatter={"n": number}, body=f"{number} " * 500 + "end\n", if_match=read.get("etag", ""))  # fmt: skip
            call("edit_note", path=path, append=f"more {number}\nend")
            call(
                "write_note", path=f"Work/{inner}new {number}.md", frontmatter={}, body="new end\n"
            )
            call(
                "move_note", source=f"Work/{inner}new {number}.md", destination=f"Safe/{number}.md"
            )
            call(
                "move_note", source=f"Safe/{number}.md", destination=f"Work/{inner}back {number}.md"
            )
            call(
                "move_note",
                source=f"Work/{inner}only-{SECRET}.md",
                destination=f"Safe/got{number}.md",
            )
            call("list_notes", directory=f"Work/{inner}".rstrip("/"))
            call("search_notes", query="xyzzy")
            call("search_notes", query="end")
    # What an agent asked for by name comes back in its errors; nothing else of outside does.
    named = f"only-{SECRET}.md"
    assert [text for text in said if SECRET in text.replace(named, "")] == []
    listed = [text for text in said if named in text and '"notes"' in text]
    assert listed == []
    assert bytes_of(shelf.outside) == before
    assert {code for found in codes.values() for code in found} <= FAIR
    # The race was one: both faces of the folder were seen.
    assert {"", "permission_denied"} <= codes["read_note"] | codes["write_note"] | codes[
        "edit_note"
    ]
    work = (shelf.vault / "Work", shelf.folder / "aside" / "Work")
    inside = next(path for path in work if not path.is_symlink())
    torn = [
        name
        for top in (inside, shelf.vault / "Safe")
        for name, raw in bytes_of(top).items()
        if not raw.decode().rstrip().endswith("end") or SECRET in raw.decode()
    ]
    assert torn == []


def test_a_note_that_turns_into_a_link_and_back_is_never_read_or_written_through_it(
    shelf: VaultPermissions,
) -> None:
    note, away = shelf.vault / "Work" / "note.md", shelf.folder / "aside" / "note.md"
    away.symlink_to(shelf.outside / "note.md")
    before, said = bytes_of(shelf.outside), []
    with swapping(note, away):
        for number in range(ROUNDS):
            for tool, asked in (
                ("read_note", {}),
                ("write_note", {"frontmatter": {}, "body": f"{number} end\n"}),
                ("edit_note", {"append": "more\nend"}),
            ):
                raw = shelf.visitor.call(tool, path="Work/note.md", **asked).raw
                said.append(json.dumps(raw.structured_content))
    assert [text for text in said if SECRET in text] == []
    assert bytes_of(shelf.outside) == before


def test_a_reader_never_sees_half_of_what_tools_write(shelf: VaultPermissions) -> None:
    note, stop, torn = shelf.vault / "Work" / "note.md", threading.Event(), []
    sizes = (10, 200_000)
    wholes = {f"{char * size}\n".encode() for char in "ab" for size in sizes}
    note.write_bytes(b"a" * 10 + b"\n")

    def watch() -> None:
        while not stop.is_set():
            raw = note.read_bytes()
            if raw not in wholes:
                torn.append(raw[:40])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        shelf.visitor.done("read_note", path="Work/note.md")
        for number in range(ROUNDS):
            body = "ab"[number % 2] * sizes[number // 2 % 2] + "\n"
            shelf.visitor.done("write_note", path="Work/note.md", frontmatter={}, body=body)
    finally:
        stop.set()
        watcher.join()
    assert torn == []
    assert [path.name for path in note.parent.iterdir() if path.name.startswith(".")] == []


def test_of_two_servers_that_write_one_note_at_once_no_update_is_lost(
    shelf: VaultPermissions,
) -> None:
    note = shelf.vault / "Work" / "count.md"
    note.write_text("start\n")
    done, lines = [], 25

    def add(visitor: Visitor, name: str) -> None:
        deadline = time.monotonic() + 60
        for number in range(lines):
            line = f"{name} {number}"
            while time.monotonic() < deadline:
                visitor.call("read_note", path="Work/count.md")
                if not visitor.call("edit_note", path="Work/count.md", append=line).raw.is_error:
                    done.append(line)
                    break

    with visiting_inside(shelf, contract=vault.CONTRACT) as other:
        threads = [
            threading.Thread(target=add, args=pair)
            for pair in ((shelf.visitor, "one"), (other, "two"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == 2 * lines
    assert sorted(note.read_text().split("\n")[1:]) == sorted([*done, ""])


def test_a_folder_of_the_vault_that_is_moved_away_in_a_call_takes_nothing_of_it_along(
    shelf: VaultPermissions,
) -> None:
    """The root is open: a vault that is renamed meanwhile stays the same vault."""
    moved = shelf.folder / "renamed"
    shelf.visitor.done("read_note", path="Work/note.md")
    os.rename(shelf.vault, moved)
    (shelf.vault).symlink_to(shelf.outside)
    before = bytes_of(shelf.outside)
    shelf.visitor.call("write_note", path="note.md", frontmatter={}, body="into the link\n")
    shelf.visitor.call("edit_note", path="Work/note.md", append="end")
    assert bytes_of(shelf.outside) == before
