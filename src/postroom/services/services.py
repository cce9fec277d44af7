"""The services that stand beside the desk, each opened at its first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.desk.desk import Desk
    from postroom.services.correspondence import Correspondence
    from postroom.services.inbox import InboxService
    from postroom.services.mail_notes import MailNotes
    from postroom.services.mailbox import MailboxService
    from postroom.services.notebook import Notebook
    from postroom.services.overview import DeskOverview


class Services:
    """What agents do besides letters, over one desk.

    Each service is imported and opened at its first use: a list of letters needs none of them.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    @cached_property
    def mailbox(self) -> MailboxService:
        """Searching, reading, drafting and filing mail."""
        from postroom.services.mailbox import MailboxService

        desk = self.desk
        return MailboxService(
            ledger=desk.ledger,
            vault=desk.vault,
            mailboxes=desk.mailboxes,
            account=desk.account,
            recorder=desk.recorder,
            reading=desk.exposure,
            rules=desk.rules,
            outgoing=desk.permissions.outgoing,
            paused=desk.paused,
        )

    @cached_property
    def notebook(self) -> Notebook:
        """ExposureLog, writing and searching notes of the vault."""
        from postroom.services.note_rules import NoteRules
        from postroom.services.notebook import Notebook
        from postroom.vault.access import Access
        from postroom.vault.vault import Vault

        desk, shelf = self.desk, self.desk.permissions
        room = f"{shelf.room}/" if shelf.room else ""
        vault, access = Vault(shelf.root), Access(shelf.room, shelf.folders)
        return Notebook(
            vault=vault,
            access=access,
            rules=NoteRules(
                vault=vault,
                access=access,
                ledger=desk.ledger,
                allow_active=shelf.active,
                in_room=lambda path: (
                    path.removeprefix(room) if path.startswith(room) else f"/{path}"
                ),
            ),
            state=desk.state / "vault",
            ledger=desk.ledger,
            recorder=desk.recorder,
            reconcile=desk.reconcile,
            rehearsal="" if desk.rules.live else desk.rules.source,
        )

    @cached_property
    def correspondence(self) -> Correspondence:
        """Messages between agents."""
        from postroom.agents.mail import AgentMail
        from postroom.services.correspondence import Correspondence

        tools = self.desk.effects
        mail = AgentMail(tools.cwd, tools.environ)
        return Correspondence(mail, self.desk.recorder, tools.voice, tools.sleep)

    @cached_property
    def inbox(self) -> InboxService:
        """Mail that came in, and what became of it."""
        from postroom.services.inbox import InboxService

        return InboxService(self.desk.ledger)

    def mail_notes(self, report: Callable[[str], None]) -> MailNotes:
        """Return what writes and reads the notes of mail; `report` tells the person."""
        from postroom.desk.note_sync import NoteSync
        from postroom.services.mail_notes import MailNotes

        return MailNotes(NoteSync(self.desk.vault, self.desk.ledger), report)

    @cached_property
    def overview(self) -> DeskOverview:
        """Letters and limits as a dashboard shows them."""
        from postroom.services.overview import DeskOverview

        return DeskOverview(self.desk.ledger, self.desk.rules)

    def close(self) -> None:
        """Close the notebook, if it was opened. The desk stays open."""
        if "notebook" in self.__dict__:
            self.notebook.close()
