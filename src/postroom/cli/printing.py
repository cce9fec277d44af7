"""Text for a terminal: cleaned, folded to its width, in fields and tables; and JSON."""

from __future__ import annotations

import json
import os
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime

import click

from postroom.core.text import clean, one_line

_ACTED_UPON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
WIDTH = 80
FIELD = 9  # columns of a field's name
GAP = "  "  # between two cells of a table


def width() -> int:
    """Return the columns to write to: the terminal's, or 80 where there is none."""
    try:
        return max(40, os.get_terminal_size().columns)
    except OSError:
        return WIDTH


def print_json(value: object) -> None:
    """Write one JSON document; characters that a terminal acts upon are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_ACTED_UPON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def say(text: str = "") -> None:
    """Write a sentence for a person to stderr, next to the data on stdout."""
    click.echo(folded(text), err=True)


def folded(text: str, indent: str = "") -> str:
    """Return a text on lines that fit, cleaned; a path or a command is never broken."""
    return textwrap.fill(
        clean(text).text,
        WIDTH - 1,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
        yield from textwrap.wrap(
            row, columns, subsequent_indent=mark, break_long_words=False, break_on_hyphens=False
        )


def _columns(char: str) -> int:
    return 0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")


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
    left = width() - 1 - sum(map(_columns, click.unstyle(head)))
    return head + fit(last, max(10, left)).rstrip()


def field(name: str, text: str) -> str:
    """Return a named value on lines that fit."""
    return hanging(field_name(name), text)


def field_name(name: str) -> str:
    """Return the name of a field, as wide as all of them."""
    return click.style(f"{f'{name}:' if name else '':<{FIELD}}", dim=True)


def field_list(name: str, items: Iterable[object]) -> Iterator[str]:
    """Yield a named list, broken only between its items."""
    words = [one_line(str(item)) for item in items]
    current = ""
    for at, word in enumerate(words, 1):
        text = word if at == len(words) else f"{word},"
        if current and len(current) + 1 + len(text) > width() - FIELD - 1:
            yield field_name(name) + current
            name, current = "", text
        else:
            current = f"{current} {text}".strip()
    if current:
        yield field_name(name) + current


def short_date(second: float) -> str:
    """Return day and time in the person's zone."""
    return datetime.fromtimestamp(int(second)).astimezone().strftime("%Y-%m-%d %H:%M")


def size(count: int) -> str:
    """Return a number of bytes in the unit that fits it."""
    if count < 1000:
        return f"{count} bytes"
    left = count / 1000
    for unit in ("KB", "MB"):
        if left < 1000:
            return f"{left:.1f} {unit}"
        left /= 1000
    return f"{left:.1f} GB"
