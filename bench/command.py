"""The command `postroom` as a person runs it, in a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import mails

POSTROOM = str(Path(sys.executable).with_name("postroom"))


def environment(home: Path) -> dict[str, str]:
    """Return an environment that keeps a command within this folder and lets it cache byte code."""
    own = ("POSTROOM_", "GMAIL_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return kept | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "local"),
        "VAULT_PATH": str(home / "vault"),
        "POSTROOM_STATE": str(home / "state"),
    }


def output(home: Path, *command: str) -> str:
    """Run a command in that home and return what it wrote."""
    done = subprocess.run(
        command, cwd=home, env=environment(home), check=True, capture_output=True, text=True
    )
    return done.stdout


def seconds(home: Path, command: Sequence[str]) -> float:
    """Return how long a command took in that home."""
    env = environment(home)
    began = time.perf_counter()
    subprocess.run(
        command,
        cwd=home,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def mailbox(home: Path, count: int) -> None:
    """Import that many invented mails into the mailbox in that home."""
    mails.make_folders(home / "Maildir")
    for made in mails.shuffled(count):
        made.write(home / "Maildir")
    output(home, POSTROOM, "import", str(home / "Maildir"))
