"""The ledger's file, as older versions of Postroom left it."""

import json
from contextlib import closing

from postroom.core.stamp import Stamp
from postroom.store.database import Database
from postroom.store.ledger import Ledger
from postroom.store.schema import MIGRATIONS

NOW = Stamp(1_794_700_800.0, "boot", 100.0)


def test_what_was_spent_before_an_upgrade_stays_spent(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with closing(Database(path, MIGRATIONS[:1])) as old, old.write() as connection:
        for age in (7200, 10):
            at = json.dumps(Stamp(NOW.wall - age, "boot", NOW.steady - age))
            connection.execute("INSERT INTO spent VALUES ('aaaaaaaaaa', ?, 3, 't')", [at])
    ledger = Ledger(path, clock=lambda: NOW, draw=bytes)
    with closing(ledger), ledger.write() as book:
        (claim,) = book.spent(NOW, 3600)
    assert claim == (Stamp(NOW.wall - 10, "boot", 90.0), 3, "t")
