"""The orchestrator: new mail comes into the vault, is triaged, and what was approved leaves; by itself, round by round."""
