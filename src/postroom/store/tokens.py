"""Tokens by which agents are let in over HTTP: one file each, named after the agent, for its owner alone."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from postroom.core.errors import Invalid, Unavailable
from postroom.store import files
from postroom.store.files import private_folder

ANYBODY = "token"  # of whoever has no name from the person: the client's own counts
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{40,200}")


def token_file(state: Path, agent: str = "") -> Path:
    """Return where the token of this agent is kept."""
    if agent and not _NAME.fullmatch(agent):
        raise Invalid(
            "An agent's name for a token has letters, digits, `.`, `_` and `-`, at most 64",
            remedy="Choose another name.",
        )
    return state / "tokens" / agent if agent else state / ANYBODY


def make_token(state: Path, agent: str = "") -> Path:
    """Make a token, unless there is one; return its file."""
    return _made(token_file(state, agent))


def secret(file: Path, *, make: bool) -> bytes:
    """Return the secret in this file, made if that is wanted; nothing where there is none."""
    if make:
        _made(file)
    try:
        found = files.read(file, 1000, follow=True).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return b""
    return found.encode() if _TOKEN.fullmatch(found) else b""


def _made(file: Path) -> Path:
    private_folder(file.parent)
    try:
        files.create(file, f"{secrets.token_urlsafe(32)}\n".encode(), 0o600)
    except OSError as why:
        raise Unavailable(f"{file} cannot be made: {why.strerror}") from why
    return file


def tokens(state: Path) -> dict[str, str]:
    """Return the tokens that are let in, and whose each is; that of nobody in particular is ''."""
    owners = {state / ANYBODY: ""}
    named = state / "tokens"
    if named.is_dir():
        owners |= {file: file.name for file in named.iterdir() if _NAME.fullmatch(file.name)}
    found = {secret(file, make=False).decode(): agent for file, agent in owners.items()}
    found.pop("", None)  # half a file lets nobody in
    return found
