"""Letters, notes and limits as a dashboard shows them: reads alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.core import life
from postroom.core.policy import Rules
from postroom.core.records import LetterSummary
from postroom.core.stamp import Stamp, elapsed

if TYPE_CHECKING:
    from postroom.store.ledger import Ledger

MOST_SENT = 500  # sent letters that are looked at


class DeskOverview:
    """Reads what a dashboard shows."""

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self._ledger = ledger
        self._rules = rules
        self.lists = ledger.lists
        self.notes = ledger.notes  # of letters and mail

    def sent(self) -> list[tuple[LetterSummary, Stamp]]:
        """Return the letters that were sent last, oldest first, and when."""
        summaries = self.lists.summaries("sent", newest=MOST_SENT)
        return [(one, one.state.at) for one in summaries if isinstance(one.state, life.Sent)]

    def sends_left(self, now: Stamp) -> int:
        """Return how many letters may still be sent within the window of the budget."""
        window = self._rules.window
        with self._ledger.read() as tx:
            claims = tx.budget.spent(now, window)
        used = sum(elapsed(claim.at, now) < window for claim in claims)
        return max(0, self._rules.sends - used)

    def last_action(self) -> int:
        """Return the number of the last audit line; it grows with everything that happens."""
        return self._ledger.actions.head()
