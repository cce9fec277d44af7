"""Gmail, over its REST interface."""

from postroom.mail.gmail.mailbox import GmailMailbox, open_gmail

__all__ = ["GmailMailbox", "open_gmail"]
