"""Mail that arrived: what it says of itself, and what its mailbox says of it. None of it is to be trusted."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from postroom.core.values import dataclass

INBOX: Final = "INBOX"
SENT: Final = "SENT"
DRAFT: Final = "DRAFT"
SPAM: Final = "SPAM"
TRASH: Final = "TRASH"
UNREAD: Final = "UNREAD"
STARRED: Final = "STARRED"
IMPORTANT: Final = "IMPORTANT"
CATEGORIES: Final = tuple("primary social promotions updates forums reservations purchases".split())
SYSTEM_LABELS: Final = frozenset(
    {INBOX, SENT, DRAFT, SPAM, TRASH, UNREAD, STARRED, IMPORTANT}
    | {f"CATEGORY_{name.upper()}" for name in CATEGORIES}
)
_CLAIM: Final = re.compile('[@＠﹫<>,;:"()]')


@dataclass(frozen=True, slots=True)
class Party:
    """A person as a mail names them; never an envelope, which is made of `Address` alone."""

    name: str
    address: str

    @property
    def shown(self) -> str:
        """What stands for the person in a list: the name, unless it poses as an address."""
        return self.address if _CLAIM.search(self.name) or not self.name else self.name

    def __str__(self) -> str:
        # In quotes, what looks like an address or a second person is seen to be a name.
        name = f'"{self.name}"' if _CLAIM.search(self.name) else self.name
        return f"{name} <{self.address}>" if name and self.address else name or self.address


@dataclass(frozen=True, slots=True)
class Attachment:
    part: str  # finds it again in its mail
    name: str  # without a path and hidden characters
    type: str
    size: int
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str = ""
    sender: Party | None = None
    to: tuple[Party, ...] = ()
    cc: tuple[Party, ...] = ()
    bcc: tuple[Party, ...] = ()
    reply_to: tuple[Party, ...] = ()
    date: int | None = None
    message_id: str = ""
    in_reply_to: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    list_id: str = ""
    delivered_to: tuple[str, ...] = ()
    automatic: bool = False
    text: str = ""
    html: str = ""
    hidden: int = 0
    attachments: tuple[Attachment, ...] = ()
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    thread: str
    date: int  # the mailbox's, in seconds since 1970
    size: int
    labels: frozenset[str]
    mail: Mail = field(repr=False)


@dataclass(frozen=True, slots=True)
class Summary:
    id: str
    thread: str
    date: int
    size: int
    labels: frozenset[str]
    sender: Party
    to: tuple[Party, ...]
    subject: str
    snippet: str
    attachments: int
    message_id: str


@dataclass(frozen=True, slots=True)
class Thread:
    id: str
    messages: tuple[Message, ...]  # oldest first

    @property
    def mails(self) -> tuple[Message, ...]:
        """The mails that came or were sent: a draft may be an agent's, and nobody has got it."""
        return tuple(message for message in self.messages if DRAFT not in message.labels)

    @property
    def subject(self) -> str:
        return self.messages[0].mail.subject if self.messages else ""


def label_key(name: str) -> str:
    """Return the form in which label names are compared: as Gmail's `label:` writes them."""
    return re.sub(r"[\s/]+", "-", name.strip()).casefold()


_SYSTEM_KEYS: Final = {label_key(name): name for name in SYSTEM_LABELS} | {"drafts": DRAFT}


def system_label(name: str) -> str | None:
    """Return the system label that this name means in any spelling, or None for a label of one's own."""
    return _SYSTEM_KEYS.get(label_key(name))
