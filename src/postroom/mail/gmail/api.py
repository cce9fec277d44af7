"""Gmail's REST interface: one request, its retries, and its errors in our words.

Reads are tried again, three times at most, with growing, scattered pauses. A send is one request:
this module never repeats it, and tells apart what certainly did not happen (`Unavailable` and the
refusals) from what may have (`Uncertain`). Many reads go out as one batch, which costs one round
trip; a service without batches is asked over several connections at once.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import httpx2

from postroom import __version__
from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.core.text import one_line
from postroom.mail.gmail import batch
from postroom.mail.gmail.keys import Keys, Renewal

RETRIES: Final = 3
PATIENCE: Final = 8.0  # seconds that a read waits when it is told to; beyond, the caller is told
LONGEST: Final = 86_400.0  # seconds that Gmail is believed to want to be left alone
BATCH: Final = 50  # requests in one batch: Google advises against more
AT_ONCE: Final = 8  # connections where there are no batches
INLINE: Final = 1_000_000  # bytes of a mail that travel inside JSON; larger ones are uploaded
CHUNK: Final = 65_536  # characters of base64 that are decoded at once
TIMEOUT: Final = httpx2.Timeout(30.0, connect=10.0)
USER: Final = "/gmail/v1/users/me"

_RETRIED: Final = frozenset({500, 502, 503, 504})
_TIMED_OUT: Final = frozenset({408, 425})
_TOO_FAST: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_TOO_MUCH: Final = frozenset({"quotaExceeded", "dailyLimitExceeded"})
_NOTHING_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)
_RETRY_AT: Final = re.compile(r"[Rr]etry after (\d{4}-\d\d-\d\dT[\d:.]+Z)")
_NO_BASE64: Final = re.compile(rb"[^A-Za-z0-9_+/-]")
_LOOK: Final = "Look whether it happened before you do it again."

Json = dict[str, Any]
Value = str | int | bool | Sequence[str]
Found = TypeVar("Found")


class Api:
    """An account's line to Gmail; `transport` carries its requests in place of HTTP."""

    def __init__(
        self,
        endpoint: str,
        keys: Keys,
        *,
        now: Callable[[], float],
        pause: Callable[[float], None],
        chance: Callable[[], float],
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._keys = keys
        self._now = now
        self._pause = pause
        self._chance = chance
        self._batches = True
        self._http = httpx2.Client(
            transport=transport,
            timeout=TIMEOUT,
            # A machine's own address is not asked for through a proxy.
            trust_env=endpoint.startswith("https://gmail.googleapis.com"),
            limits=httpx2.Limits(max_keepalive_connections=AT_ONCE, keepalive_expiry=60.0),
            headers={"User-Agent": f"postroom/{__version__} (gzip)"},
        )
        self._pool: ThreadPoolExecutor | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._http.close()

    @property
    def whose(self) -> str:
        """What tells one sign-in from another."""
        return self._keys.whose

    # One request

    def get(self, path: str, **params: Value) -> Json:
        """Return what is there; tried again where that can help."""
        return self._tried(lambda: self._request("GET", at(path, **params)), _json)

    def change(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        mail: Json | None = None,
        raw: bytes = b"",
    ) -> Json:
        """Make a change that is the same when it is made twice, and so is tried again like a read."""
        place, kind, content = _written(path, body, mail, raw)
        return self._tried(lambda: self._request(method, place, kind, content), _json)

    def act(
        self,
        path: str,
        body: Json | None = None,
        mail: Json | None = None,
        raw: bytes = b"",
        *,
        method: str = "POST",
    ) -> Json:
        """Do what must not be done twice: one request, whatever becomes of it.

        `mail` is the message in the body that gets these raw bytes; long ones are uploaded beside.
        """
        place, kind, content = _written(path, body, mail, raw)
        request = self._request(method, place, kind, content)
        try:
            response = self._sent(request)
        except httpx2.RequestError as why:
            if isinstance(why, _NOTHING_SENT):
                raise _unreachable(why) from why
            lost = f"The connection to Gmail was lost before it answered ({type(why).__name__})"
            raise Uncertain(lost, remedy=_LOOK) from why
        status = response.status_code
        # Only an error that Gmail itself wrote is a refusal; a server on the way knows nothing.
        refused = 400 <= status < 500 and status not in _TIMED_OUT and _error(response.content)
        if status >= 300 and not refused:
            failed = f"Gmail failed ({status}) and may have done it nevertheless"
            raise Uncertain(failed, remedy=_LOOK)
        if status == 401:
            # The next try has a new key; this request was refused, and is not repeated.
            self._keys.access(self._post, spent=_bearer(request))
            stale = Unavailable(
                "Gmail wanted a newer token, which is here now", remedy="Try again."
            )
            stale.status = status
            raise stale
        if status >= 300:
            raise self._refusal(status, response.headers, response.content)
        try:
            return _json(response)
        except Unavailable as garbled:
            raise Uncertain(garbled.message, remedy=_LOOK) from garbled

    def _request(
        self, method: str, path: str, kind: str = "", content: bytes = b""
    ) -> httpx2.Request:
        headers = {"Authorization": f"Bearer {self._keys.access(self._post)}"}
        if kind:
            headers["Content-Type"] = kind
        url = self._endpoint + path
        return self._http.build_request(method, url, headers=headers, content=content)

    def _tried(
        self,
        make: Callable[[], httpx2.Request],
        read: Callable[[httpx2.Response], Found],
        *,
        stream: bool = False,
    ) -> Found:
        """Return what is read from the answer; ask again after what may pass."""
        turn, renewed = 0, False
        while True:
            request = make()
            failure: PostroomError
            try:
                response = self._sent(request, stream=stream)
                if response.status_code < 300:
                    return read(response)
                response.read()
                response.close()
            except httpx2.RequestError as why:
                failure = _unreachable(why)
                if _distrusted(why):
                    raise failure from why
            except Unavailable as garbled:
                failure = garbled
            else:
                if response.status_code == 401 and not renewed:
                    renewed = True
                    self._keys.access(self._post, spent=_bearer(request))
                    continue
                failure = self._refusal(response.status_code, response.headers, response.content)
                if not _passing(failure):
                    raise failure
            self._wait(failure, turn)
            turn += 1

    def _sent(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        if self._http.is_closed:
            raise Unavailable("The mailbox is closed", remedy="Open it again.")
        return self._http.send(request, stream=stream)

    def _wait(self, failure: PostroomError, turn: int) -> None:
        """Pause before the next turn; raise the failure where there is none, or it is too far off."""
        told = failure.seconds if isinstance(failure, Limited) else 0.0
        if turn >= RETRIES or told > PATIENCE:
            raise failure
        # Scattered, so that clients that were refused together do not come back together.
        self._pause(max(told, 2.0**turn * (0.25 + 0.25 * self._chance())))

    def _post(self, uri: str, form: Mapping[str, str]) -> Renewal:
        """Ask the token endpoint, which gives the same however often it is asked."""
        for turn in range(RETRIES + 1):
            try:
                response = self._http.post(uri, data=dict(form))
            except httpx2.RequestError as why:
                self._wait(_unreachable(why), turn)
                continue
            if response.status_code in _RETRIED:
                self._wait(Unavailable("Google's token service failed", remedy="Try again."), turn)
                continue
            try:
                return Renewal(response.status_code, _json(response))
            except Unavailable:
                return Renewal(response.status_code, {})
        raise AssertionError("the last turn returns or raises")

    # Many requests

    def many(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        """Return what is at each of these paths, or why not, in their order."""
        found: dict[int, Json | PostroomError] = {}
        asked, vain = list(range(len(paths))), 0
        while asked and vain <= RETRIES:
            answers = self._round([paths[number] for number in asked])
            found.update(zip(asked, answers, strict=True))
            left = [number for number in asked if _passing(found[number])]
            if left:  # too many at once: what was refused is asked for again, as long as that helps
                vain = 0 if len(left) < len(asked) else vain + 1
                self._pause(2.0**vain * 0.05 * (1 + self._chance()))
            asked = left
        return [found[number] for number in range(len(paths))]

    def _round(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        if self._batches and len(paths) > 1:
            chunks = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
            try:
                parts = self._all(self._batch, chunks)
                return [answer for part in parts for answer in part]
            except NotFound:
                self._batches = False
        return self._all(self._one, paths)

    def _one(self, path: str) -> Json | PostroomError:
        try:
            return self.get(path)
        except (NotFound, Invalid) as why:
            return why

    def _batch(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        kind, body = batch.encode(paths)
        used = ""

        def make() -> httpx2.Request:
            nonlocal used
            request = self._request("POST", "/batch/gmail/v1", kind, body)
            used = _bearer(request)
            return request

        def read(response: httpx2.Response) -> list[batch.Inner]:
            said = response.headers.get("content-type", "")
            return batch.decode(said, response.content, len(paths))

        inner = self._tried(make, read)
        if any(answer.status == 401 for answer in inner):
            self._keys.access(self._post, spent=used)
            inner = self._tried(make, read)
        return [self._opened(*answer) for answer in inner]

    def _opened(self, status: int, headers: Mapping[str, str], body: bytes) -> Json | PostroomError:
        if status >= 300:
            return self._refusal(status, headers, body)
        try:
            return _object(body)
        except Unavailable as garbled:
            return garbled

    def _all(self, ask: Callable[[Any], Found], items: Sequence[Any]) -> list[Found]:
        """Ask for all of these at once, as far as there are connections."""
        if len(items) == 1:
            return [ask(items[0])]
        with self._opening:
            self._pool = self._pool or ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gmail")
        return list(self._pool.map(ask, items))

    # A long one

    def stream(self, path: str, key: str, **params: Value) -> Iterator[bytes]:
        """Yield the bytes that stand under this key in base64, without ever holding them all."""
        place = at(path, fields=key, **params)
        response = self._tried(lambda: self._request("GET", place), lambda r: r, stream=True)
        try:
            yield from _decoded(response.iter_bytes(CHUNK), key)
        except httpx2.RequestError as why:
            raise _unreachable(why) from why
        finally:
            response.close()

    # Refusals

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> PostroomError:
        """Return what Gmail's refusal means to the caller."""
        meant = self._meaning(status, headers, body)
        meant.status = status
        return meant

    def _meaning(self, status: int, headers: Mapping[str, str], body: bytes) -> PostroomError:
        reasons, said = _reasons(body)
        told = f": {said}" if said else ""
        if status == 429 or (status == 403 and reasons & (_TOO_FAST | _TOO_MUCH)):
            seconds = self._seconds(headers.get("retry-after", ""), said)
            daily = bool(reasons & _TOO_MUCH)
            return Limited(
                f"Gmail's quota is used up{told}",
                seconds=max(seconds, 3600.0 if daily else 1.0),
                remedy="Wait, then try again.",
            )
        if status == 401:
            return AuthRequired("Gmail does not accept the token", remedy=self._keys.remedy)
        if status == 403:
            return self._forbidden(reasons, told)
        if status == 404 or (status == 400 and said.startswith("Invalid id value")):
            return NotFound("Gmail has no such thing", remedy="Search for it again.")
        if status in {409, 412}:
            return Conflict(f"Gmail refuses{told}", remedy="Read it again, then decide.")
        if 400 <= status < 500 and status not in _TIMED_OUT:
            return Invalid(f"Gmail refuses{told or f' ({status})'}", remedy="Change the request.")
        return Unavailable(f"Gmail failed ({status})", remedy="Try again in a while.")

    def _forbidden(self, reasons: frozenset[str], told: str) -> PostroomError:
        if reasons & {"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}:
            return AuthRequired(
                "What you signed in for does not allow this",
                remedy=f"{self._keys.remedy} `--scopes modify` allows all that Postroom can do.",
            )
        if reasons & {"accessNotConfigured", "SERVICE_DISABLED"}:
            return Denied(
                "The Gmail API is not enabled for your app",
                remedy="Enable it in Google's console: docs/gmail.md shows where.",
            )
        return Denied(
            f"Gmail forbids this{told}", remedy="Ask whoever looks after the account's domain."
        )

    def _seconds(self, after: str, said: str) -> float:
        """Return how long Gmail says to wait: in a header, as seconds or a date, or in its words."""
        if re.fullmatch(r"[0-9]{1,9}", after):
            return min(float(after), LONGEST)
        until = 0.0
        with suppress(ValueError, OverflowError):
            until = parsedate_to_datetime(after).timestamp() if after else 0.0
        if found := _RETRY_AT.search(said):
            with suppress(ValueError):
                moment = datetime.fromisoformat(found[1].removesuffix("Z"))
                until = moment.replace(tzinfo=UTC).timestamp()
        return min(max(0.0, until - self._now()), LONGEST)


def at(path: str, **params: Value) -> str:
    """Return the path with its query, without what is empty; booleans as JSON writes them."""
    plain = {k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items() if v != ""}
    return f"{path}?{urlencode(plain, doseq=True)}" if plain else path


def _bearer(request: httpx2.Request) -> str:
    return request.headers["authorization"].removeprefix("Bearer ")


def _passing(answer: object) -> bool:
    """Whether it is a failure that may be over in a moment."""
    return isinstance(answer, Limited | Unavailable)


def _json(response: httpx2.Response) -> Json:
    return _object(response.content) if response.content else {}


def _object(body: bytes) -> Json:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unavailable("What came is no answer of Gmail's", remedy="Try again in a while.")
    return found


def _error(body: bytes) -> Json:
    """Return the error object that Gmail answers a refused request with, empty if there is none."""
    try:
        error = _object(body).get("error")
    except Unavailable:
        return {}
    return error if isinstance(error, dict) else {}


def _reasons(body: bytes) -> tuple[frozenset[str], str]:
    """Return the reasons that an error names, and its sentence."""
    error = _error(body)
    named = [error.get("errors"), error.get("details")]
    lists = [entry for group in named if isinstance(group, list) for entry in group]
    found = (entry.get("reason") for entry in lists if isinstance(entry, dict))
    reasons = frozenset(reason for reason in found if isinstance(reason, str))
    return reasons, one_line(str(error.get("message", "")))[:200].rstrip(".")


def _written(path: str, body: Json | None, mail: Json | None, raw: bytes) -> tuple[str, str, bytes]:
    """Return where a body goes, its type and its bytes; `mail` is the message in it that gets `raw`."""
    if body is None:
        return path, "", b""
    if mail is not None and len(raw) > INLINE:
        return f"/upload{path}?uploadType=multipart", *_related(body, raw)
    if mail is not None:
        mail["raw"] = base64.urlsafe_b64encode(raw).decode("ascii")
    return path, "application/json", json.dumps(body).encode()


def _related(body: Json, raw: bytes) -> tuple[str, bytes]:
    """Return the type and the body of an upload: what it is, and the mail itself."""
    boundary = f"postroom-{binascii.hexlify(raw[-16:]).decode()}-upload"
    while boundary.encode() in raw:
        boundary += "x"
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(body)}"
    )
    between = f"\r\n--{boundary}\r\nContent-Type: message/rfc822\r\n\r\n"
    content = b"".join([(head + between).encode(), raw, f"\r\n--{boundary}--".encode()])
    return f'multipart/related; boundary="{boundary}"', content


def _decoded(pieces: Iterator[bytes], key: str) -> Iterator[bytes]:
    """Yield the decoded bytes of the one base64 text in these pieces of JSON."""
    opening = re.compile(rb'"%s"\s*:\s*"' % key.encode("ascii"))
    buffer, begun = b"", False
    for piece in pieces:
        buffer += piece
        if not begun:
            start = opening.search(buffer)
            if not start:
                continue
            begun, buffer = True, buffer[start.end() :]
        end = _NO_BASE64.search(buffer)  # the closing quote, or padding in whatever spelling
        if end:
            last = buffer[: end.start()]
            yield _bytes(last + b"=" * (-len(last) % 4))
            for _rest in pieces:  # so that a connection that breaks here is noticed
                pass
            return
        whole = len(buffer) // 4 * 4
        if whole:
            yield _bytes(buffer[:whole])
            buffer = buffer[whole:]
    raise Unavailable("Gmail's answer ended too early", remedy="Try again in a while.")


def _bytes(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.translate(bytes.maketrans(b"-_", b"+/")), validate=True)
    except binascii.Error:
        raise Unavailable("Gmail's answer is damaged", remedy="Try again in a while.") from None


def _unreachable(why: Exception) -> Unavailable:
    if _distrusted(why):
        return Unavailable(
            "Gmail's certificate could not be verified",
            remedy="Check this machine's clock and certificates, and what stands between it and Google.",
        )
    return Unavailable(
        f"Gmail cannot be reached: {one_line(str(why))[:100].rstrip('.') or type(why).__name__}",
        remedy="Check the network, then try again.",
    )


def _distrusted(why: BaseException | None) -> bool:
    """Whether a certificate was at fault, anywhere in the chain of causes."""
    while why is not None:
        if isinstance(why, ssl.SSLCertVerificationError):
            return True
        why = why.__cause__ or why.__context__
    return False
