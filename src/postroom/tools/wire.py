"""The server on standard input and output: JSON-RPC, one message a line, in threads.

A client waits for `tools/list` at every start, so nothing on the way to it imports the MCP SDK, asyncio, Pydantic or
click. What is listed comes from a file (`listing`). The contract and the desk are imported when a tool is called, or when
the client has been silent for a moment. `protocol` has the messages. The SDK's server (`serve`) serves HTTP; the tests
send the same sessions to both and compare the answers.

The main thread reads standard input. A request that needs the desk becomes a job of the `Workers`. Whoever has an
answer writes it, if the client takes it at once; else a thread of the `Output`'s own does, so that a client that does not
read keeps no worker waiting.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from postroom import __version__
from postroom.tools import protocol
from postroom.tools.protocol import InvalidMessage, Message, ProtocolError
from postroom.tools.streams import MAX_LINE, LineBuffer, Output, release, take_streams
from postroom.tools.workers import Workers

if TYPE_CHECKING:
    from postroom.agents.mailbox import Delivery
    from postroom.tools.calls import Caller, Calls, RunningCall
    from postroom.tools.table import Pause, Reply

THREADS: Final = 8  # calls that work at once; the others wait for their turn
MAX_OPEN: Final = 10_000  # requests without an answer, above which no more is read from the client
MAX_QUEUED: Final = 32_000_000  # bytes of calls that are not begun, above which the same holds
END_OF_INPUT: Final = 120.0  # seconds that calls have to end when the client has closed its end
GRACE: Final = 5.0  # seconds that they have when a signal has come, or nobody listens
LAST: Final = 3.0  # seconds to write log lines and close the desk after that
PUBLISH: Final = 0.5  # seconds after which the log file shows what the ledger has
QUIET: Final = 0.05  # seconds without a message after which the server imports what calls need
BUSY: Final = 0.02  # seconds between two looks at whether calls have ended
WAIT: Final = 1.0  # seconds of waiting after which a call reports progress again

log = logging.getLogger("postroom")


class OpenRequest:
    """A request that is not answered yet."""

    def __init__(self, id: protocol.Id, message: Message, size: int) -> None:
        self.id = id
        self.size = size  # bytes
        self.key = _key(id)
        self.is_cacheable = message.method != "tools/call"
        self.progress_token = protocol.progress_token(message.params)
        self.cancelled = False
        self.call: RunningCall | None = None
        self.turn = threading.Lock()  # held by the worker that is at work on the call
        # A longer wait is cut into pieces, and at each of them progress is reported.
        self.waited = 0.0  # seconds of all pieces that were begun
        self.left = 0.0  # seconds to wait after the piece that was begun last
        self.is_busy = True  # whether the call waits for work of ours, not for time or a person


class Server:
    """Serves one client: `receive` takes its lines, the answers go to the output."""

    def __init__(
        self, listing: dict[str, Any], make_calls: Callable[[], Calls], output: Output, agent: str
    ) -> None:
        self.workers = Workers(THREADS)
        self._listing = listing
        self._tools = {tool["name"] for tool in listing["tools"]}
        self._info = {"version": __version__, **listing["server"]}
        self._make_calls = make_calls
        self._calls: Calls | None = None  # made when a request first needs them
        self._making = threading.Lock()
        self._output = output
        self._agent = agent  # the client's name as the person gave it; else its own counts
        self._lock = threading.Lock()  # for the next four
        self._open: dict[OpenRequest, None] = {}
        self._by_key: dict[protocol.Id, OpenRequest] = {}  # the newest of each id
        self._queued: dict[OpenRequest, Callable[[], RunningCall]] = {}  # calls that are not begun
        self._queued_bytes = 0
        self._held: list[OpenRequest] = []  # those of them that wait for the client to read
        self._is_publishing = False
        self._is_preparing = False
        self._received = 0
        self._has_envelopes: bool | None = None  # the era, which the first request decides
        self._client: str | None = None  # the client's name for itself, from `initialize`
        self._initialized = False
        self._methods: dict[str, Callable[[OpenRequest, dict[str, Any]], dict[str, Any] | None]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda *_: {},
            "prompts/list": lambda *_: {"prompts": []},
            "resources/list": self._list_resources,
            "resources/read": self._read_resource,
            "resources/templates/list": self._list_templates,
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
        }

    @property
    def methods(self) -> set[str]:
        """The methods that it serves, of both eras."""
        return set(self._methods)

    @property
    def is_congested(self) -> bool:
        """Whether the client must be served before more is read from it."""
        is_behind = len(self._open) > MAX_OPEN or self._queued_bytes > MAX_QUEUED
        return self._output.is_full or is_behind

    # Messages

    def receive(self, line: bytes | None) -> None:
        """Take one line: answer it, begin its work, or pass it over. `None` is one that was too long."""
        self._received += 1
        if line is None:
            self._refuse(None, protocol.PARSE_ERROR, f"A message has at most {MAX_LINE:,} bytes")
            return
        try:
            message = protocol.parse(line)
            if message is None:
                return
            if message.id is None:
                self._take_notice(message)
            else:
                self._open_request(OpenRequest(message.id, message, len(line)), message)
        except InvalidMessage as wrong:
            if wrong.id is not None:
                self._refuse(wrong.id, protocol.INVALID_REQUEST, "Invalid message")
        except Exception as bug:  # noqa: BLE001 - no message ends the server
            log.error("%s at a message", type(bug).__name__)  # noqa: TRY400

    def _open_request(self, request: OpenRequest, message: Message) -> None:
        with self._lock:
            self._open[request] = None
            self._by_key[request.key] = request
        try:
            result = self._handle(request, message)
        except ProtocolError as error:
            self._answer(request, error=error.body)
        except Exception as bug:  # noqa: BLE001 - every request is answered
            self._answer(request, error=self._error(bug))
        else:
            if result is not None:
                self._answer(request, result)

    def _refuse(self, id: protocol.Id | None, code: int, why: str) -> None:
        error = {"code": code, "message": why}
        self._output.send({"jsonrpc": "2.0", "id": id, "error": error})

    def _handle(self, request: OpenRequest, message: Message) -> dict[str, Any] | None:
        """Return the result of a request, or submit the job that answers it."""
        method, params = message.method, message.params
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
        invalid = ProtocolError(protocol.INVALID_PARAMS, "Invalid request parameters", "")
        if not protocol.fits(params or {}, methods[method]):
            raise invalid
        is_ready = self._has_envelopes or self._initialized or self._client is not None
        if not is_ready and method not in ("initialize", "ping"):
            raise invalid  # as the SDK says it
        return self._methods[method](request, params or {})

    def _take_notice(self, message: Message) -> None:
        params = message.params or {}
        if message.method == "notifications/initialized":
            self._initialized |= protocol.fits(params, protocol.INITIALIZED)
        elif message.method == "notifications/cancelled":
            id = params.get("requestId")
            request = self._by_key.get(_key(id)) if protocol.is_id(id) else None
            if request is not None:
                request.cancelled = True
                self._forget(request)
                if request.call is not None:  # else whoever begins it finds that it is cancelled
                    self.workers.submit(partial(self._step, request))

    def _answer(
        self,
        request: OpenRequest,
        result: dict[str, Any] | None = None,
        *,
        error: dict[str, object] | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        if not self._forget(request):  # it is cancelled, or the server ends
            release(delivery)
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        if error is not None:
            answer["error"] = error
        elif self._has_envelopes:
            extras = protocol.FRESHNESS if request.is_cacheable else {}
            stamp = {"resultType": "complete", "_meta": {protocol.SERVER_KEY: self._info}}
            answer["result"] = {**(result or {}), **extras, **stamp}
        else:
            answer["result"] = result
        self._output.send(answer, delivery)

    def _forget(self, request: OpenRequest) -> bool:
        """Drop a request that is answered or cancelled; return whether it was open."""
        with self._lock:
            was_open = request in self._open
            self._open.pop(request, None)
            if self._by_key.get(request.key) is request:
                del self._by_key[request.key]
            was_full = len(self._open) == MAX_OPEN
        if was_full:
            self._output.wake_reader()
        return was_open

    # What is known without the desk

    def _initialize(self, _: OpenRequest, params: dict[str, Any]) -> dict[str, Any]:
        self._client = params["clientInfo"]["name"]
        asked, versions = params["protocolVersion"], protocol.HANDSHAKE_VERSIONS
        return {
            "protocolVersion": asked if asked in versions else versions[-1],
            "capabilities": protocol.CAPABILITIES,
            "serverInfo": self._info,
            "instructions": self._listing["instructions"],
        }

    def _discover(self, _: OpenRequest, __: dict[str, Any]) -> dict[str, Any]:
        return {
            "supportedVersions": [protocol.ENVELOPE_VERSION],
            "capabilities": protocol.CAPABILITIES,
            "instructions": self._listing["instructions"],
        }

    def _list_tools(self, _: OpenRequest, __: dict[str, Any]) -> dict[str, Any]:
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

    def _list_templates(self, _: OpenRequest, __: dict[str, Any]) -> dict[str, Any]:
        return {"resourceTemplates": self._listing["resourceTemplates"]}

    # What needs the desk

    def _get_calls(self) -> Calls:
        with self._making:
            if self._calls is None:
                self._calls = self._make_calls()
            return self._calls

    def _caller(self, params: dict[str, Any]) -> Callable[[], Caller]:
        """Return a function that returns who calls; a worker calls it, so that it can import `calls`.

        It is who the person says, else who the client says.
        """
        own = self._client
        if self._has_envelopes:
            own = (params["_meta"].get(protocol.CLIENT_KEY) or {"name": ""})["name"]
        if own is None:
            raise ProtocolError(protocol.INVALID_REQUEST, "Call `initialize` first")

        def caller() -> Caller:
            from postroom.tools.calls import Caller, client_name

            return Caller(self._agent or client_name(own), bool(self._agent))

        return caller

    def _list_resources(self, request: OpenRequest, params: dict[str, Any]) -> None:
        caller = self._caller(params)

        def listed() -> None:
            resources = [
                {"uri": f"letter://{id}", "name": id, "mimeType": "text/plain"}
                for id in self._get_calls().list_letters(caller())
            ]
            self._answer(request, {"resources": resources})

        self._submit(request, listed)

    def _read_resource(self, request: OpenRequest, params: dict[str, Any]) -> None:
        uri, caller = params["uri"], self._caller(params)

        def read() -> None:
            text = self._get_calls().read(uri, caller())
            contents = {"uri": uri, "mimeType": "text/plain", "text": text}
            self._answer(request, {"contents": [contents]})

        self._submit(request, read)

    def _call_tool(self, request: OpenRequest, params: dict[str, Any]) -> None:
        name, arguments = params["name"], params.get("arguments") or {}
        if name not in self._tools:
            from postroom.core.text import one_line

            raise ProtocolError(protocol.INVALID_PARAMS, f"Unknown tool: {one_line(name)[:80]}")
        caller = self._caller(params)

        def start() -> RunningCall:
            return self._get_calls().begin(name, arguments, caller())

        with self._lock:
            self._queued[request] = start
            self._queued_bytes += request.size
        self._submit(request, partial(self._begin, request))

    def _begin(self, request: OpenRequest) -> None:
        """Begin a call that is queued, unless it is begun."""
        if self._output.is_full and not request.cancelled:  # its answer would not be read either
            self._held.append(request)
            return
        with self._lock:
            start = self._queued.pop(request, None)
            was_behind = self._queued_bytes > MAX_QUEUED
            self._queued_bytes -= request.size if start else 0
        if was_behind:
            self._output.wake_reader()
        if start is not None:
            request.call = start()
            self._step(request)

    def _submit(self, request: OpenRequest, job: Callable[[], None]) -> None:
        """Have a worker do a job that answers a request; what it raises is the answer, too."""

        def answer() -> None:
            try:
                job()
            except Exception as bug:  # noqa: BLE001 - every request is answered
                self._answer(request, error=self._error(bug))
            self._publish_later()

        self.workers.submit(answer)

    def _error(self, bug: Exception) -> dict[str, object]:
        """Return what went wrong as a JSON-RPC error."""
        from postroom.core.errors import NotFound, PostroomError, unexpected
        from postroom.tools.calls import NoResource
        from postroom.tools.table import refusal

        missing = protocol.INVALID_PARAMS if self._has_envelopes else protocol.RESOURCE_NOT_FOUND
        if isinstance(bug, NoResource):
            return ProtocolError(missing, "Resource not found", {"uri": bug.uri[:200]}).body
        if not isinstance(bug, PostroomError):
            bug = unexpected(bug, remedy="Tell the person what this says.")
        code = missing if isinstance(bug, NotFound) else protocol.INTERNAL_ERROR
        return ProtocolError(code, refusal("", bug).text).body

    def resume(self) -> None:
        """Begin the calls that were held back while the client did not read."""
        held, self._held = self._held, []
        for request in held:
            self._submit(request, partial(self._begin, request))

    def _step(self, request: OpenRequest) -> None:
        """Do the next step of a request's call, unless it has ended or a worker is at it."""
        if not request.turn.acquire(blocking=False):
            return
        from postroom.tools.table import Reply

        try:
            call = request.call
            if call is None:
                return
            step: Reply | Pause = 0.0
            if request.left <= 0 and not request.cancelled:
                step = call.step()
            if isinstance(step, Reply):
                request.call = None
                self._answer(request, step.content, delivery=step.delivery)
            elif request.cancelled:
                request.call = None
                call.abandon()
            else:
                self._wait(request, step)
                return
            self._publish_later()
        finally:
            request.turn.release()

    def _wait(self, request: OpenRequest, step: Pause) -> None:
        """Report how far a call is, and go on with it later."""
        from postroom.tools.table import Wait

        request.is_busy = isinstance(step, Wait)
        if isinstance(step, Wait):
            delay = step.seconds
            self._report(request, step.done, step.total, step.message)
        else:
            request.left += step
            delay = min(request.left, WAIT)
            if delay > 0:
                self._report(request, request.waited, None, "Waiting.")
            request.left -= delay
            request.waited += delay
        self.workers.submit(partial(self._step, request), delay)

    def _report(self, request: OpenRequest, done: float, total: float | None, message: str) -> None:
        if request.progress_token is None or self._output.unwritten:
            return  # a client that is behind with reading does without
        params = {"progressToken": request.progress_token, "progress": done, "message": message}
        if total is not None:
            params["total"] = total
        self._output.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    def _publish_later(self) -> None:
        """Have the log file show what the ledger has, a moment later and for all calls until then."""
        with self._lock:
            before, self._is_publishing = self._is_publishing, True
        if not before:
            self.workers.submit(self._publish, PUBLISH)

    def _publish(self) -> None:
        self._is_publishing = False
        self._get_calls().publish()

    # The end

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
        for request in left:
            error = {"code": protocol.CONNECTION_CLOSED, "message": "Connection closed"}
            self._answer(request, error=error)
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


def serve(listing: dict[str, Any], make_calls: Callable[[], Calls], *, agent: str = "") -> NoReturn:
    """Serve one client on standard input and output, until it is gone or a signal comes; then exit."""
    incoming, outgoing = take_streams()
    wakeup, waker = os.pipe()
    os.set_blocking(waker, False)

    def wake() -> None:
        with suppress(BlockingIOError):
            os.write(waker, b"\0")

    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)  # writes the number of the signal
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    server = Server(listing, make_calls, Output(outgoing, wake), agent)
    seconds = _read(server, incoming, outgoing, wakeup)
    _end(server, outgoing, wakeup, wake, seconds)


def _read(server: Server, incoming: int, outgoing: int, wakeup: int) -> float:
    """Hand over lines until standard input ends, a signal comes or nobody listens any more.

    Returns how many seconds calls then have to end.
    """
    watch, lines, is_reading = select.poll(), LineBuffer(), False
    watch.register(wakeup, select.POLLIN)
    watch.register(outgoing, 0)  # reports an error when its reader is gone
    is_over = False
    while not is_over:
        if is_reading == server.is_congested:
            is_reading = not is_reading
            if is_reading:
                watch.register(incoming, select.POLLIN)
                server.resume()
            else:
                watch.unregister(incoming)
        events = dict(watch.poll())
        # What the client has sent before it was gone is still done.
        is_over = outgoing in events or (wakeup in events and _is_signalled(wakeup))
        if incoming in events:
            try:
                data = os.read(incoming, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            for line in lines.feed(data) if data else lines.end():
                server.receive(line)
            if not data and not is_over:
                return END_OF_INPUT
    return GRACE


def _is_signalled(wakeup: int) -> bool:
    return bool(os.read(wakeup, 64).strip(b"\0"))


def _end(
    server: Server, outgoing: int, wakeup: int, wake: Callable[[], None], seconds: float
) -> NoReturn:
    """Let calls end within so many seconds, close the desk, and exit.

    It is shorter if a signal comes, or nobody listens any more.
    """
    is_finished = threading.Event()

    def finish() -> None:
        server.finish(seconds)
        is_finished.set()
        wake()

    threading.Thread(target=finish, daemon=True).start()
    watch = select.poll()
    watch.register(wakeup, select.POLLIN)
    watch.register(outgoing, 0)
    while not is_finished.is_set():
        events = dict(watch.poll())
        if outgoing in events or _is_signalled(wakeup):
            is_finished.wait(GRACE)
            break
    # Not for long, where another process holds the ledger: what a crash leaves, recovery takes up.
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(LAST)
    with suppress(OSError, ValueError, AttributeError):  # there may be no standard error
        sys.stderr.flush()
    os._exit(0)  # without waiting for a thread that writes to a client that does not read


def _key(id: protocol.Id) -> protocol.Id:
    """Return an id as it is compared: clients may write a number as text when they cancel."""
    if isinstance(id, str):
        with suppress(ValueError):
            return int(id)
    return id
