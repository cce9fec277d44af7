"""A pytest plugin that runs tests on mutants; tests/mutants.py starts it in a copy of the checkout.

It collects the tests once and forks for every mutant. The child replaces the code of the loaded
functions, and the mutated file in the copy serves the processes that tests start. It then runs the
tests that execute the mutated lines until one fails, or the time is up.
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

from tests.mutants import JOB, Mutant, codes_in

SECONDS = 45  # of processor time for the tests of one mutant
PATIENCE = 30  # seconds that a test may take beyond four times its usual duration


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Let properties try the same examples every time, and waste no time on small ones."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("fixed", settings(), derandomize=True, phases=phases)
    settings.load_profile("fixed")


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests of each mutant of the job, and write down what became of it."""
    file = Path(os.environ[JOB])
    job = json.loads(file.read_text())
    items = {item.nodeid: item for item in session.items}
    run = partial(_run, session, items, job["durations"])
    broken: set[str] = set()
    sound: set[str] = set()
    for fields in job["mutants"]:
        mutant = Mutant(**fields)
        mutant.tests = [test for test in mutant.tests if test in items]
        while True:
            mutant.tests = [test for test in mutant.tests if test not in broken]
            run(mutant, mutant.tests)
            if not mutant.by or mutant.by in sound:
                break
            # A test that fails without the mutant, too, proves nothing.
            original = Path("src/postroom", f"{mutant.module}.py").read_text()
            run(probe := Mutant(mutant.module, 0, 0, "", "", original), [mutant.by])
            (broken if probe.by else sound).add(mutant.by)
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
    """Run these tests on a mutant in a fork, and note the outcome in it."""
    file = Path("src/postroom", f"{mutant.module}.py")
    original, times = file.read_text(), file.stat()
    start, (ours, theirs) = time.monotonic(), os.pipe()
    file.write_text(mutant.source)
    os.utime(file, (mutant.line, random.SystemRandom().randrange(10**9)))  # no cached bytecode fits
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if not (child := os.fork()):
            os.setsid()
            os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
            verdict = "error"
            with suppress(Exception):
                _replace(file.resolve(), mutant.source)
                verdict = _until_one_fails(session, [items[test] for test in tests], theirs)
            os.write(theirs, f"!{verdict}\n".encode())
            os._exit(0)
        os.close(theirs)
        mutant.outcome, mutant.by = _watch(ours, durations)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
    mutant.seconds = round(time.monotonic() - start, 1)
    file.write_text(original)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _watch(pipe: int, durations: dict[str, float]) -> tuple[str, str]:
    """Follow a child's progress; return the outcome and the test that failed or hung."""
    test, text = "", ""
    while True:
        ready, _, _ = select.select([pipe], [], [], PATIENCE + 4 * durations.get(test, 0))
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
    """Give each loaded function of a file the code that it has in this source."""
    codes = codes_in(compile(source, str(file), "exec"))
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == str(file):
            code = each.__code__
            each.__code__ = codes.get((code.co_qualname, code.co_firstlineno), code)
