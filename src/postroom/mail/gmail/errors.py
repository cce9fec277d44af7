"""Gmail's failures as Postroom's errors: one table of refusals, and what a broken connection means."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Container, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple

import httpx2

from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
)
from postroom.core.text import one_line

LONGEST: Final = 86_400.0  # seconds: the longest wait that is taken from Gmail's answer
DAILY: Final = 3_600.0  # seconds to wait if a daily quota is used up
TIMED_OUT: Final = frozenset({408, 425})  # may have been carried out, unlike other 4xx
RETRY_LATER: Final = "Try again in a while."

_DAILY_QUOTA: Final = frozenset({"quotaExceeded", "dailyLimitExceeded"})
_QUOTA: Final = _DAILY_QUOTA | {"rateLimitExceeded", "userRateLimitExceeded"}
_RETRY_AT: Final = re.compile(r"[Rr]etry after (\d{4}-\d\d-\d\dT[\d:.]+Z)")
# Raised before a single byte of the request was sent.
_NOTHING_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)

Json = dict[str, Any]


class _Refusal(NamedTuple):
    """A kind of refusal: the first row of the table that fits decides the error."""

    statuses: Container[int]
    reasons: frozenset[str]  # one of them must be given; empty: any
    error: type[PostroomError]
    message: str
    remedy: str


_ANY: Final[frozenset[str]] = frozenset()
_REFUSALS: Final = (
    _Refusal({401}, _ANY, AuthRequired, "Gmail does not accept the token", "{sign_in}"),
    _Refusal(
        {403},
        frozenset({"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}),
        AuthRequired,
        "Your sign-in does not allow this",
        "{sign_in} `--scopes modify` allows all that Postroom can do.",
    ),
    _Refusal(
        {403},
        frozenset({"accessNotConfigured", "SERVICE_DISABLED"}),
        Denied,
        "The Gmail API is not enabled for your app",
        "Enable it in Google's console: docs/gmail.md shows where.",
    ),
    _Refusal(
        {403},
        _ANY,
        Denied,
        "Gmail forbids this{detail}",
        "Ask whoever looks after the account's domain.",
    ),
    _Refusal({404}, _ANY, NotFound, "Gmail has no such thing", "Search for it again."),
    _Refusal({409, 412}, _ANY, Conflict, "Gmail refuses{detail}", "Read it again, then decide."),
    _Refusal(TIMED_OUT, _ANY, Unavailable, "Gmail failed ({status})", RETRY_LATER),
    _Refusal(range(400, 500), _ANY, Invalid, "Gmail refuses{cause}", "Change the request."),
    _Refusal(range(1000), _ANY, Unavailable, "Gmail failed ({status})", RETRY_LATER),
)


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, now: float, sign_in: str
) -> PostroomError:
    """Return the error for a response; `sign_in` is the remedy if the account must sign in again."""
    reasons, sentence = _reasons(body)
    detail = f": {sentence}" if sentence else ""
    error: PostroomError
    if status == 429 or (status == 403 and reasons & _QUOTA):
        least = DAILY if reasons & _DAILY_QUOTA else 1.0
        wait = max(_wait_seconds(headers.get("retry-after", ""), sentence, now), least)
        error = Limited(
            f"Gmail's quota is used up{detail}", seconds=wait, remedy="Wait, then try again."
        )
    else:
        known = 404 if status == 400 and sentence.startswith("Invalid id value") else status
        row = next(
            row
            for row in _REFUSALS
            if known in row.statuses and (not row.reasons or row.reasons & reasons)
        )
        message = row.message.format(detail=detail, cause=detail or f" ({status})", status=status)
        error = row.error(message, remedy=row.remedy.format(sign_in=sign_in))
    error.status = status
    return error


def error_object(body: bytes) -> Json:
    """Return the error that Gmail itself wrote into a response; empty if there is none."""
    with suppress(Unavailable):
        error = json_object(body).get("error")
        return error if isinstance(error, dict) else {}
    return {}


def _reasons(body: bytes) -> tuple[frozenset[str], str]:
    """Return the reasons that an error names, and its sentence on one line."""
    error = error_object(body)
    lists = (error.get("errors"), error.get("details"))
    entries = [entry for group in lists if isinstance(group, list) for entry in group]
    found = (entry.get("reason") for entry in entries if isinstance(entry, dict))
    sentence = one_line(str(error.get("message", "")))[:200].rstrip(".")
    return frozenset(reason for reason in found if isinstance(reason, str)), sentence


def _wait_seconds(retry_after: str, sentence: str, now: float) -> float:
    """Return how long Gmail asks to wait: in a header, as seconds or a date, or in its sentence."""
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return min(float(retry_after), LONGEST)
    until = 0.0
    with suppress(ValueError, OverflowError):
        until = parsedate_to_datetime(retry_after).timestamp() if retry_after else 0.0
    if found := _RETRY_AT.search(sentence):
        with suppress(ValueError):
            moment = datetime.fromisoformat(found[1].removesuffix("Z"))
            until = moment.replace(tzinfo=UTC).timestamp()
    return min(max(0.0, until - now), LONGEST)


def json_object(body: bytes) -> Json:
    """Return the JSON object in a body, or raise `Unavailable`."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unavailable("Gmail did not send a valid answer", remedy=RETRY_LATER)
    return found


def malformed(problem: str) -> Unavailable:
    """Return the error for an answer of Gmail's that lacks or garbles what it must have."""
    return Unavailable(f"Gmail's answer {problem}", remedy=RETRY_LATER)


def unreachable(error: Exception) -> Unavailable:
    """Return the error for a request that got no answer."""
    if is_certificate_error(error):
        return Unavailable(
            "Gmail's certificate could not be verified",
            remedy="Check this machine's clock and certificates, and what stands between it and Google.",
        )
    cause = one_line(str(error))[:100].rstrip(".") or type(error).__name__
    return Unavailable(
        f"Gmail cannot be reached: {cause}", remedy="Check the network, then try again."
    )


def is_certificate_error(error: BaseException | None) -> bool:
    """Whether a certificate was rejected, anywhere in the chain of causes."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def is_unsent(error: Exception) -> bool:
    """Whether the request failed before any of it was sent."""
    return isinstance(error, _NOTHING_SENT)
