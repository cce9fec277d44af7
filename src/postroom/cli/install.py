"""`postroom install`: registers with a client; shows each change first, keeps what is there, and backs up every file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.agents.folder import find
from postroom.cli.clients import (
    CLIENTS,
    COMMAND_RULE,
    HOOK,
    PERSONAL,
    SHELL_REMAINS,
    TABLES,
    WITH_HOOKS,
    ClientFile,
    add_hooks,
    deny_rules,
    remove_hooks,
    server_entry,
)
from postroom.cli.command import confirm, json_option, output, wants_json
from postroom.cli.mcp import contract_option
from postroom.core.errors import Conflict, Corrupt, Denied, Invalid, PostroomError
from postroom.core.lookalike import check_agent_name
from postroom.core.text import one_line
from postroom.vault.folders import FOLDERS

if TYPE_CHECKING:
    from postroom.config import Config

SERVER = "postroom"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MOST_LINES = 30  # lines of a change that are shown
NO_HOOKS = (
    "No hooks of this client are known: let it call receive_message, with wait_seconds, or set the "
    "status ready in tmux and run `postroom agentmail mailman`."
)
ABOUT_HOOKS = (
    "Agent mail comes by hooks, after each tool and before it rests. In tmux its name is the window's; "
    "elsewhere AGENTMAIL_NAME, or the server's --agent. Name each window: `tmux rename-window NAME`. For "
    "agents at rest, run `postroom agentmail mailman`."
)
NO_REPOSITORY = "This folder is in no git repository, and agent mail needs one."


@click.command("install")
@click.argument("client", metavar="CLIENT")
@click.option("--agent", metavar="NAME", help="The agent's name; the client's where none is given.")
@contract_option
@click.option("--agents", is_flag=True, help="Agent mail too: hooks that bring it (Claude Code).")
@click.option("--remove", is_flag=True, help="Take out what install wrote.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@json_option
def install_command(
    client: str, agent: str | None, contract: str, agents: bool, remove: bool, yes: bool
) -> None:
    """Register Postroom with Claude Code, Claude Desktop or Cursor.

    CLIENT is claude-code or cursor (for the project in this folder), or claude-desktop; for any
    other client it prints what to paste. Each change is shown first, what is there stays, and each
    file is backed up next to itself. A client with a shell gets rules that keep it from deciding in
    your place. With --agents, Claude Code also gets hooks that bring it what other agents write, and
    tell them whether it is busy.
    """
    client = client.lower()
    _check_client(client)
    agent = agent or client
    check_agent_name(agent)
    if not re.fullmatch(_NAME, agent):
        raise Invalid("An agent's name has letters, digits, . _ and -", remedy="Choose another.")
    words = ["mcp", *(["email", "--contract", contract] if contract != "postroom" else [])]
    words += ["--agent", agent]
    config = wiring.settings()
    if client not in CLIENTS:
        snippet = "" if remove else _snippet(client, words, config, agents=agents)
        notes = _manual_notes(client, config, remove=remove, agents=agents)
        values = {"client": client, "agent": agent, "snippet": snippet, "notes": notes}
        output(values, [snippet] if snippet else [], *notes)
        return
    try:
        changes, notes = (
            (_without_postroom(client, config), [])
            if remove
            else _with_postroom(client, words, config, agents=agents)
        )
    except Corrupt:
        if not (remove or wants_json()):
            click.echo(_snippet(client, words, config, agents=agents))
        raise
    written = _write(client, [file for file in changes if file.is_changed], yes=yes)
    rows = [
        f"Changed {file}" + (f"\nbefore: {backup}" if backup else "") for file, backup in written
    ]
    if not written:
        notes = [f"Nothing to change in {CLIENTS[client].title}.", *notes]
    changed = [{"file": file, "backup": backup} for file, backup in written]
    output({"client": client, "agent": agent, "changed": changed, "notes": notes}, rows, *notes)


def _check_client(client: str) -> None:
    """Refuse what is no name, or a misspelled one."""
    from difflib import get_close_matches

    near = [] if client in CLIENTS else get_close_matches(client, CLIENTS, n=1, cutoff=0.8)
    if near or not re.fullmatch(_NAME, client):
        known = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(CLIENTS)}."
        raise Invalid(f"{one_line(client)[:60]!r} is no client", remedy=known)


def _write(client: str, changed: list[ClientFile], *, yes: bool) -> list[tuple[str, str]]:
    """Show the changes, ask, and write them; return each file and its backup."""
    servers = CLIENTS[client].servers_file
    for file in sorted(changed, key=lambda file: file.path != servers):
        click.echo("\n".join(_shorten(list(file.diff()))), err=wants_json())
    if changed and not yes:
        try:
            agreed = confirm("Write this?")
        except Denied as nobody:
            raise Denied(
                "Nothing was written: there is no terminal to ask on",
                remedy="Run it in one, or give --yes.",
            ) from nobody
        if not agreed:
            raise Denied("Nothing was written, as you said")
    if any(file.before != ClientFile(file.path).before for file in changed):
        raise Conflict(
            "A file was changed in the meantime", remedy="Nothing was written. Run it again."
        )
    return [(str(file.path), str(file.write() or "")) for file in changed]


def _shorten(rows: list[str]) -> list[str]:
    """Return the first lines of a change, and every line that removes something or runs a program."""
    rest = rows[MOST_LINES:]
    kept = [row for row in rest if click.unstyle(row).startswith("-") or HOOK.search(row)]
    more = len(rest) - len(kept)
    cut = [f"... {more} more lines of that kind (docs/clients.md)"] if more > 0 else []
    return [*rows[:MOST_LINES], *cut, *kept]


def _manual_notes(client: str, config: Config, *, remove: bool, agents: bool) -> list[str]:
    """Return what to do by hand for a client whose files are not known."""
    if remove:
        return [f"Remove the entry {SERVER} from the settings of {client} by hand."]
    folders = ", ".join(place.name for place in FOLDERS if place.tools in ("read", "none"))
    forbid = (
        f"If it has file tools or a shell, forbid it {config.state or config.desks}, changes to "
        f"{folders} in {config.vault.postroom_folder}, and `postroom` with {', '.join(PERSONAL)} or"
        " agentmail --person."
    )
    notes = [f"Paste this into the settings of {client}.", *_advise_trust(config), forbid]
    return [*notes, SHELL_REMAINS, *([NO_HOOKS] if agents else [])]


def _with_postroom(
    client: str, words: list[str], config: Config, *, agents: bool
) -> tuple[list[ClientFile], list[str]]:
    """Return the client's files with Postroom in them, the rules first, and what to tell the person."""
    about, servers_file, rules = CLIENTS[client], _servers_file(client), _rules_file(client)
    # Hooks that are there stay, with what they need.
    agents = agents or bool(rules and HOOK.search(json.dumps(rules.content.get("hooks"))))
    servers = servers_file.table("mcpServers")
    old = _as_object(servers.get(SERVER))
    # Nothing of the entry that is there is kept: a project's file may be a stranger's.
    servers[SERVER] = entry = server_entry(client, words, config, agents=agents)
    live = (
        f"set it to false in {servers_file.path}, and dry_run to false in {wiring.settings_file()}"
    )
    notes = [about.next_step, f"DRY_RUN=true: it rehearses. To go live, {live}."]
    notes += _advise_mail(config)
    gone = sorted(set(_as_object(old.get("env"))) - set(entry["env"])) + sorted(
        set(old) - set(entry)
    )
    if gone:
        notes.append(f"The entry that was there had also: {', '.join(map(one_line, gone))[:200]}.")
    notes += [NO_HOOKS] if agents and client != WITH_HOOKS else []
    if rules is None:
        return [servers_file], notes
    permissions = rules.table("permissions", *about.lists)
    ours = deny_rules(client, config)
    kept = [
        rule
        for rule in permissions["deny"]
        if rule in ours or not COMMAND_RULE.fullmatch(str(rule))
    ]
    permissions["deny"] = kept + [rule for rule in ours if rule not in kept]
    if agents and client == WITH_HOOKS:
        add_hooks(rules, words[-1])
        is_outside = find(str(Path.cwd())) is None
        notes[1:1] = [NO_REPOSITORY, ABOUT_HOOKS] if is_outside else [ABOUT_HOOKS]
    return [rules, servers_file], [*notes, *_advise_trust(config), *about.remains]


def _without_postroom(client: str, config: Config) -> list[ClientFile]:
    """Return the client's files without what `_with_postroom` puts there, the servers first."""
    about, servers_file, rules = CLIENTS[client], _servers_file(client), _rules_file(client)
    servers = _as_object(servers_file.content.get("mcpServers"))
    if _as_object(servers.pop(SERVER, None)) and not servers:
        del servers_file.content["mcpServers"]
    if rules is None:
        return [servers_file]
    remove_hooks(rules)
    permissions = _as_object(rules.content.get("permissions"))
    deny, ours = permissions.get("deny"), deny_rules(client, config)
    old = deny if isinstance(deny, list) else []
    left = [rule for rule in old if rule not in ours and not COMMAND_RULE.fullmatch(str(rule))]
    if left != old:
        permissions["deny"] = left
        if not any(permissions.get(name) for name in about.lists):
            for name in about.lists:
                permissions.pop(name, None)
        if not permissions:
            del rules.content["permissions"]
    return [servers_file, rules]


def _servers_file(client: str) -> ClientFile:
    about = CLIENTS[client]
    return ClientFile(about.servers_file, Path.cwd() if about.servers else None)


def _rules_file(client: str) -> ClientFile | None:
    rules = CLIENTS[client].rules
    return ClientFile(Path.cwd() / rules, Path.cwd()) if rules else None


def _as_object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _advise_mail(config: Config) -> list[str]:
    """Return a note where there is no desk, or no mail, where the server will look."""
    try:
        box = wiring.mailbox(config)
    except PostroomError as wrong:
        return [f"{wrong.message}. {wrong.remedy}"]
    if box is not None:
        box.close()
        return []
    note = (
        f"There is no mail in the vault {config.vault.path}. Run `postroom init VAULT` and `postroom"
        " import` first, or set path under [vault] in your settings if it is in another."
    )
    return [note]


def _advise_trust(config: Config) -> list[str]:
    if config.approvals.trust == "desk":
        return []
    note = (
        "Trust is at level folder: a moved note counts as approval, and a client with a shell can move"
        f' notes. Better: put trust = "desk" under [approvals] in {wiring.settings_file()}, then run'
        " `postroom init`, which asks for a passphrase."
    )
    return [note]


def _snippet(client: str, words: list[str], config: Config, *, agents: bool = False) -> str:
    """Return what a person can paste: TOML for Codex, JSON for the others."""
    entry = server_entry(client, words, config, agents=agents)
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
        parts.append({"permissions": {"deny": deny_rules(client, config)}})
    return "\n".join(json.dumps(part, ensure_ascii=False, indent=2) for part in parts)
