"""`postroom install`: registers with a client; shows each change first, keeps what is there, and backs up every file.

`texts/clients.toml` has the clients that it knows, and what it tells a person about them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import click

from postroom import wiring
from postroom.agents.folder import find
from postroom.agents.roster import NAME_VARIABLE
from postroom.cli import ui
from postroom.cli.main import HELP
from postroom.cli.serve import contract_option
from postroom.config.settings import Config
from postroom.core.errors import Conflict, Corrupt, Denied, Invalid, PostroomError
from postroom.core.text import check_agent_name, clean, one_line
from postroom.vault.folders import FILES, FOLDERS
from postroom.wiring import files

SERVER = "postroom"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
MOST_LINES = 30  # lines of a change that are shown
# By these commands a person decides, sets the desk up, or removes the rules.
PERSONAL = ("approve", "edit", "resolve", "reject", "revise", "undo", "send-approved", "init", "adopt", "undo-moves", "install", "auth", "run", "service", "desk")  # fmt: skip
# A rule of ours about a command, wherever the program was when it was written.
COMMAND_RULE = re.compile(
    rf"Bash\([^()]*postroom (?:{'|'.join(PERSONAL)})(?::\*|\*)\)|Bash\(\*agentmail\* --?person\*\)"
    r"|Shell\((?:[^():]*/)?postroom\)|Shell\([^():]+:(?:-P )?-m postroom\*\)"
)
HOOK = re.compile(r"postroom\S* agentmail (?:status|receive|onboard)")
WITH_TRANSPORT = ("claude-code", "cursor", "vscode")  # name the transport in each entry
TABLES = {"vscode": "servers", "zed": "context_servers"}  # of clients without `mcpServers`
WITH_HOOKS = "claude-code"  # whose hooks are known
# What an entry takes over from this environment.
ENTRY_VARIABLES = ("POSTROOM_CONFIG", "POSTROOM_PROVIDER", "POSTROOM_STATE", "GMAIL_TOKEN_PATH", "GMAIL_CREDENTIALS_PATH")  # fmt: skip


class McpClient(NamedTuple):
    """A program that agents run in: its files, and what a person should know about it."""

    title: str
    next_step: str
    servers: str = ""  # its file of servers, in the working directory; empty where it is elsewhere
    rules: str = ""  # its file of rules; empty where it has no shell
    lists: tuple[str, ...] = ()  # what `permissions` in that file must have
    remains: tuple[str, ...] = ()  # the notes about what its rules do not stop
    read: str = ""  # how a rule says that a path may not be read
    write: str = ""
    shell: tuple[str, ...] = ()  # rules about each command by which a person decides

    @property
    def servers_file(self) -> Path:
        if self.servers:
            return Path.cwd() / self.servers
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        if sys.platform == "darwin":
            folder = Path.home() / "Library/Application Support"
        return folder / "Claude/claude_desktop_config.json"

    def open_files(self) -> tuple[ClientFile, ClientFile | None]:
        here = Path.cwd()
        rules = ClientFile(here / self.rules, here) if self.rules else None
        return ClientFile(self.servers_file, here if self.servers else None), rules


_TABLES = tomllib.loads(ui.read_text("clients.toml"))
CLIENTS = {name: McpClient(**row) for name, row in _TABLES["clients"].items()}
NOTES: dict[str, str] = _TABLES["notes"]


@click.command("install", help=HELP["install"])
@click.argument("client", metavar="CLIENT")
@click.option("--agent", metavar="NAME", help="The agent's name.  [default: the client's]")
@contract_option
@click.option("--agents", is_flag=True, help="Set up agent mail too, with hooks (Claude Code).")
@click.option("--remove", is_flag=True, help="Take out what install wrote.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@ui.json_option
def install_command(
    client: str, agent: str | None, contract: str, agents: bool, remove: bool, yes: bool
) -> None:
    client = client.lower()
    _check_client(client)
    agent = agent or client
    check_agent_name(agent)
    if not re.fullmatch(_WORD, agent):
        raise Invalid("An agent's name has letters, digits, . _ and -", remedy="Choose another.")
    words = ["mcp", *(["email", "--contract", contract] if contract != "postroom" else [])]
    words += ["--agent", agent]
    config = wiring.settings()
    if client not in CLIENTS:
        snippet = "" if remove else _snippet(client, words, config, agents=agents)
        notes = _manual_notes(client, config, remove=remove, agents=agents)
        values = {"client": client, "agent": agent, "snippet": snippet, "notes": notes}
        ui.output(values, [snippet] if snippet else [], *notes)
        return
    try:
        changes, notes = (
            (_without_postroom(client, config), [])
            if remove
            else _with_postroom(client, words, config, agents=agents)
        )
    except Corrupt:
        if not (remove or ui.wants_json()):
            click.echo(_snippet(client, words, config, agents=agents))
        raise
    written = _write(client, [file for file in changes if file.is_changed], yes=yes)
    if not written:
        notes = [f"Nothing to change in {CLIENTS[client].title}.", *notes]
    rows = [f"Changed {file}" + f"\nbefore: {backup}" * bool(backup) for file, backup in written]
    changed = [{"file": file, "backup": backup} for file, backup in written]
    ui.output({"client": client, "agent": agent, "changed": changed, "notes": notes}, rows, *notes)


def _check_client(client: str) -> None:
    near = [] if client in CLIENTS else difflib.get_close_matches(client, CLIENTS, n=1, cutoff=0.8)
    if near or not re.fullmatch(_WORD, client):
        known = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(CLIENTS)}."
        raise Invalid(f"{one_line(client)[:60]!r} is no client", remedy=known)


def _write(client: str, changed: list[ClientFile], *, yes: bool) -> list[tuple[str, str]]:
    """Show the changes, ask, and write them; return each file and its backup."""
    for file in sorted(changed, key=lambda file: file.path != CLIENTS[client].servers_file):
        click.echo("\n".join(file.diff()), err=ui.wants_json())
    nobody = "Nothing was written. Run it in one, or give --yes."
    if changed and not yes and not ui.confirm("Write this?", nobody):
        raise Denied("Nothing was written, as you said")
    if any(file.before != ClientFile(file.path).before for file in changed):
        problem = "A file was changed in the meantime"
        raise Conflict(problem, remedy="Nothing was written. Run it again.")
    return [(str(file.path), str(file.write() or "")) for file in changed]


def _manual_notes(client: str, config: Config, *, remove: bool, agents: bool) -> list[str]:
    if remove:
        return [f"Remove the entry {SERVER} from the settings of {client} by hand."]
    forbid = NOTES["by_hand"].format(
        state=config.state or config.desks,
        folders=", ".join(place.name for place in FOLDERS if place.tools in ("read", "none")),
        room=config.vault.postroom_folder,
        personal=", ".join(PERSONAL),
    )
    paste = f"Paste this into the settings of {client}."
    no_hooks = NOTES["no_hooks"] if agents else ""
    return list(filter(None, [paste, _advise_trust(config), forbid, NOTES["shell"], no_hooks]))


def _with_postroom(
    client: str, words: list[str], config: Config, *, agents: bool
) -> tuple[list[ClientFile], list[str]]:
    """Return the client's files with Postroom in them, the rules first, and what to tell the person."""
    about = CLIENTS[client]
    servers_file, rules = about.open_files()
    # Hooks that are there stay, with what they need.
    agents = agents or bool(rules and HOOK.search(json.dumps(rules.content.get("hooks"))))
    servers = servers_file.table("mcpServers")
    former = _as_object(servers.get(SERVER))
    # Nothing of the entry that is there is kept: a project's file may be a stranger's.
    servers[SERVER] = entry = server_entry(client, words, config, agents=agents)
    gone = sorted(_as_object(former.get("env")).keys() - entry["env"])
    gone += sorted(former.keys() - entry)
    has_hooks = agents and client == WITH_HOOKS
    live = f"set it to false in {servers_file.path}, and dry_run to false in {config.file}"
    mail, trust = _advise_mail(config), _advise_trust(config)
    notes = [
        (True, about.next_step),
        (has_hooks and find(str(Path.cwd())) is None, NOTES["no_repository"]),
        (has_hooks, NOTES["hooks"]),
        (True, f"DRY_RUN=true: it rehearses. To go live, {live}."),
        (mail, mail),
        (gone, f"The entry that was there had also: {', '.join(map(one_line, gone))[:200]}."),
        (agents and not has_hooks, NOTES["no_hooks"]),
        (rules and trust, trust),
        *((True, NOTES[name]) for name in about.remains),
    ]
    if rules is not None:
        ours = deny_rules(client, config)
        rules.table("permissions", *about.lists)
        _edit_rules(rules, ours, ours, hook_groups(words[-1]) if has_hooks else {})
    changes = [rules, servers_file] if rules else [servers_file]
    return changes, [note for applies, note in notes if applies]


def _without_postroom(client: str, config: Config) -> list[ClientFile]:
    """Return the client's files without what `_with_postroom` puts there, the servers first."""
    servers_file, rules = CLIENTS[client].open_files()
    servers = _as_object(servers_file.content.get("mcpServers"))
    if _as_object(servers.pop(SERVER, None)) and not servers:
        del servers_file.content["mcpServers"]
    if rules is None:
        return [servers_file]
    _edit_rules(rules, deny_rules(client, config), [], {})
    if rules.is_changed and rules.content.get("permissions") == {"allow": []}:
        del rules.content["permissions"]
    return [servers_file, rules]


def _edit_rules(
    rules: ClientFile, former: list[str], new: list[str], hooks: dict[str, Any]
) -> None:
    """Put rules and hooks in the place of those that are ours: `former`, and what looks like them."""

    def is_rule(rule: object) -> bool:
        return rule in former or bool(COMMAND_RULE.fullmatch(str(rule)))

    def is_hook(group: object) -> bool:
        return bool(HOOK.search(json.dumps(group)))

    rules.replace_items("permissions", "deny", is_rule, new)
    for event in [*_as_object(rules.content.get("hooks")), *hooks]:
        rules.replace_items("hooks", event, is_hook, [hooks[event]] if event in hooks else [])


def _as_object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


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


def _snippet(client: str, words: list[str], config: Config, *, agents: bool = False) -> str:
    entry = server_entry(client, words, config, agents=agents)
    if client == "codex":
        entry |= {"env_vars": ["TMUX", "TMUX_PANE"]} if agents else {}
        tables = {SERVER: entry, f"{SERVER}.env": entry.pop("env")}
        return "\n\n".join(_toml(f"mcp_servers.{name}", table) for name, table in tables.items())
    parts: list[object] = [{TABLES.get(client, "mcpServers"): {SERVER: entry}}]
    if client in CLIENTS and CLIENTS[client].rules:
        parts.append({"permissions": {"deny": deny_rules(client, config)}})
    return "\n".join(json.dumps(part, ensure_ascii=False, indent=2) for part in parts)


def _toml(name: str, table: dict[str, Any]) -> str:
    rows = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    return "\n".join([f"[{name}]", *rows])


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
    transport = {"type": "stdio"} if client in WITH_TRANSPORT else {}
    return {**transport, "command": command, "args": [*module, *words], "env": env}


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
    names = {
        "program": shlex.join(program()),
        "python": Path(command).with_name("python"),
        "own": f"{command}:{' '.join(module)}*" if module else command,
    }
    shell = [rule.format(command=name, **names) for rule in about.shell for name in PERSONAL]
    reads, writes = map(about.read.format, unread), map(about.write.format, unchanged)
    return list(dict.fromkeys([*shell, *reads, *writes]))


def _patterns(paths: list[Path], ending: str = "") -> list[str]:
    """Return each path and what it links to as patterns; a special character becomes `?`."""
    both = [spell(path) for path in paths for spell in (os.path.abspath, os.path.realpath)]
    return [re.sub(r"[^\w/ .@+~:=-]", "?", text) + ending for text in dict.fromkeys(both)]


def hook_groups(agent: str) -> dict[str, Any]:
    """Return the hooks, by event, that report the client's status and bring it its agent mail."""
    # In tmux the window's name counts; elsewhere the name that the server has.
    run = f'{NAME_VARIABLE}="${{{NAME_VARIABLE}:-{agent}}}" {shlex.join([*program(), "agentmail"])}'
    groups: dict[str, Any] = {
        event: {"hooks": [{"type": "command", "command": text.format(run=run)}]}
        for event, text in _TABLES["hooks"].items()
    }
    groups["PostToolUse"] = {"matcher": "*", **groups["PostToolUse"]}
    return groups


def _refuse_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(items)) < len(items):
        raise ValueError("a key is there twice")
    return dict(items)


class ClientFile:
    """A client's JSON file: its content, to be changed, and the bytes to write."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))  # a link, as of dotfiles, stays one
        if within and not self._real.is_relative_to(os.path.realpath(within)):
            raise Denied(
                f"{path} is a link that leads out of this folder, to {self._real}",
                remedy="Put the file itself there, or change it by hand.",
            )
        if path.exists() and not path.is_file():
            raise self.refusal("is no file")
        self.before = path.read_bytes() if path.exists() else None
        try:
            self._text = (self.before or b"").decode("utf-8-sig")
            found = json.loads(self._text.strip() or "{}", object_pairs_hook=_refuse_duplicates)
        except UnicodeDecodeError as why:
            raise self.refusal("is not UTF-8") from why
        except (ValueError, RecursionError) as why:
            raise self.refusal(f"is not plain JSON: {why}") from why
        if not isinstance(found, dict):
            raise self.refusal("holds no JSON object")
        self.content: dict[str, Any] = found
        self._former = deepcopy(found)

    def refusal(self, problem: str) -> Corrupt:
        remedy = "It was not changed. Correct it and run this again, or change it by hand."
        return Corrupt(f"{self.path} {problem}", remedy=remedy)

    def table(self, name: str, *lists: str) -> dict[str, Any]:
        """Return the object of this name, with these lists in it; both are made where missing."""
        found = self.content.setdefault(name, {})
        if not isinstance(found, dict) or not all(
            isinstance(found.setdefault(each, []), list) for each in lists
        ):
            raise self.refusal(f"has something unexpected under {name}")
        return found

    def replace_items(
        self, name: str, key: str, is_ours: Callable[[object], bool], new: list[Any]
    ) -> None:
        """Put our new items of a list in the place of our old ones; leave nothing empty that was not."""
        lists = self.table(name, key) if new else _as_object(self.content.get(name))
        old = lists.get(key)
        if not isinstance(old, list):
            return
        kept = [item for item in old if item in new or not is_ours(item)]
        lists[key] = kept + [item for item in new if item not in kept]
        if old and not lists[key]:
            del lists[key]
            if not lists:
                del self.content[name]

    @property
    def is_changed(self) -> bool:
        return self.after() != self.before

    def after(self) -> bytes | None:
        """Return the bytes to write: the same where nothing changed, None to delete the file."""
        if self.content == self._former:
            return self.before
        if not self.content and not self.path.is_symlink():
            return None
        old, indent = self._text, re.search(r'\n([ \t]+)"', self._text)
        # Half a surrogate pair can only be written as it came, escaped.
        escaped = bool(old) and (old.isascii() or "\\ud" in old.lower())
        text = json.dumps(self.content, ensure_ascii=escaped, indent=indent[1] if indent else 2)
        text += "\n" if not old or old.endswith("\n") else ""
        return text.replace("\n", "\r\n" if "\r\n" in old else "\n").encode()

    def diff(self) -> list[str]:
        """Return the change as a unified diff: its beginning, and what it removes or lets run."""
        lines = self._text.splitlines(), (self.after() or b"").decode().splitlines()
        colours = {"+": "green", "-": "red", "@": "cyan"}
        rows = [clean(row).text for row in difflib.unified_diff(*lines, lineterm="", n=1)][2:]
        rest = rows[MOST_LINES:]
        kept = [row for row in rest if row.startswith("-") or HOOK.search(row)]
        rows[MOST_LINES:] = kept
        shown = [click.style(row, fg=colours.get(row[:1])) for row in rows]
        if more := len(rest) - len(kept):
            shown.insert(MOST_LINES, f"... {more} more lines of that kind (docs/clients.md)")
        return [click.style(clean(str(self.path)).text, bold=True), *shown]

    def write(self) -> Path | None:
        """Back the file up, write the new one in its place, and return the backup."""
        backup, mode, new = None, None, self.after()
        if self.before is not None:
            mode = self._real.stat().st_mode & 0o7777
            # A name that is taken by other bytes, or by a link, is passed over.
            for number in count():
                backup = Path(f"{self.path}.postroom-backup{number or ''}")
                if files.create(backup, self.before, mode) or _has_bytes(backup, self.before):
                    break
        if new is None:
            files.remove(self._real)
        else:
            files.replace(self._real, new, mode)
        return backup


def _has_bytes(file: Path, data: bytes) -> bool:
    try:
        return file.is_file() and not file.is_symlink() and file.read_bytes() == data
    except OSError:
        return False
