"""The values that templates show: what every page has around it, the queue, a search of the history, and the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.policy import Rules
from postroom.core.records import LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.desk.outbox import ORCHESTRATOR, WHO

PAGE_SIZE: Final = 50  # letters of a list on one page
MAX_TEXT_SHOWN: Final = 200_000  # characters of a letter on a page; a link leads to the rest
MAX_SOURCES: Final = 60
MAX_MAIL_TEXT: Final = 20_000  # characters of each mail of a conversation
CHART_DAYS: Final = 30
SERIES: Final = ("approved", "rejected", "sent")
OUTCOMES: Final = (*life.CLOSED, "rehearsal", *life.OPEN)


class Notice(NamedTuple):
    """A sentence at the top of a page; `kind` is `good`, `note` or `stop`."""

    kind: str
    text: str


def pages(total: int) -> int:
    """Return how many pages a list of this many letters has."""
    return max(1, -(-total // PAGE_SIZE))


def agent_name(name: str) -> str:
    """Return the author of a letter as people say it."""
    return WHO.get(name) or ("Postroom's own draft" if name == ORCHESTRATOR else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One page of the queue, newest first."""

    unknown: Sequence[LetterSummary]
    failed: Sequence[LetterSummary]
    approved: Sequence[LetterSummary]
    waiting: Sequence[LetterSummary]
    total: int
    number: int = 1
    rehearsed: bool = False  # `waiting` are rehearsals
    chosen: str = ""  # the id of the letter that is open


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What every page has around it: its place, whose page it is, the rules, the time, notices and the queue."""

    title: str
    place: str  # the address of the tab that it belongs to
    person: str
    token: str
    rules: Rules
    zone: tzinfo
    now: Stamp
    waiting: int
    notices: Sequence[Notice] = ()
    queue: QueueView | None = None

    def since(self, stamp: Stamp) -> float:
        """Return the seconds since then."""
        return elapsed(stamp, self.now)

    def expires_in(self, state: life.Pending) -> float:
        """Return the seconds until a waiting letter expires."""
        return self.rules.expiry_seconds - elapsed(state.since, self.now)

    def due_in(self, state: life.Approved) -> float:
        """Return the seconds until an approved letter is sent or tried again."""
        return max(0.0, state.wait - elapsed(state.since, self.now))


def approval_date(state: life.State, zone: tzinfo) -> datetime | None:
    """Return when a person approved a letter; None where nobody did."""
    verdict = getattr(state, "verdict", None)
    if verdict is None or verdict.is_automatic:
        return None
    return datetime.fromtimestamp(verdict.at.wall, zone)


def decided_by(state: life.State) -> str:
    """Return who brought a letter into this state."""
    match state:
        case life.Rejected(by=by):
            return by
        case life.Withdrawn():
            return "its agent"
    verdict = getattr(state, "verdict", None)
    if verdict is None:
        return ""
    return "no approval required" if verdict.is_automatic else str(verdict.by)


class HistoryQuery(NamedTuple):
    """What a person looks for in the history, and the number of the page."""

    words: str = ""
    state: str = ""
    agent: str = ""
    number: int = 1


class Chart(NamedTuple):
    """How many letters were approved, rejected and sent on each of the last days."""

    days: Sequence[tuple[int, date, Mapping[str, int]]]  # with the number of the day's column
    totals: Mapping[str, int]
    highest: int  # of all bars


def chart(counts: Mapping[int, Mapping[str, int]], today: date) -> Chart | None:
    """Return the chart up to today, or None where nothing happened; `counts` are by days since 1970."""
    first = today - timedelta(days=CHART_DAYS - 1)
    start = (first - date(1970, 1, 1)).days
    days = [
        (column, first + timedelta(days=column), {kind: counts[start + column].get(kind, 0) for kind in SERIES})
        for column in range(CHART_DAYS)
        if start + column in counts
    ]  # fmt: skip
    if not days:
        return None
    totals = {kind: sum(day[kind] for _, _, day in days) for kind in SERIES}
    highest = max(max(day["approved"] + day["rejected"], day["sent"]) for _, _, day in days)
    return Chart(days, totals, highest)
