"""The models of the tools' arguments: what a tool takes, described and bounded.

No server imports them. `python -m postroom.tools.listing` writes what they say into `contracts/NAME.json`,
from which servers list their tools and check each call.
"""

from __future__ import annotations

import re
from functools import partial

from pydantic import AfterValidator, BaseModel, ConfigDict


class Arguments(BaseModel):
    """What a tool is called with: of these types and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def at_most(size: int) -> AfterValidator:
    """Return a bound on a text that is enforced, and not listed."""
    return AfterValidator(partial(check_size, size))


def matching(pattern: str, message: str) -> AfterValidator:
    """Return a regular expression that a whole text must match, which is enforced and not listed."""
    return AfterValidator(partial(check_pattern, pattern, message))


def check_size(size: int, text: str) -> str:
    """Return the text, or raise if it has more characters than this."""
    if len(text) > size:
        raise ValueError(f"has more than {size:,} characters")
    return text


def check_pattern(pattern: str, message: str, text: str) -> str:
    """Return the text, or raise this message if the pattern does not match all of it."""
    if not re.fullmatch(pattern, text):
        raise ValueError(message)
    return text
