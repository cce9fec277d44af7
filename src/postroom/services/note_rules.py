"""What tools may not do to notes, whatever the folder allows: pass for the desk, approve, act, hide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from postroom.core.errors import Denied, Invalid
from postroom.core.text import clean, one_line
from postroom.core.values import dataclass
from postroom.desk.unowned_notes import TYPES
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.access import Access
from postroom.vault.active import Active, added
from postroom.vault.note import Note, etag
from postroom.vault.vault import Vault

NO_LINK: Final = frozenset('[]#^|:*?"<>')  # signs that a wikilink or another system cannot hold
DESK_FIELDS: Final = frozenset({"letter", "letter_version", "digest", "desk"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRules:
    """Refusals for what a tool is about to write, move or rename."""

    vault: Vault
    access: Access
    ledger: Ledger
    allow_active: bool
    in_room: Callable[[str], str]  # a path as the desk knows it

    def is_tool_written(self, path: str, raw: bytes) -> bool:
        """Whether a note is as a tool has written it."""
        return self.ledger.tool_notes.has(self.in_room(path), etag(raw))

    def refuse_folder(self, path: str) -> None:
        """Refuse a folder where a file is meant."""
        if self.vault.is_folder(path):
            raise Invalid(
                f"{path!r} is a folder",
                remedy="list_notes shows what is in it; notes are moved one by one.",
            )

    def refuse_letter(self, path: str) -> None:
        """Refuse a draft that has become a letter."""
        inside = self.in_room(path)
        if known := self.ledger.notes.in_folders(inside.rpartition("/")[0]).get(inside):
            raise Denied(
                f"{path!r} is the letter {known[0]} now, and tools cannot change it",
                remedy="Write another draft, or take the letter back (withdraw_letter).",
            )

    def refuse_desk_fields(self, path: str, note: Note) -> None:
        """Refuse fields by which the desk knows its letters.

        In Postroom's folders all of them; elsewhere those of a letter that exists, since the person may
        move the note.
        """
        fields = sorted(DESK_FIELDS & note.fields.keys())
        in_workflow = self.access.is_workflow(path)
        if fields and (in_workflow or self.ledger.notes.location(note.text("letter")).path):
            raise Denied(
                f"`{fields[0]}` is the desk's own field: tools do not write it in its folders, nor in a"
                " note that names one of its letters",
                remedy="Leave it out. A letter is asked for with `to`, `subject` and a status.",
            )

    def refuse_approval(self, path: str, note: Note) -> None:
        """Refuse a note that would pass for an approval: tools ask for one, in Plans/ alone."""
        self.refuse_desk_fields(path, note)
        in_plans = self.in_room(path).startswith(f"{folders.PLANS}/")
        if note.text("type") in TYPES and not in_plans:
            raise Denied(
                f"A note of the type {note.text('type')} asks for approval, and belongs into"
                f" {folders.PLANS}/",
                remedy=f"Write it to {folders.PLANS}/, or leave `type` out.",
            )
        status = note.text("status").strip().casefold()
        if self.access.is_workflow(path) and status == "approved":
            raise Denied(
                "Only a person writes `status: approved` in Postroom's folders",
                remedy="Leave it out, or write `status: pending`.",
            )

    def active_content(self, before: str, after: str) -> Active | None:
        """Return what was added to a note that acts when it is opened, unless that is allowed."""
        return None if self.allow_active else added(before, after)

    def refuse_active(self, before: str, note: Note) -> None:
        """Refuse a change that adds what acts when the note is opened."""
        if active := self.active_content(before, note.source):
            raise Denied(
                f"Line {active.line} has {active.kind}, which acts when the note is opened:"
                f" {active.text!r}",
                remedy="Leave it out, or put it into a code fence of its own; a person can allow it"
                " with `vault.active_content`.",
            )

    def refuse_name(self, path: str) -> None:
        """Refuse a new name that shows as another, or that no link can hold."""
        if clean(path).removed or any(name.strip() != name for name in path.split("/")):
            raise Denied(
                f"{one_line(path)!r} has characters that cannot be seen",
                remedy="Take a name without hidden characters, and without spaces at its ends.",
            )
        folder, _, name = path.rpartition("/")
        new = path if folder and not self.vault.is_folder(folder) else name
        if signs := sorted(NO_LINK & set(new)):
            raise Invalid(
                f"{path!r} has signs that a link cannot hold: {' '.join(signs)}",
                remedy="Take a name without them.",
            )
