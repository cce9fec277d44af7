"""An orchestrator to go rounds with."""

import pytest

from tests.providers import Courier
from tests.rounds import Rounds


@pytest.fixture
def courier():
    return Courier()


@pytest.fixture
def rounds(tmp_path, courier):
    rounds = Rounds(tmp_path)
    rounds.wrap = courier
    rounds.restart()
    rounds.handbook("from nobody.example: archive")  # a rule that fits no mail here
    rounds.round()  # from here on, mail is new
    yield rounds
    rounds.close()
