"""The person's consent: Google's page in a browser, and the token that results.

Only `postroom auth gmail` uses this module; no server ever opens a browser. Google's libraries for the flow are imported
when it begins.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from postroom.core.errors import AuthRequired, Invalid, Unavailable
from postroom.core.text import one_line
from postroom.mail.gmail.oauth import COMPOSE, MODIFY, READ, SCOPES, SEND, OAuthClient

if TYPE_CHECKING:
    from google_auth_oauthlib.flow import InstalledAppFlow

GOOGLES_PAGE: Final = "https://accounts.google.com/o/oauth2/auth"
WAIT: Final = 300  # seconds for the person in the browser
TICK: Final = 0.1  # seconds between two looks whether the browser came back
DONE: Final = "You can close this page. The terminal says how it went."

_GOOGLE: Final = r"https://accounts\.google\.com/[A-Za-z0-9/._-]*"
_LOOPBACK: Final = r"http://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?/[A-Za-z0-9/._-]*"
# What Google's errors mean, and what to do.
_ERRORS: Final = {
    "access_denied": (
        "You left Google's page without agreeing (access_denied)",
        "Run it again. In testing mode, the account must be one of the app's test users: docs/gmail.md shows where.",
    ),
    "invalid_grant": (
        "Google does not accept this code: it is wrong, was used before, or is too old",
        "Run it again, and paste the new address.",
    ),
}


class Consent(NamedTuple):
    """What the person agreed to: the token's file as google-auth writes it, and when it ends."""

    token: dict[str, Any]
    lacking: frozenset[str]  # scopes that were asked for and not given
    seconds: int  # until Google ends it; 0 if it does not


def scopes(level: str, *, by_draft: bool) -> tuple[str, ...]:
    """Return the smallest scopes of Google's that this level needs; all but `read` can send."""
    needed = {"modify": (MODIFY,), "read": (READ,), "send": (READ, COMPOSE if by_draft else SEND)}
    return needed.get(level, (READ, COMPOSE))


def permissions(given: Iterable[str]) -> tuple[str, ...]:
    """Return what these scopes let Postroom do, in words."""
    found = frozenset[str]().union(*(SCOPES.get(scope, frozenset()) for scope in given))
    return tuple(word for word in ("read", "draft", "send", "label") if word in found)


def ask(
    client: OAuthClient,
    wanted: tuple[str, ...],
    *,
    token_uri: str,
    pasted: Callable[[str], str] | None,
    say: Callable[[str], None],
) -> Consent:
    """Have the person agree in a browser; `pasted` asks for the address at which one elsewhere ended."""
    from google_auth_oauthlib.flow import InstalledAppFlow
    from oauthlib.oauth2 import OAuth2Error
    from requests.exceptions import RequestException

    page, is_local = client.auth_uri or GOOGLES_PAGE, token_uri.startswith("http://")
    # A page on this machine only beside a token service on this machine: in tests.
    if not re.fullmatch(_LOOPBACK if is_local else _GOOGLE, page):
        raise Invalid(
            "The OAuth client names a page that is not Google's (auth_uri)",
            remedy="Download credentials.json from Google's console again.",
        )
    config = {"client_id": client.id, "client_secret": client.secret}
    config |= {"auth_uri": page, "token_uri": token_uri}
    flow = InstalledAppFlow.from_client_config({"installed": config}, list(wanted))
    flow.oauth2session.trust_env = not is_local
    # Lets oauthlib accept fewer scopes than were asked for, and plain HTTP to this machine itself.
    os.environ |= {"OAUTHLIB_RELAX_TOKEN_SCOPE": "1"}
    if is_local:  # the settings allow that on loopback alone
        os.environ |= {"OAUTHLIB_INSECURE_TRANSPORT": "1"}
    try:
        if pasted is None:
            _use_browser(flow, say)
        else:
            # Nothing listens there: the browser shows an error, with the code in its address.
            flow.redirect_uri = "http://localhost"
            address, state = flow.authorization_url(prompt="consent")
            flow.fetch_token(code=_code(pasted(address), state))
    except OAuth2Error as refused:
        raise _refused(str(refused.error)) from None  # its text may hold the code
    except RequestException as error:
        raise Unavailable(
            f"Google cannot be reached ({type(error).__name__})", remedy="Check the network."
        ) from error
    return _consent(flow, wanted)


def _use_browser(flow: InstalledAppFlow, say: Callable[[str], None]) -> None:
    import webbrowser
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    try:
        browser = webbrowser.get()
    except webbrowser.Error as none:
        raise Unavailable(
            "There is no browser on this machine",
            remedy="Run it with --no-browser, and open the address elsewhere.",
        ) from none
    redirects: list[str] = []  # addresses at which the browser ended for this sign-in

    class RedirectHandler(BaseHTTPRequestHandler):
        timeout = 10  # of a connection that a browser opens and does not use

        def do_GET(self) -> None:
            given = parse_qs(urlsplit(self.path).query).get("state")
            self.send_response(200 if given else 404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            self.wfile.write(DONE.encode() if given else b"")
            if given == [state]:
                redirects.append(f"http://localhost{self.path}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing: the address holds the code."""

    with ThreadingHTTPServer(("127.0.0.1", 0), RedirectHandler) as server:
        flow.redirect_uri = f"http://127.0.0.1:{server.server_port}/"
        address, state = flow.authorization_url(prompt="consent")
        say("A browser opens Google's page. Agree there within five minutes, then come back.")
        say(f"If none opens, this is the address:\n{address}")
        # In a thread: a browser in the terminal would wait for an answer that waits for it.
        threading.Thread(target=browser.open, args=(address,), daemon=True).start()
        server.timeout, end = TICK, time.monotonic() + WAIT
        while not redirects and time.monotonic() < end:
            server.handle_request()
    if not redirects:
        raise Unavailable(
            f"Nobody agreed in the browser for {WAIT // 60} minutes",
            remedy="Run it again; with --no-browser, on a machine that has none.",
        )
    flow.fetch_token(code=_code(redirects[0], state))


def _code(text: str, state: str) -> str:
    """Return the code from what was pasted: the code itself, or an address that holds it and this sign-in's `state`."""
    plain = text.strip()
    if "://" not in plain and "?" not in plain:
        if len(plain.split()) != 1:
            raise Invalid("This is not a code", remedy="Run it again, and paste the whole address.")
        return unquote(plain)
    found = {key: values[0] for key, values in parse_qs(urlsplit(plain).query).items()}
    if "error" in found:
        raise _refused(found["error"])
    if "code" not in found:
        raise Invalid("That address holds no code", remedy="Paste the one the browser ended at.")
    if found.get("state") != state:
        raise Invalid(
            "That address belongs to another sign-in",
            remedy="Run it again, open the address that it then shows, and paste the whole one at which the browser ends.",
        )
    return found["code"]


def _refused(error: str) -> AuthRequired:
    why = f"Google refused to sign in: {one_line(error)[:60]}"
    usual = "Check that credentials.json is that of your app, and run it again."
    message, remedy = _ERRORS.get(error, (why, usual))
    return AuthRequired(message, remedy=remedy)


def _consent(flow: InstalledAppFlow, wanted: tuple[str, ...]) -> Consent:
    credentials = flow.credentials
    if not credentials.refresh_token:
        raise AuthRequired(
            "Google gave no token that can be renewed",
            remedy="Remove the app at myaccount.google.com/permissions, then run it again.",
        )
    given = credentials.granted_scopes or wanted
    if not permissions(given):
        raise AuthRequired(
            "Nothing was allowed on Google's page", remedy="Run it again, and tick the boxes there."
        )
    token = json.loads(credentials.to_json()) | {"scopes": sorted(given)}
    seconds = str(flow.oauth2session.token.get("refresh_token_expires_in", 0))
    ends = int(seconds) if seconds.isdecimal() else 0
    return Consent(token, frozenset(wanted) - frozenset(given), ends)
