"""`for_each` runs a table of cases as one test, since pytest's work for a test costs more than most cases do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def for_each(names: str | Sequence[str], table: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test once for each case of the table, as one test; a failure names its case.

    The arguments are those of `pytest.mark.parametrize`. All cases share the fixtures of the one test.

        @for_each(("text", "words"), [("a b", 2), ("", 0)])
        def test_words_are_counted(text, words): ...
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = isinstance(names, str) and len(columns) == 1
    cases = [(case,) if single else tuple(case) for case in table]
    assert cases, "a table without cases tests nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run_cases(**fixtures: Any) -> None:
            for case in cases:
                arguments = dict(zip(columns, case, strict=True))
                try:
                    test(**fixtures, **arguments)
                except BaseException as error:
                    error.add_note(f"in the case {arguments!r:.2000}")
                    raise

        signature = inspect.signature(test)
        fixture_parameters = [
            one for name, one in signature.parameters.items() if name not in columns
        ]
        assert len(fixture_parameters) + len(columns) == len(signature.parameters), (
            f"{test.__name__} does not take all of {columns}"
        )
        # pytest reads the test's fixtures from this signature.
        vars(run_cases)["__signature__"] = signature.replace(parameters=fixture_parameters)
        return run_cases

    return decorate
