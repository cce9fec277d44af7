"""The clients that `postroom install` knows: their files, and what goes into them."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from postroom import wiring
from postroom.agents.roster import NAME
from postroom.core.errors import Corrupt, Denied
from postroom.core.text import clean
from postroom.vault.folders import FILES, FOLDERS
from postroom.wiring import files

if TYPE_CHECKING:
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
        except ValueError as why:
            raise self.refusal("is not UTF-8") from why
        self.content = self._parse()

    def refusal(self, problem: str) -> Corrupt:
        """Return the error for a file that cannot be changed safely."""
        remedy = "It was not changed. Correct it and run this again, or change it by hand."
        return Corrupt(f"{self.path} {problem}", remedy=remedy)

    def _parse(self) -> dict[str, Any]:
        def refuse_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
            if len(dict(items)) < len(items):
                raise ValueError("a key is there twice")
            return dict(items)

        try:
            text = self._text.strip() or "{}"
            found = json.loads(text, object_pairs_hook=refuse_duplicates)
        except (ValueError, RecursionError) as why:
            raise self.refusal(f"is not plain JSON: {why}") from why
        if not isinstance(found, dict):
            raise self.refusal("holds no JSON object")
        return found

    def table(self, name: str, *lists: str) -> dict[str, Any]:
        """Return the object of this name, with these lists in it; both are made where missing."""
        found = self.content.setdefault(name, {})
        if not isinstance(found, dict) or not all(
            isinstance(found.setdefault(each, []), list) for each in lists
        ):
            raise self.refusal(f"has something unexpected under {name}")
        return found

    @property
    def is_changed(self) -> bool:
        """Whether there is something to write."""
        return self.after() != self.before

    def after(self) -> bytes | None:
        """Return the bytes to write: the same where nothing changed, None to delete the file."""
        if self.content == self._parse():
            return self.before
        if not self.content and not self.path.is_symlink():
            return None
        old = self._text
        indent = re.search(r'\n([ \t]+)"', old)
        # Half a surrogate pair can only be written as it came, escaped.
        escaped = bool(old) and (old.isascii() or "\\ud" in old.lower())
        text = json.dumps(self.content, ensure_ascii=escaped, indent=indent[1] if indent else 2)
        text += "\n" if not old or old.endswith("\n") else ""
        return text.replace("\n", "\r\n" if "\r\n" in old else "\n").encode()

    def diff(self) -> Iterator[str]:
        """Yield the change as a unified diff with one line of context."""
        import difflib

        lines = self._text.splitlines(), (self.after() or b"").decode().splitlines()
        colours = {"+": "green", "-": "red", "@": "cyan"}
        yield click.style(clean(str(self.path)).text, bold=True)
        for row in list(difflib.unified_diff(*lines, lineterm="", n=1))[2:]:
            yield click.style(clean(row).text, fg=colours.get(row[0]))

    def write(self) -> Path | None:
        """Back the file up, write the new one in its place, and return the backup."""
        backup, mode, new = None, None, self.after()
        if self.before is not None:
            mode = self._real.stat().st_mode & 0o7777
            names = (Path(f"{self.path}.postroom-backup{number or ''}") for number in count())
            backup = next(name for name in names if self._back_up(name, self.before, mode))
        if new is None:
            files.remove(self._real)
        else:
            files.replace(self._real, new, mode)
        return backup

    def _back_up(self, backup: Path, data: bytes, mode: int) -> bool:
        """Write the backup; return false where the name is taken by other bytes."""
        if files.create(backup, data, mode):
            return True
        try:
            is_plain = backup.is_file() and not backup.is_symlink()
            return is_plain and backup.read_bytes() == data
        except OSError:
            return False
