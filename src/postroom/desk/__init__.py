"""The desk: where letters wait for a person's word, and from where they leave, once."""
