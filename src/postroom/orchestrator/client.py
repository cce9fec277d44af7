"""MCPClient: calls tools of one MCP server over stdio, starts the server when needed, and restarts it when it fails.

A call that may have changed something is never repeated, neither by the client nor by a fallback. Only a tool that the
server itself lists as read-only is called once more, on a fresh server. For other tools the fallback runs only if the call
was never written to the server: what an error says of a call that was is the server's word alone.
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
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

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
DEFAULT_RETRY_SECONDS: Final = 60.0  # where a server refuses as rate-limited without a time
ENDED: Final = "it ended"
_WRONG_CALL: Final = (types.INVALID_REQUEST, types.METHOD_NOT_FOUND, types.INVALID_PARAMS)
_ERROR_CLASSES: Final = {
    kind.code: kind for kind in PostroomError.__subclasses__() if "code" in vars(kind)
}
UNANSWERED: Final = "mcp_unavailable"  # document 003's code of a server that does not respond
_CODE: Final = re.compile(r"[a-z_]{1,40}")
_ERROR_TEXT: Final = re.compile(
    r"Error \((\w+)\): (.+)", re.DOTALL
)  # as our own contracts write it

Values: TypeAlias = dict[str, Any]
Fallback: TypeAlias = Callable[[], Values | Awaitable[Values]]

log = logging.getLogger("postroom")
# The SDK logs the lines that it cannot parse, and they may quote a mail.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)


class _CallFailed(Exception):
    """A call got no answer. `written`: it may have reached the server; `retry`: a fresh server may answer."""

    def __init__(self, cause: str, *, written: bool = True, retry: bool = True) -> None:
        super().__init__(cause)
        self.written = written
        self.retry = retry


class FailedCall(NamedTuple):
    """A call that failed: with the error that the tool answered, or without an answer."""

    error: PostroomError
    code: str  # as the tool has it, or `UNANSWERED`
    attempts: int
    is_harmless: bool  # it only reads, or never left, so that the same may be done by other means
    is_answered: bool = True


@dataclass(slots=True)
class MCPClient:
    """Calls the tools of one server; a failure is logged in the vault, and then the fallback runs."""

    server_name: str
    command: list[str]
    vault_path: Path
    _: KW_ONLY
    timeout: float = 30.0
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _connection: _Connection | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any], fallback: Fallback | None = None
    ) -> dict[str, Any]:
        """Return the tool's answer; a failure is logged, and the fallback's result returned instead.

        Without a fallback a failure is raised: the error that the tool answered with, or `Unavailable` where the server
        gave no answer. It is raised in any case where the call was written out to a tool that does not only read, as
        `Uncertain` without an answer.
        """
        result = await self.try_tool(tool_name, arguments)
        if not isinstance(result, FailedCall):
            return result
        may_fall_back = fallback is not None and result.is_harmless
        await self.log_failure(tool_name, result, has_fallback=may_fall_back)
        if fallback is None or not may_fall_back:
            raise result.error
        instead = await anyio.to_thread.run_sync(fallback)
        return await instead if inspect.isawaitable(instead) else instead

    async def try_tool(self, tool_name: str, arguments: Values) -> Values | FailedCall:
        """Return the tool's answer, or how the call failed, which the caller logs."""
        sent = _as_json(tool_name, arguments)
        is_read_only = False
        for attempt in (1, 2):
            try:
                connection = self._connect()
                await connection.started()
                if attempt == 2 and tool_name not in connection.read_only:
                    break  # report the failure of the first attempt
                is_read_only = tool_name in connection.read_only
                values, is_error = _values(await connection.call(tool_name, sent))
                return _refused_call(values, attempt, is_read_only) if is_error else values
            except Invalid as refused:
                return FailedCall(refused, refused.code, attempt, is_read_only)
            except _CallFailed as error:
                failure = error
                if not is_read_only or not error.retry:
                    break
        # Outside the `except`, so that no chained exception shows what the server wrote.
        is_harmless = is_read_only or not failure.written
        problem = self._error(tool_name, failure, uncertain=not is_harmless)
        return FailedCall(problem, UNANSWERED, attempt, is_harmless, is_answered=False)

    async def log_failure(self, tool: str, failed: FailedCall, *, has_fallback: bool) -> None:
        """Write the line of a failed call; if the vault takes none, warn."""
        try:
            await anyio.to_thread.run_sync(self._log, tool, failed, has_fallback)
        except (PostroomError, OSError) as error:
            reason = one_line(str(error))
            log.warning(
                "%s; the vault's log has no line of it: %s", self._described(tool, failed), reason
            )

    async def close(self) -> None:
        """Stop the server; calls that wait for it fail, and so do later ones."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.end("the client was closed")
            with anyio.CancelScope(shield=True):  # else the server could be left running
                await asyncio.wait({self._connection.task})

    def _connect(self) -> _Connection:
        if self._is_closed:
            raise _CallFailed("the client is closed", written=False, retry=False)
        if self._connection is None or self._connection.cause:
            self._connection = _Connection(
                self.command, self.environ, self.timeout, self._connection
            )
        return self._connection

    def _error(self, tool: str, failure: _CallFailed, *, uncertain: bool) -> PostroomError:
        by_hand = f"run `{_short(shlex.join(self.command))}` by hand to see what is wrong."
        call = f"{one_line(self.server_name)}: {one_line(tool)[:80]}"
        if uncertain:
            return Uncertain(
                f"{call} may have happened or not: {failure}",
                remedy=f"See whether it has happened before you call it again; then {by_hand}",
            )
        return Unavailable(
            f"{call} was not answered: {failure}",
            remedy=f"Logs/ in the vault says since when; {by_hand}",
        )

    def _described(self, tool: str, failed: FailedCall) -> str:
        """Return what failed; not in a tool's own words, which may quote a mail."""
        if not failed.is_answered:
            return failed.error.message
        return f"{one_line(self.server_name)}: {one_line(tool)[:80]} answered {failed.code}"

    def _log(self, tool: str, failed: FailedCall, has_fallback: bool) -> None:  # noqa: FBT001
        now = self.clock().astimezone(UTC).isoformat()
        record = {
            "event": "mcp_error" if failed.is_answered else UNANSWERED,
            "timestamp": now,
            "server": one_line(self.server_name),
            "tool": one_line(tool)[:80],
            "error": failed.code,
            "message": self._described(tool, failed),
            "attempts": failed.attempts,
            "fallback": has_fallback,
            "severity": "ERROR",
        }
        line = f"{json.dumps(record, ensure_ascii=False)}\n"
        with closing(Vault(self.vault_path)) as vault:
            vault.append(f"Logs/orchestrator_{now[:10]}.jsonl", line.encode())


class _Connection:
    """One server process and the session with it; a failed one is replaced by another."""

    def __init__(
        self,
        command: list[str],
        environ: Mapping[str, str],
        timeout: float,
        previous: _Connection | None,
    ) -> None:
        self.cause = ""  # why it ended
        self.read_only: set[str] = set()  # the tools that change nothing
        self._timeout = timeout
        self._session: ClientSession | None = None
        self._printed_noise = False
        self._is_decided = anyio.Event()  # it has started, or failed to
        self._scope = anyio.CancelScope()  # of the process and the session
        # A task outside every caller's scope: the call that started the server may be cancelled.
        self.task = asyncio.create_task(self._serve(command, environ, previous))

    async def started(self) -> ClientSession:
        """Return the session; a server that did not start raises, and nothing has happened."""
        await self._is_decided.wait()
        if self._session is None:
            raise _CallFailed(self.cause, written=False, retry=False)
        return self._session

    async def call(self, tool: str, arguments: Values) -> types.CallToolResult:
        """Return the answer to a call; a server that gives none, or a malformed one, is stopped."""
        session = await self.started()
        cause = "its answer does not fit the protocol"
        try:
            with anyio.fail_after(self._timeout):
                # Not `Client.call_tool`, which repeats a call when the server asks for input.
                answer = await session.call_tool(tool, arguments)
            is_object = isinstance(answer.structured_content, dict | None)
            if is_object and len(answer.model_dump_json()) <= MAX_ANSWER:
                return answer
        except TimeoutError:
            noise = ", but lines that are not messages" if self._printed_noise else ""
            cause = f"no answer within {self._timeout:g} seconds{noise}"
        except MCPError as error:
            if error.code in _WRONG_CALL:
                raise Invalid(_short(error.message)) from None
            if error.code != types.CONNECTION_CLOSED:
                raise _CallFailed(f"it answered with error {error.code}", retry=False) from None
            cause = self.cause or ENDED
        except Exception:  # noqa: BLE001, S110 - the SDK raises anything for a malformed answer
            pass
        self.end(cause)
        raise _CallFailed(cause)

    def end(self, cause: str) -> None:
        """End the process, by force where it does not exit; the first cause counts."""
        self.cause = self.cause or cause
        self._session = None
        self._is_decided.set()
        self._scope.cancel()

    async def _serve(
        self, command: list[str], environ: Mapping[str, str], previous: _Connection | None
    ) -> None:
        try:
            # Standard error is discarded: it may quote a mail, and a pipe would have to be read.
            with self._scope, Path(os.devnull).open("w") as devnull:
                if previous:  # never two at once: they may want the same lock
                    await asyncio.wait({previous.task})
                self._scope.deadline = anyio.current_time() + self._timeout
                program, *rest = command
                server = StdioServerParameters(
                    command=program,
                    args=rest,
                    env=dict(environ),
                    encoding_error_handler="replace",  # a byte that is not UTF-8 would end the SDK
                )
                async with Client(self._observe(stdio_client(server, errlog=devnull))) as client:
                    await self._list_read_only_tools(client.session)
                    self._scope.deadline = math.inf
                    if not self.cause:
                        self._session = client.session
                    self._is_decided.set()
                    await anyio.sleep_forever()
            self.end(f"it did not start within {self._timeout:g} seconds")
        except Exception as error:  # noqa: BLE001 - the SDK raises anything for a failed start
            self.end(_start_failure(error))
        finally:
            self.end(ENDED)

    async def _list_read_only_tools(self, session: ClientSession) -> None:
        cursor: str | None = None
        while True:
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            self.read_only |= {
                tool.name
                for tool in page.tools
                if tool.annotations and tool.annotations.read_only_hint is True
            }
            cursor = page.next_cursor
            if cursor is None:
                return

    @asynccontextmanager
    async def _observe(
        self, transport: AbstractAsyncContextManager[TransportStreams]
    ) -> AsyncIterator[TransportStreams]:
        """Pass on a transport's messages and notice its end: the SDK reports it to pending calls only."""
        sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def forward(incoming: AsyncIterator[SessionMessage | Exception]) -> None:
            with sender, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for message in incoming:
                    if isinstance(message, Exception):
                        self._printed_noise = True  # many servers print; the answer may still come
                    else:
                        await sender.send(message)
            self.end(ENDED)

        with sender, receiver:
            async with transport as (incoming, outgoing), anyio.create_task_group() as group:
                group.start_soon(forward, incoming)
                yield receiver, outgoing
                group.cancel_scope.cancel()


def _as_json(tool: str, arguments: Values) -> Values:
    """Return the arguments as they are sent; anything but JSON would end the SDK's writer."""
    try:
        text = json.dumps([tool, arguments], ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise Invalid(
            f"The arguments for {one_line(tool)[:80]} are not JSON",
            remedy="Give texts, numbers, lists and objects, and no text that is half a character.",
        ) from None
    sent: Values = json.loads(text)[1]
    return sent


def _start_failure(error: BaseException) -> str:
    """Return why a server did not start, without quoting it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be started ({error.strerror})"
    if isinstance(error, MCPError):
        return f"it refused to begin, with error {error.code}"
    return f"it does not begin as the protocol has it ({type(error).__name__})"


def _values(answer: types.CallToolResult) -> tuple[Values, bool]:
    """Return what a tool answered, its values or its text, and whether that is an error."""
    text = "\n".join(block.text for block in answer.content if isinstance(block, types.TextContent))
    values: object = answer.structured_content
    if values is None:
        with suppress(ValueError, RecursionError):
            values = json.loads(text)
    if not isinstance(values, dict):
        values = {"text": text}
    return ({"text": text, **values}, True) if answer.is_error else (values, False)


def _refused_call(values: Values, attempt: int, is_read_only: bool) -> FailedCall:  # noqa: FBT001
    """Return the error that a tool answered with."""
    code, details, text = values.get("error"), values.get("details"), _text_of(values)
    if isinstance(code, dict):  # our own contract nests what document 003 has side by side
        values = details = code
        code = values.get("code")
    if not isinstance(code, str) and (parts := _ERROR_TEXT.match(text)):
        code, text = parts.groups()
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        code = PostroomError.code
    if not isinstance(details, dict):
        details = {}
    message = _short(values.get("message")) or _short(text) or "The tool refused without a reason"
    # A code that is not known says nothing about what happened.
    kind = _ERROR_CLASSES.get(code, Unavailable if is_read_only else Uncertain)
    return FailedCall(_tool_error(kind, message, details), code, attempt, is_read_only)


def _text_of(values: Values) -> str:
    text = values.get("text")
    return text if isinstance(text, str) else ""


def _tool_error(kind: type[PostroomError], message: str, details: Values) -> PostroomError:
    remedy = _short(details.get("remedy"))
    if kind is Limited:
        seconds = details.get("retry_after_seconds")
        if not (isinstance(seconds, int | float) and 0 <= seconds < math.inf):
            seconds = DEFAULT_RETRY_SECONDS
        return Limited(message, seconds=seconds, remedy=remedy)
    if kind is Conflict:
        return Conflict(message, remedy=remedy, etag=_short(details.get("etag")))
    return kind(message, remedy=remedy)


def _short(text: object) -> str:
    return one_line(text[: 4 * MAX_MESSAGE])[:MAX_MESSAGE] if isinstance(text, str) else ""
