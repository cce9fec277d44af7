"""What all commands share: options, settings, the desk, questions, and text and JSON for a terminal."""

from __future__ import annotations

import getpass
import io
import json
import os
import re
import signal
import sys
import termios
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from postroom import wiring
from postroom.config.settings import PATH, SETTINGS, Config
from postroom.core.errors import Denied
from postroom.core.text import clean, one_line

if TYPE_CHECKING:
    from postroom.core.stamp import Stamp
    from postroom.core.stop import StopEvent
    from postroom.desk.desk import Desk

WIDTH = 80
FIELD = 9  # columns of a field's name
GAP = "  "  # between two cells of a table
NEEDS_DIGEST = "Run it in one, or give --yes with the first eight digits of the digest."
_ACTED_UPON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

json_option = click.option("--json", is_flag=True, expose_value=False, help="Write JSON.")
account_option = click.option("--account", metavar="NAME", help="The account, where there are several.")  # fmt: skip

_Command = TypeVar("_Command", bound=click.Command)
_PERSONAL: set[click.Command] = set()


def personal(command: _Command) -> _Command:
    """Mark a command that approves, loosens, signs in or sets up: agents must not run it.

    `postroom install` writes rules against each command that is marked.
    """
    _PERSONAL.add(command)
    return command


def is_personal(command: click.Command) -> bool:
    return command in _PERSONAL


def wants_json() -> bool:
    return bool(click.get_current_context().obj)


def output(values: object, rows: Iterable[str] | Mapping[str, str], *hints: str) -> None:
    """Write a command's result: `values` with --json, else `rows`, and `hints` to stderr.

    A mapping is written as named fields, without those that are empty.
    """
    if wants_json():
        text = json.dumps(values, ensure_ascii=False, indent=2)
        # A terminal must not act upon what a mail or an agent wrote.
        click.echo(_ACTED_UPON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
        return
    if isinstance(rows, Mapping):
        rows = [field(name, text) for name, text in rows.items() if text]
    # One write: a line at a time costs more than finding them.
    if text := "\n".join(rows):
        click.echo(text)
    for hint in hints:
        say(hint)


def read_text(name: str) -> str:
    return Path(__file__).with_name("texts").joinpath(name).read_text("utf-8")


def say(text: str) -> None:
    """Write a sentence for a person to stderr, next to the data on stdout."""
    click.echo(folded(text), err=True)


def settings() -> Config:
    """Return the settings of this process, after a warning about values that were not understood."""
    config = wiring.settings()
    for warning in config.mode.warnings:
        say(f"warning: {warning}")
    return config


def variables(config: Config) -> dict[str, str]:
    """Return the environment variables by which another process finds what this one found."""
    found = {}
    for setting in SETTINGS:
        if setting.variable and (value := os.environ.get(setting.variable)):
            path = str(Path(value).expanduser().absolute())
            found[setting.variable] = path if setting.kind is PATH else value
    if config.source("vault.path") == "default":
        found["VAULT_PATH"] = str(config.vault.path.absolute())
    return found


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
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


def passphrase_if_needed(desk: Desk) -> str | None:
    return ask_passphrase() if desk.rules.trust == "desk" else None


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
    with open_terminal(remedy) as terminal:
        # What was typed before the question is not an answer to it.
        termios.tcflush(terminal, termios.TCIFLUSH)
        terminal.write(f"{question} [y/N] ")
        return terminal.readline().strip().lower() in {"y", "yes"}


def require(question: str, remedy: str = NEEDS_DIGEST) -> None:
    if not confirm(question, remedy):
        raise click.Abort


def ask_passphrase(prompt: str = "Passphrase: ") -> str:
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
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while (left := end - time.monotonic()) > 0:
            click.echo(f"\r{what} in {left:.0f} s. Ctrl-C {how}. ", nl=False, err=True)
            time.sleep(min(left, 0.2))
    finally:  # also after Ctrl-C, of which the terminal shows `^C`
        click.echo(f"\r{' ' * 76}\r", nl=False, err=True)


@contextmanager
def stopped_by_signals(stopping: StopEvent) -> Iterator[None]:
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


def width() -> int:
    """Return the columns to write to: the terminal's, or 80 where there is none."""
    try:
        return max(40, os.get_terminal_size().columns)
    except OSError:
        return WIDTH


def _wrap(text: str, columns: int, first: str = "", further: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        columns,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def folded(text: str, indent: str = "") -> str:
    """Return a text on lines that fit, cleaned; a path or a command is never broken."""
    return "\n".join(_wrap(clean(text).text, WIDTH - 1, indent, indent))


def hanging(head: str, text: str) -> str:
    """Return a text after its head; its further lines start below its first word."""
    return head + folded(text, " " * len(click.unstyle(head))).lstrip()


def wrapped(text: str, columns: int = 0) -> Iterator[str]:
    """Yield lines that fit, broken between words; a long address stays in one piece."""
    columns = columns or width() - 1
    for row in text.split("\n"):
        if len(row) <= columns:
            yield row
            continue
        mark = row[: len(row) - len(row.lstrip("> "))][: columns // 2]
        yield from _wrap(row, columns, "", mark)


def _columns(text: str) -> int:
    """Return how many columns of the terminal a text takes."""
    others = [char for char in text if char > "\u02ff"]  # each before them takes one
    seen = [char for char in others if not unicodedata.combining(char)]
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in seen)
    return len(text) - len(others) + len(seen) + wide


def fit(text: str, columns: int) -> str:
    """Return the text on one line, padded or cut to this many columns of the terminal."""
    text = one_line(text)
    if text.isascii():
        return text.ljust(columns) if len(text) <= columns else text[: columns - 1] + "…"
    used = 0
    for at, char in enumerate(text):
        if used + _columns(char) > columns - 1:
            return text[:at] + "…" + " " * (columns - used - 1)
        used += _columns(char)
    return text + " " * (columns - used)


def table_row(*cells: str, last: str) -> str:
    """Return a row of a table: cells of fixed width, and a last one that gets the columns left over."""
    head = "".join(f"{cell}{GAP}" for cell in cells)
    left = width() - 1 - _columns(click.unstyle(head))
    return (head + fit(last, max(10, left))).rstrip()


def field(name: str, text: str) -> str:
    return hanging(field_name(name), text)


def field_name(name: str) -> str:
    return click.style((f"{name}: " if name else "").ljust(FIELD), dim=True)


def field_list(name: str, items: Iterable[object]) -> list[str]:
    """Return a named list, broken only between its items."""
    # A space within an item is not a place to break: it is another character meanwhile.
    words = ", ".join(one_line(str(item)).replace(" ", "\0") for item in items)
    rows = _wrap(words, width() - FIELD - 1)
    return [field_name("" if at else name) + row.replace("\0", " ") for at, row in enumerate(rows)]


def envelope(people: Iterable[tuple[str, Sequence[object]]], subject: str) -> Iterator[str]:
    for name, parties in people:
        yield from field_list(name, parties)
    yield field_name("Subject") + click.style(one_line(subject) or "(no subject)", bold=True)


def short_date(second: float) -> str:
    return datetime.fromtimestamp(int(second)).astimezone().strftime("%Y-%m-%d %H:%M")


def local_time(stamp: Stamp) -> str:
    return short_date(stamp.wall)


def size(count: int) -> str:
    for unit, many in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= many:
            return f"{count / many:.1f} {unit}"
    return f"{count} bytes"
