"""A pytest plugin that records which test runs which lines, child processes included, and how long it takes.

Coverage starts in every Python process that has COVERAGE_PROCESS_START in its environment. Most tests start
processes with an environment of their own, so the plugin adds the variables that coverage needs. `make coverage`
and tests/mutants.py load it with `-p tests.tracing`.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import coverage
import pytest

# What child processes inherit: coverage's settings, the test that starts them, and the path of the code under test.
INHERITED = ("COVERAGE_PROCESS_START", "COVERAGE_FILE", "COVERAGE_TEST", "PYTHONPATH")
DURATIONS = "COVERAGE_DURATIONS"  # the environment variable with the path of the file for durations

_original_init: Callable[..., None] = subprocess.Popen.__init__
_durations: dict[str, float] = {}
_failed: set[str] = set()


def _init_with_coverage(
    self: subprocess.Popen[Any],
    *arguments: Any,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Start a process, with coverage's variables added to its environment."""
    if env is not None:
        env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(env)
    _original_init(self, *arguments, env=env, **options)


def pytest_configure() -> None:
    setattr(subprocess.Popen, "__init__", _init_with_coverage)  # noqa: B010 - its type has six overloads


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tell coverage which test runs, here and in the processes that it starts."""
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
        os.environ["COVERAGE_TEST"] = item.nodeid
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations[report.nodeid] = _durations.get(report.nodeid, 0) + report.duration
    if report.outcome != "passed":
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the durations of the tests that passed, unless this is one of xdist's workers."""
    if DURATIONS in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        passed = {test: took for test, took in _durations.items() if test not in _failed}
        Path(os.environ[DURATIONS]).write_text(json.dumps(passed))
