"""Import of many mails: worker processes parse them, one thread writes, the calling thread reads the files.

A worker has no database and no lock. It exits with the process that started it, also if that is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from postroom.core.errors import Unavailable
from postroom.mail.local.rows import ParsedMail, parse_mail
from postroom.mail.mailbox import Arrival, ImportCount

MAX_WORKERS = 4  # one writer keeps up with about as many
AHEAD = 2  # chunks a worker that are in memory
BATCH_MAILS = 4_000  # stored in one transaction
BATCH_BYTES = 32_000_000

Chunk = Sequence[Arrival]


def worker_count() -> int:
    """Return the number of workers for this machine: one per core, at most `MAX_WORKERS`."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


def import_chunks(
    offered: Iterable[tuple[int, Chunk]],
    store: Callable[[list[ParsedMail], int], ImportCount],
    workers: int,
    now: float,
) -> Iterator[ImportCount]:
    """Parse chunks in worker processes, store them in batches, and yield the count of each batch.

    `offered` has each chunk of new mails with the number of mails it was chosen from, whose sum `store` gets.
    """
    batch: list[ParsedMail] = []
    count = size = 0
    with ThreadPoolExecutor(1) as writer:
        writing: Future[ImportCount] | None = None
        for number, parsed in _parse_chunks(offered, workers, now):
            batch += parsed
            count += number
            size += sum(len(mail.raw) for mail in parsed)
            if len(batch) < BATCH_MAILS and size < BATCH_BYTES:
                continue
            if writing:
                yield writing.result()
            writing = writer.submit(store, batch, count)
            batch, count, size = [], 0, 0
        if writing:
            yield writing.result()
        yield store(batch, count)


def _parse_chunks(
    offered: Iterable[tuple[int, Chunk]], workers: int, now: float
) -> Iterator[tuple[int, list[ParsedMail]]]:
    """Yield the parsed mails of each chunk with its number, in the order of the chunks."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    waiting: deque[tuple[int, Chunk, Future[list[ParsedMail]]]] = deque()

    def next_result() -> tuple[int, list[ParsedMail]]:
        number, chunk, future = waiting.popleft()
        # The bytes stay in this process; the worker returns what it made of them.
        pairs = zip(future.result(), chunk, strict=True)
        return number, [mail._replace(raw=arrival.raw) for mail, arrival in pairs]

    try:
        for number, chunk in offered:
            waiting.append((number, chunk, pool.submit(_parse, chunk, now)))
            if len(waiting) >= AHEAD * workers:
                yield next_result()
        while waiting:
            yield next_result()
    except BrokenProcessPool as broken:
        raise Unavailable(
            "A process that reads mail ended early",
            remedy="Run the import again: it continues where it stopped.",
        ) from broken
    finally:
        pool.shutdown(cancel_futures=True)


def _parse(chunk: Chunk, now: float) -> list[ParsedMail]:
    return [parse_mail(arrival, now)._replace(raw=b"") for arrival in chunk]


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the importing process decides when to stop
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this worker when its parent dies: the pool's queue alone would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)
