"""What the desk asks of the vault, as one interface, so that a desk can also work without a vault."""

from __future__ import annotations

from postroom.core.audit import ParsedLine
from postroom.core.errors import Unavailable
from postroom.core.records import Entry
from postroom.desk.log import AuditLogEntry
from postroom.desk.unowned_notes import Slip


class NoteDisplay:
    """Shows letters and the log to the person as files, and takes in what the person did to them.

    This is the display of a desk without a vault: it shows nothing, and the terminal and the page are the only
    surfaces. `apply.VaultDisplay` is the one with a vault.
    """

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what was done to the notes and bring them up to date; return what to tell the person.

        `adopt` also takes requests from `Plans/`, and lets slips approve what waits.
        """
        del adopt
        return []

    def sync(self, entry: Entry, *, retext: bool = False) -> None:
        """Bring a letter's note up to the ledger; `retext` also replaces the text in it."""

    def is_untouched(self, entry: Entry) -> bool:
        """Whether note and slip of an approved letter, its verdict, are as they were at the last look."""
        del entry
        return True

    def text(self, entry: Entry) -> str | None:
        """Return the text in a letter's note; None without a note, or if it cannot be read."""
        del entry
        return None

    def slips(self) -> list[Slip]:
        """Return the slips of the last look that may still be spent, the newest first."""
        return []

    def file_slip(self, hash: str) -> None:
        """Put a slip away whose letter was sent; if somebody is at it, the next look does."""

    def paused_by(self) -> str:
        """Return the file by which the person has paused everything, or nothing."""
        return ""

    def flush_log(self) -> None:
        """Bring the log files up to the ledger."""

    def lines_ahead(self) -> list[ParsedLine]:
        """Return the lines of the log files that the ledger does not have."""
        return []

    def write_pre_send_record(self, record: AuditLogEntry) -> None:
        """Write what a contract wants recorded before a letter is sent; without it, the letter is held."""
        del record
        raise Unavailable(
            "This desk has no vault for the record that must precede the letter",
            remedy="Set VAULT_PATH to a folder.",
        )
