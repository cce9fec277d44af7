"""The orchestrator's line to one MCP server: started when first needed, restarted when it fails.

A call that may have changed something is never repeated. Whether one may is asked of the server itself:
what its list of tools calls read-only is tried once more on a fresh server, nothing else is.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import os
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.client import Client, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from postroom.core.errors import Conflict, Invalid, Limited, PostroomError, Unavailable, Uncertain
from postroom.core.text import one_line
from postroom.vault.vault import Vault

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # public under no other name

MAX_ANSWER: Final = 10_000_000  # bytes of JSON; a larger answer is a server gone wrong
MAX_MESSAGE: Final = 500
PAUSE: Final = 60.0  # seconds to wait where a server says "too much" and not for how long
GARBLED: Final = "its answer does not fit the protocol"
ENDED: Final = "it ended"
_OF_THE_CALL: Final = (types.INVALID_REQUEST, types.METHOD_NOT_FOUND, types.INVALID_PARAMS)
_KINDS: Final = {kind.code: kind for kind in PostroomError.__subclasses__() if "code" in vars(kind)}
_WORDED = re.compile(r"Error \((\w+)\): (.+)", re.DOTALL)  # as our own contracts put it into text

Values: TypeAlias = dict[str, Any]
Fallback: TypeAlias = Callable[[], Values | Awaitable[Values]]

log = logging.getLogger("postroom")
# The SDK logs lines that it cannot parse, with the lines: they may hold what a mail says.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)


class _Failure(Exception):
    """A call without an answer: whether it was written, and whether a fresh server may give one."""

    def __init__(self, cause: str, *, written: bool = True, fresh: bool = True) -> None:
        super().__init__(cause)
        self.cause = cause
        self.written = written
        self.fresh = fresh


class MCPClient:
    """Calls the tools of one server; where it does not answer, that is logged and the fallback is run."""

    def __init__(
        self,
        server_name: str,
        command: list[str],
        vault_path: Path,
        *,
        timeout: float = 30.0,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.server_name = server_name
        self.command = command
        self.vault_path = vault_path
        self._timeout = timeout
        self._environ = environ
        self._clock = clock
        self._run: _Run | None = None
        self._closed = False

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any], fallback: Fallback | None = None
    ) -> dict[str, Any]:
        """Return what a tool answers, or else the fallback; raise what the tool refuses with."""
        attempts, writes = 0, True
        told = _json(tool_name, arguments)
        while True:
            attempts += 1
            try:
                run = self._running()
                await run.ready()
                if attempts > 1 and tool_name not in run.reads:
                    break  # what was tried before is the failure
                writes = tool_name not in run.reads
                answer = await run.call(tool_name, told)
            except _Failure as found:
                failure = found
                if writes or not found.fresh or attempts > 1:
                    break
            else:
                if answer.is_error:
                    raise _refusal(answer)
                return _values(answer)
        # Past the `except`: neither the error nor the fallback's may show what the server said.
        error = self._error(tool_name, failure, uncertain=failure.written and writes)
        await self._log(tool_name, error.message, attempts, fallback=fallback is not None)
        if fallback is None:
            raise error
        result = await anyio.to_thread.run_sync(fallback)
        return await result if inspect.isawaitable(result) else result

    async def close(self) -> None:
        """End the server; calls that wait for it fail, and so do later ones."""
        self._closed = True
        if self._run is not None:
            self._run.stop("the client was closed")
            with anyio.CancelScope(shield=True):  # a server that is left half ended is an orphan
                await self._run.finished.wait()

    def _running(self) -> _Run:
        if self._closed:
            raise _Failure("the client is closed", written=False, fresh=False)
        if self._run is None or self._run.cause:
            environ = os.environ if self._environ is None else self._environ
            self._run = _Run(self.command, environ, self._timeout, self._run)
        return self._run

    def _error(self, tool: str, failure: _Failure, *, uncertain: bool) -> PostroomError:
        look = f"run `{_line(shlex.join(self.command))}` by hand to see what is wrong."
        about = f"{one_line(self.server_name)}: {one_line(tool)[:80]}"
        if uncertain:
            return Uncertain(
                f"{about} may have happened or not: {failure.cause}",
                remedy=f"See whether it has happened before you call it again; then {look}",
            )
        return Unavailable(
            f"{about} was not answered: {failure.cause}",
            remedy=f"Logs/ in the vault says since when; {look}",
        )

    async def _log(self, tool: str, message: str, attempts: int, *, fallback: bool) -> None:
        now = self._clock().astimezone(UTC).isoformat()
        record = {
            "event": "mcp_unavailable",
            "timestamp": now,
            "server": one_line(self.server_name),
            "tool": one_line(tool)[:80],
            "error": "mcp_unavailable",
            "message": message,
            "attempts": attempts,
            "fallback": fallback,
            "severity": "ERROR",
        }
        data = json.dumps(record, ensure_ascii=False).encode() + b"\n"

        def append() -> None:
            with closing(Vault(self.vault_path)) as vault:
                vault.append(f"Logs/orchestrator_{now[:10]}.jsonl", data)

        try:
            await anyio.to_thread.run_sync(append)
        except (PostroomError, OSError) as wrong:
            log.warning("%s; and that is not in the log: %s", message, one_line(str(wrong)))


class _Run:
    """One run of a server: its process, and the session with it."""

    def __init__(
        self,
        command: list[str],
        environ: Mapping[str, str],
        timeout: float,
        before: _Run | None,
    ) -> None:
        self.cause = ""  # why it is over
        self.reads: frozenset[str] = frozenset()  # the tools that change nothing
        self.finished = anyio.Event()  # the process is gone
        self._timeout = timeout
        self._session: ClientSession | None = None
        self._noise = False
        self._settled = anyio.Event()
        self._over = anyio.Event()
        self._scope = anyio.CancelScope()
        # A task of its own, under nobody's scope: the first call may end, or be cancelled, before others.
        self._task = asyncio.create_task(self._live(command, environ, before))

    async def ready(self) -> ClientSession:
        """Wait until it has started; what fails before has not happened."""
        await self._settled.wait()
        if self._session is None:
            raise _Failure(self.cause, written=False, fresh=False)
        return self._session

    async def call(self, tool: str, arguments: Values) -> types.CallToolResult:
        """Return the answer to a call; a server that gives none, or a wrong one, is stopped."""
        session = await self.ready()
        try:
            with anyio.fail_after(self._timeout):
                # Not the client's own call: that one repeats a call when the server asks it to.
                answer = await session.call_tool(tool, arguments)
            if _fits(answer):
                return answer
            cause = GARBLED
        except TimeoutError:
            noise = ", but lines that are no messages" if self._noise else ""
            cause = f"no answer within {self._timeout:g} seconds{noise}"
        except MCPError as error:
            if error.code in _OF_THE_CALL:
                raise Invalid(_line(error.message)) from None
            if error.code != types.CONNECTION_CLOSED:
                raise _Failure(f"it answered with error {error.code}", fresh=False) from None
            cause = self.cause or ENDED
        except Exception:  # noqa: BLE001 - whatever the SDK makes of a stranger's answer
            cause = GARBLED
        self.stop(cause)
        raise _Failure(cause)

    def stop(self, cause: str) -> None:
        """Have it ended, by force where it does not go."""
        self._leave(cause)
        self._scope.cancel()

    def _leave(self, cause: str) -> None:
        self.cause = self.cause or cause
        self._session = None
        self._settled.set()
        self._over.set()

    async def _live(
        self, command: list[str], environ: Mapping[str, str], before: _Run | None
    ) -> None:
        try:
            # Standard error goes nowhere: it may hold what a mail says, and a pipe must be read.
            with self._scope, Path(os.devnull).open("w") as nowhere:
                if before:  # never two at once: they may want the same lock
                    await before.finished.wait()
                self._scope.deadline = anyio.current_time() + self._timeout
                program, *rest = command
                server = StdioServerParameters(
                    command=program,
                    args=rest,
                    env=dict(environ),
                    encoding_error_handler="replace",  # a byte that is no UTF-8 would end the SDK
                )
                async with Client(self._watched(stdio_client(server, errlog=nowhere))) as client:
                    self.reads = await _read_only(client.session)
                    self._scope.deadline = math.inf
                    if not self.cause:
                        self._session = client.session
                    self._settled.set()
                    await self._over.wait()
            self._leave(f"it did not start within {self._timeout:g} seconds")
        except Exception as wrong:  # noqa: BLE001 - whatever the SDK makes of a stranger's start
            self._leave(_why(wrong))
        finally:
            self._leave(ENDED)
            self.finished.set()

    @asynccontextmanager
    async def _watched(
        self, transport: AbstractAsyncContextManager[TransportStreams]
    ) -> AsyncIterator[TransportStreams]:
        """Lend a transport whose end is noticed: the SDK tells only the calls that wait just then."""
        hand, take = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def pass_on(incoming: AsyncIterator[SessionMessage | Exception]) -> None:
            with hand, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for found in incoming:
                    if isinstance(found, Exception):
                        self._noise = True  # many a server prints; the answer may still come
                    else:
                        await hand.send(found)
            self._leave(ENDED)

        with hand, take:
            async with transport as (incoming, outgoing), anyio.create_task_group() as group:
                group.start_soon(pass_on, incoming)
                yield take, outgoing
                group.cancel_scope.cancel()


async def _read_only(session: ClientSession) -> frozenset[str]:
    """Return the names of the tools that say of themselves that they change nothing."""
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        found.update(
            tool.name
            for tool in page.tools
            if tool.annotations is not None and tool.annotations.read_only_hint is True
        )
        cursor = page.next_cursor
        if cursor is None:
            return frozenset(found)


def _json(tool: str, arguments: Values) -> Values:
    """Return the arguments as they are sent: what is no JSON would end the SDK's writer."""
    try:
        sent = json.dumps({tool: arguments}, ensure_ascii=False, allow_nan=False)
        sent.encode()
    except (TypeError, ValueError, RecursionError):
        raise Invalid(
            f"The arguments for {one_line(tool)[:80]} are no JSON",
            remedy="Give texts, numbers, lists and objects, and no text that is half a character.",
        ) from None
    found: Values = json.loads(sent)[tool]
    return found


def _fits(answer: types.CallToolResult) -> bool:
    structured = answer.structured_content
    return (structured is None or isinstance(structured, dict)) and (
        len(answer.model_dump_json()) <= MAX_ANSWER
    )


def _why(wrong: BaseException) -> str:
    """Return why a server did not start, without what it said."""
    while isinstance(wrong, BaseExceptionGroup):
        wrong = wrong.exceptions[0]
    if isinstance(wrong, OSError) and wrong.strerror:
        return f"it cannot be started ({wrong.strerror})"
    if isinstance(wrong, MCPError):
        return f"it refused to begin, with error {wrong.code}"
    return f"it does not begin as the protocol has it ({type(wrong).__name__})"


def _text(answer: types.CallToolResult) -> str:
    return "\n".join(block.text for block in answer.content if isinstance(block, types.TextContent))


def _object(text: str) -> Values | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _values(answer: types.CallToolResult) -> Values:
    text, structured = _text(answer), answer.structured_content
    found = _object(text) if structured is None else structured
    return {"text": text} if found is None else found


def _refusal(answer: types.CallToolResult) -> PostroomError:
    """Return a tool's refusal as the error that its code says."""
    text = _text(answer)
    found: Values = answer.structured_content or _object(text) or {}
    code: object = found.get("error")
    more: object = found.get("details")
    if isinstance(code, dict):  # our own contract, not the documents'
        found = more = code
        code = found.get("code")
    if not isinstance(code, str) and (worded := _WORDED.match(text)):
        code, text = worded.groups()
    details: Values = more if isinstance(more, dict) else {}
    message = _line(found.get("message")) or _line(text) or "The tool refused, and says not why"
    remedy = _line(details.get("remedy"))
    if code == Limited.code:
        seconds = details.get("retry_after_seconds")
        known = isinstance(seconds, int | float) and 0 <= seconds < math.inf
        return Limited(message, seconds=float(seconds or 0) if known else PAUSE, remedy=remedy)
    if code == Conflict.code:
        return Conflict(message, remedy=remedy, etag=_line(details.get("etag")))
    return _KINDS.get(str(code), Unavailable)(message, remedy=remedy)


def _line(found: object) -> str:
    return one_line(found[: 4 * MAX_MESSAGE])[:MAX_MESSAGE] if isinstance(found, str) else ""
