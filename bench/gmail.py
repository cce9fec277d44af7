"""Gmail at 50 ms a request: what a search, a send and twenty calls at once cost in round trips."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from bench import mails
from bench.command import POSTROOM, environment
from bench.report import Bound, Measure, folder, progress, say
from bench.server import Call, Wire
from postroom.core.address import Address
from postroom.core.letter import Letter, letter_id
from postroom.mail.gmail import GmailMailbox, open_gmail

LATENCY = 0.05  # seconds that the service takes for each request
MAILS = 200
ROUNDS = 10
AT_ONCE = 20
SEARCH = Bound(3.5, "×")
BATCHES, NONE = "in batches", "one by one"


class Service:
    """The double of Gmail that the tests use, in a process of its own."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self.about: dict[str, Any] = line.recv()

    def told(self, wish: str) -> int:
        """Say whether it is to take batches; return how many requests came since the last time."""
        self._line.send(wish)
        count: int = self._line.recv()
        return count


def _serve(line: Connection) -> None:
    from tests.gmail.double import Gmail

    with Gmail() as service:
        for made in mails.shuffled(MAILS):
            service.receive(made.raw)
        service.latency = LATENCY
        line.send(
            {"endpoint": service.endpoint, "uri": service.token_uri, "token": service.token()}
        )
        for wish in iter(line.recv, "end"):
            service.batch = wish == BATCHES
            asked = [request for request in service.requests if not request.inner]
            service.requests.clear()
            line.send(len(asked))


@contextmanager
def serving() -> Iterator[Service]:
    """Run the service."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield Service(ours)
    finally:
        ours.send("end")
        process.join()


def run() -> list[Measure]:
    """Measure against one bare request to the same service."""
    with folder() as home, serving() as service:
        progress(f"gmail: {MAILS} mails, {LATENCY * 1000:.0f} ms a request")
        token = home / "token.json"
        token.write_text(json.dumps(service.about["token"]))
        token.chmod(0o600)
        say(f"gmail: {LATENCY * 1000:.0f} ms a request on loopback, {ROUNDS} runs each, medians;")
        say("against one bare request over a connection that is open")
        say(f"{'':34}{'postroom':>12}{'bare':>12}{'ratio':>8}{'bound':>12}")
        bare = _bare(service)
        return [*_inside(service, token, bare), *_outside(service, home, token, bare)]


def _bare(service: Service) -> float:
    headers = {"Authorization": f"Bearer {service.about['token']['token']}"}
    with httpx2.Client(headers=headers) as http:
        place = f"{service.about['endpoint']}/gmail/v1/users/me/profile"
        return _median(lambda: http.get(place).raise_for_status())


def _inside(service: Service, token: Path, bare: float) -> list[Measure]:
    box = open_gmail(service.about["endpoint"], service.about["uri"], tokens=[token])
    with closing(box):
        service.told(BATCHES)
        box.search("", limit=2)
        measures = _searches(service, box, bare, BATCHES, SEARCH)
        id = box.search("", limit=1).items[0].id
        ids = (letter_id(number.to_bytes(7, "big")) for number in range(1, 1000))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for name, do in {
                "one mail": lambda: box.message(id),
                "one send": lambda: _send(box, next(ids)),
                f"{AT_ONCE} searches of 10 at once": lambda: list(
                    pool.map(lambda _: box.search("", limit=10), range(AT_ONCE))
                ),
            }.items():
                service.told(BATCHES)
                measures.append(_measure(name, _median(do), bare))
                _count(service, BATCHES)
        service.told(NONE)
        box.search("", limit=2)  # finds out that there are none, and does not ask again
        return [*measures, *_searches(service, box, bare, NONE, None)]


def _searches(
    service: Service, box: GmailMailbox, bare: float, wish: str, bound: Bound | None
) -> list[Measure]:
    measures = []
    for limit in (10, 25, 50):
        service.told(wish)
        took = _median(partial(box.search, "", limit=limit))
        measures.append(_measure(f"search of {limit}, {wish}", took, bare, bound))
        _count(service, wish)
    return measures


def _send(box: GmailMailbox, id: str) -> None:
    you, ann = Address.parse("you@example.org"), Address.parse("ann@example.com")
    letter = Letter(
        id=id, account="default", sender=you, to=(ann,), subject="Tea", text="At four.\n"
    )
    wire = box.wire(letter, date=datetime.now(UTC))
    box.send(letter, wire, box.prepare(letter, wire))


def _outside(service: Service, home: Path, token: Path, bare: float) -> list[Measure]:
    """Ask the server, as an agent does."""
    about = {
        "POSTROOM_PROVIDER": "gmail",
        "GMAIL_API_ENDPOINT": service.about["endpoint"],
        "GMAIL_TOKEN_URI": service.about["uri"],
        "GMAIL_TOKEN_PATH": str(token),
    }
    service.told(BATCHES)
    call = Call("search_email", {"limit": 50})
    wire = Wire(home, (POSTROOM, "mcp", "--agent", "bench"), environment(home) | about)
    wire.greet()
    answer = wire.call(call)[0]
    took = _median(lambda: wire.call(call))
    wire.end()
    result = json.loads(answer)["result"]
    assert len(result["structuredContent"]["mails"]) == 50
    size = len(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode())
    measures = [_measure("search_email of 50, over stdio", took, bare, SEARCH)]
    say(f"{'its answer':34}{size:>6,} bytes")
    return [*measures, Measure("gmail", "a search of 50", size, "bytes", "", 0)]


def _median(do: Callable[[], object]) -> float:
    """Return how long it takes, of several times, the first left out."""
    taken = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        do()
        taken.append(time.perf_counter() - began)
    return median(taken[1:])


def _count(service: Service, wish: str) -> None:
    say(f"{'':36}{service.told(wish) / (ROUNDS + 1):.0f} requests")


def _measure(name: str, ours: float, bare: float, bound: Bound | None = None) -> Measure:
    ratio = ours / bare
    verdict = bound.verdict(ratio) if bound else ""
    shown = f"{ours * 1e3:.1f} ms", f"{bare * 1e3:.1f} ms"
    say(f"{name:34}{shown[0]:>12}{shown[1]:>12}{ratio:>8.2f}{bound or ''!s:>10} {verdict}")
    against = "one bare request"
    return Measure("gmail", name, ours, "s", against, bare, str(bound or ""), verdict)
