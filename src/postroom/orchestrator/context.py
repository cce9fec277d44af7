"""What all parts of the orchestrator work with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from postroom.core.records import InboxItem, InboxState
from postroom.core.values import dataclass
from postroom.desk.desk import Desk
from postroom.orchestrator.servers import Servers
from postroom.services.inbox import InboxService
from postroom.services.services import Services

if TYPE_CHECKING:
    from postroom.orchestrator.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The collaborators and settings of one `postroom run`."""

    services: Services
    accounts: Sequence[str]
    servers: Servers
    room: str  # the path of Postroom's folder in the vault, with its slash
    model: Model | None
    model_name: str
    most_drafts: int  # answers that are drafted in one conversation within a day
    interval: float
    zone: tzinfo
    emit: Callable[..., None]  # tells one event: its name, and its facts as keywords
    stopping: threading.Event

    @property
    def desk(self) -> Desk:
        """The desk that the services stand beside."""
        return self.services.desk

    @property
    def inbox(self) -> InboxService:
        """The records of incoming mail."""
        return self.services.inbox

    def chunks(self, state: InboxState) -> Iterator[list[InboxItem]]:
        """Yield the mails in this state, some at once, until the orchestrator is to stop."""
        for items in self.inbox.chunks(state):
            if self.stopping.is_set():
                return
            yield items

    def emit_for(self, item: InboxItem, event: str, **facts: str) -> None:
        """Tell an event about one mail."""
        name = self.inbox.note_name(item)
        self.emit(event, account=item.account, mail=item.message, name=name, **facts)
