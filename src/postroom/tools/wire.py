"""The server for one client that sends JSON-RPC, one message a line; `stdio` reads the lines and writes the answers.

A client waits for `tools/list` at every start, so nothing on the way to it imports the MCP SDK, asyncio, Pydantic or
click. What is listed comes from a file (`listing`). The contract and the desk are imported when a tool is called, or when
the client has been silent for a moment. The SDK's server (`serve`) serves HTTP; the tests send the same sessions to both.

A request that needs the desk becomes a job of the `Workers`. The `Output` writes the answers by a thread of its own, so
that a client that does not read keeps no worker waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from postroom import __version__
from postroom.tools import protocol
from postroom.tools.protocol import MAX_LINE, Caller, Incoming, InvalidMessage, ProtocolError

if TYPE_CHECKING:
    from postroom.tools.calls import Calls, RunningCall
    from postroom.tools.stdio import Output
    from postroom.tools.table import AnswerDelivery, Wait

THREADS: Final = 8  # calls that work at once; the others wait for their turn
MAX_OPEN: Final = 10_000  # requests without an answer, above which no more is read from the client
MAX_QUEUED: Final = 32_000_000  # bytes of calls that are not begun, above which the same holds
QUIET: Final = 0.05  # seconds without a message after which the server imports what calls need
BUSY: Final = 0.02  # seconds between two looks at whether calls have ended

Params = dict[str, Any]
log = logging.getLogger("postroom")


class OpenRequest:
    def __init__(self, message: Incoming, size: int) -> None:
        self.message = message
        self.key = _key(message.id)
        self.size = size  # bytes
        self.is_cancelled = False  # the next step of its call gives it up
        self.is_busy = True  # whether the call waits for work of ours, not for time or a person


class Server:
    """Serves one client: `receive` takes its lines, the answers go to the output."""

    def __init__(
        self, listing: dict[str, Any], make_calls: Callable[[], Calls], output: Output, agent: str
    ) -> None:
        self.workers = Workers(THREADS)
        self._listing = listing
        self._info = {"version": __version__, **listing["server"]}
        self._make_calls = make_calls
        self._calls: Calls | None = None  # made when a request first needs them
        self._making = threading.Lock()
        self._output = output
        self._agent = agent  # the client's name as the person gave it; else its own counts
        self._lock = threading.Lock()  # for the next three
        self._open: dict[OpenRequest, None] = {}
        self._queued: dict[OpenRequest, Callable[[], RunningCall]] = {}  # calls that are not begun
        self._queued_bytes = 0
        self._is_preparing = self._is_initialized = False
        self._received = 0
        self._has_envelopes: bool | None = None  # the era, which the first request decides
        self._client: str | None = None  # the client's name for itself, from `initialize`
        templates = {"resourceTemplates": listing["resourceTemplates"]}
        self._methods: dict[str, Callable[[OpenRequest, Params], dict[str, Any] | None]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda *_: {},
            "prompts/list": lambda *_: {"prompts": []},
            "resources/list": self._list_resources,
            "resources/read": self._read_resource,
            "resources/templates/list": lambda *_: templates,
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
        }

    @property
    def is_congested(self) -> bool:
        """Whether the client must be served before more is read from it."""
        is_behind = len(self._open) > MAX_OPEN or self._queued_bytes > MAX_QUEUED
        return self._output.is_full or is_behind

    def receive(self, line: bytes | None) -> None:
        """Take one line: answer it, begin its work, or pass it over. `None` is one that was too long."""
        self._received += 1
        if line is None:
            self._refuse(None, protocol.PARSE_ERROR, f"A message has at most {MAX_LINE:,} bytes")
            return
        try:
            message = protocol.parse(line)
            if message is not None and message.id is None:
                self._take_notification(message)
            elif message is not None:
                request = OpenRequest(message, len(line))
                with self._lock:
                    self._open[request] = None
                self._respond(request, partial(self._handle, request))
        except InvalidMessage as wrong:
            if wrong.id is not None:
                self._refuse(wrong.id, protocol.INVALID_REQUEST, "Invalid message")
        except Exception as bug:  # noqa: BLE001 - no message ends the server
            log.error("%s at a message", type(bug).__name__)  # noqa: TRY400

    def _respond(self, request: OpenRequest, job: Callable[[], dict[str, Any] | None]) -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - every request is answered
            self._answer_error(request, error)
        else:
            if result is not None:
                self._answer(request, result)

    def _refuse(self, id: protocol.Id | None, code: int, message: str) -> None:
        self._output.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    def _handle(self, request: OpenRequest) -> dict[str, Any] | None:
        """Return the result of a request, or submit the job that answers it."""
        _, method, params = request.message
        has_envelope = method != "initialize" and protocol.has_envelope(params)
        if self._has_envelopes is None:
            self._has_envelopes = has_envelope
        if self._has_envelopes:
            protocol.check_envelope(method, params)
        elif has_envelope:
            raise ProtocolError(protocol.INVALID_REQUEST, protocol.WRONG_ERA)
        methods = protocol.ENVELOPE_METHODS if self._has_envelopes else protocol.HANDSHAKE_METHODS
        if method not in methods:
            raise ProtocolError(protocol.METHOD_NOT_FOUND, "Method not found", method)
        is_ready = self._has_envelopes or self._is_initialized or self._client is not None
        is_early = not is_ready and method not in ("initialize", "ping")
        if is_early or not protocol.fits(params, methods[method]):  # as the SDK says it
            raise ProtocolError(protocol.INVALID_PARAMS, "Invalid request parameters", "")
        return self._methods[method](request, params)

    def _take_notification(self, message: Incoming) -> None:
        if message.method == "notifications/initialized":
            self._is_initialized |= protocol.fits(message.params, protocol.INITIALIZED)
        elif message.method == "notifications/cancelled":
            id = message.params.get("requestId")
            key = _key(id) if protocol.is_id(id) else None
            with self._lock:  # the newest of this id
                request = next((each for each in reversed(self._open) if each.key == key), None)
            if request is not None:
                request.is_cancelled = True
                self._forget(request)

    def _answer(
        self, request: OpenRequest, result: dict[str, Any], delivery: AnswerDelivery | None = None
    ) -> None:
        if self._has_envelopes:
            extras = protocol.FRESHNESS if request.message.method != "tools/call" else {}
            stamp = {"resultType": "complete", "_meta": {protocol.SERVER_KEY: self._info}}
            result = {**result, **extras, **stamp}
        self._send(request, {"result": result}, delivery)

    def _answer_error(self, request: OpenRequest, error: Exception) -> None:
        if not isinstance(error, ProtocolError):
            from postroom.tools.calls import protocol_error

            error = protocol_error(error, has_envelope=bool(self._has_envelopes))
        self._send(request, {"error": error.body})

    def _send(
        self, request: OpenRequest, answer: dict[str, Any], delivery: AnswerDelivery | None = None
    ) -> None:
        if self._forget(request):
            self._output.send({"jsonrpc": "2.0", "id": request.message.id, **answer}, delivery)
        elif delivery is not None:  # it is cancelled, or the server ends
            delivery.release()

    def _forget(self, request: OpenRequest) -> bool:
        """Drop a request that is answered or cancelled; return whether it was open."""
        with self._lock:
            was_open = request in self._open
            self._open.pop(request, None)
            was_full = len(self._open) == MAX_OPEN
        if was_full:
            self._output.wake_reader()
        return was_open

    def _about(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        instructions = self._listing["instructions"]
        return {**more, "capabilities": protocol.CAPABILITIES, "instructions": instructions}

    def _discover(self, _: OpenRequest, __: Params) -> dict[str, Any]:
        return self._about(supportedVersions=[protocol.ENVELOPE_VERSION])

    def _initialize(self, _: OpenRequest, params: Params) -> dict[str, Any]:
        self._client = params["clientInfo"]["name"]
        asked, versions = params["protocolVersion"], protocol.HANDSHAKE_VERSIONS
        version = asked if asked in versions else versions[-1]
        return self._about(protocolVersion=version, serverInfo=self._info)

    def _list_tools(self, _: OpenRequest, __: Params) -> dict[str, Any]:
        if not self._is_preparing:
            self._is_preparing = True
            self.workers.submit(partial(self._prepare, self._received), QUIET)
        return {"tools": self._listing["tools"]}

    def _prepare(self, received: int) -> None:
        """Import what calls need, unless there was a message meanwhile: then wait for silence again."""
        if received == self._received:
            self._get_calls()
        else:
            self.workers.submit(partial(self._prepare, self._received), QUIET)

    def _get_calls(self) -> Calls:
        with self._making:
            if self._calls is None:
                self._calls = self._make_calls()
            return self._calls

    def _caller(self, params: Params) -> Caller:
        """Return who calls: as the person calls the client, else as the client calls itself."""
        own = self._client
        if self._has_envelopes:
            own = (params["_meta"].get(protocol.CLIENT_KEY) or {"name": ""})["name"]
        if own is None:
            raise ProtocolError(protocol.INVALID_REQUEST, "Call `initialize` first")
        return Caller(self._agent or own, bool(self._agent))

    def _list_resources(self, request: OpenRequest, params: Params) -> None:
        caller = self._caller(params)
        self._submit(request, lambda: self._get_calls().list_resources(caller))

    def _read_resource(self, request: OpenRequest, params: Params) -> None:
        uri, caller = params["uri"], self._caller(params)
        self._submit(request, lambda: self._get_calls().read_resource(uri, caller))

    def _call_tool(self, request: OpenRequest, params: Params) -> None:
        name, caller = params["name"], self._caller(params)
        arguments = params.get("arguments") or {}
        with self._lock:
            self._queued[request] = lambda: self._get_calls().begin(name, arguments, caller)
            self._queued_bytes += request.size
        self._submit(request, partial(self._begin, request))

    def _begin(self, request: OpenRequest) -> None:
        if self._output.is_full and not request.is_cancelled:  # nor would its answer be read
            return  # `resume` begins it
        with self._lock:
            start = self._queued.pop(request, None)
            was_behind = self._queued_bytes > MAX_QUEUED
            self._queued_bytes -= request.size if start else 0
        if was_behind:
            self._output.wake_reader()
        if start is not None:
            self._step(request, start())

    def _submit(self, request: OpenRequest, job: Callable[[], dict[str, Any] | None]) -> None:
        self.workers.submit(partial(self._respond, request, job))

    def resume(self) -> None:
        """Begin the calls that were held back while the client did not read."""
        with self._lock:
            queued = list(self._queued)
        for request in queued:
            self._submit(request, partial(self._begin, request))

    def _step(self, request: OpenRequest, call: RunningCall) -> None:
        """Do the next step of a call: answer its request, give it up if it is cancelled, or go on after a wait."""
        from postroom.tools.table import Reply

        step = None if request.is_cancelled else call.step()
        if isinstance(step, Reply):
            self._answer(request, step.content, step.delivery)
        elif step is None:
            call.abandon()
        else:
            request.is_busy = step.total is not None
            self._report_progress(request, step)
            self.workers.submit(partial(self._step, request, call), step.seconds)

    def _report_progress(self, request: OpenRequest, wait: Wait) -> None:
        token = protocol.progress_token(request.message.params)

        if token is not None and not request.is_cancelled and not self._output.is_behind:
            total = {} if wait.total is None else {"total": wait.total}
            params = {"progressToken": token, "progress": wait.done, "message": wait.message}
            message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params | total}  # fmt: skip
            self._output.send(message)

    def finish(self, seconds: float) -> None:
        """Let the calls that are at work end, say that the others will not, and write all answers."""
        end = time.monotonic() + seconds
        while True:
            self.workers.settle(max(0.0, end - time.monotonic()))
            self.resume()
            with self._lock:
                left = list(self._open)
            if time.monotonic() >= end or not any(request.is_busy for request in left):
                break
            time.sleep(BUSY)
        closed = ProtocolError(protocol.CONNECTION_CLOSED, "Connection closed")
        for request in left:
            self._answer_error(request, closed)
        self._output.flush(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Release what was not delivered, let open calls leave their lines, close the desk."""
        self.workers.stop()
        self._output.close()
        while self._queued:  # calls that were not begun leave their lines too
            with suppress(Exception):
                self._queued.popitem()[1]()
        if self._calls is not None:
            self._calls.close()


def _key(id: protocol.Id | None) -> protocol.Id | None:
    """Return an id as it is compared: clients may write a number as text when they cancel."""
    if isinstance(id, str):
        with suppress(ValueError):
            return int(id)
    return id


class Workers:
    """Runs jobs in a few threads, each job at its time."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._lock = threading.Lock()
        self._submitted_job = threading.Condition(self._lock)
        self._ended_job = threading.Condition(self._lock)
        self._submitted = self._threads = self._working = 0
        self._is_stopped = False

    def submit(self, job: Callable[[], None], delay: float = 0.0) -> None:
        """Run a job after so many seconds. Jobs that are due at once run in the order of submission."""
        with self._lock:
            if self._threads < self._max_threads:
                try:
                    threading.Thread(target=self._run, daemon=True).start()
                    self._threads += 1
                except RuntimeError:  # the system allows no more threads
                    if not self._threads:
                        raise
            self._submitted += 1
            heappush(self._jobs, (time.monotonic() + delay, self._submitted, job))
            self._submitted_job.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._is_due():
                    if self._is_stopped:
                        return
                    wait = self._jobs[0][0] - time.monotonic() if self._jobs else None
                    self._submitted_job.wait(wait)
                self._working += 1
                _, _, job = heappop(self._jobs)
            try:
                job()
            except Exception as bug:  # noqa: BLE001 - one job must not end the others
                log.error("%s in a job", type(bug).__name__)  # noqa: TRY400 - its text may be a mail's
            with self._lock:
                self._working -= 1
                self._ended_job.notify_all()

    def _is_due(self) -> bool:
        return bool(self._jobs) and self._jobs[0][0] <= time.monotonic()

    def settle(self, seconds: float) -> None:
        with self._lock:
            self._ended_job.wait_for(lambda: not self._working and not self._is_due(), seconds)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            self._jobs.clear()
            self._submitted_job.notify_all()
