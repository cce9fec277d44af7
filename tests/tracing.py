"""A pytest plugin: records which test runs which lines, child processes included, and how long it takes.

Coverage starts in every Python process that has COVERAGE_PROCESS_START in its environment. Most
tests start processes with an environment of their own; the plugin adds what coverage needs to it.
`make coverage` loads it, and so does tests/mutants.py.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import coverage
import pytest

# What a child process needs: coverage's settings, the test it belongs to, and the code under test.
INHERITED = ("COVERAGE_PROCESS_START", "COVERAGE_FILE", "COVERAGE_TEST", "PYTHONPATH")
DURATIONS = "COVERAGE_DURATIONS"

_start_process: Callable[..., None] = subprocess.Popen.__init__
_durations: dict[str, float] = {}
_failed: set[str] = set()


def _start(
    self: subprocess.Popen[Any],
    *arguments: Any,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    if env is not None:
        env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(env)
    _start_process(self, *arguments, env=env, **options)


def pytest_configure() -> None:
    setattr(subprocess.Popen, "__init__", _start)  # noqa: B010 - its type has six overloads


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the test to coverage, here and in the processes that it starts."""
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
    """Write down how long each test took that passed."""
    if DURATIONS in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        passed = {test: took for test, took in _durations.items() if test not in _failed}
        Path(os.environ[DURATIONS]).write_text(json.dumps(passed))
