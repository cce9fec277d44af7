"""The two ways that a request reaches the Gmail double: in process, and over HTTP on a local port.

A test can let a connection fail before or in the middle of an answer. On the port it is closed; in process,
the transport raises the exception that httpx2 would raise.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

import httpx2

CHUNK = 65_536  # bytes of a body that the transport yields at once


class Answer(NamedTuple):
    """An HTTP response; the client receives nothing of it if it is `lost`, and half of its body if it is `cut`."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012
    lost: bool = False
    cut: bool = False

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers, and Content-Length where the status allows it."""
        length = {} if self.status == 204 else {"Content-Length": str(len(self.body))}
        return self.headers | length

    @property
    def received_body(self) -> bytes:
        """The part of the body that the client receives."""
        return self.body[: len(self.body) // 2] if self.cut else self.body


class Service(Protocol):
    """What a transport and a server need of the double."""

    latency: float
    stopping: threading.Event
    lock: threading.RLock
    connections: int

    def respond(self, verb: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return the answer to a request; header names are in lower case."""


def reason_phrase(status: int) -> str:
    """Return the reason phrase of a status, such as "Not Found"."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Error"


def http_bytes(answer: Answer) -> bytes:
    """Return the bytes of an answer that the client receives: status line, headers and body."""
    lines = [f"HTTP/1.1 {answer.status} {reason_phrase(answer.status)}"]
    lines += [f"{name}: {value}" for name, value in answer.all_headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + answer.received_body


class InProcess(httpx2.BaseTransport):
    """A transport that calls the service in the caller's thread."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer, or raise what httpx2 raises when the connection fails."""
        self._service.stopping.wait(self._service.latency)
        headers = {name.lower(): value for name, value in request.headers.items()}
        target = request.url.raw_path.decode("ascii")
        answer = self._service.respond(request.method, target, headers, request.read())
        if answer.lost:
            raise httpx2.RemoteProtocolError(
                "Server disconnected without sending a response.", request=request
            )
        return httpx2.Response(
            answer.status, headers=answer.all_headers, stream=_Body(answer), request=request
        )


class _Body(httpx2.SyncByteStream):
    """An answer's body in chunks; a `cut` one ends in the exception of a closed connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        body = self._answer.received_body
        for start in range(0, len(body), CHUNK):
            yield body[start : start + CHUNK]
        if self._answer.cut:
            raise httpx2.RemoteProtocolError(
                "peer closed connection without sending complete message body"
                f" (received {len(body)} bytes, expected {len(self._answer.body)})"
            )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def answer(self) -> None:
        """Answer one request of any method."""
        service = self.server.service
        body = self._body()
        service.stopping.wait(service.latency)
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = service.respond(self.command, self.path, headers, body)
        self.close_connection = self.close_connection or answer.lost or answer.cut
        if not answer.lost:
            self.wfile.write(http_bytes(answer))

    def _body(self) -> bytes:
        """Return the body of the request, chunked or not."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *args: object) -> None:
        """Write no log."""


class Server(ThreadingHTTPServer):
    """An HTTP server for the service on a local port, from `start` to `stop`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: Service) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service
        self.crashes: list[BaseException] = []  # exceptions in the double itself
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def start(self) -> str:
        """Start the server and return its address."""
        self._thread.start()
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        """Stop the server and close every connection."""
        self.shutdown()
        self._thread.join()
        self._close_connections()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        with self.service.lock:
            self.service.connections += 1
            self._connections[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.service.lock:
                del self._connections[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep exceptions in the double itself; a client may close its connection at any time."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.crashes.append(error)

    def _close_connections(self) -> None:
        """Close the connections that are still open, and wait for their threads."""
        with self.service.lock:
            still_open = dict(self._connections)
        for thread, request in still_open.items():
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=10)
