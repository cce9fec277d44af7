"""A few threads that run jobs, now or later."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush

log = logging.getLogger("postroom")


class Workers:
    """Runs jobs in a few threads, each job at its time."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._lock = threading.Lock()
        self._submitted_job = threading.Condition(self._lock)
        self._ended_job = threading.Condition(self._lock)
        self._submitted = self._threads = self._idle = self._working = 0
        self._is_stopped = False

    def submit(self, job: Callable[[], None], delay: float = 0.0) -> None:
        """Run a job after so many seconds. Jobs that are due at once run in the order of submission."""
        with self._lock:
            # A thread counts as idle until it has woken, so there is one for each job, as far as there may be.
            if len(self._jobs) >= self._idle and self._threads < self._max_threads:
                try:
                    threading.Thread(target=self._run, daemon=True).start()
                    self._threads += 1
                except RuntimeError:  # the system allows no more threads
                    if not self._threads:
                        raise
            self._submitted += 1
            heappush(self._jobs, (time.monotonic() + delay, self._submitted, job))
            self._submitted_job.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                while not self._is_due():
                    if self._is_stopped:
                        return
                    self._submitted_job.wait(
                        self._jobs[0][0] - time.monotonic() if self._jobs else None
                    )
                self._idle -= 1
                self._working += 1
                _, _, job = heappop(self._jobs)
            try:
                job()
            except Exception as bug:  # noqa: BLE001 - one job must not end the others
                log.error("%s in a job", type(bug).__name__)  # noqa: TRY400 - its text may be a mail's
            with self._lock:
                self._working -= 1
                self._ended_job.notify_all()

    def _is_due(self) -> bool:
        return bool(self._jobs) and self._jobs[0][0] <= time.monotonic()

    def settle(self, seconds: float) -> None:
        """Wait until no job is at work or due, but not longer than that."""
        with self._lock:
            self._ended_job.wait_for(lambda: not self._working and not self._is_due(), seconds)

    def stop(self) -> None:
        """Drop the jobs that are not at work, and let the threads end."""
        with self._lock:
            self._is_stopped = True
            self._jobs.clear()
            self._submitted_job.notify_all()
