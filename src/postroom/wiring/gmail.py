"""Signing in to Gmail on this machine: where the keys are, what they allow, and how they are given up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin

from postroom.config import Account, Config
from postroom.core.errors import Invalid, NotFound, PostroomError, Unavailable
from postroom.mail.gmail import consent, oauth
from postroom.store.files import private_folder
from postroom.store.locks import locked
from postroom.wiring import gmail_files, gmail_name, mailbox, state_folder

CAN_SEND = (
    "Google has no scope that drafts or labels but cannot send: only --scopes read cannot. What"
    " Postroom itself sends waits for your approval."
)


class SignIn(NamedTuple):
    """A sign-in: its file, what it allows, as whom, and when it ends."""

    file: Path
    allows: tuple[str, ...]
    address: str = ""
    expected: str = ""  # the account's address by the settings, where it is none of the account's
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
    """Have the person agree, keep the token, and try it."""
    tokens, clients = _places(config, account)
    client = oauth.find_client(clients)
    if level != "read":
        say(CAN_SEND)
    by_draft = config.sends_by_draft(account)
    given = consent.ask(
        client,
        consent.scopes(level, by_draft=by_draft),
        token_uri=config.gmail.token_uri,
        pasted=pasted,
        say=say,
    )
    file = tokens[0]
    if not file.parent.exists():
        private_folder(file.parent)
    with locked(oauth.lock_path(file)):
        oauth.write_json(file, given.token)
    signed = status(config, account)
    missed = consent.permissions(tuple(given.lacking))
    lacking = tuple(word for word in missed if word not in signed.allows)
    return signed._replace(ends=given.seconds, lacking=lacking)


def _places(config: Config, account: Account) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return where token and client belong; a state folder comes with the desk, not by itself."""
    named = config.gmail.token_path and config.gmail.credentials_path
    if not named and state_folder(config, make=False) is None:
        raise Invalid(
            f"There is no desk at the vault {config.vault.path} yet",
            remedy="Run `postroom init` first.",
        )
    return gmail_files(config, account)


def keep_client(config: Config, file: Path) -> Path:
    """Keep a copy of an OAuth client's file where it is looked for first; return that place."""
    try:
        client = oauth.read_client(file)
    except FileNotFoundError:
        raise NotFound(f"{file} is not there", remedy="Name the file from Google.") from None
    _, clients = _places(config, config.account())
    place = clients[0]
    if place != file.absolute():
        if not place.parent.exists():
            private_folder(place.parent)
        oauth.write_json(place, client.fields)
    return place


def status(config: Config, account: Account) -> SignIn:
    """Return what the account is signed in for, after asking Gmail; without a token `AuthRequired`."""
    token = _token(config, account)
    signed = SignIn(token.file, consent.permissions(token.scopes))
    box = mailbox(_as_gmail(config, account), account.name)
    assert box is not None
    with closing(box):
        try:
            own = [address.spec for address in box.own_addresses()]
            return signed._replace(address=own[0], expected=_expected(config, account, own))
        except PostroomError as wrong:
            return signed._replace(problem=wrong)


def _expected(config: Config, account: Account, own: list[str]) -> str:
    said = config.source(f"accounts.{account.name}.address") != "default"
    known = account.address.casefold() in {address.casefold() for address in own}
    return account.address if said and not known else ""


def revoke(config: Config, account: Account) -> Path:
    """Have Google forget the sign-in, and set its file aside; return where that was."""
    import httpx2

    token = _token(config, account)
    uri = urljoin(config.gmail.token_uri, "revoke")
    form = {"token": token.refresh or token.access}
    try:
        with httpx2.Client(trust_env=uri.startswith("https://"), timeout=30.0) as http:
            answer = http.post(uri, data=form)
    except httpx2.RequestError as why:
        raise Unavailable(
            f"Google cannot be reached ({type(why).__name__}); the token is as it was",
            remedy="Try again, or remove the app at myaccount.google.com/permissions.",
        ) from why
    if answer.status_code not in {200, 400}:  # 400: Google does not know it any more
        raise Unavailable(
            f"Google did not revoke the token ({answer.status_code}); it is as it was",
            remedy="Try again, or remove the app at myaccount.google.com/permissions.",
        )
    oauth.set_aside(token.file)
    return token.file


def _token(config: Config, account: Account) -> oauth.OAuthToken:
    tokens, _ = gmail_files(config, account)
    return oauth.find_token(tokens, oauth.sign_in_remedy(gmail_name(config, account)))


def _as_gmail(config: Config, account: Account) -> Config:
    """Return the settings as they are once the account is Gmail's."""
    from dataclasses import replace

    others = tuple(other for other in config.accounts if other.name != account.name)
    if len(others) == len(config.accounts):
        raise NotFound(f"There is no account {account.name}")
    return replace(config, accounts=(replace(account, provider="gmail"), *others))
