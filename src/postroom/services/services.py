"""The services that stand beside the desk, each imported and opened at its first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from postroom.core.values import dataclass

if TYPE_CHECKING:
    from postroom.desk.desk import Desk
    from postroom.services.correspondence import Correspondence
    from postroom.services.inbox import InboxService
    from postroom.services.mailbox import MailboxService
    from postroom.services.notebook import Notebook


@dataclass
class Services:
    """What agents do besides letters, over one desk. A list of letters needs none of it."""

    desk: Desk

    @cached_property
    def mailbox(self) -> MailboxService:
        from postroom.services.mailbox import MailboxService

        return MailboxService(self.desk)

    @cached_property
    def notebook(self) -> Notebook:
        from postroom.services.notebook import Notebook

        return Notebook(self.desk)

    @cached_property
    def correspondence(self) -> Correspondence:
        from postroom.agents.mail import AgentMail
        from postroom.services.correspondence import Correspondence

        effects = self.desk.effects
        mail = AgentMail(effects.cwd, effects.environ)
        return Correspondence(mail, self.desk.recorder, effects.voice, effects.sleep)

    @cached_property
    def inbox(self) -> InboxService:
        from postroom.services.inbox import InboxService

        return InboxService(self.desk.ledger)

    def close(self) -> None:
        if "notebook" in self.__dict__:
            self.notebook.close()
