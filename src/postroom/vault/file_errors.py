"""What the system's errors about files mean for a file of the vault, and what to do about them."""

from __future__ import annotations

import errno

from postroom.core.errors import Conflict, Denied, Invalid, NotFound, PostroomError, Unavailable

_LINK = (
    Denied,
    "{path!r} is a link or no plain file, or leads through a link",
    "Put the thing itself there: no link in the vault is followed.",
)
_FULL = (
    Unavailable,
    "The disk is full: {path!r} was not written",
    "Free some space. Then try again.",
)
_NO_RIGHT = (
    Unavailable,
    "No right to {path!r}: {why}",
    "Get the right to it and its folder. Then try again.",
)
_OTHER = (
    Unavailable,
    "{path!r} cannot be read or written: {why}",
    "Check the disk. Then try again.",
)
_ERRORS: dict[int, tuple[type[PostroomError], str, str]] = {
    errno.ENOENT: (NotFound, "There is no {path!r} in the vault", "Look for its new name."),
    errno.EEXIST: (Conflict, "{path!r} is there already", "Take another name."),
    errno.ENAMETOOLONG: (Invalid, "{path!r} is too long a name", "Take a shorter one."),
    **dict.fromkeys((errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO), _LINK),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NO_RIGHT),
}


def in_our_words(error: OSError, path: str) -> PostroomError:
    """Return an error of the system about a file of the vault as ours, with what to do."""
    kind, message, remedy = _ERRORS.get(error.errno or 0, _OTHER)
    return kind(message.format(path=path, why=error.strerror), remedy=remedy)
