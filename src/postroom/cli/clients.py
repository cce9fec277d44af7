"""The clients that `postroom install` knows: their files, and what goes into them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from postroom import wiring
from postroom.agents.roster import NAME
from postroom.vault.folders import FILES, FOLDERS

if TYPE_CHECKING:
    from postroom.cli.client_file import ClientFile
    from postroom.config import Config

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
GMAIL_FILES = ("token.json", "credentials.json")
SHELL_REMAINS = (
    "What remains: rules stop the client's own tools, not a script that it runs. A shell under your "
    "user can still read and write those files, and run `postroom`; only running Postroom under "
    "another user stops that."
)
CURSOR_REMAINS = (
    "The rules are for Cursor's command line; the editor's agent has settings of its own: let it ask "
    "before each command. Where a project has lists, Cursor may leave out those in "
    "~/.cursor/cli-config.json: copy yours over."
)


class McpClient(NamedTuple):
    """A program that agents run in: its files, and what a person should know about it."""

    title: str
    servers: str  # its file of servers, below the working directory; empty where it is elsewhere
    rules: str  # its file of rules; empty where it has no shell
    lists: tuple[str, ...]  # what `permissions` in that file must have
    next_step: str
    remains: tuple[str, ...] = ()

    @property
    def servers_file(self) -> Path:
        """The file that its servers are registered in."""
        if self.servers:
            return Path.cwd() / self.servers
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        if sys.platform == "darwin":
            folder = Path.home() / "Library" / "Application Support"
        return folder / "Claude" / "claude_desktop_config.json"


CLIENTS = {
    "claude-code": McpClient(
        "Claude Code", ".mcp.json", ".claude/settings.json", ("deny",),
        "Start Claude Code in this folder and let it use the server; /mcp shows it, /permissions the rules.",
        (SHELL_REMAINS,),
    ),
    "claude-desktop": McpClient("Claude Desktop", "", "", (), "Quit Claude Desktop and start it again."),
    "cursor": McpClient(
        "Cursor", ".cursor/mcp.json", ".cursor/cli.json", ("allow", "deny"),
        "Turn the server on in Cursor's settings, under MCP.",
        (SHELL_REMAINS, CURSOR_REMAINS),
    ),
}  # fmt: skip


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
    settings = wiring.settings_file()
    env = {"DRY_RUN": "true", "VAULT_PATH": str(config.vault.path.absolute())}
    if settings.exists() or os.environ.get("POSTROOM_CONFIG"):
        env["POSTROOM_CONFIG"] = str(settings.absolute())
    if os.environ.get("POSTROOM_PROVIDER"):
        env["POSTROOM_PROVIDER"] = config.account().provider
    paths = {
        "POSTROOM_STATE": config.state,
        "GMAIL_TOKEN_PATH": config.gmail.token_path,
        "GMAIL_CREDENTIALS_PATH": config.gmail.credentials_path,
    }
    for variable, path in paths.items():
        if os.environ.get(variable) and path:
            env[variable] = str(path.absolute())
    if agents and client == WITH_HOOKS:
        # The client fills them in from its own environment: the server finds its window by them.
        env |= {"TMUX": "${TMUX:-}", "TMUX_PANE": "${TMUX_PANE:-}"}
    transport = {"type": "stdio"} if client in WITH_TRANSPORT else {}
    return {**transport, "command": command, "args": [*module, *words], "env": env}


def deny_rules(client: str, config: Config) -> list[str]:
    """Return what this client's own tools may not do."""
    room = config.vault.postroom_folder
    hidden = [room / folder.name for folder in FOLDERS if folder.tools == "none"]
    hidden.insert(0, config.state or config.desks)
    fixed = [room / folder.name for folder in FOLDERS if folder.tools == "read"]
    files = [room / file.name for file in FILES if file.tools in ("read", "none")]
    files += [wiring.settings_file(), CLIENTS[client].servers_file]
    files.append(Path.cwd() / CLIENTS[client].rules)
    secrets = [config.gmail.token_path, config.gmail.credentials_path]
    secrets += [config.cwd / name for name in GMAIL_FILES]
    unread = _patterns(hidden, "/**")
    unread += _patterns([file for file in secrets if file and file.exists()], "")
    unchanged = _patterns([*hidden, *fixed, config.vault.path / ".postroom"], "/**")
    # PAUSED.md pauses as well: a name without an ending may have any.
    unchanged += [text for file in files for text in _patterns([file], "" if file.suffix else "*")]
    read, write = ("Read({})", "Write({})") if client == "cursor" else ("Read(/{})", "Edit(/{})")
    shell = _cursor_shell() if client == "cursor" else _claude_shell()
    rules = [*shell, *map(read.format, unread), *map(write.format, unchanged)]
    return list(dict.fromkeys(rules))


def _cursor_shell() -> list[str]:
    command, *module = program()
    pythons = dict.fromkeys(("python", "python3", str(Path(command).with_name("python"))))
    rules = ["Shell(postroom)", *(f"Shell({python}:-m postroom*)" for python in pythons)]
    return [*rules, f"Shell({command}:{' '.join(module)}*)" if module else f"Shell({command})"]


def _claude_shell() -> list[str]:
    starts = ("postroom", "python -m postroom", "python3 -m postroom", shlex.join(program()))
    rules = [f"Bash({start} {name}:*)" for name in PERSONAL for start in starts]
    rules += [f"Bash(*postroom {name}*)" for name in PERSONAL]
    # No agent may write as the person.
    return [*rules, "Bash(*agentmail* --person*)", "Bash(*agentmail* -person*)"]


def _patterns(paths: list[Path], ending: str) -> list[str]:
    """Return each path and what it links to as patterns; a special character becomes `?`."""
    both = [spell(path) for path in paths for spell in (os.path.abspath, os.path.realpath)]
    return [re.sub(r"[^\w/ .@+~:=-]", "?", text) + ending for text in dict.fromkeys(both)]


def add_hooks(rules: ClientFile, agent: str) -> None:
    """Add hooks that report the client's status and bring it its agent mail."""
    remove_hooks(rules)
    # In tmux the window's name counts; elsewhere the name that the server has.
    run = f'{NAME}="${{{NAME}:-{agent}}}" {shlex.join([*program(), "agentmail"])}'
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


def remove_hooks(rules: ClientFile) -> None:
    """Remove our hooks, and what is empty without them."""
    import json

    hooks = rules.content.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event, groups in list(hooks.items()):
        if isinstance(groups, list):
            left = [group for group in groups if not HOOK.search(json.dumps(group))]
            if left and left != groups:
                hooks[event] = left
            elif groups and not left:
                del hooks[event]
    if not hooks:
        del rules.content["hooks"]
