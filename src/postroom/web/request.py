"""What a handler of the page is given, and how it answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from postroom.core.errors import Invalid, PostroomError
from postroom.core.letter import MAX_TEXT
from postroom.core.records import Check
from postroom.core.values import dataclass
from postroom.services.services import Services
from postroom.web.live import AutoDispatcher, ChangeFeed
from postroom.web.sessions import BrowserSession, Sessions
from postroom.web.templates import render

# Bytes of a form: a character has up to four, and each is written as three.
MAX_FORM: Final = 12 * MAX_TEXT + 1_000_000
READ_SECONDS: Final = 60.0  # for a whole form
STATUS_CODES: Final = {  # by the code of an error; 503 for every other
    "invalid_input": 400,
    "auth_required": 401,
    "permission_denied": 403,
    "not_found": 404,
    "conflict": 409,
    "rate_limited": 429,
}
_TITLES: Final = {
    400: "Not accepted",
    403: "Refused",
    404: "Not found",
    409: "Already decided or changed",
}
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """What the handlers of the page work with."""

    services: Services
    sessions: Sessions
    feed: ChangeFeed
    dispatcher: AutoDispatcher
    zone: tzinfo
    health: Callable[[], Sequence[Check]]  # the checks that answer at once
    mail_health: Callable[[], Sequence[Check]]  # the checks that ask mail providers


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
        """The id of the letter in the address."""
        return str(self.http.path_params["id"])

    @property
    def action(self) -> str:
        """The name of the form: the last part of the address."""
        return self.http.url.path.rpartition("/")[2]

    @property
    def digest(self) -> str:
        """The digest of the letter that the person saw; raises `Invalid` without one."""
        digest = self.form.get("digest", "")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise Invalid("The form does not say which letter you saw", remedy="Load the page again.")  # fmt: skip
        return digest


async def read_form(request: Request, most: int = MAX_FORM) -> dict[str, str]:
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
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=40, errors="strict")  # fmt: skip
    except ValueError as error:
        raise Invalid("The request is not a form", remedy="Load the page again.") from error
    if len(dict(fields)) < len(fields):
        raise Invalid("The form has a field twice", remedy="Load the page again.")
    return dict(fields)


def status_code(error: PostroomError) -> int:
    """Return the HTTP status of an error."""
    return STATUS_CODES.get(error.code, 503)


def page(template: str, status: int = 200, /, **values: object) -> Response:
    """Return a rendered template as an answer."""
    return Response(render(template, **values), status, media_type="text/html; charset=utf-8")


async def error_page(_request: Request, error: Exception) -> Response:
    """Return an error of Postroom's as a page that says what to do next."""
    assert isinstance(error, PostroomError)
    status = status_code(error)
    title = _TITLES.get(status, "Not possible right now")
    return page("error.html", status, title=title, cause=error.message, remedy=error.remedy)


def redirect(path: str) -> Response:
    """Send a browser to another page, after a form."""
    return RedirectResponse(path, 303)
