"""The same lines sent to both servers in this process: ours for stdio (`wire`), and the MCP SDK's."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import anyio
from mcp.server.stdio import stdio_server

from postroom.tools.calls import Calls
from postroom.tools.serve import Service
from postroom.tools.stdio import Output
from postroom.tools.wire import Server

Message = dict[str, Any]
Answers = list[list[Message]]  # what each line was answered with, and last what came at the end


def send_to_ours(lines: Sequence[bytes], listing: dict[str, Any], calls: Calls) -> Answers:
    """Return what our server answers to each line."""
    handle = os.memfd_create("stdout")
    read = 0

    def written() -> list[Message]:
        nonlocal read
        server.workers.settle(30)
        output.flush(30)
        data = os.pread(handle, 1 << 30, read)
        read += len(data)
        return [json.loads(line) for line in data.splitlines()]

    try:
        output = Output(handle)
        server = Server(listing, lambda: calls, output, "")
        answers = []
        for line in lines:
            server.receive(line)
            answers.append(written())
        server.finish(30)
        return [*answers, written()]
    finally:
        server.close()
        os.close(handle)


def send_to_sdk(lines: Sequence[bytes], listing: dict[str, Any], calls: Calls) -> Answers:
    """Return what the SDK's server answers to each line."""
    return anyio.run(_send_to_sdk, lines, listing, calls)


async def _settle(service: Service) -> None:
    """Wait until no task can run and no thread is at work."""
    loop: Any = asyncio.get_running_loop()
    while True:
        work = service.threads.statistics()
        is_working = bool(work.borrowed_tokens or work.tasks_waiting)
        await asyncio.sleep(0.0005 if is_working else 0)
        if not loop._ready and not is_working:
            return


async def _send_to_sdk(lines: Sequence[bytes], listing: dict[str, Any], calls: Calls) -> Answers:
    service = Service(listing, calls)
    written: list[Message] = []
    to_server, from_test = anyio.create_memory_object_stream[str]()

    class Stdin:
        def __aiter__(self) -> Stdin:
            return self

        async def __anext__(self) -> str:
            try:
                return await from_test.receive()
            except anyio.EndOfStream:
                raise StopAsyncIteration from None

    class Stdout:
        async def write(self, text: str) -> None:
            written.append(json.loads(text))

        async def flush(self) -> None:
            pass

    async def serve() -> None:
        streams: dict[str, Any] = {"stdin": Stdin(), "stdout": Stdout()}
        async with stdio_server(**streams) as (incoming, outgoing):
            await service.server.run(
                incoming, outgoing, service.server.create_initialization_options()
            )

    answers = []
    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        for line in lines:
            await to_server.send(line.decode("utf-8", "replace"))
            await _settle(service)
            answers.append(written.copy())
            written.clear()
        to_server.close()
    from_test.close()
    return [*answers, written]
