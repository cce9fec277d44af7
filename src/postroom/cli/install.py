"""`postroom install`: registers with a client; shows each change first, keeps what is there, and backs up every file."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import sys
from functools import cache
from os.path import abspath, realpath
from pathlib import Path
from typing import Any

import click

from postroom import wiring
from postroom.agents.folder import find
from postroom.agents.roster import NAME_VARIABLE
from postroom.cli import ui
from postroom.cli.client_files import (
    CLIENTS,
    ENTRIES,
    TABLES,
    ClientFile,
    McpClient,
    as_object,
    changed_rows,
    show,
    toml_table,
    write_all,
)
from postroom.cli.main import COMMANDS, HELP, cli
from postroom.cli.serve import contract_option
from postroom.cli.server import Options
from postroom.config.settings import Config
from postroom.core.errors import Corrupt, Invalid, PostroomError
from postroom.core.text import check_agent_name, one_line
from postroom.vault.folders import FILES, FOLDERS

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
HOOK = re.compile(r"postroom\S* agentmail (?:status|receive|onboard)")
WITH_HOOKS = "claude-code"  # whose hooks are known
# What an entry takes over from this environment.
ENTRY_VARIABLES = ("POSTROOM_CONFIG", "POSTROOM_PROVIDER", "POSTROOM_STATE", "GMAIL_TOKEN_PATH", "GMAIL_CREDENTIALS_PATH")  # fmt: skip
NOTES: dict[str, str] = TABLES["notes"]
NEEDS_TERMINAL = "Nothing was written. Run it in one, or give --yes."
UNKNOWN = McpClient("", "")  # any other client: what to paste is printed


@ui.personal
@click.command("install", help=HELP["install"])
@click.argument("client", metavar="CLIENT")
@click.option("--agent", metavar="NAME", help="The agent's name.  [default: the client's]")
@click.option("--server", type=click.Choice(list(ENTRIES)), help="Register this server alone.  [default: all in one]")  # fmt: skip
@contract_option
@click.option("--agents", is_flag=True, help="Set up agent mail too, with hooks (Claude Code).")
@click.option("--remove", is_flag=True, help="Take out what install wrote; with --server, that entry alone.")  # fmt: skip
@click.option("--diff", is_flag=True, help="Show every line of the change.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@ui.json_option
def install_command(
    client: str,
    agent: str | None,
    server: str | None,
    contract: str,
    agents: bool,
    remove: bool,
    diff: bool,
    yes: bool,
) -> None:
    client = client.lower()
    _check_client(client)
    agent = agent or client
    check_agent_name(agent)
    if not re.fullmatch(_WORD, agent):
        raise Invalid("An agent's name has letters, digits, . _ and -", remedy="Choose another.")
    name, words = ENTRIES[server or "all"], _server_words(server, contract, agent)
    config = wiring.settings()
    values = {"client": client, "agent": agent}
    if client not in CLIENTS:
        snippet = "" if remove else _snippet(client, name, words, config, agents=agents)
        notes = _manual_notes(client, config, remove=remove, agents=agents)
        ui.output({**values, "snippet": snippet, "notes": notes}, [snippet] if snippet else [], *notes)  # fmt: skip
        return
    try:
        if remove:
            names = [name] if server else list(ENTRIES.values())
            changes, notes = _without_postroom(client, names, config), list[str]()
        else:
            changes, notes = _with_postroom(client, name, words, config, agents=agents)
        changes = [file for file in changes if file.is_changed]
    except Corrupt as why:
        if remove or ui.wants_json():
            raise
        click.echo(_snippet(client, name, words, config, agents=agents))
        remedy = "It was not changed. Put what is printed into it by hand."
        raise Corrupt(why.message, remedy=remedy) from why
    ordered = sorted(changes, key=lambda file: file.path != CLIENTS[client].servers_file)
    show(ordered, diff=diff, run=_hook_program(agent), rules=deny_rules(client, config))
    if changes and not yes and not ui.confirm("Write this?", NEEDS_TERMINAL):
        ui.output({**values, "changed": [], "notes": []}, [], "Nothing was written.")
        return
    written = write_all(changes)
    if not written:
        notes = [f"Nothing to change in {CLIENTS[client].title}.", *notes]
    ui.output({**values, "changed": written, "notes": notes}, changed_rows(written), *notes)


def _check_client(client: str) -> None:
    near = [] if client in CLIENTS else difflib.get_close_matches(client, CLIENTS, n=1, cutoff=0.8)
    if near or not re.fullmatch(_WORD, client):
        known = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(CLIENTS)}."
        raise Invalid(
            f"{one_line(client)[:60]!r} is not a client that Postroom knows", remedy=known
        )


def _server_words(server: str | None, contract: str, agent: str) -> list[str]:
    """Return the words after `postroom` that start a server; a contract alone means the email server."""
    server = server or ("all" if contract == "postroom" else "email")
    Options(server, contract).check()
    words = ["mcp"] if server == "all" else ["mcp", server]
    words += ["--contract", contract] if contract != "postroom" else []
    return [*words, "--agent", agent]


def _manual_notes(client: str, config: Config, *, remove: bool, agents: bool) -> list[str]:
    if remove:
        return [f"Remove the entry postroom from the settings of {client} by hand."]
    paste = f"Paste this into the settings of {client}."
    no_hooks = NOTES["no_hooks"] if agents else ""
    remains = [_note(name, config) for name in ("by_hand", "shell")]
    return list(filter(None, [paste, _advise_trust(config), *remains, no_hooks]))


def _note(name: str, config: Config) -> str:
    return NOTES[name].format(
        state=config.state or config.desks,
        folders=", ".join(
            f.name for f in FOLDERS if f.tools in ("read", "none") and "/" not in f.name
        ),
        files=", ".join(file.name for file in FILES),
        room=config.vault.postroom_folder,
        own=config.vault.path / ".postroom",
        settings=config.file,
        personal=", ".join(personal_commands()),
    )


def _with_postroom(
    client: str, name: str, words: list[str], config: Config, *, agents: bool
) -> tuple[list[ClientFile], list[str]]:
    """Return the client's files with Postroom in them, the rules first, and what to tell the person."""
    about = CLIENTS[client]
    servers_file, rules = about.open(about.servers_file), about.open_rules()
    # Hooks that are there stay, with what they need.
    agents = agents or bool(rules and HOOK.search(json.dumps(rules.content.get("hooks"))))
    servers = servers_file.table(about.table)
    former = as_object(servers.get(name))
    # Nothing of the entry that is there is kept: a project's file may be a stranger's.
    servers[name] = entry = server_entry(client, words, config, agents=agents)
    has_hooks = agents and client == WITH_HOOKS
    has_mail = name in (ENTRIES["all"], ENTRIES["email"])
    mail, trust = _advise_mail(config) if has_mail else "", _advise_trust(config)
    twice = len(servers.keys() & set(ENTRIES.values())) > 1 and ENTRIES["all"] in servers
    notes = [
        (former not in ({}, entry), _describe_replaced(name, former, entry)),
        (True, about.next_step),
        (twice, NOTES["twice"].format(client=client)),
        (has_hooks and find(str(Path.cwd())) is None, NOTES["no_repository"]),
        (has_hooks, NOTES["hooks"]),
        (True, NOTES["rehearses"]),
        (mail, mail),
        (agents and not has_hooks, NOTES["no_hooks"]),
        (about.remains and trust, trust),
        *((True, _note(each, config)) for each in about.remains),
    ]
    if rules is not None:
        ours = deny_rules(client, config)
        rules.table("permissions", *about.lists)
        _edit_rules(rules, ours, ours, hook_groups(words[-1]) if has_hooks else {})
    changes = [rules, servers_file] if rules else [servers_file]
    return changes, [note for applies, note in notes if applies]


def _describe_replaced(name: str, former: dict[str, Any], entry: dict[str, Any]) -> str:
    arguments = former.get("args")
    words = [former.get("command"), *(arguments if isinstance(arguments, list) else [])]
    gone = sorted(as_object(former.get("env")).keys() - entry["env"])
    gone += sorted(former.keys() - entry)
    also = f" It also had: {', '.join(map(one_line, gone))[:200]}." if gone else ""
    return (
        f"Replaced the entry {name}, which ran: {one_line(' '.join(map(str, words)))[:200]}.{also}"
    )


def _without_postroom(client: str, names: list[str], config: Config) -> list[ClientFile]:
    """Return the client's files without these entries, the servers first; the last one takes the rules along."""
    about = CLIENTS[client]
    servers_file, rules = about.open(about.servers_file), about.open_rules()
    servers = as_object(servers_file.content.get(about.table))
    removed = [servers.pop(name) for name in names if name in servers]
    if removed and not servers:
        del servers_file.content[about.table]
    if rules is None or servers.keys() & set(ENTRIES.values()):
        return [servers_file]
    _edit_rules(rules, deny_rules(client, config), [], {})
    if rules.is_changed and rules.content.get("permissions") == {"allow": []}:
        del rules.content["permissions"]
    return [servers_file, rules]


@cache
def personal_commands() -> tuple[str, ...]:
    """Return the commands that are marked `@ui.personal`, and such subcommands of others."""
    names = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        if ui.is_personal(command):
            names.append(name)
        elif isinstance(command, click.Group):
            parts = command.commands.items()
            names += [f"{name} {part}" for part, each in parts if ui.is_personal(each)]
    return tuple(names)


@cache
def _command_rule() -> re.Pattern[str]:
    """Return the pattern of the rules about commands that `install` writes, wherever the program is."""
    names = "|".join(map(re.escape, personal_commands()))
    listed = "|".join(re.escape(name.replace(" ", '", "')) for name in personal_commands())
    return re.compile(
        rf"Bash\([^()]*postroom (?:{names})(?::\*|\*)\)|Bash\(\*agentmail\* --?person\*\)"
        rf'|prefix_rule\(pattern = \[.*postroom", "(?:{listed})"\], decision = "forbidden"\)'
        r"|Shell\((?:[^():]*/)?postroom\)|Shell\([^():]+:(?:-P )?-m postroom\*\)"
    )


def _edit_rules(
    rules: ClientFile, former: list[str], new: list[str], hooks: dict[str, Any]
) -> None:
    """Put rules and hooks in the place of those that are ours: `former`, and what looks like them."""

    def is_rule(rule: object) -> bool:
        return rule in former or bool(_command_rule().fullmatch(str(rule)))

    def is_hook(group: object) -> bool:
        return bool(HOOK.search(json.dumps(group)))

    rules.replace_items("permissions", "deny", is_rule, new)
    for event in [*as_object(rules.content.get("hooks")), *hooks]:
        rules.replace_items("hooks", event, is_hook, [hooks[event]] if event in hooks else [])


def _advise_mail(config: Config) -> str:
    try:
        box = wiring.mailbox(config)
    except PostroomError as wrong:
        return f"{wrong.message}. {wrong.remedy}"
    if box is None:
        return NOTES["no_mail"].format(vault=config.vault.path)
    box.close()
    return ""


def _advise_trust(config: Config) -> str:
    is_desk = config.approvals.trust == "desk"
    return "" if is_desk else NOTES["trust"].format(settings=config.file)


def _snippet(
    client: str, name: str, words: list[str], config: Config, *, agents: bool = False
) -> str:
    """Return what to paste into the client's files."""
    about = CLIENTS.get(client, UNKNOWN)
    entry = server_entry(client, words, config, agents=agents)
    if about.project.endswith(".toml"):
        return toml_table(f"{about.table}.{name}", entry)
    parts: list[object] = [{about.table: {name: entry}}]
    if about.rules:
        parts.append({"permissions": {"deny": deny_rules(client, config)}})
    return "\n".join(json.dumps(part, ensure_ascii=False, indent=2) for part in parts)


def program() -> list[str]:
    """Return the words that start Postroom from anywhere."""
    script = Path(sys.executable).with_name("postroom")
    # -P: do not import a module from the project's folder.
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "postroom"]


def server_entry(
    client: str, words: list[str], config: Config, *, agents: bool = False
) -> dict[str, Any]:
    """Return the entry that starts `postroom` with these words; it has no secret in it."""
    command, *module = program()
    here = ui.variables(config)
    env = {"DRY_RUN": "true", "VAULT_PATH": str(config.vault.path.absolute())}
    if config.file.exists():
        env["POSTROOM_CONFIG"] = str(config.file)
    env |= {name: here[name] for name in ENTRY_VARIABLES if name in here}
    if agents and client == WITH_HOOKS:
        # The client fills them in from its own environment: the server finds its window by them.
        env |= {"TMUX": "${TMUX:-}", "TMUX_PANE": "${TMUX_PANE:-}"}
    entry = {"command": command, "args": [*module, *words], "env": env}
    if agents and client == "codex":
        entry["env_vars"] = ["TMUX", "TMUX_PANE"]
    return CLIENTS.get(client, UNKNOWN).extra | entry


def deny_rules(client: str, config: Config) -> list[str]:
    room, about = config.vault.postroom_folder, CLIENTS[client]
    by_tools = {tools: [room / f.name for f in FOLDERS if f.tools == tools] for tools in ("none", "read")}  # fmt: skip
    hidden = [config.state or config.desks, *by_tools["none"]]
    secrets = [config.gmail.token_path, config.gmail.credentials_path]
    secrets += [config.cwd / "token.json", config.cwd / "credentials.json"]
    unread = _patterns(hidden, "/**")
    unread += _patterns([file for file in secrets if file and file.exists()])
    unchanged = _patterns([*hidden, *by_tools["read"], config.vault.path / ".postroom"], "/**")
    files = [room / file.name for file in FILES if file.tools in ("read", "none")]
    files += [config.file, about.servers_file, Path.cwd() / about.rules]
    # PAUSED.md pauses as well: a name without an ending may have any.
    unchanged += [text for file in files for text in _patterns([file], "" if file.suffix else "*")]
    command, *module = program()
    own_pythons = (str(Path(command).with_name(name)) for name in ("python", "python3"))
    names = {
        "words": ", ".join(map(json.dumps, program())),
        "program": shlex.join(program()),
        "python": Path(command).with_name("python"),
        "pythons": json.dumps(["python", "python3", *own_pythons]),
        "own": f"{command}:{' '.join(module)}*" if module else command,
    }
    shell = [
        rule.format(command=name, command_words=", ".join(map(json.dumps, name.split())), **names)
        for rule in about.shell
        for name in personal_commands()
    ]
    reads, writes = map(about.read.format, unread), map(about.write.format, unchanged)
    return list(filter(None, dict.fromkeys([*shell, *reads, *writes])))


def _patterns(paths: list[Path], ending: str = "") -> list[str]:
    """Return each path and what it links to as patterns; a special character becomes `?`."""
    both = [spell(path) for path in paths for spell in (abspath, realpath)]
    return [re.sub(r"[^\w/ .@+~:=-]", "?", text) + ending for text in dict.fromkeys(both)]


def _hook_program(agent: str) -> str:
    # In tmux the window's name counts; elsewhere the name that the server has.
    return (
        f'{NAME_VARIABLE}="${{{NAME_VARIABLE}:-{agent}}}" {shlex.join([*program(), "agentmail"])}'
    )


def hook_groups(agent: str) -> dict[str, Any]:
    """Return the hooks, by event, that report the client's status and bring it its agent mail."""
    run = _hook_program(agent)
    groups: dict[str, Any] = {
        event: {"hooks": [{"type": "command", "command": text.format(run=run)}]}
        for event, text in TABLES["hooks"].items()
    }
    groups["PostToolUse"] = {"matcher": "*", **groups["PostToolUse"]}
    return groups
