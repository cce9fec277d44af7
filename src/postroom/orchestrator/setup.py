"""What the parts of the orchestrator work with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Final

from postroom.core.records import InboxItem
from postroom.desk.desk import Desk
from postroom.orchestrator.servers import Servers
from postroom.services.services import Services

if TYPE_CHECKING:
    from postroom.orchestrator.model import Model

CHUNK: Final = 32  # mails that are read and written at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the orchestrator works with."""

    services: Services
    accounts: Sequence[str]
    servers: Servers
    room: str  # the path of Postroom's folder in the vault, with its slash
    model: Model | None
    model_name: str
    most_drafts: int  # by itself, in one conversation, within a day
    interval: float
    zone: tzinfo
    tell: Callable[..., None]
    stopping: threading.Event

    @property
    def desk(self) -> Desk:
        """The desk that the services stand beside."""
        return self.services.desk

    def waiting(self, state: str) -> Iterator[list[InboxItem]]:
        """Yield the mails in this state, oldest first and some at once, until it is to stop."""
        row = 0
        while not self.stopping.is_set():
            with self.desk.ledger.read() as book:
                found = book.waiting(state, CHUNK, row)
            if not found:
                return
            row = found[-1][0]
            yield [item for _, item in found]
