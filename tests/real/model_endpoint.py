"""Model endpoints on loopback that make real agents call the tools of `clients/plan.py`, without a model or an account.

An agent sends the whole conversation with each request, so an endpoint keeps no state: it counts the tool results in the
request and answers with the call that comes next.
"""

import json
import threading
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.real.clients.plan import LAST_WORDS, next_call

TOKENS = 10  # what an endpoint claims to have read and written


@dataclass(frozen=True)
class Request:
    """What an agent showed its model: our tools by their own names, and the results of the calls so far."""

    tools: Sequence[str]
    results: Sequence[str]


@dataclass(frozen=True)
class Call:
    """A call of a tool: its own name, without what the agent puts before it, and the arguments."""

    tool: str
    arguments: dict[str, Any]


class ClosedProxy:
    """An HTTP proxy on loopback that refuses every request and records it in `refused`; a context manager.

    A program that runs with the variables of `environment` sends here what is meant for any machine but this one.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), self.address)
        return proxies | {"NO_PROXY": "127.0.0.1"}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes] | None:
        """Return the media type and the body of the answer, or None to refuse the request."""
        return None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(proxy: ClosedProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"] or 0))
            answer = proxy.answer(self.path.partition("?")[0], json.loads(raw))
            if not answer:
                self._refuse()
                return
            kind, body = answer
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _refuse(self) -> None:
            proxy.refused.append(f"{self.command} {self.path}")
            self.send_error(403)

        do_GET = do_HEAD = do_PUT = do_CONNECT = _refuse

        def log_message(self, *_: object) -> None:
            """Write nothing: pytest shows `refused` and `requests` where they matter."""

    return Handler


class ModelEndpoint(ClosedProxy):
    """A model in the format of one vendor, and a proxy that refuses all else.

    `requests` are those that offered our tools, in order. A request without them, such as one for a title, gets words.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, bytes] | None:
        if (count := self.count(path)) is not None:
            return "application/json", json.dumps(count).encode()
        if not self.is_message(path):
            return None
        request = self.parse(body)
        if not request.tools:
            return "text/event-stream", b"".join(self.events(None))
        self.requests.append(request)
        found = next_call(request.results)
        return "text/event-stream", b"".join(self.events(Call(*found) if found else None))

    @abstractmethod
    def is_message(self, path: str) -> bool:
        """Return whether the model writes messages at this path."""

    def count(self, path: str) -> dict[str, Any] | None:
        """Return the number of tokens in the vendor's format if this path counts them, else None."""
        return None

    @abstractmethod
    def parse(self, body: dict[str, Any]) -> Request:
        """Return what the agent shows its model."""

    @abstractmethod
    def events(self, call: Call | None) -> Iterable[bytes]:
        """Return the server-sent events of a message: a call of a tool, or the last words."""


class AnthropicEndpoint(ModelEndpoint):
    """Anthropic's Messages API, as Claude Code uses it."""

    def is_message(self, path: str) -> bool:
        return path == "/v1/messages"

    def count(self, path: str) -> dict[str, Any] | None:
        return {"input_tokens": TOKENS} if path == "/v1/messages/count_tokens" else None

    def parse(self, body: dict[str, Any]) -> Request:
        contents = [message["content"] for message in body["messages"]]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        return Request(
            _own_names("mcp__postroom__", body.get("tools", ())),
            [_text(block["content"]) for block in blocks if block["type"] == "tool_result"],
        )

    def events(self, call: Call | None) -> Iterable[bytes]:
        usage = {"input_tokens": TOKENS, "output_tokens": TOKENS}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted"}
        yield _event("message_start", message=message | {"content": [], "usage": usage})
        if call:
            name = f"mcp__postroom__{call.tool}"
            block = {"type": "tool_use", "id": f"toolu_{call.tool}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": LAST_WORDS}
        yield _event("content_block_start", index=0, content_block=block)
        yield _event("content_block_delta", index=0, delta=delta)
        yield _event("content_block_stop", index=0)
        stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
        yield _event("message_delta", delta=stop, usage=usage)
        yield _event("message_stop")


class OpenAIEndpoint(ModelEndpoint):
    """OpenAI's Responses API, as Codex uses it: a server's tools are a namespace."""

    def is_message(self, path: str) -> bool:
        return path == "/v1/responses"

    def parse(self, body: dict[str, Any]) -> Request:
        groups = [tool for tool in body.get("tools", ()) if tool.get("name") == "mcp__postroom"]
        outputs = [item for item in body["input"] if item["type"] == "function_call_output"]
        return Request(
            [tool["name"] for group in groups for tool in group["tools"]],
            [_text(item["output"]) for item in outputs],
        )

    def events(self, call: Call | None) -> Iterable[bytes]:
        yield _event("response.created", response={"id": "resp_1"})
        yield _event("response.output_item.done", output_index=0, item=self.item(call))
        usage = {"input_tokens": TOKENS, "output_tokens": TOKENS, "total_tokens": 2 * TOKENS}
        yield _event("response.completed", response={"id": "resp_1", "usage": usage})

    def item(self, call: Call | None) -> dict[str, Any]:
        """Return what the model puts out: a call of a tool, or the last words."""
        if call is None:
            content = [{"type": "output_text", "text": LAST_WORDS}]
            return {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
        return {
            "type": "function_call",
            "id": f"fc_{call.tool}",
            "call_id": f"call_{call.tool}",
            "namespace": "mcp__postroom",
            "name": call.tool,
            "arguments": json.dumps(call.arguments),
        }


class ShellEndpoint(OpenAIEndpoint):
    """A model that runs one command in Codex's shell."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def item(self, call: Call | None) -> dict[str, Any]:
        if call is None or self.requests[-1].results:
            return super().item(None)
        arguments = json.dumps({"cmd": self._command})
        names = {"id": "fc_1", "call_id": "call_1", "name": "exec_command"}
        return {"type": "function_call", **names, "arguments": arguments}


class GeminiEndpoint(ModelEndpoint):
    """Google's generateContent API, as Gemini CLI uses it."""

    def is_message(self, path: str) -> bool:
        return path.endswith(":streamGenerateContent")

    def count(self, path: str) -> dict[str, Any] | None:
        return {"totalTokens": TOKENS} if path.endswith(":countTokens") else None

    def parse(self, body: dict[str, Any]) -> Request:
        groups = [group.get("functionDeclarations", ()) for group in body.get("tools", ())]
        parts = [part for content in body["contents"] for part in content["parts"]]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        return Request(
            _own_names("mcp_postroom_", [tool for group in groups for tool in group]),
            [answer["response"]["output"] for answer in answers],
        )

    def events(self, call: Call | None) -> Iterable[bytes]:
        part: dict[str, Any] = {"text": LAST_WORDS}
        if call:
            part = {"functionCall": {"name": f"mcp_postroom_{call.tool}", "args": call.arguments}}
        content = {"role": "model", "parts": [part]}
        message = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": TOKENS, "candidatesTokenCount": TOKENS},
        }
        yield f"data: {json.dumps(message)}\n\n".encode()


def _event(kind: str, **fields: object) -> bytes:
    """Return a server-sent event whose data repeats its kind, as Anthropic and OpenAI write them."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _own_names(prefix: str, tools: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of our tools, without the prefix that the agent tells them by."""
    names = [tool["name"] for tool in tools]
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _text(content: str | list[dict[str, Any]]) -> str:
    """Return the text of a tool's result, which is a text or blocks with texts in them."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content)
