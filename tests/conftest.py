"""What tests of every kind share: a person's own folder, and the command line in it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("postroom", deadline=None, print_blob=True)
settings.load_profile("postroom")


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Person:
    """Somebody at a terminal, with a home and a working directory of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "POSTROOM_STATE": str(folder / "state"),
            "VAULT_PATH": str(folder / "vault"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def start(self, *arguments: str, **options) -> subprocess.Popen:
        """Start a command and leave it running."""
        return subprocess.Popen(
            [sys.executable, "-m", "postroom", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def run(self, *arguments: str, **options) -> Outcome:
        """Run a command to its end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=100)
        return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)
