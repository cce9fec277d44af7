"""Runs tool calls and reads resources, for the server on stdio (`wire`) and the one over HTTP (`serve`).

A call is a `RunningCall`, whose `step` does the next part of the work in whatever thread the server chooses. A tool
that waits gives its thread back: `step` then returns a `Wait`, of which clients hear as progress. Each call leaves one line in the log, whether
it succeeds, fails, is cancelled or is interrupted by the server's end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from postroom.core.errors import NotFound, PostroomError, Unavailable, unexpected
from postroom.core.text import MAX_AGENT, one_line
from postroom.desk.desk import Desk
from postroom.desk.recorder import Call, Trace
from postroom.services.services import Services
from postroom.tools import protocol, table
from postroom.tools.arguments import Checks
from postroom.tools.protocol import Caller, ProtocolError

UNNAMED: Final = "unnamed"
MAX_RESOURCES: Final = 50
PUBLISH: Final = 0.5  # seconds after which the log file shows what the ledger has
PIECE: Final = 1.0  # seconds of waiting after which a call reports progress again
TELL: Final = "Tell the person what this says."

log = logging.getLogger("postroom")
T = TypeVar("T")


class NoResource(Exception):
    """No resource has this address."""


def caller_name(caller: Caller) -> str:
    """Return the name under which a caller's work is recorded; a client's own is cleaned and bounded."""
    return caller.name if caller.named else one_line(caller.name)[:MAX_AGENT].strip() or UNNAMED


def protocol_error(error: Exception, *, has_envelope: bool) -> ProtocolError:
    if isinstance(error, ProtocolError):
        return error
    # 2026-07-28 calls an unknown resource an invalid parameter; the versions before it have a code.
    missing = protocol.INVALID_PARAMS if has_envelope else protocol.RESOURCE_NOT_FOUND
    if isinstance(error, NoResource):
        return ProtocolError(missing, "Resource not found", {"uri": str(error)[:200]})
    if not isinstance(error, PostroomError):
        error = unexpected(error, remedy=TELL)
    code = missing if isinstance(error, NotFound) else protocol.INTERNAL_ERROR
    return ProtocolError(code, table.refusal("", error).text)


class Calls:
    def __init__(
        self,
        contract: table.Contract,
        checks: Mapping[str, Checks],
        desk: Callable[[], Desk],
        close: Callable[[], None],
    ) -> None:
        self.contract = contract
        self.checks = checks  # of the arguments of each tool, as the served listing has them
        self.desk = desk  # returns the desk, opened when it is first needed, or raises what is wrong with it
        self._close = close  # closes it, if it was opened
        self._tools = {tool.name: tool for tool in contract.tools}
        self._resources = {resource.scheme: resource for resource in contract.resources}
        self.running: dict[RunningCall, None] = {}
        self._is_unpublished = False  # whether the log file may lack lines of the ledger
        self._lock = threading.Lock()
        self._services: Services | None = None

    def services(self) -> Services:
        desk = self.desk()
        with self._lock:
            if self._services is None:
                self._services = Services(desk)
            return self._services

    def begin(self, tool: str, arguments: Mapping[str, Any], caller: Caller) -> RunningCall:
        """Return a call that has not done anything yet; raise `ProtocolError` for an unknown tool."""
        if tool not in self._tools:
            raise ProtocolError(protocol.INVALID_PARAMS, f"Unknown tool: {one_line(tool)[:80]}")
        call = RunningCall(self, self._tools[tool], arguments, caller)
        self.running[call] = None
        return call

    def list_resources(self, caller: Caller) -> dict[str, Any]:
        """Return the result of `resources/list`: the caller's newest letters, if the contract shows letters."""
        call, ids = Call("list_resources", caller_name(caller)), list[str]()
        if "letter" in self._resources:
            ids = self.run_guarded(lambda: self.desk().calls.newest_letters(call, MAX_RESOURCES))
        rows = [{"uri": f"letter://{id}", "name": id, "mimeType": "text/plain"} for id in ids]
        return {"resources": rows}

    def read_resource(self, uri: str, caller: Caller) -> dict[str, Any]:
        """Return the result of `resources/read`; raise `NoResource` if none has such an address."""
        scheme, _, id = uri.partition("://")
        resource = self._resources.get(scheme)
        if resource is None or not id:
            raise NoResource(uri)
        call = Call(resource.action, caller_name(caller))
        text = self.run_guarded(
            lambda: resource.function(table.ToolContext(self.services(), call), id.rstrip("/")),
            call,
        )
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}

    def run_guarded(self, function: Callable[[], T], call: Call | None = None) -> T:
        """Call a function; whatever goes wrong is raised as one of our errors, and leaves the call's line."""
        try:
            return function()
        except PostroomError as error:
            self.record(call, error)
            raise
        except Exception as bug:  # noqa: BLE001 - a fault of ours is reported by its kind and place
            fault = unexpected(bug, remedy=TELL)
            log.error(fault.message)  # noqa: TRY400 - not its text, which may be a mail's
            self.record(call, fault)
            raise fault from None
        finally:
            self.publish_later()

    def record(self, call: Call | None, error: PostroomError) -> None:
        """Write the line of a call that failed, unless it is written."""
        if call is None or error.logged:
            return
        with suppress(Exception):  # the desk itself may be what is wrong
            self.desk().recorder.write(call, error, synced=False)

    def publish_later(self) -> None:
        """Bring the log file up to the ledger a moment later, for all calls until then."""
        with self._lock:
            before, self._is_unpublished = self._is_unpublished, True
        if not before:
            publisher = threading.Timer(PUBLISH, self._publish)
            publisher.daemon = True
            with suppress(RuntimeError):  # the system allows no more threads: `close` does it
                publisher.start()

    def _publish(self) -> None:
        before, self._is_unpublished = self._is_unpublished, False
        with suppress(Exception):  # the next time writes it; nothing here ends the server
            if before:
                self.desk().flush_log()

    def close(self) -> None:
        """Let every open call leave its line, bring the log file up to the ledger, close the desk."""
        # A tool that waits writes its line when it is stopped, or leaves it to recovery.
        running = [call for call in list(self.running) if not call.stop_waiting()]
        self._is_unpublished |= bool(self.running)
        ended = Unavailable("The server stopped before it finished this call")
        with suppress(Exception):  # the ledger may be what keeps them: then they leave no line
            for call in running:
                self.desk().recorder.write(call.call, ended, synced=False)
        self._publish()
        if self._services:
            self._services.close()
        self._close()


class RunningCall:
    def __init__(
        self, calls: Calls, tool: table.Tool, arguments: Mapping[str, Any], caller: Caller
    ) -> None:
        self._calls = calls
        self._tool = tool
        self._arguments = arguments
        self._has_begun = False
        self._waiting: table.Waiting | None = None
        # A longer wait is cut into pieces.
        self._waited = 0.0  # seconds of all pieces that were begun
        self._left = 0.0  # seconds to wait after the piece that was begun last
        began, name = time.monotonic(), caller_name(caller)
        trace = Trace(lambda: time.monotonic() - began)
        self.call = Call(tool.name, name, tool.actor, trace, caller.session, caller.named)

    def step(self) -> table.Reply | table.Wait:
        """Do the next part of the work: return the answer, or how long to wait for the step after it."""
        if self._left <= 0:
            try:
                step = self._calls.run_guarded(self._next, self.call)
            except PostroomError as error:
                return self._finish(self._calls.contract.refuse(self._tool.name, error), error)
            if isinstance(step, table.Reply):
                return self._finish(step)
            if isinstance(step, table.Wait):
                return step
            self._left += step
        before, piece = self._waited, min(self._left, PIECE)
        self._waited += piece
        self._left -= piece
        return table.Wait(piece, before)

    def _next(self) -> table.Reply | table.Pause:
        if self._waiting is None:
            self._has_begun = True
            args = self._tool.parse(self._arguments, self._calls.checks[self._tool.name])
            account = args.pop("account", "")
            context = table.ToolContext(self._calls.services(), self.call, account)
            answer = self._tool.function(context, **args)
            if isinstance(answer, table.Reply | table.Result):
                return self._tool.reply(answer)
            self._waiting = answer
        try:
            return next(self._waiting)
        except StopIteration as done:
            return self._tool.reply(done.value)

    def _finish(self, reply: table.Reply, error: PostroomError | None = None) -> table.Reply:
        self._calls.running.pop(self, None)
        if notify := self._calls.contract.on_call_finished:
            is_live = False
            # Without a desk nothing can be sent, and the answer says why.
            with suppress(PostroomError):
                is_live = self._calls.desk().rules.live
            with suppress(PostroomError):  # the answer is there, whatever becomes of its log
                self._calls.run_guarded(lambda: notify(self.call, reply, error, is_live))
        return reply

    def abandon(self) -> None:
        """Give up a call that the client has cancelled, between two steps; it leaves its line."""
        self._calls.running.pop(self, None)
        if not self._has_begun:
            self._calls.record(
                self.call, Unavailable("The client cancelled the call before it began")
            )
        self.stop_waiting()
        self._calls.publish_later()

    def stop_waiting(self) -> bool:
        """Stop a tool that waits, which then writes its line; return whether it was one."""
        if self._waiting is None:
            return False
        try:
            self._waiting.close()
        except Exception:  # noqa: BLE001 - one that is at work just now ends by itself
            return False
        return True
