"""The life of a letter: every state is a type, every event a function that gives the next one.

An event that a state does not have raises `Conflict`, which says what became of the letter.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, fields
from typing import Any, Final

from postroom.core.errors import Conflict
from postroom.core.stamp import Stamp


@dataclass(frozen=True, slots=True)
class Verdict:
    """A person's yes to one digest: whose word, given where, and the slip that it was, if any."""

    by: str
    via: str
    at: Stamp
    digest: str
    slip: str = ""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Entered while rehearsing: to be looked at, never to be sent."""

    at: Stamp


@dataclass(frozen=True, slots=True)
class Pending:
    """Waits for a verdict, until it expires."""

    since: Stamp


@dataclass(frozen=True, slots=True)
class Approved:
    """May be sent `wait` seconds after `since`.

    `held` says why it has not been, `code` by which error, or `pace` for one that is waited for.
    """

    verdict: Verdict
    since: Stamp
    wait: float
    held: str = ""
    tries: int = 0
    first: Stamp | None = None
    code: str = ""


@dataclass(frozen=True, slots=True)
class Sending:
    """Claimed: these very bytes are being handed over, or were when the owner died."""

    verdict: Verdict
    at: Stamp
    wire: str
    tries: int
    first: Stamp


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider has it; `refused` are recipients that it turned down."""

    at: Stamp
    message: str
    thread: str
    refused: tuple[str, ...] = ()
    verdict: Verdict | None = None
    how: str = "accepted"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A person said no, or asked for another version."""

    at: Stamp
    by: str
    reason: str
    revise: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Its agent took it back."""

    at: Stamp


@dataclass(frozen=True, slots=True)
class Expired:
    """Nobody decided in time."""

    at: Stamp


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be sent."""

    at: Stamp
    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have been sent, and nothing proves it: a person must look."""

    at: Stamp
    why: str
    asked: Stamp
    verdict: Verdict | None = None


State = (
    Rehearsal
    | Pending
    | Approved
    | Sending
    | Sent
    | Rejected
    | Withdrawn
    | Expired
    | Failed
    | Unknown
)
STATES: Final = {kind.__name__.lower(): kind for kind in State.__args__}
OPEN: Final = ("pending", "approved", "sending", "unknown")


def name(state: State) -> str:
    """Return the state's name, as the ledger, the log and every surface write it."""
    return type(state).__name__.lower()


def dump(state: State) -> str:
    """Return what the ledger keeps of a state beside its name."""
    return json.dumps(
        {
            part.name: astuple(value) if isinstance(value, Verdict) else value
            for part in fields(state)
            if (value := getattr(state, part.name)) is not None
        }
    )


def load(kind: str, detail: str) -> State:
    """Return a state from its name and what was kept of it."""
    values: dict[str, Any] = json.loads(detail)
    for key in ("at", "since", "first", "asked"):
        if key in values:
            values[key] = Stamp(*values[key])
    if "verdict" in values:
        by, via, at, digest, slip = values["verdict"]
        values["verdict"] = Verdict(by, via, Stamp(*at), digest, slip)
    if "refused" in values:
        values["refused"] = tuple(values["refused"])
    state: State = STATES[kind](**values)
    return state


def describe(id: str, state: State) -> str:
    """Return one sentence on what became of a letter."""
    match state:
        case Rehearsal():
            said = "is a rehearsal and can never be sent"
        case Pending():
            said = "waits for a person"
        case Approved(verdict=verdict, held=held):
            said = f"was approved at {verdict.at.iso} by {verdict.by}"
            said = "needs no approval" if verdict.by == "nobody" else said
            said += f" and is held: {held}" if held else " and is about to be sent"
        case Sending():
            said = "is being sent"
        case Sent(at=at, refused=refused):
            said = f"was sent at {at.iso}"
            said += f", but not to {', '.join(refused)}" if refused else ""
        case Rejected(revise=True, reason=reason):
            said = f"was sent back for another version: {reason}"
        case Rejected(reason=reason):
            said = f"was rejected{f': {reason}' if reason else ''}"
        case Withdrawn():
            said = "was withdrawn by its agent"
        case Expired():
            said = "expired without a verdict"
        case Failed(reason=reason):
            said = f"cannot be sent: {reason}"
        case Unknown(why=why):
            said = f"may or may not have been sent ({why}): a person must look"
    return f"The letter {id} {said.rstrip('.')}."


def refuse(id: str, state: State, wish: str) -> Conflict:
    """Return the error for an event that this state does not have."""
    return Conflict(
        f"{describe(id, state)} It cannot be {wish}.", remedy=f"See it with `postroom show {id}`."
    )


def approve(id: str, state: State, verdict: Verdict, wait: float) -> Approved:
    """A person says yes to a letter that waits."""
    if isinstance(state, Pending):
        return Approved(verdict, verdict.at, wait)
    raise refuse(id, state, "approved")


def recall(id: str, state: State, now: Stamp) -> Pending:
    """An approval is taken back before anybody claimed the letter."""
    if isinstance(state, Approved):
        return Pending(now)
    raise refuse(id, state, "recalled")


def reject(
    id: str, state: State, now: Stamp, *, by: str, reason: str, revise: bool = False
) -> Rejected:
    """A person says no, or asks for another version."""
    if isinstance(state, Pending | Approved):
        return Rejected(now, by, reason, revise)
    raise refuse(id, state, "sent back" if revise else "rejected")


def withdraw(id: str, state: State, now: Stamp) -> Withdrawn:
    """The agent takes its letter back."""
    if isinstance(state, Pending | Approved):
        return Withdrawn(now)
    raise refuse(id, state, "withdrawn")


def hold(state: Approved, now: Stamp, wait: float, reason: str, code: str = "") -> Approved:
    """An approved letter may not leave yet."""
    return Approved(state.verdict, now, wait, reason, state.tries, state.first, code)


def claim(state: Approved, now: Stamp, wire: str) -> Sending:
    """A dispatcher takes an approved letter to send these bytes."""
    return Sending(state.verdict, now, wire, state.tries + 1, state.first or now)


def retry(state: Sending, now: Stamp, wait: float, reason: str, code: str = "") -> Approved:
    """The provider refused for now, or proves that nothing was sent."""
    return Approved(state.verdict, now, wait, reason, state.tries, state.first, code)


def resolve(id: str, state: State, now: Stamp, by: str, *, sent: bool) -> Sent | Pending:
    """A person found out what became of a letter whose fate was unknown."""
    if not isinstance(state, Unknown):
        raise refuse(id, state, "resolved")
    return Sent(now, "", "", (), state.verdict, f"resolved by {by}") if sent else Pending(now)


def reopen(id: str, state: State, now: Stamp) -> Pending:
    """A person wants a closed letter after all; it waits for a new verdict."""
    if isinstance(state, Rejected | Withdrawn | Expired | Failed):
        return Pending(now)
    raise refuse(id, state, "opened again")
