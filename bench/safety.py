"""Who sends without a person, and what `kill -9` doubles: Postroom beside another server, each with a mail server here.

Each is given a mail server on this machine that counts what it accepts. First an agent calls the tool that sends,
once, and nobody approves anything. Then the sending process is killed in the moment in which the mail server has
accepted the mail and has not answered yet; it is started again, and the agent, which had no answer, repeats its call.
"""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
import threading
from pathlib import Path

from bench import peers
from bench.command import POSTROOM, environment
from bench.report import MISSING, Bound, Measure, folder, progress, say
from bench.server import SERVER, Call, Wire, serving
from tests.gmail.double import Gmail

PATIENCE = 60.0  # seconds
RECIPIENT = "ann@example.com"
ROWS = (
    ("one call, and no person", Bound(0, "")),
    ("killed while sending, started again, call repeated", Bound(1, "")),
)
OTHER = next(peer for peer in peers.PEERS if peer.name == "mcp-email-server")
SETTINGS = "dry_run = false\n[approvals]\nundo_seconds = 0\n[notify]\ndesktop = false\n"


def run(*, install: bool) -> list[Measure]:
    """Let each of them send, unasked and killed, and count what arrives."""
    if install and not OTHER.server:
        OTHER.install()
    with folder() as home:
        progress("safety: postroom")
        ours = _postroom(home / "postroom")
        progress(f"safety: {OTHER.title}")
        theirs = _other(home / "other")
    say("safety: mails that a mail server on this machine accepted")
    say(f"{'':52}{'postroom':>9}{OTHER.name:>18}")
    measures = []
    for (name, bound), own, other in zip(ROWS, ours, theirs or (None, None), strict=True):
        say(f"{name:52}{own:>9}{MISSING if other is None else other:>18}")
        verdict = bound.verdict(own)
        measures.append(
            Measure("safety", name, own, "mails", OTHER.title, other or 0, str(bound), verdict)
        )
    if theirs is None:
        say(f"{OTHER.title} is not installed: add --install")
    say("A person had approved Postroom's letter for the second line. mcp-email-server")
    say("sends only to its list of allowed recipients; at first that list is empty.")
    return measures


def _postroom(home: Path) -> tuple[int, int]:
    """Return how many mails Gmail's double accepted: before a person approved, and in the end."""
    call = Call("send_email", {"to": [RECIPIENT], "subject": "Hello", "body": "Good day."})
    with Gmail() as service:
        env = _gmail_environment(home, service)
        with serving(home, SERVER, env) as wire:
            answer = wire.call(call)[0].decode().replace('\\"', '"')
        unasked = len(service.sent)
        id = re.findall(r'"letter": ?"([a-z2-7]{10})"', answer)[0]
        digest = json.loads(_output(home, env, "show", id, "--json"))["digest"]
        released = threading.Event()
        fault = service.fail("POST .*/drafts/send", lost="after", hold=released)
        process = subprocess.Popen(
            [POSTROOM, "approve", id, "--yes", digest], cwd=home, env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _wait(fault.struck)
        process.kill()
        process.wait()
        released.set()
        with serving(home, SERVER, env) as wire:
            wire.call(call)
        _output(home, env, "send-approved")
        return unasked, len(service.sent)


def _gmail_environment(home: Path, service: Gmail) -> dict[str, str]:
    """Return the environment of a person who is signed in to this service and has gone live."""
    state, settings = home / "state", home / "config/postroom/postroom.toml"
    state.mkdir(mode=0o700, parents=True)
    (state / "token.json").write_text(json.dumps(service.token()))
    (state / "token.json").chmod(0o600)
    settings.parent.mkdir(parents=True)
    settings.write_text(SETTINGS)
    return environment(home) | {
        "POSTROOM_PROVIDER": "gmail",
        "GMAIL_API_ENDPOINT": service.endpoint,
        "GMAIL_TOKEN_URI": service.token_uri,
    }


def _output(home: Path, env: dict[str, str], *words: str) -> str:
    command = [POSTROOM, *words]
    return subprocess.run(
        command, cwd=home, env=env, capture_output=True, text=True, check=True
    ).stdout


def _other(home: Path) -> tuple[int, int] | None:
    """Return how many mails an SMTP server accepted after one call, and after a second that was killed and repeated."""
    if OTHER.server is None:
        return None
    home.mkdir()
    letter = {"account_name": "default", "recipients": [RECIPIENT], "subject": "Hello", "body": "Good day."}  # fmt: skip
    call, command = Call("send_email", letter), OTHER.server.command
    with SmtpServer() as service:
        env = _smtp_environment(home, service.server_address[1])
        with serving(home, command, env) as wire:
            wire.call(call)
        unasked = len(service.accepted)
        service.stalls = True
        wire = Wire(home, command, env)
        wire.greet()
        wire.ask(call)
        _wait(service.stalled)
        wire.kill()
        service.stalls = False
        with serving(home, command, env) as wire:
            wire.call(call)
        return unasked, len(service.accepted) - unasked


def _smtp_environment(home: Path, port: int) -> dict[str, str]:
    names = {
        "EMAIL_ADDRESS": "you@example.org",
        "PASSWORD": "none",
        "ALLOWED_RECIPIENTS": RECIPIENT,
        "IMAP_HOST": "127.0.0.1",
        "IMAP_PORT": "1",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(port),
        "SMTP_SSL": "false",
        "SMTP_START_SSL": "false",
        "SAVE_TO_SENT": "false",
    }
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    return plain | {f"MCP_EMAIL_SERVER_{name}": value for name, value in names.items()}


def _wait(event: threading.Event) -> None:
    if not event.wait(PATIENCE):
        raise SystemExit("safety: nothing was sent in time")


class SmtpServer(socketserver.ThreadingTCPServer):
    """An SMTP server on this machine that keeps each mail, and can stall before it says that it has it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SmtpSession)
        self.accepted: list[bytes] = []
        self.stalls = False
        self.stalled = threading.Event()

    def __enter__(self) -> SmtpServer:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _SmtpSession(socketserver.StreamRequestHandler):
    server: SmtpServer

    def handle(self) -> None:
        self.wfile.write(b"220 bench\r\n")
        while line := self.rfile.readline():
            match line[:4].upper():
                case b"EHLO":
                    answer = b"250-bench\r\n250 AUTH PLAIN LOGIN"
                case b"AUTH":
                    answer = b"235 OK"
                case b"DATA":
                    self.wfile.write(b"354 Go on\r\n")
                    self.server.accepted.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                    if self.server.stalls:
                        self.server.stalled.set()
                        self.rfile.read()  # until the client is dead
                    answer = b"250 OK"
                case _:
                    answer = b"250 OK"
            self.wfile.write(answer + b"\r\n")
