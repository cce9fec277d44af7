"""Import of many mails: worker processes parse them, while the calling process reads files and writes to the mailbox.

A worker has no database and no lock. It exits with the process that started it, even if that is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from postroom.core.errors import Unavailable
from postroom.mail.local.index import ParsedMail, parse_mail
from postroom.mail.mailbox import Arrival

MAX_WORKERS = 4  # one process can write as fast as about four can parse
CHUNKS_PER_WORKER = 4  # in memory; enough work for the workers while a batch is written
BATCH_MAILS = 4_000  # stored in one transaction
BATCH_BYTES = 32_000_000

Chunk = Sequence[Arrival]


def parse_batches(
    offered: Iterable[tuple[int, Chunk]], workers: int | None, now: float
) -> Generator[tuple[int, list[ParsedMail]]]:
    """Yield batches of parsed mails, each for one transaction, in the order of the chunks.

    A chunk of new mails comes with the number of mails that were read for it, and a batch with the sum of these.
    """
    batch: list[ParsedMail] = []
    count = size = 0
    for number, parsed in _parse_chunks(offered, workers or _core_count(), now):
        batch += parsed
        count += number
        size += sum(len(mail.raw) for mail in parsed)
        if len(batch) >= BATCH_MAILS or size >= BATCH_BYTES:
            yield count, batch
            batch, count, size = [], 0, 0
    yield count, batch


def _core_count() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(MAX_WORKERS, len(affinity(0)) if affinity else os.cpu_count() or 1)


def _parse_chunks(
    offered: Iterable[tuple[int, Chunk]], workers: int, now: float
) -> Iterator[tuple[int, list[ParsedMail]]]:
    # Yields in order, while the workers parse the next chunks.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    waiting: deque[tuple[int, Chunk, Future[list[ParsedMail]]]] = deque()

    def next_result() -> tuple[int, list[ParsedMail]]:
        number, chunk, future = waiting.popleft()
        # The worker returns mails without their bytes, which this process still has.
        pairs = zip(future.result(), chunk, strict=True)
        return number, [mail._replace(raw=arrival.raw) for mail, arrival in pairs]

    try:
        for number, chunk in offered:
            waiting.append((number, chunk, pool.submit(_parse, chunk, now)))
            if len(waiting) >= CHUNKS_PER_WORKER * workers:
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
    """End this worker when its parent process dies; without this, it would wait for work for ever."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
