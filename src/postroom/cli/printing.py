"""What a person sees: cleaned, on lines that fit the terminal; and the same as JSON."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.core.text import clean, one_line

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.core.records import Entry

_ACTED_UPON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
WIDTH = 80
MARKS = (" ", "?", "!")  # of the levels of a risk card


def width() -> int:
    """Return the columns to write to: the terminal's, or 80 where there is none."""
    try:
        return max(40, os.get_terminal_size().columns)
    except OSError:
        return WIDTH


json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


def print_json(value: object) -> None:
    """Write one JSON document; what a terminal would act upon is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(_ACTED_UPON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def say(text: str = "") -> None:
    """Write a sentence for a person, beside the data."""
    click.echo(folded(text), err=True)


def settings() -> Config:
    """Return the settings of this process; what in them was not understood is said."""
    config = wiring.settings()
    for warning in config.mode.warnings:
        say(f"warning: {warning}")
    return config


def folded(text: str, indent: str = "") -> str:
    """Return a text on lines that fit, cleaned; a path or a command is never broken."""
    import textwrap

    return textwrap.fill(
        clean(text).text,
        WIDTH - 1,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hanging(head: str, text: str) -> str:
    """Return a text after its head, its further lines below its beginning."""
    return head + folded(text, " " * len(click.unstyle(head))).lstrip()


def fit(text: str, columns: int) -> str:
    """Return the text on one line, padded or cut to this many columns of the terminal."""
    text = one_line(text)
    if text.isascii():
        return text.ljust(columns) if len(text) <= columns else text[: columns - 1] + "…"
    taken: list[str] = []
    used = 0
    for char in text:
        wide = 1 + (unicodedata.east_asian_width(char) in "WF")
        wide = 0 if unicodedata.combining(char) else wide
        if used + wide > columns - 1:
            return "".join(taken) + "…" + " " * (columns - used - 1)
        taken.append(char)
        used += wide
    return text + " " * (columns - used)


def short_date(second: int) -> str:
    """Return the day and time in the person's zone."""
    return datetime.fromtimestamp(second).astimezone().strftime("%Y-%m-%d %H:%M")


def letter_lines(entry: Entry) -> Iterator[str]:
    """Yield a letter as it will be sent: its whole envelope, its text, its files, its risk card."""
    import hashlib

    from postroom.desk.outbox import WHO

    letter = entry.letter
    people = [("From", (letter.sender,)), ("To", letter.to), ("Cc", letter.cc)]
    people += [("Bcc", letter.bcc), ("Reply-To", letter.reply_to)]
    for name, addresses in people:
        if addresses:
            yield from listed(name, [str(address) for address in addresses])
    yield f"{field('Subject')}{click.style(letter.subject or '(no subject)', bold=True)}"
    who = WHO.get(entry.agent) or one_line(entry.agent)
    yield f"{field('Agent')}{who}, {short_date(int(entry.created.wall))}, id {entry.id}"
    for at, file in enumerate(letter.attachments):
        origin = entry.origins[at] if at < len(entry.origins) else "agent"
        sha = hashlib.sha256(file.content).hexdigest()[:12]
        about = f"{file.type}, {size(len(file.content))}, SHA-256 {sha}…, from the {origin}"
        yield f"{field('File')}{folded(f'{file.name} ({about})', ' ' * 9).lstrip()}"
    if letter.html:
        yield hanging(field("HTML"), letter.about_html)
    yield ""
    yield from _marked(letter.text.strip("\n") or "(no text)")
    yield ""
    for found in entry.card.warnings:
        text = folded(f"{MARKS[found.level]} {found.text}").replace("\n", "\n  ")
        yield click.style(text, fg=(None, "yellow", "red")[found.level])
    for at, found in enumerate(entry.card.facts):
        yield f"{' ' * 9 if at else field('Facts')}{folded(found.text, ' ' * 9).lstrip()}"
    yield f"{field('Digest')}{entry.digest}"


def _marked(text: str) -> Iterator[str]:
    """Yield the lines of a letter, each marked, so that none passes for one of ours."""
    mark = click.style("│ ", dim=True)
    for row in clean(text).text.split("\n"):
        yield from (f"{mark}{piece}" for piece in wrapped(row, width() - 3))


def wrapped(text: str, columns: int = 0) -> Iterator[str]:
    """Yield lines that fit, broken between words; a long address stays in one piece."""
    import textwrap

    columns = columns or width() - 1
    for row in text.split("\n"):
        if len(row) <= columns:
            yield row
            continue
        mark = row[: len(row) - len(row.lstrip("> "))][: columns // 2]
        yield from textwrap.wrap(
            row, columns, subsequent_indent=mark, break_long_words=False, break_on_hyphens=False
        )


def field(name: str) -> str:
    """Return the name of a field, as wide as all of them."""
    return click.style(f"{name + ':':<9}", dim=True)


def listed(name: str, items: list[str]) -> Iterator[str]:
    """Yield a list after its name, broken between items where it grows wider than the terminal."""
    room, current = width() - 10, ""
    for at, item in enumerate(items):
        text = item if at == len(items) - 1 else f"{item},"
        if current and len(current) + 1 + len(text) > room:
            yield f"{field(name) if name else ' ' * 9}{current}"
            name, current = "", text
        else:
            current = f"{current} {text}".strip()
    yield f"{field(name) if name else ' ' * 9}{current}"


def size(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    if count < 1000:
        return f"{count} bytes"
    left = count / 1000
    for unit in ("KB", "MB"):
        if left < 1000:
            return f"{left:.1f} {unit}"
        left /= 1000
    return f"{left:.1f} GB"
