"""The values that templates show: what every page has around it, the queue, a letter, the agents, and the chart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from urllib.parse import urlencode

from postroom.core import life
from postroom.core.card import Card, Level
from postroom.core.letter import Letter
from postroom.core.message import Message
from postroom.core.policy import Rules
from postroom.core.records import DAY, AgentActivity, Entry, LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import duration
from postroom.desk.outbox import ORCHESTRATOR, WHO
from postroom.services.correspondence import Agent
from postroom.web.diff import FieldChange, letter_changes

PAGE_SIZE: Final = 50  # letters of a list on one page
MAX_TEXT_SHOWN: Final = 200_000  # characters of a letter on a page; a link leads to the rest
MAX_SOURCES: Final = 60
MAX_MAIL_TEXT: Final = 20_000  # characters of each mail of a conversation
MAX_MAILS: Final = 20  # of a conversation
CHART_DAYS: Final = 30
CHART_HEIGHT: Final = 60
SERIES: Final = ("approved", "rejected", "sent")
CLOSED: Final = ("sent", "rejected", "expired", "withdrawn", "failed", "rehearsal")
OUTCOMES: Final = (*CLOSED, *life.OPEN)


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

    @property
    def next_id(self) -> str:
        """The id of the first waiting letter that is not open."""
        return next((one.id for one in self.waiting if one.id != self.chosen), "")


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

    @property
    def undo_window(self) -> str:
        """The time in which an approval can be undone, or nothing where there is none."""
        return duration(self.rules.undo_seconds) if self.rules.undo_seconds else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterView:
    """One letter with all that a person needs to decide."""

    entry: Entry
    history: Sequence[life.State] = ()
    former: Letter | None = None  # the version that the agent wrote, where a person changed it
    note_difference: str = ""  # how its note differs, where a person edited the note
    has_thread: bool = False
    replaced_by: str = ""  # the id of its next version
    next_id: str = ""  # the next letter that waits

    @property
    def changes(self) -> list[FieldChange]:
        """What a person changed in it."""
        return letter_changes(self.former, self.entry.letter) if self.former else []

    @property
    def offers(self) -> tuple[str, ...]:
        """The verdicts that the page offers for its state."""
        match self.entry.state:
            case life.Pending() if self.note_difference:
                return ("reject",)
            case life.Pending():
                return ("approve", "edit", "reject", "revise")
            case life.Unknown():
                return ("resolve",)
            case life.Rejected() | life.Withdrawn() | life.Expired() | life.Failed():
                return ("reopen",)
        return ()

    @property
    def is_leaving(self) -> bool:
        """Whether it is being sent, or will be without a further event."""
        state = self.entry.state
        approved = isinstance(state, life.Approved) and not state.held
        return approved or isinstance(state, life.Sending)

    @property
    def steps(self) -> list[tuple[str, life.State]]:
        """What happened to it: the name of each event, and the state it led to."""
        found = []
        for before, state in zip((None, *self.history), self.history, strict=False):
            event = life.name(state)
            if isinstance(state, life.Pending):
                event = "reopened"
                if before is None:
                    event = "proposed"
                elif isinstance(before, life.Pending):
                    event = "edited"
                elif isinstance(before, life.Approved):
                    event = "undone"
            found.append((event, state))
        return found


def red_lines(card: Card) -> int:
    """Return how many red lines a card has."""
    return sum(line.level == Level.STOP for line in card.lines)


def file_hash(content: bytes) -> str:
    """Return the SHA-256 of an attachment."""
    return hashlib.sha256(content).hexdigest()


def postmark_date(state: life.State, zone: tzinfo) -> datetime | None:
    """Return when a person approved a letter; None where nobody did."""
    verdict = getattr(state, "verdict", None)
    if verdict is None or verdict.by == "nobody":
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
    return "no approval required" if verdict.by == "nobody" else str(verdict.by)


def decided_at(summary: LetterSummary) -> float:
    """Return when a letter came into its state; when it was proposed, where that is not known."""
    stamp: Stamp = getattr(summary.state, "at", summary.created)
    return stamp.wall


class Conversation(NamedTuple):
    """The mails of a thread, newest first, and the one that is answered."""

    messages: Sequence[Message]
    older: int  # mails that are left out
    answered: str  # the Message-ID of the mail that is answered

    @classmethod
    def of(cls, messages: Sequence[Message], answered: str) -> Conversation:
        """Return the newest mails of a thread."""
        newest = list(reversed(messages))[:MAX_MAILS]
        only = newest[0].mail.message_id if len(messages) == 1 else answered
        return cls(newest, len(messages) - len(newest), only)


class HistoryQuery(NamedTuple):
    """What a person looks for in the history, and the number of the page."""

    query: str = ""
    state: str = ""
    agent: str = ""
    number: int = 1

    @property
    def address(self) -> str:
        """The address of a page of it, up to the page's number."""
        asked = {"q": self.query, "state": self.state, "agent": self.agent}
        return f"/history?{urlencode(asked)}&page="

    @property
    def is_empty(self) -> bool:
        """Whether it asks for everything."""
        return not (self.query or self.state or self.agent)


class AgentRow(NamedTuple):
    """An agent with its status in agent mail and the number of its letters; None where it has none."""

    name: str
    status: str = ""
    unread: int | None = None
    waiting: int = 0
    sent: int = 0
    rejected: int = 0
    last: float | None = None


def agent_rows(
    activities: Sequence[AgentActivity], present: Sequence[tuple[Agent, int]]
) -> list[AgentRow]:
    """Return the agents that wrote letters, then those that are only in agent mail."""
    rows = {
        one.agent: AgentRow(
            one.agent,
            waiting=sum(one.states.get(state, 0) for state in life.OPEN),
            sent=one.states.get("sent", 0),
            rejected=one.states.get("rejected", 0),
            last=one.last,
        )
        for one in activities
    }
    for agent, unread in present:
        row = rows.get(agent.name, AgentRow(agent.name))
        rows[agent.name] = row._replace(status=agent.status or "here", unread=unread)
    return list(rows.values())


# The chart


class Bar(NamedTuple):
    """A rectangle of the chart."""

    kind: str
    x: int
    width: int
    y: float
    height: float


class ChartDay(NamedTuple):
    """The bars of one day, and what they say."""

    day: date
    counts: Mapping[str, int]
    bars: Sequence[Bar]


class Chart(NamedTuple):
    """How many letters were approved, rejected and sent on each of the last days."""

    days: Sequence[ChartDay]
    totals: Mapping[str, int]


def chart(counts: Mapping[int, Mapping[str, int]], today: date) -> Chart | None:
    """Return the chart up to today, or None where nothing happened; `counts` are by days since 1970."""
    first = today - timedelta(days=CHART_DAYS - 1)
    number = (first - date(1970, 1, 1)).days
    shown = [(at, counts[number + at]) for at in range(CHART_DAYS) if number + at in counts]
    if not shown:
        return None
    totals = {kind: sum(day.get(kind, 0) for _, day in shown) for kind in SERIES}
    highest = max(max(d.get("approved", 0) + d.get("rejected", 0), d.get("sent", 0)) for _, d in shown)  # fmt: skip
    scale = (CHART_HEIGHT - 4) / max(highest, 1)
    days = [
        ChartDay(
            datetime.fromtimestamp((number + at) * DAY, UTC).date(), day, _bars(at, day, scale)
        )
        for at, day in shown
        if any(day.get(kind) for kind in SERIES)
    ]
    return Chart(days, totals)


def _bars(at: int, day: Mapping[str, int], scale: float) -> list[Bar]:
    """Return a bar for what was decided, rejections on top, and one beside it for what was sent."""
    x = 4 + at * 12
    approved, rejected, sent = (day.get(kind, 0) * scale for kind in SERIES)
    bars = [
        Bar("approved", x, 5, CHART_HEIGHT - approved, approved),
        Bar("rejected", x, 5, CHART_HEIGHT - approved - rejected, rejected),
        Bar("sent", x + 5, 4, CHART_HEIGHT - sent, sent),
    ]
    return [bar for bar in bars if bar.height]
