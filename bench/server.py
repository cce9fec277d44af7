"""The email server against a minimal server of the SDK, and against its own tools on the SDK: start, memory, calls, twenty at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import mails
from bench.command import POSTROOM, environment, mailbox
from bench.report import Bound, Measure, folder, progress, say

MAILS = 3_000
CALLS = 400
ROUNDS = 5
AT_ONCE = 20
CALL = Bound(2, "×")
MANY = Bound(1.05, "×")  # no slower than on the SDK; the rest is noise from run to run
LIST_BYTES, SEARCH_BYTES = Bound(12_000, "bytes"), Bound(16_000, "bytes")

MINIMAL = (sys.executable, str(Path(__file__).with_name("minimal.py")))
# The same tools and the same desk, served by the MCP SDK.
SDK_SERVED = (sys.executable, str(Path(__file__).with_name("sdk.py")), "email")
SERVER = (POSTROOM, "mcp", "email", "--agent", "bench")


class Call(NamedTuple):
    """What is called."""

    tool: str
    arguments: dict[str, Any]


NOOP = Call("noop", {})


class Wire:
    """A server's stdin and stdout, line by line: no client's own work is measured with it."""

    def __init__(
        self, home: Path, command: Sequence[str], env: dict[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=home,
            env=env or environment(home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._id = 0

    def _send(self, method: str, params: dict[str, Any], *, asks: bool = True) -> None:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if asks:
            self._id += 1
            body["id"] = self._id
        assert self._process.stdin
        self._process.stdin.write(json.dumps(body).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> bytes:
        assert self._process.stdout
        return self._process.stdout.readline()

    def greet(self) -> bytes:
        """Shake hands and return the answer to the first `tools/list`."""
        client = {"name": "bench", "version": "1"}
        self._send("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})  # fmt: skip
        self._line()
        self._send("notifications/initialized", {}, asks=False)
        self._send("tools/list", {})
        return self._line()

    def ask(self, call: Call) -> None:
        """Make a call and do not wait for its answer."""
        self._send("tools/call", {"name": call.tool, "arguments": call.arguments})

    def kill(self) -> None:
        """Kill the server, as the system does without memory."""
        self._process.kill()
        self._process.communicate()

    def call(self, *calls: Call) -> list[bytes]:
        """Make all these calls at once and return their answers."""
        for name, arguments in calls:
            self._send("tools/call", {"name": name, "arguments": arguments})
        return [self._line() for _ in calls]

    @property
    def memory(self) -> float:
        """The bytes that the server holds in memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024.0 * int(status.partition("VmRSS:")[2].split()[0])

    def end(self) -> None:
        """End the server."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


@contextmanager
def serving(
    home: Path, command: Sequence[str], env: dict[str, str] | None = None
) -> Iterator[Wire]:
    """Run a server that has been greeted."""
    wire = Wire(home, command, env)
    try:
        wire.greet()
        yield wire
    finally:
        wire.end()


def run() -> list[Measure]:
    """Measure the servers by turns."""
    with folder() as home:
        progress(f"server: {MAILS:,} mails")
        mailbox(home, MAILS)
        say(f"server: {ROUNDS} × {CALLS} calls each by turns, {MAILS:,} mails;")
        say("against a minimal server of the MCP SDK with one tool that does nothing; and at")
        say("once against the same tools served by the SDK too, 5 % allowed for noise")
        say(f"{'':34}{'postroom':>12}{'minimal':>12}{'ratio':>8}{'bound':>12}")
        return [*_calls(home), *_sizes(home)]


def _calls(home: Path) -> list[Measure]:
    with (
        serving(home, MINIMAL) as bare,
        serving(home, SDK_SERVED) as sdk,
        serving(home, SERVER) as ours,
    ):
        # Each read is of another mail: what was read a moment ago costs less.
        unread = cycle(_ids(ours, ROUNDS * CALLS))
        calls: dict[str, Callable[[], Call]] = {
            "get_email": lambda: Call("get_email", {"id": next(unread)}),
            "search_email, 20 mails": lambda: Call("search_email", {"query": mails.COMMON}),
            "letter_status, none open": lambda: Call("letter_status", {}),
        }
        many = f"{AT_ONCE} searches at once"
        ours_taken: dict[str, list[float]] = {name: [] for name in (*calls, many)}
        bare_taken: dict[str, list[float]] = {"noop": [], many: []}
        sdk_taken: list[float] = []
        for _ in range(ROUNDS):
            bare_taken["noop"].append(_lasted(bare, lambda: NOOP))
            for name, call in calls.items():
                ours_taken[name].append(_lasted(ours, call))
            bare_taken[many] += _together(lambda: NOOP, bare)
            both = _together(calls["search_email, 20 mails"], ours, sdk)
            ours_taken[many].append(both[0])
            sdk_taken.append(both[1])
        after = ours.memory, bare.memory
    noop = min(bare_taken["noop"])
    measures = [
        _measure(name, min(ours_taken[name]), noop, "ms", CALL if name == "get_email" else None)
        for name in calls
    ]
    measures.append(_measure(many, min(ours_taken[many]), min(bare_taken[many]), "ms"))
    at_once = min(ours_taken[many]), min(sdk_taken)
    measures.append(_measure(f"{many}, against SDK", *at_once, "ms", MANY, "served by the SDK"))
    measures.append(_measure("memory after all calls", *after, "MB"))
    return measures


def _ids(wire: Wire, count: int) -> list[str]:
    found: list[str] = []
    cursor = ""
    while len(found) < count:
        answer = json.loads(wire.call(Call("search_email", {"limit": 50, "cursor": cursor}))[0])
        page = answer["result"]["structuredContent"]
        found += [mail["id"] for mail in page["mails"]]
        cursor = page["cursor"]
    return found


def _lasted(wire: Wire, make: Callable[[], Call]) -> float:
    """Return how long one call takes, of many in a row."""
    taken = []
    for _ in range(CALLS):
        call = make()
        began = time.perf_counter()
        wire.call(call)
        taken.append(time.perf_counter() - began)
    return median(taken)


def _together(make: Callable[[], Call], *wires: Wire) -> list[float]:
    """Return how long many calls at once take on each server, which take turns."""
    taken: list[list[float]] = [[] for _ in wires]
    for _ in range(20):
        for wire, lasted in zip(wires, taken, strict=True):
            calls = [make() for _ in range(AT_ONCE)]
            began = time.perf_counter()
            wire.call(*calls)
            lasted.append(time.perf_counter() - began)
    return list(map(median, taken))


def _sizes(home: Path) -> list[Measure]:
    wire = Wire(home, SERVER)
    listed = len(json.dumps(json.loads(wire.greet())["result"], separators=(",", ":")))
    found = json.loads(wire.call(Call("search_email", {"limit": 50}))[0])["result"]
    wire.end()
    assert len(found["structuredContent"]["mails"]) == 50
    searched = len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())
    measures = []
    for name, size, bound in (
        ("tools/list", listed, LIST_BYTES),
        ("a search of 50", searched, SEARCH_BYTES),
    ):
        say(f"{name:34}{size:>6,} bytes{'':>20}{bound!s:>17} {bound.verdict(size)}")
        measures.append(
            Measure("server", name, size, "bytes", "", 0, str(bound), bound.verdict(size))
        )
    return measures


def _measure(
    name: str,
    ours: float,
    bare: float,
    unit: str,
    bound: Bound | None = None,
    against: str = "minimal server",
) -> Measure:
    scale = {"ms": 1e3, "MB": 1e-6}[unit]
    ratio = ours / bare
    verdict = bound.verdict(ratio) if bound else ""
    shown = f"{ours * scale:.2f} {unit}", f"{bare * scale:.2f} {unit}"
    say(f"{name:34}{shown[0]:>12}{shown[1]:>12}{ratio:>8.2f}{bound or ''!s:>10} {verdict}")
    limit = str(bound or "")
    return Measure("server", name, ours * scale, unit, against, bare * scale, limit, verdict)
