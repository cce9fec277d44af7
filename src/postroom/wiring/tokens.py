"""Tokens for HTTP, for surfaces, which do not import the store."""

from postroom.store.tokens import make_token, read_tokens, token_file

__all__ = ["make_token", "read_tokens", "token_file"]
