"""Exit codes, in one table: what a script does next follows from the class of the error."""

from __future__ import annotations

from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)

OK = 0
UNEXPECTED = 1
INTERRUPTED = 130
BROKEN_PIPE = 141

EXITS: dict[type[PostroomError], int] = {
    Invalid: 2,
    NotFound: 3,
    Denied: 4,
    Limited: 5,
    AuthRequired: 6,
    Conflict: 7,
    Unavailable: 8,
    Uncertain: 9,
    Corrupt: 10,
}


def exit_code(error: PostroomError) -> int:
    """Return the exit code of an error, that of its nearest class in the table."""
    return next((EXITS[kind] for kind in type(error).__mro__ if kind in EXITS), UNEXPECTED)
