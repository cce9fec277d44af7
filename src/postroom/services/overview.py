"""Letters, limits and the log as a dashboard shows them: reads alone."""

from __future__ import annotations

from typing import NamedTuple

from postroom.core import life
from postroom.core.policy import Rules
from postroom.core.records import LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.store.protocol import Ledger

MOST_SENT = 500  # sent letters that are looked at


class LetterView(NamedTuple):
    """A letter with what its note shows."""

    summary: LetterSummary
    note_path: str
    remark: str  # why it is held, or what its note tells the person
    is_urgent: bool


class DeskOverview:
    """Reads what a dashboard shows."""

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self._ledger = ledger
        self._rules = rules

    def letters(self, *states: str) -> list[LetterView]:
        """Return the letters in these states, oldest first (all open ones without any)."""
        return [self._view(summary) for summary in self._ledger.lists.summaries(*states)]

    def _view(self, summary: LetterSummary) -> LetterView:
        location = self._ledger.notes.location(summary.id)
        remark = getattr(summary.state, "held", "") or location.notice
        return LetterView(
            summary, location.path, remark, summary.fields.get("priority") == "urgent"
        )

    def approved(self) -> list[life.Approved]:
        """Return the states of the letters that wait to be sent."""
        states = (summary.state for summary in self._ledger.lists.summaries("approved"))
        return [state for state in states if isinstance(state, life.Approved)]

    def sent(self) -> list[tuple[LetterSummary, Stamp]]:
        """Return the letters that were sent last, oldest first, and when."""
        summaries = self._ledger.lists.summaries("sent", newest=MOST_SENT)
        return [(one, one.state.at) for one in summaries if isinstance(one.state, life.Sent)]

    def sends_left(self, now: Stamp) -> int:
        """Return how many letters may still be sent within the window of the budget."""
        window = self._rules.window
        with self._ledger.read() as tx:
            claims = tx.budget.spent(now, window)
        used = sum(elapsed(claim.at, now) < window for claim in claims)
        return max(0, self._rules.sends - used)

    def note_path(self, key: str) -> str:
        """Return where the note of a letter or a mail is."""
        return self._ledger.notes.location(key).path

    def last_action(self) -> int:
        """Return the number of the last audit line; it grows with everything that happens."""
        return self._ledger.actions.head()
