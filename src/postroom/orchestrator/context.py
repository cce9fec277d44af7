"""What all parts of the orchestrator work with: its settings, and Postroom's own MCP servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, suppress
from dataclasses import field
from datetime import tzinfo
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from postroom.core.errors import Corrupt, PostroomError, Unavailable
from postroom.core.handbook import Case, Judgement
from postroom.core.records import InboxItem, InboxState
from postroom.core.values import dataclass
from postroom.desk.desk import Desk
from postroom.services.inbox import InboxService
from postroom.services.services import Services

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from postroom.orchestrator.client import MCPClient

PARALLEL_CALLS: Final = 8  # to one server
PAUSE_SECONDS: Final = 60.0  # for which a server that gave no answer is not asked again
POLL_SECONDS: Final = 0.5
ToolValues = dict[str, Any]
T = TypeVar("T")


class Question(NamedTuple, Generic[T]):
    """A call: its arguments, what parses the answer, and what answers where the server does not."""

    arguments: Mapping[str, object]
    parse: Callable[[ToolValues], T]
    fallback: Callable[[], T]

    def result(self, answer: ToolValues | PostroomError) -> T | PostroomError:
        """Return the parsed answer; the fallback's where there is none that fits; or an error."""
        try:
            if isinstance(answer, PostroomError):
                return answer
            with suppress(Corrupt):
                return self.parse(answer)
            return self.fallback()
        except PostroomError as error:
            return error


class Servers(ExitStack):
    """The servers by name, for code that is not asynchronous. Each starts at its first question, and ends with the block."""

    def __init__(self, commands: Mapping[str, list[str]], vault: Path, *, timeout: float) -> None:
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
            client = MCPClient(server, self._commands[server], self._vault, timeout=self._timeout)
            self.callback(self._portal.call, client.close)
            self._clients[server] = client
        return self._clients[server]

    def ask(
        self, server: str, tool: str, questions: Sequence[Question[T]]
    ) -> list[T | PostroomError]:
        """Return the answers in order; a refusal is the error in its place."""
        if not questions:
            return []
        # Made in this thread: at the end of the block the portal must close after its clients.
        client = self._client(server)
        arguments = [dict(question.arguments) for question in questions]
        answers = self._portal.start_task_soon(self._call_all, client, tool, arguments)
        while not wait([answers], POLL_SECONDS).done:
            if not self.keep_waiting():
                answers.cancel()
                return [Unavailable("It was not waited for")] * len(questions)
        return [one.result(answer) for one, answer in zip(questions, answers.result(), strict=True)]

    async def _call_all(
        self, client: MCPClient, tool: str, calls: Sequence[ToolValues]
    ) -> list[ToolValues | PostroomError]:
        """Return the answers of a server, empty ones where it gives none."""
        import asyncio

        server, slots = client.server_name, asyncio.Semaphore(PARALLEL_CALLS)

        async def call(arguments: ToolValues) -> ToolValues | PostroomError:
            async with slots:
                if time.monotonic() < self._paused_until.get(server, 0):
                    return {}
                try:
                    result = await client.try_tool(tool, arguments)
                except PostroomError as error:
                    return error
                if isinstance(result, dict):
                    return result
                if result.is_answered:
                    return result.error
                await client.log_failure(tool, result, has_fallback=True)
                self._paused_until[server] = time.monotonic() + PAUSE_SECONDS
                return {}

        return await asyncio.gather(*map(call, calls))


class Model(Protocol):
    """Decides about mail that no rule matches."""

    def judge(self, case: Case) -> Judgement:
        """Return what is to become of this mail; `Unavailable` may be retried, `Corrupt` not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The collaborators and settings of one `postroom run`."""

    services: Services
    accounts: Sequence[str]
    servers: Servers
    room: str  # the path of Postroom's folder in the vault, with its slash
    model: Model | None
    model_name: str
    most_drafts: int  # answers that are drafted in one conversation within a day
    interval: float
    zone: tzinfo
    emit: Callable[..., None]  # tells one event: its name, and its facts as keywords
    stopping: threading.Event
    trouble: dict[str, str] = field(default_factory=dict)  # what is wrong now, by part

    @property
    def desk(self) -> Desk:
        return self.services.desk

    @property
    def inbox(self) -> InboxService:
        return self.services.inbox

    def chunks(self, state: InboxState) -> Iterator[list[InboxItem]]:
        return takewhile(lambda _: not self.stopping.is_set(), self.inbox.chunks(state))

    def report(self, part: str, error: PostroomError, /, **facts: str) -> None:
        """Keep what is wrong with a part for the dashboard, and tell it once as long as it lasts."""
        text = error.message_with_remedy
        if self.trouble.get(part) != text:
            self.trouble[part] = text
            self.emit("trouble", **{"error": text, **facts})

    def note_path(self, item: InboxItem) -> str:
        """Return where the note of a mail is; empty where it was not written."""
        return self.desk.reader.notes.location(item.key).path

    def note_name(self, item: InboxItem) -> str:
        return self.note_path(item).rpartition("/")[2].removesuffix(".md")

    def emit_for(self, item: InboxItem, event: str, **facts: str) -> None:
        name = self.note_name(item)
        self.emit(event, account=item.account, mail=item.message, name=name, **facts)
