"""The addresses of the page, the walls around them, and the way in and out."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.core.errors import Denied, Invalid, Limited, PostroomError
from postroom.web import pages
from postroom.web.counter import Counter
from postroom.web.door import HEADERS, Door, Visitor, spent
from postroom.web.request import Form, Post, Setup, failed, page, read_form, to

SLOW: Final = 4  # pages at once that wait for others: a provider, a long log
OUT: Final = "/out"  # which nobody is kept from
MAX_SIGN_IN: Final = 20_000  # bytes that are read of somebody who was not let in yet
# On this host, whatever a browser makes of it.
_HERE: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")

Handler = Callable[[Post], Response]


def app(setup: Setup) -> ASGIApp:
    """Return the page as a server takes it."""
    desk, entrance = Counter(setup), _Entrance(setup)
    gets = {
        "/": desk.queue,
        "/letter/{id}": desk.letter,
        "/letter/{id}/edit": desk.edit,
        "/letter/{id}/source": desk.source,
        "/letter/{id}/text": desk.text,
        "/letter/{id}/file/{at:int}": desk.file,
        "/history": desk.history,
        "/agents": desk.agents,
        "/health": desk.health,
    }
    posts = {
        "/letter/{id}/approve": desk.approve,
        "/letter/{id}/reject": desk.reject,
        "/letter/{id}/revise": desk.revise,
        "/letter/{id}/undo": desk.undo,
        "/letter/{id}/resolve": desk.resolve,
        "/letter/{id}/reopen": desk.reopen,
        "/letter/{id}/edit": desk.edit,
        "/letter/{id}/preview": desk.preview,
        "/letter/{id}/change": desk.change,
        "/unlock": entrance.unlock,
        OUT: entrance.out,
    }
    few = anyio.CapacityLimiter(SLOW)
    slow = {
        "/letter/{id}/thread": desk.thread,
        "/history/chain": desk.chain,
        "/health/mail": desk.mail_health,
    }
    routes = [Route(path, _guarded(setup, act)) for path, act in gets.items()]
    routes += [Route(path, _guarded(setup, act, few)) for path, act in slow.items()]
    routes = [
        *(Route(path, _guarded(setup, act), methods=["POST"]) for path, act in posts.items()),
        *routes,
        Route("/in/{ticket}", entrance.sign_in),
        Route("/in", entrance.enter, methods=["POST"]),
        Route("/events", entrance.events),
        Route("/static/{name}", _static),
    ]
    return _Walls(Starlette(routes=routes, exception_handlers={404: _nothing, 405: _nothing, 500: _broken}), setup.door)  # fmt: skip


class _Walls:
    """Refuses who does not come by an address of ours, and says on every answer what a browser may do with it."""

    def __init__(self, inner: ASGIApp, door: Door) -> None:
        self._inner = inner
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request = Request(scope)

        async def sealed(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.encode() not in given:
                        message["headers"].append((name.encode(), value.encode()))
            await send(message)

        refused = self._refused(request)
        if refused:
            await Response(refused, 403, media_type="text/plain")(scope, receive, sealed)
            return
        await self._inner(scope, receive, sealed)

    def _refused(self, request: Request) -> str:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._door.greets(hosts[0]):
            return f"This desk answers at {self._door.address} alone.\n"
        if request.method not in {"GET", "HEAD"} and not self._door.trusts(request.headers):
            return "This did not come from a page of the desk. Load the page again.\n"
        return ""


def _guarded(
    setup: Setup, act: Handler, limiter: anyio.CapacityLimiter | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Let only those in who were let in, with their token on every post, and their passphrase where it is due."""

    async def serve(request: Request) -> Response:
        cookie = request.cookies.get(setup.door.cookie, "")
        try:
            visitor = await anyio.to_thread.run_sync(setup.door.visitor, cookie)
            if visitor is None:  # of whom nothing more is read
                return page(pages.stranger(), 401)
            form = await read_form(request) if request.method == "POST" else {}
        except PostroomError as wrong:
            return failed(wrong)
        post = Post(request, visitor, form)
        return await anyio.to_thread.run_sync(_let_in, setup, post, act, limiter=limiter)

    return serve


def _let_in(setup: Setup, post: Post, act: Handler) -> Response:
    door, visitor, form = setup.door, post.visitor, dict(post.form)
    try:
        given = form.pop("token", "").encode()
        if post.request.method == "POST" and not hmac.compare_digest(given, visitor.token.encode()):
            raise Denied("The post bears no token of this page", remedy="Load the page again.")
        passphrase = form.pop("passphrase", None)
        if door.locked(visitor) and post.request.url.path != OUT:
            if not passphrase:
                return _locked(post.request, visitor, form)
            try:
                door.unlock(visitor, passphrase)
            except (Denied, Limited) as wrong:
                return _locked(post.request, visitor, form, wrong.message_with_remedy)
        if not post.by_itself:
            door.stir(visitor)
        return act(replace(post, form=form))
    except PostroomError as wrong:
        return failed(wrong)


def _locked(request: Request, visitor: Visitor, form: Form, wrong: str = "") -> Response:
    action, fields = request.url.path, dict(form)
    if request.method != "POST":
        query = f"?{request.url.query}" if request.url.query else ""
        action, fields = "/unlock", {"next": request.url.path + query}
    return page(pages.lock(action, fields | {"token": visitor.token}, wrong=wrong), 401)


async def _nothing(_request: Request, _why: Exception) -> Response:
    return page(pages.trouble("Not found", "There is no such page.", ""), 404)


async def _broken(_request: Request, why: Exception) -> Response:
    cause = f"Something unexpected went wrong ({type(why).__name__}). Nothing was lost."
    return page(pages.trouble("That should not happen", cause, "Load the page again; the terminal that serves it says more."), 500)  # fmt: skip


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in pages.TYPES:
        return Response(status_code=404)
    kept = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(pages.STATIC[name], media_type=pages.TYPES[name], headers=kept)


class _Entrance:
    """Coming and going."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._door = setup.door

    async def sign_in(self, request: Request) -> Response:
        ticket = request.path_params["ticket"]
        cookie = request.cookies.get(self._door.cookie, "")
        return await anyio.to_thread.run_sync(self._sign_in, ticket, cookie)

    def _sign_in(self, ticket: str, cookie: str) -> Response:
        try:
            if not self._door.expects(ticket):
                if self._door.visitor(cookie):  # who is in already, perhaps by this very address
                    return to("/")
                raise spent()
            return page(pages.sign_in(ticket, passphrase=self._door.needs_passphrase))
        except PostroomError as wrong:
            return failed(wrong)

    async def enter(self, request: Request) -> Response:
        try:
            form = await read_form(request, MAX_SIGN_IN)
        except Invalid as wrong:
            return failed(wrong)
        return await anyio.to_thread.run_sync(self._enter, form)

    def _enter(self, form: Form) -> Response:
        ticket = form.get("ticket", "")
        try:
            visitor = self._door.enter(ticket, form.get("passphrase", ""))
        except PostroomError as wrong:
            # A slip of the fingers does not use the address up.
            if isinstance(wrong, Denied | Limited) and self._door.expects(ticket):
                return page(
                    pages.sign_in(ticket, passphrase=True, wrong=wrong.message_with_remedy), 403
                )
            return failed(wrong)
        answer = to("/")
        answer.set_cookie(
            self._door.cookie,
            visitor.secret,
            max_age=30 * 86_400,
            httponly=True,
            samesite="strict",
            secure=self._door.origin.startswith("https:"),
        )
        return answer

    def unlock(self, post: Post) -> Response:
        wanted = post.form.get("next", "/")
        return to(wanted if _HERE.fullmatch(wanted) else "/")

    def out(self, post: Post) -> Response:
        self._door.leave(post.visitor)
        self._setup.live.tell()
        answer = to("/")
        answer.delete_cookie(self._door.cookie, httponly=True, samesite="strict", secure=self._door.origin.startswith("https:"))  # fmt: skip
        return answer

    async def events(self, request: Request) -> Response:
        """Tell this page of every change, for as long as its browser is let in."""
        cookie = request.cookies.get(self._door.cookie, "")
        if not await anyio.to_thread.run_sync(self._admits, cookie):
            return Response(status_code=401)
        stream = self._setup.live.stream(lambda: self._admits(cookie))
        return StreamingResponse(stream, media_type="text/event-stream")

    def _admits(self, cookie: str) -> bool:
        try:
            visitor = self._door.visitor(cookie)
            return visitor is not None and not self._door.locked(visitor)
        except PostroomError:
            return False
