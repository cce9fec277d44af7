"""Who is let in to the page, as the ledger keeps it: once, for a while, and without what lets anybody in."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from postroom.store.ledger import Ledger, SqliteLedger
from postroom.store.sql.desk import MAX_SESSIONS, SESSION_SECONDS, TICKET_SECONDS
from tests.desks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with closing(SqliteLedger(tmp_path / "ledger.sqlite", clock=clock, draw=bytes)) as ledger:
        yield ledger


def test_a_ticket_is_spent_once_and_names_its_person(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.sessions.issue_ticket("ticket", "ada")
        assert tx.sessions.is_ticket_valid("ticket")
        assert tx.sessions.redeem_ticket("ticket", "visit") == "ada"
        assert tx.sessions.redeem_ticket("ticket", "other") is None
        assert not tx.sessions.is_ticket_valid("ticket")
        assert tx.sessions.person("visit") == "ada"
        assert tx.sessions.person("other") is None


def test_neither_stands_for_the_other(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.sessions.issue_ticket("ticket", "ada")
        tx.sessions.redeem_ticket("ticket", "visit")
        tx.sessions.issue_ticket("next", "bob")
        assert tx.sessions.person("next") is None
        assert not tx.sessions.is_ticket_valid("visit")
        assert tx.sessions.redeem_ticket("visit", "x") is None


@pytest.mark.parametrize("direction", [1, -1])
def test_both_end_in_time_whichever_way_the_clock_is_set(
    ledger: Ledger, clock: Clock, direction: int
) -> None:
    with ledger.write() as tx:
        tx.sessions.issue_ticket("used", "ada")
        tx.sessions.redeem_ticket("used", "visit")
        tx.sessions.issue_ticket("ticket", "ada")
        clock.jump(direction * (TICKET_SECONDS - 1))
        assert tx.sessions.is_ticket_valid("ticket")
        clock.jump(direction)
        assert not tx.sessions.is_ticket_valid("ticket")
        assert tx.sessions.redeem_ticket("ticket", "x") is None
        clock.jump(direction * (SESSION_SECONDS - TICKET_SECONDS - 1))
        assert tx.sessions.person("visit") == "ada"
        clock.jump(direction)
        assert tx.sessions.person("visit") is None


def test_who_is_dismissed_is_let_in_no_more_and_others_are(ledger: Ledger) -> None:
    with ledger.write() as tx:
        for name in ("a", "b"):
            tx.sessions.issue_ticket(name, name)
            tx.sessions.redeem_ticket(name, f"visit {name}")
        tx.sessions.end("visit a")
        tx.sessions.end("nobody")
        assert tx.sessions.person("visit a") is None
        assert tx.sessions.person("visit b") == "b"


def test_so_many_are_kept_and_no_more(ledger: Ledger) -> None:
    with ledger.write() as tx:
        for n in range(MAX_SESSIONS + 5):
            tx.sessions.issue_ticket(f"ticket {n}", "ada")
        assert [
            tx.sessions.is_ticket_valid(f"ticket {n}") for n in (0, 4, 5, MAX_SESSIONS + 4)
        ] == [
            False,
            False,
            True,
            True,
        ]


def test_no_secret_stands_in_the_file(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.write() as tx:
        tx.sessions.issue_ticket("a-secret-ticket", "ada")
        tx.sessions.issue_ticket("another-ticket", "ada")
        tx.sessions.redeem_ticket("another-ticket", "a-secret-visit")
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        for secret in (b"a-secret-ticket", b"another-ticket", b"a-secret-visit"):
            assert secret not in content
