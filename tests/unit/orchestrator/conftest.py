"""An orchestrator to go rounds with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.providers import Courier
from tests.rounds import Rounds


@pytest.fixture
def courier() -> Courier:
    return Courier()


@pytest.fixture
def rounds(tmp_path: Path, courier: Courier) -> Iterator[Rounds]:
    rounds = Rounds(tmp_path)
    rounds.wrap = courier
    rounds.restart()
    rounds.handbook("from nobody.example: archive")  # a rule that fits no mail here
    rounds.round()  # from here on, mail is new
    yield rounds
    rounds.close()
