"""What a worker of the vault's crash suite is: an agent that calls the vault's tools in a process of its own.

The tools, the desk and the files are the server's own; only the wire between is missing. A worker tells
what it was answered in a file of its own, so that the end can be compared with it line by line.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import watchfiles._rust_notify  # noqa: F401 - warm before the fork

from postroom.config.loading import load
from postroom.core.errors import Conflict, NotFound
from postroom.desk.recorder import Call
from postroom.services import note_moves  # noqa: F401 - warm before the fork
from postroom.services.services import Services
from postroom.tools.contracts import vault as contract
from postroom.tools.table import Result, ToolContext
from postroom.vault.vault import Vault
from postroom.wiring.desk import find_desk as desk_of
from tests.crash.counts import SECONDS
from tests.crash.worker import append
from tests.narrow import present

TRIES = 500  # to change a note that fifteen others change too
PACE = 0.1  # seconds between two saves of a person


@contextmanager
def opened(
    environment: Mapping[str, str], folder: Path, *, links: bool = True
) -> Iterator[Services]:
    """Open the desk as the server does; without `links`, on a file system that has no hard links."""
    with (
        desk_of(load(environment, folder, folder), make=True) as found,
        closing(Services(present(found))) as services,
    ):
        if not links:
            notebook = services.notebook
            notebook.vault = Vault(notebook.vault.root, link=_no_links)
        yield services


def _no_links(*_names: str, **_where: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def ask(services: Services, agent: str, tool: str, **arguments: Any) -> Any:
    """Call a tool as the server does, without the wire."""
    context = ToolContext(services, Call(tool, agent, "vault"))
    running = getattr(contract, tool)(context, **arguments)
    if isinstance(running, Result):
        return running
    try:
        while True:
            time.sleep(next(running).seconds)
    except StopIteration as done:
        return done.value


# Processes


@dataclass
class Child:
    """A process that was forked, and the pipe by which it tells; the pipe ends with the process."""

    pid: int
    pipe: int

    def ready(self, seconds: float) -> bool:
        """Wait so long for a word, or the end."""
        return bool(select.select([self.pipe], [], [], seconds)[0])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> tuple[list[dict[str, Any]], bool]:
        """Wait for its end; return what it told, and whether it was killed. Its error is raised here."""
        with open(self.pipe, "rb") as pipe:
            told = [json.loads(line) for line in pipe.read().splitlines()]
        _, status = os.waitpid(self.pid, 0)
        for one in told:
            assert "error" not in one, one["error"]
        return told, os.WIFSIGNALED(status)


class Tell(Protocol):
    """Tells the parent of a process something, as values by name."""

    def __call__(self, **words: object) -> None: ...


def forked(work: Callable[[Tell], None]) -> Child:
    """Do this work in a process of its own; it is given what tells the parent."""
    pipe, end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(end)
        return Child(pid, pipe)

    def tell(**words: object) -> None:
        os.write(end, json.dumps(words).encode() + b"\n")

    try:
        os.close(pipe)
        work(tell)
    except BaseException:  # noqa: BLE001 - the parent raises it
        tell(error=traceback.format_exc())
    finally:
        os._exit(0)


# Death between two effects

EFFECTS = {"link", "rename", "replace", "unlink", "fsync", "write", "mkdir", "utime", "fchmod"}


@dataclass
class Doom:
    """Kills this process before the n-th thing that it does to a file or a database."""

    nth: int
    only: str = ""  # of this name alone
    seen: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, what: Any) -> None:
        name = getattr(what, "__name__", "")
        # Within a transaction nothing is done that its end does not do.
        bound = name == "execute" and frame.f_code.co_name == "write"
        on_file = name in EFFECTS and what.__module__ == "posix"
        if event != "c_call" or not (bound or on_file):
            return
        if self.only in ("", name):
            self.seen.append(name)
            if len(self.seen) == self.nth:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def over(self) -> Iterator[None]:
        """Watch what is done meanwhile."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


# What agents and a person do at once

SIZE = 1 + int(SECONDS) // 40  # so that no note outgrows what one answer shows
SHARED = tuple(f"Shared/log {number}.md" for number in range(3 * SIZE))
WHOLE = tuple(f"Shared/whole {number}.md" for number in range(2 * SIZE))
PERSONS = "Shared/person.md"
LINKING = tuple(f"Links/from-{number}.md" for number in range(6))
MOVING = tuple(f"t{number}" for number in range(3))
ROOMS = ("Rooms", "Rooms/Red", "Rooms/Blue/Deep")
STEMS = ("{}", "{} renamed")
BEGIN, END = "# Log\n", "\n# End\n\nwhole\n"


def places(name: str) -> list[str]:
    """Return the paths that a moving note can have."""
    return [f"{room}/{stem.format(name)}.md" for room in ROOMS for stem in STEMS]


def family(path: str) -> str:
    """Return what a note is called, wherever it is moved to."""
    return Path(path).stem.removesuffix(" renamed").replace(" ", "_")


def whereabouts(root: Path, name: str) -> list[str]:
    """Return the paths that a moving note has."""
    return [path for path in places(name) if (root / path).exists()]


def furnish(root: Path) -> None:
    """Write the notes that all will change."""
    for path in (*SHARED, *WHOLE):
        _write(root / path, f"---\ncount: 0\n---\n{BEGIN}{END}")
    _write(root / PERSONS, f"---\ncount: 0\ngeneration: 0\n---\n{BEGIN}{END}")
    for name in MOVING:
        head = "---\ncount: 0\n---\nBack to the [log](../Shared/log%200.md).\n\n"
        _write(root / places(name)[0], f"{head}{BEGIN}{END}")
    for path in LINKING:
        links = "".join(f"- [[Rooms/{n}]], [[{n}]], [it](../Rooms/{n}.md)\n" for n in MOVING)
        _write(root / path, f"---\ncount: 0\n---\n{links}\n{BEGIN}{END}")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


class Agent:
    """One of many who change the same notes; it tells each call, and each change that was acknowledged."""

    def __init__(self, services: Services, root: Path, number: int, told: Path, seed: str) -> None:
        self.services, self.root, self.told = services, root, told
        self.name = f"p{number:02}"
        self.chance = random.Random(f"{seed} {number}")
        self._lines = 0
        self._made = set[int]()

    def work(self, ends: float) -> None:
        """Change notes until the time is over."""
        acts = (self._add, self._overwrite, self._move, self._add_to_moving, self._add_to_linking,
                self._add_to_persons, self._make, self._look)  # fmt: skip
        while time.monotonic() < ends:
            (act,) = self.chance.choices(acts, weights=(4, 3, 5, 8, 1, 0.3, 1, 0.5))
            act()

    def _call(self, tool: str, **arguments: Any) -> Any:
        append(self.told, "call", tool)
        return ask(self.services, self.name, tool, **arguments)

    def _read(self, path: str) -> Any:
        found = self._call("read_note", path=path, max_chars=200_000)
        assert found.body.endswith(END), f"{path} is torn: {found.body[-80:]!r}"
        return found

    def _line(self) -> str:
        self._lines += 1
        return f"{self.name}-{self._lines}"

    def _edited(self, path: str) -> bool:
        """Add a line to a note and count it, in one edit; return whether that was acknowledged."""
        line = self._line()
        for _ in range(TRIES):
            try:
                note = self._read(path)
                # Without it, what this agent read last is what counts.
                tag = note.etag if self.chance.random() < 0.5 else ""
                count = note.frontmatter["count"] + 1
                self._call("edit_note", path=path, append=line, heading="Log", set={"count": count}, if_match=tag)  # fmt: skip
            except Conflict:
                continue
            except NotFound:  # it was moved
                return False
            append(self.told, "line", line, family(path))
            return True
        raise AssertionError(f"{path} was not to be changed in {TRIES} tries")

    def _add(self) -> None:
        assert self._edited(self.chance.choice(SHARED))

    def _add_to_linking(self) -> None:
        assert self._edited(self.chance.choice(LINKING))

    def _add_to_persons(self) -> None:
        self._edited(PERSONS)

    def _add_to_moving(self) -> None:
        for path in whereabouts(self.root, self.chance.choice(MOVING)):
            self._edited(path)

    def _overwrite(self) -> None:
        path, line = self.chance.choice(WHOLE), self._line()
        for _ in range(TRIES):
            note = self._read(path)
            body = f"{note.body.removesuffix(END)}{line}\n{END}"
            fields = note.frontmatter | {"count": note.frontmatter["count"] + 1}
            try:
                self._call("write_note", path=path, frontmatter=fields, body=body, if_match=note.etag)  # fmt: skip
            except Conflict:
                continue
            append(self.told, "line", line, family(path))
            return
        raise AssertionError(f"{path} was not to be written in {TRIES} tries")

    def _move(self) -> None:
        name = self.chance.choice(MOVING)
        for here in whereabouts(self.root, name):
            there = self.chance.choice([path for path in places(name) if path != here])
            try:
                moved = self._call("move_note", source=here, destination=there)
            except (Conflict, NotFound):  # another was first
                continue
            append(self.told, "moved", name)
            for path in moved.untouched:
                append(self.told, "untouched", path)

    def _make(self) -> None:
        """Make the note of this moment, which others are making too."""
        number = int(time.monotonic() * 4)
        if number in self._made:
            return
        self._made.add(number)
        try:
            self._call("write_note", path=f"Made/{number}.md", frontmatter={"by": self.name}, body=BEGIN + END)  # fmt: skip
        except Conflict:
            return
        append(self.told, "made", str(number), self.name)

    def _look(self) -> None:
        listed = self._call("list_notes", directory="Shared")
        found = sorted(match.path for match in listed.notes)
        assert found == sorted((*SHARED, *WHOLE, PERSONS)), found
        assert listed.total == len(found)
        told = self._call("search_notes", query="title:log whole")
        assert sorted(match.path for match in told.notes) == sorted(SHARED), told


def save_as_a_person(root: Path, ends: float, told: Path) -> None:
    """Be an editor that replaces its note whole now and then, and looks at all others meanwhile."""
    file, beside, generation = root / PERSONS, root / ".editing", 0
    while time.monotonic() < ends:
        generation += 1
        beside.write_text(f"---\ncount: 0\ngeneration: {generation}\n---\n{BEGIN}{END}")
        beside.replace(file)
        append(told, "generation", str(generation))
        for note in root.rglob("*.md"):
            try:
                text = note.read_text()
            except FileNotFoundError:  # it was moved
                continue
            # A note that somebody moved is read in its old or its new place, and whole in both.
            assert text.endswith(END), f"{note} is torn: {text[-80:]!r}"
        time.sleep(PACE)


def own_lines(text: str) -> list[str]:
    """Return the lines that agents added."""
    return re.findall(r"^p\d\d-\d+$", text, re.MULTILINE)
