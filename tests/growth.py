"""Checks that the CPU time of a function grows in proportion to its input, and not with the square of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")

FACTOR = 8  # how much larger the larger input is: linear work takes 8 times the time, quadratic work 64 times
DOUBTFUL = 12  # a ratio of times above this is measured again
LIMIT = 24  # a last ratio above this fails the test
ROUNDS = ((1, 1), (1, 3), (2, 3), (4, 3))  # multiple of the size, number of measurements
LONG = 2.0  # seconds; work that takes longer is not measured again with a larger input


def assert_linear(
    work: Callable[[Input], object],
    build: Callable[[int], Input],
    size: int,
    *,
    clock: Callable[[], float] = time.thread_time,
) -> None:
    """Fail if the CPU time of `work` grows with the square of its input.

        assert_linear(parse, lambda n: "[" * n, size(50_000))

    It measures an input of `size` and one of an eighth of it, each several times, and compares the shortest
    times. A ratio above DOUBTFUL is measured again, then with twice and four times the size, where noise matters
    less. The test fails if every ratio is above DOUBTFUL and the last one above LIMIT.

    Parameters:
        work: the function to measure. It must do its work in the calling thread, and cache nothing.
        build: returns a new input of `n` characters or items. Its time is not measured.
        size: characters or items of the larger input.
        clock: returns the CPU time of this thread in seconds.
    """
    for scale, times in ROUNDS:
        small_size, large_size = scale * size // FACTOR, scale * size
        small = min(_seconds(work, build(small_size), clock) for _ in range(3 * times))
        large = min(_seconds(work, build(large_size), clock) for _ in range(times))
        ratio = large / max(small, 1e-9)
        if ratio <= DOUBTFUL:
            return
        if large > LONG:
            break
    assert ratio <= LIMIT, (
        f"{FACTOR} times the input takes {ratio:.0f} times the time: "
        f"{1000 * small:.3f} ms for {small_size:,}, {1000 * large:.3f} ms for {large_size:,}"
    )


def _seconds(work: Callable[[Input], object], given: Input, clock: Callable[[], float]) -> float:
    """Return the time that the work takes, with the garbage collector off: its time grows with all objects."""
    collects = gc.isenabled()
    gc.disable()
    try:
        began = clock()
        work(given)
        return clock() - began
    finally:
        if collects:
            gc.enable()
