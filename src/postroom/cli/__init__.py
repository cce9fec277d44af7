"""The terminal: what a person types, and what they see. One file a noun; no rules here."""
