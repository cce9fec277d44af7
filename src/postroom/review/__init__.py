"""What code finds in a text: links, secrets, look-alikes, provenance; and the risk card made from it."""
