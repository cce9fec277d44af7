"""Puts the concrete parts together for this machine: the only place that names a provider."""

from __future__ import annotations

import os
import time
from base64 import b32encode
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.config.loading import load_settings
from postroom.config.settings import Account, Config
from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.store.desk import desk_id, make_desk, read_secret, refuse_lost, register

if TYPE_CHECKING:
    from httpx2 import BaseTransport

    from postroom.mail.local import LocalMailbox
    from postroom.mail.mailbox import Mailbox

settings = load_settings


def local_zone() -> tzinfo:
    """Return the zone in which the person's days begin."""
    return datetime.now().astimezone().tzinfo or UTC


def mailbox(
    config: Config,
    account: str | None = None,
    *,
    make: bool = False,
    transport: BaseTransport | None = None,
) -> Mailbox | None:
    """Return the account's mailbox; None where it has none yet, unless `make`.

    `transport` replaces HTTP for an account at a provider.
    """
    chosen = config.account(account)
    if chosen.provider == "gmail":
        return gmail_mailbox(config, chosen, transport)
    return local_mailbox(config, account, make=make)


def gmail_mailbox(
    config: Config, account: Account, transport: BaseTransport | None = None
) -> Mailbox:
    """Return the account's mailbox at Gmail, also where the settings do not use it yet."""
    from postroom.mail.gmail import open_gmail  # brings the HTTP client

    tokens, clients = gmail_files(config, account)
    return open_gmail(
        config.gmail.endpoint,
        config.gmail.token_uri,
        tokens=tokens,
        clients=clients,
        account=gmail_name(config, account),
        by_draft=config.sends_by_draft(account),
        transport=transport,
    )


def local_mailbox(
    config: Config, account: str | None = None, *, make: bool = False
) -> LocalMailbox | None:
    """Return the account's embedded mailbox, which mail can be imported into; None as for `mailbox`."""
    from postroom.mail.local import LocalMailbox  # a list of letters needs no mail

    chosen = config.account(account)
    if chosen.provider != "local":
        raise Invalid(
            f"The mail of the account {chosen.name} is at {chosen.provider}, so nothing is imported here",
            remedy="Name another account, or set POSTROOM_PROVIDER to local.",
        )
    state = state_folder(config, make=make)
    if state is None or not (make or _file(state, chosen).exists()):
        return None
    neighbours = {
        address.key: _file(state, other)
        for other in config.accounts
        if other.provider == "local" and other.name != chosen.name
        for address in _addresses(other)
    }
    own = _file(state, chosen), _addresses(chosen)
    return LocalMailbox(*own, now=time.time, zone=local_zone(), neighbours=neighbours)


def gmail_files(config: Config, account: Account) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return where the account's token and its OAuth client may be, in the order of search."""
    # Without a desk there is no state folder: any other is as empty.
    state = state_folder(config, make=False) or config.desks

    def places(given: Path | None, file: str) -> tuple[Path, ...]:
        return (given,) if given else (state / file, config.cwd / file)

    clients = places(config.gmail.credentials_path, "credentials.json")
    if name := gmail_name(config, account):
        return (state / f"token-{name}.json",), clients
    return places(config.gmail.token_path, "token.json"), clients


def gmail_name(config: Config, account: Account) -> str:
    """Return the account's name in its token's file name: empty where it is the only one at Gmail."""
    others = [one for one in config.accounts if one.provider == "gmail" and one != account]
    return account.name if others else ""


def state_folder(config: Config, *, make: bool) -> Path | None:
    """Return the state folder; None where there is no desk yet, unless `make`."""
    if config.state is not None:
        return config.state
    refuse_lost(config.vault.path, config.desks)
    desk = desk_id(config.vault.path)
    if desk is None and make:
        desk = make_desk(config.vault.path, draw_id)
        register(config.vault.path, config.desks, desk)
    return None if desk is None else config.state_for(desk)


def voice_key(config: Config, *, make: bool) -> bytes:
    """Return the key that seals the person's messages to agents; empty where there is none."""
    return read_secret((config.state or config.desks) / "voice.key", make=make)


def draw_id() -> str:
    return b32encode(os.urandom(10)).decode().lower()


def _file(state: Path, account: Account) -> Path:
    return state / "mail" / f"{account.name}.sqlite"


def _addresses(account: Account) -> tuple[Address, ...]:
    return tuple(Address(*spec.rsplit("@", 1)) for spec in (account.address, *account.aliases))
