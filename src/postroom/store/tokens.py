"""Tokens that let agents in over HTTP: one file each, named after its agent, readable by its owner alone."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from postroom.core.errors import Invalid, Unavailable
from postroom.store import files
from postroom.store.files import private_folder

UNNAMED = "token"  # the file of the token that belongs to no agent: the client's own name counts
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{40,200}")


def token_file(state: Path, agent: str = "") -> Path:
    """Return the file of an agent's token."""
    if agent and not _NAME.fullmatch(agent):
        raise Invalid(
            "An agent's name for a token has letters, digits, `.`, `_` and `-`, at most 64",
            remedy="Choose another name.",
        )
    return state / "tokens" / agent if agent else state / UNNAMED


def make_token(state: Path, agent: str = "") -> Path:
    """Make a token, unless there is one; return its file."""
    return _make(token_file(state, agent))


def read_secret(file: Path, *, make: bool) -> bytes:
    """Return the secret in a file, made first if `make`; nothing where there is none."""
    if make:
        _make(file)
    try:
        secret = files.read(file, 1000, follow=True).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return b""
    return secret.encode() if _TOKEN.fullmatch(secret) else b""


def _make(file: Path) -> Path:
    private_folder(file.parent)
    try:
        files.create(file, f"{secrets.token_urlsafe(32)}\n".encode(), 0o600)
    except OSError as why:
        raise Unavailable(f"{file} cannot be made: {why.strerror}") from why
    return file


def read_tokens(state: Path) -> dict[str, str]:
    """Return the valid tokens, each with its agent's name; that of no agent has ''."""
    owners = {state / UNNAMED: ""}
    folder = state / "tokens"
    if folder.is_dir():
        owners |= {file: file.name for file in folder.iterdir() if _NAME.fullmatch(file.name)}
    tokens = {read_secret(file, make=False).decode(): agent for file, agent in owners.items()}
    tokens.pop("", None)  # a file without a whole token
    return tokens
