"""An invented vault: as many notes as wanted, the same on every machine, each made from its number alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import mails

MEAN_BYTES = 2048
FOLDERS = 100  # one note in a hundred opens another, three deep
COMMON, COMMON_PART = "quay", 0.20
RARE, RARE_PART = "quartz", 0.001
PHRASE, PHRASE_PART = "quiet quince", 0.001
FILTER = "status:waiting"  # one note in a hundred
STATES = ("done", "active", "someday")


class Made(NamedTuple):
    """One note."""

    number: int
    path: str
    title: str
    text: str


def title(number: int) -> str:
    """Return the name of a note."""
    draw = random.Random(mails.SEED * 7 + number)
    return f"{' '.join(draw.choices(mails.vocabulary()[:3000], k=3)).title()} {number}"


def note(number: int) -> Made:
    """Return the note of this number."""
    draw = random.Random(mails.SEED * 1_000_033 + number)
    known = mails.vocabulary()
    size = round(draw.lognormvariate(5.79, 0.5))
    # A few words are very frequent, most are rare.
    words = [known[int(len(known) ** draw.random()) - 1] for _ in range(max(size, 30))]
    for word, part in ((COMMON, COMMON_PART), (RARE, RARE_PART), (PHRASE, PHRASE_PART)):
        if draw.random() < part or number == 7:
            words[draw.randrange(len(words))] = word
    lines = [" ".join(words[start : start + 12]) for start in range(0, len(words), 12)]
    lines[len(lines) // 2 :: 8] = [f"## {line[:30]}" for line in lines[len(lines) // 2 :: 8]]
    if number:
        lines.append(f"See [[{title(draw.randrange(number))}]].")
    status = "waiting" if number % 100 == 3 else draw.choice(STATES)
    head = f"---\nstatus: {status} # mine\ncreated: 2026-01-{1 + number % 28:02}\ntags: [{draw.choice(known[:40])}, work]\n---\n"
    name = title(number)
    group = number // FOLDERS
    place = f"{known[group % 17].title()}/{known[group % 101].title()}/{group}"
    return Made(number, f"{place}/{name}.md", name, f"{head}# {name}\n" + "\n".join(lines) + "\n")


def write(root: Path, count: int) -> Iterator[int]:
    """Write so many notes, and yield how many there are now and then."""
    for number in range(count):
        made = note(number)
        file = root / made.path
        if number % FOLDERS == 0:
            file.parent.mkdir(parents=True, exist_ok=True)
            yield number
        file.write_text(made.text)
