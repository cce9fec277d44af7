"""Data classes that are completed at their first use behave as the standard library's."""

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from threading import Barrier, Thread

import pytest

from postroom.core.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Point:
    x: int
    y: int | None = None
    tags: list[str] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@dataclass(frozen=True, kw_only=True)
class Pixel(Point):
    colour: str = "red"


@dataclass(frozen=True)
class Fresh:
    x: int


def test_values_compare_hash_print_and_sort_as_the_standard_ones() -> None:
    assert Point(1) == Point(1, None) != Point(2)
    assert {Point(1, 2): "a"}[Point(1, 2)] == "a"
    assert repr(Point(1)) == "Point(x=1, y=None, tags=[])"
    assert sorted([Point(2), Point(1)])[0].x == 1
    assert Point(1).tags is not Point(1).tags
    assert [one.name for one in fields(Pixel)] == ["x", "y", "tags", "colour"]
    assert Pixel(1, colour="blue") == replace(Pixel(1), colour="blue")
    assert asdict(Pixel(1))["colour"] == "red"
    with pytest.raises(ValueError, match="negative"):
        Point(-1)
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Point(1).z = 2  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        del Point(1).x
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


def test_fields_can_be_asked_for_before_there_is_an_instance() -> None:
    @dataclass
    class Late:
        a: int = 1

    assert [one.name for one in fields(Late)] == ["a"]
    assert Late().a == 1


def test_a_value_survives_pickling_into_a_process_that_has_made_none() -> None:
    @dataclass(frozen=True)
    class Unused:
        x: int

    first = object.__new__(Unused)  # as unpickling does
    first.__setstate__({"x": 1})  # type: ignore[attr-defined]
    assert first == Unused(1)
    assert pickle.loads(pickle.dumps(Fresh(1))) == Fresh(1) == copy.copy(Fresh(1))


def test_threads_that_make_the_first_instances_at_once_all_get_whole_ones() -> None:
    for _ in range(50):

        @dataclass(frozen=True)
        class Shared:
            a: int
            b: str = ""

        start, results = Barrier(4), list[bool]()

        def make() -> None:
            start.wait()  # noqa: B023
            results.append(Shared(1, "x") == Shared(1, "x"))  # noqa: B023

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 4
