"""`postroom agentmail` as one of the commands: for `--help`, and for whoever calls past the short way."""

from __future__ import annotations

import click


@click.command(
    "agentmail",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def agentmail_command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Letters between agents: send, receive, status, mailman.

    Also recipients, onboard and cleanup; `postroom agentmail COMMAND --help` says more.
    """
    from postroom.cli.agentmail import main

    context.exit(main(arguments))
