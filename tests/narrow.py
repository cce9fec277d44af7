"""Checks that tell the type checker what a test knows about a value, and fail the test if it is wrong."""

from typing import TypeVar

T = TypeVar("T")


def narrow(value: object, kind: type[T]) -> T:
    """Return the value, typed as `kind`; fail if it is something else.

    narrow(desk.letter(id).state, Approved).wait
    """
    assert isinstance(value, kind), f"{value!r:.500} is no {kind.__name__}"
    return value


def present(value: T | None) -> T:
    """Return the value, typed as not None; fail if it is None."""
    assert value is not None
    return value
