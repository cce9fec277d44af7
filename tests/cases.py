"""Tables of cases that one test goes through: a test of each case's own costs more than most cases do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def for_each(names: str | Sequence[str], table: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test once for each case of the table, as one test; a failure names its case.

    It is written as `pytest.mark.parametrize` is, and works where the cases can share the test's fixtures.

        @for_each(("text", "words"), [("a b", 2), ("", 0)])
        def test_words_are_counted(text, words): ...
    """
    several = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = isinstance(names, str) and len(several) == 1
    cases = [(case,) if single else tuple(case) for case in table]
    assert cases, "a table without cases tests nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def go_through(**fixtures: Any) -> None:
            for case in cases:
                given = dict(zip(several, case, strict=True))
                try:
                    test(**fixtures, **given)
                except BaseException as error:
                    error.add_note(f"in the case {given!r:.2000}")
                    raise

        whole = inspect.signature(test)
        left = [one for name, one in whole.parameters.items() if name not in several]
        assert len(left) + len(several) == len(whole.parameters), f"{test.__name__}: {several}"
        # pytest reads from it which fixtures the test takes.
        vars(go_through)["__signature__"] = whole.replace(parameters=left)
        return go_through

    return decorate
