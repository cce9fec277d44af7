"""Signing in and out, unlocking, and the stream of changes: what a browser does before and beside reading letters."""

from __future__ import annotations

import re
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from postroom.core.errors import Denied, Limited, PostroomError
from postroom.core.values import dataclass
from postroom.desk.desk import Desk
from postroom.web.live import ChangeFeed
from postroom.web.request import Form, PageRequest, page, read_form
from postroom.web.sessions import Sessions, ticket_error

MAX_SIGN_IN: Final = 20_000  # bytes of the form of a browser that is not signed in
COOKIE_SECONDS: Final = 30 * 86_400
# A path on this host, whatever a browser makes of it.
_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")


@dataclass(frozen=True, slots=True)
class SignInPages:
    """The addresses by which a browser is signed in, unlocked, told of changes and signed out."""

    sessions: Sessions
    feed: ChangeFeed

    @property
    def _desk(self) -> Desk:
        return self.sessions.desk

    def form(self, request: Request) -> Response:
        ticket = request.path_params["ticket"]
        if self._desk.reader.sessions.is_ticket_valid(ticket):
            needs_passphrase = self.sessions.needs_passphrase
            return page("sign_in.html", ticket=ticket, needs_passphrase=needs_passphrase, error="")
        if self.sessions.find(request.cookies):
            return RedirectResponse("/", 303)  # signed in already, perhaps by this very address
        raise ticket_error()

    async def submit(self, request: Request) -> Response:
        return await anyio.to_thread.run_sync(self._submit, await read_form(request, MAX_SIGN_IN))

    def _submit(self, form: Form) -> Response:
        ticket = form.get("ticket", "")
        try:
            session = self.sessions.sign_in(ticket, form.get("passphrase", ""))
        except (Denied, Limited) as error:
            if not self._desk.reader.sessions.is_ticket_valid(ticket):
                raise
            # A mistyped passphrase does not use the address up.
            problem = error.message_with_remedy
            return page("sign_in.html", 403, ticket=ticket, needs_passphrase=True, error=problem)
        return self._with_cookie(session.secret, COOKIE_SECONDS)

    def _with_cookie(self, secret: str, seconds: int) -> Response:
        answer, is_https = RedirectResponse("/", 303), self.sessions.is_https
        answer.set_cookie(self.sessions.cookie, secret, seconds, httponly=True, samesite="strict", secure=is_https)  # fmt: skip
        return answer

    def unlock(self, request: PageRequest) -> Response:
        path = request.form.get("next", "/")
        return RedirectResponse(path if _OWN_PATH.fullmatch(path) else "/", 303)

    def sign_out(self, request: PageRequest) -> Response:
        self.sessions.sign_out(request.session)
        self.feed.notify()
        return self._with_cookie("", 0)

    async def events(self, request: Request) -> Response:
        """Stream every change to a page for as long as its browser is signed in and unlocked."""

        def is_allowed() -> bool:
            try:
                session = self.sessions.find(request.cookies)
                return session is not None and not self.sessions.is_locked(session)
            except PostroomError:
                return False

        if not await anyio.to_thread.run_sync(is_allowed):
            return Response(status_code=401)
        return StreamingResponse(self.feed.stream(is_allowed), media_type="text/event-stream")
