"""Signing in to Gmail on this machine: where the tokens are, what they allow, and how to sign out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

from postroom.config.settings import Account, Config
from postroom.core.errors import Invalid, NotFound, PostroomError, Unavailable
from postroom.mail.gmail import consent, oauth
from postroom.store.files import locked, private_folder
from postroom.wiring import gmail_files, gmail_mailbox, gmail_name, state_folder

CAN_SEND = (
    "Google has no scope that drafts or labels but cannot send: only --scopes read cannot. What"
    " Postroom itself sends waits for your approval."
)


class SignIn(NamedTuple):
    file: Path
    allows: tuple[str, ...]
    address: str = ""
    expected: str = ""  # the account's address by the settings, where Google has another
    problem: PostroomError | None = None
    ends: int = 0  # seconds until Google ends the sign-in; 0 where it does not say
    lacking: tuple[str, ...] = ()


def sign_in(
    config: Config,
    account: Account,
    level: str,
    *,
    pasted: Callable[[str], str] | None,
    say: Callable[[str], None],
) -> SignIn:
    """Ask for the person's consent, keep the token, and try it.

    `pasted` shows an address and returns what the person pastes; without it a browser is opened.
    """
    tokens, clients = _file_places(config, account)
    client = oauth.find_client(clients)
    if level != "read":
        say(CAN_SEND)
    scopes = consent.scopes(level, by_draft=config.sends_by_draft(account))
    given = consent.ask(client, scopes, token_uri=config.gmail.token_uri, pasted=pasted, say=say)
    _make_folder(tokens[0])
    with locked(oauth.lock_path(tokens[0])):
        oauth.write_json(tokens[0], given.token)
    current = status(config, account)
    missed = consent.permissions(tuple(given.lacking))
    lacking = tuple(word for word in missed if word not in current.allows)
    return current._replace(ends=given.seconds, lacking=lacking)


def _file_places(config: Config, account: Account) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return where the token and the OAuth client may be; `Invalid` if that is in the state folder of a missing desk."""
    are_named = config.gmail.token_path and config.gmail.credentials_path
    if not are_named and state_folder(config, make=False) is None:
        raise Invalid(
            f"There is no desk at the vault {config.vault.path} yet",
            remedy="Run `postroom init` first.",
        )
    return gmail_files(config, account)


def _make_folder(file: Path) -> None:
    if not file.parent.exists():
        private_folder(file.parent)


def keep_client(config: Config, file: Path) -> Path:
    """Keep a copy of an OAuth client's file where it is searched first; return that place."""
    try:
        client = oauth.read_client(file)
    except FileNotFoundError:
        raise NotFound(f"{file} does not exist", remedy="Name the file from Google.") from None
    place = _file_places(config, config.account())[1][0]
    if place != file.absolute():
        _make_folder(place)
        oauth.write_json(place, client.fields)
    return place


def status(config: Config, account: Account) -> SignIn:
    """Return what the account is signed in for, after asking Gmail; raise `AuthRequired` without a token."""
    token = _find_token(config, account)
    current = SignIn(token.file, consent.permissions(token.scopes))
    with closing(gmail_mailbox(config, account)) as box:
        try:
            own = [address.spec for address in box.own_addresses()]
        except PostroomError as wrong:
            return current._replace(problem=wrong)
    is_set = config.source(f"accounts.{account.name}.address") != "default"
    is_known = account.address.casefold() in {address.casefold() for address in own}
    expected = account.address if is_set and not is_known else ""
    return current._replace(address=own[0], expected=expected)


def revoke(config: Config, account: Account) -> Path:
    """Make Google forget the sign-in, and set its file aside; return where that was."""
    import httpx2

    token = _find_token(config, account)
    uri = urljoin(config.gmail.token_uri, "revoke")
    try:
        with httpx2.Client(trust_env=uri.startswith("https://"), timeout=30.0) as http:
            answer = http.post(uri, data={"token": token.refresh or token.access})
        problem = f"Google did not revoke the token ({answer.status_code})"
        is_revoked = answer.status_code in {200, 400}  # 400: Google does not know it any more
    except httpx2.RequestError as why:
        problem, is_revoked = f"Google cannot be reached ({type(why).__name__})", False
    if not is_revoked:
        raise Unavailable(
            f"{problem}; the token is as it was",
            remedy="Try again, or remove the app at myaccount.google.com/permissions.",
        )
    oauth.set_aside(token.file)
    return token.file


def _find_token(config: Config, account: Account) -> oauth.OAuthToken:
    remedy = oauth.sign_in_remedy(gmail_name(config, account))
    return oauth.find_token(gmail_files(config, account)[0], remedy)
