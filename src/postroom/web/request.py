"""What an address of the page is given, and what it gives back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from postroom.core.errors import Invalid, PostroomError
from postroom.core.health import Check
from postroom.core.letter import MAX_TEXT
from postroom.desk.desk import Desk
from postroom.services.services import Services
from postroom.web import pages
from postroom.web.door import Door, Visitor
from postroom.web.live import Clerk, Live
from postroom.web.markup import Html

MAX_FORM: Final = (
    12 * MAX_TEXT + 1_000_000
)  # bytes of a post: a character has four, each written as three
READ_SECONDS: Final = 60.0  # for a whole post
STATUS: Final = {  # by the code of an error
    "invalid_input": 400,
    "auth_required": 401,
    "permission_denied": 403,
    "not_found": 404,
    "conflict": 409,
    "rate_limited": 429,
}
_TITLES: Final = {
    400: "That is not right",
    403: "Refused",
    404: "Not found",
    409: "Somebody else was first",
}
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the page works with."""

    services: Services
    door: Door
    live: Live
    clerk: Clerk
    zone: tzinfo
    health: Callable[[], Sequence[Check]]  # what can be told at once
    mail_health: Callable[[], Sequence[Check]]  # what others must be asked for

    @property
    def desk(self) -> Desk:
        """The desk that the services stand beside."""
        return self.services.desk


@dataclass(frozen=True, slots=True)
class Post:
    """A request of a browser that was let in, with the fields that it posted."""

    request: Request
    visitor: Visitor
    form: Form

    @property
    def by_itself(self) -> bool:
        """Whether the page asks, and not the person."""
        return "x-desk-live" in self.request.headers or "again" in self.request.query_params

    @property
    def id(self) -> str:
        """The letter that it is about."""
        return str(self.request.path_params["id"])

    @property
    def digest(self) -> str:
        """What the person saw."""
        digest = self.form.get("digest", "")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise Invalid("The post does not say which letter was seen", remedy="Load the page again.")  # fmt: skip
        return digest


async def read_form(request: Request, most: int = MAX_FORM) -> dict[str, str]:
    """Return the posted fields, each once."""
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise Invalid("Too much was posted", remedy="Shorten the text.")
    except (ClientDisconnect, TimeoutError) as gone:
        raise Invalid("The post broke off") from gone
    try:
        found = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=40, errors="strict")  # fmt: skip
    except ValueError as wrong:
        raise Invalid("What was posted is no form", remedy="Load the page again.") from wrong
    if len(dict(found)) < len(found):
        raise Invalid("A field was posted twice", remedy="Load the page again.")
    return dict(found)


def status_of(wrong: PostroomError) -> int:
    """Return the code that an error has over HTTP."""
    return STATUS.get(wrong.code, 503)


def page(content: Html, status: int = 200) -> Response:
    """Return HTML as an answer."""
    return Response(content, status, media_type="text/html; charset=utf-8")


def failed(wrong: PostroomError) -> Response:
    """Return an error as a page that says what to do next."""
    status = status_of(wrong)
    return page(pages.trouble(_TITLES.get(status, "Not now"), wrong.message, wrong.remedy), status)


def to(path: str) -> Response:
    """Send a browser on, after a post."""
    return RedirectResponse(path, 303)
