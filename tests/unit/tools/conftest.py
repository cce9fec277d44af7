"""A person with sample mail, and agents that come in over MCP."""

import pytest

from tests.agents import SAMPLE, Wire, visiting
from tests.conftest import Person


@pytest.fixture
def robin(person: Person) -> Person:
    """Somebody whose letters leave when they say so, with forty mails."""
    person.live(undo_seconds=0)
    assert person.run("import", str(SAMPLE)).code == 0
    return person


@pytest.fixture
def agent(robin: Person):
    with visiting(robin) as found:
        yield found


@pytest.fixture
def wire(robin: Person):
    found = Wire(robin)
    yield found
    found.kill()
