"""Gmail, over its REST interface."""

from postroom.mail.gmail.api import Api
from postroom.mail.gmail.keys import Keys
from postroom.mail.gmail.mailbox import GmailMailbox

__all__ = ["Api", "GmailMailbox", "Keys"]
