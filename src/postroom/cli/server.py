"""`postroom mcp` on standard input and output, as clients start it.

A client waits for it at every start, so this module imports neither click nor the desk. `cli/serve` has
the command with its help and its errors, and the server over HTTP.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from postroom.config.loading import load_settings
from postroom.core.errors import Invalid, PostroomError, Unavailable
from postroom.tools import listing

if TYPE_CHECKING:
    from postroom.config.settings import Config
    from postroom.desk.desk import Desk
    from postroom.tools.calls import Calls


class Options(NamedTuple):
    server: str = "all"
    contract: str = "postroom"
    agent: str = ""

    @property
    def module(self) -> str:
        return listing.SERVERS[self.server][self.contract]

    def check(self) -> None:
        """Raise `Invalid` for a contract that this server does not have, or a name that no agent may have."""
        if self.contract not in listing.SERVERS[self.server]:
            raise Invalid(
                f"The server {self.server} has no contract {self.contract}",
                remedy="Name the server email, which has all contracts, or leave out --contract.",
            )
        if self.agent:
            from postroom.core.text import check_agent_name

            check_agent_name(self.agent)


class ConfiguredDesk:
    """The desk of the settings, opened at the first call so that a client's start does not wait for it."""

    def __init__(self, settings: Callable[[], Config] = load_settings) -> None:
        self.config = cache(settings)
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._opened: Desk | None = None

    def desk(self) -> Desk:
        from postroom.wiring.desk import require_desk

        with self._lock:
            if self._opened is None:
                vault = self.config().vault.path
                try:
                    vault.mkdir(parents=True, exist_ok=True)
                except OSError as why:
                    raise Unavailable(
                        f"The vault {vault} cannot be made: {why.strerror}",
                        remedy="Set VAULT_PATH to your vault's folder, in the client's entry or your settings.",
                    ) from why
                self._opened = self._stack.enter_context(require_desk(self.config()))
            return self._opened

    def tokens(self) -> dict[str, str]:
        from postroom.wiring import state_folder
        from postroom.wiring.files import read_tokens

        state = state_folder(self.config(), make=False)
        return {} if state is None else read_tokens(state)

    def close(self) -> None:
        with self._lock:
            self._stack.close()


def load_listing(name: str, provider: ConfiguredDesk) -> dict[str, Any]:
    """Return what a contract lists, with the accounts and the folder of the settings."""
    found = listing.load(name)
    instructions = found["instructions"]
    if not found["accounts"] and "{room}" not in instructions:
        return found
    try:
        config = provider.config()
    except PostroomError:  # each call raises it again, and clients show that
        return {**found, "instructions": instructions.replace("{room}", "")}
    instructions = instructions.replace("{room}", config.vault.room_prefix)
    accounts = [account.name for account in config.accounts]
    return listing.with_accounts(
        {**found, "instructions": instructions}, accounts, config.default_account
    )


def load_calls(name: str, found: dict[str, Any], provider: ConfiguredDesk) -> Calls:
    """Return the calls of a contract; import everything that they need."""
    from importlib import import_module

    import postroom.wiring.desk  # noqa: F401 - so that the first call does not wait for it
    from postroom.tools.calls import Calls

    contract = import_module(f"postroom.tools.contracts.{name}").CONTRACT
    return Calls(contract, found["arguments"], provider.desk, provider.close)


def load_server(options: Options) -> Callable[[], NoReturn]:
    """Return a function that serves one client and exits; raise errors before anything is read."""
    from postroom.tools import stdio

    provider = ConfiguredDesk()
    found = load_listing(options.module, provider)
    return partial(
        stdio.serve, found, lambda: load_calls(options.module, found, provider), agent=options.agent
    )


def main(arguments: Sequence[str]) -> None:
    """Serve a client that has started `postroom mcp` with these arguments.

    Returns where click must handle them: for a person at a terminal, help, HTTP, or an error.
    """
    options = parse(arguments)
    if options is None or not (sys.__stdin__ and sys.__stdout__) or sys.__stdin__.isatty():
        return
    try:
        options.check()
        serve = load_server(options)
    except Exception:  # noqa: BLE001 - the click command tries again, and reports it
        return
    serve()


def parse(arguments: Sequence[str]) -> Options | None:
    """Return the options, or `None` where click must handle the arguments."""
    given: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in listing.SERVERS:
            field, value = "server", word
        elif name in ("--contract", "--agent"):
            field, value = name[2:], value if equals else next(rest, "")
        else:
            return None
        if not value or field in given:
            return None
        given[field] = value
    return Options(**given)
