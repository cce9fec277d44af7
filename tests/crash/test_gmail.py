"""Killed while Gmail has the letter: sent once, whatever was lost, and known to be."""

import random
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from postroom.config.loading import load
from postroom.core.address import Address
from postroom.desk.desk import Desk
from postroom.desk.proposals import Proposal, Written
from postroom.desk.recorder import Call
from postroom.wiring.desk import find_desk
from tests.conftest import Person
from tests.crash.counts import GMAIL_LETTERS as LETTERS
from tests.crash.counts import SEED
from tests.gmail.double import Failure, Gmail
from tests.gmail.people import at_gmail
from tests.narrow import present
from tests.posting import post

SETTINGS = """dry_run = false
[approvals]
undo_seconds = 0
[limits]
sends_per_hour = 10000
sends_per_pace = 10000
recipients_per_hour = 10000
open_letters = 10000
proposals_per_hour = 10000
[gmail]
sending = "{sending}"
"""
ACT = r"POST /gmail/v1/users/me/(drafts|messages)/send"
ASKING = r"GET /gmail/v1/users/me/(drafts/|history)"
Accident = tuple[str, Failure]  # which request fails, and how
# What fails, and how; a dispatcher lives through some, and is killed in the middle of others.
SOFT: list[Accident] = [
    (ACT, {"lost": "after"}),
    (ACT, {"lost": "before"}),
    (ACT, {"cut": True}),
    (ACT, {"status": 503}),
]
HARD: list[Accident] = [
    (ACT, {"lost": "after"}),
    (ACT, {"lost": "after"}),
    (ACT, {"lost": "before"}),
    (ASKING, {"lost": "after"}),
]
DRAFTING: Accident = (r"POST /gmail/v1/users/me/drafts$", {"lost": "after"})


@contextmanager
def office(person: Person) -> Iterator[Desk]:
    config = load(person.environment, person.folder, person.folder)
    with find_desk(config, make=True) as found:
        yield present(found)


def approve_letters(person: Person) -> list[str]:
    """Have an agent write letters, and a person approve them all."""
    ann, agent = (Address.parse("ann@example.com"),), Call("send_email", "claude")
    ids = []
    with office(person) as found:
        for number in range(LETTERS):
            written = Written(ann, f"Letter {number}", f"This is letter {number}.\n")
            entry = post(found, agent, found.composer.letter(written), Proposal(key=f"k{number}"))
            found.approve(entry.id, by="ada", digest=entry.digest)
            ids.append(entry.id)
    return ids


def states(person: Person) -> dict[str, str]:
    with office(person) as found:
        return {
            line.id: type(line.state).__name__.lower()
            for line in found.ledger.lists.summaries(*ALL)
        }


ALL = ("approved", "sending", "sent", "unknown", "failed", "pending")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sending", ["draft", "message"])
def test_a_letter_whose_sender_dies_or_hears_nothing_is_sent_once(
    person: Person, sending: str
) -> None:
    chance = random.Random(SEED)
    file = Path(person.folder, ".config", "postroom", "postroom.toml")
    file.parent.mkdir(parents=True)
    file.write_text(SETTINGS.format(sending=sending))
    with Gmail() as service:
        at_gmail(person, service)
        ids = approve_letters(person)
        struck, hard = 0, [*HARD, DRAFTING] if sending == "draft" else HARD[:-1]
        for _ in range(4 * LETTERS):
            struck += run_and_die(person, service, chance, hard)
            hurry(person)
            if not {"approved", "sending"} & set(states(person).values()):
                break
        run = person.run("send-approved")
        ended = states(person)
        left = Counter(sent.letter for sent in service.sent)
        told = ", ".join(f"{count} {state}" for state, count in Counter(ended.values()).items())
        sys.stdout.write(f"\nby {sending}: {LETTERS} letters, {struck} interruptions; {told}\n")
        assert max(left.values()) == 1, "sent twice"
        assert set(left) <= set(ids)
        if sending == "draft":
            assert set(ended.values()) == {"sent"}, (ended, run.err)
            assert len(left) == LETTERS
            assert not service.mailbox.drafts, "drafts left behind"
        else:
            assert set(ended.values()) <= {"sent", "unknown"}
            for id, state in ended.items():
                assert left[id] == 1 or state == "unknown"
        assert struck >= LETTERS // 2


def hurry(person: Person) -> None:
    """Let the pause pass that follows many tries of one letter."""
    with closing(sqlite3.connect(person.folder / "state" / "ledger.sqlite")) as ledger:
        ledger.execute(
            "UPDATE letter SET detail = json_set(detail, '$.wait', 0) WHERE state = 'approved'"
        )
        ledger.commit()


def run_and_die(person: Person, service: Gmail, chance: Random, hard: list[Accident]) -> int:
    """Run a dispatcher into faults, and kill it in the middle of one; return how many it met."""
    hold = threading.Event()
    where, how = chance.choice(hard)
    last = service.fail(where, hold=hold, skip=chance.randrange(3), **how)
    faults = [last]
    for _ in range(2):
        where, how = chance.choice(SOFT)
        faults.append(service.fail(where, skip=chance.randrange(2), **how))
    process = person.start("send-approved")
    while process.poll() is None and not last.struck.wait(0.01):
        pass
    process.kill()
    hold.set()
    process.communicate(timeout=60)
    met = sum(fault.seen for fault in faults)
    for fault in faults:
        fault.times = 0  # it is over, whether it was met or not
    return met
