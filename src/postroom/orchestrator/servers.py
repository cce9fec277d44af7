"""Postroom's own servers, as the orchestrator asks them: many questions at once, from a loop that waits."""

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

AT_ONCE: Final = 8  # questions to one server
PAUSE: Final = 60.0  # seconds for which a server that gave no answer twice is done without
TICK: Final = 0.5  # seconds between two looks at what else there is to do
Answer = dict[str, Any]


class Question(NamedTuple):
    """The arguments of a call, and who answers where the server does not."""

    arguments: Mapping[str, object]
    fallback: Callable[[], Answer]

    def alone(self) -> Answer | PostroomError:
        """Return the answer without a server."""
        try:
            return self.fallback()
        except PostroomError as refused:
            return refused


class Servers(ExitStack):
    """The servers by name, each started when it is first asked: a round without mail needs none.

    They end with the block.
    """

    def __init__(
        self, commands: Mapping[str, Sequence[str]], vault: Path, *, timeout: float
    ) -> None:
        super().__init__()
        self._commands = commands
        self._vault = vault
        self._timeout = timeout
        self._clients: dict[str, MCPClient] = {}
        self._away: dict[str, float] = {}  # until when a server that failed is not asked
        self.between: Callable[[], bool] = lambda: True  # called while an answer is waited for

    @cached_property
    def _portal(self) -> BlockingPortal:
        from anyio.from_thread import start_blocking_portal

        return self.enter_context(start_blocking_portal())

    def _client(self, server: str) -> MCPClient:
        from postroom.orchestrator.client import MCPClient  # brings the SDK

        if server not in self._clients:
            command = list(self._commands[server])
            client = MCPClient(server, command, self._vault, timeout=self._timeout)
            self.callback(self._portal.call, client.close)
            self._clients[server] = client
        return self._clients[server]

    def ask(
        self, server: str, tool: str, questions: Sequence[Question]
    ) -> list[Answer | PostroomError]:
        """Return the answers in order; what was refused is answered by its error."""
        answers = self._portal.start_task_soon(self._asked, server, tool, questions)
        while not wait([answers], TICK).done:
            if not self.between():
                answers.cancel()
                return [Unavailable("It was not waited for")] * len(questions)
        return answers.result()

    async def _asked(
        self, server: str, tool: str, questions: Sequence[Question]
    ) -> list[Answer | PostroomError]:
        import asyncio

        client, room = self._client(server), asyncio.Semaphore(AT_ONCE)

        def without(question: Question) -> Answer:
            self._away[server] = time.monotonic() + PAUSE
            return question.fallback()

        async def one(question: Question) -> Answer | PostroomError:
            async with room:
                if time.monotonic() < self._away.get(server, 0):
                    # Whoever hangs once is not waited for again and again.
                    return await asyncio.to_thread(question.alone)
                try:
                    return await client.call_tool(
                        tool, dict(question.arguments), partial(without, question)
                    )
                except PostroomError as refused:
                    return refused

        return await asyncio.gather(*map(one, questions))
