"""A vault whose index, watch, keeper or state folder fails: answers stay right, or say what to do."""

import json
import os
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import NoReturn

import pytest

from postroom.config.loading import load
from postroom.core.errors import PostroomError, Unavailable
from postroom.desk.recorder import Call
from postroom.services.note_moves import Intent
from postroom.services.services import Services
from postroom.tools.contracts import vault as contract
from postroom.tools.contracts.vault import NoteList, NoteMoved
from postroom.tools.table import ToolContext
from postroom.vault.folders import Access
from postroom.vault.index import Index, expression
from postroom.vault.keeper import BATCH, Keeper, Watch, watching
from postroom.vault.vault import File, Ready, Vault
from postroom.wiring.desk import find_desk
from tests.conftest import Person
from tests.narrow import narrow, present

LOCK = "index.lock"
LONGEST = 30.0  # seconds for what takes a tenth of one, on a machine that does much else
PATHS = sorted(f"Notes/{number // 10}/note {number}.md" for number in range(40))


@pytest.fixture
def shelf(person: Person) -> Person:
    """A person with some notes."""
    for number in range(40):
        file = person.vault / f"Notes/{number // 10}/note {number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\nstatus: made\n---\nharbour word{number}\n" + "filler " * 200)
    return person


@contextmanager
def opened(person: Person) -> Iterator[Services]:
    """Open the desk as a server does."""
    with (
        find_desk(load(person.environment, person.folder, person.folder), make=True) as found,
        closing(Services(present(found))) as services,
    ):
        yield services


def state(person: Person) -> Path:
    return person.folder / "state" / "vault"


def database(person: Person) -> Path:
    return state(person) / "index.sqlite"


def until(true: Callable[[], bool], told: str = "it never came true") -> None:
    """Wait, within reason, until something is true."""
    deadline = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < deadline, told
        threading.Event().wait(0.005)


def ask(found: Services, tool: str, **arguments: str) -> NoteList:
    """Call a tool that lists notes."""
    return narrow(call(found, tool, **arguments), NoteList)


def call(found: Services, tool: str, **arguments: str) -> object:
    """Call a tool as a server does, and wait for it within reason."""
    running = getattr(contract, tool)(ToolContext(found, Call(tool, "claude", "vault")), **arguments)  # fmt: skip
    deadline = time.monotonic() + LONGEST
    with closing(running):  # as a server gives a call up
        try:
            while True:
                pause = next(running)
                assert time.monotonic() < deadline, (
                    f"{pause.message}: {pause.done} of {pause.total}"
                )
                threading.Event().wait(pause.seconds)
        except StopIteration as done:
            answer: object = done.value
            return answer


def paths(listed: NoteList) -> list[str]:
    return sorted(match.path for match in listed.notes)


def check(found: Services) -> None:
    """All notes are found, in every way."""
    listed = ask(found, "list_notes", directory="", filter="status:made")
    assert (paths(listed), listed.total) == (PATHS, len(PATHS))
    assert ask(found, "search_notes", query="harbour").total == len(PATHS)
    for path in PATHS[::7]:
        number = path.removesuffix(".md").rpartition(" ")[2]
        assert paths(ask(found, "search_notes", query=f"word{number}")) == [path]


# The file of the index


def delete(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut_in_half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def cut_to_a_few_bytes(file: Path) -> None:
    os.truncate(file, 50)


def scramble(file: Path) -> None:
    file.write_bytes(b"scrambled" * 5000)


def scramble_all_but_the_beginning(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[:4096] + random.Random(7).randbytes(len(raw) - 4096))


def be_newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


def lose_its_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE field")
        connection.execute("DROP TABLE word")


def lose_its_words(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM word_data")
        connection.commit()


DAMAGES = (
    delete, empty, cut_in_half, cut_to_a_few_bytes, scramble, scramble_all_but_the_beginning,
    be_newer, lose_its_tables, lose_its_words,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_an_index_that_is_damaged_is_made_anew_and_answers_are_right(
    shelf: Person, damage: Callable[[Path], None]
) -> None:
    with opened(shelf) as found:
        check(found)
    damage(database(shelf))
    with opened(shelf) as found:
        check(found)


@pytest.mark.parametrize("damage", [delete], ids=lambda damage: damage.__name__)
def test_an_index_that_is_deleted_while_a_server_keeps_it_is_made_anew_for_the_next(
    shelf: Person, damage: Callable[[Path], None]
) -> None:
    with opened(shelf) as first:
        check(first)
        for end in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                damage(database(shelf).with_name(f"index.sqlite{end}"))
        check(first)
        with opened(shelf) as second:
            check(second)
            (shelf.vault / PATHS[0]).write_text("---\nstatus: made\n---\nharbour word0 zebra\n")
            for one in (first, second):
                until(lambda: paths(ask(one, "search_notes", query="zebra")) == PATHS[:1])  # noqa: B023


def test_what_was_changed_while_no_server_ran_is_in_the_first_answer(shelf: Person) -> None:
    with opened(shelf) as found:
        check(found)
    (shelf.vault / PATHS[0]).write_text("zebra\n")
    (shelf.vault / PATHS[1]).unlink()
    shutil.move(shelf.vault / "Notes/2", shelf.vault / "Notes/Moved")
    with opened(shelf) as found:
        assert paths(ask(found, "search_notes", query="zebra")) == PATHS[:1]
    with opened(shelf) as found:
        listed = ask(found, "list_notes", directory="Notes", filter="status:made")
        expected = {path.replace("Notes/2", "Notes/Moved") for path in PATHS[2:]}
        assert paths(listed) == sorted(expected)


class Busy(Vault):
    """A vault in which another note is saved whenever somebody looks at the files of an answer."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._next = iter(PATHS * 10)

    def stats(self, paths: Iterable[str]) -> Iterator[File | None]:
        file = self.root / next(self._next)
        file.write_text(f"{file.read_text()}more\n")
        return super().stats(paths)


def test_a_list_has_every_note_though_one_after_the_other_is_saved_meanwhile(shelf: Person) -> None:
    with opened(shelf) as found:
        check(found)
        kept = found.notebook.vault  # by the keeper, to the end
        found.notebook.vault = Busy(shelf.vault)
        for asked in ({}, {"filter": "status:made"}):
            listed = ask(found, "list_notes", directory="", **asked)
            assert (paths(listed), listed.total) == (PATHS, len(PATHS))
    kept.close()


# A state folder that refuses


def in_its_folders_place(person: Person) -> Path:
    state(person).parent.mkdir(mode=0o700, exist_ok=True)
    state(person).write_text("a file is in the way")
    return state(person)


def in_its_own_place(person: Person) -> Path:
    database(person).mkdir(parents=True)
    return database(person)


@pytest.mark.parametrize("put", [in_its_folders_place, in_its_own_place], ids=lambda put: put.__name__)  # fmt: skip
def test_an_index_that_cannot_be_written_is_an_error_that_says_what_to_do_until_it_can(
    shelf: Person, put: Callable[[Person], Path]
) -> None:
    with opened(shelf) as found:
        for folder in (state(shelf).parent, state(shelf)):
            folder.mkdir(mode=0o700, exist_ok=True)
        state(shelf).rmdir()
        way = put(shelf)
        for tool, asked in (("list_notes", {"directory": ""}), ("search_notes", {"query": "x"})):
            with pytest.raises(Unavailable) as refused:
                ask(found, tool, **asked)
            assert way.name in refused.value.message
            assert "folder" in refused.value.remedy
        # Notes themselves need no index.
        assert found.notebook.read(Call("read_note", "claude", "vault"), PATHS[0]).etag
        way.rmdir() if way.is_dir() else way.unlink()
        until(lambda: answers(found), "it is not tried again")
        check(found)


def answers(found: Services) -> bool:
    with suppress(Unavailable):
        return bool(ask(found, "list_notes", directory="").total)
    return False


# Keepers


@contextmanager
def keeping(person: Person, watch: Watch = watching) -> Iterator[tuple[Keeper, Index]]:
    """Keep the index in this process, beside others; lend the keeper and what it keeps."""
    with (
        closing(Vault(person.vault)) as vault,
        closing(Index(database(person))) as index,
        closing(Keeper(vault, index, state(person) / LOCK, Access().hidden, watch)) as keeper,
    ):  # fmt: skip
        keeper.start()
        until(lambda: keeper.progress() is None)
        yield keeper, index


def seen(keeper: Keeper, index: Index, word: str) -> list[str]:
    """Return which notes have a word, once the index is said to show the vault."""
    until(lambda: keeper.progress() is None)
    found = index.search(expression(word), limit=100, offset=0)
    assert len(found.hits) == found.total
    return sorted(hit.path for hit in found.hits)


def no_watch(_folders: Sequence[Path], _stop: Event) -> NoReturn:
    raise OSError(28, "inotify watch limit reached")


@contextmanager
def broken_watch(_folders: Sequence[Path], _stop: Event) -> Iterator[Callable[[], set[str]]]:
    def changes() -> set[str]:
        raise RuntimeError("the watch has ended")

    yield changes


@pytest.mark.parametrize("watch", [no_watch, broken_watch], ids=lambda watch: watch.__name__)
def test_where_nothing_can_be_watched_edits_are_seen_all_the_same(
    shelf: Person, watch: Watch
) -> None:
    with keeping(shelf, watch=watch) as (keeper, index), keeping(shelf) as (other, same):
        assert seen(keeper, index, "harbour") == PATHS
        changed, gone, made = (shelf.vault / path for path in (*PATHS[:2], "New/Deep/made.md"))
        changed.write_text("zebra\n")
        gone.unlink()
        made.parent.mkdir(parents=True)
        made.write_text("zebra\n")
        wanted = sorted(["New/Deep/made.md", PATHS[0]])
        until(lambda: seen(keeper, index, "zebra") == wanted)
        made.write_text("okapi\n")
        until(lambda: seen(other, same, "okapi") == ["New/Deep/made.md"])
        assert seen(other, same, "harbour") == PATHS[2:]


def test_a_keeper_that_ends_is_succeeded_by_another_who_sees_what_was_changed_meanwhile(
    shelf: Person,
) -> None:
    with keeping(shelf) as (first, _), keeping(shelf) as (second, index):
        first.close()
        (shelf.vault / PATHS[0]).write_text("zebra\n")
        (shelf.vault / PATHS[1]).unlink()
        until(lambda: seen(second, index, "zebra") == PATHS[:1])
        assert seen(second, index, "harbour") == PATHS[2:]
        (shelf.vault / PATHS[0]).write_text("okapi\n")
        until(lambda: seen(second, index, "okapi") == PATHS[:1])


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_a_lock_that_cannot_be_opened_is_an_error_that_says_what_to_do_until_it_can(
    shelf: Person, others: int
) -> None:
    lock = state(shelf) / LOCK
    lock.mkdir(parents=True)
    with (
        closing(Vault(shelf.vault)) as vault,
        closing(Index(database(shelf))) as index,
        closing(Keeper(vault, index, lock, Access().hidden)) as keeper,
    ):
        keeper.start()
        with pytest.raises(Unavailable, match="cannot be opened") as refused:
            keeper.progress()
        assert "take away what is in its place" in refused.value.remedy
        lock.rmdir()

        def shows() -> bool:
            with suppress(Unavailable):
                return keeper.progress() is None
            return False

        with ExitStack() as stack:
            for _ in range(others):
                stack.enter_context(keeping(shelf))  # who takes the lock first
            until(shows, "the trouble is over, and still told")
            assert seen(keeper, index, "harbour") == PATHS


def test_a_keeper_that_ends_while_it_makes_the_index_leaves_the_rest_to_another(
    shelf: Person,
) -> None:
    many = BATCH + 100
    for number in range(many):
        (shelf.vault / f"{number}.md").write_text("walrus\n")
    began, go = threading.Event(), threading.Event()

    class Slow(Vault):
        """A vault of which nothing is read until it may."""

        def read(self, path: str) -> tuple[bytes, File]:
            began.set()
            assert go.wait(LONGEST)
            return super().read(path)

    with (
        closing(Slow(shelf.vault)) as vault,
        closing(Index(database(shelf))) as index,
        closing(Keeper(vault, index, state(shelf) / LOCK, Access().hidden)) as keeper,
    ):
        keeper.start()
        assert began.wait(LONGEST)
        keeper._stop.set()  # as `close` does, which then waits for it
        go.set()
        with keeping(shelf) as (second, same):
            found = same.search(expression("walrus"), limit=1, offset=0)
            assert found.total == many
            assert seen(second, same, "harbour") == PATHS


# Moves that cannot be finished


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"source": "a"}'])
def test_an_intent_that_is_no_whole_one_holds_nobody_up(shelf: Person, raw: bytes) -> None:
    with opened(shelf) as found:
        check(found)
        (state(shelf) / "move.json").write_bytes(raw)
        check(found)
        assert not (state(shelf) / "move.json").exists()


def test_a_move_whose_target_is_no_place_any_more_holds_nobody_up(shelf: Person) -> None:
    with opened(shelf) as found:
        check(found)
        file = os.stat(shelf.vault / PATHS[0])
        intent = Intent(
            source=PATHS[0],
            target="New/made.md",
            agent="claude",
            size=file.st_size,
            mtime_ns=file.st_mtime_ns,
            inode=file.st_ino,
            etag="x",
            id="x",
        )
        (state(shelf) / "move.json").write_text(json.dumps(asdict(intent)))
        (shelf.vault / "New").write_text("a file, where the folder was")
        check(found)
        assert not (state(shelf) / "move.json").exists()


class Guarded(Vault):
    """A vault of which one folder may not be written to."""

    def replace(
        self, path: str, data: bytes, was: File, ready: Ready = lambda _inode: None
    ) -> File:
        if path.startswith("Theirs/"):
            raise Unavailable(f"No right to {path!r}", remedy="Get the right to it.")
        return super().replace(path, data, was, ready)


def test_a_link_that_may_not_be_rewritten_is_told_and_the_move_is_done(shelf: Person) -> None:
    theirs = shelf.vault / "Theirs/linking.md"
    theirs.parent.mkdir()
    theirs.write_text("[[Notes/0/note 0]]\n")
    with opened(shelf) as found:
        found.notebook.vault.close()
        found.notebook.vault = Guarded(shelf.vault)
        try:
            moved = call(found, "move_note", source=PATHS[0], destination="New/made.md")
            told = narrow(moved, NoteMoved).untouched
        except PostroomError:
            told = ()
        assert not (shelf.vault / PATHS[0]).exists()
        assert (shelf.vault / "New/made.md").exists()
        assert ask(found, "search_notes", query="harbour").total == len(PATHS)
        assert told == ("Theirs/linking.md",)
