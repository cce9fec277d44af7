"""`postroom mcp`: the server that agents talk to."""

from __future__ import annotations

import sys

import click

from postroom.cli.printing import say
from postroom.cli.server import (
    ConfiguredDesk,
    Options,
    load_calls,
    load_listing,
    load_server,
)
from postroom.core.errors import AuthRequired, Invalid
from postroom.core.lookalike import check_agent_name
from postroom.tools.listing import SERVERS

CONTRACTS = sorted({name for contracts in SERVERS.values() for name in contracts})
contract_option = click.option(
    "--contract",
    type=click.Choice(CONTRACTS),
    default="postroom",
    show_default=True,
    help="Which names and texts the tools have.",
)


@click.command("mcp")
@click.argument("server", type=click.Choice(sorted(SERVERS)), default="all", metavar="[SERVER]")
@contract_option
@click.option(
    "--agent",
    default="",
    metavar="NAME",
    help="The agent's name; by default the client's own, except in agent mail.",
)
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP, on this machine, instead of stdio.")  # fmt: skip
def mcp_command(server: str, contract: str, agent: str, http: str | None) -> None:
    """Serve mail, notes and agent mail over MCP.

    Agents search, read, draft and reply; nothing that they ask to send is sent before you approve
    it. They keep notes in your vault, but cannot touch the folders where you approve; they write to
    other agents in the same repository. SERVER is `email`, `vault`, `agents`, or `all` (the default).
    `email` can take the names and texts of another email server, for a client that was written for
    it: --contract approval, dry-run or gmail. Clients start it on standard input and output:
    `postroom install` registers it with yours. With --http, clients need a token that `postroom
    init` has made.
    """
    if agent:
        check_agent_name(agent)
    if contract not in SERVERS[server]:
        raise Invalid(
            f"The server {server} has no contract {contract}",
            remedy=f"Say `postroom mcp email --contract {contract}`.",
        )
    if http is not None:
        _serve_http(Options(server, contract, agent), http)
        return
    # Python has none where the descriptor is closed.
    if not (sys.__stdin__ and sys.__stdout__):
        raise Invalid("Standard input or output is closed", remedy="Let a client start it.")
    if sys.stdin.isatty():
        say("Serving MCP on standard input, for a client. Ctrl-C ends it.")
    load_server(Options(server, contract, agent))()


def _serve_http(options: Options, http: str) -> None:
    from postroom.cli.desk import listen, parse_address
    from postroom.tools.serve import Service, run_http

    provider = ConfiguredDesk()
    where, known, agent = parse_address(http), provider.tokens(), options.agent
    if not known:
        raise AuthRequired(
            "There is no token that a client could sign in with",
            remedy="Run `postroom init` first.",
        )
    if agent.casefold() in {name.casefold() for name in known.values() if name}:
        raise Invalid(
            f"{agent} is the name of a token", remedy="Leave --agent out: that client has its own."
        )
    name = SERVERS[options.server][options.contract]
    listing = load_listing(name, provider)
    service = Service(listing, load_calls(name, listing, provider), agent=agent)
    listener = listen(where, "--http")
    if not where.is_loopback:
        say("The token is sent unencrypted: put TLS in front of this.")
    run_http(service, listener, where.url_host, provider.tokens)
