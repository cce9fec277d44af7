"""What agents do besides letters: mailboxes, notes and messages to other agents."""
