"""The controlling terminal, where a person answers whatever stdin is; and the signals that end a command."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import click

from postroom.core.errors import Denied

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
