"""A pytest plugin that runs tests on mutants; tests/mutants.py starts it in a copy of the checkout.

It collects the tests once. For each mutant it writes the mutated module into the copy, for the processes
that tests start, and forks. The child replaces the code of the functions that are already loaded, and runs
the tests that execute the mutated lines until one fails or the time is up.
"""

import gc
import json
import os
import random
import select
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import Phase, settings

from tests.mutants import JOB_VARIABLE, Mutant, codes_in

SECONDS = 45  # of CPU time for the tests of one mutant
GRACE = 30  # seconds that a test may take beyond four times its usual duration


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Let property tests try the same examples in every run, and not shrink those that fail."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("fixed", settings(), derandomize=True, phases=phases)
    settings.load_profile("fixed")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests of each mutant of the job, and append each outcome to the file `job.done`."""
    file = Path(os.environ[JOB_VARIABLE])
    job = json.loads(file.read_text())
    items = {item.nodeid: item for item in session.items}
    run = partial(_run, session, items, job["durations"])
    broken: set[str] = set()  # tests that fail on the original code as well
    sound: set[str] = set()  # tests that pass on it
    for fields in job["mutants"]:
        mutant = Mutant(**fields)
        mutant.tests = [test for test in mutant.tests if test in items]
        while True:
            mutant.tests = [test for test in mutant.tests if test not in broken]
            run(mutant, mutant.tests)
            if not mutant.failed_test or mutant.failed_test in sound:
                break
            # Without the mutant it must pass. If it does not, ignore it and run the others again.
            original = Path("src/postroom", f"{mutant.module}.py").read_text()
            run(probe := Mutant(mutant.module, 0, 0, "", "", original), [mutant.failed_test])
            (broken if probe.failed_test else sound).add(mutant.failed_test)
        result = asdict(mutant) | {"source": "", "tests": len(mutant.tests), "broken": [*broken]}
        with file.with_suffix(".done").open("a") as done:
            done.write(json.dumps(result) + "\n")
    return True


def _run(
    session: pytest.Session,
    items: dict[str, pytest.Item],
    durations: dict[str, float],
    mutant: Mutant,
    tests: list[str],
) -> None:
    """Run these tests on a mutant in a forked child, and set the mutant's outcome."""
    file = Path("src/postroom", f"{mutant.module}.py")
    original, times = file.read_text(), file.stat()
    start, (reading, writing) = time.monotonic(), os.pipe()
    file.write_text(mutant.source)
    os.utime(
        file, (mutant.line, random.SystemRandom().randrange(10**9))
    )  # a time that no cached bytecode has
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if not (child := os.fork()):
            os.setsid()
            os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
            verdict = "error"
            with suppress(Exception):
                _replace(file.resolve(), mutant.source)
                verdict = _until_one_fails(session, [items[test] for test in tests], writing)
            os.write(writing, f"!{verdict}\n".encode())
            os._exit(0)
        os.close(writing)
        mutant.outcome, mutant.failed_test = _watch(reading, durations)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
    mutant.seconds = round(time.monotonic() - start, 1)
    file.write_text(original)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _watch(pipe: int, durations: dict[str, float]) -> tuple[str, str]:
    """Read a child's progress; return the outcome, and the test that failed or hung.

    The child writes the id of each test before it runs, and last its verdict after a `!`.
    """
    test, text = "", ""
    while True:
        ready, _, _ = select.select([pipe], [], [], GRACE + 4 * durations.get(test, 0))
        if not ready:
            return "timed out", test
        if not (read := os.read(pipe, 65_536)):
            return "killed", test
        *lines, text = (text + read.decode()).split("\n")
        for line in lines:
            if line.startswith("!"):
                return line[1:], test if line == "!killed" else ""
            test = line


def _until_one_fails(session: pytest.Session, items: list[pytest.Item], pipe: int) -> str:
    """Run tests until one fails; return the outcome, and write each test's id to the pipe before it runs."""
    for number, item in enumerate(items, 1):
        if sum(os.times()[:4]) > SECONDS:
            return "cut"
        os.write(pipe, f"{item.nodeid}\n".encode())
        following = items[number] if number < len(items) else None
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException:  # noqa: BLE001 - a mutant may do anything
            return "killed"
        if session.testsfailed:
            return "killed"
    return "survived"


def _replace(file: Path, source: str) -> None:
    """Replace the code of each loaded function of a file by its code in this source."""
    codes = codes_in(compile(source, str(file), "exec"))
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == str(file):
            code = each.__code__
            each.__code__ = codes.get((code.co_qualname, code.co_firstlineno), code)
