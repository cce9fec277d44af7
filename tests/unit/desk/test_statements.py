"""How often the ledger is asked on the way of one letter: each statement is a round trip to a shared database."""

from tests.desks import SEND, Office, database_of
from tests.posting import post

MOST = 44
CONTROL = ("BEGIN", "COMMIT", "PRAGMA", "ROLLBACK")


def test_one_letter_takes_few_statements_from_the_proposal_to_done(office: Office) -> None:
    """Before, a letter took 104."""
    for number in range(3):  # the first one finds nothing remembered
        asked: list[str] = []
        connection = database_of(office.desk.ledger)._connection
        connection.set_trace_callback(asked.append)
        letter = office.letter(subject=f"Letter {number}", text=f"Text {number}.\n")
        entry = post(office.desk, SEND, letter)
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
        office.clock.go(60)
        entry = office.desk.dispatch(entry.id)
        connection.set_trace_callback(None)
        assert entry.kind == "sent"
        office.clock.go(3600)
    statements = [one for one in asked if not one.startswith(CONTROL)]
    assert len(statements) <= MOST, "\n".join(statements)
