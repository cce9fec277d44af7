"""Gmail, over its REST interface."""

from postroom.mail.gmail.api import GmailApi
from postroom.mail.gmail.mailbox import GmailMailbox
from postroom.mail.gmail.oauth import TokenStore

__all__ = ["GmailApi", "GmailMailbox", "TokenStore"]
