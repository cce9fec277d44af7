"""The life of a letter: every state is a type, every event a function that gives the next one.

An event that a state does not have raises `Conflict`, which says what became of the letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

from postroom.core.errors import Conflict
from postroom.core.stamp import Stamp
from postroom.core.values import dataclass


class Channel(StrEnum):
    TERMINAL = "terminal"
    PAGE = "page"
    FOLDER = "folder"
    SLIP = "slip"
    NOT_REQUIRED = "not_required"  # `approvals.required = false`: no person was asked

    @classmethod
    def _missing_(cls, value: object) -> Channel | None:
        return cls.NOT_REQUIRED if value == "required = false" else None  # by versions before 0.2


@dataclass(frozen=True, slots=True)
class Verdict:
    by: str
    via: Channel
    at: Stamp
    digest: str  # of what was approved
    slip: str = ""  # that it was, if any

    @property
    def is_automatic(self) -> bool:
        """Whether no person gave it, because none is required."""
        return self.via is Channel.NOT_REQUIRED


@dataclass(frozen=True, slots=True)
class Rehearsal:
    at: Stamp


@dataclass(frozen=True, slots=True)
class Pending:
    since: Stamp


@dataclass(frozen=True, slots=True)
class Approved:
    verdict: Verdict
    since: Stamp
    wait: float  # seconds after `since`, before which it is not sent
    held: str = ""  # why it has not been sent
    tries: int = 0
    first: Stamp | None = None
    # Of the error that holds it; `pace` for one that is waited for; of the provider's errors, `unreachable` where there
    # was no connection or it was lost, `quota` and `throttled` where it wants fewer requests.
    code: str = ""


@dataclass(frozen=True, slots=True)
class Sending:
    """Claimed: its bytes are being handed over, or were when the owner died."""

    verdict: Verdict
    at: Stamp
    wire: str  # the SHA-256 of these bytes
    tries: int
    first: Stamp


@dataclass(frozen=True, slots=True)
class Sent:
    at: Stamp
    message: str
    thread: str
    refused: tuple[str, ...] = ()  # the recipients that the provider turned down
    verdict: Verdict | None = None
    how: str = "accepted"


@dataclass(frozen=True, slots=True)
class Rejected:
    at: Stamp
    by: str
    reason: str
    revise: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn:
    at: Stamp


@dataclass(frozen=True, slots=True)
class Expired:
    at: Stamp


@dataclass(frozen=True, slots=True)
class Failed:
    at: Stamp
    reason: str
    code: str = ""  # of the error with which the provider refused it


@dataclass(frozen=True, slots=True)
class Unknown:
    at: Stamp
    why: str  # it may have been sent, and nothing proves it
    asked: Stamp
    verdict: Verdict | None = None
    code: str = ""  # of the error after which nothing proves it


State = (
    Rehearsal | Pending | Approved | Sending | Sent | Rejected | Withdrawn | Expired | Failed | Unknown
)  # fmt: skip
STATES: Final = {kind.__name__.lower(): kind for kind in State.__args__}
LIMITED: Final = (
    "rate_limited",
    "pace",
    "quota",
    "throttled",
)  # codes of a letter that waits for room
OPEN: Final = ("pending", "approved", "sending", "unknown")
CLOSED: Final = ("sent", "rejected", "withdrawn", "expired", "failed")


class Event(NamedTuple):
    states: tuple[type, ...]  # in which it can happen
    action: str  # its name in the log
    participle: str
    by_person: bool = True
    needs_proof: bool = False  # at trust level desk, the passphrase


# Every surface reads here what a state allows: the page its buttons, the terminal its commands.
EVENTS: Final = {
    "approve": Event((Pending,), "approve_letter", "approved", needs_proof=True),
    "edit": Event((Pending,), "edit_letter", "edited", needs_proof=True),
    "reject": Event((Pending, Approved), "reject_letter", "rejected"),
    "revise": Event((Pending, Approved), "revise_letter", "sent back"),
    "undo": Event((Approved,), "undo_letter", "recalled"),
    "resolve": Event((Unknown,), "resolve_letter", "resolved", needs_proof=True),
    "reopen": Event((Rejected, Withdrawn, Expired, Failed), "reopen_letter", "opened again"),
    "withdraw": Event((Pending, Approved), "withdraw_letter", "withdrawn", by_person=False),
}

# Events that a person decides without more than a reason: `Desk.decide` carries them out.
DECISIONS: Final = tuple(
    name for name, event in EVENTS.items() if event.by_person and name not in {"approve", "edit"}
)


def allows(state: State, event: str) -> bool:
    return isinstance(state, EVENTS[event].states)


def offered(state: State) -> tuple[str, ...]:
    """Return the events that a person can choose from in this state, the most likely first."""
    return tuple(name for name, event in EVENTS.items() if event.by_person and allows(state, name))


def name(state: State) -> str:
    """Return the state's name, as the ledger, the log and every surface write it."""
    return type(state).__name__.lower()


def dump(state: State) -> str:
    """Return what the ledger keeps of a state beside its name."""
    return _json({name: value for name, value in vars(state).items() if value is not None})


_json = json.JSONEncoder(default=lambda verdict: list(vars(verdict).values())).encode


def load(kind: str, detail: str) -> State:
    values: dict[str, Any] = json.loads(detail)
    for key in ("at", "since", "first", "asked"):
        if key in values:
            values[key] = Stamp(*values[key])
    if "verdict" in values:
        by, via, at, digest, slip = values["verdict"]
        values["verdict"] = Verdict(by, Channel(via), Stamp(*at), digest, slip)
    if "refused" in values:
        values["refused"] = tuple(values["refused"])
    state: State = STATES[kind](**values)
    return state


class Audience(Enum):
    PERSON = "person"  # the page, the note and the terminal
    AGENT = "agent"  # a tool of the canonical contract, and errors
    CONTRACT = "contract"  # a tool of a contract that has neither letter_status nor `replaces`


def describe(
    state: State,
    audience: Audience = Audience.PERSON,
    *,
    id: str = "",
    when: Callable[[Stamp], str] = lambda stamp: stamp.iso,
) -> str:
    """Return one sentence on what became of a letter, which it names by an `id`; `when` writes moments."""
    you = audience is Audience.PERSON
    match state:
        case Rehearsal():
            clause = "is a rehearsal and can never be sent"
        case Pending():
            clause = "waits for your decision" if you else "waits for a person"
        case Approved(verdict=verdict, held=held):
            clause = f"was approved at {when(verdict.at)} by {verdict.by}"
            clause = "needs no approval" if verdict.is_automatic else clause
            clause += f" and is held: {held}" if held else " and is about to be sent"
        case Sending(at=at):
            clause = f"is being sent (since {when(at)})"
        case Sent(at=at, refused=refused, how=how):
            clause = f"was sent at {when(at)}"
            clause += f", but not to {', '.join(refused)}" if refused else ""
            clause += f" ({how})" if you and how != "accepted" else ""
        case Rejected(at=at, by=by, reason=reason, revise=revise):
            clause = "was sent back for another version" if revise else "was rejected"
            clause += f" by {by} at {when(at)}" if you else ""
            clause += f": {reason}" if reason or revise else ""
        case Withdrawn(at=at):
            clause = f"was withdrawn by its agent{f' at {when(at)}' if you else ''}"
        case Expired(at=at):
            clause = f"expired without a verdict{f' at {when(at)}' if you else ''}"
        case Failed(at=at, reason=reason):
            clause = f"cannot be sent: {reason.rstrip('.')}{f' ({when(at)})' if you else ''}"
        case Unknown(why=why):
            clause = f"may or may not have been sent ({why}): "
            clause += "look into the mailbox, then decide" if you else "a person must look"
    clause = clause.rstrip(".")
    if id:
        return f"The letter {id} {clause}."
    clause = clause.removeprefix("was ").removeprefix("is ")
    return f"{clause[0].upper()}{clause[1:]}."


def describe_step(
    state: State, before: State | None, *, when: Callable[[Stamp], str] = lambda stamp: stamp.iso
) -> str:
    """Return one sentence on one step of a letter's history; `before` is the state before it, None for the first."""
    match before, state:
        case None, Pending(since=since):
            return f"Proposed at {when(since)}."
        case Pending(), Pending():
            return "Edited."
        case Approved(), Pending(since=since):
            return f"Approval undone at {when(since)}."
        case _, Pending(since=since):
            return f"Put back into the queue at {when(since)}."
        case Approved() | Sending(), Approved(held=held, since=since) if held:
            return f"Held at {when(since)}: {held.rstrip('.')}."
        case _, Approved(verdict=verdict, held=held) if not verdict.is_automatic:
            why = f"; held: {held.rstrip('.')}" if held else ""
            return f"Approved by {verdict.by} at {when(verdict.at)}{why}."
    return describe(state, when=when)


def advise_agent(id: str, state: State, audience: Audience, newer: str = "") -> str:
    """Return what became of its letter and what the agent does next; `newer` is the letter that replaces it."""
    text = describe(state, audience, id=id)
    match audience, state:
        case Audience.CONTRACT, Pending():
            waits = f"Not sent. The letter {id} waits for a person to approve it."
            return f"{waits} Do not send it again before that."
        case Audience.CONTRACT, Approved():
            return f"{text} Do not write another one: the same call sends it when it may leave."
        case (Audience.CONTRACT, Rejected() | Failed()) | (Audience.AGENT, Sent()):
            return text
        case Audience.CONTRACT, _:
            return f"{text} Do not send it again."
        case _, Pending():
            waits = f"Not sent. Letter {id} waits for a person to approve it."
            return f"{waits}\nDo not send it again: letter_status has the outcome."
        case _, Approved() | Sending():
            return f"Not sent yet. {text}\nDo not send it again."
        case _, Rejected(revise=True):
            then = f"Letter {newer} replaces it: ask after that one."
            return f"{text}\n{then if newer else f'Write it anew with replaces={id}.'}"
        case _, Unknown():
            return f"{text}\nDo not send it again."
    return f"Not sent. {text}"


def refuse(id: str, state: State, wish: str) -> Conflict:
    return Conflict(
        f"{describe(state, Audience.AGENT, id=id)} It cannot be {wish}.",
        remedy=f"See it with `postroom show {id}`.",
    )


def require(id: str, state: State, event: str) -> None:
    """Raise `Conflict` if the event cannot happen in this state."""
    if not allows(state, event):
        raise refuse(id, state, EVENTS[event].participle)


def approve(id: str, state: State, verdict: Verdict, wait: float) -> Approved:
    require(id, state, "approve")
    return Approved(verdict, verdict.at, wait)


def change(
    id: str,
    state: State,
    event: str,
    now: Stamp,
    *,
    by: str = "",
    reason: str = "",
    sent: bool = False,
) -> State:
    """Return the state after one of `EVENTS` but approve and edit; `sent` is what the person found out who resolves it."""
    require(id, state, event)
    match event:
        case "reject" | "revise":
            return Rejected(now, by, reason, event == "revise")
        case "withdraw":
            return Withdrawn(now)
        case "resolve" if sent:
            verdict = getattr(state, "verdict", None)
            return Sent(now, "", "", (), verdict, f"resolved by {by}")
    return Pending(now)


def hold(
    state: Approved | Sending, now: Stamp, wait: float, reason: str, code: str = ""
) -> Approved:
    """An approved letter may not leave yet, or the provider refused it or proves that nothing was sent."""
    return Approved(state.verdict, now, wait, reason, state.tries, state.first, code)


def claim(state: Approved, now: Stamp, wire: str) -> Sending:
    return Sending(state.verdict, now, wire, state.tries + 1, state.first or now)
