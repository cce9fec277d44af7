"""The check of growth: it rejects quadratic work, also behind linear work, and noise does not fail it."""

import re
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from math import log

import pytest

from tests.cases import for_each
from tests.growth import assert_linear

SIZE = 8_000
Cost = Callable[[int], float]


def check(cost: Cost, noise: Iterable[float] = ()) -> None:
    """Check work of this cost, in microseconds, by a clock that only the work moves."""
    spent, slower = 0.0, chain(noise, repeat(1.0))

    def work(n: int) -> None:
        nonlocal spent
        spent += cost(n) * next(slower) / 1e6

    assert_linear(work, lambda n: n, SIZE, clock=lambda: spent)


LINEAR: dict[str, Cost] = {
    "nothing": lambda n: 0,
    "constant": lambda n: 5,
    "linear": lambda n: n,
    "with a constant": lambda n: 100 + n,
    "with a logarithm": lambda n: n * log(n),
    "up to a limit": lambda n: min(n, SIZE // 2),
    "in another way from some size on": lambda n: n if n < SIZE // 2 else 4 * n,
}
QUADRATIC: dict[str, Cost] = {
    "quadratic": lambda n: n**2,
    "cubic": lambda n: n**3,
    "very fast": lambda n: n**2 / 1e6,
    "very slow": lambda n: n**2 * 1e3,
    "beside a constant": lambda n: 1e6 + n**2,
    "beside linear work": lambda n: n + n**2 / 3_000,
    "from some size on": lambda n: n if n < SIZE // 2 else n**2,
}


@for_each("kind", LINEAR)
def test_work_that_grows_with_its_input_passes(kind: str) -> None:
    check(LINEAR[kind])


@for_each("kind", QUADRATIC)
def test_work_that_grows_with_the_square_fails(kind: str) -> None:
    with pytest.raises(AssertionError, match="8 times the input takes"):
        check(QUADRATIC[kind])


@for_each("slow", [[1, 1, 1, 9], [9, 1, 1, 1], [1, 1, 1, 9, 2, 2, 2, 1, 1, 1, 1, 1, 1, 9, 9, 1]])
def test_noise_fails_no_linear_work(slow: list[float]) -> None:
    check(lambda n: n, noise=slow)


def test_real_work_is_judged_by_its_cpu_time() -> None:
    assert_linear(re.compile("a|b").findall, lambda n: "a" * n, SIZE)
    with pytest.raises(AssertionError, match="8 times the input takes"):
        assert_linear(re.compile("a*b").findall, lambda n: "a" * n, SIZE // 4)
