"""Agents at the vault's tools, many at once or killed at every step: no update is lost, no note torn or doubled.

The processes are forked from this one, which opens no database while they live, or are servers.
"""

import json
import random
import re
import select
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.core.audit import read as read_line
from postroom.core.errors import NotFound
from postroom.desk.desk import Desk
from postroom.services.services import Services
from postroom.vault.note import Note
from tests.agents import Wire
from tests.conftest import Person
from tests.crash import vault_worker as worker
from tests.crash.counts import SECONDS, SEED
from tests.crash.vault_worker import END, LINKING, MOVING, PERSONS, SHARED, WHOLE, Child, Doom, Tell
from tests.crash.worker import lines
from tests.narrow import narrow, present

PROCESSES = 16
KILLS = int(2.5 * SECONDS)  # at random moments
PATIENCE = 60.0  # seconds for what takes one, on a machine that others use too
NOTES = 3_000


def opened(person: Person, *, links: bool = True) -> AbstractContextManager[Services]:
    return worker.opened(person.environment, person.folder, links=links)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """A person whose desk is made."""
    person = Person(tmp_path)
    person.vault.mkdir()
    with opened(person) as services:
        services.desk.reconcile()
    return person


def actions(desk: Desk) -> list[dict[str, Any]]:
    """Return the lines of the chain, as values."""
    return [present(read_line(line)).record for _, line in desk.ledger.actions.after()]


def say(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


# Many at once


@pytest.fixture
def crowd(person: Person) -> tuple[Person, dict[str, list[list[str]]]]:
    """A vault after many have changed it at once; and what each was told."""
    worker.furnish(person.vault)
    ends = time.monotonic() + SECONDS
    told = person.folder / "told"
    told.mkdir()

    def work(number: int) -> Callable[[Tell], None]:
        def run(_tell: Tell) -> None:
            with opened(person) as services:
                file = told / f"p{number:02}"
                worker.Agent(services, person.vault, number, file, SEED).work(ends)

        return run

    def save(_tell: Tell) -> None:
        worker.save_as_a_person(person.vault, ends, told / "person")

    children = [worker.forked(work(number)) for number in range(PROCESSES)]
    children.append(worker.forked(save))
    for child in children:
        child.ended()
    return person, {file.name: lines(file) for file in told.iterdir()}


def heard(told: dict[str, list[list[str]]], kind: str) -> list[list[str]]:
    """Return what all workers told of one kind."""
    return [words for said in told.values() for first, *words in said if first == kind]


@pytest.mark.timeout(120 + 4 * SECONDS)
def test_of_many_who_write_edit_and_move_at_once_nobody_loses_an_update(
    crowd: tuple[Person, dict[str, list[list[str]]]],
) -> None:
    person, told = crowd
    added, moved = heard(told, "line"), heard(told, "moved")
    calls = Counter(name for name, said in told.items() for words in said if words[0] == "call")
    say(
        f"{PROCESSES} processes, {SECONDS:g} s: {calls.total()} calls, {len(added)} lines,"
        f" {len(moved)} moves, {len(heard(told, 'untouched'))} links left"
    )
    notes = {
        path.relative_to(person.vault).as_posix(): path.read_bytes()
        for path in person.vault.rglob("*.md")
    }
    parsed = {path: Note.parse(raw) for path, raw in notes.items()}
    assert [path for path, raw in notes.items() if not raw.endswith(END.encode())] == [], "torn"
    assert list(person.vault.rglob(".postroom-*.tmp")) == []
    check_places(notes)
    check_lines(parsed, added)
    check_made(parsed, heard(told, "made"))
    check_links(person.vault, heard(told, "untouched"))
    # What a person saved last was never replaced by something older.
    (last,) = told["person"][-1][1:]
    assert parsed[PERSONS].values["generation"] == int(last)
    check_log(person, calls)


def check_places(notes: dict[str, bytes]) -> None:
    """Every note is there, those that were moved under one name."""
    assert {*SHARED, *WHOLE, *LINKING, PERSONS} <= notes.keys()
    found = Counter(worker.family(path) for path in notes if path.startswith("Rooms/"))
    assert found == dict.fromkeys(MOVING, 1)


def check_lines(parsed: dict[str, Note], added: list[list[str]]) -> None:
    """Every acknowledged line stands once, in its note, and was counted; no other does."""
    wanted = defaultdict[str, list[str]](list)
    for line, family in added:
        wanted[family].append(line)
    assert sum(map(len, wanted.values())) > 20, "too little was done"
    for path, note in parsed.items():
        if path != PERSONS:
            expected = wanted.pop(worker.family(path), [])
            assert sorted(worker.own_lines(note.body)) == sorted(expected), path
            assert note.values.get("count", 0) == len(expected), path
    assert wanted.keys() <= {worker.family(PERSONS)}


def check_made(parsed: dict[str, Note], made: list[list[str]]) -> None:
    """Of all who made one note at once, one did."""
    assert made
    wanted = {f"Made/{number}.md": name for number, name in made}
    assert len(wanted) == len(made), "two made the same note"
    found = {path: note.values["by"] for path, note in parsed.items() if path.startswith("Made/")}
    assert found == wanted


def check_links(root: Path, left: list[list[str]]) -> None:
    """All links lead to a note, but for those of notes that an agent was told of."""
    told = {path for (path,) in left}
    lost = {path: dangling(root, path) for path in LINKING if path not in told}
    assert {path: found for path, found in lost.items() if found} == {}


def dangling(root: Path, path: str) -> list[str]:
    """Return the links of a note that lead nowhere."""
    text = (root / path).read_text()
    names = {file.stem for file in root.rglob("*.md")}
    wiki, near = re.findall(r"\[\[([^\]]+)\]\]", text), re.findall(r"\]\(([^)]+)\)", text)
    folder = (root / path).parent
    return [
        *(one for one in wiki if one not in names and not (root / f"{one}.md").is_file()),
        *(one for one in near if not (folder / one.replace("%20", " ")).is_file()),
    ]


def check_log(person: Person, calls: Counter[str]) -> None:
    """Every call left one line, and the files show them all."""
    with opened(person) as services:
        services.desk.reconcile()
        found = Counter(one["agent"] for one in actions(services.desk) if one["actor"] == "vault")
    assert found == calls
    outcome = person.run("audit", "verify")
    assert outcome.code == 0, outcome
    shown = Counter[str]()
    for file in (person.vault / "Logs" / "actions").glob("*.json"):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            shown[one["agent"]] += one["actor"] == "vault"
    assert shown == calls


# A move that is killed

PLAN = "Old/plan.md"
SAME_FOLDER, ELSEWHERE = "Old/design.md", "New/Deep/design.md"
FROM = tuple(f"Links/from-{number}.md" for number in range(2))
TEXT = "The plan.\n" * 300 + "See [that]({}), and no more.\n"
NEAR = {"Old": "../Links/from-0.md", "New/Deep": "../../Links/from-0.md"}
LINKED = "[[{0}]] and [[Old/{0}|it]] and [it](../Old/{0}.md), and that was all.\n"


class Mover:
    """A note that is moved between two names by processes that die, and what must hold each time."""

    def __init__(self, person: Person, other: str, *, links: bool = True) -> None:
        self.person, self.names, self.links = person, (PLAN, other), links
        self.wrong: list[str] = []
        self.written = self._answered = 0
        self._how = ""
        for path in FROM:
            self._write(path, LINKED.format("plan"))
        self._write(PLAN, TEXT.format(NEAR["Old"]))
        self._at = [PLAN]

    def _write(self, path: str, text: str) -> None:
        file = self.person.vault / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def open(self) -> AbstractContextManager[Services]:
        return opened(self.person, links=self.links)

    def dies(self, doom: Doom) -> bool:
        """Look at the notes in a new process, check them, move, and die on the way; return whether it did."""

        def run(tell: Tell) -> None:
            with self.open() as services:
                if not self._look(services, tell):
                    return
                with doom.over():
                    self._move(services)
                tell(survived=doom.seen)

        return self._ended(worker.forked(run), f"before effect {doom.nth}")

    def dies_looking(self, doom: Doom) -> bool:
        """Look at the notes in a new process, and die on the way; return whether it did."""

        def run(tell: Tell) -> None:
            with self.open() as services:
                with doom.over():
                    worker.ask(services, "claude", "list_notes", directory="")
                tell(survived=doom.seen)

        return self._ended(worker.forked(run), f"before effect {doom.nth} of its recovery")

    def dies_anywhere(self, seconds: float) -> None:
        """Look at the notes in a new process, check them, and move to and fro until it is killed."""

        def run(tell: Tell) -> None:
            with self.open() as services:
                if not self._look(services, tell):
                    return
                while True:
                    self._move(services)
                    tell(moved=True)

        child = worker.forked(run)
        assert child.ready(PATIENCE)
        pause(seconds)
        child.kill()
        self._ended(child, f"after {seconds:.3f} s")

    def looks(self) -> None:
        """Look at the notes in a new process, and check them."""

        def run(tell: Tell) -> None:
            with self.open() as services:
                self._look(services, tell)

        self._ended(worker.forked(run), "")

    def _move(self, services: Services) -> None:
        here = self.here()
        (there,) = {*self.names} - {here}
        worker.ask(services, "claude", "move_note", source=here, destination=there)

    def here(self) -> str:
        """Return the one name that the note has."""
        found = [name for name in self.names if (self.person.vault / name).exists()]
        return found[0] if len(found) == 1 else ""

    def _look(self, services: Services, tell: Tell) -> bool:
        """Be a new server at its first call, and tell what is wrong after it; return whether one can go on."""
        vault, state, wrong = self.person.vault, self.person.folder / "state" / "vault", list[str]()
        listed = {match.path for match in worker.ask(services, "claude", "list_notes", directory="").notes}  # fmt: skip
        found = [name for name in self.names if (vault / name).exists()]
        if listed != {*FROM, *found}:
            wrong.append(f"listed: {sorted(listed)}, there are: {found}")
        whole = len(found) == 1
        if not whole:
            wrong.append(f"it stands under {len(found)} names")
        for name in found:
            folder, _, file = name.rpartition("/")
            stem = file.removesuffix(".md")
            if (vault / name).read_text() != TEXT.format(NEAR[folder]):
                wrong.append(f"{name} has {(vault / name).stat().st_size} bytes, and not its own")
                whole = False
            for path in FROM:
                text = (vault / path).read_text()
                expected = LINKED.format(stem).replace(f"Old/{stem}", f"{folder}/{stem}")
                if text != expected:
                    wrong.append(f"{path} says {text!r}")
        if (state / "move.json").exists():
            wrong.append("move.json is left")
        moves = sum(one["action_type"] == "move_note" for one in actions(services.desk))
        tell(wrong=wrong, at=found, moves=moves, whole=whole)
        return whole

    def _ended(self, child: Child, how: str) -> bool:
        """Take in what a process found, and how it ended; return whether it was killed."""
        told, killed = child.ended()
        for one in told:
            if "wrong" in one:
                self._found(one)
            if "survived" in one:
                self.effects = one["survived"]
        self._answered = sum("moved" in one or "survived" in one for one in told)
        self._how = how
        return killed

    def _found(self, one: dict[str, Any]) -> None:
        wrong, written = one["wrong"], one["moves"] - self.written
        if written not in (self._answered, self._answered + 1):
            wrong.append(
                f"{written} lines in the log, of {self._answered} moves that were answered"
            )
        elif len(one["at"]) == 1 and written % 2 != (one["at"] != self._at):
            wrong.append(f"{written} lines in the log, from {self._at} to {one['at']}")
        self.wrong += [f"killed {self._how}: {what}" for what in wrong]
        self.written, self._at = one["moves"], one["at"]
        assert one["whole"], self.told  # nothing to go on with

    @property
    def told(self) -> str:
        return "\n".join(["", *self.wrong])


def pause(seconds: float) -> None:
    """Let a process run on for so long."""
    select.select([], [], [], seconds)


WAYS = pytest.mark.parametrize(
    ("other", "links"),
    [(SAME_FOLDER, True), (ELSEWHERE, True), (SAME_FOLDER, False)],
    ids=["in its folder", "to another folder", "without hard links"],
)


@WAYS
def test_a_move_that_is_killed_between_any_two_effects_is_whole_after_the_next_look(person: Person, other: str, links: bool) -> None:  # fmt: skip
    mover, nth = Mover(person, other, links=links), 1
    while mover.dies(worker.Doom(nth)):
        nth += 1
    mover.looks()
    say(f"a move, killed before each of {len(mover.effects)}: {' '.join(mover.effects)}")
    assert not mover.wrong, mover.told
    assert nth > 20


def test_a_move_whose_recovery_is_killed_too_is_whole_after_the_next_look(person: Person) -> None:
    mover, nth = Mover(person, SAME_FOLDER), 1
    # The first unlink is of the temporary name under which its intent was written.
    before_it_loses_its_old_name = worker.Doom(2, only="unlink")
    while True:
        assert mover.dies(before_it_loses_its_old_name)
        if not mover.dies_looking(worker.Doom(nth)):
            break
        nth += 1
    mover.looks()
    say(f"a recovery, killed before each of {len(mover.effects)}: {' '.join(mover.effects)}")
    assert not mover.wrong, mover.told
    assert nth > 15


def test_a_move_that_is_killed_anywhere_is_whole_after_the_next_look(person: Person) -> None:
    mover, chance = Mover(person, ELSEWHERE), random.Random(SEED)
    for _ in range(KILLS):
        mover.dies_anywhere(chance.uniform(0.0, 0.15))
    mover.looks()
    say(f"{KILLS} kills anywhere in {mover.written} moves")
    assert not mover.wrong, mover.told


def test_a_note_that_was_made_where_a_killed_move_would_have_gone_costs_nobody_a_note(
    person: Person,
) -> None:
    mover = Mover(person, ELSEWHERE)
    assert mover.dies(worker.Doom(1, only="link"))

    def run(_tell: Tell) -> None:
        with mover.open() as services:
            worker.ask(services, "claude", "write_note", path=ELSEWHERE, frontmatter={}, body="Mine.\n")  # fmt: skip
            worker.ask(services, "claude", "list_notes", directory="")

    worker.forked(run).ended()
    assert (person.vault / ELSEWHERE).read_text() == "Mine.\n"
    assert (person.vault / PLAN).read_text() == TEXT.format(NEAR["Old"])


@pytest.mark.parametrize("name", [PLAN, SAME_FOLDER], ids=["old", "new"])
def test_a_note_that_is_edited_before_its_killed_move_is_finished_is_one_note_with_the_edit(person: Person, name: str) -> None:  # fmt: skip
    mover = Mover(person, SAME_FOLDER)
    assert mover.dies(worker.Doom(2, only="unlink"))  # it has both names

    def run(tell: Tell) -> None:
        with mover.open() as services:
            try:
                tag = worker.ask(services, "claude", "read_note", path=name).etag
                worker.ask(services, "claude", "edit_note", path=name, append="More.", if_match=tag)
            except NotFound:  # it has its new name already
                tell(edited=False)
            else:
                tell(edited=True)
            worker.ask(services, "claude", "list_notes", directory="")

    ((told,), _) = worker.forked(run).ended()
    assert mover.here(), "it has two names"
    text = (person.vault / mover.here()).read_text()
    assert text == TEXT.format(NEAR["Old"]) + "More.\n" * told["edited"]
    assert told["edited"] or name == PLAN


# A keeper of the index that is killed


@contextmanager
def server(person: Person) -> Iterator[Wire]:
    """Lend a server of the vault's tools."""
    wire = Wire(person, "vault")
    try:
        yield wire.greet()
    finally:
        wire.kill()


def answer(wire: Wire, id: int) -> dict[str, Any]:
    """Return the values of an answer, which must be no refusal."""
    result = wire.answer(id)["result"]
    assert not result.get("isError"), result
    return narrow(result["structuredContent"], dict)


def pages(wire: Wire, tool: str, **arguments: str) -> Iterator[str]:
    """Yield all notes that a tool finds, and check that every page has the same total."""
    totals, cursor = set(), ""
    while True:
        found = answer(wire, wire.call(tool, cursor=cursor, **arguments))
        totals.add(found["total"])
        yield from (note["path"] for note in found["notes"])
        cursor = found.get("cursor", "")
        if not cursor:
            break
    assert totals == {NOTES}


def until(true: Callable[[], object], told: object) -> None:
    """Wait, within reason, until something is true."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, told
        pause(0.002)


def database(person: Person) -> Path:
    return person.folder / "state" / "vault" / "index.sqlite"


def indexed(person: Person) -> int:
    """Return how many notes the index has, as another process sees it."""
    if not database(person).exists():
        return 0
    with closing(sqlite3.connect(f"file:{database(person)}?mode=ro", uri=True)) as connection:
        try:
            return narrow(connection.execute("SELECT count(*) FROM file").fetchone()[0], int)
        except sqlite3.OperationalError:  # the tables are being made
            return 0


def write_notes(root: Path) -> list[str]:
    for number in range(NOTES):
        file = root / f"Folder {number // 100}" / f"note {number}.md"
        file.parent.mkdir(exist_ok=True)
        text = f"# Number {number}\n\nharbour unique{number}\n" + "some words of no weight\n" * 20
        file.write_text(f"---\nstatus: made\n---\n{text}")
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("note *.md"))


def check_index(person: Person, wire: Wire, paths: list[str]) -> None:
    """Every note is found once, in whichever way it is looked for."""
    assert sorted(pages(wire, "search_notes", query="harbour")) == paths
    assert sorted(pages(wire, "list_notes", directory="", filter="status:made")) == paths
    for number in range(0, NOTES, 97):
        found = answer(wire, wire.call("search_notes", query=f"unique{number}"))
        assert [note["path"] for note in found["notes"]] == [f"Folder {number // 100}/note {number}.md"]  # fmt: skip
    with closing(sqlite3.connect(database(person))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.execute("INSERT INTO word (word) VALUES ('integrity-check')")


def test_an_index_whose_keepers_are_killed_while_they_make_it_has_every_note_once(
    person: Person,
) -> None:
    paths, chance = write_notes(person.vault), random.Random(SEED)
    for least in (0, 1, 501, 1_001):
        with server(person) as wire:
            wire.call("search_notes", query="harbour")
            until(lambda: indexed(person) >= least, least)  # noqa: B023
            pause(chance.uniform(0.0, 0.1))
    before = indexed(person)
    assert before < NOTES, "no keeper was killed on the way"
    with server(person) as first, server(person) as second:
        first.call("search_notes", query="harbour")
        until(lambda: indexed(person) > before, "the keeper does nothing")
        waiting = second.call("search_notes", query="harbour")
        first.kill()
        # Who waited for it makes it, and answers only then.
        assert answer(second, waiting)["total"] == NOTES
        check_index(person, second, paths)


def test_what_is_changed_after_the_keeper_was_killed_is_seen_by_its_successor(
    person: Person,
) -> None:
    paths = write_notes(person.vault)
    with server(person) as first, server(person) as second:
        for wire in (first, second):
            assert answer(wire, wire.call("search_notes", query="harbour"))["total"] == NOTES
        first.kill()
        changed, gone, made = (person.vault / path for path in (paths[0], paths[1], "New/made.md"))
        changed.write_text("---\nstatus: made\n---\nharbour zebra\n")
        gone.unlink()
        made.parent.mkdir()
        made.write_text("---\nstatus: made\n---\nharbour zebra\n")

        def found() -> bool:
            told = answer(second, second.call("search_notes", query="zebra"))
            return {note["path"] for note in told["notes"]} == {paths[0], "New/made.md"}

        until(found, "the change is not seen")
        now = sorted([paths[0], *paths[2:], "New/made.md"])
        assert sorted(pages(second, "search_notes", query="harbour")) == now
        # It watches too: what is changed later is seen without a sweep's being due.
        made.write_text("harbour okapi\n")
        until(
            lambda: "total" in answer(second, second.call("search_notes", query="okapi")),
            "the later change is not seen",
        )
