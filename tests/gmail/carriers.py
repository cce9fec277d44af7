"""The two ways that a request reaches the Gmail double: in process, and over HTTP on a local port.

What happens to a connection (it is lost, or ends in the middle of an answer) is real on the port; in process
it is the exception that httpx2 raises for it.
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

PIECE = 65_536  # bytes of an answer that arrive at once


class Answer(NamedTuple):
    """What goes back: `lost` is nothing at all, `cut` half of it."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012
    lost: bool = False
    cut: bool = False

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers, and the length of the body where HTTP has one."""
        length = {} if self.status == 204 else {"Content-Length": str(len(self.body))}
        return self.headers | length

    @property
    def arriving(self) -> bytes:
        """The part of the body that arrives."""
        return self.body[: len(self.body) // 2] if self.cut else self.body


class Service(Protocol):
    """What answers requests."""

    latency: float
    stopping: threading.Event
    lock: threading.RLock
    connections: int

    def respond(self, verb: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return the answer to a request; header names are in lower case."""


def phrase(status: int) -> str:
    """Return HTTP's name of a status."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Error"


def wire(answer: Answer) -> bytes:
    """Return as much of an answer as arrives, as HTTP writes it."""
    lines = [f"HTTP/1.1 {answer.status} {phrase(answer.status)}"]
    lines += [f"{name}: {value}" for name, value in answer.all_headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + answer.arriving


class InProcess(httpx2.BaseTransport):
    """A transport that hands each request to the service in the caller's own thread."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer, or raise what httpx2 raises where the connection fails."""
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
    """An answer's body, piece by piece."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        arriving = self._answer.arriving
        for start in range(0, len(arriving), PIECE):
            yield arriving[start : start + PIECE]
        if self._answer.cut:
            raise httpx2.RemoteProtocolError(
                "peer closed connection without sending complete message body"
                f" (received {len(arriving)} bytes, expected {len(self._answer.body)})"
            )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def answer(self) -> None:
        service = self.server.service
        body = self._body()
        service.stopping.wait(service.latency)
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = service.respond(self.command, self.path, headers, body)
        self.close_connection = self.close_connection or answer.lost or answer.cut
        if not answer.lost:
            self.wfile.write(wire(answer))

    def _body(self) -> bytes:
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
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A service on a local port, from `start` to `stop`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, service: Service) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service
        self.crashes: list[BaseException] = []
        self.at_work: dict[threading.Thread, socket.socket] = {}
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def start(self) -> str:
        """Begin to serve; return the address."""
        self._thread.start()
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        """End every connection, and the server."""
        self.shutdown()
        self._thread.join()
        self.hang_up()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        with self.service.lock:
            self.service.connections += 1
            self.at_work[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.service.lock:
                del self.at_work[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what broke in the double itself; that a client hangs up is no error."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.crashes.append(error)

    def hang_up(self) -> None:
        """End the connections that are still open, and their threads."""
        with self.service.lock:
            left = dict(self.at_work)
        for thread, request in left.items():
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=10)
