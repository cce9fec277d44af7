"""Which names agents may have."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

from postroom.core.errors import Invalid
from postroom.core.lookalike import reads_as

MAX_AGENT: Final = 64
# Who acts besides agents, as letters and the log name them.
OURS: Final = frozenset({"person", "vault", "desk", "dispatcher", "nobody", "orchestrator"})


def check_agent_name(name: str) -> None:
    """Raise `Invalid` for a name that could be taken for one of ours, or cannot be shown."""
    if not _is_allowed(name):
        raise Invalid(
            f"An agent's name has 1 to {MAX_AGENT} printable characters, and is none of ours",
            remedy=f"Choose another; {', '.join(sorted(OURS))} are taken.",
        )


@lru_cache(maxsize=64)  # each call of a tool asks
def _is_allowed(name: str) -> bool:
    shown = 0 < len(name) <= MAX_AGENT and name.isprintable() and name == name.strip()
    return shown and name == unicodedata.normalize("NFKC", name) and not reads_as(name, OURS)
