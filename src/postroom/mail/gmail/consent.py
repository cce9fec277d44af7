"""The person's consent: Google's page in a browser, and the token that comes of it.

Only `postroom auth gmail` comes here; no server ever opens a browser. The libraries of Google's that
know the flow are imported when it begins.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from postroom.core.errors import AuthRequired, Invalid, PostroomError, Unavailable
from postroom.core.text import one_line
from postroom.mail.gmail.keys import ALLOWS, COMPOSE, MODIFY, READ, SEND, Client

if TYPE_CHECKING:
    from google_auth_oauthlib.flow import InstalledAppFlow

GOOGLES_PAGE: Final = "https://accounts.google.com/o/oauth2/auth"
WAIT: Final = 300  # seconds for the person in the browser
DONE: Final = "You can close this page. The terminal says how it went."

_GOOGLES: Final = re.compile(r"https://accounts\.google\.com/[A-Za-z0-9/._-]*")
_LOOPBACK: Final = re.compile(
    r"http://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?/[A-Za-z0-9/._-]*"
)


class Consent(NamedTuple):
    """What the person agreed to: the token's file as google-auth writes it, and when it ends."""

    token: dict[str, Any]
    lacking: frozenset[str]  # scopes that were asked for and not given
    seconds: int  # until Google ends it; 0 where it does not


def scopes(level: str, *, by_draft: bool) -> tuple[str, ...]:
    """Return the least scopes of Google's that this level needs; all but `read` can send."""
    if level == "modify":
        return (MODIFY,)
    if level == "read":
        return (READ,)
    return (READ, SEND if level == "send" and not by_draft else COMPOSE)


def allowed(given: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return what these scopes let Postroom do, in words."""
    found = frozenset[str]().union(*(ALLOWS.get(scope, frozenset()) for scope in given))
    return tuple(word for word in ("read", "draft", "send", "label") if word in found)


def ask(
    client: Client,
    wanted: tuple[str, ...],
    *,
    token_uri: str,
    pasted: Callable[[str], str] | None,
    say: Callable[[str], None],
) -> Consent:
    """Have the person agree in a browser; `pasted` asks for what a browser elsewhere ended at."""
    from google_auth_oauthlib.flow import InstalledAppFlow
    from oauthlib.oauth2 import OAuth2Error
    from requests.exceptions import RequestException

    page = client.auth_uri or GOOGLES_PAGE
    # A page on this machine only beside a token service on this machine: in tests.
    pages = _LOOPBACK if token_uri.startswith("http://") else _GOOGLES
    if not pages.fullmatch(page):
        raise Invalid(
            "The OAuth client names a page that is not Google's (auth_uri)",
            remedy="Download credentials.json from Google's console again.",
        )
    about = {"client_id": client.id, "client_secret": client.secret}
    config = {"installed": about | {"auth_uri": page, "token_uri": token_uri}}
    flow = InstalledAppFlow.from_client_config(config, list(wanted))
    flow.oauth2session.trust_env = token_uri.startswith("https://")
    try:
        with _lenient(token_uri):
            if pasted is None:
                _by_browser(flow, say)
            else:
                _by_hand(flow, pasted)
    except OAuth2Error as refused:
        raise _refused(str(refused.error)) from None  # its text may hold the code
    except RequestException as why:
        raise Unavailable(
            f"Google cannot be reached ({type(why).__name__})", remedy="Check the network."
        ) from why
    return _consent(flow, wanted)


def _by_browser(flow: InstalledAppFlow, say: Callable[[str], None]) -> None:
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error as none:
        raise Unavailable(
            "There is no browser on this machine",
            remedy="Run it with --no-browser, and open the address elsewhere.",
        ) from none
    with Landing() as landing:
        flow.redirect_uri = landing.address
        address, state = flow.authorization_url(prompt="consent")
        say("A browser opens Google's page. Agree there within five minutes, then come back.")
        say(f"If none opens, this is the address:\n{address}")
        # Beside: a browser in the terminal would wait for an answer that waits for it.
        threading.Thread(target=browser.open, args=(address,), daemon=True).start()
        flow.fetch_token(code=_code(landing.wait(state), state))


class Landing:
    """Where the browser ends: a server on this machine that waits for the one address it knows."""

    def __init__(self) -> None:
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        ended = self._ended = queue.SimpleQueue[str]()

        class Page(BaseHTTPRequestHandler):
            timeout = 10  # of a connection that a browser opens and does not use

            def do_GET(self) -> None:
                known = "state=" in self.path
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.end_headers()
                self.wfile.write(DONE.encode() if known else b"")
                if known:
                    ended.put(f"http://localhost{self.path}")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing: the address holds the code."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Landing:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, state: str) -> str:
        """Return the address of this sign-in at which the browser ended; others are passed over."""
        deadline = time.monotonic() + WAIT
        while (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                address = self._ended.get(timeout=left)
                if parse_qs(urlsplit(address).query).get("state") == [state]:
                    return address
        raise Unavailable(
            f"Nobody agreed in the browser for {WAIT // 60} minutes",
            remedy="Run it again; with --no-browser, on a machine that has none.",
        )


def _by_hand(flow: InstalledAppFlow, pasted: Callable[[str], str]) -> None:
    # Nothing listens there: the browser shows an error, with the code in its address.
    flow.redirect_uri = "http://localhost"
    address, state = flow.authorization_url(prompt="consent")
    flow.fetch_token(code=_code(pasted(address), state))


def _code(text: str, state: str) -> str:
    """Return the code from what was pasted: the code itself, or the address that holds it."""
    plain = text.strip()
    if "://" not in plain:
        if not plain or len(plain.split()) > 1:
            raise Invalid("That is no code", remedy="Run it again, and paste the whole address.")
        return unquote(plain)
    found = {key: values[0] for key, values in parse_qs(urlsplit(plain).query).items()}
    if "error" in found:
        raise _refused(found["error"])
    if found.get("state", state) != state:
        raise Invalid(
            "That address belongs to another sign-in",
            remedy="Run it again, and open the address that it then shows.",
        )
    if "code" not in found:
        raise Invalid("That address holds no code", remedy="Paste the one the browser ended at.")
    return found["code"]


def _refused(error: str) -> PostroomError:
    if error == "access_denied":
        return AuthRequired(
            "Google's page was left without agreeing (access_denied)",
            remedy="Run it again. In testing mode, the account must be one of the app's test users:"
            " docs/gmail.md shows where.",
        )
    if error == "invalid_grant":
        return AuthRequired(
            "Google does not take this code: it is wrong, was used, or is too old",
            remedy="Run it again, and paste the new address.",
        )
    return AuthRequired(
        f"Google refused to sign in: {one_line(error)[:60]}",
        remedy="Check that credentials.json is that of your app, and run it again.",
    )


def _consent(flow: InstalledAppFlow, wanted: tuple[str, ...]) -> Consent:
    credentials = flow.credentials
    if not credentials.refresh_token:
        raise AuthRequired(
            "Google gave no token that can be renewed",
            remedy="Remove the app at myaccount.google.com/permissions, then run it again.",
        )
    given = credentials.granted_scopes or wanted
    token = json.loads(credentials.to_json()) | {"scopes": sorted(given)}
    if not allowed(tuple(given)):
        raise AuthRequired(
            "Nothing was allowed on Google's page", remedy="Run it again, and tick the boxes there."
        )
    seconds = flow.oauth2session.token.get("refresh_token_expires_in", 0)
    ends = int(seconds) if isinstance(seconds, int | str) and str(seconds).isdigit() else 0
    return Consent(token, frozenset(wanted) - frozenset(given), ends)


@contextmanager
def _lenient(token_uri: str) -> Iterator[None]:
    """Let the library take fewer scopes than were asked for; and plain HTTP to this machine itself."""
    wanted = {"OAUTHLIB_RELAX_TOKEN_SCOPE": "1"}
    if token_uri.startswith("http://"):  # the settings allow that on loopback alone
        wanted["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
