"""A contract's tools over the MCP SDK: the server over HTTP, and the oracle that `wire` is compared with in tests.

The protocol runs on one event loop. Each step of a call runs in a thread, of which a few run at once. Over HTTP it
serves clients on this machine that have a token, under the name that the token carries.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import click
import mcp_types as types
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom import __version__
from postroom.core.errors import PostroomError
from postroom.tools.calls import Calls, NoResource, caller_name, protocol_error
from postroom.tools.protocol import Caller, ProtocolError
from postroom.tools.stdio import GRACE
from postroom.tools.table import AnswerDelivery, Reply
from postroom.tools.wire import THREADS

TOKEN_HOLDER: Final = "postroom.token_holder"  # noqa: S105 - a key of a request's scope

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")


class TokenHolder(NamedTuple):
    """Whose token a request came with, and the names of all tokens, which no other client may use."""

    agent: str = ""
    reserved: frozenset[str] = frozenset()


class Service:
    """A contract's tools, served for one agent, or for each client under its own name."""

    def __init__(self, listing: dict[str, Any], calls: Calls, *, agent: str = "") -> None:
        self._agent = agent
        self._calls = calls
        tools = types.ListToolsResult.model_validate({"tools": listing["tools"]})
        templates = types.ListResourceTemplatesResult.model_validate(
            {"resourceTemplates": listing["resourceTemplates"]}
        )
        self.threads = anyio.CapacityLimiter(THREADS)
        self.server: Server[Any] = Server(
            **{"version": __version__, **listing["server"]},
            instructions=listing["instructions"],
            on_list_tools=_constant(tools),
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=_constant(templates),
            on_read_resource=self._read_resource,
            on_list_prompts=_constant(types.ListPromptsResult(prompts=[])),
        )

    def app(self, hosts: Sequence[str]) -> Starlette:
        """Return the server as an application for HTTP, which answers to these names alone."""
        security = TransportSecuritySettings(
            allowed_hosts=list(hosts), allowed_origins=[f"http://{host}" for host in hosts]
        )
        return self.server.streamable_http_app(transport_security=security)

    def close(self) -> None:
        self._calls.close()

    async def _work(self, function: Callable[[], T]) -> T:
        # Not given up when the client cancels: what was begun is brought to its end.
        return await anyio.to_thread.run_sync(function, limiter=self.threads)

    async def _list_resources(self, ctx: Context, _: object) -> types.ListResourcesResult:
        list_all = partial(self._calls.list_resources, self._caller(ctx))
        with _protocol_errors(ctx):
            return types.ListResourcesResult.model_validate(await self._work(list_all))

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        read = partial(self._calls.read_resource, str(params.uri), self._caller(ctx))
        with _protocol_errors(ctx):
            return types.ReadResourceResult.model_validate(await self._work(read))

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        caller = self._caller(ctx)
        with _protocol_errors(ctx):
            call = self._calls.begin(params.name, params.arguments or {}, caller)
        try:
            while not isinstance(step := await self._work(call.step), Reply):
                await ctx.session.report_progress(step.done, step.total, step.message)
                await anyio.sleep(step.seconds)
        except BaseException:  # cancelled by the client, a call still leaves its line
            with anyio.CancelScope(shield=True):
                await self._work(call.abandon)
            raise
        if step.delivery:
            await self._deliver(step.delivery)
        return types.CallToolResult.model_validate(step.content)

    async def _deliver(self, delivery: AnswerDelivery) -> None:
        """Mark a message as read before its answer, since nobody sees an answer leave over HTTP."""
        with delivery:
            await anyio.lowlevel.checkpoint_if_cancelled()  # then nothing will be answered
        # By a thread of its own: those of the calls may all be waiting for this very message.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(delivery.confirm)
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(delivery.take_back)
            raise

    def _caller(self, ctx: Context) -> Caller:
        """Return who calls: as the person calls the client, else as the client calls itself."""
        client = ctx.session.client_params
        if client is None and not _has_envelope(ctx):
            raise MCPError(code=types.INVALID_REQUEST, message="Call `initialize` first")
        holder = getattr(ctx.request, "scope", {}).get(TOKEN_HOLDER, TokenHolder())
        # What tells clients of one name apart over HTTP; empty for the one client of this process. A message in an
        # envelope has no session that the SDK checked, whatever its header claims.
        session: str | None = ""
        if ctx.request is not None:
            claimed = ctx.request.headers.get("mcp-session-id")
            session = None if _has_envelope(ctx) else claimed or None
        if holder.agent or self._agent:
            return Caller(holder.agent or self._agent, named=True, session=session)
        caller = Caller(client.client_info.name if client else "", session=session)
        name = caller_name(caller)
        if name.casefold() in holder.reserved:
            raise MCPError(
                code=types.INVALID_REQUEST,
                message=f"A client that calls itself {name} needs the token of that name",
            )
        return caller


def _constant(result: T) -> Callable[[Context, object], Awaitable[T]]:
    async def answer(_: Context, __: object) -> T:
        return result

    return answer


@contextmanager
def _protocol_errors(ctx: Context) -> Iterator[None]:
    try:
        yield
    except (NoResource, PostroomError, ProtocolError) as error:
        body: dict[str, Any] = protocol_error(error, has_envelope=_has_envelope(ctx)).body
        raise MCPError(**body) from None


def _has_envelope(ctx: Context) -> bool:
    """Whether each request carries its protocol version itself, and no handshake comes before it."""
    return ctx.protocol_version >= "2026"


LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
NO_TOKEN: Final = "A bearer token is needed: `postroom init` has made one."  # noqa: S105 - a sentence


class BearerAuth:
    """Lets clients in by their tokens, and says whose each is; the SDK keeps each to the sessions that it began."""

    def __init__(self, app: ASGIApp, tokens: Callable[[], Mapping[str, str]]) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        known = self._tokens()
        token = _token(Headers(scope=scope).get("authorization", ""), known)
        if token is None:
            refusal = JSONResponse({"error": NO_TOKEN}, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        user = AuthenticatedUser(AccessToken(token=token, client_id=known[token], scopes=[]))
        reserved = frozenset(name.casefold() for name in known.values() if name)
        holder = TokenHolder(known[token], reserved)
        await self._app({**scope, "user": user, TOKEN_HOLDER: holder}, receive, send)


def _token(header: str, known: Mapping[str, str]) -> str | None:
    kind, _, given = header.partition(" ")
    # All of them are compared, and each in constant time.
    secret = given.strip().encode()
    found = [token for token in known if hmac.compare_digest(token.encode(), secret)]
    return found[0] if found and kind.lower() == "bearer" else None


def run_http(
    service: Service, listener: socket.socket, host: str, tokens: Callable[[], Mapping[str, str]]
) -> None:
    """Serve at this host, where somebody listens already, until a signal comes."""
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in (*LOOPBACK, host)]
    config = uvicorn.Config(
        BearerAuth(service.app(hosts), tokens),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE),
    )
    click.echo(f"Serving http://{host}:{port}/mcp", err=True)
    uvicorn.Server(config).run(sockets=[listener])
    service.close()
