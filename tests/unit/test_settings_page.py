"""docs/settings.md says of every setting what the table of settings says, and of nothing else."""

import re
from pathlib import Path

from postroom.config.loading import load
from postroom.config.settings import SETTINGS, Setting
from tests.cases import for_each
from tests.defaults import default_text

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
NOT_OURS = {"AGENTMAIL_NAME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"}


def code(text: str) -> str:
    return f"`{text}`" if text else "–"


def documented() -> list[tuple[str, ...]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return [row for row in cells if row[0] != "key" and set(row[0]) != {"-"}]


@for_each("row", SETTINGS)
def test_every_setting_is_documented_with_key_variable_default_and_meaning(row: Setting) -> None:
    default = row.no_value or code(default_text(row))
    line = (code(row.key), code(row.variable), default, row.meaning, row.override.words)
    assert documented().count(line) == 1


def test_nothing_is_documented_that_does_not_exist() -> None:
    known = {(code(row.key), code(row.variable)) for row in SETTINGS}
    assert {row[:2] for row in documented()} == known
    assert len(documented()) == len(SETTINGS)


def test_every_variable_the_page_names_exists() -> None:
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", PAGE))
    assert named <= {row.variable for row in SETTINGS} | NOT_OURS


def test_every_key_the_text_names_exists() -> None:
    sections = {row.key.split(".")[0] for row in SETTINGS if "." in row.key}
    named = set(re.findall(rf"`((?:{'|'.join(sections)})\.[a-zA-Z_.]+)`", PAGE))
    assert named <= {row.key for row in SETTINGS}


def test_the_examples_load_as_the_files_they_are_said_to_be(tmp_path: Path) -> None:
    own, project = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    home, cwd = tmp_path / "home", tmp_path / "home" / "project"
    (home / ".config" / "postroom").mkdir(parents=True)
    cwd.mkdir()
    (home / ".config" / "postroom" / "postroom.toml").write_text(own, encoding="utf-8")
    alone = load({}, cwd, home, platform="linux")
    assert alone.mode.live
    assert (alone.account().name, alone.limits.sends_per_hour) == ("work", 20)
    (cwd / "postroom.toml").write_text(project, encoding="utf-8")
    both = load({}, cwd, home, platform="linux")
    assert not both.mode.live
    assert (both.limits.sends_per_hour, both.approvals.trust) == (2, "desk")
