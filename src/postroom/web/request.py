"""A request on its way to a handler of the page, and the answer: the guard, the session, the form, errors."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.core.errors import Denied, Invalid, Limited, NotFound, PostroomError
from postroom.core.letter import MAX_TEXT
from postroom.core.values import dataclass
from postroom.web.sessions import HEADERS, BrowserSession, Sessions
from postroom.web.templates import pages, render

# Bytes of a form: a character has up to four, and each is written as three.
MAX_FORM: Final = 12 * MAX_TEXT + 1_000_000
READ_SECONDS: Final = 60.0  # for a whole form
SIGN_OUT: Final = "/out"  # works without the passphrase
# By the code of an error: the status and the title of its page.
ERRORS: Final = {
    "invalid_input": (400, "Not accepted"),
    "auth_required": (401, "Not possible right now"),
    "permission_denied": (403, "Refused"),
    "not_found": (404, "Not found"),
    "conflict": (409, "Already decided or changed"),
    "rate_limited": (429, "Not possible right now"),
}
OTHER_ERROR: Final = (503, "Not possible right now")

Form = dict[str, str]
Handler = Callable[["PageRequest"], Response]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of a browser that is signed in, with the fields of its form."""

    http: Request
    session: BrowserSession
    form: Form

    @property
    def is_automatic(self) -> bool:
        """Whether the page's script or its refresh asks, and not the person."""
        return "x-desk-live" in self.http.headers or "again" in self.http.query_params

    @property
    def id(self) -> str:
        return str(self.http.path_params["id"])

    @property
    def action(self) -> str:
        return self.http.url.path.rpartition("/")[2]

    def page_number(self, total: int) -> int:
        """Return the page that the address asks for, of a list of so many letters."""
        text = self.http.query_params.get("page", "")
        return min(int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else 1, pages(total))

    @property
    def digest(self) -> str:
        """The digest of the letter that the person saw; raises `Invalid` without one."""
        digest = self.form.get("digest", "")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise Invalid("The form does not say which letter you saw", remedy="Load the page again.")  # fmt: skip
        return digest


class RequestGuard:
    """Refuses requests for other hosts and forms of other pages, and adds the security headers to every answer."""

    def __init__(self, inner: ASGIApp, sessions: Sessions) -> None:
        self.inner = inner
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(Request(scope))
        answer = Response(refusal, 403, media_type="text/plain") if refusal else self.inner
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> str:
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._sessions.is_own_host(hosts[0]):
            return f"This desk answers only at {self._sessions.address}.\n"
        if request.method in {"GET", "HEAD"} or self._sessions.is_own_form(request.headers):
            return ""
        return "This request did not come from a page of the desk. Load the page again.\n"


def signed_in(
    sessions: Sessions, act: Handler, limiter: anyio.CapacityLimiter | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint for browsers that are signed in, with the token in every form and unlocked where required."""

    def answer(request: Request) -> Response:
        session = sessions.find(request.cookies)
        return (
            _handle(sessions, PageRequest(request, session, {}), act) if session else signed_out()
        )

    async def endpoint(request: Request) -> Response:
        if request.method != "POST":
            return await anyio.to_thread.run_sync(answer, request, limiter=limiter)
        session = await anyio.to_thread.run_sync(sessions.find, request.cookies)
        if session is None:  # nothing more is read of the request
            return signed_out()
        inner = PageRequest(request, session, await read_form(request))
        return await anyio.to_thread.run_sync(_handle, sessions, inner, act)

    def signed_out() -> Response:
        return page("signed_out.html", 401)

    return endpoint


def _handle(sessions: Sessions, request: PageRequest, act: Handler) -> Response:
    session, form, is_form = request.session, request.form, request.http.method == "POST"
    token, passphrase = form.pop("token", ""), form.pop("passphrase", "")
    if is_form and not hmac.compare_digest(token.encode(), session.token.encode()):
        raise Denied("The form has no valid token", remedy="Load the page again.")
    if sessions.is_locked(session) and request.http.url.path != SIGN_OUT:
        if not passphrase:
            return _locked_page(request)
        try:
            sessions.unlock(session, passphrase)
        except (Denied, Limited) as error:
            return _locked_page(request, error.message_with_remedy)
    if not request.is_automatic:
        sessions.record_activity(session)
    return act(request)


def _locked_page(request: PageRequest, problem: str = "") -> Response:
    """Return the page that asks for the passphrase, and then continues with this request."""
    url, token = request.http.url, request.session.token
    if request.http.method == "POST":
        fields = {**request.form, "token": token}
        return page("locked.html", 401, action=url.path, fields=fields, error=problem)
    path = f"{url.path}?{url.query}" if url.query else url.path
    fields = {"next": path, "token": token}
    return page("locked.html", 401, action="/unlock", fields=fields, error=problem)


async def read_form(request: Request, most: int = MAX_FORM) -> Form:
    """Return the fields of a form of at most `most` bytes; raises `Invalid` for anything else."""
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise Invalid("The form is too large", remedy="Shorten the text.")
    except (ClientDisconnect, TimeoutError) as error:
        raise Invalid("The form was not sent completely") from error
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=100, errors="strict")  # fmt: skip
    except ValueError as error:
        raise Invalid("The request is not a form", remedy="Load the page again.") from error
    if len(dict(fields)) < len(fields):
        raise Invalid("The form has a field twice", remedy="Load the page again.")
    return dict(fields)


def page(template: str, status: int = 200, /, **values: object) -> Response:
    return Response(render(template, **values), status, media_type="text/html; charset=utf-8")


async def error_page(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # no such address, or no such method there
        error = NotFound("There is no such page.")
    if isinstance(error, PostroomError):
        status, title = ERRORS.get(error.code, OTHER_ERROR)
        cause, remedy = error.message, error.remedy
    else:
        status, title = 500, "Unexpected error"
        cause = f"Something unexpected happened ({type(error).__name__}). Nothing was lost."
        remedy = "Load the page again. The terminal that serves it shows more."
    return page("error.html", status, title=title, cause=cause, remedy=remedy)
