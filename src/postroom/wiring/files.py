"""Files that are written whole, and tokens for HTTP: for surfaces, which do not import the store."""

from postroom.store.desk import make_secret, read_tokens, token_file
from postroom.store.files import create, remove, replace

__all__ = ["create", "make_secret", "read_tokens", "remove", "replace", "token_file"]
