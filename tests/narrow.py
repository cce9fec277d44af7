"""Values whose type a test knows better than the type checker does: the test fails where it is wrong."""

from typing import TypeVar

T = TypeVar("T")


def narrow(value: object, kind: type[T]) -> T:
    """Return the value as one of this type; anything else fails the test.

    narrow(desk.letter(id).state, Approved).wait
    """
    assert isinstance(value, kind), f"{value!r:.500} is no {kind.__name__}"
    return value


def present(value: T | None) -> T:
    """Return a value that is not None."""
    assert value is not None
    return value
