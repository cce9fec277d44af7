"""How fast a Maildir is taken in, against mu and notmuch, and how large the database becomes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench import mails
from bench.command import POSTROOM, environment, output
from bench.report import MISSING, Bound, Measure, folder, progress, say

USUAL, QUICK = 100_000, 10_000
TWICE_MU, FOUR_NOTMUCH = Bound(2, "×", at_least=True), Bound(4, "×", at_least=True)
SIZE = Bound(3.2, "×")
PACKAGES = ("maildir-utils", "notmuch")
INSTALL = f"apt-get install {' '.join(PACKAGES)}"
PROGRESS_EVERY = 50_000


class Taken(NamedTuple):
    """How one program took the Maildir in: mails a second, and the bytes it then has on disk."""

    rate: float
    size: int


def run(count: int, *, install: bool) -> list[Measure]:
    """Measure all three on one Maildir of so many mails."""
    if install and not all(map(shutil.which, ("mu", "notmuch"))):
        subprocess.run(["apt-get", "install", "--yes", *PACKAGES], check=True)
    with folder() as home:
        weight = _write(home / "Maildir", count)
        own = _postroom(home, count)
        mu = _mu(home, count) if shutil.which("mu") else None
        notmuch = _notmuch(home, count) if shutil.which("notmuch") else None
    say(f"import: a Maildir of {count:,} mails, {weight / count:,.0f} bytes each, one run each;")
    say("on disk: the database, as so many times the mails")
    say(f"{'':9}{'mails/s':>9}{'postroom is':>13}{'bound':>8}{'':6}{'on disk':>9}{'bound':>9}")
    ratio = own.size / weight
    size_verdict = SIZE.verdict(ratio)
    say(f"{'postroom':9}{own.rate:9,.0f}{'':27}{ratio:7.2f} ×{SIZE!s:>9} {size_verdict}")
    measures = [
        Measure(
            "import",
            "database size",
            own.size,
            "bytes",
            "the mails",
            weight,
            str(SIZE),
            size_verdict,
        )
    ]
    for name, other, bound in (("mu", mu, TWICE_MU), ("notmuch", notmuch, FOUR_NOTMUCH)):
        if other is None:
            say(f"{name:9}missing: {INSTALL}, or add --install")
            measures.append(
                Measure("import", name, own.rate, "mails/s", name, 0, str(bound), MISSING)
            )
            continue
        times = own.rate / other.rate
        verdict = bound.verdict(times)
        say(
            f"{name:9}{other.rate:9,.0f}{times:11.2f} ×{bound!s:>8} {verdict:5}"
            f"{other.size / weight:7.2f} ×  beside the mails"
        )
        measures.append(
            Measure("import", name, own.rate, "mails/s", name, other.rate, str(bound), verdict)
        )
    return measures


def _write(maildir: Path, count: int) -> int:
    """Write the Maildir and return the bytes of its mails."""
    mails.make_folders(maildir)
    weight = 0
    for done, made in enumerate(mails.shuffled(count), 1):
        made.write(maildir)
        weight += len(made.raw)
        if done % PROGRESS_EVERY == 0:
            progress(f"import: {done:,} of {count:,} mails written")
    return weight


def _timed(name: str, count: int, command: list[str], home: Path, env: dict[str, str]) -> float:
    """Return the mails a second at which a command takes the Maildir in."""
    os.sync()  # what others left to be written is not on its account
    progress(f"import: {name}")
    began = time.perf_counter()
    subprocess.run(command, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL)
    return count / (time.perf_counter() - began)


def _weight(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def _expect(name: str, found: int, count: int) -> None:
    if found != count:
        raise SystemExit(f"{name} has {found:,} of {count:,} mails: its rate would mean nothing")


def _postroom(home: Path, count: int) -> Taken:
    command = [POSTROOM, "import", str(home / "Maildir")]
    rate = _timed("postroom", count, command, home, environment(home))
    again = json.loads(output(home, *command, "--json"))
    _expect("postroom", again["known"], count)
    return Taken(rate, _weight(home / "state"))


def _mu(home: Path, count: int) -> Taken:
    place = home / "mu"
    output(home, "mu", "init", f"--muhome={place}", f"--maildir={home / 'Maildir'}")
    command = ["mu", "index", f"--muhome={place}", "--quiet"]
    rate = _timed("mu", count, command, home, environment(home))
    told = re.search(
        r"messages in store\D*([\d,]+)", output(home, "mu", "info", f"--muhome={place}")
    )
    _expect("mu", int(told[1].replace(",", "")) if told else 0, count)
    return Taken(rate, _weight(place))


def _notmuch(home: Path, count: int) -> Taken:
    place, config = home / "notmuch", home / "notmuch-config"
    place.mkdir()
    config.write_text(
        f"[database]\npath={place}\nmail_root={home / 'Maildir'}\n"
        f"[new]\ntags=unread;inbox\n[user]\nname=Bench\nprimary_email={mails.ME}\n"
    )
    env = environment(home) | {"NOTMUCH_CONFIG": str(config)}
    rate = _timed("notmuch", count, ["notmuch", "new", "--quiet"], home, env)
    told = subprocess.run(
        ["notmuch", "count", "*"], env=env, check=True, capture_output=True, text=True
    )
    _expect("notmuch", int(told.stdout), count)
    return Taken(rate, _weight(place))
