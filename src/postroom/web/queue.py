"""The queue: which letters of it a person wants to see, in which groups, and the rows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

from postroom.core import life
from postroom.core.policy import Rules
from postroom.core.records import LetterFilter, LetterSummary, ListOrder
from postroom.core.stamp import Stamp, elapsed
from postroom.desk.desk import Desk

PAGE_SIZE: Final = 50  # letters of a list on one page
FAILED_SECONDS: Final = 72 * 3600.0  # for which the queue shows a letter that failed
MAX_FAILED: Final = 20
SOON_SECONDS: Final = 12 * 3600.0  # before it expires, a row says when
MAX_WORDS: Final = 10  # of a search
MAX_FIELD: Final = 200  # characters of a field of the filter
RISKS: Final = {"red": (2,), "amber": (1,), "plain": (0,)}
# The groups whose letters wait for a person.
WAITING: Final = ("unknown", "look", "plain", "rehearsal")


class QueueView(NamedTuple):
    """What the address of a page says of the queue after its `?`: the filter, and the page of the list."""

    q: str = ""
    to: str = ""
    agent: str = ""
    account: str = ""
    risk: str = ""
    page: str = ""

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> QueueView:
        view = cls(**{name: fields.get(name, "")[:MAX_FIELD].strip() for name in cls._fields})
        return view._replace(risk=view.risk if view.risk in RISKS else "")

    @property
    def query(self) -> str:
        """The view as the end of an address; empty for the whole queue."""
        given = {name: value for name, value in self._asdict().items() if value}
        return f"?{urlencode(given)}" if given else ""

    @property
    def filter_query(self) -> str:
        """The same without the page, for links to other pages."""
        return self._replace(page="").query

    @property
    def is_filtered(self) -> bool:
        return any(self[:-1])

    @property
    def matching(self) -> LetterFilter:
        return LetterFilter(
            words=tuple(self.q.split()[:MAX_WORDS]),
            agent=self.agent or None,
            account=self.account or None,
            recipient=self.to,
            levels=RISKS.get(self.risk, ()),
        )


class Group(NamedTuple):
    name: str  # finds its title in the template
    letters: Sequence[LetterSummary]
    total: int  # on all pages


class Queue(NamedTuple):
    groups: tuple[Group, ...]  # those that have letters, in the order in which the page shows them
    total: int  # letters that wait, on all pages
    number: int  # the page of those that wait
    view: QueueView
    agents: tuple[str, ...]  # to choose from
    accounts: tuple[str, ...]
    is_rehearsed: bool  # nothing can be sent: the letters that wait are rehearsals
    chosen: str = ""  # the letter that is open

    def first(self) -> str:
        """Return the letter to open first: one that needs a decision; empty without any."""
        return next(iter(self._waiting()), "")

    def _waiting(self) -> list[str]:
        return [one.id for group in self.groups if group.name in WAITING for one in group.letters]

    def after(self, id: str) -> str:
        """Return the letter that waits after this one, or before it if it is the last; empty without another."""
        ids = self._waiting()
        at = ids.index(id) if id in ids else -1
        return (*ids[at + 1 :], *ids[: max(at, 0)][::-1], "")[0]


def read_queue(desk: Desk, view: QueueView) -> Queue:
    """Return the letters that the view shows."""
    lists, rules, now = desk.reader.lists, desk.rules, desk.clock()
    is_rehearsed = not rules.live and lists.count("pending") == 0
    state, matching = "rehearsal" if is_rehearsed else "pending", view.matching
    total = lists.count(state, matching=matching)
    last = max(1, -(-total // PAGE_SIZE))
    asked = int(view.page) if view.page.isascii() and view.page.isdecimal() else 1
    number = min(max(asked, 1), last)
    skip = (number - 1) * PAGE_SIZE
    waiting = lists.summaries(
        state, matching=matching, newest=PAGE_SIZE, skip=skip, order=ListOrder.RISK
    )
    # Whoever approved a letter may believe that it was sent: a failure is shown for a while.
    failed = [
        one
        for one in lists.summaries("failed", matching=matching, newest=MAX_FAILED)[::-1]
        if isinstance(one.state, life.Failed) and elapsed(one.state.at, now) < FAILED_SECONDS
    ]
    leaving = lists.summaries("approved", "sending", matching=matching, newest=PAGE_SIZE)
    held = [one for one in leaving if isinstance(one.state, life.Approved) and one.state.held]
    found = {
        "unknown": lists.summaries("unknown", matching=matching)[::-1],
        "failed": failed,
        "rehearsal": waiting if is_rehearsed else [],
        "look": [] if is_rehearsed else [one for one in waiting if one.level],
        "plain": [] if is_rehearsed else [one for one in waiting if not one.level],
        "held": held,
        "sending": [one for one in leaving if one not in held],
    }
    totals = {"rehearsal": total}
    if last > 1:
        plain = matching._replace(levels=(0,))
        totals["plain"] = 0 if view.risk in {"red", "amber"} else lists.count(state, matching=plain)
        totals["look"] = total - totals["plain"]
    groups = (
        Group(name, letters, totals.get(name, len(letters))) for name, letters in found.items()
    )
    agents, accounts = lists.facets("unknown", "failed", "approved", "sending", state)
    shown = tuple(group for group in groups if group.letters)
    return Queue(shown, total, number, view, agents, accounts, is_rehearsed)


def row_time(letter: LetterSummary, rules: Rules, now: Stamp) -> tuple[str, float]:
    """Return what a row says of the time, as a kind and seconds from now: when it expires soon, or leaves."""
    match letter.state:
        case life.Pending(since=since):
            left = rules.expiry_seconds - elapsed(since, now)
            return ("expires", left) if left < SOON_SECONDS else ("", 0.0)
        case life.Approved(since=since, wait=wait, held=held):
            left = max(0.0, wait - elapsed(since, now))
            return ("held" if held else "leaves"), left
        case life.Sending():
            return "sending", 0.0
    return "", 0.0
