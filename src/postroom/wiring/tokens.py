"""Tokens for HTTP, for surfaces, which do not import the store."""

from postroom.store.tokens import make_token, token_file, tokens

__all__ = ["make_token", "token_file", "tokens"]
