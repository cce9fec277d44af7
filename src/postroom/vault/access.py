"""What tools may do where in the vault: one table, whatever a path is spelled like."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from postroom.core.errors import Denied
from postroom.core.lookalike import reads_as
from postroom.vault import folders
from postroom.vault.folders import FILES, FOLDERS, Folder

Right = Literal["none", "read", "create", "all"]
NOTE: Final = ".md"


_NAMES: Final = {row.name: row for row in (*FOLDERS, *FILES)} | {
    f"{row.name.removesuffix(NOTE)}{end}": row for row in FILES for end in ("", NOTE, ".txt")
}


@lru_cache(maxsize=1_000)  # a sweep asks for the same few first names again and again
def _find_row(name: str) -> Folder | None:
    """Return the row of the table whose name this is, or could be taken for by a reader or a file system."""
    return _NAMES.get(reads_as(name, _NAMES))


class Access:
    """The workflow table, over a vault whose `room` holds it, and the person's own folders."""

    def __init__(self, room: str = "", own: Sequence[str] | None = None) -> None:
        self._room = room
        self._all = own is None
        self._own = [unicodedata.normalize("NFC", folder.strip("/")) for folder in own or ()]

    def row(self, path: str) -> Folder | None:
        """Return the row of the table that a path belongs to; None for the person's own notes."""
        first, _, rest = path.partition("/")
        if self._room:
            if (row := _find_row(first)) and row.name == folders.PAUSED:
                return row  # it counts beside the room, too
            if not reads_as(first, (self._room,)):
                return None
            first = rest.partition("/")[0]
        return _find_row(first) if first else None

    def right(self, path: str) -> Right:
        """Return what tools may do at a path."""
        row = self.row(path)
        if row is None:
            return "all" if self._is_own(path) else "read"
        name = f"{self._room}/{row.name}" if self._room else row.name
        if path != name and not path.startswith(f"{name}/"):
            return "none" if row.tools == "none" else "read"  # a lookalike has none of its rights
        right: Right = row.tools  # type: ignore[assignment]
        return right

    def _is_own(self, path: str) -> bool:
        plain = unicodedata.normalize("NFC", path)
        return self._all or any(plain.startswith(f"{folder}/") for folder in self._own)

    def hint(self, path: str) -> str:
        """Return what a tool should know that wrote here, where Postroom's folder is elsewhere."""
        row = _find_row(path.partition("/")[0]) if self._room else None
        if row is None or self.row(path):
            return ""
        return f"This is no folder of Postroom's: its own is {self._room}/{row.name}."

    def hidden(self, path: str) -> bool:
        """Whether tools see nothing of it."""
        return self.right(path) == "none"

    def is_workflow(self, path: str) -> bool:
        """Whether a path belongs to Postroom rather than to the person."""
        return self.row(path) is not None

    def refuse_reading(self, path: str) -> None:
        """Refuse what tools may not read."""
        if self.hidden(path):
            raise Denied(
                f"{folders.LOGS}/ is not for tools: {path!r} is not read",
                remedy="Every other folder of the vault may be read.",
            )

    def refuse_closed(self, path: str) -> None:
        """Refuse a place where tools may never write."""
        if self.right(path) in ("none", "read"):
            self.refuse_writing(path, new=True)

    def refuse_writing(self, path: str, *, new: bool, by_tool: bool = False) -> None:
        """Refuse what tools may not make (`new`) or change; `by_tool`: a tool made it."""
        right, row = self.right(path), self.row(path)
        if right == "all" or (right == "create" and (new or by_tool)):
            return
        if row is None:
            raise Denied(
                f"Tools write only to the folders that `vault.agent_folders` names, not to {path!r}",
                remedy=f"Allowed: {self.allowed}.",
            )
        place = f"{row.name}/" if row in FOLDERS else row.name
        if right == "create":
            rule = f"In {place} tools change only notes that tools made, and no letters"
        else:
            rule = f"{place} is Postroom's: tools change nothing there, by any spelling of its name"
        raise Denied(f"{rule} ({path!r})", remedy=f"Allowed: {self.allowed}.")

    @property
    def allowed(self) -> str:
        """Where tools may write, in words."""
        prefix = f"{self._room}/" if self._room else ""
        rights = {
            right: [f"{prefix}{row.name}/" for row in FOLDERS if row.tools == right]
            for right in ("all", "create")
        }
        own = ["folders that are not Postroom's"] if self._all else [f"{f}/" for f in self._own]
        every = f"{', '.join(rights['all'])}{''.join(f', {place}' for place in own)}"
        return f"{every}; new notes in {' and '.join(rights['create'])}"
