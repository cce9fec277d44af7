"""Letters between agents against what nobody does without: a call of tmux, one of the SDK, a bare start."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.command import POSTROOM, environment
from bench.report import Bound, Measure, Times, folder, progress, say
from bench.server import MINIMAL, NOOP, Call, Wire, serving
from postroom.agents.folder import MailFolder
from postroom.agents.record import AgentMessage, now, write_message

CALLS, FEW_CALLS = 100, 30
ROUNDS = 5
MESSAGES, FEW_MESSAGES = 1_500, 300
EACH, FEW_EACH = 200, 50
STARTS = 20
SENDERS = 8
HISTORY = 20_000
TEXT = "x" * 512
TWICE, START, RATE = Bound(2, "×"), Bound(4, "×"), Bound(0.6, "×", at_least=True)
LIST, LIST_ALL = Bound(2_000, "bytes"), Bound(20_000, "bytes")

SERVER = (POSTROOM, "mcp", "agents")
Environment = dict[str, str]


class Tmux(NamedTuple):
    """A tmux server of our own, and the environments of its two windows."""

    command: tuple[str, ...]
    env: Environment
    alice: Environment
    bob: Environment


def run(*, quick: bool = False) -> list[Measure]:
    """Measure with tmux, then without."""
    calls = FEW_CALLS if quick else CALLS
    with folder() as home:
        (home / ".git").mkdir()
        progress("agents: in tmux")
        with _tmux(home) as tmux:
            measures = [*_in_tmux(home, tmux, calls), *_hooks(home, tmux)]
    progress("agents: without tmux")
    with folder() as home:
        (home / ".git").mkdir()
        measures.append(_one(home, FEW_MESSAGES if quick else MESSAGES))
        measures += _many(home, FEW_EACH if quick else EACH)
    with folder() as home:
        (home / ".git").mkdir()
        measures += [*_history(home, calls), *_sizes(home)]
    return measures


# Where agents are


def outside_tmux(home: Path, name: str = "") -> Environment:
    """Return the environment of an agent outside tmux."""
    kept = environment(home)
    for outer in ("TMUX", "TMUX_PANE", "AGENTMAIL_NAME"):
        kept.pop(outer, None)
    return kept | ({"AGENTMAIL_NAME": name} if name else {})


@contextmanager
def _tmux(home: Path) -> Iterator[Tmux]:
    command = ("tmux", "-L", f"postroom-bench-{os.getpid()}")
    env = outside_tmux(home) | {"TMUX_TMPDIR": str(home)}

    def said(*words: str) -> str:
        done = subprocess.run([*command, *words], env=env, check=True, capture_output=True, text=True)  # fmt: skip
        return done.stdout.strip()

    said("-f", "/dev/null", "new-session", "-d", "-n", "alice", "sleep 3600")
    try:
        said("new-window", "-d", "-n", "bob", "sleep 3600")
        place = said("display-message", "-p", "#{socket_path},#{pid},0")
        listed = said("list-panes", "-a", "-F", "#{pane_id} #{window_name}")
        panes = {name: pane for pane, name in map(str.split, listed.splitlines())}
        alice, bob = (env | {"TMUX": place, "TMUX_PANE": panes[n]} for n in ("alice", "bob"))
        yield Tmux(command, env, alice, bob)
    finally:
        said("kill-server")


def _ask(wire: Wire, tool: str, **arguments: str) -> bytes:
    answer = wire.call(Call(tool, arguments))[0]
    if b'"isError":false' not in answer:
        raise SystemExit(f"{tool}: {answer.decode()}")
    return answer


def _read(answer: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer)["result"]["structuredContent"]
    return found


def _turns(acts: Mapping[str, Callable[[], object]], runs: int) -> dict[str, Times]:
    """Do all of them by turns, and return how long each took."""
    for act in acts.values():
        act()
    taken: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(runs):
        for name, act in acts.items():
            began = time.perf_counter()
            act()
            taken[name].append(time.perf_counter() - began)
    return {name: Times(found) for name, found in taken.items()}


# With tmux


def _in_tmux(home: Path, tmux: Tmux, calls: int) -> list[Measure]:
    words = [*tmux.command, "list-panes", "-s", "-t", "%0", "-F", "#{window_name}"]

    def bare(times: int = 1) -> None:
        for _ in range(times):
            subprocess.run(words, env=tmux.env, check=True, stdout=subprocess.DEVNULL)

    def append() -> None:
        handle = os.open(home / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, b"x" * 599 + b"\n")
        os.close(handle)

    with serving(home, SERVER, tmux.alice) as alice, serving(home, SERVER, tmux.bob) as bob:
        deeds = {
            "send": lambda: _ask(alice, "send", recipient="bob", message=TEXT),
            "receive": lambda: _ask(bob, "receive"),
            "two bare tmux calls": lambda: bare(2),
            "bare": bare,
            "one flocked append": append,
        }
        # The round in which tmux itself was quickest is judged: the others were held up.
        rounds = [_turns(deeds, calls) for _ in range(ROUNDS)]
        found = min(rounds, key=lambda times: times["bare"].median)
        assert "from" not in _read(_ask(bob, "receive"))  # each has had one
    _head(f"the best of {ROUNDS} × {calls} calls each by turns in tmux", "bare tmux")
    floor = found["bare"].median * 1e3

    def row(name: str, bound: Bound | None = None) -> Measure:
        return _row(name, found[name].median * 1e3, "ms", "one tmux call", floor, bound)

    return [
        row("send", TWICE),
        row("receive", TWICE),
        row("two bare tmux calls"),
        _row("one flocked append", found["one flocked append"].median * 1e6, "µs"),
    ]


def _hooks(home: Path, tmux: Tmux) -> list[Measure]:
    def start(*command: str) -> Callable[[], object]:
        null = subprocess.DEVNULL
        return lambda: subprocess.run(command, cwd=home, env=tmux.bob, check=True, stdin=null, stdout=null)  # fmt: skip

    commands = {
        "agentmail status work": start(POSTROOM, "agentmail", "status", "work"),
        "agentmail receive --hook": start(POSTROOM, "agentmail", "receive", "--hook"),
    }
    found = _turns({"bare": start(sys.executable, "-c", "pass"), **commands}, STARTS)
    _head(f"the best of {STARTS} starts by turns, in tmux, no mail", "python")
    bare = found["bare"].best * 1e3
    return [
        _row(name, found[name].best * 1e3, "ms", "python -c pass", bare, START) for name in commands
    ]


# Without tmux


def _one(home: Path, count: int) -> Measure:
    with ExitStack() as stack:
        bare = stack.enter_context(serving(home, MINIMAL, outside_tmux(home)))
        carol = stack.enter_context(serving(home, SERVER, outside_tmux(home, "carol")))
        dave = stack.enter_context(serving(home, SERVER, outside_tmux(home, "dave")))
        _ask(dave, "list-recipients")  # by which others know the name

        # By turns, so that what slows the machine down slows both: the medians are compared.
        deeds = {
            "send": lambda: _ask(carol, "send", recipient="dave", message=TEXT),
            "no-op": lambda: bare.call(NOOP),
        }
        times = _turns(deeds, count)
        ours, floor = 1 / times["send"].median, 1 / times["no-op"].median
    _head(f"{count:,} messages of {len(TEXT)} bytes without tmux", "no-op calls")
    return _row("one sender", ours, "/s", "no-op calls of the same SDK", floor, RATE)


def _many(home: Path, each: int) -> list[Measure]:
    with ExitStack() as stack:
        names = [f"sender{number}" for number in range(SENDERS)]
        wires = [
            stack.enter_context(serving(home, SERVER, outside_tmux(home, name))) for name in names
        ]
        erin = stack.enter_context(serving(home, SERVER, outside_tmux(home, "erin")))
        _ask(erin, "list-recipients")

        def send(wire: Wire) -> list[str]:
            answers = [_ask(wire, "send", recipient="erin", message=TEXT) for _ in range(each)]
            return [_read(answer)["message_id"] for answer in answers]

        threads = stack.enter_context(ThreadPoolExecutor(SENDERS))
        began = time.perf_counter()
        lists = list(threads.map(send, wires))
        lasted = time.perf_counter() - began
        sent = sorted(id for ids in lists for id in ids)
        received = []
        began = time.perf_counter()
        while "from" in (found := _read(_ask(erin, "receive"))):
            received.append(found["id"])
        took = time.perf_counter() - began
    if sorted(received) != sent or len({*sent}) != SENDERS * each:
        lost, twice = len({*sent} - {*received}), len(received) - len({*received})
        raise SystemExit(f"of {len(sent):,} messages {lost} are lost and {twice} came twice")
    many = len(sent)
    return [
        _row(f"{SENDERS} at once, {many:,} messages", many / lasted, "/s"),
        _row("one receives all, each once", many / took, "/s"),
    ]


def _history(home: Path, calls: int) -> list[Measure]:
    mail = MailFolder(str(home))
    mail.make()
    moment = now()
    read = (
        write_message(AgentMessage(f"{number:08}", "frank", "old", TEXT, read=True, created=moment))
        for number in range(HISTORY)
    )
    Path(mail.box("old")).write_bytes(b"".join(read))
    with ExitStack() as stack:
        frank, old, new = (
            stack.enter_context(serving(home, SERVER, outside_tmux(home, name)))
            for name in ("frank", "old", "new")
        )
        _ask(new, "receive")
        began = time.perf_counter()
        _ask(old, "receive")  # makes the cursor
        first = time.perf_counter() - began
        acts: dict[str, Callable[[], object]] = {}
        for name, wire in (("old", old), ("new", new)):
            acts[f"to {name}"] = partial(_ask, frank, "send", recipient=name, message=TEXT)
            acts[name] = partial(_ask, wire, "receive")
        found = _turns(acts, calls)
        assert "from" not in _read(_ask(old, "receive"))  # each has had one
    _head(f"{calls} each by turns, {HISTORY:,} read messages, no tmux", "empty")

    def row(name: str, old: str, new: str, bound: Bound | None = None) -> Measure:
        values = found[old].median * 1e3, found[new].median * 1e3
        return _row(name, values[0], "ms", "empty mailbox", values[1], bound)

    return [
        row("receive, long history", "old", "new", TWICE),
        row("send, long history", "to old", "to new"),
        _row("the first receive of all", first * 1e3, "ms"),
    ]


def _sizes(home: Path) -> list[Measure]:
    measures = []
    _head("what a client is told at first", "")
    for name, command, bound in (
        ("mcp agents", SERVER, LIST),
        ("mcp", (POSTROOM, "mcp"), LIST_ALL),
    ):
        wire = Wire(home, command, outside_tmux(home, "grace"))
        listed = len(json.dumps(json.loads(wire.greet())["result"], separators=(",", ":")))
        wire.end()
        measures.append(_row(f"tools/list of {name}", listed, "bytes", bound=bound))
    return measures


# What is said


def _head(about: str, floor: str) -> None:
    say(f"agents: {about}")
    say(f"{'':32}{'postroom':>12}{floor:>12}{'ratio' if floor else '':>8}{'bound':>13}")


def _row(
    name: str,
    value: float,
    unit: str,
    against: str = "",
    floor: float = 0.0,
    bound: Bound | None = None,
) -> Measure:
    measure = Measure("agents", name, value, unit, against, floor, str(bound or ""))
    verdict = bound.verdict(measure.ratio if bound.unit == "×" else value) if bound else ""

    def shown(number: float) -> str:
        return f"{number:,.{2 if unit == 'ms' else 0}f} {unit}"

    base = shown(floor) if floor else ""
    ratio = f"{measure.ratio:.2f} ×" if floor else ""
    say(f"{name:32}{shown(value):>12}{base:>12}{ratio:>8}{bound or ''!s:>13} {verdict}".rstrip())
    return Measure("agents", name, value, unit, against, floor, measure.bound, verdict)
