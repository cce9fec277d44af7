"""Import with all cores: worker processes parse, one thread reads and distributes, one thread writes.

Each worker is a fresh interpreter that holds one end of a pipe and nothing else of ours: no database, no lock. It parses
what it receives and answers; when the pipe closes, also because the importing process was killed, it exits.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import TracebackType

from postroom.core.errors import Unavailable
from postroom.mail.local.rows import Prepared, prepare
from postroom.mail.mailbox import Arrival, ImportCount

MAX_WORKERS = 4  # the one writer keeps up with about as many

BATCH_MAILS = 4_000  # stored in one transaction
BATCH_BYTES = 32_000_000

Chunk = Sequence[Arrival]


def worker_count() -> int:
    """Return how many workers this machine gets: one a core, up to as many as one writer can follow."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


def keep_all(
    offered: Iterable[tuple[int, Chunk]],
    store: Callable[[list[Prepared], int], ImportCount],
    workers: int,
    now: float,
) -> Iterator[ImportCount]:
    """Parse chunks in worker processes, store them in batches, and yield what each batch did.

    `offered` gives each chunk with the number of mails it was chosen from, which `store` gets summed up.
    """
    batch: list[Prepared] = []
    count = size = 0
    chosen: deque[int] = deque()

    def chunks() -> Iterator[Chunk]:
        for number, chunk in offered:
            chosen.append(number)
            yield chunk

    with Parsers(workers, now) as parsers, ThreadPoolExecutor(1) as writer:
        writing: Future[ImportCount] | None = None
        for parsed in parsers.parse(chunks()):
            batch += parsed
            count += chosen.popleft()
            size += sum(len(item.raw) for item in parsed)
            if len(batch) < BATCH_MAILS and size < BATCH_BYTES:
                continue
            if writing:
                yield writing.result()
            writing = writer.submit(store, batch, count)
            batch, count, size = [], 0, 0
        if writing:
            yield writing.result()
        yield store(batch, count)


class Parsers:
    """Worker processes that parse chunks of mail; a context manager that ends them."""

    def __init__(self, count: int, now: float) -> None:
        context = get_context("spawn")
        self._idle: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, others = context.Pipe()
            process = context.Process(target=_serve, args=(others, now), daemon=True)
            process.start()
            others.close()
            self._idle.append(ours)
            self._processes.append(process)
        self._pipes = tuple(self._idle)

    def __enter__(self) -> Parsers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def parse(self, chunks: Iterable[Chunk]) -> Iterator[list[Prepared]]:
        """Yield the parsed mails of each chunk, in the order of the chunks.

        A worker has one chunk at a time: were it sent a second while it answers, both sides could block.
        """
        source = iter(chunks)
        order: deque[Chunk] = deque()
        busy: dict[Connection, Chunk] = {}
        parsed: dict[int, list[Prepared]] = {}
        try:
            while True:
                while self._idle and (chunk := next(source, None)) is not None:
                    pipe = self._idle.pop()
                    pipe.send(chunk)
                    busy[pipe] = chunk
                    order.append(chunk)
                if not order:
                    return
                answered = wait(list(busy))
                for pipe in [pipe for pipe in busy if pipe in answered]:
                    chunk = busy.pop(pipe)
                    # The bytes stay here: only what was made of them comes back.
                    items = zip(pipe.recv(), chunk, strict=True)
                    parsed[id(chunk)] = [item._replace(raw=arrival.raw) for item, arrival in items]
                    self._idle.append(pipe)
                while order and id(order[0]) in parsed:
                    yield parsed.pop(id(order.popleft()))
        except (EOFError, OSError) as lost:
            raise Unavailable(
                "A process that reads mail ended early",
                remedy="Run the import again: it goes on where it stopped.",
            ) from lost


def _serve(pipe: Connection, now: float) -> None:
    """Parse chunks until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the importing process decides when to stop
    with suppress(EOFError, OSError):
        while True:
            chunk: Chunk = pipe.recv()
            pipe.send([prepare(arrival, now)._replace(raw=b"") for arrival in chunk])
