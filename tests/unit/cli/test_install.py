"""Registering with a client: what is on disk afterwards, and what is not."""

import json
import re
import sys
import tomllib
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest

from postroom.cli.client_files import CLIENTS
from postroom.cli.install import personal_commands
from postroom.cli.main import COMMANDS
from postroom.vault.folders import FILES, FOLDERS
from tests.conftest import Outcome, Person
from tests.narrow import narrow

SERVERS = {"other": {"command": "npx", "args": ["-y", "other"], "env": {"KEY": "ü"}}}
THEIRS = {"mcpServers": SERVERS, "more": {"b": [1, 2.5, None], "a": True}}
THEIR_TOML = """\
model = "m"  # mine

[mcp_servers.other]
command = "npx"  # theirs
args = ["-y", "other"]
env = { KEY = "ü" }

# about profiles
[profiles."a b"]
model = 'x'
"""


def theirs(client: str) -> dict[str, Any]:
    """Return what is in a client's file of servers before Postroom is."""
    if client == "codex":
        return tomllib.loads(THEIR_TOML)
    return {CLIENTS[client].table: SERVERS, "more": THEIRS["more"]}


def file(person: Person, client: str = "claude-code") -> Path:
    if client == "claude-desktop":
        folder = ".config"
        if sys.platform == "darwin":
            folder = "Library/Application Support"
        return person.folder / folder / "Claude/claude_desktop_config.json"
    return person.folder / CLIENTS[client].project


def rules_file(person: Person, client: str = "claude-code") -> Path:
    return person.folder / CLIENTS[client].rules


def has_json_rules(client: str) -> bool:
    return CLIENTS[client].rules.endswith(".json")


def write(path: Path, content: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def write_theirs(person: Person, client: str) -> Path:
    return write(file(person, client), THEIR_TOML if client == "codex" else theirs(client))


def read(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else narrow(json.loads(text), dict)


def install(person: Person, client: str = "claude-code", *options: str) -> Outcome:
    done = person.run("install", client, "--yes", *options)
    assert done.code == 0, done.err
    return done


def servers(person: Person, client: str = "claude-code") -> dict[str, Any]:
    return narrow(read(file(person, client))[CLIENTS[client].table], dict)


def entry(person: Person, client: str = "claude-code", name: str = "postroom") -> dict[str, Any]:
    return narrow(servers(person, client)[name], dict)


def denied(person: Person, client: str = "claude-code") -> list[str]:
    return narrow(read(rules_file(person, client))["permissions"]["deny"], list)


def files(person: Person) -> dict[str, bytes]:
    return {
        str(path.relative_to(person.folder)): path.read_bytes()
        for path in person.folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_an_entry_that_rehearses_in_this_vault_under_its_name(
    person: Person, client: str
) -> None:
    install(person, client)
    made = entry(person, client)
    assert Path(made["command"]).is_absolute()
    assert Path(made["command"]).exists()
    assert made["args"][-3:] == ["mcp", "--agent", client]
    assert made["env"] == {
        "DRY_RUN": "true",
        "VAULT_PATH": str(person.vault),
        "POSTROOM_STATE": str(person.folder / "state"),
    }


def test_the_settings_file_is_named_where_there_is_one(person: Person) -> None:
    del person.environment["POSTROOM_STATE"]
    person.live()
    install(person)
    assert entry(person)["env"] == {
        "DRY_RUN": "true",
        "VAULT_PATH": str(person.vault),
        "POSTROOM_CONFIG": str(person.folder / ".config/postroom/postroom.toml"),
    }


def test_an_agent_may_have_a_name_of_its_own(person: Person) -> None:
    install(person, "claude-code", "--agent", "scribe-2")
    assert entry(person)["args"][-1] == "scribe-2"
    assert person.run("install", "claude-code", "--agent", "a b", "--yes").code == 2


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_there_stays(person: Person, client: str) -> None:
    write_theirs(person, client)
    if has_json_rules(client):
        write(rules_file(person, client), {"permissions": {"allow": ["x"], "deny": ["y"]}, "z": 1})
    install(person, client)
    after = read(file(person, client))
    assert after[CLIENTS[client].table].pop("postroom")
    assert after == theirs(client)
    assert list(after) == list(theirs(client))
    if has_json_rules(client):
        kept = read(rules_file(person, client))
        assert (kept["permissions"]["allow"], kept["permissions"]["deny"][0]) == (["x"], "y")
        assert kept["z"] == 1


@pytest.mark.parametrize("ending", ["\n", ""])
@pytest.mark.parametrize("indent", ["\t", "    "])
def test_the_files_own_form_is_kept(person: Person, indent: str, ending: str) -> None:
    before = json.dumps(THEIRS, indent=indent, ensure_ascii=False) + ending
    write(file(person), before)
    install(person)
    after = file(person).read_text(encoding="utf-8")
    assert f'\n{indent}"mcpServers"' in after
    assert '"ü"' in after
    assert after.endswith("}" + ending)
    install(person, "claude-code", "--remove")
    assert read(file(person)) == THEIRS


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_time_changes_nothing_and_says_so(person: Person, client: str) -> None:
    install(person, client)
    before = files(person)
    again = install(person, client)
    assert "Nothing to change" in again.err
    assert files(person) == before


def test_every_file_that_changes_is_backed_up_and_no_backup_is_written_over(person: Person) -> None:
    for number, text in enumerate(('{"a": 1}', '{"b": 2}')):
        write(file(person), text)
        done = install(person, "claude-code", "--json").json
        kept = f"{file(person)}.postroom-backup{number or ''}"
        assert {"file": str(file(person)), "backup": kept} in done["changed"]
        assert Path(kept).read_text() == text
    assert Path(f"{file(person)}.postroom-backup").read_text() == '{"a": 1}'


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "rules", [{"model": "m"}, {"permissions": {"allow": ["x"], "deny": ["y"]}}, None]
)
def test_removing_restores_what_was(
    person: Person, client: str, rules: dict[str, Any] | None
) -> None:
    write_theirs(person, client)
    if rules is not None and has_json_rules(client):
        write(rules_file(person, client), rules)
    install(person, client, "--agent", "scribe")
    install(person, client, "--remove")
    assert read(file(person, client)) == theirs(client)
    if has_json_rules(client) and rules is not None:
        assert read(rules_file(person, client)) == rules
    elif CLIENTS[client].rules:
        assert not rules_file(person, client).exists()


def test_removing_leaves_rules_of_which_nobody_knows_whose_they_are(person: Person) -> None:
    """What an entry says of itself does not decide which of a person's rules go."""
    install(person)
    content = read(file(person))
    content["mcpServers"]["postroom"]["env"]["POSTROOM_STATE"] = "/home/me/.ssh"
    content["mcpServers"]["postroom"]["command"] = "curl"
    write(file(person), content)
    mine = ["Read(//home/me/.ssh/**)", "Edit(//home/me/.ssh/**)", "Bash(curl approve:*)"]
    rules = read(rules_file(person))
    rules["permissions"]["deny"] += mine
    write(rules_file(person), rules)
    install(person)
    assert set(mine) <= set(denied(person))
    install(person, "claude-code", "--remove")
    assert denied(person) == mine


def test_removing_where_nothing_is_changes_nothing(person: Person) -> None:
    write(file(person), {"mcpServers": {}})
    write(rules_file(person), {"permissions": {"deny": []}})
    before = files(person)
    assert "Nothing to change" in install(person, "claude-code", "--remove").err
    assert files(person) == before


def test_a_moved_vault_gets_its_rules_and_a_moved_program_replaces_its_own(person: Person) -> None:
    write(rules_file(person), {"permissions": {"deny": ["Read(./.env)", "Bash(/old/postroom approve:*)"]}})  # fmt: skip
    install(person)
    person.environment["VAULT_PATH"] = str(person.folder / "elsewhere")
    install(person)
    rules = denied(person)
    assert rules[0] == "Read(./.env)"
    assert f"Edit(/{person.folder}/elsewhere/Approved/**)" in rules
    assert "Bash(/old/postroom approve:*)" not in rules


def test_what_is_taken_out_is_always_shown(person: Person) -> None:
    old = [f"Bash(/old/postroom {name}:*)" for name in ("approve", "reject", "undo")]
    write(rules_file(person), {"permissions": {"deny": [*(f"Read(./{at})" for at in range(60)), *old]}})  # fmt: skip
    shown = install(person).out
    gone = [row for row in shown.splitlines() if row.startswith("-")]
    assert all(any(rule in row for row in gone) for rule in old), shown


def test_a_link_in_the_place_of_the_backup_is_none(person: Person) -> None:
    write(file(person), THEIRS)
    before = file(person).read_bytes()
    file(person).with_name(".mcp.json.postroom-backup").symlink_to(".mcp.json")
    file(person).with_name(".mcp.json.postroom-backup1").symlink_to("/dev/zero")
    install(person)
    assert file(person).with_name(".mcp.json.postroom-backup2").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, // mine\n}',
        '{"a": 1,}',
        "[]",
        '{"mcpServers": []}',
        '{"a": 1, "a": 2}',
        '{"a": 1e999}',
        "\xff",
    ],
)
def test_a_file_that_is_not_plain_json_is_left_alone_and_what_to_paste_is_printed(
    person: Person, text: str
) -> None:
    file(person).write_bytes(text.encode("latin-1"))
    before = files(person)
    refused = person.run("install", "claude-code", "--yes")
    assert refused.code == 10
    assert ".mcp.json" in refused.err
    assert json.JSONDecoder().raw_decode(refused.out)[0]["mcpServers"]["postroom"]
    assert files(person) == before


def test_rules_that_do_not_parse_keep_the_entry_from_being_written(person: Person) -> None:
    write(rules_file(person), '{"permissions": {"deny": "all"}}')
    before = files(person)
    assert person.run("install", "claude-code", "--yes").code == 10
    assert files(person) == before


def test_a_link_stays_a_link_and_its_file_is_changed(person: Person) -> None:
    real = write(person.folder / "dotfiles/mcp.json", THEIRS)
    real.chmod(0o600)
    file(person).symlink_to(real)
    install(person)
    assert file(person).is_symlink()
    assert "postroom" in read(real)["mcpServers"]
    assert real.stat().st_mode & 0o777 == 0o600
    install(person, "claude-code", "--remove")
    assert file(person).is_symlink()
    assert read(real) == THEIRS


def test_nothing_of_an_entry_that_is_there_is_taken_over(person: Person) -> None:
    """A project's file may be a stranger's: its variables would start other code, or another desk."""
    strange = {"POSTROOM_CONFIG": "x/c.toml", "PYTHONPATH": "x", "DRY_RUN": "false", "VAULT_PATH": "x"}  # fmt: skip
    theirs = {"command": "x/postroom", "args": ["mcp"], "env": strange, "timeout": 9}
    write(file(person), {"mcpServers": {"postroom": theirs, "other": {"command": "y"}}})
    done = install(person)
    made = entry(person)
    assert made["env"] == {"DRY_RUN": "true", "VAULT_PATH": str(person.vault), "POSTROOM_STATE": str(person.folder / "state")}  # fmt: skip
    assert "x/postroom" not in json.dumps(made)
    assert "PYTHONPATH" in done.err
    assert read(file(person))["mcpServers"]["other"] == {"command": "y"}


def test_a_link_out_of_the_project_is_not_followed(person: Person) -> None:
    outside = person.folder.parent / f"{person.folder.name}-outside.json"
    file(person).symlink_to(outside)
    refused = person.run("install", "claude-code", "--yes")
    assert refused.code == 4
    assert not outside.exists()


def test_without_a_terminal_the_change_is_shown_and_nothing_written(person: Person) -> None:
    write(file(person), THEIRS)
    before = files(person)
    refused = person.run("install", "claude-code")
    assert refused.code == 4
    assert "Nothing was written" in refused.err
    assert "+ mcpServers.postroom: " in refused.out
    assert files(person) == before


def test_a_yes_on_the_terminal_writes_and_anything_else_does_not(person: Person) -> None:
    asked = person.at_terminal("install", "claude-code", answers=[("[y/N]", "\n")])
    assert asked.code == 0
    assert files(person) == {}
    asked = person.at_terminal("install", "claude-code", answers=[("[y/N]", "y\n")])
    assert asked.code == 0
    assert asked.out.index("+") < asked.out.index("[y/N]")
    assert entry(person)


def allowed(rules: list[str], command: str) -> bool:
    """Whether no rule for shells fits, as Claude Code documents them."""
    for rule in rules:
        if found := re.fullmatch(r"Bash\((.*)\)", rule):
            said = found[1].removesuffix(":*")
            plain = command == said or command.startswith(f"{said} ")
            if (said != found[1] and plain) or fnmatchcase(command, found[1]):
                return False
    return True


def test_claude_code_may_give_no_verdict_by_any_spelling_of_the_command(person: Person) -> None:
    install(person)
    rules = denied(person)
    made = entry(person)
    whole = " ".join([made["command"], *made["args"][:-3]])
    for name in personal_commands():
        for program in (
            "postroom",
            "python -m postroom",
            "uv run postroom",
            "X=1 postroom",
            "python3 -P -m postroom.__main__",
            "python /venv/site-packages/postroom/__main__.py",
            whole,
        ):
            assert not allowed(rules, f"{program} {name}")
            assert not allowed(rules, f"{program} {name} abc --yes 12345678")
    assert allowed(rules, "postroom pending")


def test_nothing_stands_between_the_program_and_the_command_that_a_rule_names(
    person: Person,
) -> None:
    for name in personal_commands():
        for before in ("--", "--json", "--color", ""):
            refused = person.run(before, *name.split(), "abc")
            assert refused.code == 2, (before, name)
            assert "--help" in refused.err


# They show something, serve an agent as itself, or work in a folder of their own: an agent may run them.
FOR_AGENTS = "demo status doctor mcp pending show audit search read thread agentmail"


def test_every_command_is_either_a_persons_or_one_that_an_agent_may_run() -> None:
    """A new command: mark it `@ui.personal`, unless it decides, loosens and sets up nothing."""
    whole = {name.partition(" ")[0] for name in personal_commands()}
    assert whole.isdisjoint(FOR_AGENTS.split())
    assert whole | set(FOR_AGENTS.split()) == set(COMMANDS)


# What version 0.1.0 forbade: a command that is no longer marked needs a way to be recognized.
FORMERLY = "approve edit resolve reject revise undo send-approved init adopt undo-moves install auth run service desk"


def test_rules_of_earlier_versions_are_recognized_as_ours(person: Person) -> None:
    old = [
        rule.format(name)
        for name in FORMERLY.split()
        for rule in (
            "Bash(postroom {}:*)",
            "Bash(python3 -m postroom {}:*)",
            "Bash(/old place/bin/postroom {}:*)",
            "Bash(*postroom {}*)",
        )
    ]
    old += ["Bash(*agentmail* --person*)", "Bash(*agentmail* -person*)"]
    own = ["Bash(postroom pending:*)", "Bash(rm:*)"]
    write(rules_file(person), {"permissions": {"deny": [*old, *own]}})
    install(person, "claude-code", "--remove")
    assert denied(person) == own


def test_codex_gets_a_line_for_each_spelling_of_a_command(person: Person) -> None:
    """As `codex execpolicy check` and Codex itself read them (tests/real)."""
    path = write(
        rules_file(person, "codex"), 'prefix_rule(pattern = ["rm"], decision = "prompt")\n'
    )
    before = path.read_text()
    install(person, "codex")
    rules = path.read_text()
    assert rules.startswith(before)
    made = entry(person, "codex")
    lines = rules.removeprefix(before).splitlines()
    found = [json.loads(line[line.index("[") : line.rindex("]") + 1]) for line in lines]
    # A list in a pattern names alternatives.
    patterns = [[one if isinstance(one, list) else [one] for one in each] for each in found]
    forbidden = {" ".join(words) for each in patterns for words in product(*each)}
    programs = ["postroom", " ".join([made["command"], *made["args"][:-3]])]
    own = str(Path(made["command"]).parent)
    programs += [
        f"{place}{python} -m postroom"
        for place in ("", f"{own}/")
        for python in ("python", "python3")
    ]
    assert forbidden == {f"{each} {name}" for each in programs for name in personal_commands()}
    assert all(line.endswith('], decision = "forbidden")') for line in lines)
    path.write_text(rules.replace(f'"{own}/', '"/old/'))
    install(person, "codex")
    assert path.read_text() == rules
    install(person, "codex", "--remove")
    assert path.read_text() == before


def test_cursors_command_line_may_not_run_postroom_at_all(person: Person) -> None:
    install(person, "cursor")
    rules = denied(person, "cursor")
    assert {"Shell(postroom)", "Shell(python3:-m postroom*)"} <= set(rules)
    assert any(entry(person, "cursor")["command"] in rule for rule in rules)
    assert read(rules_file(person, "cursor"))["permissions"]["allow"] == []


@pytest.mark.parametrize(
    ("client", "change"), [("claude-code", "Edit(/{})"), ("cursor", "Write({})")]
)
@pytest.mark.parametrize("room", ["", "Post"])
def test_what_is_the_persons_is_closed_to_the_clients_own_tools(
    person: Person, client: str, change: str, room: str
) -> None:
    if room:
        write(person.folder / ".config/postroom/postroom.toml", f'[vault]\nroom = "{room}"\n')
    install(person, client)
    rules = denied(person, client)
    root = person.vault / room
    for folder in FOLDERS:
        fixed = change.format(f"{root / folder.name}/**") in rules
        assert fixed is (folder.tools in ("read", "none")), folder
    for note in FILES:
        path = root / note.name
        assert change.format(path if path.suffix else f"{path}*") in rules
    reading = change.replace("Edit", "Read").replace("Write", "Read")
    for closed in (person.folder / "state", root / "Logs"):
        assert reading.format(f"{closed}/**") in rules
        assert change.format(f"{closed}/**") in rules
    for own in (file(person, client), rules_file(person, client)):
        assert change.format(own) in rules
    assert change.format(f"{person.vault}/.postroom/**") in rules
    assert change.format(person.folder / ".config/postroom/postroom.toml") in rules


def test_a_path_with_signs_that_patterns_act_upon_is_still_covered(person: Person) -> None:
    person.environment["VAULT_PATH"] = str(person.folder / "my [old] (vault)*")
    install(person)
    assert f"Edit(/{person.folder}/my ?old? ?vault??/Approved/**)" in denied(person)


def test_a_client_with_a_shell_is_told_of_level_desk_and_of_what_remains(person: Person) -> None:
    told = " ".join(install(person).err.split())
    assert 'trust = "desk"' in told
    assert "postroom init" in told
    assert "another user" in told
    person.live(trust="desk")
    assert 'trust = "desk"' not in install(person, "cursor").err
    assert "another user" not in install(person, "claude-desktop").err


def test_any_other_client_gets_something_to_paste_and_no_file(person: Person) -> None:
    done = person.run("install", "windsurf")
    assert done.code == 0
    assert json.loads(done.out)["mcpServers"]["postroom"]["env"]["DRY_RUN"] == "true"
    assert json.loads(person.run("install", "windsurf", "--json").json["snippet"])
    assert files(person) == {}


@pytest.mark.parametrize("client", ["gemini", "windsurf"])
def test_a_client_without_rules_has_the_persons_files_named_to_forbid(
    person: Person, client: str
) -> None:
    said = " ".join(person.run("install", client, "--yes").err.split())
    forbidden = said.partition("forbid it")[2]
    own = [person.vault / ".postroom", person.folder / ".config/postroom/postroom.toml"]
    for name in ("Approved", "Dashboard.md", "Handbook.md", "Style.md", "PAUSED", *own):
        assert f"{name}" in forbidden, name


def test_each_client_has_its_own_file_and_key(person: Person) -> None:
    places = {
        "claude-code": (".mcp.json", "mcpServers", {"type": "stdio"}),
        "cursor": (".cursor/mcp.json", "mcpServers", {"type": "stdio"}),
        "codex": (".codex/config.toml", "mcp_servers", {}),
        "gemini": (".gemini/settings.json", "mcpServers", {}),
        "vscode": (".vscode/mcp.json", "servers", {"type": "stdio"}),
        "zed": (".zed/settings.json", "context_servers", {"source": "custom"}),
    }
    assert places.keys() == CLIENTS.keys() - {"claude-desktop"}
    for client, (path, table, extra) in places.items():
        install(person, client)
        made = read(person.folder / path)[table]["postroom"]
        assert {key: made[key] for key in made.keys() - {"command", "args", "env"}} == extra


def test_every_line_of_toml_that_is_not_ours_stays(person: Person) -> None:
    for before in (THEIR_TOML, THEIR_TOML.replace("\n", "\r\n"), "# nothing yet\n"):
        path = write(file(person, "codex"), "")
        path.write_bytes(before.encode())
        install(person, "codex")
        assert path.read_bytes().startswith(before.encode())
        install(person, "codex", "--agent", "scribe", "--server", "email")
        install(person, "codex", "--agent", "scribe")
        assert path.read_bytes().startswith(before.encode())
        assert list(servers(person, "codex"))[-2:] == ["postroom-email", "postroom"]
        install(person, "codex", "--remove")
        assert path.read_bytes() == before.encode()


@pytest.mark.parametrize(
    "text",
    [
        "model = ",
        'mcp_servers = { postroom = { command = "x" } }\n',
        'mcp_servers.postroom.command = "x"\n',
        "mcp_servers = 1\n",
    ],
)
def test_toml_in_a_form_that_cannot_be_kept_is_left_alone(person: Person, text: str) -> None:
    write(file(person, "codex"), text)
    before = files(person)
    refused = person.run("install", "codex", "--yes")
    assert refused.code == 10
    assert tomllib.loads(refused.out)["mcp_servers"]["postroom"]["env"]["DRY_RUN"] == "true"
    assert files(person) == before


def test_a_table_of_ours_goes_without_what_follows_it(person: Person) -> None:
    ours = '[mcp_servers.postroom]\ncommand = "x"\n\n[mcp_servers.postroom.env]\nA = "1"\n\n'
    path = write(file(person, "codex"), f"a = 1\n\n{ours}# about b\n[b]\nc = 2\n")
    install(person, "codex", "--remove")
    assert path.read_text() == "a = 1\n\n# about b\n[b]\nc = 2\n"


def test_lines_for_a_person_fit_the_terminal(person: Person) -> None:
    for line in install(person).err.splitlines():
        assert len(line) < 80 or " " not in line.strip()


def test_a_no_writes_nothing_and_says_so(person: Person) -> None:
    before = files(person)
    said = person.at_terminal("install", "claude-code", answers=[("[y/N]", "n\n")])
    assert said.code == 0
    assert "Nothing was written" in said.out
    assert files(person) == before


def test_a_vault_without_mail_is_told(person: Person) -> None:
    assert "There is no mail yet for the vault" in install(person).err
    assert "no mail" not in install(person, "claude-code", "--server", "vault").err


@pytest.mark.parametrize(("name", "near"), [("claudecode", "claude-code"), ("curser", "cursor"), ("claude code", "claude-code")])  # fmt: skip
def test_a_client_that_is_misspelled_is_named(person: Person, name: str, near: str) -> None:
    refused = person.run("install", name)
    assert refused.code == 2
    assert f"Did you mean {near}?" in refused.err


def test_a_contract_of_another_server_is_refused_with_what_to_say_to_install(
    person: Person,
) -> None:
    refused = person.run("install", "gemini", "--server", "vault", "--contract", "approval")
    assert refused.code == 2
    assert "Name the server email" in refused.err
    done = install(person, "gemini", "--server", "email", "--contract", "approval")
    assert "mcp email --contract approval" in done.out + done.err


def test_the_same_bytes_are_backed_up_once(person: Person) -> None:
    write(file(person), THEIRS)
    counts = []
    for _ in range(4):
        install(person)
        assert person.run("install", "claude-code", "--remove", "--yes").code == 0
        counts.append(len(list(person.folder.glob(".mcp.json.postroom-backup*"))))
    assert counts[1:] == [counts[1]] * 3


# Agent mail


def hooks(person: Person) -> dict[str, Any]:
    return narrow(read(rules_file(person)).get("hooks", {}), dict)


def commands(person: Person) -> dict[str, str]:
    return {event: group["hooks"][0]["command"] for event, (group,) in hooks(person).items()}


def test_agent_mail_comes_by_hooks(person: Person) -> None:
    install(person, "claude-code", "--agents", "--agent", "scribe")
    found = commands(person)
    program = entry(person)["command"]
    run = f'AGENTMAIL_NAME="${{AGENTMAIL_NAME:-scribe}}" {program} agentmail'
    assert found == {
        "SessionStart": f"{run} status --hook ready && {run} onboard",
        "UserPromptSubmit": f"{run} status --hook work",
        "PostToolUse": f"{run} receive --hook --fenced",
        "Stop": f"{run} receive --hook --fenced && {run} status --hook ready",
        "SessionEnd": f"{run} status --hook offline",
    }
    assert hooks(person)["PostToolUse"][0]["matcher"] == "*"
    assert {k: v for k, v in entry(person)["env"].items() if "TMUX" in k} == {"TMUX": "${TMUX:-}", "TMUX_PANE": "${TMUX_PANE:-}"}  # fmt: skip


def test_the_hooks_do_what_they_say(person: Person) -> None:
    """Run as the client runs them: by a shell, in the project's folder, with the client's environment."""
    (person.folder / ".git").mkdir()
    install(person, "claude-code", "--agents", "--agent", "scribe")
    found = commands(person)

    def hook(event: str) -> Outcome:
        return person.run_program(["sh", "-c", found[event]])

    def status() -> str:
        return narrow(read(person.folder / ".agentmail" / "recipients.jsonl")["status"], str)

    started = hook("SessionStart")
    assert (started.code, status()) == (0, "ready")
    assert "postroom agentmail send" in started.out  # which the client adds to the context
    assert (hook("UserPromptSubmit").code, status()) == (0, "work")
    assert hook("PostToolUse").out == hook("PostToolUse").err == ""
    person.environment["AGENTMAIL_NAME"] = "robin"
    assert person.run("agentmail", "send", "scribe", "are you there?").code == 0
    assert person.run("agentmail", "send", "scribe", "another").code == 0
    del person.environment["AGENTMAIL_NAME"]
    brought = hook("PostToolUse")
    assert (brought.code, brought.out) == (2, "")
    assert "From: robin\n" in brought.err
    assert "data, never instructions" in brought.err
    kept = hook("Stop")  # with mail it goes on, and is not ready
    assert (kept.code, status()) == (2, "work")
    assert (hook("Stop").code, status()) == (0, "ready")
    assert (hook("SessionEnd").code, status()) == (0, "offline")


def test_other_hooks_stay_and_ours_are_there_once(person: Person) -> None:
    theirs = {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}], "Other": []}
    write(rules_file(person), {"hooks": theirs, "z": 1})
    before = read(rules_file(person))
    for _ in range(2):
        install(person, "claude-code", "--agents")
        assert len(hooks(person)["Stop"]) == 2
        assert hooks(person)["Stop"][0] == theirs["Stop"][0]
    install(person)  # without --agents, what is there stays, and the server still knows its window
    assert len(hooks(person)["Stop"]) == 2
    assert "TMUX" in entry(person)["env"]
    install(person, "claude-code", "--remove")
    assert read(rules_file(person)) == before


def test_removing_takes_our_hooks_out_and_leaves_no_empty_ones(person: Person) -> None:
    install(person, "claude-code", "--agents")
    install(person, "claude-code", "--remove")
    assert not rules_file(person).exists()


def test_what_will_be_run_is_shown_before_it_is_written(person: Person) -> None:
    shown = person.run("install", "claude-code", "--agents")
    assert (shown.code, "Nothing was written" in shown.err) == (4, True)
    for words in ("status --hook ready", "receive --hook --fenced", "status --hook offline"):
        assert words in shown.out
    assert "in no git repository" in " ".join(
        install(person, "claude-code", "--agents").err.split()
    )


def test_hooks_that_are_none_are_not_written_over(person: Person) -> None:
    write(rules_file(person), {"hooks": {"Stop": "nothing"}})
    done = person.run("install", "claude-code", "--agents", "--yes")
    assert done.code == 10
    assert "unexpected under hooks" in done.err


def test_of_other_clients_it_says_what_to_do_instead(person: Person) -> None:
    done = install(person, "cursor", "--agents")
    assert "No hooks of this client are known" in " ".join(done.err.split())
    install(person, "codex", "--agents")
    assert entry(person, "codex")["env_vars"] == ["TMUX", "TMUX_PANE"]


def test_the_person_s_voice_is_forbidden_to_the_client(person: Person) -> None:
    install(person)
    assert "Bash(*agentmail* --person*)" in denied(person)
    install(person, "claude-code", "--remove")
    assert not rules_file(person).exists()


def test_servers_stand_beside_each_other(person: Person) -> None:
    install(person, "claude-code", "--server", "email", "--contract", "approval")
    install(person, "claude-code", "--server", "vault")
    assert list(servers(person)) == ["postroom-email", "postroom-vault"]
    assert entry(person, name="postroom-vault")["args"][-4:] == ["mcp", "vault", "--agent", "claude-code"]  # fmt: skip
    words = ["mcp", "email", "--contract", "approval", "--agent", "claude-code"]
    assert entry(person, name="postroom-email")["args"][-6:] == words
    again = install(person, "claude-code", "--server", "vault")
    assert "Nothing to change" in again.err
    assert "sees them twice" in " ".join(install(person).err.split())
    assert person.run("install", "claude-code", "--server", "vault", "--contract", "approval").code == 2  # fmt: skip


def test_one_server_is_removed_and_the_rules_go_with_the_last(person: Person) -> None:
    for server in ("email", "vault"):
        install(person, "claude-code", "--server", server)
    rules = denied(person)
    install(person, "claude-code", "--server", "email", "--remove")
    assert (list(servers(person)), denied(person)) == (["postroom-vault"], rules)
    install(person, "claude-code", "--server", "agents")
    install(person, "claude-code", "--remove")
    assert not file(person).exists()
    assert not rules_file(person).exists()


def test_an_entry_that_is_replaced_is_shown_and_reported(person: Person) -> None:
    install(person, "claude-code", "--agent", "scribe")
    asked = person.at_terminal("install", "claude-code", answers=[("[y/N]", "n\n")])
    shown = asked.out.replace("\n", "")
    assert "- mcpServers.postroom: " in shown
    assert "mcp --agent scribe" in shown
    assert entry(person)["args"][-1] == "scribe"
    done = install(person)
    told = " ".join(done.err.split())
    assert "Replaced the entry postroom, which ran:" in told
    assert "mcp --agent scribe." in told
    assert "Replaced" not in install(person).err


def test_no_name_or_value_of_a_strangers_file_makes_a_line_of_its_own(person: Person) -> None:
    evil = "x\n+ mcpServers.postroom: postroom mcp\r\u2028+ evil"
    former = {"command": evil, "args": [evil], "env": {evil: evil}, evil: [{evil: evil}]}
    write(file(person), {"mcpServers": {"postroom": former}})
    asked = person.at_terminal("install", "claude-code", answers=[("[y/N]", "n\n")])
    shown = click.unstyle(asked.out)
    assert "- mcpServers.postroom.env.x + mcpServers.postroom: postroom mcp + evil: x +" in shown
    assert not re.search(r"^\+ (?:evil|mcpServers.postroom: postroom mcp)", shown, re.MULTILINE)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_shown_before_the_question_fits_a_screen(person: Person, client: str) -> None:
    """24 lines of 80 columns, with hooks too; the folder of a test has a longer name than a person's."""
    options = ["--agents"] if client == "claude-code" else []
    shown = person.run("install", client, *options).out
    shown = shown.replace(str(person.folder), "/home/robin").replace(sys.prefix, "/home/robin/p")
    rows = sum(-(-len(row) // 80) for row in shown.splitlines())
    assert rows + 1 <= 24, shown
    assert ("rules keep the agent" in shown) is bool(CLIENTS[client].rules)


def test_every_line_is_shown_where_that_is_asked_for(person: Person) -> None:
    shown = person.run("install", "claude-code", "--diff").out
    assert '+    "postroom": {' in shown
    install(person)
    assert all(json.dumps(rule) in shown for rule in denied(person))
    removed = person.run("install", "claude-code", "--remove", "--yes").out
    assert re.search(r"^- \d+ rules that install wrote", removed, re.MULTILINE)


def test_claude_code_asks_once_and_that_is_said(person: Person) -> None:
    assert "It asks once" in " ".join(install(person).err.split())
