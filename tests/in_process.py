"""Runs `postroom` in the test's own process, with streams, an environment and a folder of its own."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from postroom.__main__ import main

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CommandResult(NamedTuple):
    """The exit code of a command, and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str


def run_in_process(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path
) -> CommandResult:
    """Run `postroom` with these arguments and an empty stdin, and return its result."""
    with ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, "rb"))
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        with _streams(nothing, out, err), _process_state(environment, folder, arguments):
            code = _run_main()
        return CommandResult(
            code, *(os.pread(each.fileno(), 1 << 30, 0).decode() for each in (out, err))
        )


def _run_main() -> int:
    """Run the program, and return the exit code that a process of its own would have."""
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
        return ended.code & 0xFF if isinstance(ended.code, int) else int(ended.code is not None)


@contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """Redirect stdin, stdout and stderr to these files, for `sys` and for the descriptors 0, 1 and 2."""
    names = ("stdin", "stdout", "stderr")
    before: dict[str, Any] = {name: getattr(sys, name) for name in names}
    saved = [os.dup(number) for number in range(3)]
    try:
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            os.dup2(file.fileno(), number)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, closefd=False, encoding="utf-8"))
        yield
    finally:
        for number, (name, original) in enumerate(before.items()):
            stream = getattr(sys, name)
            setattr(sys, name, original)
            stream.close()
            os.dup2(saved[number], number)
            os.close(saved[number])


@contextmanager
def _process_state(
    environment: Mapping[str, str], folder: Path, arguments: Sequence[str]
) -> Iterator[None]:
    """Set the environment, working directory and arguments; then restore all that a command changes.

    Restored too: signal handlers, the thresholds of the garbage collector, and pytest's handlers of the
    log, without which a warning is written to stderr as in a process of its own.
    """
    variables, cwd, argv, thresholds = dict(os.environ), Path.cwd(), sys.argv, gc.get_threshold()
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    log_handlers, logging.root.handlers = logging.root.handlers, []
    try:
        _replace_environment(environment)
        os.chdir(folder)
        sys.argv = ["postroom", *arguments]
        yield
    finally:
        logging.root.handlers = log_handlers
        sys.argv = argv
        os.chdir(cwd)
        _replace_environment(variables)
        gc.set_threshold(*thresholds)
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _replace_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
