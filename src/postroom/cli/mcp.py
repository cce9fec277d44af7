"""`postroom mcp`: the server that agents talk to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli.printing import say
from postroom.core.errors import AuthRequired, Invalid, PostroomError, Unavailable
from postroom.desk.outbox import Call, check_name

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.desk.desk import Desk

# server → contract → the module that has it; `all` is one server with the tools of every other.
SERVERS = {
    "all": {"postroom": "all"},
    "email": {
        "postroom": "postroom",
        "approval": "approval",
        "dry-run": "dry_run",
        "gmail": "gmail",
    },
    "vault": {"postroom": "vault"},
    "agents": {"postroom": "agents"},
}
CONTRACTS = sorted({name for contracts in SERVERS.values() for name in contracts})


class Office:
    """The desk of the settings, opened at the first call: until then, a client is not kept waiting."""

    def __init__(self, settings: Callable[[], Config] = wiring.settings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self._turn = threading.Lock()
        self._opened: Desk | None = None
        self._config: Config | None = None
        self.accounts: tuple[str, ...] = ()
        self.default_account = ""
        self.room = ""
        try:
            self._config = settings()
        except PostroomError:
            return  # each call says it, which a client shows; what we write here it hides
        self.accounts = tuple(account.name for account in self._config.accounts)
        self.default_account = self._config.default_account
        self.room = f"{self._config.room}/" if self._config.room else ""

    def desk(self) -> Desk:
        """Return the desk, or raise what is wrong with it."""
        from postroom.wiring.desk import desk

        with self._turn:
            if self._opened is None:
                config = self._config or self._settings()
                _make(config.vault)
                self._opened = self._stack.enter_context(desk(config, make=True))
                assert self._opened is not None
            return self._opened

    def tokens(self) -> dict[str, str]:
        """Return the tokens that are let in over HTTP, and whose each is."""
        from postroom.store.tokens import tokens

        config = self._config or self._settings()
        state = wiring.state_folder(config, make=False)
        return {} if state is None else tokens(state)

    def close(self) -> None:
        """Close the desk, if it was opened."""
        with self._turn:
            self._stack.close()


def _make(vault: Path) -> None:
    try:
        vault.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise Unavailable(
            f"The vault {vault} cannot be made: {why.strerror}",
            remedy="Set VAULT_PATH to your vault's folder, in the client's entry or your settings.",
        ) from why


@click.command("mcp")
@click.argument("server", type=click.Choice(sorted(SERVERS)), default="all")
@click.option("--contract", type=click.Choice(CONTRACTS), default="postroom", show_default=True, help="Which names and texts the tools have.")  # fmt: skip
@click.option(
    "--agent",
    default="",
    metavar="NAME",
    help="Who calls; else the client's own name, but in agent mail.",
)
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP, on this machine, instead of stdio.")  # fmt: skip
def mcp_command(server: str, contract: str, agent: str, http: str | None) -> None:
    """Serve mail, notes and agent mail over MCP.

    Agents search, read, draft and reply; nothing that they ask to send leaves before you have
    approved it. They keep notes in your vault, and cannot touch the folders where you approve; they
    write to other agents in the same repository. SERVER is `email`, `vault`, `agents`, or `all`, the
    default: every tool there is. `email` can take the names and texts of another email server, for a client that was written for it: --contract approval,
    dry-run or gmail. On standard input and output, as clients start it: `postroom install` registers it
    with yours. With --http, clients need a token that `postroom init` has made.
    """
    from importlib import import_module

    from postroom.tools.serve import Service, run_stdio

    if agent:
        check_name(Call("mcp", agent))
    if contract not in SERVERS[server]:
        raise Invalid(
            f"The server {server} has no contract {contract}",
            remedy=f"Say `postroom mcp email --contract {contract}`.",
        )
    table = import_module(f"postroom.tools.contracts.{SERVERS[server][contract]}").CONTRACT
    office = Office()
    service = Service(table, office, agent=agent)
    if http is None:
        # Python has none where the descriptor is closed.
        if not (sys.__stdin__ and sys.__stdout__):
            raise Invalid("Standard input or output is closed", remedy="A client starts this.")
        if sys.stdin.isatty():
            say("Serving MCP on standard input, as clients start it. Ctrl-C ends it.")
        run_stdio(service)
        return
    from postroom.cli.listening import listening, place
    from postroom.tools.http import run_http

    where, known = place(http), office.tokens()
    if not known:
        raise AuthRequired(
            "There is no token that a client could come in by", remedy="Run `postroom init` first."
        )
    if agent.casefold() in {name.casefold() for name in known.values() if name}:
        raise Invalid(
            f"{agent} is the name of a token", remedy="Leave --agent out: that client has its own."
        )
    listener = listening(where, "--http")
    if not where.is_loopback:
        say("The token travels in the clear: put TLS in front of this.")
    run_http(service, listener, where.shown, office.tokens)
