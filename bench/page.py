"""The page: how long the queue and a letter take at the server, how large they are, and how soon a second tab knows of a decision."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from bench.command import POSTROOM, environment
from bench.desk import ROOMY, WAITING, Office, lodging, silent
from bench.report import Bound, Measure, Times, progress, say
from postroom.web.templates import STATIC

RUNS, WARM, DECISIONS = 60, 5, 20
TIMES = {"the queue": Bound(3, "×"), "one letter": Bound(8, "×")}
SIZES = {"queue": Bound(60_000, "bytes"), "script": Bound(15_000, "bytes"), "style": Bound(25_000, "bytes")}  # fmt: skip
SOON = Bound(0.3, "s")


def run() -> list[Measure]:
    """Measure a desk on which many letters wait."""
    with lodging() as (home, stack):
        office = Office(home, stack, ROOMY, silent())
        for number in range(1, WAITING + 1):
            last = office.propose(office.letter())
            if number % 100 == 0:
                progress(f"page: {number} of {WAITING} letters wait")
        with _served(home) as (address, sign_in), httpx2.Client(timeout=30) as browser:
            _sign_in(browser, address, sign_in)
            paths = {
                "the queue": "/",
                "one letter": f"/letter/{last.id}",
                "the history": "/history",
            }
            with _constant(browser.get(address).content) as bare:
                measures = _pages(browser, address, bare, paths)
            return measures + _decisions(office, browser, address)


@contextmanager
def _served(home: Path) -> Iterator[tuple[str, str]]:
    command = [POSTROOM, "desk", "--no-open", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=home, env=environment(home), stdout=subprocess.PIPE, stderr=sys.stderr) as process:  # fmt: skip
        assert process.stdout
        text = b""
        while b"}" not in text:
            piece = process.stdout.readline()
            if not piece:
                raise SystemExit("the page was not served")
            text += piece
        said = json.loads(text)
        try:
            yield said["address"], said["sign_in"]
        finally:
            process.terminate()


@contextmanager
def _constant(content: bytes) -> Iterator[str]:
    """Serve the same bytes with the same programs and nothing between."""

    def answer(_request: object) -> Response:
        return Response(content, media_type="text/html")

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    app = Starlette(routes=[Route("/", answer)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _sign_in(browser: httpx2.Client, address: str, sign_in: str) -> None:
    ticket = sign_in.rpartition("/")[2]
    answer = browser.post(f"{address}/in", data={"ticket": ticket}, headers={"Origin": address})
    if answer.status_code != 303:
        raise SystemExit(f"signing in gave {answer.status_code}")


def _pages(browser: httpx2.Client, address: str, bare: str, paths: dict[str, str]) -> list[Measure]:
    taken: dict[str, list[float]] = {name: [] for name in ("bare", *paths)}
    sizes: dict[str, int] = {}
    for turn in range(WARM + RUNS):
        for name, at in (("bare", f"{bare}/"), *((name, address + path) for name, path in paths.items())):  # fmt: skip
            began = time.perf_counter()
            answer = browser.get(at)
            spent = time.perf_counter() - began
            if answer.status_code != 200:
                raise SystemExit(f"{name}: {answer.status_code}")
            sizes[name] = len(answer.content)
            if turn >= WARM:
                taken[name].append(spent)
    base = Times(taken.pop("bare"))
    say(f"page: {RUNS} requests each by turns over an open connection, {WAITING} letters wait;")
    say(f"the same bytes from a bare server: median {base.median * 1e3:.2f} ms")
    measures = []
    for name, times in ((name, Times(found)) for name, found in taken.items()):
        ratio, bound = times.median / base.median, TIMES.get(name)
        shown, verdict = (str(bound), bound.verdict(ratio)) if bound else ("", "")
        measures.append(Measure("page", name, times.median, "s", "bare server", base.median, shown, verdict))  # fmt: skip
        say(
            f"{name:12} median {times.median * 1e3:7.2f} ms{ratio:7.1f} ×"
            f"  {sizes[name]:>7,} bytes  {shown} {verdict}".rstrip()
        )
    files = {"queue": sizes["the queue"], "script": len(STATIC["desk.js"]), "style": len(STATIC["desk.css"])}  # fmt: skip
    for name, size in files.items():
        verdict = SIZES[name].verdict(size)
        say(f"bytes of the {name}: {size:,}  {SIZES[name]} {verdict}")
        measures.append(Measure("page", f"bytes of the {name}", size, "bytes", "", 0, str(SIZES[name]), verdict))  # fmt: skip
    return measures


def _decisions(office: Office, browser: httpx2.Client, address: str) -> list[Measure]:
    """Measure from a decision until another tab has the letter as it is then."""
    page = browser.get(address).text
    token = re.search(r'name="token" value="([0-9a-f]+)"', page)
    assert token
    here: list[float] = []
    elsewhere: list[float] = []
    letters = [
        line.id for line in office.desk.ledger.lists.summaries("pending", newest=2 * DECISIONS)
    ]
    with browser.stream("GET", f"{address}/events") as stream:
        events = stream.iter_lines()
        for turn, id in enumerate(letters):
            began = time.perf_counter()
            if turn % 2:
                office.desk.decide(id, "reject", by="ada", reason="no")
            else:
                browser.post(
                    f"{address}/letter/{id}/reject",
                    data={"token": token[1], "digest": office.desk.ledger.letters.get(id).digest},
                    headers={"Origin": address},
                )
            while "Rejected by" not in browser.get(f"{address}/letter/{id}").text:
                while next(events) != "event: change":
                    pass
            (elsewhere if turn % 2 else here).append(time.perf_counter() - began)
    measures = []
    for name, runs in (("on the page", here), ("in another process", elsewhere)):
        worst, verdict = max(runs), SOON.verdict(max(runs))
        measures.append(Measure("page", f"decided {name}", worst, "s", "", 0, str(SOON), verdict))
        say(f"decided {name}, seen in another tab: median {Times(runs).median * 1e3:.0f} ms, worst {worst * 1e3:.0f} ms  {SOON} {verdict}")  # fmt: skip
    return measures
