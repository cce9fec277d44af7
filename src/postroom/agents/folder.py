"""Where a repository's agent mail lies."""

from __future__ import annotations

import os
import stat
from typing import Final

from postroom.agents.files import content
from postroom.core.errors import Denied, Invalid, NotFound, Unavailable
from postroom.store.files import create

NO_ROOT: Final = "not in a git repository: not in a git repository"
PERSON: Final = "person"  # who has a voice that no agent has


class Folder:
    """`.agentmail` of one repository."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.path = os.path.join(root, ".agentmail")
        self.boxes = os.path.join(self.path, "mailboxes")
        self.ours = os.path.join(self.path, "postroom")
        self.states = os.path.join(self.path, "recipients.jsonl")
        self.pid = os.path.join(self.path, "mailman.pid")

    def check(self) -> Folder:
        """Return it, unless a link leads elsewhere: a repository may be a stranger's."""
        for path in (self.path, self.boxes, self.ours):
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            except OSError as why:
                raise Unavailable(f"{path}: {why.strerror}") from why
            if not stat.S_ISDIR(mode):
                raise Denied(f"{path} is not a folder of its own", remedy="Take it away.")
        return self

    def make(self) -> None:
        """Make the folders that are missing."""
        self.check()
        if os.path.isdir(self.boxes) and os.path.isdir(self.ours):
            return
        for path in (self.path, self.boxes, self.ours):
            try:
                os.mkdir(path, 0o750)
            except FileExistsError:
                continue
            if path == self.path:  # letters are no part of what the repository keeps
                create(os.path.join(path, ".gitignore"), b"*\n", 0o600)

    def box(self, name: str) -> str:
        """Return the file of a mailbox."""
        cleaned = os.path.normpath(f"{name}.jsonl")
        if cleaned.startswith(("..", "/")) or "\0" in name:
            raise Invalid("invalid path: directory traversal detected")
        path = os.path.join(self.boxes, f"{name}.jsonl")
        if "/" in name:  # the original makes no folder for it
            raise NotFound(f"open {path}: no such file or directory")
        return path

    def holds(self, name: str) -> bool:
        """Whether there can be a mailbox of this name: one with a slash has none."""
        return "/" not in name or name.startswith("..")

    def beside(self, name: str, ending: str) -> str:
        """Return a file of ours that belongs to a mailbox."""
        self.box(name)
        return os.path.join(self.ours, f"{name}.{ending}")

    def names(self) -> list[str]:
        """Return whose mailboxes there are."""
        try:
            found = os.listdir(self.boxes)
        except OSError:
            return []
        return sorted(name.removesuffix(".jsonl") for name in found if name.endswith(".jsonl"))

    def ignored(self) -> frozenset[str]:
        """Return the names that nobody may write to."""
        data = content(os.path.join(self.root, ".agentmailignore"))
        lines = data.decode("utf-8", "replace").split("\n")
        return frozenset(filter(None, map(str.strip, lines)))


def find(start: str) -> Folder | None:
    """Return the agent mail of the repository that this folder is in."""
    here = os.path.abspath(start)
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            return Folder(here)
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above
