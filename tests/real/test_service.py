"""The unit that `postroom service install` writes, as systemd itself reads it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.conftest import Person


def verified(unit: Any, runtime: Any) -> Any:
    runtime.mkdir(mode=0o700, exist_ok=True)
    return subprocess.run(
        [shutil.which("systemd-analyze"), "--user", "verify", str(unit)],
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime), "HOME": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_systemd_takes_the_unit_with_an_odd_path(person: Person, tmp_path: Path) -> None:
    odd = person.folder / 'a "b" 50% $HOME'
    odd.mkdir()
    person.environment["VAULT_PATH"] = str(odd)
    assert person.run("init").code == 0
    assert person.run("service", "install").code == 0
    unit = person.folder / ".config" / "systemd" / "user" / "postroom.service"
    said = verified(unit, tmp_path / "runtime")
    assert (said.returncode, said.stderr) == (0, "")


def test_systemd_names_what_is_wrong_with_a_unit(person: Person, tmp_path: Path) -> None:
    """So that the test above can fail."""
    assert person.run("init").code == 0
    assert person.run("service", "install").code == 0
    unit = person.folder / ".config" / "systemd" / "user" / "postroom.service"
    unit.write_text(unit.read_text().replace("ExecStart=", "ExecStart=/nowhere/"))
    said = verified(unit, tmp_path / "runtime")
    assert said.returncode != 0
    assert "/nowhere/" in said.stderr
