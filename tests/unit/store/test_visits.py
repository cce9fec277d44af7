"""Who is let in to the page, as the ledger keeps it: once, for a while, and without what lets anybody in."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from postroom.store.ledger import Ledger
from postroom.store.visits import MOST, TICKET_SECONDS, VISIT_SECONDS
from tests.desks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.sqlite", clock=clock, draw=bytes)) as ledger:
        yield ledger


def test_a_ticket_is_spent_once_and_names_its_person(ledger: Ledger) -> None:
    with ledger.write() as book:
        book.issue("ticket", "ada")
        assert book.valid("ticket")
        assert book.redeem("ticket", "visit") == "ada"
        assert book.redeem("ticket", "other") is None
        assert not book.valid("ticket")
        assert book.visitor("visit") == "ada"
        assert book.visitor("other") is None


def test_neither_stands_for_the_other(ledger: Ledger) -> None:
    with ledger.write() as book:
        book.issue("ticket", "ada")
        book.redeem("ticket", "visit")
        book.issue("next", "bob")
        assert book.visitor("next") is None
        assert not book.valid("visit")
        assert book.redeem("visit", "x") is None


@pytest.mark.parametrize("direction", [1, -1])
def test_both_end_in_time_whichever_way_the_clock_is_set(
    ledger: Ledger, clock: Clock, direction: int
) -> None:
    with ledger.write() as book:
        book.issue("used", "ada")
        book.redeem("used", "visit")
        book.issue("ticket", "ada")
        clock.jump(direction * (TICKET_SECONDS - 1))
        assert book.valid("ticket")
        clock.jump(direction)
        assert not book.valid("ticket")
        assert book.redeem("ticket", "x") is None
        clock.jump(direction * (VISIT_SECONDS - TICKET_SECONDS - 1))
        assert book.visitor("visit") == "ada"
        clock.jump(direction)
        assert book.visitor("visit") is None


def test_who_is_dismissed_is_let_in_no_more_and_others_are(ledger: Ledger) -> None:
    with ledger.write() as book:
        for name in ("a", "b"):
            book.issue(name, name)
            book.redeem(name, f"visit {name}")
        book.dismiss("visit a")
        book.dismiss("nobody")
        assert book.visitor("visit a") is None
        assert book.visitor("visit b") == "b"


def test_so_many_are_kept_and_no_more(ledger: Ledger) -> None:
    with ledger.write() as book:
        for n in range(MOST + 5):
            book.issue(f"ticket {n}", "ada")
        assert [book.valid(f"ticket {n}") for n in (0, 4, 5, MOST + 4)] == [
            False,
            False,
            True,
            True,
        ]


def test_no_secret_stands_in_the_file(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.write() as book:
        book.issue("a-secret-ticket", "ada")
        book.issue("another-ticket", "ada")
        book.redeem("another-ticket", "a-secret-visit")
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        for secret in (b"a-secret-ticket", b"another-ticket", b"a-secret-visit"):
            assert secret not in content
