"""A person with sample mail, and agents that come in over MCP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.tools.contracts import vault
from tests.agents import SAMPLE, Visitor, Wire, visiting_inside
from tests.conftest import Person
from tests.notes import Notes


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample mail, imported once."""
    person = Person(tmp_path_factory.mktemp("imported"))
    assert person.run("import", str(SAMPLE)).code == 0
    return person.folder / "state"


@pytest.fixture
def robin(person: Person, imported: Path) -> Person:
    """Somebody whose letters leave when they say so, with forty mails."""
    person.live(undo_seconds=0)
    shutil.copytree(imported, person.folder / "state")
    return person


@pytest.fixture
def agent(robin: Person) -> Iterator[Visitor]:
    """An agent of a server in this process; what is about the process itself starts one."""
    with visiting_inside(robin) as found:
        yield found


@pytest.fixture
def wire(robin: Person) -> Iterator[Wire]:
    found = Wire(robin)
    yield found
    found.kill()


@pytest.fixture
def notes(person: Person) -> Iterator[Notes]:
    person.vault.mkdir(exist_ok=True)
    with visiting_inside(person, contract=vault.CONTRACT) as agent:
        yield Notes(person, agent)
