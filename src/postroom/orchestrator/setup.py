"""What the parts of the orchestrator work with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING

from postroom.desk.desk import Desk
from postroom.mail.mailbox import Mailbox
from postroom.orchestrator.servers import Servers

if TYPE_CHECKING:
    from postroom.orchestrator.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the orchestrator works with."""

    desk: Desk
    mailboxes: Callable[[str], Mailbox]
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
