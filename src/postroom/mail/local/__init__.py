"""The embedded mailbox: one SQLite file an account, no server, no account to open.

It ships, it is the default, and it is the double that tests run against.
"""

from postroom.mail.local.mailbox import LocalMailbox

__all__ = ["LocalMailbox"]
