"""What can go wrong, classed by what the caller does next.

PostroomError
├── Invalid        the call is wrong: change it
├── NotFound       there is no such thing: look for another
├── Denied         it needs a person, or a rule says no: ask the person
├── Limited        too much at once: wait `seconds`
├── AuthRequired   the account must be signed in: run the command that is named
├── Conflict       someone else changed it first: read again, then decide
├── Unavailable    nothing happened: it may be tried again
├── Uncertain      it may have happened: never repeat it blindly
└── Corrupt        a file does not parse: it is left alone, mend it
"""

from __future__ import annotations

from typing import ClassVar


class PostroomError(Exception):
    """An error that names its cause and, in `remedy`, what to do next."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.logged = False  # whether the audit log has a line about this error already
        self.status = 0  # the HTTP status of a provider's answer, if this error comes from one
        self.seconds = 0.0  # after which it may be tried again, where the cause says so

    @property
    def message_with_remedy(self) -> str:
        return f"{self.message.rstrip('.')}. {self.remedy}".strip()


class Invalid(PostroomError):
    code = "invalid_input"


class NotFound(PostroomError):
    code = "not_found"


class Denied(PostroomError):
    code = "permission_denied"


class Limited(PostroomError):
    """Too much at once; there is room again in `seconds`. A pace is short enough to be waited for."""

    code = "rate_limited"

    def __init__(
        self, message: str, *, seconds: float, remedy: str = "", pace: bool = False
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.seconds = seconds
        self.pace = pace


class AuthRequired(PostroomError):
    """The account must be signed in again by a person; its token may be `missing` or `expired`."""

    code = "auth_required"

    def __init__(self, message: str, *, remedy: str = "", kind: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.kind = kind


class Conflict(PostroomError):
    """Someone else changed it first; `etag` names what a note holds now."""

    code = "conflict"

    def __init__(self, message: str, *, remedy: str = "", etag: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.etag = etag


class Unavailable(PostroomError):
    code = "unavailable"


class Uncertain(PostroomError):
    code = "uncertain"


class Corrupt(PostroomError):
    code = "parse_error"


def raise_if(*faults: tuple[object, str, str], kind: type[PostroomError] = Invalid) -> None:
    """Raise an error of this kind for the first fault whose condition holds: with its message and its remedy."""
    for is_so, message, remedy in faults:
        if is_so:
            raise kind(message, remedy=remedy)


def unexpected(bug: Exception, *, remedy: str) -> PostroomError:
    """Return the error to show for an exception that no code expects: class and place; its text may quote a mail."""
    where = bug.__traceback__
    while where and where.tb_next:
        where = where.tb_next
    place = f"{where.tb_frame.f_code.co_qualname}:{where.tb_lineno}" if where else "?"
    return PostroomError(
        f"Something is wrong inside Postroom ({type(bug).__name__} at {place})", remedy=remedy
    )
