"""What the desk needs of the vault, as one interface: so a desk can also work without a vault."""

from __future__ import annotations

from typing import Protocol

from postroom.core.audit import ParsedLine
from postroom.core.errors import Unavailable
from postroom.core.records import Entry
from postroom.desk.log import AuditLogEntry
from postroom.desk.slips import Slip


class NoteDisplay(Protocol):
    """Shows letters and the log to the person as files, and takes in what the person did to them."""

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what was done to the notes and bring them up to date; return what to tell the person.

        `adopt` also takes requests from `Plans/`, and lets slips approve what waits.
        """
        ...

    def sync(self, entry: Entry, *, retext: bool = False) -> None:
        """Bring a letter's note up to the ledger; `retext` also replaces the text in it."""
        ...

    def is_untouched(self, entry: Entry) -> bool:
        """Whether nobody changed what shows an approved letter's verdict since the last look."""
        ...

    def text(self, entry: Entry) -> str | None:
        """Return the text in a letter's note; None without a note, or if it cannot be read."""
        ...

    def slips(self) -> list[Slip]:
        """Return the slips of the last look that may still be spent, the newest first."""
        ...

    def file_slip(self, hash: str) -> None:
        """Put a slip away whose letter was sent."""
        ...

    def paused_by(self) -> str:
        """Return the file by which the person has paused everything, or nothing."""
        ...

    def flush_log(self) -> None:
        """Bring the log files up to the ledger."""
        ...

    def lines_ahead(self) -> list[ParsedLine]:
        """Return the lines of the log files that the ledger does not have."""
        ...

    def write_pre_send_record(self, record: AuditLogEntry) -> None:
        """Write what a contract wants recorded before a letter is sent."""
        ...


class NoDisplay:
    """The display of a desk without a vault: the terminal and the page are the only surfaces."""

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Return nothing: there are no notes."""
        del adopt
        return []

    def sync(self, entry: Entry, *, retext: bool = False) -> None:
        """Write nothing."""

    def is_untouched(self, entry: Entry) -> bool:
        """Return True: there is no note that a person could take back."""
        del entry
        return True

    def text(self, entry: Entry) -> None:
        """Return None: there is no note."""

    def slips(self) -> list[Slip]:
        """Return none."""
        return []

    def file_slip(self, hash: str) -> None:
        """Move nothing."""

    def paused_by(self) -> str:
        """Return nothing: there is no folder in which a person could pause."""
        return ""

    def flush_log(self) -> None:
        """Write nothing: the ledger alone has the log."""

    def lines_ahead(self) -> list[ParsedLine]:
        """Return none."""
        return []

    def write_pre_send_record(self, record: AuditLogEntry) -> None:
        """Refuse: a letter that needs this record is not sent without it."""
        del record
        raise Unavailable(
            "This desk has no vault for the record that must precede the letter",
            remedy="Set VAULT_PATH to a folder.",
        )
