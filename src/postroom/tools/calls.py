"""Runs tool calls and reads resources, for the server on stdio (`wire`) and the one over HTTP (`serve`).

A call is a `RunningCall`, whose `step` does the next part of the work in whatever thread the server chooses. A tool
that waits gives its thread back: `step` then returns how long to wait. Each call leaves one line in the log, whether
it succeeds, fails, is cancelled or is interrupted by the server's end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from postroom.core.agent_name import MAX_AGENT
from postroom.core.errors import PostroomError, Unavailable, unexpected
from postroom.core.text import one_line
from postroom.desk.recorder import Call, Trace, check_name
from postroom.services.services import Services
from postroom.tools.table import (
    CallFinished,
    Contract,
    Pause,
    Reply,
    Result,
    Tool,
    ToolContext,
    Waiting,
)

if TYPE_CHECKING:
    from postroom.desk.desk import Desk
    from postroom.tools.arguments import Checks

UNNAMED: Final = "unnamed"
MAX_RESOURCES: Final = 50

log = logging.getLogger("postroom")
T = TypeVar("T")


class DeskProvider(Protocol):
    """Opens the desk when it is first needed."""

    def desk(self) -> Desk:
        """Return the desk, or raise what is wrong with it."""
        ...

    def close(self) -> None:
        """Close it, if it was opened."""
        ...


class Caller(NamedTuple):
    """Who calls: `named` says that the person gave the name, `session` tells clients of one name apart."""

    name: str
    named: bool = False
    session: str | None = ""


class NoResource(Exception):
    """No resource has this address."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri


def client_name(given: str) -> str:
    """Return a client's name for itself as it may be used: on one line, cleaned, bounded."""
    return one_line(given)[:MAX_AGENT].strip() or UNNAMED


class Calls:
    """The calls of one server."""

    def __init__(
        self, contract: Contract, checks: Mapping[str, Checks], provider: DeskProvider
    ) -> None:
        self.contract = contract
        self.checks = checks  # of the arguments of each tool, as the served listing has them
        self.provider = provider
        self._tools = {tool.name: tool for tool in contract.tools}
        self._resources = {resource.scheme: resource for resource in contract.resources}
        self._running: dict[RunningCall, None] = {}
        self._is_unpublished = False  # whether the log file may lack lines of the ledger
        self._lock = threading.Lock()
        self._services: Services | None = None

    def services(self) -> Services:
        """Return the services of the desk, or raise what is wrong with it."""
        desk = self.provider.desk()
        with self._lock:
            if self._services is None:
                self._services = Services(desk)
            return self._services

    def begin(self, tool: str, arguments: Mapping[str, Any], caller: Caller) -> RunningCall:
        """Return a call that has not done anything yet; the tool must be one of the contract."""
        call = RunningCall(self, self._tools[tool], arguments, caller)
        self._running[call] = None
        return call

    def list_letters(self, caller: Caller) -> list[str]:
        """Return the ids of the caller's newest letters, where the contract shows letters at all."""
        if "letter" not in self._resources:
            return []
        call = Call("list_resources", caller.name)

        def letters() -> list[str]:
            check_name(call)
            found = self.provider.desk().ledger.lines(agent=call.agent, newest=MAX_RESOURCES)
            return [letter.id for letter in found]

        return self.run_guarded(letters)

    def read(self, uri: str, caller: Caller) -> str:
        """Return the text of a resource; raise `NoResource` where none has such an address."""
        scheme, _, id = uri.partition("://")
        resource = self._resources.get(scheme)
        if resource is None or not id:
            raise NoResource(uri)
        call = Call(resource.action, caller.name)
        return self.run_guarded(
            lambda: resource.function(ToolContext(self.services(), call), id.rstrip("/")), call
        )

    def run_guarded(self, function: Callable[[], T], call: Call | None = None) -> T:
        """Do this; whatever goes wrong is raised as one of our errors, and leaves the line of the call."""
        try:
            return function()
        except PostroomError as error:
            self.record(call, error)
            raise
        except Exception as bug:  # noqa: BLE001 - a fault of ours is reported by its kind and place
            wrong = unexpected(bug, remedy="Tell the person what this says.")
            log.error(wrong.message)  # noqa: TRY400 - not its text, which may be a mail's
            self.record(call, wrong)
            raise wrong from None
        finally:
            self._is_unpublished = True

    def record(self, call: Call | None, error: PostroomError) -> None:
        """Write the line of a call that failed, unless it is written."""
        if call is None or error.logged:
            return
        self._is_unpublished = True
        with suppress(Exception):  # the desk itself may be what is wrong
            self.provider.desk().recorder.write(call, error=error, synced=False)

    def forget(self, call: RunningCall) -> None:
        """Forget a call that is answered or abandoned."""
        self._running.pop(call, None)

    def publish(self) -> None:
        """Bring the log file up to the ledger."""
        self._is_unpublished = False
        with suppress(Exception):  # the next time writes it; nothing here ends the server
            self.provider.desk().publish()

    def close(self) -> None:
        """Let every open call leave its line, bring the log file up to the ledger, close the desk."""
        # A tool that waits writes its line when it is stopped, or leaves it to recovery.
        running = [call for call in list(self._running) if not call.stop_waiting()]
        ended = Unavailable("The server was told to end before it had done this")
        with suppress(Exception):  # the ledger may be what keeps them: then they leave no line
            for call in running:
                self.provider.desk().recorder.write(call.call, error=ended, synced=False)
        if self._is_unpublished:
            self.publish()
        if self._services:
            self._services.close()
        self.provider.close()


class RunningCall:
    """One call of a tool, in progress."""

    def __init__(
        self,
        calls: Calls,
        tool: Tool,
        arguments: Mapping[str, Any],
        caller: Caller,
    ) -> None:
        self._began = time.monotonic()
        self._calls = calls
        self._tool = tool
        self._arguments = arguments
        self._begun = False
        self._waiting: Waiting | None = None
        self.call = Call(
            tool.name, caller.name, tool.actor, Trace(self._took), caller.session, caller.named
        )

    def _took(self) -> float:
        return time.monotonic() - self._began

    def step(self) -> Reply | Pause:
        """Do the next part of the work: return the answer, or how many seconds to wait for the step after it."""
        try:
            found = self._calls.run_guarded(self._next, self.call)
        except PostroomError as error:
            return self._finish(self._calls.contract.refuse(self._tool.name, error), error)
        return self._finish(found) if isinstance(found, Reply) else found

    def _next(self) -> Reply | Pause:
        if self._waiting is None:
            self._begun = True
            asked = self._tool.parse(self._arguments, self._calls.checks[self._tool.name])
            context = ToolContext(self._calls.services(), self.call, getattr(asked, "account", ""))
            found = self._tool.function(context, asked)
            if isinstance(found, Reply | Result):
                return self._tool.reply(found)
            self._waiting = found
        try:
            return next(self._waiting)
        except StopIteration as done:
            return self._tool.reply(done.value)

    def _finish(self, reply: Reply, error: PostroomError | None = None) -> Reply:
        self._calls.forget(self)
        if on_call_finished := self._calls.contract.on_call_finished:
            with suppress(PostroomError):  # the answer is there, whatever becomes of its log
                about = CallFinished(
                    self._tool.name, self._live(), reply.refused, error, self._took()
                )
                self._calls.run_guarded(lambda: on_call_finished(about))
        return reply

    def _live(self) -> bool:
        try:
            return self._calls.provider.desk().rules.live
        except PostroomError:  # the answer says so; nothing can be sent
            return False

    def abandon(self) -> None:
        """Give up a call that the client has cancelled, between two steps; it leaves its line."""
        self._calls.forget(self)
        if not self._begun:
            gave_up = Unavailable("The client gave it up before it was begun")
            self._calls.record(self.call, gave_up)
        self.stop_waiting()

    def stop_waiting(self) -> bool:
        """Stop a tool that waits, which writes its line, if it has not; return whether it was one."""
        if self._waiting is None:
            return False
        try:
            self._waiting.close()
        except Exception:  # noqa: BLE001 - one that is at work just now ends by itself
            return False
        return True
