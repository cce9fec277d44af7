"""The settings: found, layered, tightened, refused by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.config import loading
from postroom.config.loading import load
from postroom.config.settings import (
    NOT_ALLOWED,
    PLAIN_ADDRESS,
    SECTIONS,
    SETTINGS,
    Account,
    ApprovalSettings,
    Config,
    LimitSettings,
    Origin,
    Setting,
    read_address,
    read_switch,
)
from postroom.core.address import Address
from postroom.core.errors import Corrupt, Invalid, NotFound, Unavailable
from postroom.wiring import gmail_files
from tests.cases import for_each
from tests.defaults import default_text

ANYWHERE = Origin(None, Path("/"), Path("/"))


@dataclass
class Machine:
    """A home, a settings file in it, a project in another folder, and an environment."""

    root: Path

    def __post_init__(self) -> None:
        self.home = self.root / "home"
        self.cwd = self.home / "work" / "project"
        self.cwd.mkdir(parents=True)
        self.own = self.home / ".config" / "postroom" / "postroom.toml"
        self.own.parent.mkdir(parents=True)
        self.project = self.cwd / "postroom.toml"

    def write(self, text: str, file: Path | None = None) -> None:
        (file or self.own).write_text(text, encoding="utf-8")

    def load(self, **environ: str) -> Config:
        return load(environ, self.cwd, self.home, platform="linux")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@dataclass
class Case:
    """How one setting is written well and badly."""

    toml: str
    gives: object
    wrong_type: str
    wrong_value: str
    text: str = ""
    tighter: str = ""
    looser: str = ""


# A path is written as TOML text and given absolute, so that one value fits file and environment.
CASES = {
    "vault.path": Case('"/srv/notes"', Path("/srv/notes"), "3", '" "', "/srv/notes"),
    "state": Case('"/srv/state"', Path("/srv/state"), "false", '"~nobody/x"', "/srv/state"),
    "provider": Case('"gmail"', "gmail", "1", '"pigeon"', "gmail"),
    "address": Case('"me@example.net"', "me@example.net", "1", '"me"', "me@example.net"),
    "default_account": Case('"default"', "default", "1", '"De fault"'),
    "accounts.NAME.provider": Case('"gmail"', "gmail", "[]", '"GMAIL"'),
    "accounts.NAME.address": Case('"me@example.net"', "me@example.net", "{}", '"Me <me@a.org>"'),
    "accounts.NAME.aliases": Case('["a@example.net"]', ("a@example.net",), '"a@b.org"', '["a"]'),
    "accounts.NAME.sending": Case('"message"', "message", "1", '"carrier"'),
    "dry_run": Case("true", None, "", "", "true", tighter="true", looser="false"),
    "dev_mode": Case("true", None, "", "", "true", tighter="true", looser="false"),
    "limits.sends_per_hour": Case("5", 5, '"5"', "-1", "5", tighter="9", looser="11"),
    "limits.window_seconds": Case("7200", 7200, "true", "0", tighter="3601", looser="3599"),
    "limits.sends_per_pace": Case("3", 3, "3.5", "0", tighter="9", looser="11"),
    "limits.pace_seconds": Case("90", 90, "[1]", "86401", tighter="61", looser="59"),
    "limits.recipients_per_letter": Case("5", 5, '"5"', "0", tighter="24", looser="26"),
    "limits.recipients_per_hour": Case("5", 5, "true", "0", tighter="49", looser="51"),
    "limits.open_letters": Case("5", 5, "[]", "0", tighter="19", looser="21"),
    "limits.proposals_per_hour": Case("5", 5, "1.5", "0", tighter="29", looser="31"),
    "limits.replies_per_thread": Case("4", 4, '"4"', "0", tighter="4", looser="6"),
    "limits.moves_per_hour": Case("4", 4, '"4"', "-1", tighter="199", looser="201"),
    "recipients.allow": Case(
        '["@Example.org", "a@example.net"]', ("example.org", "a@example.net"), '"example.org"', '["-"]',
        tighter='["example.org"]', looser='["example.com"]',
    ),
    "recipients.deny": Case(
        '["example.org"]', ("example.org",), "true", "[3]",
        tighter='["example.net", "example.org"]', looser="[]",
    ),
    "attachments.folders": Case('["/srv/out"]', (Path("/srv/out"),), '"/srv/out"', '["~nobody/x"]'),
    "notify.desktop": Case("false", False, "1", '"true"'),
    "notify.command": Case('["tell", "me"]', ("tell", "me"), '"tell me"', "[]"),
    "run.interval_seconds": Case("5", 5, '"5"', "0"),
    "desk.host": Case('"192.168.1.7"', "192.168.1.7", "1", '"example.org"'),
    "desk.port": Case("9000", 9000, '"9000"', "70000"),
    "desk.origin": Case('"https://desk.example.org"', "https://desk.example.org", "1", '"https://desk.example.org/path"'),
    "desk.idle_minutes": Case("5", 5, '"5"', "0", tighter="5", looser="60"),
    "triage.model": Case('"ollama:llama3.2"', "ollama:llama3.2", "3", '"llama"'),
    "triage.command": Case('["claude", "-p"]', ("claude", "-p"), '"claude -p"', "[]"),
    "triage.endpoint": Case('"https://example.org/v1"', "https://example.org/v1", "1", '"http://example.org"'),
    "triage.timeout_seconds": Case("5", 5, '"5"', "0"),
    "triage.drafts_per_thread": Case("1", 1, "[]", "-1", tighter="1", looser="3"),
    "vault.agent_folders": Case('["Agents", "Work/Log/"]', ("Agents", "Work/Log"), '"Agents"', '["../up"]', tighter='["Agents"]', looser='["Agents", "Other"]'),
    "vault.active_content": Case("true", True, "1", '"true"', tighter="false", looser="true"),
    "vault.room": Case('"Postroom"', "Postroom", "3", '"../up"'),
    "approvals.required": Case("false", False, "1", '"true"', tighter="true", looser="false"),
    "approvals.trust": Case('"desk"', "desk", "true", '"none"', tighter='"desk"', looser='"folder"'),
    "approvals.undo_seconds": Case("30", 30, '"30"', "-1", tighter="11", looser="9"),
    "approvals.expiry_hours": Case("24", 24, "1.0", "0", tighter="71", looser="73"),
    "gmail.credentials_path": Case('"/k/c.json"', Path("/k/c.json"), "1", '""', "/k/c.json"),
    "gmail.token_path": Case('"/k/t.json"', Path("/k/t.json"), "1", r'"a\u0000b"', "/k/t.json"),
    "gmail.sending": Case('"message"', "message", "1", '"carrier"'),
    "gmail.endpoint": Case(
        '"http://127.0.0.1:99"', "http://127.0.0.1:99", "1", '"https://example.org"', "http://127.0.0.1:99"
    ),
    "gmail.token_uri": Case(
        '"http://[::1]:99/token"', "http://[::1]:99/token", "1", '"ftp://127.0.0.1"', "http://[::1]:99/token"
    ),
}  # fmt: skip
KEYED = [row for row in SETTINGS if row.key]
MODE = ("dry_run", "dev_mode")
# What the person must have said for `looser` to be looser than it.
BEFORE = {
    "vault.agent_folders": '["Agents"]',
    "approvals.trust": '"desk"',
    "recipients.allow": '["example.org"]',
    "recipients.deny": '["example.org"]',
}


def written(key: str, literal: str) -> str:
    return f"{key.replace('NAME', 'work')} = {literal}\n"


def value(config: Config, key: str) -> object:
    section, _, name = key.rpartition(".")
    if section.startswith("accounts") or key in ("provider", "address"):
        return getattr(config.account(), name)
    return getattr(getattr(config, section) if section else config, name)


def rows(
    *, but: tuple[str, ...] = (), only: Callable[[Setting], object] = lambda row: True
) -> pytest.MarkDecorator:
    chosen = [row for row in KEYED if row.key not in but and only(row)]
    return pytest.mark.parametrize("row", chosen, ids=[row.key for row in chosen])


# The whole table


def test_every_setting_has_a_case_here() -> None:
    assert set(CASES) == {row.key for row in KEYED}
    for row in KEYED:
        assert bool(CASES[row.key].text) == bool(row.variable), row.key
        assert bool(CASES[row.key].looser) == (row.override is not NOT_ALLOWED), row.key


def test_keys_and_variables_are_each_in_the_table_once() -> None:
    for names in ([row.key for row in KEYED], [row.variable for row in SETTINGS if row.variable]):
        assert len(names) == len(set(names))


@for_each(("name", "section"), [*SECTIONS.items(), ("accounts.NAME", Account)])
def test_each_field_of_a_section_is_a_setting(name: str, section: Any) -> None:
    listed = {row.key.rpartition(".")[2] for row in KEYED if row.key.startswith(f"{name}.")}
    assert set(section._fields) - {"name"} == listed


@for_each("row", SETTINGS)
def test_each_row_tells_its_default_once_and_its_meaning_in_a_sentence(row: Setting) -> None:
    assert bool(default_text(row)) != bool(row.no_value)
    assert row.meaning.endswith(".")


@rows(but=MODE)
def test_without_a_word_the_default_holds(machine: Machine, row: Setting) -> None:
    config = machine.load()
    key = row.key.replace("NAME", "default")
    assert config.source(key) == "default"
    default = row.default
    if row.key == "default_account":
        default = "default"
    assert value(config, row.key) == (
        machine.cwd / default if isinstance(default, Path) else default
    )
    if text := default_text(row):
        at_home = Origin(None, machine.cwd, machine.home)
        raw = {"true": True, "false": False}.get(text, text)
        assert value(config, row.key) == row.kind.read(raw, at_home)


@rows(but=MODE)
def test_the_persons_file_sets_it(machine: Machine, row: Setting) -> None:
    machine.write(written(row.key, CASES[row.key].toml))
    config = machine.load()
    key = row.key.replace("NAME", "work")
    assert value(config, row.key) == CASES[row.key].gives
    assert config.source(key) == f"{key} in {machine.own}"


@rows(but=MODE, only=lambda row: row.variable)
def test_the_environment_sets_it_over_the_file(machine: Machine, row: Setting) -> None:
    text = default_text(row)
    default = f'"{text}"' if text and not text.isdigit() else text
    machine.write(written(row.key, default or '"/elsewhere"'))
    config = machine.load(**{row.variable: CASES[row.key].text})
    assert value(config, row.key) == CASES[row.key].gives
    assert config.source(row.key) == row.variable


@rows(only=lambda row: row.variable)
def test_an_empty_variable_counts_as_unset(machine: Machine, row: Setting) -> None:
    assert machine.load(**{row.variable: ""}) == machine.load()


@rows(but=MODE)
@pytest.mark.parametrize("wrong", ["wrong_type", "wrong_value"])
def test_a_wrong_value_is_refused_by_key_file_and_what_is_allowed(
    machine: Machine, row: Setting, wrong: str
) -> None:
    machine.write(written(row.key, getattr(CASES[row.key], wrong)))
    with pytest.raises(Invalid) as refused:
        machine.load()
    where = f"{row.key.replace('NAME', 'work')} in {machine.own}"
    assert refused.value.message == f"{where} must be {row.kind.allowed}."
    assert refused.value.remedy


@rows(but=MODE, only=lambda row: row.variable)
def test_a_wrong_variable_is_refused_by_name_and_what_is_allowed(
    machine: Machine, row: Setting
) -> None:
    text = CASES[row.key].wrong_value.strip('"') or "~nobody"
    with pytest.raises(Invalid) as refused:
        machine.load(**{row.variable: text.replace(r"\u0000", "\0")})
    assert refused.value.message == f"{row.variable} must be {row.kind.allowed}."
    assert row.variable in refused.value.remedy


@rows(only=lambda row: row.override is not NOT_ALLOWED)
def test_a_project_file_may_tighten(machine: Machine, row: Setting) -> None:
    machine.write(written(row.key, CASES[row.key].tighter), machine.project)
    config = machine.load()
    assert config.source(row.key) == f"{row.key} in {machine.project}"
    if row.key in MODE:
        assert not config.mode.live
    else:
        found = value(config, row.key)
        shown = json.dumps(found) if isinstance(found, tuple) else str(found).lower()
        assert shown == CASES[row.key].tighter.strip('"')


@rows(only=lambda row: row.override is not NOT_ALLOWED)
def test_a_project_file_that_loosens_is_refused_by_name_and_told_where_to(
    machine: Machine, row: Setting
) -> None:
    if row.key in BEFORE:
        machine.write(written(row.key, BEFORE[row.key]))
    machine.write(written(row.key, CASES[row.key].looser), machine.project)
    with pytest.raises(Invalid) as refused:
        machine.load()
    assert f"{row.key} in {machine.project}" in refused.value.message
    assert row.override.words in refused.value.message
    assert refused.value.remedy == f"Put it into {machine.own}."


@rows(only=lambda row: row.override is NOT_ALLOWED)
def test_a_project_file_may_not_touch_the_rest_even_with_the_default(
    machine: Machine, row: Setting
) -> None:
    machine.write(written(row.key, CASES[row.key].toml), machine.project)
    with pytest.raises(Invalid) as refused:
        machine.load()
    where = f"{row.key.replace('NAME', 'work')} in {machine.project}"
    assert refused.value.message == f"{where} may not be set in a project's file."
    assert refused.value.remedy == f"Put it into {machine.own}."


# Tightening


def test_a_project_file_is_measured_by_what_the_person_said_not_by_the_default(
    machine: Machine,
) -> None:
    machine.write("[limits]\nsends_per_hour = 50\n")
    machine.write("[limits]\nsends_per_hour = 40\n", machine.project)
    assert machine.load().limits.sends_per_hour == 40
    machine.write("[limits]\nsends_per_hour = 30\n")
    with pytest.raises(Invalid, match="may only lower it"):
        machine.load()


def test_a_project_file_may_repeat_what_the_person_allows(machine: Machine) -> None:
    machine.write("[approvals]\nrequired = false\n")
    machine.write('[approvals]\nrequired = false\ntrust = "folder"\n', machine.project)
    assert machine.load().approvals.required is False


def test_the_environment_is_over_the_project_file_too(machine: Machine) -> None:
    machine.write("[limits]\nsends_per_hour = 2\n", machine.project)
    assert machine.load(POSTROOM_SENDS_PER_HOUR="20").limits.sends_per_hour == 20


def test_a_project_file_is_checked_whole_even_where_the_environment_covers_it(
    machine: Machine,
) -> None:
    machine.write("[limits]\nsends_per_hour = 20\n", machine.project)
    with pytest.raises(Invalid, match="loosen"):
        machine.load(POSTROOM_SENDS_PER_HOUR="5")


# Finding the file


def test_without_any_file_all_defaults_hold(tmp_path: Path) -> None:
    config = load({}, tmp_path / "nowhere", tmp_path / "nobody", platform="linux")
    assert config.vault.path == tmp_path / "nowhere" / "vault"
    assert config.state_for("a" * 16) == tmp_path / "nobody/.local/state/postroom" / ("a" * 16)
    assert config.accounts == (Account("default", "local", "you@example.org"),)
    assert (config.limits, config.approvals) == (
        LimitSettings(10, 3600, 10, 60, 25, 50, 20, 30, 5, 200),
        ApprovalSettings(required=True, trust="folder", undo_seconds=10, expiry_hours=72),
    )
    assert not config.mode.live


def test_the_folders_follow_xdg_where_it_is_absolute(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "xdg" / "postroom").mkdir(parents=True)
    machine.write('provider = "gmail"', tmp_path / "xdg" / "postroom" / "postroom.toml")
    xdg = str(tmp_path / "xdg")
    assert machine.load(XDG_CONFIG_HOME=xdg).account().provider == "gmail"
    assert machine.load(XDG_CONFIG_HOME="xdg").account().provider == "local"
    assert machine.load(XDG_STATE_HOME=xdg).state_for("b" * 16) == tmp_path / "xdg/postroom" / (
        "b" * 16
    )


def test_on_macos_both_are_in_the_application_support_folder(machine: Machine) -> None:
    folder = machine.home / "Library" / "Application Support" / "postroom"
    folder.mkdir(parents=True)
    machine.write('provider = "gmail"', folder / "postroom.toml")
    config = load({}, machine.cwd, machine.home, platform="darwin")
    assert config.account().provider == "gmail"
    assert config.state_for("c" * 16) == folder / ("c" * 16)


@pytest.mark.parametrize("named", ["{root}/mine.toml", "~/mine.toml", "../../../mine.toml"])
def test_the_variable_names_the_file_instead_of_the_usual_one(machine: Machine, named: str) -> None:
    machine.write('provider = "pigeon"')
    machine.write('provider = "gmail"', machine.root / "mine.toml")
    machine.write('provider = "gmail"', machine.home / "mine.toml")
    assert (
        machine.load(POSTROOM_CONFIG=named.format(root=machine.root)).account().provider == "gmail"
    )


def test_a_named_file_that_is_missing_is_an_error(machine: Machine) -> None:
    with pytest.raises(Invalid, match=r"POSTROOM_CONFIG names .*/gone.toml, which does not exist"):
        machine.load(POSTROOM_CONFIG="gone.toml")
    empty = machine.load(POSTROOM_CONFIG=os.devnull)
    assert empty == machine.load()._replace(file=Path(os.devnull))


def test_a_named_file_in_the_project_is_the_persons_and_may_loosen(machine: Machine) -> None:
    machine.write("[limits]\nsends_per_hour = 99\n", machine.project)
    assert machine.load(POSTROOM_CONFIG=str(machine.project)).limits.sends_per_hour == 99


def test_the_persons_usual_file_is_never_taken_for_a_projects(machine: Machine) -> None:
    machine.write("[limits]\nsends_per_hour = 99\n")
    machine.cwd = machine.own.parent
    assert machine.load().limits.sends_per_hour == 99
    machine.write("", machine.root / "other.toml")
    assert (
        machine.load(POSTROOM_CONFIG=str(machine.root / "other.toml")).limits.sends_per_hour == 10
    )


def test_a_link_to_the_persons_file_is_the_persons_file(machine: Machine) -> None:
    machine.write("[limits]\nsends_per_hour = 99\n")
    machine.project.symlink_to(machine.own)
    assert machine.load().limits.sends_per_hour == 99


def test_every_project_file_from_the_home_down_tightens_and_none_above_the_home(
    machine: Machine,
) -> None:
    machine.write("[limits]\nsends_per_hour = 1\n", machine.root / "postroom.toml")
    machine.write(
        '[limits]\nsends_per_hour = 5\n[approvals]\ntrust = "desk"\n',
        machine.home / "work" / "postroom.toml",
    )
    machine.write("[limits]\nsends_per_hour = 3\n", machine.project)
    config = machine.load()
    assert (config.limits.sends_per_hour, config.approvals.trust) == (3, "desk")


def test_a_nearer_project_file_cannot_take_back_what_one_above_it_tightened(
    machine: Machine,
) -> None:
    above = machine.home / "work" / "postroom.toml"
    machine.write("dry_run = false\n")
    machine.write("dry_run = true\n[limits]\nsends_per_hour = 1\n", above)
    machine.write("", machine.project)
    config = machine.load()
    assert (config.mode.live, config.limits.sends_per_hour) == (False, 1)
    machine.write("[limits]\nsends_per_hour = 2\n", machine.project)
    with pytest.raises(Invalid, match="would loosen it"):
        machine.load()


def test_a_pipe_in_the_place_of_a_settings_file_hangs_nothing(machine: Machine) -> None:
    os.mkfifo(machine.own)
    assert machine.load().limits.sends_per_hour == 10


def test_a_folder_or_a_dangling_link_of_that_name_is_no_project_file(machine: Machine) -> None:
    machine.project.mkdir()
    (machine.cwd.parent / "postroom.toml").symlink_to(machine.root / "gone")
    machine.write("[limits]\nsends_per_hour = 2\n", machine.home / "postroom.toml")
    assert machine.load().limits.sends_per_hour == 2


def test_a_path_in_a_file_is_relative_to_it_and_one_in_the_environment_to_the_working_directory(
    machine: Machine,
) -> None:
    machine.write('[vault]\npath = "notes"\n')
    assert machine.load().vault.path == machine.own.parent / "notes"
    assert machine.load(VAULT_PATH="notes").vault.path == machine.cwd / "notes"
    assert machine.load(VAULT_PATH="~/notes").vault.path == machine.home / "notes"


# Files that are wrong


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("limits.sends_per_huor = 1", "limits.sends_per_hour"),
        ("[limit]\nwindow_seconds = 1", "limits"),
        ("provder = 'local'", "provider"),
        ("[accounts.work]\nadress = 'a@b.org'", "accounts.work.address"),
        ("'limits.sends_per_hour' = 1", "limits.sends_per_hour"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_right_one(
    machine: Machine, wrong: str, right: str
) -> None:
    for file in (machine.own, machine.project):
        machine.write(wrong, file)
        with pytest.raises(Invalid, match="is not a setting") as refused:
            machine.load()
        assert str(file) in refused.value.message
        assert refused.value.remedy.startswith(f"Did you mean {right}? ")
        file.unlink()


@pytest.mark.parametrize(
    "text",
    [
        "[gmail]\nclient_secret = 'abc123xyz'",
        "password = 'abc123xyz'",
        "provider = 'abc123xyz'",
        "address = 'abc123xyz'",
        "[gmail]\ntoken_uri = 'https://me:abc123xyz@example.org'",
        "[gmail.token]\nkey = 'abc123xyz'",
        "dry_run = 'abc123xyz'",
        "default_account = 'abc123xyz'",
        "[accounts.work]\npassword = 'abc123xyz'",
        "password = 'abc123xyz' 'abc123xyz'",
        "[password]\nabc = ['abc123xyz'",
    ],
)
def test_no_message_and_no_picture_of_the_settings_repeats_what_may_be_a_secret(
    machine: Machine, text: str
) -> None:
    machine.write(text)
    environ = {"IMAP_PASSWORD": "abc123xyz", "POSTROOM_TOKEN": "abc123xyz"}
    try:
        said = repr(machine.load(**environ))
    except (Invalid, Corrupt) as refused:
        said = f"{refused!r} {refused} {refused.remedy}"
    assert "abc123xyz" not in said


def test_a_name_with_control_characters_is_shown_without_them(machine: Machine) -> None:
    machine.write('"\\u001b[31mred\\u0007" = 1')
    with pytest.raises(Invalid) as refused:
        machine.load()
    assert refused.value.message.isprintable()


def test_a_section_that_is_no_table_is_refused(machine: Machine) -> None:
    for text, key in (("limits = 5", "limits"), ("[accounts]\nwork = 'me'", "accounts.work")):
        machine.write(text)
        with pytest.raises(Invalid, match=f"{key} in .* must be a table"):
            machine.load()


def test_a_file_that_is_not_toml_is_corrupt_with_line_and_column(machine: Machine) -> None:
    machine.write("dry_run = true\nlimits = = 3\n")
    with pytest.raises(Corrupt, match=r"postroom.toml is not TOML: .*line 2, column 10"):
        machine.load()


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe", b"a = " + b"[" * 100_000, b"a = " + b"9" * 5_000, b"#" * 1_000_001]
)
def test_bytes_no_one_would_write_are_corrupt_and_nothing_worse(
    machine: Machine, raw: bytes
) -> None:
    machine.own.write_bytes(raw)
    with pytest.raises(Corrupt, match=r"postroom.toml"):
        machine.load()


def test_a_byte_order_mark_and_windows_line_ends_are_read(machine: Machine) -> None:
    machine.own.write_bytes(b"\xef\xbb\xbfprovider = 'gmail'\r\n")
    assert machine.load().account().provider == "gmail"


def test_a_file_that_cannot_be_read_is_said_and_not_skipped(machine: Machine) -> None:
    machine.own.mkdir()
    with pytest.raises(Unavailable, match=r"postroom.toml cannot be read") as refused:
        machine.load()
    assert refused.value.remedy


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.lists(st.text())))
def test_any_document_loads_or_is_refused_as_invalid(document: dict[str, Any]) -> None:
    origin = Origin(Path("/x/postroom.toml"), Path("/x"), Path("/home/me"))
    try:
        layer = loading._read_layer(document, origin)
    except Invalid as refused:
        assert str(origin.file) in refused.message
    else:
        assert set(layer) <= {row.key for row in KEYED}


# Mode

STATES = ["", "true", "false", "maybe"]


@given(st.lists(st.sampled_from(STATES), min_size=6, max_size=6))
def test_live_only_where_something_says_false_and_nothing_anything_else(said: list[str]) -> None:
    layers, rest = [], iter(said)
    for place in ("environment", "person", "project"):
        words = {key: word for key, word in zip(MODE, rest, strict=False) if word}
        layers.append(
            {
                key: loading.Value(read_switch(word, ANYWHERE), f"{key} {place}")
                for key, word in words.items()
            }
        )
    mode = loading.decide_mode(tuple(layers))
    assert mode.live == ("false" in said and not {"true", "maybe"} & set(said))
    assert len(mode.warnings) == said.count("maybe")
    assert (mode.source == "default") == (not any(said))


@pytest.mark.parametrize(
    ("own", "environ", "live", "source"),
    [
        ("", {}, False, "default"),
        ("", {"DRY_RUN": "false"}, True, "DRY_RUN"),
        ("", {"DEV_MODE": " False "}, True, "DEV_MODE"),
        ("", {"DRY_RUN": "false", "DEV_MODE": "true"}, False, "DEV_MODE"),
        ("", {"DRY_RUN": "false", "DEV_MODE": ""}, True, "DRY_RUN"),
        ("dry_run = false", {}, True, "dry_run in {own}"),
        ("dry_run = 'false'", {}, True, "dry_run in {own}"),
        ("dry_run = false", {"DRY_RUN": "true"}, False, "DRY_RUN"),
        ("dry_run = true", {"DRY_RUN": "false"}, False, "dry_run in {own}"),
        ("dev_mode = true", {"DRY_RUN": "false"}, False, "dev_mode in {own}"),
    ],
)
def test_the_mode_names_what_decided_it(
    machine: Machine, own: str, environ: dict[str, str], live: bool, source: str
) -> None:
    machine.write(own)
    mode = machine.load(**environ).mode
    assert (mode.live, mode.source) == (live, source.format(own=machine.own))
    assert mode.warnings == ()


@pytest.mark.parametrize("text", ["0", "no", "off", "flase", " ", "falſe"])
def test_a_mode_that_is_neither_true_nor_false_counts_as_true_and_is_said(
    machine: Machine, text: str
) -> None:
    mode = machine.load(DRY_RUN=text, DEV_MODE="false").mode
    assert (mode.live, mode.source) == (False, "DRY_RUN")
    assert mode.warnings == ("DRY_RUN is neither true nor false and counts as true.",)


@pytest.mark.parametrize("literal", ["0", "'no'", "[]", "{}", "1979-05-27"])
def test_a_mode_in_a_file_that_is_neither_counts_as_true_too(
    machine: Machine, literal: str
) -> None:
    machine.write("dev_mode = false")
    machine.write(f"dry_run = {literal}", machine.project)
    mode = machine.load().mode
    assert (mode.live, mode.source) == (False, f"dry_run in {machine.project}")
    assert len(mode.warnings) == 1


def test_a_project_file_cannot_go_live_even_where_the_person_is(machine: Machine) -> None:
    machine.write("dry_run = false")
    machine.write("dry_run = false", machine.project)
    with pytest.raises(Invalid, match="a project's file may only set it to true"):
        machine.load()


# Accounts

TWO = """
default_account = "work"
[accounts.home]
address = "me@example.net"
[accounts.work]
provider = "gmail"
address = "me@example.com"
aliases = ["boss@example.com", "boss@example.com", "info@example.com"]
"""


def test_accounts_have_names_and_one_is_the_default(machine: Machine) -> None:
    machine.write(TWO)
    config = machine.load()
    assert config.accounts == (
        Account("home", "local", "me@example.net"),
        Account("work", "gmail", "me@example.com", ("boss@example.com", "info@example.com")),
    )
    assert config.account() == config.account("work") == config.accounts[1]
    assert config.source("accounts.home.provider") == "default"
    assert config.source("accounts.work.provider") == f"accounts.work.provider in {machine.own}"


def test_the_environment_describes_the_default_account_alone(machine: Machine) -> None:
    machine.write(TWO)
    config = machine.load(POSTROOM_PROVIDER="local", POSTROOM_ADDRESS="env@example.org")
    assert config.account("home") == Account("home", "local", "me@example.net")
    assert config.account().provider == "local"
    assert config.account().address == "env@example.org"
    assert config.account().aliases == ("boss@example.com", "info@example.com")
    assert config.source("accounts.work.address") == "POSTROOM_ADDRESS"


def test_the_only_account_is_the_default_and_may_be_empty(machine: Machine) -> None:
    machine.write("[accounts.work]\n")
    config = machine.load()
    assert config.account() == Account("work", "local", "you@example.org")


def test_several_accounts_need_a_default(machine: Machine) -> None:
    machine.write("[accounts.a]\n[accounts.b]\n")
    with pytest.raises(Invalid, match="default_account is needed") as refused:
        machine.load()
    assert "a, b" in refused.value.remedy


def test_a_default_that_names_no_account_is_refused(machine: Machine) -> None:
    for text in ("default_account = 'c'\n[accounts.a]\n", "default_account = 'c'\n"):
        machine.write(text)
        with pytest.raises(Invalid, match=r"default_account in .* names no account"):
            machine.load()


def test_plain_keys_beside_tables_of_accounts_are_refused(machine: Machine) -> None:
    machine.write("provider = 'gmail'\n[accounts.work]\n")
    with pytest.raises(Invalid, match=r"provider in .* has no effect") as refused:
        machine.load()
    assert "[accounts.work]" in refused.value.remedy


def test_an_unknown_account_is_answered_with_the_known_ones(machine: Machine) -> None:
    machine.write(TWO)
    with pytest.raises(NotFound, match="play") as missing:
        machine.load().account("play")
    assert missing.value.remedy == "Name one of: home, work."


@pytest.mark.parametrize("name", ["Work", "-work", "_x", "a" * 33, "''", "'a b'", "'a.b'", "ü"])
def test_an_account_name_outside_the_pattern_is_refused(machine: Machine, name: str) -> None:
    quoted = name if name.startswith("'") else f"'{name}'"
    machine.write(f"[accounts.{quoted}]\naddress = 'a@example.org'\n")
    with pytest.raises(Invalid, match=r"accounts\..* must have a name of"):
        machine.load()


def test_an_international_domain_is_kept_in_its_ascii_form(machine: Machine) -> None:
    assert machine.load(POSTROOM_ADDRESS="ich@bücher.example.org").account().address == (
        "ich@xn--bcher-kva.example.org"
    )


LABEL = st.text("abz09-", min_size=1, max_size=9)
LIKELY = st.builds(
    "{}@{}.{}".format,
    st.text("aZ0._+-", min_size=1, max_size=9),
    st.lists(LABEL, min_size=1, max_size=4).map(".".join),
    st.sampled_from(
        ["org", "net", "museum", "test", "local", "arpa", "c", "xn--p1ai", "o1", "ORG"]
    ),
)


@settings(deadline=None)
@given(LIKELY | st.text())
def test_an_address_is_accepted_exactly_where_the_full_parser_accepts_it(text: str) -> None:
    try:
        parsed = Address.parse(text)
    except Invalid:
        with pytest.raises(ValueError):
            read_address(text, ANYWHERE)
    else:
        assert parsed.name or read_address(text, ANYWHERE) == parsed.spec


@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(LIKELY.filter(lambda text: re.fullmatch(PLAIN_ADDRESS, text)))
def test_an_address_that_is_right_at_first_sight_is_so_for_the_full_parser(text: str) -> None:
    assert Address.parse(text) == Address(*text.split("@"))


# Endpoints and Gmail's files


@pytest.mark.parametrize(
    "address",
    [
        "https://127.0.0.1",
        "http://127.255.0.9:8080/gmail/v1",
        "http://localhost:1",
        "http://[::1]:8080/",
        "https://gmail.googleapis.com",
    ],
)
def test_an_endpoint_is_googles_or_on_this_machine(machine: Machine, address: str) -> None:
    assert machine.load(GMAIL_API_ENDPOINT=address).gmail.endpoint == address


@pytest.mark.parametrize(
    "address",
    [
        "http://gmail.googleapis.com",
        "https://gmail.googleapis.com.example.org",
        "https://gmail.googleapis.com@example.org",
        "https://gmail.googleapis.com/../x",
        "http://127.0.0.1.example.org",
        "http://127.0.0.1@example.org",
        "http://example.org\\@127.0.0.1",
        "http://me:pw@127.0.0.1",
        "http://127.0.0.256",
        "http://127.1",
        "http://0x7f000001",
        "http://0.0.0.0",
        "http://localhost.example.org",
        "http://127.0.0.1\n.example.org",
        "http://127.0.0.1:8080\n",
        "http://127.0.0.1/?x=//example.org",
        "file:///etc/passwd",
        "127.0.0.1",
    ],
)
def test_an_endpoint_elsewhere_is_refused_however_it_is_spelt(
    machine: Machine, address: str
) -> None:
    for variable in ("GMAIL_API_ENDPOINT", "GMAIL_TOKEN_URI"):
        with pytest.raises(Invalid, match=f"{variable} must be https://"):
            machine.load(**{variable: address})


def test_gmails_files_are_looked_for_in_the_state_folder_then_here(machine: Machine) -> None:
    config, state = machine.load(POSTROOM_STATE="/state"), Path("/state")
    tokens, clients = gmail_files(config, config.account())
    assert clients == (state / "credentials.json", machine.cwd / "credentials.json")
    assert tokens == (state / "token.json", machine.cwd / "token.json")


def test_gmails_files_that_are_named_are_the_only_places(machine: Machine) -> None:
    config = machine.load(GMAIL_CREDENTIALS_PATH="~/c.json", GMAIL_TOKEN_PATH="t.json")
    tokens, clients = gmail_files(config, config.account())
    assert clients == (machine.home / "c.json",)
    assert tokens == (machine.cwd / "t.json",)


# State


def test_a_state_folder_that_is_given_serves_every_desk(machine: Machine) -> None:
    config = machine.load(POSTROOM_STATE="/srv/state")
    assert config.state_for("a" * 16) == config.state_for("b" * 16) == Path("/srv/state")


@pytest.mark.parametrize("state", ["vault", "vault/.postroom/state", "other/../vault/x", "link/x"])
def test_a_state_folder_inside_the_vault_is_refused(machine: Machine, state: str) -> None:
    (machine.cwd / "vault").mkdir()
    (machine.cwd / "other").mkdir()
    (machine.cwd / "link").symlink_to("vault")
    with pytest.raises(Invalid, match="is inside the vault") as refused:
        machine.load(POSTROOM_STATE=state)
    assert "POSTROOM_STATE" in refused.value.message + refused.value.remedy


def test_the_usual_state_folder_is_refused_too_where_the_vault_is_the_home(
    machine: Machine,
) -> None:
    with pytest.raises(Invalid, match="is inside the vault"):
        machine.load(VAULT_PATH="~")
    state = machine.root / "state"
    assert machine.load(VAULT_PATH="~", POSTROOM_STATE=str(state)).state == state


def test_a_folder_beside_the_vault_with_a_longer_name_is_outside_it(machine: Machine) -> None:
    assert machine.load(POSTROOM_STATE="vault-state").state == machine.cwd / "vault-state"


# The values


def test_a_source_is_known_for_settings_alone(machine: Machine) -> None:
    with pytest.raises(Invalid) as refused:
        machine.load().source("limits.sends_per_huor")
    assert "limits.sends_per_hour" in refused.value.remedy


def test_settings_cannot_be_changed_after_they_were_read(machine: Machine) -> None:
    config = machine.load()
    with pytest.raises(AttributeError):
        config.mode.live = True  # type: ignore[misc]  # wrong on purpose
    with pytest.raises(TypeError):
        config.sources["dry_run"] = "nobody"  # type: ignore[index]  # wrong on purpose


def test_reading_settings_brings_in_nothing_heavy(machine: Machine) -> None:
    script = """
import sys
from pathlib import Path
from postroom.config.loading import load
load({"POSTROOM_ADDRESS": "me@example.net"}, Path(sys.argv[1]), Path(sys.argv[1]))
heavy = {"email_validator", "email.utils", "difflib", "tomllib", "pydantic", "sqlite3"}
sys.exit(", ".join(heavy & set(sys.modules)) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(machine.root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "accounts",
    [
        "[accounts.a]\n[accounts.b]\n",
        '[accounts.a]\naddress = "ann@example.org"\n[accounts.b]\naddress = "bob@example.org"\naliases = ["Ann@example.org"]\n',
    ],
)
def test_two_accounts_with_one_address_are_refused(machine: Machine, accounts: str) -> None:
    machine.write(f'default_account = "a"\n{accounts}')
    with pytest.raises(Invalid, match="The accounts a and b have the same address"):
        machine.load()
