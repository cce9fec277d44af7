"""The workflow table: every folder and root file that Postroom gives a meaning to, and what tools may do where."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from postroom.core.errors import Denied
from postroom.core.text import reads_as

Right = Literal["none", "read", "create", "all"]
NOTE: Final = ".md"


class Folder(NamedTuple):
    """A place in the vault: what tools may do there, and what it is for."""

    name: str
    tools: Right  # to create is also to change what they created, until it is a letter
    purpose: str


FOLDERS: Final = (
    Folder("Needs_Action", "create", "Mail that waits for a decision."),
    Folder("Plans", "all", "What agents plan; requests for approval may begin here."),
    Folder("Drafts", "create", "Drafts; with `status: pending_approval` they are letters."),
    Folder("Pending_Approval", "read", "Letters that wait for your word."),
    Folder("Pending_Approval/Files", "read", "Attachments of letters that are not decided yet."),
    Folder("Approved", "read", "Move a letter here to approve it."),
    Folder("Rejected", "read", "Move a letter here to reject it."),
    Folder("Done", "read", "Letters that were sent, and mail that is dealt with."),
    Folder("Failed", "read", "Letters that cannot be sent."),
    Folder("Briefings", "read", "Summaries for you."),
    Folder("Mail_Files", "read", "Attachments of mail that was read."),
    Folder("Outgoing", "all", "Files to be sent."),
    Folder("Logs", "none", "What happened, one line an action."),
)
FILES: Final = (
    Folder(
        "Dashboard.md",
        "read",
        "Where to look: kept current by `postroom run` below its heading Now, and yours above.",
    ),
    Folder("Handbook.md", "read", "Your rules for mail."),
    Folder("Style.md", "read", "How your letters should sound."),
    Folder(
        "PAUSED",
        "read",
        "While this file is here, nothing is sent, and agents move and label no mail.",
    ),
)
LOGS: Final = "Logs"
NEEDS_ACTION: Final = "Needs_Action"
BRIEFINGS: Final = "Briefings"
DASHBOARD: Final = "Dashboard.md"
HANDBOOK: Final = "Handbook.md"
STYLE: Final = "Style.md"
PENDING: Final = "Pending_Approval"
LETTER_FILES: Final = "Pending_Approval/Files"  # with a folder for each letter
DRAFTS: Final = "Drafts"
APPROVED: Final = "Approved"
REJECTED: Final = "Rejected"
DONE: Final = "Done"
FAILED: Final = "Failed"
PLANS: Final = "Plans"
PAUSED: Final = "PAUSED"
# Obsidian makes no file without .md.
PAUSES: Final = frozenset({"paused", "paused.md", "paused.txt"})

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
        self._prefix = f"{room}/" if room else ""
        self._all = own is None
        self._own = [unicodedata.normalize("NFC", folder.strip("/")) for folder in own or ()]

    def row(self, path: str) -> Folder | None:
        """Return the row of the table that a path belongs to; None for the person's own notes."""
        first, _, rest = path.partition("/")
        if self._room:
            if (row := _find_row(first)) and row.name == PAUSED:
                return row  # it counts beside the room, too
            if not reads_as(first, (self._room,)):
                return None
            first = rest.partition("/")[0]
        return _find_row(first) if first else None

    def right(self, path: str) -> Right:
        row = self.row(path)
        if row is None:
            plain = unicodedata.normalize("NFC", path)
            is_own = self._all or any(plain.startswith(f"{folder}/") for folder in self._own)
            return "all" if is_own else "read"
        name = f"{self._prefix}{row.name}"
        if path != name and not path.startswith(f"{name}/"):
            return "none" if row.tools == "none" else "read"  # a lookalike has none of its rights
        return row.tools

    def hint(self, path: str) -> str:
        """Return what a tool should know that wrote here, where Postroom's folder is elsewhere."""
        row = _find_row(path.partition("/")[0]) if self._room else None
        if row is None or self.row(path):
            return ""
        return f"This is not a folder of Postroom's: its own is {self._room}/{row.name}."

    def hidden(self, path: str) -> bool:
        """Whether tools see nothing of it."""
        return self.right(path) == "none"

    def is_workflow(self, path: str) -> bool:
        """Whether a path belongs to Postroom rather than to the person."""
        return self.row(path) is not None

    def refuse_reading(self, path: str) -> None:
        if self.hidden(path):
            raise Denied(
                f"{LOGS}/ is not for tools: {path!r} is not read",
                remedy="Every other folder of the vault may be read.",
            )

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
        every = [f"{self._prefix}{row.name}/" for row in FOLDERS if row.tools == "all"]
        every += ["folders that are not Postroom's"] if self._all else [f"{f}/" for f in self._own]
        new = [f"{self._prefix}{row.name}/" for row in FOLDERS if row.tools == "create"]
        return f"{', '.join(every)}; new notes in {' and '.join(new)}"
