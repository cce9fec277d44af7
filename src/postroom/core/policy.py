"""What may leave, to whom, and how much of it: the rules, in one table, without a clock of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.errors import Denied, Limited, raise_if
from postroom.core.letter import Letter
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import duration, plural
from postroom.core.values import dataclass

SLIP_SECONDS: Final = 72 * 3600.0  # for which a slip counts after it was first seen
# Seconds after the first tries of a letter that its provider refuses for now.
RETRY_PAUSES: Final = (1.0, 4.0)
BACK_OFF: Final = (30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0)
_ROBOTS: Final = frozenset({"mailer-daemon", "postmaster", "noreply", "no-reply", "donotreply", "do-not-reply"})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    live: bool = False
    source: str = "default"
    required: bool = True
    trust: str = "folder"
    undo_seconds: float = 10
    expiry_seconds: float = 72 * 3600
    sends_per_hour: int = 10
    window_seconds: float = 3600
    sends_per_pace: int = 10
    pace_seconds: float = 60
    recipients_per_letter: int = 25
    recipients_per_hour: int = 50
    open_letters: int = 20
    proposals_per_hour: int = 30
    replies_per_thread: int = 5
    moves_per_hour: int = 200
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """The mode and where it comes from, as every surface names it."""
        if not self.live:
            return f"rehearsal ({self.source})"
        name, within, file = self.source.partition(" in ")
        return f"live ({name} = false{within}{file})"

    @property
    def reach(self) -> float:
        """How many seconds back a claim still counts."""
        return max(self.window_seconds, self.pace_seconds)


class RateLimitCounter(NamedTuple):
    """How much of a limit is used, in the fields of document 000. The ledger keeps the moments across restarts."""

    send_timestamps: deque[Stamp]  # not floats: a clock that jumps changes no limit
    window_seconds: float
    max_sends: int

    def active(self, now: Stamp) -> list[float]:
        """Return for each moment within the window how long it still counts, the shortest first."""
        ages = (elapsed(stamp, now) for stamp in self.send_timestamps)
        return sorted(self.window_seconds - age for age in ages if age < self.window_seconds)

    def cooldown(self, now: Stamp, more: int = 1) -> float | None:
        """Return the seconds until there is room for so many more; None if there is."""
        if len(self.send_timestamps) + more <= self.max_sends:
            return None
        left = self.active(now)
        excess = len(left) + more - self.max_sends
        if excess <= 0:
            return None
        # As many must leave the window as are too many; what never fits waits for a changed setting.
        return left[min(excess, len(left)) - 1] if left else self.window_seconds


class Spent(NamedTuple):
    at: Stamp  # of a claim that counts against the limits
    recipients: int
    thread: str


class SendMeter(NamedTuple):
    """How much of the budget is used: what `status`, the page and the dashboard show."""

    sent: int
    most: int
    window: float
    now: Stamp
    wait: float  # seconds until one more letter may be sent; 0 if one may be sent now

    def describe(self, zone: tzinfo | None = None) -> str:
        """Return `7 of 10 letters this hour`, with the time of the next one if there is no room."""
        span = "this hour" if self.window == 3600 else f"in {duration(self.window)}"
        text = f"{self.sent} of {plural(self.most, 'letter')} {span}"
        if not self.wait or not self.most:  # a limit of 0 never has room
            return text
        now, then = (datetime.fromtimestamp(self.now.wall + s, zone) for s in (0.0, self.wait))
        same_day = now.date() == then.date()
        return f"{text}, next at {then:%H:%M}" + ("" if same_day else f" on {then:%Y-%m-%d}")


def covers(rule: str, address: str) -> bool:
    """Whether a rule (an address, or a domain with all below it) is about this address, folded of case."""
    rule, domain = rule.casefold().removeprefix("@"), address.rpartition("@")[2]
    return address == rule if "@" in rule else domain == rule or domain.endswith(f".{rule}")


def admit(letter: Letter, rules: Rules, own: Collection[str]) -> None:
    """Refuse a letter that no verdict could let out: too many recipients, a denied one, a loop."""
    people, most = letter.envelope, rules.recipients_per_letter
    many = f"The letter has {len(people)} recipients; {most} is the most"
    raise_if((len(people) > most, many, "Write to fewer people (limits.recipients_per_letter)."))
    for address in people:
        denied = any(covers(rule, address.key) for rule in rules.deny)
        allowed = not rules.allow or any(covers(rule, address.key) for rule in rules.allow)
        robot = letter.is_reply and address.local.casefold() in _ROBOTS
        spec, remedy = address.spec, "Leave this recipient out."
        deny = f"{spec} is on the list of those who get no mail (recipients.deny)"
        allow = f"{spec} is not on the list of those who may get mail (recipients.allow)"
        raise_if(
            (denied, deny, remedy),
            (not allowed, allow, "Leave this recipient out, or ask the person to add it."),
            (robot, f"{spec} is a machine: answering it makes a loop", remedy),
            kind=Denied,
        )
    to_itself = letter.is_reply and all(address.key in own for address in people)
    loop = "The answer goes only to the account that it comes from: that makes a loop"
    raise_if((to_itself, loop, "Name another recipient, or keep a note instead."), kind=Denied)


class Full(Denied):
    """An agent has as many letters waiting as it may."""


def admit_agent(open_letters: int, proposals: Sequence[Stamp], now: Stamp, rules: Rules) -> None:
    """Refuse an agent that has too many letters waiting, or writes too many."""
    most = rules.open_letters
    many = f"{open_letters} letters of this agent wait already; {most} is the most"
    remedy = "Wait for the person to decide, or withdraw one (limits.open_letters)."
    raise_if((open_letters >= most, many, remedy), kind=Full)
    _within("letters proposed", proposals, rules.proposals_per_hour, rules.window_seconds, now)


def admit_move(moves: Sequence[Stamp], now: Stamp, rules: Rules) -> None:
    _within("moves and labels", moves, rules.moves_per_hour, rules.window_seconds, now)


def room(spent: Sequence[Spent], letter: Letter, rules: Rules, now: Stamp) -> None:
    """Refuse, with the seconds left, what the budget, the pace or a conversation has no room for."""
    sends = budget(spent, rules, now)
    people = len(letter.envelope)
    window = rules.window_seconds
    heads = [one.at for one in spent for _ in range(one.recipients)]
    _within("recipients", heads, rules.recipients_per_hour, window, now, people)
    if letter.thread:
        same = [one.at for one in spent if one.thread == letter.thread]
        _within("letters in one conversation", same, rules.replies_per_thread, window, now)
    _within("emails", sends, rules.sends_per_pace, rules.pace_seconds, now, pace=True)


def budget(spent: Sequence[Spent], rules: Rules, now: Stamp) -> list[Stamp]:
    """Refuse, with the seconds left, any letter at all where the budget is spent; return its claims."""
    sends = [one.at for one in spent]
    _within("emails", sends, rules.sends_per_hour, rules.window_seconds, now)
    return sends


def measure(spent: Sequence[Spent], rules: Rules, now: Stamp) -> SendMeter:
    window, most = rules.window_seconds, rules.sends_per_hour
    sends = RateLimitCounter(deque(one.at for one in spent), window, most)
    return SendMeter(len(sends.active(now)), most, window, now, sends.cooldown(now) or 0.0)


def _within(
    what: str,
    stamps: Sequence[Stamp],
    most: int,
    window: float,
    now: Stamp,
    more: int = 1,
    *,
    pace: bool = False,
) -> None:
    seconds = RateLimitCounter(deque(stamps), window, most).cooldown(now, more)
    if seconds is None:
        return
    span = {3600: "hour", 60: "minute"}.get(int(window), f"{window:g} seconds")
    raise Limited(
        f"Rate limit exceeded ({most} {what}/{span})",
        seconds=seconds,
        remedy=f"There is room again in {duration(seconds)}.",
        pace=pace,
    )


def has_expired(state: life.State, rules: Rules, now: Stamp) -> bool:
    return isinstance(state, life.Pending) and elapsed(state.since, now) >= rules.expiry_seconds


def retry_pause(tries: int) -> float:
    """Return the seconds after so many tries of a letter, before which it is not tried again."""
    long = tries - len(RETRY_PAUSES)
    return back_off(long) if long > 0 else RETRY_PAUSES[tries - 1]


def back_off(tries: int) -> float:
    return BACK_OFF[min(tries, len(BACK_OFF)) - 1]
