"""Who sends from a vault: the ledger that is bound to it, and no other."""

import os
from pathlib import Path

from postroom.core.stamp import Stamp
from postroom.desk import ownership
from postroom.store.desk import make_desk
from postroom.store.ledger import SqliteLedger


def test_two_processes_that_bind_a_new_ledger_at_once_agree(tmp_path: Path) -> None:
    vault, state = tmp_path / "vault", tmp_path / "state"
    vault.mkdir()
    state.mkdir(mode=0o700)
    ids = (letter * 16 for letter in "abcd")
    desk = make_desk(vault, lambda: next(ids))
    first, second = (
        SqliteLedger(state / "ledger.sqlite", clock=lambda: Stamp(1e9), draw=os.urandom)
        for _ in range(2)
    )
    bound = []

    def draw_late() -> str:
        """Let the first process bind the ledger after the second has seen that nobody has."""
        bound.append(ownership.bind(vault, first, desk=desk, machine="m", draw=lambda: next(ids)))
        return next(ids)

    settings = ownership.bind(vault, second, desk=desk, machine="m", draw=draw_late)
    assert [settings.ledger_id] == [one.ledger_id for one in bound]
    ownership.check(vault, first, bound[0])
    ownership.check(vault, second, settings)
    first.close()
    second.close()
