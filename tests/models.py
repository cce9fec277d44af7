"""Doubles of the services that serve models: loopback HTTP servers that say what they are told, and remember what was asked."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

Json = dict[str, Any]


@dataclass
class Reply:
    """What the service answers; `hangs` begins to, and never ends."""

    body: Json | bytes
    status: int = 200
    location: str = ""
    hangs: bool = False


class Asked(NamedTuple):
    """What the service was asked."""

    path: str
    headers: dict[str, str]
    body: Json

    @property
    def key(self) -> str:
        return self.headers.get("x-api-key") or self.headers["authorization"].split()[1]


class Interface(NamedTuple):
    """How one kind of service is asked and answers with typed output, which is a tool's call."""

    path: str
    reply: Callable[[Json], Json]
    texts: Callable[[Json], tuple[str, str]]  # the instructions and the question
    tools: Callable[[Json], list[str]]


class Service:
    """A service that gives these answers one after the other, and the last one for ever."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Asked] = []
        self.reached = threading.Event()
        self._closing = threading.Event()
        waiting = list(replies)
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append(Asked(self.path, headers, body))
                service.reached.set()
                reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                if reply.hangs:
                    self.hang()
                    return
                said = (
                    reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                )
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(said)))
                if reply.location:
                    self.send_header("Location", reply.location)
                self.end_headers()
                self.wfile.write(said)

            def hang(self) -> None:
                """Send one header after the other, so that no single read takes long."""
                self.close_connection = True
                with suppress(OSError):  # nobody listens any more
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                    while not service._closing.wait(0.05):
                        self.wfile.write(b"X-Wait: 1\r\n")

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()


def _chat(answer: Json) -> Json:
    function = {"name": "final_result", "arguments": json.dumps(answer)}
    call = {"id": "call_1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
    }  # fmt: skip


def _messages(answer: Json) -> Json:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "final_result", "input": answer}],
        "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }  # fmt: skip


def _responses(answer: Json) -> Json:
    call = {
        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "final_result",
        "arguments": json.dumps(answer), "status": "completed",
    }  # fmt: skip
    return {
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "m",
        "status": "completed", "output": [call], "parallel_tool_calls": True, "tools": [],
        "tool_choice": "auto", "error": None, "incomplete_details": None, "instructions": None,
        "metadata": {}, "temperature": 1.0, "top_p": 1.0,
        "usage": {
            "input_tokens": 10, "output_tokens": 10, "total_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip


def _joined(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _of_role(messages: list[Json], *roles: str) -> str:
    return "".join(_joined(message["content"]) for message in messages if message["role"] in roles)


CHAT = Interface(
    "/chat/completions",
    _chat,
    lambda asked: (
        _of_role(asked["messages"], "system", "developer"),
        _of_role(asked["messages"], "user"),
    ),
    lambda asked: [tool["function"]["name"] for tool in asked["tools"]],
)
MESSAGES = Interface(
    "/v1/messages",
    _messages,
    lambda asked: (_joined(asked["system"]), _of_role(asked["messages"], "user")),
    lambda asked: [tool["name"] for tool in asked["tools"]],
)
RESPONSES = Interface(
    "/responses",
    _responses,
    lambda asked: (asked["instructions"], _of_role(asked["input"], "user")),
    lambda asked: [tool["name"] for tool in asked["tools"]],
)
