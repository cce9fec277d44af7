"""A cleaning of a mailbox that was killed after any byte: who comes next finishes it."""

from itertools import product
from pathlib import Path

from postroom.agents.folder import MailFolder
from postroom.agents.mailbox import AgentMailbox
from tests.cases import for_each
from tests.mailboxes import MIXED, break_off_cleaning, check_next_finishes_cleaning

LENGTH = sum(map(len, MIXED))


@for_each(("written", "appended"), product(range(LENGTH + 1), [False, True]))
def test_a_rewrite_that_is_broken_off_anywhere_is_finished_by_the_next(
    tmp_path: Path, written: int, appended: bool
) -> None:
    box = AgentMailbox(MailFolder(str(tmp_path)), f"bob{written}{appended}")
    break_off_cleaning(box, written)
    check_next_finishes_cleaning(box, appended=appended)
