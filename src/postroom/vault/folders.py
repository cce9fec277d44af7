"""The workflow table: every folder and root file that Postroom gives a meaning to, and who may do what there."""

from __future__ import annotations

from typing import Final, NamedTuple


class Folder(NamedTuple):
    """A place in the vault: what tools may do there, and what it is for."""

    name: str
    tools: (
        str  # "all", "create" (and change what they created until it is a letter), "read", "none"
    )
    purpose: str


FOLDERS: Final = (
    Folder("Needs_Action", "create", "Mail that waits for a decision."),
    Folder("Plans", "all", "What agents plan; requests for approval may begin here."),
    Folder("Drafts", "create", "Drafts; with `status: pending_approval` they are letters."),
    Folder("Pending_Approval", "read", "Letters that wait for your word."),
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
DRAFTS: Final = "Drafts"
APPROVED: Final = "Approved"
REJECTED: Final = "Rejected"
DONE: Final = "Done"
FAILED: Final = "Failed"
PLANS: Final = "Plans"
PAUSED: Final = "PAUSED"
PAUSES: Final = frozenset(
    {"paused", "paused.md", "paused.txt"}
)  # Obsidian makes no file without .md
