"""Run a command and print its CPU time, in seconds and as a multiple of a fixed loop on this machine.

    python tests/cpu.py COMMAND [ARGUMENT ...]

Compare the multiples: they differ less between machines than the seconds do.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time


def calibrate() -> float:
    """Return the CPU seconds of the fixed loop (dictionary and text work): the shortest of five runs."""
    return min(_loop_seconds() for _ in range(5))


def _loop_seconds() -> float:
    began = time.process_time()
    words: dict[str, int] = {}
    for number in range(200_000):
        word = f"word {number % 5_000}"
        words[word] = words.get(word, 0) + len(word)
    assert len(words) == 5_000
    return time.process_time() - began


def main() -> int:
    """Run the command that the arguments name, print its CPU time, and return its exit code."""
    unit, began = calibrate(), time.monotonic()
    code = subprocess.run(sys.argv[1:], check=False).returncode
    wall = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    sys.stdout.write(
        f"CPU: {seconds:.0f} s in {wall:.0f} s on {os.cpu_count()} cores;"
        f" {seconds / unit:,.0f} times the calibration loop ({1000 * unit:.1f} ms)\n"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
