"""Gmail's REST interface: requests, retries, batches and streams.

Reads and repeatable changes are retried, three times at most, with growing, random pauses. `act` makes one request and
never repeats it: its errors tell what certainly did not happen (`Unavailable` and the refusals) from what may have
happened (`Uncertain`). Many reads go out as one batch; a service without batches is asked over several connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import httpx2

from postroom import __version__
from postroom.core.errors import (
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.mail.gmail.encoding import (
    BatchAnswer,
    RequestBody,
    decode_batch,
    decode_stream,
    encode_batch,
    encode_body,
)
from postroom.mail.gmail.errors import (
    TIMED_OUT,
    Json,
    error_object,
    is_certificate_error,
    is_unsent,
    json_object,
    refusal,
    unreachable,
)
from postroom.mail.gmail.oauth import TokenResponse, TokenStore

RETRIES: Final = 3
PATIENCE: Final = 8.0  # seconds that a read waits if Gmail asks it to; a longer wait is an error
BATCH: Final = 50  # requests in one batch: Google advises against more
CONNECTIONS: Final = 8  # where there are no batches
CHUNK: Final = 65_536  # characters of base64 that are decoded at once
TIMEOUT: Final = httpx2.Timeout(30.0, connect=10.0)
USER: Final = "/gmail/v1/users/me"

_CHECK_FIRST: Final = "Look whether it happened before you do it again."

Value = str | int | bool | Sequence[str]
T = TypeVar("T")


class _TransientError(Exception):
    """A failure that may pass, so that the request is worth another try."""

    def __init__(self, error: PostroomError) -> None:
        super().__init__(error.message)
        self.error = error


class GmailApi:
    """An account's connection to Gmail; `transport` replaces HTTP in tests."""

    def __init__(
        self,
        endpoint: str,
        tokens: TokenStore,
        *,
        now: Callable[[], float],
        pause: Callable[[float], None],
        chance: Callable[[], float],
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._tokens = tokens
        self._now = now
        self._pause = pause
        self._chance = chance
        self._has_batches = True
        self._http = httpx2.Client(
            transport=transport,
            timeout=TIMEOUT,
            # A loopback address is never reached through a proxy.
            trust_env=endpoint.startswith("https://gmail.googleapis.com"),
            limits=httpx2.Limits(max_keepalive_connections=CONNECTIONS, keepalive_expiry=60.0),
            headers={"User-Agent": f"postroom/{__version__} (gzip)"},
        )
        self._pool: ThreadPoolExecutor | None = None
        self._pool_lock = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._http.close()

    @property
    def sign_in_id(self) -> str:
        """A value that differs between two sign-ins."""
        return self._tokens.sign_in_id

    def get(self, path: str, **params: Value) -> Json:
        """Return the object at this path."""
        return self._call("GET", RequestBody(with_query(path, **params)), _read_json)

    def change(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        mail: Json | None = None,
        raw: bytes = b"",
    ) -> Json:
        """Make a change that may be repeated without harm, and so is retried like a read."""
        return self._call(method, encode_body(path, body, mail, raw), _read_json)

    def act(
        self,
        path: str,
        body: Json | None = None,
        mail: Json | None = None,
        raw: bytes = b"",
        *,
        method: str = "POST",
    ) -> Json:
        """Make a change that must not be repeated: one request, whatever becomes of it.

        `mail` is the message inside the body that gets the bytes `raw`; long ones are uploaded.
        """
        token = self._token()
        request = self._request(method, encode_body(path, body, mail, raw), token)
        try:
            response = self._send(request)
        except httpx2.RequestError as error:
            if is_unsent(error):
                raise unreachable(error) from error
            lost = f"The connection to Gmail was lost before it answered ({type(error).__name__})"
            raise Uncertain(lost, remedy=_CHECK_FIRST) from error
        status = response.status_code
        # Only an error that Gmail itself wrote is a refusal; a proxy knows nothing.
        refused = 400 <= status < 500 and status not in TIMED_OUT and error_object(response.content)
        if status >= 300 and not refused:
            failed = f"Gmail failed ({status}) and may have done it nevertheless"
            raise Uncertain(failed, remedy=_CHECK_FIRST)
        if status == 401:
            # The next try has a new token; this request was refused, and is not repeated.
            self._token(spent=token)
            renewed = Unavailable(
                "Gmail wanted a newer token, which is here now", remedy="Try again."
            )
            renewed.status = status
            raise renewed
        if status >= 300:
            raise self._refusal(status, response.headers, response.content)
        try:
            return _read_json(response)
        except Unavailable as garbled:
            raise Uncertain(garbled.message, remedy=_CHECK_FIRST) from garbled

    def get_many(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        """Return the object at each path, or its error, in the order of the paths.

        What was refused because it was too much at once is asked for again, as long as that helps.
        """
        found: dict[int, Json | PostroomError] = {}
        left, turn = list(range(len(paths))), 0
        while left and turn <= RETRIES:
            answers = self._get_round([paths[number] for number in left])
            found.update(zip(left, answers, strict=True))
            failed = [n for n in left if isinstance(found[n], Limited | Unavailable)]
            if failed:
                turn = 0 if len(failed) < len(left) else turn + 1
                self._pause(self._backoff(turn) / 5)
            left = failed
        return [found[number] for number in range(len(paths))]

    def stream(self, path: str, key: str, **params: Value) -> Iterator[bytes]:
        """Yield the bytes that are under this key in base64, without holding all of them."""
        body = RequestBody(with_query(path, fields=key, **params))
        response = self._call("GET", body, lambda response: response, stream=True)
        try:
            yield from decode_stream(response.iter_bytes(CHUNK), key)
        except httpx2.RequestError as error:
            raise unreachable(error) from error
        finally:
            response.close()

    # One request

    def _token(self, spent: str = "") -> str:
        return self._tokens.access_token(self._post_form, spent=spent)

    def _request(self, method: str, body: RequestBody, token: str) -> httpx2.Request:
        headers = {"Authorization": f"Bearer {token}"}
        if body.type:
            headers["Content-Type"] = body.type
        url = self._endpoint + body.path
        return self._http.build_request(method, url, headers=headers, content=body.content)

    def _send(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        if self._http.is_closed:
            raise Unavailable("The mailbox is closed", remedy="Open it again.")
        return self._http.send(request, stream=stream)

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> PostroomError:
        return refusal(status, headers, body, now=self._now(), sign_in=self._tokens.remedy)

    def _call(
        self,
        method: str,
        body: RequestBody,
        read: Callable[[httpx2.Response], T],
        *,
        stream: bool = False,
    ) -> T:
        """Return what `read` makes of the response to a request that may be repeated."""
        renewed = False

        def attempt() -> T:
            nonlocal renewed
            token = self._token()
            response = self._try_send(self._request(method, body, token), stream=stream)
            if response.status_code == 401 and not renewed:
                renewed = True
                token = self._token(spent=token)
                response = self._try_send(self._request(method, body, token), stream=stream)
            if response.status_code < 300:
                try:
                    return read(response)
                except Unavailable as garbled:
                    raise _TransientError(garbled) from None
            error = self._refusal(response.status_code, response.headers, response.content)
            raise _TransientError(error) if isinstance(error, Limited | Unavailable) else error

        return self._retry(attempt)

    def _try_send(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        """Return the response, its body read if it is an error; a lost connection is transient."""
        try:
            response = self._send(request, stream=stream)
            if response.status_code >= 300:
                response.read()
                response.close()
        except httpx2.RequestError as error:
            failure = unreachable(error)
            raise failure if is_certificate_error(error) else _TransientError(failure) from error
        return response

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; after a transient failure pause and try again."""
        turn = 0
        while True:
            try:
                return attempt()
            except _TransientError as failed:
                wait = failed.error.seconds if isinstance(failed.error, Limited) else 0.0
                if turn >= RETRIES or wait > PATIENCE:
                    raise failed.error from failed.__cause__
                self._pause(max(wait, self._backoff(turn)))
                turn += 1

    def _backoff(self, turn: int) -> float:
        # Random, so that clients that were refused together do not come back together.
        return float(2.0**turn * (0.25 + 0.25 * self._chance()))

    def _post_form(self, uri: str, form: Mapping[str, str]) -> TokenResponse:
        """Ask the token endpoint, which may be asked repeatedly."""

        def attempt() -> TokenResponse:
            response = self._try_send(self._http.build_request("POST", uri, data=dict(form)))
            if response.status_code in {500, 502, 503, 504}:
                failed = Unavailable("Google's token service failed", remedy="Try again.")
                raise _TransientError(failed)
            try:
                return TokenResponse(response.status_code, _read_json(response))
            except Unavailable:
                return TokenResponse(response.status_code, {})

        return self._retry(attempt)

    # Many requests

    def _get_round(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        if self._has_batches and len(paths) > 1:
            chunks = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
            try:
                parts = self._in_threads(self._get_batch, chunks)
                return [answer for part in parts for answer in part]
            except NotFound:
                self._has_batches = False
        return self._in_threads(self._get_one, paths)

    def _get_one(self, path: str) -> Json | PostroomError:
        try:
            return self.get(path)
        except (NotFound, Invalid) as error:
            return error

    def _get_batch(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        body, token = encode_batch(paths), self._token()

        def read(response: httpx2.Response) -> list[BatchAnswer]:
            kind = response.headers.get("content-type", "")
            return decode_batch(kind, response.content, len(paths))

        answers = self._call("POST", body, read)
        if any(answer.status == 401 for answer in answers):
            self._token(spent=token)
            answers = self._call("POST", body, read)
        return [self._read_answer(answer) for answer in answers]

    def _read_answer(self, answer: BatchAnswer) -> Json | PostroomError:
        if answer.status >= 300:
            return self._refusal(answer.status, answer.headers, answer.body)
        try:
            return json_object(answer.body)
        except Unavailable as garbled:
            return garbled

    def _in_threads(self, ask: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        if len(items) == 1:
            return [ask(items[0])]
        with self._pool_lock:
            self._pool = self._pool or ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="gmail")
        return list(self._pool.map(ask, items))


def with_query(path: str, **params: Value) -> str:
    """Return the path with its query; empty values are left out, booleans written as JSON does."""
    plain = {k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items() if v != ""}
    return f"{path}?{urlencode(plain, doseq=True)}" if plain else path


def _read_json(response: httpx2.Response) -> Json:
    return json_object(response.content) if response.content else {}
