"""A made-up mailbox for the demo."""
