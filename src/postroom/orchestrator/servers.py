"""Postroom's own MCP servers, asked many questions at once from code that is not asynchronous."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from postroom.core.errors import PostroomError, Unavailable

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from postroom.orchestrator.client import MCPClient

PARALLEL_CALLS: Final = 8  # to one server
PAUSE_SECONDS: Final = 60.0  # for which a server that gave no answer is not asked again
POLL_SECONDS: Final = 0.5
ToolValues = dict[str, Any]


class Question(NamedTuple):
    """The arguments of a call, and the function that answers where the server does not."""

    arguments: Mapping[str, object]
    fallback: Callable[[], ToolValues]

    def answer_locally(self) -> ToolValues | PostroomError:
        """Return the fallback's answer, or the error that it raises."""
        try:
            return self.fallback()
        except PostroomError as error:
            return error


class Servers(ExitStack):
    """The servers by name. Each is started at its first question, and ends with the `with` block."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], vault: Path, *, timeout: float
    ) -> None:
        super().__init__()
        self._commands = commands
        self._vault = vault
        self._timeout = timeout
        self._clients: dict[str, MCPClient] = {}
        self._paused_until: dict[str, float] = {}
        self.keep_waiting: Callable[[], bool] = lambda: True  # called while an answer is awaited

    @cached_property
    def _portal(self) -> BlockingPortal:
        from anyio.from_thread import start_blocking_portal

        return self.enter_context(start_blocking_portal())

    def _client(self, server: str) -> MCPClient:
        from postroom.orchestrator.client import MCPClient  # imports the SDK

        if server not in self._clients:
            command = list(self._commands[server])
            client = MCPClient(server, command, self._vault, timeout=self._timeout)
            self.callback(self._portal.call, client.close)
            self._clients[server] = client
        return self._clients[server]

    def ask(
        self, server: str, tool: str, questions: Sequence[Question]
    ) -> list[ToolValues | PostroomError]:
        """Return the answers in order; a refusal is the error in its place."""
        if not questions:
            return []
        # Made in this thread: at the end of the block the portal must close after its clients.
        client = self._client(server)
        answers = self._portal.start_task_soon(self._ask_all, client, tool, questions)
        while not wait([answers], POLL_SECONDS).done:
            if not self.keep_waiting():
                answers.cancel()
                return [Unavailable("It was not waited for")] * len(questions)
        return answers.result()

    async def _ask_all(
        self, client: MCPClient, tool: str, questions: Sequence[Question]
    ) -> list[ToolValues | PostroomError]:
        import asyncio

        server, slots = client.server_name, asyncio.Semaphore(PARALLEL_CALLS)

        def fall_back(question: Question) -> ToolValues:
            self._paused_until[server] = time.monotonic() + PAUSE_SECONDS
            return question.fallback()

        async def ask(question: Question) -> ToolValues | PostroomError:
            async with slots:
                if time.monotonic() < self._paused_until.get(server, 0):
                    return await asyncio.to_thread(question.answer_locally)
                try:
                    return await client.call_tool(
                        tool, dict(question.arguments), partial(fall_back, question)
                    )
                except PostroomError as error:
                    return error

        return await asyncio.gather(*map(ask, questions))
