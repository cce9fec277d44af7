"""A client's settings file, in JSON: changed as little as possible, shown first, backed up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import click

from postroom.core.errors import Corrupt, Denied
from postroom.core.text import clean
from postroom.wiring import files


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
