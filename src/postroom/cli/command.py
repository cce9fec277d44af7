"""What all commands share: options, settings, the desk, and one way to write a result."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from postroom import wiring
from postroom.cli.printing import print_json, say
from postroom.core.errors import Denied

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
    from postroom.wiring.desk import require_desk

    with require_desk(settings(), make=make) as desk:
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

    return ask_passphrase() if desk.rules.trust == "desk" else None


NEEDS_DIGEST = "Run it in one, or give --yes with the first eight digits of the digest."


@contextmanager
def open_terminal(remedy: str) -> Iterator[TextIO]:
    """Lend the controlling terminal; refuse where there is none, because a pipe is not a person."""
    try:
        handle = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as why:
        raise Denied("There is no terminal to ask on", remedy=remedy) from why
    # Unbuffered below: a terminal cannot seek.
    with io.TextIOWrapper(os.fdopen(handle, "rb+", buffering=0), write_through=True) as terminal:
        yield terminal


def confirm(question: str, remedy: str = NEEDS_DIGEST) -> bool:
    """Return whether the person answers yes on the controlling terminal."""
    import termios

    with open_terminal(remedy) as terminal:
        # What was typed before the question is no answer to it.
        termios.tcflush(terminal, termios.TCIFLUSH)
        terminal.write(f"{question} [y/N] ")
        return terminal.readline().strip().lower() in {"y", "yes"}


def require(question: str, remedy: str = NEEDS_DIGEST) -> None:
    """End the command unless the person answers yes."""
    if not confirm(question, remedy):
        raise click.Abort


def ask_passphrase(prompt: str = "Passphrase: ") -> str:
    """Return the passphrase that the person types, without showing it."""
    import getpass

    # Without a terminal, getpass would fall back to stdin.
    with open_terminal("The passphrase is asked for on a terminal only: run it in one."):
        return getpass.getpass(prompt)


def count_down(seconds: float, what: str, how: str) -> None:
    """Wait, and show on a terminal what happens then and what Ctrl-C does; Ctrl-C is raised."""
    end = time.monotonic() + seconds
    if not sys.stderr.isatty():
        time.sleep(max(0.0, seconds))
        return
    # The parent process may ignore Ctrl-C; it must work here all the same.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while (left := end - time.monotonic()) > 0:
            click.echo(f"\r{what} in {left:3.0f} s. Ctrl-C {how}. ", nl=False, err=True)
            time.sleep(min(left, 0.2))
    finally:
        signal.signal(signal.SIGINT, before)
    click.echo(f"\r{' ' * 76}\r", nl=False, err=True)


@contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Set `stopping` at the first SIGINT or SIGTERM, and exit at the second."""

    def stop(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            raise SystemExit(128 + number)
        stopping.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
