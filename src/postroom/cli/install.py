"""Registering with a client: each change is shown first, what is there stays, and every file is backed up."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from postroom import wiring
from postroom.agents.folder import find
from postroom.agents.roster import NAME
from postroom.cli import printing
from postroom.cli.mcp import CONTRACTS
from postroom.cli.printing import say
from postroom.cli.sheet import Sheet
from postroom.core.agent_name import check_agent_name
from postroom.core.errors import Conflict, Corrupt, Denied, Invalid, PostroomError
from postroom.core.text import one_line
from postroom.vault.folders import FILES, FOLDERS

SERVER = "postroom"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
# By these a person gives a verdict, sets the desk up, or takes the rules away again.
PERSONAL = ("approve", "edit", "resolve", "reject", "revise", "undo", "send-approved", "init", "adopt", "undo-moves", "install", "auth", "run", "service", "desk")  # fmt: skip
# A rule of ours about a command, wherever the program stood when it was written.
_COMMAND = re.compile(
    rf"Bash\([^()]*postroom (?:{'|'.join(PERSONAL)})(?::\*|\*)\)|Bash\(\*agentmail\* --?person\*\)"
    r"|Shell\((?:[^():]*/)?postroom\)|Shell\([^():]+:(?:-P )?-m postroom\*\)"
)
TYPED = ("claude-code", "cursor", "vscode")  # name the transport in each entry
TABLES = {"vscode": "servers", "zed": "context_servers"}  # of those that do not say mcpServers
SHOWN = 30  # lines of a change
REMAINS = (
    "What remains: rules stop the client's own tools, not a script that it runs. A shell under your "
    "user can still read and write those files, and run `postroom`; only running Postroom under "
    "another user stops that."
)
HOOKED = "claude-code"  # whose hooks are known
NO_HOOKS = (
    "No hooks of this client are known: let it call receive_message, with wait_seconds, or set the "
    "status ready in tmux and run `postroom agentmail mailman`."
)
WITH_HOOKS = (
    "Agent mail comes by hooks, after each tool and before it rests. In tmux its name is the window's; "
    "elsewhere AGENTMAIL_NAME, or the server's --agent. Name each window: `tmux rename-window NAME`. For "
    "agents at rest, run `postroom agentmail mailman`."
)
_HOOK = re.compile(r"postroom\S* agentmail (?:status|receive|onboard)")
EDITOR = (
    "The rules are for Cursor's command line; the editor's agent has settings of its own: let it ask "
    "before each command. Where a project has lists, Cursor may leave out those in "
    "~/.cursor/cli-config.json: copy yours over."
)


class Client(NamedTuple):
    """A program that agents run in: its files, and what a person should know of it."""

    title: str
    servers: str  # its file of servers, below the working directory
    rules: str  # its file of rules; empty where it has no shell
    lists: tuple[str, ...]  # what `permissions` in that file must have
    then: str
    remains: tuple[str, ...] = ()


CLIENTS = {
    "claude-code": Client(
        "Claude Code", ".mcp.json", ".claude/settings.json", ("deny",),
        "Start Claude Code in this folder and let it use the server; /mcp shows it, /permissions the rules.",
        (REMAINS,),
    ),
    "claude-desktop": Client("Claude Desktop", "", "", (), "Quit Claude Desktop and start it again."),
    "cursor": Client(
        "Cursor", ".cursor/mcp.json", ".cursor/cli.json", ("allow", "deny"),
        "Turn the server on in Cursor's settings, under MCP.",
        (REMAINS, EDITOR),
    ),
}  # fmt: skip


@click.command("install")
@click.argument("client", metavar="CLIENT")
@click.option("--agent", metavar="NAME", help="The agent's name; the client's where none is given.")
@click.option("--contract", type=click.Choice(CONTRACTS), default="postroom", show_default=True, help="Which names and texts the tools have.")  # fmt: skip
@click.option("--agents", is_flag=True, help="Agent mail too: hooks that bring it (Claude Code).")
@click.option("--remove", is_flag=True, help="Take out what install wrote.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@printing.json_option
def install_command(
    client: str,
    agent: str | None,
    contract: str,
    agents: bool,
    remove: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Register Postroom with Claude Code, Claude Desktop or Cursor.

    CLIENT is claude-code or cursor (for the project in this folder), or claude-desktop; for any
    other, what to paste is printed. Each change is shown first, what is there stays, and a file is
    backed up beside itself. A client with a shell gets rules that keep it from your verdicts.
    With --agents, Claude Code also gets hooks that bring it what other agents write, and tell them
    whether it works.
    """
    client = client.lower()
    _check_client(client)
    agent = agent or client
    check_agent_name(agent)
    if not re.fullmatch(_NAME, agent):
        raise Invalid("An agent's name has letters, digits, . _ and -", remedy="Choose another.")
    words = ["mcp", *(["email", "--contract", contract] if contract != "postroom" else [])]
    words += ["--agent", agent]
    if client not in CLIENTS:
        _by_hand(client, agent, words, remove=remove, as_json=as_json, agents=agents)
        return
    try:
        sheets, notes = (_without(client), []) if remove else _with(client, words, agents=agents)
    except Corrupt:
        if not (remove or as_json):
            click.echo(_snippet(client, words, agents=agents))
        raise
    changed = [sheet for sheet in sheets if sheet.after() != sheet.before]
    for sheet in sorted(changed, key=lambda sheet: sheet.path != _servers(client)):
        click.echo("\n".join(_short(list(sheet.diff()))), err=as_json)
    if changed and not yes:
        _ask()
    if any(sheet.before != Sheet(sheet.path).before for sheet in changed):
        raise Conflict("A file was changed meanwhile", remedy="Nothing was written. Run it again.")
    written = [(str(sheet.path), str(sheet.write() or "")) for sheet in changed]
    if as_json:
        files = [{"file": file, "backup": backup} for file, backup in written]
        printing.print_json({"client": client, "agent": agent, "changed": files, "notes": notes})
        return
    for file, backup in written:
        click.echo(f"Changed {file}" + (f"\nbefore: {backup}" if backup else ""))
    if not changed:
        say(f"Nothing to change in {CLIENTS[client].title}.")
    for note in notes:
        say(note)


def _check_client(client: str) -> None:
    """Refuse what is no name, or one of ours misspelled."""
    from difflib import get_close_matches

    near = [] if client in CLIENTS else get_close_matches(client, CLIENTS, n=1, cutoff=0.8)
    if near or not re.fullmatch(_NAME, client):
        known = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(CLIENTS)}."
        raise Invalid(f"{one_line(client)[:60]!r} is no client", remedy=known)


def _ask() -> None:
    from postroom.cli import terminal

    try:
        agreed = terminal.agrees("Write this?")
    except Denied as nobody:
        raise Denied(
            "Nothing was written: there is no terminal to ask on",
            remedy="Run it in one, or give --yes.",
        ) from nobody
    if not agreed:
        raise Denied("Nothing was written, as you said")


def _short(rows: list[str]) -> list[str]:
    """Return a change as far as it fits a screen: of many rules the first, and how many there are."""
    # What is taken out, and what will be run, is always shown.
    gone = [row for row in rows[SHOWN:] if click.unstyle(row).startswith("-") or _HOOK.search(row)]
    more = len(rows) - SHOWN - len(gone)
    cut = [f"... {more} more lines of that kind (docs/clients.md)"] if more > 0 else []
    return [*rows[:SHOWN], *cut, *gone]


def _by_hand(
    client: str, agent: str, words: list[str], *, remove: bool, as_json: bool, agents: bool
) -> None:
    """Print what to paste where the client's files are not known."""
    config = wiring.settings()
    folders = ", ".join(place.name for place in FOLDERS if place.tools in ("read", "none"))
    snippet = "" if remove else _snippet(client, words, agents=agents)
    forbid = (
        f"If it has file tools or a shell, forbid it {config.state or config.desks}, changes to "
        f"{folders} in {config.vault.postroom_folder}, and `postroom` with {', '.join(PERSONAL)} or agentmail --person."
    )
    notes = [f"Paste this into the settings of {client}.", *_desk(), forbid, REMAINS]
    notes += [NO_HOOKS] if agents else []
    if remove:
        notes = [f"Take the entry {SERVER} out of the settings of {client} by hand."]
    if as_json:
        printing.print_json({"client": client, "agent": agent, "snippet": snippet, "notes": notes})
        return
    if snippet:
        click.echo(snippet)
    for note in notes:
        say(note)


def _with(client: str, words: list[str], *, agents: bool) -> tuple[list[Sheet], list[str]]:
    """Return the client's files with Postroom in them, the rules first, and what to tell."""
    about, sheet = CLIENTS[client], _sheet(client)
    rules = Sheet(Path.cwd() / about.rules, Path.cwd()) if about.rules else None
    # Hooks that are there stay, with what they need.
    agents = agents or bool(rules and _HOOK.search(json.dumps(rules.content.get("hooks"))))
    servers = sheet.table("mcpServers")
    old = _object(servers.get(SERVER))
    # Nothing of an entry that is there: a project's file may be a stranger's.
    servers[SERVER] = entry = _entry(client, words, agents=agents)
    live = f"set it to false in {sheet.path}, and dry_run to false in {wiring.settings_file()}"
    notes = [about.then, f"DRY_RUN=true: it rehearses. To go live, {live}.", *_lacking()]
    gone = sorted(set(_object(old.get("env"))) - set(entry["env"])) + sorted(set(old) - set(entry))
    if gone:
        notes.append(f"The entry that was there had also: {', '.join(map(one_line, gone))[:200]}.")
    notes += [NO_HOOKS] if agents and client != HOOKED else []
    if rules is None:
        return [sheet], notes
    permissions = rules.table("permissions", *about.lists)
    ours = _rules(client)
    kept = [
        rule for rule in permissions["deny"] if rule in ours or not _COMMAND.fullmatch(str(rule))
    ]
    permissions["deny"] = kept + [rule for rule in ours if rule not in kept]
    if agents and client == HOOKED:
        _hook(rules, words[-1])
        notes.insert(1, WITH_HOOKS)
        if find(str(Path.cwd())) is None:
            notes.insert(1, "This folder is in no git repository, and agent mail needs one.")
    return [rules, sheet], [*notes, *_desk(), *about.remains]


def _lacking() -> list[str]:
    """Say that there is no desk, or no mail, where the server would look."""
    config = wiring.settings()
    try:
        found = wiring.mailbox(config)
    except PostroomError as wrong:
        return [f"{wrong.message}. {wrong.remedy}"]
    if found is not None:
        found.close()
        return []
    lacking = (
        f"There is no mail in the vault {config.vault.path}. Run `postroom init VAULT` and `postroom import`"
        " first, or set path under [vault] in your settings if it is in another."
    )
    return [lacking]


def _without(client: str) -> list[Sheet]:
    """Return the client's files without what `_with` puts there, the server first."""
    about, sheet = CLIENTS[client], _sheet(client)
    servers = _object(sheet.content.get("mcpServers"))
    old = _object(servers.pop(SERVER, None))
    if old and not servers:
        del sheet.content["mcpServers"]
    if not about.rules:
        return [sheet]
    rules = Sheet(Path.cwd() / about.rules, Path.cwd())
    permissions = _object(rules.content.get("permissions"))
    _unhook(rules)
    deny, ours = permissions.get("deny"), _rules(client)
    found = deny if isinstance(deny, list) else []
    left = [rule for rule in found if rule not in ours and not _COMMAND.fullmatch(str(rule))]
    if left != found:
        permissions["deny"] = left
        if not any(permissions.get(name) for name in about.lists):
            for name in about.lists:
                permissions.pop(name, None)
        if not permissions:
            del rules.content["permissions"]
    return [sheet, rules]


def _sheet(client: str) -> Sheet:
    within = Path.cwd() if CLIENTS[client].servers else None
    return Sheet(_servers(client), within)


def _servers(client: str) -> Path:
    if client != "claude-desktop":
        return Path.cwd() / CLIENTS[client].servers
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    return folder / "Claude" / "claude_desktop_config.json"


def _object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _program() -> list[str]:
    """Return the words that start Postroom from anywhere."""
    script = Path(sys.executable).with_name("postroom")
    # -P: not what a project's folder has by the name of a module.
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "postroom"]


def _hook(rules: Sheet, agent: str) -> None:
    """Have the client tell of what it does, and be told of its mail, before it reads its next word."""
    _unhook(rules)
    words = shlex.join([*_program(), "agentmail"])
    # In tmux the window is the name; elsewhere the one that the server goes by.
    run = f'{NAME}="${{{NAME}:-{agent}}}" {words}'
    mail = f"{run} receive --hook --fenced"
    commands = {
        "SessionStart": f"{run} status --hook ready && {run} onboard",
        "UserPromptSubmit": f"{run} status --hook work",
        "PostToolUse": mail,
        "Stop": f"{mail} && {run} status --hook ready",
        "SessionEnd": f"{run} status --hook offline",
    }
    hooks = rules.table("hooks", *commands)
    for event, command in commands.items():
        matcher = {"matcher": "*"} if event == "PostToolUse" else {}
        hooks[event].append({**matcher, "hooks": [{"type": "command", "command": command}]})


def _unhook(rules: Sheet) -> None:
    """Take our hooks out, and what is empty without them."""
    hooks = rules.content.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event, groups in list(hooks.items()):
        if isinstance(groups, list):
            left = [group for group in groups if not _HOOK.search(json.dumps(group))]
            if left and left != groups:
                hooks[event] = left
            elif groups and not left:
                del hooks[event]
    if not hooks:
        del rules.content["hooks"]


def _entry(client: str, words: list[str], *, agents: bool = False) -> dict[str, Any]:
    """Return the entry that starts Postroom with these words, without any secret."""
    program, *module = _program()
    config, settings = wiring.settings(), wiring.settings_file()
    env = {"DRY_RUN": "true", "VAULT_PATH": str(config.vault.path.absolute())}
    if settings.exists() or os.environ.get("POSTROOM_CONFIG"):
        env["POSTROOM_CONFIG"] = str(settings.absolute())
    if os.environ.get("POSTROOM_STATE") and config.state:
        env["POSTROOM_STATE"] = str(config.state.absolute())
    if os.environ.get("POSTROOM_PROVIDER"):
        env["POSTROOM_PROVIDER"] = config.account().provider
    for variable, path in (
        ("GMAIL_TOKEN_PATH", config.gmail.token_path),
        ("GMAIL_CREDENTIALS_PATH", config.gmail.credentials_path),
    ):
        if os.environ.get(variable) and path:
            env[variable] = str(path.absolute())
    if agents and client == HOOKED:
        # Which it fills in from its own: by them the server knows the window.
        env |= {"TMUX": "${TMUX:-}", "TMUX_PANE": "${TMUX_PANE:-}"}
    kind = {"type": "stdio"} if client in TYPED else {}
    return {**kind, "command": program, "args": [*module, *words], "env": env}


def _rules(client: str) -> list[str]:
    """Return what this client's own tools may not do."""
    config = wiring.settings()
    room = config.vault.postroom_folder
    closed = [config.state or config.desks, *(room / f.name for f in FOLDERS if f.tools == "none")]
    fixed = [*closed, *(room / folder.name for folder in FOLDERS if folder.tools == "read")]
    files = [room / file.name for file in FILES if file.tools in ("read", "none")]
    files += [wiring.settings_file(), _servers(client), Path.cwd() / CLIENTS[client].rules]
    unread = _patterns(closed, "/**")
    keys = [config.gmail.token_path, config.gmail.credentials_path]
    keys += [config.cwd / name for name in ("token.json", "credentials.json")]
    unread += _patterns([key for key in keys if key and key.exists()], "")
    # PAUSED.md pauses as well: what has no ending may have any.
    unchanged = _patterns([*fixed, config.vault.path / ".postroom"], "/**")
    unchanged += [text for file in files for text in _patterns([file], "" if file.suffix else "*")]
    program, *module = _program()
    if client == "cursor":
        pythons = dict.fromkeys(("python", "python3", str(Path(program).with_name("python"))))
        shell = ["Shell(postroom)", *(f"Shell({python}:-m postroom*)" for python in pythons)]
        shell += [f"Shell({program}:{' '.join(module)}*)" if module else f"Shell({program})"]
        read, write = "Read({})", "Write({})"
    else:
        spelled = ("postroom", "python -m postroom", "python3 -m postroom", shlex.join([program, *module]))  # fmt: skip
        shell = [f"Bash({said} {name}:*)" for name in PERSONAL for said in spelled]
        shell += [f"Bash(*postroom {name}*)" for name in PERSONAL]
        # In whose voice no agent speaks.
        shell += ["Bash(*agentmail* --person*)", "Bash(*agentmail* -person*)"]
        read, write = "Read(/{})", "Edit(/{})"  # two slashes: one would be the project's root
    rules = [*shell, *map(read.format, unread), *map(write.format, unchanged)]
    return list(dict.fromkeys(rules))


def _patterns(paths: list[Path], ending: str) -> list[str]:
    """Return each path, and where its links lead; a sign that has a meaning in patterns is any sign."""
    both = [spell(path) for path in paths for spell in (os.path.abspath, os.path.realpath)]
    return [re.sub(r"[^\w/ .@+~:=-]", "?", text) + ending for text in dict.fromkeys(both)]


def _desk() -> list[str]:
    if wiring.settings().approvals.trust == "desk":
        return []
    proposal = (
        "Trust is at level folder: a moved note is a verdict, and a client with a shell can move notes. "
        f'Better: put trust = "desk" under [approvals] in {wiring.settings_file()}, then run '
        "`postroom init`, which asks for a passphrase."
    )
    return [proposal]


def _snippet(client: str, words: list[str], *, agents: bool = False) -> str:
    """Return what a person can paste: TOML for Codex, JSON for the others."""
    entry = _entry(client, words, agents=agents)
    if client == "codex":
        entry |= {"env_vars": ["TMUX", "TMUX_PANE"]} if agents else {}
        tables = {SERVER: entry, f"{SERVER}.env": entry.pop("env")}
        rows = [
            f"[mcp_servers.{name}]\n"
            + "\n".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in table.items())
            for name, table in tables.items()
        ]
        return "\n\n".join(rows)
    parts: list[object] = [{TABLES.get(client, "mcpServers"): {SERVER: entry}}]
    if client in CLIENTS and CLIENTS[client].rules:
        parts.append({"permissions": {"deny": _rules(client)}})
    return "\n".join(json.dumps(part, ensure_ascii=False, indent=2) for part in parts)
