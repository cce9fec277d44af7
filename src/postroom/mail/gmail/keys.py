"""The keys to a Google account: the token's file as google-auth writes it, read, renewed and set aside.

Several processes share one file. Whoever finds the token spent takes the lock beside it, looks
again, and only then asks Google: one renewal serves all. The file is replaced whole, keeps what
other programs wrote into it, and is refused where others than its owner could have read it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from postroom.core.errors import AuthRequired, Corrupt, Denied, Invalid, Unavailable
from postroom.core.text import one_line
from postroom.store.files import NotRegularFile, open_regular, replace
from postroom.store.locks import locked

EARLY: Final = 60.0  # seconds before its end at which a token counts as spent
MAX_SECONDS: Final = 10_000_000  # that an access token can last
MAX_FILE: Final = 100_000  # bytes of a token's or client's file
SIGN_IN: Final = "Run `postroom auth gmail` in a terminal: it opens a browser, once."

_BASE: Final = "https://www.googleapis.com/auth/gmail"
READ, COMPOSE, SEND, MODIFY = (f"{_BASE}.{n}" for n in ("readonly", "compose", "send", "modify"))
_ALL: Final = "https://mail.google.com/"
# What each scope of Google's lets an account do here.
ALLOWS: Final = {
    READ: frozenset({"read"}),
    COMPOSE: frozenset({"draft", "send"}),
    SEND: frozenset({"send"}),
    MODIFY: frozenset({"read", "draft", "send", "label"}),
    _ALL: frozenset({"read", "draft", "send", "label"}),
}


class Client(NamedTuple):
    """The program as Google knows it: its credentials.json."""

    id: str
    secret: str
    auth_uri: str = ""
    rest: Mapping[str, Any] = MappingProxyType({})  # the whole file


class Token(NamedTuple):
    """A token as its file has it; `rest` is the whole file."""

    file: Path
    access: str
    refresh: str
    expiry: float  # seconds since 1970; 0 where the file does not say
    scopes: tuple[str, ...]
    rest: Mapping[str, Any]


class Renewal(NamedTuple):
    """What the token endpoint answered."""

    status: int
    body: Mapping[str, Any]


Post = Callable[[str, Mapping[str, str]], Renewal]


class Keys:
    """The token of one account, for as many threads and processes as want it."""

    def __init__(
        self,
        *,
        tokens: Sequence[Path],
        clients: Sequence[Path],
        token_uri: str,
        now: Callable[[], float],
        account: str = "",
    ) -> None:
        self._tokens = tuple(tokens)
        self._clients = tuple(clients)
        self._uri = token_uri
        self._now = now
        self.remedy = sign_in(account)
        self._turn = threading.Lock()
        self._held: Token | None = None

    def access(self, post: Post, *, spent: str = "") -> str:
        """Return an access token; one that was `spent`, or has run out, is renewed first."""
        with self._turn:
            token = self._held or self.token()
            if not self._good(token, spent):
                # Another process, or `postroom auth gmail`, may have been here.
                token = self.token()
                if not self._good(token, spent):
                    token = self._renewed(token.file, post, spent)
            self._held = token
            return token.access

    @property
    def whose(self) -> str:
        """What tells one sign-in from another: a hash, since the token itself is nobody's business."""
        held = self._held
        return hashlib.sha256((held.refresh or held.access).encode()).hexdigest() if held else ""

    def token(self) -> Token:
        """Return the token as it is on the disk, or raise `AuthRequired`."""
        return find_token(self._tokens, self.remedy)

    def _good(self, token: Token, spent: str) -> bool:
        fresh = not token.expiry or token.expiry - EARLY > self._now()
        return bool(token.access) and token.access != spent and fresh

    def _renewed(self, file: Path, post: Post, spent: str) -> Token:
        with locked(lock_of(file)):
            token = find_token([file], self.remedy)
            return token if self._good(token, spent) else self._renew(token, post)

    def _renew(self, token: Token, post: Post) -> Token:
        if not token.refresh:
            raise AuthRequired(
                f"The token in {token.file} has run out, and cannot be renewed",
                remedy=self.remedy,
                kind="expired",
            )
        client = self._client(token)
        form = {
            "grant_type": "refresh_token",
            "refresh_token": token.refresh,
            "client_id": client.id,
            "client_secret": client.secret,
        }
        status, body = post(self._uri, form)
        access, seconds = body.get("access_token"), body.get("expires_in", 3600)
        if status == 200 and isinstance(access, str) and isinstance(seconds, int | float):
            lasts = seconds if 0 < seconds < MAX_SECONDS else 3600
            return self._keep(token, access, lasts, body)
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

    def _keep(self, token: Token, access: str, seconds: float, body: Mapping[str, Any]) -> Token:
        expiry = datetime.fromtimestamp(self._now() + seconds, UTC)
        new = dict(token.rest) | {"token": access, "token_uri": self._uri}
        new["expiry"] = f"{expiry:%Y-%m-%dT%H:%M:%S}Z"
        if "access_token" in new:  # another program's spelling, which it reads again
            new["access_token"] = access
            new["expiry_date"] = int(expiry.timestamp() * 1000)
        if isinstance(rotated := body.get("refresh_token"), str):
            new["refresh_token"] = rotated
        write_token(token.file, new)
        return read_token(token.file, self.remedy)

    def _client(self, token: Token) -> Client:
        id, secret = token.rest.get("client_id"), token.rest.get("client_secret")
        if isinstance(id, str) and isinstance(secret, str):
            return Client(id, secret)
        return find_client(self._clients)


def sign_in(account: str = "") -> str:
    """Return the sentence that says how to sign in."""
    return SIGN_IN.replace("gmail`", f"gmail --account {account}`") if account else SIGN_IN


def lock_of(file: Path) -> Path:
    """Return the lock of a token's file, beside it: whoever shares the one shares the other."""
    real = Path(os.path.realpath(file))
    return real.with_name(f".{real.name}.lock")


def find_token(files: Sequence[Path], remedy: str) -> Token:
    """Return the token from the first of these files that is there, or raise `AuthRequired`.

    After one that was set aside none is looked for further on: a folder that agents write to could
    put another account in its place.
    """
    for file in files:
        try:
            return read_token(file, remedy)
        except FileNotFoundError:
            if aside := sorted(file.parent.glob(f"{file.name}.revoked*")):
                raise _revoked(aside[-1], remedy) from None
    raise AuthRequired("Nobody is signed in to Gmail", remedy=remedy, kind="missing")


def _revoked(aside: Path, remedy: str) -> AuthRequired:
    return AuthRequired(
        f"Google no longer accepts the token: it was revoked, or has run out (it is kept as {aside})",
        remedy=f"{remedy} Where it ends after seven days, the app is in Google's testing mode:"
        " docs/gmail.md says how to publish it.",
        kind="expired",
    )


def read_token(file: Path, remedy: str = SIGN_IN) -> Token:
    """Return the token in this file; it is the caller's who catches that there is none."""
    found = _owned_json(file, stat.S_IRWXG | stat.S_IRWXO, remedy)
    access = _text(found, "token") or _text(found, "access_token")
    refresh = _text(found, "refresh_token")
    if not (access or refresh):
        raise Corrupt(f"{file} holds no token", remedy=remedy)
    scopes = found.get("scopes", found.get("scope"))
    named = scopes.split() if isinstance(scopes, str) else scopes
    kept = tuple(s for s in named if isinstance(s, str)) if isinstance(named, list) else ()
    return Token(file, access, refresh, _expiry(found), kept, found)


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else ""


def _expiry(found: Mapping[str, Any]) -> float:
    said, milliseconds = found.get("expiry"), found.get("expiry_date")
    if isinstance(said, str):
        with suppress(ValueError):
            # google-auth writes UTC, with a Z or without.
            return datetime.fromisoformat(said.removesuffix("Z")).replace(tzinfo=UTC).timestamp()
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0


def write_token(file: Path, content: Mapping[str, Any]) -> None:
    """Replace the file of a token, or of a client, whole, for its owner alone."""
    try:
        replace(Path(os.path.realpath(file)), json.dumps(content).encode(), 0o600)
    except OSError as why:
        raise Unavailable(
            f"{file} cannot be written: {why.strerror}", remedy="Make its folder one you may write."
        ) from why


def set_aside(file: Path) -> Path:
    """Rename a token's file so that nobody uses it again, and nothing is lost; return its new name."""
    number, place = 1, file.with_name(f"{file.name}.revoked")
    while place.exists():
        number += 1
        place = file.with_name(f"{file.name}.revoked-{number}")
    with suppress(FileNotFoundError):
        file.rename(place)
    return place


def find_client(files: Sequence[Path]) -> Client:
    """Return the OAuth client from the first of these files that is there."""
    for file in files:
        with suppress(FileNotFoundError):
            return read_client(file)
    raise AuthRequired(
        f"There is no OAuth client at {' or '.join(map(str, files))}",
        remedy="Make one of the type Desktop app in Google's console (docs/gmail.md shows each step),"
        " and give its file: `postroom auth gmail --credentials FILE`.",
    )


def read_client(file: Path) -> Client:
    """Return the OAuth client in this file; one of another kind is refused by its name."""
    again = "Download it again from Google's console: Clients, Download JSON."
    found = _owned_json(file, stat.S_IWGRP | stat.S_IWOTH, again)
    body = found.get("installed")
    if isinstance(body, dict):
        id, secret = _text(body, "client_id"), _text(body, "client_secret")
        if id and secret:
            return Client(id, secret, _text(body, "auth_uri"), found)
    kinds = {
        "web": "the client of a web application",
        "private_key": "the key of a service account",
        "refresh_token": "a token and not a client",
        "access_token": "a token and not a client",
        "token": "a token and not a client",
    }
    kind = next((said for key, said in kinds.items() if key in found), "no OAuth client")
    raise Invalid(
        f"{file} is {kind}",
        remedy="In Google's console, make an OAuth client of the type Desktop app, and download"
        " its JSON: docs/gmail.md shows each step.",
    )


def _owned_json(file: Path, others: int, again: str) -> dict[str, Any]:
    """Return what a file of this user's holds, which others have not these rights to."""
    try:
        handle = open_regular(file, os.O_RDONLY, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(file) from None
    except NotRegularFile as why:
        raise Denied(f"{file} is no plain file", remedy="Name the file itself.") from why
    except OSError as why:
        raise Unavailable(
            f"{file} cannot be read: {why.strerror}", remedy="Make it a file that you may read."
        ) from why
    seen = os.fstat(handle)
    with os.fdopen(handle, "rb") as stream:
        if seen.st_uid != os.geteuid():
            raise Denied(
                f"{file} belongs to another user",
                remedy="Move it away and sign in with `postroom auth gmail`.",
            )
        if seen.st_mode & others:
            raise Denied(
                f"Others may use {file} (mode {stat.S_IMODE(seen.st_mode):04o})",
                remedy=f"Run `chmod 600 {file}`. If others had the chance to read it, then"
                " `postroom auth gmail --revoke`, and sign in again.",
            )
        raw = stream.read(MAX_FILE + 1)
    try:
        found = json.loads(raw) if len(raw) <= MAX_FILE else None
    except (ValueError, RecursionError):  # without its cause, which may hold the token
        found = None
    if not isinstance(found, dict):
        raise Corrupt(f"{file} is no JSON object", remedy=again)
    return found
