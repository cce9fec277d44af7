"""The vault's tools against ripgrep and bare FTS5 on the same notes: search, filter, index, freshness, memory."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

from bench import notes
from bench.command import POSTROOM, environment
from bench.report import MISSING, Bound, Measure, folder, progress, say
from bench.server import Call as Asked
from bench.server import Wire
from postroom.config.loading import load
from postroom.desk.recorder import Call
from postroom.services.services import Services
from postroom.tools.contracts import vault as contract
from postroom.tools.table import Result, ToolContext
from postroom.vault.index import document
from postroom.wiring.desk import find_desk

USUAL, LARGE = 10_000, 50_000
RUNS = 30
EDITS = 20
PACKAGE = "ripgrep"
INSTALL = f"apt-get install {PACKAGE}"
TENTH, RANKED, FILTER = Bound(0.1, "× rg"), Bound(30, "ms"), Bound(5, "ms")
FIRST, SEEN, MEMORY, LIST = (
    Bound(3.5, "× bare"),
    Bound(200, "ms"),
    Bound(120, "MB"),
    Bound(6_000, "bytes"),
)
ANSWER = Bound(8_000, "bytes")
CASES = {
    "rare word (0.1 %)": notes.RARE,
    "phrase (0.1 %)": f'"{notes.PHRASE}"',
    "common word (20 %)": notes.COMMON,
}


def run(*, quick: bool, install: bool) -> list[Measure]:
    """Measure in vaults of both sizes."""
    if install and not shutil.which("rg"):
        subprocess.run(["apt-get", "install", "--yes", PACKAGE], check=True)
    measures = []
    for size in (USUAL,) if quick else (USUAL, LARGE):
        with folder() as home:
            measures += _measured(home, size)
    return measures


def _measured(home: Path, size: int) -> list[Measure]:
    root = home / "vault"
    for number in notes.write(root, size):
        if number % 10_000 == 0:
            progress(f"vault: {number:,} of {size:,} notes written")
    whole = sum(file.stat().st_size for file in root.rglob("*.md"))
    say(f"vault: {size:,} notes of {whole / size:,.0f} bytes; the first {RUNS} runs' median")
    say(f"{'':30}{'postroom':>11}{'bare FTS5':>11}{'rg -l':>11}{'bound':>17}")
    with ExitStack() as stack:
        opened = stack.enter_context(find_desk(load(environment(home), home, home), make=True))
        assert opened is not None
        book = stack.enter_context(closing(Services(opened)))
        bare = sqlite3.connect(home / "bare.sqlite")
        stack.callback(bare.close)
        measures = [_first(book, bare, root, size)]
        measures += [_search(book, bare, root, size, name) for name in CASES]
        measures += [_filter(book, bare, size), _edits(book, root, size)]
    return [*measures, *_server(home, size)]


def _ask(services: Services, tool: str, **arguments: str) -> Result:
    """Call a tool as the server does, without the wire."""
    context = ToolContext(services, Call(tool, "bench", "vault"))
    function: Callable[..., Any] = getattr(contract, tool)
    running = function(context, **arguments)
    try:
        while True:
            time.sleep(next(running).seconds)
    except StopIteration as done:
        found: Result = done.value
        return found


def _first(services: Services, bare: sqlite3.Connection, root: Path, size: int) -> Measure:
    # Judged by the CPU time of this process, which other processes do not lengthen.
    began, spent = time.perf_counter(), time.process_time()
    _ask(services, "list_notes", directory="")
    ours, our_cpu = time.perf_counter() - began, time.process_time() - spent
    progress("vault: indexed; bare FTS5 follows")
    began, spent = time.perf_counter(), time.process_time()
    bare.execute("CREATE VIRTUAL TABLE bare USING fts5(title, text)")
    bare.execute("CREATE TABLE field (key, value, path, PRIMARY KEY (key, value, path)) WITHOUT ROWID")  # fmt: skip
    for file in root.rglob("*.md"):
        bare.execute("INSERT INTO bare VALUES (?, ?)", (file.stem, file.read_text()))
    bare.commit()
    bare_wall, bare_cpu = time.perf_counter() - began, time.process_time() - spent
    for number in range(size):
        made = notes.note(number)
        pairs = document(made.path, made.text.encode()).fields
        bare.executemany("INSERT OR IGNORE INTO field VALUES (?, ?, ?)", [(*p, made.path) for p in pairs])  # fmt: skip
    bare.commit()
    bound = FIRST if size == USUAL else None
    ratio = our_cpu / bare_cpu
    return _row("first index", size, ours, "s", bare=bare_wall, bound=bound, value=ratio)


def _search(
    services: Services, bare: sqlite3.Connection, root: Path, size: int, name: str
) -> Measure:
    query = CASES[name]
    found = _ask(services, "search_notes", query=query)
    assert isinstance(found, contract.NoteList)
    sql = "SELECT title FROM bare WHERE bare MATCH ? ORDER BY rank LIMIT 20"
    total = bare.execute("SELECT count(*) FROM bare WHERE bare MATCH ?", (query,)).fetchone()[0]
    if found.total != total or not total:
        raise SystemExit(f"{query}: {found.total} notes are found, and {total} by bare FTS5")
    ours = _median(lambda: _ask(services, "search_notes", query=query))
    theirs = _median(lambda: bare.execute(sql, (query,)).fetchall())
    rg = shutil.which("rg")
    words = query.strip('"')
    grep = _median(lambda: subprocess.run([rg, "-l", "-w", words, root], stdout=subprocess.DEVNULL, check=True), 7) if rg else 0.0  # fmt: skip
    if name.startswith("common"):
        bound = RANKED if size == LARGE else None
        return _row(name, size, ours, "ms", bare=theirs, rg=grep, bound=bound, value=ours * 1e3)
    value = ours / grep if grep else None
    return _row(name, size, ours, "ms", bare=theirs, rg=grep, bound=TENTH, value=value)


def _filter(services: Services, bare: sqlite3.Connection, size: int) -> Measure:
    key, _, value = notes.FILTER.partition(":")
    sql = "SELECT path FROM field WHERE key = ? AND value = ? ORDER BY path LIMIT 100"
    ours = _median(lambda: _ask(services, "list_notes", directory="", filter=notes.FILTER))
    theirs = _median(lambda: bare.execute(sql, (key, value)).fetchall())
    return _row("filter (1 %)", size, ours, "ms", bare=theirs, bound=FILTER, value=ours * 1e3)


def _edits(services: Services, root: Path, size: int) -> Measure:
    """Return how long it takes until an edit that another program made is found."""
    taken = []
    for number in range(EDITS):
        word = f"quagga{number}"
        file = root / notes.note(number * 7).path
        file.write_text(f"{file.read_text()}{word}\n")
        began = time.perf_counter()
        while not services.notebook.finder.index.search(word, limit=1, offset=0).total:
            time.sleep(0.002)
        taken.append(time.perf_counter() - began)
    worst = max(taken)
    return _row("outside edit seen, the worst", size, worst, "ms", bound=SEEN, value=worst * 1e3)


def _server(home: Path, size: int) -> list[Measure]:
    wire = Wire(home, (POSTROOM, "mcp", "vault", "--agent", "bench"))
    listed = len(json.dumps(json.loads(wire.greet())["result"], separators=(",", ":")))
    sizes = []
    for name, query in CASES.items():
        answer = json.loads(wire.call(Asked("search_notes", {"query": query}))[0])["result"]
        if answer.get("isError"):
            raise SystemExit(f"{name}: {answer}")
        sizes.append(len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()))
    memory = wire.memory
    wire.end()
    bound, largest = MEMORY if size == LARGE else None, max(sizes)
    return [
        _row("memory of the server", size, memory, "MB", bound=bound, value=memory * 1e-6),
        _row("tools/list", size, listed, "bytes", bound=LIST, value=listed),
        _row("the largest search", size, largest, "bytes", bound=ANSWER, value=largest),
    ]


def _median(act: Callable[[], object], runs: int = RUNS) -> float:
    act()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return median(taken)


def _row(
    name: str,
    size: int,
    ours: float,
    unit: str,
    *,
    bare: float = 0.0,
    rg: float = 0.0,
    bound: Bound | None = None,
    value: float | None = None,
) -> Measure:
    scale = {"ms": 1e3, "s": 1.0, "MB": 1e-6, "bytes": 1.0}[unit]

    def shown(number: float) -> str:
        return f"{number * scale:,.{0 if unit == 'bytes' else 2}f} {unit}" if number else ""

    verdict = (bound.verdict(value) if value is not None else MISSING) if bound else ""
    say(f"{name:30}{shown(ours):>11}{shown(bare):>11}{shown(rg):>11}{bound or ''!s:>13} {verdict}")
    against, base = ("rg -l", rg) if rg else ("bare FTS5", bare) if bare else ("", 0.0)
    return Measure("vault", f"{name}, {size:,} notes", ours * scale, unit, against, base * scale, str(bound or ""), verdict)  # fmt: skip
