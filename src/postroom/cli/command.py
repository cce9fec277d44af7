"""What all commands share: options, settings, the desk, and one way to write a result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli.printing import print_json, say

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.desk.desk import Desk

_JSON = "postroom.json"


def _remember(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[_JSON] = given


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Write JSON."
)
account_option = click.option(
    "--account", metavar="NAME", help="The account, where there are several."
)


def wants_json() -> bool:
    """Return whether the command that runs was given --json."""
    return bool(click.get_current_context().meta.get(_JSON))


def output(values: object, rows: Iterable[str], *hints: str) -> None:
    """Write a command's result: `values` with --json, else `rows`, and `hints` to stderr."""
    if wants_json():
        print_json(values)
        return
    # One write: a line at a time costs more than finding them.
    if text := "\n".join(rows):
        click.echo(text)
    for hint in hints:
        say(hint)


def settings() -> Config:
    """Return the settings of this process, after a warning about values that were not understood."""
    config = wiring.settings()
    for warning in config.mode.warnings:
        say(f"warning: {warning}")
    return config


@contextmanager
def open_desk(*, make: bool = False, adopt: bool = False) -> Iterator[Desk]:
    """Lend the desk, reconciled with its folders; say what people should know of that.

    `make` begins one where the vault has none, `adopt` takes requests from `Plans/`.
    """
    from postroom.wiring.desk import needed

    with needed(settings(), make=make) as desk:
        for sentence in desk.reconcile(adopt=adopt):
            say(sentence)
        yield desk


def login_name() -> str:
    """Return the person's name for the records: that of the login."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


def passphrase_if_needed(desk: Desk) -> str | None:
    """Ask for the passphrase where the trust level needs it; else return None."""
    from postroom.cli import terminal

    return terminal.ask_passphrase() if desk.rules.trust == "desk" else None
