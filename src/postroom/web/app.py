"""The addresses of the page, the guard in front of them, and signing in and out."""

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

from postroom.core.errors import Denied, Limited, PostroomError
from postroom.web.handlers import Handlers
from postroom.web.request import (
    AppContext,
    Form,
    PageRequest,
    error_page,
    page,
    read_form,
    redirect,
)
from postroom.web.sessions import HEADERS, BrowserSession, Sessions, used_ticket
from postroom.web.templates import STATIC, STATIC_TYPES

MAX_SLOW: Final = 4  # slow pages at once: a conversation, a long log
SIGN_OUT: Final = "/out"  # works without the passphrase
MAX_SIGN_IN: Final = 20_000  # bytes of the form of a browser that is not signed in
COOKIE_SECONDS: Final = 30 * 86_400
# A path on this host, whatever a browser makes of it.
_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")

Handler = Callable[[PageRequest], Response]


def build_app(context: AppContext) -> ASGIApp:
    """Return the page as an ASGI application."""
    desk, sign_in = Handlers(context), SignInHandlers(context)
    gets: dict[str, Handler] = {
        "/": desk.queue,
        "/letter/{id}": desk.letter,
        "/letter/{id}/edit": desk.edit,
        "/letter/{id}/source": desk.plain,
        "/letter/{id}/text": desk.plain,
        "/letter/{id}/file/{at:int}": desk.file,
        "/history": desk.history,
        "/agents": desk.agents,
        "/health": desk.health,
    }
    slow_gets = {
        "/letter/{id}/thread": desk.thread,
        "/history/chain": desk.chain,
        "/health/mail": desk.mail_health,
    }
    verdicts = ("reject", "revise", "undo", "reopen", "resolve")
    posts: dict[str, Handler] = {
        "/letter/{id}/approve": desk.approve,
        **{f"/letter/{{id}}/{event}": desk.decide for event in verdicts},
        "/letter/{id}/edit": desk.edit,
        "/letter/{id}/preview": desk.preview,
        "/letter/{id}/change": desk.change,
        "/unlock": sign_in.unlock,
        SIGN_OUT: sign_in.sign_out,
    }
    limiter = anyio.CapacityLimiter(MAX_SLOW)
    routes = [
        *(Route(path, _signed_in(context, act), methods=["POST"]) for path, act in posts.items()),
        *(Route(path, _signed_in(context, act)) for path, act in gets.items()),
        *(Route(path, _signed_in(context, act, limiter)) for path, act in slow_gets.items()),
        Route("/in/{ticket}", sign_in.form),
        Route("/in", sign_in.submit, methods=["POST"]),
        Route("/events", sign_in.events),
        Route("/static/{name}", _static),
    ]
    errors = {404: _not_found, 405: _not_found, 500: _unexpected, PostroomError: error_page}
    return RequestGuard(Starlette(routes=routes, exception_handlers=errors), context.sessions)


class RequestGuard:
    """Refuses requests for other hosts and forms of other pages, and adds the security headers to every answer."""

    def __init__(self, inner: ASGIApp, sessions: Sessions) -> None:
        self.inner = inner
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.encode() not in present:
                        message["headers"].append((name.encode(), value.encode()))
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal:
            answer = Response(refusal, 403, media_type="text/plain")
            await answer(scope, receive, send_with_headers)
            return
        await self.inner(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> str:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._sessions.is_own_host(hosts[0]):
            return f"This desk answers only at {self._sessions.address}.\n"
        is_form = request.method not in {"GET", "HEAD"}
        if is_form and not self._sessions.is_own_form(request.headers):
            return "This request did not come from a page of the desk. Load the page again.\n"
        return ""


def _signed_in(
    context: AppContext, act: Handler, limiter: anyio.CapacityLimiter | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for browsers that are signed in, with the token in every form and unlocked where required."""

    async def endpoint(request: Request) -> Response:
        cookie = request.cookies.get(context.sessions.cookie, "")
        session = await anyio.to_thread.run_sync(context.sessions.find, cookie)
        if session is None:  # nothing more is read of the request
            return page("signed_out.html", 401)
        form = await read_form(request) if request.method == "POST" else {}
        inner = PageRequest(request, session, form)
        return await anyio.to_thread.run_sync(_handle, context, inner, act, limiter=limiter)

    return endpoint


def _handle(context: AppContext, request: PageRequest, act: Handler) -> Response:
    sessions, session, form = context.sessions, request.session, dict(request.form)
    token, is_form = form.pop("token", "").encode(), request.http.method == "POST"
    if is_form and not hmac.compare_digest(token, session.token.encode()):
        raise Denied("The form has no valid token", remedy="Load the page again.")
    passphrase = form.pop("passphrase", None)
    if sessions.is_locked(session) and request.http.url.path != SIGN_OUT:
        if not passphrase:
            return _locked_page(request.http, session, form)
        try:
            sessions.unlock(session, passphrase)
        except (Denied, Limited) as error:
            return _locked_page(request.http, session, form, error.message_with_remedy)
    if not request.is_automatic:
        sessions.record_activity(session)
    return act(replace(request, form=form))


def _locked_page(
    request: Request, session: BrowserSession, form: Form, problem: str = ""
) -> Response:
    """Return the page that asks for the passphrase, and then continues with this request."""
    action, fields = request.url.path, dict(form)
    if request.method != "POST":
        query = f"?{request.url.query}" if request.url.query else ""
        action, fields = "/unlock", {"next": request.url.path + query}
    fields["token"] = session.token
    return page("locked.html", 401, action=action, fields=fields, error=problem)


async def _not_found(_request: Request, _error: Exception) -> Response:
    return page("error.html", 404, title="Not found", cause="There is no such page.", remedy="")


async def _unexpected(_request: Request, error: Exception) -> Response:
    cause = f"Something unexpected happened ({type(error).__name__}). Nothing was lost."
    remedy = "Load the page again. The terminal that serves it shows more."
    return page("error.html", 500, title="Unexpected error", cause=cause, remedy=remedy)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC_TYPES:
        return Response(status_code=404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(STATIC[name], media_type=STATIC_TYPES[name], headers=headers)


class SignInHandlers:
    """Signing in and out, unlocking, and the stream of changes."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._sessions = context.sessions

    def form(self, request: Request) -> Response:
        """Show the form to which a sign-in address leads."""
        ticket = request.path_params["ticket"]
        if self._sessions.is_valid_ticket(ticket):
            with_passphrase = self._sessions.needs_passphrase
            return page("sign_in.html", ticket=ticket, needs_passphrase=with_passphrase, error="")
        if self._sessions.find(request.cookies.get(self._sessions.cookie, "")):
            return redirect("/")  # signed in already, perhaps by this very address
        raise used_ticket()

    async def submit(self, request: Request) -> Response:
        """Sign a browser in."""
        form = await read_form(request, MAX_SIGN_IN)
        return await anyio.to_thread.run_sync(self._submit, form)

    def _submit(self, form: Form) -> Response:
        ticket = form.get("ticket", "")
        try:
            session = self._sessions.sign_in(ticket, form.get("passphrase", ""))
        except (Denied, Limited) as error:
            if not self._sessions.is_valid_ticket(ticket):
                raise
            # A mistyped passphrase does not use the address up.
            problem = error.message_with_remedy
            return page("sign_in.html", 403, ticket=ticket, needs_passphrase=True, error=problem)
        answer = redirect("/")
        answer.set_cookie(
            self._sessions.cookie,
            session.secret,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._sessions.is_https,
        )
        return answer

    def unlock(self, request: PageRequest) -> Response:
        """Lead back to the page that was asked for before it was locked."""
        path = request.form.get("next", "/")
        return redirect(path if _OWN_PATH.fullmatch(path) else "/")

    def sign_out(self, request: PageRequest) -> Response:
        """End the session."""
        self._sessions.sign_out(request.session)
        self._context.feed.notify()
        answer = redirect("/")
        secure = self._sessions.is_https
        answer.delete_cookie(self._sessions.cookie, httponly=True, samesite="strict", secure=secure)
        return answer

    async def events(self, request: Request) -> Response:
        """Stream every change to a page for as long as its browser is signed in and unlocked."""
        cookie = request.cookies.get(self._sessions.cookie, "")
        if not await anyio.to_thread.run_sync(self._is_allowed, cookie):
            return Response(status_code=401)
        stream = self._context.feed.stream(lambda: self._is_allowed(cookie))
        return StreamingResponse(stream, media_type="text/event-stream")

    def _is_allowed(self, cookie: str) -> bool:
        try:
            session = self._sessions.find(cookie)
            return session is not None and not self._sessions.is_locked(session)
        except PostroomError:
            return False
