"""Going live and rehearsing again: what is on disk afterwards, and which mode servers then have."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from postroom.cli.client_files import CLIENTS
from tests.conftest import Outcome, Person

YES = [("[y/N]", "y\n")]
BEFORE = """\
# mine
address = "robin@example.org"  # my own

[approvals]
undo_seconds = 0  # at once
"""


@pytest.fixture
def robin(person: Person) -> Person:
    """A person with a desk, whose settings file says nothing of the mode."""
    assert person.run("init").code == 0
    settings(person).parent.mkdir(parents=True)
    settings(person).write_text(BEFORE)
    return person


def settings(person: Person) -> Path:
    return person.folder / ".config/postroom/postroom.toml"


def entries(person: Person) -> list[tuple[Path, dict[str, Any]]]:
    """Return each client's file of servers, and its entry of ours."""
    found = []
    for client in CLIENTS.values():
        path = person.folder / (client.project or ".config/Claude/claude_desktop_config.json")
        text = path.read_text()
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        found.append((path, content[client.table]["postroom"]))
    return found


def mode(person: Person, **environment: str) -> str:
    """Return the mode of a process in the person's folder that has this environment."""
    before = person.environment
    person.environment = before | environment
    try:
        return str(person.run("status", "--json").json["mode"])
    finally:
        person.environment = before


def files(person: Person) -> dict[str, bytes]:
    """Return the bytes of the settings and of the clients' files, without the desk's own."""
    return {
        str(path): path.read_bytes()
        for path in person.folder.rglob("*")
        if path.is_file() and not path.is_relative_to(person.folder / "state")
        and not path.is_relative_to(person.vault)
    }  # fmt: skip


def words(outcome: Outcome) -> str:
    return " ".join(click.unstyle(outcome.out + outcome.err).split())


def test_going_live_changes_one_line_and_lets_the_settings_decide(robin: Person) -> None:
    for client in CLIENTS:
        assert robin.run("install", client, "--yes").code == 0
    rehearsing = entries(robin)
    done = robin.at_terminal("live", answers=YES)
    assert done.code == 0, done.out
    assert settings(robin).read_text() == f"dry_run = false\n{BEFORE}"
    assert mode(robin) == "live"
    for (path, before), (_, after) in zip(rehearsing, entries(robin), strict=True):
        assert before["env"].pop("DRY_RUN") == "true"
        assert after == before
        assert mode(robin, **after["env"]) == "live"
        assert f"Changed {path}" in done.out
        assert path.with_name(f"{path.name}.postroom-backup").exists()
    assert settings(robin).with_name("postroom.toml.postroom-backup").read_text() == BEFORE
    for client in CLIENTS.values():
        assert client.title in words(done).partition("Restart: ")[2]


def test_going_live_is_a_persons(robin: Person) -> None:
    robin.run("install", "claude-code", "--yes")
    before = files(robin)
    refused = robin.run("live")
    assert refused.code == 4
    assert "Nothing was written" in refused.err
    assert files(robin) == before
    no = robin.at_terminal("live", answers=[("[y/N]", "n\n")])
    assert (no.code, "Nothing was written." in no.out) == (0, True)
    assert files(robin) == before


def test_the_passphrase_is_asked_for_where_one_is_set(robin: Person) -> None:
    new = [("A new passphrase:", "open sesame\n"), ("Once more:", "open sesame\n")]
    assert robin.at_terminal("init", "--passphrase", answers=new).code == 0
    before = files(robin)
    wrong = robin.at_terminal("live", answers=[*YES, ("Passphrase:", "guess it\n")])
    assert wrong.code == 4
    assert files(robin) == before
    right = robin.at_terminal("live", answers=[*YES, ("Passphrase:", "open sesame\n")])
    assert right.code == 0
    assert mode(robin) == "live"


def test_what_will_be_sent_is_said_before_the_question(robin: Person) -> None:
    settings(robin).write_text("dry_run = false\n[approvals]\nundo_seconds = 0\n")
    id = robin.draft()
    approved = robin.show(id)["digest"].removeprefix("sha256:")[:8]
    (robin.vault / "PAUSED").touch()  # so that it waits
    assert robin.run("approve", id, "--yes", approved).code == 0
    assert robin.run("rehearse").code == 0
    settings(robin).write_text("dry_run = true\n[approvals]\nrequired = false\n")
    shown = words(robin.at_terminal("live", answers=[("[y/N]", "n\n")]))
    assert "1 letter approved earlier will be sent." in shown
    assert "so that letters are sent without your approval" in shown


def test_what_is_live_already_is_not_asked_about(robin: Person) -> None:
    robin.at_terminal("live", answers=YES)
    before = files(robin)
    again = robin.run("live")
    assert (again.code, "Nothing to change." in again.err) == (0, True)
    assert files(robin) == before
    assert robin.run("live", "--json").json["mode"] == "live"


def test_without_a_desk_nobody_goes_live(person: Person) -> None:
    assert person.run("live").code == 3
    assert not settings(person).exists()


def test_a_projects_file_keeps_its_word_and_gets_none(robin: Person) -> None:
    project = robin.folder / "project"
    project.mkdir()
    (project / "postroom.toml").write_text("dry_run = true\n")
    robin.environment["HOME"], robin.folder = str(robin.folder), project
    env = {"DRY_RUN": "false", "DEV_MODE": "false"}
    env |= {name: robin.environment[name] for name in ("VAULT_PATH", "POSTROOM_STATE")}
    entry = {"command": "postroom", "env": env}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"postroom": entry}}))
    done = robin.at_terminal("live", answers=YES)
    assert done.code == 0
    assert (project / "postroom.toml").read_text() == "dry_run = true\n"
    assert "false" not in (project / ".mcp.json").read_text()
    assert "Mode: rehearsal (dry_run in" in words(done)
    assert mode(robin) == "rehearsal"


@pytest.mark.parametrize("variable", ["VAULT_PATH", "POSTROOM_STATE"])
def test_a_server_of_another_desk_is_left_alone(robin: Person, variable: str) -> None:
    """Its passphrase was not asked for."""
    robin.run("install", "claude-code", "--yes")
    file = robin.folder / ".mcp.json"
    content = json.loads(file.read_text())
    other = json.loads(json.dumps(content["mcpServers"]["postroom"]))
    other["env"][variable] = str(robin.folder / "elsewhere")
    content["mcpServers"]["postroom-email"] = other
    file.write_text(json.dumps(content))
    done = robin.at_terminal("live", answers=YES)
    after = json.loads(file.read_text())["mcpServers"]
    assert "DRY_RUN" not in after["postroom"]["env"]
    assert after["postroom-email"] == other
    assert "Left alone: postroom-email in" in words(done)
    assert f"{robin.folder}/elsewhere" in "".join(words(done).split())


def test_a_file_that_cannot_be_changed_is_named(robin: Person) -> None:
    file = robin.folder / ".zed/settings.json"
    file.parent.mkdir()
    file.write_text('{"context_servers": {"postroom": {}}, // mine\n}')
    before = file.read_bytes()
    done = robin.at_terminal("live", answers=YES)
    assert done.code == 0
    assert str(file) in "".join(done.out.split())
    assert "Take DRY_RUN and DEV_MODE out of its entry by hand." in words(done)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "env", ['{"a":' * 600 + "1" + "}" * 600, '{"VAULT_PATH": "/\\ud800", "DRY_RUN": "true"}']
)
def test_a_strangers_file_that_cannot_be_taken_in_is_named_and_stops_nothing(
    robin: Person, env: str
) -> None:
    file = robin.folder / ".mcp.json"
    file.write_text(f'{{"mcpServers": {{"postroom": {{"env": {env}}}}}}}')
    before = file.read_bytes()
    done = robin.at_terminal("live", answers=YES)
    assert str(file) in "".join(done.out.split())
    assert file.read_bytes() == before
    assert mode(robin) == "live"
    assert robin.run("rehearse").code == 0
    assert mode(robin) == "rehearsal"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_not_a_file_is_named_and_not_read(
    robin: Person, make: Callable[[Path], None]
) -> None:
    file = robin.folder / ".mcp.json"
    make(file)
    done = robin.at_terminal("live", answers=YES)
    assert str(file) in "".join(done.out.split())
    assert mode(robin) == "live"


@pytest.mark.parametrize(
    "text",
    [
        '[mcp_servers]\npostroom = { command = "postroom", env = { VARIABLES } }\n',
        "[mcp_servers.postroom]\nsince = 2026-11-19\nenv = { VARIABLES }\n",
    ],
)
def test_an_entry_in_a_form_that_is_not_changed_is_named_and_stops_nothing(
    robin: Person, text: str
) -> None:
    file = robin.folder / ".codex/config.toml"
    file.parent.mkdir()
    state = robin.environment["POSTROOM_STATE"]
    text = text.replace("VARIABLES", f'DRY_RUN = "true", POSTROOM_STATE = "{state}"', 1)
    file.write_text(text)
    done = robin.at_terminal("live", answers=YES)
    assert str(file) in "".join(done.out.split())
    assert "Take DRY_RUN and DEV_MODE out of its entry by hand." in words(done)
    assert file.read_text() == text
    assert mode(robin) == "live"


def test_what_still_holds_a_server_is_named(robin: Person) -> None:
    robin.environment["DEV_MODE"] = "true"
    robin.run("install", "cursor", "--yes")
    done = robin.at_terminal("live", answers=YES)
    assert "Mode: rehearsal (DEV_MODE)" in words(done)
    assert "Unlike this terminal, postroom in" in words(done)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('dry_run = true # x\n[limits]\nsends_per_hour = 9\n', 'dry_run = false # x\n[limits]\nsends_per_hour = 9\n'),
        ("dry_run   =  'yes'\n", "dry_run   =  false\n"),
        ("#dry_run = false  # x\n", "dry_run = false  # x\n"),
        ("# dry_run = false means live\n", "dry_run = false\n# dry_run = false means live\n"),
        ("dev_mode = true\r\n", "dry_run = false\r\ndev_mode = false\r\n"),
        ('[limits]\n# dry_run = true\nsends_per_hour = 9', 'dry_run = false\n[limits]\n# dry_run = true\nsends_per_hour = 9'),
        ("", "dry_run = false\n"),
        ('"dry_run" = true\n', None),
    ],
)  # fmt: skip
def test_one_line_of_the_settings_is_changed(robin: Person, before: str, after: str | None) -> None:
    settings(robin).write_bytes(before.encode())
    done = robin.at_terminal("live", answers=YES if after else [])
    assert done.code == (0 if after else 10), done.out
    assert settings(robin).read_bytes().decode() == (before if after is None else after)


def test_rehearsing_again_needs_no_question_and_holds_everything(robin: Person) -> None:
    robin.run("install", "claude-code", "--yes")
    robin.at_terminal("live", answers=YES)
    done = robin.run("rehearse")
    assert done.code == 0
    assert settings(robin).read_text() == f"dry_run = true\n{BEFORE}"
    assert "Restart: Claude Code" in done.out
    assert "stays live until it is restarted" in words(done)
    entry = json.loads((robin.folder / ".mcp.json").read_text())["mcpServers"]["postroom"]
    assert mode(robin, **entry["env"]) == mode(robin, DRY_RUN="false") == "rehearsal"
    assert "Nothing to change." in robin.run("rehearse").err
    actions = [row["action_type"] for row in robin.run("audit", "--json").json["actions"]]
    assert {"go_live", "rehearse"} <= set(actions)


def test_a_settings_file_is_made_where_there_is_none(person: Person) -> None:
    done = person.run("rehearse", "--json").json
    assert (done["mode"], done["mode_source"]) == ("rehearsal", f"dry_run in {settings(person)}")
    assert settings(person).read_text() == "dry_run = true\n"


def test_a_server_with_other_settings_that_stays_live_is_named(robin: Person) -> None:
    other = robin.folder / "other.toml"
    other.write_text("dry_run = false\n")
    entry = {"command": "postroom", "env": {"POSTROOM_CONFIG": str(other)}}
    (robin.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"postroom": entry}}))
    assert "will be live (dry_run in" in words(robin.run("rehearse"))
