"""A call that asks for a letter to be sent, made by a client that waits for its answer."""

from postroom.core.letter import Letter
from postroom.core.records import Entry
from postroom.desk.desk import Desk
from postroom.desk.proposals import PLAIN, Proposal
from postroom.desk.recorder import Call


def post(
    desk: Desk, call: Call, letter: Letter, proposal: Proposal = PLAIN, *, slips: bool = False
) -> Entry:
    """Ask for a letter to be sent; sleep, as the desk does, for as long as the call has to wait."""
    running = desk.calls.posting(call, letter, proposal, slips=slips)
    while True:
        try:
            desk.effects.sleep(next(running))
        except StopIteration as done:
            entry: Entry = done.value
            return entry
