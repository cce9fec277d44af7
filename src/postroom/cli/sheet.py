"""A client's file of settings, in JSON: changed as little as can be, shown first, backed up."""

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
from postroom.store import files


class Sheet:
    """A client's JSON file: what it holds, and the bytes it shall have."""

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        self._real = Path(os.path.realpath(path))  # a link, as of dotfiles, stays one
        if within and not self._real.is_relative_to(os.path.realpath(within)):
            raise Denied(
                f"{path} is a link that leads out of this folder, to {self._real}",
                remedy="Put the file itself there, or change it by hand.",
            )
        if path.exists() and not path.is_file():
            raise self.wrong("is no file")
        self.before = path.read_bytes() if path.exists() else None
        try:
            self.old = (self.before or b"").decode("utf-8-sig")
        except ValueError as why:
            raise self.wrong("is not UTF-8") from why
        self.content = self._parsed()

    def wrong(self, what: str) -> Corrupt:
        """Return the refusal of a file that cannot be changed safely."""
        remedy = "It is left as it is. Mend it and run this again, or change it by hand."
        return Corrupt(f"{self.path} {what}", remedy=remedy)

    def _parsed(self) -> dict[str, Any]:
        def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
            if len(dict(items)) < len(items):
                raise ValueError("a key is there twice")
            return dict(items)

        try:
            found = json.loads(self.old, object_pairs_hook=once) if self.old.strip() else {}
        except (ValueError, RecursionError) as why:
            raise self.wrong(f"is not plain JSON: {why}") from why
        if not isinstance(found, dict):
            raise self.wrong("holds no JSON object")
        return found

    def table(self, name: str, *lists: str) -> dict[str, Any]:
        """Return the object of this name with these lists in it, made where they are missing."""
        found = self.content.setdefault(name, {})
        if not isinstance(found, dict) or not all(
            isinstance(found.setdefault(each, []), list) for each in lists
        ):
            raise self.wrong(f"has something unexpected under {name}")
        return found

    def after(self) -> bytes | None:
        """Return the bytes to write: the same where nothing changed, None where nothing is left."""
        if self.content == self._parsed():
            return self.before
        if not self.content and not self.path.is_symlink():
            return None
        indent = re.search(r'\n([ \t]+)"', self.old)
        # Half a surrogate pair can only be written as it came, escaped.
        escaped = bool(self.old) and (self.old.isascii() or "\\ud" in self.old.lower())
        text = json.dumps(self.content, ensure_ascii=escaped, indent=indent[1] if indent else 2)
        text += "\n" if not self.old or self.old.endswith("\n") else ""
        return text.replace("\n", "\r\n" if "\r\n" in self.old else "\n").encode()

    def diff(self) -> Iterator[str]:
        """Yield the change as a person reads it, with little of what stands beside it."""
        import difflib

        new = self.after()
        lines = self.old.splitlines(), (new or b"").decode().splitlines()
        colours = {"+": "green", "-": "red", "@": "cyan"}
        yield click.style(clean(str(self.path)).text, bold=True)
        for row in list(difflib.unified_diff(*lines, lineterm="", n=1))[2:]:
            yield click.style(clean(row).text, fg=colours.get(row[0]))

    def write(self) -> Path | None:
        """Back the file up, put the new one in its place, and return the backup."""
        real = self._real
        backup, mode, new = None, None, self.after()
        if self.before is not None:
            mode = real.stat().st_mode & 0o7777
            names = (Path(f"{self.path}.postroom-backup{number or ''}") for number in count())
            backup = next(name for name in names if self._kept(name, mode))
        if new is None:
            files.remove(real)
        else:
            files.replace(real, new, mode)
        return backup

    def _kept(self, backup: Path, mode: int) -> bool:
        """Whether this backup is of these bytes: it was before, or it is now."""
        assert self.before is not None
        if files.create(backup, self.before, mode):
            return True
        try:
            plain = backup.is_file() and not backup.is_symlink()
            return plain and backup.read_bytes() == self.before
        except OSError:
            return False
