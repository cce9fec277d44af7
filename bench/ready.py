"""How soon a server answers after its start, and what it holds in memory then.

Against a bare loop of the same interpreter, against servers of others, and against the same tools served by the SDK. All
of them start in the same environment, by turns; medians are judged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import mails, peers
from bench.agents import outside_tmux
from bench.command import POSTROOM, mailbox, output
from bench.report import MISSING, Bound, Measure, progress, say
from bench.server import SDK_SERVED, SERVER, Call, Wire

STARTS = 15
FIRST_CALLS = 11
TOUR_MAILS = 1_000
SILENCE = 0.5  # seconds in which a model thinks before its first call
LOOP = (sys.executable, str(Path(__file__).with_name("loop.py")))
AGENT, OTHER = "bench", "dora"
SERVERS = ("email", "vault", "agents", "all")
BARE, GMAIL, NOTES = "bare loop", "gongrzhe", "mcpvault"
PEERS = {GMAIL: peers.GONGRZHE, NOTES: peers.MCPVAULT}
# server, baseline → how many times the baseline it may take
STARTED = {
    ("email", BARE): Bound(5, "×"),
    ("email", GMAIL): Bound(0.2, "×"),
    ("email", NOTES): Bound(0.4, "×"),
    ("agents", BARE): Bound(4, "×"),
}
LISTED, TOURED = Bound(40, "MB"), Bound(60, "MB")
AFTER_SILENCE = Bound(1.5, "×")
FIRST = {
    "search_email": Call("search_email", {"query": mails.COMMON}),
    "letter_status": Call("letter_status", {}),
}


class Started(NamedTuple):
    """What one start showed: seconds to the answer of `tools/list`, and bytes in memory then."""

    seconds: float
    memory: float


class First(NamedTuple):
    """The seconds of a server's first call, and those from its start to that answer."""

    call: float
    since_start: float


def run(home: Path, *, install: bool) -> list[Measure]:
    """Measure servers on the mailbox in that home; `install` brings the servers of others that are missing."""
    say()
    return [*_starts(home, install=install), *_first_calls(home), _tour(home / "tour")]


@contextmanager
def _started(home: Path, command: Sequence[str]) -> Iterator[tuple[peers.Watched, float]]:
    """Start a server and yield it with the moment when its process began."""
    began = time.perf_counter()
    wire = peers.Watched(home, command)
    try:
        yield wire, began
    finally:
        wire.end()


# Until the tools are listed


def _starts(home: Path, *, install: bool) -> list[Measure]:
    servers: dict[str, tuple[Path, Sequence[str]]] = {BARE: (home, LOOP)}
    servers |= {f"mcp {name}": (home, (POSTROOM, "mcp", name)) for name in SERVERS}
    for name, peer in PEERS.items():
        if install and not peer.server:
            peer.install()
        if peer.server:
            own = peers.home_of(home, peer.server)
            (own / "vault").mkdir(exist_ok=True)
            servers[name] = own, peer.server.command
    found: dict[str, list[Started]] = {name: [] for name in servers}
    for turn in range(STARTS + 1):
        progress(f"start: start {turn} of {STARTS} of each server")
        for name, (folder, command) in list(servers.items()):
            try:
                started = _start(folder, command)
            except (OSError, ValueError, LookupError):
                if name not in PEERS:
                    raise
                progress(f"start: {name} did not start: it is not measured")
                del servers[name], found[name]
                continue
            if turn:  # the first is for the byte code and the disk
                found[name].append(started)
    taken = {name: median(one.seconds for one in starts) for name, starts in found.items()}
    held = {name: median(one.memory for one in starts) for name, starts in found.items()}
    say(f"start: from a server's start to the answer of tools/list, medians of {STARTS} by")
    say("turns in the same environment; against a bare loop over lines of JSON in the")
    say("same interpreter, and against servers of others")
    _head("baseline")
    measures = [
        _row(
            f"mcp {name} / {baseline}",
            taken[f"mcp {name}"],
            baseline,
            taken.get(baseline),
            STARTED.get((name, baseline)),
        )
        for name in SERVERS
        for baseline in (BARE, GMAIL, NOTES)
    ]
    say()
    say("start: resident memory then, medians")
    return measures + [
        _memory(name, "memory at tools/list", memory, LISTED if name == "mcp email" else None)
        for name, memory in held.items()
    ]


def _start(home: Path, command: Sequence[str]) -> Started:
    with _started(home, command) as (wire, began):
        answer = wire.greet()
        lasted = time.perf_counter() - began
        memory = wire.memory
    assert json.loads(answer)["result"]["tools"]
    return Started(lasted, memory)


# The first call


def _first_calls(home: Path) -> list[Measure]:
    found: dict[tuple[str, float, str], list[First]] = {}
    for turn in range(FIRST_CALLS + 1):
        progress(f"start: first calls, {turn} of {FIRST_CALLS}")
        for tool, call in FIRST.items():
            for silence in (0.0, SILENCE):
                for kind, command in (("ours", SERVER), ("sdk", SDK_SERVED)):
                    first = _first(home, command, call, silence)
                    if turn:
                        found.setdefault((tool, silence, kind), []).append(first)

    def middle(tool: str, silence: float, kind: str, which: Callable[[First], float]) -> float:
        return median(map(which, found[tool, silence, kind]))

    say()
    say(f"start: the first call of mcp email, medians of {FIRST_CALLS} by turns; at once after")
    say(f"tools/list, or after {SILENCE:g} s as a model thinks; against the same tools on the SDK")
    _head("SDK")
    kinds: Sequence[tuple[str, float, Callable[[First], float], Bound | None]] = (
        ("at once", 0.0, lambda one: one.call, None),
        ("after a silence", SILENCE, lambda one: one.call, AFTER_SILENCE),
        ("start to answer", 0.0, lambda one: one.since_start, None),
    )
    return [
        _row(
            f"{tool}, {name}",
            middle(tool, silence, "ours", which),
            "SDK",
            middle(tool, silence, "sdk", which),
            bound,
        )
        for tool in FIRST
        for name, silence, which, bound in kinds
    ]


def _first(home: Path, command: Sequence[str], call: Call, silence: float) -> First:
    with _started(home, command) as (wire, began):
        wire.greet()
        time.sleep(silence)
        asked = time.perf_counter()
        (answer,) = wire.call(call)
        done = time.perf_counter()
    _values(call.tool, answer)
    return First(done - asked, done - began)


# Every tool


def _tour(home: Path) -> Measure:
    """Call every tool of `mcp all` once, and measure the memory then."""
    home.mkdir()
    mailbox(home, TOUR_MAILS)
    (home / ".git").mkdir()  # agents write to each other in a repository
    for name in (AGENT, OTHER):  # by which each knows the other
        output(home, POSTROOM, "agentmail", "status", "--as", name, "ready")
    output(home, POSTROOM, "agentmail", "send", "--as", OTHER, AGENT, "Good day.")
    settings = home / "config/postroom/postroom.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("dry_run = false\n")
    wire = Wire(home, (POSTROOM, "mcp", "all"), outside_tmux(home, AGENT))
    try:
        listed = {tool["name"] for tool in json.loads(wire.greet())["result"]["tools"]}
        called = _call_all(wire)
        memory = wire.memory
    finally:
        wire.end()
    if missing := listed - called:
        raise SystemExit(f"start: the tour leaves out {', '.join(sorted(missing))}")
    say()
    say(
        f"start: resident memory after each of {len(called)} tools was called, {TOUR_MAILS:,} mails"
    )
    return _memory("mcp all", "memory after every tool", memory, TOURED)


def _call_all(wire: Wire) -> set[str]:
    """Call every tool once, with what a first conversation would ask; return their names."""
    called = set()

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        called.add(tool)
        return _values(tool, wire.call(Call(tool, arguments))[0])

    id = call("search_email", query="has:attachment", limit=50)["mails"][0]["id"]
    part = call("get_email", id=id)["files"][0]["part"]
    call("get_attachment", id=id, part=part)
    call("get_thread", id=id)
    letter = {"to": ["ann@example.org"], "subject": "Hello", "body": "Good day."}
    call("draft_email", **letter)
    call("withdraw_letter", id=call("send_email", **letter)["letter"])
    call("reply_email", id=id, body="Good day.")
    call("letter_status")
    call("add_label", id=id, label="bench")
    call("move_email", id=id, destination="archive")
    call("write_note", path="Notes/one.md", frontmatter={"kind": "bench"}, body="A word.")
    call("read_note", path="Notes/one.md")
    call("edit_note", path="Notes/one.md", append="Another word.")
    call("list_notes", directory="Notes")
    call("search_notes", query="word")
    call("move_note", source="Notes/one.md", destination="Notes/two.md")
    call("set_status", status="work")
    call("send_message", recipient=OTHER, message="Hello.")
    call("receive_message")
    call("list_agents")
    call("search_messages", query="Hello")
    return called


def _values(tool: str, answer: bytes) -> dict[str, Any]:
    """Return what a call that must succeed has answered."""
    result = json.loads(answer).get("result", {})
    if result.get("isError") is not False:
        raise SystemExit(f"start: {tool}: {answer.decode()}")
    found: dict[str, Any] = result["structuredContent"]
    return found


# What is said


def _head(against: str) -> None:
    say(f"{'':34}{'postroom':>11}{against:>12}{'ratio':>9}{'bound':>9}")


def _row(
    name: str, ours: float, against: str, baseline: float | None, bound: Bound | None
) -> Measure:
    """Say and return one time beside its baseline, which may not be there."""
    limit = "" if bound is None else str(bound)
    shown = f"{name:34}{ours * 1e3:>8.1f} ms"
    if baseline is None:
        say(f"{shown}{MISSING:>21}{limit:>9}".rstrip())
        return Measure("start", name, ours, "s", against, 0, limit, MISSING)
    ratio = ours / baseline
    verdict = "" if bound is None else bound.verdict(ratio)
    said = f"{shown}{baseline * 1e3:>9.1f} ms{ratio:>7.2f} ×{limit:>9} {verdict}"
    say(said.rstrip())
    return Measure("start", name, ours, "s", against, baseline, limit, verdict)


def _memory(server: str, name: str, held: float, bound: Bound | None) -> Measure:
    size, limit = held * 1e-6, "" if bound is None else str(bound)
    verdict = "" if bound is None else bound.verdict(size)
    say(f"{server:34}{size:>8.1f} MB{limit:>30} {verdict}".rstrip())
    return Measure("start", f"{server}, {name}", size, "MB", "", 0, limit, verdict)
