"""The ledger's file, as older versions of Postroom left it."""

import json
from contextlib import closing
from pathlib import Path

from postroom.core.card import Exposure
from postroom.core.records import ShownMail
from postroom.core.stamp import Stamp
from postroom.store.database import Database
from postroom.store.ledger import SqliteLedger, migrations

NOW = Stamp(1_794_700_800.0, "boot", 100.0)


def test_what_was_spent_before_an_upgrade_stays_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(Database(path, migrations()[:1])) as old, old.write() as connection:
        for age in (7200, 10):
            at = json.dumps(Stamp(NOW.wall - age, "boot", NOW.steady - age))
            connection.execute("INSERT INTO spent VALUES ('aaaaaaaaaa', ?, 3, 't')", [at])
    ledger = SqliteLedger(path, clock=lambda: NOW, draw=bytes)
    with closing(ledger), ledger.write() as tx:
        (claim,) = tx.budget.spent(NOW, 3600)
    assert claim == (Stamp(NOW.wall - 10, "boot", 90.0), 3, "t")


def test_what_agents_were_shown_before_an_upgrade_keeps_its_time_and_counts_as_text(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    added = next(at for at, step in enumerate(migrations()) if "CREATE TABLE exposure" in step)
    with closing(Database(path, migrations()[:added])) as old, old.write() as connection:
        connection.executemany(
            "INSERT INTO token VALUES (?, ?, ?)",
            [
                ("ann@example.com", "mail 6ac3 from ann@example.com", NOW.wall - 20),
                ("bob@example.com", "mail 6ac3 from a file of it, report.pdf", NOW.wall - 10),
            ],
        )
        connection.execute("INSERT INTO contact VALUES ('default', 'example.org')")
    ledger = SqliteLedger(path, clock=lambda: NOW, draw=bytes)
    mail = Exposure("ann@example.com", "", 0.0, False, frozenset({""}))
    with closing(ledger):
        tokens = frozenset({"ann@example.com", "bob@example.com"})
        assert ledger.exposure.find(tokens, NOW.wall - 30) == dict.fromkeys(tokens, (mail,))
        assert list(ledger.exposure.find(tokens, NOW.wall - 15)) == ["bob@example.com"]
        assert ledger.exposure.correspondents("default") == (frozenset({"@example.org"}), "")


def test_the_first_mail_stays_first_while_it_is_shown_again(tmp_path: Path) -> None:
    now = [NOW.wall]
    ledger = SqliteLedger(tmp_path / "ledger.sqlite", clock=lambda: Stamp(now[0]), draw=bytes)

    def show(id: str, sender: str, part: str = "body") -> None:
        now[0] += 10
        with ledger.write() as tx:
            tx.exposure.record(ShownMail("a", id, sender, "x", 1.0, False), {part: {"t"}})

    def senders() -> list[str]:
        found = ledger.exposure.find(frozenset({"t"}), now[0] - 35).get("t", ())
        return [mail.sender for mail in found]

    with closing(ledger):
        show("1", "eve")
        show("2", "dora")
        show("1", "eve", "subject")
        show("1", "eve")
        assert senders() == ["eve", "dora"]
        assert ledger.exposure.find(frozenset({"t"}), 0)["t"][0].parts == {"body", "subject"}
        now[0] += 20  # Dora's is older than Eve's by now
        assert senders() == ["eve"]
        with ledger.write() as tx:
            tx.exposure.forget_before(now[0] + 1)
        assert senders() == []


def test_what_a_person_wrote_before_others_quoted_it_came_from_the_person(tmp_path: Path) -> None:
    now = [NOW.wall]
    ledger = SqliteLedger(tmp_path / "ledger.sqlite", clock=lambda: Stamp(now[0]), draw=bytes)
    mails = [  # in the order in which they are shown: token, sender, age in days, in Sent
        ("quoted", "dora", 1, False),
        ("quoted", "you", 5, True),
        ("brought", "eve", 5, False),
        ("brought", "you", 1, True),
        ("postdated", "eve", -9, False),  # it claims to be written later than the answer to it
        ("postdated", "you", -1, True),
        ("at once", "eve", 3, False),
        ("at once", "you", 3, True),
    ]
    with closing(ledger):
        for number, (token, sender, days, sent) in enumerate(mails):
            now[0] += 2 * 86_400 if token == "postdated" and sent else 1
            mail = ShownMail("a", str(number), sender, "x", NOW.wall - days * 86_400, sent)
            with ledger.write() as tx:
                tx.exposure.record(mail, {"body": {token}})
        found = ledger.exposure.find(frozenset(row[0] for row in mails), 0)
    first = {token: exposures[0].sender for token, exposures in found.items()}
    assert first == {"quoted": "you", "brought": "eve", "postdated": "eve", "at once": "eve"}
