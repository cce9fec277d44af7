"""The server: a contract's tools over MCP, on stdio or HTTP. The only place that knows the SDK.

The protocol runs on one loop, and nothing else does: each call works in a thread of its own, of
which a few run at once, and a tool that waits gives its thread back meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, Self, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.applications import Starlette

from postroom.core.errors import NotFound, PostroomError, Unavailable, unexpected
from postroom.core.text import line
from postroom.desk.desk import Desk
from postroom.desk.outbox import MAX_AGENT, Call, Trace, check_name
from postroom.store.entries import Line
from postroom.tools.table import (
    Contract,
    Heard,
    Reply,
    Result,
    Tool,
    Visit,
    Wait,
    Waiting,
    refusal,
)
from postroom.tools.wire import Wire, standard_output

if TYPE_CHECKING:
    from postroom.agents.mailbox import Taken

THREADS: Final = 8  # calls that work at once; the others wait for their turn
GRACE: Final = 5.0  # seconds that calls have to end when the server is told to
LAST: Final = 3.0  # and to write what is left to be written
PUBLISH: Final = 0.5  # seconds after which the log file shows what was read
WATCH: Final = 1.0  # seconds between two looks at whether the client still listens
NAMELESS: Final = "unnamed"
RESOURCE_NOT_FOUND: Final = -32002

log = logging.getLogger("postroom")
Context = ServerRequestContext[Any, Any]
T = TypeVar("T")


class Office(Protocol):
    """Where calls go: the desk, opened when it is first needed, and what is known without it."""

    accounts: tuple[str, ...]
    default_account: str
    room: str  # the folder of the vault that holds what is Postroom's, with a slash; or nothing

    def desk(self) -> Desk:
        """Return the desk, or raise what is wrong with it."""
        ...

    def close(self) -> None:
        """Close it, if it was opened."""
        ...


class Door(NamedTuple):
    """By whose token a request came in, and the names that tokens carry, which nobody else may have."""

    agent: str = ""
    taken: frozenset[str] = frozenset()


class Service:
    """A contract's tools, served for one agent, or for each client under its own name."""

    def __init__(self, contract: Contract, office: Office, *, agent: str = "") -> None:
        self._office = office
        self._agent = agent
        self._tools = {
            tool.name: tool.of_accounts(office.accounts, office.default_account)
            if contract.accounts and tool.actor == "email_mcp"
            else tool
            for tool in contract.tools
        }
        self._contract = contract
        self._resources = {resource.scheme: resource for resource in contract.resources}
        self._threads = anyio.CapacityLimiter(THREADS)
        self._working = 0
        self._waiting: set[Waiting | None] = set()
        self._calls: list[Call] = []  # that are not answered yet
        self._worked = anyio.Event()
        self._wire: Wire | None = None
        self.server: Server[Any] = Server(
            contract.about.name,
            version=contract.about.version,
            title=contract.about.title,
            description=contract.about.description,
            instructions=contract.instructions.replace("{room}", office.room),
            lifespan=self._open,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
        )

    # What there is

    async def _list_tools(self, _: Context, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(map(_described, self._tools.values())))

    async def _list_resources(self, ctx: Context, _: object) -> types.ListResourcesResult:
        call = Call("list_resources", self._name(ctx))
        try:
            found = await self._work(lambda: self._open_letters(call))
        except PostroomError as error:
            raise _protocol_error(types.INTERNAL_ERROR, error) from None
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=f"letter://{letter.id}", name=letter.id, mime_type="text/plain")
                for letter in found
                if "letter" in self._resources
            ]
        )

    def _open_letters(self, call: Call) -> list[Line]:
        check_name(call)
        return self._office.desk().ledger.lines(agent=call.agent, newest=50)

    async def _list_templates(self, _: Context, __: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=f"{resource.scheme}://{{id}}",
                    name=resource.scheme,
                    title=resource.title,
                    description=resource.text,
                    mime_type="text/plain",
                )
                for resource in self._resources.values()
            ]
        )

    async def _list_prompts(self, _: Context, __: object) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])

    # Calls

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(
                code=types.INVALID_PARAMS, message=f"Unknown tool: {line(params.name)[:80]}"
            )
        began = time.monotonic()
        trace = Trace(lambda: time.monotonic() - began)
        if self._wire:
            self._wire.expire()
        name, named = self._called(ctx)
        call = Call(tool.name, name, tool.actor, trace, _visit(ctx), named)
        error = None
        self._calls.append(call)
        try:
            reply = await self._answer(ctx, tool, call, params.arguments or {})
        except PostroomError as refused:
            error, reply = refused, self._contract.refuse(tool.name, refused)
        finally:
            self._calls.remove(call)
        if heard := self._contract.heard:
            seconds = time.monotonic() - began
            about = partial(Heard, tool.name, refused=reply.refused, error=error, seconds=seconds)
            with suppress(PostroomError):  # the answer is there, whatever becomes of its log
                await self._work(lambda: heard(about(live=self._live())))
        values = reply.result.model_dump(by_alias=True, exclude_defaults=True)
        if reply.handover:
            await self._hand(ctx, reply.handover)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=reply.text)],
            structured_content=values,
            is_error=reply.refused,
        )

    async def _hand(self, ctx: Context, handover: Taken) -> None:
        """Have a handover confirmed when its answer was written; where that is not seen, now."""
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()  # then nothing will be answered
        except BaseException:
            handover.release()
            raise
        if self._wire is not None and ctx.request_id is not None:
            self._wire.expect(ctx.request_id, handover)
            return
        # By a thread of its own: those of the calls may all be waiting for this very handover.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(handover.confirm)
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(handover.take_back)
            raise

    def _live(self) -> bool:
        try:
            return self._office.desk().rules.live
        except PostroomError:  # which the answer tells; nothing can be sent
            return False

    async def _answer(self, ctx: Context, tool: Tool, call: Call, given: dict[str, Any]) -> Reply:
        begun: list[Waiting | None] = []

        def begin() -> Reply | float:
            begun.append(None)
            asked = tool.parse(given)
            account = getattr(asked, "account", "")
            found = tool.function(Visit(self._office.desk(), call, account), asked)
            if isinstance(found, Reply | Result):
                return tool.reply(found)
            begun[0] = found
            self._waiting.add(found)
            return _next(tool, found)

        waited = 0.0
        try:
            step = await self._work(begin, call)
            while not isinstance(step, Reply):
                if isinstance(step, Wait):
                    await ctx.session.report_progress(step.done, step.total, step.told)
                    await anyio.sleep(step)
                for second in _seconds(step) if not isinstance(step, Wait) else ():
                    await ctx.session.report_progress(waited, message="Waiting.")
                    await anyio.sleep(second)
                    waited += second
                running = begun[0]
                assert running is not None
                step = await self._work(partial(_next, tool, running), call)
        except PostroomError:
            raise
        except BaseException:  # given up by the client, a call still leaves its line
            with anyio.CancelScope(shield=True), suppress(PostroomError):
                await self._work(lambda: self._given_up(begun, call), call)
            raise
        finally:
            self._waiting.difference_update(begun)
        return step

    def _given_up(self, begun: list[Waiting | None], call: Call) -> None:
        if not begun:
            self._record(call, Unavailable("The client gave it up before it was begun"))
        elif begun[0] is not None:
            begun[0].close()

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        scheme, _, id = uri.partition("://")
        resource = self._resources.get(scheme)
        if resource is None or not id:
            raise MCPError(
                code=_not_found(ctx), message="Resource not found", data={"uri": uri[:200]}
            )
        call = Call(resource.action, self._name(ctx))
        try:
            text = await self._work(
                lambda: resource.function(Visit(self._office.desk(), call), id.rstrip("/")), call
            )
        except PostroomError as error:
            code = _not_found(ctx) if isinstance(error, NotFound) else types.INTERNAL_ERROR
            raise _protocol_error(code, error) from None
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)]
        )

    async def _work(self, function: Callable[[], T], call: Call | None = None) -> T:
        """Do this in a thread; whatever goes wrong is one of our errors, and has its line."""
        self._working += 1
        try:
            # Not given up when the client cancels: what was begun is brought to its end.
            return await anyio.to_thread.run_sync(
                lambda: self._guarded(function, call), limiter=self._threads
            )
        finally:
            self._working -= 1
            self._worked.set()

    def _guarded(self, function: Callable[[], T], call: Call | None) -> T:
        try:
            return function()
        except PostroomError as error:
            self._record(call, error)
            raise
        except Exception as bug:  # noqa: BLE001 - a bug is told too, by its kind and place
            wrong = unexpected(bug, remedy="Tell the person what this says.")
            log.error(wrong.message)  # noqa: TRY400 - not its text, which may be a mail's
            self._record(call, wrong)
            raise wrong from None

    def _record(self, call: Call | None, error: PostroomError) -> None:
        if call is None or error.logged:
            return
        with suppress(Exception):  # the desk itself may be what is wrong
            self._office.desk().outbox.record(call, error=error, synced=False)

    def _name(self, ctx: Context) -> str:
        return self._called(ctx)[0]

    def _called(self, ctx: Context) -> tuple[str, bool]:
        """Return who calls: by the person's word, else as the client calls itself; and which it is."""
        client = ctx.session.client_params
        if client is None and not _is_modern(ctx):
            raise MCPError(code=types.INVALID_REQUEST, message="Call `initialize` first")
        door = getattr(ctx.request, "scope", {}).get("postroom.door", Door())
        if door.agent or self._agent:
            return door.agent or self._agent, True
        name = line(client.client_info.name if client else "")[:MAX_AGENT].strip() or NAMELESS
        if name.casefold() in door.taken:
            raise MCPError(
                code=types.INVALID_REQUEST,
                message=f"A client that calls itself {name} needs the token of that name",
            )
        return name, False

    # Running

    @asynccontextmanager
    async def _open(self, _: Server[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._publish)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _publish(self) -> None:
        """Bring the log file up to the ledger after what was only read."""
        while True:
            await self._worked.wait()
            await anyio.sleep(PUBLISH)
            self._worked = anyio.Event()
            self._working += 1
            with suppress(Exception):  # the next look writes it; nothing here ends the server
                await anyio.to_thread.run_sync(lambda: self._office.desk().publish())
            self._working -= 1

    async def stdio(self) -> None:
        """Serve one client on standard input and output, until it is gone."""
        with standard_output() as wire:
            self._wire = wire
            # The SDK asks for no more of a file than this one does.
            async with stdio_server(stdout=cast("anyio.AsyncFile[str]", wire)) as (come, go):
                options = self.server.create_initialization_options()
                await self.server.run(_Answering(come, go), go, options)

    def app(self, hosts: Sequence[str]) -> Starlette:
        """Return the server as an application for HTTP, which answers to these names alone."""
        security = TransportSecuritySettings(
            allowed_hosts=list(hosts), allowed_origins=[f"http://{host}" for host in hosts]
        )
        return self.server.streamable_http_app(transport_security=security)

    async def settle(self) -> None:
        """Wait for the calls that are at work, but not for long."""
        with anyio.move_on_after(GRACE):
            while self._working or (self._wire and self._wire.writing):
                await anyio.sleep(0.02)

    def close(self) -> None:
        """Let what waits leave its line, bring the log file up to the ledger, let go of everything."""
        if self._wire:
            self._wire.release()
        for waiting in filter(None, list(self._waiting)):
            with suppress(Exception):  # one that is at work just now ends by itself, or by a crash
                waiting.close()
        ended = Unavailable("The server was told to end before it had done this")
        with suppress(Exception):  # the ledger may be what keeps them: then they leave no line
            for call in list(self._calls):
                self._office.desk().outbox.record(call, error=ended, synced=False)
        with suppress(Exception):
            if self._worked.is_set():
                self._office.desk().publish()
        self._office.close()


class _Answering:
    """What comes in, of which a request that does not parse is answered: the SDK would drop it."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:  # noqa: ANN401 - the SDK's streams
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        while isinstance(found := await self._incoming.receive(), ValidationError):
            id = _request_id(found)
            if id is not None:
                said = types.ErrorData(code=types.INVALID_REQUEST, message="Invalid message")
                error = types.JSONRPCError(jsonrpc="2.0", id=id, error=said)
                await self._outgoing.send(SessionMessage(error))
        message: SessionMessage | Exception = found
        return message

    @property
    def last_context(self) -> object:
        """The context of the message that came last."""
        return self._incoming.last_context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close it."""
        await self._incoming.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _request_id(wrong: ValidationError) -> str | int | None:
    """Return the id of a request that does not parse, if it can be made out."""
    try:
        found = json.loads(wrong.errors(include_url=False)[0]["input"])
        id = found["id"] if isinstance(found["method"], str) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return id if type(id) is int or (isinstance(id, str) and id.isprintable()) else None


def run_stdio(service: Service) -> None:
    """Serve on standard input and output until the client goes, or a signal comes."""
    anyio.run(_serve_stdio, service)
    _leave(service)


async def _serve_stdio(service: Service) -> None:
    outgoing = os.dup(sys.stdout.fileno())  # the SDK leads the number itself elsewhere
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            await service.settle()
            _leave(service)

        async def at_a_signal() -> None:
            with anyio.open_signal_receiver(
                signal.SIGTERM, signal.SIGINT, signal.SIGHUP
            ) as signals:
                async for _ in signals:
                    await leave()

        async def when_nobody_listens() -> None:
            watch = select.poll()
            watch.register(outgoing, 0)  # of a pipe whose reader is gone, an error is reported
            while not watch.poll(0):
                await anyio.sleep(WATCH)
            await leave()

        group.start_soon(at_a_signal)
        group.start_soon(when_nobody_listens)
        try:
            await service.stdio()
        except* (BrokenPipeError, ConnectionResetError, anyio.BrokenResourceError):
            pass  # the client is gone: nothing is wrong, and nobody to tell
        group.cancel_scope.cancel()


def _leave(service: Service) -> NoReturn:
    """End the process, without waiting for the thread that still reads standard input."""
    # Nor for long where the ledger is held by another process: what a crash leaves, recovery takes up.
    closing = threading.Thread(target=service.close, daemon=True)
    closing.start()
    closing.join(LAST)
    with suppress(OSError, ValueError, AttributeError):  # there may be none
        sys.stderr.flush()
    os._exit(0)


def _visit(ctx: Context) -> str | None:
    """Return what tells this client from others over HTTP; on stdio there is only one."""
    request = ctx.request
    return "" if request is None else request.headers.get("mcp-session-id")


def _seconds(time: float) -> Iterator[float]:
    """Yield a time to wait in pieces that are short enough to be told of."""
    while time > 0:
        yield min(time, 1.0)
        time -= 1.0


def _next(tool: Tool, running: Waiting) -> float | Reply:
    try:
        return next(running)
    except StopIteration as done:
        return tool.reply(done.value)


def _described(tool: Tool) -> types.Tool:
    told, answered = tool.schemas
    hints = tool.hints
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.text,
        input_schema=told,
        output_schema=answered,
        # What is not said is as the protocol has it: it may write, and writing again does more. Of what
        # only reads, the two in the middle say nothing.
        annotations=types.ToolAnnotations(
            read_only_hint=hints.read_only or None,
            destructive_hint=None if hints.read_only else hints.destructive,
            idempotent_hint=None if hints.read_only else hints.idempotent or None,
            open_world_hint=hints.open_world,
        ),
    )


def _protocol_error(code: int, error: PostroomError) -> MCPError:
    return MCPError(code=code, message=refusal("", error).text)


def _not_found(ctx: Context) -> int:
    # 2026-07-28 calls an unknown resource an invalid parameter; the versions before it have a code.
    return types.INVALID_PARAMS if _is_modern(ctx) else RESOURCE_NOT_FOUND


def _is_modern(ctx: Context) -> bool:
    """Whether each request carries its protocol version itself, and no handshake comes before it."""
    return ctx.protocol_version >= "2026"
