"""The unit that `postroom service install` writes, as systemd itself reads it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.conftest import Person
from tests.narrow import present


def verified(unit: Path) -> subprocess.CompletedProcess[str]:
    """Let systemd read a unit, with a runtime folder short enough for the names of its sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        return subprocess.run(
            [present(shutil.which("systemd-analyze")), "--user", "verify", str(unit)],
            env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": folder, "HOME": folder},
            capture_output=True,
            text=True,
            check=False,
        )


def test_systemd_takes_the_unit_with_an_odd_path(person: Person) -> None:
    odd = person.folder / 'a "b" 50% $HOME'
    odd.mkdir()
    person.environment["VAULT_PATH"] = str(odd)
    assert person.run("init").code == 0
    assert person.run("service", "install").code == 0
    unit = person.folder / ".config" / "systemd" / "user" / "postroom.service"
    said = verified(unit)
    assert (said.returncode, said.stderr) == (0, "")


def test_systemd_names_what_is_wrong_with_a_unit(person: Person) -> None:
    """So that the test above can fail."""
    assert person.run("init").code == 0
    assert person.run("service", "install").code == 0
    unit = person.folder / ".config" / "systemd" / "user" / "postroom.service"
    unit.write_text(unit.read_text().replace("ExecStart=", "ExecStart=/nowhere/"))
    said = verified(unit)
    assert said.returncode != 0
    assert "/nowhere/" in said.stderr
