"""The controlling terminal: where a person answers, whoever feeds stdin."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from postroom.core.errors import Denied


@contextmanager
def opened(
    remedy: str = "Run it in one, or give --yes with the first eight digits of the digest.",
) -> Iterator[TextIO]:
    """Lend the controlling terminal, or refuse: a pipe is nobody's word."""
    try:
        handle = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError as why:
        raise Denied(
            "There is no terminal to ask on",
            remedy=remedy,
        ) from why
    # Unbuffered below: a terminal cannot seek.
    with io.TextIOWrapper(os.fdopen(handle, "rb+", buffering=0), write_through=True) as terminal:
        yield terminal


def agrees(question: str, *remedy: str) -> bool:
    """Ask for a yes on the controlling terminal; `remedy` is that of its absence."""
    import termios

    with opened(*remedy) as terminal:
        # What was typed before the question is no answer to it.
        termios.tcflush(terminal, termios.TCIFLUSH)
        terminal.write(f"{question} [y/N] ")
        return terminal.readline().strip().lower() in {"y", "yes"}


def passphrase(prompt: str = "Passphrase: ") -> str:
    """Ask for the passphrase on the controlling terminal, without showing it."""
    import getpass

    # Without one, getpass would fall back to stdin.
    with opened("The passphrase is asked for on a terminal only: run it in one."):
        return getpass.getpass(prompt)


def count_down(seconds: float, what: str, how: str) -> None:
    """Wait so long, and show what happens then and what Ctrl-C does, which gets out."""
    end = time.monotonic() + seconds
    if not sys.stderr.isatty():
        time.sleep(max(0.0, end - time.monotonic()))
        return
    # Who started us may have let Ctrl-C be ignored; what is promised here holds all the same.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while (left := end - time.monotonic()) > 0:
            shown = f"\r{what} in {left:3.0f} s. Ctrl-C {how}. "
            click.echo(shown, nl=False, err=True)
            time.sleep(min(left, 0.2))
    finally:
        signal.signal(signal.SIGINT, before)
    click.echo(f"\r{' ' * 76}\r", nl=False, err=True)
