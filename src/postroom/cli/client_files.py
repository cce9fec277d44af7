"""The files of clients and of the person: read, changed in place, shown, backed up and written.

`texts/clients.toml` has the clients that Postroom knows, with the files that list their servers.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import click

from postroom.cli import ui
from postroom.core.errors import Conflict, Corrupt, Denied
from postroom.core.text import clean, one_line
from postroom.tools.listing import SERVERS
from postroom.wiring import files

# server → the name of its entry in a client's file.
ENTRIES = {name: "postroom" if name == "all" else f"postroom-{name}" for name in SERVERS}
BY_ITEM = ("permissions", "hooks")  # lists below them are shown item by item
RULES = "permissions.deny"


class McpClient(NamedTuple):
    """A program that agents run in: its files, and what a person should know about it."""

    title: str
    next_step: str
    project: str = ""  # its file of servers in the working directory, which `install` writes
    user: str = ""  # its file for all projects, which `install` writes where it knows no other
    table: str = "mcpServers"  # the key above the servers
    extra: dict[str, str] = {}  # noqa: RUF012 - read only; what its entries have besides
    rules: str = ""  # its file of rules; empty where none is known
    lists: tuple[str, ...] = ()  # what `permissions` in that file must have
    remains: tuple[str, ...] = ()  # the notes about what an agent in it could still do
    read: str = ""  # how a rule says that a path may not be read
    write: str = ""
    shell: tuple[str, ...] = ()  # its rules against a command that is marked `@ui.personal`

    @property
    def servers_file(self) -> Path:
        return self.servers_files()[0]

    def servers_files(self) -> list[Path]:
        """Return its files of servers: the one that `install` writes, and the user's."""
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        if sys.platform == "darwin":
            config = Path.home() / "Library/Application Support"
        user = Path(self.user.format(home=Path.home(), config=config)) if self.user else None
        project = Path.cwd() / self.project if self.project else None
        return list(dict.fromkeys(path for path in (project, user) if path))

    def open(self, path: Path) -> ClientFile:
        """Open one of its files of servers."""
        kind = TomlFile if path.suffix == ".toml" else ClientFile
        is_project = bool(self.project) and path == Path.cwd() / self.project
        return kind(path, Path.cwd() if is_project else None)

    def open_rules(self) -> ClientFile | None:
        """Open its file of rules, where it has one."""
        kind = RuleLines if self.rules.endswith(".rules") else ClientFile
        return kind(Path.cwd() / self.rules, Path.cwd()) if self.rules else None


TABLES = tomllib.loads(ui.read_text("clients.toml"))
CLIENTS = {name: McpClient(**row) for name, row in TABLES["clients"].items()}


def as_object(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _refuse_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(items)) < len(items):
        raise ValueError("a key is there twice")
    return dict(items)


class ClientFile:
    """A JSON file: its content, to be changed, and the bytes to write."""

    form = "plain JSON"

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))  # a link, as of dotfiles, stays one
        if within and not self._real.is_relative_to(os.path.realpath(within)):
            raise Denied(
                f"{path} is a link that leads out of this folder, to {self._real}",
                remedy="Put the file itself there, or change it by hand.",
            )
        if path.exists() and not path.is_file():
            raise self.refusal("is not a file")
        self.before = path.read_bytes() if path.exists() else None
        try:
            self._text = (self.before or b"").decode("utf-8-sig")
            found = self._parse(self._text)
            self._former = as_object(deepcopy(found))
        except UnicodeDecodeError as why:
            raise self.refusal("is not UTF-8") from why
        except (ValueError, RecursionError) as why:
            raise self.refusal(f"is not {self.form}: {why}") from why
        if not isinstance(found, dict):
            raise self.refusal("holds no JSON object")
        self.content: dict[str, Any] = found

    def _parse(self, text: str) -> object:
        return json.loads(text.strip() or "{}", object_pairs_hook=_refuse_duplicates)

    def _render(self) -> str:
        """Return the text of the changed content, in the form of the text that was read."""
        if not self.content and not self.path.is_symlink():
            return ""
        old, indent = self._text, re.search(r'\n([ \t]+)"', self._text)
        # Half a surrogate pair can only be written as it came, escaped.
        escaped = bool(old) and (old.isascii() or "\\ud" in old.lower())
        by = indent[1] if indent else 2
        try:
            text = json.dumps(self.content, ensure_ascii=escaped, indent=by, allow_nan=False)
        except ValueError as why:  # such as 1e999, which Python would write as Infinity
            raise self.refusal("has a number that cannot be written as it was") from why
        text += "\n" if not old or old.endswith("\n") else ""
        return text.replace("\n", "\r\n" if "\r\n" in old else "\n")

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
        """Replace the items of a list that are ours by new ones, and remove the list if that empties it."""
        lists = self.table(name, key) if new else as_object(self.content.get(name))
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
        text = self._render()
        return text.encode() if text.strip() or self.path.is_symlink() else None

    def preview(self, run: str = "", rules: Collection[str] = ()) -> list[str]:
        """Return the change in few lines: what is removed or replaced, and new rules as a number.

        `run` is a command that hooks repeat, which is shown once. `rules` are those that `install` writes now:
        where they are removed, their number is shown; every other rule that is removed is listed.
        """
        old, new = (Counter(_leaves(content)) for content in (self._former, self.content))
        gone = list((old - new).elements())
        rows = [f"- {path}: {text}" for path, text in gone if path != RULES or text not in rules]
        if len(rows) < len(gone):
            rows.append(f"- {len(gone) - len(rows)} rules that install wrote (--diff shows all)")
        added = [
            f"+ {path}: {text}"
            for path, text in (new - old).elements()
            if path != RULES and not path.endswith(".type")  # it says what the rest shows
        ]
        if run and any(run in row for row in added):
            added = [f"  RUN is {run}", *(row.replace(run, "RUN") for row in added)]
        if more := sum(path == RULES for path, _ in (new - old).elements()):
            what = "rule keeps" if more == 1 else "rules keep"
            added.append(f"+ {more} {what} the agent from deciding for you (--diff shows all)")
        fate = " (new)" if self.before is None else " (deleted)" if self.after() is None else ""
        heading = click.style(clean(f"{self.path}{fate}").text, bold=True)
        return [heading, *map(_colour, rows + added)]

    def diff(self) -> list[str]:
        """Return the whole change as a unified diff."""
        lines = self._text.splitlines(), (self.after() or b"").decode().splitlines()
        rows = [*difflib.unified_diff(*lines, lineterm="", n=1)][2:]
        return [click.style(clean(str(self.path)).text, bold=True), *map(_colour, rows)]

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


class TomlFile(ClientFile):
    """A TOML file, of which only settings at its top and tables two names deep can be changed.

    Every other line stays as it is. What cannot be changed in that way is refused.
    """

    form = "TOML"

    def _parse(self, text: str) -> object:
        return tomllib.loads(text)

    def _render(self) -> str:
        text, old = self._text.replace("\r\n", "\n"), dict(self._former)
        for key, value in self.content.items():
            if not isinstance(value, dict) and old.get(key) != value:
                text = self._with_setting(text, key, json.dumps(value), old | {key: value})
                old |= {key: value}
        for table in self._former | self.content:
            before, now = as_object(self._former.get(table)), as_object(self.content.get(table))
            for name in before | now:
                if before.get(name) != now.get(name):
                    text = _without_table(text, (table, name))
                    if name in now:
                        text = f"{text.rstrip()}\n\n" if text.strip() else ""
                        text += toml_table(f"{table}.{name}", now[name]) + "\n"
        if self._means(text, self.content):
            return text.replace("\n", "\r\n" if "\r\n" in self._text else "\n")
        raise self.refusal("is written in a form that is not changed here")

    def _with_setting(self, text: str, key: str, value: str, wanted: dict[str, Any]) -> str:
        """Return the text with this setting at its top: in its line, or in the comment that shows it."""
        line = rf"({key}[ \t]*=[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s#]+)"
        head = re.split(r"^[ \t]*\[", text, maxsplit=1, flags=re.MULTILINE)[0]
        for start in ("", r"#[ \t]*"):
            changed = re.sub(rf"^{start}{line}", rf"\g<1>{value}", head, count=1, flags=re.MULTILINE)  # fmt: skip
            if changed != head and self._means(changed + text[len(head) :], wanted):
                return changed + text[len(head) :]
        return f"{key} = {value}\n{text}"

    def _means(self, text: str, wanted: dict[str, Any]) -> bool:
        """Whether a text means this content; a table without anything in it counts for none."""
        try:
            found = tomllib.loads(text)
        except ValueError:
            return False
        both = [{name: each for name, each in content.items() if each != {}} for content in (found, wanted)]  # fmt: skip
        return both[0] == both[1]


class RuleLines(ClientFile):
    """A file with a rule on each line; its content has them where a JSON file has them."""

    def _parse(self, text: str) -> object:
        return {"permissions": {"deny": text.splitlines()}} if text.strip() else {}

    def _render(self) -> str:
        rules = as_object(self.content.get("permissions")).get("deny", [])
        return "".join(f"{rule}\n" for rule in rules)


def toml_table(name: str, table: dict[str, Any]) -> str:
    """Return a table of TOML with those in it, each under its own header."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    # A date becomes a text, so that the change is refused.
    rows = [f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in plain.items()]  # fmt: skip
    inner = [toml_table(f"{name}.{key}", table[key]) for key in table if key not in plain]
    return "\n\n".join(["\n".join([f"[{name}]", *rows]), *inner])


def _without_table(text: str, path: tuple[str, ...]) -> str:
    """Return the text without the lines of a table; comments before the next one are the next one's."""
    kept: list[str] = []
    is_inside, waiting = False, list[str]()
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_inside = _header(line)[: len(path)] == path
            kept, waiting = kept if is_inside else kept + waiting, []
        if not is_inside:
            kept.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            waiting = []
        elif line.strip() or waiting or (kept and kept[-1].strip()):  # not a second blank line
            waiting.append(line)
    return "".join(kept + waiting).rstrip("\n") + "\n" if kept else "".join(waiting)


def _header(line: str) -> tuple[str, ...]:
    """Return the names in a line that begins a table, such as `[a."b c"]`."""
    names: tuple[str, ...] = ()
    try:
        found: object = tomllib.loads(line)
    except ValueError:
        return names
    while isinstance(found, dict) and found:
        ((name, found),) = found.items()
        names += (name,)
    return names


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value in a content with the keys above it, as it is shown."""
    match value:
        case {"command": str(command), "args": list(words), **rest}:
            yield path, one_line(shlex.join(map(str, [command, *words])))
            yield from _leaves(rest, path)
        case {"command": str(command), **rest}:
            yield path, one_line(command)
            yield from _leaves(rest, path)
        case dict():
            for key, each in value.items():
                name = one_line(str(key))
                yield from _leaves(each, f"{path}.{name}" if path else name)
        case list() if path.startswith(BY_ITEM):
            for each in value:
                yield from _leaves(each, path)
        case str():
            yield path, one_line(value)
        case _:
            yield path, one_line(json.dumps(value, default=str))


def _colour(row: str) -> str:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return click.style(clean(row).text, fg=colours.get(row[:1]))


def _has_bytes(file: Path, data: bytes) -> bool:
    try:
        return file.is_file() and not file.is_symlink() and file.read_bytes() == data
    except OSError:
        return False


def show(
    changed: Iterable[ClientFile],
    *,
    diff: bool = False,
    run: str = "",
    rules: Collection[str] = (),
) -> None:
    """Show the changes, on stderr where stdout gets JSON; `run` and `rules` as in `preview`."""
    for file in changed:
        rows = file.diff() if diff else file.preview(run, rules)
        click.echo("\n".join(rows), err=ui.wants_json())


def write_all(changed: Sequence[ClientFile]) -> list[dict[str, str]]:
    """Write the files in this order; return each and its backup."""
    if any(file.before != _bytes(file.path) for file in changed):
        problem = "A file was changed in the meantime"
        raise Conflict(problem, remedy="Nothing was written. Run it again.")
    return [{"file": str(file.path), "backup": str(file.write() or "")} for file in changed]


def changed_rows(changed: Sequence[dict[str, str]]) -> list[str]:
    """Return the lines that say which files were changed, and where their backups are."""
    backups = [f"\nBackup: {row['backup']}" if row["backup"] else "" for row in changed]
    return [f"Changed {row['file']}{backup}" for row, backup in zip(changed, backups, strict=True)]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
