"""Gmail's REST interface: requests, retries, batches and streams.

Reads and repeatable changes are retried, three times at most, with growing, random pauses. `act` makes one request and
never repeats it: its errors tell what certainly did not happen (`Unavailable` and the refusals) from what may have
happened (`Uncertain`). Many reads go out as one batch; a service without batches is asked over several connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final, TypeVar
from urllib.parse import urlencode

import httpx2

from postroom import __version__
from postroom.core.errors import (
    AuthRequired,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.mail.gmail import formats
from postroom.mail.gmail.formats import Json, RequestBody, encode_body, json_object, unreachable
from postroom.mail.gmail.oauth import TokenStore
from postroom.mail.mailbox import ConnectionLost, TokenRenewed

RETRIES: Final = 3
PATIENCE: Final = 8.0  # seconds that all waits of one read take together; a longer one is an error
BATCH: Final = 50  # requests in one batch: Google advises against more
CONNECTIONS: Final = 8  # that are used at once
CHUNK: Final = 65_536  # characters of base64 that are decoded at once
TIMEOUT: Final = httpx2.Timeout(30.0, connect=10.0)
USER: Final = "/gmail/v1/users/me"

_CHECK_FIRST: Final = "Look whether it happened before you do it again."

Value = str | int | bool | Sequence[str]
T = TypeVar("T")
Wait = Callable[[float], bool]


class GmailApi:
    """An account's connection to Gmail; `transport` replaces HTTP in tests."""

    def __init__(
        self,
        endpoint: str,
        tokens: TokenStore,
        *,
        pause: Callable[[float], None],
        chance: Callable[[], float],
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.tokens = tokens
        self._pause = pause
        self._chance = chance
        self._has_batches = True
        self._http = httpx2.Client(
            base_url=endpoint,
            transport=transport,
            timeout=TIMEOUT,
            # A loopback address is never reached through a proxy.
            trust_env=endpoint.startswith("https://gmail.googleapis.com"),
            limits=httpx2.Limits(max_keepalive_connections=CONNECTIONS, keepalive_expiry=60.0),
            headers={"User-Agent": f"postroom/{__version__} (gzip)"},
        )
        self.close = self._http.close

    def get(self, path: str, **params: Value) -> Json:
        return self._call("GET", RequestBody(with_query(path, **params)), self._read)

    def change(self, method: str, path: str, body: Json | None = None, raw: bytes = b"") -> Json:
        """Make a change that may be repeated without harm, and so is retried like a read."""
        return self._call(method, encode_body(path, body, raw), self._read)

    def act(
        self, path: str, body: Json | None = None, raw: bytes = b"", *, method: str = "POST"
    ) -> Json:
        """Make a change by one request that is never repeated. The message in the body gets the bytes `raw`.

        Raises `TokenRenewed` if Gmail refused the token: the caller decides whether to do it again with the new one.
        """
        token = self._token()
        request = self._request(method, encode_body(path, body, raw), token)
        try:
            response = self._send(request)
        except formats.NOTHING_SENT as error:
            raise unreachable(error) from error
        except httpx2.RequestError as error:
            lost = f"The connection to Gmail was lost before it answered ({type(error).__name__})"
            raise ConnectionLost(lost, remedy=_CHECK_FIRST) from error
        status = response.status_code
        # Only an error that Gmail itself wrote is a refusal; a proxy knows nothing.
        refused = (
            400 <= status < 500
            and status not in formats.TIMED_OUT
            and formats.error_object(response.content)
        )
        if status >= 300 and not refused:
            failed = f"Gmail failed ({status}) and may have done it nevertheless"
            raise _answered(Uncertain(failed, remedy=_CHECK_FIRST), response, self.tokens.now())
        if status == 401:
            self._token(spent=token)
            renewed = TokenRenewed("Gmail does not accept the token", remedy=self.tokens.remedy)
            raise _answered(renewed, response, self.tokens.now())
        try:
            return self._read(response)
        except Unavailable as garbled:
            uncertain = Uncertain(garbled.message, remedy=_CHECK_FIRST)
            raise _answered(uncertain, response, self.tokens.now()) from garbled

    def act_with_new_token(
        self, path: str, body: Json | None = None, raw: bytes = b"", *, method: str = "POST"
    ) -> Json:
        """Do what `act` does, and do it again if the token was refused: for changes that send nothing."""
        try:
            return self.act(path, body, raw, method=method)
        except TokenRenewed:
            return self.act(path, body, raw, method=method)

    def get_many(self, paths: Sequence[str]) -> list[Json]:
        """Return the objects at these paths, in their order, without those that are gone."""
        found: dict[str, Json | PostroomError] = {}
        left, turn, wait = list(paths), 0, self._patience()
        # What was refused because it was too much at once is asked for again, as long as that helps.
        while left and turn <= RETRIES:
            found.update(zip(left, self._get_round(left), strict=True))
            if failed := [p for p in left if isinstance(found[p], Limited | Unavailable)]:
                turn = 0 if len(failed) < len(left) else turn + 1
                if not wait(self._backoff(turn) / 5):
                    break
            left = failed
        for answer in found.values():
            if isinstance(answer, PostroomError) and not isinstance(answer, NotFound):
                raise answer
        return [answer for path in paths if isinstance(answer := found[path], dict)]

    def stream(self, path: str, key: str, **params: Value) -> Iterator[bytes]:
        """Yield the bytes that are under this key in base64, without holding all of them."""
        body = RequestBody(with_query(path, fields=key, **params))
        response = self._call("GET", body, lambda response: response, stream=True)
        try:
            yield from formats.decode_stream(response.iter_bytes(CHUNK), key)
        except httpx2.RequestError as error:
            raise unreachable(error) from error
        finally:
            response.close()

    def _token(self, spent: str = "", wait: Wait | None = None) -> str:
        post = partial(self._post_form, wait=wait or self._patience())
        return self.tokens.access_token(post, spent=spent)

    def _request(self, method: str, body: RequestBody, token: str) -> httpx2.Request:
        headers = {"Authorization": f"Bearer {token}"}
        headers |= {"Content-Type": body.type} if body.type else {}
        return self._http.build_request(method, body.path, headers=headers, content=body.content)

    def _send(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        if self._http.is_closed:
            raise Unavailable("The mailbox is closed", remedy="Open it again.")
        response = self._http.send(request, stream=stream)
        if response.status_code >= 300:
            response.read()  # which closes it
        return response

    def _read(self, response: httpx2.Response) -> Json:
        self._check(response)
        return json_object(response.content) if response.content else {}

    def _check(self, response: httpx2.Response) -> None:
        if response.status_code >= 300:
            raise formats.refusal(response, now=self.tokens.now(), sign_in=self.tokens.remedy)

    def _exchange(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        try:
            return self._send(request, stream=stream)
        except httpx2.RequestError as error:
            raise unreachable(error) from error

    def _call(
        self,
        method: str,
        body: RequestBody,
        read: Callable[[httpx2.Response], T],
        *,
        stream: bool = False,
    ) -> T:
        wait = self._patience()
        token = self._token(wait=wait)

        def attempt() -> T:
            response = self._exchange(self._request(method, body, token), stream=stream)
            self._check(response)
            return read(response)

        try:
            return self._retry(attempt, wait)
        except AuthRequired as refused:
            if refused.status != 401:
                raise
        token = self._token(token, wait)
        return self._retry(attempt, wait)

    def _patience(self) -> Wait:
        """Return a function that waits, and returns False at once where its waits would take too long together."""
        left = PATIENCE

        def wait(seconds: float) -> bool:
            nonlocal left
            if seconds > left:
                return False
            left -= seconds
            self._pause(seconds)
            return True

        return wait

    def _retry(self, attempt: Callable[[], T], wait: Wait) -> T:
        for turn in range(RETRIES):
            try:
                return attempt()
            except (Limited, Unavailable) as error:
                is_final = self._http.is_closed or formats.is_certificate_error(error)
                if is_final or not wait(max(error.seconds, self._backoff(turn))):
                    raise
        return attempt()

    def _backoff(self, turn: int) -> float:
        # Random, so that clients that were refused together do not come back together.
        return float(2.0**turn * (0.25 + 0.25 * self._chance()))

    def _post_form(self, uri: str, form: Mapping[str, str], *, wait: Wait) -> tuple[int, Json]:
        def attempt() -> tuple[int, Json]:
            response = self._exchange(self._http.build_request("POST", uri, data=dict(form)))
            if response.status_code in {500, 502, 503, 504}:
                raise Unavailable("Google's token service failed", remedy="Try again.")
            with suppress(Unavailable):
                return response.status_code, json_object(response.content)
            return response.status_code, {}

        return self._retry(attempt, wait)

    def _get_round(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="gmail") as pool:
            if self._has_batches and len(paths) > 1:
                chunks = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
                try:
                    return list(chain.from_iterable(pool.map(self._get_batch, chunks)))
                except NotFound:
                    self._has_batches = False
            return list(pool.map(self._get_one, paths))

    def _get_one(self, path: str) -> Json | PostroomError:
        try:
            return self.get(path)
        except NotFound as error:
            return error

    def _get_batch(self, paths: Sequence[str]) -> list[Json | PostroomError]:
        def read(response: httpx2.Response) -> list[Json | PostroomError]:
            return [self._read_or_error(one) for one in formats.decode_batch(response, len(paths))]

        return self._call("POST", formats.encode_batch(paths), read)

    def _read_or_error(self, response: httpx2.Response) -> Json | PostroomError:
        try:
            return self._read(response)
        except PostroomError as error:
            if error.status == 401:  # the batch is sent again with a new token
                raise
            return error


def _answered(error: PostroomError, response: httpx2.Response, now: float) -> PostroomError:
    """Return an error with the status of the answer that it is about, and how long to wait."""
    error.status, error.seconds = response.status_code, formats.wait_seconds(response, now)
    return error


def with_query(path: str, **params: Value) -> str:
    """Return the path with its query; empty values are left out, booleans written as JSON does."""
    plain = {k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items() if v != ""}
    return f"{path}?{urlencode(plain, doseq=True)}" if plain else path
