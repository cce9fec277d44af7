"""The command line in this process: same streams, environment and folder as a process of its own."""

from __future__ import annotations

import gc
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


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


def run_in_process(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Ended:
    """Run `postroom` with these arguments, nothing to read, and no terminal."""
    with ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, "rb"))
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        with _streams(nothing, out, err), _surroundings(environment, folder, arguments):
            code = _exit_code()
        return Ended(code, *(os.pread(each.fileno(), 1 << 30, 0).decode() for each in (out, err)))


def _exit_code() -> int:
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


@contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """Put these files behind the numbers 0, 1 and 2, and behind `sys.stdin` and its like."""
    names = ("stdin", "stdout", "stderr")
    before: dict[str, Any] = {name: getattr(sys, name) for name in names}
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            os.dup2(file.fileno(), number)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, closefd=False, encoding="utf-8"))
        yield
    finally:
        for number, (name, was) in enumerate(before.items()):
            stream = getattr(sys, name)
            setattr(sys, name, was)
            stream.close()
            os.dup2(kept[number], number)
            os.close(kept[number])


@contextmanager
def _surroundings(
    environment: Mapping[str, str], folder: Path, arguments: Sequence[str]
) -> Iterator[None]:
    """Lend what else a process has of its own, and put all of it back."""
    variables, where, words, often = dict(os.environ), Path.cwd(), sys.argv, gc.get_threshold()
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        _replace_environment(environment)
        os.chdir(folder)
        sys.argv = ["postroom", *arguments]
        yield
    finally:
        sys.argv = words
        os.chdir(where)
        _replace_environment(variables)
        gc.set_threshold(*often)
        for each, handler in handlers.items():
            signal.signal(each, handler)


def _replace_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
