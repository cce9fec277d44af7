"""The OAuth token and client of a Google account: their files as google-auth writes them, and the token's renewal.

Several processes share one token file. A process that finds the token spent takes the lock beside the file, reads it again,
and only then asks Google, so that one renewal serves all. The file is replaced as a whole, keeps fields of other programs,
and is refused if others than its owner could read it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from postroom.core.errors import AuthRequired, Corrupt, Denied, Invalid, Unavailable, raise_if
from postroom.core.text import one_line
from postroom.core.values import dataclass
from postroom.store.files import NotRegularFile, locked, opened, replace

EARLY: Final = 60.0  # seconds before its end at which a token counts as spent
MAX_SECONDS: Final = 10_000_000  # that an access token can last
MAX_FILE: Final = 100_000  # bytes of a token's or client's file
SIGN_IN: Final = "Run `postroom auth gmail` in a terminal: it opens a browser, once."

_BASE: Final = "https://www.googleapis.com/auth/gmail"
READ, COMPOSE, SEND, MODIFY = (f"{_BASE}.{n}" for n in ("readonly", "compose", "send", "modify"))
# What each of Google's scopes permits here.
SCOPES: Final = {
    READ: frozenset({"read"}),
    COMPOSE: frozenset({"draft", "send"}),
    SEND: frozenset({"send"}),
    MODIFY: frozenset({"read", "draft", "send", "label"}),
    "https://mail.google.com/": frozenset({"read", "draft", "send", "label"}),
}
# What a file holds that is not the client of a desktop app, by a key that it has.
_WRONG_FILES: Final = {
    "web": "the client of a web application",
    "private_key": "the key of a service account",
    **dict.fromkeys(("refresh_token", "access_token", "token"), "a token and not a client"),
}

Fields = Mapping[str, Any]


class OAuthClient(NamedTuple):
    """The program as Google knows it: its credentials.json, whose content is `fields`."""

    id: str
    secret: str
    auth_uri: str = ""
    fields: Fields = MappingProxyType({})


class OAuthToken(NamedTuple):
    """A token and its file, whose content is `fields`."""

    file: Path
    access: str
    refresh: str
    expiry: float  # seconds since 1970; 0 if the file does not say
    scopes: tuple[str, ...]
    fields: Fields


# Posts a form to the token endpoint, and returns the status and the answer.
PostForm = Callable[[str, Mapping[str, str]], tuple[int, Fields]]


@dataclass(slots=True)
class TokenStore:
    """The token of one account, shared by threads and processes; `remedy` says how to sign in again."""

    tokens: Sequence[Path]
    clients: Sequence[Path]
    token_uri: str
    now: Callable[[], float]
    remedy: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _token: OAuthToken | None = None

    def access_token(self, post: PostForm, *, spent: str = "") -> str:
        """Return an access token, renewed first if it expired or is the one that was `spent`."""
        with self._lock:
            token = self._token
            if token is None or not self._is_valid(token, spent):
                # Another process, or `postroom auth gmail`, may have renewed it.
                token = find_token(self.tokens, self.remedy)
            if not self._is_valid(token, spent):
                with locked(lock_path(token.file)):
                    token = find_token([token.file], self.remedy)
                    if not self._is_valid(token, spent):
                        token = self._renew(token, post)
            self._token = token
            return token.access

    @property
    def sign_in_id(self) -> str:
        """A value that differs between two sign-ins: a hash, since the token itself is secret."""
        token = self._token
        return hashlib.sha256((token.refresh or token.access).encode()).hexdigest() if token else ""

    def _is_valid(self, token: OAuthToken, spent: str) -> bool:
        is_fresh = not token.expiry or token.expiry - EARLY > self.now()
        return is_fresh and token.access not in {"", spent}

    def _renew(self, token: OAuthToken, post: PostForm) -> OAuthToken:
        if not token.refresh:
            raise AuthRequired(
                f"The token in {token.file} has expired and cannot be renewed",
                remedy=self.remedy,
                kind="expired",
            )
        id, secret = _text(token.fields, "client_id"), _text(token.fields, "client_secret")
        if not id or not isinstance(token.fields.get("client_secret"), str):
            id, secret, *_ = find_client(self.clients)
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh}
        form |= {"client_id": id, "client_secret": secret}
        status, body = post(self.token_uri, form)
        access, seconds = body.get("access_token"), body.get("expires_in", 3600)
        if status == 200 and isinstance(access, str) and isinstance(seconds, int | float):
            return self._save(token, access, seconds if 0 < seconds < MAX_SECONDS else 3600, body)
        error = one_line(str(body.get("error", status)))[:60]
        if error == "invalid_grant":
            raise _revoked(set_aside(token.file), self.remedy)
        if 400 <= status < 500:
            raise AuthRequired(
                f"Google refuses to renew the token: {error}",
                remedy=f"Check that credentials.json is that of your app. {self.remedy}",
                kind="expired",
            )
        raise Unavailable(
            f"Google did not renew the token: {error}", remedy="Try again in a while."
        )

    def _save(self, token: OAuthToken, access: str, seconds: float, body: Fields) -> OAuthToken:
        expiry = datetime.fromtimestamp(self.now() + seconds, UTC)
        new = {**token.fields, "token": access, "token_uri": self.token_uri}
        new["expiry"] = f"{expiry:%Y-%m-%dT%H:%M:%S}Z"
        if "access_token" in new:  # the spelling of another program, which reads it again
            new |= {"access_token": access, "expiry_date": int(expiry.timestamp() * 1000)}
        if isinstance(rotated := body.get("refresh_token"), str):
            new["refresh_token"] = rotated
        write_json(token.file, new)
        return read_token(token.file, self.remedy)


def sign_in_remedy(account: str = "") -> str:
    return SIGN_IN.replace("gmail`", f"gmail --account {account}`") if account else SIGN_IN


def lock_path(file: Path) -> Path:
    real = Path(os.path.realpath(file))
    return real.with_name(f".{real.name}.lock")


def find_token(files: Sequence[Path], remedy: str) -> OAuthToken:
    """Return the token from the first of these files that exists, or raise `AuthRequired`.

    The search ends at a file that was set aside: a folder that agents write to could put another account in its place.
    """
    for file in files:
        try:
            return read_token(file, remedy)
        except FileNotFoundError:
            if aside := sorted(file.parent.glob(f"{file.name}.revoked*")):
                raise _revoked(aside[-1], remedy) from None
    raise AuthRequired("You are not signed in to Gmail", remedy=remedy, kind="missing")


def _revoked(aside: Path, remedy: str) -> AuthRequired:
    return AuthRequired(
        f"Google no longer accepts the token: it was revoked or has expired (its file is now {aside})",
        remedy=f"{remedy} If it expires after seven days, the app is in Google's testing mode: docs/gmail.md says how to publish it.",
        kind="expired",
    )


def read_token(file: Path, remedy: str = SIGN_IN) -> OAuthToken:
    """Return the token in this file, or raise `FileNotFoundError`."""
    fields = _read_private_json(file, stat.S_IRWXG | stat.S_IRWXO, remedy)
    access = _text(fields, "token") or _text(fields, "access_token")
    refresh = _text(fields, "refresh_token")
    if not (access or refresh):
        raise Corrupt(f"{file} holds no token", remedy=remedy)
    scopes = fields.get("scopes", fields.get("scope"))
    names = scopes.split() if isinstance(scopes, str) else scopes
    valid = tuple(s for s in names if isinstance(s, str)) if isinstance(names, list) else ()
    return OAuthToken(file, access, refresh, _expiry(fields), valid, fields)


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else ""


def _expiry(fields: Fields) -> float:
    expiry, milliseconds = fields.get("expiry"), fields.get("expiry_date")
    if isinstance(expiry, str):
        with suppress(ValueError):  # google-auth writes UTC, with a Z or without
            return datetime.fromisoformat(expiry.removesuffix("Z")).replace(tzinfo=UTC).timestamp()
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0


def write_json(file: Path, content: Fields) -> None:
    """Replace the file of a token or a client as a whole, readable by its owner alone."""
    try:
        replace(Path(os.path.realpath(file)), json.dumps(content).encode(), 0o600)
    except OSError as error:
        raise Unavailable(
            f"{file} cannot be written: {error.strerror}",
            remedy="Make its folder one you may write.",
        ) from error


def set_aside(file: Path) -> Path:
    """Rename a token that was revoked, if it is still there; return its new place."""
    names = (f"{file.name}.revoked{f'-{number}' if number > 1 else ''}" for number in count(1))
    place = next(path for path in map(file.with_name, names) if not path.exists())
    with suppress(FileNotFoundError):
        file.rename(place)
    return place


def find_client(files: Sequence[Path]) -> OAuthClient:
    """Return the OAuth client from the first of these files that exists, or raise `AuthRequired`."""
    for file in files:
        with suppress(FileNotFoundError):
            return read_client(file)
    raise AuthRequired(
        f"There is no OAuth client at {' or '.join(map(str, files))}",
        remedy="Make one of the type Desktop app in Google's console (docs/gmail.md shows each step), and give its file: `postroom auth gmail --credentials FILE`.",
    )


def read_client(file: Path) -> OAuthClient:
    """Return the OAuth client in this file; raise `Invalid` if it holds another kind of secret."""
    again = "Download it again from Google's console: Clients, Download JSON."
    fields = _read_private_json(file, stat.S_IWGRP | stat.S_IWOTH, again)
    if isinstance(body := fields.get("installed"), dict):
        id, secret = _text(body, "client_id"), _text(body, "client_secret")
        if id and secret:
            return OAuthClient(id, secret, _text(body, "auth_uri"), fields)
    kind = next((kind for key, kind in _WRONG_FILES.items() if key in fields), "no OAuth client")
    raise Invalid(
        f"{file} is {kind}",
        remedy="In Google's console, make an OAuth client of the type Desktop app, and download its JSON: docs/gmail.md shows each step.",
    )


def _read_private_json(file: Path, forbidden: int, again: str) -> dict[str, Any]:
    """Return the JSON object in a plain file of this user, to which others have none of the `forbidden` rights."""
    try:
        with opened(file, os.O_RDONLY, follow=True) as handle:
            about = os.fstat(handle)
            raw = os.pread(handle, MAX_FILE + 1, 0)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(file) from None
    except NotRegularFile as error:
        raise Denied(f"{file} is not a plain file", remedy="Name the file itself.") from error
    except OSError as error:
        raise Unavailable(
            f"{file} cannot be read: {error.strerror}", remedy="Make it a file that you may read."
        ) from error
    raise_if(
        (
            about.st_uid != os.geteuid(),
            f"{file} belongs to another user",
            "Move it away and sign in with `postroom auth gmail`.",
        ),
        (
            about.st_mode & forbidden,
            f"Others may use {file} (mode {stat.S_IMODE(about.st_mode):04o})",
            f"Run `chmod 600 {file}`. If others had the chance to read it, then `postroom auth gmail --revoke`, and sign in again.",
        ),
        kind=Denied,
    )
    with suppress(ValueError, RecursionError):  # without its cause, which may hold the token
        found = json.loads(raw) if len(raw) <= MAX_FILE else None
        if isinstance(found, dict):
            return found
    raise Corrupt(f"{file} is not a JSON object", remedy=again)
