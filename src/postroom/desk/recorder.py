"""Records calls: each call leaves exactly one line in the audit log, whether it succeeds, fails or is abandoned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.audit import Action, Value, redact_addresses
from postroom.core.errors import PostroomError, Unavailable
from postroom.core.records import Entry
from postroom.core.text import check_agent_name
from postroom.core.values import dataclass
from postroom.store.ledger import Ledger, Transaction

MAIL_ACTOR: Final = "email_mcp"  # the actor of the tools for mail
# The result of a failed call in the log, by the code of its error; of other codes it is `error`.
_FAILURE_RESULTS: Final = {
    **dict.fromkeys(life.LIMITED, "rate_limited"),
    "permission_denied": "rejected",
    "": "rejected",
}


@dataclass(slots=True)
class Trace:
    """A running call: a function that returns the seconds it has taken, and whether its line is written."""

    took: Callable[[], float]
    written: bool = False


class Call(NamedTuple):
    """One call of an agent or a person: what the call's line in the log says about the caller and the tool."""

    action_type: str
    agent: str
    actor: str = MAIL_ACTOR
    trace: Trace | None = None
    client_session: str | None = ""  # tells clients of the same name apart; None if not known
    named: bool = False  # whether the person gave the name, and not the client itself


def check_name(call: Call) -> None:
    """Raise if the calling agent's name could be taken for one of Postroom's own, or cannot be displayed."""
    # Postroom's own calls come from no tool, and have no trace.
    if call.actor == MAIL_ACTOR or call.trace is not None:
        check_agent_name(call.agent)


@dataclass(frozen=True, slots=True)
class CallRecorder:
    ledger: Ledger

    @contextmanager
    def recording(
        self,
        call: Call,
        target: str = "",
        *,
        changes: bool = False,
        result: str = "success",
        once: str = "",
        **parameters: Value,
    ) -> Iterator[None]:
        """Write the line of a call after the block, with `result` or the error that it raised; synced with `changes`."""
        write = partial(
            self.write, call, target=target, parameters=parameters, once=once, synced=changes
        )
        try:
            check_name(call)
            yield
        except PostroomError as refused:
            write(refused)
            raise
        write(result=result)

    @contextmanager
    def refusals(self, call: Call) -> Iterator[None]:
        try:
            yield
        except PostroomError as refused:
            self.write(call, refused)
            raise

    @contextmanager
    def abandonment(
        self, call: Call, goes_on: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Write the line of a call that its client cancels while the block waits.

        No line is written if `goes_on` returns true: then the work continues, and the process that ends it writes it.
        """
        try:
            yield
        except GeneratorExit:
            if not goes_on():
                self.write(call, Unavailable("The client gave it up"), synced=False)
            raise

    @contextmanager
    def transaction(self, call: Call, target: str = "") -> Iterator[Callable[..., None]]:
        """Keep other processes out of the ledger during the block; yield a function that writes the call's line.

        That function commits at once, so a caller uses it when the change that the line is about is done. Without a
        call of it no line is written. The line may be lost in a power cut until the next synced write.
        """
        with self.ledger.write(synced=False, early=True) as tx:

            def commit(**parameters: Value) -> None:
                try:
                    add_line(tx, call, parameters=parameters, target=target)
                    tx.commit()
                except BaseException:
                    if call.trace:
                        call.trace.written = False
                    raise

            yield commit

    def write(
        self,
        call: Call,
        error: PostroomError | None = None,
        *,
        result: str = "",
        target: str = "",
        parameters: Mapping[str, Value] | None = None,
        synced: bool = True,
        once: str = "",
    ) -> None:
        """Write the line of a call. An `error` of a call that has its line already writes none.

        `once` is the id of work that several processes may finish: only the first of them writes the line.
        """
        failure = ""
        if error is not None:
            result, failure = _FAILURE_RESULTS.get(error.code, "error"), error.message
        if not (error and call.trace and call.trace.written):
            with self.ledger.write(synced=synced) as tx:
                if once and tx.settings.last_finished == once:
                    return
                add_line(tx, call, None, result, failure, parameters, target=target)
                if once:
                    tx.save_settings(replace(tx.settings, last_finished=once))
        if error is not None:
            error.logged = True

    def write_letter(self, call: Call, entry: Entry) -> Entry:
        """Write the line of a call about a letter, and return the letter as it is now."""
        with self.ledger.write() as tx:
            # A restored ledger believes a letter's last line in the log: so the line has the letter's current state.
            now = tx.letters.get(entry.id)
            add_line(tx, call, now)
        return now


def add_line(
    tx: Transaction,
    call: Call,
    entry: Entry | None = None,
    result: str = "",
    error: str = "",
    parameters: Mapping[str, Value] | None = None,
    *,
    target: str = "",
) -> None:
    """Add the line of a call to a transaction; for a letter, with its recipients, subject and state."""
    about = parameters or {}
    if entry:
        target = redact_addresses([address.spec for address in entry.letter.envelope])
        about = {"subject": entry.letter.subject, **about}
        result = result or _result(entry.state)
    tx.actions.append(
        Action(
            actor=call.actor,
            action_type=call.action_type,
            agent=call.agent,
            result=result or "success",
            target=target,
            letter=entry.id if entry else "",
            state=entry.kind if entry else "",
            parameters=about,
            error=error,
            duration_ms=round(call.trace.took() * 1000) if call.trace else None,
        )
    )
    if call.trace:
        call.trace.written = True


def _result(state: life.State) -> str:
    """Return the result of a call that asked for a letter to be sent, as the log names it."""
    match state:
        case life.Rehearsal():
            return "dev_mode"
        case life.Sent():
            return "success"
        case life.Failed() | life.Unknown():
            return "error"
        case life.Approved(code=code):
            return _FAILURE_RESULTS.get(code, "error")
    return "rejected"
